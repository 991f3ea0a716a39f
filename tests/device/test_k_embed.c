/* Embedding rows and their gradient. */
#include "kernel_check.h"

static const int64_t sizes[][4] = {{1, 1, 1, 0}, {40, 11, 37, 3}, {9, 3, 1030, 0}, {0, 5, 16, 0}};

static double *tokens(int64_t N, int64_t V)
{
    double *tok = kc_new(N);
    uint64_t seed = 8;
    for (int64_t n = 0; n < N; n++) tok[n] = floor((kc_rand(&seed) + 1) / 2 * (double)V);
    if (N > 1) tok[0] = (double)V - 1, tok[1] = 0;
    return tok;
}
TEST(forward)
{
    KC_FOR_DTYPES(t)
    {
        for (int s = 0; s < 4; s++) {
            int64_t N = sizes[s][0], V = sizes[s][1], D = sizes[s][2], pad = sizes[s][3];
            double *w = kc_random(t, V * D, 1, 1), *tok = tokens(N, V), *want = kc_new(N * D);
            struct kc k = {.op = MT_OP_embed_fwd, .kernel = mt_cpu_embed_fwd};
            for (int64_t i = 0; i < N * D; i++) want[i] = w[(int64_t)tok[i / D] * D + i % D];
            kc_arg(&k, t, N, D, 0, pad, NULL);
            kc_arg(&k, MT_I32, N, 0, 0, 0, tok);
            kc_arg(&k, t, V, D, 0, pad + 1, w);
            kc_run(&k);
            kc_check_equal(&k, 0, want);
            kc_release(&k);
            free(w), free(tok), free(want);
        }
    }
}
TEST(backward)
{
    KC_FOR_DTYPES(t)
    {
        for (int s = 0; s < 4; s++) {
            int64_t N = sizes[s][0], V = sizes[s][1], D = sizes[s][2], pad = sizes[s][3];
            double *dw = kc_random(MT_F32, V * D, 1, 1), *tok = tokens(N, V), *dx = kc_random(t, N * D, 1, 2);
            struct kc k = {.op = MT_OP_embed_bwd, .kernel = mt_cpu_embed_bwd};
            kc_arg(&k, MT_F32, V, D, 0, pad, dw);
            kc_arg(&k, t, N, D, 0, pad + 1, dx);
            kc_arg(&k, MT_I32, N, 0, 0, 0, tok);
            kc_run(&k);
            for (int64_t i = 0; i < N * D; i++) { /* token by token in f32: exactly */
                double *d = &dw[(int64_t)tok[i / D] * D + i % D];
                *d = (double)((float)*d + (float)dx[i]);
            }
            kc_check_equal(&k, 0, dw);
            kc_release(&k);
            free(dw), free(tok), free(dx);
        }
    }
}

int main(void)
{
    RUN(forward);
    RUN(backward);
    return DONE();
}
