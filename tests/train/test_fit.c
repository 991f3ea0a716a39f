/* test: timeout=240 variants=release,asan-slow
 *
 * Limits of memory: exactly what is needed passes and a byte less does not; and every option that a refusal names saves
 * exactly what it says. */
#include <cjson/cJSON.h>

#include "config/table.h"
#include "train/arenas.h"
#include "train/fit.h"
#include "train/usage.h"
#include "training.h"

/* Activations and the gathered weights of many ranks weigh more here than what lasts. */
#define WIDE                                                                            \
    TRAINING_BASE TRAINING_MOE                                                          \
        "train.dtype=bf16 train.seq_len=128 train.global_batch=32 train.micro_batch=8 " \
        "train.loss_chunk=1024 moe.buffer_factor=2 "

/* Hundreds of plans are slow under a sanitizer. */
#if defined(__SANITIZE_ADDRESS__)
enum { BRIEF = 1 };
#else
enum { BRIEF = 0 };
#endif

struct asked {
    int world;
    mt_config cfg;
    int64_t peak[MT_N_ARENAS];
    const struct mt_target *target;
};

static bool plan_of(const mt_config *cfg, const struct mt_target *t, int world, int64_t peak[MT_N_ARENAS])
{
    struct mt_session s;
    mt_err e = {0};
    mt_status st = mt_session_plan(&s, cfg, t, world, 0, &e);
    memcpy(peak, s.plan.peak, sizeof s.plan.peak);
    mt_session_close(&s);
    if (st != MT_OK) printf("  %s\n", e.msg);
    return CHECK(st == MT_OK);
}

static bool ask(struct asked *a, const char *options, int world)
{
    struct mt_session s;
    mt_err e = {0};
    a->world = world;
    if (!CHECK(training_config(&a->cfg, options))) return false;
    bool ok = CHECK(mt_session_open(&s, &a->cfg, world, false, &e) == MT_OK);
    a->target = s.target;
    memcpy(a->peak, s.plan.peak, sizeof a->peak);
    mt_session_close(&s);
    return ok;
}

/* Opens under limits; the message, or "". */
static const char *opened(const mt_config *base, int world, int64_t device, int64_t host, bool run)
{
    static mt_err e;
    struct mt_session s;
    mt_config c = *base;
    c.device_memory = device;
    c.host_memory = host;
    e = (mt_err){0};
    mt_status st = mt_session_open(&s, &c, world, false, &e);
    if (st == MT_OK && run) {
        st = mt_session_run(&s, mt_fill_step, &e);
        if (st == MT_OK) st = mt_session_run(&s, mt_train_step, &e);
    }
    mt_session_close(&s);
    CHECK(st == MT_OK || st == MT_NOFIT);
    return st == MT_OK ? "" : e.msg;
}

TEST(a_byte_decides)
{
    struct asked a;
    char want[200];
    for (int world = 1; world <= 4; world += 3) {
        if (!ask(&a, TRAINING_BASE TRAINING_MOE "train.global_batch=8 ", world)) return;
        int64_t d = a.peak[MT_DEVICE_ARENA], h = a.peak[MT_HOST_ARENA];
        CHECK_STR(opened(&a.cfg, world, d, h, true), "");
        const char *msg = opened(&a.cfg, world, d - 1, h, false);
        snprintf(want, sizeof want,
                 "the run needs %lld bytes in the device arena and device.memory allows %lld: 1 too many.\n",
                 (long long)d, (long long)d - 1);
        CHECK(strstr(msg, want) == msg);
        msg = opened(&a.cfg, world, d, h - 1, false);
        snprintf(want, sizeof want,
                 "the run needs %lld bytes in the host arena and host.memory allows %lld: 1 too many.\n",
                 (long long)h, (long long)h - 1);
        CHECK(strstr(msg, want) == msg);
        msg = opened(&a.cfg, world, d - 5, h - 7, false);
        CHECK(strstr(msg, ": 5 too many. the run needs") && strstr(msg, ": 7 too many.\n"));
    }
}

