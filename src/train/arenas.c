#include "train/arenas.h"

#include <stdio.h>
#include <stdlib.h>

static const char nodes_root[] = "/sys/devices/system/node",
                  huge_root[] = "/sys/kernel/mm/transparent_hugepage", proc_root[] = "/proc/self";

/* Processes of a node are taken to be spread evenly over its memory nodes. */
static int64_t bytes_here(const struct mt_session *s, const struct mt_numa *m)
{
    int64_t each = s->plan.peak[MT_DEVICE_ARENA] + s->plan.peak[MT_HOST_ARENA],
            local = mt_set_count(&m->local), cpu = mt_set_count(&m->cpu);
    int64_t processes = cpu && local < cpu ? (s->job.on_node * local + cpu - 1) / cpu : s->job.on_node;
    return each * s->n_local * (processes > 1 ? processes : 1);
}

static mt_status choose(struct mt_session *s, mt_err *e)
{
    struct mt_numa machine;
    const struct mt_set cpus = mt_cpus_mine();
    MT_TRY(mt_numa_read(&machine, nodes_root, &cpus, e));
    MT_TRY(mt_numa_choose(&machine, s->cfg->host_numa, bytes_here(s, &machine), &s->numa, e));
    _Static_assert((int)MT_HUGE_PAGES_REQUIRE == (int)MT_HUGE_REQUIRE && !MT_HUGE_PAGES_AUTO, "one enum");
    s->mapping = (struct mt_mapping_options){.huge = (enum mt_huge)s->cfg->host_huge_pages,
                                             .huge_bytes = mt_huge_page_bytes(huge_root),
                                             .numa = &s->numa,
                                             .threads = mt_set_count(&cpus)};
    return MT_OK;
}

static mt_status look(struct mt_session *s, mt_err *e)
{
    int n = 0;
    const struct mt_mapping **all = calloc((size_t)s->n_local * MT_N_ARENAS, sizeof *all);
    MT_REQUIRE(all, e, MT_IO, "no memory for %d ranks", s->n_local);
    for (int i = 0; i < s->n_local; i++)
        for (int a = 0; a < MT_N_ARENAS; a++) all[n++] = &s->rank[i].arena[a];
    mt_status st = mt_pages_find(&s->pages, all, n, &s->mapping, proc_root, e);
    free(all);
    return st == MT_OK ? mt_arenas_check(&s->pages, &s->mapping, e) : st;
}

mt_status mt_arenas_open(struct mt_session *s, mt_err *e)
{
    MT_TRY(choose(s, e));
    for (int i = 0; i < s->n_local; i++)
        for (int a = 0; a < MT_N_ARENAS; a++) {
            mt_status st =
                mt_mapping_open(&s->rank[i].arena[a], s->plan.peak[a], s->ledger.align, &s->mapping, e);
            if (st == MT_OK) continue;
            mt_err_while(e, "the %s arena of rank %d of %d", mt_arena_name(a), s->first + i, s->world);
            return st;
        }
    return look(s, e);
}

void mt_arenas_close(struct mt_session *s)
{
    for (int i = 0; i < s->n_local && s->rank; i++)
        for (int a = 0; a < MT_N_ARENAS; a++) mt_mapping_close(&s->rank[i].arena[a]);
}

/* ---- what the pages are ---- */
static double mib(int64_t bytes)
{
    return (double)bytes / (1 << 20);
}

mt_status mt_arenas_check(const struct mt_pages *p, const struct mt_mapping_options *o, mt_err *e)
{
    char nodes[128];
    mt_set_text(&o->numa->nodes, nodes, sizeof nodes);
    if (o->huge == MT_HUGE_REQUIRE) {
        MT_REQUIRE(o->huge_bytes, e, MT_IO,
                   "host.huge_pages: require: this system gives no transparent huge pages (%s/enabled); set "
                   "it to auto",
                   huge_root);
        MT_REQUIRE(p->huge >= p->want_huge, e, MT_IO,
                   "host.huge_pages: require: of %.1f MiB of the arenas that huge pages of %.0f MiB could "
                   "hold, they hold %.1f; free memory (%s/defrag says how hard the system tries), or set "
                   "it to auto",
                   mib(p->want_huge), mib((int64_t)o->huge_bytes), mib(p->huge), huge_root);
    }
    MT_REQUIRE(!o->numa->required || !p->elsewhere, e, MT_IO,
               "host.numa: %s: %.1f MiB of the arenas lie on other nodes; free memory there, or set it to "
               "auto",
               nodes, mib(p->elsewhere));
    return MT_OK;
}

void mt_arenas_text(const struct mt_pages *p, const struct mt_mapping_options *o, char *out, size_t size)
{
    static const char *const why[] = {"left to the system", "bound", "interleaved"};
    char nodes[128];
    size_t n = 0;
    if (!o->huge_bytes)
        n = (size_t)snprintf(out, size, "this system has no huge pages");
    else if (!p->want_huge)
        n = (size_t)snprintf(out, size, "every arena is below a huge page of %.0f MiB",
                             mib((int64_t)o->huge_bytes));
    else
        n = (size_t)snprintf(out, size, "%.1f of %.1f MiB in huge pages of %.0f MiB", mib(p->huge),
                             mib(p->bytes), mib((int64_t)o->huge_bytes));
    if (n >= size) return;
    mt_set_text(&p->nodes, nodes, sizeof nodes);
    if (!p->placed)
        n += (size_t)snprintf(out + n, size - n, "; memory nodes are not told");
    else
        n += (size_t)snprintf(out + n, size - n, "; on memory node %s, %s", nodes, why[o->numa->policy]);
    if (p->elsewhere && n < size)
        snprintf(out + n, size - n, ", but %.1f MiB lie outside of what was chosen", mib(p->elsewhere));
}
