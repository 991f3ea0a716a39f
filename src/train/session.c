#include "train/session.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ckpt/parts.h"
#include "launch/launch.h"
#include "optim/assign.h"
#include "train/arenas.h"
#include "train/fit.h"
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

static mt_status record(const struct mt_session *s, struct mt_step *t, struct mt_ctx *ctx, int rounds,
                        mt_err *e)
{
    struct mt_touching touch = t->rank.touch;
    MT_TRY(mt_rank_init(&t->rank, ctx, &s->rank[0].model, e));
    t->rank.touch = touch;
    t->rank.force_rounds = rounds;
    mt_streams_restart(ctx);
    if (s->inference) {
        mt_generate_step(ctx, t);
    } else {
        mt_train_step(ctx, t);
        mt_streams_meet(ctx);
        mt_eval_step(ctx, t);
    }
    mt_rank_release(&t->rank);
    return MT_OK;
}

static mt_status record_touched(const struct mt_session *s, int rounds, const struct mt_touching *touch,
                                struct mt_recording *q, mt_err *e)
{
    struct mt_ctx ctx;
    struct mt_step t = {.optim = &s->rank[0].optim,
                        .cfg = s->cfg,
                        .lr_factor = 1,
                        .micro = s->rank[0].model.opt.micro_batches,
                        .rank.touch = *touch};
    mt_ctx_init(&ctx, s->first, s->world, &mt_device_sim, &s->ledger);
    ctx.answer = answer;
    ctx.cut = s->rank[0].model.store.cut;
    *q = (struct mt_recording){0};
    ctx.recording = q;
    mt_status st = record(s, &t, &ctx, rounds, e);
    mt_rank_release(&t.rank);
    return st;
}

mt_status mt_session_record(const struct mt_session *s, int rounds, struct mt_recording *q, mt_err *e)
{
    return record_touched(s, rounds, &(struct mt_touching){0}, q, e);
}

mt_status mt_session_touches(const struct mt_session *s, const struct mt_touching *touch, mt_err *e)
{
    struct mt_recording q;
    mt_status st = record_touched(s, 1, touch, &q, e);
    mt_recording_release(&q);
    return st;
}

/* Laid out for so many rounds that the next one would bring nothing new: two; three where layers keep results of the first,
 * which then has buffers of its own. */
static mt_status lay_out(struct mt_session *s, mt_err *e)
{
    struct mt_recording q;
    s->rounds = mt_keeps_rounds(&s->rank[0].model) ? 3 : 2;
    mt_status st = mt_session_record(s, s->rounds, &q, e);
    for (int64_t i = 0; i < q.n; i++)
        if (q.rec[i].op < MT_N_OPS && mt_op_info[q.rec[i].op].kind == MT_COMM)
            s->used[q.rec[i].scalar[0].i] |= (uint8_t)(1 << q.rec[i].stream);
    if (st == MT_OK) st = mt_plan(&s->ledger, &q, &s->plan, e);
    mt_recording_release(&q);
    return st;
}
/* The layout is proved for up to one more. */
static mt_status prove(const struct mt_session *s, mt_err *e)
{
    struct mt_recording q;
    mt_status st = MT_OK;
    for (int rounds = 1; rounds <= s->rounds + 1 && st == MT_OK; rounds++) {
        st = mt_session_record(s, rounds, &q, e);
        if (st == MT_OK) st = mt_plan_check(&s->ledger, &q, e);
        mt_recording_release(&q);
    }
    return st;
}

/* ---- opening ---- */
/* Whether its ranks of this process, or of several, can meet; else what was found says why not. */
static bool ranks_meet(const struct mt_backend_ops *b, struct mt_session *s)
{
    const size_t used = strlen(s->found);
    char carrier[160];
    if (s->job.n == 1 && s->n_local <= b->most_ranks) return true;
    bool meet = s->job.n > 1 && b->joins(carrier, sizeof carrier);
    if (s->job.n > 1)
        snprintf(s->found + used, sizeof s->found - used, "%s%s", used ? "; " : "", carrier);
    else
        snprintf(s->found, sizeof s->found, "the cuda device has at most %d ranks in one process",
                 b->most_ranks);
    return meet;
}

