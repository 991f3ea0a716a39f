/* who.h: ranks as text, for messages that name them all: "0-3, 8". */
#ifndef MT_COMM_WHO_H
#define MT_COMM_WHO_H
#include <stddef.h>

/* Built rank by rank, in order; what does not fit ends in "...". */
struct mt_who {
    char text[256];
    size_t used;
    int from, to; /* the run that is not written yet; from > to: none */
    int n;        /* ranks added */
};
static inline struct mt_who mt_who_none(void)
{
    return (struct mt_who){.from = 1, .to = 0};
}
void mt_who_add(struct mt_who *w, int rank);
/* The text; nothing is added after it. */
const char *mt_who_text(struct mt_who *w);
#endif
