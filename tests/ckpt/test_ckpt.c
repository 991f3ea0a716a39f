/* Checkpoints of a run: what is saved comes back to the bit, whatever is damaged is found and named, and a
 * save that fails costs nothing. */
#include "helper.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>

static const char *const files[] = {"rank-00000.safetensors", "rank-00000.json", "config.yaml",
                                    "manifest.json"};

/* The defaults, and a seed by which saved configurations differ. */
static void make_config(mt_config *cfg, int64_t step)
{
    char text[40];
    mt_err e = {0};
    snprintf(text, sizeof text, "train: {seed: %" PRId64 "}", 17 + step);
    CHECK_INT(mt_config_parse(cfg, "test", text, strlen(text), &e), MT_OK);
}

static mt_status save_to(const char *run, const struct world *w, int64_t step, mt_err *e)
{
    static mt_config cfg;
    struct mt_ckpt_meta meta = {.step = step, .tokens = 1000 * step};
    *e = (mt_err){0};
    make_config(&cfg, step);
    return mt_ckpt_save(run, &w->items, &meta, &cfg, e);
}
static void save(const char *run, const struct world *w, int64_t step)
{
    mt_err e;
    if (!CHECK_INT(save_to(run, w, step, &e), MT_OK)) printf("    %s\n", e.msg);
}

/* Good until three more calls. */
static const char *path_of(int64_t step, const char *file)
{
    static char path[4][400];
    static int next;
    char folder[MT_CKPT_PATH], *to = path[next++ % 4];
    mt_ckpt_folder(run_folder(), step, folder);
    snprintf(to, sizeof path[0], "%.300s%s%s", folder, file ? "/" : "", file ? file : "");
    return to;
}

static mt_status verify(int64_t step, mt_err *e)
{
    struct mt_ckpt_meta meta;
    *e = (mt_err){0};
    return mt_ckpt_verify(path_of(step, NULL), &meta, e);
}

/* mt_ckpt_newest; what it passes over would fill the test's output. */
static mt_status find_newest(char path[MT_CKPT_PATH], mt_err *e)
{
    int kept = dup(2), null = open("/dev/null", O_WRONLY);
    dup2(null, 2);
    mt_status st = mt_ckpt_newest(run_folder(), path, e);
    dup2(kept, 2);
    close(kept);
    close(null);
    return st;
}
/* The step of the newest valid checkpoint, or -1. */
static int64_t newest(void)
{
    char path[MT_CKPT_PATH];
    mt_err e = {0};
    CHECK_INT(find_newest(path, &e), MT_OK);
    return path[0] ? strtoll(strrchr(path, '-') + 1, NULL, 10) : -1;
}

static void copy_file(const char *to, const char *from)
{
    static struct bytes b;
    CHECK(read_bytes(&b, from));
    write_bytes(to, b.at, b.n);
}
static void copy_checkpoint(int64_t to, int64_t from)
{
    mkdir(path_of(to, NULL), 0755);
    for (int i = 0; i < 4; i++) copy_file(path_of(to, files[i]), path_of(from, files[i]));
}

static void flip(const char *path, size_t at, int bit)
{
    static struct bytes b;
    CHECK(read_bytes(&b, path) && at < b.n);
    b.at[at] ^= (unsigned char)(1 << bit);
    write_bytes(path, b.at, b.n);
}

/* ---- saved and loaded ---- */
TEST(comes_back_to_the_bit)
{
    static struct world w, r;
    static mt_config cfg, want;
    struct mt_ckpt_meta meta;
    mt_err e = {0};
    make_world(&w, 1);
    make_world(&r, 2);
    save(run_folder(), &w, 12);
    CHECK_INT(verify(12, &e), MT_OK);
    CHECK_INT(load(path_of(12, NULL), &r.items, false, &meta, &e), MT_OK);
    CHECK(same_world(&w, &r));
    CHECK_INT(meta.step, 12);
    CHECK_INT(meta.tokens, 12000);
    CHECK_INT(mt_ckpt_config(path_of(12, NULL), &cfg, &e), MT_OK);
    make_config(&want, 12);
    CHECK(mt_config_hash(&cfg) == mt_config_hash(&want));
    CHECK_INT(newest(), 12);
    for (int i = 0; i < 4; i++) CHECK(exists(path_of(12, files[i])));
    CHECK(!exists(path_of(12, "manifest.json.tmp")));
}

