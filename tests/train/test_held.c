/* test: timeout=60 variants=release,asan
 *
 * A gather is held open in the midst of a step: the compute stream goes on, up to the very operation that needs what is
 * gathered, and so the further the more blocks are gathered ahead. Let go, the step ends with the same bits. */
#include "ranks.h"

/* BLOCK_OPS: a block's forward has so many operations at least. */
enum { WORLD = 4, LATE = 2, HELD_BLOCK = 3, BLOCK_OPS = 20, ORDERS = 4 };
#define SHAPE                                                                                             \
    TRAINING_BASE TRAINING_MOE "model.layers=6 model.experts=8 train.micro_batch=1 train.global_batch=4 " \
                               "mesh.ep=2 moe.buffer_factor=16 "

/* Positions in the record of the late rank's step. */
struct place {
    int64_t gather; /* in the gather stream: the block's first gather for forward */
    int64_t stop;   /* in the compute stream: the wait for it */
    int64_t after;  /* in the compute stream: what the gather waits for */
};

/* The block's first gather is that of its dense weights' row. */
static bool gathers_block(const struct training *t, const struct mt_recording *q, int64_t i)
{
    const struct mt_store *s = &t->s.rank[LATE].model.store;
    const struct mt_unit *u = &s->unit[t->s.rank[LATE].model.layer[HELD_BLOCK].unit];
    mt_view full = mt_store_full(s, u->bucket, MT_FORWARD);
    return q->rec[i].op == MT_OP_gather_cut && q->rec[i].stream == MT_GATHER &&
           q->arg[q->rec[i].arg].row == full.row;
}
static bool place_find(const struct training *t, const struct mt_recording *q, struct place *p)
{
    int64_t i = 0;
    *p = (struct place){0};
    while (i < q->n && !gathers_block(t, q, i)) i++;
    if (!CHECK(i < q->n)) return false;
    p->gather = q->rec[i].seq;
    for (int64_t k = i; k-- > 0 && !p->after;)
        if (q->rec[k].stream == MT_GATHER && q->rec[k].ev.stream == MT_COMPUTE) p->after = q->rec[k].ev.seq;
    for (; i < q->n && !p->stop; i++)
        if (q->rec[i].op == MT_OP_wait && q->rec[i].stream == MT_COMPUTE &&
            q->rec[i].ev.stream == MT_GATHER && q->rec[i].ev.seq >= p->gather)
            p->stop = q->rec[i].seq;
    return CHECK(p->stop > 0);
}
/* Operations of the compute stream at positions (from, to). */
static int64_t ops_between(const struct mt_recording *q, int64_t from, int64_t to)
{
    int64_t n = 0;
    for (int64_t i = 0; i < q->n; i++)
        n += q->rec[i].stream == MT_COMPUTE && q->rec[i].op != MT_OP_wait && q->rec[i].seq > from &&
             q->rec[i].seq < to;
    return n;
}

struct found {
    int64_t held,
        window; /* operations of compute while the gather was open; those that could be so at most */
};
static struct found held_step(const char *options, struct mt_exec_options o)
{
    struct training t;
    struct mt_recording q = {0};
    struct place p = {0};
    struct mt_exec_hold hold = {.rank = LATE, .stream = MT_GATHER};
    struct found f = {0};
    if (!ranks_open(&t, options, WORLD)) return f;
    bool ok = training_run(&t, mt_fill_step) && ranks_step(&t, 0);
    uint64_t want = ok ? ranks_bits(&t) : 0;
    ok = ok && ranks_record(&t, LATE, 1, -1, &q) && place_find(&t, &q, &p);
    hold.seq = p.gather;
    o.hold = &hold;
    if (ok && training_run(&t, mt_fill_step) && ranks_executor(&t, o)) {
        CHECK(ranks_step(&t, 0));
        CHECK(hold.held && hold.let_go);
        /* the gather and all behind it stood still, and compute went as far as it can without */
        CHECK_INT(hold.before[MT_GATHER], p.gather - 1);
        CHECK_INT(hold.after[MT_GATHER], p.gather - 1);
        CHECK_INT(hold.after[MT_COMPUTE], p.stop - 1);
        f = (struct found){ops_between(&q, hold.before[MT_COMPUTE], p.stop),
                           ops_between(&q, p.after, p.stop)};
        CHECK(ranks_bits(&t) == want);
    }
    mt_recording_release(&q);
    training_close(&t);
    return f;
}

static void add(struct found *sum, const char *options, int seed)
{
    struct found f = held_step(options, (struct mt_exec_options){.workers = 1, .order_seed = seed});
    CHECK(f.held > 0 && f.held <= f.window);
    sum->held += f.held;
    sum->window += f.window;
}
static void show(const char *what, const struct found *f)
{
    printf("  %s: %lld operations of compute while a gather was open, of %lld at most\n", what,
           (long long)f->held / ORDERS, (long long)f->window / ORDERS);
}
TEST(compute_goes_on)
{
    struct found one = {0}, two = {0}, layer = {0};
    for (int i = 0; i < ORDERS; i++) {
        add(&one, SHAPE "shard.prefetch=1", 17 + i);
        add(&two, SHAPE "shard.prefetch=2", 17 + i);
        add(&layer, SHAPE "shard.prefetch=2 train.global_batch=12 train.micro_order=layer", 17 + i);
    }
    show("one block ahead", &one);
    show("two blocks ahead", &two);
    show("two blocks ahead, three micro-batches", &layer);
    CHECK(two.held > one.held && two.window >= one.window + ORDERS * BLOCK_OPS);
    CHECK(layer.held > 2 * two.held);
}

int main(void)
{
    RUN(compute_goes_on);
    return DONE();
}
