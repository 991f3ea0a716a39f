/* word.h: what may stand in a configuration's text, how to show the rest, and which of some names was meant.
 * */
#ifndef MT_CONFIG_WORD_H
#define MT_CONFIG_WORD_H
#include <stdbool.h>
#include <stddef.h>

/* Length of the part of s[0..n) that is UTF-8 and printable, where breaks (tab, line feed, carriage return
 * and the Unicode line breaks) count as printable if `breaks`. n: all of it. */
size_t mt_word_printable(const char *s, size_t n, bool breaks);

/* Copies `s` for one line of a message or a comment: what is not printable becomes '?', and what does not fit
 * in `size` bytes is cut between characters and ends in "...". Returns out. */
char *mt_word_clean(char *out, size_t size, const char *s);

/* The one of `n` names, of at most 64 bytes each, nearest to `s` by insertions, deletions, replacements and
 * swaps of neighbours; NULL if none is near. Where `s` has no dot, a name "a.b" is also near to what is near
 * to "b". */
const char *mt_word_nearest(const char *s, const char *const *names, int n);
#endif
