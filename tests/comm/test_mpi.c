/* test: variants=release
 *
 * Between the processes of a job, one rank in each: all kinds of collectives, with pieces of any size, on all
 * streams at once, against what each byte must be; and what the processes say to each other besides.
 * test_mpi.sh runs this under mpirun; alone it is a job of one. */
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"
#include "comm/comm.h"
#include "device/cpu/exec.h"

enum { ROUNDS = 120, BUFFER = 1 << 14, UNITS = 13, UNIT = 24, PEER_UNIT = 16, MEMBERS = 16 };
enum { WORLD, PARITY, GROUPS };
enum { STREAMS = MT_HOST }; /* those that work on device memory */
enum { GATHER, SCATTER, GATHER_CUT, SCATTER_CUT, COLLECT, SPREAD, EXCHANGE, EXCHANGE_HOME, KINDS };

/* Bytes of a large piece: tests/slow has one of more than a message can carry. */
static int64_t large_bytes(void)
{
    const char *text = getenv("MT_TEST_LARGE_BYTES");
    return text ? strtoll(text, NULL, 10) : 8 << 20;
}

static struct mt_job *job_; /* one for all tests: MPI starts once */

struct fixture {
    struct mt_ledger g;
    struct mt_ctx ctx;
    struct mt_cpu_dev dev;
    struct mt_comm comm;
    struct mt_exec *exec;
    struct mt_cut cut[GROUPS];
    int64_t at[GROUPS][MEMBERS + 1];
    mt_view src[STREAMS], dst[STREAMS], large[2];
    char *got; /* what a stream delivered */
    int bad;
};

static uint32_t hash(uint64_t x)
{
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return (uint32_t)(x >> 32);
}
/* Byte i of what a rank contributes in a round on a stream. */
static char value(int rank, int round, int stream, int64_t i)
{
    return (char)hash((uint64_t)(((rank * 1000 + round) * 8 + stream) * 1000003LL + i));
}

static int members(const void *arg, int id, int rank, int *out)
{
    int world = *(const int *)arg, n = 0;
    for (int i = 0; i < world; i++)
        if (id == WORLD || i % 2 == rank % 2) out[n++] = i;
    return n;
}

static void cuts(struct fixture *f, int id, int n)
{
    for (int i = 0; i < n; i++)
        f->at[id][i + 1] = f->at[id][i] + (i == 1 ? 0 : 4 * (int64_t)(hash((uint64_t)(i + id * 77)) % 200));
    f->cut[id] = (struct mt_cut){.n = n, .at = f->at[id]};
}

static void fixture_open(struct fixture *f)
{
    struct mt_ctx *ctx = &f->ctx;
    mt_err e = {0};
    *f = (struct fixture){0};
    mt_ledger_init(&f->g, 64);
    for (int s = 0; s < STREAMS; s++) {
        f->src[s] = mt_tensor_add(&f->g, MT_DEVICE_ARENA, MT_ROW_MASTER, MT_F32, BUFFER / 4, 0, 0, "src");
        f->dst[s] = mt_tensor_add(&f->g, MT_DEVICE_ARENA, MT_ROW_MASTER, MT_F32, BUFFER / 4, 0, 0, "dst");
    }
    f->large[0] =
        mt_tensor_add(&f->g, MT_DEVICE_ARENA, MT_ROW_MASTER, MT_F32, large_bytes() / 4, 0, 0, "large piece");
    f->large[1] = mt_tensor_add(&f->g, MT_DEVICE_ARENA, MT_ROW_MASTER, MT_F32,
                                (int64_t)job_->world * large_bytes() / 4, 0, 0, "large");
    mt_ctx_init(ctx, job_->first, job_->world, &mt_device_cpu, &f->g);
    ctx->arena[MT_DEVICE_ARENA] = aligned_alloc(64, (size_t)f->g.size[MT_DEVICE_ARENA] / 64 * 64 + 64);
    f->got = malloc(BUFFER);
    ctx->cut = f->cut;
    mt_cpu_dev_init(&f->dev, MT_ISA_SCALAR);
    CHECK_INT(mt_comm_open(&f->comm, job_, &ctx, GROUPS, members, &job_->world, &e), MT_OK);
    for (int id = 0; id < GROUPS; id++) cuts(f, id, ctx->group[id]->n);
    CHECK_INT(mt_exec_open(&f->exec, (struct mt_exec_options){.workers = 2}, &ctx, 1, &f->dev, &e), MT_OK);
}
static void fixture_close(struct fixture *f)
{
    mt_exec_close(f->exec);
    mt_comm_close(&f->comm);
    free(f->ctx.arena[MT_DEVICE_ARENA]);
    free(f->got);
    mt_ledger_release(&f->g);
}

