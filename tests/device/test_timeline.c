/* Time lines made by hand: where the compute stream's time went, and what the trace of them says. */
#include "check.h"
#include "device/order.h"
#include "device/timeline.h"

#include <cjson/cJSON.h>

enum { MOST = 400 };

/* A time line under construction. */
struct line {
    struct mt_rec rec[MOST];
    int64_t begin[MOST], end[MOST], ready[MOST], seq[MT_N_STREAMS];
    struct mt_host_span host[8];
    struct mt_recording q;
    struct mt_ledger ledger;
    struct mt_timeline t;
};
static struct line l;

static void line_begin(void)
{
    l = (struct line){.q = {.rec = l.rec}};
    l.t = (struct mt_timeline){
        .rank = 3, .q = &l.q, .ledger = &l.ledger, .begin = l.begin, .end = l.end, .host = l.host};
}
static struct mt_rec *add(int stream, int op, int64_t begin, int64_t ready, int64_t end)
{
    int64_t i = l.q.n++;
    MT_ASSERT(i < MOST);
    l.rec[i] = (struct mt_rec){.op = (uint16_t)op, .stream = (uint8_t)stream, .seq = ++l.seq[stream]};
    l.begin[i] = begin;
    l.ready[i] = ready;
    l.end[i] = end;
    if (op != MT_OP_wait && mt_op_info[op].kind == MT_COMM) l.rec[i].scalar[0].i = 1;
    return &l.rec[i];
}
static void op(int stream, int what, int64_t begin, int64_t end)
{
    (void)add(stream, what, begin, begin, end);
}
static void await(int stream, int64_t begin, int64_t end, int on, int64_t seq)
{
    add(stream, MT_OP_wait, begin, begin, end)->ev = (mt_event){on, seq};
}
#define KERNEL MT_OP_linear_fwd

static struct mt_timeline_sum sum(void)
{
    struct mt_timeline_sum s;
    mt_err e = {0};
    int64_t total = 0;
    CHECK_INT(mt_timeline_summarize(&l.t, &s, &e), MT_OK);
    for (int c = 0; c < MT_N_CAUSES; c++) {
        total += s.spent[c];
        CHECK(s.still[c] >= 0 && s.still[c] <= s.spent[c]);
        if (mt_cause_exposed((enum mt_cause)c)) CHECK(s.spent[c] - s.still[c] <= s.busy[c]);
    }
    CHECK_INT(total, s.length);
    return s;
}
/* Spent on these causes, and nothing on others. */
#define SPENT(...) check_spent((const int64_t[][2]){__VA_ARGS__}, sizeof((int64_t[][2]){__VA_ARGS__}) / 16)
static struct mt_timeline_sum check_spent(const int64_t (*want)[2], size_t n)
{
    struct mt_timeline_sum s = sum();
    int64_t all[MT_N_CAUSES] = {0};
    for (size_t i = 0; i < n; i++) all[want[i][0]] = want[i][1];
    for (int c = 0; c < MT_N_CAUSES; c++)
        if (!CHECK_INT(s.spent[c], all[c])) printf("  %s\n", mt_cause_text((enum mt_cause)c));
    return s;
}
#define C(name) MT_CAUSE_##name

TEST(nothing_at_all)
{
    line_begin();
    struct mt_timeline_sum s = sum();
    CHECK_INT(s.length, 0);
    l.t.length = 7;
    SPENT({C(IDLE), 7});
}

TEST(gaps_without_a_wait)
{
    line_begin();
    op(MT_COMPUTE, KERNEL, 10, 30);
    op(MT_COMPUTE, KERNEL, 35, 50);
    l.t.length = 60;
    struct mt_timeline_sum s = SPENT({C(COMPUTE), 35}, {C(IDLE), 25});
    CHECK_INT(s.stream[MT_COMPUTE], 35);
    l.t.length = 0; /* then until the last end */
    SPENT({C(COMPUTE), 35}, {C(IDLE), 15});
}

