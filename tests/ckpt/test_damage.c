/* test: timeout=120
 * A checkpoint that is not as it was written: found and named by the load itself, and the one before it used. */
#include "write.h"

#include "quiet.h"

enum { OLDER = 1, NEWER = 2 };

/* Two checkpoints of worlds that differ. */
struct pair {
    struct world older, newer, got;
    int ranks, version;
};
static void make_pair(struct pair *p, int version, int ranks)
{
    struct written c;
    make_world(&p->older, 1);
    make_world(&p->newer, 2);
    p->ranks = ranks;
    p->version = version;
    write_sound(&c, &p->older, run_folder(), version, ranks, OLDER);
    write_sound(&c, &p->newer, run_folder(), version, ranks, NEWER);
}

static const char *path_in(int64_t step, const char *file)
{
    static char path[4][400];
    static int next;
    char *to = path[next++ % 4];
    snprintf(to, sizeof path[0], "%.200s/ckpt/step-%08" PRId64 "/%s", run_folder(), step, file);
    return to;
}

/* The step that a resume finds, -1 for none; what it loaded is that step's to the bit. */
static int64_t resume(struct pair *p, struct quiet *q, mt_err *e)
{
    struct mt_job alone = mt_job_alone(1);
    struct mt_ckpt_loaded x;
    char path[MT_CKPT_PATH];
    *e = (mt_err){0};
    make_world(&p->got, 3);
    quiet_begin(q);
    mt_status st = mt_ckpt_resume(run_folder(), NULL, &p->got.items, &alone, path, &x, e);
    quiet_end(q);
    if (st != MT_OK || !path[0]) return -1;
    CHECK(same_world(&p->got, x.meta.step == NEWER ? &p->newer : &p->older));
    CHECK_INT(x.read, x.needed);
    return x.meta.step;
}

/* The newer one is passed over, and these words say why. */
static bool passed_over(struct pair *p, const char *one, const char *two)
{
    struct quiet q;
    mt_err e;
    int64_t step = resume(p, &q, &e);
    if (step == OLDER && strstr(q.said, "passing over a checkpoint") && strstr(q.said, one) &&
        strstr(q.said, two))
        return true;
    printf("    step %" PRId64 ", said \"%s\" %s; wanted \"%s\" and \"%s\"\n", step, q.said, e.msg, one, two);
    return false;
}
static void check_sound(struct pair *p)
{
    struct quiet q;
    mt_err e;
    CHECK_INT(resume(p, &q, &e), NEWER);
    CHECK_STR(q.said, "");
}

static void flip(const char *path, size_t at, int bit)
{
    static struct bytes b;
    CHECK(read_bytes(&b, path) && at < b.n);
    b.at[at] ^= (unsigned char)(1 << bit);
    write_bytes(path, b.at, b.n);
}

/* The tensor whose byte it is, in a rank's file; NULL: the header's. */
static const char *tensor_at(const struct pair *p, int rank, const struct bytes *b, size_t at)
{
    struct slice s[TENSORS];
    uint64_t length;
    memcpy(&length, b->at, 8);
    size_t end = 8 + length;
    int n = slices_of(&p->newer, p->ranks, rank, s);
    if (at < end) return NULL;
    for (int i = 0; i < n; i++) {
        end += (size_t)slice_bytes(&p->newer, &s[i]);
        if (at < end) return p->newer.item[s[i].tensor].name;
    }
    return "no tensor";
}

static uint64_t draw_state = 1;
static size_t draw(size_t below)
{
    draw_state = draw_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (size_t)(draw_state >> 33) % below;
}

/* One byte of a file: of its header, of its tensors, or wherever. */
static void flip_one(struct pair *p, int rank, const char *name, size_t from, size_t to)
{
    static struct bytes b;
    char want[200];
    const char *path = path_in(NEWER, name), *tensor = NULL;
    CHECK(read_bytes(&b, path));
    size_t at = from + draw((to < b.n ? to : b.n) - from);
    if (rank >= 0) tensor = tensor_at(p, rank, &b, at);
    snprintf(want, sizeof want, "tensor '%s'", tensor ? tensor : "");
    flip(path, at, (int)draw(8));
    if (!CHECK(passed_over(p, name, tensor ? want : ""))) printf("    byte %zu of %s\n", at, name);
    write_bytes(path, b.at, b.n);
}

