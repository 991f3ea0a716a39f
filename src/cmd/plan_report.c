#include "cmd/plan_report.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/print.h"
#include "shard/factors.h"

/* ---- numbers ---- */
static mt_status set_memory(struct mt_plan_report *r, mt_err *e)
{
    mt_forecast_limits(r->f->cfg, &r->ask->cluster, r->limit);
    r->fits = true;
    for (int a = 0; a < MT_N_ARENAS; a++) {
        if (r->f->s.plan.peak[a] > r->limit[a]) r->fits = false;
        MT_TRY(mt_forecast_fullest(r->f, (enum mt_arena)a, r->class_bytes[a], r->row[a], MT_PLAN_ROWS,
                                   &r->n_rows[a], e));
    }
    return MT_OK;
}

static void set_traffic(struct mt_plan_report *r)
{
    int world = r->f->o.world;
    for (int i = 0; i < world; i++)
        for (int g = 0; g < MT_N_GROUPS; g++)
            for (int l = 0; l < MT_N_LINKS; l++) {
                int64_t sent = r->f->traffic[i].sent[g][l], received = r->f->traffic[i].received[g][l];
                r->sent_mean[g][l] += (double)sent / world;
                if (sent > r->sent_most[g][l]) r->sent_most[g][l] = sent;
                if (received > r->received_most[g][l]) r->received_most[g][l] = received;
            }
}

/* The share of routed rows that experts have no room for. */
static double dropped(const struct mt_forecast *f)
{
    const struct mt_shape *d = &f->shape;
    double got = 0, asked = (double)(d->N * d->K * (d->L - d->first_dense));
    for (int64_t i = d->first_dense * d->E; i < d->L * d->E && d->capacity; i++) got += f->popular[i];
    return d->capacity ? 1 - got / asked : 0;
}

static void set_times(struct mt_plan_report *r)
{
    const struct mt_shape *d = &r->f->s.rank[0].model.shape;
    const struct mt_cluster *c = &r->ask->cluster;
    double peak = r->f->cfg->train_dtype == MT_F32 ? MT_OF(c, peak_f32) : MT_OF(c, peak_bf16);
    r->tokens = r->f->cfg->train_global_batch * d->S;
    r->rate = (double)r->tokens / r->t->step_s / r->f->o.world;
    double not_done = dropped(r->f) * mt_flops_of_experts(d);
    double met = mt_flops_per_token_of(d, r->f->mean_pairs / (double)d->N, r->f->mean_near / (double)d->N);
    r->mfu = r->rate * (met - not_done) / peak;
    /* no half for causality */
    r->mfu_full = r->rate * (mt_flops_per_token(d, 2 * (double)d->S) - not_done) / peak;
    r->bound = mt_forecast_bound(r->f, c, r->t, r->floor);
    for (int i = MT_STAND_WEIGHTS; i <= MT_STAND_LATE; i++) r->exposed_s += r->t->mean.idle[i];
}

static void set_routing(struct mt_plan_report *r)
{
    const struct mt_forecast *f = r->f;
    bool even = f->cfg->moe_routing == MT_ROUTING_BALANCED;
    r->routing = !f->shape.E                    ? ""
                 : f->o.shares && !even         ? "measured"
                 : fabs(f->o.skew) > 0 && !even ? "skewed"
                                                : "balanced";
    mt_plan_report_even(r, r->t->step_s);
}
void mt_plan_report_even(struct mt_plan_report *r, double step_s)
{
    double faster = r->t->step_s / step_s;
    r->even.step_s = step_s;
    r->even.rate = r->rate * faster;
    r->even.mfu = r->mfu * faster;
}