TEST(weights_alone)
{
    static struct world w, r;
    struct mt_ckpt_meta meta;
    mt_err e = {0};
    make_world(&w, 1);
    make_world(&r, 2);
    save(run_folder(), &w, 1);
    CHECK_INT(load(path_of(1, NULL), &r.items, true, &meta, &e), MT_OK);
    for (int t = 0; t < TENSORS; t++)
        CHECK(w.item[t].moment != !memcmp(w.data[t], r.data[t], (size_t)mt_ckpt_item_bytes(&w.item[t])));
    /* a model that has no moments */
    r.item[3] = r.item[6];
    r.items.n = 4;
    CHECK_INT(load(path_of(1, NULL), &r.items, true, &meta, &e), MT_OK);
    CHECK(failed_so(load(path_of(1, NULL), &r.items, false, &meta, &e), &e, MT_CKPT,
                    "holds tensor 'optim.m.embed"));
}

/* The items `r` do not fit what was saved: refused in these words, and not one value changes. */
static void refuse_load(struct world *r, bool weights_only, const char *says)
{
    static struct world before;
    struct mt_ckpt_meta meta;
    mt_err e = {0};
    make_world(&before, 2);
    CHECK(failed_so(load(path_of(1, NULL), &r->items, weights_only, &meta, &e), &e, MT_CKPT, says));
    CHECK(!memcmp(before.data, r->data, sizeof before.data));
    make_world(r, 2);
}

TEST(items_that_do_not_fit)
{
    static struct world w, r;
    make_world(&w, 1);
    make_world(&r, 2);
    save(run_folder(), &w, 1);
    strcpy(r.item[4].name, "optim.m.other");
    refuse_load(&r, false, "has no tensor 'optim.m.other'");
    strcpy(r.item[6].name, "layers.1.moe.router.bias");
    refuse_load(&r, true, "has no tensor 'layers.1.moe.router.bias'");
    r.items.n = 6;
    refuse_load(&r, false, "holds tensor 'layers.0.moe.router.bias'");
    r.items.n = 6;
    refuse_load(&r, true, "holds tensor 'layers.0.moe.router.bias'");
    r.items.n = 0;
    refuse_load(&r, false, "holds tensor 'embed.weight'");
    r.item[0].rows = 12, r.item[0].cols = 8;
    refuse_load(&r, false, "tensor 'embed.weight' is [8, 12], this configuration needs [12, 8]");
    r.item[1].cols = 1;
    refuse_load(&r, false, "tensor 'layers.0.norm.weight' is [5, 0], this configuration needs [5, 1]");
}

/* ---- damage ---- */
TEST(flipped_bytes_are_found)
{
    static struct world w;
    static struct bytes b;
    mt_err e;
    make_world(&w, 3);
    save(run_folder(), &w, 1);
    for (int i = 0; i < 4; i++) {
        CHECK(read_bytes(&b, path_of(1, files[i])));
        size_t stride = b.n / 60 + 1;
        for (size_t at = 0; at < b.n; at += at < 16 || at + 20 > b.n ? 1 : stride) {
            flip(path_of(1, files[i]), at, (int)(at % 8));
            if (!CHECK(failed_so(verify(1, &e), &e, MT_CKPT, files[i])))
                printf("    byte %zu of %s\n", at, files[i]);
            flip(path_of(1, files[i]), at, (int)(at % 8));
        }
    }
    CHECK_INT(verify(1, &e), MT_OK);
}

