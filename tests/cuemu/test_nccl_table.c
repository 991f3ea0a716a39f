/* test: variants=cuemu */
/* NCCL itself, where it is installed: it opens and tells its version without a GPU; and what is said where it is not. Without the
 * stand-in, whose functions the library would take for its own. */
#include "nccl_table.h"

#include <unistd.h>

#include "check.h"

static bool is_there(char *path, size_t size)
{
    const char *home = getenv("CUDA_HOME");
    static const char *const folder[] = {"lib64", "lib"};
    for (int i = 0; i < 2; i++) {
        snprintf(path, size, "%s/%s/libnccl.so.2", home ? home : "/usr/local/cuda", folder[i]);
        if (!access(path, R_OK)) return true;
    }
    return false;
}
TEST(the_library_opens_without_a_gpu)
{
    struct mt_nccl_table t;
    char path[512], version[MT_NCCL_VERSION_TEXT];
    mt_err e = {0};
    if (!is_there(path, sizeof path)) SKIP("no libnccl.so.2 in $CUDA_HOME");
    if (!CHECK(mt_nccl_table_open(&t, path, &e) == MT_OK)) {
        printf("  %s\n", e.msg);
        return;
    }
    mt_nccl_version_text(t.version, version);
    printf("  %s is version %s\n", path, version);
    CHECK(t.library && t.version >= MT_NCCL_LEAST);
    mt_nccl_table_close(&t);
}
TEST(a_library_that_is_not_there)
{
    struct mt_nccl_table t;
    mt_err e = {0};
    CHECK_INT(mt_nccl_table_open(&t, "/nowhere/libnccl.so.2", &e), MT_DEVICE);
    CHECK(strstr(e.msg, "/nowhere/libnccl.so.2") && strstr(e.msg, "LD_LIBRARY_PATH"));
    e = (mt_err){0};
    CHECK_INT(mt_nccl_table_open(&t, "libm.so.6", &e), MT_DEVICE); /* a library, but another */
    CHECK(strstr(e.msg, "no function nccl") && strstr(e.msg, "2.19.1"));
}
TEST(versions)
{
    char text[MT_NCCL_VERSION_TEXT];
    mt_nccl_version_text(22809, text);
    CHECK_STR(text, "2.28.9");
    mt_nccl_version_text(2708, text);
    CHECK_STR(text, "2.7.8");
}

int main(void)
{
    RUN(the_library_opens_without_a_gpu);
    RUN(a_library_that_is_not_there);
    RUN(versions);
    return DONE();
}
