/* exec_agree.c: do the members of a collective mean the same? Looked at when all have arrived, or have sent their greetings from
 * other processes, and nothing has moved: a disagreement ends the run, it never becomes a wrong copy. Under the lock; reads nodes
 * while standing in a stream's fiber, hence unwatched. */
#include "device/cpu/exec_watch.h"

/* The members of one collective, here or, by their greetings to this one, elsewhere. */
struct members {
    int n;
    const struct mt_meeting *meet; /* NULL: greetings */
    const struct mt_greeting *from;
    const struct mt_group *group;
};

MT_UNWATCHED static const struct mt_collective *call_of(const struct members *m, int i)
{
    const struct mt_node *n = m->meet ? m->meet->at[i].node : NULL;
    return n ? &n->what : &m->from[i].what;
}

/* The member that most agree with (Boyer and Moore's vote); with no majority, the first. */
MT_UNWATCHED static int majority(const struct members *m)
{
    int who = 0, votes = 0, agree = 0;
    for (int i = 0; i < m->n; i++) {
        bool same = mt_collective_same(call_of(m, i), call_of(m, who));
        if (!votes) who = i;
        votes += !votes || same ? 1 : -1;
    }
    for (int i = 0; i < m->n; i++) agree += mt_collective_same(call_of(m, i), call_of(m, who));
    return 2 * agree > m->n ? who : 0;
}

MT_UNWATCHED static int first_unlike(const struct members *m, int who)
{
    for (int i = 0; i < m->n; i++)
        if (!mt_collective_same(call_of(m, i), call_of(m, who))) return i;
    return -1;
}

/* Which member differs, -1 if none does, and the message. */
MT_UNWATCHED static int refuse_call(const struct members *m, mt_err *e)
{
    int who = first_unlike(m, 0) < 0 ? -1 : majority(m);
    if (who < 0) return -1;
    int odd = first_unlike(m, who);
    char its[MT_COLLECTIVE_TEXT], theirs[MT_COLLECTIVE_TEXT];
    mt_collective_text(call_of(m, odd), its);
    mt_collective_text(call_of(m, who), theirs);
    mt_err_set(e, MT_RANKS,
               "the %d ranks of a collective disagree: rank %d calls %s; rank %d%s calls %s. Nothing was "
               "moved; every rank must "
               "call the same collectives in the same order",
               m->n, m->group->rank[odd], its, m->group->rank[who], m->n > 2 ? " and most others" : "",
               theirs);
    return odd;
}

/* ---- exchanges ---- */
/* What the one with `mine` sends must be what the other, with `theirs`, takes; and the other way round. */
MT_UNWATCHED static int misfit(const struct mt_exchange_peer *mine, const struct mt_exchange_peer *theirs)
{
    bool to = mine->send_n != theirs->recv_n || (mine->send_n && mine->send_first != theirs->from_first);
    bool from = theirs->send_n != mine->recv_n || (theirs->send_n && theirs->send_first != mine->from_first);
    return to + from;
}

MT_UNWATCHED static void refuse_pair(const struct members *m, int i, int j,
                                     const struct mt_exchange_peer *its,
                                     const struct mt_exchange_peer *theirs, mt_err *e)
{
    int a = m->group->rank[i], b = m->group->rank[j];
    char text[MT_COLLECTIVE_TEXT];
    mt_collective_text(call_of(m, i), text);
    mt_err_set(e, MT_RANKS,
               "the %d ranks of an exchange disagree (%s): rank %d sends rank %d %d units, the first its %d, "
               "and expects %d; rank %d "
               "expects %d, the first its %d, and sends %d. Nothing was moved",
               m->n, text, a, b, its->send_n, its->send_first, its->recv_n, b, theirs->recv_n,
               theirs->from_first, theirs->send_n);
}

MT_UNWATCHED static const struct mt_exchange_peer *plan_of(const struct members *m, int i, int j)
{
    const struct mt_node *n = m->meet->at[i].node;
    return &mt_exchange_peers(&n->call)[j];
}

/* Pairs that member i does not fit in, and one of the others it does not fit with, itself if there is none. */
MT_UNWATCHED static int misfits(const struct members *m, int i, int *other)
{
    int n = 0;
    *other = i;
    for (int j = 0; j < m->n; j++) {
        int here = misfit(plan_of(m, i, j), plan_of(m, j, i));
        if (here && j != i) *other = j;
        n += here;
    }
    return n;
}

MT_UNWATCHED static int refuse_exchange(const struct members *m, mt_err *e)
{
    int worst = -1, most = 0, other = 0;
    for (int i = 0; i < m->n; i++) {
        int with, n = misfits(m, i, &with);
        if (n >= most && n)
            worst = i, most = n, other = with; /* of equals the last: with two members, not the first */
    }
    if (worst >= 0) refuse_pair(m, worst, other, plan_of(m, worst, other), plan_of(m, other, worst), e);
    return worst;
}

static bool is_exchange(const struct mt_node *n)
{
    return n->call.op == MT_OP_exchange || n->call.op == MT_OP_exchange_home;
}

MT_UNWATCHED bool mt_members_agree(struct mt_exec *e, const struct mt_node *n)
{
    const struct mt_exec_rank *r = n->meet->at[0].rank;
    const struct members m = {n->members, n->meet, NULL, r->ctx->group[n->call.scalar[0].i]};
    mt_err err = {0};
    if (m.n == 1) return true;
    int odd = refuse_call(&m, &err);
    if (odd < 0 && is_exchange(n)) odd = refuse_exchange(&m, &err);
    if (odd < 0) return true;
    const struct mt_exec_rank *bad = n->meet->at[odd].rank;
    mt_err_set(&bad->ctx->err, err.code, "%s", err.msg);
    e->disagree = true;
    return false;
}

/* ---- between processes ---- */
void mt_greetings_write(struct mt_node *n)
{
    struct mt_greeting *to = n->greeting, *from = to + n->members;
    for (int p = 0; p < n->members; p++) {
        to[p] = (struct mt_greeting){.what = n->what};
        if (is_exchange(n)) to[p].peer = mt_exchange_peers(&n->call)[p];
        n->move[p] = (struct mt_move){(const char *)&to[p], (char *)&from[p], sizeof *to, sizeof *from};
    }
}

bool mt_greetings_agree(struct mt_exec_rank *r, const struct mt_node *n)
{
    const struct mt_greeting *to = n->greeting, *from = to + n->members;
    const struct members m = {n->members, NULL, from, r->ctx->group[n->call.scalar[0].i]};
    bool agree = refuse_call(&m, &r->ctx->err) < 0;
    for (int p = 0; p < n->members && agree && is_exchange(n); p++) {
        agree = !misfit(&to[p].peer, &from[p].peer);
        if (!agree) refuse_pair(&m, n->member, p, &to[p].peer, &from[p].peer, &r->ctx->err);
    }
    if (!agree) r->exec->disagree = true;
    return agree;
}