/* Masters and moments, each once; nodes write at once. */
static void set_checkpoint(struct mt_plan_report *r)
{
    const struct mt_store *s = &r->f->s.rank[0].model.store;
    const struct mt_cluster *c = &r->ask->cluster;
    for (int t = 0; t < s->n_tensors; t++) {
        const struct mt_matrix *m = &s->matrix[s->tensor[t].matrix];
        int64_t copies = s->unit[m->unit].experts ? r->f->cfg->model_experts : 1, states = 0;
        for (int w = MT_STATE_MASTER; w < MT_N_STATES; w++)
            states += w != MT_STATE_GRAD && mt_optimizer_has(s->tensor[t].optimizer, (enum mt_state)w);
        r->ckpt_bytes += 4 * states * copies * s->tensor[t].rows * (m->cols ? m->cols : 1);
        for (int f = 0; f < MT_N_FACTORS; f++) {
            int64_t edge = mt_factor_edge(&s->tensor[t], (enum mt_factor)f);
            r->ckpt_bytes += 4 * copies * edge * edge;
        }
    }
    double per = (double)r->f->cfg->mesh_ranks_per_node, nodes = r->f->o.world / r->f->s.mesh.replicas / per;
    double together = nodes < 1 ? MT_OF(c, storage_node) : nodes * MT_OF(c, storage_node);
    if (together > MT_OF(c, storage_total)) together = MT_OF(c, storage_total);
    r->ckpt_s = (double)r->ckpt_bytes / together;
}

/* Of replicas the first one's ranks write; the node that has most has no others, and so has that of its wards. */
static void set_local(struct mt_plan_report *r)
{
    const mt_config *cfg = r->f->cfg;
    const struct mt_cluster *c = &r->ask->cluster;
    double ranks = r->f->o.world, writers = ranks / r->f->s.mesh.replicas,
           per = (double)cfg->mesh_ranks_per_node, each = (double)r->ckpt_bytes / writers;
    if (!cfg->ckpt_local_dir[0]) return;
    r->local.own = fmin(per, writers) * each;
    if (ranks > per) {
        r->local.wards = r->local.own;
        r->local.sent = each;
        r->local.steps = (int64_t)ceil(each / (double)cfg->ckpt_local_slice);
        r->local.slice_s = fmin(each, (double)cfg->ckpt_local_slice) /
                           (MT_OF(c, net_bandwidth) * MT_OF(c, net_efficiency));
    }
    r->local.need = (double)(cfg->ckpt_local_keep + 1) * (r->local.own + r->local.wards);
}

mt_status mt_plan_report_init(struct mt_plan_report *r, const struct mt_plan_request *ask,
                              const struct mt_forecast *f, const struct mt_forecast_times *t, mt_err *e)
{
    const struct mt_shape *d = &f->s.rank[0].model.shape;
    *r = (struct mt_plan_report){
        .ask = ask, .f = f, .t = t, .params_total = mt_params_total(d), .params_active = mt_params_active(d)};
    MT_TRY(set_memory(r, e));
    set_traffic(r);
    set_times(r);
    set_routing(r);
    set_checkpoint(r);
    set_local(r);
    r->joules = MT_OF(&ask->cluster, power_device) / r->rate;
    r->cost = ask->price / 3600 / r->rate * 1e6;
    return MT_OK;
}

/* ---- the screen ---- */
static double gib(double bytes)
{
    return bytes / (1 << 30);
}

static void print_head(const struct mt_plan_report *r, FILE *out)
{
    const struct mt_shape *d = &r->f->s.rank[0].model.shape;
    int64_t per = r->f->cfg->mesh_ranks_per_node;
    fprintf(out, "plan      %s on %s: %d ranks, %lld nodes of %lld; for %s\n", r->ask->config,
            r->ask->cluster.name, r->f->o.world, (long long)((r->f->o.world + per - 1) / per), (long long)per,
            r->f->s.target->name);
    fprintf(
        out,
        "model     %.3f billion parameters, %.3f active; %lld layers, width %lld, %lld experts top-%lld\n",
        (double)r->params_total / 1e9, (double)r->params_active / 1e9, (long long)d->L, (long long)d->D,
        (long long)d->E, (long long)d->K);
    fprintf(out, "step      %.3f million tokens: %lld sequences of %lld, %lld micro-batches on each rank\n",
            (double)r->tokens / 1e6, (long long)r->f->cfg->train_global_batch, (long long)d->S,
            (long long)r->f->micro);
    if (r->f->imbalance.data > 1.0005)
        fprintf(out,
                "balance   the costliest rank takes %.3f times the mean by its documents, %.3f in the order "
                "of the data\n",
                r->f->imbalance.placed, r->f->imbalance.data);
}

