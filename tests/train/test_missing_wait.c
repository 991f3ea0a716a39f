/* test: timeout=300 variants=release,tsan
 *
 * A wait that is left out is seen: every one that the race check calls a hazard, one at a time, with the host's reads answered
 * beforehand. In a plain build it gives a wrong result under contrary orders of streams, with rows poisoned where their lifetimes
 * end; in a build with ThreadSanitizer, where each stream is a fiber that knows only what events and collectives tell it, it is
 * reported.
 *
 * The race check looks at one rank. What other ranks wait for orders some all the same: a gather that starts too soon on one rank
 * waits for theirs, and they exchanged rows with this one before. Such a wait is left out on all ranks, as it would be if it
 * were removed from the code. Three kinds of hazard nobody can see, and they are found from the recordings, not from
 * the outcome:
 *   BOOKKEEPING  one of the two is an operation that touches nothing: `keep` and `fresh`, by which a rank that has no part in
 *                something has the layout of one that has; or a read by the host, which has its answer from the tape
 *   ORDERED      without the wait on any rank the two are in order all the same, by waits and collectives of several
 *                ranks; as a rank alone cannot know that all of its group exchange, the step waits */
#include "world.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/cpu/exec_watch.h"
#include "device/poison.h"

/* RACES: that are looked at behind a missing wait. SEEN_EXIT: ThreadSanitizer's, of a run with a report. */
enum { ME = 0, SEEDS = 12, RACES = 4096, SEEN_EXIT = 66 };

#if MT_WATCH
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "halt_on_error=1:exitcode=66:symbolize=0:atexit_sleep_ms=0";
}
#endif

struct world {
    struct training t;
    struct mt_recording q[WORLD_RANKS];
    struct mt_poison whole[WORLD_RANKS];
    char *tape[WORLD_RANKS][MT_N_READ_KINDS];
    int64_t skip[WORLD_RANKS]; /* the records of what is left out; -1: nothing */
    uint64_t want;
};

/* ---- two steps, so that what is left of the first is not what the second needs ---- */
static bool first_step(struct world *w)
{
    return training_run(&w->t, mt_fill_step) && ranks_step(&w->t, 0);
}
static char *copy_of(const void *from, size_t bytes)
{
    char *to = malloc(bytes + 1);
    MT_ASSERT(to);
    if (bytes) memcpy(to, from, bytes);
    return to;
}
/* What the host reads in the second step. */
static bool tapes_make(struct world *w)
{
    const struct mt_shape *d = &w->t.s.rank[0].model.shape;
    const struct mt_model_options *o = &w->t.s.rank[0].model.opt;
    size_t bytes = (size_t)(o->micro_batches * d->L * d->E * o->mesh.ep) * 4;
    if (!first_step(w) || !ranks_step(&w->t, 1)) return false;
    w->want = ranks_bits(&w->t);
    for (int r = 0; r < w->t.s.world; r++) {
        const struct mt_step *step = &w->t.s.rank[r].step;
        w->tape[r][MT_READ_COUNTS] = copy_of(step->rank.counts, bytes);
        w->tape[r][MT_READ_LOSS] = copy_of(&step->loss, sizeof step->loss);
        w->tape[r][MT_READ_NORM] = copy_of(&step->norm, sizeof step->norm);
        w->tape[r][MT_READ_STATE] = copy_of(&step->valid, sizeof step->valid);
    }
    return true;
}
/* The number of a record among its rank's waits, by which it is skipped. */
static int64_t wait_number(const struct mt_recording *q, int64_t at)
{
    int64_t n = -1;
    for (int64_t i = 0; i <= at; i++) n += q->rec[i].op == MT_OP_wait;
    return n;
}
static uint64_t second_step(struct world *w, const struct mt_poison *poison, bool all_tapes)
{
    struct training *t = &w->t;
    mt_err e = {0};
    ranks_batch(t, 1);
    for (int r = 0; r < t->s.world; r++) {
        struct mt_ctx *c = &t->s.rank[r].ctx;
        for (int k = 0; k < MT_N_READ_KINDS; k++)
            if (all_tapes || k == MT_READ_COUNTS) c->tape[k] = w->tape[r][k];
        c->poison = poison ? &poison[r] : NULL;
        c->skip_wait = wait_number(&w->q[r], w->skip[r]);
        t->s.rank[r].step.step = 1;
    }
    return mt_session_run(&t->s, mt_train_step, &e) == MT_OK ? ranks_bits(t) : 0;
}
/* In a process of its own, whose memory is as the first step left it: an index that is poison ends it. The session has no
 * executor, so no threads, by now. */
