/* Says what GPU there is, or why none can be used: exit status 0, or 77. */
#include <stdio.h>

#include "device/backend.h"

int main(void)
{
    char what[256];
    bool fits = mt_backend_find_cuda()->find(what, sizeof what);
    printf("%s: %s\n", fits ? "GPU" : "no GPU here", what);
    return fits ? 0 : 77;
}