TEST(the_damaged_tensor_is_named)
{
    static struct world w, r;
    static struct bytes b;
    struct mt_ckpt_meta meta;
    uint64_t length;
    mt_err e = {0}, other;
    make_world(&w, 3);
    make_world(&r, 2);
    save(run_folder(), &w, 1);
    CHECK(read_bytes(&b, path_of(1, files[0])));
    memcpy(&length, b.at, 8);
    size_t at = 8 + length;
    for (int t = 0; t < TENSORS; t++) {
        char want[160];
        snprintf(want, sizeof want, "rank-00000.safetensors': tensor '%s' is damaged", w.item[t].name);
        flip(path_of(1, files[0]), at, t);
        CHECK(failed_so(verify(1, &e), &e, MT_CKPT, want));
        other = (mt_err){0};
        CHECK(failed_so(load(path_of(1, NULL), &r.items, false, &meta, &other), &other, MT_CKPT, want));
        flip(path_of(1, files[0]), at, t);
        at += (size_t)mt_ckpt_item_bytes(&w.item[t]);
    }
    CHECK_INT(load(path_of(1, NULL), &r.items, false, &meta, &e), MT_OK);
    CHECK(same_world(&w, &r));
}

TEST(cut_longer_and_missing_files_are_found)
{
    static struct world w;
    static struct bytes b;
    static mt_config cfg;
    mt_err e;
    make_world(&w, 3);
    save(run_folder(), &w, 1);
    for (int i = 0; i < 4; i++) {
        char path[400];
        snprintf(path, sizeof path, "%s", path_of(1, files[i]));
        CHECK(read_bytes(&b, path));
        b.at[b.n] = 0;
        size_t size[] = {0, 1, 7, 8, b.n / 2, b.n - 1, b.n + 1};
        for (size_t s = 0; s < sizeof size / sizeof *size; s++) {
            write_bytes(path, b.at, size[s]);
            if (!CHECK(failed_so(verify(1, &e), &e, MT_CKPT, files[i]))) printf("    %zu bytes\n", size[s]);
        }
        unlink(path);
        CHECK(failed_so(verify(1, &e), &e, MT_CKPT, files[i]));
        mkdir(path, 0755);
        CHECK(failed_so(verify(1, &e), &e, MT_CKPT, files[i]));
        rmdir(path);
        e = (mt_err){0};
        if (i >= 2) CHECK(failed_so(mt_ckpt_config(path_of(1, NULL), &cfg, &e), &e, MT_CKPT, files[i]));
        write_bytes(path, b.at, b.n);
    }
    CHECK_INT(verify(1, &e), MT_OK);
}

/* Files of another step, of the same sizes. */
TEST(stale_and_swapped_files_are_found)
{
    static struct world w;
    static const char *const says[] = {"tensor 'embed.weight' is damaged", "rank-00000.json' is damaged",
                                       "config.yaml' is damaged", "config.yaml' is damaged"};
    mt_err e;
    make_world(&w, 1);
    save(run_folder(), &w, 1);
    fill_world(&w, 2);
    save(run_folder(), &w, 2);
    for (int i = 0; i < 4; i++) {
        copy_checkpoint(3, 1);
        copy_file(path_of(3, files[i]), path_of(2, files[i]));
        CHECK(failed_so(verify(3, &e), &e, MT_CKPT, says[i]));
    }
    copy_checkpoint(3, 1);
    CHECK_INT(verify(3, &e), MT_OK); /* sound, but not of the step that its name says */
    CHECK_INT(newest(), 2);
    copy_file(path_of(3, files[0]), path_of(2, files[0]));
    copy_file(path_of(3, files[1]), path_of(2, files[1]));
    CHECK(failed_so(verify(3, &e), &e, MT_CKPT, "rank-00000.json' is damaged"));
    copy_checkpoint(3, 1);
    copy_file(path_of(3, files[0]), path_of(1, files[1])); /* one kind of file for another */
    CHECK(failed_so(verify(3, &e), &e, MT_CKPT, "rank-00000.safetensors' has"));
}

