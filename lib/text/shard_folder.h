/* shard_folder.h - the folder that alibi_tokenize() writes into: who may, and in which order */
#ifndef SHARD_FOLDER_H
#define SHARD_FOLDER_H

#include "text/tokenize.h"

/* Decides what is to be done in a folder that the caller has locked.
 *   - empty, or without a finished shard: begins anew; *progress is the start of the text.
 *   - with finished shards of the same request: *progress is where to go on. That they are there is
 *     not looked at.
 *   - finished, with the same request: *finished, and its index. `certain`: that the request is the
 *     same shows that the input is.
 * Anything else is ALIBI_BAD_INPUT, which says what differs or what is in the way. */
alibi_status shard_folder_open(const char *folder, const struct text *request, bool certain,
                               struct progress *progress, struct shard_index *index, bool *finished,
                               const struct alibi_call *call);
alibi_status shard_folder_put_tokenizer(const char *folder, const alibi_tokenizer *t);
alibi_status shard_folder_save(const char *folder, const struct progress *progress);
alibi_status shard_folder_finish(const char *folder, const struct shard_index *index);
alibi_status shard_folder_remove(const char *folder); /* one without shards */

#endif
