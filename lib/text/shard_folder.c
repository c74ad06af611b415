/* shard_folder.c - the folder of a tokenizing
 *
 *   lock, request.json         from the start
 *   progress.json              from the start, until all is finished
 *   tokenizer.json             before the first shard
 *   tokens-00000.bin, ...      each written aside, synced, renamed, the folder synced; only then
 * named in progress.json index.json                 when all shards are there; then progress.json
 * goes
 *
 * So what is in a folder without request.json is not ours, shards that progress.json does not name
 * are leftovers, and a folder with index.json is whole. */
#include "text/shard_folder.h"

#include <string.h>

/* ---- names */

struct listing {
    char **names;
    int count;
};

static bool has(const struct listing *l, const char *name)
{
    for (int i = 0; i < l->count; i++)
        if (strcmp(l->names[i], name) == 0)
            return true;
    return false;
}

/* `name` is `whole`, or that as it is written aside. */
static bool is_or_aside(const char *name, const char *whole)
{
    size_t length = strlen(whole);

    return strncmp(name, whole, length) == 0 &&
           (name[length] == '\0' || strcmp(name + length, ".tmp") == 0);
}

/* "tokens-00012.bin", with or without ".tmp"; its number, or -1. */
static int64_t shard_number(const char *name)
{
    long long number = -1;
    char whole[32];

    if (sscanf(name, "tokens-%18lld", &number) != 1 || number < 0)
        return -1;
    shard_name(whole, number);
    return is_or_aside(name, whole) ? number : -1;
}

static bool is_ours(const char *name, bool begun)
{
    if (strcmp(name, "lock") == 0 || is_or_aside(name, SHARD_REQUEST))
        return true;
    return begun && (is_or_aside(name, SHARD_PROGRESS) || is_or_aside(name, SHARD_INDEX) ||
                     is_or_aside(name, TOKENIZER_FILE) || shard_number(name) >= 0);
}

static alibi_status check_names(const struct listing *l, const char *folder)
{
    bool begun = has(l, SHARD_REQUEST);

    for (int i = 0; i < l->count; i++)
        if (!is_ours(l->names[i], begun))
            return fail(ALIBI_BAD_INPUT,
                        "folder '%s' holds '%s': shards go into a folder of their own", folder,
                        l->names[i]);
    return ALIBI_OK;
}

/* Shards that are not finished, or that nobody knows of: the first `finished` are kept. */
static alibi_status clear_leftovers(const struct listing *l, const char *folder, int64_t finished)
{
    for (int i = 0; i < l->count; i++) {
        int64_t number = shard_number(l->names[i]);
        char whole[32];
        if (number < 0)
            continue;
        shard_name(whole, number);
        if (number >= finished || strcmp(l->names[i], whole) != 0)
            TRY_RETURN(file_remove_within(folder, l->names[i]));
    }
    return ALIBI_OK;
}

static alibi_status put(const char *folder, const char *name, const struct text *content)
{
    alibi_status status;
    char *path = NULL;

    TRY(path_join(&path, folder, name));
    TRY(file_replace(path, content->data, content->length));
out:
    mem_free(path);
    return status;
}

/* ---- what is done already */

static alibi_status check_progress(const struct progress *p, const char *folder,
                                   const struct text *request)
{
    bool same = false;

    TRY_RETURN(request_compare(&same, request, folder));
    if (!same)
        return fail_context(ALIBI_BAD_INPUT,
                            "'%s' holds an unfinished tokenizing of something else", folder);
    if (p->request != checksum(0, request->data, request->length))
        return fail(ALIBI_BAD_INPUT,
                    "'%s/" SHARD_PROGRESS "' does not belong to the " SHARD_REQUEST " beside it",
                    folder);
    return ALIBI_OK;
}

/* Its index was written last, so all of it is there. */
static alibi_status open_finished(const char *folder, const struct text *request, bool certain,
                                  struct shard_index *index, const struct alibi_call *call)
{
    bool same = false;