static bool seen(struct world *w, const struct mt_poison *poison, int order, bool all_tapes)
{
    int status = 0;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int quiet = open("/dev/null", O_WRONLY);
        if (MT_WATCH) dup2(quiet, STDERR_FILENO); /* reports */
        alarm(30);
        bool ok = ranks_executor(&w->t, (struct mt_exec_options){.workers = 1, .order_seed = order}) &&
                  second_step(w, poison, all_tapes) == w->want;
        _exit(ok ? 0 : 1);
    }
    if (!CHECK(child > 0 && waitpid(child, &status, 0) == child)) return false;
    if (MT_WATCH) return WIFEXITED(status) && WEXITSTATUS(status) == SEEN_EXIT;
    return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

/* ---- what is left out ---- */
static void skip_none(struct world *w)
{
    for (int r = 0; r < WORLD_RANKS; r++) w->skip[r] = -1;
}
/* The same wait on the other ranks, where they have it. */
static void skip_everywhere(struct world *w)
{
    const struct mt_rec *p = &w->q[ME].rec[w->skip[ME]];
    for (int r = 0; r < w->t.s.world; r++)
        for (int64_t i = 0; i < w->q[r].n && r != ME; i++) {
            const struct mt_rec *x = &w->q[r].rec[i];
            if (x->op == MT_OP_wait && x->stream == p->stream && x->seq == p->seq &&
                x->ev.stream == p->ev.stream && x->ev.seq == p->ev.seq)
                w->skip[r] = i;
        }
}
static bool touches(const struct mt_rec *r)
{
    return r->op != MT_OP_keep && r->op != MT_OP_fresh && r->op != MT_OP_read_back;
}

enum visible { RACE, ORDERED, BOOKKEEPING };
static const char *const visible_text[] = {"a race", "in order by other ranks", "touches nothing"};
/* race: all n of them, on rank ME. shown: one that says what it is about. */
static enum visible visible(struct world *w, const struct mt_race *race, int n, struct mt_race *shown)
{
    struct world_order o = {.ranks = w->t.s.world, .q = w->q};
    enum visible v = BOOKKEEPING;
    for (int r = 0; r < o.ranks; r++) {
        o.group[r] = w->t.s.rank[r].ctx.group;
        o.skip[r] = w->skip[r];
    }
    bool ok = world_find(&o);
    for (int i = 0; i < n && ok; i++) {
        const struct mt_rec *rec = w->q[ME].rec;
        if (race[i].lost || !touches(&rec[race[i].first]) || !touches(&rec[race[i].second])) continue;
        enum visible is = world_ordered(&o, ME, race[i].first, race[i].second) ? ORDERED : RACE;
        if (is < v) {
            v = is;
            *shown = race[i];
        }
    }
    world_release(&o);
    return v;
}

/* ---- tables of poison without a position: behind it all are one earlier ---- */
static bool tables_make(struct world *w, struct mt_poison *p)
{
    mt_err e = {0};
    bool ok = true;
    for (int r = 0; r < w->t.s.world && ok; r++) {
        ok = CHECK(mt_poison_find(&p[r], &w->t.s.ledger, &w->q[r], -1, &e) == MT_OK);
        if (!ok || w->skip[r] < 0) continue;
        const struct mt_rec *x = &w->q[r].rec[w->skip[r]];
        int32_t *at = p[r].first[x->stream] + x->seq;
        memmove(at, at + 1, (size_t)(p[r].n[x->stream] + 1 - x->seq) * sizeof *at);
        p[r].n[x->stream]--;
    }
    return ok;
}
/* ThreadSanitizer needs no order but the plain one, and would see poison as one more access. The other wants a contrary one, in
 * which a value that only the host reads is not told by the tape. */
static bool seen_in_any_order(struct world *w, int *order, int *tries)
{
    struct mt_poison p[WORLD_RANKS] = {0};
    bool found = false;
    if (MT_WATCH) {
        ++*tries;
        return seen(w, NULL, *order = 0, true);
    }
    if (tables_make(w, p))
        for (int tapes = 1; tapes >= 0 && !found; tapes--)
            for (int k = -MT_N_STREAMS; k <= SEEDS && !found; k++, ++*tries)
                found = seen(w, p, *order = k, tapes);
    for (int r = 0; r < WORLD_RANKS; r++) mt_poison_release(&p[r]);
    return found;
}

