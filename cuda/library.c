#include "library.h"

#include <dlfcn.h>
#include <string.h>

mt_status mt_library_open(void **library, const char *title, const char *file, const char *version,
                          const struct mt_symbol *symbol, int n, void *table, mt_err *e)
{
    void *from = RTLD_DEFAULT;
    *library = NULL;
    if (!dlsym(from, symbol[0].name)) {
        *library = from = dlopen(file, RTLD_NOW | RTLD_LOCAL);
        MT_REQUIRE(from, e, MT_DEVICE, "opening %s: %s; install it or add its folder to LD_LIBRARY_PATH",
                   title, dlerror());
    }
    for (int i = 0; i < n; i++) {
        void *f = dlsym(from, symbol[i].name);
        if (!f) {
            mt_library_close(library);
            MT_FAIL(e, MT_DEVICE, "opening %s: %s has no function %s; it should be version %s", title, file,
                    symbol[i].name, version);
        }
        memcpy((char *)table + symbol[i].at, &f, sizeof f);
    }
    return MT_OK;
}

void mt_library_close(void **library)
{
    if (*library) dlclose(*library);
    *library = NULL;
}
