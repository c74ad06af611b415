/* shards.h - the folder that alibi_tokenize() fills, and its JSON files
 *
 *   request.json     the request: tokenizer, input files, options; written first, stays
 *   progress.json    the finished shards, and the place where the text continues; replaced after
 *                    each shard, removed at the end
 *   index.json       the shards with their checksums, and counts; written when all is done */
#ifndef SHARDS_H
#define SHARDS_H

#include "base/json.h"
#include "base/names.h"
#include "text/text.h"

/* ---- index.json, progress.json, request.json (shard_files.c) */

struct shard_list {
    struct shard_entry *at;
    int64_t count, capacity;
};
alibi_status shard_list_add(struct shard_list *l, const struct shard_entry *entry);
void shard_name(char name[32], int64_t number); /* "tokens-00000.bin" */

void shard_index_format(const struct shard_index *x, struct text *json);

struct progress {
    uint32_t request;         /* checksum of request.json */
    struct shard_list shards; /* the finished ones */
    /* Where to continue: the text from `place` on gives tokens, and the first `skip` of them are in
     * these shards. The counts are those of the text before `place`. */
    struct place place;
    bool counts_marks; /* the first versions counted byte-order marks as text */
    int64_t skip;
    int64_t documents, tokens, words, bytes;
};
void progress_format(const struct progress *p, struct text *json);
alibi_status progress_read(struct progress *p, const char *folder);
void progress_fini(struct progress *p);

struct request {
    const alibi_tokenizer *tokenizer;
    const struct source *source;
    const struct alibi_reading *reading;
    int64_t shard_tokens;
};
/* *certain if sizes and times show whether the input is the same, which they do not for pipes. */
alibi_status request_format(const struct request *r, struct text *json, bool *certain);
/* *same if the folder's request is this one; otherwise alibi_error() says what differs. */
alibi_status request_compare(bool *same, const struct text *json, const char *folder);

/* ---- the folder (shard_folder.c) */

/* Decides what to do in a folder that the caller has locked.
 *   - empty, or without a finished shard: starts from the beginning; *progress is the start of the
 *     text.
 *   - with finished shards of the same request: *progress is where to continue. The shards
 *     are not opened.
 *   - finished, with the same request: *finished, and its index. `certain`: an equal request shows
 *     that the input is the same.
 * Anything else is ALIBI_BAD_INPUT, which names the difference or the foreign file. */
alibi_status shard_folder_open(const char *folder, const struct text *request, bool certain,
                               struct progress *progress, struct shard_index *index, bool *finished,
                               const struct alibi_call *call);
alibi_status shard_folder_put_tokenizer(const char *folder, const alibi_tokenizer *t);
alibi_status shard_folder_save(const char *folder, const struct progress *progress);
alibi_status shard_folder_finish(const char *folder, const struct shard_index *index);
alibi_status shard_folder_remove(const char *folder); /* one without shards */

/* A shard being written. */
struct shard_writer;
alibi_status shard_writer_open(struct shard_writer **out, const char *folder, int64_t number,
                               int width, int64_t capacity);
int64_t shard_writer_room(const struct shard_writer *w); /* tokens until it is full */
alibi_status shard_writer_add(struct shard_writer *w, const int32_t *ids, int64_t count);
/* When this returns, the shard has its name and survives a power cut. */
alibi_status shard_writer_finish(struct shard_writer *w, struct shard_entry *entry);
void shard_writer_free(struct shard_writer *w); /* NULL is fine; an unfinished shard is removed */

#endif
