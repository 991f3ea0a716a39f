/* Checkpoints whose every checksum fits, and which are wrong: rows missing, rows there twice, files that contradict each other. */
#include "write.h"

#include "ckpt/source.h"

/* Tensor 0 is [8, 12], tensor 1 a vector of 5. */
static void write_others(const struct written *c, const struct world *w, int rank, struct slice *s, int n)
{
    for (int t = 1; t < TENSORS; t++) s[n++] = (struct slice){t, 0, w->item[t].rows};
    write_rank(c, w, rank, s, n);
}

/* Both a look at all of it and a load refuse it, in these words. */
static bool refused(const struct written *c, const char *one, const char *two)
{
    static struct world got;
    struct mt_ckpt_meta meta;
    mt_err e = {0}, f = {0};
    make_world(&got, 9);
    seal(c);
    bool ok = failed_so(mt_ckpt_verify(c->folder, &meta, &e), &e, MT_CKPT, one);
    ok &= failed_so(load(c->folder, &got.items, false, &meta, &f), &f, MT_CKPT, one);
    ok &= failed_so(e.code, &e, MT_CKPT, two) && failed_so(f.code, &f, MT_CKPT, two);
    return ok;
}
static bool accepted(const struct written *c, const struct world *w)
{
    static struct world got;
    struct mt_ckpt_meta meta;
    mt_err e = {0};
    make_world(&got, 9);
    seal(c);
    if (mt_ckpt_verify(c->folder, &meta, &e) == MT_OK &&
        load(c->folder, &got.items, false, &meta, &e) == MT_OK)
        return same_world(&got, w);
    printf("    %s\n", e.msg);
    return false;
}

/* The first tensor in these slices, the others whole: those of rank 0, then those of rank 1. */
static void cut_first(struct written *c, struct world *w, const struct slice *zero, int n0,
                      const struct slice *one, int n1)
{
    struct slice s[TENSORS + 4];
    make_world(w, 1);
    begin_checkpoint(c, run_folder(), 2, 2, 3);
    memcpy(s, zero, (size_t)n0 * sizeof *s);
    write_others(c, w, 0, s, n0);
    memcpy(s, one, (size_t)n1 * sizeof *s);
    write_rank(c, w, 1, s, n1);
    write_text(c, "config.yaml", "");
}
#define SLICES(...) \
    (const struct slice[]){__VA_ARGS__}, (int)(sizeof((struct slice[]){__VA_ARGS__}) / sizeof(struct slice))

TEST(rows_missing)
{
    static struct world w;
    struct written c;
    cut_first(&c, &w, SLICES({0, 0, 3}), SLICES({0, 3, 5}));
    CHECK(accepted(&c, &w));
    cut_first(&c, &w, SLICES({0, 0, 3}), SLICES({0, 4, 4}));
    CHECK(refused(&c, "rows 3 to 3 of tensor 'embed.weight' are in none of its files", "step-00000003"));
    cut_first(&c, &w, SLICES({0, 0, 3}), SLICES({0, 3, 4}));
    CHECK(refused(&c, "rows 7 to 7 of tensor 'embed.weight'", ""));
    cut_first(&c, &w, SLICES({0, 5, 3}), SLICES({0, 1, 4}));
    CHECK(refused(&c, "rows 0 to 0 of tensor 'embed.weight'", ""));
}

TEST(rows_twice)
{
    static struct world w;
    struct written c;
    cut_first(&c, &w, SLICES({0, 0, 4}), SLICES({0, 3, 5}));
    CHECK(refused(&c, "row 3 of tensor 'embed.weight' is there twice",
                  "in rank-00000.safetensors and in rank-00001.safetensors"));
    cut_first(&c, &w, SLICES({0, 0, 8}), SLICES({0, 0, 8}));
    CHECK(refused(&c, "row 0 of tensor 'embed.weight' is there twice", "rank-00001.safetensors"));
    cut_first(&c, &w, SLICES({0, 0, 4}, {0, 4, 4}), SLICES({0, 4, 4}));
    CHECK(refused(&c, "row 4 of tensor 'embed.weight' is there twice", "rank-00001.safetensors"));
    cut_first(&c, &w, SLICES({0, 0, 8}), SLICES({0, 2, 3}));
    CHECK(refused(&c, "row 2 of tensor 'embed.weight' is there twice", "rank-00001.safetensors"));
}