/* Units that member p sends to member q; its first one in p's buffer, and in q's. */
static int32_t sent(int p, int q, int round)
{
    return (int32_t)((p * 3 + q * 5 + round) % 7);
}
static int32_t sent_first(int p, int q, int round)
{
    int32_t at = 0;
    for (int x = 0; x < q; x++) at += sent(p, x, round);
    return at;
}
static int32_t received_first(int p, int q, int round)
{
    int32_t at = 0;
    for (int x = 0; x < p; x++) at += sent(x, q, round);
    return at;
}

static int kind_of(int round, int s)
{
    return (round + 3 * s) % KINDS;
}
static int group_of(int round, int s)
{
    return (round / KINDS + s) % GROUPS;
}

static void enqueue(struct fixture *f, int round, int s)
{
    struct mt_stream *st = &f->ctx.stream[s];
    int id = group_of(round, s), kind = kind_of(round, s);
    const struct mt_group *g = f->ctx.group[id];
    int me = mt_group_member(g, f->ctx.rank);
    mt_view dst = f->dst[s], src = f->src[s];
    if (kind == GATHER) mt_gather(st, dst, src, id, UNITS, UNIT);
    if (kind == SCATTER) mt_scatter(st, dst, src, id, UNITS, UNIT);
    if (kind == GATHER_CUT) mt_gather_cut(st, dst, src, id, id);
    if (kind == SCATTER_CUT) mt_scatter_cut(st, dst, src, id, id, 800);
    if (kind == COLLECT) mt_collect_cut(st, dst, src, id, id, round % g->n);
    if (kind == SPREAD) mt_spread_cut(st, dst, src, id, id, round % g->n);
    if (kind < EXCHANGE) return;
    struct mt_exchange_peer peer[MT_MAX_EP] = {{0}};
    for (int p = 0; p < g->n; p++)
        peer[p] = (struct mt_exchange_peer){sent_first(me, p, round), sent(me, p, round),
                                            received_first(p, me, round), sent(p, me, round),
                                            sent_first(p, me, round)};
    mt_exchange_units(st, kind == EXCHANGE_HOME, dst, src, id, PEER_UNIT, peer, g->n);
}

/* n bytes at `to` of what arrived are those at `from` of what a rank sent. */
static void expect(struct fixture *f, int round, int s, int rank, int64_t to, int64_t from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) f->bad += f->got[to + i] != value(rank, round, s, from + i);
}

static void verify(struct fixture *f, int round, int s)
{
    int id = group_of(round, s), kind = kind_of(round, s);
    const struct mt_group *g = f->ctx.group[id];
    const int64_t *at = f->at[id];
    int me = mt_group_member(g, f->ctx.rank);
    int64_t mine = mt_piece(UNITS, UNIT, g->n, me), mine_end = mt_piece(UNITS, UNIT, g->n, me + 1);
    for (int p = 0; p < g->n; p++) {
        int64_t from = mt_piece(UNITS, UNIT, g->n, p), to = mt_piece(UNITS, UNIT, g->n, p + 1);
        int rank = g->rank[p], root = round % g->n;
        if (kind == GATHER) expect(f, round, s, rank, from, 0, to - from);
        if (kind == SCATTER)
            expect(f, round, s, rank, p * mt_piece_stride(UNITS, UNIT, g->n), mine, mine_end - mine);
        if (kind == GATHER_CUT || (kind == COLLECT && me == root))
            expect(f, round, s, rank, at[p], 0, at[p + 1] - at[p]);
        if (kind == SCATTER_CUT) expect(f, round, s, rank, p * 800, at[me], at[me + 1] - at[me]);
        if (kind == SPREAD && p == root) expect(f, round, s, rank, 0, at[me], at[me + 1] - at[me]);
        if (kind >= EXCHANGE)
            expect(f, round, s, rank, received_first(p, me, round) * PEER_UNIT,
                   sent_first(p, me, round) * PEER_UNIT, sent(p, me, round) * PEER_UNIT);
    }
    /* behind what arrives nothing is touched */
    f->bad += f->got[BUFFER - 1] != 0x55;
}

