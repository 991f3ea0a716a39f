/* arenas.h: the arenas of the ranks in this process. On the cpu device the device's lie in host memory too. */
#ifndef MT_TRAIN_ARENAS_H
#define MT_TRAIN_ARENAS_H
#include "train/session.h"

/* Maps and touches them as host.huge_pages and host.numa say, once the session is laid out, and looks what pages they got.
 * CONFIG: host.numa names no node of processors. NOFIT: the system has not so much. IO: pages that are required are not
 * there. mt_arenas_close is due after a failure too. */
MT_MUST_USE mt_status mt_arenas_open(struct mt_session *s, mt_err *e);
void mt_arenas_close(struct mt_session *s);

/* Puts `pages` in words, for the report: how much lies in huge pages, and on which nodes. */
void mt_arenas_text(const struct mt_pages *p, const struct mt_mapping_options *o, char *out, size_t size);
/* IO if what is required is not there. */
MT_MUST_USE mt_status mt_arenas_check(const struct mt_pages *p, const struct mt_mapping_options *o,
                                      mt_err *e);
#endif
