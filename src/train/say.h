/* say.h: what a run tells: text to the terminal or to a file of lines, unbuffered. What cannot be written is lost, for a closed
 * terminal or a full disk must not end the training. */
#ifndef MT_TRAIN_SAY_H
#define MT_TRAIN_SAY_H
#include "base/status.h"

void mt_say(const char *fmt, ...) MT_PRINTF(1, 2);
void mt_say_to(int fd, const char *text, int bytes);
#endif