/* 1,000 flips: of lengths and JSON and padding of headers, of tensors, and of all other files. */
static void flip_everywhere(struct pair *p, int times)
{
    char name[64];
    for (int i = 0; i < times; i++) {
        static struct bytes b;
        uint64_t length;
        int rank = (int)draw((size_t)p->ranks);
        snprintf(name, sizeof name, "rank-%05d.safetensors", rank);
        CHECK(read_bytes(&b, path_in(NEWER, name)));
        memcpy(&length, b.at, 8);
        size_t text = 8 + length;
        while (b.at[text - 1] == ' ') text--;
        flip_one(p, rank, name, 0, text);
        flip_one(p, rank, name, text, i % 2 && text < 8 + length ? 8 + length : b.n);
        flip_one(p, rank, name, 8 + length, b.n);
        snprintf(name, sizeof name, "rank-%05d.json", rank);
        flip_one(p, -1, name, 0, b.n);
        flip_one(p, -1, "config.yaml", 0, b.n);
        flip_one(p, -1, p->version > 1 ? "metrics.jsonl" : "config.yaml", 0, b.n);
        flip_one(p, -1, "manifest.json", 0, b.n);
        flip_one(p, -1, i % 2 ? "manifest.json" : name, 0, b.n);
    }
    check_sound(p);
}
TEST(a_flipped_byte_of_any_file)
{
    static struct pair p;
    make_pair(&p, 2, 4);
    check_sound(&p);
    flip_everywhere(&p, 125); /* eight each */
}
TEST(a_flipped_byte_of_version_1)
{
    static struct pair p;
    make_pair(&p, 1, 1);
    check_sound(&p);
    flip_everywhere(&p, 25);
}

/* Cut at every byte of a header that says something, and at others. */
static void cut_everywhere(struct pair *p, const char *name, size_t first, size_t stride)
{
    static struct bytes b;
    CHECK(read_bytes(&b, path_in(NEWER, name)));
    for (size_t n = 0; n < b.n; n += n < first ? 1 : stride) {
        write_bytes(path_in(NEWER, name), b.at, n);
        if (!CHECK(passed_over(p, name, ""))) printf("    %zu bytes of %s\n", n, name);
    }
    b.at[b.n] = 0;
    write_bytes(path_in(NEWER, name), b.at, b.n + 1);
    CHECK(passed_over(p, name, ""));
    write_bytes(path_in(NEWER, name), b.at, b.n);
    check_sound(p);
}
TEST(cut_files)
{
    static struct pair p;
    make_pair(&p, 2, 2);
    cut_everywhere(&p, "rank-00001.safetensors", 900, 211);
    cut_everywhere(&p, "rank-00000.json", 40, 37);
    cut_everywhere(&p, "config.yaml", 0, 5);
    cut_everywhere(&p, "metrics.jsonl", 0, 11);
    cut_everywhere(&p, "manifest.json", 0, 19);
}

/* The same with the file's size and checksums made to fit: what then tells is the header alone. */
TEST(cut_headers_that_are_vouched_for)
{
    static struct pair p;
    static struct bytes b;
    struct written c = {.version = 1, .world = 1, .step = NEWER};
    make_pair(&p, 1, 1);
    snprintf(c.folder, sizeof c.folder, "%.200s/ckpt/step-%08d", run_folder(), NEWER);
    CHECK(read_bytes(&b, path_in(NEWER, "rank-00000.safetensors")));
    uint64_t length;
    memcpy(&length, b.at, 8);
    for (size_t n = 0; n < 8 + length; n++) {
        write_bytes(path_in(NEWER, "rank-00000.safetensors"), b.at, n);
        seal(&c);
        if (!CHECK(passed_over(&p, "rank-00000.safetensors", ""))) break;
    }
}

static void copy(const char *to, const char *from)
{
    static struct bytes b;
    CHECK(read_bytes(&b, from));
    write_bytes(to, b.at, b.n);
}