/* cuda where it is asked for, or can be used. */
static mt_status choose_backend(const mt_config *c, struct mt_session *s, mt_err *e)
{
    const struct mt_backend_ops *b = mt_backend_find_cuda();
    const bool asked = c->device_type == MT_DEVICE_TYPE_CUDA;
    if (c->device_type == MT_DEVICE_TYPE_CPU) return MT_OK;
    if (!b) snprintf(s->found, sizeof s->found, "this program was built without CUDA");
    bool fits = b && b->find(s->found, sizeof s->found);
    fits = fits && ranks_meet(b, s);
    MT_REQUIRE(fits || !asked, e, b ? MT_DEVICE : MT_CONFIG,
               "device.type: cuda is asked for: %s; set device.type: cpu", s->found);
    if (!fits) return MT_OK;
    MT_TRY(mt_launch_gpu(b->probe->devices(), getenv, &s->gpu, e));
    s->device = b;
    s->target = b->target();
    return MT_OK;
}

static mt_status choose_isa(const mt_config *c, struct mt_session *s, mt_err *e)
{
    enum mt_isa isa;
    const char *why = "";
    MT_TRY(mt_isa_parse(mt_choices_device_isa[c->device_isa], &isa, e));
    MT_REQUIRE(mt_isa_available(isa, &why), e, MT_CONFIG,
               "device.isa: %s cannot be used here: %s; set device.isa: auto", mt_isa_name(isa), why);
    mt_cpu_dev_init(&s->dev, isa);
    s->target = mt_target_cpu(isa);
    return choose_backend(c, s, e);
}

static struct mt_offload offload_of(const mt_config *c)
{
    return (struct mt_offload){.host = {[MT_STATE_MASTER] = c->offload_masters == MT_PLACE_HOST,
                                        [MT_STATE_GRAD] = c->offload_grads == MT_PLACE_HOST,
                                        [MT_STATE_M] = c->offload_moments == MT_PLACE_HOST,
                                        [MT_STATE_V] = c->offload_moments == MT_PLACE_HOST},
                               .host_compute = c->optim_compute == MT_PLACE_HOST,
                               .slots = (int)c->offload_slots,
                               .slot_bytes = c->offload_slot_bytes};
}

static enum mt_kept kept_of(mt_choice_reshard r)
{
    return r == MT_RESHARD_NONE ? MT_KEPT_ALL : r == MT_RESHARD_NODE ? MT_KEPT_REGION : MT_KEPT_PIECE;
}

/* Classes of results that layers are asked to keep. selective: products, attention and what came from other ranks. */
static uint32_t keeps_of(const mt_config *c)
{
    static const uint32_t policy[] = {
        [MT_RECOMPUTE_FULL] = 0,
        [MT_RECOMPUTE_SELECTIVE] = 1u << MT_KEEP_QKV | 1u << MT_KEEP_ATTENTION | 1u << MT_KEEP_ATTN_OUT |
                                   1u << MT_KEEP_FFN_UP | 1u << MT_KEEP_ROUTER | 1u << MT_KEEP_DISPATCH |
                                   1u << MT_KEEP_EXPERT_UP,
        [MT_RECOMPUTE_NONE] = (1u << MT_N_KEEPS) - 1};
    uint32_t keeps = policy[c->recompute_policy];
    if (c->recompute_keep[0]) {
        bool known = mt_choices_bits(c->recompute_keep, mt_choices_keep, &keeps);
        MT_ASSERT(known); /* config/rule.def sees to it */
    }
    return keeps;
}