static void print_memory(const struct mt_plan_report *r, FILE *out)
{
    static const char *const name[] = {"device", "host"};
    for (int a = 0; a < MT_N_ARENAS; a++) {
        double over = (double)(r->f->s.plan.peak[a] - r->limit[a]);
        fprintf(out, "%-9s %-6s %8.2f GiB of %.2f on each rank: ", a ? "" : "memory", name[a],
                gib((double)r->f->s.plan.peak[a]), gib((double)r->limit[a]));
        if (over > 0)
            fprintf(out, "does NOT fit, %.2f GiB too many\n", gib(over));
        else
            fprintf(out, "fits\n");
    }
    for (int c = 0; c < MT_N_ROW_CLASSES; c++) {
        const int64_t *device = r->class_bytes[MT_DEVICE_ARENA], *host = r->class_bytes[MT_HOST_ARENA];
        if (device[c] + host[c] < 1 << 20) continue;
        fprintf(out, "  %-30s device %8.2f  host %8.2f GiB\n", mt_row_class_text((enum mt_row_class)c),
                gib((double)device[c]), gib((double)host[c]));
    }
}

void mt_plan_report_rows(const struct mt_plan_report *r, FILE *out)
{
    static const char *const name[] = {"device", "host"};
    for (int a = 0; a < MT_N_ARENAS; a++) {
        if (!r->n_rows[a]) continue;
        fprintf(out, "rows      the largest of %d at the fullest point of the %s arena\n", r->n_rows[a],
                name[a]);
        for (int i = 0; i < r->n_rows[a] && i < MT_PLAN_ROWS; i++) {
            const struct mt_row *x = &r->f->s.ledger.row[r->row[a][i]];
            fprintf(out, "  %10.4f GiB  %-24s %s\n", gib((double)x->bytes), x->name,
                    mt_row_class_text((enum mt_row_class)x->row_class));
        }
    }
}

static void print_traffic(const struct mt_plan_report *r, FILE *out)
{
    fprintf(out, "traffic   sent by a rank in a step, GiB: mean (most)\n");
    for (int g = 0; g < MT_N_GROUPS; g++) {
        const double *mean = r->sent_mean[g];
        if (mean[0] + mean[1] < 1 << 20) continue;
        fprintf(out, "  %-8s inside nodes %9.3f (%9.3f)   between nodes %9.3f (%9.3f)\n",
                mt_mesh_group_name((enum mt_group_id)g), gib(mean[MT_LINK_NODE]),
                gib((double)r->sent_most[g][MT_LINK_NODE]), gib(mean[MT_LINK_NET]),
                gib((double)r->sent_most[g][MT_LINK_NET]));
    }
}

/* Speed is told for both, or said to be of the one. */
static void print_routing(const struct mt_plan_report *r, FILE *out)
{
    const char *of = !strcmp(r->routing, "measured") ? "as a run measured it" : "skewed by --skew";
    if (!*r->routing) return;
    if (!strcmp(r->routing, "balanced"))
        fprintf(out, "  routing   balanced: an upper bound; --experts RUN_DIR adds the routing of a run, "
                     "--skew a guess\n");
    else
        fprintf(out,
                "  routing   %s; balanced it would be %.3f s: %.1f tokens/s on each rank, MFU %.1f%% "
                "(causal), so it takes %.3f "
                "times as long\n",
                of, r->even.step_s, r->even.rate, 100 * r->even.mfu, r->t->step_s / r->even.step_s);
}

static void print_times(const struct mt_plan_report *r, FILE *out)
{
    const struct mt_simclock_rank *m = &r->t->mean;
    const char *comma = "";
    fprintf(
        out,
        "time      %.3f s a step: %.1f tokens/s on each rank, %.4g on all; MFU %.1f%% (causal), %.1f%% (full "
        "squares)\n",
        r->t->step_s, r->rate, r->rate * r->f->o.world, 100 * r->mfu, 100 * r->mfu_full);
    print_routing(r, out);
    fprintf(out, "  computing %9.3f s: ", r->t->busy_s);
    for (int k = 0; k < MT_N_WORK_KINDS; k++) {
        if (m->busy[k] < 5e-4 * r->t->step_s) continue;
        fprintf(out, "%s%s %.3f", comma, mt_work_kind_name((enum mt_work_kind)k), m->busy[k]);
        comma = ", ";
    }
    fprintf(out, "\n  exposed   %9.3f s of communication\n", r->exposed_s);
    for (int i = 0; i < MT_N_STANDS; i++)
        if (m->idle[i] > 5e-4 * r->t->step_s)
            fprintf(out, "  waiting   %9.3f s for %s\n", m->idle[i], mt_stand_text((enum mt_stand)i));
    fprintf(out, "floors    ");
    for (int b = 0; b < MT_N_BOUNDS; b++)
        fprintf(out, "%s%s %.3f s", b ? "; " : "", mt_plan_bound_text((enum mt_plan_bound)b), r->floor[b]);
    fprintf(out, "\nbound     %s\n", mt_plan_bound_text(r->bound));
}

