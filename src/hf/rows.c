#include "hf/rows.h"

bool mt_hf_rows_alike(const struct mt_shape *s, int kind)
{
    switch (kind) {
    case MT_P_q:
    case MT_P_q_b:
    case MT_P_kv_a:
    case MT_P_k_rope:
    case MT_P_k_b:
    case MT_P_v_b: return !s->Ck;
    }
    return true;
}

int64_t mt_hf_their_rows(const struct mt_shape *s, int kind, int64_t rows)
{
    switch (kind) {
    case MT_P_kv_a:
    case MT_P_k_rope: return s->Ck + s->R;
    case MT_P_k_b:
    case MT_P_v_b: return s->H * (s->A - s->R + s->B);
    }
    return rows;
}

/* Of R halved rows, row j stands at its place in pairs. */
static int64_t paired(const struct mt_shape *s, int64_t j)
{
    int64_t half = s->R / 2;
    return j < half ? 2 * j : 2 * (j - half) + 1;
}

int64_t mt_hf_their_row(const struct mt_shape *s, int kind, int64_t row, int64_t *n)
{
    int64_t own = s->A - s->R, width = kind == MT_P_k_b ? own : kind == MT_P_v_b ? s->B : s->A;
    int64_t head = row / width, j = row % width;
    *n = 1;
    if (mt_hf_rows_alike(s, kind) || kind == MT_P_kv_a) {
        *n = INT64_MAX;
        return row;
    }
    if (kind == MT_P_k_rope) return s->Ck + paired(s, row);
    if (kind == MT_P_k_b || kind == MT_P_v_b) {
        *n = width - j;
        return head * (own + s->B) + (kind == MT_P_v_b ? own : 0) + j;
    }
    if (j < s->R) return head * s->A + own + paired(s, j);
    *n = width - j;
    return head * s->A + j - s->R;
}
