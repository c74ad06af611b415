/* shard_folder.c - the folder that alibi_tokenize() fills
 *
 *   lock, request.json         from the start
 *   progress.json              from the start, until all is finished
 *   tokenizer.json             before the first shard
 *   tokens-00000.bin, ...      each written aside, synced, renamed, the folder synced; only then
 *                              named in progress.json
 *   index.json                 when all shards are there; then progress.json is removed
 *
 * So a folder without request.json is not ours, shards that progress.json does not name are
 * leftovers, and a folder with index.json is complete. */
#include <string.h>

#include "text/shards.h"

/* ---- which names are ours */

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

/* `name` is `whole`, or its name while it is written aside. */
static bool is_or_aside(const char *name, const char *whole)
{
    size_t length = strlen(whole);

    return strncmp(name, whole, length) == 0 &&
           (name[length] == '\0' || strcmp(name + length, NAME_ASIDE) == 0);
}

/* "tokens-00012.bin", with or without ".tmp": its number, or -1. */
static int64_t shard_number(const char *name)
{
    long long number = -1;
    char whole[32];

    if (sscanf(name, "tokens-%18lld", &number) != 1 || number < 0)
        return -1;
    shard_name(whole, number);
    return is_or_aside(name, whole) ? number : -1;
}

static alibi_status check_names(const struct listing *l, const char *folder)
{
    bool begun = has(l, NAME_SHARD_REQUEST);

    for (int i = 0; i < l->count; i++) {
        const char *name = l->names[i];
        bool first = strcmp(name, NAME_LOCK) == 0 || is_or_aside(name, NAME_SHARD_REQUEST);
        bool later = is_or_aside(name, NAME_SHARD_PROGRESS) ||
                     is_or_aside(name, NAME_SHARD_INDEX) || is_or_aside(name, NAME_TOKENIZER) ||
                     shard_number(name) >= 0;
        if (!first && !(begun && later))
            return fail(ALIBI_BAD_INPUT,
                        "folder '%s' holds '%s'; shards need a folder of their own", folder, name);
    }
    return ALIBI_OK;
}

/* Removes unfinished shards, and those that progress.json does not name, except the first
 * `finished`. */
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

/* ---- writing */

alibi_status shard_folder_put_tokenizer(const char *folder, const alibi_tokenizer *t)
{
    alibi_status status;
    struct text json = { 0 };

    TRY(tokenizer_format(t, &json));
    TRY(file_replace_within(folder, NAME_TOKENIZER, &json));
out:
    text_free(&json);
    return status;
}

alibi_status shard_folder_save(const char *folder, const struct progress *progress)
{
    struct text json = { 0 };
    alibi_status status;

    progress_format(progress, &json);
    status = file_replace_within(folder, NAME_SHARD_PROGRESS, &json);
    text_free(&json);
    return status;
}

alibi_status shard_folder_finish(const char *folder, const struct shard_index *index)
{
    alibi_status status;
    struct text json = { 0 };

    shard_index_format(index, &json);
    TRY(file_replace_within(folder, NAME_SHARD_INDEX, &json));
    TRY(file_remove_within(folder, NAME_SHARD_PROGRESS));
out:
    text_free(&json);
    return status;
}

/* If it is stopped in between, the folder is still one of ours. The lock is removed last, so no
 * other process writes here before that. */
alibi_status shard_folder_remove(const char *folder)
{
    TRY_RETURN(file_remove_within(folder, NAME_TOKENIZER));
    TRY_RETURN(file_remove_within(folder, NAME_SHARD_PROGRESS));
    TRY_RETURN(file_remove_within(folder, NAME_SHARD_REQUEST));
    return folder_remove(folder);
}

/* ---- opening */

/* The index was written last, so the folder is complete. */
static alibi_status open_finished(const char *folder, const struct text *request, bool certain,
                                  struct shard_index *index, const struct alibi_call *call)
{
    bool same = false;

    TRY_RETURN(request_compare(&same, request, folder));
    if (!same)
        return fail_context(ALIBI_BAD_INPUT,
                            "'%s' holds the finished shards of another request, use another --out",
                            folder);
    if (!certain)
        return fail(ALIBI_BAD_INPUT,
                    "'%s' holds finished shards, and an input without a size cannot be compared "
                    "with theirs; use another --out",
                    folder);
    TRY_RETURN(file_remove_within(folder, NAME_SHARD_PROGRESS));
    TRY_RETURN(shard_index_read(index, folder));
    call_note(call, "'%s' is finished; there is nothing to do", folder);
    return ALIBI_OK;
}

