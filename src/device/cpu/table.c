#include "device/cpu/kernels.h"
#include "device/cpu/muon_ws.h"

mt_kernel *const mt_cpu_kernel[MT_N_OPS] = {
#define OP(name, kind, args, scalars, flops, bytes) mt_cpu_##name,
#define OP0(name, kind, args, flops, bytes) mt_cpu_##name,
#include "device/op.def"
#undef OP
#undef OP0
};

void mt_cpu_dev_init(struct mt_cpu_dev *d, enum mt_isa isa)
{
    d->isa = isa;
    d->gemm[MT_F32] = mt_gemm_of(isa, MT_F32);
    d->gemm[MT_BF16] = mt_gemm_of(isa, MT_BF16);
}

/* A part is worth some tens of microseconds: much more than it takes to hand it out. */
int mt_cpu_parts(const struct mt_call *c, int workers)
{
    enum { WORKER_PARTS = 8, MAX_PARTS = 64 };
    const double part_bytes = 256 << 10, part_flops = 2 << 20;
    const struct mt_op_info *f = &mt_op_info[c->op];
    if (f->kind != MT_KERNEL) return 1;
    if ((c->op == MT_OP_newton_schulz || c->op == MT_OP_eigen_basis) && mt_dim(c, 'B') > 0)
        return (int)mt_newton_schulz_lanes(mt_dim(c, 'B'));
    double parts = f->flops(c->dim, c->bytes, c->scalar) / part_flops +
                   f->bytes(c->dim, c->bytes, c->scalar) / part_bytes;
    int most = workers < MAX_PARTS / WORKER_PARTS ? WORKER_PARTS * workers : MAX_PARTS;
    return parts < 1 ? 1 : parts > most ? most : (int)parts;
}
