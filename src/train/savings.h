/* savings.h: which options would make a run fit. Every answer is a plan: the configuration with the option changed is
 * recorded and laid out like the run itself, so that what is saved is exact. */
#ifndef MT_TRAIN_SAVINGS_H
#define MT_TRAIN_SAVINGS_H
#include "config/config.h"
#include "device/ledger.h"
#include "device/target.h"

/* Bytes a rank may take; 0: any number. both: of its arenas together. */
struct mt_room {
    int64_t arena[MT_N_ARENAS], both;
};
/* Bytes that are too many, each bound for itself, summed. 0: it fits. */
int64_t mt_room_excess(const struct mt_room *room, const int64_t peak[MT_N_ARENAS]);

enum { MT_SAVINGS_MOST = 32, MT_SAVING_TEXT = 16 };
struct mt_saving {
    mt_option_id option;
    char value[MT_SAVING_TEXT];
    const char *price;         /* what it costs, in words */
    int64_t peak[MT_N_ARENAS]; /* with it alone */
    int64_t excess;
};
struct mt_savings {
    struct mt_saving
        alone[MT_SAVINGS_MOST]; /* what lowers the excess by itself, cheapest in time first; of the values of
                                                an option the mildest that fits, or that saves the most */
    int n;
    struct mt_saving
        together[MT_SAVINGS_MOST]; /* if none of these fits: what has to be combined, or, where nothing fits,
                                                   all that saves; value and option are set */
    int n_together;
    int64_t together_peak[MT_N_ARENAS], together_excess;
};
/* A run of cfg: world ranks, of which `rank` is planned; peak: what it takes as it is. Plans some dozens of variants, on as
 * many threads as this process has processors. */
void mt_savings_find(struct mt_savings *f, const mt_config *cfg, const struct mt_target *target, int world,
                     int rank, bool inference, const struct mt_room *room, const int64_t peak[MT_N_ARENAS]);
#endif
