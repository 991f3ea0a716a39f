#include "train/watchdog.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "train/control.h"
#include "train/hang.h"
#include "train/metrics.h"

/* Seconds: TICK between looks; MOST that one look may add to a phase (more: the process was stopped); ANSWER for the others to
 * say where they stand; SECOND, LAST until the last process asks and until each tells what it knows. */
#define TICK_NS 250000000
#define MOST_S 1.0
#define ANSWER_S 2.0
#define SECOND_S 4.0
#define LAST_S 8.0
enum { SHOWN = 16, GIVE_UP_S = 3 }; /* ranks on the terminal; seconds for a library to give up */

enum note_kind { ASK, STATE };
struct note {
    int32_t kind;
    struct mt_hang_state state;
};

struct mt_watchdog {
    struct mt_ending *ending;
    const struct mt_job *job;
    pthread_t thread;
    pthread_mutex_t mu; /* all down to longest */
    const struct mt_session *s;
    enum mt_phase phase;
    int64_t step;
    double entered, watched; /* when; seconds of it that were watched */
    double longest[MT_N_PHASES];
    atomic_bool over, stop;
    int interrupts;
    double late_s; /* since the deadline */
    const struct mt_nodes *nodes;
};

/* ---- deadlines ---- */
static double floor_of(const mt_config *c, enum mt_phase p)
{
    switch (p) {
#define MT_PHASE(name, text, floor) \
    case MT_PHASE_##name:           \
        return c->floor;
#include "train/phase.def"
#undef MT_PHASE
    default: return 0;
    }
}
/* 0: none. Under the lock. */
static double deadline_of(const struct mt_watchdog *w)
{
    const mt_config *c = w->ending->cfg;
    double least = floor_of(c, w->phase), learned = c->watchdog_factor * w->longest[w->phase];
    return least > 0 && learned > least ? learned : least;
}

void mt_watchdog_enter(struct mt_watchdog *w, enum mt_phase phase, int64_t step)
{
    double now = mt_now();
    pthread_mutex_lock(&w->mu);
    double took = now - w->entered;
    if (took > w->longest[w->phase]) w->longest[w->phase] = took;
    w->phase = phase;
    w->step = step;
    w->entered = now;
    w->watched = 0;
    pthread_mutex_unlock(&w->mu);
}
double mt_watchdog_longest(struct mt_watchdog *w, enum mt_phase phase)
{
    double now = mt_now();
    pthread_mutex_lock(&w->mu);
    double s = w->longest[phase], present = w->phase == phase ? now - w->entered : 0;
    pthread_mutex_unlock(&w->mu);
    return present > s ? present : s;
}
void mt_watchdog_session(struct mt_watchdog *w, const struct mt_session *s)
{
    if (!w) return;
    pthread_mutex_lock(&w->mu);
    w->s = s;
    pthread_mutex_unlock(&w->mu);
}
bool mt_watchdog_stop(const struct mt_watchdog *w)
{
    return w->stop;
}

/* ---- where ranks stand ---- */
static bool stands(const struct mt_session *s, int i, struct mt_rank_stand *out)
{
    if (s && s->exec) return mt_exec_stand(s->exec, i, out);
    return s && s->backend && s->device->stand(s->backend, i, out);
}

/* Of the i-th rank here. */
static struct mt_hang_state state_of(struct mt_watchdog *w, int i)
{
    struct mt_job_call call = mt_job_call(w->job);
    struct mt_hang_state x = {.answered = 1, .rank = w->job->first + i, .peer = call.peer, .calls = call.n};
    if (call.what) snprintf(x.call, sizeof x.call, "%s", call.what);
    snprintf(x.node, sizeof x.node, "%s", mt_nodes_of(w->nodes, x.rank));
    pthread_mutex_lock(&w->mu);
    x.phase = w->phase;
    x.step = w->step;
    x.for_s = w->watched;
    x.stands = stands(w->s, i, &x.stand);
    pthread_mutex_unlock(&w->mu);
    return x;
}

/* Takes all notes: answers those who ask, keeps what others answer (state NULL: nobody was asked). */
static void take_notes(struct mt_watchdog *w, struct mt_hang_state *state)
{
    struct note in;
    for (int from = mt_job_noted(w->job, &in, sizeof in); from >= 0;
         from = mt_job_noted(w->job, &in, sizeof in)) {
        if (in.kind == ASK) {
            struct note out = {STATE, state_of(w, 0)};
            (void)mt_job_note(w->job, from, &out, sizeof out);
        } else if (state) {
            state[from] = in.state;
        }
    }
}

static void pause_for(int64_t ns)
{
    nanosleep(&(struct timespec){ns / 1000000000, ns % 1000000000}, NULL);
}