TEST(missing_and_swapped_files)
{
    static struct pair p;
    static struct bytes b, other;
    static const char *const name[] = {"rank-00002.safetensors", "rank-00001.json", "config.yaml",
                                       "metrics.jsonl", "manifest.json"};
    make_pair(&p, 2, 4);
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        CHECK(read_bytes(&b, path_in(NEWER, name[i])));
        unlink(path_in(NEWER, name[i]));
        CHECK(passed_over(&p, name[i], ""));
        copy(path_in(NEWER, name[i]), path_in(OLDER, name[i])); /* of another step, of the same size */
        CHECK(passed_over(&p, i < 4 ? name[i] : "is damaged", ""));
        write_bytes(path_in(NEWER, name[i]), b.at, b.n);
    }
    check_sound(&p);
    for (int kind = 0; kind < 2; kind++) { /* one rank's for another's */
        static const char *const two[2][2] = {{"rank-00000.safetensors", "rank-00003.safetensors"},
                                              {"rank-00000.json", "rank-00003.json"}};
        CHECK(read_bytes(&b, path_in(NEWER, two[kind][0])) &&
              read_bytes(&other, path_in(NEWER, two[kind][1])));
        write_bytes(path_in(NEWER, two[kind][0]), other.at, other.n);
        write_bytes(path_in(NEWER, two[kind][1]), b.at, b.n);
        CHECK(passed_over(&p, two[kind][0], ""));
        write_bytes(path_in(NEWER, two[kind][0]), b.at, b.n);
        write_bytes(path_in(NEWER, two[kind][1]), other.at, other.n);
    }
    check_sound(&p);
}

/* A save by more ranks that failed has left files; or its files lie where the new one's should. */
TEST(stale_files_of_another_world)
{
    static struct pair p;
    static struct bytes b;
    struct written c;
    make_pair(&p, 2, 2);
    write_sound(&c, &p.older, run_folder(), 2, 4, 9);
    copy(path_in(NEWER, "rank-00003.safetensors"), path_in(9, "rank-00003.safetensors"));
    copy(path_in(NEWER, "rank-00003.json"), path_in(9, "rank-00003.json"));
    CHECK(read_bytes(&b, path_in(9, "rank-00001.safetensors")));
    mt_err e = {0};
    CHECK_INT(mt_remove_folder(c.folder, NULL, &e), MT_OK);
    CHECK(passed_over(&p, "rank-00003.", "is not in the checkpoint's manifest"));
    unlink(path_in(NEWER, "rank-00003.safetensors"));
    unlink(path_in(NEWER, "rank-00003.json"));
    check_sound(&p);
    write_bytes(path_in(NEWER, "rank-00001.safetensors"), b.at, b.n);
    CHECK(passed_over(&p, "rank-00001.safetensors", "its manifest says"));
}

TEST(nothing_but_damaged_ones)
{
    static struct pair p;
    struct quiet q;
    mt_err e;
    make_pair(&p, 2, 4);
    flip(path_in(OLDER, "rank-00001.safetensors"), 4100, 3);
    flip(path_in(NEWER, "rank-00003.json"), 30, 3);
    CHECK_INT(resume(&p, &q, &e), -1);
    CHECK(failed_so(e.code, &e, MT_CKPT, "no checkpoint is valid: step-00000002, step-00000001 of"));
    CHECK(strstr(e.msg, "ckpt.resume: never"));
    CHECK(strstr(q.said, "rank-00001.safetensors': tensor '") &&
          strstr(q.said, "rank-00003.json' is damaged"));
    unlink(path_in(OLDER, "manifest.json"));
    unlink(path_in(NEWER, "manifest.json"));
    CHECK_INT(resume(&p, &q, &e), -1);
    CHECK_INT(e.code, MT_OK); /* saves that did not end: a new run */
}

/* What the system refuses to let us read is not taken for damage: an older one would throw work away. */
TEST(unreadable_is_not_damaged)
{
    static struct pair p;
    static const char *const name[] = {"rank-00002.safetensors", "rank-00001.json", "config.yaml",
                                       "metrics.jsonl", "manifest.json"};
    make_pair(&p, 2, 4);
    chmod(temporary_folder(), 0755);
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        struct quiet q;
        mt_err e;
        int64_t step = 0;
        chmod(path_in(NEWER, name[i]), 0);
        bool root = geteuid() == 0, other = root && !seteuid(65534); /* to whom permissions mean something */
        if (!root || other) step = resume(&p, &q, &e);
        if (other && seteuid(0)) abort();
        chmod(path_in(NEWER, name[i]), 0644);
        if (root && !other) SKIP("permissions mean nothing to root here");
        CHECK_INT(step, -1);
        CHECK(failed_so(e.code, &e, MT_IO, name[i]));
        CHECK(!strstr(q.said, "passing over"));
    }
    check_sound(&p);
}

int main(void)
{
    RUN(a_flipped_byte_of_any_file);
    RUN(a_flipped_byte_of_version_1);
    RUN(cut_files);
    RUN(cut_headers_that_are_vouched_for);
    RUN(missing_and_swapped_files);
    RUN(stale_files_of_another_world);
    RUN(nothing_but_damaged_ones);
    RUN(unreadable_is_not_damaged);
    remove_temporary_folder();
    return DONE();
}