static struct mt_model_options model_options(const struct mt_session *s, int rank)
{
    const mt_config *c = s->cfg;
    mt_choice_host_weights host = s->inference ? MT_HOST_WEIGHTS_NONE : c->shard_host_weights;
    int64_t micro = s->inference ? 1 : c->train_global_batch / (c->train_micro_batch * s->world);
    return (struct mt_model_options){
        .eps = c->model_norm_eps,
        .rope = mt_rope_form_of(c),
        .route_scale = c->model_route_scale,
        .init_std = c->model_init_std,
        .mtp_weight = c->model_mtp_loss_weight,
        .score = c->model_score,
        .route_norm = c->model_route_norm,
        .aux = {c->moe_aux_loss_sequence, c->moe_aux_loss_global, c->moe_z_loss},
        .tops = c->optim_qk_clip > 0,
        .drop_by_gate = c->moe_drop == MT_DROP_PROBS,
        .n_group = c->model_n_group,
        .topk_group = c->model_topk_group,
        .group_score = c->model_group_score,
        .inference = s->inference,
        .balanced = c->moe_routing == MT_ROUTING_BALANCED && !s->inference,
        .dtype = c->train_dtype,
        .mesh = s->mesh,
        .rank = rank,
        .prefetch = c->shard_prefetch,
        .keep_last = s->inference ? 0 : c->shard_keep_last,
        .prefetch_memory = c->shard_prefetch_memory,
        .grads = c->shard_grads,
        .formats = {.reduce = c->wire_reduce,
                    .fp8_experts = c->wire_gather_experts == MT_GATHER_FP8,
                    .fp8_dense = c->wire_gather_dense == MT_GATHER_FP8},
        .offload = offload_of(c),
        .groups = c->shard_groups,
        .n_groups = c->shard_groups_count,
        .kept_dense = kept_of(c->shard_reshard_dense),
        .kept_experts = kept_of(c->shard_reshard_experts),
        .host_dense = host == MT_HOST_WEIGHTS_DENSE || host == MT_HOST_WEIGHTS_ALL,
        .host_experts = host == MT_HOST_WEIGHTS_EXPERTS || host == MT_HOST_WEIGHTS_ALL,
        .offloaded = s->inference ? 0
                                  : llround(c->offload_activations_fraction *
                                            (double)(c->model_layers + c->model_mtp_depth)),
        .offload_prefetch = c->offload_activations_prefetch,
        .keeps = s->inference ? 0 : keeps_of(c),
        .keep_on_host = c->recompute_keep_on == MT_PLACE_HOST,
        .keep_memory = c->recompute_keep_memory,
        .micro_batches = micro,
        .span = c->train_micro_order == MT_MICRO_ORDER_LAYER ? micro : 1,
    };
}

/* The model of one rank; its rows go to g, which must come out alike for every rank. */
static mt_status open_model(struct mt_session *s, int rank, struct mt_ledger *g, mt_err *e)
{
    struct mt_session_rank *r = &s->rank[rank - s->first];
    struct mt_shape shape = s->inference ? mt_shape_dropless(s->cfg) : mt_shape_of(s->cfg);
    struct mt_model_options opt = model_options(s, rank);
    mt_config *writable =
        (mt_config *)(uintptr_t)s->cfg; /* mt_optim_assign takes its argument as void *, and only reads it */
    MT_TRY(mt_model_init(&r->model, &shape, &opt, s->target, g, s->inference ? NULL : mt_optim_assign,
                         writable, e));
    s->save_row = s->slice_row = s->scratch_row = -1;
    if (s->inference) return MT_OK;
    MT_TRY(mt_optim_init(&r->optim, &r->model, s->cfg, g, e));
    s->save_row = mt_row_add(g, MT_HOST_ARENA, MT_ROW_SAVE,
                             (s->cfg->ckpt_writers + 1) * s->cfg->ckpt_buffer + MT_PART_ALIGN,
                             "ckpt.buffers");
    if (s->cfg->ckpt_local_dir[0] && s->world > 1)
        s->slice_row = mt_row_add(g, MT_HOST_ARENA, MT_ROW_SAVE, s->cfg->ckpt_local_slice, "ckpt.slice");
    if (s->target->scratch)
        s->scratch_row =
            mt_row_add(g, MT_DEVICE_ARENA, MT_ROW_LIBRARY, s->cfg->device_scratch, "device.scratch");
    return MT_OK;
}

