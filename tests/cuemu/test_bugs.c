/* test: variants=cuemu */
/* Which faults are found, and by which build. Each runs in a process of its own,
 * whose exit code tells who noticed. */
#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bugs.h"
#include "check.h"
#include "device_memory.h"

enum { N = 256 };
enum { NOTHING, WRONG = 3, ERROR_CODE = 4, TSAN = 66, ASAN = 77, UBSAN = 78, FAULT = 86 };

static void ramp(float *x)
{
    for (int i = 0; i < N; i++) x[i] = (float)(i + 1);
}

/* ---- one kernel with a fault ---- */

static void expected(int which, const float *x, float *want)
{
    const int rounds = which == BUG_NO_SECOND_SYNC ? 3 : 1;
    for (int i = 0; i < N; i++) {
        want[i] = x[i];
        switch (which) {
        case BUG_NONE:
        case BUG_NO_SYNC:
        case BUG_NO_SECOND_SYNC:
        case BUG_OOB_STATIC:
        case BUG_UNINIT: want[i] = x[i / 128 * 128 + (i + rounds) % 128]; break;
        case BUG_NO_SYNCWARP:
        case BUG_NONE_WARP: want[i] = x[i / 32 * 32 + (i + 1) % 32]; break;
        case BUG_NO_WAIT:
        case BUG_NONE_ASYNC: want[i] = i < 128 ? x[(i + 1) % 128] : x[i]; break;
        default: break;
        }
    }
}
static int kernel_case(int which)
{
    float in[N], out[N], want[N], sums[9] = {0};
    ramp(in);
    expected(which, in, want);
    float *x = device_new(in, sizeof in), *aux = device_new(sums, sizeof sums);
    unsigned zero = 0, *count = device_new(&zero, sizeof zero);
    if (bug_kernel(which, x, aux, count, N, 0)) return ERROR_CODE;
    device_get(out, x, sizeof out);
    device_get(sums, aux, sizeof sums);
    int wrong = 0;
    for (int i = 0; i < N; i++) wrong += !(out[i] == want[i]);
    if (which == BUG_NO_FENCE || which == BUG_NONE_FENCE)
        wrong += !(sums[8] == in[0] + in[1] + in[2] + in[3]);
    return wrong ? WRONG : NOTHING;
}

/* ---- host code with a fault: one stream uploads and scales, another reads the result ---- */

enum { S_GOOD, S_NO_WAIT, S_REUSE_PINNED, S_READ_EARLY, S_FREE_EARLY, S_COPY_OOB, S_WAIT_BEFORE_RECORD };
static int stream_case(int which)
{
    cudaStream_t s1, s2;
    cudaEvent_t e;
    float in[N], *pin, *out;
    float *x = device_new(NULL, N * 4), *y = device_new(NULL, N * 4), *z = device_new(NULL, N * 4);
    cudaStreamCreateWithFlags(&s1, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&s2, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&e, cudaEventDisableTiming);
    cudaMallocHost((void **)&pin, N * 4);
    cudaMallocHost((void **)&out, N * 4);
    ramp(in);
    memcpy(pin, in, sizeof in);
    if (which == S_WAIT_BEFORE_RECORD) cudaStreamWaitEvent(s2, e, 0);
    cudaMemcpyAsync(x, pin, N * 4, cudaMemcpyHostToDevice, s1);
    if (which == S_REUSE_PINNED) memset(pin, 0, N * 4);
    bug_scale(y, x, 2, N, s1);
    cudaEventRecord(e, s1);
    if (which != S_NO_WAIT && which != S_WAIT_BEFORE_RECORD) cudaStreamWaitEvent(s2, e, 0);
    if (which == S_FREE_EARLY) cudaFreeAsync(y, s1);
    bug_scale(z, y, 3, N, s2);
    cudaMemcpyAsync(out, z, (which == S_COPY_OOB ? N + 1 : N) * 4, cudaMemcpyDeviceToHost, s2);
    if (which != S_READ_EARLY) cudaStreamSynchronize(s2);
    int wrong = 0;
    for (int i = 0; i < N; i++) wrong += !(out[i] == 6 * in[i]);
    cudaStreamSynchronize(s1);
    return wrong ? WRONG : NOTHING;
}

/* ---- the table ---- */

