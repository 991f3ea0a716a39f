/* space.h: options that `moetitan plan --search` may turn, and the values it tries. */
#ifndef MT_TRAIN_SPACE_H
#define MT_TRAIN_SPACE_H
#include "config/config.h"

enum { MT_SPACE_AXES = 40, MT_SPACE_VALUES = 16, MT_SPACE_TEXT = 64 };
struct mt_axis {
    mt_option_id option;
    const char *note; /* "" or what else changes than time and memory */
    int n;
    char value
        [MT_SPACE_VALUES]
        [MT_SPACE_TEXT]; /* no two alike; the first is the configuration's own, which is not read again */
};
struct mt_space {
    int n;
    struct mt_axis axis[MT_SPACE_AXES];
};
/* A point of it: of each axis the value that is taken. */
struct mt_choice {
    int8_t at[MT_SPACE_AXES];
};

/* The options that change speed and memory, but not what is learned, unless their note says so. */
void mt_space_fill(struct mt_space *s, const mt_config *cfg);
/* "key=value,value": these values instead of those the option had, besides the configuration's own. CONFIG: no such option,
 * none of its values, or too many. */
MT_MUST_USE mt_status mt_space_vary(struct mt_space *s, const mt_config *cfg, const char *assignment,
                                    mt_err *e);
/* All combinations; INT64_MAX: more than that. */
int64_t mt_space_size(const struct mt_space *s);
/* The configuration with a point's values. CONFIG: a rule, or one for so many ranks, forbids it. */
MT_MUST_USE mt_status mt_space_apply(const struct mt_space *s, const struct mt_choice *p,
                                     const mt_config *cfg, int64_t world, mt_config *out, mt_err *e);
/* What differs from the configuration, as "key=value key=value"; returns how many. */
int mt_space_changes(const struct mt_space *s, const struct mt_choice *p, char *out, size_t size);
#endif
