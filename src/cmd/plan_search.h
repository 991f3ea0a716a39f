/* plan_search.h: what `moetitan plan --search` and the inverse questions tell: docs/plan.md explains each column and key. */
#ifndef MT_CMD_PLAN_SEARCH_H
#define MT_CMD_PLAN_SEARCH_H
#include <stdio.h>

#include "train/search.h"

enum { MT_SEARCH_NONE, MT_SEARCH_TABLE, MT_SEARCH_FEWEST, MT_SEARCH_LONGEST, MT_SEARCH_TARGET };
struct mt_search_words {
    int what;                /* one of these */
    bool varied;             /* only the options of --vary */
    const char *const *vary; /* key=value,value */
    int n_vary;
    int64_t budget, finalists;
    double target;                /* tokens a second */
    const char *json;             /* NULL, or a file, or "-" */
    const char *config, *cluster; /* their names */
};
/* like: all but space, budget and finalists are set. Prints, and writes the JSON. NOFIT: nothing does what is asked. */
MT_MUST_USE mt_status mt_plan_search(const struct mt_search_words *w, const struct mt_search *like,
                                     mt_err *e);
#endif
