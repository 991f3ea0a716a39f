#include "train/hang.h"

#include <stdlib.h>
#include <string.h>

const char *mt_phase_text(int phase)
{
    static const char *const text[] = {
#define MT_PHASE(name, text, floor) text,
#include "train/phase.def"
#undef MT_PHASE
    };
    return text[phase];
}

/* ---- who is missing ---- */
/* A collective that rank r's stream s waits in. */
static bool meets(const struct mt_hang_state *r, int s)
{
    return r->answered && r->stands && r->stand.stream[s].kind == MT_STAND_MEETS;
}
static bool waits(const struct mt_hang_state *r)
{
    bool any = r->call[0];
    for (int s = 0; s < MT_N_STREAMS; s++) any |= meets(r, s);
    return any;
}

/* Whether m has begun the collective that r's stream s waits in; by the number of the run, then of the collective. */
static bool has_entered(const struct mt_hang_state *m, const struct mt_hang_state *r, int s)
{
    const struct mt_collective *w = &r->stand.stream[s].what;
    if (!m->answered || !m->stands) return false;
    if (m->stand.run != r->stand.run) return m->stand.run > r->stand.run;
    return m->stand.entered[w->group][w->stream] >= w->seq;
}

struct search {
    const struct mt_hang_state *state;
    int n;
    int *leader; /* [MT_N_GROUPS][n] the first rank of each rank's group; NULL: there are no groups yet */
};
static bool together(const struct search *x, int group, int a, int b)
{
    const int *leader = x->leader + (int64_t)group * x->n;
    return leader[a] == leader[b];
}
static int *leaders(const struct mt_mesh *mesh, int n)
{
    int *leader = calloc((size_t)n * MT_N_GROUPS, sizeof *leader),
        *member = calloc((size_t)n, sizeof *member);
    for (int g = 0; g < MT_N_GROUPS && leader && member; g++)
        for (int r = 0; r < n; r++) {
            (void)mt_mesh_members(mesh, (enum mt_group_id)g, r, member);
            leader[(int64_t)g * n + r] = member[0];
        }
    if (!member) free(leader);
    free(member);
    return member ? leader : NULL;
}

/* What others wait in for rank m; "" if nothing. */
static void wanted_in_call(const struct search *x, int m, char *text, size_t size)
{
    for (int r = 0; r < x->n; r++) {
        const struct mt_hang_state *w = &x->state[r];
        bool with = w->answered && w->call[0] && (w->peer < 0 || w->peer == m);
        if (r == m || !with || (w->peer < 0 && x->state[m].answered && x->state[m].calls >= w->calls))
            continue;
        snprintf(text, size, "%s between the processes, call %lld, where rank %d waits", w->call,
                 (long long)w->calls, r);
        return;
    }
}
static void wanted_in_group(const struct search *x, int m, char *text, size_t size)
{
    for (int r = 0; r < x->n && x->leader; r++)
        for (int s = 0; s < MT_N_STREAMS; s++) {
            if (r == m || !meets(&x->state[r], s) || has_entered(&x->state[m], &x->state[r], s)) continue;
            const struct mt_collective *w = &x->state[r].stand.stream[s].what;
            if (!together(x, w->group, r, m)) continue;
            snprintf(text, size, "%s of the %s group, stream %s, number %lld, where rank %d waits",
                     mt_op_info[w->op].name, mt_mesh_group_name((enum mt_group_id)w->group),
                     mt_stream_name(w->stream), (long long)w->seq, r);
            return;
        }
}
static bool wanted(const struct search *x, int m, char *text, size_t size)
{
    text[0] = 0;
    wanted_in_group(x, m, text, size);
    if (!text[0]) wanted_in_call(x, m, text, size);
    return text[0];
}

static bool works(const struct mt_hang_state *s)
{
    return s->answered && s->stands && s->stand.working;
}

static void explain(const struct search *x, int m, char why[MT_HANG_WHY])
{
    char text[MT_HANG_WHY / 2];
    const struct mt_hang_state *s = &x->state[m];
    bool known = wanted(x, m, text, sizeof text);
    if (!s->answered)
        snprintf(why, MT_HANG_WHY,
                 "rank %d (node %s) does not answer, its process is stopped or stuck in MPI, or its node is "
                 "lost%s%s",
                 m, s->node, known ? "; it has not entered " : "", text);
    else
        snprintf(why, MT_HANG_WHY, "rank %d (node %s)%s%s%s", m, s->node, works(s) ? " is still at work" : "",
                 works(s) && known ? " and" : "", known ? " has not entered " : "");
    if (s->answered) snprintf(why + strlen(why), MT_HANG_WHY - strlen(why), "%s", text);
}

/* Those of the first sort that there is any of: late for others while it works or waits for nobody; at work while others wait;
 * late for others, all of whom wait in a circle. */
