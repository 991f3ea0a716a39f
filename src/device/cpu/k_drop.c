/* k_drop.c: pairs of a token and an expert that an expert has no room for. */
#include <string.h>

#include "base/status.h"
#include "device/cpu/kernels.h"
#include "device/cpu/vec.h"

/* Of each expert, in a run of tokens: the digits found so far of the key of the last pair that is kept, and how many pairs with these
 * digits are still to be kept; < 0: all are. */
struct cut {
    uint64_t key;
    int64_t left;
};
enum { DIGIT = 4, VALUES = 1 << DIGIT };

/* Larger for pairs that are kept first: by gate, then by token. Gates are no less than 0, or NaN; as such their bits rise with them. */
static inline uint64_t key_of(float gate, int64_t token, bool by_gate)
{
    uint32_t bits = 0;
    if (by_gate) memcpy(&bits, &gate, 4);
    return (uint64_t)bits << 32 | (UINT32_MAX - (uint32_t)token);
}

struct run {
    const struct mt_call *c;
    int64_t first, last; /* tokens */
    int64_t lo, hi;      /* experts */
    struct cut *cut;
    int64_t (*count)[VALUES];
};
static inline int32_t id_at(const struct run *r, int64_t n, int64_t k)
{
    return ((const int32_t *)MT_ARGS(route_drop, r->c)->ids)[n * r->c->ld[2] + k];
}
static inline uint64_t key_at(const struct run *r, int64_t n, int64_t k)
{
    return key_of(((const float *)MT_ARGS(route_drop, r->c)->gates)[n * r->c->ld[3] + k], n - r->first,
                  MT_SCALARS(route_drop, r->c)->by_gate);
}

/* The next digit of every cut, from the numbers of pairs that have each value there behind the digits found so far. */
static void find_digit(const struct run *r, int at)
{
    int64_t K = mt_dim(r->c, 'K');
    memset(r->count, 0, (size_t)(r->hi - r->lo) * sizeof *r->count);
    for (int64_t n = r->first; n < r->last; n++)
        for (int64_t k = 0; k < K; k++) {
            int32_t e = id_at(r, n, k);
            if (e < r->lo || e >= r->hi) continue;
            uint64_t key = key_at(r, n, k) >> at;
            if (key >> DIGIT == r->cut[e - r->lo].key) r->count[e - r->lo][key % VALUES]++;
        }
    for (int64_t e = 0; e < r->hi - r->lo; e++) {
        int v = VALUES;
        if (r->cut[e].left < 0) continue;
        while (v-- > 0 && r->count[e][v] < r->cut[e].left) r->cut[e].left -= r->count[e][v];
        r->cut[e].key = r->cut[e].key << DIGIT | (unsigned)v;
    }
}

static void drop_run(const struct run *r, int32_t *asked)
{
    const struct mt_args_route_drop *a = MT_ARGS(route_drop, r->c);
    const struct mt_scalars_route_drop *f = MT_SCALARS(route_drop, r->c);
    int64_t K = mt_dim(r->c, 'K');
    for (int64_t e = r->lo; e < r->hi; e++) r->cut[e - r->lo] = (struct cut){0, 0};
    for (int64_t n = r->first; n < r->last; n++)
        for (int64_t k = 0; k < K; k++) {
            int32_t e = id_at(r, n, k);
            if (e >= r->lo && e < r->hi) r->cut[e - r->lo].left++;
        }
    for (int64_t e = r->lo; e < r->hi; e++) {
        asked[e] += (int32_t)r->cut[e - r->lo].left;
        r->cut[e - r->lo].left = r->cut[e - r->lo].left <= f->capacity ? -1 : f->capacity;
    }
    for (int at = (f->by_gate ? 64 : 32) - DIGIT; at >= 0; at -= DIGIT) find_digit(r, at);
    for (int64_t n = r->first; n < r->last; n++)
        for (int64_t k = 0; k < K; k++) {
            int32_t e = id_at(r, n, k);
            if (e < r->lo || e >= r->hi) continue;
            const struct cut *cut = &r->cut[e - r->lo];
            bool kept = cut->left < 0 || key_at(r, n, k) >= cut->key;
            ((int32_t *)a->kept)[n * r->c->ld[0] + k] = kept ? e : -1 - e;
        }
}

/* Parts own experts. */
void mt_cpu_route_drop(const struct mt_call *c, int part, int parts, void *scratch, const void *dev)
{
    (void)dev;
    int32_t *asked = MT_ARGS(route_drop, c)->asked;
    struct run r = {.c = c};
    int64_t N = mt_dim(c, 'N'), each = MT_SCALARS(route_drop, c)->run;
    mt_share(mt_dim(c, 'E'), 1, part, parts, &r.lo, &r.hi);
    r.cut = scratch;
    r.count = (void *)(r.cut + (r.hi - r.lo));
    MT_ASSERT(each > 0 && (r.hi - r.lo) * (int64_t)(sizeof *r.cut + sizeof *r.count) <= MT_SCRATCH_BYTES);
    for (int64_t e = r.lo; e < r.hi; e++) asked[e] = 0;
    for (r.first = 0; r.first < N && r.lo < r.hi; r.first += each) {
        r.last = mt_min64(r.first + each, N);
        drop_run(&r, asked);
    }
}