/* Every rank's, as far as it can be had; the caller frees it. ask: other processes too. */
static struct mt_hang_state *all_states(struct mt_watchdog *w, bool ask)
{
    const struct mt_job *j = w->job;
    struct note question = {.kind = ASK};
    struct mt_hang_state *state = calloc((size_t)j->world, sizeof *state);
    if (!state) return NULL;
    for (int r = 0; r < j->world; r++) {
        state[r].rank = r;
        snprintf(state[r].node, sizeof state[r].node, "%s", mt_nodes_of(w->nodes, r));
    }
    for (int p = 0; p < j->n && ask; p++)
        if (p != j->me) (void)mt_job_note(j, p, &question, sizeof question);
    int missing = j->n - 1;
    for (double until = mt_now() + ANSWER_S; ask && missing && mt_now() < until;) {
        pause_for(TICK_NS / 10);
        take_notes(w, state);
        missing = -1;
        for (int p = 0; p < j->n; p++) missing += !state[p].answered;
    }
    for (int i = 0; i < j->n_local; i++) state[j->first + i] = state_of(w, i);
    return state;
}

/* ---- the end ---- */
static void write_all(const struct mt_watchdog *w, const struct mt_hang_state *state, const char *message)
{
    char path[MT_CONFIG_PATH + 32];
    snprintf(path, sizeof path, "%s/hang.txt", w->ending->cfg->run_dir);
    FILE *f = w->ending->ours ? fopen(path, "w") : NULL;
    if (!f) return;
    fprintf(f, "%s\n", message);
    for (int r = 0; r < w->job->world; r++) mt_hang_print(f, &state[r], true);
    fclose(f);
}
/* The missing first, then the others while there is room. */
static void show(const struct mt_hang_state *state, int n, const int *missing, int n_missing)
{
    bool done = false;
    for (int i = 0; i < n_missing && i < SHOWN; i++) mt_hang_print(stderr, &state[missing[i]], true);
    for (int r = 0, shown = n_missing; r < n && shown < SHOWN; r++) {
        done = false;
        for (int i = 0; i < n_missing; i++) done |= missing[i] == r;
        if (done) continue;
        mt_hang_print(stderr, &state[r], false);
        shown++;
    }
}

static void report(struct mt_watchdog *w, const struct mt_hang_state *state)
{
    char why[MT_HANG_WHY] = "", message[2 * MT_HANG_WHY], step[40] = "";
    int *missing = calloc((size_t)w->job->world, sizeof *missing);
    const struct mt_hang_state *own = &state[w->job->first];
    pthread_mutex_lock(&w->mu);
    double deadline = deadline_of(w);
    const struct mt_mesh *mesh = w->s && w->s->world ? &w->s->mesh : NULL;
    int n = missing ? mt_hang_missing(state, w->job->world, mesh, missing, why) : 0;
    pthread_mutex_unlock(&w->mu);
    if (own->step) snprintf(step, sizeof step, " (step %lld)", (long long)own->step);
    snprintf(message, sizeof message, "no progress: %s%s is not over after %.1f s, %.1f s are allowed%s%s",
             mt_phase_text(own->phase), step, own->for_s, deadline, why[0] ? ": " : "", why);
    if (n > 1)
        snprintf(message + strlen(message), sizeof message - strlen(message), "; %d more are missing", n - 1);
    fprintf(stderr, "moetitan: rank %d: %s\n", own->rank, message);
    show(state, w->job->world, missing, n);
    write_all(w, state, message);
    mt_ending_write(w->ending, MT_HANG, mt_status_name(MT_HANG), message);
    free(missing);
}

struct giving_up {
    const struct mt_session *s;
    mt_status why;
};
static void *give_up(void *arg)
{
    const struct giving_up *g = arg;
    g->s->device->abort(g->s->backend, g->why);
    return NULL;
}
/* Collectives under way on a backend are given up first, if that can be done in time: its library may hang as well. */
static void __attribute__((noreturn)) stop_job(struct mt_watchdog *w, mt_status code)
{
    struct timespec until;
    struct giving_up g = {.why = code};
    pthread_t t;
    fflush(stderr);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += GIVE_UP_S;
    pthread_mutex_lock(&w->mu);
    g.s = w->s;
    if (w->s && w->s->backend && !pthread_create(&t, NULL, give_up, &g))
        (void)pthread_timedjoin_np(t, NULL, &until);
    mt_job_stop(w->job, (int)code);
}

static void end_job(struct mt_watchdog *w, bool ask)
{
    struct mt_hang_state *state = all_states(w, ask);
    if (state) report(w, state);
    stop_job(w, MT_HANG);
}

