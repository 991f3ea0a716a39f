/* Times of operations and transfers on a cluster of round numbers, worked out by hand. */
#include "check.h"
#include "device/cost.h"

static struct mt_cluster round_cluster(void)
{
    struct mt_cluster c = {.name = "round"};
    for (int k = 0; k < MT_N_CLUSTER_KEYS; k++) c.of[k].value = mt_cluster_rows[k].low;
    static const struct {
        int key;
        double value;
    } set[] = {{MT_CLUSTER_peak_bf16, 1e15},
               {MT_CLUSTER_peak_f32, 1e14},
               {MT_CLUSTER_gemm_efficiency, 0.5},
               {MT_CLUSTER_grouped_efficiency, 0.25},
               {MT_CLUSTER_gemm_tile_rows, 100},
               {MT_CLUSTER_gemm_tile_cols, 200},
               {MT_CLUSTER_gemm_units, 10},
               {MT_CLUSTER_gemm_depth_half, 50},
               {MT_CLUSTER_attention_forward, 1},
               {MT_CLUSTER_attention_backward, 0.5},
               {MT_CLUSTER_attention_tile, 20},
               {MT_CLUSTER_newton_schulz_efficiency, 0.5},
               {MT_CLUSTER_memory_bandwidth, 1e15},
               {MT_CLUSTER_memory_stream, 1},
               {MT_CLUSTER_memory_rows, 0.5},
               {MT_CLUSTER_launch_kernel, 0},
               {MT_CLUSTER_node_pair, 1e9},
               {MT_CLUSTER_node_total, 2e9},
               {MT_CLUSTER_net_bandwidth, 1e9},
               {MT_CLUSTER_net_efficiency, 0.5},
               {MT_CLUSTER_net_far, 1},
               {MT_CLUSTER_net_latency, 1e-3},
               {MT_CLUSTER_net_message, 1e-6},
               {MT_CLUSTER_node_latency, 1e-4},
               {MT_CLUSTER_node_message, 1e-5},
               {MT_CLUSTER_host_h2d, 4e9},
               {MT_CLUSTER_host_d2h, 2e9},
               {MT_CLUSTER_host_latency, 1e-3},
               {MT_CLUSTER_host_memory, 1e10},
               {MT_CLUSTER_host_f32, 1e12}};
    for (size_t i = 0; i < sizeof set / sizeof *set; i++) c.of[set[i].key].value = set[i].value;
    return c;
}

static struct mt_call call(enum mt_op op, mt_dtype t)
{
    return (struct mt_call){.op = (uint16_t)op, .dtype = (uint8_t)t};
}
static double seconds(const struct mt_call *call_, const struct mt_cluster *c)
{
    struct mt_work w;
    mt_work_of(&w, call_, false);
    return mt_work_seconds(&w, c, -1);
}
#define DIM(c, letter, n) ((c).dim[(letter) - 'A'] = (n))

TEST(products)
{
    struct mt_cluster k = round_cluster();
    struct mt_call c = call(MT_OP_linear_fwd, MT_BF16);
    DIM(c, 'N', 1000), DIM(c, 'O', 400), DIM(c, 'I', 950);
    CHECK_CLOSE(seconds(&c, &k), 20 * 2e4 * 1000 * 2 / 5e14,
                1e-15); /* 10 x 2 tiles of 100 x 200, 950 + 50 deep */
    DIM(c, 'N', 901);
    CHECK_CLOSE(seconds(&c, &k), 20 * 2e4 * 1000 * 2 / 5e14, 1e-15); /* the same tiles */
    DIM(c, 'N', 100), DIM(c, 'O', 200);
    CHECK_CLOSE(seconds(&c, &k), 10 * 2e4 * 1000 * 2 / 5e14, 1e-15); /* one tile, on one unit of ten */
    c.dtype = MT_F32;
    CHECK_CLOSE(seconds(&c, &k), 10 * 2e4 * 1000 * 2 / 5e13, 1e-14);
    k.of[MT_CLUSTER_memory_bandwidth].value = 1e9;
    c.bytes[0] = c.bytes[1] = c.bytes[2] = 1000000; /* no faster than its bytes */
    CHECK_CLOSE(seconds(&c, &k), 3e-3, 1e-12);
    k.of[MT_CLUSTER_launch_kernel].value = 1e-3;
    CHECK_CLOSE(seconds(&c, &k), 4e-3, 1e-12);
}

TEST(the_router_is_f32)
{
    struct mt_cluster k = round_cluster();
    struct mt_call c = call(MT_OP_router_logits, MT_BF16);
    DIM(c, 'N', 1000), DIM(c, 'E', 400), DIM(c, 'D', 950);
    CHECK_CLOSE(seconds(&c, &k), 20 * 2e4 * 1000 * 2 / 5e13, 1e-14);
}

