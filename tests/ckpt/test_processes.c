/* test: variants=release,asan,tsan-plain timeout=120
 *
 * A checkpoint loaded by several processes: every byte read once, by whoever needs most of it, and passed on; whatever one of
 * them finds, all leave with. */
#include "ckpt/restore.h"

#include "threads_job.h"
#include "write.h"

#include "quiet.h"

enum { MOST_PIECES = 4 * TENSORS };

/* What one process holds: rows of a world of its own. */
struct holder {
    struct world w;
    struct mt_ckpt_piece piece[MOST_PIECES];
    mt_status st;
    mt_err e;
    struct mt_ckpt_loaded loaded;
    char path[MT_CKPT_PATH];
};
struct loading {
    struct holder *holder; /* [processes] */
    const char *folder;    /* of a checkpoint; NULL: the newest of the run: */
    const char *run;
    struct mt_ckpt_demand want;
};

static void add_piece(struct holder *h, int t, int64_t row0, int64_t rows)
{
    struct mt_ckpt_items *x = &h->w.items;
    int64_t row_floats = mt_ckpt_row_bytes(&h->w.item[t]) / 4;
    h->piece[x->n_pieces++] =
        (struct mt_ckpt_piece){.data = h->w.data[t] + row0 * row_floats, .row0 = row0, .rows = rows};
    h->w.item[t].n++;
}
static void begin_holder(struct holder *h)
{
    make_world(&h->w, 99);
    h->w.items.piece = h->piece;
    h->w.items.n_pieces = 0;
}
static void begin_item(struct holder *h, int t)
{
    h->w.item[t].first = h->w.items.n_pieces;
    h->w.item[t].n = 0;
}

static void load_one(void *arg, const struct mt_job *job)
{
    struct loading *l = arg;
    struct holder *h = &l->holder[job->me];
    h->e = (mt_err){0};
    if (l->folder)
        h->st = mt_ckpt_load_as(l->folder, &l->want, &h->w.items, job, &h->loaded, &h->e);
    else
        h->st = mt_ckpt_resume(l->run, NULL, &h->w.items, job, h->path, &h->loaded, &h->e);
}

/* The rows that it holds are those of `from`, and no others have changed. */
static bool holds(const struct holder *h, const struct world *from, bool moments)
{
    static struct world want;
    make_world(&want, 99);
    for (int t = 0; t < TENSORS; t++)
        for (int64_t k = h->w.item[t].first; k < h->w.item[t].first + h->w.item[t].n; k++) {
            const struct mt_ckpt_piece *p = &h->piece[k];
            int64_t bytes = mt_ckpt_row_bytes(&want.item[t]);
            if (moments || !want.item[t].moment)
                memcpy((char *)want.data[t] + p->row0 * bytes, (const char *)from->data[t] + p->row0 * bytes,
                       (size_t)(p->rows * bytes));
        }
    return !memcmp(want.data, h->w.data, sizeof want.data);
}

static int64_t all_bytes(const struct world *w, bool moments)
{
    int64_t bytes = 0;
    for (int t = 0; t < TENSORS; t++)
        if (moments || !w->item[t].moment) bytes += mt_ckpt_item_bytes(&w->item[t]);
    return bytes;
}

/* `replicas` copies of the rows, cut evenly over the processes of each; the last tensor, a router's biases, on all. */
static void hold_evenly(struct holder *h, int n, int me, int replicas)
{
    int shards = n / replicas, k = me % shards;
    begin_holder(h);
    for (int t = 0; t < TENSORS; t++) {
        int64_t rows = h->w.item[t].rows, from = rows * k / shards, to = rows * (k + 1) / shards;
        begin_item(h, t);
        if (t == TENSORS - 1)
            add_piece(h, t, 0, rows);
        else if (to > from)
            add_piece(h, t, from, to - from);
    }
}

static const struct mt_deal_budget budgets[] = {{1, 1}, {40, 100}, {200, 1000}, {64 << 20, INT64_C(4) << 30}};