/* ---- savings ---- */
static mt_config with(const mt_config *base, const struct mt_saving *x, int n)
{
    mt_config c = *base;
    char why[MT_VALUE_WHY];
    for (int i = 0; i < n; i++) CHECK(mt_value_set(&mt_options[x[i].option], &c, x[i].value, why));
    return c;
}

/* One that is said to be enough is, in a run; one that is not, is not; what it saves is what a plan of it says. */
static void check_alone(const struct asked *a, const struct mt_saving *x, int64_t limit)
{
    int64_t peak[MT_N_ARENAS];
    mt_config c = with(&a->cfg, x, 1);
    if (!plan_of(&c, a->target, a->world, peak)) return;
    CHECK_INT(peak[MT_DEVICE_ARENA], x->peak[MT_DEVICE_ARENA]);
    CHECK_INT(peak[MT_HOST_ARENA], x->peak[MT_HOST_ARENA]);
    CHECK(peak[MT_DEVICE_ARENA] < a->peak[MT_DEVICE_ARENA]);
    CHECK_INT(x->excess, peak[MT_DEVICE_ARENA] > limit ? peak[MT_DEVICE_ARENA] - limit : 0);
    CHECK((opened(&c, a->world, limit, 0, true)[0] == 0) == (x->excess == 0));
}

/* The refusal under a limit names exactly the savings, with their bytes. */
static void check_text(const struct asked *a, const struct mt_savings *v, int64_t limit)
{
    char line[256];
    const char *msg = opened(&a->cfg, a->world, limit, 0, false);
    snprintf(line, sizeof line, ": %lld too many.\n", (long long)(a->peak[MT_DEVICE_ARENA] - limit));
    CHECK(strstr(msg, line));
    int lines = 0;
    for (const char *at = msg; (at = strstr(at, "; costs: ")); at++) lines++;
    CHECK_INT(lines, v->n);
    for (int i = 0; i < v->n; i++) {
        const struct mt_saving *x = &v->alone[i];
        snprintf(line, sizeof line, "\n  %s=%s ", mt_options[x->option].key, x->value);
        const char *at = strstr(msg, line);
        snprintf(line, sizeof line, " device saves %lld (",
                 (long long)(a->peak[MT_DEVICE_ARENA] - x->peak[MT_DEVICE_ARENA]));
        const char *saves = at ? strstr(at + 1, line) : NULL;
        if (!CHECK(saves && saves < at + 1 + strcspn(at + 1, "\n"))) printf("  %s\n%s\n", line, msg);
        const char *enough = strstr(msg, "Each of these is enough");
        const char *less = strstr(msg, "Not enough alone:");
        CHECK(x->excess ? !less || at > less : enough && at > enough && (!less || at < less));
    }
    CHECK(!v->n_together == !strstr(msg, "Enough together:"));
    const char *end = strrchr(msg, '\n');
    CHECK(end && strstr(end, "its largest rows, bytes: ") && strstr(end, "host.")); /* nothing is cut off */
}

static void check_limit(const struct asked *a, int64_t limit, bool alone, bool together)
{
    const struct mt_room room = {.arena = {limit, 0}};
    struct mt_savings v;
    mt_savings_find(&v, &a->cfg, a->target, a->world, 0, false, &room, a->peak);
    int enough = 0;
    for (int i = 0; i < v.n; i++) {
        check_alone(a, &v.alone[i], limit);
        enough += v.alone[i].excess == 0;
    }
    CHECK(!enough == !alone);
    CHECK(!enough == (v.n_together > 0));
    if (v.n_together) {
        int64_t peak[MT_N_ARENAS];
        mt_config c = with(&a->cfg, v.together, v.n_together);
        CHECK((v.together_excess == 0) == together);
        if (plan_of(&c, a->target, a->world, peak)) {
            CHECK_INT(peak[MT_DEVICE_ARENA], v.together_peak[MT_DEVICE_ARENA]);
            CHECK_INT(mt_room_excess(&room, peak), v.together_excess);
        }
        if (together) CHECK_STR(opened(&c, a->world, limit, 0, true), "");
        /* None of them is there for nothing. */
        for (int i = 0; i < v.n_together && together; i++) {
            struct mt_saving others[MT_SAVINGS_MOST];
            int n = 0;
            for (int k = 0; k < v.n_together; k++)
                if (k != i) others[n++] = v.together[k];
            c = with(&a->cfg, others, n);
            CHECK(plan_of(&c, a->target, a->world, peak) && mt_room_excess(&room, peak) > 0);
        }
    }
    if (!v.n_together || together) check_text(a, &v, limit);
}