static void check_ledger(const struct mt_ledger *a, const struct mt_ledger *b)
{
    MT_ASSERT(a->n == b->n);
    for (int i = 0; i < a->n; i++)
        MT_ASSERT(a->row[i].bytes == b->row[i].bytes && a->row[i].arena == b->row[i].arena);
}

uint64_t mt_session_hash(const struct mt_session *s, int local)
{
    const struct mt_session_rank *r = &s->rank[local];
    return s->inference ? mt_store_hash(&r->model.store) : mt_optim_hash(&r->optim);
}

static mt_status open_first_model(struct mt_session *s, mt_err *e)
{
    mt_ledger_init(&s->ledger, s->target->align);
    return open_model(s, s->first, &s->ledger, e);
}
static mt_status open_other_models(struct mt_session *s, mt_err *e)
{
    for (int i = s->first + 1; i < s->first + s->n_local; i++) {
        struct mt_ledger g;
        mt_ledger_init(&g, s->target->align);
        mt_status st = open_model(s, i, &g, e);
        if (st == MT_OK) {
            check_ledger(&s->ledger, &g);
            MT_ASSERT(mt_session_hash(s, i - s->first) == mt_session_hash(s, 0));
        }
        mt_ledger_release(&g);
        MT_TRY(st);
    }
    return MT_OK;
}

static mt_status open_rank(struct mt_session *s, int i, mt_err *e)
{
    struct mt_session_rank *r = &s->rank[i];
    mt_ctx_init(&r->ctx, s->first + i, s->world, s->device ? s->device->device : &mt_device_cpu, &s->ledger);
    r->ctx.cut = r->model.store.cut;
    if (s->scratch_row >= 0)
        r->ctx.scratch = mt_view_of(s->scratch_row, MT_U8, 0, s->ledger.row[s->scratch_row].bytes, 0, 0);
    for (int a = 0; a < MT_N_ARENAS; a++) r->ctx.arena[a] = r->arena[a].base;
    r->step = (struct mt_step){
        .optim = &r->optim, .cfg = s->cfg, .lr_factor = 1, .micro = r->model.opt.micro_batches};
    return mt_rank_init(&r->step.rank, &r->ctx, &r->model, e);
}

static int members(const void *mesh, int id, int rank, int *out)
{
    return mt_mesh_members(mesh, (enum mt_group_id)id, rank, out);
}

/* Workers, and whether they keep to their cores. Processes of one node that their launcher has not bound to cores of
 * their own share them all. */
static void choose_workers(const struct mt_session *s, struct mt_exec_options *o)
{
    cpu_set_t cpus;
    int all = (int)sysconf(_SC_NPROCESSORS_ONLN);
    bool shared = s->job.on_node > 1 && !sched_getaffinity(0, sizeof cpus, &cpus) && CPU_COUNT(&cpus) >= all;
    o->workers = (int)s->cfg->device_workers;
    o->pin = !shared;
    if (shared && !o->workers) o->workers = all > s->job.on_node ? all / s->job.on_node : 1;
}

static mt_status open_executor(struct mt_session *s, struct mt_ctx *const ctxs[], mt_err *e)
{
    struct mt_exec_options xo = {.order_seed = (int)s->cfg->device_order_seed,
                                 .compare = s->cfg->run_trace_collectives,
                                 .ring = s->n_local > 16 ? 64 : 0}; /* many ranks: each with a short queue */
    choose_workers(s, &xo);
    return mt_exec_open(&s->exec, xo, ctxs, s->n_local, &s->dev, e);
}

/* A backend makes its choices for what it will be given. */
static mt_status open_backend(struct mt_session *s, struct mt_ctx *const ctxs[], mt_err *e)
{
    const struct mt_backend_choices want = {
        .own_attention = s->cfg->device_attention == MT_ATTENTION_BY_OWN,
        .graphs = s->cfg->device_graphs == MT_CUDA_GRAPHS_BY_ON    ? MT_GRAPHS_ON
                  : s->cfg->device_graphs == MT_CUDA_GRAPHS_BY_OFF ? MT_GRAPHS_OFF
                                                                   : MT_GRAPHS_AUTO};
    struct mt_exec_options host = {.workers = 0};
    struct mt_recording q;
    choose_workers(s, &host);
    MT_TRY(s->device->open(&s->backend, ctxs, s->n_local, s->gpu, host.workers, s->job.n > 1, e));
    mt_status st = mt_session_record(s, 1, &q, e);
    if (st == MT_OK) st = s->device->prepare(s->backend, &want, &q, s->chosen, sizeof s->chosen, e);
    mt_recording_release(&q);
    return st;
}