/* Saved by as many ranks as `before`, loaded by `after` processes in so many replicas. */
static void reshaped(int version, int before, int after, int replicas, bool weights_only)
{
    static struct holder h[THREADS_MOST];
    static struct world w;
    struct written c;
    make_world(&w, 1);
    write_sound(&c, &w, run_folder(), version, before, 7);
    for (size_t b = 0; b < sizeof budgets / sizeof *budgets; b++) {
        struct loading l = {
            h, c.folder, NULL, {.step = 7, .weights_only = weights_only, .budget = budgets[b]}};
        for (int i = 0; i < after; i++) hold_evenly(&h[i], after, i, replicas);
        int64_t sent = hub_run(after, load_one, &l);
        for (int i = 0; i < after; i++) {
            if (!CHECK_INT(h[i].st, MT_OK)) printf("    process %d: %s\n", i, h[i].e.msg);
            CHECK(holds(&h[i], &w, !weights_only));
            CHECK_INT(h[i].loaded.meta.step, 7);
            CHECK_INT(h[i].loaded.meta.tokens, 7000);
            CHECK_INT(h[i].loaded.read, all_bytes(&w, !weights_only)); /* once, by the whole job */
            CHECK_INT(h[i].loaded.needed, all_bytes(&w, !weights_only));
            CHECK(h[i].loaded.passed <= sent && h[i].loaded.passed == h[0].loaded.passed);
        }
    }
}
TEST(any_number_of_processes)
{
    static const int ranks[] = {1, 2, 4, 6, 8, 12};
    for (int i = 0; i < 6; i++) reshaped(2, 8, ranks[i], ranks[i] % 2 ? 1 : 2, false);
    reshaped(2, 3, 5, 1, false);
    reshaped(2, 12, 7, 1, true);
    reshaped(1, 1, 6, 3, false);
    reshaped(1, 1, 4, 1, true);
}

/* On an equal layout nothing need be passed on but what all have; replicas share the reading. */
TEST(own_rows_are_read_by_their_owner)
{
    static struct holder h[8];
    static struct world w;
    struct written c;
    make_world(&w, 1);
    write_sound(&c, &w, run_folder(), 2, 4, 1);
    struct loading l = {h, c.folder, NULL, {.step = -1, .budget = mt_deal_usual()}};
    for (int i = 0; i < 4; i++) hold_evenly(&h[i], 4, i, 1);
    hub_run(4, load_one, &l);
    int64_t bias = mt_ckpt_item_bytes(&w.item[TENSORS - 1]);
    CHECK_INT(h[0].st, MT_OK);
    CHECK_INT(h[0].loaded.passed, 3 * bias);
    for (int i = 0; i < 8; i++) hold_evenly(&h[i], 8, i, 2);
    hub_run(8, load_one, &l);
    CHECK_INT(h[0].st, MT_OK);
    CHECK_INT(h[0].loaded.passed, all_bytes(&w, true) - bias + 7 * bias);
}

/* ---- any rows, of any cuts ---- */
static uint64_t state;
static int64_t draw(int64_t below)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int64_t)(state >> 33) % below;
}

/* Each tensor's rows cut at random and dealt to the ranks. */
static void write_random(struct written *c, const struct world *w, int world)
{
    struct slice s[MOST_PIECES];
    int of[MOST_PIECES], n = 0;
    begin_checkpoint(c, run_folder(), 2, world, 5);
    for (int t = 0; t < TENSORS; t++)
        for (int64_t row = 0, rows = w->item[t].rows, cuts = 0; row < rows; cuts++) {
            int64_t take = cuts == 3 ? rows - row : 1 + draw(rows - row);
            of[n] = (int)draw(world);
            s[n++] = (struct slice){t, row, take};
            row += take;
        }
    for (int r = 0; r < world; r++) {
        struct slice mine[MOST_PIECES];
        int k = 0;
        for (int i = 0; i < n; i++)
            if (of[i] == r) mine[k++] = s[i];
        if (k) write_rank(c, w, r, mine, k);
    }
    write_text(c, "config.yaml", "");
    seal(c);
}
static void hold_random(struct holder *h)
{
    begin_holder(h);
    for (int t = 0; t < TENSORS; t++) {
        int64_t rows = h->w.item[t].rows;
        begin_item(h, t);
        for (int64_t n = draw(4); n > 0; n--) {
            int64_t row = draw(rows);
            add_piece(h, t, row, 1 + draw(rows - row));
        }
    }
}
TEST(any_rows)
{
    static struct holder h[THREADS_MOST];
    static struct world w;
    for (int seed = 1; seed <= 60; seed++) {
        struct written c;
        state = (uint64_t)seed;
        make_world(&w, (uint32_t)seed);
        write_random(&c, &w, 1 + (int)draw(6));
        int n = 1 + (int)draw(7);
        struct loading l = {h, c.folder, NULL, {.step = 5, .budget = {1 + draw(300), 1 + draw(600)}}};
        for (int i = 0; i < n; i++) hold_random(&h[i]);
        hub_run(n, load_one, &l);
        bool ok = true;
        for (int i = 0; i < n; i++) {
            ok &= CHECK_INT(h[i].st, MT_OK) && CHECK(holds(&h[i], &w, true));
            ok &= CHECK(h[i].loaded.read <= all_bytes(&w, true));
        }
        if (!ok) printf("    seed %d: %s\n", seed, h[0].e.msg);
    }
}