TEST(a_gather_that_is_partly_hidden)
{
    line_begin();
    op(MT_GATHER, MT_OP_gather_cut, 0, 20);
    op(MT_COMPUTE, KERNEL, 0, 12);
    await(MT_COMPUTE, 12, 20, MT_GATHER, 1);
    op(MT_COMPUTE, KERNEL, 20, 30);
    struct mt_timeline_sum s = SPENT({C(COMPUTE), 22}, {C(GATHER), 8});
    CHECK_INT(s.still[C(GATHER)], 0);
    CHECK_INT(s.busy[C(GATHER)], 20);
    CHECK_INT(s.stream[MT_GATHER], 20);
    CHECK_CLOSE(mt_timeline_hidden(&s, C(GATHER)), 0.6, 1e-12);
    CHECK_CLOSE(mt_timeline_hidden(&s, C(REDUCE)), 1, 0);
}

/* Came at 0, the last member at 15: what was exposed is the others' lateness more than moving. */
TEST(a_collective_that_waits_for_others)
{
    line_begin();
    l.t.ready = l.ready;
    (void)add(MT_GATHER, MT_OP_gather_cut, 0, 15, 20);
    op(MT_COMPUTE, KERNEL, 0, 12);
    await(MT_COMPUTE, 12, 20, MT_GATHER, 1);
    struct mt_timeline_sum s = SPENT({C(COMPUTE), 12}, {C(GATHER), 8});
    CHECK_INT(s.still[C(GATHER)], 3);
    CHECK_INT(s.busy[C(GATHER)], 5);
    CHECK_CLOSE(mt_timeline_hidden(&s, C(GATHER)), 0, 0);
    l.end[2] = 17; /* as if the wait had been left early: half of what moved was exposed */
    op(MT_COMPUTE, KERNEL, 17, 20);
    s = SPENT({C(COMPUTE), 15}, {C(GATHER), 5});
    CHECK_CLOSE(mt_timeline_hidden(&s, C(GATHER)), 0.6, 1e-12);
}

/* Compute waits for a gather, which waits for a reduction; the wait is seen to be over late. */
TEST(a_chain_of_waits)
{
    line_begin();
    op(MT_REDUCE, MT_OP_scatter_cut, 0, 10);
    await(MT_GATHER, 0, 10, MT_REDUCE, 1);
    op(MT_GATHER, MT_OP_gather_cut, 11, 18);
    op(MT_COMPUTE, KERNEL, 0, 4);
    await(MT_COMPUTE, 4, 20, MT_GATHER, 2);
    op(MT_COMPUTE, KERNEL, 20, 25);
    struct mt_timeline_sum s = SPENT({C(COMPUTE), 9}, {C(REDUCE), 6}, {C(GATHER), 10});
    CHECK_INT(s.still[C(GATHER)], 3); /* before it began, and after it was over */
    CHECK_INT(s.still[C(REDUCE)], 0);
}

/* Through three streams, and behind a wait that is met by something long past. */
TEST(a_longer_chain)
{
    line_begin();
    op(MT_COMPUTE, KERNEL, 0, 2);
    await(MT_D2H, 2, 2, MT_COMPUTE, 1);
    op(MT_D2H, MT_OP_copy_d2h, 2, 8);
    await(MT_H2D, 0, 8, MT_D2H, 2);
    op(MT_H2D, MT_OP_copy_h2d, 8, 13);
    await(MT_GATHER, 0, 13, MT_H2D, 2);
    op(MT_GATHER, MT_OP_weight_turn, 13, 14);
    await(MT_GATHER, 14, 14, MT_COMPUTE, 1);
    await(MT_COMPUTE, 2, 14, MT_GATHER, 3);
    struct mt_timeline_sum s = SPENT({C(COMPUTE), 2}, {C(OFFLOAD), 11}, {C(GATHER), 1});
    CHECK_INT(s.busy[C(OFFLOAD)], 11);
    CHECK_CLOSE(mt_timeline_hidden(&s, C(OFFLOAD)), 0, 0);
}

