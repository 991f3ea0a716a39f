/* fiber.h: a function with a stack of its own, resumed by any thread until it yields. Sanitizers are told. */
#ifndef MT_DEVICE_CPU_FIBER_H
#define MT_DEVICE_CPU_FIBER_H
#include <ucontext.h>

#include "base/status.h"

struct mt_fiber {
    ucontext_t here, back;
    char *map; /* guard page, then the stack */
    size_t bytes;
    void (*entry)(void *arg);
    void *arg;
    bool sync; /* whether a switch orders the two sides, as ThreadSanitizer sees it */
    void *tsan, *tsan_back;
    void *asan_fake, *asan_back_stack;
    size_t asan_back_bytes;
};

/* entry never returns: it yields. f must not move afterwards. IO: no memory for the stack. */
MT_MUST_USE mt_status mt_fiber_open(struct mt_fiber *f, size_t stack_bytes, bool sync, void (*entry)(void *),
                                    void *arg, mt_err *e);
void mt_fiber_close(struct mt_fiber *f); /* while it is not running; zeros are fine */
void mt_fiber_resume(struct mt_fiber *f);
void mt_fiber_yield(struct mt_fiber *f); /* from inside */
#endif
