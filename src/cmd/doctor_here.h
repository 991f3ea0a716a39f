/* doctor_here.h: what a rank finds on its node, and between nodes. */
#ifndef MT_CMD_DOCTOR_HERE_H
#define MT_CMD_DOCTOR_HERE_H
#include "comm/binding.h"
#include "comm/job.h"

enum mt_fact_id {
#define MT_FACT(field, head, unit, digits, kind, reference, doc) MT_FACT_##field,
#include "cmd/doctor.def"
    MT_N_FACTS
};
/* What one rank knows; sent as it is. */
struct mt_rank_facts {
    double x[MT_N_FACTS]; /* NaN: not there, or not measured */
    char node[64], cpus[64], numa[32], gpu[64], bus[32];
    struct mt_binding binding;
    int devices;      /* that CUDA shows the rank */
    int apart;        /* 1: it sees one, and cannot reach those of other ranks on its node */
    char device[256]; /* what CUDA found, or why it cannot be used */
};

/* Nothing is known. */
void mt_doctor_forget(struct mt_rank_facts *f);
/* Its node, processors, memory, GPU (by nvidia-smi, where there is one), and how fast a core and the memory are. All ranks of the
 * node at once. IO: no memory. */
MT_MUST_USE mt_status mt_doctor_here(struct mt_rank_facts *f, const struct mt_job *job, bool quick,
                                     mt_err *e);
/* How fast copies to, from and between the GPUs of a node are. gpu: the rank's, among those that it sees; -1: none. A GPU that fails
 * is a fact, and no error. All ranks. */
void mt_doctor_copies(struct mt_rank_facts *f, int gpu, const struct mt_job *job, bool quick);
/* How fast messages go, to a rank of the node and to ranks of other nodes. of: all ranks' facts, node names are there. All ranks. */
MT_MUST_USE mt_status mt_doctor_links(struct mt_rank_facts *f, const struct mt_rank_facts *of,
                                      const struct mt_job *job, bool quick, mt_err *e);
#endif
