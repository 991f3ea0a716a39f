/* The clock on toy schedules whose times are worked out by hand: a byte takes a nanosecond everywhere, and a millisecond is
 * a million bytes. */
#include "check.h"
#include "device/simclock.h"

enum { MOST = 8, MS = 1000000 };

static struct mt_cluster toy_cluster(void)
{
    struct mt_cluster c = {.name = "toy"};
    for (int k = 0; k < MT_N_CLUSTER_KEYS; k++) c.of[k].value = mt_cluster_rows[k].low;
    c.of[MT_CLUSTER_peak_f32].value = c.of[MT_CLUSTER_peak_bf16].value = 1e18;
    c.of[MT_CLUSTER_memory_bandwidth].value = c.of[MT_CLUSTER_node_pair].value = 1e9;
    c.of[MT_CLUSTER_memory_stream].value = c.of[MT_CLUSTER_memory_rows].value = 1;
    c.of[MT_CLUSTER_node_total].value = 1e12;
    c.of[MT_CLUSTER_net_bandwidth].value = 1e9;
    c.of[MT_CLUSTER_net_efficiency].value = c.of[MT_CLUSTER_net_far].value = 1;
    c.of[MT_CLUSTER_host_h2d].value = c.of[MT_CLUSTER_host_d2h].value = 1e9;
    return c;
}

/* ---- a job: group 0 is all ranks, group 1 pairs of neighbours, group 2 every rank alone ---- */
static int members(const void *mesh, int id, int rank, int *out)
{
    int world = *(const int *)mesh, first = rank, n = 1;
    if (id == 0) first = 0, n = world;
    if (id == 1 && world > 1) first = rank / 2 * 2, n = 2;
    for (int i = 0; i < n; i++) out[i] = first + i;
    return n;
}

struct job {
    int world, per_node, per_group;
    struct mt_ledger g;
    int32_t row[2]; /* device, host */
    struct mt_simclock *k;
    struct mt_cluster c;
    struct mt_simclock_run run;
    struct mt_simclock_rank out[MOST];
    int64_t begin[256], ready[256], end[256];
};
static mt_view bytes(const struct job *j, enum mt_arena a, int64_t n)
{
    return mt_view_of(j->row[a], MT_U8, 0, n, 0, 0);
}
static void kernel(struct job *j, struct mt_ctx *c, int s, double ms)
{
    mt_fill0(&c->stream[s], bytes(j, MT_DEVICE_ARENA, (int64_t)(ms * MS)));
}
static void copy(struct job *j, struct mt_ctx *c, int s, double ms)
{
    int64_t n = (int64_t)(ms * MS);
    if (s == MT_H2D)
        mt_copy_h2d(&c->stream[s], bytes(j, MT_DEVICE_ARENA, n), bytes(j, MT_HOST_ARENA, n));
    else
        mt_copy_d2h(&c->stream[s], bytes(j, MT_HOST_ARENA, n), bytes(j, MT_DEVICE_ARENA, n));
}
/* A gather in which every member gets `ms` from each other one. */
static void gather(struct job *j, struct mt_ctx *c, int s, int group, double ms)
{
    int ranks[MOST], n = members(&j->world, group, c->rank, ranks);
    int64_t piece = (int64_t)(ms * MS);
    mt_gather(&c->stream[s], bytes(j, MT_DEVICE_ARENA, n * piece), bytes(j, MT_DEVICE_ARENA, piece), group, n,
              piece);
}
static void wait_for(struct mt_ctx *c, int s, int other)
{
    mt_stream_wait(&c->stream[s], mt_event_record(&c->stream[other]));
}
static void host_read(struct job *j, struct mt_ctx *c, int s, double ms)
{
    static char to[100 * MS];
    mt_host_read(&c->stream[s], MT_READ_LOSS, 0, bytes(j, MT_DEVICE_ARENA, (int64_t)(ms * MS)), to);
}

