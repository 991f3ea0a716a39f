/* faults.c: an LD_PRELOAD library that does what a failing machine does.
 *
 *     MT_FAULT_CPULIST=1      every node's list of processors, in /sys, is none
 *     MT_FAULT_FLIP=FILE,N    once FILE has N lines, one bit of each row of 32 or more numbers in memory that are all 1 flips: in a
 *                             model of width 32 these are the weights of norms, as long as the learning rate is next to nothing
 *     MT_FAULT_STALL=FILE,N   from then on the program's threads stand still where they ask for the time, but for the one that
 *                             waits for signals, its watchdog */
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

FILE *fopen(const char *path, const char *mode)
{
    FILE *(*real)(const char *, const char *);
    *(void **)&real = dlsym(RTLD_NEXT, "fopen");
    size_t n = strlen(path);
    if (getenv("MT_FAULT_CPULIST") && n > 8 && !strcmp(path + n - 8, "/cpulist")) {
        static char none[] = "none\n";
        return fmemopen(none, sizeof none - 1, mode);
    }
    return real(path, mode);
}

static long lines_of(const char *path)
{
    long n = 0;
    FILE *f = fopen(path, "r");
    for (int c; f && (c = fgetc(f)) != EOF;) n += c == '\n';
    if (f) fclose(f);
    return n;
}

/* Rows of ones in [from, to): how many. */
static long flip_rows(char *from, char *to)
{
    enum { ROW = 32 };
    const uint32_t one = 0x3f800000;
    long rows = 0;
    volatile uint32_t *x = (volatile uint32_t *)(void *)from, *end = (volatile uint32_t *)(void *)to;
    while (x + ROW <= end) {
        int k = 0;
        while (k < ROW && x[k] == one) k++;
        if (k == ROW) {
            x[ROW / 2] ^= 1;
            rows++;
        }
        x += k + 1;
    }
    return rows;
}

/* Memory that belongs to no file and no stack. */
static void flip_memory(void)
{
    char line[512];
    long rows = 0;
    FILE *f = fopen("/proc/self/maps", "r");
    while (f && fgets(line, sizeof line, f)) {
        uintptr_t from, to;
        unsigned long inode;
        char mode[8], rest[256] = "";
        if (sscanf(line, "%lx-%lx %7s %*s %*s %lu %255s", &from, &to, mode, &inode, rest) < 4) continue;
        if (!strncmp(mode, "rw-p", 4) && !inode && !rest[0]) rows += flip_rows((char *)from, (char *)to);
    }
    if (f) fclose(f);
    fprintf(stderr, "faults: a bit flipped in %ld rows\n", rows);
}

static atomic_bool stalled;
static _Thread_local bool spared;
int sigtimedwait(const sigset_t *set, siginfo_t *info, const struct timespec *timeout)
{
    int (*real)(const sigset_t *, siginfo_t *, const struct timespec *);
    *(void **)&real = dlsym(RTLD_NEXT, "sigtimedwait");
    spared = true;
    return real(set, info, timeout);
}
/* Not inside a library, whose locks the watchdog needs. */
static bool by_program(void *caller)
{
    Dl_info its, program;
    return dladdr(caller, &its) && dladdr((void *)getauxval(AT_ENTRY), &program) &&
           its.dli_fbase == program.dli_fbase;
}
int clock_gettime(clockid_t clock, struct timespec *t)
{
    while (stalled && !spared && by_program(__builtin_return_address(0))) pause();
    return (int)syscall(SYS_clock_gettime, clock, t);
}

/* Waits until the file has its lines. */
static void *fault(void *arg)
{
    char file[1024];
    long n = 0;
    bool flip = arg == getenv("MT_FAULT_FLIP");
    spared = true;
    if (sscanf(arg, "%1023[^,],%ld", file, &n) != 2) return NULL;
    while (lines_of(file) < n) nanosleep(&(struct timespec){0, 1000000}, NULL);
    if (flip)
        flip_memory();
    else
        stalled = true;
    return NULL;
}

__attribute__((constructor)) static void begin(void)
{
    char *how = getenv("MT_FAULT_FLIP") ? getenv("MT_FAULT_FLIP") : getenv("MT_FAULT_STALL");
    pthread_t thread;
    sigset_t all, old;
    if (!how) return;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old); /* signals are the program's */
    if (!pthread_create(&thread, NULL, fault, how)) pthread_detach(thread);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}
