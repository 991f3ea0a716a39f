/* test: timeout=120 variants=release
 *
 * The arenas of a run, painted before it: a train and an eval step touch the bytes of the ledger and no others.
 *
 * Two runs are painted differently. A byte that still has its paint in both was never written; the bits of everything
 * written are the same in both, so one of them shows it. */
#include "training.h"

#include "device/record.h"

#define HOST_STATE "offload.masters=host offload.moments=host offload.grads=host "
static const char *const shapes[] = {
    TRAINING_BASE,
    TRAINING_BASE "train.dtype=bf16 model.tied=true model.attn_bias=true model.dim=256 optim.qk_clip=0.1 ",
    TRAINING_BASE TRAINING_MOE,
    TRAINING_BASE TRAINING_MOE "train.dtype=bf16 moe.buffer_factor=0.3 ",
    TRAINING_BASE TRAINING_MOE
    "train.dtype=bf16 wire.gather_experts=fp8 wire.gather_dense=fp8 model.ffn=300 ",
    TRAINING_BASE TRAINING_MOE "model.tied=true model.shared_ffn=0 moe.buffer_factor=0.2 ",
    TRAINING_BASE TRAINING_MOE
    "model.first_dense=0 model.v_head_dim=24 moe.buffer_factor=2 model.expert_ffn=128 ",
    TRAINING_BASE TRAINING_MOE HOST_STATE "offload.slot_bytes=8KiB ",
    TRAINING_BASE TRAINING_MOE HOST_STATE "optim.compute=host train.dtype=bf16 wire.gather_experts=fp8 "
                                          "wire.gather_dense=fp8 model.ffn=300 ",
    TRAINING_BASE TRAINING_MOE "optim.compute=host offload.masters=host offload.slots=3 train.dtype=bf16 "
                               "model.qk_norm=false optim.qk_clip=0.1 ",
    TRAINING_BASE TRAINING_MOE
    "offload.activations.fraction=1 recompute.policy=selective moe.buffer_factor=0.3 ",
    TRAINING_BASE TRAINING_MOE
    "offload.activations.fraction=0.7 recompute.keep_on=host train.micro_order=layer train.dtype=bf16 "
    "recompute.keep=attn_norm,qkv,attention,attn_out,ffn_norm,ffn_up,ffn_act,router ",
    TRAINING_BASE TRAINING_MOE "model.mtp_depth=2 offload.activations.fraction=1 recompute.policy=selective "
                               "model.tied=true moe.buffer_factor=0.3 ",
    TRAINING_BASE TRAINING_MOE "model.mtp_depth=1 train.micro_order=layer train.dtype=bf16 model.dim=128 ",
};
enum { SHAPES = sizeof shapes / sizeof *shapes, GUARD = 1 << 16, MOST_PAD = 256 };

struct painted {
    unsigned char *arena[MT_N_ARENAS]; /* what the runs left, GUARD bytes before and behind included */
    struct mt_recording q;
    struct mt_ledger ledger; /* a copy, its rows owned */
    int64_t size[MT_N_ARENAS];
    uint64_t hash;
    struct mt_shape shape;
};

/* Places of their own for all rows, as before planning. */
static void unshare(struct mt_ledger *g)
{
    memset(g->size, 0, sizeof g->size);
    for (int32_t i = 0; i < g->n; i++) {
        struct mt_row *r = &g->row[i];
        r->off = (g->size[r->arena] + g->align - 1) / g->align * g->align;
        g->size[r->arena] = r->off + r->bytes;
    }
}

static unsigned char *paint(int64_t bytes, int colour)
{
    unsigned char *p = aligned_alloc(4096, (size_t)(bytes + 2 * GUARD + 4095) / 4096 * 4096);
    MT_ASSERT(p);
    memset(p, colour, (size_t)(bytes + 2 * GUARD));
    return p;
}

