/* test: timeout=120 variants=release
 *
 * What a run really takes, by the system's account: its arenas, all of them, and no more besides than docs/memory.md says. */
#include <unistd.h>

#include "train/fit.h"
#include "training.h"

/* Pages of this process that are in memory, in bytes. */
static int64_t resident(void)
{
    long long size, pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!CHECK(f)) return 0;
    CHECK(fscanf(f, "%lld %lld", &size, &pages) == 2);
    fclose(f);
    return pages * sysconf(_SC_PAGESIZE);
}

static void batch(struct mt_session *s, int rank)
{
    const struct mt_batch *h = &s->rank[rank].model.host;
    const struct mt_ctx *c = &s->rank[rank].ctx;
    int32_t *tok = mt_address(c, h->tokens), *lab = mt_address(c, h->labels), *beg = mt_address(c, h->begin),
            *pos = mt_address(c, h->pos);
    for (int64_t i = 0; i < h->tokens.bytes / 4; i++) {
        tok[i] = (int32_t)(i * 7 % 97);
        lab[i] = (int32_t)(i * 3 % 97);
        beg[i] = (int32_t)(i / s->cfg->train_seq_len * s->cfg->train_seq_len % s->rank[rank].model.shape.N);
        pos[i] = (int32_t)(i % s->cfg->train_seq_len);
    }
}

static void run(const char *options, int world)
{
    struct mt_session s;
    mt_config cfg;
    mt_err e = {0};
    if (!CHECK(training_config(&cfg, options))) return;
    int64_t before = resident(), most = 0;
    mt_status st = mt_session_open(&s, &cfg, world, false, &e);
    int64_t opened = resident() - before, arenas = world * (s.plan.peak[0] + s.plan.peak[1]);
    if (st == MT_OK) st = mt_session_run(&s, mt_fill_step, &e);
    for (int step = 0; step < 4 && st == MT_OK; step++) {
        for (int r = 0; r < world; r++) batch(&s, r);
        st = mt_session_run(&s, mt_train_step, &e);
        if (resident() - before > most) most = resident() - before;
    }
    if (!CHECK(st == MT_OK)) printf("  %s\n", e.msg);
    /* Touched when opened: a step has no page left to ask for. */
    CHECK(opened >= arenas);
    if (!CHECK(most <= arenas + mt_fit_outside(&s)))
        printf("  %d ranks: %lld resident, arenas %lld, allowed besides %lld\n", world, (long long)most,
               (long long)arenas, (long long)mt_fit_outside(&s));
    printf(
        "  %3d ranks: arenas %7.2f MiB, %5.2f MiB besides when opened, %5.2f after 4 steps, %6.2f allowed\n",
        world, (double)arenas / (1 << 20), (double)(opened - arenas) / (1 << 20),
        (double)(most - arenas) / (1 << 20), (double)mt_fit_outside(&s) / (1 << 20));
    mt_session_close(&s);
    /* And it is given back, but for what the C library keeps. */
    CHECK(resident() - before <= most - arenas + (8 << 20));
}

TEST(one_rank)
{
    run(TRAINING_BASE TRAINING_MOE "model.dim=256 model.ffn=1024 model.expert_ffn=256 train.seq_len=128 ", 1);
}
TEST(two_workers_and_eight_ranks)
{
    run(TRAINING_BASE TRAINING_MOE "train.global_batch=16 model.dim=128 device.workers=2 ", 8);
}
TEST(many_ranks)
{
    run(TRAINING_BASE TRAINING_MOE "train.global_batch=128 ", 64);
}

int main(void)
{
    RUN(one_rank);
    RUN(two_workers_and_eight_ranks);
    RUN(many_ranks);
    return DONE();
}