TEST(a_damaged_configuration_is_not_read)
{
    static struct world w;
    static struct bytes b;
    static mt_config cfg;
    mt_err e = {0};
    make_world(&w, 1);
    save(run_folder(), &w, 1);
    CHECK(read_bytes(&b, path_of(1, "config.yaml")));
    unsigned char *seed = memmem(b.at, b.n, "seed: 18", 8);
    if (!CHECK(seed)) return;
    seed[7] = '9';
    write_bytes(path_of(1, "config.yaml"), b.at, b.n);
    CHECK(failed_so(mt_ckpt_config(path_of(1, NULL), &cfg, &e), &e, MT_CKPT, "config.yaml' is damaged"));
}

/* ---- which one is read, which ones are removed ---- */
TEST(the_newest_valid_one)
{
    static struct world w;
    char path[MT_CKPT_PATH];
    int64_t *step, n;
    mt_err e = {0};
    make_world(&w, 1);
    CHECK_INT(newest(), -1); /* no folder at all */
    for (int64_t s = 1; s <= 4; s++) save(run_folder(), &w, s);
    CHECK_INT(newest(), 4);
    flip(path_of(4, files[0]), 1500, 3);
    CHECK_INT(newest(), 3);
    unlink(path_of(3, "manifest.json"));
    CHECK_INT(newest(), 2);
    truncate(path_of(2, files[1]), 5) ? abort() : (void)0;
    CHECK_INT(newest(), 1);
    mkdir(path_of(5, NULL), 0755);
    CHECK_INT(newest(), 1);
    static const char *const others[] = {
        "step-7", "step-00000008.aside",       "step- 0000009", "step-+0000009", "step--0000009",
        "step-",  "step-99999999999999999999", "stuff"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        snprintf(path, sizeof path, "%s/ckpt/%s", run_folder(), others[i]);
        CHECK(!mkdir(path, 0755));
    }
    CHECK_INT(mt_ckpt_list(run_folder(), &step, &n, &e), MT_OK);
    CHECK_INT(n, 5);
    for (int64_t i = 0; i < n; i++) CHECK_INT(step[i], i + 1);
    free(step);
    for (int64_t s = 1; s <= 4; s++) unlink(path_of(s, "manifest.json"));
    CHECK_INT(newest(), -1);
}

/* A run whose checkpoints are all damaged is not one that has saved nothing yet. */
TEST(all_damaged_is_not_a_new_run)
{
    static struct world w;
    char path[MT_CKPT_PATH];
    mt_err e = {0};
    make_world(&w, 1);
    for (int64_t s = 1; s <= 2; s++) save(run_folder(), &w, s);
    flip(path_of(2, files[0]), 1500, 3);
    flip(path_of(1, "manifest.json"), 9, 1);
    mkdir(path_of(3, NULL), 0755); /* a save that did not end */
    CHECK(failed_so(find_newest(path, &e), &e, MT_CKPT,
                    "no checkpoint is valid: step-00000002, step-00000001 of '"));
    CHECK_STR(path, "");
    unlink(path_of(2, "manifest.json"));
    e = (mt_err){0};
    CHECK(failed_so(find_newest(path, &e), &e, MT_CKPT, "no checkpoint is valid: step-00000001 of '"));
    for (int64_t s = 4; s <= 12; s++) {
        save(run_folder(), &w, s);
        flip(path_of(s, files[0]), 1500, 3);
    }
    e = (mt_err){0};
    CHECK(failed_so(find_newest(path, &e), &e, MT_CKPT, "step-00000005 and 2 more of '"));
    save(run_folder(), &w, 13);
    CHECK_INT(newest(), 13);
    for (int64_t s = 1; s <= 13; s++) unlink(path_of(s, "manifest.json"));
    CHECK_INT(newest(), -1);
}

static int64_t count_steps(void)
{
    int64_t *step, n;
    mt_err e = {0};
    CHECK_INT(mt_ckpt_list(run_folder(), &step, &n, &e), MT_OK);
    free(step);
    return n;
}
static void prune(int64_t keep)
{
    mt_err e = {0};
    if (!CHECK_INT(mt_ckpt_prune(run_folder(), &(struct mt_ckpt_keep){.last = keep, .step = -1}, &e), MT_OK))
        printf("    %s\n", e.msg);
}

