/* A bit that flips in one replica's weights is found, with its rank; and nothing else is. */
#include "ranks.h"
#include "train/replicas.h"

#define OPTIONS                                                                                              \
    TRAINING_BASE TRAINING_MOE                                                                               \
        "train.global_batch=12 train.micro_batch=1 model.experts=8 mesh.ep=2 guard.replica_hash_interval=1 " \
        "device.workers=2 "

static struct training t_;
static struct mt_replicas x_;
static struct mt_nodes nodes_;
static struct mt_job job_;
static bool open_ranks(const char *options, int world)
{
    mt_err e = {0};
    if (!ranks_open(&t_, options, world)) return false;
    job_ = mt_job_alone(world);
    return CHECK(mt_nodes_open(&nodes_, &job_, &e) == MT_OK) &&
           CHECK(mt_replicas_open(&x_, &t_.s, &e) == MT_OK) &&
           CHECK(mt_session_run(&t_.s, mt_fill_step, &e) == MT_OK);
}
static void close_ranks(void)
{
    mt_replicas_close(&x_);
    mt_nodes_close(&nodes_);
    mt_session_close(&t_.s);
}
static mt_status check(int64_t step, mt_err *e)
{
    *e = (mt_err){0};
    return mt_replicas_check(&x_, &t_.s, &nodes_, step, e);
}
/* The last byte of what the rank holds of the last tensor whose unit has experts, or has none. */
static unsigned char *byte_of(int rank, bool experts)
{
    const struct mt_session_rank *r = &t_.s.rank[rank];
    const struct mt_store *st = &r->model.store;
    for (int t = st->n_tensors - 1; t >= 0; t--) {
        mt_view v = mt_store_local_state(st, t, MT_STATE_MASTER);
        if (st->unit[st->matrix[st->tensor[t].matrix].unit].experts != experts ||
            !mt_store_local(st, t).parts)
            continue;
        v = mt_view_part(v, mt_store_local(st, t).parts - 1, 1);
        if (v.bytes) return (unsigned char *)mt_address(&r->ctx, v) + v.bytes - 1;
    }
    return NULL;
}

TEST(replicas_stay_alike)
{
    mt_err e;
    if (!open_ranks(OPTIONS "mesh.replicas=2", 4)) return;
    CHECK_INT(check(0, &e), MT_OK);
    for (int i = 0; i < 2; i++) {
        ranks_batch(&t_, i);
        CHECK(mt_session_run(&t_.s, mt_train_step, &e) == MT_OK);
        CHECK_INT(check(i + 1, &e), MT_OK);
    }
    CHECK_INT(x_.good, 2);
    close_ranks();
}

/* Every bit counts, and it is found as long as it is there. */
TEST(a_flipped_bit_is_found)
{
    mt_err e;
    if (!open_ranks(OPTIONS "mesh.replicas=2", 4)) return;
    for (int rank = 0; rank < 4; rank++)
        for (int experts = 0; experts < 2; experts++)
            for (int bit = 0; bit < 8; bit += 7) {
                unsigned char *p = byte_of(rank, experts);
                char want[80];
                if (!CHECK(p)) continue;
                CHECK_INT(check(3, &e), MT_OK);
                *p ^= (unsigned char)(1 << bit);
                CHECK_INT(check(4, &e), MT_CORRUPT);
                *p ^= (unsigned char)(1 << bit);
                /* of two nobody knows which is right: the second is named */
                snprintf(want, sizeof want, "rank %d (node %s) holds other weights than rank %d (node",
                         rank % 2 + 2, mt_nodes_of(&nodes_, 0), rank % 2);
                if (!CHECK(strstr(e.msg, want))) printf("  %s\n", e.msg);
                CHECK(!strncmp(e.msg, "after step 4, the ", 18) &&
                      strstr(e.msg, experts ? "the experts of block 2 is" : "the head is"));
                CHECK(strstr(e.msg, "no majority") && strstr(e.msg, "all were alike after step 3") &&
                      strstr(e.msg, "; 0 more"));
            }
    CHECK_INT(check(5, &e), MT_OK);
    close_ranks();
}

TEST(of_three_the_odd_one_is_named)
{
    mt_err e;
    if (!open_ranks(OPTIONS "mesh.replicas=3", 6)) return;
    for (int rank = 0; rank < 6; rank++) {
        unsigned char *p = byte_of(rank, false), *q = byte_of(rank, true);
        char want[40];
        *p ^= 1;
        *q ^= 1;
        CHECK_INT(check(1, &e), MT_CORRUPT);
        *p ^= 1;
        *q ^= 1;
        snprintf(want, sizeof want, ": rank %d (node ", rank);
        CHECK(strstr(e.msg, want) && strstr(e.msg, "and most others; 1 more units"));
    }
    close_ranks();
}

TEST(one_replica_has_nothing_to_compare_with)
{
    mt_err e;
    mt_config c;
    CHECK(!training_config(&c, OPTIONS "mesh.replicas=1"));
    if (!open_ranks(TRAINING_BASE "train.global_batch=12 train.micro_batch=1", 2)) return;
    *byte_of(1, false) ^= 1;
    CHECK_INT(check(1, &e), MT_OK);
    CHECK_INT(x_.good, -1);
    close_ranks();
}

int main(void)
{
    RUN(replicas_stay_alike);
    RUN(a_flipped_bit_is_found);
    RUN(of_three_the_odd_one_is_named);
    RUN(one_replica_has_nothing_to_compare_with);
    return DONE();
}