/* Only what is in front of the event counts, not what its stream does later. */
TEST(only_what_is_awaited)
{
    line_begin();
    op(MT_H2D, MT_OP_copy_h2d, 0, 6);
    op(MT_GATHER, MT_OP_gather_cut, 0, 9);
    op(MT_H2D, MT_OP_copy_h2d, 6, 30);
    await(MT_COMPUTE, 1, 6, MT_H2D, 1);
    await(MT_COMPUTE, 6, 9, MT_GATHER, 1);
    op(MT_COMPUTE, KERNEL, 9, 10);
    struct mt_timeline_sum s = SPENT({C(IDLE), 1 + 20}, {C(OFFLOAD), 5}, {C(GATHER), 3}, {C(COMPUTE), 1});
    CHECK_INT(s.busy[C(OFFLOAD)], 30);
}

TEST(collectives_on_the_compute_stream)
{
    line_begin();
    l.t.ready = l.ready;
    add(MT_COMPUTE, MT_OP_gather, 0, 3, 4)->scalar[0].i = 5; /* counts, in the exchange's group */
    add(MT_COMPUTE, MT_OP_gather, 4, 5, 7)->scalar[0].i = 2; /* a sum over ranks */
    add(MT_COMPUTE, MT_OP_exchange, 7, 9, 13)->scalar[0].i = 5;
    add(MT_COMPUTE, MT_OP_exchange_home, 13, 13, 15)->scalar[0].i = 5;
    struct mt_timeline_sum s = SPENT({C(EXCHANGE), 12}, {C(REDUCE), 3});
    CHECK_INT(s.still[C(EXCHANGE)], 5);
    CHECK_INT(s.busy[C(EXCHANGE)], 7);
    CHECK_CLOSE(mt_timeline_hidden(&s, C(EXCHANGE)), 0, 0);
}

TEST(host_reads)
{
    line_begin();
    op(MT_COMPUTE, KERNEL, 0, 10);
    op(MT_COMPUTE, MT_OP_read_back, 10, 10);
    op(MT_COMPUTE, KERNEL, 17, 20);
    SPENT({C(COMPUTE), 13}, {C(HOST_READ), 7});
    /* a read of something else, while which nothing is enqueued: told by what the host did */
    line_begin();
    op(MT_COMPUTE, KERNEL, 0, 10);
    op(MT_COMPUTE, KERNEL, 30, 31);
    l.host[0] = (struct mt_host_span){.begin = 0, .end = 12, .left = MT_LEFT_READ};
    l.host[1] = (struct mt_host_span){.begin = 20, .end = 22, .left = MT_LEFT_FULL};
    l.host[2] = (struct mt_host_span){.begin = 25, .end = 40, .left = MT_LEFT_END};
    l.t.n_host = 3;
    l.t.length = 40;
    SPENT({C(COMPUTE), 11}, {C(HOST_READ), 8}, {C(IDLE), 2 + 10 + 9});
}

TEST(workers_that_are_busy)
{
    line_begin();
    l.t.ready = l.ready;
    l.host[0] = (struct mt_host_span){.begin = 2, .end = 5, .left = MT_LEFT_END};
    l.t.n_host = 1;
    (void)add(MT_COMPUTE, KERNEL, 6, 4, 10); /* enqueued at 4, begun at 6 */
    (void)add(MT_COMPUTE, KERNEL, 15, 10, 20);
    SPENT({C(WORKER), 2 + 2 + 5}, {C(IDLE), 2}, {C(COMPUTE), 9});
}