TEST(pruned_to_the_newest)
{
    static struct world w;
    mt_err e = {0};
    make_world(&w, 1);
    prune(1); /* nothing there */
    for (int64_t s = 1; s <= 5; s++) save(run_folder(), &w, 100 * s);
    prune(5);
    CHECK_INT(count_steps(), 5);
    prune(2);
    CHECK_INT(count_steps(), 2);
    CHECK(exists(path_of(400, "manifest.json")) && exists(path_of(500, "manifest.json")));
    CHECK(failed_so(mt_ckpt_prune(run_folder(), &(struct mt_ckpt_keep){.last = 0, .step = -1}, &e), &e,
                    MT_CONFIG, "keep 1 or more"));
    CHECK_INT(newest(), 500);
}

/* One that was found damaged does not take the place of one that was not, however complete it looks. */
TEST(damaged_ones_do_not_count)
{
    static struct world w;
    mt_err e = {0};
    struct mt_ckpt_keep keep = {.last = 2, .damaged = {.n = 2, .step = {400, 300}}};
    make_world(&w, 1);
    for (int64_t s = 1; s <= 5; s++) save(run_folder(), &w, 100 * s);
    CHECK_INT(mt_ckpt_prune(run_folder(), &keep, &e), MT_OK);
    CHECK(exists(path_of(500, "manifest.json")) && exists(path_of(200, "manifest.json")));
    CHECK(!exists(path_of(100, NULL)));
    save(run_folder(), &w, 600);
    CHECK_INT(mt_ckpt_prune(run_folder(), &keep, &e), MT_OK); /* what is behind them goes, they too */
    CHECK_INT(count_steps(), 2);
    keep = (struct mt_ckpt_keep){.last = 1, .damaged = {.n = 2, .step = {500, 600}}};
    CHECK_INT(mt_ckpt_prune(run_folder(), &keep, &e), MT_OK); /* nothing else is there */
    CHECK_INT(count_steps(), 2);
}

/* Back to a step, or the newest sound one before it, but to none of another history. */
TEST(back_to_an_older_one)
{
    static struct world w;
    char path[MT_CKPT_PATH];
    struct mt_ckpt_loaded x;
    mt_err e = {0};
    const struct mt_job job = mt_job_alone(1);
    const struct mt_ckpt_range all = {0, 35}, late = {25, 35}, between = {32, 35};
    make_world(&w, 1);
    for (int64_t s = 10; s <= 40; s += 10) save(run_folder(), &w, s);
    CHECK_INT(mt_ckpt_back(run_folder(), all, NULL, &w.items, &job, path, &x, &e), MT_OK);
    CHECK_STR(path, path_of(30, NULL));
    CHECK_INT(x.passed_over.n, 0);
    flip(path_of(30, files[0]), 1500, 0);
    CHECK_INT(mt_ckpt_back(run_folder(), all, NULL, &w.items, &job, path, &x, &e), MT_OK);
    CHECK_STR(path, path_of(20, NULL));
    CHECK_INT(x.meta.step, 20);
    CHECK(x.passed_over.n == 1 && x.passed_over.step[0] == 30);
    CHECK(failed_so(mt_ckpt_back(run_folder(), late, NULL, &w.items, &job, path, &x, &e), &e, MT_CKPT,
                    "no checkpoint is valid: step-00000030 of '"));
    e = (mt_err){0};
    CHECK_INT(mt_ckpt_back(run_folder(), between, NULL, &w.items, &job, path, &x, &e), MT_OK);
    CHECK_STR(path, "");
}

