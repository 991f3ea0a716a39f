#include "device/cpu/isa.h"

#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <xmmintrin.h>
#endif

static const char *const names[MT_N_ISAS] = {"scalar", "neon", "avx2", "avx512", "avx512-bf16", "amx-bf16"};

const char *mt_isa_name(enum mt_isa isa)
{
    return (unsigned)isa < MT_N_ISAS ? names[isa] : "unknown";
}

mt_status mt_isa_parse(const char *name, enum mt_isa *isa, mt_err *err)
{
    if (!strcmp(name, "auto")) {
        *isa = mt_isa_best();
        return MT_OK;
    }
    for (int i = 0; i < MT_N_ISAS; i++) {
        if (!strcmp(name, names[i])) {
            *isa = (enum mt_isa)i;
            return MT_OK;
        }
    }
    MT_FAIL(err, MT_CONFIG,
            "choosing CPU kernels: \"%s\" is no instruction set; use auto, scalar, neon, avx2, avx512, "
            "avx512-bf16 or amx-bf16",
            name);
}

#if defined(__x86_64__)
enum { ARCH_GET_XCOMP_PERM = 0x1022, ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };

/* XCR0: the register state the operating system saves. */
static uint64_t saved_state(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1)) return 0;
    __asm__("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    return (uint64_t)d << 32 | a;
}

/* Fails on old kernels, under a seccomp filter, or when a thread's alternate signal stack is too small for
 * the larger signal frame; never fatal, another instruction set is taken. */
static const char *amx_missing(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d >> 24 & 1) || !(d >> 22 & 1))
        return "the processor has no AMX tiles with bf16";
    if ((saved_state() >> 17 & 3) != 3) return "the operating system does not save AMX tiles";
    if (syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA))
        return "the kernel refused permission to use AMX tiles";
    unsigned long granted = 0;
    if (syscall(SYS_arch_prctl, ARCH_GET_XCOMP_PERM, &granted) || !(granted >> XFEATURE_XTILEDATA & 1))
        return "the kernel did not grant permission to use AMX tiles";
    return NULL;
}

/* __builtin_cpu_supports also checks that the operating system saves the registers. */
static const char *missing(enum mt_isa isa)
{
    switch (isa) {
    case MT_ISA_SCALAR: return NULL;
    case MT_ISA_AVX2:
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")
                   ? NULL
                   : "the processor has no AVX2 with FMA";
    case MT_ISA_AVX512:
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                       __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")
                   ? missing(MT_ISA_AVX2)
                   : "the processor has no AVX-512 F, BW, VL and DQ";
    case MT_ISA_AVX512_BF16:
        return __builtin_cpu_supports("avx512bf16") ? missing(MT_ISA_AVX512)
                                                    : "the processor has no AVX-512 BF16";
    case MT_ISA_AMX_BF16: {
        const char *why = missing(MT_ISA_AVX512_BF16);
        return why ? why : amx_missing();
    }
    default: return "the program was built for x86-64";
    }
}
#elif defined(__aarch64__)
static const char *missing(enum mt_isa isa)
{
    return isa == MT_ISA_SCALAR || isa == MT_ISA_NEON ? NULL : "the program was built for aarch64";
}
#else
static const char *missing(enum mt_isa isa)
{
    return isa == MT_ISA_SCALAR ? NULL : "the program was built for another architecture";
}
#endif

bool mt_isa_available(enum mt_isa isa, const char **why_not)
{
    const char *why = missing(isa);
    if (why_not) *why_not = why;
    return !why;
}

enum mt_isa mt_isa_best(void)
{
    int isa = MT_N_ISAS - 1;
    while (isa > MT_ISA_SCALAR && !mt_isa_available((enum mt_isa)isa, NULL)) isa--;
    return (enum mt_isa)isa;
}

void mt_cpu_thread_setup(void)
{
#if defined(__x86_64__)
    enum { FTZ = 0x8000, DAZ = 0x40 };
    _mm_setcsr(_mm_getcsr() | FTZ | DAZ);
#elif defined(__aarch64__)
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    __asm__ volatile("msr fpcr, %0" ::"r"(fpcr | 1u << 24)); /* FZ: operands and results */
#endif
}
