/* ranks.h: a few ranks with two buffers each, on the executor, for tests of collectives. */
#ifndef MT_TESTS_RANKS_H
#define MT_TESTS_RANKS_H
#include "check.h"
#include "comm/comm.h"
#include "device/cpu/exec.h"
#include "device/traffic.h"
#include "mesh/mesh.h"

enum { RANKS_MOST = 6, RANKS_BYTES = 4096 };

struct ranks {
    struct mt_ledger g;
    struct mt_ctx ctx[RANKS_MOST], *ctxs[RANKS_MOST];
    struct mt_traffic traffic[RANKS_MOST];
    void *args[RANKS_MOST];
    struct mt_comm comm;
    struct mt_cpu_dev dev;
    struct mt_exec *x;
    mt_view in, out; /* [RANKS_BYTES] */
    int n, odd;      /* odd: for the test */
};

static inline void ranks_open(struct ranks *t, int n, int ranks_per_node, struct mt_exec_options o)
{
    mt_err e = {0};
    memset(t, 0, sizeof *t);
    t->n = n;
    mt_ledger_init(&t->g, 64);
    t->in = mt_tensor_add(&t->g, MT_DEVICE_ARENA, MT_ROW_SCRATCH, MT_U8, RANKS_BYTES, 0, 0, "in");
    t->out = mt_tensor_add(&t->g, MT_DEVICE_ARENA, MT_ROW_SCRATCH, MT_U8, RANKS_BYTES, 0, 0, "out");
    mt_cpu_dev_init(&t->dev, MT_ISA_SCALAR);
    for (int r = 0; r < n; r++) {
        t->ctxs[r] = &t->ctx[r];
        t->args[r] = t;
        mt_ctx_init(&t->ctx[r], r, n, &mt_device_cpu, &t->g);
        t->ctx[r].arena[MT_DEVICE_ARENA] = calloc(1, (size_t)t->g.size[MT_DEVICE_ARENA]);
        memset(mt_address(&t->ctx[r], t->in), 1 + r, RANKS_BYTES);
    }
    if (mt_comm_open_threads(&t->comm, t->ctxs, n, 1, NULL, NULL, &e) ||
        mt_exec_open(&t->x, o, t->ctxs, n, &t->dev, &e)) {
        printf("%s\n", e.msg);
        exit(1);
    }
    for (int r = 0; r < n; r++) mt_traffic_init(&t->traffic[r], &t->ctx[r], ranks_per_node);
}
static inline void ranks_close(struct ranks *t)
{
    mt_exec_close(t->x);
    mt_comm_close(&t->comm);
    for (int r = 0; r < t->n; r++) free(t->ctx[r].arena[MT_DEVICE_ARENA]);
    mt_ledger_release(&t->g);
}
/* Bytes [off, off + bytes) of a buffer. */
static inline mt_view ranks_part(mt_view v, int64_t off, int64_t bytes)
{
    return mt_view_of(v.row, MT_U8, off, bytes, 0, 0);
}
#endif
