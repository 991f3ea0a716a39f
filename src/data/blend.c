#include "data/blend.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* In the order in which numpy.sum adds: by eights up to 128, halves of more. Where shares are equal, the last bit decides who comes
 * first. */
static double sum_of(const double *x, int n)
{
    double part[8] = {0}, sum;
    const int half = n / 2 - n / 2 % 8, eights = n < 8 ? 0 : n - n % 8;
    if (n > 128) return sum_of(x, half) + sum_of(x + half, n - half);
    for (int i = 0; i < eights; i++) part[i % 8] += x[i];
    sum = ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
    for (int i = eights; i < n; i++) sum += x[i];
    return sum;
}
static void to_sum_1(double *weight, int n)
{
    const double sum = sum_of(weight, n);
    for (int i = 0; i < n; i++) weight[i] /= sum;
}

mt_status mt_blend_open(mt_blend *b, int n, const double *weight, bool counts, int64_t most, mt_err *e)
{
    *b = (mt_blend){.n = n, .blocks = most / MT_BLEND_BLOCK + 1, .known = 1, .block = -1};
    pthread_mutex_init(&b->lock, NULL);
    b->weight = malloc((size_t)n * sizeof *b->weight);
    b->now = malloc((size_t)n * sizeof *b->now);
    b->count = calloc((size_t)b->blocks * (size_t)n, sizeof *b->count);
    MT_REQUIRE(b->weight && b->now && b->count, e, MT_IO,
               "data.blend: no memory for %d sources and %" PRId64 " samples", n, most);
    memcpy(b->weight, weight, (size_t)n * sizeof *weight);
    to_sum_1(b->weight, n);
    if (!counts) to_sum_1(b->weight, n); /* Megatron does it in two places */
    return MT_OK;
}

static int next_source(const mt_blend *b, int64_t s)
{
    double at = s ? (double)s : 1, most = 0;
    int best = -1;
    for (int i = 0; i < b->n; i++) {
        double lag = b->weight[i] * at - (double)b->now[i];
        if (best >= 0 && lag <= most) continue;
        best = i;
        most = lag;
    }
    return best;
}

/* The samples of one block, from what was taken before it. */
static void walk(mt_blend *b, int64_t block)
{
    for (int64_t k = 0; k < MT_BLEND_BLOCK; k++) {
        int i = next_source(b, block * MT_BLEND_BLOCK + k);
        b->source[k] = i;
        b->within[k] = b->now[i]++;
    }
    b->block = block;
    if (block + 1 < b->blocks && block + 1 == b->known) {
        memcpy(b->count + (block + 1) * b->n, b->now, (size_t)b->n * sizeof *b->now);
        b->known++;
    }
}

static void load(mt_blend *b, int64_t block)
{
    int64_t from = block < b->known ? block : b->known - 1;
    memcpy(b->now, b->count + from * b->n, (size_t)b->n * sizeof *b->now);
    for (int64_t k = from; k <= block; k++) walk(b, k);
}

int mt_blend_at(mt_blend *b, int64_t sample, int64_t *within)
{
    int64_t block = sample / MT_BLEND_BLOCK, k = sample % MT_BLEND_BLOCK;
    pthread_mutex_lock(&b->lock);
    if (b->block != block) load(b, block);
    int source = b->source[k];
    *within = b->within[k];
    pthread_mutex_unlock(&b->lock);
    return source;
}

void mt_blend_close(mt_blend *b)
{
    if (!b->n) return;
    pthread_mutex_destroy(&b->lock);
    free(b->weight);
    free(b->count);
    free(b->now);
    *b = (mt_blend){0};
}
