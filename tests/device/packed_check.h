/* packed_check.h: packed weights as arguments of kernel_check.h, and the instruction sets of this machine in
 * turn. */
#ifndef MT_TESTS_PACKED_CHECK_H
#define MT_TESTS_PACKED_CHECK_H
#include "kernel_check.h"

/* w [E, O, I] (E = 0: [O, I]) of doubles as dtype holds them, packed one by one, NT or NN, `gap` bytes
 * between them. */
static inline void kc_packed(struct kc *k, const struct mt_gemm *gemm, enum mt_format format, int64_t E,
                             int64_t O, int64_t I, int64_t gap, const double *w)
{
    int64_t one = mt_gemm_packed_bytes(gemm, O, I), nn = mt_gemm_packed_bytes(gemm, I, O);
    int64_t stride = (format == MT_PACKED_NN ? nn : one) + gap, n = E ? E : 1;
    struct kc_buf *b = &k->b[k->n];
    b->bytes = n * stride;
    size_t all = (size_t)((b->bytes + 2 * KC_GUARD + 63) / 64 * 64);
    b->mem = aligned_alloc(64, all);
    b->start = aligned_alloc(64, all);
    memset(b->start, KC_BYTE, all);
    float *rows = malloc((size_t)(O * I + 1) * sizeof *rows);
    void *nt = aligned_alloc(64, (size_t)one + 64);
    for (int64_t e = 0; w && e < n; e++) {
        unsigned char *at = b->start + KC_GUARD + e * stride;
        for (int64_t i = 0; i < O * I; i++) rows[i] = (float)w[e * O * I + i];
        gemm->pack_nt(format == MT_PACKED_NN ? nt : at, rows, MT_F32, I, O, I, 0, 1);
        if (format == MT_PACKED_NN) gemm->pack_nn(at, nt, O, I, 0, 1);
    }
    free(rows);
    free(nt);
    k->v[k->n] = (mt_view){.row = k->n,
                           .dtype = (uint8_t)gemm->dtype,
                           .nd = E ? 3 : 2,
                           .format = (uint8_t)format,
                           .bytes = b->bytes - gap,
                           .dim = {E ? E : O, E ? O : I, E ? I : 0},
                           .ld = I,
                           .stride = stride};
    k->n++;
}

/* f for every instruction set of this machine and both types. */
static inline void kc_each_isa(void (*f)(const struct mt_cpu_dev *dev, mt_dtype t))
{
    for (int isa = 0; isa < MT_N_ISAS; isa++) {
        struct mt_cpu_dev dev;
        if (!mt_isa_available((enum mt_isa)isa, NULL)) continue;
        mt_cpu_dev_init(&dev, (enum mt_isa)isa);
        KC_FOR_DTYPES(t) f(&dev, t);
        if (check_.this_failed) printf("  with %s\n", mt_isa_name((enum mt_isa)isa));
    }
}
#endif