static void all_kinds(struct mt_ctx *ctx, void *arg)
{
    struct fixture *f = arg;
    for (int round = 0; round < ROUNDS; round++) {
        for (int s = 0; s < STREAMS; s++) {
            char *src = mt_address(ctx, f->src[s]);
            for (int64_t i = 0; i < BUFFER; i++) src[i] = value(ctx->rank, round, s, i);
            memset(mt_address(ctx, f->dst[s]), 0x55, BUFFER);
        }
        if (hash((uint64_t)(round * 16 + ctx->rank)) % 8 == 0) usleep(2000); /* ranks drift */
        for (int s = 0; s < STREAMS; s++)
            enqueue(f, round, (s + ctx->rank) % STREAMS); /* in an order of their own */
        for (int s = 0; s < STREAMS; s++) {
            mt_host_read(&ctx->stream[s], MT_READ_STATE, round, f->dst[s], f->got);
            verify(f, round, s);
        }
    }
}

TEST(collectives_deliver_every_byte)
{
    struct fixture f;
    void *arg = &f;
    fixture_open(&f);
    CHECK_INT(mt_exec_run(f.exec, all_kinds, &arg), MT_OK);
    CHECK_INT(f.bad, 0);
    fixture_close(&f);
}

static void large(struct mt_ctx *ctx, void *arg)
{
    struct fixture *f = arg;
    int64_t each = large_bytes();
    memset(mt_address(ctx, f->large[0]), 'a' + ctx->rank, (size_t)each);
    mt_gather(&ctx->stream[MT_GATHER], f->large[1], f->large[0], WORLD, ctx->world, each);
    mt_host_read(&ctx->stream[MT_GATHER], MT_READ_STATE, 0, f->src[0], f->got);
    const char *got = mt_address(ctx, f->large[1]);
    for (int64_t i = 0; i < ctx->world * each; i++) f->bad += got[i] != 'a' + i / each;
}
TEST(large_pieces)
{
    struct fixture f;
    void *arg = &f;
    fixture_open(&f);
    CHECK_INT(mt_exec_run(f.exec, large, &arg), MT_OK);
    CHECK_INT(f.bad, 0);
    fixture_close(&f);
}

/* The last rank enters a gather only after a later collective of another stream, and some work, is done
 * everywhere. */
static void held_open(struct mt_ctx *ctx, void *arg)
{
    struct fixture *f = arg;
    struct mt_stream *gather = &ctx->stream[MT_GATHER], *reduce = &ctx->stream[MT_REDUCE],
                     *s = &ctx->stream[MT_COMPUTE];
    bool last = ctx->rank == ctx->world - 1;
    for (int s_ = 0; s_ < STREAMS; s_++) memset(mt_address(ctx, f->src[s_]), ctx->rank, BUFFER);
    if (!last) mt_gather(gather, f->dst[MT_GATHER], f->src[MT_GATHER], WORLD, ctx->world, 64);
    mt_fill_f32(s, f->dst[MT_COMPUTE], 3);
    mt_host_read(s, MT_READ_STATE, 0, f->dst[MT_COMPUTE], f->got);
    for (int i = 0; i < BUFFER / 4; i++) f->bad += ((float *)(void *)f->got)[i] != 3;
    mt_gather(reduce, f->dst[MT_REDUCE], f->src[MT_REDUCE], WORLD, ctx->world, 64);
    mt_host_read(reduce, MT_READ_STATE, 1, f->dst[MT_REDUCE], f->got);
    if (last) mt_gather(gather, f->dst[MT_GATHER], f->src[MT_GATHER], WORLD, ctx->world, 64);
    mt_host_read(gather, MT_READ_STATE, 2, f->dst[MT_GATHER], f->got);
    for (int i = 0; i < 64 * ctx->world; i++) f->bad += f->got[i] != i / 64;
}
TEST(other_streams_go_on_while_a_gather_is_open)
{
    struct fixture f;
    void *arg = &f;
    fixture_open(&f);
    for (int i = 0; i < 20; i++) CHECK_INT(mt_exec_run(f.exec, held_open, &arg), MT_OK);
    CHECK_INT(f.bad, 0);
    fixture_close(&f);
}