static int find_late(const struct search *x, int *missing)
{
    char text[MT_HANG_WHY / 2];
    bool any = false;
    int found = 0;
    for (int r = 0; r < x->n; r++) any |= waits(&x->state[r]);
    for (int sort = 0; sort < 3 && !found; sort++)
        for (int m = 0; m < x->n; m++) {
            const struct mt_hang_state *s = &x->state[m];
            if (!s->answered) continue;
            bool late = sort != 1 && wanted(x, m, text, sizeof text);
            if (sort == 0 ? late && (works(s) || !waits(s)) : sort == 1 ? any && works(s) : late)
                missing[found++] = m;
        }
    return found;
}

/* Nobody is late, and a collective that all of its group are in does not end. */
static void find_stuck(const struct search *x, char why[MT_HANG_WHY])
{
    for (int r = 0; r < x->n && x->leader; r++)
        for (int s = 0; s < MT_N_STREAMS; s++) {
            const struct mt_collective *w = &x->state[r].stand.stream[s].what;
            bool all = meets(&x->state[r], s);
            for (int m = 0; m < x->n && all; m++)
                all = !together(x, w->group, r, m) || has_entered(&x->state[m], &x->state[r], s);
            if (!all) continue;
            snprintf(
                why, MT_HANG_WHY,
                "all of its group have entered %s of the %s group, stream %s, number %lld, where rank %d "
                "waits, and it does not end",
                mt_op_info[w->op].name, mt_mesh_group_name((enum mt_group_id)w->group),
                mt_stream_name(w->stream), (long long)w->seq, r);
            return;
        }
}

int mt_hang_missing(const struct mt_hang_state *state, int n, const struct mt_mesh *mesh, int *missing,
                    char why[MT_HANG_WHY])
{
    struct search x = {.state = state, .n = n, .leader = mesh ? leaders(mesh, n) : NULL};
    int found = 0;
    for (int m = 0; m < n; m++)
        if (!state[m].answered) missing[found++] = m;
    int late = find_late(&x, missing + found);
    bool cause = late && (!found || !waits(&state[missing[found]])); /* else it may wait for the silent */
    if (cause) found += late;
    why[0] = 0;
    if (found)
        explain(&x, missing[0], why);
    else
        find_stuck(&x, why);
    free(x.leader);
    return found;
}

/* ---- a rank ---- */
static void print_stream(FILE *out, int s, const struct mt_stand_stream *t)
{
    char text[MT_COLLECTIVE_TEXT];
    if (t->kind == MT_STAND_EMPTY) return;
    fprintf(out, "    stream %s: ", mt_stream_name(s));
    if (t->kind == MT_STAND_WAITS)
        fprintf(out, "waits for operation %lld of stream %s\n", (long long)t->ev.seq,
                mt_stream_name(t->ev.stream));
    if (t->kind == MT_STAND_RUNS)
        fprintf(out, "operation %lld, %s\n", (long long)t->seq, mt_op_info[t->op].name);
    if (t->kind != MT_STAND_MEETS) return;
    mt_collective_text(&t->what, text);
    fprintf(out, "operation %lld, %s, of %d members", (long long)t->seq, text, t->members);
    if (t->here) fprintf(out, ", %d of them there", t->here);
    fprintf(out, "\n");
}

void mt_hang_print(FILE *out, const struct mt_hang_state *s, bool last)
{
    char text[MT_COLLECTIVE_TEXT];
    if (!s->answered) {
        fprintf(out, "  rank %d, node %s: does not answer\n", s->rank, s->node);
        return;
    }
    fprintf(out, "  rank %d, node %s: %s", s->rank, s->node, mt_phase_text(s->phase));
    if (s->step) fprintf(out, ", step %lld", (long long)s->step);
    fprintf(out, ", for %.1f s", s->for_s);
    if (s->call[0]) fprintf(out, "; in %s between the processes, call %lld", s->call, (long long)s->calls);
    if (s->call[0] && s->peer >= 0) fprintf(out, ", with rank %d", s->peer);
    if (s->stands)
        fprintf(out, "; host code %s%s", mt_stand_host(s->stand.host),
                s->stand.working ? "; a worker is busy" : "");
    fprintf(out, "\n");
    for (int i = 0; i < MT_N_STREAMS && s->stands; i++) print_stream(out, i, &s->stand.stream[i]);
    int64_t n = s->stands && last ? s->stand.n_last : 0;
    for (int64_t i = n > MT_STAND_LAST ? n - MT_STAND_LAST : 0; i < n; i++) {
        mt_collective_text(&s->stand.last[i % MT_STAND_LAST], text);
        fprintf(out, "    %s %s\n", i + 1 < n ? "before:" : "last:  ", text);
    }
}
