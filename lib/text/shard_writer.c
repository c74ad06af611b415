/* shard_writer.c - one shard being written: aside, under checksum, and under its name only when it
 * is on the disk
 *
 * The header says how many tokens there are. A shard is taken to become full; the last one of a
 * folder does not, and has its header written once more at the end. */
#include <string.h>

#include "text/tokenize.h"

enum { BUFFER_BYTES = 1 << 20 };

struct shard_writer {
    char *folder, *path, *aside;
    struct file *file;
    struct shard_entry entry; /* its crc32 is of the tokens alone until the end */
    int64_t capacity;
    int width;
    bool left_aside; /* a file that is not finished lies there */
    size_t used;     /* of the buffer */
    char buffer[BUFFER_BYTES];
};

/* ---- open and close */

static alibi_status make_paths(struct shard_writer *w, const char *folder)
{
    char aside[sizeof w->entry.name + 4];

    snprintf(aside, sizeof aside, "%s.tmp", w->entry.name);
    TRY_RETURN(text_copy(&w->folder, folder));
    TRY_RETURN(path_join(&w->path, folder, w->entry.name));
    return path_join(&w->aside, folder, aside);
}

static void format_header(const struct shard_writer *w, int64_t count,
                          char header[SHARD_HEADER_BYTES])
{
    shard_header_format(&(struct shard_header){ .width = w->width, .count = count }, header);
}

alibi_status shard_writer_open(struct shard_writer **out, const char *folder, int64_t number,
                               int width, int64_t capacity)
{
    alibi_status status;
    struct shard_writer *w = NULL;
    char header[SHARD_HEADER_BYTES];

    TRY(NEW_ARRAY(&w, 1, "a shard to write"));
    memset(w, 0, offsetof(struct shard_writer, buffer));
    shard_name(w->entry.name, number);
    w->width = width;
    w->capacity = capacity;
    TRY(make_paths(w, folder));
    w->left_aside = true;
    TRY(file_create(&w->file, w->aside));
    format_header(w, capacity, header);
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
    if (w->left_aside)
        file_remove(w->aside);
    mem_free(w->folder);
    mem_free(w->path);
    mem_free(w->aside);
    mem_free(w);
}

/* ---- tokens */

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

/* Little-endian, whatever the machine. */
static void put(struct shard_writer *w, uint32_t id)
{
    for (int i = 0; i < w->width; i++)
        w->buffer[w->used++] = (char)(id >> 8 * i & 0xff);
}

alibi_status shard_writer_add(struct shard_writer *w, const int32_t *ids, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (w->used == BUFFER_BYTES)
            TRY_RETURN(flush(w));
        put(w, (uint32_t)ids[i]);
    }
    w->entry.tokens += count;
    return ALIBI_OK;
}

/* ---- the end */

static alibi_status write_end(struct shard_writer *w)
{
    struct file *file = w->file;
    char header[SHARD_HEADER_BYTES];
    size_t bytes = (size_t)w->entry.tokens * (size_t)w->width;

    TRY_RETURN(flush(w));
    format_header(w, w->entry.tokens, header);
    if (w->entry.tokens != w->capacity)
        TRY_RETURN(file_write_over(file, header, sizeof header));
    w->entry.crc32 = checksum_join(checksum(0, header, sizeof header), w->entry.crc32, bytes);
    TRY_RETURN(file_sync(file));
    w->file = NULL;
    return file_close(file);
}

alibi_status shard_writer_finish(struct shard_writer *w, struct shard_entry *entry)
{
    TRY_RETURN(write_end(w));
    TRY_RETURN(file_rename(w->aside, w->path));
    w->left_aside = false;
    TRY_RETURN(folder_sync(w->folder));
    *entry = w->entry;
    return ALIBI_OK;
}
