/* status.h: how a function fails.
 *
 * A fallible function returns an mt_status and takes an `mt_err *` that the frame which detects the
 * failure fills once: what was attempted, on what, expected, actual, what to change. Frames above may
 * put one "while ..." in front (mt_err_while). There is no thread-local state: a rank's host code is a
 * fiber that moves between threads. */
#ifndef MT_BASE_STATUS_H
#define MT_BASE_STATUS_H
#include <stdbool.h>
#include <stddef.h>

/* The process's exit codes are these values: documented in README, each produced by a test. */
#define MT_STATUS_LIST(X)                                                            \
    X(OK, 0, "success")                                                              \
    X(INTERNAL, 1, "an invariant of the program does not hold: a bug")               \
    X(CONFIG, 2, "command line or configuration is wrong")                           \
    X(NOFIT, 3, "the run does not fit the memory it was given")                      \
    X(DATA, 4, "a data file is missing, damaged or does not fit the configuration")  \
    X(CKPT, 5, "a checkpoint is missing, damaged or does not fit the configuration") \
    X(IO, 6, "the operating system refused: files, memory, threads")                 \
    X(DEVICE, 7, "an operation failed on the device")                                \
    X(RANKS, 8, "ranks disagree, or one was lost")                                   \
    X(HANG, 9, "no progress within the deadline")                                    \
    X(NONFINITE, 10, "loss or gradient norm is not a number, or far above the last") \
    X(CORRUPT, 11, "replicas hold different weights: something fails unnoticed")     \
    X(PREEMPTED, 75, "asked to stop; everything is saved, start again to go on")

typedef enum mt_status {
#define X(name, value, text) MT_##name = value,
    MT_STATUS_LIST(X)
#undef X
} mt_status;

#define MT_MUST_USE __attribute__((warn_unused_result))
#define MT_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))

typedef struct mt_err {
    mt_status code;
    char msg[8192]; /* room for a table of what takes the memory */
} mt_err;

const char *mt_status_name(mt_status s); /* "CONFIG" */
const char *mt_status_text(mt_status s); /* the sentence of the list */

/* Records code and message unless one is recorded already (the first failure is the cause); returns code. */
mt_status mt_err_set(mt_err *e, mt_status code, const char *fmt, ...) MT_PRINTF(3, 4);
/* Puts "text: " in front of the recorded message. */
void mt_err_while(mt_err *e, const char *fmt, ...) MT_PRINTF(2, 3);

#define MT_TRY(call)                                  \
    do {                                              \
        mt_status try_status_ = (call);               \
        if (try_status_ != MT_OK) return try_status_; \
    } while (0)
#define MT_FAIL(err, code, ...) return mt_err_set((err), (code), __VA_ARGS__)
#define MT_REQUIRE(cond, err, code, ...)                            \
    do {                                                            \
        if (!(cond)) return mt_err_set((err), (code), __VA_ARGS__); \
    } while (0)

/* Invariants of the program, on in every build. Never for input. Prints the place and ends the program: with INTERNAL, or where
 * the system keeps core files, by SIGABRT. */
void mt_assert_fail(const char *file, int line, const char *expr) __attribute__((noreturn));
#define MT_ASSERT(cond) ((cond) ? (void)0 : mt_assert_fail(__FILE__, __LINE__, #cond))
#endif
