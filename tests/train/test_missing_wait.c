/* test: timeout=300 variants=release
 *
 * A wait that is left out gives a wrong result: every one that the race check calls a hazard, one at a time, under contrary
 * orders of streams, with the host's reads answered beforehand, and with rows poisoned where their lifetimes end. */
#include "ranks.h"

#include <sys/wait.h>
#include <unistd.h>

#include "device/order.h"
#include "device/poison.h"

enum { MOST_RANKS = 4, ME = 0, SEEDS = 12 };

struct world {
    struct training t;
    struct mt_recording q; /* rank ME's step */
    struct mt_poison whole[MOST_RANKS];
    char *tape[MOST_RANKS];
    uint64_t want;
};

static void tapes_use(struct world *w, bool use)
{
    for (int r = 0; r < w->t.s.world; r++) w->t.s.rank[r].ctx.tape = use ? w->tape[r] : NULL;
}
/* Two steps, so that what is left of the first is not what the second needs; the second one's bits. */
static uint64_t two_steps(struct world *w, int64_t skip_wait, const struct mt_poison *mine)
{
    struct training *t = &w->t;
    if (!training_run(t, mt_fill_step) || !ranks_step(t, 0)) return 0;
    tapes_use(w, true);
    for (int r = 0; r < t->s.world; r++)
        t->s.rank[r].ctx.poison = r == ME && mine ? mine : mine ? &w->whole[r] : NULL;
    t->s.rank[ME].ctx.skip_wait = skip_wait;
    ranks_batch(t, 1);
    for (int r = 0; r < t->s.world; r++) t->s.rank[r].step.step = 1;
    mt_err e = {0};
    mt_status st = mt_session_run(&t->s, mt_train_step, &e);
    t->s.rank[ME].ctx.skip_wait = -1;
    for (int r = 0; r < t->s.world; r++) t->s.rank[r].ctx.poison = NULL;
    tapes_use(w, false);
    return st == MT_OK ? ranks_bits(t) : 0;
}

/* Counts as the second step reads them. */
static bool tapes_make(struct world *w)
{
    const struct mt_shape *d = &w->t.s.rank[0].model.shape;
    const struct mt_model_options *o = &w->t.s.rank[0].model.opt;
    size_t bytes = (size_t)(o->micro_batches * d->L * d->E * o->mesh.ep) * 4;
    if (!training_run(&w->t, mt_fill_step) || !ranks_step(&w->t, 0) || !ranks_step(&w->t, 1)) return false;
    w->want = ranks_bits(&w->t);
    for (int r = 0; r < w->t.s.world && bytes; r++) {
        w->tape[r] = malloc(bytes);
        MT_ASSERT(w->tape[r]);
        memcpy(w->tape[r], w->t.s.rank[r].step.rank.counts, bytes);
    }
    return true;
}
static bool world_open(struct world *w, const char *options, int world)
{
    *w = (struct world){0};
    if (!ranks_open(&w->t, options, world) || !tapes_make(w)) return false;
    bool ok = ranks_record(&w->t, ME, 1, -1, &w->q);
    for (int r = 0; r < world && ok; r++) {
        struct mt_recording q;
        mt_err e = {0};
        ok = ranks_record(&w->t, r, 1, -1, &q) &&
             CHECK(mt_poison_find(&w->whole[r], &w->t.s.ledger, &q, -1, &e) == MT_OK);
        mt_recording_release(&q);
    }
    return ok;
}
static void world_close(struct world *w)
{
    for (int r = 0; r < MOST_RANKS; r++) {
        mt_poison_release(&w->whole[r]);
        free(w->tape[r]);
    }
    mt_recording_release(&w->q);
    training_close(&w->t);
}

/* The table without the position of a wait: behind it all are one earlier. */
static bool table_without(struct world *w, int64_t wait, struct mt_poison *p)
{
    const struct mt_rec *r = &w->q.rec[wait];
    mt_err e = {0};
    if (!CHECK(mt_poison_find(p, &w->t.s.ledger, &w->q, -1, &e) == MT_OK)) return false;
    int32_t *at = p->first[r->stream] + r->seq;
    memmove(at, at + 1, (size_t)(p->n[r->stream] + 1 - r->seq) * sizeof *at);
    p->n[r->stream]--;
    return true;
}
/* In a process of its own: an index that is poison ends it. The session has no executor, so no threads, by now. */
static bool seen(struct world *w, int64_t n, const struct mt_poison *p, int seed)
{
    int status = 0;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        alarm(30);
        bool ok = ranks_executor(&w->t, (struct mt_exec_options){.workers = 1, .order_seed = seed}) &&
                  two_steps(w, n, p) == w->want;
        _exit(ok ? 0 : 1);
    }
    if (!CHECK(child > 0 && waitpid(child, &status, 0) == child)) return false;
    return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

/* least: so many tenths of the hazards must be seen. */
static void missing(const char *options, int world, int least)
{
    struct world w;
    struct mt_race race;
    int hazards = 0, caught = 0, tries = 0;
    bool open = world_open(&w, options, world);
    mt_exec_close(w.t.s.exec);
    w.t.s.exec = NULL;
    if (open) CHECK(!seen(&w, -1, &w.whole[ME], 1)); /* nothing is missing */
    if (open)
        for (int64_t i = 0, n = -1; i < w.q.n; i++) {
            n += w.q.rec[i].op == MT_OP_wait; /* waits are skipped by their number */
            if (w.q.rec[i].op != MT_OP_wait || !mt_races_find(&w.q, &w.t.s.ledger, i, false, &race, 1))
                continue;
            struct mt_poison p;
            bool wrong = false;
            if (!table_without(&w, i, &p)) break;
            for (int k = -MT_N_STREAMS; k <= SEEDS && !wrong; k++, tries++) wrong = seen(&w, n, &p, k);
            hazards++;
            caught += wrong;
            if (!wrong)
                printf("  not seen: the wait of stream %d at %lld for %lld of stream %d: %s and %s, row %s\n",
                       w.q.rec[i].stream, (long long)w.q.rec[i].seq, (long long)w.q.rec[i].ev.seq,
                       w.q.rec[i].ev.stream, mt_rec_name(&w.q.rec[race.first]),
                       mt_rec_name(&w.q.rec[race.second]), w.t.s.ledger.row[race.row].name);
            mt_poison_release(&p);
        }
    printf("  %d ranks: %d hazards, %d seen, in %d runs\n", world, hazards, caught, tries);
    CHECK(hazards > 30 && 10 * caught >= least * hazards);
    world_close(&w);
}

TEST(dense)
{
    missing(TRAINING_BASE "model.layers=4 train.global_batch=4 ", 2, 10);
}
/* What other ranks wait for orders some all the same: a gather that starts too soon here waits for theirs, and they exchanged rows with
 * this one before; and a slot of Muon's that only a `keep` guards has no reader on this rank. */
TEST(experts)
{
    missing(TRAINING_BASE TRAINING_MOE
            "model.layers=4 train.micro_batch=1 train.global_batch=8 mesh.ep=2 moe.buffer_factor=16 ",
            4, 8);
}

int main(void)
{
    RUN(dense);
    RUN(experts);
    return DONE();
}
