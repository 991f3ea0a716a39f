#include "cmd/ckpt_diff.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ckpt/ckpt.h"
#include "ckpt/tensors.h"

static mt_status open_side(struct mt_tensors *t, const char *path, mt_err *e)
{
    struct mt_ckpt_meta meta;
    char file[MT_CKPT_PATH + 64];
    MT_TRY(mt_ckpt_verify(path, &meta, e));
    snprintf(file, sizeof file, "%s/rank-00000.safetensors", path);
    MT_TRY(mt_tensors_open(t, file, e));
    printf("%s: step %" PRId64 ", %" PRId64 " tokens, %" PRId64 " tensors\n", path, meta.step, meta.tokens,
           t->n);
    return MT_OK;
}

static void print_values(const char *name, const unsigned char *a, const unsigned char *b, int64_t bytes)
{
    double most = 0, d2 = 0, a2 = 0;
    for (int64_t i = 0; i < bytes; i += 4) {
        float x, y;
        memcpy(&x, a + i, sizeof x);
        memcpy(&y, b + i, sizeof y);
        double d = fabs((double)x - (double)y);
        if (d > most) most = d;
        d2 += d * d;
        a2 += (double)x * (double)x;
    }
    printf("  %-44s largest %.3e  relative %.3e\n", name, isnan(d2) ? (double)NAN : most, sqrt(d2 / a2));
}

/* Prints a line if they differ. */
static bool differ(const struct mt_tensors *ta, const struct mt_tensor_entry *x, const struct mt_tensors *tb,
                   const struct mt_tensor_entry *y)
{
    const unsigned char *a = mt_tensors_bytes(ta, x), *b = mt_tensors_bytes(tb, y);
    if (x->shape[0] != y->shape[0] || x->shape[1] != y->shape[1]) {
        printf("  %-44s [%" PRId64 ", %" PRId64 "] and [%" PRId64 ", %" PRId64 "]\n", x->name, x->shape[0],
               x->shape[1], y->shape[0], y->shape[1]);
        return true;
    }
    if (!memcmp(a, b, (size_t)(x->end - x->begin))) return false;
    print_values(x->name, a, b, x->end - x->begin);
    return true;
}

/* Both lists are in the order of names. */
static void compare(const struct mt_tensors *a, const struct mt_tensors *b, int64_t *different, int64_t *all)
{
    for (int64_t i = 0, j = 0; i < a->n || j < b->n; ++*all) {
        int order = i == a->n ? 1 : j == b->n ? -1 : strcmp(a->entry[i].name, b->entry[j].name);
        if (order < 0) {
            printf("  %-44s only in the first\n", a->entry[i++].name);
            ++*different;
        } else if (order > 0) {
            printf("  %-44s only in the second\n", b->entry[j++].name);
            ++*different;
        } else {
            *different += differ(a, &a->entry[i++], b, &b->entry[j++]);
        }
    }
}

mt_status mt_ckpt_diff(const char *path_a, const char *path_b, mt_err *e)
{
    struct mt_tensors a = {0}, b = {0};
    int64_t different = 0, all = 0;
    mt_status st = open_side(&a, path_a, e);
    if (st == MT_OK) st = open_side(&b, path_b, e);
    if (st == MT_OK) {
        compare(&a, &b, &different, &all);
        if (different)
            st = mt_err_set(e, MT_CKPT, "%" PRId64 " of %" PRId64 " tensors differ", different, all);
        else
            printf("%" PRId64 " tensors, equal to the bit\n", all);
    }
    mt_tensors_close(&a);
    mt_tensors_close(&b);
    return st;
}
