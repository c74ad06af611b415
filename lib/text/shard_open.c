/* shard_open.c - tokens in files, which are mapped
 *
 *   a folder with index.json       what alibi_tokenize() made: every byte is under a checksum, the
 * tokenizer lies beside one of its shards alone        its checksum and tokenizer are known, its
 * documents, words and bytes are not a folder with request.json     what it has begun and not
 * finished files x.bin, a folder of them  what others made: all that is known is their headers */
#include <math.h>
#include <string.h>

#include "text/tokenize.h"

static const double report_seconds = 0.5;

/* ---- files */

static alibi_status map(struct shard *s, const char *path)
{
    struct shard_header header;
    const char *bytes;
    size_t length;

    TRY_RETURN(text_copy(&s->path, path));
    TRY_RETURN(mapping_open(&s->mapping, path));
    bytes = mapping_view(s->mapping, &length);
    TRY_RETURN(shard_header_parse(&header, bytes, length, (int64_t)length, path));
    s->ids = (void *)(bytes + SHARD_HEADER_BYTES);
    s->width = header.width;
    s->count = header.count;
    shard_seal(s);
    return ALIBI_OK;
}

/* What the list says of the file must be so. */
static alibi_status compare(const struct shard *s, int width, const struct shard_entry *entry,
                            const char *list)
{
    const char *header = (const char *)s->ids - SHARD_HEADER_BYTES;
    uint32_t crc = checksum_join(checksum(0, header, SHARD_HEADER_BYTES), s->checksum,
                                 (size_t)(s->count * s->width));

    if (s->width != width)
        return fail(ALIBI_BAD_INPUT, "'%s' has tokens of %d bits, %s says %d", s->path,
                    8 * s->width, list, 8 * width);
    if (s->count != entry->tokens)
        return fail(ALIBI_BAD_INPUT, "'%s' has %lld tokens, %s says %lld", s->path,
                    (long long)s->count, list, (long long)entry->tokens);
    if (crc != entry->crc32)
        return fail(ALIBI_BAD_INPUT, "'%s' is damaged: its checksum is %08lx, %s says %08lx",
                    s->path, (unsigned long)crc, list, (unsigned long)entry->crc32);
    return ALIBI_OK;
}

/* A list of shards that is being opened. */
struct opening {
    struct shard **shards;
    int *count;
    const char *path;
    const struct shard_index *index;
    const char *list;    /* the file that says what the index does */
    int64_t done, total; /* files */
    double started;
    const struct alibi_call *call;
};

static alibi_status report(const struct opening *o)
{
    double seconds = clock_seconds() - o->started;

    if (call_stopped(o->call))
        return fail(ALIBI_INTERRUPTED, "stopped after checking %lld of %lld shards in '%s'",
                    (long long)o->done, (long long)o->total, o->path);
    if (seconds < report_seconds)
        return ALIBI_OK;
    call_progress(o->call,
                  &(struct alibi_progress){
                      .task = "check shards",
                      .unit = "shards",
                      .done = o->done,
                      .total = o->total,
                      .seconds = seconds,
                      .seconds_left = seconds * (double)(o->total - o->done) / (double)o->done,
                      .loss = NAN,
                  });
    return ALIBI_OK;
}

/* `entry` is what the index says of the file; NULL: there is none. */
static alibi_status add_file(struct opening *o, const char *path, const struct shard_entry *entry)
{
    alibi_status status;
    struct shard s = { 0 };

    TRY(map(&s, path));
    if (entry != NULL)
        TRY(compare(&s, o->index->width, entry, o->list));
    TRY(shards_push(o->shards, o->count, &s));
    s = (struct shard){ 0 };
    o->done++;
    TRY(report(o));
out:
    shard_fini(&s);
    return status;
}

static alibi_status add_within(struct opening *o, const char *name, const struct shard_entry *entry)
{
    alibi_status status;
    char *path = NULL;

    TRY(path_join(&path, o->path, name));
    TRY(add_file(o, path, entry));
out:
    mem_free(path);
    return status;
}

