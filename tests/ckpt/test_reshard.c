/* A checkpoint in another number of files: the same tensors to the bit, and nothing where it cannot be. */
#include "ckpt/reshard.h"

#include "write.h"

#include "ckpt/source.h"

static const char *to(const char *name)
{
    static char each[2][400];
    static int next;
    char *path = each[next++ % 2];
    snprintf(path, sizeof each[0], "%.200s/%s", run_folder(), name);
    return path;
}
static bool same(const char *folder, const struct world *w)
{
    static struct world got;
    struct mt_ckpt_meta meta;
    mt_err e = {0};
    make_world(&got, 9);
    if (mt_ckpt_verify(folder, &meta, &e) == MT_OK && load(folder, &got.items, false, &meta, &e) == MT_OK &&
        meta.step == 3 && meta.tokens == 3000)
        return same_world(&got, w);
    printf("    %s\n", e.msg);
    return false;
}
static mt_status reshard(const char *from, const char *name, int ranks, mt_err *e)
{
    struct mt_progress p = {0};
    *e = (mt_err){0};
    mt_status st = mt_ckpt_reshard(from, to(name), ranks, &p, e);
    if (st == MT_OK) CHECK(p.total > 0 && p.done > 0 && p.done <= p.total);
    return st;
}

TEST(any_number_of_files)
{
    static struct world w;
    struct written c;
    char name[64];
    mt_err e;
    static const int ranks[] = {1, 2, 3, 5, 8, 13, 40, 200};
    make_world(&w, 1);
    for (int v = 1; v <= 2; v++)
        for (int before = 1; before <= (v == 1 ? 1 : 4); before += 3) {
            write_sound(&c, &w, run_folder(), v, before, 3);
            for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
                struct mt_source s;
                snprintf(name, sizeof name, "v%d-from%d-to%d", v, before, ranks[i]);
                if (!CHECK_INT(reshard(c.folder, name, ranks[i], &e), MT_OK)) printf("    %s\n", e.msg);
                CHECK(same(to(name), &w));
                CHECK_INT(mt_source_open(&s, to(name), &e), MT_OK);
                CHECK_INT(s.manifest.version, 2);
                CHECK_INT(s.manifest.world, ranks[i]);
                CHECK(ranks[i] > 13 ? s.n > 13 : s.n == ranks[i]); /* some of many have no row */
                CHECK(mt_manifest_find(&s.manifest, "config.yaml"));
                CHECK(!mt_manifest_find(&s.manifest, "metrics.jsonl") == (v == 1));
                mt_source_close(&s);
            }
        }
}

/* Sizes of the files without their headers: nearly equal. */
TEST(files_of_equal_size)
{
    static struct world w;
    struct written c;
    struct mt_source s;
    mt_err e;
    make_world(&w, 1);
    write_sound(&c, &w, run_folder(), 2, 4, 3);
    CHECK_INT(reshard(c.folder, "five", 5, &e), MT_OK);
    CHECK_INT(mt_source_open(&s, to("five"), &e), MT_OK);
    int64_t all = 0, files = 0;
    for (int t = 0; t < TENSORS; t++) all += mt_ckpt_item_bytes(&w.item[t]);
    for (int64_t i = 0; i < s.manifest.n; i++) {
        if (!strstr(s.manifest.file[i].name, ".safetensors")) continue;
        int64_t data = s.manifest.file[i].bytes - 4096;
        CHECK(data >= all / 5 - 48 && data <= all / 5 + 48); /* a row has 48 bytes at most */
        files++;
    }
    CHECK_INT(files, 5);
    mt_source_close(&s);
}

TEST(what_is_refused)
{
    static struct world w;
    static struct bytes b;
    struct written c;
    char path[400];
    mt_err e;
    make_world(&w, 1);
    write_sound(&c, &w, run_folder(), 2, 4, 3);
    CHECK(failed_so(reshard(c.folder, "x", 0, &e), &e, MT_CONFIG, "0 ranks"));
    CHECK(failed_so(reshard(c.folder, "x", 4097, &e), &e, MT_CONFIG, "at most 4096"));
    CHECK(failed_so(reshard(c.folder, "ckpt", 2, &e), &e, MT_CONFIG, "is there already"));
    CHECK(failed_so(reshard(c.folder, "ckpt/step-00000003/new", 2, &e), &e, MT_CONFIG,
                    "would lie in the checkpoint"));
    CHECK(failed_so(reshard(c.folder, "ckpt/step-00000003/a/b/new", 2, &e), &e, MT_CONFIG,
                    "would lie in the checkpoint"));
    CHECK(failed_so(reshard(c.folder, "ckpt/../ckpt/step-00000003/new", 2, &e), &e, MT_CONFIG,
                    "step-00000003'"));
    CHECK(failed_so(reshard(to("nothing"), "x", 2, &e), &e, MT_CKPT, "nothing/manifest.json"));
    /* Every tensor's every row damaged in turn: named, whichever file it would go to, and nothing left. */
    for (int rank = 0; rank < 4; rank++) {
        struct slice s[TENSORS];
        int n = slices_of(&w, 4, rank, s);
        snprintf(path, sizeof path, "%s/rank-%05d.safetensors", c.folder, rank);
        CHECK(read_bytes(&b, path));
        size_t at = 4096;
        for (int i = 0; i < n; i++) {
            for (int64_t row = 0; row < s[i].rows;
                 row++, at += (size_t)mt_ckpt_row_bytes(&w.item[s[i].tensor])) {
                char want[200];
                b.at[at] ^= 8;
                write_bytes(path, b.at, b.n);
                b.at[at] ^= 8;
                snprintf(want, sizeof want, "rank-%05d.safetensors': tensor '%s'", rank,
                         w.item[s[i].tensor].name);
                CHECK(failed_so(reshard(c.folder, "x", 7, &e), &e, MT_CKPT, want));
                CHECK(!exists(to("x")));
            }
        }
        write_bytes(path, b.at, b.n);
    }
    CHECK_INT(reshard(c.folder, "x", 7, &e), MT_OK);
}

int main(void)
{
    RUN(any_number_of_files);
    RUN(files_of_equal_size);
    RUN(what_is_refused);
    remove_temporary_folder();
    return DONE();
}