TEST(incomplete_folders)
{
    static struct world w;
    make_world(&w, 1);
    save(run_folder(), &w, 1);
    save(run_folder(), &w, 2);
    copy_checkpoint(3, 2); /* cut off before its manifest; or about to get it */
    unlink(path_of(3, "manifest.json"));
    CHECK_INT(newest(), 2);
    prune(1);
    CHECK(!exists(path_of(1, NULL)));
    CHECK(exists(path_of(2, "manifest.json")));
    CHECK(exists(path_of(3, "config.yaml")));
    save(run_folder(), &w, 4);
    prune(2);
    CHECK(!exists(path_of(3, NULL))); /* now there is a newer complete one */
    CHECK(exists(path_of(2, NULL)) && exists(path_of(4, NULL)));
    save(run_folder(), &w, 3); /* in the place of one that was cut off */
    CHECK_INT(newest(), 3);
}

TEST(the_last_complete_one_stays)
{
    static struct world w;
    make_world(&w, 1);
    save(run_folder(), &w, 1);
    for (int64_t s = 2; s <= 5; s++) { /* a manifest torn, a file missing, one cut, no manifest */
        copy_checkpoint(s, 1);
        if (s == 2) flip(path_of(s, "manifest.json"), 9, 1);
        if (s == 3) unlink(path_of(s, "config.yaml"));
        if (s == 4) truncate(path_of(s, files[0]), 100) ? abort() : (void)0;
        if (s == 5) unlink(path_of(s, "manifest.json"));
    }
    prune(1);
    CHECK_INT(count_steps(), 5);
    CHECK_INT(newest(), 1);
    unlink(path_of(1, "manifest.json"));
    prune(1); /* none is complete: nothing is removed */
    CHECK_INT(count_steps(), 5);
}

/* A damaged checkpoint was passed over, the run went on from an older one and saved: pruning must not count
 * the damaged one as the newest, and the run, reaching that step again, replaces it. */
TEST(a_run_that_went_back)
{
    static struct world w;
    make_world(&w, 1);
    for (int64_t s = 1; s <= 5; s++) save(run_folder(), &w, s);
    flip(path_of(5, files[0]), 1500, 0);
    flip(path_of(4, files[0]), 1500, 0);
    CHECK_INT(newest(), 3);
    fill_world(&w, 2);
    save(run_folder(), &w, 4);
    CHECK_INT(newest(), 4);
    CHECK(!exists(path_of(5, NULL)));
    char aside[420];
    snprintf(aside, sizeof aside, "%s.aside", path_of(5, NULL));
    CHECK(exists(aside));
    snprintf(aside, sizeof aside, "%s.aside", path_of(4, NULL));
    CHECK(!exists(aside));
    prune(1);
    CHECK_INT(count_steps(), 1);
    CHECK_INT(newest(), 4);
}

/* ---- saves that fail ---- */
static int64_t count_entries(const char *folder)
{
    int64_t n = 0;
    DIR *d = opendir(folder);
    while (d && readdir(d)) n++;
    if (d) closedir(d);
    return n - 2;
}

static void set_file_limit(rlim_t bytes)
{
    struct rlimit r;
    getrlimit(RLIMIT_FSIZE, &r);
    r.rlim_cur = bytes;
    if (setrlimit(RLIMIT_FSIZE, &r)) abort();
}

/* A limit on the size of files stops each of them in turn, before and in its bytes. */
TEST(a_write_that_fails_leaves_nothing)
{
    static struct world w, r;
    static struct bytes b;
    char ckpt[160];
    mt_err e;
    make_world(&w, 1);
    make_world(&r, 1);
    signal(SIGXFSZ, SIG_IGN);
    save(run_folder(), &w, 1);
    snprintf(ckpt, sizeof ckpt, "%s/ckpt", run_folder());
    int failures = 0;
    CHECK(read_bytes(&b, path_of(1, files[2])));
    for (rlim_t limit = 0; limit < b.n; limit += 97) {
        set_file_limit(limit);
        mt_status st = save_to(run_folder(), &w, 2, &e);
        set_file_limit(RLIM_INFINITY);
        CHECK(failed_so(st, &e, MT_IO, "saving the checkpoint of step 2: cannot write to '"));
        CHECK(strstr(e.msg, strerror(EFBIG)));
        CHECK_INT(count_entries(ckpt), 1);
        failures++;
    }
    CHECK(failures > 20);
    CHECK(same_world(&w, &r));
    CHECK_INT(newest(), 1);
    save(run_folder(), &w, 2);
    CHECK_INT(newest(), 2);
    /* The same step once more, which fails: the one that was there comes back. */
    fill_world(&w, 2);
    set_file_limit(1000);
    mt_status st = save_to(run_folder(), &w, 2, &e);
    set_file_limit(RLIM_INFINITY);
    CHECK_INT(st, MT_IO);
    CHECK_INT(count_entries(ckpt), 2);
    struct mt_ckpt_meta meta;
    e = (mt_err){0};
    CHECK_INT(load(path_of(2, NULL), &w.items, false, &meta, &e), MT_OK);
    CHECK(same_world(&w, &r));
}

