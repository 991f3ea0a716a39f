/* machine.h: how much memory a job's processes on this machine may take together. */
#ifndef MT_DEVICE_MACHINE_H
#define MT_DEVICE_MACHINE_H
#include <stdbool.h>
#include <stdint.h>

struct mt_machine_memory {
    int64_t bytes; /* what may be taken */
    bool
        by_cgroup; /* less than the machine has: the limit of a control group, of a batch job or a container */
};
/* The machine's memory, or a limit of this process's control groups (version 2) where that is lower: proc is /proc/self,
 * groups /sys/fs/cgroup. What cannot be read limits nothing. */
struct mt_machine_memory mt_machine_memory(const char *proc, const char *groups);
#endif
