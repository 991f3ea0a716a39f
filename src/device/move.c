#include "device/move.h"

#include "device/device.h"
#include "device/group.h"

/* Every member's piece to its place in the whole: mine to all. */
static struct mt_move gathered(char *dst, const char *src, int64_t from, int64_t to, int64_t mine)
{
    return (struct mt_move){.src = src, .out = mine, .dst = dst + from, .in = to - from};
}
/* That member's piece of my whole, and my piece of its. */
static struct mt_move scattered(char *staging, const char *src, int64_t from, int64_t to, int64_t mine)
{
    return (struct mt_move){.src = src + from, .out = to - from, .dst = staging, .in = mine};
}

static void even(const struct mt_call *c, struct mt_move *move)
{
    const struct mt_scalars_gather *s = MT_SCALARS(gather, c); /* a scatter's are the same */
    int64_t n = mt_dim(c, 'R'), me = mt_dim(c, 'I'), stride = mt_piece_stride(s->units, s->unit, n);
    int64_t mine = mt_piece(s->units, s->unit, n, me + 1) - mt_piece(s->units, s->unit, n, me);
    for (int64_t p = 0; p < n; p++) {
        int64_t from = mt_piece(s->units, s->unit, n, p), to = mt_piece(s->units, s->unit, n, p + 1);
        move[p] = c->op == MT_OP_gather
                      ? gathered(c->arg[0], c->arg[1], from, to, mine)
                      : scattered((char *)c->arg[0] + p * stride, c->arg[1], from, to, mine);
    }
}

static const struct mt_cut *cut_of(const struct mt_call *c)
{
    return (const struct mt_cut *)(intptr_t)c->scalar[1].i;
}
static void cut(const struct mt_call *c, struct mt_move *move)
{
    const struct mt_cut *k = cut_of(c);
    int64_t n = mt_dim(c, 'R'), me = mt_dim(c, 'I'), mine = mt_cut_to(k, me) - mt_cut_from(k, me);
    for (int64_t p = 0; p < n; p++)
        move[p] = c->op == MT_OP_scatter_cut
                      ? scattered((char *)c->arg[0] + p * MT_SCALARS(scatter_cut, c)->stride, c->arg[1],
                                  mt_cut_from(k, p), mt_cut_to(k, p), mine)
                      : gathered(c->arg[0], c->arg[1], mt_cut_from(k, p), mt_cut_to(k, p), mine);
}

/* One member's whole is cut or put together: the pieces of the others do not move. */
static void rooted(const struct mt_call *c, struct mt_move *move)
{
    const struct mt_cut *k = cut_of(c);
    int64_t root = c->scalar[2].i, me = mt_dim(c, 'I'), mine = mt_cut_to(k, me) - mt_cut_from(k, me);
    bool collect = c->op == MT_OP_collect_cut;
    for (int64_t p = 0; p < mt_dim(c, 'R'); p++) {
        move[p] = collect ? gathered(c->arg[0], c->arg[1], mt_cut_from(k, p), mt_cut_to(k, p), mine)
                          : scattered(c->arg[0], c->arg[1], mt_cut_from(k, p), mt_cut_to(k, p), mine);
        if ((collect ? me : p) != root) move[p].in = 0;
        if ((collect ? p : me) != root) move[p].out = 0;
    }
}

static void exchanged(const struct mt_call *c, struct mt_move *move)
{
    const struct mt_exchange_peer *peer = mt_exchange_peers(c);
    int64_t unit = c->scalar[1].i;
    for (int64_t p = 0; p < mt_dim(c, 'R'); p++)
        move[p] = (struct mt_move){.src = (const char *)c->arg[1] + peer[p].send_first * unit,
                                   .out = peer[p].send_n * unit,
                                   .dst = (char *)c->arg[0] + peer[p].recv_first * unit,
                                   .in = peer[p].recv_n * unit};
}

void mt_moves_of(const struct mt_call *c, struct mt_move *move)
{
    switch (c->op) {
    case MT_OP_gather:
    case MT_OP_scatter: even(c, move); return;
    case MT_OP_gather_cut:
    case MT_OP_gather_rest:
    case MT_OP_scatter_cut: cut(c, move); return;
    case MT_OP_collect_cut:
    case MT_OP_spread_cut: rooted(c, move); return;
    case MT_OP_exchange:
    case MT_OP_exchange_home: exchanged(c, move); return;
    default: MT_ASSERT(!"an operation that moves between ranks");
    }
}
