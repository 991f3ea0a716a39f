#include "train/session.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "optim/assign.h"
#include "train/generate.h"

/* ---- recording ---- */
static void answer(void *arg, enum mt_read_kind kind, int64_t index, mt_view src, void *dst)
{
    static const double one = 1;
    static const int64_t one_i = 1;
    (void)arg, (void)index;
    memset(dst, 0, (size_t)src.bytes);
    if (kind == MT_READ_LOSS || kind == MT_READ_NORM) memcpy(dst, &one, sizeof one);
    if (kind == MT_READ_STATE && src.bytes == sizeof one_i) memcpy(dst, &one_i, sizeof one_i);
}

static mt_status record(const struct mt_session *s, struct mt_step *t, struct mt_ctx *ctx, int rounds, mt_err *e)
{
    MT_TRY(mt_rank_init(&t->rank, ctx, &s->model, e));
    t->rank.force_rounds = rounds;
    mt_streams_restart(ctx);
    if (s->inference) {
        mt_generate_step(ctx, t);
    } else {
        mt_train_step(ctx, t);
        mt_eval_step(ctx, t);
    }
    mt_rank_release(&t->rank);
    return MT_OK;
}

mt_status mt_session_record(const struct mt_session *s, int rounds, struct mt_recording *q, mt_err *e)
{
    struct mt_ctx ctx;
    struct mt_step t = {.optim = &s->optim, .cfg = s->cfg, .lr_factor = 1, .micro = s->model.opt.micro_batches};
    mt_ctx_init(&ctx, 0, 1, &mt_device_sim, &s->ledger);
    ctx.answer = answer;
    *q = (struct mt_recording){0};
    ctx.recording = q;
    mt_status st = record(s, &t, &ctx, rounds, e);
    mt_rank_release(&t.rank);
    return st;
}

/* Laid out for two rounds, and the layout proved for one, two and three. */
static mt_status lay_out(struct mt_session *s, mt_err *e)
{
    struct mt_recording q;
    mt_status st = mt_session_record(s, 2, &q, e);
    if (st == MT_OK) st = mt_plan(&s->ledger, &q, &s->plan, e);
    mt_recording_release(&q);
    for (int rounds = 1; rounds <= 3 && st == MT_OK; rounds++) {
        st = mt_session_record(s, rounds, &q, e);
        if (st == MT_OK) st = mt_plan_check(&s->ledger, &q, e);
        mt_recording_release(&q);
    }
    return st;
}

/* ---- memory ---- */
void mt_session_memory(const struct mt_session *s, char *out, size_t size)
{
    static const char *const arena_name[] = {"device", "host"};
    size_t n = 0;
    out[0] = 0;
    for (int a = 0; a < MT_N_ARENAS; a++)
        for (int c = 0; c < MT_N_ROW_CLASSES && n < size; c++) {
            int64_t bytes = 0;
            for (int i = 0; i < s->ledger.n; i++)
                if (s->ledger.row[i].arena == a && s->ledger.row[i].row_class == c) bytes += s->ledger.row[i].bytes;
            if (bytes)
                n += (size_t)snprintf(out + n, size - n, "  %-7s %12.2f MiB  %s\n", arena_name[a], (double)bytes / (1 << 20),
                                      mt_row_class_text((enum mt_row_class)c));
        }
}

static mt_status check_limit(const struct mt_session *s, enum mt_arena a, int64_t limit, const char *option, mt_err *e)
{
    char table[900];
    if (!limit || s->plan.peak[a] <= limit) return MT_OK;
    mt_session_memory(s, table, sizeof table);
    MT_FAIL(e, MT_NOFIT,
            "the run needs %lld bytes in the %s arena and %s allows %lld: %lld too many. Rows by class (those not kept from step "
            "to step share bytes):\n%s  Smaller train.micro_batch, train.loss_chunk or moe.buffer_factor need less.",
            (long long)s->plan.peak[a], a == MT_DEVICE_ARENA ? "device" : "host", option, (long long)limit,
            (long long)(s->plan.peak[a] - limit), table);
}