static mt_status open_machine(struct mt_session *s, mt_err *e)
{
    struct mt_ctx **ctxs = calloc((size_t)s->n_local, sizeof *ctxs);
    mt_status st =
        mt_job_agree(&s->job, ctxs ? MT_OK : mt_err_set(e, MT_IO, "no memory for %d ranks", s->n_local), e);
    for (int i = 0; i < s->n_local && st == MT_OK; i++) ctxs[i] = &s->rank[i].ctx;
    if (st == MT_OK) {
        st = mt_comm_open(&s->comm, &s->job, ctxs, MT_N_GROUPS, members, &s->mesh, e);
        for (int i = 0; i < s->n_local && st == MT_OK; i++)
            mt_traffic_init(&s->rank[i].traffic, ctxs[i], (int)s->cfg->mesh_ranks_per_node);
        if (st == MT_OK) st = s->device ? open_backend(s, ctxs, e) : open_executor(s, ctxs, e);
        st = mt_job_agree(&s->job, st, e);
        if (st == MT_OK && s->device && s->job.n > 1)
            st = mt_job_agree(&s->job, s->device->join(s->backend, &s->job, s->used, e), e);
    }
    free(ctxs);
    return st;
}

/* What needs no machine: mesh, model and optimizer of the first rank here, not laid out. */
static mt_status describe_first(struct mt_session *s, mt_err *e)
{
    const mt_config *cfg = s->cfg;
    MT_TRY(mt_mesh_init(&s->mesh, s->world, s->inference ? 1 : (int)cfg->mesh_replicas,
                        s->inference ? 1 : (int)cfg->mesh_ep, (int)cfg->mesh_ranks_per_node, e));
    s->mesh.flat = cfg->shard_hierarchy == MT_HIERARCHY_FLAT;
    s->rank = calloc((size_t)s->n_local, sizeof *s->rank);
    s->args = calloc((size_t)s->n_local, sizeof *s->args);
    MT_REQUIRE(s->rank && s->args, e, MT_IO, "no memory for %d ranks", s->n_local);
    return open_first_model(s, e);
}

static mt_status plan_first(struct mt_session *s, mt_err *e)
{
    MT_TRY(describe_first(s, e));
    return lay_out(s, e);
}

/* What a process does by itself. */
static mt_status open_local(struct mt_session *s, mt_err *e)
{
    const mt_config *cfg = s->cfg;
    MT_TRY(choose_isa(cfg, s, e));
    MT_TRY(plan_first(s, e));
    MT_TRY(mt_fit_check(s, e));
    MT_TRY(prove(s, e));
    MT_TRY(open_other_models(s, e));
    if (!s->device) MT_TRY(mt_arenas_open(s, e));
    for (int i = 0; i < s->n_local; i++) {
        MT_TRY(open_rank(s, i, e));
        s->args[i] = &s->rank[i].step;
    }
    return MT_OK;
}

mt_status mt_session_plan(struct mt_session *s, const mt_config *cfg, const struct mt_target *target,
                          int world, int rank, mt_err *e)
{
    *s = (struct mt_session){.cfg = cfg, .target = target, .world = world, .first = rank, .n_local = 1};
    MT_TRY(plan_first(s, e));
    return prove(s, e);
}

mt_status mt_session_peak(const mt_config *cfg, const struct mt_target *target, int world, int rank,
                          bool inference, int64_t peak[MT_N_ARENAS], mt_err *e)
{
    struct mt_session s = {.cfg = cfg,
                           .inference = inference,
                           .target = target,
                           .world = world,
                           .first = rank,
                           .n_local = 1,
                           .plan = {.bytes_only = true}};
    mt_status st = plan_first(&s, e);
    memcpy(peak, s.plan.peak, sizeof s.plan.peak);
    mt_session_close(&s);
    return st;
}

