/* k_exec.c: kernels of the operations that the executor has a part in.
 *
 * fresh runs only in debugging; keep does nothing; read_back is a place in its stream, behind which host code copies; a
 * collective has its members bound to R, itself to I, and as source a table of the members' sources. The
 * table belongs to the executor, which ThreadSanitizer must not look at from a stream; the copies it sees. */
#include <string.h>

#include "device/cpu/exec_watch.h"

void mt_cpu_fresh(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    (void)scratch, (void)dev;
    int64_t first, last;
    mt_share(c->bytes[0], 4096, part, parts, &first, &last);
    memset((char *)MT_ARGS(fresh, c)->x + first, 0xff, (size_t)(last - first));
}

void mt_cpu_keep(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    (void)c, (void)part, (void)parts, (void)scratch, (void)dev;
}

void mt_cpu_read_back(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    (void)c, (void)part, (void)parts, (void)scratch, (void)dev;
}

/* Pulls this part's share of one member's piece. */
static void pull(struct mt_moved *m, int64_t member, char *dst, const char *src, int64_t bytes, int part,
                 int parts)
{
    int64_t first, last;
    mt_share(bytes, 4096, part, parts, &first, &last);
    if (last <= first || dst == src) return;
    memcpy(dst + first, src + first, (size_t)(last - first));
    mt_moved_add(m, member, last - first);
}

/* Every member's piece goes to its place in the whole. */
MT_UNWATCHED void mt_cpu_gather(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    (void)scratch, (void)dev;
    const struct mt_args_gather *a = MT_ARGS(gather, c);
    const struct mt_scalars_gather *s = MT_SCALARS(gather, c);
    int64_t n = mt_dim(c, 'R');
    void *const *src = a->src;
    struct mt_moved m;
    mt_moved_init(&m, c);
    for (int64_t p = 0; p < n; p++) {
        int64_t from = mt_piece(s->units, s->unit, n, p), to = mt_piece(s->units, s->unit, n, p + 1);
        pull(&m, p, (char *)a->dst + from, src[p], to - from, part, parts);
    }
    mt_moved_end(&m);
}

/* This member's piece of every member's whole, one after another, mt_piece_stride apart. */
MT_UNWATCHED void mt_cpu_scatter(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    (void)scratch, (void)dev;
    const struct mt_args_scatter *a = MT_ARGS(scatter, c);
    const struct mt_scalars_scatter *s = MT_SCALARS(scatter, c);
    int64_t n = mt_dim(c, 'R'), me = mt_dim(c, 'I'), stride = mt_piece_stride(s->units, s->unit, n);
    int64_t from = mt_piece(s->units, s->unit, n, me), to = mt_piece(s->units, s->unit, n, me + 1);
    void *const *src = a->src;
    struct mt_moved m;
    mt_moved_init(&m, c);
    for (int64_t p = 0; p < n; p++)
        pull(&m, p, (char *)a->staging + p * stride, (const char *)src[p] + from, to - from, part, parts);
    mt_moved_end(&m);
}

static const struct mt_cut *cut_of(const struct mt_call *c)
{
    return (const struct mt_cut *)(intptr_t)c->scalar[1].i;
}

MT_UNWATCHED void mt_cpu_gather_cut(const struct mt_call *c, int part, int parts, void *scratch,
                                    const void *dev)
{
    (void)scratch, (void)dev;
    const struct mt_args_gather_cut *a = MT_ARGS(gather_cut, c);
    const struct mt_cut *k = cut_of(c);
    void *const *src = a->src;
    struct mt_moved m;
    mt_moved_init(&m, c);
    for (int64_t p = 0; p < mt_dim(c, 'R'); p++)
        pull(&m, p, (char *)a->dst + mt_cut_from(k, p), src[p], mt_cut_to(k, p) - mt_cut_from(k, p), part,
             parts);
    mt_moved_end(&m);
}

MT_UNWATCHED void mt_cpu_gather_rest(const struct mt_call *c, int part, int parts, void *scratch,
                                     const void *dev)
{
    mt_cpu_gather_cut(c, part, parts, scratch, dev); /* what lies in its place is not pulled */
}

MT_UNWATCHED void mt_cpu_scatter_cut(const struct mt_call *c, int part, int parts, void *scratch,
                                     const void *dev)
{
    (void)scratch, (void)dev;
    const struct mt_args_scatter_cut *a = MT_ARGS(scatter_cut, c);
    const struct mt_scalars_scatter_cut *s = MT_SCALARS(scatter_cut, c);
    const struct mt_cut *k = cut_of(c);
    int64_t me = mt_dim(c, 'I'), from = mt_cut_from(k, me), bytes = mt_cut_to(k, me) - from;
    void *const *src = a->src;
    struct mt_moved m;
    mt_moved_init(&m, c);
    for (int64_t p = 0; p < mt_dim(c, 'R'); p++)
        pull(&m, p, (char *)a->staging + p * s->stride, (const char *)src[p] + from, bytes, part, parts);
    mt_moved_end(&m);
}

MT_UNWATCHED static void exchange(const struct mt_call *c, int part, int parts)
{
    const struct mt_exchange_peer *peer = mt_exchange_peers(c);
    int64_t unit = c->scalar[1].i;
    void *const *src = c->arg[1];
    struct mt_moved m;
    mt_moved_init(&m, c);
    for (int64_t p = 0; p < mt_dim(c, 'R'); p++)
        pull(&m, p, (char *)c->arg[0] + peer[p].recv_first * unit,
             (const char *)src[p] + peer[p].from_first * unit, peer[p].recv_n * unit, part, parts);
    mt_moved_end(&m);
}
MT_UNWATCHED void mt_cpu_exchange(const struct mt_call *c, int part, int parts, void *scratch,
                                  const void *dev)
{
    (void)scratch, (void)dev;
    exchange(c, part, parts);
}
MT_UNWATCHED void mt_cpu_exchange_home(const struct mt_call *c, int part, int parts, void *scratch,
                                       const void *dev)
{
    (void)scratch, (void)dev;
    exchange(c, part, parts);
}

MT_UNWATCHED void mt_cpu_collect_cut(const struct mt_call *c, int part, int parts, void *scratch,
                                     const void *dev)
{
    const struct mt_scalars_collect_cut *s = MT_SCALARS(collect_cut, c);
    if (mt_dim(c, 'I') == s->root)
        mt_cpu_gather_cut(c, part, parts, scratch, dev); /* arguments begin alike */
}

MT_UNWATCHED void mt_cpu_spread_cut(const struct mt_call *c, int part, int parts, void *scratch,
                                    const void *dev)
{
    (void)scratch, (void)dev;
    const struct mt_args_spread_cut *a = MT_ARGS(spread_cut, c);
    const struct mt_scalars_spread_cut *s = MT_SCALARS(spread_cut, c);
    const struct mt_cut *k = cut_of(c);
    int64_t me = mt_dim(c, 'I'), from = mt_cut_from(k, me), bytes = mt_cut_to(k, me) - from;
    void *const *src = a->src;
    struct mt_moved m;
    mt_moved_init(&m, c);
    pull(&m, s->root, a->dst, (const char *)src[s->root] + from, bytes, part, parts);
    mt_moved_end(&m);
}