/* Fills, trains a step and validates, in painted arenas. */
static bool run_painted(struct painted *p, const char *shape, int colour, bool shared)
{
    struct training t;
    *p = (struct painted){0};
    if (!training_open(&t, shape)) return false;
    if (!shared) unshare(&t.s.ledger);
    char *mapped[MT_N_ARENAS];
    for (int a = 0; a < MT_N_ARENAS; a++) {
        p->size[a] = shared ? t.s.plan.peak[a] : t.s.ledger.size[a];
        p->arena[a] = paint(p->size[a], colour);
        mapped[a] = t.s.rank[0].ctx.arena[a];
        t.s.rank[0].ctx.arena[a] = (char *)p->arena[a] + GUARD;
    }
    t.s.rank[0].ctx.recording = &p->q;
    bool ok = training_run(&t, mt_fill_step);
    training_batch(&t, 1);
    ok = ok && training_run(&t, mt_train_step) && training_run(&t, mt_eval_step);
    t.s.rank[0].ctx.recording = NULL;
    p->hash = training_hash(&t);
    p->shape = t.s.rank[0].model.shape;
    p->ledger = t.s.ledger;
    t.s.ledger.row = NULL; /* the copy's now */
    for (int a = 0; a < MT_N_ARENAS; a++) t.s.rank[0].ctx.arena[a] = mapped[a];
    training_close(&t);
    return ok;
}

static void painted_release(struct painted *p)
{
    for (int a = 0; a < MT_N_ARENAS; a++) free(p->arena[a]);
    mt_recording_release(&p->q);
    free(p->ledger.row);
}

enum { PAINT_A = 0xa5, PAINT_B = 0x5a };
static bool touched(const struct painted *a, const struct painted *b, int arena, int64_t at)
{
    return a->arena[arena][GUARD + at] != PAINT_A || b->arena[arena][GUARD + at] != PAINT_B;
}

/* Lanes of slots (shard/slots.h) are as large as the largest strip, whichever of them that happens to come through. */
static bool is_lane(const struct mt_row *r)
{
    return strstr(r->name, "lane.") != NULL;
}
static bool ends_in_a_lane(const struct painted *p, int arena)
{
    for (int32_t i = 0; i < p->ledger.n; i++) {
        const struct mt_row *r = &p->ledger.row[i];
        if (r->arena == arena && is_lane(r) && r->off + r->bytes == p->size[arena]) return true;
    }
    return false;
}

/* Of the threads that write checkpoints: no operation may touch it. */
static bool in_writers(const struct painted *p, int arena, int64_t at)
{
    for (int32_t i = 0; i < p->ledger.n; i++) {
        const struct mt_row *r = &p->ledger.row[i];
        if (r->row_class == MT_ROW_SAVE && r->arena == arena && r->off <= at && at < r->off + r->bytes)
            return true;
    }
    return false;
}
static void check_writers(const struct painted *a, const struct painted *b, const struct mt_row *r)
{
    int64_t by_operations = 0;
    for (int64_t i = 0; i < r->bytes; i++) by_operations += touched(a, b, r->arena, r->off + i);
    CHECK_INT(by_operations, 0);
}

/* Nothing in front of the arena or behind its peak, and its last byte is used. */
static void check_ends(const struct painted *a, const struct painted *b)
{
    for (int x = 0; x < MT_N_ARENAS; x++) {
        int64_t outside = 0;
        for (int64_t i = 0; i < GUARD; i++)
            outside += touched(a, b, x, i - GUARD) + touched(a, b, x, a->size[x] + i);
        CHECK_INT(outside, 0);
        CHECK(touched(a, b, x, a->size[x] - 1) || ends_in_a_lane(a, x) || in_writers(a, x, a->size[x] - 1));
        CHECK(touched(a, b, x, 0) || in_writers(a, x, 0));
    }
}

TEST(the_peak_is_exact)
{
    for (int i = 0; i < SHAPES; i++) {
        struct painted a, b;
        if (run_painted(&a, shapes[i], PAINT_A, true) & run_painted(&b, shapes[i], PAINT_B, true)) {
            check_ends(&a, &b);
            CHECK(a.hash == b.hash);
        }
        painted_release(&a);
        painted_release(&b);
    }
}

/* ---- row by row, each in a place of its own ---- */
struct use {
    unsigned char *mark; /* by byte: an operation has it in an argument */
    bool by_data, ws;    /* written as the data ask; only ever a workspace */
};
static struct use use_of(const struct painted *p, int32_t row)
{
    struct use u = {.mark = calloc((size_t)p->ledger.row[row].bytes, 1), .ws = true};
    MT_ASSERT(u.mark);
    for (int64_t i = 0; i < p->q.n_args; i++) {
        const struct mt_rec_arg *a = &p->q.arg[i];
        if (a->row != row) continue;
        memset(u.mark + a->off, 1, (size_t)a->bytes);
        u.by_data |= a->dir == MT_SOME || a->dir == MT_PART;
        u.ws &= a->dir == MT_WS;
    }
    return u;
}

