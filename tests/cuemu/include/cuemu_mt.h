/* cuemu_mt.h: the macros and PTX wrappers of cuda/include/mt_cuda.cuh, emulated. Fragment layouts are
 * those of the PTX manual; wrappers.cu checks them against plain loops, here and, built by nvcc, on a GPU. */
#ifndef CUEMU_MT_H
#define CUEMU_MT_H

/* Arguments are converted and copied at the launch, as <<<>>> does. */
#define MT_LAUNCH(kernel, grid, block, smem, stream, ...) \
    ((void)::cuemu::launch(#kernel, grid, block, smem, stream, kernel, __VA_ARGS__), cudaGetLastError())
#define MT_SHARED(name, ...)                                           \
    static char name##_key_;                                           \
    mt_shape_of<__VA_ARGS__> &name = *static_cast<mt_shape_of<__VA_ARGS__> *>( \
        ::cuemu::static_smem(&name##_key_, sizeof(mt_shape_of<__VA_ARGS__>), alignof(mt_shape_of<__VA_ARGS__>)))
#define MT_DYN_SMEM(type, name) type *name = (type *)::cuemu::dyn_smem()
#define MT_SPIN_YIELD() ::cuemu::yield()
#define MT_DEVICE static inline __attribute__((unused))

namespace cuemu
{
static inline float bf16_bits(uint32_t h)
{
    return bits<float>(h << 16);
}
struct MmaArg {
    float *d;
    const uint32_t *a, *b;
};
/* m16n8k16, row x col, fp32 accumulate: lane l holds group g = l/4, pair t = l%4. */
CUEMU_NO_TSAN inline void mma16816_exec(void *const *p, unsigned mask)
{
    float A[16][16], B[16][8], C[16][8];
    if (mask != MT_WARP_ALL) fault(__FILE__, __LINE__, "mma.sync with mask %08x", mask);
    for (int l = 0; l < 32; l++) {
        const MmaArg *m = (const MmaArg *)p[l];
        int g = l >> 2, t = (l & 3) * 2;
        for (int r = 0; r < 4; r++) {
            int row = g + (r & 1) * 8, k = t + (r >> 1) * 8;
            A[row][k] = bf16_bits(m->a[r] & 0xffff);
            A[row][k + 1] = bf16_bits(m->a[r] >> 16);
        }
        for (int r = 0; r < 2; r++) {
            B[t + r * 8][g] = bf16_bits(m->b[r] & 0xffff);
            B[t + r * 8 + 1][g] = bf16_bits(m->b[r] >> 16);
        }
        for (int r = 0; r < 4; r++) C[g + (r >> 1) * 8][t + (r & 1)] = m->d[r];
    }
    for (int i = 0; i < 16; i++)
        for (int k = 0; k < 16; k++)
            for (int j = 0; j < 8; j++) C[i][j] += A[i][k] * B[k][j];
    for (int l = 0; l < 32; l++) {
        int g = l >> 2, t = (l & 3) * 2;
        for (int r = 0; r < 4; r++) ((MmaArg *)p[l])->d[r] = C[g + (r >> 1) * 8][t + (r & 1)];
    }
}
struct LdmArg {
    uint32_t row[4];
    uint32_t r[4];
};
template <bool TRANS> CUEMU_NO_TSAN inline void ldmatrix_x4_exec(void *const *p, unsigned mask)
{
    if (mask != MT_WARP_ALL) fault(__FILE__, __LINE__, "ldmatrix with mask %08x", mask);
    for (int l = 0; l < 32; l++)
        for (int m = 0; m < 4; m++) {
            uint32_t v;
            if (!TRANS)
                v = ((LdmArg *)p[m * 8 + l / 4])->row[l % 4];
            else {
                int r = l % 4 * 2, c = l / 4;
                const LdmArg *x = (const LdmArg *)p[m * 8 + r], *y = (const LdmArg *)p[m * 8 + r + 1];
                uint32_t lo = x->row[c / 2] >> c % 2 * 16 & 0xffff, hi = y->row[c / 2] >> c % 2 * 16 & 0xffff;
                v = lo | hi << 16;
            }
            ((LdmArg *)p[l])->r[m] = v;
        }
}
template <bool TRANS> inline void ldmatrix_x4(uint32_t (&r)[4], const void *smem, CUEMU_LOC)
{
    LdmArg a;
    check_align(smem, 16, "ldmatrix", CUEMU_AT);
    for (int i = 0; i < 4; i++)
        a.row[i] = ((const uint32_t *)smem)[i]; /* the lane's own row: a real, checked read */
    collective(MT_WARP_ALL, ldmatrix_x4_exec<TRANS>, &a, TRANS ? "ldmatrix.x4.trans" : "ldmatrix.x4",
               CUEMU_AT);
    for (int i = 0; i < 4; i++) r[i] = a.r[i];
}
} // namespace cuemu

MT_DEVICE void mt_mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], CUEMU_LOC)
{
    cuemu::MmaArg m{d, a, b};
    cuemu::collective(MT_WARP_ALL, cuemu::mma16816_exec, &m, "mma.m16n8k16", CUEMU_AT);
}
MT_DEVICE void mt_ldmatrix_x4(uint32_t (&r)[4], const void *smem, CUEMU_LOC)
{
    cuemu::ldmatrix_x4<false>(r, smem, CUEMU_AT);
}
MT_DEVICE void mt_ldmatrix_x4_trans(uint32_t (&r)[4], const void *smem, CUEMU_LOC)
{
    cuemu::ldmatrix_x4<true>(r, smem, CUEMU_AT);
}
/* The copy is made only when the wait that promises it returns, or at once, by policy. */
MT_DEVICE void mt_cp_async16(void *smem, const void *gmem, bool ok = true, CUEMU_LOC)
{
    cuemu::cp_async(smem, gmem, 16, ok ? 16 : 0, CUEMU_AT);
}
MT_DEVICE void mt_cp_async_commit()
{
    cuemu::cp_async_commit();
}
template <int KEEP> MT_DEVICE void mt_cp_async_wait()
{
    cuemu::cp_async_wait(KEEP);
}
MT_DEVICE void mt_bar_sync(int id, int threads, CUEMU_LOC)
{
    cuemu::barrier(id, threads, CUEMU_AT);
}
MT_DEVICE void mt_bar_arrive(int id, int threads, CUEMU_LOC)
{
    cuemu::barrier_arrive(id, threads, CUEMU_AT);
}
MT_DEVICE float mt_exp2(float x)
{
    return exp2f(x);
}
#endif
