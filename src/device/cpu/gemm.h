/* gemm.h: matrix products of the CPU device.
 *
 * Weights are multiplied in a packed working form. A weight W[O][I] (row-major, O outputs) is cut in panels
 * of 32 rows; a panel is contiguous and holds [k][32] f32, or [k/2][32][2] bf16 (pairs of k side by side), k
 * running over the I inputs, padded with zeros to k_align; O is padded with zeros to whole panels. So panel p
 * holds exactly rows 32p..32p+31, and a shard cut at panels is contiguous in packed and in canonical form
 * alike.
 *
 * Bits. An element of a result depends on its own row of A and column of B only: not on part and parts, not
 * on how rows are cut into calls or groups, not on the other rows. The order of a sum is fixed by the
 * instruction set: k ascending, each step a fused multiply-add (scalar: a product, then a sum);
 *   bf16, all but amx and scalar: pairs, acc = fma(a0, b0, fma(a1, b1, acc)), which is vdpbf16ps, so avx2,
 *   avx512 and avx512-bf16 give equal bits in threads where denormals are flushed (mt_cpu_thread_setup);
 *   amx: groups of 32 k (tdpbf16ps): acc = acc + (even chain + odd chain), each chain from +0.
 * Sums start at +0, or at C when accumulating; add and bias come after the sum.
 *
 * Every function takes part of parts and does that share of the work; together the parts do all of it,
 * writing disjoint elements. Nothing outside the matrices named is read or written. */
#ifndef MT_DEVICE_CPU_GEMM_H
#define MT_DEVICE_CPU_GEMM_H
#include "base/dtype.h"
#include "device/cpu/isa.h"

enum { MT_PANEL = 32 };

/* C[m][n] (+)= A[m][k] B (+ add[m][n]) (+ bias[n]). Grouped: rows offset[e]..offset[e+1] of A, C and add,
 * counted from the pointers given, are multiplied with the packed matrix at b + e * b_stride; offsets never
 * decrease. A range of groups is a call with shifted offset, b and bias. */
struct mt_gemm_mul {
    void *c;                 /* c_dtype */
    const void *a;           /* operand dtype */
    const void *b;           /* packed, n outputs and k inputs; 64-byte aligned for speed */
    const void *add;         /* operand dtype, or NULL; may be c itself */
    const float *bias;       /* one per column, or NULL */
    int64_t m, n, k;         /* m counts only if offset is NULL */
    int64_t lda, ldc, ldadd; /* elements from row to row; for a, multiples of 512 bytes are a little slower */
    mt_dtype c_dtype;        /* MT_F32, or the operand dtype */
    bool accumulate;         /* C += ...; MT_F32 only */
    int64_t groups;          /* with offset: number of groups */
    const int64_t *offset;   /* groups + 1 rows, or NULL: one dense product */
    int64_t b_stride;        /* bytes between the packed matrices of two groups */
    int64_t bias_stride;     /* elements between the biases of two groups */
};

/* dW[o][i] (+)= dY[m][o]^T X[m][i], f32. Rows are summed in groups of 32 counted from the first row of the
 * call (or of the group): rows [0, 64) and then [64, 128) with accumulate give the bits of one call for [0,
 * 128). A group without rows sets its dW to zero, or leaves it alone when accumulating. */
struct mt_gemm_tn {
    float *dw;
    const void *dy, *x; /* operand dtype */
    int64_t m, o, i;    /* m counts only if offset is NULL */
    int64_t lddw, lddy, ldx;
    bool accumulate;
    int64_t groups;
    const int64_t *offset; /* as in mt_gemm_mul, rows of dy and x */
    int64_t dw_stride;     /* elements between the dW of two groups */
};

struct mt_att_kernels;

/* One table per instruction set and operand dtype; constant. */
struct mt_gemm {
    enum mt_isa isa; /* of the kernels in it */
    mt_dtype dtype;  /* of the operands: MT_F32 or MT_BF16 */
    int k_align;
    /* Canonical rows W[o][i] (w_dtype MT_F32 or MT_BF16; f32 to bf16 rounds to nearest even) to the form for
     * Y = X W^T. Parts share the panels. w_dtype MT_BF16 with f32 operands widens. */
    void (*pack_nt)(void *out, const void *w, mt_dtype w_dtype, int64_t ldw, int64_t o, int64_t i, int part,
                    int parts);
    /* That form to the form for dX = dY W: panels of 32 columns of W, k running over o. */
    void (*pack_nn)(void *out, const void *nt, int64_t o, int64_t i, int part, int parts);
    /* The inverse of pack_nt: canonical rows, in the operand dtype. */
    void (*unpack_nt)(void *w, const void *nt, int64_t ldw, int64_t o, int64_t i, int part, int parts);
    /* scratch: mt_gemm_scratch_bytes() bytes of the calling worker, 64-byte aligned, contents free before and
     * after. */
    void (*mul)(const struct mt_gemm_mul *g, int part, int parts, void *scratch);
    void (*mul_tn)(const struct mt_gemm_tn *g, int part, int parts, void *scratch);
    /* Attention by more than these products (attention.h), or NULL. */
    const struct mt_att_kernels *attention;
};

/* NULL if the program was built for an architecture without this set, or dtype is no operand dtype. That the
 * machine can run it is mt_isa_available's answer. */
const struct mt_gemm *mt_gemm_of(enum mt_isa isa, mt_dtype dtype);

/* For planners on any machine: the multiple to which k is padded, and the bytes of a packed weight with
 * `outputs` outputs and `inputs` inputs (the nn form of W[O][I] has I outputs). Always a multiple of 64
 * bytes. */
int mt_gemm_k_align(enum mt_isa isa, mt_dtype dtype);
int64_t mt_gemm_packed_bytes_for(enum mt_isa isa, mt_dtype dtype, int64_t outputs, int64_t inputs);
int64_t mt_gemm_packed_bytes(const struct mt_gemm *g, int64_t outputs, int64_t inputs);

int64_t mt_gemm_scratch_bytes(void);
#endif
