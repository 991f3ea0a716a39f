/* kernels.h: the cpu device's kernels: for each op of the table, mt_cpu_<op>, a pure function of its arguments.
 *
 * A kernel gets (part, parts) and does its share; all parts together do the op. How the work is cut never changes a
 * bit: reductions run in an order that depends on shapes alone. Kernels never allocate. */
#ifndef MT_DEVICE_CPU_KERNELS_H
#define MT_DEVICE_CPU_KERNELS_H
#include "device/cpu/gemm.h"
#include "device/cpu/isa.h"
#include "device/op.h"

struct mt_cpu_dev {
    enum mt_isa isa;
    const struct mt_gemm *gemm[2]; /* by dtype: MT_F32, MT_BF16 */
};
void mt_cpu_dev_init(struct mt_cpu_dev *d, enum mt_isa isa);

#define OP(name, kind, args, scalars, flops, bytes) mt_kernel mt_cpu_##name;
#define OP0(name, kind, args, flops, bytes) mt_kernel mt_cpu_##name;
#include "device/op.def"
#undef OP
#undef OP0

/* By op; a missing kernel does not link. */
extern mt_kernel *const mt_cpu_kernel[MT_N_OPS];

/* In how many parts a call is run by so many workers: enough for each to find another when one is late, and no more, since a large
 * part uses what it has packed longer. */
int mt_cpu_parts(const struct mt_call *c, int workers);

/* Share [first, last) of n for this part, in multiples of `grain`. */
static inline void mt_share(int64_t n, int64_t grain, int part, int parts, int64_t *first, int64_t *last)
{
    int64_t g = (n + grain - 1) / grain;
    *first = g * part / parts * grain;
    *last = g * (part + 1) / parts * grain;
    if (*last > n) *last = n;
    if (*first > n) *first = n;
}
#endif
