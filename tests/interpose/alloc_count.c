/* alloc_count.c: an LD_PRELOAD library that counts calls for memory while a training run is between two steps.
 *
 *     MT_ALLOC_METRICS   the run's metrics.jsonl; its last "step" says how far the run is, so the program needs no hook
 *     MT_ALLOC_STEPS     FIRST,LAST: count during these steps, LAST included
 *     MT_ALLOC_REPORT    file for the report, written when the process ends
 *
 * The report: "before N", "during N", "last_step N", then a line for each caller during the steps: calls, function,
 * object+offset (for addr2line), and the step of its first call. A test should want "before" above 0 (the library was
 * really in place) and "last_step" at LAST.
 * glibc's own malloc family goes through these symbols too (strdup, fopen); its inner mmap calls do not, so
 * pthread_create, which maps stacks by itself, is counted as well. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { CALLERS = 256, TAIL = 4096 };

struct caller {
    const char *function;
    void *from;
    long calls, first_step;
};

static struct {
    char metrics[1024], report[1024];
    long first, last;
    atomic_long before, during;
    atomic_flag lock;
    struct caller caller[CALLERS];
    int callers;
} count = {.lock = ATOMIC_FLAG_INIT};

/* glibc's own names for its allocator, so that no dlsym (which allocates) stands in the way. */
extern void *__libc_malloc(size_t n);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t n);
extern void *__libc_memalign(size_t align, size_t n);
extern void __libc_free(void *p);

/* The last complete line's step in the metrics file; 0 while there is none. */
static long steps_done(void)
{
    char tail[TAIL + 1];
    int fd = open(count.metrics, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    off_t end = lseek(fd, 0, SEEK_END);
    ssize_t n = pread(fd, tail, TAIL, end > TAIL ? end - TAIL : 0);
    close(fd);
    while (n > 0 && tail[n - 1] != '\n') n--;
    tail[n > 0 ? n : 0] = 0;
    long step = 0;
    for (const char *at = tail; (at = strstr(at, "\"step\":")); at++) step = strtol(at + 7, NULL, 10);
    return step;
}

static void note(const char *function, void *from, long step)
{
    while (atomic_flag_test_and_set_explicit(&count.lock, memory_order_acquire)) sched_yield();
    int i = 0;
    while (i < count.callers && (count.caller[i].from != from || count.caller[i].function != function)) i++;
    if (i < CALLERS) {
        if (i == count.callers) count.caller[count.callers++] = (struct caller){function, from, 0, step};
        count.caller[i].calls++;
    }
    atomic_flag_clear_explicit(&count.lock, memory_order_release);
}

static void seen(const char *function, void *from)
{
    int kept = errno;
    long done = count.metrics[0] ? steps_done() : 0;
    if (done < count.first - 1 || !count.metrics[0]) {
        atomic_fetch_add(&count.before, 1);
    } else if (done < count.last) {
        atomic_fetch_add(&count.during, 1);
        note(function, from, done + 1);
    }
    errno = kept;
}
#define SEEN() seen(__func__, __builtin_return_address(0))
/* POSIX's way round ISO C, which has no conversion from an object pointer to a function's. */
#define NEXT(real, name) (*(void **)(void *)&(real) = dlsym(RTLD_NEXT, name))

void *malloc(size_t n)
{
    SEEN();
    return __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    SEEN();
    return __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    SEEN();
    return __libc_realloc(p, n);
}

void *reallocarray(void *p, size_t n, size_t size)
{
    SEEN();
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes)) return errno = ENOMEM, NULL;
    return __libc_realloc(p, bytes);
}

void free(void *p)
{
    if (p) SEEN();
    __libc_free(p);
}

void *memalign(size_t align, size_t n)
{
    SEEN();
    return __libc_memalign(align, n);
}

void *aligned_alloc(size_t align, size_t n)
{
    SEEN();
    return __libc_memalign(align, n);
}

int posix_memalign(void **out, size_t align, size_t n)
{
    SEEN();
    void *p = __libc_memalign(align, n);
    if (!p) return ENOMEM;
    *out = p;
    return 0;
}

void *mmap(void *p, size_t n, int prot, int flags, int fd, off_t offset)
{
    SEEN();
    return (void *)syscall(SYS_mmap, p, n, prot, flags, fd, offset);
}

void *mmap64(void *p, size_t n, int prot, int flags, int fd, off64_t offset)
{
    SEEN();
    return (void *)syscall(SYS_mmap, p, n, prot, flags, fd, offset);
}

void *mremap(void *p, size_t old, size_t n, int flags, ...)
{
    SEEN();
    va_list more;
    va_start(more, flags);
    void *to = flags & MREMAP_FIXED ? va_arg(more, void *) : NULL;
    va_end(more);
    return (void *)syscall(SYS_mremap, p, old, n, flags, to);
}

int munmap(void *p, size_t n)
{
    SEEN();
    return (int)syscall(SYS_munmap, p, n);
}

int brk(void *end)
{
    SEEN();
    int (*real)(void *);
    NEXT(real, "brk");
    return real(end);
}

void *sbrk(intptr_t by)
{
    SEEN();
    void *(*real)(intptr_t);
    NEXT(real, "sbrk");
    return real(by);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*f)(void *), void *arg)
{
    SEEN();
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    NEXT(real, "pthread_create");
    return real(thread, attr, f, arg);
}

__attribute__((constructor)) static void begin(void)
{
    const char *metrics = getenv("MT_ALLOC_METRICS"), *steps = getenv("MT_ALLOC_STEPS");
    const char *report = getenv("MT_ALLOC_REPORT");
    if (!metrics || !report || !steps || sscanf(steps, "%ld,%ld", &count.first, &count.last) != 2) return;
    snprintf(count.report, sizeof count.report, "%s", report);
    snprintf(count.metrics, sizeof count.metrics, "%s", metrics);
}

__attribute__((destructor)) static void end(void)
{
    if (!count.metrics[0]) return;
    long last = steps_done();
    count.metrics[0] = 0; /* the report's own calls are nobody's business */
    FILE *f = fopen(count.report, "w");
    if (!f) return;
    fprintf(f, "before %ld\nduring %ld\nlast_step %ld\n", count.before, count.during, last);
    for (int i = 0; i < count.callers; i++) {
        const struct caller *c = &count.caller[i];
        Dl_info where = {0};
        dladdr(c->from, &where);
        fprintf(f, "%ld %s from %s+%#lx, first in step %ld\n", c->calls, c->function,
                where.dli_fname ? where.dli_fname : "?",
                (unsigned long)((uintptr_t)c->from - (uintptr_t)where.dli_fbase), c->first_step);
    }
    fclose(f);
}