static mt_status run_job(struct job *j, void (*program)(struct job *, struct mt_ctx *))
{
    mt_err e = {0};
    struct mt_simclock_options o = {.world = j->world,
                                    .ranks_per_node = j->per_node,
                                    .nodes_per_group = j->per_group ? j->per_group : 100,
                                    .n_groups = 3,
                                    .members = members,
                                    .mesh = &j->world};
    mt_ledger_init(&j->g, 64);
    j->row[0] = mt_row_add(&j->g, MT_DEVICE_ARENA, MT_ROW_SCRATCH, 1000 * MS, "device");
    j->row[1] = mt_row_add(&j->g, MT_HOST_ARENA, MT_ROW_SCRATCH, 1000 * MS, "host");
    mt_status st = mt_simclock_open(&j->k, &o, &e);
    for (int r = 0; r < j->world && st == MT_OK; r++) {
        struct mt_ctx c;
        mt_ctx_init(&c, r, j->world, &mt_device_simclock, &j->g);
        mt_simclock_begin(j->k, &c);
        program(j, &c);
        mt_simclock_end(j->k, &c);
    }
    j->run.cluster = &j->c;
    j->run.begin = j->begin;
    j->run.ready = j->ready;
    j->run.end = j->end;
    if (st == MT_OK) st = mt_simclock_replay(j->k, &j->run, j->out, NULL, &e);
    mt_simclock_close(j->k);
    mt_ledger_release(&j->g);
    return st;
}
#define JOB(n, per)                                     \
    {                                                   \
        .world = n, .per_node = per, .c = toy_cluster() \
    }
#define CHECK_MS(got, want) CHECK_CLOSE((got)*1e3, want, 1e-9)

/* ---- one rank ---- */
static void in_turn(struct job *j, struct mt_ctx *c)
{
    kernel(j, c, MT_COMPUTE, 3);
    kernel(j, c, MT_COMPUTE, 4);
}
TEST(a_stream_runs_in_turn)
{
    struct job j = JOB(1, 1);
    CHECK(run_job(&j, in_turn) == MT_OK);
    CHECK_MS(j.out[0].end, 7);
    CHECK_MS(j.out[0].busy[MT_WORK_STREAM], 7);
    CHECK_INT(j.begin[1], 3 * MS);
    CHECK_INT(j.end[1], 7 * MS);
    struct job slow = JOB(1, 1);
    slow.run.compute = (const double[]){1.5};
    CHECK(run_job(&slow, in_turn) == MT_OK);
    CHECK_MS(slow.out[0].end, 10.5);
    struct job gaps = JOB(1, 1);
    gaps.c.of[MT_CLUSTER_launch_kernel].value = 0.5e-3;
    CHECK(run_job(&gaps, in_turn) == MT_OK);
    CHECK_MS(gaps.out[0].end, 8);
}

/* compute 5, then what the copy of 8 brought; the copy goes on meanwhile. */
static void overlapped(struct job *j, struct mt_ctx *c)
{
    copy(j, c, MT_H2D, 8);
    kernel(j, c, MT_COMPUTE, 5);
    wait_for(c, MT_COMPUTE, MT_H2D);
    kernel(j, c, MT_COMPUTE, 2);
}
TEST(streams_overlap_and_wait)
{
    struct job j = JOB(1, 1);
    CHECK(run_job(&j, overlapped) == MT_OK);
    CHECK_MS(j.out[0].end, 10);
    CHECK_MS(j.out[0].idle[MT_STAND_COPIES], 3);
    CHECK_INT(j.begin[2], 5 * MS); /* the wait */
    CHECK_INT(j.end[2], 8 * MS);
    CHECK_MS(j.out[0].link[MT_ON_H2D], 8);
}

/* On one processor, kernels of two streams take turns, and time spent on the other stream is not the host's. */
static void two_kernels(struct job *j, struct mt_ctx *c)
{
    kernel(j, c, MT_GATHER, 3);
    kernel(j, c, MT_COMPUTE, 5);
    wait_for(c, MT_COMPUTE, MT_GATHER);
    kernel(j, c, MT_COMPUTE, 2);
    kernel(j, c, MT_REDUCE, 4);
}
TEST(streams_take_turns_on_one_processor)
{
    struct job side = JOB(1, 1), turns = JOB(1, 1);
    CHECK(run_job(&side, two_kernels) == MT_OK);
    CHECK_MS(side.out[0].end, 7);
    turns.c.of[MT_CLUSTER_launch_serial].value = 1;
    CHECK(run_job(&turns, two_kernels) == MT_OK);
    const struct mt_simclock_rank *r = &turns.out[0];
    CHECK_MS(r->end, 14);
    CHECK_MS(r->busy[MT_WORK_STREAM], 7);
    CHECK_MS(r->side, 7);
    CHECK_MS(r->idle[MT_STAND_HOST], 0);
}

