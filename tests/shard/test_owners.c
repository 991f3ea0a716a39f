/* Who works on what: the balance, that it is the same everywhere, and that a layer's experts that do not divide go round. */
#include "check.h"
#include "device/cpu/isa.h"
#include "model/param.h"
#include "optim/assign.h"
#include "shard/owners.h"

enum { MOST = 1000 };

static uint32_t next(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 40);
}

/* Loads are what was given out; nobody could have been given a matrix earlier than the one with least. */
static void check_balance(int ranks, int n, uint64_t seed)
{
    struct mt_load item[MOST] = {{0, 0}}, load[MOST] = {{0, 0}}, start[MOST], sum[MOST];
    int owner[MOST];
    double total = 0, longest = 0, most = 0, least = 1e300, ahead = 0;
    for (int i = 0; i < n; i++) {
        item[i] = (struct mt_load){1 + next(&seed) % 1000, 1 + next(&seed) % 100};
        if (item[i].flops > longest) longest = item[i].flops;
    }
    for (int r = 0; r < ranks; r++) {
        start[r] = load[r] = sum[r] = (struct mt_load){next(&seed) % 500, next(&seed) % 50};
        if (start[r].flops > ahead) ahead = start[r].flops;
    }
    mt_owners_assign(owner, load, ranks, item, n);
    for (int i = 0; i < n; i++) {
        if (!CHECK(owner[i] >= 0 && owner[i] < ranks)) return;
        sum[owner[i]].flops += item[i].flops;
        sum[owner[i]].bytes += item[i].bytes;
    }
    for (int r = 0; r < ranks; r++) {
        CHECK(sum[r].flops == load[r].flops && sum[r].bytes == load[r].bytes);
        total += load[r].flops;
        if (load[r].flops > most) most = load[r].flops;
        if (load[r].flops < least) least = load[r].flops;
    }
    CHECK(most <= (least + longest > ahead ? least + longest
                                           : ahead)); /* the last one came to the busiest when it had least */
    CHECK_CLOSE(mt_owners_imbalance(load, ranks), most * ranks / total, 1e-12);
}
TEST(balance)
{
    for (int ranks = 1; ranks <= 384; ranks = ranks * 3 + 1)
        for (int n = 0; n <= 900; n = n * 2 + 1) check_balance(ranks, n, (uint64_t)(ranks * 1000 + n));
}

/* Longest first; of equal ones the one with more bytes, then the first; to the rank with least flops, then bytes, then index. */
TEST(ties)
{
    const struct mt_load item[] = {{5, 1}, {7, 1}, {5, 2}, {5, 1}};
    struct mt_load load[3] = {{1, 9}, {1, 8}, {1, 8}};
    int owner[4];
    mt_owners_assign(owner, load, 3, item, 4);
    CHECK_INT(owner[1], 1); /* the longest; rank 0 has more bytes, rank 2 a higher index */
    CHECK_INT(owner[2], 2);
    CHECK_INT(owner[0], 0);
    CHECK_INT(owner[3], 0); /* 6 flops each on ranks 0 and 2, and both 10 bytes */
}

/* What has no flops goes by bytes alone, and last. */
TEST(no_flops)
{
    const struct mt_load item[] = {{0, 4}, {3, 1}, {0, 6}, {0, 1}};
    struct mt_load load[2] = {{1, 10}, {2, 2}};
    int owner[4];
    mt_owners_assign(owner, load, 2, item, 4);
    CHECK_INT(owner[1], 0); /* 1 against 2 flops */
    CHECK_INT(owner[2], 1); /* 11 bytes against 2 */
    CHECK_INT(owner[0], 1); /* 11 against 8 */
    CHECK_INT(owner[3], 0); /* 11 against 12 */
    CHECK(load[0].bytes == 12 && load[1].bytes == 12 && load[0].flops == 4 && load[1].flops == 2);
}

TEST(nothing_to_own)
{
    struct mt_load load[2] = {{0, 0}, {0, 0}};
    mt_owners_assign(NULL, load, 2, NULL, 0);
    CHECK(load[0].flops == 0 && load[1].bytes == 0);
    CHECK(mt_owners_imbalance(load, 2) == 1);
}

/* Over all layers, every rank has the same number of experts, to one. */
static void check_rotation(int experts, int layers, int world, int ep)
{
    char text[6][40] = {"model.top_k=1", "model.expert_ffn=8", "model.dim=8", "model.shared_ffn=8"}, *arg[6];
    mt_config cfg;
    mt_err e = {0};
    snprintf(text[4], sizeof text[4], "model.experts=%d", experts);
    snprintf(text[5], sizeof text[5], "model.layers=%d", layers);
    for (int i = 0; i < 6; i++) arg[i] = text[i];
    if (!CHECK(mt_config_load(&cfg, NULL, 6, arg, &e) == MT_OK)) return;
    struct mt_shape shape = mt_shape_of(&cfg);
    struct mt_store s;
    struct mt_ledger g;
    int64_t most = 0, least = INT64_MAX;
    mt_store_init(&s, MT_F32, mt_target_cpu(MT_ISA_SCALAR),
                  &(struct mt_mesh){.world = world, .replicas = 1, .ep = ep}, 0);
    mt_params_declare(&s, &shape, 0.02);
    CHECK(mt_optim_assign(&s, &cfg, &e) == MT_OK);
    mt_ledger_init(&g, 64);
    mt_store_layout(&s, &g, false);
    for (int k = 0; k < world / ep; k++) {
        int64_t have = 0;
        for (int i = 0; i < s.n_buckets; i++) {
            const struct mt_bucket *b = &s.bucket[i];
            if (!s.unit[b->unit].experts || !b->elements) continue;
            int64_t piece = (b->edge[k + 1] - b->edge[k]) / b->elements, fair = b->n / b->members;
            CHECK(piece == fair || (piece == fair + 1 && b->n % b->members));
            CHECK(b->edge[0] == 0 && b->edge[b->members] == b->n * b->elements);
            have += piece;
        }
        if (have > most) most = have;
        if (have < least) least = have;
    }
    CHECK(most - least <= 1);
    mt_store_release(&s);
    mt_ledger_release(&g);
}
TEST(experts_go_round)
{
    check_rotation(8, 4, 4, 1);
    check_rotation(6, 5, 4, 1);
    check_rotation(5, 7, 12, 1);
    check_rotation(12, 3, 16, 2);
    check_rotation(96, 74, 384, 4);
    check_rotation(200, 74, 384, 4);
}

int main(void)
{
    RUN(balance);
    RUN(ties);
    RUN(no_flops);
    RUN(nothing_to_own);
    RUN(experts_go_round);
    return DONE();
}
