/* Lifetimes, layout, the race check, and what a missing wait or a plan for too few rounds does. */
#include <time.h>

#include "check.h"
#include "device/toy.h"

enum { N = 16 };
struct bench {
    struct mt_ledger g;
    struct mt_ctx c;
    struct mt_recording q;
    struct mt_stream *s, *t; /* two streams */
    mt_view keep, a, b, d;
};
static void bench_init(struct bench *x)
{
    *x = (struct bench){0};
    mt_ledger_init(&x->g, 64);
    x->keep = mt_tensor_add(&x->g, MT_DEVICE_ARENA, MT_ROW_WEIGHT, MT_F32, N, 0, 0, "keep");
    x->a = mt_tensor_add(&x->g, MT_DEVICE_ARENA, MT_ROW_SCRATCH, MT_F32, N, 0, 0, "a");
    x->b = mt_tensor_add(&x->g, MT_DEVICE_ARENA, MT_ROW_SCRATCH, MT_F32, N, 0, 0, "b");
    x->d = mt_tensor_add(&x->g, MT_DEVICE_ARENA, MT_ROW_SCRATCH, MT_F32, N, 0, 0, "d");
    mt_ctx_init(&x->c, 0, 1, &mt_device_sim, &x->g);
    x->c.recording = &x->q;
    x->s = &x->c.stream[MT_COMPUTE];
    x->t = &x->c.stream[MT_D2H];
}
static void bench_release(struct bench *x)
{
    mt_recording_release(&x->q);
    mt_ledger_release(&x->g);
}
static mt_status bench_plan(struct bench *x, mt_err *e)
{
    struct mt_plan_info info = {.want_bound = true};
    *e = (mt_err){0};
    return mt_plan(&x->g, &x->q, &info, e);
}
static bool overlap(const struct mt_ledger *g, mt_view a, mt_view b)
{
    const struct mt_row *x = &g->row[a.row], *y = &g->row[b.row];
    return x->arena == y->arena && x->off < y->off + y->bytes && y->off < x->off + x->bytes;
}

TEST(rows_share_when_one_ends_before_the_other_begins)
{
    struct bench x;
    mt_err e;
    bench_init(&x);
    mt_weight_cast(x.s, x.a, x.keep); /* a | a b | b d */
    mt_weight_cast(x.s, x.b, x.a);
    mt_weight_cast(x.s, x.d, x.b);
    mt_weight_cast(x.s, x.keep, x.d);
    CHECK_INT(bench_plan(&x, &e), MT_OK);
    CHECK(overlap(&x.g, x.a, x.d) && !overlap(&x.g, x.a, x.b) && !overlap(&x.g, x.b, x.d));
    CHECK(!overlap(&x.g, x.keep, x.a) && !overlap(&x.g, x.keep, x.b) && !overlap(&x.g, x.keep, x.d));
    CHECK_INT(x.g.size[MT_DEVICE_ARENA], 3 * N * 4);
    bench_release(&x);
}

TEST(a_row_has_many_lifetimes)
{
    struct bench x;
    mt_err e;
    bench_init(&x);
    for (int i = 0; i < 3; i++) {
        mt_weight_cast(x.s, x.a, x.keep);
        mt_weight_cast(x.s, x.keep, x.a);
        mt_weight_cast(x.s, x.b, x.keep); /* lives in the gaps of a */
        mt_weight_cast(x.s, x.keep, x.b);
    }
    CHECK_INT(bench_plan(&x, &e), MT_OK);
    CHECK(overlap(&x.g, x.a, x.b));
    mt_weight_cast(x.s, x.keep, x.a); /* the last lifetime of a now spans one of b */
    CHECK_INT(bench_plan(&x, &e), MT_OK);
    CHECK(!overlap(&x.g, x.a, x.b));
    bench_release(&x);
}

TEST(streams_share_only_across_an_event)
{
    for (int event = 0; event < 2; event++) {
        struct bench x;
        mt_err e;
        bench_init(&x);
        mt_weight_cast(x.s, x.a, x.keep);
        mt_fill0(x.s, x.d);
        mt_sum_rows(x.s, x.d, mt_view_as(x.a, 1, N, 0));
        if (event) mt_stream_wait(x.t, mt_event_record(x.s));
        mt_fill0(x.t, x.b);
        CHECK_INT(bench_plan(&x, &e), MT_OK);
        CHECK(overlap(&x.g, x.a, x.b) == (event == 1));
        bench_release(&x);
    }
}

