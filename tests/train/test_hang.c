/* Who is missing when a job does not go on, from where its ranks stand. */
#include "check.h"
#include "train/hang.h"
#include "train/watchdog.h"

enum { N = 4 };
static struct mt_hang_state state_[N];
static struct mt_mesh mesh_;

/* Four ranks in a step, two replicas of two, none of which waits; every rank has entered two gathers of its shard group. */
static void begin(void)
{
    mt_err e = {0};
    CHECK(mt_mesh_init(&mesh_, N, 2, 1, N, &e) == MT_OK);
    memset(state_, 0, sizeof state_);
    for (int r = 0; r < N; r++) {
        state_[r] = (struct mt_hang_state){.answered = 1,
                                           .rank = r,
                                           .phase = MT_PHASE_STEP,
                                           .peer = -1,
                                           .step = 5,
                                           .calls = 10,
                                           .stands = 1};
        snprintf(state_[r].node, sizeof state_[r].node, "n%d", r / 2);
        state_[r].stand.rank = r;
        state_[r].stand.run = 7;
        state_[r].stand.entered[MT_GROUP_SHARD][MT_GATHER] = 2;
    }
}
static void meets(int r, int group, int stream, int64_t seq)
{
    struct mt_rank_stand *t = &state_[r].stand;
    t->stream[stream] = (struct mt_stand_stream){
        .kind = MT_STAND_MEETS,
        .seq = 9,
        .op = MT_OP_gather,
        .what = {.seq = seq, .op = MT_OP_gather, .group = (uint8_t)group, .stream = (uint8_t)stream},
        .members = 2};
    t->entered[group][stream] = seq;
}
static int missing_[N];
static char why_[MT_HANG_WHY];
static int missing(void)
{
    return mt_hang_missing(state_, N, &mesh_, missing_, why_);
}

TEST(nobody_waits)
{
    begin();
    CHECK_INT(missing(), 0);
    CHECK_STR(why_, "");
}

TEST(a_rank_that_is_late_to_a_collective)
{
    begin();
    meets(1, MT_GROUP_SHARD, MT_GATHER, 3);
    CHECK_INT(missing(), 1);
    CHECK_INT(missing_[0], 0);
    CHECK_STR(why_, "rank 0 (node n0) has not entered gather of the shard group, stream gather, number 3, "
                    "where rank 1 waits");
    state_[0].stand.entered[MT_GROUP_SHARD][MT_GATHER] = 3; /* now it has, and may be slow to move */
    CHECK_INT(missing(), 0);
    state_[0].stand.entered[MT_GROUP_SHARD][MT_GATHER] = 9;
    state_[0].stand.run = 6; /* of the run before */
    CHECK_INT(missing(), 1);
    state_[0].stand.run = 8;
    CHECK_INT(missing(), 0);
}

/* Rank 1 waits for 0, 2 and 3 for all: only the one that waits for nobody is to blame. */
TEST(a_chain_of_waiting_ends_at_its_cause)
{
    begin();
    meets(1, MT_GROUP_SHARD, MT_GATHER, 3);
    meets(2, MT_GROUP_WORLD, MT_COMPUTE, 1);
    meets(3, MT_GROUP_WORLD, MT_COMPUTE, 1);
    CHECK_INT(missing(), 1);
    CHECK_INT(missing_[0], 0);
}

TEST(ranks_in_a_circle_are_all_told)
{
    begin();
    meets(0, MT_GROUP_SHARD, MT_GATHER, 3);
    meets(1, MT_GROUP_SHARD, MT_REDUCE, 1);
    CHECK_INT(missing(), 2);
    CHECK(missing_[0] == 0 && missing_[1] == 1);
}

/* A rank whose compute stream is stuck in a kernel, while its gathers are ahead of everybody's; and one that has entered what all
 * are in, but moves nothing. */
TEST(a_rank_at_work_is_told_from_those_that_wait)
{
    begin();
    meets(0, MT_GROUP_SHARD, MT_COMPUTE, 1);
    meets(1, MT_GROUP_SHARD, MT_GATHER, 3);
    CHECK_INT(missing(), 2);
    state_[1].stand.working = true;
    CHECK_INT(missing(), 1);
    CHECK_INT(missing_[0], 1);
    CHECK_STR(why_, "rank 1 (node n0) is still at work and has not entered gather of the shard group, stream "
                    "compute, number 1, where rank 0 waits");
    begin();
    for (int r = 0; r < N; r++) meets(r, MT_GROUP_WORLD, MT_REDUCE, 1);
    CHECK_INT(missing(), 0);
    CHECK_STR(why_, "all of its group have entered gather of the world group, stream reduce, number 1, where "
                    "rank 0 waits, and it does not end");
    state_[2].stand.working = true;
    CHECK_INT(missing(), 1);
    CHECK_STR(why_, "rank 2 (node n1) is still at work");
}

TEST(a_silent_rank_comes_first)
{
    begin();
    meets(1, MT_GROUP_SHARD, MT_GATHER, 3);
    state_[3].answered = 0;
    CHECK_INT(missing(), 2);
    CHECK(missing_[0] == 3 && missing_[1] == 0);
    CHECK_STR(
        why_,
        "rank 3 (node n1) does not answer, its process is stopped or stuck in MPI, or its node is lost");
}

TEST(calls_between_processes)
{
    begin();
    for (int r = 0; r < N; r++)
        if (r != 2) snprintf(state_[r].call, sizeof state_[r].call, "a broadcast"), state_[r].calls = 11;
    CHECK_INT(missing(), 1);
    CHECK_STR(
        why_,
        "rank 2 (node n1) has not entered a broadcast between the processes, call 11, where rank 0 waits");
    begin();
    snprintf(state_[1].call, sizeof state_[1].call, "receiving");
    state_[1].peer = 3;
    CHECK_INT(missing(), 1);
    CHECK_INT(missing_[0], 3);
}

TEST(a_rank_is_printed)
{
    char *text = NULL;
    size_t bytes = 0;
    begin();
    meets(1, MT_GROUP_SHARD, MT_GATHER, 3);
    state_[1].stand.stream[MT_COMPUTE] =
        (struct mt_stand_stream){.kind = MT_STAND_WAITS, .seq = 4, .ev = {MT_GATHER, 6}};
    state_[1].stand.n_last = MT_STAND_LAST + 1;
    for (int i = 0; i < MT_STAND_LAST; i++)
        state_[1].stand.last[i] = (struct mt_collective){.seq = i ? i : MT_STAND_LAST, .op = MT_OP_gather};
    FILE *f = open_memstream(&text, &bytes);
    mt_hang_print(f, &state_[1], true);
    fclose(f);
    CHECK(strstr(text, "rank 1, node n0: a step, step 5, for 0.0 s; host code runs\n"));
    CHECK(strstr(text, "stream compute: waits for operation 6 of stream gather\n"));
    CHECK(strstr(text, "stream gather: operation 9, gather on group 1, stream gather, number 3: "));
    CHECK(strstr(text, "    before: gather on group 0, stream compute, number 1: "));
    CHECK(strstr(text, "    last:   gather on group 0, stream compute, number 8: "));
    free(text);
}

int main(void)
{
    RUN(nobody_waits);
    RUN(a_rank_that_is_late_to_a_collective);
    RUN(a_chain_of_waiting_ends_at_its_cause);
    RUN(ranks_in_a_circle_are_all_told);
    RUN(a_rank_at_work_is_told_from_those_that_wait);
    RUN(a_silent_rank_comes_first);
    RUN(calls_between_processes);
    RUN(a_rank_is_printed);
    return DONE();
}
