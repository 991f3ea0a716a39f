#include "train/history.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const keys[MT_N_HISTORY] = {
#define MT_HISTORY(key) #key,
#include "train/history.def"
};
const char *mt_history_key(enum mt_history_key k)
{
    return keys[k];
}

mt_status mt_json_lines(const char *path, mt_status (*f)(void *arg, const struct cJSON *o, mt_err *e),
                        void *arg, int64_t *others, mt_err *e)
{
    char *line = NULL;
    size_t room = 0;
    mt_status st = MT_OK;
    FILE *in = fopen(path, "r");
    *others = 0;
    if (!in && errno == ENOENT) return MT_OK;
    MT_REQUIRE(in, e, MT_IO, "cannot read '%s': %s", path, strerror(errno));
    for (ssize_t n; st == MT_OK && (n = getline(&line, &room, in)) >= 0;) {
        cJSON *o = cJSON_ParseWithLength(line, (size_t)n);
        if (cJSON_IsObject(o))
            st = f(arg, o, e);
        else
            ++*others;
        cJSON_Delete(o);
    }
    if (st == MT_OK && ferror(in)) st = mt_err_set(e, MT_IO, "cannot read '%s': %s", path, strerror(errno));
    fclose(in);
    free(line);
    return st;
}

static mt_status add_row(void *arg, const struct cJSON *o, mt_err *e)
{
    struct mt_history *h = arg;
    const cJSON *step = cJSON_GetObjectItemCaseSensitive(o, "step");
    if (!cJSON_IsNumber(step) || !(step->valuedouble >= 0 && step->valuedouble < 9e15)) {
        h->unread++;
        return MT_OK;
    }
    if (h->n % 256 == 0) {
        struct mt_history_row *more = realloc(h->row, (size_t)(h->n + 256) * sizeof *more);
        MT_REQUIRE(more, e, MT_IO, "no memory for a history of %lld lines", (long long)h->n);
        h->row = more;
    }
    struct mt_history_row *r = &h->row[h->n++];
    const cJSON *back = cJSON_GetObjectItemCaseSensitive(o, "rollback");
    *r = (struct mt_history_row){.step = (int64_t)step->valuedouble,
                                 .skipped = cJSON_IsString(cJSON_GetObjectItemCaseSensitive(o, "skipped")),
                                 .back = cJSON_IsNumber(back) ? (int64_t)back->valuedouble : -1};
    for (int k = 0; k < MT_N_HISTORY; k++) {
        const cJSON *x = cJSON_GetObjectItemCaseSensitive(o, keys[k]);
        r->value[k] = cJSON_IsNumber(x) && !r->skipped ? x->valuedouble : (double)NAN;
    }
    if ((r->skipped || !isnan(r->value[MT_HISTORY_loss])) && r->step > h->steps) h->steps = r->step;
    return MT_OK;
}

mt_status mt_history_open(struct mt_history *h, const char *path, mt_err *e)
{
    int64_t others;
    *h = (struct mt_history){.n = 0};
    mt_status st = mt_json_lines(path, add_row, h, &others, e);
    h->unread += others;
    return st;
}

void mt_history_close(struct mt_history *h)
{
    free(h->row);
    *h = (struct mt_history){.n = 0};
}