/* ---- what fails by itself ---- */
static bool failed(struct mt_watchdog *w, struct mt_backend_fault *fault)
{
    pthread_mutex_lock(&w->mu);
    bool any = w->s && w->s->backend && w->s->device->look(w->s->backend, fault);
    pthread_mutex_unlock(&w->mu);
    return any;
}

/* A collective that the device's library has broken off, of which the host code, which waits for it, hears nothing. */
static void look_at_device(struct mt_watchdog *w)
{
    struct mt_backend_fault fault;
    char what[160] = "a communicator", message[2 * MT_HANG_WHY];
    const struct mt_collective *c = &fault.what;
    if (!failed(w, &fault)) return;
    if (fault.known)
        snprintf(what, sizeof what, "%s of the %s group, stream %s, number %lld", mt_op_info[c->op].name,
                 mt_mesh_group_name((enum mt_group_id)c->group), mt_stream_name(c->stream),
                 (long long)c->seq);
    pthread_mutex_lock(&w->mu);
    snprintf(message, sizeof message, "%s (step %lld): %s failed: %.600s", mt_phase_text((int)w->phase),
             (long long)w->step, what, fault.err.msg);
    pthread_mutex_unlock(&w->mu);
    fprintf(stderr, "moetitan: rank %d: %s\n", w->job->first, message);
    mt_ending_write(w->ending, fault.err.code, mt_status_name(fault.err.code), message);
    stop_job(w, fault.err.code);
}

/* Adds what passed since the last look. */
static void look(struct mt_watchdog *w, double passed)
{
    const struct mt_job *j = w->job;
    bool first = j->me == 0, last = j->me == j->n - 1;
    if (passed > MOST_S) passed = MOST_S;
    pthread_mutex_lock(&w->mu);
    double deadline = deadline_of(w);
    w->watched += passed;
    bool late = deadline > 0 && w->watched > deadline;
    pthread_mutex_unlock(&w->mu);
    w->late_s = late ? w->late_s + passed : 0;
    if (late && w->late_s >= (first ? 0 : last ? SECOND_S : LAST_S)) end_job(w, first || last);
}

/* ---- signals ---- */
/* The second SIGINT does what it does to a program that has no use for it. */
static void interrupted(struct mt_watchdog *w)
{
    static const char text[] = "interrupted a second time: ended at once, unsaved";
    sigset_t one;
    fprintf(stderr, "moetitan: %s\n", text);
    mt_ending_write(w->ending, 128 + SIGINT, "INTERRUPTED", text);
    signal(SIGINT, SIG_DFL);
    sigemptyset(&one);
    sigaddset(&one, SIGINT);
    raise(SIGINT);
    pthread_sigmask(SIG_UNBLOCK, &one, NULL);
}
static void heard(struct mt_watchdog *w, int signal)
{
    if (w->over) return;
    w->stop = true;
    if (signal == SIGINT && ++w->interrupts == 2) interrupted(w);
}

static void *watch(void *arg)
{
    struct mt_watchdog *w = arg;
    sigset_t set = mt_control_stop_signals();
    for (double before = mt_now(), now; !w->over; before = now) {
        int signal = sigtimedwait(&set, NULL, &(struct timespec){0, TICK_NS});
        if (signal > 0) heard(w, signal);
        take_notes(w, NULL);
        look_at_device(w);
        now = mt_now();
        look(w, now - before);
    }
    return NULL;
}

/* ---- opening ---- */
mt_status mt_watchdog_open(struct mt_watchdog **out, struct mt_ending *ending, const struct mt_nodes *nodes,
                           mt_err *e)
{
    struct mt_watchdog *w = calloc(1, sizeof *w);
    MT_REQUIRE(w, e, MT_IO, "no memory for a watchdog");
    *w = (struct mt_watchdog){.ending = ending, .job = ending->job, .nodes = nodes, .entered = mt_now()};
    pthread_mutex_init(&w->mu, NULL);
    sigset_t set = mt_control_stop_signals(), old;
    pthread_sigmask(SIG_BLOCK, &set, &old);
    int rc = pthread_create(&w->thread, NULL, watch, w);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc) {
        pthread_mutex_destroy(&w->mu);
        free(w);
        MT_FAIL(e, MT_IO, "starting the watchdog: %s", strerror(rc));
    }
    *out = w;
    return MT_OK;
}

void mt_watchdog_close(struct mt_watchdog *w)
{
    if (!w) return;
    w->over = true;
    pthread_kill(w->thread, SIGUSR1); /* wakes it */
    pthread_join(w->thread, NULL);
    pthread_mutex_destroy(&w->mu);
    free(w);
}
