#include "device/cpu/fiber.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
enum { NO_SYNC = 1 };
#else
#define __tsan_create_fiber(flags) NULL
#define __tsan_destroy_fiber(fiber) ((void)(fiber))
#define __tsan_get_current_fiber() NULL
#define __tsan_switch_to_fiber(fiber, flags) ((void)(fiber), (void)(flags))
enum { NO_SYNC };
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#else
#define __sanitizer_start_switch_fiber(fake, bottom, bytes) ((void)(fake), (void)(bottom), (void)(bytes))
#define __sanitizer_finish_switch_fiber(fake, bottom, bytes) ((void)(fake), (void)(bottom), (void)(bytes))
#define __asan_unpoison_memory_region(at, bytes) ((void)(at), (void)(bytes))
#endif

static size_t page(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* makecontext passes ints: a pointer goes in two halves. */
static void fiber_main(unsigned lo, unsigned hi)
{
    struct mt_fiber *f = (struct mt_fiber *)((uintptr_t)lo | (uintptr_t)hi << 32);
    __sanitizer_finish_switch_fiber(NULL, (const void **)&f->asan_back_stack, &f->asan_back_bytes);
    f->entry(f->arg);
    bool fiber_returned = true;
    MT_ASSERT(!fiber_returned);
}

mt_status mt_fiber_open(struct mt_fiber *f, size_t stack_bytes, bool sync, void (*entry)(void *), void *arg,
                        mt_err *e)
{
    size_t guard = page(), bytes = (stack_bytes + guard - 1) / guard * guard + guard;
    *f = (struct mt_fiber){.bytes = bytes, .entry = entry, .arg = arg, .sync = sync};
    char *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    MT_REQUIRE(map != MAP_FAILED, e, MT_IO, "mapping a stack of %zu bytes: %s", bytes, strerror(errno));
    f->map = map;
    MT_REQUIRE(mprotect(map, guard, PROT_NONE) == 0 && getcontext(&f->here) == 0, e, MT_IO,
               "making the guard page of a stack: %s; raise vm.max_map_count or run fewer ranks in a process",
               strerror(errno));
    f->here.uc_stack.ss_sp = map + guard;
    f->here.uc_stack.ss_size = bytes - guard;
    makecontext(&f->here, (void (*)(void))fiber_main, 2, (unsigned)(uintptr_t)f,
                (unsigned)((uintptr_t)f >> 32));
    f->tsan = __tsan_create_fiber(0);
    return MT_OK;
}

void mt_fiber_close(struct mt_fiber *f)
{
    if (!f->map) return;
    if (f->tsan) __tsan_destroy_fiber(f->tsan);
    __asan_unpoison_memory_region(f->map, f->bytes); /* frames left behind by a fiber that never ends */
    munmap(f->map, f->bytes);
    f->map = NULL;
}

/* Switching is not watched: with NO_SYNC it runs between two contexts that know nothing of each other. */
#define UNWATCHED __attribute__((no_sanitize("thread"), noinline))

UNWATCHED void mt_fiber_resume(struct mt_fiber *f)
{
    void *fake = NULL;
    f->tsan_back = __tsan_get_current_fiber();
    __sanitizer_start_switch_fiber(&fake, f->here.uc_stack.ss_sp, f->here.uc_stack.ss_size);
    __tsan_switch_to_fiber(f->tsan, f->sync ? 0 : NO_SYNC);
    swapcontext(&f->back, &f->here);
    __sanitizer_finish_switch_fiber(fake, NULL, NULL);
}

UNWATCHED void mt_fiber_yield(struct mt_fiber *f)
{
    __sanitizer_start_switch_fiber(&f->asan_fake, f->asan_back_stack, f->asan_back_bytes);
    __tsan_switch_to_fiber(f->tsan_back, f->sync ? 0 : NO_SYNC);
    swapcontext(&f->here, &f->back);
    __sanitizer_finish_switch_fiber(f->asan_fake, (const void **)&f->asan_back_stack, &f->asan_back_bytes);
}