TEST(processes_talk)
{
    int n = job_->n, me = job_->me;
    int64_t x[3] = {1, me, 10 * me}, token = -1;
    char text[40] = "";
    mt_job_sum(job_, x, 3);
    CHECK_INT(x[0], n);
    CHECK_INT(x[1], n * (n - 1) / 2);
    CHECK_INT(x[2], 10 * n * (n - 1) / 2);
    CHECK(mt_job_any(job_, me == n - 1) && !mt_job_any(job_, false));
    if (me == n - 1) snprintf(text, sizeof text, "from the last");
    mt_job_broadcast(job_, text, sizeof text, n - 1);
    CHECK_STR(text, "from the last");
    for (int p = 1; p < n; p++) {
        if (me == p) mt_job_send(job_, 0, &(int64_t){p * 7}, sizeof token);
        if (me == 0) mt_job_receive(job_, p, &token, sizeof token);
        if (me == 0) CHECK_INT(token, p * 7);
    }
}

/* Notes come without anybody waiting for them, from each once; and a process knows how many calls it has entered. */
TEST(notes_are_taken)
{
    int n = job_->n, me = job_->me, sum = 0, from, note[2];
    for (int p = 0; p < n; p++)
        if (p != me) CHECK(mt_job_note(job_, p, (int[]){me, p}, sizeof note));
    for (int k = 0; k < n - 1; k++) {
        while ((from = mt_job_noted(job_, note, sizeof note)) < 0) usleep(1000);
        CHECK(note[0] == from && note[1] == me);
        sum += from;
    }
    CHECK_INT(sum, n * (n - 1) / 2 - (n > 1 ? me : 0));
    struct mt_job_call before = mt_job_call(job_);
    CHECK(!mt_job_any(job_, false));
    struct mt_job_call after = mt_job_call(job_);
    CHECK_INT(after.n, before.n + (n > 1));
    CHECK(!after.what);
    CHECK(mt_job_noted(job_, note, sizeof note) < 0);
}

TEST(processes_agree)
{
    mt_err e = {0};
    int last = job_->n - 1;
    char want[80];
    CHECK_INT(mt_job_agree(job_, MT_OK, &e), MT_OK);
    if (!last) return; /* alone, a failure is simply returned */
    mt_status st = job_->me == last ? mt_err_set(&e, MT_DATA, "no such file") : MT_OK;
    CHECK_INT(mt_job_agree(job_, st, &e), MT_DATA);
    snprintf(want, sizeof want, "rank %d: no such file", last);
    CHECK_STR(e.msg, want);
    e = (mt_err){0};
    CHECK_INT(mt_job_agree(job_, mt_err_set(&e, MT_IO, "here too, %d", job_->me), &e), MT_IO);
    CHECK_STR(e.msg, "rank 0: here too, 0");
    e = (mt_err){0};
    if (last > 1) {
        st = job_->me ? mt_err_set(&e, MT_IO, "not here") : MT_OK;
        CHECK_INT(mt_job_agree(job_, st, &e), MT_IO);
        snprintf(want, sizeof want, "ranks 1-%d; rank 1: not here", last);
        CHECK_STR(e.msg, want);
        e = (mt_err){0};
    }
    CHECK_INT(mt_job_same(job_, "a text", "one\ntwo\n", &e), MT_OK);
    CHECK_INT(mt_job_same(job_, "a text", job_->me == last ? "one\nthree\n" : "one\ntwo\n", &e), MT_RANKS);
    snprintf(want, sizeof want, "rank %d: a text differs", last);
    CHECK(!strncmp(e.msg, want, strlen(want)) && strstr(e.msg, "here \"three\", on rank 0 \"two\""));
}

int main(void)
{
    struct mt_launch l;
    struct mt_job job;
    mt_err e = {0};
    if (mt_launch_find(&l, getenv, &e) != MT_OK || mt_job_open(&job, &l, &e) != MT_OK) {
        printf("FAILED: %s\n", e.msg);
        return 1;
    }
    job_ = &job;
    RUN(collectives_deliver_every_byte);
    RUN(large_pieces);
    RUN(other_streams_go_on_while_a_gather_is_open);
    RUN(processes_talk);
    RUN(notes_are_taken);
    RUN(processes_agree);
    mt_job_close(&job, MT_OK, &e);
    return DONE();
}