TEST(host_reads_are_no_order)
{
    struct bench x;
    mt_err e;
    struct mt_race race[4];
    float got[N];
    bench_init(&x);
    mt_weight_cast(x.s, x.a, x.keep);
    mt_host_read(x.s, MT_READ_LOSS, 0, x.a, got);
    mt_fill0(x.t, x.a);
    CHECK_INT(mt_races_find(&x.q, &x.g, -1, false, race, 4), 1);
    CHECK(race[0].first == 0 && race[0].second == 2 && race[0].row == x.a.row && !race[0].lost);
    CHECK_INT(mt_races_find(&x.q, &x.g, -1, true, race, 4), 0);
    CHECK_INT(bench_plan(&x, &e), MT_INTERNAL);
    CHECK(strstr(e.msg, "race") && strstr(e.msg, "weight_cast") && strstr(e.msg, "fill0") &&
          strstr(e.msg, "row a"));
    bench_release(&x);
}

TEST(contents_that_are_not_there_are_an_error)
{
    for (int how = 0; how < 3; how++) {
        struct bench x;
        mt_err e;
        bench_init(&x);
        if (how == 0) mt_weight_cast(x.s, x.keep, x.a);
        if (how == 1) mt_fill0(x.s, mt_view_part(x.b, 0, N / 2));
        if (how == 2) mt_sum_rows(x.s, x.d, mt_view_as(x.keep, 1, N, 0));
        CHECK_INT(bench_plan(&x, &e), MT_INTERNAL);
        CHECK(strstr(e.msg, (const char *[]){"row a is read", "row b is written in part",
                                             "row d is written in part"}[how]) != NULL);
        x.q.n = x.q.n_args = 0;
        for (int s = 0; s < MT_N_STREAMS; s++) x.c.stream[s].seq = 0;
        mt_fresh(x.s, (mt_view[]){x.a, x.b, x.d}[how]);
        if (how == 0) mt_weight_cast(x.s, x.keep, x.a);
        if (how == 1) mt_fill0(x.s, mt_view_part(x.b, 0, N / 2));
        if (how == 2) mt_sum_rows(x.s, x.d, mt_view_as(x.keep, 1, N, 0));
        CHECK_INT(bench_plan(&x, &e), MT_OK);
        bench_release(&x);
    }
}

/* An operation may read the old contents of the row it defines anew: nothing may slip between the two. */
TEST(reads_come_before_the_new_lifetime_of_the_same_operation)
{
    struct bench x;
    mt_err e;
    struct mt_race race;
    bench_init(&x);
    mt_weight_cast(x.s, x.a, x.keep);
    mt_fill0(x.s, x.b);
    mt_weight_cast(x.s, x.keep, x.b);
    mt_weight_cast(x.s, x.a, x.a);
    mt_weight_cast(x.s, x.keep, x.a);
    CHECK_INT(bench_plan(&x, &e), MT_OK);
    CHECK(!overlap(&x.g, x.a, x.b));
    x.g.row[x.b.row].off =
        x.g.row[x.a.row].off; /* a wrong layout: seen, though one stream orders everything */
    CHECK_INT(mt_races_find(&x.q, &x.g, -1, false, &race, 1), 1);
    CHECK(race.lost && race.first == 1 && race.second == 3);
    CHECK_INT(mt_plan_check(&x.g, &x.q, &e), MT_INTERNAL);
    CHECK(strstr(e.msg, "contents are lost") && strstr(e.msg, "fill0") && strstr(e.msg, "row a"));
    bench_release(&x);
}

/* A small random program on all streams: no layout may fail its own check, and sizes stay between their
 * bounds. */