TEST(a_full_filesystem)
{
    static struct world w;
    static char junk[1 << 12];
    char fill[180], ckpt[180], run[160];
    mt_err e;
    CHECK(!mkdir(run_folder(), 0755));
    /* in a space of its own, which goes with this program */
    if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("tmpfs", run_folder(), "tmpfs", 0, "size=256k"))
        SKIP("no filesystem can be mounted: %s; a limit on files stands for a full one", strerror(errno));
    snprintf(run, sizeof run, "%s", run_folder());
    make_world(&w, 1);
    save(run, &w, 1);
    snprintf(fill, sizeof fill, "%s/fill", run);
    snprintf(ckpt, sizeof ckpt, "%s/ckpt", run);
    int fd = open(fill, O_WRONLY | O_CREAT, 0644);
    while (write(fd, junk, sizeof junk) > 0) continue;
    int failures = 0;
    for (int free_pages = 0; free_pages < 6; free_pages++) {
        int64_t size = lseek(fd, 0, SEEK_END);
        mt_status st = save_to(run, &w, 2, &e);
        if (st == MT_OK) break;
        CHECK(failed_so(st, &e, MT_IO, strerror(ENOSPC)));
        CHECK_INT(count_entries(ckpt), 1);
        CHECK_INT(newest(), 1);
        failures++;
        CHECK(!ftruncate(fd, size - (int64_t)sizeof junk));
    }
    CHECK(failures > 0);
    close(fd);
    unlink(fill);
    save(run, &w, 2);
    CHECK_INT(newest(), 2);
    CHECK(!umount2(run_folder(), MNT_DETACH));
}

TEST(folders_that_cannot_be_written)
{
    static struct world w;
    char path[160];
    mt_err e;
    make_world(&w, 1);
    write_bytes(run_folder(), "x", 1); /* a file where the run's folder should be */
    CHECK_INT(save_to(run_folder(), &w, 1, &e), MT_IO);
    CHECK_INT(newest(), -1);
    unlink(run_folder());
    save(run_folder(), &w, 1);
    snprintf(path, sizeof path, "%s/ckpt", run_folder());
    chmod(temporary_folder(), 0755);
    chmod(path, 0555);
    bool root = geteuid() == 0, other = root && !seteuid(65534); /* to whom permissions mean something */
    if (!root || other) {
        CHECK(failed_so(save_to(run_folder(), &w, 2, &e), &e, MT_IO, "cannot make the folder"));
        CHECK(failed_so(save_to(run_folder(), &w, 1, &e), &e, MT_IO, "cannot make the folder"));
    }
    if (other && seteuid(0)) abort();
    chmod(path, 0755);
    CHECK_INT(count_entries(path), 1);
    CHECK_INT(newest(), 1);
}

/* What the system refuses to let us read is not taken for damage: an older one would throw work away. */
TEST(unreadable_is_not_damaged)
{
    static struct world w;
    char path[MT_CKPT_PATH];
    mt_err e = {0};
    make_world(&w, 1);
    save(run_folder(), &w, 1);
    save(run_folder(), &w, 2);
    chmod(path_of(2, files[0]), 0);
    bool root = geteuid() == 0, other = root && !seteuid(65534);
    if (!root || other) {
        CHECK(failed_so(mt_ckpt_newest(run_folder(), path, &e), &e, MT_IO, "rank-00000.safetensors"));
        CHECK_STR(path, "");
    }
    if (other && seteuid(0)) abort();
    chmod(path_of(2, files[0]), 0644);
}