TEST(the_optimizer)
{
    line_begin();
    op(MT_COMPUTE, KERNEL, 0, 5);
    op(MT_COMPUTE, MT_OP_fill0, 5, 6);
    op(MT_COMPUTE, MT_OP_sumsq, 6, 8);
    op(MT_COMPUTE, MT_OP_gather, 8, 10);
    op(MT_COMPUTE, MT_OP_clip, 10, 11);
    op(MT_REDUCE, MT_OP_collect_cut, 8, 15);
    op(MT_COMPUTE, MT_OP_adamw, 11, 13);
    await(MT_COMPUTE, 13, 15, MT_REDUCE, 1);
    op(MT_COMPUTE, MT_OP_newton_schulz, 15, 19);
    op(MT_COMPUTE, MT_OP_weight_pack, 19, 20);
    op(MT_COMPUTE, KERNEL, 20, 23); /* what is recorded behind the step */
    struct mt_timeline_sum s = SPENT({C(COMPUTE), 9}, {C(OPTIMIZER), 10}, {C(REDUCE), 2}, {C(OPTIM_MOVE), 2});
    CHECK_INT(s.busy[C(OPTIM_MOVE)], 7);
    CHECK_CLOSE(mt_timeline_hidden(&s, C(OPTIM_MOVE)), 5.0 / 7, 1e-12);
}

/* Waits for each other, for nothing, beyond the end: nonsense has an end, and adds up. */
TEST(time_lines_that_cannot_be)
{
    line_begin();
    await(MT_COMPUTE, 0, 10, MT_GATHER, 1);
    await(MT_GATHER, 0, 10, MT_COMPUTE, 1);
    await(MT_COMPUTE, 10, 12, MT_REDUCE, 77);
    op(MT_COMPUTE, KERNEL, 5, 14); /* over another */
    op(MT_COMPUTE, KERNEL, 14, 99);
    l.t.length = 20;
    SPENT({C(IDLE), 12}, {C(COMPUTE), 8});
}

TEST(a_profile_by_operation)
{
    static struct mt_op_sum ops[MT_N_OPS];
    line_begin();
    l.t.ready = l.ready;
    struct mt_rec *r = add(MT_COMPUTE, KERNEL, 0, 0, 5);
    r->dim['N' - 'A'] = 2, r->dim['O' - 'A'] = 3, r->dim['I' - 'A'] = 7;
    (void)add(MT_COMPUTE, KERNEL, 5, 5, 6);
    r = add(MT_COMPUTE, MT_OP_exchange, 6, 8, 11);
    struct mt_exchange_peer *peer = (struct mt_exchange_peer *)(void *)&r->scalar[2];
    r->scalar[1].i = 10;
    peer[0].recv_n = 4, peer[1].recv_n = 5, peer[1].send_n = 100;
    await(MT_COMPUTE, 11, 12, MT_GATHER, 0);
    mt_timeline_ops(&l.t, ops);
    CHECK_INT(ops[KERNEL].calls, 2);
    CHECK_INT(ops[KERNEL].time, 6);
    CHECK_CLOSE(ops[KERNEL].flops, 84, 0);
    CHECK_INT(ops[MT_OP_exchange].time, 3);
    CHECK_CLOSE(ops[MT_OP_exchange].bytes, 90, 0);
    memset(peer, 0, 2 * sizeof *peer); /* as sim records it: by the table */
    r->n_args = 1;
    l.q.arg = &(struct mt_rec_arg){.bytes = 70};
    CHECK_CLOSE(mt_record_bytes(&l.q, 2), 70, 0);
}

/* ---- random time lines against an attribution of every nanosecond ---- */
static uint32_t draw(uint64_t *state, uint32_t n)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33) % n;
}

