/* QK-clip's kernels: largest scores, and rows of heads scaled by them, against plain loops. */
#include "kernel_check.h"

TEST(largest_of_rows)
{
    double x[3 * 70], top[3] = {-1, 5, -3e38}, want[3];
    for (int h = 0; h < 3; h++) {
        want[h] = top[h];
        for (int n = 0; n < 70; n++) {
            x[h * 70 + n] = (double)(float)(sin(17.0 * h + n) - 2 * (h == 2));
            want[h] = fmax(want[h], x[h * 70 + n]);
        }
    }
    x[5] = (double)NAN; /* is passed over, as attention does */
    struct kc k = {.op = MT_OP_max_rows, .kernel = mt_cpu_max_rows};
    kc_arg(&k, MT_F32, 3, 0, 0, 0, top);
    kc_arg(&k, MT_F32, 3, 70, 0, 2, x);
    kc_run(&k);
    kc_check_equal(&k, 0, want);
    kc_release(&k);
}
TEST(largest_of_parts)
{
    double parts[4 * 50], want[50];
    for (int w = 0; w < 50; w++) {
        want[w] = -INFINITY;
        for (int r = 0; r < 4; r++) {
            parts[r * 50 + w] = (double)(float)(cos(3.0 * r + 1.7 * w) - 2);
            want[w] = fmax(want[w], parts[r * 50 + w]);
        }
    }
    struct kc k = {.op = MT_OP_max_parts, .kernel = mt_cpu_max_parts};
    kc_arg(&k, MT_F32, 50, 0, 0, 0, NULL);
    kc_arg(&k, MT_F32, 4, 50, 0, 1, parts);
    kc_run(&k);
    kc_check_equal(&k, 0, want);
    kc_release(&k);
}

struct heads {
    int64_t first, width, whole, per, of;
};
/* Rows of heads whose largest score is 8, and 1, where 2 may be. */
static void clip(struct heads h, int64_t rows, int64_t cols, const double *top, int64_t n_top)
{
    double *w = kc_random(MT_F32, rows * cols, 1, 3), *want = kc_new(rows * cols);
    for (int64_t r = 0; r < rows; r++) {
        const int64_t head = (h.first + r) / h.width, from = head / h.per * h.of;
        double most = top[from], g;
        for (int64_t i = from; i < from + h.of; i++) most = fmax(most, top[i]);
        g = most > 2 ? 2 / most : 1;
        for (int64_t c = 0; c < cols; c++)
            want[r * cols + c] = w[r * cols + c] * ((h.first + r) % h.width < h.whole ? g : sqrt(g));
    }
    struct kc k = {
        .op = MT_OP_qk_clip,
        .kernel = mt_cpu_qk_clip,
        .s = {{.f = 2}, {.i = h.first}, {.i = h.width}, {.i = h.whole}, {.i = h.per}, {.i = h.of}}};
    kc_arg(&k, MT_F32, rows, cols, 0, 3, w);
    kc_arg(&k, MT_F32, n_top, 0, 0, 0, top);
    kc_run(&k);
    kc_check_close(&k, 0, want, 2e-7);
    kc_release(&k);
    free(w), free(want);
}
TEST(rows_of_heads)
{
    const double top[] = {8, 1, 1, 1, 2.5, 3, 2, -7};
    clip((struct heads){0, 6, 0, 1, 1}, 48, 33, top, 8); /* as many keys as queries */
    clip((struct heads){9, 6, 2, 1, 1}, 20, 7, top,
         8); /* with rows that are scaled whole, from the middle of a head on */
    clip((struct heads){0, 5, 0, 2, 2}, 40, 7, top, 8);  /* queries of which two share a key */
    clip((struct heads){10, 5, 0, 1, 2}, 10, 7, top, 8); /* and their keys */
    clip((struct heads){3, 6, 0, 1, 4}, 9, 1, top, 8);   /* biases */
    clip((struct heads){0, 6, 0, 1, 1}, 0, 7, top, 8);
}
/* Nothing is changed at the bound and below it, by no bit. */
TEST(at_the_bound)
{
    const double top[] = {2, -1, -3e38};
    double *w = kc_random(MT_F32, 12 * 5, 1, 3);
    struct kc k = {.op = MT_OP_qk_clip,
                   .kernel = mt_cpu_qk_clip,
                   .s = {{.f = 2}, {.i = 0}, {.i = 4}, {.i = 1}, {.i = 1}, {.i = 1}}};
    kc_arg(&k, MT_F32, 12, 5, 0, 0, w);
    kc_arg(&k, MT_F32, 3, 0, 0, 0, top);
    kc_run(&k);
    kc_check_equal(&k, 0, w);
    kc_release(&k);
    free(w);
}

int main(void)
{
    mt_cpu_thread_setup();
    RUN(largest_of_rows);
    RUN(largest_of_parts);
    RUN(rows_of_heads);
    RUN(at_the_bound);
    return DONE();
}
