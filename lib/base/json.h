/* json.h - JSON: reading through jansson, with duplicate keys rejected and depth and memory
 * bounded; writing through one writer; sealed files
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
/* The file `name` of a folder. NULL: there is none. */
alibi_status json_read_within(json_t **out, const char *folder, const char *name);
/* Members with their type and range checked; ALIBI_BAD_INPUT names path and key. */
alibi_status json_get_int(const json_t *object, const char *key, int64_t min, int64_t max,
                          int64_t *out, const char *path);
alibi_status json_get_real(const json_t *object, const char *key, double *out, const char *path);
alibi_status json_get_text(const json_t *object, const char *key, const char **out,
                           const char *path); /* borrowed */

/* ---- writing
 *
 * One writer for all JSON of the library. Members appear in the order of the calls, so that the
 * same values give the same bytes. Failures are those of the text: check text_status() at the end.
 *
 *   struct json_writer w = json_writer(&text);
 *
 *   json_write_object(&w, NULL);
 *   json_write_int(&w, "step", 10);
 *   json_write_array(&w, "parts");
 *   json_write_object_line(&w, NULL);           { "name": "x", "bytes": 5 }
 *   ...
 *   json_write_end(&w), json_write_end(&w), json_write_end(&w);
 *
 * `key` is NULL for the root and within arrays. */
enum { JSON_DEPTH_MAX = 16 };

struct json_level {
    char close;     /* '}' or ']' */
    bool line, any; /* all on one line; has a member already */
};

struct json_writer {
    struct text *out;
    size_t start; /* of the root within the text */
    int depth;
    struct json_level levels[JSON_DEPTH_MAX];
};

struct json_writer json_writer(struct text *out);

/* One member per line, indented by 2 per level. */
void json_write_object(struct json_writer *w, const char *key);
void json_write_array(struct json_writer *w, const char *key);
/* Everything within on one line: { "a": 1, "b": [1, 2] }. */
void json_write_object_line(struct json_writer *w, const char *key);
void json_write_array_line(struct json_writer *w, const char *key);
/* Closes the innermost object or array. A newline follows the root. */
void json_write_end(struct json_writer *w);

void json_write_int(struct json_writer *w, const char *key, int64_t value);
void json_write_real(struct json_writer *w, const char *key, double value); /* null unless finite */
void json_write_bool(struct json_writer *w, const char *key, bool value);
void json_write_null(struct json_writer *w, const char *key);
void json_write_string(struct json_writer *w, const char *key, const char *value);
void json_write_raw(struct json_writer *w, const char *key, const char *json); /* JSON already */

/* ---- numbers of a struct as members
 *
 * A table names them. Writing and reading both follow it, and a number reads back exactly. */
enum json_field_type {
    FIELD_INT,       /* int64_t, not negative */
    FIELD_SIZE,      /* size_t */
    FIELD_REAL,      /* double */
    FIELD_UNBOUNDED, /* double; null is infinity */
};

struct json_field {
    const char *name;
    enum json_field_type type;
    size_t offset;
};

/* A row: a member of a struct under its own name. */
/* clang-format off */
#define JSON_FIELD(kind, type, member) { #member, FIELD_##kind, offsetof(type, member) }
/* clang-format on */

void json_write_fields(struct json_writer *w, const struct json_field *fields, int count,
                       const void *values);
alibi_status json_read_fields(const json_t *object, const struct json_field *fields, int count,
                              void *values, const char *path);

/* The value of an option, as in a recipe (options.c). */
void option_write(struct json_writer *w, const char *key, const struct alibi_option *o,
                  const void *values);

/* Sets one value from a key of a recipe (options.c). ALIBI_USAGE: there is no such key (the message
 * suggests the nearest), or the value has another type or is out of range. */
alibi_status options_set_json(const struct alibi_option_group *groups, int count, const char *key,
                              const json_t *value);

/* Appends a string with its quotes (bytes that are not UTF-8 become U+FFFD), and a double as the
 * shortest text that reads back the same ("null" if it is not finite). */
void json_append_string(struct text *t, const char *text, size_t length);
void json_append_real(struct text *t, double value);

/* ---- sealed files (sealed.c)
 *
 * A JSON object whose last member, "crc32", is the checksum of every byte before it. */

/* Ends the root with that member; replaces its json_write_end(). */
void json_write_seal(struct json_writer *w);
/* Replaces the file: written aside, synced, renamed. Fails as the text did. */
alibi_status sealed_write(const char *path, const struct text *json);
/* Reads at most `limit` bytes, verifies them and parses them. ALIBI_BAD_INPUT names the file; one
 * altered bit anywhere is found. *out is released with json_decref. */
alibi_status sealed_read(json_t **out, const char *path, size_t limit);

#endif