static void both_ways(struct job *j, struct mt_ctx *c)
{
    copy(j, c, MT_H2D, 8);
    copy(j, c, MT_D2H, 6);
}
TEST(copies_of_two_directions_do_not_share)
{
    struct job j = JOB(1, 1);
    CHECK(run_job(&j, both_ways) == MT_OK);
    CHECK_MS(j.out[0].end, 8);
}

/* The host enqueues one operation a millisecond, stops at a read until 2 ms after it is over, and goes on. */
static void with_host(struct job *j, struct mt_ctx *c)
{
    kernel(j, c, MT_COMPUTE, 5);    /* 1 to 6 */
    host_read(j, c, MT_COMPUTE, 1); /* 6 to 7; the host goes on at 9 */
    kernel(j, c, MT_COMPUTE, 0.25); /* enqueued at 10 */
    kernel(j, c, MT_COMPUTE, 0.25); /* enqueued at 11, to 11.25 */
}
TEST(the_host_enqueues_and_reads)
{
    struct job j = JOB(1, 1);
    j.c.of[MT_CLUSTER_launch_enqueue].value = 1e-3;
    j.c.of[MT_CLUSTER_launch_read].value = 2e-3;
    CHECK(run_job(&j, with_host) == MT_OK);
    CHECK_MS(j.out[0].end, 11.25);
    CHECK_MS(j.out[0].idle[MT_STAND_HOST], 1 + 1 + 3 + 0.75); /* the read itself, too */
    CHECK_INT(j.begin[2], 10 * MS);
}

static void a_group_of_one(struct job *j, struct mt_ctx *c)
{
    gather(j, c, MT_COMPUTE, 2, 3);
}
TEST(a_group_of_one_copies_in_memory)
{
    struct job j = JOB(2, 1);
    CHECK(run_job(&j, a_group_of_one) == MT_OK);
    CHECK_MS(j.out[1].end, 3);
    CHECK_MS(j.out[1].busy[MT_WORK_STREAM], 3);
    CHECK_MS(j.out[1].link[MT_ON_NET], 0);
}

/* ---- collectives ---- */
/* Rank r computes r ms first. */
static void staggered(struct job *j, struct mt_ctx *c)
{
    if (c->rank) kernel(j, c, MT_COMPUTE, c->rank);
    gather(j, c, MT_COMPUTE, 0, 2);
    kernel(j, c, MT_COMPUTE, 1);
}
TEST(collectives_wait_for_the_last_rank)
{
    struct job j = JOB(4, 4); /* three neighbours, each on its own link of 1 GB/s: 6 MB in 2 ms */
    CHECK(run_job(&j, staggered) == MT_OK);
    for (int r = 0; r < 4; r++) {
        CHECK_MS(j.out[r].end, 6);
        CHECK_MS(j.out[r].idle[MT_STAND_LATE], 3 - r);
        CHECK_MS(j.out[r].idle[MT_STAND_SMALL], 2);
    }
    struct job far = JOB(4, 1); /* the same over one adapter */
    CHECK(run_job(&far, staggered) == MT_OK);
    CHECK_MS(far.out[0].end, 3 + 6 + 1);
    struct job mixed = JOB(4, 2); /* 4 MB over the adapter, 2 inside the node at the same time */
    CHECK(run_job(&mixed, staggered) == MT_OK);
    CHECK_MS(mixed.out[0].end, 3 + 4 + 1);
    struct job slow = JOB(4, 2); /* one bad adapter holds up all */
    slow.run.net = (const double[]){1, 1, 3, 1};
    CHECK(run_job(&slow, staggered) == MT_OK);
    CHECK_MS(slow.out[0].end, 3 + 12 + 1);
    struct job apart =
        JOB(4, 2); /* all of the traffic between nodes leaves the group of nodes, at half the rate */
    apart.per_group = 1;
    apart.c.of[MT_CLUSTER_net_far].value = 0.5;
    CHECK(run_job(&apart, staggered) == MT_OK);
    CHECK_MS(apart.out[0].end, 3 + 8 + 1);
}