TEST(random_records_get_clean_layouts)
{
    uint64_t state = 12345;
    int shared = 0;
    for (int round = 0; round < 60; round++) {
        struct mt_ledger g;
        struct mt_ctx c;
        struct mt_recording q = {0};
        mt_view v[24];
        mt_event made[24] = {{0}};
        mt_event used[24][MT_HOST] = {{{0}}};
        mt_ledger_init(&g, 64);
        for (int i = 0; i < 24; i++)
            v[i] = mt_tensor_add(&g, MT_DEVICE_ARENA, i ? MT_ROW_SCRATCH : MT_ROW_WEIGHT, MT_F32, 16 << i % 5,
                                 0, 0, "r%d", i);
        mt_ctx_init(&c, 0, 1, &mt_device_sim, &g);
        c.recording = &q;
        for (int k = 0; k < 300; k++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            int i = 1 + (k / 13 + (int)(state >> 33) % 4) % 23, stream = (int)(state >> 45) % MT_HOST;
            struct mt_stream *s = &c.stream[stream];
            for (int t = 0; t < MT_HOST && k % 25 == 0; t++) /* the streams meet now and then */
                for (int u = 0; u < MT_HOST; u++) mt_stream_wait(&c.stream[t], mt_event_record(&c.stream[u]));
            mt_stream_wait(s, made[i]);
            if (made[i].seq && (state >> 50) % 3) {
                mt_read_back(s, v[i], 0, 0);
            } else {
                for (int t = 0; t < MT_HOST; t++) mt_stream_wait(s, used[i][t]);
                mt_fill0(s, v[i]);
                made[i] = mt_event_record(s);
                memset(used[i], 0, sizeof used[i]);
            }
            used[i][stream] = mt_event_record(s);
        }
        struct mt_plan_info info = {.want_bound = true};
        mt_err e = {0};
        CHECK_INT(mt_plan(&g, &q, &info, &e), MT_OK);
        if (e.code) printf("%s\n", e.msg);
        CHECK(info.bound[0] <= info.peak[0] && info.live[0] <= info.peak[0] &&
              info.peak[0] <= info.unshared[0] && info.peak[0] == g.size[0]);
        CHECK(info.live[0] <= info.bound[0] + 24 * 64);
        for (int i = 0; i < g.n; i++)
            CHECK(g.row[i].off % 64 == 0 && g.row[i].off + g.row[i].bytes <= g.size[0]);
        shared += info.peak[0] < info.unshared[0];
        mt_recording_release(&q);
        mt_ledger_release(&g);
    }
    CHECK(shared > 30);
}

TEST(one_round_is_no_plan_for_two)
{
    struct toy t;
    mt_err e = {0};
    struct mt_plan_info one = {.want_bound = true}, two = {.want_bound = true};
    toy_init(&t, 4);
    struct mt_recording q[7];
    for (int r = 0; r < 7; r++) q[r] = toy_record(&t, r, -1); /* 0: as the run */
    CHECK_INT(mt_plan(&t.g, &q[1], &one, &e), MT_OK);
    CHECK_INT(mt_plan_check(&t.g, &q[1], &e), MT_OK);
    CHECK_INT(mt_plan_check(&t.g, &q[2], &e), MT_INTERNAL);
    CHECK(strstr(e.msg, "contents are lost") && strstr(e.msg, "row send"));
    e = (mt_err){0};
    CHECK_INT(mt_plan(&t.g, &q[2], &two, &e), MT_OK);
    for (int r = 0; r < 7; r++) CHECK_INT(mt_plan_check(&t.g, &q[r], &e), MT_OK);
    CHECK(two.peak[MT_DEVICE_ARENA] >= one.peak[MT_DEVICE_ARENA]);
    for (int r = 0; r < 7; r++) mt_recording_release(&q[r]);
    toy_release(&t);
}

/* A lost throttle shows in no test of results, only in bytes: so the peak is a tested number. */
TEST(peak_of_the_small_step)
{
    struct toy t;
    mt_err e = {0};
    struct mt_plan_info info = {.want_bound = true}, again = {.want_bound = true};
    toy_init(&t, 4);
    struct mt_recording q = toy_record(&t, 2, -1);
    CHECK_INT(mt_plan(&t.g, &q, &info, &e), MT_OK);
    CHECK_INT(info.unshared[MT_DEVICE_ARENA], 162304);
    CHECK_INT(info.peak[MT_DEVICE_ARENA], 51840);
    CHECK_INT(info.peak[MT_HOST_ARENA], 40960);
    CHECK((double)info.peak[MT_DEVICE_ARENA] <= 1.1 * (double)info.bound[MT_DEVICE_ARENA]);
    CHECK_INT(mt_plan(&t.g, &q, &again, &e), MT_OK); /* planning a planned ledger gives the same */
    CHECK(!memcmp(&info, &again, sizeof info));
    mt_recording_release(&q);
    toy_release(&t);
}

/* Every wait left out in turn. Found in the present layout: a hazard if no layout helps, a throttle if
 * sharing less does. Not found: implied by other waits, or it orders nothing that conflicts; then the plan
 * without it is the same. */
