/* test: variants=release,asan,tsan-plain
 *
 * Ranks of several processes compare their calls before anything moves, where that is asked for. The processes are ranks of one
 * executor here, each with a group and a wire of its own, through memory. */
#include <pthread.h>

#include "device/group.h"
#include "ranks.h"

#ifdef MT_DEBUG
enum { N = 3, ALWAYS = 1 };
#else
enum { N = 3, ALWAYS = 0 };
#endif

struct side {
    const struct mt_move *move;
    int64_t started, pulled;
};
struct hub {
    pthread_mutex_t mu;
    struct side side[N][MT_N_STREAMS];
    int64_t starts, bytes;
};
struct memory_wire {
    struct mt_wire base;
    struct hub *hub;
    int me;
};

static void start(struct mt_wire *base, int stream, const struct mt_move *move)
{
    struct memory_wire *w = (struct memory_wire *)base;
    pthread_mutex_lock(&w->hub->mu);
    w->hub->side[w->me][stream].move = move;
    w->hub->side[w->me][stream].started++;
    w->hub->starts++;
    pthread_mutex_unlock(&w->hub->mu);
}
static bool all_there(const struct hub *h, int stream, int64_t k, bool pulled)
{
    for (int p = 0; p < N; p++)
        if ((pulled ? h->side[p][stream].pulled : h->side[p][stream].started) < k) return false;
    return true;
}
static bool test(struct mt_wire *base, int stream)
{
    struct memory_wire *w = (struct memory_wire *)base;
    struct hub *h = w->hub;
    struct side *mine = &h->side[w->me][stream];
    pthread_mutex_lock(&h->mu);
    if (mine->pulled < mine->started && all_there(h, stream, mine->started, false)) {
        for (int p = 0; p < N; p++) {
            MT_ASSERT(mine->move[p].in == h->side[p][stream].move[w->me].out);
            memcpy(mine->move[p].dst, h->side[p][stream].move[w->me].src, (size_t)mine->move[p].in);
            h->bytes += p == w->me ? 0 : mine->move[p].in;
        }
        mine->pulled++;
    }
    bool over = all_there(h, stream, mine->started, true);
    pthread_mutex_unlock(&h->mu);
    return over;
}
static void close_wire(struct mt_wire *base)
{
    free(base);
}

struct job {
    struct ranks t;
    struct hub hub;
    struct mt_group *group[N];
};
static void job_open(struct job *j, bool compare, int workers)
{
    static const int all[] = {0, 1, 2};
    mt_err e = {0};
    ranks_open(&j->t, N, 2, (struct mt_exec_options){.workers = workers, .compare = compare});
    memset(&j->hub, 0, sizeof j->hub);
    pthread_mutex_init(&j->hub.mu, NULL);
    for (int r = 0; r < N; r++) {
        struct memory_wire *w = calloc(1, sizeof *w);
        *w = (struct memory_wire){{start, test, close_wire}, &j->hub, r};
        CHECK_INT(mt_group_open(&j->group[r], all, N, &e), MT_OK);
        CHECK_INT(mt_group_carry(j->group[r], &w->base, &e), MT_OK);
        j->t.ctx[r].group[0] = j->group[r];
    }
}
static void job_close(struct job *j)
{
    ranks_close(&j->t);
    for (int r = 0; r < N; r++) mt_group_close(j->group[r]);
    pthread_mutex_destroy(&j->hub.mu);
}

