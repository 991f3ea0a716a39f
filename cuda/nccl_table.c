#include "nccl_table.h"

#include <stdio.h>

#include "library.h"

#define LIBRARY "libnccl.so.2" /* has been its name since version 2.0 */

void mt_nccl_version_text(int version, char text[MT_NCCL_VERSION_TEXT])
{
    const int old = version < 10000; /* before 2.9 */
    snprintf(text, MT_NCCL_VERSION_TEXT, "%d.%d.%d", version / (old ? 1000 : 10000),
             version % (old ? 1000 : 10000) / 100, version % 100);
}

static mt_status check_version(struct mt_nccl_table *t, mt_err *e)
{
    char is[MT_NCCL_VERSION_TEXT], least[MT_NCCL_VERSION_TEXT];
    MT_REQUIRE(!t->ncclGetVersion(&t->version), e, MT_DEVICE, "opening NCCL: it does not tell its version");
    mt_nccl_version_text(t->version, is);
    mt_nccl_version_text(MT_NCCL_LEAST, least);
    MT_REQUIRE(t->version >= MT_NCCL_LEAST && t->version < NCCL_VERSION(NCCL_MAJOR + 1, 0, 0), e, MT_DEVICE,
               "opening NCCL: it is version %s, and this program needs %s or later of version %d", is, least,
               NCCL_MAJOR);
    return MT_OK;
}

mt_status mt_nccl_table_open(struct mt_nccl_table *t, const char *from, mt_err *e)
{
    static const struct mt_symbol function[] = {
#define X(f) {#f, offsetof(struct mt_nccl_table, f)},
        MT_NCCL_FUNCTIONS(X)
#undef X
    };
    char least[MT_NCCL_VERSION_TEXT], wanted[MT_NCCL_VERSION_TEXT + 16];
    *t = (struct mt_nccl_table){.library = NULL};
    mt_nccl_version_text(MT_NCCL_LEAST, least);
    snprintf(wanted, sizeof wanted, "%s or later", least);
    MT_TRY(mt_library_open(&t->library, "NCCL", from ? from : LIBRARY, wanted, function,
                           sizeof function / sizeof *function, t, e));
    mt_status status = check_version(t, e);
    if (status) mt_nccl_table_close(t);
    return status;
}

void mt_nccl_table_close(struct mt_nccl_table *t)
{
    mt_library_close(&t->library);
    *t = (struct mt_nccl_table){.library = NULL};
}