/* Streams that run without a mistake: each in order, waits until their events are over. */
static void random_line(uint64_t seed, bool measured)
{
    static const int ops[MT_N_STREAMS][3] = {
        [MT_COMPUTE] = {KERNEL, MT_OP_exchange, MT_OP_read_back},
        [MT_GATHER] = {MT_OP_gather_cut, MT_OP_weight_turn, MT_OP_gather_cut},
        [MT_REDUCE] = {MT_OP_scatter_cut, MT_OP_sum_pieces, MT_OP_scatter_cut},
        [MT_D2H] = {MT_OP_copy_d2h, MT_OP_copy_d2h, MT_OP_copy_d2h},
        [MT_H2D] = {MT_OP_copy_h2d, MT_OP_copy_h2d, MT_OP_copy_h2d},
    };
    int64_t free_at[MT_N_STREAMS] = {0}, over[MT_N_STREAMS][MOST] = {{0}};
    line_begin();
    if (measured) l.t.ready = l.ready;
    for (int i = 0; i < 200; i++) {
        int s = draw(&seed, 2) ? MT_COMPUTE : (int)draw(&seed, MT_H2D + 1), on = (int)draw(&seed, MT_H2D + 1);
        int64_t at = free_at[s] + draw(&seed, 3);
        if (draw(&seed, 3) == 0 && on != s && l.seq[on]) {
            int64_t seq = 1 + draw(&seed, (uint32_t)l.seq[on]), end = over[on][seq];
            end = (end > at ? end : at) + draw(&seed, 2);
            await(s, at, end, on, seq);
        } else {
            int what = ops[s][draw(&seed, 3)];
            bool comm = mt_op_info[what].kind == MT_COMM;
            int64_t late = measured ? draw(&seed, 4) : 0, took = what == MT_OP_read_back ? 0 : draw(&seed, 9);
            if (comm)
                (void)add(s, what, at, at + late, at + late + took);
            else
                (void)add(s, what, at + late, at, at + late + took);
        }
        free_at[s] = over[s][l.seq[s]] = l.end[l.q.n - 1];
    }
    l.t.length = mt_timeline_length(&l.t) + draw(&seed, 5);
}

static int naive_cause(const struct mt_rec *r)
{
    if (r->op == MT_OP_read_back) return C(HOST_READ);
    if (r->op == MT_OP_exchange) return C(EXCHANGE);
    return r->stream == MT_COMPUTE  ? C(COMPUTE)
           : r->stream == MT_GATHER ? C(GATHER)
           : r->stream == MT_REDUCE ? C(REDUCE)
                                    : C(OFFLOAD);
}
static int64_t naive_moved(int64_t i)
{
    return l.t.ready && mt_op_info[l.rec[i].op].kind == MT_COMM ? l.ready[i] : l.begin[i];
}
/* What a stream has in front of seq at time t. */
static int naive_follow(mt_event ev, int64_t t, bool *still)
{
    int64_t last = -1;
    for (int64_t i = 0; i < l.q.n; i++) {
        const struct mt_rec *r = &l.rec[i];
        if (r->stream != ev.stream || r->seq > ev.seq) continue;
        last = i;
        if (l.end[i] <= t) continue;
        if (r->op == MT_OP_wait) return naive_follow(r->ev, t, still);
        *still = t < naive_moved(i);
        return r->stream == MT_COMPUTE && r->op != MT_OP_exchange ? C(IDLE) : naive_cause(r);
    }
    *still = true;
    if (l.rec[last].op == MT_OP_wait) return C(IDLE);
    int c = naive_cause(&l.rec[last]);
    return mt_cause_exposed((enum mt_cause)c) ? c : C(IDLE);
}
static int naive_at(int64_t t, bool *still)
{
    int64_t before = -1;
    *still = false;
    for (int64_t i = 0; i < l.q.n; i++) {
        const struct mt_rec *r = &l.rec[i];
        if (r->stream != MT_COMPUTE) continue;
        if (l.end[i] <= t) {
            before = i;
            continue;
        }
        bool comm = r->op != MT_OP_wait && mt_op_info[r->op].kind == MT_COMM;
        if (l.begin[i] > t && l.t.ready && r->op != MT_OP_wait && !comm && l.ready[i] <= t) return C(WORKER);
        if (l.begin[i] > t) break;
        if (r->op == MT_OP_wait) return naive_follow(r->ev, t, still);
        *still = comm && t < naive_moved(i);
        return naive_cause(r);
    }
    return before >= 0 && l.rec[before].op == MT_OP_read_back ? C(HOST_READ) : C(IDLE);
}

