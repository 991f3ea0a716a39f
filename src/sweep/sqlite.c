#include "sweep/sqlite.h"

#include <math.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

#include "config/table.h"

#define METRIC_COLUMN(name, text) ", " text " REAL"
static const char tables[] =
    "BEGIN IMMEDIATE;"
    "CREATE TABLE IF NOT EXISTS points(id TEXT PRIMARY KEY, number INTEGER, words TEXT, verdict TEXT, reason "
    "TEXT,"
    " baseline INTEGER, round INTEGER, steps_due INTEGER, planned_device_bytes INTEGER, planned_host_bytes "
    "INTEGER,"
    " planned_tokens_per_s REAL);"
    "CREATE TABLE IF NOT EXISTS settings(point TEXT, option TEXT, value TEXT, PRIMARY KEY(point, option));"
    "CREATE TABLE IF NOT EXISTS runs(point TEXT, repeat INTEGER, state TEXT, steps INTEGER, exit_code "
    "INTEGER,"
    " seconds REAL, reason TEXT" MT_CHOICES_metric(
        METRIC_COLUMN) ", PRIMARY KEY(point, repeat));"
                       "DELETE FROM points; DELETE FROM settings; DELETE FROM runs;";

struct store {
    sqlite3 *db;
    const char *path;
    mt_err *e;
};
static mt_status failed(const struct store *s, const char *what)
{
    int code = s->db ? sqlite3_errcode(s->db) & 255 : SQLITE_NOMEM;
    bool content = code == SQLITE_NOTADB || code == SQLITE_CORRUPT || code == SQLITE_ERROR;
    return mt_err_set(s->e, MT_IO, "%s of '%s' failed: %s%s", what, s->path,
                      s->db ? sqlite3_errmsg(s->db) : "no memory",
                      content ? "; remove it: it is made anew from the folders of the runs" : "");
}
static mt_status execute(const struct store *s, const char *sql)
{
    return sqlite3_exec(s->db, sql, NULL, NULL, NULL) == SQLITE_OK ? MT_OK : failed(s, "writing");
}

/* ---- rows ---- */
/* Values of one row, by type: t text, i int64_t, f double (NaN and 0 places are NULL), as a line of varargs would be, but checked. */
struct value {
    char type;
    const char *t;
    int64_t i;
    double f;
};
#define TEXT(x)               \
    {                         \
        .type = 't', .t = (x) \
    }
#define WHOLE(x)              \
    {                         \
        .type = 'i', .i = (x) \
    }
#define REAL(x)               \
    {                         \
        .type = 'f', .f = (x) \
    }

static void bind(sqlite3_stmt *row, int at, const struct value *v)
{
    if (v->type == 't')
        sqlite3_bind_text(row, at, v->t, -1, SQLITE_TRANSIENT);
    else if (v->type == 'i')
        sqlite3_bind_int64(row, at, v->i);
    else if (isfinite(v->f))
        sqlite3_bind_double(row, at, v->f);
    else
        sqlite3_bind_null(row, at);
}
static mt_status insert(const struct store *s, sqlite3_stmt *row, const struct value *v, int n)
{
    sqlite3_reset(row);
    for (int i = 0; i < n; i++) bind(row, i + 1, &v[i]);
    return sqlite3_step(row) == SQLITE_DONE ? MT_OK : failed(s, "writing a row");
}
/* "INSERT INTO table VALUES(?, ?, ...)" */
static mt_status prepare(const struct store *s, const char *table, int columns, sqlite3_stmt **row)
{
    char sql[256];
    int at = snprintf(sql, sizeof sql, "INSERT OR REPLACE INTO %s VALUES(?", table);
    for (int i = 1; i < columns; i++) at += snprintf(sql + at, sizeof sql - (size_t)at, ",?");
    snprintf(sql + at, sizeof sql - (size_t)at, ")");
    return sqlite3_prepare_v2(s->db, sql, -1, row, NULL) == SQLITE_OK ? MT_OK : failed(s, "a statement");
}

enum { POINT = 11, SETTING = 3, RUN = 7 + MT_N_METRICS };
struct rows {
    sqlite3_stmt *point, *setting, *run;
};

static mt_status put_run(const struct store *s, const struct rows *r, const struct mt_study_point *p, int k)
{
    static const char *const state[] = {"waiting", "done", "failed"};
    const struct mt_study_run *x = &p->run[k];
    struct value v[RUN] = {TEXT(p->id),
                           WHOLE(k + 1),
                           TEXT(p->left && x->state == MT_RUN_WAITING ? "left out" : state[x->state]),
                           WHOLE(x->steps),
                           WHOLE(x->exit_code),
                           REAL(x->seconds),
                           TEXT(x->why)};
    for (int m = 0; m < MT_N_METRICS; m++) v[7 + m] = (struct value)REAL(x->value[m]);
    return insert(s, r->run, v, RUN);
}
static mt_status put_point(const struct store *s, const struct rows *r, const struct mt_study *t, int i)
{
    const struct mt_study_point *p = &t->point[i];
    char words[2048];
    /* The same configuration twice has one row, the first's. */
    if (p->verdict == MT_POINT_TWICE) return MT_OK;
    const struct value v[POINT] = {TEXT(p->id),
                                   WHOLE(i + 1),
                                   TEXT(mt_sweep_words(p->p, words, sizeof words)),
                                   TEXT(p->left ? "left out" : mt_point_verdict_text(p->verdict)),
                                   TEXT(p->why),
                                   WHOLE(i == t->baseline),
                                   WHOLE(p->round + 1),
                                   WHOLE(p->due),
                                   WHOLE(p->peak[MT_DEVICE_ARENA]),
                                   WHOLE(p->peak[MT_HOST_ARENA]),
                                   REAL(p->planned > 0 ? p->planned : (double)NAN)};
    MT_TRY(insert(s, r->point, v, POINT));
    for (int k = 0; k < p->p->n; k++) {
        const struct value w[SETTING] = {TEXT(p->id), TEXT(mt_options[p->p->setting[k].option].key),
                                         TEXT(p->p->setting[k].text)};
        MT_TRY(insert(s, r->setting, w, SETTING));
    }
    for (int k = 0; k < t->repeats && p->verdict == MT_POINT_RUNS; k++) MT_TRY(put_run(s, r, p, k));
    return MT_OK;
}

static mt_status put_all(const struct store *s, const struct mt_study *t)
{
    struct rows r = {NULL};
    MT_TRY(execute(s, tables));
    mt_status st = prepare(s, "points", POINT, &r.point);
    if (st == MT_OK) st = prepare(s, "settings", SETTING, &r.setting);
    if (st == MT_OK) st = prepare(s, "runs", RUN, &r.run);
    for (int i = 0; i < t->n && st == MT_OK; i++) st = put_point(s, &r, t, i);
    sqlite3_finalize(r.point);
    sqlite3_finalize(r.setting);
    sqlite3_finalize(r.run);
    return st == MT_OK ? execute(s, "COMMIT;") : st;
}

mt_status mt_sqlite_store(const struct mt_study *t, const char *path, mt_err *e)
{
    struct store s = {.path = path, .e = e};
    mt_status st = sqlite3_open(path, &s.db) == SQLITE_OK ? MT_OK : failed(&s, "opening");
    if (st == MT_OK) sqlite3_busy_timeout(s.db, 10000);
    if (st == MT_OK) st = put_all(&s, t);
    sqlite3_close(s.db);
    return st;
}
