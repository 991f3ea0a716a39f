/* test: variants=cuemu */
/* Every op of the table that is no collective, on the cuda device under the emulator against the cpu device's kernels. main runs
 * a test of each op's name: without one it does not compile. Shapes: with 16-byte accesses, with rows of odd length, with rows
 * shifted or apart, and empty ones. */
#include "base/exact.h"
#include "device/cpu/muon_ws.h"
#include "op_inputs.h"

/* ---- memory ---- */
TEST(fresh)
{
    TRY(fresh, "X=9", .one_type = true);
}
TEST(keep)
{
    TRY(keep, "X=9", .one_type = true);
}
TEST(fill0)
{
    TRY(fill0, "X=9", .off = 1, .one_type = true);
    TRY(fill0, "X=0", .one_type = true);
}
TEST(fill_f32)
{
    TRY(fill_f32, "X=700", .scalar = {F_(0.75)}, .one_type = true);
}
/* Up to the device and down into another row: the bytes, and none beside them. */
static void copies(int64_t n)
{
    struct side s;
    side_init(&s, CUDA);
    struct tensor x = tensor_of(&s, MT_F32, n, 0, 0, 1);
    int32_t row =
        mt_row_add(&s.ledger, MT_HOST_ARENA, MT_ROW_ACTIVATION, x.host.off + x.host.bytes + EDGE, "down");
    mt_view down = x.host;
    down.row = row;
    side_open(&s);
    fill(&s, &x);
    mt_copy_h2d(&s.ctx.stream[MT_H2D], x.dev, x.host);
    mt_stream_wait(&s.ctx.stream[MT_D2H], mt_event_record(&s.ctx.stream[MT_H2D]));
    mt_copy_d2h(&s.ctx.stream[MT_D2H], down, x.dev);
    side_finish(&s);
    const unsigned char *got = mt_address(&s.ctx, whole_row(&s, row)),
                        *want = mt_address(&s.ctx, whole_row(&s, x.host_row));
    CHECK(!memcmp(got, want, (size_t)s.ledger.row[row].bytes)); /* both rows are guard bytes but for these */
    side_close(&s);
}
TEST(copy_h2d)
{
    copies(33);
    copies(0);
}
TEST(copy_d2h)
{
    copies(1000);
}
TEST(read_back)
{
    struct side s;
    float got[16];
    side_init(&s, CUDA);
    struct tensor x = tensor_of(&s, MT_F32, 16, 0, 0, 0);
    side_open(&s);
    fill(&s, &x);
    upload(&s, &x, MT_COMPUTE);
    mt_host_read(&s.ctx.stream[MT_COMPUTE], MT_READ_STATE, 0, x.dev, got);
    CHECK(!memcmp(got, mt_address(&s.ctx, x.host), sizeof got));
    side_close(&s);
}

/* ---- working weights ---- */
static void all_forms(void)
{
    forms(MT_F32);
    forms(MT_BF16);
}
TEST(weight_cast)
{
    TRY(weight_cast, "X=2500");
    TRY(weight_cast, "X=7", .off = 1);
}
TEST(weight_pack)
{
    all_forms();
}
TEST(weight_turn)
{
    all_forms();
}
TEST(weight_form)
{
    all_forms();
}
TEST(fp8_pack)
{
    all_forms();
}
TEST(fp8_unpack)
{
    all_forms();
}

