/* isa.h: instruction sets of the CPU kernels, and which of them this machine, and its kernel, allow. */
#ifndef MT_DEVICE_CPU_ISA_H
#define MT_DEVICE_CPU_ISA_H
#include "base/status.h"

/* In order of preference within one architecture. Every one of them also does f32. */
enum mt_isa {
    MT_ISA_SCALAR,
    MT_ISA_NEON,
    MT_ISA_AVX2,
    MT_ISA_AVX512,
    MT_ISA_AVX512_BF16,
    MT_ISA_AMX_BF16,
    MT_N_ISAS
};

const char *mt_isa_name(enum mt_isa isa); /* "avx512-bf16" */

/* A name of mt_isa_name, or "auto" for mt_isa_best(). CONFIG if the name is unknown; whether the machine
 * has it is mt_isa_available's question, since a plan may be made for another machine. */
MT_MUST_USE mt_status mt_isa_parse(const char *name, enum mt_isa *isa, mt_err *err);

/* Whether kernels of this set can run in this process; if not, *why_not (may be NULL) gets a phrase.
 * For AMX this asks the kernel for permission to use tiles, which is then held by the whole process:
 * call it before worker threads get small alternate signal stacks. */
bool mt_isa_available(enum mt_isa isa, const char **why_not);
/* The last available one; but avx512, which gives the same bits as avx512-bf16, where its instructions turn out to be faster. Takes
 * some microseconds. */
enum mt_isa mt_isa_best(void);

/* Flushes denormals to zero, as operands and as results, in the calling thread. bf16 instructions always
 * do; without this the vector code around them would be slow on denormals and differ in bits. */
void mt_cpu_thread_setup(void);
#endif
