/* Shared memory of the block that runs: filled with 0xff, NaN in every float format, before each block. */
#include "block.h"
#include "internal.h"

#include <cstdlib>
#include <sys/mman.h>

#if CUEMU_WITH_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace cuemu
{
namespace
{
constexpr size_t ARENA = 49152; /* static shared memory of a block */
constexpr int MAX_VARS = 64;
struct Var {
    const void *key;
    size_t at;
} vars[MAX_VARS];
int n_vars;
char *arena;
size_t used, peak;
void *dynamic;
size_t dynamic_bytes;

/* mmap makes TSan forget what it knew of the pages; a free would be checked as a write, and two blocks'
 * use of the same bytes would look like a race. */
void *pages(void *at, size_t n)
{
    void *p = mmap(at, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);
    if (p == MAP_FAILED) fault(__FILE__, __LINE__, "no memory for shared memory");
    return p;
}
} // namespace

void shared_begin_launch(size_t bytes)
{
    if (!arena) arena = (char *)pages(nullptr, ARENA);
    dynamic_bytes = bytes;
    if (!bytes) return;
#if CUEMU_WITH_TSAN
    dynamic = pages(nullptr, bytes);
#else
    if (posix_memalign(&dynamic, 1024, bytes)) fault(__FILE__, __LINE__, "no memory for shared memory");
#endif
}
void shared_begin_block()
{
#if CUEMU_WITH_TSAN
    pages(arena, ARENA);
    if (dynamic_bytes) pages(dynamic, dynamic_bytes);
    peak = 0;
#elif CUEMU_WITH_ASAN
    __asan_poison_memory_region(arena, ARENA);
#endif
    n_vars = 0;
    used = 0;
    poison(arena, peak);
    if (dynamic_bytes) poison(dynamic, dynamic_bytes);
}
void shared_end_launch()
{
    if (!dynamic_bytes) return;
#if CUEMU_WITH_TSAN
    munmap(dynamic, dynamic_bytes);
#else
    free(dynamic);
#endif
    dynamic = nullptr;
}

void *dyn_smem()
{
    return dynamic;
}
/* A variable's place is that of its first use in the block: the key is one address a declaration. */
void *static_smem(const void *key, size_t size, size_t align)
{
    for (int i = 0; i < n_vars; i++)
        if (vars[i].key == key) return arena + vars[i].at;
    size_t at = (used + align - 1) / align * align;
    if (at + size > ARENA || n_vars == MAX_VARS) fault("cuda", 0, "more than 48 KB of static shared memory");
    vars[n_vars++] = {key, at};
    used = at + size;
#if CUEMU_WITH_ASAN
    __asan_unpoison_memory_region(arena + at, size);
    used = (used + 7) / 8 * 8 + 32; /* a red zone */
#endif
    if (used > peak) poison(arena + peak, used - peak), peak = used;
    return arena + at;
}
} // namespace cuemu