static alibi_status open_unfinished(const struct listing *l, const char *folder,
                                    const struct text *request, struct progress *progress)
{
    alibi_status status;
    struct progress read = { 0 };
    uint32_t crc = checksum(0, request->data, request->length);
    bool same = false;

    TRY(check_names(l, folder));
    if (has(l, NAME_SHARD_PROGRESS))
        TRY(progress_read(&read, folder));
    if (read.shards.count == 0) {
        /* No shard is finished, so an earlier request does not matter. */
        progress_fini(&read);
        read.request = crc;
        TRY(file_remove_within(folder, NAME_SHARD_PROGRESS));
        TRY(clear_leftovers(l, folder, 0));
        TRY(file_replace_within(folder, NAME_SHARD_REQUEST, request));
        TRY(shard_folder_save(folder, &read));
    } else {
        TRY(request_compare(&same, request, folder));
        if (!same)
            TRY(fail_context(ALIBI_BAD_INPUT,
                             "'%s' holds unfinished shards of another request, use another --out",
                             folder));
        if (read.request != crc)
            TRY(fail(ALIBI_BAD_INPUT,
                     "'%s/" NAME_SHARD_PROGRESS "' does not belong to the " NAME_SHARD_REQUEST
                     " there; remove the folder and start again",
                     folder));
        TRY(clear_leftovers(l, folder, read.shards.count));
    }
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
    whole = has(&l, NAME_SHARD_INDEX) && has(&l, NAME_SHARD_REQUEST);
    if (whole)
        TRY(open_finished(folder, request, certain, index, call));
    else
        TRY(open_unfinished(&l, folder, request, progress));
    *finished = whole;
out:
    names_free(l.names, l.count);
    return status;
}

/* ---- one shard being written
 *
 * It is written aside and gets its name when it is on the disk. The header has the number of
 * tokens: it is written for a full shard, and again if the last shard of a folder has fewer. */

enum { BUFFER_BYTES = 1 << 20 };

struct shard_writer {
    char *folder, *path, *aside;
    struct file *file;
    struct shard_entry entry; /* crc32 is of the tokens alone until the end */
    int64_t capacity;
    int width;
    bool unfinished; /* a file exists at `aside` */
    size_t used;     /* of the buffer */
    char buffer[BUFFER_BYTES];
};

alibi_status shard_writer_open(struct shard_writer **out, const char *folder, int64_t number,
                               int width, int64_t capacity)
{
    alibi_status status;
    struct shard_writer *w = NULL;
    struct shard_header full = { .width = width, .count = capacity };
    char header[SHARD_HEADER_BYTES], aside[sizeof w->entry.name + sizeof NAME_ASIDE];

    TRY(NEW_ARRAY(&w, 1, "a shard to write"));
    memset(w, 0, offsetof(struct shard_writer, buffer));
    shard_name(w->entry.name, number);
    w->width = width;
    w->capacity = capacity;
    snprintf(aside, sizeof aside, "%s" NAME_ASIDE, w->entry.name);
    TRY(text_copy(&w->folder, folder));
    TRY(path_join(&w->path, folder, w->entry.name));
    TRY(path_join(&w->aside, folder, aside));
    w->unfinished = true;
    TRY(file_create(&w->file, w->aside));
    shard_header_format(&full, header);
    TRY(file_write(w->file, header, sizeof header));
    *out = w;
    w = NULL;
out:
    shard_writer_free(w);
    return status;
}

void shard_writer_free(struct shard_writer *w)
{
    if (w == NULL)
        return;
    file_close(w->file);
    if (w->unfinished)
        file_remove(w->aside);
    mem_free(w->folder);
    mem_free(w->path);
    mem_free(w->aside);
    mem_free(w);
}

int64_t shard_writer_room(const struct shard_writer *w)
{
    return w->capacity - w->entry.tokens;
}

static alibi_status flush(struct shard_writer *w)
{
    TRY_RETURN(file_write(w->file, w->buffer, w->used));
    w->entry.crc32 = checksum(w->entry.crc32, w->buffer, w->used);
    w->used = 0;
    return ALIBI_OK;
}

alibi_status shard_writer_add(struct shard_writer *w, const int32_t *ids, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (w->used == BUFFER_BYTES)
            TRY_RETURN(flush(w));
        for (int k = 0; k < w->width; k++) /* little-endian, whatever the machine */
            w->buffer[w->used++] = (char)((uint32_t)ids[i] >> 8 * k & 0xff);
    }
    w->entry.tokens += count;
    return ALIBI_OK;
}

alibi_status shard_writer_finish(struct shard_writer *w, struct shard_entry *entry)
{
    struct file *file = w->file;
    struct shard_header made = { .width = w->width, .count = w->entry.tokens };
    char header[SHARD_HEADER_BYTES];

    TRY_RETURN(flush(w));
    shard_header_format(&made, header);
    if (w->entry.tokens != w->capacity)
        TRY_RETURN(file_write_at(file, header, sizeof header, 0));
    w->entry.crc32 = checksum_join(checksum(0, header, sizeof header), w->entry.crc32,
                                   (size_t)w->entry.tokens * (size_t)w->width);
    TRY_RETURN(file_sync(file));
    w->file = NULL;
    TRY_RETURN(file_close(file));
    TRY_RETURN(file_rename(w->aside, w->path));
    w->unfinished = false;
    TRY_RETURN(folder_sync(w->folder));
    *entry = w->entry;
    return ALIBI_OK;
}