/* ---- rows ---- */
TEST(embed_fwd)
{
    TRY(embed_fwd, "N=9 D=64 V=5", .fill = tokens);
    TRY(embed_fwd, "N=4 D=37 V=50", .fill = tokens, .pad = 3, .off = 1);
}
TEST(embed_bwd)
{
    TRY(embed_bwd, "N=300 D=64 V=5", .fill = tokens);
    TRY(embed_bwd, "N=7 D=37 V=50", .fill = tokens, .pad = 3);
    TRY(embed_bwd, "N=0 D=8 V=3");
}
TEST(rmsnorm_fwd)
{
    TRY(rmsnorm_fwd, "N=3 D=1032", .scalar = {F_(1e-5)}, .pad = 8);
    TRY(rmsnorm_fwd, "N=19 D=128", .scalar = {F_(1e-5)}, .pad = 8);
    TRY(rmsnorm_fwd, "N=4 D=24", .scalar = {F_(1e-5)}, .pad = 3, .off = 1);
    TRY(rmsnorm_fwd, "N=0 D=8", .scalar = {F_(1e-5)});
}
static void norms(struct trial *t)
{
    positive(t, "rstd", trial_dim(t, 'N'));
}
TEST(rmsnorm_bwd)
{
    TRY(rmsnorm_bwd, "N=20 D=264 P=16", .fill = norms, .pad = 8);
    TRY(rmsnorm_bwd, "N=19 D=128 P=16", .fill = norms, .pad = 8);
    TRY(rmsnorm_bwd, "N=5 D=37 P=16", .fill = norms, .without = " res ", .off = 1);
    TRY(rmsnorm_bwd, "N=0 D=8 P=16", .fill = norms);
}
TEST(sum_rows)
{
    TRY(sum_rows, "P=16 D=300", .pad = 5, .one_type = true);
}
TEST(bias_bwd)
{
    TRY(bias_bwd, "N=150 O=70", .pad = 1);
}
TEST(rope_table)
{
    TRY(rope_table, "S=9 R=16", .scalar = {F_(10000), F_(1), F_(0), F_(1), F_(1)}, .one_type = true);
    TRY(rope_table, "S=9 R=16", .scalar = {F_(100), F_(40), F_(2), F_(5), F_(0.7)}, .one_type = true);
}
TEST(rope)
{
    TRY(rope, "N=5 H=3 A=48 S=9 R=32", .scalar = {F_(1)}, .fill = positions, .pad = 8);
    TRY(rope, "N=3 H=2 A=10 S=4 R=6", .scalar = {F_(-1)}, .fill = positions, .off = 1);
}
TEST(swiglu_fwd)
{
    TRY(swiglu_fwd, "N=3 F=264 U=528", .pad = 8);
    TRY(swiglu_fwd, "N=2 F=13 U=26", .off = 1);
}
TEST(swiglu_bwd)
{
    TRY(swiglu_bwd, "N=3 F=264 U=528", .pad = 8);
    TRY(swiglu_bwd, "N=2 F=13 U=26", .off = 1);
}
TEST(expert_swiglu_fwd)
{
    TRY(expert_swiglu_fwd, "C=7 F=40 U=80", .scalar = {I_(5)});
    TRY(expert_swiglu_fwd, "C=3 F=13 U=26", .scalar = {I_(0)});
}
TEST(expert_swiglu_bwd)
{
    TRY(expert_swiglu_bwd, "C=7 F=40 U=80 M=12 N=6 K=2", .scalar = {I_(3), I_(5)}, .fill = order, .pad = 8);
    TRY(expert_swiglu_bwd, "C=4 F=13 U=26 M=6 N=6 K=1", .scalar = {I_(1), I_(4)}, .without = " order ",
        .off = 1);
}

/* ---- products ---- */
#define LINEAR(name, dims, ...) TRY(name, dims, .pad = 8, __VA_ARGS__)
TEST(linear_fwd)
{
    LINEAR(linear_fwd, "N=6 O=40 I=24", .without = " bias add ");
    LINEAR(linear_fwd, "N=33 O=5 I=16", .without = " bias ");
    LINEAR(linear_fwd, "N=1 O=8 I=129", .off = 0);
    LINEAR(linear_fwd, "N=0 O=8 I=8", .off = 0);
}
TEST(logits_fwd)
{
    LINEAR(logits_fwd, "N=6 O=40 I=24", .off = 0);
}
TEST(linear_bwdx)
{
    LINEAR(linear_bwdx, "N=6 O=40 I=24", .without = " add ");
    LINEAR(linear_bwdx, "N=7 O=5 I=33", .off = 0);
}
TEST(linear_bwdw)
{
    LINEAR(linear_bwdw, "N=70 O=40 I=24", .off = 0);
    LINEAR(linear_bwdw, "N=0 O=4 I=8", .off = 0);
}
TEST(router_logits)
{
    TRY(router_logits, "N=70 E=9 D=40", .pad = 3);
}
TEST(router_bwdx)
{
    TRY(router_bwdx, "N=70 E=9 D=40", .pad = 3);
}
TEST(router_bwdw)
{
    TRY(router_bwdw, "N=70 E=9 D=70", .pad = 3);
}
/* 37 rows in all, of which the round has some; widths within one tile and over several, aligned and not. */
TEST(grouped_fwd)
{
    TRY(grouped_fwd, "C=40 O=72 I=40 E=5", .scalar = {I_(0), I_(37)}, .fill = counts);
    TRY(grouped_fwd, "C=40 O=7 I=21 E=5", .scalar = {I_(5), I_(20)}, .fill = counts, .pad = 1);
}
TEST(grouped_fwd_into)
{
    TRY(grouped_fwd_into, "C=24 M=40 O=72 I=40 E=5", .scalar = {I_(5), I_(20)}, .fill = counts);
}
TEST(grouped_bwdx)
{
    TRY(grouped_bwdx, "C=40 O=40 I=72 E=5", .scalar = {I_(0), I_(37)}, .fill = counts);
    TRY(grouped_bwdx, "C=40 O=21 I=7 E=5", .scalar = {I_(5), I_(20)}, .fill = counts, .pad = 1);
}
TEST(grouped_bwdx_into)
{
    TRY(grouped_bwdx_into, "C=24 M=40 O=40 I=72 E=5", .scalar = {I_(5), I_(20)}, .fill = counts);
}
TEST(grouped_bwdw)
{
    TRY(grouped_bwdw, "C=40 O=72 I=40 E=5", .scalar = {I_(0), I_(37)}, .fill = counts);
    TRY(grouped_bwdw, "C=40 O=7 I=21 E=5", .scalar = {I_(5), I_(20)}, .fill = counts, .pad = 1);
}

