/* moves.h: every collective of the op table among three ranks, and what each of them should get. */
#ifndef MT_TESTS_MOVES_H
#define MT_TESTS_MOVES_H
#include "device/group.h"
#include "sides.h"

enum { RANKS = 3, UNIT = 8, UNITS = 10, BYTES = UNITS * UNIT, STAGING = RANKS * 64, ROOT = 1 };

struct rank {
    struct mt_ctx ctx;
    struct mt_cuda *cuda;
    int number, fault;
};
/* Their buffers, a row each in both arenas: what a rank gives, and what it gets. */
struct world {
    struct mt_ledger ledger;
    struct rank rank[RANKS];
    int32_t give[2], get[2]; /* rows by arena */
    struct mt_cut cut;
    int64_t at[RANKS + 1];
};
enum fault { NONE, OTHER_BYTES, STAYS_AWAY, FAILS };

static unsigned char byte_of(int rank, int64_t i)
{
    return (unsigned char)(rank * 71 + i * 5 + 1);
}

static void world_open(struct world *w)
{
    *w = (struct world){.at = {0, 3 * UNIT, 3 * UNIT, BYTES}};
    w->cut = (struct mt_cut){.n = RANKS, .at = w->at, .hash = 99};
    mt_ledger_init(&w->ledger, mt_target_cuda()->align);
    for (int a = 0; a < MT_N_ARENAS; a++) {
        w->give[a] = mt_row_add(&w->ledger, (enum mt_arena)a, MT_ROW_ACTIVATION, BYTES, "give");
        w->get[a] = mt_row_add(&w->ledger, (enum mt_arena)a, MT_ROW_ACTIVATION, STAGING, "get");
    }
    for (int i = 0; i < RANKS; i++) {
        struct rank *r = &w->rank[i];
        r->number = i;
        mt_ctx_init(&r->ctx, i, RANKS, &mt_device_cuda, &w->ledger);
        r->ctx.cut = &w->cut;
    }
}
static mt_view bytes_at(int32_t row, int64_t at, int64_t n)
{
    return mt_view_of(row, MT_U8, at, n, 0, 0);
}

/* ---- one collective, between copies in and out ---- */
struct job {
    struct world *w;
    struct rank *r;
    enum mt_op op;
    mt_status status;
};

/* Rows that rank `from` sends to rank `to`, of one unit each. */
static int32_t rows_between(int from, int to)
{
    return from == to ? 1 : (from + 2 * to) % 3;
}
static void exchange(struct mt_stream *s, const struct job *j, bool home)
{
    struct mt_exchange_peer peer[RANKS];
    int32_t sent = 0, got = 0, me = j->r->number;
    for (int32_t p = 0; p < RANKS; p++) {
        int32_t before = 0;
        for (int q = 0; q < me; q++) before += rows_between(p, q);
        peer[p] = (struct mt_exchange_peer){sent, rows_between(me, p), got, rows_between(p, me), before};
        sent += rows_between(me, p), got += rows_between(p, me);
    }
    mt_exchange_units(s, home, bytes_at(j->w->get[0], 0, BYTES), bytes_at(j->w->give[0], 0, BYTES), 0, UNIT,
                      peer, RANKS);
}

static void collective(struct mt_stream *s, const struct job *j)
{
    const struct world *w = j->w;
    int me = j->r->number;
    int64_t from = w->at[me], to = w->at[me + 1];
    mt_view give = bytes_at(w->give[0], 0, BYTES), get = bytes_at(w->get[0], 0, BYTES),
            piece = bytes_at(w->give[0], from, to - from), none = bytes_at(w->get[0], 0, 0);
    int64_t units = UNITS - (j->r->fault == OTHER_BYTES);
    int64_t p0 = mt_piece(UNITS, UNIT, RANKS, me), p1 = mt_piece(UNITS, UNIT, RANKS, me + 1);
    switch (j->op) {
    case MT_OP_gather: mt_gather(s, get, bytes_at(w->give[0], p0, p1 - p0), 0, units, UNIT); break;
    case MT_OP_scatter: mt_scatter(s, bytes_at(w->get[0], 0, STAGING), give, 0, units, UNIT); break;
    case MT_OP_gather_cut: mt_gather_cut(s, get, piece, 0, 0); break;
    case MT_OP_gather_rest: mt_gather_rest(s, get, bytes_at(w->get[0], from, to - from), 0, 0); break;
    case MT_OP_scatter_cut: mt_scatter_cut(s, bytes_at(w->get[0], 0, STAGING), give, 0, 0, 64); break;
    case MT_OP_collect_cut: mt_collect_cut(s, me == ROOT ? get : none, piece, 0, 0, ROOT); break;
    case MT_OP_spread_cut:
        mt_spread_cut(s, bytes_at(w->get[0], 0, to - from), me == ROOT ? give : bytes_at(w->give[0], 0, 0), 0,
                      0, ROOT);
        break;
    case MT_OP_exchange: exchange(s, j, false); break;
    default: exchange(s, j, true);
    }
}

