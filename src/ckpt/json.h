/* json.h: JSON of a checkpoint, read strictly. */
#ifndef MT_CKPT_JSON_H
#define MT_CKPT_JSON_H
#include <stdbool.h>
#include <stdint.h>

#include <cjson/cJSON.h>

/* The object that the text is, with nothing but white space behind it; NULL for anything else. The caller's,
 * for cJSON_Delete. */
cJSON *mt_json_object(const void *text, int64_t bytes);
/* A whole number from 0 to 2^53, which is what a JSON number holds exactly. */
bool mt_json_count(const cJSON *j, int64_t *out);
/* 16 hex digits in lower case. */
bool mt_json_hash(const cJSON *j, uint64_t *out);
#endif