/* ---- attention: grouped queries, documents, widths of the tensor core kernels and others ---- */
#define ATTENTION(name, dims, ...)                                                                     \
    TRY(name, dims, .scalar = {F_(0.25), I_(1)}, .fill = begins, .tol = {5e-6, 8e-3}, .tol_f32 = 2e-5, \
        __VA_ARGS__)
TEST(key_join)
{
    TRY(key_join, "N=5 H=3 A=48 R=16 C=32", .pad = 8);
    TRY(key_join, "N=4 H=2 A=11 R=4 C=7", .pad = 3, .off = 1);
    TRY(key_join, "N=0 H=2 A=12 R=4 C=8");
}
TEST(key_split)
{
    TRY(key_split, "N=5 H=3 A=48 R=16 C=32", .pad = 8);
    TRY(key_split, "N=4 H=2 A=11 R=4 C=7", .pad = 3, .off = 1);
    TRY(key_split, "N=0 H=2 A=12 R=4 C=8");
}
TEST(window_begin)
{
    TRY(window_begin, "R=3 N=150", .scalar = {I_(7)}, .fill = starts, .pad = 2, .one_type = true);
    TRY(window_begin, "R=1 N=1", .scalar = {I_(1)}, .fill = starts, .one_type = true);
    TRY(window_begin, "R=0 N=5", .scalar = {I_(3)}, .one_type = true);
}
/* All tokens but the last are one document: of its keys the last rows read more blocks than the kernel has places for. */
static void one_begin(struct trial *t)
{
    const int64_t N = trial_dim(t, 'N');
    int32_t *begin = trial_at(t, "begin");
    for (int64_t i = 0; i < N; i++) begin[i] = i < N - 1 ? 0 : (int32_t)i;
}
TEST(attention_fwd)
{
    TRY(attention_fwd, "N=131 H=1 G=1 A=24 B=16", .scalar = {F_(0.25), I_(1)}, .fill = one_begin,
        .tol = {5e-6, 8e-3}, .tol_f32 = 2e-5, .off = 0);
    ATTENTION(attention_fwd, "N=100 H=4 G=2 A=64 B=64", .off = 0);
    ATTENTION(attention_fwd, "N=70 H=2 G=1 A=24 B=16", .pad = 8);
    ATTENTION(attention_fwd, "N=33 H=2 G=2 A=13 B=9", .pad = 1);
#ifndef __SANITIZE_THREAD__
    ATTENTION(attention_fwd, "N=65 H=1 G=1 A=192 B=128", .off = 0);
    ATTENTION(attention_fwd, "N=65 H=1 G=1 A=128 B=128", .off = 0);
#endif
}
TEST(attention_fwd_top)
{
    ATTENTION(attention_fwd_top, "N=100 H=4 G=2 A=64 B=64", .off = 0);
    ATTENTION(attention_fwd_top, "N=70 H=2 G=1 A=24 B=16", .pad = 8);
    ATTENTION(attention_fwd_top, "N=33 H=2 G=2 A=13 B=9", .pad = 1);
}
TEST(max_rows)
{
    TRY(max_rows, "H=3 N=700", .pad = 1, .one_type = true);
    TRY(max_rows, "H=1 N=5", .one_type = true);
    TRY(max_rows, "H=0 N=5", .one_type = true);
}
TEST(max_parts)
{
    TRY(max_parts, "R=4 W=300", .pad = 3, .one_type = true);
    TRY(max_parts, "R=1 W=1", .one_type = true);
}
/* Queries of which two share a key, from the middle of a head on; latent attention's; biases. */
TEST(qk_clip)
{
    TRY(qk_clip, "R=21 C=300 H=6", .scalar = {F_(0.1), I_(5), I_(8), I_(0), I_(2), I_(2)}, .pad = 1,
        .one_type = true);
    TRY(qk_clip, "R=24 C=40 H=3", .scalar = {F_(0.2), I_(0), I_(8), I_(3), I_(1), I_(1)}, .one_type = true);
    TRY(qk_clip, "R=7 C=1 H=4", .scalar = {F_(0.1), I_(1), I_(4), I_(0), I_(1), I_(2)}, .one_type = true);
    TRY(qk_clip, "R=0 C=5 H=2", .scalar = {F_(1), I_(0), I_(4), I_(0), I_(1), I_(1)}, .one_type = true);
}
/* lse as it would be of rows that were never made: any numbers in proportion will do. */
static void gradients(struct trial *t)
{
    begins(t);
    float *lse = trial_at(t, "lse");
    for (int64_t i = 0; i < trial_dim(t, 'H') * trial_ld(t, "lse"); i++) lse[i] = 2 + fabsf(lse[i]);
}
#define ATTENTION_BWD(dims, ...)                                                                  \
    TRY(attention_bwd, dims, .scalar = {F_(0.25), I_(1)}, .fill = gradients, .tol = {5e-6, 8e-3}, \
        .tol_f32 = 2e-5, __VA_ARGS__)