/* ---- folders */

static alibi_status read_tokenizer(alibi_tokenizer **out, const struct shard_index *index,
                                   const char *folder)
{
    alibi_status status;
    alibi_tokenizer *t = NULL;
    char *path = NULL, *bytes = NULL;
    size_t length;

    TRY(path_join(&path, folder, TOKENIZER_FILE));
    TRY(file_read_all(&bytes, &length, path, TOKENIZER_BYTES_MAX));
    TRY(tokenizer_read(&t, bytes, length, path));
    if (tokenizer_checksum(t) != index->tokenizer) {
        status =
            fail(ALIBI_BAD_INPUT,
                 "'%s' is not the tokenizer of these shards: its checksum is %08lx, " SHARD_INDEX
                 " says %08lx",
                 path, (unsigned long)tokenizer_checksum(t), (unsigned long)index->tokenizer);
        goto out;
    }
    *out = t;
    t = NULL;
out:
    alibi_tokenizer_free(t);
    mem_free(path);
    mem_free(bytes);
    return status;
}

static alibi_status add_entries(struct opening *o, const char *only)
{
    const struct shard_index *index = o->index;

    o->total = only != NULL ? 1 : index->entry_count;
    for (int64_t i = 0; i < index->entry_count; i++)
        if (only == NULL || strcmp(only, index->entries[i].name) == 0)
            TRY_RETURN(add_within(o, index->entries[i].name, &index->entries[i]));
    if (o->done < o->total)
        return fail(ALIBI_BAD_INPUT, "'%s/%s' is not one of the shards that " SHARD_INDEX " names",
                    o->path, only);
    return ALIBI_OK;
}

alibi_status shards_open_listed(struct shard **shards, int *count, const struct shard_index *index,
                                const char *list, const char *folder, const struct alibi_call *call)
{
    struct opening o = { shards, count, folder, index, list, 0, 0, clock_seconds(), call };

    return add_entries(&o, NULL);
}

/* `only` is the name of one shard, whose counts of documents, words and bytes nobody knows: *index
 * is left as it is. NULL: all. */
static alibi_status open_indexed(struct opening *o, const char *only, struct shard_index *index,
                                 alibi_tokenizer **tokenizer)
{
    alibi_status status;
    struct shard_index read = { 0 };
    alibi_tokenizer *t = NULL;

    TRY(shard_index_read(&read, o->path));
    o->index = &read;
    o->list = SHARD_INDEX;
    TRY(read_tokenizer(&t, &read, o->path));
    TRY(add_entries(o, only));
    if (only == NULL) {
        *index = read;
        read = (struct shard_index){ 0 };
    }
    *tokenizer = t;
    t = NULL;
out:
    alibi_tokenizer_free(t);
    shard_index_fini(&read);
    return status;
}

static bool is_bin(const char *name)
{
    size_t length = strlen(name);

    return length > 4 && strcmp(name + length - 4, ".bin") == 0;
}

static int64_t count_bins(char *const *names, int count)
{
    int64_t bins = 0;

    for (int i = 0; i < count; i++)
        bins += is_bin(names[i]);
    return bins;
}

static alibi_status open_foreign(struct opening *o)
{
    alibi_status status;
    char **names = NULL;
    int count = 0;

    TRY(folder_list(&names, &count, o->path));
    o->total = count_bins(names, count);
    if (o->total == 0)
        status = fail(ALIBI_BAD_INPUT, "'%s' holds no token shards: there is no .bin file in it",
                      o->path);
    for (int i = 0; i < count && status == ALIBI_OK; i++)
        if (is_bin(names[i]))
            TRY(add_within(o, names[i], NULL));
out:
    names_free(names, count);
    return status;
}

/* ---- any path */

static alibi_status has(bool *yes, const char *folder, const char *name)
{
    alibi_status status;
    enum path_kind kind;
    char *path = NULL;

    TRY(path_join(&path, folder, name));
    TRY(path_look(&kind, path));
    *yes = kind == PATH_FILE;
out:
    mem_free(path);
    return status;
}