/* A file with some words of it replaced by as many others, and with the checksum of what it then is. */
static void replace(const struct written *c, const char *name, const char *what, const char *with)
{
    static struct bytes b;
    char path[400];
    snprintf(path, sizeof path, "%s/%s", c->folder, name);
    CHECK(read_bytes(&b, path));
    char *at = memmem(b.at, b.n, what, strlen(what));
    if (!CHECK(at && strlen(what) == strlen(with))) return;
    memcpy(at, with, strlen(with));
    write_bytes(path, b.at, b.n);
}

TEST(files_that_contradict_each_other)
{
    static struct world w;
    struct written c;
    cut_first(&c, &w, SLICES({0, 0, 4}), SLICES({0, 4, 4}));
    replace(&c, "rank-00001.json", "\"embed.weight@4\": {\"shape\": [8,12]",
            "\"embed.weight@4\": {\"shape\": [9,12]");
    CHECK(refused(&c, "tensor 'embed.weight' is", ""));
    cut_first(&c, &w, SLICES({0, 0, 4}), SLICES({0, 4, 4}));
    replace(&c, "rank-00001.json", "\"embed.weight@4\": {\"shape\": [8,12]",
            "\"embed.weight@4\": {\"shape\": [8,13]");
    CHECK(refused(
        &c, "rank-00001.safetensors': tensor 'embed.weight@4' is [4, 12], which are no rows of the [8, 13]",
        ""));
    cut_first(&c, &w, SLICES({0, 0, 4}), SLICES({0, 4, 4}));
    replace(&c, "rank-00001.json", "\"embed.weight@4\": {\"shape\": [8,12]",
            "\"embed.weight@4\": {\"shape\": [7,12]");
    CHECK(refused(&c, "which are no rows of the [7, 12]", "rank-00001.json"));
    cut_first(&c, &w, SLICES({0, 0, 4}), SLICES({0, 4, 4}));
    replace(&c, "rank-00001.json", "\"embed.weight@4\"", "\"embed.veight@4\"");
    CHECK(refused(&c, "rank-00001.json' lists tensor 'embed.veight@4', which '",
                  "rank-00001.safetensors' does not hold"));
    cut_first(&c, &w, SLICES({0, 0, 4}), SLICES({0, 4, 4}));
    replace(&c, "rank-00001.json", "\"file\"", "\"fill\"");
    CHECK(refused(&c, "rank-00001.json'", "another version"));
}

TEST(a_rank_in_the_place_of_another)
{
    static struct world w;
    static struct bytes b;
    struct written c;
    char path[400];
    static const char *const end[] = {"safetensors", "json"};
    make_world(&w, 1);
    write_sound(&c, &w, run_folder(), 2, 4, 3);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/rank-00001.%s", c.folder, end[i]);
        CHECK(read_bytes(&b, path));
        snprintf(path, sizeof path, "%s/rank-00002.%s", c.folder, end[i]);
        write_bytes(path, b.at, b.n);
    }
    CHECK(refused(&c, "rank-00002.safetensors': the header does not say that this is rank 2's file", ""));
    write_sound(&c, &w, run_folder(), 2, 4, 3);
    c.world = 3;
    CHECK(refused(&c, "of 3 ranks", "rank-00003"));
    write_sound(&c, &w, run_folder(), 2, 4, 3);
    snprintf(path, sizeof path, "%s/rank-00001.json", c.folder);
    unlink(path);
    CHECK(refused(&c, "lists rank-00001.safetensors and not rank-00001.json", ""));
    write_sound(&c, &w, run_folder(), 2, 4, 3);
    snprintf(path, sizeof path, "%s/config.yaml", c.folder);
    unlink(path);
    CHECK(refused(&c, "does not list config.yaml", ""));
}

TEST(versions_mixed)
{
    static struct world w;
    struct written c;
    struct slice s[TENSORS + 4];
    make_world(&w, 1);
    write_sound(&c, &w, run_folder(), 1, 1, 3);
    c.version = 2;
    CHECK(refused(&c, "rank-00000.json'", "another version"));
    write_sound(&c, &w, run_folder(), 2, 1, 3);
    c.version = 1;
    CHECK(refused(&c, "rank-00000.json'", "another version"));
    begin_checkpoint(&c, run_folder(), 1, 1, 3);
    s[0] = (struct slice){0, 0, 4};
    s[1] = (struct slice){0, 4, 4};
    write_others(&c, &w, 0, s, 2);
    write_text(&c, "config.yaml", "");
    CHECK(refused(&c, "rows of tensor 'embed.weight', in a checkpoint of whole ones",
                  "rank-00000.safetensors"));
}

int main(void)
{
    RUN(rows_missing);
    RUN(rows_twice);
    RUN(files_that_contradict_each_other);
    RUN(a_rank_in_the_place_of_another);
    RUN(versions_mixed);
    remove_temporary_folder();
    return DONE();
}