/* Rows spread over the experts, each rounded up to tiles. */
TEST(grouped_products)
{
    struct mt_cluster k = round_cluster();
    struct mt_call c = call(MT_OP_grouped_fwd, MT_BF16);
    DIM(c, 'E', 8), DIM(c, 'O', 400), DIM(c, 'I', 950), DIM(c, 'C', 2000);
    c.scalar[1].i = 1600; /* 200 an expert: 2 x 2 tiles each */
    CHECK_CLOSE(seconds(&c, &k), 32 * 2e4 * 1000 * 2 / 2.5e14, 1e-15);
    c.scalar[1].i = 808; /* 101 an expert */
    CHECK_CLOSE(seconds(&c, &k), 32 * 2e4 * 1000 * 2 / 2.5e14, 1e-15);
    c.scalar[1].i = 0;
    CHECK_CLOSE(seconds(&c, &k), 0, 1e-15);
}

TEST(attention)
{
    struct mt_cluster k = round_cluster();
    struct mt_call c = call(MT_OP_attention_fwd, MT_BF16);
    struct mt_work w;
    DIM(c, 'N', 100), DIM(c, 'H', 2), DIM(c, 'A', 8), DIM(c, 'B', 8);
    c.scalar[1].i = 5050; /* 64 FLOPs a pair; half a tile of 20 a token more */
    CHECK_CLOSE(seconds(&c, &k), 64 * (5050 + 1000) / 1e15, 1e-20);
    mt_work_of(&w, &c, false);
    CHECK_CLOSE(mt_work_seconds(&w, &k, 500), 64 * (500 + 1000) / 1e15, 1e-20);
    c.op = MT_OP_attention_bwd; /* 160 FLOPs a pair, at half the efficiency */
    CHECK_CLOSE(seconds(&c, &k), 160 * (5050 + 1000) / 5e14, 1e-20);
}

/* Narrow heads cost more for their products; the share that is written down is that of attention.head. */
TEST(pairs_of_narrow_heads)
{
    struct mt_cluster k = round_cluster();
    struct mt_call c = call(MT_OP_attention_fwd, MT_BF16);
    DIM(c, 'N', 100), DIM(c, 'H', 2), DIM(c, 'A', 8), DIM(c, 'B', 8);
    c.scalar[1].i = 5050;
    k.of[MT_CLUSTER_attention_head].value = 24;
    k.of[MT_CLUSTER_attention_pair].value = 8; /* (8 + 8) / 8 against (24 + 8) / 24 */
    CHECK_CLOSE(seconds(&c, &k), 1.5 * 64 * (5050 + 1000) / 1e15, 1e-20);
    DIM(c, 'A', 24), DIM(c, 'B', 24);
    CHECK_CLOSE(seconds(&c, &k), 192 * (5050 + 1000) / 1e15, 1e-20);
}

TEST(newton_schulz)
{
    struct mt_cluster k = round_cluster();
    struct mt_call c = call(MT_OP_newton_schulz, MT_BF16);
    struct mt_work w;
    DIM(c, 'B', 3), DIM(c, 'R', 40), DIM(c, 'C', 10);
    c.scalar[0].i = 5;
    mt_work_of(&w, &c, false);
    CHECK(w.flops > 0 && w.batch == 3 && w.m == 10 && w.n == 40);
    CHECK_CLOSE(seconds(&c, &k), w.flops / 5e14, 1e-20);
    k.of[MT_CLUSTER_newton_schulz_half].value = 5;
    CHECK_CLOSE(seconds(&c, &k), 1.5 * w.flops / 5e14, 1e-20);
}

TEST(memory_copies_and_the_host)
{
    struct mt_cluster k = round_cluster();
    struct mt_call c = call(MT_OP_fill0, MT_F32);
    struct mt_work w;
    k.of[MT_CLUSTER_memory_bandwidth].value = 1e9;
    c.bytes[0] = 1000000;
    CHECK_CLOSE(seconds(&c, &k), 1e-3, 1e-12);
    mt_work_of(&w, &c, true);
    CHECK_CLOSE(mt_work_seconds(&w, &k, -1), 1e-4, 1e-12);
    c.op = MT_OP_copy_h2d;
    CHECK_CLOSE(seconds(&c, &k), 0.25e-3 + 1e-3, 1e-12);
    c.op = MT_OP_copy_d2h;
    CHECK_CLOSE(seconds(&c, &k), 0.5e-3 + 1e-3, 1e-12);
    c.op = MT_OP_keep;
    CHECK_CLOSE(seconds(&c, &k), 0, 0);
    c = call(MT_OP_embed_fwd, MT_F32);
    c.bytes[0] = 500000; /* twice, at half of the bandwidth */
    CHECK_CLOSE(seconds(&c, &k), 2e-3, 1e-12);
    CHECK(mt_work_kind_of(MT_OP_combine_fwd) == MT_WORK_ROWS &&
          mt_work_kind_of(MT_OP_adamw) == MT_WORK_STREAM);
}

