#include "model/param.h"

#include <math.h>
#include <stdio.h>

#include "device/op.h"

enum unit_kind { UNIT_EMBED, UNIT_LAYER, UNIT_EXPERTS, UNIT_HEAD };

struct matrix_row {
    enum unit_kind unit;
    enum mt_form form;
};
static const struct matrix_row matrix_row[] = {
#define MATRIX(id, unit, form, cols, block, when) {UNIT_##unit, MT_FORM_##form},
#define TENSOR(matrix, id, name, rows, init, hf)
#include "model/param.def"
#undef MATRIX
#undef TENSOR
};

enum init { INIT_NORMAL, INIT_OUT, INIT_ONE, INIT_ZERO };
struct tensor_row {
    int matrix;
    const char *name, *hf;
    enum init init;
};
static const struct tensor_row tensor_row[] = {
#define MATRIX(id, unit, form, cols, block, when)
#define TENSOR(matrix, id, name, rows, init, hf) {MT_W_##matrix, name, hf, INIT_##init},
#include "model/param.def"
#undef MATRIX
#undef TENSOR
};

#define LETTERS                                                                                          \
    const int64_t D = m->D, V = m->V, H = m->H, G = m->G, A = m->A, B = m->B, E = m->E, F = m->F,        \
                  Fd = m->Fd, Fs = m->Fs, R = m->R, Ck = m->Ck, Cq = m->Cq;                              \
    const bool qk_norm = m->qk_norm, attn_bias = m->attn_bias, tied = m->tied, mla = Ck > 0;             \
    (void)D, (void)V, (void)H, (void)G, (void)A, (void)B, (void)E, (void)F, (void)Fd, (void)Fs, (void)R, \
        (void)Ck, (void)Cq, (void)qk_norm, (void)attn_bias, (void)tied, (void)mla, (void)moe

static int64_t matrix_cols(const struct mt_shape *m, int kind, bool moe)
{
    LETTERS;
    switch (kind) {
#define MATRIX(id, unit, form, cols, block, when) \
    case MT_W_##id:                               \
        return cols;
#define TENSOR(matrix, id, name, rows, init, hf)
#include "model/param.def"
#undef MATRIX
#undef TENSOR
    }
    return 0;
}
static int64_t matrix_block(const struct mt_shape *m, int kind)
{
    const bool moe = false;
    const int64_t TILE = MT_FP8_TILE;
    LETTERS;
    switch (kind) {
#define MATRIX(id, unit, form, cols, block, when) \
    case MT_W_##id:                               \
        return block;
#define TENSOR(matrix, id, name, rows, init, hf)
#include "model/param.def"
#undef MATRIX
#undef TENSOR
    }
    return 0;
}
static bool matrix_present(const struct mt_shape *m, int kind, bool moe, bool mtp)
{
    LETTERS;
    switch (kind) {
#define MATRIX(id, unit, form, cols, block, when) \
    case MT_W_##id:                               \
        return when;
#define TENSOR(matrix, id, name, rows, init, hf)
#include "model/param.def"
#undef MATRIX
#undef TENSOR
    }
    return false;
}
static int64_t tensor_rows(const struct mt_shape *m, int kind)
{
    const bool moe = false;
    LETTERS;
    switch (kind) {
#define MATRIX(id, unit, form, cols, block, when)
#define TENSOR(matrix, id, name, rows, init, hf) \
    case MT_P_##id:                              \
        return rows;
#include "model/param.def"
#undef MATRIX
#undef TENSOR
    }
    return 0;
}

static double std_of(enum init init, const struct mt_shape *m, double std)
{
    switch (init) {
    case INIT_NORMAL: return std;
    case INIT_OUT: return std / sqrt(2.0 * (double)mt_own_layers(m));
    case INIT_ONE: return -2;
    case INIT_ZERO: return -1;
    }
    return 0;
}

static void declare_unit(struct mt_store *s, const struct mt_shape *m, enum unit_kind unit, int layer,
                         double std)
{
    bool moe = layer >= 0 && mt_is_moe(m, layer), mtp = layer >= 0 && mt_is_mtp(m, layer);
    if (unit == UNIT_EXPERTS && !moe) return;
    mt_store_add_unit(s, layer, unit == UNIT_EXPERTS ? m->E / s->mesh.ep : 0);
    for (int k = 0; k < MT_N_MATRIX_KINDS; k++) {
        if (matrix_row[k].unit != unit || !matrix_present(m, k, moe, mtp)) continue;
        mt_store_add_matrix(s, k, layer, matrix_row[k].form, matrix_cols(m, k, moe), matrix_block(m, k));
        for (int t = 0; t < MT_N_TENSOR_KINDS; t++)
            if (tensor_row[t].matrix == k)
                mt_store_add_tensor(s, t, layer, tensor_rows(m, t), std_of(tensor_row[t].init, m, std));
    }
}

