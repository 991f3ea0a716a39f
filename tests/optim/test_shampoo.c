/* test: timeout=120 */
/* Shampoo. In the golden file the first two steps are Adam's. */
#define RULE "shampoo"
#define KIND MT_SHAMPOO
#define OPTIONS                                                                                        \
    "shampoo.beta1=0.9 shampoo.beta2=0.8 shampoo.eps=1e-4 shampoo.graft_eps=1e-8 shampoo.frequency=2 " \
    "shampoo.start=3 "
#define TRAINS "shampoo.start=2 "
#define PREPARES 0
#include "factored_check.h"

int main(void)
{
    return factored_tests();
}
