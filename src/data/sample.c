#include "data/sample.h"

#include "data/permute.h"

#include <inttypes.h>
#include <math.h>

/* Key of the fixed order in which bins are cut into splits: the same for every run, whatever its seed. */
static const uint64_t split_key = 0x6d6f65746974616eu;

mt_status mt_split_cut(mt_split *train, mt_split *valid, const mt_index *x, const mt_bins *bins,
                       const mt_sample_rules *rules, double valid_fraction, mt_err *e)
{
    int64_t T = rules->seq_len, units = bins ? bins->n_bins : (x->n_tokens - 1) / T;
    MT_REQUIRE(units >= 1, e, MT_DATA,
               "%s: %" PRId64 " tokens are fewer than train.seq_len + 1 = %" PRId64
               ": use a larger corpus or shorter samples",
               x->bin_path, x->n_tokens, T + 1);
    MT_REQUIRE(valid_fraction >= 0 && valid_fraction < 1, e, MT_CONFIG,
               "data.valid_fraction: %g, expected at least 0 and below 1", valid_fraction);
    int64_t held = (int64_t)floor(valid_fraction * (double)units);
    if (!held && valid_fraction > 0) held = 1;
    MT_REQUIRE(held < units, e, MT_DATA,
               "%s: %" PRId64 " samples of %" PRId64
               " tokens, of which data.valid_fraction leaves none to train on",
               x->bin_path, units, T);
    *train = (mt_split){
        .index = x, .bins = bins, .count = units - held, .limit = x->n_tokens, .scattered = bins && held};
    *valid = *train;
    valid->first = units - held;
    valid->count = held;
    if (!bins && held) train->limit = valid->first * T;
    return MT_OK;
}

int64_t mt_split_shuffled(const mt_split *split, uint64_t seed, int64_t sample)
{
    int64_t n = split->count;
    return mt_permute(seed, (uint64_t)(sample / n), sample % n, n);
}

/* Places `n` tokens of the corpus from position p on at index `at` of the sample. */
static mt_status place_run(const mt_split *split, const mt_sample_rules *rules, const mt_sample *out,
                           int64_t *n_labels, int64_t at, int64_t p, int64_t n, int32_t base, mt_err *e)
{
    const mt_index *x = split->index;
    int32_t *tokens = out->tokens + at, behind = -1;
    MT_TRY(mt_index_read(x, tokens, p, n, rules->vocab, e));
    if (p + n < split->limit) MT_TRY(mt_index_read(x, &behind, p + n, 1, rules->vocab, e));
    int64_t d = mt_index_document_at(x, p), end = mt_index_document_start(x, d + 1), begin = at;
    for (int64_t i = 0; i < n; i++) {
        if (p + i == end) {
            while (end <= p + i) end = mt_index_document_start(x, ++d + 1); /* past empty documents */
            begin = at + i;
        }
        bool last = p + i + 1 == end || tokens[i] == rules->eod;
        int32_t next = i + 1 < n ? tokens[i + 1] : behind;
        out->labels[at + i] = last ? -1 : next;
        *n_labels += !last && next >= 0;
        out->begin[at + i] = base + (rules->document_mask ? (int32_t)begin : 0);
        out->pos[at + i] = (int32_t)(at + i - (rules->reset_positions ? begin : 0));
        if (tokens[i] == rules->eod) begin = at + i + 1;
    }
    return MT_OK;
}

static void place_padding(const mt_sample_rules *rules, const mt_sample *out, int64_t at, int32_t base)
{
    for (int64_t i = at; i < rules->seq_len; i++) {
        out->tokens[i] = 0;
        out->labels[i] = -1;
        out->begin[i] = base + (rules->document_mask ? (int32_t)i : 0);
        out->pos[i] = rules->reset_positions ? 0 : (int32_t)i;
    }
}

void mt_sample_pad(const mt_sample_rules *rules, const mt_sample *out, int32_t base)
{
    place_padding(rules, out, 0, base);
}

/* The window or bin that a unit of the split is. */
static int64_t number_of(const mt_split *split, int64_t unit)
{
    MT_ASSERT(unit >= 0 && unit < split->count);
    int64_t u = split->first + unit;
    return split->scattered ? mt_permute(split_key, 0, u, split->bins->n_bins) : u;
}

mt_status mt_sample_fill(const mt_split *split, const mt_sample_rules *rules, const mt_sample *out,
                         int64_t *n_labels, int64_t unit, int32_t base, mt_err *e)
{
    int64_t T = rules->seq_len, u = number_of(split, unit), at = 0;
    const mt_bins *bins = split->bins;
    if (!bins) return place_run(split, rules, out, n_labels, 0, u * T, T, base, e);
    for (int64_t p = bins->first[u]; p < bins->first[u + 1]; p++) {
        MT_TRY(place_run(split, rules, out, n_labels, at, bins->start[p], bins->length[p], base, e));
        at += bins->length[p];
    }
    place_padding(rules, out, at, base);
    return MT_OK;
}

static int64_t run_pairs(const mt_index *x, int64_t p, int64_t end, int64_t window)
{
    int64_t pairs = 0;
    for (int64_t d = mt_index_document_at(x, p); p < end; d++) {
        int64_t stop = mt_index_document_start(x, d + 1);
        if (stop > end) stop = end;
        pairs += mt_pairs(stop - p, window);
        p = stop;
    }
    return pairs;
}

int64_t mt_sample_pairs(const mt_split *split, const mt_sample_rules *rules, int64_t unit, int64_t window)
{
    int64_t T = rules->seq_len, u = number_of(split, unit), pairs = 0, used = 0;
    const mt_bins *bins = split->bins;
    if (!rules->document_mask) return mt_pairs(T, window);
    if (!bins) return run_pairs(split->index, u * T, u * T + T, window);
    for (int64_t p = bins->first[u]; p < bins->first[u + 1]; p++) {
        pairs += mt_pairs(bins->length[p], window);
        used += bins->length[p];
    }
    return pairs + T - used; /* a token of padding sees itself */
}
