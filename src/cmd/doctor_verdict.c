#include "cmd/doctor_verdict.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/who.h"

enum kind { RATE, SIZE, EACH, NONE };
struct row {
    const char *head, *doc;
    int digits;
    double unit, reference; /* 0: none */
    enum kind kind;
};

/* A cluster file for the cpu says something else by the same numbers. */
static double cuda_rate(const struct mt_cluster *c, enum mt_cluster_key k)
{
    return !strcmp(c->target, "cuda") ? c->of[k].value : 0;
}
static void fill_rows(struct row rows[MT_N_FACTS], const struct mt_cluster *c)
{
    const struct row of[] = {
#define MT_FACT(field, head, unit, digits, kind, reference, doc) \
    {head, doc, digits, unit, c ? (reference) : 0, kind},
#include "cmd/doctor.def"
    };
    memcpy(rows, of, sizeof of);
}

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}
/* Of those that have one; NaN if none has. */
static double median(const struct mt_rank_facts *f, int n, int k, double *room)
{
    int m = 0;
    for (int i = 0; i < n; i++)
        if (!isnan(f[i].x[k])) room[m++] = f[i].x[k];
    if (!m) return NAN;
    qsort(room, (size_t)m, sizeof *room, by_value);
    return room[m / 2];
}

/* What is expected of a value, by the stricter of the cluster file and the other ranks, and who expects it; NaN: nothing. */
static double expected(const struct row *r, double typical, double tolerance, const struct mt_cluster *c,
                       char *who, size_t size)
{
    double share = r->kind == RATE ? tolerance : r->kind == SIZE ? 0.9 : 1;
    bool by_cluster = r->reference > 0 && !(typical > r->reference);
    snprintf(who, size, "%g of %s", share, by_cluster ? c->name : "the ranks' median");
    return share * (by_cluster ? r->reference : typical);
}

static bool is_bad(const struct row *r, double x, double least)
{
    if (isnan(x)) return false;
    if (r->kind == NONE) return x != 0;
    return r->kind == EACH ? x != least : x < least;
}

/* One fact over all ranks: marks bad ones, and prints a line for each node that has some. */
static void judge(const struct row *r, int k, const struct mt_rank_facts *f, int n, double least,
                  const char *who, bool *bad, bool *marked)
{
    char is[32], should[32] = "0";
    for (int i = 0; i < n; i++) {
        if (!is_bad(r, f[i].x[k], least) || marked[i]) continue;
        struct mt_who those = mt_who_none();
        double worst = f[i].x[k];
        for (int j = i; j < n; j++) {
            if (strcmp(f[j].node, f[i].node) != 0 || !is_bad(r, f[j].x[k], least)) continue;
            marked[j] = bad[j] = true;
            mt_who_add(&those, j);
            if (f[j].x[k] < worst) worst = f[j].x[k];
        }
        const char *ranks = mt_who_text(&those);
        snprintf(is, sizeof is, "%.*f", r->digits, worst / r->unit);
        if (r->kind != NONE) snprintf(should, sizeof should, "%.*f", r->digits, least / r->unit);
        printf("%s: rank%s %s: %s is %s, and should be %s%s%s (%s)\n", f[i].node,
               strpbrk(ranks, "-,") ? "s" : "", ranks, r->head, is, should, r->kind == NONE ? "" : ", ",
               r->kind == NONE ? "" : who, r->doc);
    }
}

static void print_head(const struct row *rows)
{
    printf("%-20s %5s", "node", "ranks");
    for (int k = 0; k < MT_N_FACTS; k++) printf(" %9s", rows[k].head);
    printf("  processors, memory nodes, GPU of the first rank\n");
}
static void print_node(const struct row *rows, const struct mt_rank_facts *f, int n, int first)
{
    int ranks = 0;
    double least[MT_N_FACTS];
    memcpy(least, f[first].x, sizeof least);
    for (int i = first; i < n; i++) {
        if (strcmp(f[i].node, f[first].node) != 0) continue;
        ranks++;
        for (int k = 0; k < MT_N_FACTS; k++) least[k] = fmin(least[k], f[i].x[k]);
    }
    printf("%-20s %5d", f[first].node, ranks);
    for (int k = 0; k < MT_N_FACTS; k++) {
        bool copies = k == MT_FACT_h2d || k == MT_FACT_d2h || k == MT_FACT_p2p;
        char text[32];
        snprintf(text, sizeof text, "%s", copies && !f[first].devices ? "no device" : "-");
        if (!isnan(least[k])) snprintf(text, sizeof text, "%.*f", rows[k].digits, least[k] / rows[k].unit);
        printf(" %9s", text);
    }
    printf("  %s; %s; %s\n", f[first].cpus, f[first].numa, f[first].gpu[0] ? f[first].gpu : "none");
}
static bool is_first(const struct mt_rank_facts *f, int i)
{
    for (int k = 0; k < i; k++)
        if (!strcmp(f[k].node, f[i].node)) return false;
    return true;
}