/* ---- what one finds, all hear ---- */
static void flip_at(const char *folder, const char *name, size_t from_end)
{
    static struct bytes b;
    char path[400];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    CHECK(read_bytes(&b, path));
    b.at[b.n - from_end] ^= 4;
    write_bytes(path, b.at, b.n);
}

TEST(damage_is_heard_by_all)
{
    static struct holder h[5];
    static struct world older, newer;
    static struct quiet q;
    struct written a, b;
    make_world(&older, 1);
    make_world(&newer, 2);
    write_sound(&a, &older, run_folder(), 2, 3, 1);
    write_sound(&b, &newer, run_folder(), 2, 4, 2);
    for (int what = 0; what < 3; what++) {
        const char *const name[] = {"rank-00003.safetensors", "rank-00002.json", "metrics.jsonl"};
        struct loading l = {.holder = h, .run = run_folder()};
        flip_at(b.folder, name[what], 30);
        for (int i = 0; i < 5; i++) hold_evenly(&h[i], 5, i, 1);
        quiet_begin(&q);
        hub_run(5, load_one, &l);
        quiet_end(&q);
        for (int i = 0; i < 5; i++) {
            CHECK_INT(h[i].st, MT_OK);
            CHECK(strstr(h[i].path, "/step-00000001"));
            CHECK(holds(&h[i], &older, true));
        }
        if (!CHECK(strstr(q.said, name[what]) && strstr(q.said, "passing over")))
            printf("    said %s\n", q.said);
        const char *again = strstr(q.said, "passing over");
        CHECK(again && !strstr(again + 1, "passing over")); /* told once */
        flip_at(b.folder, name[what], 30);
    }
    flip_at(a.folder, "rank-00001.safetensors", 30);
    flip_at(b.folder, "rank-00001.safetensors", 30);
    struct loading l = {.holder = h, .run = run_folder()};
    for (int i = 0; i < 5; i++) hold_evenly(&h[i], 5, i, 1);
    quiet_begin(&q);
    hub_run(5, load_one, &l);
    quiet_end(&q);
    for (int i = 0; i < 5; i++)
        CHECK(
            failed_so(h[i].st, &h[i].e, MT_CKPT, "no checkpoint is valid: step-00000002, step-00000001 of"));
}

/* One process's model has a tensor that the checkpoint lacks: nothing is passed over, nothing changes. */
TEST(another_model)
{
    static struct holder h[3];
    static struct world w;
    struct written c;
    make_world(&w, 1);
    write_sound(&c, &w, run_folder(), 2, 2, 1);
    write_sound(&c, &w, run_folder(), 2, 2, 2);
    struct loading l = {.holder = h, .run = run_folder()};
    for (int i = 0; i < 3; i++) {
        hold_evenly(&h[i], 3, i, 1);
        strcpy(h[i].w.item[1].name, "layers.0.other.weight");
    }
    hub_run(3, load_one, &l);
    for (int i = 0; i < 3; i++) {
        static struct world before;
        make_world(&before, 99);
        CHECK(failed_so(
            h[i].st, &h[i].e, MT_CKPT,
            "step-00000002' has no tensor 'layers.0.other.weight', which this configuration needs"));
        CHECK(!h[i].loaded.damaged);
        CHECK(!memcmp(before.data, h[i].w.data, sizeof before.data));
    }
}

int main(void)
{
    RUN(any_number_of_processes);
    RUN(own_rows_are_read_by_their_owner);
    RUN(any_rows);
    RUN(damage_is_heard_by_all);
    RUN(another_model);
    remove_temporary_folder();
    return DONE();
}