TEST(algorithms)
{
    struct job ring = JOB(4, 2); /* each node's 4 MB enter it once: 2 by each adapter; inside 2 and 2 more */
    ring.run.algorithm = MT_ALG_HIERARCHICAL;
    CHECK(run_job(&ring, staggered) == MT_OK);
    CHECK_MS(ring.out[0].end, 3 + 4 + 1);
    CHECK_MS(ring.out[0].link[MT_ON_NET], 2);
    CHECK_MS(ring.out[0].link[MT_ON_NODE], 4);
    struct job late = JOB(4, 2);
    late.c.of[MT_CLUSTER_net_latency].value = 5e-3;
    late.c.of[MT_CLUSTER_net_message].value = 1e-3;
    CHECK(run_job(&late, staggered) == MT_OK);
    CHECK_MS(late.out[0].end, 3 + 5 + 3 + 4 + 1);
    late = (struct job)JOB(4, 2);
    late.c.of[MT_CLUSTER_net_latency].value = 5e-3;
    late.run.algorithm = MT_ALG_TREE;
    CHECK(run_job(&late, staggered) == MT_OK);
    CHECK_MS(late.out[0].end, 3 + 2 * 5 + 4 + 1);
}

/* 10 ms alone on one stream, 30 on another: together they share the link until the first is over at 20, and the second has then
 * 20 left. */
static void two_streams(struct job *j, struct mt_ctx *c)
{
    gather(j, c, MT_GATHER, 0, 10);
    gather(j, c, MT_REDUCE, 0, 30);
}
TEST(transfers_share_a_link)
{
    struct job j = JOB(2, 1);
    CHECK(run_job(&j, two_streams) == MT_OK);
    CHECK_INT(j.end[0], 20 * MS);
    CHECK_INT(j.end[1], 40 * MS);
    CHECK_MS(j.out[0].link[MT_ON_NET], 40);
}

/* Group 0 is over both links, group 1 inside nodes. */
static void two_links(struct job *j, struct mt_ctx *c)
{
    gather(j, c, MT_GATHER, 0, 10); /* of three others one is on this node */
    gather(j, c, MT_REDUCE, 1, 30);
}
TEST(a_link_is_shared_in_proportion)
{
    struct job j = JOB(4, 2);
    CHECK(run_job(&j, two_links) == MT_OK);
    /* The first asks half of the link inside the node (10 of its 20 ms), the second all of it: both at two thirds of their pace,
     * until the first ends at 30; the second then has 10 left. */
    CHECK_INT(j.end[0], 30 * MS);
    CHECK_INT(j.end[1], 40 * MS);
}

/* Ranks 2 and 3 have more to do on the link of their pair: the collective of all goes at their pace. */
static void uneven_load(struct job *j, struct mt_ctx *c)
{
    gather(j, c, MT_GATHER, 0, 10); /* 30 ms over each adapter */
    if (c->rank >= 2) gather(j, c, MT_REDUCE, 1, 15);
    kernel(j, c, MT_COMPUTE, 1);
}
TEST(the_most_loaded_member_sets_the_pace)
{
    struct job j = JOB(4, 1);
    CHECK(run_job(&j, uneven_load) == MT_OK);
    /* To 30 at half the pace, when the 15 of ranks 2 and 3 are over; then the 15 that are left. */
    for (int r = 0; r < 4; r++) CHECK_MS(j.out[r].end, 45);
    CHECK_INT(j.end[0], 45 * MS);
}

/* What prefetch is for: the gather of the next layer is under way while this one computes. */
static void prefetch(struct job *j, struct mt_ctx *c)
{
    mt_event ready[4];
    for (int l = 0; l < 3; l++) {
        gather(j, c, MT_GATHER, 0, 4);
        ready[l] = mt_event_record(&c->stream[MT_GATHER]);
    }
    for (int l = 0; l < 3; l++) {
        mt_stream_wait(&c->stream[MT_COMPUTE], ready[l]);
        kernel(j, c, MT_COMPUTE, 3);
    }
}
TEST(gathers_ahead)
{
    struct job j = JOB(2, 1);
    CHECK(run_job(&j, prefetch) == MT_OK);
    CHECK_MS(j.out[0].end, 3 * 4 + 3);
    CHECK_MS(j.out[0].idle[MT_STAND_SMALL], 4 + 1 + 1);
    CHECK_MS(j.out[0].busy[MT_WORK_STREAM], 9);
}

