/* timeline_sum.c: where the time of the compute stream went.
 *
 * Its records are walked in order, and every stretch between 0 and the end of the step is given to one cause: what runs, to
 * the kind of the operation; what stands in a wait, to what the awaited stream does at that time, which may itself be a wait;
 * what is between two records, to whatever kept the next one from beginning. */
#include "device/order.h"
#include "device/timeline.h"

static const struct {
    const char *text;
    bool exposed;
} causes[MT_N_CAUSES] = {
#define X(name, text, exposed) {text, exposed},
    MT_CAUSES(X)
#undef X
};
const char *mt_cause_text(enum mt_cause c)
{
    return causes[c].text;
}
bool mt_cause_exposed(enum mt_cause c)
{
    return causes[c].exposed;
}

/* Waits in a chain, each for the next. */
enum { MOST_WAITS = 4 * MT_N_STREAMS };

struct walk {
    const struct mt_timeline *t;
    struct mt_places places;
    struct mt_timeline_sum *sum;
    int64_t optim_first,
        optim_last;   /* records of the optimizer are between these; last < first: there are none */
    int64_t ep_group; /* that routed rows are exchanged in; -1: none */
    int64_t now;      /* up to here all is given to a cause */
    int64_t host;     /* the host span that is looked at */
};

static bool updates(uint16_t op)
{
    switch (op) {
    case MT_OP_sumsq:
    case MT_OP_clip:
    case MT_OP_adamw:
    case MT_OP_muon_momentum:
    case MT_OP_newton_schulz:
    case MT_OP_muon_apply:
    case MT_OP_turn_left:
    case MT_OP_turn_right:
    case MT_OP_gram_left:
    case MT_OP_gram_right:
    case MT_OP_soap_moment:
    case MT_OP_soap_adam:
    case MT_OP_eigen_basis:
    case MT_OP_graft:
    case MT_OP_qk_clip:
    case MT_OP_bias_update:
    case MT_OP_weight_cast:
    case MT_OP_weight_pack:
    case MT_OP_fp8_pack: return true;
    default: return false;
    }
}

/* The optimizer's part is from the first sum of squares behind backward to the last new weight; gradients that leave for host
 * memory were summed in passing. */
static void find_parts(struct walk *w)
{
    const struct mt_recording *q = w->t->q;
    w->optim_first = q->n;
    w->optim_last = w->ep_group = -1;
    for (int64_t i = 0; i < q->n; i++) {
        uint16_t op = q->rec[i].op;
        if (op == MT_OP_embed_bwd) w->optim_first = q->n;
        if ((op == MT_OP_sumsq || op == MT_OP_clip) && i < w->optim_first) w->optim_first = i;
        if (updates(op)) w->optim_last = i;
        if (op == MT_OP_exchange || op == MT_OP_exchange_home) w->ep_group = q->rec[i].scalar[0].i;
    }
}
static bool in_optimizer(const struct walk *w, int64_t i)
{
    return i >= w->optim_first && i <= w->optim_last;
}

static enum mt_cause cause_of_collective(const struct walk *w, int64_t i)
{
    const struct mt_rec *r = &w->t->q->rec[i];
    if (r->op == MT_OP_exchange || r->op == MT_OP_exchange_home) return MT_CAUSE_EXCHANGE;
    if (r->stream == MT_GATHER) return MT_CAUSE_GATHER;
    if (in_optimizer(w, i)) return r->stream == MT_COMPUTE ? MT_CAUSE_REDUCE : MT_CAUSE_OPTIM_MOVE;
    if (r->op == MT_OP_gather && r->scalar[0].i == w->ep_group) return MT_CAUSE_EXCHANGE; /* counts */
    return MT_CAUSE_REDUCE;
}
/* Of a record that is no wait. */
static enum mt_cause cause_of(const struct walk *w, int64_t i)
{
    const struct mt_rec *r = &w->t->q->rec[i];
    switch (mt_op_info[r->op].kind) {
    case MT_COMM: return cause_of_collective(w, i);
    case MT_COPY: return MT_CAUSE_OFFLOAD;
    case MT_READ: return MT_CAUSE_HOST_READ;
    default: break;
    }
    switch (r->stream) {
    case MT_COMPUTE: return in_optimizer(w, i) ? MT_CAUSE_OPTIMIZER : MT_CAUSE_COMPUTE;
    case MT_GATHER: return MT_CAUSE_GATHER;
    case MT_D2H:
    case MT_H2D: return MT_CAUSE_OFFLOAD;
    case MT_REDUCE: return in_optimizer(w, i) ? MT_CAUSE_OPTIM_MOVE : MT_CAUSE_REDUCE;
    default: return in_optimizer(w, i) ? MT_CAUSE_OPTIM_MOVE : MT_CAUSE_OFFLOAD;
    }
}

/* Gives what is not given yet, up to `end`, to a cause. */
static void give(struct walk *w, enum mt_cause c, int64_t end, bool still)
{
    int64_t length = mt_timeline_length(w->t);
    if (end > length) end = length;
    if (end <= w->now) return;
    w->sum->spent[c] += end - w->now;
    if (still && causes[c].exposed) w->sum->still[c] += end - w->now;
    w->now = end;
}
/* The same while record i runs, or waits to. */
static void give_record(struct walk *w, int64_t i, enum mt_cause c, int64_t end)
{
    int64_t moved = mt_timeline_moved(w->t, i);
    give(w, c, moved < end ? moved : end, true);
    give(w, c, end, false);
}

