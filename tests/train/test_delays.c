/* test: timeout=120 variants=release,asan
 *
 * Eight ranks whose operations and host code are late at random: the same bits as undisturbed. 50 steps;
 * MT_TEST_STEPS=1000 in tests/slow/test_delays.sh. */
#include "ranks.h"

enum { WORLD = 8, SEEDS = 2, LATE_US = 150 };
#define TINY                                                                                                \
    "model.vocab=61 model.dim=16 model.layers=2 model.heads=2 model.kv_heads=1 model.head_dim=8 "           \
    "model.ffn=16 model.experts=8 model.top_k=2 model.expert_ffn=8 model.shared_ffn=8 model.first_dense=1 " \
    "model.score=sigmoid model.bias_rate=0.01 moe.buffer_factor=0.6 mesh.ep=2 mesh.replicas=2 "             \
    "train.seq_len=8 train.micro_batch=1 train.global_batch=8 train.loss_chunk=5 optim.warmup_steps=0 "     \
    "optim.lr=0.003 optim.decay_ratio=0 train.dtype=f32 muon.batch_bytes=1KiB "

static int64_t steps(void)
{
    const char *n = getenv("MT_TEST_STEPS");
#ifdef __SANITIZE_ADDRESS__
    return 5;
#endif
    return n ? atoll(n) : 50;
}

/* Bits after each step. */
static bool train(struct mt_exec_options o, uint64_t *bits, int64_t n)
{
    struct training t;
    bool ok = ranks_open(&t, TINY, WORLD) && ranks_executor(&t, o) && training_run(&t, mt_fill_step);
    for (int64_t i = 0; i < n && ok; i++) {
        ok = ranks_step(&t, i) && CHECK(t.s.rank[0].step.updated);
        bits[i] = ranks_bits(&t);
    }
    training_close(&t);
    return ok;
}

TEST(delays_change_no_bit)
{
    int64_t n = steps();
    uint64_t *want = calloc((size_t)n, sizeof *want), *got = calloc((size_t)n, sizeof *got);
    MT_ASSERT(want && got);
    bool ok = train((struct mt_exec_options){.workers = 1}, want, n);
    for (int64_t i = 1; i < n; i++) CHECK(want[i] != want[i - 1]);
    for (int seed = 1; seed <= (n > 50 ? 1 : SEEDS) && ok; seed++) {
        struct mt_exec_options o = {.workers = 2 + seed, .delay_seed = seed, .delay_us = LATE_US};
        int64_t same = 0;
        ok = train(o, got, n);
        while (same < n && got[same] == want[same]) same++;
        CHECK_INT(same, n);
    }
    printf("  %lld steps\n", (long long)n);
    free(want);
    free(got);
}

int main(void)
{
    RUN(delays_change_no_bit);
    return DONE();
}
