#include "train/say.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

void mt_say_to(int fd, const char *text, int bytes)
{
    for (int at = 0; at < bytes;) {
        ssize_t k = write(fd, text + at, (size_t)(bytes - at));
        if (k < 0 && errno != EINTR) return;
        if (k > 0) at += (int)k;
    }
}

void mt_say(const char *fmt, ...)
{
    char line[1600];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    mt_say_to(STDOUT_FILENO, line, n < (int)sizeof line ? n : (int)sizeof line - 1);
}