mt_status mt_session_describe(struct mt_session *s, const mt_config *cfg, const struct mt_target *target,
                              int world, mt_err *e)
{
    *s = (struct mt_session){.cfg = cfg, .target = target, .world = world, .n_local = 1};
    return describe_first(s, e);
}

mt_status mt_session_enqueue(struct mt_session *s, struct mt_ctx *ctx, mt_err *e)
{
    struct mt_session_rank *r = &s->rank[0];
    struct mt_step t = {.optim = &r->optim,
                        .cfg = s->cfg,
                        .step = 1, /* the first may prepare what others use */
                        .lr_factor = 1,
                        .micro = r->model.opt.micro_batches};
    MT_ASSERT(s->n_local == 1 && !s->inference && ctx->rank < s->world);
    mt_model_turn(&r->model, ctx->rank);
    mt_muon_turn(&r->optim.muon);
    s->first = ctx->rank;
    ctx->cut = r->model.store.cut;
    mt_status st = mt_rank_init(&t.rank, ctx, &r->model, e);
    if (st == MT_OK) {
        mt_streams_restart(ctx);
        mt_train_step(ctx, &t);
    }
    mt_rank_release(&t.rank);
    return st;
}

/* Each process has found out for itself what to train on. */
static mt_status same_machine(const struct mt_session *s, mt_err *e)
{
    return mt_job_same(&s->job, "the device that was found (device.type: auto)",
                       s->device ? s->target->name : "cpu", e);
}

mt_status mt_session_open_job(struct mt_session *s, const mt_config *cfg, const struct mt_job *job,
                              bool inference, mt_err *e)
{
    *s = (struct mt_session){.cfg = cfg,
                             .inference = inference,
                             .job = *job,
                             .world = job->world,
                             .first = job->first,
                             .n_local = job->n_local};
    MT_TRY(mt_job_agree(job, open_local(s, e), e));
    MT_TRY(same_machine(s, e));
    return open_machine(s, e);
}

mt_status mt_session_open(struct mt_session *s, const mt_config *cfg, int world, bool inference, mt_err *e)
{
    struct mt_job job = mt_job_alone(world);
    return mt_session_open_job(s, cfg, &job, inference, e);
}

void mt_session_close(struct mt_session *s)
{
    mt_exec_close(s->exec);
    if (s->device) s->device->close(s->backend);
    mt_comm_close(&s->comm);
    mt_arenas_close(s);
    for (int i = 0; i < s->n_local && s->rank; i++) {
        struct mt_session_rank *r = &s->rank[i];
        mt_rank_release(&r->step.rank);
        mt_optim_release(&r->optim);
        mt_model_release(&r->model);
    }
    free(s->rank);
    free(s->args);
    mt_ledger_release(&s->ledger);
    *s = (struct mt_session){0};
}

mt_status mt_session_items(const struct mt_session *s, struct mt_ckpt_items *x, mt_err *e)
{
    struct mt_ckpt_rank *rank = calloc((size_t)s->n_local, sizeof *rank);
    MT_REQUIRE(rank, e, MT_IO, "no memory for %d ranks", s->n_local);
    for (int i = 0; i < s->n_local; i++) rank[i] = (struct mt_ckpt_rank){&s->rank[i].model, &s->rank[i].ctx};
    mt_status st = mt_ckpt_items_open(x, rank, s->n_local, e);
    free(rank);
    return st;
}

mt_status mt_session_run(struct mt_session *s, void (*host)(struct mt_ctx *, void *), mt_err *e)
{
    void **args = s->args;
    if (s->device) return s->device->run(s->backend, host, args, e);
    mt_status st = mt_exec_run(s->exec, host, args);
    for (int i = 0; i < s->n_local && st != MT_OK; i++)
        if (s->rank[i].ctx.err.code != MT_OK)
            return mt_err_set(e, st, "rank %d: %s", s->first + i, s->rank[i].ctx.err.msg);
    return st;
}
