#include "dnn_table.h"

#include "library.h"

mt_status mt_dnn_table_open(struct mt_dnn_table *t, mt_err *e)
{
    static const struct mt_symbol function[] = {
#define X(f) {#f, offsetof(struct mt_dnn_table, f)},
        MT_DNN_FUNCTIONS(X)
#undef X
    };
    *t = (struct mt_dnn_table){.library = NULL};
    /* The major version of the headers this was compiled with: what the types belong to. */
    return mt_library_open(&t->library, "cuDNN", "libcudnn.so." MT_LIBRARY_TEXT(CUDNN_MAJOR),
                           MT_LIBRARY_TEXT(CUDNN_MAJOR) "." MT_LIBRARY_TEXT(CUDNN_MINOR), function,
                           sizeof function / sizeof *function, t, e);
}

void mt_dnn_table_close(struct mt_dnn_table *t)
{
    mt_library_close(&t->library);
    *t = (struct mt_dnn_table){.library = NULL};
}