TEST(random_time_lines)
{
    for (uint64_t seed = 1; seed <= 60; seed++) {
        random_line(seed, seed % 2);
        struct mt_timeline_sum s = sum();
        int64_t spent[MT_N_CAUSES] = {0}, still[MT_N_CAUSES] = {0};
        for (int64_t t = 0; t < l.t.length; t++) {
            bool waits;
            int c = naive_at(t, &waits);
            spent[c]++;
            still[c] += waits && mt_cause_exposed((enum mt_cause)c);
        }
        for (int c = 0; c < MT_N_CAUSES; c++)
            if (!CHECK_INT(s.spent[c], spent[c]) || !CHECK_INT(s.still[c], still[c]))
                printf("  %s, seed %d\n", mt_cause_text((enum mt_cause)c), (int)seed);
    }
}

/* ---- the trace ---- */
static cJSON *trace(const char *const *groups)
{
    char *text = NULL;
    size_t bytes = 0;
    mt_err e = {0};
    FILE *f = open_memstream(&text, &bytes);
    CHECK_INT(mt_timeline_write(&l.t, 1, groups, "a \"title\"", f, &e), MT_OK);
    fclose(f);
    cJSON *j = cJSON_ParseWithOpts(text, NULL, true);
    if (!CHECK(j != NULL)) printf("%.2000s\n", text);
    free(text);
    return j;
}
static double number(const cJSON *j, const char *key)
{
    const cJSON *x = cJSON_GetObjectItemCaseSensitive(j, key);
    return cJSON_IsNumber(x) ? x->valuedouble : -1;
}
static const char *text_of(const cJSON *j, const char *key)
{
    const char *s = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(j, key));
    return s ? s : "";
}
static int64_t ns(double us)
{
    return (int64_t)llround(us * 1000);
}

static int64_t record_with(int stream, int64_t seq)
{
    for (int64_t i = 0; i < l.q.n; i++)
        if (l.rec[i].stream == stream && l.rec[i].seq == seq) return i;
    return -1;
}
/* The record that an event X is of; -1: of none. */
static int64_t record_of(const cJSON *ev)
{
    return record_with((int)number(ev, "tid"), (int64_t)number(cJSON_GetObjectItem(ev, "args"), "seq"));
}
/* The record that an arrow's end is on: the last begun on its row that contains it. */
static int64_t record_at(const cJSON *end)
{
    int64_t at = ns(number(end, "ts")), found = -1;
    for (int64_t i = 0; i < l.q.n; i++)
        if (l.rec[i].stream == (int)number(end, "tid") && l.begin[i] <= at && at <= l.end[i] &&
            (l.end[i] > at || l.begin[i] == at))
            found = i;
    return found;
}

static void check_trace(const cJSON *events)
{
    static bool seen[MOST];
    static int64_t from[MOST], to[MOST];
    int64_t waits = 0, arrows = 0, ends = 0;
    const cJSON *ev;
    memset(seen, 0, sizeof seen);
    memset(from, -1, sizeof from);
    memset(to, -1, sizeof to);
    cJSON_ArrayForEach(ev, events)
    {
        const char *ph = text_of(ev, "ph");
        CHECK_INT((int)number(ev, "pid"), 3);
        if (!strcmp(ph, "X")) {
            int64_t i = record_of(ev);
            if (!CHECK(i >= 0 && !seen[i])) continue;
            seen[i] = true;
            CHECK_INT(ns(number(ev, "ts")), l.begin[i]);
            CHECK_INT(ns(number(ev, "dur")), l.end[i] - l.begin[i]);
            if (l.rec[i].op != MT_OP_wait) CHECK_STR(text_of(ev, "name"), mt_op_info[l.rec[i].op].name);
        } else if (!strcmp(ph, "s")) {
            from[(int)number(ev, "id")] = record_at(ev);
            arrows++;
        } else if (!strcmp(ph, "f")) {
            CHECK_STR(text_of(ev, "bp"), "e");
            to[(int)number(ev, "id")] = record_at(ev);
            ends++;
        } else {
            CHECK_STR(ph, "M");
        }
    }
    for (int64_t i = 0; i < l.q.n; i++) {
        CHECK(seen[i]);
        if (l.rec[i].op == MT_OP_wait) waits++;
    }
    CHECK_INT(arrows, waits);
    CHECK_INT(ends, waits);
    for (int64_t i = 0, k = 0; i < l.q.n; i++) {
        const struct mt_rec *r = &l.rec[i];
        if (r->op != MT_OP_wait) continue;
        if (!CHECK(from[k] >= 0 && to[k] >= 0)) break;
        int64_t awaited = record_with(r->ev.stream, r->ev.seq), next = r->seq;
        while (record_with(r->stream, next) >= 0 && l.rec[record_with(r->stream, next)].op == MT_OP_wait)
            next++;
        next = record_with(r->stream, next);
        if (next < 0) next = i;
        CHECK_INT(l.rec[from[k]].stream, r->ev.stream);
        CHECK_INT(l.rec[to[k]].stream, r->stream);
        /* several operations that take no time may stand at one place */
        if (l.end[awaited] > l.begin[awaited]) CHECK_INT(from[k], awaited);
        if (l.end[next] > l.begin[next] + 1) CHECK_INT(to[k], next);
        k++;
    }
}