    TRY_RETURN(request_compare(&same, request, folder));
    if (!same)
        return fail_context(ALIBI_BAD_INPUT, "'%s' holds a finished tokenizing of something else",
                            folder);
    if (!certain)
        return fail(
            ALIBI_BAD_INPUT,
            "'%s' holds a finished tokenizing, and of an input without a size nobody knows whether it is "
            "the same",
            folder);
    TRY_RETURN(file_remove_within(folder, SHARD_PROGRESS));
    TRY_RETURN(shard_index_read(index, folder));
    call_note(call, "'%s' is finished: nothing is left to do", folder);
    return ALIBI_OK;
}

/* Nothing is finished, so whatever was asked for before is of no matter. */
static alibi_status begin(const struct listing *l, const char *folder, const struct text *request)
{
    struct progress start = { .request = checksum(0, request->data, request->length) };

    TRY_RETURN(file_remove_within(folder, SHARD_PROGRESS));
    TRY_RETURN(clear_leftovers(l, folder, 0));
    TRY_RETURN(put(folder, SHARD_REQUEST, request));
    return shard_folder_save(folder, &start);
}

static alibi_status open_listed(const struct listing *l, const char *folder,
                                const struct text *request, struct progress *progress)
{
    alibi_status status;
    struct progress read = { 0 };

    TRY(check_names(l, folder));
    if (has(l, SHARD_PROGRESS))
        TRY(progress_read(&read, folder));
    if (read.shards.count == 0) {
        progress_fini(&read);
        TRY(begin(l, folder, request));
    } else {
        TRY(check_progress(&read, folder, request));
        TRY(clear_leftovers(l, folder, read.shards.count));
    }
    read.request = checksum(0, request->data, request->length);
    *progress = read;
    read = (struct progress){ 0 };
out:
    progress_fini(&read);
    return status;
}

alibi_status shard_folder_open(const char *folder, const struct text *request, bool certain,
                               struct progress *progress, struct shard_index *index, bool *finished,
                               const struct alibi_call *call)
{
    alibi_status status;
    struct listing l = { 0 };
    bool whole;

    TRY(folder_list(&l.names, &l.count, folder));
    whole = has(&l, SHARD_INDEX) && has(&l, SHARD_REQUEST);
    if (whole)
        TRY(open_finished(folder, request, certain, index, call));
    else
        TRY(open_listed(&l, folder, request, progress));
    *finished = whole;
out:
    names_free(l.names, l.count);
    return status;
}

/* ---- what is done now */

alibi_status shard_folder_put_tokenizer(const char *folder, const alibi_tokenizer *t)
{
    alibi_status status;
    struct text json = { 0 };

    TRY(tokenizer_format(t, &json));
    TRY(put(folder, TOKENIZER_FILE, &json));
out:
    text_free(&json);
    return status;
}

alibi_status shard_folder_save(const char *folder, const struct progress *progress)
{
    alibi_status status;
    struct text json = { 0 };

    TRY(progress_format(progress, &json));
    TRY(put(folder, SHARD_PROGRESS, &json));
out:
    text_free(&json);
    return status;
}

alibi_status shard_folder_finish(const char *folder, const struct shard_index *index)
{
    alibi_status status;
    struct text json = { 0 };

    TRY(shard_index_format(index, &json));
    TRY(put(folder, SHARD_INDEX, &json));
    TRY(file_remove_within(folder, SHARD_PROGRESS));
out:
    text_free(&json);
    return status;
}

/* What is left on the way is a folder of ours at every instant. The lock goes last: until then
 * nobody else writes here. */
alibi_status shard_folder_remove(const char *folder)
{
    TRY_RETURN(file_remove_within(folder, TOKENIZER_FILE));
    TRY_RETURN(file_remove_within(folder, SHARD_PROGRESS));
    TRY_RETURN(file_remove_within(folder, SHARD_REQUEST));
    return folder_remove(folder);
}
