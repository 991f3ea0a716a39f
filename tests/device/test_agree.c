/* test: variants=release,asan,tsan,tsan-plain,aarch64
 *
 * Members of a collective that do not mean the same: the run ends, the rank that differs is named with both calls, and
 * nothing has moved. */
#include "ranks.h"

static int64_t at_even[] = {0, 16, 32, 48}, at_other[] = {0, 16, 24, 48};
static const struct mt_cut even = {.n = 3, .at = at_even, .hash = 1},
                           other = {.n = 3, .at = at_other, .hash = 2};

static struct mt_stream *reduce(struct mt_ctx *c)
{
    return &c->stream[MT_REDUCE];
}
static void gather(struct mt_ctx *c, const struct ranks *t, int64_t units, int64_t unit)
{
    mt_gather(reduce(c), ranks_part(t->out, 0, units * unit), ranks_part(t->in, 0, units * unit),
              MT_GROUP_WORLD, units, unit);
}

/* Each: what all do, and what the odd one does instead. */
static void other_op(struct mt_ctx *c, void *arg)
{
    const struct ranks *t = arg;
    if (c->rank == t->odd)
        mt_scatter(reduce(c), ranks_part(t->out, 0, 48), ranks_part(t->in, 0, 48), MT_GROUP_WORLD, 12, 4);
    else
        gather(c, t, 12, 4);
}
static void other_bytes(struct mt_ctx *c, void *arg)
{
    const struct ranks *t = arg;
    gather(c, t, c->rank == t->odd ? 15 : 12, 4);
}
static void other_units(struct mt_ctx *c, void *arg)
{
    const struct ranks *t = arg;
    gather(c, t, c->rank == t->odd ? 6 : 12, c->rank == t->odd ? 8 : 4);
}
static void other_type(struct mt_ctx *c, void *arg)
{
    const struct ranks *t = arg;
    mt_view in = mt_view_of(t->in.row, c->rank == t->odd ? MT_I32 : MT_F32, 0, 12, 0, 0), out = in;
    out.row = t->out.row;
    mt_gather(reduce(c), out, in, MT_GROUP_WORLD, 12, 4);
}
static void other_cut(struct mt_ctx *c, void *arg)
{
    const struct ranks *t = arg;
    c->cut = c->rank == t->odd ? &other : &even;
    mt_gather_cut(reduce(c), ranks_part(t->out, 0, 48), ranks_part(t->in, 0, 48), MT_GROUP_WORLD, 0);
}
static void other_root(struct mt_ctx *c, void *arg)
{
    const struct ranks *t = arg;
    c->cut = &even;
    mt_collect_cut(reduce(c), ranks_part(t->out, 0, 48), ranks_part(t->in, 0, 48), MT_GROUP_WORLD, 0,
                   c->rank == t->odd);
}
/* Every rank sends everyone 2 units; the odd one expects 3. */
static void other_counts(struct mt_ctx *c, void *arg)
{
    const struct ranks *t = arg;
    struct mt_exchange_peer peer[MT_MAX_EP] = {{0}};
    for (int p = 0; p < c->world; p++) peer[p] = (struct mt_exchange_peer){2 * p, 2, 3 * p, 2, 2 * c->rank};
    for (int p = 0; p < c->world && c->rank == t->odd; p++) peer[p].recv_n = 3;
    mt_exchange_units(reduce(c), false, t->out, t->in, MT_GROUP_WORLD, 4, peer, c->world);
}
/* The same number of units, from another place. */
static void other_places(struct mt_ctx *c, void *arg)
{
    const struct ranks *t = arg;
    struct mt_exchange_peer peer[MT_MAX_EP] = {{0}};
    for (int p = 0; p < c->world; p++) peer[p] = (struct mt_exchange_peer){2 * p, 2, 2 * p, 2, 2 * c->rank};
    for (int p = 0; p < c->world && c->rank == t->odd; p++) peer[p].from_first++;
    mt_exchange_units(reduce(c), false, t->out, t->in, MT_GROUP_WORLD, 4, peer, c->world);
}
/* A rank that leaves one out is at the next one when the others are at this. */
static void one_left_out(struct mt_ctx *c, void *arg)
{
    const struct ranks *t = arg;
    if (c->rank != t->odd) gather(c, t, 12, 4);
    mt_scatter(reduce(c), ranks_part(t->out, 0, 48), ranks_part(t->in, 0, 48), MT_GROUP_WORLD, 12, 4);
}