/* Each node's ranks with processors or GPUs that cannot be what was meant: by flags of the launcher, and no fault of the node.
 * That ranks have fewer processors than others is a fact of the table. Here, also those are told that share a whole node. */
static void tell_binding(const struct mt_rank_facts *f, int n)
{
    const int64_t kinds = ~((int64_t)1 << MT_BINDING_FEW);
    char text[2048];
    struct mt_binding *all = calloc((size_t)n, sizeof *all);
    MT_ASSERT(all);
    for (int i = 0; i < n; i++) {
        all[i] = f[i].binding;
        all[i].whole = 0;
    }
    for (int i = 0; i < n; i++) all[i].flaws = mt_binding_flaws(all, n, i);
    for (int i = 0; i < n; i++)
        if (is_first(f, i) && mt_binding_text(all, n, f[i].binding.node, kinds, text, sizeof text))
            printf("%s: note: %s\n", f[i].node, text);
    free(all);
}

/* It has a GPU that cannot be used. */
static bool failed(const struct mt_rank_facts *f)
{
    return f->devices && f->x[MT_FACT_works] < 1;
}
/* Why copies of a node's ranks have no rate. */
static void tell_devices(const struct mt_rank_facts *f, int n)
{
    for (int i = 0; i < n; i++) {
        int ranks = 0;
        for (int k = 0; k < n; k++) ranks += !strcmp(f[k].node, f[i].node);
        if (failed(&f[i]))
            printf("%s: rank %d: %s\n", f[i].node, i, f[i].device);
        else if (!is_first(f, i))
            continue;
        else if (!f[i].devices && f[i].device[0])
            printf("%s: note: nothing is copied to, from or between GPUs, there is no device: %s\n",
                   f[i].node, f[i].device);
        else if (f[i].apart)
            printf(
                "%s: note: its ranks see one GPU each, and cannot reach each other's; collectives go through "
                "host memory then: srun --gres=gpu:%d --gpu-bind=none shows all to all\n",
                f[i].node, ranks);
    }
}

static int bad_nodes(const struct mt_rank_facts *f, int n, const bool *bad, char *out, size_t size)
{
    int count = 0;
    size_t used = 0;
    out[0] = 0;
    for (int i = 0; i < n; i++) {
        bool is = false;
        for (int k = i; k < n && is_first(f, i); k++) is = is || (bad[k] && !strcmp(f[k].node, f[i].node));
        if (!is) continue;
        count++;
        if (used + sizeof f[i].node + 2 < size)
            used += (size_t)snprintf(out + used, size - used, "%s%s", used ? "," : "", f[i].node);
    }
    return count;
}

int mt_doctor_verdict(const struct mt_rank_facts *f, int n, const struct mt_cluster *c, double tolerance,
                      char *out, size_t size)
{
    struct row rows[MT_N_FACTS];
    char who[128];
    double *room = calloc((size_t)n, sizeof *room);
    bool *bad = calloc((size_t)n, 2), *marked = bad + n;
    MT_ASSERT(room && bad);
    fill_rows(rows, c);
    print_head(rows);
    for (int i = 0; i < n; i++)
        if (is_first(f, i)) print_node(rows, f, n, i);
    tell_binding(f, n);
    tell_devices(f, n);
    for (int k = 0; k < MT_N_FACTS; k++) {
        double least = expected(&rows[k], median(f, n, k, room), tolerance, c, who, sizeof who);
        memset(marked, 0, (size_t)n);
        judge(&rows[k], k, f, n, least, who, bad, marked);
    }
    for (int i = 0; i < n; i++) bad[i] = bad[i] || failed(&f[i]); /* whatever the others' do */
    int count = bad_nodes(f, n, bad, out, size);
    free(room);
    free(bad);
    return count;
}