/* who: the builds that must notice in some order (plain, asan, tsan); none: correct, nobody may object. */
enum kind { KERNEL, STREAM };
static const struct {
    enum kind kind;
    int which;
    const char *name, *who;
} cases[] = {
    {KERNEL, BUG_NONE, "correct: exchange in a block", ""},
    {KERNEL, BUG_NONE_WARP, "correct: exchange in a warp", ""},
    {KERNEL, BUG_NONE_ASYNC, "correct: cp.async", ""},
    {KERNEL, BUG_NONE_FENCE, "correct: last block with fences", ""},
    {KERNEL, BUG_NO_SYNC, "no __syncthreads after a write", "pat"},
    {KERNEL, BUG_NO_SECOND_SYNC, "no __syncthreads before a rewrite", "pat"},
    {KERNEL, BUG_NO_SYNCWARP, "no __syncwarp", "pat"},
    {KERNEL, BUG_DIVERGENT, "divergent __syncthreads", "pat"},
    {KERNEL, BUG_EXITED, "__syncthreads after some returned", "pat"},
    {KERNEL, BUG_HALF_WARP, "shuffle of a whole warp in half of it", "pat"},
    {KERNEL, BUG_OOB_GLOBAL, "global index one too far", "a"},
    {KERNEL, BUG_OOB_STATIC, "static shared index one too far", "a"},
    {KERNEL, BUG_OOB_DYN, "dynamic shared index one too far", "a"},
    {KERNEL, BUG_UNINIT, "shared memory read, never written", "pat"},
    {KERNEL, BUG_NO_WAIT, "cp.async without wait", "pat"},
    {KERNEL, BUG_BLOCK_RACE, "two blocks store to one address", "t"},
    {KERNEL, BUG_NO_FENCE, "last block without __threadfence", "t"},
    {KERNEL, BUG_MISALIGNED, "misaligned float4 load", "a"},
    {KERNEL, BUG_TOO_MUCH_SMEM, "100 KB shared without opt-in", "pat"},
    {STREAM, S_GOOD, "correct: two streams", ""},
    {STREAM, S_NO_WAIT, "no cudaStreamWaitEvent", "pat"},
    {STREAM, S_WAIT_BEFORE_RECORD, "wait placed before the record", "pat"},
    {STREAM, S_REUSE_PINNED, "pinned buffer reused too early", "pat"},
    {STREAM, S_READ_EARLY, "host reads before synchronising", "pat"},
    {STREAM, S_FREE_EARLY, "stream-ordered free too early", "pat"},
    {STREAM, S_COPY_OOB, "copy past the end of an allocation", "pat"},
};
static const char *const orders[][2] = {
    {"lazy", "fwd"}, {"lazy", "rev"}, {"eager", "fwd"}, {"rand:7", "rand:7"}};

static const char *self;
static int child(int kind, int which, const char *const *order)
{
    char a[16], b[16];
    int status;
    fflush(stdout);
    pid_t pid = fork();
    if (!pid) {
        int null = open("/dev/null", O_WRONLY);
        dup2(null, 1), dup2(null, 2);
        setenv("CUEMU_ORDER", order[0], 1);
        setenv("CUEMU_SCHED", order[1], 1);
        setenv("ASAN_OPTIONS", "exitcode=77:detect_leaks=0:symbolize=0", 1);
        setenv("UBSAN_OPTIONS", "exitcode=78", 1);
        setenv("TSAN_OPTIONS", "exitcode=66:halt_on_error=1:symbolize=0:atexit_sleep_ms=0", 1);
        snprintf(a, sizeof a, "%d", kind), snprintf(b, sizeof b, "%d", which);
        execl(self, self, a, b, (char *)NULL);
        _exit(9);
    }
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* '-' nothing noticed, w wrong values, e error code, F the emulator's fault, A ASan or UBSan, T TSan, ? a
 * crash */
static char letter(int code)
{
    switch (code) {
    case NOTHING: return '-';
    case WRONG: return 'w';
    case ERROR_CODE: return 'e';
    case FAULT: return 'F';
    case TSAN: return 'T';
    case ASAN:
    case UBSAN:
    case 1: return 'A';
    default: return '?';
    }
}

TEST(faults)
{
#if defined(__SANITIZE_ADDRESS__)
    const char build = 'a';
#elif defined(__SANITIZE_THREAD__)
    const char build = 't'; /* its verdict does not depend on the order: two of them will do */
#else
    const char build = 'p';
#endif
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char how[5] = "";
        int n = 0;
        for (int k = 0; k < 4; k += build == 't' ? 3 : 1)
            how[n++] = letter(child(cases[i].kind, cases[i].which, orders[k]));
        bool correct = cases[i].who[0] == 0, noticed = strspn(how, "-") < (size_t)n,
             must = strchr(cases[i].who, build) != NULL;
        if (!CHECK(correct ? !noticed : noticed || !must) || !CHECK(!strchr(how, '?')))
            printf("  %s: %s\n", cases[i].name, how);
    }
}

int main(int argc, char **argv)
{
    self = argv[0];
    if (argc == 3) return atoi(argv[1]) == STREAM ? stream_case(atoi(argv[2])) : kernel_case(atoi(argv[2]));
    RUN(faults);
    return DONE();
}