/* ---- all waits of a step ---- */
struct tally {
    int hazards, alone, everywhere, ordered, bookkeeping, missed, tries;
};
static void one(struct world *w, int64_t i, const struct mt_race *race, int n, struct tally *y)
{
    const struct mt_rec *r = w->q[ME].rec;
    struct mt_race about = race[0];
    int order = 0;
    bool found = false, all = false;
    skip_none(w);
    w->skip[ME] = i;
    enum visible v = visible(w, race, n, &about);
    if (v == ORDERED) {
        all = true;
        skip_everywhere(w);
        v = visible(w, race, n, &about);
    }
    if (v == RACE) found = seen_in_any_order(w, &order, &y->tries);
    y->hazards++;
    y->alone += found && !all;
    y->everywhere += found && all;
    y->ordered += v == ORDERED;
    y->bookkeeping += v == BOOKKEEPING;
    y->missed += v == RACE && !found;
    printf("  %-8s for %-8s %4lld: %-14s %-14s %-20s race check; ", mt_stream_name(r[i].stream),
           mt_stream_name(r[i].ev.stream), (long long)r[i].ev.seq, mt_rec_name(&r[about.first]),
           mt_rec_name(&r[about.second]), w->t.s.ledger.row[about.row].name);
    if (v != RACE)
        printf("%s\n", visible_text[v]);
    else if (found && MT_WATCH)
        printf("ThreadSanitizer%s\n", all ? ", on all ranks" : "");
    else if (found)
        printf("wrong result%s, order %d\n", all ? ", on all ranks" : "", order);
    else
        printf("NOT SEEN%s\n", all ? ", on all ranks" : "");
}

static bool world_open(struct world *w, const char *options, int world)
{
    *w = (struct world){0};
    skip_none(w);
    if (!ranks_open(&w->t, options, world)) return false;
    bool ok = tapes_make(w);
    for (int r = 0; r < world && ok; r++) ok = ranks_record(&w->t, r, 1, -1, &w->q[r]);
    return ok && first_step(w) && tables_make(w, w->whole);
}
static void world_close(struct world *w)
{
    for (int r = 0; r < WORLD_RANKS; r++) {
        mt_poison_release(&w->whole[r]);
        mt_recording_release(&w->q[r]);
        for (int k = 0; k < MT_N_READ_KINDS; k++) free(w->tape[r][k]);
    }
    training_close(&w->t);
}

/* unseen: so many hazards at most that nobody can see. */
static void missing(const char *options, int world, int unseen)
{
    struct world w;
    struct tally y = {0};
    struct mt_race *race = malloc(RACES * sizeof *race);
    MT_ASSERT(race);
    bool open = world_open(&w, options, world);
    mt_exec_close(w.t.s.exec);
    w.t.s.exec = NULL;
    if (open) CHECK(!seen(&w, MT_WATCH ? NULL : w.whole, MT_WATCH ? 0 : 1, true)); /* nothing is missing */
    for (int64_t i = 0; i < w.q[ME].n && open; i++) {
        if (w.q[ME].rec[i].op != MT_OP_wait) continue;
        int n = mt_races_find(&w.q[ME], &w.t.s.ledger, i, false, race, RACES);
        CHECK(n < RACES);
        if (n) one(&w, i, race, n, &y);
    }
    printf(
        "  %d ranks: %d hazards, seen %d on one rank and %d on all, in %d runs; %d in order by other ranks, "
        "%d touch nothing; %d missed\n",
        world, y.hazards, y.alone, y.everywhere, y.tries, y.ordered, y.bookkeeping, y.missed);
    CHECK(y.hazards > 20);
    CHECK(y.ordered + y.bookkeeping <= unseen);
    CHECK_INT(y.missed, 0);
    world_close(&w);
    free(race);
}

#define SMALL TRAINING_BASE "train.seq_len=16 train.loss_chunk=12 train.micro_batch=1 model.layers=3 "
TEST(dense)
{
    missing(SMALL "train.global_batch=2 ", 2, 2);
}
TEST(offloaded)
{
    missing(SMALL TRAINING_MOE "model.layers=2 model.experts=2 model.top_k=1 train.global_batch=2 "
                               "offload.activations.fraction=1 offload.moments=host offload.grads=host "
                               "offload.slot_bytes=64KiB ",
            1, 0);
}
TEST(experts)
{
    missing(SMALL TRAINING_MOE "train.global_batch=4 mesh.ep=2 moe.buffer_factor=16 ", MT_WATCH ? 2 : 4, 9);
}

int main(void)
{
    RUN(dense);
    RUN(offloaded);
    RUN(experts);
    return DONE();
}