struct scene {
    void (*host)(struct mt_ctx *, void *);
    const char *its, *theirs; /* in the message, in this order */
};
static const struct scene scenes[] = {
    {other_op, "calls scatter on group 0, stream reduce, number 1: 48 bytes",
     "calls gather on group 0, stream reduce, number 1: 48 bytes"},
    {other_bytes, "calls gather on group 0, stream reduce, number 1: 60 bytes",
     "calls gather on group 0, stream reduce, number 1: 48 bytes"},
    {other_units, "48 bytes of u8", "48 bytes of u8"},
    {other_type, "48 bytes of i32", "48 bytes of f32"},
    {other_cut, "calls gather_cut", "calls gather_cut"},
    {other_root, "calls collect_cut", "calls collect_cut"},
    {other_counts, "expects 3", "sends 2"},
    {other_places, "exchange disagree", "the first its"},
    {one_left_out, "calls scatter", "calls gather"},
};

static void play(const struct scene *s, int n, int odd, struct mt_exec_options o)
{
    struct ranks t;
    char named[32];
    ranks_open(&t, n, 2, o);
    t.odd = odd;
    CHECK_INT(mt_exec_run(t.x, s->host, t.args), MT_RANKS);
    const char *msg = t.ctx[odd].err.msg, *its;
    snprintf(named, sizeof named, "rank %d ", odd);
    if (!CHECK(strstr(msg, named) && (its = strstr(msg, s->its)) && strstr(its + 1, s->theirs)))
        printf("  %s\n", msg);
    for (int r = 0; r < n; r++) {
        const char *x = mt_address(&t.ctx[r], t.out);
        int moved = 0;
        for (int i = 0; i < RANKS_BYTES; i++) moved += x[i] != 0;
        CHECK_INT(moved, 0);
        if (r != odd) CHECK_INT(t.ctx[r].err.code, MT_OK);
    }
    ranks_close(&t);
}
TEST(a_rank_that_differs_is_named)
{
    for (size_t i = 0; i < sizeof scenes / sizeof scenes[0]; i++)
        for (int odd = 0; odd < 3; odd++)
            for (int seed = 0; seed < 3; seed++)
                play(&scenes[i], 3, odd,
                     (struct mt_exec_options){.workers = 1 + seed % 2, .order_seed = seed ? 10 + seed : 0});
}
TEST(of_two_ranks_both_are_named)
{
    play(&scenes[0], 2, 1, (struct mt_exec_options){.workers = 2});
    play(&scenes[1], 2, 1, (struct mt_exec_options){.workers = 1});
    play(&scenes[6], 2, 1, (struct mt_exec_options){.workers = 1});
}

/* A rank that stays away, or is on another stream, is named too, with where it is. */
static void one_elsewhere(struct mt_ctx *c, void *arg)
{
    const struct ranks *t = arg;
    gather(c, t, 12, 4);
    if (c->rank == t->odd)
        mt_gather(&c->stream[MT_GATHER], ranks_part(t->out, 64, 48), ranks_part(t->in, 0, 48), MT_GROUP_WORLD,
                  12, 4);
    else
        gather(c, t, 15, 4);
}
TEST(a_rank_that_stays_away_is_named)
{
    struct ranks t;
    ranks_open(&t, 3, 2, (struct mt_exec_options){.workers = 2});
    t.odd = 1;
    CHECK_INT(mt_exec_run(t.x, one_elsewhere, t.args), MT_HANG);
    const char *want = "gather (operation 2) has 2 of its 3 members: rank 1 is not there, whose last "
                       "collective is gather on group 0, stream gather, number 1";
    if (!CHECK(strstr(t.ctx[0].err.msg, want))) printf("  %s\n", t.ctx[0].err.msg);
    ranks_close(&t);
}