/* Limits a little, far and much too far below the need; the middle ones are found from what is saved alone. */
static void limits(const char *options, int world, bool brief)
{
    struct asked a;
    const struct mt_room tight = {.arena = {1, 0}};
    struct mt_savings v;
    if (!ask(&a, options, world)) return;
    check_limit(&a, a.peak[MT_DEVICE_ARENA] - 1, true, false);
    mt_savings_find(&v, &a.cfg, a.target, world, 0, false, &tight, a.peak);
    int64_t best = a.peak[MT_DEVICE_ARENA];
    for (int i = 0; i < v.n; i++)
        if (v.alone[i].peak[MT_DEVICE_ARENA] < best) best = v.alone[i].peak[MT_DEVICE_ARENA];
    CHECK(v.n >= 2 && v.together_peak[MT_DEVICE_ARENA] < best);
    check_limit(&a, best - 1, false, true);
    if (brief) return;
    check_limit(&a, best, true, false);
    check_limit(&a, v.together_peak[MT_DEVICE_ARENA], false, true);
    check_limit(&a, a.peak[MT_DEVICE_ARENA] / 10, false, false);
}
TEST(savings_of_one_rank)
{
    limits(WIDE, 1, BRIEF);
}
TEST(savings_of_four_ranks)
{
    limits(WIDE
           "mesh.replicas=2 train.micro_order=layer train.micro_batch=4 shard.keep_last=2 shard.prefetch=2 ",
           4, true);
}

/* What leaves the device takes host memory: under limits of both, both count. The host has room for a part of it. */
TEST(savings_that_cost_the_host)
{
    struct asked a;
    char line[80];
    struct mt_savings v;
    int offload = 0, alone = 0;
    if (!ask(&a, TRAINING_BASE TRAINING_MOE "model.layers=8 recompute.policy=none train.dtype=bf16 ", 1))
        return;
    const int64_t device = a.peak[MT_DEVICE_ARENA] - a.peak[MT_DEVICE_ARENA] / 4,
                  host = a.peak[MT_HOST_ARENA] + 20000;
    const struct mt_room both = {.arena = {device, host}}, one = {.arena = {device, 0}};
    mt_savings_find(&v, &a.cfg, a.target, 1, 0, false, &both, a.peak);
    const char *msg = opened(&a.cfg, 1, device, host, false);
    for (int i = 0; i < v.n; i++) {
        const struct mt_saving *x = &v.alone[i];
        int64_t more = x->peak[MT_HOST_ARENA] - a.peak[MT_HOST_ARENA];
        CHECK((x->excess == 0) == (x->peak[MT_DEVICE_ARENA] <= device && x->peak[MT_HOST_ARENA] <= host));
        if (more <= 0) continue;
        offload++;
        snprintf(line, sizeof line, ", host takes %lld (", (long long)more);
        CHECK(strstr(msg, line) && x->excess >= more - 20000);
    }
    CHECK(offload > 0);
    mt_savings_find(&v, &a.cfg, a.target, 1, 0, false, &one, a.peak);
    for (int i = 0; i < v.n; i++)
        alone += v.alone[i].option == MT_OPTION_offload_activations_fraction &&
                 v.alone[i].peak[MT_HOST_ARENA] > host;
    CHECK_INT(alone, 1);
}