static void print_local(const struct mt_plan_report *r, FILE *out)
{
    const mt_config *c = r->f->cfg;
    const struct mt_plan_local *x = &r->local;
    if (!(x->need > 0)) return;
    fprintf(out, "local     %.2f GiB on a node, %lld x (%.2f + %.2f of others)", gib(x->need),
            (long long)c->ckpt_local_keep + 1, gib(x->own), gib(x->wards));
    if (!strncmp(c->ckpt_local_dir, "/dev/shm", 8))
        fprintf(out, ", memory that the host arena does not have");
    if (x->steps)
        fprintf(out,
                "\n          every %lld steps a rank sends %.3f GiB to another node, between %lld steps that "
                "wait %.4f s each%s",
                (long long)c->ckpt_local_interval, gib(x->sent), (long long)x->steps, x->slice_s,
                x->steps > c->ckpt_local_interval ? ": too slow, those that are due meanwhile are left out"
                                                  : "");
    fprintf(out, "\n");
}

void mt_plan_report_print(const struct mt_plan_report *r, FILE *out)
{
    print_head(r, out);
    print_memory(r, out);
    print_traffic(r, out);
    print_times(r, out);
    fprintf(out, "checkpoint %.3f TB, written in %.1f s\n", (double)r->ckpt_bytes / 1e12, r->ckpt_s);
    print_local(r, out);
    fprintf(out, "energy    %.3g J a token", r->joules);
    if (r->ask->price > 0) fprintf(out, "; cost %.4g a million tokens", r->cost);
    fprintf(out,
            "\nsimulated %lld operations of %d ranks, %d different programs: recorded in %.2f s, replayed in "
            "%.2f s\n",
            (long long)r->t->operations, r->f->o.world, mt_simclock_programs(r->f->clock), r->record_s,
            r->replay_s);
}

/* ---- JSON ---- */
static void put(cJSON *o, const char *key, double v)
{
    cJSON_AddNumberToObject(o, key, v);
}

static void json_head(const struct mt_plan_report *r, cJSON *o)
{
    static const char *const documents[] = {"full", "lognormal", "index"};
    const struct mt_forecast_options *f = &r->f->o;
    cJSON_AddStringToObject(o, "config", r->ask->config);
    cJSON_AddStringToObject(o, "cluster", r->ask->cluster.name);
    cJSON_AddStringToObject(o, "target", r->f->s.target->name);
    cJSON_AddStringToObject(o, "collectives", mt_algorithm_name(r->ask->algorithm));
    cJSON_AddStringToObject(o, "documents", documents[f->documents]);
    put(o, "document_mean", f->documents == MT_DOCUMENTS_LOGNORMAL ? f->mean : 0);
    put(o, "document_sigma", f->documents == MT_DOCUMENTS_LOGNORMAL ? f->sigma : 0);
    put(o, "imbalance", r->f->imbalance.placed);
    put(o, "imbalance_in_order", r->f->imbalance.data);
    put(o, "skew", f->skew);
    put(o, "seed", (double)f->seed);
    put(o, "ranks", f->world);
    put(o, "ranks_per_node", (double)r->f->cfg->mesh_ranks_per_node);
    put(o, "micro_batches", (double)r->f->micro);
    put(o, "tokens_per_step", (double)r->tokens);
    put(o, "params_total", (double)r->params_total);
    put(o, "params_active", (double)r->params_active);
}