TEST(traces_of_random_time_lines)
{
    for (uint64_t seed = 1; seed <= 10; seed++) {
        random_line(seed, seed % 2);
        cJSON *j = trace(NULL);
        const cJSON *events = cJSON_GetObjectItem(j, "traceEvents");
        if (CHECK(cJSON_GetArraySize(events) > 0)) check_trace(events);
        cJSON_Delete(j);
    }
}

static const cJSON *find_event(const cJSON *j, const char *ph, const char *name)
{
    const cJSON *ev;
    cJSON_ArrayForEach(
        ev, cJSON_GetObjectItem(j, "traceEvents")) if (!strcmp(text_of(ev, "ph"), ph) &&
                                                       !strcmp(text_of(ev, "name"), name)) return ev;
    return NULL;
}

/* What a person reads of one operation, and of the rows. */
TEST(what_a_trace_says)
{
    static struct mt_rec_arg args[3];
    static const char *const groups[] = {"world", "shard"};
    line_begin();
    l.t.ready = l.ready;
    l.q.arg = args;
    mt_ledger_init(&l.ledger, 64);
    int32_t a = mt_row_add(&l.ledger, MT_DEVICE_ARENA, MT_ROW_SCRATCH, 100, "a \"b\" \\c");
    struct mt_rec *r = add(MT_COMPUTE, KERNEL, 1500, 1000, 3500);
    r->dim['N' - 'A'] = 20, r->dim['O' - 'A'] = 30, r->dim['I' - 'A'] = 40;
    r->dtype = MT_BF16;
    r->n_args = 3;
    args[0] = (struct mt_rec_arg){.row = a, .dir = MT_OUT, .place = 0, .off = 8, .bytes = 60};
    args[1] = (struct mt_rec_arg){.row = a, .dir = MT_IN, .place = 1, .bytes = 100, .whole = true};
    args[2] = (struct mt_rec_arg){.row = a, .dir = MT_OPT, .place = 4, .bytes = 40}; /* without a bias */
    (void)add(MT_GATHER, MT_OP_gather_cut, 0, 2000, 4000);
    l.host[0] =
        (struct mt_host_span){.begin = 0, .end = 900, .left = MT_LEFT_READ, .kind = MT_READ_LOSS, .index = 4};
    l.host[1] = (struct mt_host_span){.begin = 950, .end = 4100, .left = MT_LEFT_END};
    l.t.n_host = 2;
    cJSON *j = trace(groups);
    CHECK_STR(text_of(cJSON_GetObjectItem(j, "otherData"), "title"), "a \"title\"");
    const cJSON *ev = find_event(j, "X", "linear_fwd"), *x = cJSON_GetObjectItem(ev, "args");
    CHECK_STR(text_of(ev, "cat"), "kernel");
    CHECK_CLOSE(number(ev, "ts"), 1.5, 1e-9);
    CHECK_CLOSE(number(ev, "dur"), 2, 1e-9);
    CHECK_CLOSE(number(x, "N"), 20, 0);
    CHECK_CLOSE(number(x, "O"), 30, 0);
    CHECK_CLOSE(number(x, "I"), 40, 0);
    CHECK_STR(text_of(x, "dtype"), "bf16");
    CHECK_CLOSE(number(x, "flops"), 48000, 0);
    CHECK_CLOSE(number(x, "bytes"), 160, 0);
    CHECK_CLOSE(number(x, "GFLOP/s"), 24, 1e-9);
    CHECK_CLOSE(number(x, "GB/s"), 0.08, 1e-9);
    CHECK_CLOSE(number(x, "queued_us"), 0.5, 1e-9);
    CHECK_STR(text_of(x, "out y"), "a \"b\" \\c, bytes [8, 68)");
    CHECK_STR(text_of(x, "in x"), "a \"b\" \\c, 100 bytes");
    CHECK_STR(text_of(x, "in add"), "a \"b\" \\c, bytes [0, 40)");
    ev = find_event(j, "X", "gather_cut"), x = cJSON_GetObjectItem(ev, "args");
    CHECK_STR(text_of(x, "group"), "shard");
    CHECK_CLOSE(number(x, "waited_us"), 2, 1e-9);
    ev = find_event(j, "X", "reads loss 4");
    CHECK_INT((int)number(ev, "tid"), MT_N_STREAMS);
    CHECK_CLOSE(number(ev, "ts"), 0.9, 1e-9);
    CHECK_CLOSE(number(ev, "dur"), 0.05, 1e-9);
    CHECK(find_event(j, "X", "enqueues") != NULL);
    ev = find_event(j, "M", "process_name");
    CHECK_STR(text_of(cJSON_GetObjectItem(ev, "args"), "name"), "rank 3");
    cJSON_Delete(j);
    mt_ledger_release(&l.ledger);
}

