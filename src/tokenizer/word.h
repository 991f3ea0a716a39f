/* word.h: the merges of one word. */
#ifndef MT_TOKENIZER_WORD_H
#define MT_TOKENIZER_WORD_H
#include "tokenizer/table.h"

struct mt_word_part {
    int32_t id, before, after; /* places of neighbours that are left; -1: none */
};
struct mt_word_join {
    int32_t rank, at, left, right,
        id; /* at: the left part's place; it stands while both ids are still there */
};
struct mt_word_room {
    struct mt_word_part *part; /* owned */
    struct mt_word_join *join; /* owned: a heap, the lowest rank, then the leftmost, first */
    int64_t room, n_join;
};
/* Of the pairs that a merge knows, the one of the lowest rank, leftmost first, until none is left. ids: room for `bytes` of
 * them. IO: no memory. */
MT_MUST_USE mt_status mt_word_merge(struct mt_word_room *w, const struct mt_tokenizer *t, const char *text,
                                    int64_t bytes, int32_t *ids, int64_t *n, mt_err *e);
void mt_word_room_release(struct mt_word_room *w);
#endif