/* Is the option among what saves in an arena of which a byte is too much? */
static bool saves(const struct asked *a, enum mt_arena arena, mt_option_id option, const char *value)
{
    struct mt_savings v;
    struct mt_room room = {.both = 0};
    room.arena[arena] = 1;
    mt_savings_find(&v, &a->cfg, a->target, a->world, 0, false, &room, a->peak);
    for (int i = 0; i < v.n; i++)
        if (v.alone[i].option == option && (!value || !strcmp(v.alone[i].value, value))) return true;
    printf("  %s\n", mt_options[option].key);
    return false;
}
TEST(savings_of_state_and_of_weights_that_stay)
{
    struct asked a;
    if (!ask(&a, WIDE, 2)) return;
    CHECK(saves(&a, MT_DEVICE_ARENA, MT_OPTION_offload_masters, "host"));
    CHECK(saves(&a, MT_DEVICE_ARENA, MT_OPTION_offload_moments, "host"));
    CHECK(saves(&a, MT_DEVICE_ARENA, MT_OPTION_offload_grads, "host"));
    if (!ask(&a,
             TRAINING_BASE "model.ffn=2048 train.dtype=bf16 offload.masters=host offload.moments=host "
                           "offload.grads=host offload.slots=8 "
                           "train.micro_batch=1 train.seq_len=8 train.loss_chunk=8 "
                           "optim.groups=[{\"match\":\"*\",\"optimizer\":\"adamw\"}] ",
             1))
        return;
    CHECK(saves(&a, MT_DEVICE_ARENA, MT_OPTION_offload_slots, NULL));
    CHECK(saves(&a, MT_DEVICE_ARENA, MT_OPTION_offload_slot_bytes, NULL));
    if (!ask(&a,
             WIDE "model.layers=8 train.seq_len=8 train.loss_chunk=8 shard.reshard_dense=none "
                  "shard.reshard_experts=none ",
             2))
        return;
    CHECK(saves(&a, MT_DEVICE_ARENA, MT_OPTION_shard_reshard_dense, NULL));
    CHECK(saves(&a, MT_DEVICE_ARENA, MT_OPTION_shard_reshard_experts, NULL));
    if (!ask(&a, WIDE "shard.host_weights=all ", 2)) return;
    CHECK(saves(&a, MT_HOST_ARENA, MT_OPTION_shard_host_weights, "none"));
}

TEST(nothing_helps)
{
    struct asked a;
    if (!ask(&a,
             TRAINING_BASE "train.micro_batch=1 train.global_batch=1 train.loss_chunk=8 "
                           "muon.batch_bytes=1 wire.reduce=bf16 offload.masters=host offload.moments=host "
                           "offload.grads=host offload.slots=1 offload.slot_bytes=1 shard.grads=1 ",
             1))
        return;
    CHECK(strstr(opened(&a.cfg, 1, 1000, 0, false),
                 "\nNo option that was tried lowers this: use more ranks, or a smaller model.\n"));
}

/* ---- the machine ---- */
TEST(the_machine_decides)
{
    struct mt_session s;
    mt_config cfg;
    mt_err e = {0};
    if (!CHECK(training_config(&cfg, WIDE) && mt_session_open(&s, &cfg, 4, false, &e) == MT_OK)) return;
    int64_t each = s.plan.peak[0] + s.plan.peak[1], need = 4 * each + mt_fit_outside(&s);
    CHECK(mt_fit_outside(&s) >= MT_FIT_PROCESS_BYTES + 4 * MT_FIT_RANK_BYTES);
    CHECK_INT(mt_fit_check_machine(&s, need, false, &e), MT_OK);
    CHECK_INT(mt_fit_check_machine(&s, need - 1, false, &e), MT_NOFIT);
    CHECK(strstr(e.msg, "4 ranks on this machine need ") == e.msg && strstr(e.msg, "and it has "));
    CHECK(strstr(e.msg, "`moetitan plan CONFIG --ranks 4`") && strstr(e.msg, "\nEach of these is enough"));
    e = (mt_err){0};
    CHECK_INT(mt_fit_check_machine(&s, 1 << 20, true, &e), MT_NOFIT);
    CHECK(strstr(e.msg, "the job or container may take 0.00 GiB") &&
          strstr(e.msg, "The least that was found"));
    mt_session_close(&s);
}

