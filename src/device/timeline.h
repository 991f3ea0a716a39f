/* timeline.h: when each operation of a recorded step ran: as an executor measured it, or as the simulation computed it. */
#ifndef MT_DEVICE_TIMELINE_H
#define MT_DEVICE_TIMELINE_H
#include "device/record.h"

/* One rank's step. begin, end: nanoseconds since the step began, by record of q; of a wait, from when its stream had come to it
 * until its event was over; of a collective, until the rank's own pieces had moved. */
struct mt_timeline {
    int rank;
    const struct mt_recording *q;   /* borrowed */
    const struct mt_ledger *ledger; /* borrowed: names of rows */
    const int64_t *begin, *end;     /* borrowed: q->n each */
};
#endif