/* The first record of a stream, up to seq, that is not over by now; -1: all are. */
static int64_t current(const struct walk *w, mt_event ev)
{
    const int64_t *of = w->places.of[ev.stream];
    int64_t lo = 0, hi = ev.seq < w->places.n[ev.stream] ? ev.seq : w->places.n[ev.stream];
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;
        if (of[mid] < 0 || w->t->end[of[mid]] <= w->now)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < ev.seq && lo < w->places.n[ev.stream] ? of[lo] : -1;
}

static void give_awaited(struct walk *w, mt_event ev, int64_t end, int depth);

static void give_standing(struct walk *w, int64_t i, int64_t end, int depth)
{
    const struct mt_rec *r = &w->t->q->rec[i];
    if (r->op == MT_OP_wait) {
        give_awaited(w, r->ev, end, depth + 1);
        return;
    }
    enum mt_cause c = cause_of(w, i);
    give_record(w, i, causes[c].exposed ? c : MT_CAUSE_IDLE, end);
}

/* Until `end` the compute stream waits for the event: to what its stream does. What it waits for after the event was over,
 * that is, for somebody to see it, counts as the last operation's. Waits that wait for each other, which only a wrong
 * timeline has, end at a depth. */
static void give_awaited(struct walk *w, mt_event ev, int64_t end, int depth)
{
    int64_t i, last = mt_places_find(&w->places, ev);
    while (w->now < end && depth < MOST_WAITS && (i = current(w, ev)) >= 0)
        give_standing(w, i, w->t->end[i] < end ? w->t->end[i] : end, depth);
    enum mt_cause c = last >= 0 && w->t->q->rec[last].op != MT_OP_wait ? cause_of(w, last) : MT_CAUSE_IDLE;
    give(w, causes[c].exposed ? c : MT_CAUSE_IDLE, end, true);
}

/* Between two records nothing was enqueued, because the host waits for the value in front of it, or for another; or because
 * it did something else. */
static void give_empty(struct walk *w, int64_t before, int64_t end)
{
    const struct mt_timeline *t = w->t;
    if (before >= 0 && t->q->rec[before].op < MT_N_OPS && mt_op_info[t->q->rec[before].op].kind == MT_READ)
        give(w, MT_CAUSE_HOST_READ, end, false);
    if (before < 0 && t->n_host)
        give(w, MT_CAUSE_WORKER, t->host[0].begin < end ? t->host[0].begin : end, false);
    for (; w->now < end && w->host < t->n_host; w->host++) {
        const struct mt_host_span *s = &t->host[w->host];
        int64_t back = w->host + 1 < t->n_host ? s[1].begin : s->end;
        if (back <= w->now) continue;
        give(w, MT_CAUSE_IDLE, s->end < end ? s->end : end, false);
        give(w, s->left == MT_LEFT_READ ? MT_CAUSE_HOST_READ : MT_CAUSE_IDLE, back < end ? back : end, false);
        if (back > end) break;
    }
    give(w, MT_CAUSE_IDLE, end, false);
}

static void give_compute(struct walk *w, int64_t before, int64_t i)
{
    const struct mt_timeline *t = w->t;
    const struct mt_rec *r = &t->q->rec[i];
    bool runs = r->op != MT_OP_wait;
    bool could = runs && mt_op_info[r->op].kind != MT_COMM && t->ready && t->ready[i] < t->begin[i];
    give_empty(w, before, could ? t->ready[i] : t->begin[i]);
    if (could) give(w, MT_CAUSE_WORKER, t->begin[i], false);
    if (runs)
        give_record(w, i, cause_of(w, i), t->end[i]);
    else
        give_awaited(w, r->ev, t->end[i], 0);
}

static void add_busy(struct walk *w)
{
    const struct mt_timeline *t = w->t;
    for (int64_t i = 0; i < t->q->n; i++) {
        if (t->q->rec[i].op == MT_OP_wait) continue;
        int64_t took = t->end[i] - mt_timeline_moved(t, i);
        w->sum->busy[cause_of(w, i)] += took;
        w->sum->stream[t->q->rec[i].stream] += took;
    }
}

mt_status mt_timeline_summarize(const struct mt_timeline *t, struct mt_timeline_sum *sum, mt_err *e)
{
    struct walk w = {.t = t, .sum = sum};
    *sum = (struct mt_timeline_sum){.length = mt_timeline_length(t)};
    MT_TRY(mt_places_init(&w.places, t->q, e));
    find_parts(&w);
    int64_t before = -1;
    for (int64_t k = 0; k < w.places.n[MT_COMPUTE]; k++) {
        int64_t i = w.places.of[MT_COMPUTE][k];
        if (i < 0) continue;
        give_compute(&w, before, i);
        before = i;
    }
    give_empty(&w, before, sum->length);
    add_busy(&w);
    mt_places_release(&w.places);
    return MT_OK;
}

double mt_timeline_hidden(const struct mt_timeline_sum *sum, enum mt_cause c)
{
    if (!sum->busy[c]) return 1;
    return 1 - (double)(sum->spent[c] - sum->still[c]) / (double)sum->busy[c];
}

void mt_timeline_ops(const struct mt_timeline *t, struct mt_op_sum *op)
{
    for (int64_t i = 0; i < t->q->n; i++) {
        uint16_t k = t->q->rec[i].op;
        if (k == MT_OP_wait) continue;
        op[k].calls++;
        op[k].time += t->end[i] - mt_timeline_moved(t, i);
        op[k].flops += mt_record_flops(t->q, i);
        op[k].bytes += mt_record_bytes(t->q, i);
    }
}