/* ---- what the system gave ---- */
static const char *pages_text(const struct mt_pages *p, const struct mt_mapping_options *o)
{
    static char text[256];
    mt_arenas_text(p, o, text, sizeof text);
    return text;
}
TEST(pages_are_reported_and_required)
{
    struct mt_numa_choice one = {.policy = MT_NUMA_BIND};
    struct mt_mapping_options o = {.huge = MT_HUGE_REQUIRE, .huge_bytes = 2 << 20, .numa = &one};
    struct mt_pages p = {.bytes = 9 << 20, .huge = 6 << 20, .want_huge = 8 << 20};
    mt_err e = {0};
    mt_set_add(&one.nodes, 1);
    CHECK_STR(pages_text(&p, &o), "6.0 of 9.0 MiB in huge pages of 2 MiB; memory nodes are not told");
    CHECK_INT(mt_arenas_check(&p, &o, &e), MT_IO);
    CHECK(strstr(e.msg, "host.huge_pages: require: of 8.0 MiB") && strstr(e.msg, "they hold 6.0"));
    p.huge = 8 << 20;
    CHECK_INT(mt_arenas_check(&p, &o, &e), MT_OK);
    o.huge_bytes = 0;
    e = (mt_err){0};
    CHECK_INT(mt_arenas_check(&p, &o, &e), MT_IO);
    CHECK(strstr(e.msg, "gives no transparent huge pages"));
    o.huge = MT_HUGE_AUTO;
    p = (struct mt_pages){.bytes = 9 << 20, .placed = 9 << 20, .elsewhere = 1 << 20, .nodes = one.nodes};
    mt_set_add(&p.nodes, 4);
    CHECK_STR(pages_text(&p, &o), "this system has no huge pages; on memory node 1,4, bound, but 1.0 MiB lie "
                                  "outside of what was chosen");
    CHECK_INT(mt_arenas_check(&p, &o, &e), MT_OK);
    one.required = true;
    e = (mt_err){0};
    CHECK_INT(mt_arenas_check(&p, &o, &e), MT_IO);
    CHECK(strstr(e.msg, "host.numa: 1: 1.0 MiB of the arenas lie on other nodes"));
}

/* ---- painted arenas under a limit ---- */
/* One past the last byte of the device arena that a run with exactly the memory it needs writes. */
static int64_t painted(const struct asked *a, int colour, unsigned char **copy)
{
    struct training t = {.cfg = a->cfg};
    t.cfg.device_memory = a->peak[MT_DEVICE_ARENA];
    t.cfg.host_memory = a->peak[MT_HOST_ARENA];
    if (!CHECK(training_open_config(&t))) return 0;
    const struct mt_mapping *m = &t.s.rank[0].arena[MT_DEVICE_ARENA];
    memset(m->usable, colour, m->usable_bytes);
    training_run(&t, mt_fill_step);
    training_steps(&t, 0, 1);
    int64_t n = m->usable + m->usable_bytes - m->base, front = m->base - m->usable;
    for (int64_t i = 0; i < front; i++) CHECK((unsigned char)m->usable[i] == colour);
    *copy = malloc((size_t)n);
    memcpy(*copy, m->base, (size_t)n);
    training_close(&t);
    return n;
}
TEST(a_limit_is_touched_to_its_last_byte)
{
    struct asked a;
    unsigned char *one = NULL, *two = NULL;
    if (!ask(&a, TRAINING_BASE TRAINING_MOE, 1)) return;
    int64_t n = painted(&a, 0xa5, &one), end = n;
    CHECK_INT(painted(&a, 0x5a, &two), n);
    while (end > 0 && one[end - 1] == 0xa5 && two[end - 1] == 0x5a) end--;
    CHECK_INT(end, a.peak[MT_DEVICE_ARENA]);
    free(one);
    free(two);
}

/* ---- the table and ledger.json ---- */
static double item(const cJSON *o, const char *key)
{
    const cJSON *x = cJSON_GetObjectItem(o, key);
    return CHECK(cJSON_IsNumber(x)) ? x->valuedouble : -1;
}

/* Rows whose bytes meet are never live together. */
static void check_pair(const cJSON *a, const cJSON *b)
{
    const cJSON *x, *y;
    double a0 = item(a, "offset"), b0 = item(b, "offset");
    if (strcmp(cJSON_GetObjectItem(a, "arena")->valuestring, cJSON_GetObjectItem(b, "arena")->valuestring) ||
        a0 + item(a, "bytes") <= b0 || b0 + item(b, "bytes") <= a0)
        return;
    cJSON_ArrayForEach(x, cJSON_GetObjectItem(a, "lives"))
        cJSON_ArrayForEach(y, cJSON_GetObjectItem(b, "lives"))
            CHECK(cJSON_GetArrayItem(x, 1)->valuedouble < cJSON_GetArrayItem(y, 0)->valuedouble ||
                  cJSON_GetArrayItem(y, 1)->valuedouble < cJSON_GetArrayItem(x, 0)->valuedouble);
}

