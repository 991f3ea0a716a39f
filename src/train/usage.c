#include "train/usage.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/print.h"
#include "train/arenas.h"
#include "train/say.h"

static bool lasting(const struct mt_row *r)
{
    return mt_row_persistent((enum mt_row_class)r->row_class);
}

bool mt_usage_live(const struct mt_usage *u, int32_t row, int64_t record)
{
    if (lasting(&u->s->ledger.row[row])) return true;
    for (int32_t k = u->lives.first[row]; k >= 0; k = u->lives.life[k].next)
        if (u->lives.life[k].def <= record && record <= u->lives.life[k].last) return true;
    return false;
}

mt_status mt_usage_find(struct mt_usage *u, const struct mt_session *s, mt_err *e)
{
    *u = (struct mt_usage){.s = s};
    MT_TRY(mt_session_record(s, s->rounds, &u->q, e));
    MT_TRY(mt_lifetimes_find(&u->lives, &s->ledger, &u->q, e));
    for (int32_t i = 0; i < s->ledger.n; i++) {
        const struct mt_row *r = &s->ledger.row[i];
        u->all[r->arena][r->row_class] += r->bytes;
        if (mt_usage_live(u, i, s->plan.fullest[r->arena])) u->live[r->arena][r->row_class] += r->bytes;
    }
    return MT_OK;
}

void mt_usage_release(struct mt_usage *u)
{
    mt_recording_release(&u->q);
    mt_lifetimes_release(&u->lives);
}

/* ---- the table ---- */
static double mib(int64_t bytes)
{
    return (double)bytes / (1 << 20);
}

/* The biggest row after `last` (bytes, then index) among those of an arena that are live at its fullest moment. */
static int32_t next_largest(const struct mt_usage *u, int arena, int32_t last)
{
    const struct mt_ledger *g = &u->s->ledger;
    int32_t best = -1;
    for (int32_t i = 0; i < g->n; i++) {
        const struct mt_row *r = &g->row[i];
        if (r->arena != arena || !mt_usage_live(u, i, u->s->plan.fullest[arena])) continue;
        bool after = last < 0 || r->bytes < g->row[last].bytes ||
                     (r->bytes == g->row[last].bytes && i > last);
        if (after && (best < 0 || r->bytes > g->row[best].bytes)) best = i;
    }
    return best;
}

static void print_largest(const struct mt_usage *u, int arena, int largest, FILE *out)
{
    int32_t row = -1;
    for (int k = 0; k < largest && (row = next_largest(u, arena, row)) >= 0; k++)
        fprintf(out, "%s %s %" PRId64, k ? "," : " its largest rows, bytes:", u->s->ledger.row[row].name,
                u->s->ledger.row[row].bytes);
    fprintf(out, "\n");
}

static void print_arena(const struct mt_usage *u, int arena, int largest, FILE *out)
{
    const struct mt_plan_info *p = &u->s->plan;
    int64_t all = 0, live = 0;
    for (int c = 0; c < MT_N_ROW_CLASSES; c++) {
        if (!u->all[arena][c]) continue;
        fprintf(out, "  %-7s %13.2f %16.2f  %s\n", mt_arena_name(arena), mib(u->all[arena][c]),
                mib(u->live[arena][c]), mt_row_class_text((enum mt_row_class)c));
        all += u->all[arena][c];
        live += u->live[arena][c];
    }
    const struct mt_rec *at = &u->q.rec[p->fullest[arena]];
    fprintf(out, "  %-7s %13.2f %16.2f  together, in %" PRId64 " bytes: %.1f%% of them live\n",
            mt_arena_name(arena), mib(all), mib(live), p->peak[arena],
            100 * (double)live / (double)p->peak[arena]);
    fprintf(out, "  fullest in record %" PRId64 " of %" PRId64 ": %s on %s;", p->fullest[arena], u->q.n,
            mt_rec_name(at), mt_stream_name(at->stream));
    print_largest(u, arena, largest, out);
}

void mt_usage_print(const struct mt_usage *u, int largest, FILE *out)
{
    fprintf(out, "  arena    all rows, MiB   at the fullest  class\n");
    for (int a = 0; a < MT_N_ARENAS; a++)
        if (u->s->plan.peak[a]) print_arena(u, a, largest, out);
}