/* Rank 1 comes to the gather 6 ms late; rank 0, which waits for it from 2 on, counts 4 of them as lateness. */
static void late_elsewhere(struct job *j, struct mt_ctx *c)
{
    if (c->rank) kernel(j, c, MT_GATHER, 6);
    gather(j, c, MT_GATHER, 0, 3);
    kernel(j, c, MT_COMPUTE, 2);
    wait_for(c, MT_COMPUTE, MT_GATHER);
}
TEST(lateness_on_another_stream)
{
    struct job j = JOB(2, 1);
    CHECK(run_job(&j, late_elsewhere) == MT_OK);
    CHECK_MS(j.out[0].idle[MT_STAND_LATE], 4);
    CHECK_INT(j.begin[0], 0); /* of rank 0: it comes, the other has come, all is there */
    CHECK_INT(j.ready[0], 6 * MS);
    CHECK_INT(j.end[0], 9 * MS);
    CHECK_MS(j.out[0].idle[MT_STAND_SMALL], 3);
    CHECK_MS(j.out[1].idle[MT_STAND_LATE], 0);
    CHECK_MS(j.out[1].idle[MT_STAND_SMALL], 7);
    CHECK_MS(j.out[1].side, 6);
}

/* compute waits for a copy of 2 that waits for a gather of 5: for both, and for who comes late to the gather. */
static void one_behind_another(struct job *j, struct mt_ctx *c)
{
    kernel(j, c, MT_GATHER, c->rank ? 3 : 1);
    wait_for(c, MT_REDUCE, MT_GATHER);
    gather(j, c, MT_REDUCE, 0, 5);
    wait_for(c, MT_D2H, MT_REDUCE);
    copy(j, c, MT_D2H, 2);
    kernel(j, c, MT_COMPUTE, 4);
    wait_for(c, MT_COMPUTE, MT_D2H);
}
TEST(waits_behind_waits)
{
    struct job j = JOB(2, 2);
    CHECK(run_job(&j, one_behind_another) == MT_OK);
    CHECK_MS(j.out[0].end, 10);
    CHECK_MS(j.out[0].idle[MT_STAND_SMALL], 4);
    CHECK_MS(j.out[0].idle[MT_STAND_COPIES], 2);
    CHECK_MS(j.out[0].idle[MT_STAND_LATE], 0);
}

/* ---- programs ---- */
TEST(equal_programs_are_kept_once)
{
    struct job j = JOB(4, 2);
    mt_err e = {0};
    struct mt_simclock_options o = {4, 2, 100, 3, members, &j.world};
    CHECK(mt_simclock_open(&j.k, &o, &e) == MT_OK);
    mt_ledger_init(&j.g, 64);
    j.row[0] = mt_row_add(&j.g, MT_DEVICE_ARENA, MT_ROW_SCRATCH, 1000 * MS, "device");
    for (int r = 0; r < 3; r++) {
        struct mt_ctx c;
        mt_ctx_init(&c, r, 4, &mt_device_simclock, &j.g);
        mt_simclock_begin(j.k, &c);
        gather(&j, &c, MT_GATHER, 0, 2);
        if (r == 2) kernel(&j, &c, MT_COMPUTE, 1);
        mt_simclock_end(j.k, &c);
        CHECK_INT(c.traffic->lane[0][MT_GATHER][0].flow[MT_LINK_NODE].received, 2 * MS);
        CHECK_INT(c.traffic->lane[0][MT_GATHER][0].flow[MT_LINK_NET].sent, 4 * MS);
    }
    mt_simclock_same(j.k, 3, 1);
    CHECK_INT(mt_simclock_programs(j.k), 2);
    CHECK_INT(mt_simclock_operations(j.k, 2), 2);
    CHECK_INT(mt_simclock_operations(j.k, 3), 1);
    mt_simclock_close(j.k);
    mt_ledger_release(&j.g);
}

