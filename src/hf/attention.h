/* attention.h: what config.json says of rotary positions and of sliding windows, which takes more than a key for an option. */
#ifndef MT_HF_ATTENTION_H
#define MT_HF_ATTENTION_H
#include <cjson/cJSON.h>
#include <stdio.h>

#include "hf/family.h"

/* json: a config.json; name stands for it in messages. c has the model's other options. Reading: CKPT: a value is of another kind than
 * the key has; CONFIG: it cannot be expressed; the message names the key. Writing: a family's keys, each behind a comma. */
MT_MUST_USE mt_status mt_hf_rope_read(mt_config *c, enum mt_hf_family f, const cJSON *json, const char *name,
                                      mt_err *e);
MT_MUST_USE mt_status mt_hf_window_read(mt_config *c, enum mt_hf_family f, const cJSON *json,
                                        const char *name, mt_err *e);
void mt_hf_rope_write(const mt_config *c, FILE *out);
void mt_hf_window_write(const mt_config *c, enum mt_hf_family f, FILE *out);
/* Whether one of these reads the key. */
bool mt_hf_attention_key(enum mt_hf_family f, const char *key);
/* A float with a point or an exponent, by which readers tell it from a whole number. */
void mt_hf_put_float(FILE *out, double v);
#endif
