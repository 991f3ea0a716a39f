#include "launch/limit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "launch/spawn.h"

/* A number of one to `most` digits at *at, which moves behind it; -1: there is none. */
static double number(const char **at, size_t most)
{
    size_t n = strspn(*at, "0123456789");
    double v = 0;
    if (n < 1 || n > most) return -1;
    for (size_t i = 0; i < n; i++) v = 10 * v + (*at)[i] - '0';
    *at += n;
    return v;
}

bool mt_limit_parse(const char *text, double *seconds)
{
    const char *at = text;
    double days = 0, sum, part;
    if (!strcmp(text, "UNLIMITED")) *seconds = (double)INFINITY;
    if (!strcmp(text, "UNLIMITED")) return true;
    if ((sum = number(&at, 6)) < 0) return false;
    if (*at == '-') {
        days = sum;
        at++;
        if ((sum = number(&at, 2)) < 0) return false;
    }
    int colons = 0;
    for (; *at == ':'; colons++) {
        at++;
        if ((part = number(&at, 2)) < 0) return false;
        sum = 60 * sum + part;
    }
    if (*at || (days > 0 ? colons != 2 : colons < 1 || colons > 2)) return false;
    *seconds = days * 86400 + sum;
    return true;
}

static bool is_number(const char *text)
{
    return text && *text && strlen(text) < 20 && !text[strspn(text, "0123456789")];
}

static bool ask(const char *id, double *left)
{
    struct mt_spawned x;
    mt_err e = {0};
    if (mt_spawn(&x, (const char *const[]){"squeue", "-h", "-j", id, "-o", "%L", NULL}, NULL, &e) != MT_OK ||
        x.code)
        return false;
    x.out[strcspn(x.out, " \n")] = 0;
    return mt_limit_parse(x.out, left);
}

double mt_limit_left(char *(*get)(const char *), double now)
{
    const char *id = get("SLURM_JOB_ID"), *end = get("SLURM_JOB_END_TIME");
    double left;
    if (is_number(id) && is_number(end)) return strtod(end, NULL) - now;
    return is_number(id) && ask(id, &left) ? left : (double)INFINITY;
}