/* What must not be taken for a difference: empty views of another type, a restart, uneven exchanges that fit. */
static void all_agree(struct mt_ctx *c, void *arg)
{
    const struct ranks *t = arg;
    struct mt_exchange_peer peer[MT_MAX_EP] = {{0}};
    for (int p = 0; p < c->world; p++)
        peer[p] = (struct mt_exchange_peer){4 * p, 1 + p, 4 * p, 1 + c->rank, 4 * c->rank};
    mt_exchange_units(reduce(c), false, t->out, t->in, MT_GROUP_WORLD, 4, peer, c->world);
    mt_view whole = mt_view_of(t->out.row, MT_F32, 256, 12, 0, 0),
            none = mt_view_of(t->out.row, MT_U8, 0, 0, 0, 0),
            piece = mt_view_of(t->in.row, MT_F32, 0, 4, 0, 0);
    c->cut = &even;
    mt_collect_cut(reduce(c), c->rank == 1 ? whole : none, piece, MT_GROUP_WORLD, 0, 1);
    for (int i = 0; i < 200; i++) gather(c, t, 12, 4);
}
TEST(ranks_that_agree_go_on)
{
    struct ranks t;
    ranks_open(&t, 3, 2, (struct mt_exec_options){.workers = 2, .ring = 16, .order_seed = 11});
    for (int i = 0; i < 2; i++) CHECK_INT(mt_exec_run(t.x, all_agree, t.args), MT_OK);
    const char *x = mt_address(&t.ctx[2], t.out);
    CHECK(x[0] == 1 && x[16] == 2 && x[32] == 3);
    ranks_close(&t);
}

/* The ring keeps the last ones, oldest first. */
TEST(the_last_collectives_are_kept)
{
    struct ranks t;
    char *text = NULL;
    size_t bytes = 0;
    ranks_open(&t, 3, 2, (struct mt_exec_options){.workers = 2});
    CHECK_INT(mt_exec_run(t.x, all_agree, t.args), MT_OK);
    FILE *f = open_memstream(&text, &bytes);
    mt_trace_dump(&t.ctx[1].trace, f);
    fclose(f);
    int lines = 0;
    for (size_t i = 0; i < bytes; i++) lines += text[i] == '\n';
    CHECK_INT(lines, MT_TRACE_LAST);
    CHECK(!strncmp(text, "gather on group 0, stream reduce, number 139: 48 bytes of u8", 60));
    CHECK(strstr(text, "number 202: ") && !strstr(text, "number 203: "));
    free(text);
    ranks_close(&t);
}

/* The log has them all. */
TEST(a_log_has_a_line_a_collective)
{
    struct ranks t;
    char *text = NULL;
    size_t bytes = 0;
    ranks_open(&t, 3, 2, (struct mt_exec_options){.workers = 2});
    FILE *f = open_memstream(&text, &bytes);
    t.ctx[0].trace.log = f;
    CHECK_INT(mt_exec_run(t.x, all_agree, t.args), MT_OK);
    fclose(f);
    int lines = 0;
    for (size_t i = 0; i < bytes; i++) lines += text[i] == '\n';
    CHECK_INT(lines, 202);
    CHECK(!strncmp(text, "exchange on group 0, stream reduce, number 1: units of 4 bytes of u8\ncollect_cut ",
                   80));
    free(text);
    ranks_close(&t);
}

int main(void)
{
    RUN(a_rank_that_differs_is_named);
    RUN(of_two_ranks_both_are_named);
    RUN(a_rank_that_stays_away_is_named);
    RUN(ranks_that_agree_go_on);
    RUN(the_last_collectives_are_kept);
    RUN(a_log_has_a_line_a_collective);
    return DONE();
}