/* What alibi_tokenize() has begun: the request is the first file it writes. */
static alibi_status has_begun(bool *yes, const char *folder)
{
    TRY_RETURN(has(yes, folder, SHARD_PROGRESS));
    return *yes ? ALIBI_OK : has(yes, folder, SHARD_REQUEST);
}

static alibi_status has_bins(bool *yes, const char *folder)
{
    alibi_status status;
    char **names = NULL;
    int count = 0;

    TRY(folder_list(&names, &count, folder));
    *yes = count_bins(names, count) > 0;
out:
    names_free(names, count);
    return status;
}

alibi_status shards_recognise(bool *yes, const char *path)
{
    bool found = is_bin(path);
    enum path_kind kind;

    TRY_RETURN(path_look(&kind, path));
    if (kind == PATH_FOLDER) {
        TRY_RETURN(has(&found, path, SHARD_INDEX));
        if (!found)
            TRY_RETURN(has_begun(&found, path));
        if (!found)
            TRY_RETURN(has_bins(&found, path));
    }
    *yes = found;
    return ALIBI_OK;
}

/* Text that is named x.bin is not refused here. */
alibi_status shards_refuse(const char *path)
{
    struct mapping *mapping = NULL;
    struct shard_header header;
    enum path_kind kind;
    bool found = false;

    TRY_RETURN(path_look(&kind, path));
    if (kind == PATH_FOLDER) {
        TRY_RETURN(has_bins(&found, path));
    } else if (is_bin(path) && mapping_open(&mapping, path) == ALIBI_OK) {
        size_t length;
        const char *bytes = mapping_view(mapping, &length);
        found = shard_header_parse(&header, bytes, length, (int64_t)length, path) == ALIBI_OK;
    }
    mapping_close(mapping);
    return found ? fail(ALIBI_BAD_INPUT, "'%s' holds token shards already", path) : ALIBI_OK;
}

static alibi_status open_folder(struct opening *o, struct shard_index *index, bool *has_index,
                                alibi_tokenizer **tokenizer)
{
    bool unfinished;

    TRY_RETURN(has(has_index, o->path, SHARD_INDEX));
    if (*has_index)
        return open_indexed(o, NULL, index, tokenizer);
    TRY_RETURN(has_begun(&unfinished, o->path));
    if (unfinished)
        return fail(
            ALIBI_BAD_INPUT,
            "'%s' holds an unfinished tokenizing: the command that began it goes on with it",
            o->path);
    return open_foreign(o);
}

/* A file that is named as ours are, with an index beside it, is a part of that. */
static alibi_status open_file(struct opening *o, struct shard_index *index, bool *has_index,
                              alibi_tokenizer **tokenizer)
{
    alibi_status status;
    const char *path = o->path, *slash = strrchr(path, '/'),
               *name = slash != NULL ? slash + 1 : path;
    bool is_index = strcmp(name, SHARD_INDEX) == 0,
         ours = strncmp(name, "tokens-", strlen("tokens-")) == 0;
    char *folder = NULL;

    TRY(path_folder(&folder, path));
    if (ours)
        TRY(has(&ours, folder, SHARD_INDEX));
    o->path = folder;
    if (is_index)
        TRY(open_folder(o, index, has_index, tokenizer));
    else if (ours)
        TRY(open_indexed(o, name, index, tokenizer));
    else
        TRY(add_file(o, path, NULL));
out:
    mem_free(folder);
    return status;
}

alibi_status shards_open(struct shard **shards, int *count, struct shard_index *index,
                         bool *has_index, alibi_tokenizer **tokenizer, const char *path,
                         const struct alibi_call *call)
{
    struct opening o = { .shards = shards,
                         .count = count,
                         .path = path,
                         .total = 1,
                         .started = clock_seconds(),
                         .call = call };
    enum path_kind kind;

    *has_index = false;
    TRY_RETURN(path_look(&kind, path));
    return (kind == PATH_FOLDER ? open_folder : open_file)(&o, index, has_index, tokenizer);
}