void mt_params_declare(struct mt_store *s, const struct mt_shape *m, double init_std)
{
    declare_unit(s, m, UNIT_EMBED, -1, init_std);
    for (int l = 0; l < (int)m->L; l++) {
        declare_unit(s, m, UNIT_LAYER, l, init_std);
        declare_unit(s, m, UNIT_EXPERTS, l, init_std);
    }
    declare_unit(s, m, UNIT_HEAD, -1, init_std);
}

void mt_param_fill(const char *pattern, int64_t layer, int64_t expert, char *out)
{
    /* The formats are the table's own; "%d" is replaced by hand because a format that is not a literal would not be checked. */
    int64_t number[2] = {layer, expert}, k = 0, n = 0;
    for (const char *p = pattern; *p && n < 80; p++)
        if (*p == '%') {
            n += snprintf(out + n, (size_t)(96 - n), "%lld", (long long)number[k++]);
            p++;
        } else
            out[n++] = *p;
    out[n] = 0;
}

void mt_param_name(const struct mt_tensor *t, int64_t expert, char *out)
{
    mt_param_fill(tensor_row[t->kind].name, t->layer, expert, out);
}

const char *mt_param_pattern(int kind)
{
    return tensor_row[kind].name;
}
const char *mt_param_hf(int kind)
{
    return tensor_row[kind].hf;
}
struct mt_heads mt_param_heads(const struct mt_shape *m, int kind)
{
    switch (kind) {
    case MT_P_q:
    case MT_P_q_b:
    case MT_P_k_b:
    case MT_P_v_b: return (struct mt_heads){m->H, false};
    case MT_P_k:
    case MT_P_v: return (struct mt_heads){m->G, false};
    case MT_P_o: return (struct mt_heads){m->H, true};
    default: return (struct mt_heads){0, false};
    }
}
bool mt_param_of_expert(int kind)
{
    return matrix_row[tensor_row[kind].matrix].unit == UNIT_EXPERTS;
}

struct mt_param_size mt_param_size(const struct mt_shape *m, int kind, int64_t layer)
{
    int matrix = tensor_row[kind].matrix;
    enum unit_kind unit = matrix_row[matrix].unit;
    bool moe = layer >= 0 && mt_is_moe(m, layer), mtp = layer >= 0 && mt_is_mtp(m, layer),
         in_layer = unit == UNIT_LAYER || unit == UNIT_EXPERTS;
    if (in_layer != (layer >= 0) || !matrix_present(m, matrix, moe, mtp)) return (struct mt_param_size){0};
    return (struct mt_param_size){tensor_rows(m, kind), matrix_cols(m, matrix, moe)};
}

void mt_weights_of(const struct mt_store *s, int layer, mt_view (*view)(const struct mt_store *, int matrix),
                   union mt_weights *w)
{
    for (int k = 0; k < MT_N_MATRIX_KINDS; k++) w->of[k] = MT_NONE;
    for (int i = 0; i < s->n_matrices; i++)
        if (s->matrix[i].layer == layer) w->of[s->matrix[i].kind] = view(s, i);
}

void mt_weights_for(const struct mt_store *s, int layer, enum mt_pass pass, union mt_weights *w)
{
    for (int k = 0; k < MT_N_MATRIX_KINDS; k++) w->of[k] = MT_NONE;
    for (int i = 0; i < s->n_matrices; i++)
        if (s->matrix[i].layer == layer) w->of[s->matrix[i].kind] = mt_store_work(s, i, pass);
}

/* ---- counts ---- */
static int64_t matrix_elements(const struct mt_shape *m, int kind, bool moe)
{
    int64_t rows = 0, cols = matrix_cols(m, kind, moe);
    for (int t = 0; t < MT_N_TENSOR_KINDS; t++)
        if (tensor_row[t].matrix == kind) rows += tensor_rows(m, t);
    return rows * (cols ? cols : 1);
}
static int64_t unit_elements(const struct mt_shape *m, enum unit_kind unit, bool moe, bool mtp)
{
    int64_t n = 0;
    for (int k = 0; k < MT_N_MATRIX_KINDS; k++)
        if (matrix_row[k].unit == unit && matrix_present(m, k, moe, mtp)) n += matrix_elements(m, k, moe);
    return n;
}
static int64_t params(const struct mt_shape *m, int64_t experts)
{
    int64_t n = unit_elements(m, UNIT_EMBED, false, false) + unit_elements(m, UNIT_HEAD, false, false);
    for (int64_t l = 0; l < m->L; l++) {
        bool moe = mt_is_moe(m, l);
        n += unit_elements(m, UNIT_LAYER, moe, mt_is_mtp(m, l)) +
             (moe ? experts * unit_elements(m, UNIT_EXPERTS, moe, false) : 0);
    }
    return n;
}
int64_t mt_params_total(const struct mt_shape *m)
{
    return params(m, m->E);
}
int64_t mt_params_active(const struct mt_shape *m)
{
    return params(m, m->K);
}

