#include "device/traffic.h"

#include <string.h>

#include "device/group.h"

struct mt_near mt_near_of(const int *ranks, int n, int rank, int ranks_per_node)
{
    int me = mt_group_in(ranks, n, rank), node = rank / ranks_per_node;
    struct mt_near x = {.n = n, .me = me, .lo = me, .hi = me};
    while (x.lo > 0 && ranks[x.lo - 1] / ranks_per_node == node) x.lo--;
    while (x.hi < n && ranks[x.hi] / ranks_per_node == node) x.hi++;
    return x;
}

void mt_traffic_init(struct mt_traffic *t, struct mt_ctx *c, int ranks_per_node)
{
    memset(t, 0, sizeof *t);
    for (int id = 0; id < MT_MAX_GROUPS; id++) {
        const struct mt_group *g = c->group[id];
        if (g) t->near[id] = mt_near_of(g->rank, g->n, c->rank, ranks_per_node);
    }
    c->traffic = t;
}

void mt_traffic_restart(struct mt_traffic *t)
{
    memset(t->lane, 0, sizeof t->lane);
}

/* ---- pieces ---- */
struct pieces {
    const struct mt_cut *cut; /* NULL: even */
    int64_t units, unit, n;
};
/* Of member i's piece, bytes on the wire and, of these, padding. */
static int64_t size_of(const struct pieces *p, int64_t i)
{
    return p->cut ? mt_cut_to(p->cut, i) - mt_cut_from(p->cut, i)
                  : mt_piece(p->units, p->unit, p->n, i + 1) - mt_piece(p->units, p->unit, p->n, i);
}
static int64_t padding_of(const struct pieces *p, int64_t i)
{
    if (!p->cut || !p->cut->content) return 0;
    const int64_t *content = p->cut->content + mt_cut_piece(p->cut, i);
    return size_of(p, i) - (content[1] - content[0]);
}
/* Adds the pieces of members [lo, hi) to what goes one way. */
static void add(int64_t *bytes, int64_t *pad, const struct pieces *p, int64_t lo, int64_t hi, int64_t times)
{
    for (int64_t i = lo; i < hi; i++) {
        *bytes += times * size_of(p, i);
        *pad += times * padding_of(p, i);
    }
}
/* Adds those of all members but [lo, hi): every piece is one member's, and together they are the whole. */
static void add_others(int64_t *bytes, int64_t *pad, const struct pieces *p, int64_t lo, int64_t hi)
{
    const struct mt_cut *c = p->cut;
    int64_t all = c ? c->at[c->n] - c->at[0] : p->units * p->unit;
    *bytes += all;
    if (c && c->content) *pad += all - (c->content[c->n] - c->content[0]);
    add(bytes, pad, p, lo, hi, -1);
}

/* `out`: the one piece of this member's that each other member gets (a gather sends, a scatter receives it); `in`: the
 * others' pieces. */
static void all_to_all(struct mt_lane *lane, const struct mt_near *g, const struct pieces *p, bool gather)
{
    for (int link = 0; link < MT_N_LINKS; link++) {
        struct mt_flow *f = &lane->flow[link];
        int64_t *own = gather ? &f->sent : &f->received, *own_pad = gather ? &f->sent_pad : &f->received_pad,
                *all = gather ? &f->received : &f->sent, *all_pad = gather ? &f->received_pad : &f->sent_pad;
        bool near = link == MT_LINK_NODE;
        int64_t others = near ? g->hi - g->lo - 1 : g->n - (g->hi - g->lo);
        add(own, own_pad, p, g->me, g->me + 1, others);
        if (near) {
            add(all, all_pad, p, g->lo, g->me, 1);
            add(all, all_pad, p, g->me + 1, g->hi, 1);
        } else {
            add_others(all, all_pad, p, g->lo, g->hi);
        }
    }
}

/* Between each member and the root. */
static void rooted(struct mt_lane *lane, const struct mt_near *g, const struct pieces *p, bool collect,
                   int64_t root)
{
    struct mt_flow *f = &lane->flow[mt_link_to(g, root)];
    if (root == g->me) {
        struct mt_lane whole = {0};
        all_to_all(&whole, g, p, true); /* the others' pieces, by link */
        for (int link = 0; link < MT_N_LINKS; link++) {
            const struct mt_flow *w = &whole.flow[link];
            struct mt_flow *to = &lane->flow[link];
            *(collect ? &to->received : &to->sent) += w->received;
            *(collect ? &to->received_pad : &to->sent_pad) += w->received_pad;
        }
    } else if (collect) {
        add(&f->sent, &f->sent_pad, p, g->me, g->me + 1, 1);
    } else {
        add(&f->received, &f->received_pad, p, g->me, g->me + 1, 1);
    }
}

static void exchanged(struct mt_lane *lane, const struct mt_near *g, const struct mt_call *c)
{
    const struct mt_exchange_peer *peer = mt_exchange_peers(c);
    for (int p = 0; p < g->n; p++) {
        struct mt_flow *f = &lane->flow[mt_link_to(g, p)];
        if (p == g->me) continue;
        f->sent += peer[p].send_n * c->scalar[1].i;
        f->received += peer[p].recv_n * c->scalar[1].i;
    }
}

void mt_traffic_add(struct mt_traffic *t, int stream, const struct mt_call *c, const struct mt_cut *cuts)
{
    int group = (int)c->scalar[0].i;
    const struct mt_near *g = &t->near[group];
    struct mt_lane *lane = mt_traffic_lane(t, group, stream, c->op);
    struct pieces p = {.n = g->n};
    bool even = c->op == MT_OP_gather || c->op == MT_OP_scatter;
    lane->calls++;
    if (c->op == MT_OP_exchange || c->op == MT_OP_exchange_home) {
        exchanged(lane, g, c);
        return;
    }
    if (even)
        p.units = c->scalar[1].i, p.unit = c->scalar[2].i;
    else
        p.cut = &cuts[c->scalar[1].i];
    if (c->op == MT_OP_collect_cut || c->op == MT_OP_spread_cut)
        rooted(lane, g, &p, c->op == MT_OP_collect_cut, c->scalar[2].i);
    else
        all_to_all(lane, g, &p, c->op != MT_OP_scatter && c->op != MT_OP_scatter_cut);
}

void mt_lane_sum(struct mt_lane *a, const struct mt_lane *b)
{
    if (!b->calls) return;
    a->calls += b->calls;
    for (int i = 0; i < MT_N_LINKS; i++) {
        a->flow[i].sent += b->flow[i].sent;
        a->flow[i].received += b->flow[i].received;
        a->flow[i].sent_pad += b->flow[i].sent_pad;
        a->flow[i].received_pad += b->flow[i].received_pad;
        atomic_fetch_add(&a->moved[i], atomic_load(&b->moved[i]));
    }
}
