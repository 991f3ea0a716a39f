#include "device/cpu/isa.h"

#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
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

/* Ticks of the time stamp counter that 64 steps of 12 independent sums take; in the registers, whatever the compiler's options. */
#define TWELVE_SUMS(step)                                                       \
    step " %%zmm0, %%zmm0, %%zmm1\n\t" step " %%zmm0, %%zmm0, %%zmm2\n\t" step  \
         " %%zmm0, %%zmm0, %%zmm3\n\t" step " %%zmm0, %%zmm0, %%zmm4\n\t" step  \
         " %%zmm0, %%zmm0, %%zmm5\n\t" step " %%zmm0, %%zmm0, %%zmm6\n\t" step  \
         " %%zmm0, %%zmm0, %%zmm7\n\t" step " %%zmm0, %%zmm0, %%zmm8\n\t" step  \
         " %%zmm0, %%zmm0, %%zmm9\n\t" step " %%zmm0, %%zmm0, %%zmm10\n\t" step \
         " %%zmm0, %%zmm0, %%zmm11\n\t" step " %%zmm0, %%zmm0, %%zmm12\n\t"
#define SUM_REGISTERS                                                                                 \
    "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", \
        "xmm12", "xmm13", "xmm14", "xmm15"
#define DEFINE_TAKE(name, step)                                                            \
    static uint64_t name(void)                                                             \
    {                                                                                      \
        __asm__ volatile("vzeroall" ::: SUM_REGISTERS);                                    \
        uint64_t began = __rdtsc();                                                        \
        for (int n = 0; n < 64; n++) __asm__ volatile(TWELVE_SUMS(step)::: SUM_REGISTERS); \
        uint64_t took = __rdtsc() - began;                                                 \
        __asm__ volatile("vzeroupper");                                                    \
        return took;                                                                       \
    }
DEFINE_TAKE(pairs_take, "vdpbf16ps")
DEFINE_TAKE(multiply_adds_take, "vfmadd231ps")
/* Half as long on AMD's Zen 4, twice as long on Intel's cores that expect bf16 in tiles. The least of many tries, which no interrupt
 * falls in. */
static bool pairs_are_slow(void)
{
    uint64_t pairs = UINT64_MAX, two = UINT64_MAX;
    for (int i = 0; i < 32; i++) {
        uint64_t p = pairs_take(), t = 2 * multiply_adds_take();
        if (p < pairs) pairs = p;
        if (t < two) two = t;
    }
    return pairs > two;
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
#if defined(__x86_64__)
    if (isa == MT_ISA_AVX512_BF16 && pairs_are_slow()) return MT_ISA_AVX512;
#endif
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