/* ---- ledger.json ---- */
static void json_lives(const struct mt_usage *u, int32_t row, FILE *out)
{
    const char *comma = "";
    if (lasting(&u->s->ledger.row[row])) {
        fprintf(out, "[0, %" PRId64 "]", u->q.n - 1);
        return;
    }
    for (int32_t k = u->lives.first[row]; k >= 0; k = u->lives.life[k].next, comma = ", ")
        fprintf(out, "%s[%" PRId64 ", %" PRId64 "]", comma, u->lives.life[k].def, u->lives.life[k].last);
}

static void json_rows(const struct mt_usage *u, FILE *out)
{
    const struct mt_ledger *g = &u->s->ledger;
    for (int32_t i = 0; i < g->n; i++) {
        const struct mt_row *r = &g->row[i];
        fprintf(out,
                "%s\n    {\"name\": \"%s\", \"class\": \"%s\", \"arena\": \"%s\", \"bytes\": %" PRId64
                ", \"offset\": %" PRId64 ", \"lives\": [",
                i ? "," : "", r->name, mt_row_class_text((enum mt_row_class)r->row_class),
                mt_arena_name(r->arena), r->bytes, r->off);
        json_lives(u, i, out);
        fprintf(out, "]}");
    }
}

void mt_usage_json(const struct mt_usage *u, FILE *out)
{
    const struct mt_session *s = u->s;
    fprintf(out, "{\"rank\": %d, \"world\": %d, \"target\": \"%s\", \"align\": %" PRId64 ", \"arenas\": {",
            s->first, s->world, s->target->name, s->ledger.align);
    for (int a = 0; a < MT_N_ARENAS; a++)
        fprintf(out,
                "%s\"%s\": {\"bytes\": %" PRId64 ", \"live\": %" PRId64 ", \"fullest\": %" PRId64
                ", \"unshared\": %" PRId64 "}",
                a ? ", " : "", mt_arena_name(a), s->plan.peak[a], s->plan.live[a], s->plan.fullest[a],
                s->plan.unshared[a]);
    fprintf(out, "},\n  \"records\": [");
    for (int64_t i = 0; i < u->q.n; i++)
        fprintf(out, "%s%s[\"%s\", \"%s\"]", i ? "," : "", i % 8 ? " " : "\n    ", mt_rec_name(&u->q.rec[i]),
                mt_stream_name(u->q.rec[i].stream));
    fprintf(out, "],\n  \"rows\": [");
    json_rows(u, out);
    fprintf(out, "]}\n");
}

/* ---- run.memory ---- */
static mt_status write_json(const struct mt_usage *u, mt_err *e)
{
    char path[MT_CONFIG_PATH + 32];
    snprintf(path, sizeof path, "%s/ledger.json", u->s->cfg->run_dir);
    FILE *f;
    MT_TRY(mt_print_open(&f, path, e));
    mt_usage_json(u, f);
    return mt_print_close(f, path, e);
}

static mt_status say_table(const struct mt_usage *u, mt_err *e)
{
    char pages[256] = "", *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    MT_REQUIRE(f, e, MT_IO, "no memory for the report of run.memory");
    if (!u->s->device) mt_arenas_text(&u->s->pages, &u->s->mapping, pages, sizeof pages);
    mt_usage_print(u, 8, f);
    bool ok = !fclose(f);
    if (ok) {
        mt_say("memory of a rank, by class\n");
        for (const char *at = text; *at; at += strcspn(at, "\n") + 1)
            mt_say("%.*s", (int)strcspn(at, "\n") + 1, at);
        if (!u->s->device) mt_say("  pages of the arenas here: %s\n", pages);
    }
    free(text);
    MT_REQUIRE(ok, e, MT_IO, "no memory for the report of run.memory");
    return MT_OK;
}

void mt_usage_warn(const struct mt_session *s)
{
    char pages[256];
    mt_arenas_text(&s->pages, &s->mapping, pages, sizeof pages);
    if (!s->device && s->pages.elsewhere) mt_say("pages     %s\n", pages);
}

mt_status mt_usage_report(const struct mt_session *s, mt_err *e)
{
    struct mt_usage u = {0};
    if (s->job.me != 0) return MT_OK;
    mt_status st = mt_usage_find(&u, s, e);
    if (st == MT_OK) st = say_table(&u, e);
    if (st == MT_OK) st = write_json(&u, e);
    mt_usage_release(&u);
    return st;
}