TEST(attention_bwd)
{
    ATTENTION_BWD("N=100 H=4 G=2 A=64 B=64", .off = 0);
    ATTENTION_BWD("N=70 H=2 G=1 A=24 B=16", .pad = 8);
    ATTENTION_BWD("N=33 H=2 G=2 A=13 B=9", .pad = 1);
#ifndef __SANITIZE_THREAD__
    ATTENTION_BWD("N=65 H=1 G=1 A=192 B=128", .off = 0);
    ATTENTION_BWD("N=65 H=1 G=1 A=128 B=128", .off = 0);
#endif
}

/* ---- routing ---- */
static void with_nan(struct trial *t)
{
    logits_apart(t);
    ((float *)trial_at(t, "logits"))[2 * trial_ld(t, "logits") + 3] = NAN;
}
/* A NaN is never among the first, and does not go unseen: the row's gates are NaN, its ids K different ones. */
static void bad_logits(void)
{
    struct side s;
    struct trial t;
    const struct trial_spec p = {.op = MT_OP_router_topk,
                                 .dims = "N=4 E=8 K=8",
                                 .scalar = {I_(1), I_(1), F_(1), I_(0), I_(1), I_(1)},
                                 .fill = with_nan};
    trial_run(&t, &s, CUDA, &p, MT_F32);
    const float *gate = trial_at(&t, "gates");
    const int32_t *id = trial_at(&t, "ids");
    unsigned seen = 0;
    for (int i = 0; i < 4 * 8; i++) CHECK((gate[i] != gate[i]) == (i / 8 == 2));
    for (int k = 0; k < 8; k++) seen |= id[2 * 8 + k] >= 0 && id[2 * 8 + k] < 8 ? 1u << id[2 * 8 + k] : 0;
    CHECK_INT(seen, 255);
    side_close(&s);
}
TEST(router_topk)
{
    for (int score = 0; score < 2; score++)
        for (int norm = 0; norm < 2; norm++)
            TRY(router_topk, "N=7 E=45 K=6", .scalar = {I_(score), I_(norm), F_(2.5), I_(0), I_(1), I_(1)},
                .fill = logits_apart, .one_type = true);
    TRY(router_topk, "N=7 E=45 K=6", .scalar = {I_(1), I_(1), F_(2.5), I_(5), I_(1), I_(1)},
        .one_type = true);
    for (int best2 = 0; best2 < 2; best2++) {
        TRY(router_topk, "N=9 E=48 K=6", .scalar = {I_(1), I_(1), F_(2.5), I_(0), I_(6), I_(3), I_(best2)},
            .one_type = true);
        TRY(router_topk, "N=7 E=256 K=8", .scalar = {I_(0), I_(0), F_(1), I_(0), I_(8), I_(4), I_(best2)},
            .fill = one_tied, .one_type = true);
    }
    bad_logits();
}
/* Ids as a choice gives them; gates of which some tie. */
static void crowded(struct trial *t)
{
    int32_t *id = trial_at(t, "ids");
    float *gate = trial_at(t, "gates");
    int64_t E = trial_dim(t, 'E'), K = trial_dim(t, 'K');
    for (int64_t n = 0; n < trial_dim(t, 'N'); n++)
        for (int64_t k = 0, first = trial_below(t, 1 + trial_below(t, E)); k < K; k++) {
            id[n * trial_ld(t, "ids") + k] = (int32_t)((first + k) % E);
            gate[n * trial_ld(t, "gates") + k] = n % 4 ? fabsf(uniform(t->side)) : 0.25f;
        }
}
TEST(route_drop)
{
    for (int by_gate = 0; by_gate < 2; by_gate++) {
        TRY(route_drop, "N=200 K=3 E=21", .scalar = {I_(50), I_(6), I_(by_gate)}, .fill = crowded, .pad = 1,
            .one_type = true);
        TRY(route_drop, "N=90 K=2 E=8", .scalar = {I_(90), I_(40), I_(by_gate)}, .fill = crowded,
            .one_type = true);
    }
    TRY(route_drop, "N=0 K=2 E=4", .scalar = {I_(5), I_(1), I_(1)}, .one_type = true);
}
static void some_dropped(struct trial *t)
{
    ids(t);
    int32_t *id = trial_at(t, "ids");
    for (int64_t i = 0; i < trial_dim(t, 'N'); i += 3)
        id[i * trial_ld(t, "ids") + i % trial_dim(t, 'K')] =
            -1 - id[i * trial_ld(t, "ids") + i % trial_dim(t, 'K')];
}
TEST(route_sort)
{
    TRY(route_sort, "N=150 K=3 M=450 E=7", .fill = some_dropped, .one_type = true);
    TRY(route_sort, "N=40 K=2 M=80 E=300", .fill = some_dropped, .pad = 1, .one_type = true);
    TRY(route_sort, "N=150 K=3 M=450 E=7", .fill = ids, .one_type = true);
    TRY(route_sort, "N=40 K=2 M=80 E=300", .fill = ids, .pad = 1, .one_type = true);
    TRY(route_sort, "N=0 K=2 M=0 E=4", .one_type = true);
}
TEST(counts_add)
{
    TRY(counts_add, "E=300", .one_type = true);
}
TEST(router_bwd)
{
    for (int score = 0; score < 2; score++)
        for (int norm = 0; norm < 2; norm++)
            TRY(router_bwd, "N=7 E=44 K=6", .scalar = {I_(score), I_(norm), F_(2.5)}, .fill = ids, .pad = 1,
                .one_type = true);
}
TEST(router_counts)
{
    TRY(router_counts, "N=12 E=45 Q=3", .scalar = {I_(6)}, .pad = 1, .one_type = true);
    TRY(router_counts, "N=9 E=300 Q=1", .scalar = {I_(8)}, .one_type = true);
    TRY(router_counts, "N=0 E=5 Q=1", .scalar = {I_(2)}, .one_type = true);
}
TEST(counts_total)
{
    TRY(counts_total, "E=300 R=3", .pad = 2, .one_type = true);
}
TEST(router_balance)
{
    for (int score = 0; score < 2; score++)
        TRY(router_balance, "N=12 E=45 Q=3", .scalar = {I_(score), F_(0.3), F_(0.01)}, .pad = 1,
            .one_type = true);
    TRY(router_balance, "N=0 E=5 Q=1", .scalar = {I_(0), F_(1), F_(1)}, .one_type = true);
}
TEST(router_z)
{
    TRY(router_z, "N=7 E=45", .scalar = {F_(0.01)}, .pad = 1, .one_type = true);
    TRY(router_z, "N=0 E=5", .scalar = {F_(0.01)}, .one_type = true);
}
TEST(bias_update)
{
    TRY(bias_update, "E=300", .scalar = {F_(0.01)}, .one_type = true);
}
TEST(gather_rows)
{
    TRY(gather_rows, "C=9 D=64 N=6 M=12", .scalar = {I_(2), I_(3), I_(7)}, .fill = order, .pad = 8,
        .tol = {1e-30, 1e-30});
    TRY(gather_rows, "C=9 D=37 N=6 M=12", .scalar = {I_(2), I_(3), I_(7)}, .fill = order, .off = 1,
        .tol = {1e-30, 1e-30});
}
TEST(gather_gates)
{
    TRY(gather_gates, "M=12 N=6 K=2", .fill = order, .pad = 1, .one_type = true);
}
TEST(combine_fwd)
{
    TRY(combine_fwd, "N=6 K=2 M=12 D=64", .fill = slots, .pad = 8);
    TRY(combine_fwd, "N=6 K=3 M=18 D=37", .fill = slots, .off = 1);
    TRY(combine_fwd, "N=6 K=3 M=9 D=40", .fill = fewer_slots);
}
TEST(combine_bwd)
{
    TRY(combine_bwd, "N=6 K=2 M=12 D=64", .fill = slots, .pad = 8);
    TRY(combine_bwd, "N=6 K=3 M=18 D=37", .fill = slots, .without = " add ", .off = 1);
    TRY(combine_bwd, "N=6 K=3 M=9 D=40", .fill = fewer_slots);
}
TEST(expert_counts)
{
    TRY(expert_counts, "E=6 R=3 W=18", .scalar = {I_(1)}, .fill = all_counts, .one_type = true);
}
TEST(expert_sort)
{
    TRY(expert_sort, "C=20 D=64 R=3 W=18", .scalar = {I_(1), I_(6), I_(4), I_(17)}, .fill = all_counts);
    TRY(expert_sort, "C=20 D=13 R=3 W=18", .scalar = {I_(2), I_(6), I_(0), I_(9)}, .fill = all_counts,
        .pad = 1);
}
TEST(expert_unsort)
{
    TRY(expert_unsort, "C=20 D=64 R=3 W=18", .scalar = {I_(1), I_(6), I_(4), I_(17)}, .fill = all_counts);
}

