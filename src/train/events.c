#include "train/events.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "train/say.h"

const char *mt_note_text(enum mt_note_kind k)
{
    static const char *const text[] = {
#define X(name, text) text,
        MT_NOTES(X)
#undef X
    };
    return text[k];
}

/* Inside a JSON string: what would end it, or is no text, becomes a space. */
static void tame(char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s < ' ' || *s == '"' || *s == '\\') *s = ' ';
}

void mt_note(const mt_config *c, const struct mt_job *job, int64_t step, enum mt_note_kind k, const char *fmt,
             ...)
{
    char path[MT_CONFIG_PATH + 16], text[512], line[768], when[32];
    struct tm utc;
    time_t now = time(NULL);
    va_list ap;
    if (job->me != 0) return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    tame(text);
    gmtime_r(&now, &utc);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &utc);
    int n = snprintf(line, sizeof line,
                     "{\"time\": \"%s\", \"step\": %" PRId64 ", \"event\": \"%s\", \"text\": \"%s\"}\n", when,
                     step, mt_note_text(k), text);
    snprintf(path, sizeof path, "%s/events.jsonl", c->run_dir);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0) return;
    mt_say_to(fd, line, n);
    close(fd);
}
