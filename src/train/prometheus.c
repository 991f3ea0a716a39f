#include "train/prometheus.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { TEXT = 8192, LABEL = 2200 };

/* A label's value: backslash, quote and newline escaped. */
static void escape(char out[LABEL], const char *text)
{
    int n = 0;
    for (; *text && n < LABEL - 3; text++) {
        if (strchr("\\\"\n", *text)) out[n++] = '\\';
        out[n++] = *text;
        if (*text == '\n') out[n - 1] = 'n';
    }
    out[n] = 0;
}

static int put(char *text, int n, const char *label, const char *name, const char *doc, double x)
{
    char number[40];
    if (isnan(x)) return n;
    if (isinf(x))
        snprintf(number, sizeof number, "%s", x > 0 ? "+Inf" : "-Inf");
    else
        snprintf(number, sizeof number, "%.9g", x);
    int room = TEXT - n,
        more = snprintf(text + n, (size_t)room,
                        "# HELP moetitan_%s %s\n# TYPE moetitan_%s gauge\nmoetitan_%s{run=\"%s\"} %s\n", name,
                        doc, name, name, label, number);
    return more < room ? n + more : n; /* what has no room is left out whole */
}

bool mt_prometheus_write(const char *path, const char *run, const struct mt_scalars *s)
{
    static const struct {
        const char *name, *doc;
    } row[] = {
#define MT_SCALAR(field, tag, name_, doc_) {name_, doc_},
#include "train/scalars.def"
#undef MT_SCALAR
    };
    char text[TEXT], label[LABEL], tmp[1100];
    escape(label, run);
    label[300] = 0; /* so that every row has room */
    int n = put(text, 0, label, "step", "Optimizer steps done.", (double)s->step);
    for (int i = 0; i < MT_N_SCALARS; i++) n = put(text, n, label, row[i].name, row[i].doc, s->x[i]);
    if (snprintf(tmp, sizeof tmp, "%s.tmp", path) >= (int)sizeof tmp) {
        errno = ENAMETOOLONG;
        return false;
    }
    int fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) return false;
    bool ok = write(fd, text, (size_t)n) == n;
    if (close(fd)) ok = false;
    return ok && !rename(tmp, path);
}