/* What a file says of one operation and type holds for it alone. */
TEST(single_operations)
{
    static struct mt_cluster k;
    struct mt_call c = call(MT_OP_fill0, MT_F32);
    mt_err e = {0};
    k = round_cluster();
    k.of[MT_CLUSTER_memory_bandwidth].value = 1e9;
    k.op[k.n_ops++] = (struct mt_cluster_op){.name = "fill0.f32", .times = 3, .plus = 0.5e-3};
    c.bytes[0] = 1000000;
    CHECK_CLOSE(seconds(&c, &k), 3.5e-3, 1e-12);
    k.of[MT_CLUSTER_launch_kernel].value = 1e-3;
    CHECK_CLOSE(seconds(&c, &k), 4.5e-3, 1e-12);
    c.dtype = MT_BF16;
    CHECK_CLOSE(seconds(&c, &k), 2e-3, 1e-12);
    c.op = MT_OP_keep;
    CHECK_CLOSE(seconds(&c, &k), 0, 0);
    k.op[k.n_ops++] =
        (struct mt_cluster_op){.name = "linear_fwd.bf16", .times = 2, .half = 1050, .has_half = true};
    c = call(MT_OP_linear_fwd, MT_BF16);
    DIM(c, 'N', 1000), DIM(c, 'O', 400), DIM(c, 'I', 950);
    CHECK_CLOSE(seconds(&c, &k), 1e-3 + 2 * 20 * 2e4 * 2000 * 2 / 5e14, 1e-12); /* 950 + 1050 deep, twice */
    CHECK(mt_work_check(&k, &e) == MT_OK);
    k.op[k.n_ops++] = (struct mt_cluster_op){.name = "fill1.f32", .times = 3};
    CHECK_INT(mt_work_check(&k, &e), MT_CONFIG);
    CHECK(strstr(e.msg, "fill1.f32"));
}

/* 16 ranks on 4 nodes of 4. */
TEST(transfers)
{
    struct mt_cluster k = round_cluster();
    struct mt_transfer t = {.op = MT_OP_gather_cut,
                            .members = 16,
                            .near = 4,
                            .messages = 15,
                            .node_bytes = 3000000,
                            .net_bytes = 12000000};
    struct mt_transfer_time x = mt_transfer_seconds(&t, &k, MT_ALG_DIRECT);
    CHECK_CLOSE(x.latency, 1e-3 + 15e-6, 1e-12);
    CHECK_CLOSE(x.link[MT_LINK_NODE], 3e6 / 2e9, 1e-12); /* three neighbours, but 2 GB/s in all */
    CHECK_CLOSE(x.link[MT_LINK_NET], 12e6 / 5e8, 1e-12);
    x = mt_transfer_seconds(&t, &k, MT_ALG_HIERARCHICAL);
    CHECK_CLOSE(x.latency, 1e-3 + 4e-6 + 1e-4, 1e-12);
    CHECK_CLOSE(x.link[MT_LINK_NET], 3e6 / 5e8, 1e-12);
    CHECK_CLOSE(x.link[MT_LINK_NODE], (3e6 + 9e6) / 2e9, 1e-12);
    x = mt_transfer_seconds(&t, &k, MT_ALG_RING);
    CHECK_CLOSE(x.latency, 4e-3, 1e-12);
    CHECK_CLOSE(x.link[MT_LINK_NET], 3e6 / 5e8, 1e-12);
    x = mt_transfer_seconds(&t, &k, MT_ALG_TREE);
    CHECK_CLOSE(x.latency, 4e-3, 1e-12);
    CHECK_CLOSE(x.link[MT_LINK_NET], 12e6 / 5e8, 1e-12);
    t.op = MT_OP_collect_cut; /* goes to one place: there is nothing to relay */
    x = mt_transfer_seconds(&t, &k, MT_ALG_HIERARCHICAL);
    CHECK_CLOSE(x.link[MT_LINK_NET], 12e6 / 5e8, 1e-12);
    t = (struct mt_transfer){.op = MT_OP_exchange,
                             .members = 4,
                             .near = 4,
                             .messages = 3,
                             .node_bytes = 3000000,
                             .pair_bytes = 2500000};
    x = mt_transfer_seconds(&t, &k, MT_ALG_DIRECT);
    CHECK_CLOSE(x.latency, 1e-4 + 3e-5, 1e-12);
    CHECK_CLOSE(x.link[MT_LINK_NODE], 2.5e6 / 1e9, 1e-12); /* the busiest pair's link */
    CHECK_CLOSE(x.link[MT_LINK_NET], 0, 0);
}

int main(void)
{
    RUN(products);
    RUN(the_router_is_f32);
    RUN(grouped_products);
    RUN(attention);
    RUN(pairs_of_narrow_heads);
    RUN(newton_schulz);
    RUN(memory_copies_and_the_host);
    RUN(single_operations);
    RUN(transfers);
    return DONE();
}
