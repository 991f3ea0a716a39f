/* test: variants=release,asan,tsan,aarch64
 *
 * The byte ledger of every operation that moves between ranks, against a table of who sends whom how much, made from the
 * operations' definitions; and against what the copies counted. */
#include "ranks.h"

enum { N = 6, PER_NODE = 2, UNITS = 23, UNIT = 8 };
/* Uneven pieces, one of them empty, some of whose bytes are padding. */
static int64_t at[N + 1] = {0, 40, 40, 136, 200, 232, 240}, content[N + 1] = {0, 30, 30, 120, 150, 170, 178};
static const struct mt_cut cuts[] = {{.n = N, .at = at, .content = content, .hash = 5}};

/* Bytes and, of these, padding from rank i to rank j. */
struct table {
    int64_t bytes[N][N], pad[N][N];
};

static int64_t size_of(int i)
{
    return at[i + 1] - at[i];
}
static int64_t pad_of(int i)
{
    return size_of(i) - (content[i + 1] - content[i]);
}
static int64_t even_of(int i)
{
    return UNIT * (UNITS * (i + 1) / N - UNITS * i / N);
}
static int units_to(int i, int j)
{
    return (i * 5 + j * 3) % 4;
}

static struct table table_of(int op)
{
    struct table t = {{{0}}, {{0}}};
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            int piece = op == MT_OP_gather_cut || op == MT_OP_gather_rest || op == MT_OP_collect_cut ||
                                op == MT_OP_gather
                            ? i
                            : j;
            bool even = op == MT_OP_gather || op == MT_OP_scatter,
                 exchange = op == MT_OP_exchange || op == MT_OP_exchange_home;
            bool goes = i != j;
            if (op == MT_OP_collect_cut) goes = goes && j == 3;
            if (op == MT_OP_spread_cut) goes = goes && i == 3;
            if (!goes) continue;
            t.bytes[i][j] = exchange ? UNIT * units_to(i, j) : even ? even_of(piece) : size_of(piece);
            t.pad[i][j] = exchange || even ? 0 : pad_of(piece);
        }
    return t;
}

static void all_ops(struct mt_ctx *c, void *arg)
{
    const struct ranks *t = arg;
    struct mt_stream *s = &c->stream[MT_REDUCE];
    struct mt_exchange_peer peer[MT_MAX_EP] = {{0}};
    mt_view out = ranks_part(t->out, 0, 240), none = ranks_part(t->out, 0, 0),
            piece = ranks_part(t->in, 0, size_of(c->rank));
    c->cut = cuts;
    for (int p = 0; p < N; p++)
        peer[p] =
            (struct mt_exchange_peer){4 * p, units_to(c->rank, p), 4 * p, units_to(p, c->rank), 4 * c->rank};
    mt_gather(s, ranks_part(t->out, 0, UNITS * UNIT), ranks_part(t->in, 0, even_of(c->rank)), MT_GROUP_WORLD,
              UNITS, UNIT);
    mt_scatter(s, ranks_part(t->out, 0, N * 4 * UNIT), ranks_part(t->in, 0, UNITS * UNIT), MT_GROUP_WORLD,
               UNITS, UNIT);
    mt_gather_cut(s, out, piece, MT_GROUP_WORLD, 0);
    mt_gather_rest(s, out, ranks_part(t->out, at[c->rank], size_of(c->rank)), MT_GROUP_WORLD, 0);
    mt_scatter_cut(s, ranks_part(t->out, 0, 96 * N), ranks_part(t->in, 0, 240), MT_GROUP_WORLD, 0, 96);
    mt_collect_cut(s, c->rank == 3 ? out : none, piece, MT_GROUP_WORLD, 0, 3);
    mt_spread_cut(s, ranks_part(t->out, 0, size_of(c->rank)),
                  c->rank == 3 ? ranks_part(t->in, 0, 240) : ranks_part(t->in, 0, 0), MT_GROUP_WORLD, 0, 3);
    mt_exchange_units(s, false, t->out, t->in, MT_GROUP_WORLD, UNIT, peer, N);
    mt_exchange_units(s, true, t->out, t->in, MT_GROUP_WORLD, UNIT, peer, N);
}

static void check_lane(struct ranks *t, int op, int r, const struct table *want, int64_t times)
{
    const struct mt_lane *l = mt_traffic_lane(&t->traffic[r], MT_GROUP_WORLD, MT_REDUCE, op);
    CHECK_INT(l->calls, times);
    for (int link = 0; link < MT_N_LINKS; link++) {
        struct mt_flow w = {0};
        for (int p = 0; p < N; p++) {
            if ((p / PER_NODE == r / PER_NODE) != (link == MT_LINK_NODE)) continue;
            w.sent += times * want->bytes[r][p];
            w.received += times * want->bytes[p][r];
            w.sent_pad += times * want->pad[r][p];
            w.received_pad += times * want->pad[p][r];
        }
        const struct mt_flow *f = &l->flow[link];
        bool same = f->sent == w.sent && f->received == w.received && f->sent_pad == w.sent_pad &&
                    f->received_pad == w.received_pad;
        if (!CHECK(same)) printf("  %s, rank %d, link %d\n", mt_op_info[op].name, r, link);
        CHECK_INT(atomic_load(&l->moved[link]), w.received);
    }
}

TEST(every_operation_is_counted)
{
    struct ranks t;
    ranks_open(&t, N, PER_NODE, (struct mt_exec_options){.workers = 2});
    for (int run = 0; run < 2; run++) { /* the second begins at zero */
        CHECK_INT(mt_exec_run(t.x, all_ops, t.args), MT_OK);
        for (int op = MT_COMM_FIRST; op < MT_COMM_FIRST + MT_N_COMM_OPS; op++) {
            struct table want = table_of(op);
            for (int r = 0; r < N; r++) check_lane(&t, op, r, &want, 1);
        }
    }
    ranks_close(&t);
}

/* All collectives of the table of operations have a place in the ledger. */
TEST(no_collective_is_left_out)
{
    for (int op = 0; op < MT_N_OPS; op++) {
        bool inside = op >= MT_COMM_FIRST && op < MT_COMM_FIRST + MT_N_COMM_OPS;
        CHECK((mt_op_info[op].kind == MT_COMM) == inside);
    }
}

/* Uneven pieces put no more on the wire than what they hold: nobody's piece is filled up to another's. */
TEST(uneven_pieces_cost_nothing)
{
    static int64_t uneven[N + 1] = {0, 512, 512, 700, 716, 1740, 4096};
    const struct mt_cut cut = {.n = N, .at = uneven};
    struct mt_traffic t = {.near[0] = {N, 2, 2, 4}};
    struct mt_call c = {.op = MT_OP_gather_cut};
    mt_traffic_add(&t, MT_GATHER, &c, &cut);
    const struct mt_lane *l = mt_traffic_lane(&t, 0, MT_GATHER, MT_OP_gather_cut);
    CHECK_INT(l->flow[MT_LINK_NODE].received + l->flow[MT_LINK_NET].received, 4096 - 188);
    CHECK_INT(l->flow[MT_LINK_NODE].sent + l->flow[MT_LINK_NET].sent, 188 * (N - 1));
}

int main(void)
{
    RUN(every_operation_is_counted);
    RUN(no_collective_is_left_out);
    RUN(uneven_pieces_cost_nothing);
    return DONE();
}