/* What is written of row `row`, which nothing shares: all of it, but for the ends of padded rows (its views' `ld`), the
 * padding of its end, and the part of a bounded buffer that this batch's counts left empty. A workspace is as large as any
 * device or shape may want, so only its being named counts. */
static bool row_is_whole(const struct painted *a, const struct painted *b, int32_t row, bool tell)
{
    const struct mt_row *r = &a->ledger.row[row];
    struct use u = use_of(a, row);
    int64_t used = 0, named = 0, longest = 0, hole = 0, last = -1;
    for (int64_t i = 0; i < r->bytes; i++) {
        bool is = touched(a, b, r->arena, r->off + i);
        named += u.mark[i];
        used += is;
        hole = is ? 0 : hole + 1;
        if (hole > longest) longest = hole;
        if (is) last = i;
    }
    /* A round of a bounded buffer ends at most MT_ROUND_ROWS before the buffer does. */
    int64_t spare = u.by_data && a->shape.C < a->shape.N * a->shape.K ? r->bytes * MT_ROUND_ROWS / a->shape.C
                                                                      : 0;
    int64_t end = spare > a->ledger.align ? spare : a->ledger.align,
            pad = spare > MOST_PAD ? spare : MOST_PAD;
    bool whole = named > r->bytes - a->ledger.align &&
                 (u.ws || (last >= named - 1 - (spare ? end : 0) && longest <= pad));
    if (!whole && tell)
        printf("  row %s of %lld bytes: operations name %lld, %lld are written, the longest hole is %lld, "
               "the last at %lld\n",
               r->name, (long long)r->bytes, (long long)named, (long long)used, (long long)longest,
               (long long)last);
    free(u.mark);
    return whole;
}
static void check_row(const struct painted *a, const struct painted *b, int32_t row)
{
    if (a->ledger.row[row].row_class == MT_ROW_SAVE) {
        check_writers(a, b, &a->ledger.row[row]);
        return;
    }
    const char *lane = is_lane(&a->ledger.row[row]) ? strrchr(a->ledger.row[row].name, '.') : NULL;
    bool whole = row_is_whole(a, b, row, !lane);
    for (int32_t i = 0; lane && i < a->ledger.n && !whole; i++) { /* it, or the same lane of another slot */
        const struct mt_row *r = &a->ledger.row[i];
        whole = is_lane(r) && r->arena == a->ledger.row[row].arena && !strcmp(strrchr(r->name, '.'), lane) &&
                row_is_whole(a, b, i, false);
    }
    CHECK(whole);
}

static void check_gaps(const struct painted *a, const struct painted *b)
{
    int64_t outside = 0;
    for (int32_t i = 0; i < a->ledger.n; i++) {
        const struct mt_row *r = &a->ledger.row[i];
        for (int64_t at = r->off + r->bytes; at < a->size[r->arena] && at % a->ledger.align; at++)
            outside += touched(a, b, r->arena, at);
    }
    CHECK_INT(outside, 0);
}

TEST(every_row_is_used_to_its_last_byte)
{
    for (int i = 0; i < SHAPES; i++) {
        struct painted a, b;
        if (run_painted(&a, shapes[i], PAINT_A, false) & run_painted(&b, shapes[i], PAINT_B, false)) {
            for (int32_t row = 0; row < a.ledger.n; row++) check_row(&a, &b, row);
            check_gaps(&a, &b);
            check_ends(&a, &b);
            CHECK(a.hash == b.hash);
        }
        painted_release(&a);
        painted_release(&b);
    }
}

TEST(sharing_changes_no_bit)
{
    for (int i = 0; i < SHAPES; i++) {
        struct painted a, b;
        if (run_painted(&a, shapes[i], PAINT_A, false) & run_painted(&b, shapes[i], PAINT_B, true)) {
            CHECK(a.hash == b.hash);
            CHECK(a.size[MT_DEVICE_ARENA] > b.size[MT_DEVICE_ARENA]);
        }
        painted_release(&a);
        painted_release(&b);
    }
}

int main(void)
{
    RUN(the_peak_is_exact);
    RUN(every_row_is_used_to_its_last_byte);
    RUN(sharing_changes_no_bit);
    return DONE();
}
