/* test: variants=release,asan,tsan-plain
 *
 * Checkpoints on the nodes' own disks: who is whose buddy, what a node must hold, and what is sent to another. */
#include "ckpt/buddy.h"

#include "helper.h"
#include "threads_job.h"

#include "quiet.h"

enum { PROCESSES = 16, SLICE = 7000 };
struct process {
    struct mt_tier t;
    mt_status st;
    mt_err e;
    struct mt_tier_room room;
};
struct nodes {
    const int *node;  /* of each process */
    char folder[300]; /* there, of the run */
    int64_t bytes;    /* of each rank's tensors */
    struct process p[PROCESSES];
};

static mt_status open_tier(struct nodes *x, struct process *p, const struct mt_job *job)
{
    char name[PROCESSES][MT_TIER_NODE];
    const struct mt_tier_options o = {
        .dir = x->folder, .run_dir = x->folder, .node = (const char(*)[MT_TIER_NODE])name, .keep = 2};
    for (int i = 0; i < job->n; i++) snprintf(name[i], sizeof name[i], "node-%d", x->node[i]);
    return mt_tier_open(&p->t, &o, job, &p->e);
}
static void find_room(void *arg, const struct mt_job *job)
{
    struct nodes *x = arg;
    struct process *p = &x->p[job->me];
    int64_t bytes[PROCESSES];
    for (int i = 0; i < job->n; i++) bytes[i] = x->bytes + i;
    *p = (struct process){0};
    p->st = open_tier(x, p, job);
    if (p->st == MT_OK) p->st = mt_tier_find_room(&p->t, bytes, &p->room, &p->e);
    mt_tier_close(&p->t);
}

static void run_all(int n, void (*work)(void *arg, const struct mt_job *job), struct nodes *x, void *arg)
{
    mt_err e = {0};
    snprintf(x->folder, sizeof x->folder, "%.299s", run_folder());
    CHECK_INT(mt_make_folders(x->folder, &e), MT_OK);
    hub_run(n, work, arg);
}

static void check_buddies(const int *node, int n)
{
    struct nodes x = {.node = node, .bytes = 1000};
    run_all(n, find_room, &x, &x);
    for (int i = 0; i < n; i++) {
        const struct mt_tier *t = &x.p[i].t;
        int64_t own = 0, wards = 0;
        if (!CHECK_INT(x.p[i].st, MT_OK)) printf("    %s\n", x.p[i].e.msg);
        CHECK(t->to >= 0 && t->to < n && node[t->to] != node[i]);
        CHECK_INT(x.p[t->to].t.from, i);
        for (int k = 0; k < n; k++) {
            own += node[k] == node[i] ? 1000 + k : 0;
            wards += node[x.p[k].t.to] == node[i] ? 1000 + k : 0;
        }
        CHECK_INT(x.p[i].room.own, own);
        CHECK_INT(x.p[i].room.wards, wards);
        CHECK_INT(x.p[i].room.need, 3 * (own + wards));
    }
}
TEST(buddies_are_on_other_nodes)
{
    check_buddies((const int[]){0, 0, 1, 1}, 4);
    check_buddies((const int[]){0, 1, 0, 1}, 4);
    check_buddies((const int[]){0, 1, 2}, 3);
    check_buddies((const int[]){0, 0, 0, 1, 1, 2, 2, 2}, 8);
    check_buddies((const int[]){5, 5, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7}, 12);
}

TEST(a_node_with_more_than_half_is_refused)
{
    struct nodes x = {.node = (const int[]){0, 0, 0, 1}, .bytes = 1000};
    run_all(4, find_room, &x, &x);
    for (int i = 0; i < 4; i++) CHECK_INT(x.p[i].st, MT_CONFIG);
    CHECK(strstr(x.p[0].e.msg, "one node has 3 of the 4 processes"));
}

TEST(one_node_has_no_buddy)
{
    struct nodes x = {.node = (const int[]){0, 0}, .bytes = 1000};
    run_all(2, find_room, &x, &x);
    CHECK_INT(x.p[0].st, MT_OK);
    CHECK(x.p[0].t.to == -1 && x.p[0].t.from == -1 && x.p[0].room.wards == 0);
}

TEST(what_does_not_fit_is_refused_with_the_numbers)
{
    struct nodes x = {.node = (const int[]){0, 1}, .bytes = INT64_C(1) << 50};
    run_all(2, find_room, &x, &x);
    for (int i = 0; i < 2; i++) CHECK_INT(x.p[i].st, MT_NOFIT);
    CHECK(strstr(x.p[0].e.msg,
                 "3 checkpoints (ckpt.local_keep, and the one that is written) of 1073741824.0 MiB"));
    CHECK(strstr(x.p[0].e.msg, "take 6442450944.0 MiB"));
}