TEST(every_missing_wait_is_classified)
{
    struct toy t;
    mt_err e = {0};
    struct mt_plan_info info = {.want_bound = true}, without = {.want_bound = true};
    struct mt_race race;
    toy_init(&t, 4);
    struct mt_recording q = toy_record(&t, 2, -1);
    CHECK_INT(mt_plan(&t.g, &q, &info, &e), MT_OK);
    int waits = 0, hazards = 0, throttles = 0, idle = 0, raced_hosted = 0, raced = 0, wrong = 0;
    int64_t asked = 0;
    for (int64_t i = 0; i < q.n; i++) {
        if (q.rec[i].op != MT_OP_wait) continue;
        waits++;
        bool found = mt_races_find(&q, &t.g, i, false, &race, 1) > 0;
        raced += found;
        raced_hosted += mt_races_find(&q, &t.g, i, true, &race, 1) > 0;
        struct mt_recording less = {0};
        do {
            mt_recording_release(&less);
            less = toy_record(&t, 2, asked++);
        } while (less.n == q.n); /* waits for nothing are counted, but leave no record */
        struct toy u;
        toy_init(&u, 4);
        e = (mt_err){0};
        bool hazard = mt_plan(&u.g, &less, &without, &e) != MT_OK;
        bool pays = !hazard && (without.peak[0] > info.peak[0] || without.peak[1] > info.peak[1]);
        hazards += hazard;
        throttles += found && !hazard;
        idle += !found;
        wrong += hazard && !found; /* a race in every layout is one in this layout */
        wrong += pays && !found;   /* what costs bytes let rows share here */
        toy_release(&u);
        mt_recording_release(&less);
    }
    printf("  %d waits: %d hazards, %d throttles, %d idle; counting host reads as order: %d of %d found\n",
           waits, hazards, throttles, idle, raced_hosted, raced);
    CHECK_INT(wrong, 0);
    CHECK(hazards > 10 && throttles > 0 && hazards + throttles + idle == waits && raced_hosted <= raced);
    mt_recording_release(&q);
    toy_release(&t);
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
/* 4,000 rows and 50,000 records are a large run's; planning must stay a matter of seconds (less where it is
 * slow). */
TEST(large_records_plan_quickly)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    enum { ROWS = 1000, RECORDS = 12000 };
#else
    enum { ROWS = 4000, RECORDS = 50000 };
#endif
    struct mt_ledger g;
    struct mt_ctx c;
    struct mt_recording q = {0};
    struct mt_plan_info info = {.want_bound = true};
    mt_err e = {0};
    mt_ledger_init(&g, 64);
    for (int i = 0; i < ROWS; i++)
        mt_tensor_add(&g, MT_DEVICE_ARENA, i % 8 ? MT_ROW_SCRATCH : MT_ROW_WEIGHT, MT_F32, 1 << i % 12, 0, 0,
                      "row %d", i);
    mt_ctx_init(&c, 0, 1, &mt_device_sim, &g);
    c.recording = &q;
    for (int i = 0; q.n < RECORDS; i++) {
        int row = i * 13 % ROWS;
        mt_stream_wait(&c.stream[i % 3], mt_event_record(&c.stream[(i + 1) % 3]));
        mt_fill0(&c.stream[i % 3], mt_view_of(row, MT_F32, 0, 1 << row % 12, 0, 0));
        mt_read_back(&c.stream[i % 3], mt_view_of(row, MT_F32, 0, 1 << row % 12, 0, 0), 0, 0);
    }
    double t = seconds();
    CHECK_INT(mt_plan(&g, &q, &info, &e), MT_OK);
    t = seconds() - t;
    printf("  %d rows, %d records: %.2f s, peak %.3f of the bound\n", ROWS, RECORDS, t,
           (double)info.peak[0] / (double)info.bound[0]);
    CHECK(t < 60);
    CHECK(info.peak[0] < info.unshared[0]);
    mt_recording_release(&q);
    mt_ledger_release(&g);
}

int main(void)
{
    RUN(rows_share_when_one_ends_before_the_other_begins);
    RUN(a_row_has_many_lifetimes);
    RUN(streams_share_only_across_an_event);
    RUN(host_reads_are_no_order);
    RUN(contents_that_are_not_there_are_an_error);
    RUN(reads_come_before_the_new_lifetime_of_the_same_operation);
    RUN(random_records_get_clean_layouts);
    RUN(one_round_is_no_plan_for_two);
    RUN(peak_of_the_small_step);
    RUN(every_missing_wait_is_classified);
    RUN(large_records_plan_quickly);
    return DONE();
}
