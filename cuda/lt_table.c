#include "lt_table.h"

#include "library.h"

mt_status mt_lt_table_open(struct mt_lt_table *t, mt_err *e)
{
    static const struct mt_symbol function[] = {
#define X(f) {#f, offsetof(struct mt_lt_table, f)},
        MT_LT_FUNCTIONS(X)
#undef X
    };
    *t = (struct mt_lt_table){.library = NULL};
    /* The major version of the headers this was compiled with: what the types belong to. */
    return mt_library_open(&t->library, "cuBLASLt", "libcublasLt.so." MT_LIBRARY_TEXT(CUBLAS_VER_MAJOR),
                           MT_LIBRARY_TEXT(CUBLAS_VER_MAJOR) "." MT_LIBRARY_TEXT(CUBLAS_VER_MINOR), function,
                           sizeof function / sizeof *function, t, e);
}

void mt_lt_table_close(struct mt_lt_table *t)
{
    mt_library_close(&t->library);
    *t = (struct mt_lt_table){.library = NULL};
}
