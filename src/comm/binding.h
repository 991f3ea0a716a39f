/* binding.h: the processors and the GPU that each process of a job was given, and whose cannot be what was meant. */
#ifndef MT_COMM_BINDING_H
#define MT_COMM_BINDING_H
#include "device/numa.h"

enum mt_binding_flaw {
#define MT_BINDING_FLAW(name, says, cure) MT_BINDING_##name,
#include "comm/binding.def"
    MT_N_BINDING_FLAWS
};
/* One process's. Whole words, so that the sum over processes that each fill in their own has them all. */
struct mt_binding {
    char node[64];
    char gpu[32];       /* bus id of its GPU, as the system writes it; "": it has none, or that is not told */
    struct mt_set cpus; /* that it may use */
    struct mt_set near; /* those beside its GPU; empty: not told */
    int64_t whole;      /* 1: it may use all that its node has */
    int64_t flaws;      /* a bit for each */
};
/* This process's, without flaws. sys: /sys, or a test's own. bus: its GPU's id, as CUDA or nvidia-smi writes it; "": none. */
void mt_binding_here(struct mt_binding *b, const char *sys, const char *bus);
/* Those of process `me` among all n. Processes that may all use the whole node share it by turns, and have no flaw of that kind:
 * nobody bound them, and workers are divided among them. */
int64_t mt_binding_flaws(const struct mt_binding *all, int n, int me);
/* The flaws among `kinds` (a bit each) of all ranks, or of those on one node (NULL: all), by rank, each kind with one example and its
 * cure. false: there are none. */
bool mt_binding_text(const struct mt_binding *all, int n, const char *node, int64_t kinds, char *out,
                     size_t size);
#endif