static void rank_main(struct mt_ctx *ctx, void *arg)
{
    const struct job *j = arg;
    const struct world *w = j->w;
    struct mt_stream *s = &ctx->stream[MT_GATHER];
    int64_t from = w->at[j->r->number], n = w->at[j->r->number + 1] - from;
    mt_copy_h2d(s, bytes_at(w->give[0], 0, BYTES), bytes_at(w->give[1], 0, BYTES));
    mt_copy_h2d(s, bytes_at(w->get[0], 0, STAGING), bytes_at(w->get[1], 0, STAGING));
    if (j->op == MT_OP_gather_rest && n) /* its own piece lies in its place */
        mt_copy_h2d(s, bytes_at(w->get[0], from, n), bytes_at(w->give[1], from, n));
    if (j->r->fault == STAYS_AWAY) return;
    if (j->r->fault == FAILS)
        mt_host_read(s, MT_READ_STATE, 0, bytes_at(w->give[0], 0, BYTES), &(char[BYTES]){0});
    if (j->r->fault == FAILS) ctx->err = (mt_err){.code = MT_DEVICE, .msg = "made to fail"};
    collective(s, j);
    /* Free again: whoever comes late finds what was, not this. */
    mt_fill0(s, bytes_at(w->give[0], 0, BYTES));
    mt_copy_d2h(s, bytes_at(w->get[1], 0, STAGING), bytes_at(w->get[0], 0, STAGING));
}

/* What rank r gives, and that nothing has come yet. */
static void prepare(struct world *w, struct rank *r)
{
    unsigned char *give = mt_address(&r->ctx, bytes_at(w->give[1], 0, BYTES));
    for (int64_t k = 0; k < BYTES; k++) give[k] = byte_of(r->number, k);
    memset(mt_address(&r->ctx, bytes_at(w->get[1], 0, STAGING)), GUARD, STAGING);
}

/* ---- what each should get ---- */
static void expect(const struct world *w, enum mt_op op, int me, unsigned char *want)
{
    int64_t stride = mt_piece_stride(UNITS, UNIT, RANKS), mine = w->at[me + 1] - w->at[me], got = 0;
    memset(want, GUARD, STAGING);
    for (int p = 0; p < RANKS; p++) {
        int64_t p0 = mt_piece(UNITS, UNIT, RANKS, p), p1 = mt_piece(UNITS, UNIT, RANKS, p + 1);
        int64_t m0 = mt_piece(UNITS, UNIT, RANKS, me), m1 = mt_piece(UNITS, UNIT, RANKS, me + 1);
        switch (op) {
        case MT_OP_gather:
            for (int64_t i = p0; i < p1; i++) want[i] = byte_of(p, i);
            break;
        case MT_OP_scatter:
            for (int64_t i = m0; i < m1; i++) want[p * stride + i - m0] = byte_of(p, i);
            break;
        case MT_OP_gather_cut:
        case MT_OP_gather_rest:
            for (int64_t i = w->at[p]; i < w->at[p + 1]; i++) want[i] = byte_of(p, i);
            break;
        case MT_OP_scatter_cut:
            for (int64_t i = 0; i < mine; i++) want[p * 64 + i] = byte_of(p, w->at[me] + i);
            break;
        case MT_OP_collect_cut:
            for (int64_t i = w->at[p]; me == ROOT && i < w->at[p + 1]; i++) want[i] = byte_of(p, i);
            break;
        case MT_OP_spread_cut:
            for (int64_t i = 0; p == ROOT && i < mine; i++) want[i] = byte_of(ROOT, w->at[me] + i);
            break;
        default: {
            int64_t before = 0;
            for (int q = 0; q < me; q++) before += rows_between(p, q);
            for (int64_t i = 0; i < rows_between(p, me) * UNIT; i++)
                want[got++] = byte_of(p, before * UNIT + i);
        }
        }
    }
}

static bool has_got(struct world *w, enum mt_op op, int rank)
{
    unsigned char want[STAGING];
    expect(w, op, rank, want);
    return !memcmp(mt_address(&w->rank[rank].ctx, bytes_at(w->get[1], 0, STAGING)), want, STAGING);
}

/* What main runs of the op table: a test of each collective, by its name. */
#define RUN_KERNEL(name) ((void)0)
#define RUN_COPY(name) ((void)0)
#define RUN_READ(name) ((void)0)
#define RUN_COMM(name) RUN(name)
/* Their tests likewise, by the file's own delivers(op). */
#define TEST_KERNEL(name)
#define TEST_COPY(name)
#define TEST_READ(name)
#define TEST_COMM(name)         \
    TEST(name)                  \
    {                           \
        delivers(MT_OP_##name); \
    }
#endif
