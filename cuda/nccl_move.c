/* nccl_move.c: a collective as calls of NCCL: an even gather as one of its own, anything else as sends and receives that it
 * fuses. Bytes alone are moved, so every sum is the program's own. */
#include "nccl_core.h"

/* Every member's piece is as long as this one's and lies behind the one before: the same answer on all members, for it is a
 * gather on all or on none, and they have one cut. */
static bool is_even_gather(const struct mt_carried *x)
{
    const int64_t bytes = x->move[0].in;
    if (x->n < 2 || !bytes) return false;
    for (int p = 0; p < x->n; p++) {
        const struct mt_move *m = &x->move[p];
        if (m->in != bytes || m->out != bytes || m->src != x->move[0].src ||
            m->dst != x->move[0].dst + p * bytes)
            return false;
    }
    return true;
}

/* Calls of one group. Those in between are looked at as well: one that fails ends the group. */
static ncclResult_t send_and_receive(struct mt_carrier *c, ncclComm_t comm, const struct mt_carried *x)
{
    ncclResult_t r = c->t.ncclGroupStart(), end;
    for (int i = 1; i < x->n && (!r || r == ncclInProgress); i++) {
        const int to = (x->me + i) % x->n, from = (x->me + x->n - i) % x->n;
        const struct mt_move *out = &x->move[to], *in = &x->move[from];
        if (out->out) r = c->t.ncclSend(out->src, (size_t)out->out, ncclUint8, to, comm, x->on);
        if (in->in && (!r || r == ncclInProgress))
            r = c->t.ncclRecv(in->dst, (size_t)in->in, ncclUint8, from, comm, x->on);
    }
    end = c->t.ncclGroupEnd();
    return r && r != ncclInProgress ? r : end;
}

static bool moves_between(const struct mt_carried *x)
{
    bool any = false;
    for (int p = 0; p < x->n; p++) any |= p != x->me && (x->move[p].in || x->move[p].out);
    return any;
}

static mt_status own_piece(const struct mt_carried *x, mt_err *e)
{
    const struct mt_move *m = &x->move[x->me];
    MT_REQUIRE(m->in == m->out, e, MT_INTERNAL, "a member sends itself %lld bytes and takes %lld",
               (long long)m->out, (long long)m->in);
    if (!m->in || m->dst == m->src) return MT_OK;
    cudaError_t r = cudaMemcpyAsync(m->dst, m->src, (size_t)m->in, cudaMemcpyDeviceToDevice, x->on);
    MT_REQUIRE(!r, e, MT_DEVICE, "copying %lld bytes: %s", (long long)m->in, cudaGetErrorString(r));
    return MT_OK;
}

static mt_status calls_of(struct mt_carrier *c, const ncclComm_t *comm, const struct mt_carried *x, bool even,
                          mt_err *e)
{
    const struct mt_move *own = &x->move[x->me];
    pthread_mutex_lock(&c->mu);
    const bool there = *comm;
    ncclResult_t r = ncclSuccess;
    if (there)
        r = even ? c->t.ncclAllGather(own->src, x->move[0].dst, (size_t)own->out, ncclUint8, *comm, x->on)
                 : send_and_receive(c, *comm, x);
    pthread_mutex_unlock(&c->mu);
    MT_REQUIRE(there || c->aborted, e, MT_INTERNAL,
               "its group has no communicator on this stream: the recorded step has no collective there");
    MT_REQUIRE(there, e, (mt_status)c->aborted, "its communicator was given up");
    if (r && r != ncclInProgress) return mt_nccl_failed(c, r, e);
    return mt_nccl_settle(c, comm, 0, e);
}

mt_status mt_nccl_start(struct mt_carrier *c, const struct mt_carried *x, mt_err *e)
{
    const ncclComm_t *comm = &c->part[x->group][x->stream].comm;
    const bool even = is_even_gather(x);
    if (!even) MT_TRY(own_piece(x, e));
    if (!moves_between(x)) return MT_OK;
    mt_status status = calls_of(c, comm, x, even, e);
    c->failed |= status != MT_OK;
    return status;
}