/* ---- recordings that do not grow ---- */
TEST(a_full_recording_counts_what_it_loses)
{
    struct mt_ledger g;
    struct mt_ctx c;
    struct mt_times t;
    mt_err e = {0};
    mt_ledger_init(&g, 64);
    mt_view v = mt_tensor_add(&g, MT_DEVICE_ARENA, MT_ROW_SCRATCH, MT_F32, 8, 0, 0, "v");
    for (int args = 3; args <= 9; args += 6) {
        mt_ctx_init(&c, 0, 1, &mt_device_sim, &g);
        CHECK_INT(mt_times_open(&t, 4, args, &e), MT_OK);
        for (int again = 0; again < 2; again++) {
            mt_times_begin(&t, &c, 0);
            mt_streams_restart(&c);
            CHECK_INT(mt_times_place(&c), -1);
            for (int i = 0; i < 6; i++) {
                mt_fill0(&c.stream[MT_COMPUTE], v);
                if (i == 1) CHECK_INT(mt_times_place(&c), 1);
            }
            mt_stream_wait(&c.stream[MT_GATHER], mt_event_record(&c.stream[MT_COMPUTE]));
            CHECK_INT(mt_times_place(&c), -1);
            mt_times_end(&t, &c, 5);
            CHECK_INT(t.q.n, args == 3 ? 3 : 4);
            CHECK_INT(t.q.lost, 7 - t.q.n);
            CHECK(!c.recording && !c.times);
        }
        mt_times_close(&t);
    }
    mt_ledger_release(&g);
}

int main(void)
{
    RUN(nothing_at_all);
    RUN(gaps_without_a_wait);
    RUN(a_gather_that_is_partly_hidden);
    RUN(a_collective_that_waits_for_others);
    RUN(a_chain_of_waits);
    RUN(a_longer_chain);
    RUN(only_what_is_awaited);
    RUN(collectives_on_the_compute_stream);
    RUN(host_reads);
    RUN(workers_that_are_busy);
    RUN(the_optimizer);
    RUN(time_lines_that_cannot_be);
    RUN(a_profile_by_operation);
    RUN(random_time_lines);
    RUN(traces_of_random_time_lines);
    RUN(what_a_trace_says);
    RUN(a_full_recording_counts_what_it_loses);
    return DONE();
}
