/* allocations.h: a program's calls of the allocator and of mmap, counted while `counting` is on. A sanitizer has these functions
 * for itself: there nothing is counted. */
#ifndef MT_TESTS_ALLOCATIONS_H
#define MT_TESTS_ALLOCATIONS_H
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_int counting, allocations;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
enum { SANITIZED = 0 };
static void count(void)
{
    if (atomic_load(&counting)) atomic_fetch_add(&allocations, 1);
}
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t m);
void *__libc_realloc(void *p, size_t n);
void *malloc(size_t n)
{
    count();
    return __libc_malloc(n);
}
void *calloc(size_t n, size_t m)
{
    count();
    return __libc_calloc(n, m);
}
void *realloc(void *p, size_t n)
{
    count();
    return __libc_realloc(p, n);
}
void *__libc_memalign(size_t align, size_t n);
void *aligned_alloc(size_t align, size_t n)
{
    count();
    return __libc_memalign(align, n);
}
void *mmap(void *at, size_t n, int prot, int flags, int fd, off_t off)
{
    count();
    return (void *)syscall(SYS_mmap, at, n, prot, flags, fd, off);
}
#else
enum { SANITIZED = 1 };
#endif
#endif
