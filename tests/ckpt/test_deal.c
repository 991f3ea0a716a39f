/* Who reads what, at the size of large jobs: every process about as much, nothing passed on that need not be. */
#include "ckpt/deal.h"

#include "check.h"

enum { EXPERT_ROWS = 64, DENSE_ROWS = 1536, COLS = 16 };

/* A model of `layers` layers: in each `experts` matrices that one rank owns whole, and three that all ranks of a replica share. */
struct model {
    int layers, experts;
    struct mt_ckpt_item *item;
    int64_t n, bytes;
};
static void make_model(struct model *m, int layers, int experts)
{
    *m = (struct model){.layers = layers, .experts = experts};
    m->n = (int64_t)layers * (experts + 3);
    m->item = calloc((size_t)m->n, sizeof *m->item);
    for (int64_t i = 0; i < m->n; i++) {
        m->item[i].rows = i % (experts + 3) < experts ? EXPERT_ROWS : DENSE_ROWS;
        m->item[i].cols = COLS;
        m->bytes += mt_ckpt_item_bytes(&m->item[i]);
    }
}
static bool is_expert(const struct model *m, int64_t item)
{
    return item % (m->experts + 3) < m->experts;
}

/* The rows of an item that rank `rank` of `world` in so many replicas holds; 0: none. */
static int64_t rows_of(const struct model *m, int64_t item, int world, int replicas, int rank, int64_t *row0)
{
    int shards = world / replicas, k = rank % shards;
    int64_t rows = m->item[item].rows;
    *row0 = 0;
    if (is_expert(m, item)) return item % (m->experts + 3) % shards == k ? rows : 0;
    *row0 = rows * k / shards;
    return rows * (k + 1) / shards - *row0;
}

/* All ranks' pieces, those of the first replica if they are a checkpoint's. */
static struct mt_deal_piece *pieces_of(const struct model *m, int world, int64_t *n)
{
    struct mt_deal_piece *p = malloc((size_t)m->n * (size_t)world * sizeof *p);
    *n = 0;
    for (int64_t i = 0; i < m->n; i++)
        for (int r = 0; r < world; r++) {
            int64_t row0, rows = rows_of(m, i, world, 1, r, &row0);
            if (rows)
                p[(*n)++] =
                    (struct mt_deal_piece){.item = i, .row0 = row0, .rows = rows, .file = r, .at = 4096 + i};
        }
    return p;
}
static struct mt_deal_need *needs_of(const struct model *m, int world, int replicas, int me, float *any,
                                     int64_t *n)
{
    struct mt_deal_need *x = malloc((size_t)m->n * (size_t)world * sizeof *x);
    *n = 0;
    for (int r = 0; r < world; r++)
        for (int64_t i = 0; i < m->n; i++) {
            int64_t row0, rows = rows_of(m, i, world, replicas, r, &row0);
            if (rows) x[(*n)++] = (struct mt_deal_need){i, row0, rows, r == me ? any : NULL, r};
        }
    return x;
}

/* The deal as process `me` of `world` makes it. */
static void deal(struct mt_deal *d, const struct model *m, int before, int world, int replicas, int me)
{
    struct mt_ckpt_items items = {.item = m->item, .n = m->n};
    struct mt_job job = {.n = world, .me = me, .world = world};
    static float any;
    int64_t n_pieces, n_needs;
    mt_err e = {0};
    struct mt_deal_piece *p = pieces_of(m, before, &n_pieces);
    struct mt_deal_need *need = needs_of(m, world, replicas, me, &any, &n_needs);
    CHECK_INT(mt_deal_make(d, &items, &job, p, n_pieces, need, n_needs, mt_deal_usual(),
                           (struct mt_deal_holders){0}, &e),
              MT_OK);
    free(need);
}

/* Of some processes: bytes read against the mean, bytes passed on against the fewest that there can be. */
static void check_deal(int before, int world, int replicas, double most)
{
    struct model m;
    double passed = 0, worst = 0;
    make_model(&m, 2, 96);
    int stride = world > 8 ? world / 8 : 1, asked = 0;
    for (int me = 0; me < world; me += stride, asked++) {
        struct mt_deal d;
        deal(&d, &m, before, world, replicas, me);
        double part = (double)d.read * world / (double)m.bytes;
        if (part > worst) worst = part;
        passed += (double)d.passed;
        CHECK(d.staging <= 64 << 20);
        mt_deal_close(&d);
    }
    if (!CHECK(worst <= most)) printf("    %d to %d: %.3f of the mean\n", before, world, worst);
    if (before == world && replicas == 1) CHECK(passed == 0);
    double fewest = (double)(replicas - 1) * (double)m.bytes * asked / world;
    if (replicas > 1 && before == world / replicas) CHECK(passed >= 0.8 * fewest && passed <= 1.2 * fewest);
    free(m.item);
}

TEST(on_the_layout_that_saved_it)
{
    check_deal(96, 96, 1, 1.001);
    check_deal(8, 8, 1, 1.001);
}
TEST(replicas_share_the_reading)
{
    check_deal(24, 96, 4, 1.2);
    check_deal(48, 96, 2, 1.2);
}
TEST(other_numbers)
{
    check_deal(96, 24, 1, 1.05);
    check_deal(24, 96, 1, 1.5);
    check_deal(96, 64, 1, 1.6); /* 96 experts over 64 ranks: half of them have two */
    check_deal(1, 96, 1, 8); /* whole matrices of seven times the mean: one reads each, and cuts it for all */
}

int main(void)
{
    RUN(on_the_layout_that_saved_it);
    RUN(replicas_share_the_reading);
    RUN(other_numbers);
    return DONE();
}