double mt_flops_of_experts(const struct mt_shape *s)
{
    return s->E ? 6.0 * 3 * (double)(s->D * s->F * s->K) * (double)(s->L - s->first_dense) : 0;
}

int64_t mt_near_layers(const struct mt_shape *s)
{
    int64_t n = 0;
    for (int64_t l = 0; l < s->L; l++) n += mt_is_near(s, l);
    return n;
}

double mt_flops_per_token_of(const struct mt_shape *m, double full, double near)
{
    double met = (double)mt_params_active(m) -
                 (m->tied ? 0 : (double)(m->V * m->D)) + /* the lookup is no product */
                 (double)(m->mtp * m->V * m->D);
    int64_t windows = mt_near_layers(m);
    double keys = (double)(m->L - windows) * full + (double)windows * near;
    return 6 * met + 6 * (double)m->H * (double)(m->A + m->B) * keys;
}
double mt_flops_per_token(const struct mt_shape *m, double context)
{
    double W = (double)m->W, near = context > W ? W - W * W / (2 * context) : context / 2;
    return mt_flops_per_token_of(m, context / 2, near);
}

/* A rank of an expert group gets M rows where the load is balanced, those of the whole group where it is not; experts with a
 * capacity take no more than that of each sequence. */
static void bound_rows(struct mt_shape *s, const mt_config *c, double factor)
{
    int64_t all = s->N * s->K, full = all * c->mesh_ep;
    s->M = all;
    if (factor > 0 && s->E) {
        double even = (double)(s->S * s->K) / (double)s->E;
        s->capacity = (int64_t)ceil(factor * even);
        if (s->capacity > s->S) s->capacity = s->S; /* a token chooses an expert once */
        int64_t taken = s->E * s->capacity * (s->N / s->S);
        if (taken < s->M) s->M = taken;
        if (taken < full) full = taken;
    }
    int64_t bounded = (int64_t)ceil(c->moe_buffer_factor * (double)s->M);
    bounded = (bounded + MT_ROUND_ROWS - 1) / MT_ROUND_ROWS * MT_ROUND_ROWS;
    s->C = bounded < full ? bounded : full;
}

static struct mt_shape shape_of(const mt_config *c, double factor)
{
    struct mt_shape s = {
        .N = c->train_seq_len * c->train_micro_batch,
        .S = c->train_seq_len,
        .D = c->model_dim,
        .V = c->model_vocab,
        .L = c->model_layers + c->model_mtp_depth,
        .mtp = c->model_mtp_depth,
        .H = c->model_heads,
        .G = c->model_kv_heads,
        .A = c->model_head_dim,
        .B = c->model_v_head_dim ? c->model_v_head_dim : c->model_head_dim,
        .R = c->model_rotary_dims ? c->model_rotary_dims : c->model_head_dim,
        .E = c->model_experts,
        .K = c->model_top_k,
        .F = c->model_expert_ffn,
        .Fd = c->model_ffn,
        .Fs = c->model_shared_ffn,
        .first_dense = c->model_experts ? c->model_first_dense : c->model_layers,
        .Nc = c->train_loss_chunk,
        .Ck = c->model_kv_lora_rank,
        .Cq = c->model_q_lora_rank,
        .W = c->model_window,
        .full_first = c->model_window_full_first,
        .full_every = c->model_window_full_every,
        .qk_norm = c->model_qk_norm,
        .attn_bias = c->model_attn_bias,
        .tied = c->model_tied,
    };
    if (s.Nc > s.N) s.Nc = s.N;
    bound_rows(&s, c, factor);
    return s;
}
struct mt_shape mt_shape_of(const mt_config *c)
{
    return shape_of(c, c->moe_capacity_factor);
}
struct mt_shape mt_shape_dropless(const mt_config *c)
{
    return shape_of(c, 0);
}

struct mt_shape mt_shape_alone(const struct mt_shape *s)
{
    struct mt_shape alone = *s;
    alone.L -= s->mtp;
    alone.mtp = 0;
    return alone;
}
