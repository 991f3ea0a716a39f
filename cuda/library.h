/* library.h: a library of NVIDIA's, found at run time, so that one program serves machines with and without it. Its functions are a
 * struct of pointers with the types of the library's own header: a call that does not fit does not compile. */
#ifndef MT_CUDA_LIBRARY_H
#define MT_CUDA_LIBRARY_H
#include <stddef.h>

#include "base/status.h"

struct mt_symbol {
    const char *name;
    size_t at; /* of its pointer in the table */
};
#define MT_LIBRARY_TEXT_(x) #x
#define MT_LIBRARY_TEXT(x) MT_LIBRARY_TEXT_(x)

/* Fills the pointers of a table of functions; *library: to be closed, NULL where the functions were in the process already (tests
 * link stand-ins). title: "cuBLASLt"; file: "libcublasLt.so.13"; version: what it should be. DEVICE: it, or one of its functions,
 * is not there; nothing is left open then. */
MT_MUST_USE mt_status mt_library_open(void **library, const char *title, const char *file,
                                      const char *version, const struct mt_symbol *symbol, int n, void *table,
                                      mt_err *e);
void mt_library_close(void **library); /* *library becomes NULL; it may be */
#endif
