/* A rank whose own work takes longer is named; waiting for it does not count for the others. */
#include <time.h>

#include "ranks.h"
#include "train/stragglers.h"

enum { N = 5, SLOW = 3 };
static struct training t_;
static struct mt_stragglers x_;
static struct mt_nodes nodes_;
static struct mt_job job_;
static char fields_[MT_STRAGGLERS_TEXT];

static bool open_ranks(const char *options)
{
    mt_err e = {0};
    job_ = mt_job_alone(N);
    char all[600];
    snprintf(all, sizeof all, "%strain.global_batch=5 train.micro_batch=1 device.workers=5 %s", TRAINING_BASE,
             options);
    return ranks_open(&t_, all, N) && CHECK(mt_nodes_open(&nodes_, &job_, &e) == MT_OK) &&
           CHECK(mt_stragglers_open(&x_, &t_.s, &e) == MT_OK);
}
static void close_ranks(void)
{
    mt_stragglers_close(&x_);
    mt_nodes_close(&nodes_);
    mt_session_close(&t_.s);
}

/* Everybody waits for the slow one in a collective. */
static void one_is_slow(struct mt_ctx *ctx, void *arg)
{
    struct mt_step *t = arg;
    const struct mt_model *m = t->rank.m;
    struct mt_stream *s = &ctx->stream[MT_COMPUTE];
    double got;
    if (ctx->rank == SLOW) nanosleep(&(struct timespec){0, 300000000}, NULL);
    mt_fill0(s, m->loss);
    mt_gather(s, m->loss_all, m->loss, MT_GROUP_WORLD, ctx->world, 8);
    mt_sum_parts_f64(s, m->loss_sum, m->loss_all);
    mt_host_read(s, MT_READ_LOSS, 0, m->loss_sum, &got);
}
TEST(the_slow_rank_is_named)
{
    mt_err e = {0};
    char want[160];
    double median, longest, times;
    if (!open_ranks("")) return;
    for (int i = 1; i <= 2; i++) {
        CHECK(mt_session_run(&t_.s, one_is_slow, &e) == MT_OK);
        mt_stragglers_step(&x_, &t_.s, &nodes_, i, i == 2, fields_);
        if (i == 1) CHECK_STR(fields_, "");
    }
    CHECK(sscanf(fields_, ", \"rank_s\": [%lf, %lf], ", &median, &longest) == 2);
    CHECK(longest >= 0.3 && longest < 30 &&
          median < longest / 2); /* a step; the others waited 0.3 s for it */
    snprintf(want, sizeof want, "\"stragglers\": [[%d, \"%.40s\", ", SLOW, mt_nodes_of(&nodes_, SLOW));
    const char *at = strstr(fields_, want);
    if (!CHECK(at)) printf("  %s\n", fields_);
    CHECK(at && sscanf(at + strlen(want), "%lf", &times) == 1 && times > 1.5);
    /* only what came after the last look */
    mt_stragglers_data(&x_, &t_.s, 1, 7.5);
    for (int i = 0; i < N; i++) mt_stragglers_data(&x_, &t_.s, i, 5);
    mt_stragglers_step(&x_, &t_.s, &nodes_, 3, true, fields_);
    snprintf(want, sizeof want, ", \"rank_s\": [5.000000, 12.500000], \"stragglers\": [[1, \"%.40s\", 2.50]]",
             mt_nodes_of(&nodes_, 1));
    CHECK_STR(fields_, want);
    close_ranks();
}

TEST(no_factor_no_look)
{
    if (!open_ranks("guard.straggler_factor=0")) return;
    mt_stragglers_data(&x_, &t_.s, 1, 5);
    mt_stragglers_step(&x_, &t_.s, &nodes_, 1, true, fields_);
    CHECK_STR(fields_, "");
    close_ranks();
}

/* The worst come first, as many as there is room for, and equal ones once each. */
TEST(the_worst_come_first)
{
    int rank[4];
    double times[4];
    if (!open_ranks("guard.straggler_factor=1.2")) return;
    static const double s[N] = {2, 1, 3, 1, 1.1};
    for (int i = 0; i < N; i++) mt_stragglers_data(&x_, &t_.s, i, 1000 * s[i]);
    mt_stragglers_step(&x_, &t_.s, &nodes_, 1, true, fields_);
    const char *at = strstr(fields_, "\"stragglers\": [");
    CHECK(at && sscanf(at, "\"stragglers\": [[%d, %*[^,], %lf], [%d, %*[^,], %lf]]", &rank[0], &times[0],
                       &rank[1], &times[1]) == 4);
    CHECK(rank[0] == 2 && rank[1] == 0);
    CHECK_CLOSE(times[0], 3 / 1.1, 0.01);
    CHECK_CLOSE(times[1], 2 / 1.1, 0.01);
    static const double pairs[N] = {1, 9, 1, 9, 1};
    for (int i = 0; i < N; i++) mt_stragglers_data(&x_, &t_.s, i, 1000 * pairs[i]);
    mt_stragglers_step(&x_, &t_.s, &nodes_, 2, true, fields_);
    at = strstr(fields_, "\"stragglers\": [");
    CHECK(at && sscanf(at, "\"stragglers\": [[%d, %*[^,], 9.00], [%d, %*[^,], 9.00]%*1[]]", &rank[0],
                       &rank[1]) == 2);
    CHECK(rank[0] == 1 && rank[1] == 3);
    close_ranks();
}

int main(void)
{
    RUN(the_slow_rank_is_named);
    RUN(no_factor_no_look);
    RUN(the_worst_come_first);
    return DONE();
}