/* Ranks that differ in what they do, how much of it, or both; copies and waits among it. */
static void varied(struct job *j, struct mt_ctx *c)
{
    int odd = c->rank % 2;
    for (int i = 1; i < 40; i++) {
        kernel(j, c, MT_COMPUTE, c->rank + i);
        gather(j, c, MT_GATHER, i % 2, 1 + i % 3);
        copy(j, c, MT_H2D, odd ? i : 7);
        wait_for(c, MT_COMPUTE, MT_GATHER);
        if (odd) wait_for(c, MT_H2D, MT_COMPUTE);
        if (c->rank == 2) kernel(j, c, MT_REDUCE, 1);
    }
}
static void record_one(struct job *j, struct mt_simclock *k, int rank,
                       void (*program)(struct job *, struct mt_ctx *))
{
    struct mt_ctx c;
    mt_ctx_init(&c, rank, j->world, &mt_device_simclock, &j->g);
    mt_simclock_begin(k, &c);
    program(j, &c);
    mt_simclock_end(k, &c);
}
/* By two clocks that met everything in other orders, and in one: to the bit. */
TEST(clocks_are_brought_together)
{
    struct job one = JOB(6, 2), j = JOB(6, 2);
    struct mt_simclock *other;
    mt_err e = {0};
    struct mt_simclock_options o = {6, 2, 100, 3, members, &j.world};
    CHECK(run_job(&one, varied) == MT_OK);
    CHECK(mt_simclock_open(&j.k, &o, &e) == MT_OK && mt_simclock_open(&other, &o, &e) == MT_OK);
    mt_ledger_init(&j.g, 64);
    j.row[0] = mt_row_add(&j.g, MT_DEVICE_ARENA, MT_ROW_SCRATCH, 1000 * MS, "device");
    j.row[1] = mt_row_add(&j.g, MT_HOST_ARENA, MT_ROW_SCRATCH, 1000 * MS, "host");
    for (int i = 0; i < 6; i++) record_one(&j, i % 4 ? other : j.k, 5 - i, varied);
    mt_simclock_merge(j.k, other);
    j.run.cluster = &j.c;
    j.run.traced = 0;
    CHECK(mt_simclock_replay(j.k, &j.run, j.out, NULL, &e) == MT_OK);
    CHECK_INT(mt_simclock_programs(j.k), 6);
    CHECK(!memcmp(one.out, j.out, sizeof one.out));
    CHECK(j.out[0].end > 0);
    mt_simclock_close(other);
    mt_simclock_close(j.k);
    mt_ledger_release(&j.g);
}

static void small_steps(struct job *j, struct mt_ctx *c)
{
    for (int i = 0; i < 1000; i++) kernel(j, c, MT_COMPUTE, 1);
}
static void large_steps(struct job *j, struct mt_ctx *c)
{
    for (int i = 0; i < 1000; i++) kernel(j, c, MT_COMPUTE, 2);
}
/* Two programs with the same operations, of other sizes: these alone are kept of the second. */
TEST(sizes_are_kept_apart)
{
    struct job j = JOB(2, 2);
    mt_err e = {0};
    struct mt_simclock_options o = {2, 2, 100, 3, members, &j.world};
    CHECK(mt_simclock_open(&j.k, &o, &e) == MT_OK);
    mt_ledger_init(&j.g, 64);
    j.row[0] = mt_row_add(&j.g, MT_DEVICE_ARENA, MT_ROW_SCRATCH, 1000 * MS, "device");
    record_one(&j, j.k, 0, small_steps);
    int64_t first = mt_simclock_bytes(j.k);
    record_one(&j, j.k, 1, large_steps);
    CHECK_INT(mt_simclock_programs(j.k), 2);
    CHECK(3 * (mt_simclock_bytes(j.k) - first) < first);
    mt_simclock_close(j.k);
    mt_ledger_release(&j.g);
}

static void one_too_many(struct job *j, struct mt_ctx *c)
{
    gather(j, c, MT_GATHER, 0, 1);
    if (c->rank) gather(j, c, MT_GATHER, 0, 1);
}
TEST(ranks_that_wait_for_ever)
{
    struct job j = JOB(2, 1);
    CHECK_INT(run_job(&j, one_too_many), MT_INTERNAL);
}

int main(void)
{
    RUN(a_stream_runs_in_turn);
    RUN(streams_overlap_and_wait);
    RUN(streams_take_turns_on_one_processor);
    RUN(copies_of_two_directions_do_not_share);
    RUN(the_host_enqueues_and_reads);
    RUN(a_group_of_one_copies_in_memory);
    RUN(collectives_wait_for_the_last_rank);
    RUN(algorithms);
    RUN(transfers_share_a_link);
    RUN(a_link_is_shared_in_proportion);
    RUN(the_most_loaded_member_sets_the_pace);
    RUN(gathers_ahead);
    RUN(lateness_on_another_stream);
    RUN(waits_behind_waits);
    RUN(equal_programs_are_kept_once);
    RUN(clocks_are_brought_together);
    RUN(sizes_are_kept_apart);
    RUN(ranks_that_wait_for_ever);
    return DONE();
}
