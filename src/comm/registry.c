/* registry.c: what this build can talk to other processes with. */
#include "base/features.h"
#include "comm/job.h"
#include "comm/mpi.h"

mt_status mt_job_join(struct mt_job *j, const struct mt_launch *l, mt_err *e)
{
#if MT_HAVE_MPI
    return mt_job_mpi(j, l, e);
#else
    (void)j;
    MT_FAIL(e, MT_RANKS,
            "%s started this as one of several processes, and this moetitan was built without MPI: build it "
            "again where "
            "an MPI is installed (make MPI=1 says what is missing), or run all ranks in one process with "
            "--fake-ranks",
            l->by);
#endif
}