TEST(paths_too_long)
{
    static struct world w;
    static char run[2000];
    char path[MT_CKPT_PATH];
    int64_t *step, n;
    struct mt_ckpt_meta meta;
    mt_err e = {0};
    make_world(&w, 1);
    memset(run, 'x', sizeof run - 1);
    CHECK(failed_so(save_to(run, &w, 1, &e), &e, MT_CONFIG, "too long"));
    e = (mt_err){0};
    CHECK(failed_so(mt_ckpt_prune(run, &(struct mt_ckpt_keep){.last = 1, .step = -1}, &e), &e, MT_CONFIG,
                    "too long"));
    e = (mt_err){0};
    CHECK(failed_so(mt_ckpt_newest(run, path, &e), &e, MT_CONFIG, "too long"));
    e = (mt_err){0};
    CHECK(failed_so(mt_ckpt_list(run, &step, &n, &e), &e, MT_CONFIG, "too long"));
    e = (mt_err){0};
    CHECK(failed_so(mt_ckpt_verify(run, &meta, &e), &e, MT_CONFIG, "too long"));
}

/* The newest name is a link to the newest checkpoint, or a copy of an older one: neither takes the place of one that is kept. */
TEST(other_names_do_not_count)
{
    static struct world w;
    char command[400];
    make_world(&w, 1);
    for (int64_t s = 1; s <= 3; s++) save(run_folder(), &w, s);
    CHECK(!symlink("step-00000003", path_of(7, NULL)));
    snprintf(command, sizeof command, "cp -r %s/ckpt/step-00000001 %s/ckpt/step-00000008", run_folder(),
             run_folder());
    CHECK(system(command) == 0);
    prune(1);
    CHECK(exists(path_of(3, "manifest.json")) && !exists(path_of(2, NULL)) && !exists(path_of(1, NULL)));
    CHECK_INT(newest(), 3);
}

/* A link in the place of a checkpoint: what it points to is not ours to remove. */
TEST(links_are_not_followed)
{
    static struct world w;
    char target[160], file[180];
    mt_err e = {0};
    make_world(&w, 1);
    save(run_folder(), &w, 2);
    snprintf(target, sizeof target, "%s/target", run_folder());
    snprintf(file, sizeof file, "%s/precious", target);
    CHECK(!mkdir(target, 0755));
    write_bytes(file, "x", 1);
    CHECK(!symlink(target, path_of(1, NULL)));
    CHECK(failed_so(mt_ckpt_prune(run_folder(), &(struct mt_ckpt_keep){.last = 1, .step = -1}, &e), &e, MT_IO,
                    "cannot open the folder"));
    CHECK(exists(file));
}

int main(void)
{
    RUN(comes_back_to_the_bit);
    RUN(weights_alone);
    RUN(items_that_do_not_fit);
    RUN(flipped_bytes_are_found);
    RUN(the_damaged_tensor_is_named);
    RUN(cut_longer_and_missing_files_are_found);
    RUN(stale_and_swapped_files_are_found);
    RUN(a_damaged_configuration_is_not_read);
    RUN(the_newest_valid_one);
    RUN(all_damaged_is_not_a_new_run);
    RUN(pruned_to_the_newest);
    RUN(damaged_ones_do_not_count);
    RUN(back_to_an_older_one);
    RUN(incomplete_folders);
    RUN(the_last_complete_one_stays);
    RUN(a_run_that_went_back);
    RUN(a_write_that_fails_leaves_nothing);
    RUN(a_full_filesystem);
    RUN(folders_that_cannot_be_written);
    RUN(unreadable_is_not_damaged);
    RUN(paths_too_long);
    RUN(other_names_do_not_count);
    RUN(links_are_not_followed);
    remove_temporary_folder();
    return DONE();
}