/* ---- loss ---- */
TEST(count_valid)
{
    TRY(count_valid, "N=300", .fill = labels, .one_type = true);
}
TEST(xent)
{
    TRY(xent, "N=4 V=1000", .scalar = {F_(1)}, .fill = valid_labels, .pad = 8);
    TRY(xent, "N=4 V=37", .scalar = {F_(0.3)}, .fill = valid_labels);
}
TEST(xent_eval)
{
    TRY(xent_eval, "N=4 V=1000", .fill = labels, .one_type = true);
    TRY(xent_eval, "N=4 V=37", .fill = labels, .one_type = true);
}
TEST(sum_loss)
{
    TRY(sum_loss, "N=300", .one_type = true, .tol_f32 = 1e-12);
}
TEST(sum_parts_f64)
{
    TRY(sum_parts_f64, "R=5 W=3", .pad = 1, .one_type = true, .tol_f32 = 1e-15);
}
TEST(sum_parts_i64)
{
    TRY(sum_parts_i64, "R=5 W=40", .pad = 2, .one_type = true);
}

/* ---- gradients and optimizers ---- */
TEST(grad_cast)
{
    TRY(grad_cast, "N=2500", .tol = {1e-30, 1e-30});
    TRY(grad_cast, "N=9", .off = 1, .tol = {1e-30, 1e-30});
}
TEST(sum_pieces)
{
    TRY(sum_pieces, "R=3 N=1040");
    TRY(sum_pieces, "R=3 N=7", .pad = 1);
}
/* Magnitudes from denormal to 2^100, infinities and NaNs: the same value, whatever the words. */
static void wide_range(struct trial *t)
{
    float *x = trial_at(t, "x");
    memset(trial_at(t, "acc"), 0, MT_SUMSQ_WORDS * 8);
    for (int64_t i = 0; i < trial_dim(t, 'X'); i++)
        x[i] = i % 7 == 0 ? 0
                          : ldexpf(uniform(t->side), i % 11 == 3   ? -140
                                                     : i % 5 == 2  ? -30
                                                     : i % 13 == 1 ? 60
                                                                   : 0);
}
static void sums(const char *dims, float odd)
{
    struct side side[2];
    struct trial t[2];
    struct trial_spec p = {.op = MT_OP_sumsq, .dims = dims, .fill = wide_range};
    for (int m = 0; m < 2; m++) {
        struct tensor acc;
        t[m] = (struct trial){.side = &side[m], .info = &mt_op_info[MT_OP_sumsq], .op = MT_OP_sumsq};
        side_init(&side[m], m ? CUDA : CPU);
        trial_dims(&t[m], p.dims);
        t[m].dim['W' - 'A'] = MT_SUMSQ_WORDS;
        trial_arg(&t[m], &p, 0), trial_arg(&t[m], &p, 1);
        acc = t[m].arg[0].t;
        side_open(&side[m]);
        wide_range(&t[m]);
        if (odd != 0) ((float *)trial_at(&t[m], "x"))[5] = odd;
        upload(&side[m], &acc, MT_COMPUTE), upload(&side[m], &t[m].arg[1].t, MT_COMPUTE);
        for (int k = 0; k < 2; k++) mt_sumsq(&side[m].ctx.stream[MT_COMPUTE], acc.dev, t[m].arg[1].t.dev);
        download(&side[m], &acc, MT_COMPUTE);
        side_finish(&side[m]);
    }
    double a = mt_exact_value(trial_at(&t[0], "acc")), b = mt_exact_value(trial_at(&t[1], "acc"));
    if (!CHECK(a == b || (a != a && b != b))) printf("  %s: %.17g on the cpu, %.17g on cuda\n", dims, a, b);
    side_close(&side[0]), side_close(&side[1]);
}
TEST(sumsq)
{
    sums("X=5000", 0);
    sums("X=100", INFINITY);
    sums("X=100", NAN);
    sums("X=9", 0);
}
static void some_sum(struct trial *t)
{
    int64_t *acc = trial_at(t, "acc");
    const float x[] = {3, 1e-20f, 5e-3f, 17};
    memset(acc, 0, MT_SUMSQ_WORDS * 8);
    mt_exact_add(acc, x, 4);
}
static void no_number(struct trial *t)
{
    some_sum(t);
    ((int64_t *)trial_at(t, "acc"))[MT_EXACT_NAN] = 1;
}
TEST(clip)
{
    TRY(clip, "W=20", .scalar = {F_(1)}, .fill = some_sum, .one_type = true, .tol_f32 = 1e-15);
    TRY(clip, "W=20", .scalar = {F_(0)}, .fill = some_sum, .one_type = true, .tol_f32 = 1e-15);
    TRY(clip, "W=20", .scalar = {F_(100)}, .fill = some_sum, .one_type = true, .tol_f32 = 1e-15);
    TRY(clip, "W=20", .scalar = {F_(1)}, .fill = no_number, .one_type = true);
}
static void moments(struct trial *t)
{
    positive(t, "v", trial_dim(t, 'N'));
}
TEST(adamw)
{
    TRY(adamw, "N=1040", .scalar = {F_(1e-3), F_(0.1), F_(0.9), F_(0.95), F_(1e-8), I_(3)}, .fill = moments,
        .one_type = true);
    TRY(adamw, "N=9", .scalar = {F_(1e-3), F_(0.1), F_(0.9), F_(0.95), F_(1e-8), I_(3)}, .fill = moments,
        .off = 1, .one_type = true);
}
TEST(muon_momentum)
{
    TRY(muon_momentum, "B=2 R=3 C=40", .scalar = {F_(0.95), I_(1)});
    TRY(muon_momentum, "B=2 R=3 C=13", .scalar = {F_(0.95), I_(0)}, .pad = 1);
}
TEST(muon_apply)
{
    TRY(muon_apply, "B=2 R=3 C=40", .scalar = {F_(1e-2), F_(0.1), F_(1.5)});
    TRY(muon_apply, "B=2 R=3 C=13", .scalar = {F_(1e-2), F_(0.1), F_(1.5)}, .pad = 1);
}
/* Wide, tall and square, within a tile and over several, more matrices than lanes. */
static int64_t ns_bytes(int64_t b, int64_t r, int64_t c)
{
    return mt_newton_schulz_ws_bytes(b, r, c, MT_F32);
}
TEST(newton_schulz)
{
    TRY(newton_schulz, "B=2 R=24 C=70", .scalar = {I_(5), I_(1)}, .ws_bytes = ns_bytes(2, 24, 70),
        .tol = {2e-5, 3e-2});
    TRY(newton_schulz, "B=1 R=80 C=72", .scalar = {I_(2), I_(2)}, .ws_bytes = ns_bytes(1, 80, 72),
        .tol = {2e-5, 3e-2}, .pad = 3);
    TRY(newton_schulz, "B=18 R=5 C=3", .scalar = {I_(3), I_(0)}, .ws_bytes = ns_bytes(18, 5, 3),
        .tol = {2e-5, 3e-2});
}
/* Within a tile and over several, turned or not. */
TEST(turn_left)
{
    TRY(turn_left, "B=2 R=24 C=70", .scalar = {I_(0)}, .one_type = true);
    TRY(turn_left, "B=3 R=67 C=5", .scalar = {I_(1)}, .pad = 3, .one_type = true);
}
TEST(turn_right)
{
    TRY(turn_right, "B=2 R=24 C=70", .scalar = {I_(0)}, .one_type = true);
    TRY(turn_right, "B=3 R=5 C=67", .scalar = {I_(1)}, .pad = 3, .one_type = true);
}
TEST(gram_left)
{
    TRY(gram_left, "B=2 R=24 C=70", .scalar = {F_(0.95)}, .one_type = true);
    TRY(gram_left, "B=1 R=67 C=5", .scalar = {F_(0.5)}, .pad = 3, .one_type = true);
}
TEST(gram_right)
{
    TRY(gram_right, "B=2 R=24 C=70", .scalar = {F_(0.95)}, .one_type = true);
    TRY(gram_right, "B=1 R=67 C=5", .scalar = {F_(0.5)}, .pad = 3, .one_type = true);
}
TEST(soap_moment)
{
    TRY(soap_moment, "B=2 R=3 C=40", .scalar = {F_(0.9)}, .one_type = true);
    TRY(soap_moment, "B=2 R=3 C=300", .scalar = {F_(1)}, .pad = 1, .one_type = true);
}
static void squares(struct trial *t)
{
    positive(t, "v", ((trial_dim(t, 'B') * trial_dim(t, 'R')) - 1) * trial_ld(t, "v") + trial_dim(t, 'C'));
}
TEST(soap_adam)
{
    TRY(soap_adam, "B=2 R=3 C=40", .scalar = {F_(0.9), F_(0.95), F_(1e-8), I_(3)}, .fill = squares,
        .one_type = true);
    TRY(soap_adam, "B=2 R=3 C=300", .scalar = {F_(0.9), F_(1), F_(1e-8), I_(1)}, .fill = squares, .pad = 1,
        .one_type = true);
}
/* Symmetric, with eigenvalues that lie apart: their vectors do not depend on rounding. */
static void symmetric(struct trial *t)
{
    float *p = trial_at(t, "p");
    int64_t n = trial_dim(t, 'S'), ld = trial_ld(t, "p");
    for (int64_t b = 0; b < trial_dim(t, 'B'); b++, p += n * ld)
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j <= i; j++) {
                p[i * ld + j] = i == j ? (float)(2 * i + 1) : 0.3f * p[i * ld + j];
                p[j * ld + i] = p[i * ld + j];
            }
}
#define EIGEN(b, n) .ws_bytes = mt_eigen_ws_bytes(b, n), .fill = symmetric, .one_type = true
TEST(eigen_basis)
{
    TRY(eigen_basis, "B=2 S=12", .scalar = {I_(0)}, EIGEN(2, 12));
    TRY(eigen_basis, "B=2 S=24", .scalar = {I_(1)}, EIGEN(2, 24));
    TRY(eigen_basis, "B=18 S=5", .scalar = {I_(1)}, EIGEN(18, 5), .pad = 3);
    TRY(eigen_basis, "B=2 S=24", .scalar = {I_(2)}, EIGEN(2, 24));
    TRY(eigen_basis, "B=18 S=5", .scalar = {I_(2)}, EIGEN(18, 5), .pad = 3);
    TRY(eigen_basis, "B=1 S=1", .scalar = {I_(2)}, EIGEN(1, 1));
    TRY(eigen_basis, "B=2 S=24", .scalar = {I_(3), F_(0.75), F_(1e-3), I_(4)}, EIGEN(2, 24));
    TRY(eigen_basis, "B=18 S=5", .scalar = {I_(3), F_(1), F_(1e-6), I_(2)}, EIGEN(18, 5), .pad = 3);
}
TEST(graft)
{
    TRY(graft, "B=2 R=3 C=40", .scalar = {I_(1)}, .one_type = true);
    TRY(graft, "B=1 R=5 C=300", .scalar = {I_(1)}, .pad = 3, .one_type = true);
    TRY(graft, "B=2 R=3 C=7", .scalar = {I_(0)}, .one_type = true);
    TRY(graft, "B=0 R=3 C=7", .scalar = {I_(1)}, .one_type = true);
}
TEST(init_normal)
{
    TRY(init_normal, "X=500", .scalar = {I_(123456789), I_(7), F_(0.02)}, .one_type = true);
    TRY(init_normal, "X=1", .scalar = {I_(5), I_(1), F_(0.02)}, .one_type = true);
}

/* test_kernels [OP]: all, or one */
static const char *only;
#define RUN_KERNEL(name) (only && strcmp(only, #name) ? (void)0 : RUN(name))
#define RUN_COPY RUN_KERNEL
#define RUN_READ RUN_KERNEL
#define RUN_COMM(name) ((void)0) /* test_ranks.c */
int main(int argc, char **argv)
{
    only = argc > 1 ? argv[1] : NULL;
#define OP(name, kind, args, scalars, flops, bytes) RUN_##kind(name);
#define OP0(name, kind, args, flops, bytes) RUN_##kind(name);
#include "device/op.def"
#undef OP
#undef OP0
    return DONE();
}