/* ---- what is sent ---- */
enum { TENSOR_BYTES = 30001, SUM_BYTES = 411 };
struct exchange {
    struct nodes nodes;
    int flipped; /* the process whose file is not what it was; -1: none */
    int slices;
};

static void fill(unsigned char *p, int rank, int kind)
{
    for (int i = 0; i < (kind ? SUM_BYTES : TENSOR_BYTES + rank); i++)
        p[i] = (unsigned char)(i * 7 + i / 256 + rank * 31 + kind);
}
/* In threads, which do not share the counts of checks. */
static void must(mt_status st)
{
    if (st != MT_OK) abort();
}

static void exchange_one(void *arg, const struct mt_job *job)
{
    struct exchange *x = arg;
    struct process *p = &x->nodes.p[job->me];
    struct mt_tier_file file[PROCESSES];
    struct mt_buddy b;
    static _Thread_local unsigned char bytes[TENSOR_BYTES + PROCESSES];
    static _Thread_local char buffer[SLICE];
    char folder[MT_CKPT_PATH], path[MT_CKPT_PATH + 80];
    uint64_t sum;
    *p = (struct process){0};
    must(open_tier(&x->nodes, p, job));
    mt_ckpt_folder(p->t.root, 3, folder);
    must(mt_make_folders(folder, &p->e));
    for (int rank = 0; rank < job->n; rank++)
        for (int kind = 0; kind < 2; kind++) {
            file[rank].bytes[kind] = kind ? SUM_BYTES : TENSOR_BYTES + rank;
            fill(bytes, rank, kind);
            file[rank].xxh3[kind] = (int64_t)mt_xxh3(bytes, file[rank].bytes[kind]);
            if (rank != job->me) continue;
            if (x->flipped == rank && !kind) bytes[12345] ^= 1;
            mt_tier_path(folder, rank, kind, path);
            must(mt_write_file(path, bytes, file[rank].bytes[kind], &sum, &p->e));
        }
    must(mt_buddy_open(&b, &p->t, buffer, SLICE, file, &p->e));
    mt_buddy_begin(&b, folder);
    while (mt_job_any(job, mt_buddy_left(&b))) {
        mt_err e = p->e;
        p->st = mt_buddy_slice(&b, &e);
        if (p->e.code == MT_OK) p->e = e;
        if (!job->me) x->slices++;
    }
    mt_buddy_close(&b);
    mt_tier_close(&p->t);
}

static bool has_copy(const char *root, int rank)
{
    static unsigned char want[TENSOR_BYTES + PROCESSES];
    bool same = true;
    for (int kind = 0; kind < 2; kind++) {
        char folder[MT_CKPT_PATH], path[MT_CKPT_PATH + 80];
        int64_t bytes = 0;
        uint64_t sum = 0;
        mt_err e = {0};
        fill(want, rank, kind);
        mt_ckpt_folder(root, 3, folder);
        mt_tier_path(folder, rank, kind, path);
        same &= mt_hash_file(path, &bytes, &sum, &e) == MT_OK &&
                bytes == (kind ? SUM_BYTES : TENSOR_BYTES + rank) && sum == mt_xxh3(want, bytes);
    }
    return same;
}

TEST(files_come_whole_in_slices)
{
    struct exchange x = {.nodes = {.node = (const int[]){0, 0, 1, 1, 2, 2}}, .flipped = -1};
    run_all(6, exchange_one, &x.nodes, &x);
    CHECK_INT(x.slices, 5); /* of 30,412 bytes and a few, 7,000 each */
    for (int i = 0; i < 6; i++) {
        if (!CHECK_INT(x.nodes.p[i].e.code, MT_OK)) printf("    %s\n", x.nodes.p[i].e.msg);
        CHECK(has_copy(x.nodes.p[i].t.root, x.nodes.p[i].t.from));
    }
}

TEST(a_file_that_changed_is_found_and_nobody_hangs)
{
    struct exchange x = {.nodes = {.node = (const int[]){0, 1, 2}}, .flipped = 1};
    run_all(3, exchange_one, &x.nodes, &x);
    CHECK_INT(x.nodes.p[1].e.code, MT_IO);
    CHECK(strstr(x.nodes.p[1].e.msg, "rank-00001.safetensors' was read with checksum"));
    CHECK_INT(x.nodes.p[2].e.code, MT_IO);
    CHECK_INT(x.nodes.p[0].e.code, MT_OK);
}

int main(void)
{
    RUN(buddies_are_on_other_nodes);
    RUN(a_node_with_more_than_half_is_refused);
    RUN(one_node_has_no_buddy);
    RUN(what_does_not_fit_is_refused_with_the_numbers);
    RUN(files_come_whole_in_slices);
    RUN(a_file_that_changed_is_found_and_nobody_hangs);
    remove_temporary_folder();
    return DONE();
}
