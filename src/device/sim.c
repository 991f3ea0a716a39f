/* sim.c: the device on which nothing runs: the step is recorded by the front end, host reads get made-up
 * answers. */
#include <string.h>

#include "device/device.h"

static void sim_enqueue(struct mt_stream *s, struct mt_call *c, const mt_view *v)
{
    (void)s, (void)c, (void)v;
}
static void sim_wait(struct mt_stream *s, mt_event ev)
{
    (void)s, (void)ev;
}
static void sim_host_read(struct mt_stream *s, enum mt_read_kind kind, int64_t index, mt_view src, void *dst)
{
    const struct mt_ctx *c = s->ctx;
    if (c->tape[kind])
        memcpy(dst, c->tape[kind] + index * src.bytes, (size_t)src.bytes);
    else if (c->answer)
        c->answer(c->answer_arg, kind, index, src, dst);
    else
        memset(dst, 0, (size_t)src.bytes);
}
const struct mt_device_ops mt_device_sim = {"sim", sim_enqueue, sim_wait, sim_host_read, NULL};