/* Where an arena ends, and how its fullest moment comes about, from ledger.json alone. */
static void check_arena(const cJSON *all, const struct mt_usage *u, int a)
{
    const struct mt_plan_info *p = &u->s->plan;
    const cJSON *r, *l, *arena = cJSON_GetObjectItem(cJSON_GetObjectItem(all, "arenas"), mt_arena_name(a));
    double end = 0, live = 0, most = 0, fullest = -1, *change = calloc((size_t)u->q.n + 1, sizeof *change);
    cJSON_ArrayForEach(r, cJSON_GetObjectItem(all, "rows"))
    {
        double bytes = item(r, "bytes");
        if (strcmp(cJSON_GetObjectItem(r, "arena")->valuestring, mt_arena_name(a)) != 0) continue;
        if (item(r, "offset") + bytes > end) end = item(r, "offset") + bytes;
        cJSON_ArrayForEach(l, cJSON_GetObjectItem(r, "lives"))
        {
            change[cJSON_GetArrayItem(l, 0)->valueint] += bytes;
            change[cJSON_GetArrayItem(l, 1)->valueint + 1] -= bytes;
        }
    }
    for (int64_t i = 0; i < u->q.n; i++)
        if ((live += change[i]) > most) most = live, fullest = (double)i;
    free(change);
    CHECK(end == (double)p->peak[a] && item(arena, "bytes") == end);
    CHECK(most == (double)p->live[a] && item(arena, "live") == most);
    CHECK(fullest == (double)p->fullest[a] && item(arena, "fullest") == fullest);
    int64_t sum = 0, rows_sum = 0;
    for (int c = 0; c < MT_N_ROW_CLASSES; c++) {
        sum += u->live[a][c];
        rows_sum += u->all[a][c];
    }
    CHECK_INT(sum, p->live[a]);
    CHECK(rows_sum <= p->unshared[a] && p->live[a] <= p->peak[a]);
}

TEST(the_ledger_as_a_file)
{
    struct mt_session s;
    struct mt_usage u;
    mt_config cfg;
    mt_err e = {0};
    char *text = NULL;
    size_t bytes = 0;
    if (!CHECK(training_config(&cfg, TRAINING_BASE TRAINING_MOE "train.global_batch=4 ") &&
               mt_session_open(&s, &cfg, 2, false, &e) == MT_OK && mt_usage_find(&u, &s, &e) == MT_OK))
        return;
    FILE *f = open_memstream(&text, &bytes);
    mt_usage_json(&u, f);
    fclose(f);
    cJSON *all = cJSON_Parse(text);
    if (CHECK(all)) {
        const cJSON *rows = cJSON_GetObjectItem(all, "rows");
        CHECK_INT(cJSON_GetArraySize(rows), s.ledger.n);
        CHECK_INT(cJSON_GetArraySize(cJSON_GetObjectItem(all, "records")), u.q.n);
        for (int a = 0; a < MT_N_ARENAS; a++) check_arena(all, &u, a);
        for (const cJSON *x = rows->child; x; x = x->next)
            for (const cJSON *y = x->next; y; y = y->next) check_pair(x, y);
    }
    cJSON_Delete(all);
    free(text);
    mt_usage_release(&u);
    mt_session_close(&s);
}

int main(void)
{
    RUN(a_byte_decides);
    RUN(savings_of_one_rank);
    if (!BRIEF) RUN(savings_of_four_ranks);
    RUN(savings_that_cost_the_host);
    RUN(savings_of_state_and_of_weights_that_stay);
    RUN(nothing_helps);
    RUN(the_machine_decides);
    RUN(pages_are_reported_and_required);
    RUN(a_limit_is_touched_to_its_last_byte);
    RUN(the_ledger_as_a_file);
    return DONE();
}
