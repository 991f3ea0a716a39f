/* check.h: the test harness. A test program: TEST(name) { CHECK(...); }, main runs them with RUN and returns DONE().
 *
 * Prints a line for every failure and, last, the plain line `N passed, N failed` that CI reads. */
#ifndef MT_TESTS_CHECK_H
#define MT_TESTS_CHECK_H
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct check_state {
    int passed, failed, skipped;
    bool this_failed, this_skipped;
    const char *test;
};
static struct check_state check_;

#define TEST(name) static void test_##name(void)
#define RUN(name) check_run(#name, test_##name)
#define CHECK(cond) check_true((cond), __FILE__, __LINE__, #cond)
/* |got - want| <= tol, and NaN fails. */
#define CHECK_CLOSE(got, want, tol) \
    check_close((double)(got), (double)(want), (double)(tol), __FILE__, __LINE__, #got)
#define CHECK_STR(got, want) check_str((got), (want), __FILE__, __LINE__, #got)
#define CHECK_INT(got, want) check_int((long long)(got), (long long)(want), __FILE__, __LINE__, #got)
#define SKIP(...)                             \
    do {                                      \
        check_.this_skipped = true;           \
        printf("skipped: %s: ", check_.test); \
        printf(__VA_ARGS__);                  \
        printf("\n");                         \
        return;                               \
    } while (0)

static inline void check_fail(const char *file, int line, const char *what)
{
    check_.this_failed = true;
    printf("FAILED %s (%s:%d): %s", check_.test, file, line, what);
}
static inline bool check_true(bool ok, const char *file, int line, const char *what)
{
    if (!ok) {
        check_fail(file, line, what);
        printf("\n");
    }
    return ok;
}
static inline bool check_close(double got, double want, double tol, const char *file, int line,
                               const char *what)
{
    if (fabs(got - want) <= tol) return true;
    check_fail(file, line, what);
    printf(": got %.9g, want %.9g within %.3g\n", got, want, tol);
    return false;
}
static inline bool check_int(long long got, long long want, const char *file, int line, const char *what)
{
    if (got == want) return true;
    check_fail(file, line, what);
    printf(": got %lld, want %lld\n", got, want);
    return false;
}
static inline bool check_str(const char *got, const char *want, const char *file, int line, const char *what)
{
    if (got && want && !strcmp(got, want)) return true;
    check_fail(file, line, what);
    printf(": got \"%s\", want \"%s\"\n", got ? got : "(null)", want ? want : "(null)");
    return false;
}
static inline void check_run(const char *name, void (*f)(void))
{
    check_.test = name;
    check_.this_failed = check_.this_skipped = false;
    f();
    fflush(stdout);
    if (check_.this_failed)
        check_.failed++;
    else if (check_.this_skipped)
        check_.skipped++;
    else
        check_.passed++;
}
static inline int check_done(void)
{
    printf("%d passed, %d failed", check_.passed, check_.failed);
    if (check_.skipped) printf(", %d skipped", check_.skipped);
    printf("\n");
    return check_.failed ? 1 : 0;
}
#define DONE() check_done()

/* Norm of the difference over the norm of the reference; NaN anywhere gives NaN, which fails every bound. */
static inline double check_rel(const float *got, const float *want, long long n)
{
    double d = 0, w = 0;
    for (long long i = 0; i < n; i++) {
        double x = (double)got[i] - (double)want[i];
        d += x * x;
        w += (double)want[i] * (double)want[i];
    }
    return w > 0 ? sqrt(d / w) : sqrt(d);
}
#define CHECK_REL(got, want, n, tol) \
    check_close(check_rel((got), (want), (n)), 0, (tol), __FILE__, __LINE__, #got)
#endif