static void json_memory(const struct mt_plan_report *r, cJSON *o)
{
    cJSON_AddBoolToObject(o, "fits", r->fits);
    put(o, "device_peak_bytes", (double)r->f->s.plan.peak[MT_DEVICE_ARENA]);
    put(o, "host_peak_bytes", (double)r->f->s.plan.peak[MT_HOST_ARENA]);
    put(o, "device_limit_bytes", (double)r->limit[MT_DEVICE_ARENA]);
    put(o, "host_limit_bytes", (double)r->limit[MT_HOST_ARENA]);
    cJSON *list = cJSON_AddArrayToObject(o, "memory");
    for (int c = 0; c < MT_N_ROW_CLASSES; c++) {
        cJSON *x = cJSON_CreateObject();
        cJSON_AddStringToObject(x, "class", mt_row_class_text((enum mt_row_class)c));
        put(x, "device_bytes", (double)r->class_bytes[MT_DEVICE_ARENA][c]);
        put(x, "host_bytes", (double)r->class_bytes[MT_HOST_ARENA][c]);
        cJSON_AddItemToArray(list, x);
    }
}

static void json_traffic(const struct mt_plan_report *r, cJSON *o)
{
    static const char *const link[MT_N_LINKS] = {"node", "net"};
    cJSON *all = cJSON_AddObjectToObject(o, "traffic");
    for (int g = 0; g < MT_N_GROUPS; g++) {
        cJSON *x = cJSON_AddObjectToObject(all, mt_mesh_group_name((enum mt_group_id)g));
        for (int l = 0; l < MT_N_LINKS; l++) {
            cJSON *y = cJSON_AddObjectToObject(x, link[l]);
            put(y, "sent_bytes_mean", r->sent_mean[g][l]);
            put(y, "sent_bytes_most", (double)r->sent_most[g][l]);
            put(y, "received_bytes_most", (double)r->received_most[g][l]);
        }
    }
}

static void json_times(const struct mt_plan_report *r, cJSON *o)
{
    put(o, "step_s", r->t->step_s);
    put(o, "tokens_per_s_per_gpu", r->rate);
    put(o, "mfu", r->mfu);
    put(o, "mfu_full_attention", r->mfu_full);
    cJSON_AddStringToObject(o, "routing", r->routing);
    put(o, "balanced_step_s", r->even.step_s);
    put(o, "balanced_tokens_per_s_per_gpu", r->even.rate);
    put(o, "balanced_mfu", r->even.mfu);
    cJSON_AddStringToObject(o, "bound", mt_plan_bound_key(r->bound));
    put(o, "compute_s", r->t->busy_s);
    put(o, "exposed_communication_s", r->exposed_s);
    cJSON *x = cJSON_AddObjectToObject(o, "compute_by_kind_s");
    for (int k = 1; k < MT_N_WORK_KINDS; k++)
        put(x, mt_work_kind_name((enum mt_work_kind)k), r->t->mean.busy[k]);
    x = cJSON_AddObjectToObject(o, "idle_by_cause_s");
    for (int i = 0; i < MT_N_STANDS; i++) put(x, mt_stand_key((enum mt_stand)i), r->t->mean.idle[i]);
    x = cJSON_AddObjectToObject(o, "floors_s");
    for (int b = 0; b < MT_N_BOUNDS; b++) put(x, mt_plan_bound_key((enum mt_plan_bound)b), r->floor[b]);
    put(o, "checkpoint_bytes", (double)r->ckpt_bytes);
    put(o, "checkpoint_s", r->ckpt_s);
    put(o, "local_node_bytes", r->local.need);
    put(o, "local_sent_bytes", r->local.sent);
    put(o, "local_steps", (double)r->local.steps);
    put(o, "local_slice_s", r->local.slice_s);
    put(o, "joules_per_token", r->joules);
    if (r->ask->price > 0) put(o, "cost_per_million_tokens", r->cost);
    put(o, "simulated_operations", (double)r->t->operations);
    put(o, "simulated_programs", mt_simclock_programs(r->f->clock));
}

cJSON *mt_plan_report_object(const struct mt_plan_report *r)
{
    cJSON *o = cJSON_CreateObject();
    json_head(r, o);
    json_memory(r, o);
    json_traffic(r, o);
    json_times(r, o);
    return o;
}
