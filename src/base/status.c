#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

const char *mt_status_name(mt_status s)
{
    switch (s) {
#define X(name, value, text) \
    case MT_##name: return #name;
        MT_STATUS_LIST(X)
#undef X
    }
    return "?";
}

const char *mt_status_text(mt_status s)
{
    switch (s) {
#define X(name, value, text) \
    case MT_##name: return text;
        MT_STATUS_LIST(X)
#undef X
    }
    return "?";
}

mt_status mt_err_set(mt_err *e, mt_status code, const char *fmt, ...)
{
    if (e->code != MT_OK) return e->code;
    e->code = code;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(e->msg, sizeof e->msg, fmt, ap);
    va_end(ap);
    return code;
}

void mt_err_while(mt_err *e, const char *fmt, ...)
{
    char front[256], old[sizeof e->msg];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(front, sizeof front, fmt, ap);
    va_end(ap);
    memcpy(old, e->msg, sizeof old);
    int n = snprintf(e->msg, sizeof e->msg, "%s: ", front);
    snprintf(e->msg + n, sizeof e->msg - (size_t)n, "%.*s", (int)(sizeof e->msg - (size_t)n - 1), old);
}

void mt_assert_fail(const char *file, int line, const char *expr)
{
    fprintf(stderr, "moetitan: internal error at %s:%d: %s\n", file, line, expr);
    struct rlimit core;
    if (!getrlimit(RLIMIT_CORE, &core) && core.rlim_cur > 0) abort();
    _exit(MT_INTERNAL);
}
