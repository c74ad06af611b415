/* tokenize.h - within alibi_tokenize(): the files beside the shards
 *
 *   request.json     what was asked for; written first, stays                        request.c
 *   progress.json    how far it is; replaced after each shard, removed at the end    progress.c
 *   index.json       what is there; written when all is                              shard_index.c
 */
#ifndef TOKENIZE_H
#define TOKENIZE_H

#include "base/json.h"
#include "text/text.h"

/* ---- lists of shards, in index.json and progress.json (shard_index.c) */

enum {
    SHARD_FORMAT = 1,
    SHARD_LIST_BYTES_MAX = 64 << 20, /* of index.json and progress.json */
};
/* In a folder: a process can map a few more, and a list of so many is far below
 * SHARD_LIST_BYTES_MAX. Tests make it small. */
extern int64_t shards_max;
#define SHARD_COUNT_MAX (INT64_MAX / 4) /* that a file may name: more can still be added */

struct shard_list {
    struct shard_entry *at;
    int64_t count, capacity;
};
void shard_name(char name[32], int64_t number); /* "tokens-00000.bin" */
alibi_status shard_list_add(struct shard_list *l, const struct shard_entry *entry);
alibi_status shard_list_format(const struct shard_entry *entries, int64_t count, struct text *json);
/* Member "shards" of the object; *tokens is their sum. */
alibi_status shard_list_read(struct shard_list *l, int64_t *tokens, const json_t *object,
                             const char *path);
alibi_status shard_read_format(const json_t *object,
                               const char *path); /* the member "format" is this version's */

/* A file of ours under a checksum. It has one spelling: what was read must format to the same
 * bytes, so there is nothing in it that the checksum does not cover. */
struct shard_sealed {
    const char *name;
    alibi_status (*read)(void *x, const json_t *object, const char *path);
    alibi_status (*format)(const void *x, struct text *json);
};
alibi_status shard_sealed_read(const struct shard_sealed *kind, void *x, const char *folder);
alibi_status shard_json_seal(
    struct text *json, size_t start); /* ends an object that began at `start` with its checksum */

/* ---- the request (request.c) */

#define SHARD_REQUEST "request.json"

struct request {
    const alibi_tokenizer *tokenizer;
    const struct source *source;
    const struct alibi_reading *reading;
    int64_t shard_tokens;
};
/* As JSON. *certain if sizes and times show whether the input is the same: not so for pipes. */
alibi_status request_format(const struct request *r, struct text *json, bool *certain);
/* *same if the folder's request is this one; else alibi_error() says what differs. */
alibi_status request_compare(bool *same, const struct text *json, const char *folder);

/* ---- progress (progress.c) */

struct progress {
    uint32_t request;         /* checksum of request.json */
    struct shard_list shards; /* the finished ones */
    /* Where to go on: the text from `place` on gives tokens of which the first `skip` lie in these
     * shards. The counts are those of the text before it. */
    struct place place;
    bool within_word;
    int64_t skip;
    int64_t documents, tokens, words, bytes;
};
alibi_status progress_format(const struct progress *p, struct text *json);
alibi_status progress_read(struct progress *p,
                           const char *folder); /* strict, as shard_index_read */
void progress_fini(struct progress *p);

/* ---- a shard being written (shard_writer.c) */

struct shard_writer;
alibi_status shard_writer_open(struct shard_writer **out, const char *folder, int64_t number,
                               int width, int64_t capacity);
int64_t shard_writer_room(const struct shard_writer *w); /* tokens until it is full */
alibi_status shard_writer_add(struct shard_writer *w, const int32_t *ids, int64_t count);
/* When this returns, the shard has its name and survives a power cut. */
alibi_status shard_writer_finish(struct shard_writer *w, struct shard_entry *entry);
void shard_writer_free(struct shard_writer *w); /* NULL is fine; what was not finished is removed */

#endif