static mt_status open_arenas(struct mt_session *s, mt_err *e)
{
    for (int a = 0; a < MT_N_ARENAS; a++) {
        size_t bytes = ((size_t)s->plan.peak[a] + 4095) / 4096 * 4096;
        if (!bytes) bytes = 4096;
        void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        MT_REQUIRE(p != MAP_FAILED, e, MT_NOFIT, "cannot map %zu bytes for the %s arena", bytes, a == MT_DEVICE_ARENA ? "device" : "host");
        madvise(p, bytes, MADV_HUGEPAGE); /* a hint: fewer TLB misses where the system grants it */
        s->arena[a] = p;
        s->arena_bytes[a] = bytes;
        s->ctx.arena[a] = p;
    }
    return MT_OK;
}

/* ---- opening ---- */
static mt_status choose_isa(const mt_config *c, struct mt_session *s, mt_err *e)
{
    enum mt_isa isa;
    const char *why = "";
    MT_REQUIRE(c->device_type != MT_DEVICE_TYPE_CUDA, e, MT_CONFIG, "device.type: cuda is asked for, and this build trains on the cpu only; set device.type: cpu");
    MT_TRY(mt_isa_parse(mt_choices_device_isa[c->device_isa], &isa, e));
    MT_REQUIRE(mt_isa_available(isa, &why), e, MT_CONFIG, "device.isa: %s cannot be used here: %s; set device.isa: auto", mt_isa_name(isa), why);
    mt_cpu_dev_init(&s->dev, isa);
    s->target = mt_target_cpu(isa);
    return MT_OK;
}

static struct mt_model_options model_options(const mt_config *c, bool inference)
{
    return (struct mt_model_options){
        .eps = c->model_norm_eps, .theta = c->model_rope_theta, .route_scale = c->model_route_scale, .init_std = c->model_init_std,
        .score = c->model_score, .route_norm = c->model_route_norm, .inference = inference, .dtype = c->train_dtype,
        .micro_batches = inference ? 1 : c->train_global_batch / c->train_micro_batch,
    };
}

mt_status mt_session_open(struct mt_session *s, const mt_config *cfg, bool inference, mt_err *e)
{
    *s = (struct mt_session){.cfg = cfg, .inference = inference};
    MT_TRY(choose_isa(cfg, s, e));
    mt_ledger_init(&s->ledger, s->target->align);
    struct mt_shape shape = mt_shape_of(cfg);
    struct mt_model_options opt = model_options(cfg, inference);
    mt_config *writable = (mt_config *)cfg; /* mt_optim_assign takes its argument as void *, and only reads it */
    MT_TRY(mt_model_init(&s->model, &shape, &opt, s->target, &s->ledger, 1, inference ? NULL : mt_optim_assign, writable, e));
    if (!inference) MT_TRY(mt_optim_init(&s->optim, &s->model, cfg, &s->ledger, 1, e));
    MT_TRY(lay_out(s, e));
    MT_TRY(check_limit(s, MT_DEVICE_ARENA, cfg->device_memory, "device.memory", e));
    MT_TRY(check_limit(s, MT_HOST_ARENA, cfg->host_memory, "host.memory", e));
    mt_ctx_init(&s->ctx, 0, 1, &mt_device_cpu, &s->ledger);
    MT_TRY(open_arenas(s, e));
    MT_TRY(mt_comm_open_self(&s->comm, &s->ctx, e));
    s->step = (struct mt_step){.optim = &s->optim, .cfg = cfg, .lr_factor = 1, .micro = opt.micro_batches};
    MT_TRY(mt_rank_init(&s->step.rank, &s->ctx, &s->model, e));
    struct mt_exec_options xo = {.workers = (int)cfg->device_workers, .order_seed = (int)cfg->device_order_seed, .pin = true};
    return mt_exec_open(&s->exec, xo, (struct mt_ctx *[]){&s->ctx}, 1, &s->dev, e);
}

void mt_session_close(struct mt_session *s)
{
    mt_exec_close(s->exec);
    mt_comm_close(&s->comm);
    mt_rank_release(&s->step.rank);
    for (int a = 0; a < MT_N_ARENAS; a++)
        if (s->arena[a]) munmap(s->arena[a], s->arena_bytes[a]);
    mt_optim_release(&s->optim);
    mt_model_release(&s->model);
    mt_ledger_release(&s->ledger);
    *s = (struct mt_session){0};
}

mt_status mt_session_run(struct mt_session *s, void (*host)(struct mt_ctx *, void *), mt_err *e)
{
    void *arg = &s->step;
    mt_status st = mt_exec_run(s->exec, host, &arg);
    if (st != MT_OK) return mt_err_set(e, st, "%s", s->ctx.err.msg);
    return MT_OK;
}
