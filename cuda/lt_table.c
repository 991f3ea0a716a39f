#include "lt_table.h"

#include <dlfcn.h>
#include <string.h>

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
/* The major version of the headers this was compiled with: what the types belong to. */
#define LIBRARY "libcublasLt.so." TEXT(CUBLAS_VER_MAJOR)

mt_status mt_lt_table_open(struct mt_lt_table *t, mt_err *e)
{
    static const struct {
        const char *name;
        size_t at;
    } function[] = {
#define X(f) {#f, offsetof(struct mt_lt_table, f)},
        MT_LT_FUNCTIONS(X)
#undef X
    };
    *t = (struct mt_lt_table){.library = NULL};
    /* One that is in the process already comes first: tests link a stand-in. */
    void *from = RTLD_DEFAULT;
    if (!dlsym(from, function[0].name)) {
        t->library = from = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
        MT_REQUIRE(from, e, MT_DEVICE,
                   "opening cuBLASLt: %s; install it or add its folder to LD_LIBRARY_PATH", dlerror());
    }
    for (size_t i = 0; i < sizeof function / sizeof *function; i++) {
        void *f = dlsym(from, function[i].name);
        if (!f) {
            mt_lt_table_close(t);
            MT_FAIL(e, MT_DEVICE, "opening cuBLASLt: %s has no function %s; it should be version %s", LIBRARY,
                    function[i].name, TEXT(CUBLAS_VER_MAJOR) "." TEXT(CUBLAS_VER_MINOR));
        }
        memcpy((char *)t + function[i].at, &f, sizeof f);
    }
    return MT_OK;
}

void mt_lt_table_close(struct mt_lt_table *t)
{
    if (t->library) dlclose(t->library);
    *t = (struct mt_lt_table){.library = NULL};
}