static void gather(struct mt_ctx *c, const struct ranks *t, int64_t units)
{
    mt_gather(&c->stream[MT_GATHER], ranks_part(t->out, 0, 4 * units), ranks_part(t->in, 0, 4 * units),
              MT_GROUP_WORLD, units, 4);
}
static void all_alike(struct mt_ctx *c, void *arg)
{
    const struct ranks *t = arg;
    for (int i = 0; i < 20; i++) {
        gather(c, t, 12);
        mt_scatter(&c->stream[MT_REDUCE], ranks_part(t->out, 1024, 48), ranks_part(t->in, 0, 48),
                   MT_GROUP_WORLD, 12, 4);
    }
}
static void one_differs(struct mt_ctx *c, void *arg)
{
    const struct ranks *t = arg;
    gather(c, t, 12);
    if (c->rank == t->odd)
        mt_scatter(&c->stream[MT_GATHER], ranks_part(t->out, 1024, 48), ranks_part(t->in, 0, 48),
                   MT_GROUP_WORLD, 12, 4);
    else
        gather(c, t, 12);
}
static void one_expects_more(struct mt_ctx *c, void *arg)
{
    const struct ranks *t = arg;
    struct mt_exchange_peer peer[MT_MAX_EP] = {{0}};
    for (int p = 0; p < N; p++)
        peer[p] = (struct mt_exchange_peer){2 * p, 2, 3 * p, c->rank == t->odd ? 3 : 2, 2 * c->rank};
    mt_exchange_units(&c->stream[MT_REDUCE], false, t->out, t->in, MT_GROUP_WORLD, 4, peer, N);
}

TEST(ranks_that_agree_go_on)
{
    for (int compare = 0; compare < 2; compare++) {
        struct job j;
        job_open(&j, compare, 2);
        CHECK_INT(mt_exec_run(j.t.x, all_alike, j.t.args), MT_OK);
        CHECK_INT(j.hub.starts, N * 40 * (1 + (compare || ALWAYS)));
        for (int r = 0; r < N; r++) {
            const char *x = mt_address(&j.t.ctx[r], j.t.out);
            CHECK(x[0] == 1 && x[16] == 2 && x[47] == 3);
            CHECK(x[1024] == 1 && x[1024 + 16] == 2 && x[1024 + 47] == 3);
            int64_t moved = 0; /* greetings are no traffic */
            for (int link = 0; link < MT_N_LINKS; link++)
                moved +=
                    atomic_load(&mt_traffic_lane(&j.t.traffic[r], 0, MT_GATHER, MT_OP_gather)->moved[link]);
            CHECK_INT(moved, 20 * 32);
        }
        job_close(&j);
    }
}

TEST(a_rank_that_differs_is_named_by_all)
{
    for (int odd = 0; odd < N; odd++) {
        struct job j;
        char want[160];
        job_open(&j, true, 1 + odd % 2);
        j.t.odd = odd;
        CHECK_INT(mt_exec_run(j.t.x, one_differs, j.t.args), MT_RANKS);
        snprintf(want, sizeof want,
                 "rank %d calls scatter on group 0, stream gather, number 2: 48 bytes of u8", odd);
        int named = 0;
        for (int r = 0; r < N; r++) {
            const struct mt_err *e = &j.t.ctx[r].err;
            named += e->code == MT_RANKS;
            if (e->code && !CHECK(strstr(e->msg, want) && strstr(e->msg, "calls gather on group 0")))
                printf("  %s\n", e->msg);
            CHECK(*((const char *)mt_address(&j.t.ctx[r], j.t.out) + 1024) == 0);
        }
        CHECK_INT(named, N);
        job_close(&j);
    }
}

TEST(an_exchange_that_does_not_fit_ends)
{
    struct job j;
    job_open(&j, true, 2);
    j.t.odd = 2;
    CHECK_INT(mt_exec_run(j.t.x, one_expects_more, j.t.args), MT_RANKS);
    if (!CHECK(strstr(j.t.ctx[2].err.msg, "rank 2 sends rank 0 2 units") &&
               strstr(j.t.ctx[2].err.msg, "and expects 3")))
        printf("  %s\n", j.t.ctx[2].err.msg);
    CHECK(*(const char *)mt_address(&j.t.ctx[2], j.t.out) == 0);
    job_close(&j);
}

int main(void)
{
    RUN(ranks_that_agree_go_on);
    RUN(a_rank_that_differs_is_named_by_all);
    RUN(an_exchange_that_does_not_fit_ends);
    return DONE();
}
