/* json.h - JSON through jansson, with duplicate keys rejected, depth and memory bounded
 *
 * A json_t lives in jansson's memory, which is not counted; json_decref frees it. */
#ifndef JSON_H
#define JSON_H

#include <jansson.h>

#include "base/base.h"

/* Every length that is read is bounded by the text itself. `path` is for messages: "'path' line 3:
 * ...". */
alibi_status json_parse(json_t **out, const char *bytes, size_t length, const char *path);
alibi_status json_read(json_t **out, const char *path);
/* Members with their type and range checked; ALIBI_BAD_INPUT names path and key. */
alibi_status json_get_int(const json_t *object, const char *key, int64_t min, int64_t max,
                          int64_t *out, const char *path);
alibi_status json_get_real(const json_t *object, const char *key, double *out, const char *path);
alibi_status json_get_text(const json_t *object, const char *key, const char **out,
                           const char *path); /* lent */
/* Appends text as a JSON string with its quotes; a double so that it reads back the same ("null" if
 * not finite). */
alibi_status json_append_string(struct text *t, const char *text, size_t length);
alibi_status json_append_real(struct text *t, double value);

#endif
