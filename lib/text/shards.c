/* shards.c - tokens in memory, and tokens in files, which are mapped
 *
 *   a folder with index.json       written by alibi_tokenize(): every byte has a checksum, and the
 *                                  folder has the tokenizer
 *   one of its shards alone        its checksum and tokenizer are known; its documents, words and
 *                                  bytes are not
 *   a folder with request.json     begun by alibi_tokenize() and not finished
 *   files x.bin, a folder of them  written by others: only their headers are known */
#include <math.h>
#include <string.h>

#include "text/shards.h"

enum {
    CHECK_BYTES = 1 << 22,      /* a block of one thread */
    MEMORY_IDS_FIRST = 1 << 12, /* room in memory at first */
    MEMORY_IDS_MOST = 1 << 22,  /* then the next shard starts, so that growing copies little */
};

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- the list */

static void shard_fini(struct shard *s)
{
    if (s->mapping == NULL)
        mem_free(s->ids);
    mapping_close(s->mapping);
    mem_free(s->path);
    *s = (struct shard){ 0 };
}

void shards_fini(struct shards *l)
{
    for (int i = 0; i < l->count; i++)
        shard_fini(&l->at[i]);
    mem_free(l->at);
    *l = (struct shards){ 0 };
}

int64_t shards_tokens(const struct shards *l)
{
    return l->count > 0 ? l->at[l->count - 1].first + l->at[l->count - 1].count : 0;
}

alibi_status shards_push(struct shards *l, const struct shard *s)
{
    int64_t first = shards_tokens(l);

    TRY_RETURN(RESERVE_ARRAY(&l->at, &l->capacity, l->count + 1, "the list of shards"));
    l->at[l->count] = *s;
    l->at[l->count++].first = first;
    return ALIBI_OK;
}

/* ---- ids in memory */

alibi_status shards_append(struct shards *l, const int32_t *ids, int64_t count, int width)
{
    while (count > 0) {
        struct shard *s = l->count > 0 ? &l->at[l->count - 1] : NULL;
        int64_t some;

        if (s == NULL || s->mapping != NULL || s->width != width || s->count >= MEMORY_IDS_MOST) {
            TRY_RETURN(shards_push(l, &(struct shard){ .width = width }));
            s = &l->at[l->count - 1];
        }
        if (s->count == s->capacity) {
            int64_t capacity = s->capacity > 0 ? 2 * s->capacity : MEMORY_IDS_FIRST;
            TRY_RETURN(mem_grow(&s->ids, (size_t)(s->count * width), (size_t)(capacity * width),
                                "the tokens of a text"));
            s->capacity = capacity;
        }
        some = smaller(count, s->capacity - s->count);
        if (width == 2)
            for (int64_t i = 0; i < some; i++)
                ((uint16_t *)s->ids)[s->count + i] = (uint16_t)ids[i];
        else
            memcpy((int32_t *)s->ids + s->count, ids, (size_t)some * sizeof *ids);
        s->count += some;
        ids += some;
        count -= some;
    }
    return ALIBI_OK;
}

/* ---- every byte, every id */

/* checksum(A B) = checksum(A 0...0) ^ checksum(B), with as many zeros as B has bytes. So threads
 * can take blocks in any order. */
void shard_seal(struct shard *s)
{
    const char *bytes = s->ids;
    int64_t total = s->count * s->width;
    uint32_t crc = 0;

#pragma omp parallel for reduction(^ : crc) if (total > CHECK_BYTES)
    for (int64_t from = 0; from < total; from += CHECK_BYTES) {
        int64_t length = smaller(CHECK_BYTES, total - from);
        crc ^= checksum_join(checksum(0, bytes + from, (size_t)length), 0,
                             (size_t)(total - from - length));
    }
    s->checksum = crc;
}

uint32_t shard_id(const struct shard *s, int64_t i)
{
    return s->width == 2 ? ((const uint16_t *)s->ids)[i] : ((const uint32_t *)s->ids)[i];
}

int64_t shard_largest(const struct shard *s)
{
    int64_t largest = -1, step = CHECK_BYTES / s->width;

#pragma omp parallel for reduction(max : largest) if (s->count > step)
    for (int64_t from = 0; from < s->count; from += step) {
        int64_t end = smaller(from + step, s->count);
        uint32_t here = 0;
        for (int64_t i = from; i < end; i++) {
            uint32_t id = shard_id(s, i);
            here = id > here ? id : here;
        }
        largest = here > largest ? here : largest;
    }
    return largest;
}

alibi_status shard_check(const struct shard *s, int64_t vocab)
{
    int64_t i = 0;

    if (shard_largest(s) < vocab)
        return ALIBI_OK;
    while (shard_id(s, i) < vocab)
        i++;
    return fail(ALIBI_BAD_INPUT,
                "'%s': token %lld is %lu, but the largest id of the tokenizer is %lld",
                s->path ? s->path : "text", (long long)i, (unsigned long)shard_id(s, i),
                (long long)vocab - 1);
}

/* ---- opening */

static const double report_seconds = 0.5;

/* A list of shards that is being opened. */
struct opening {
    struct shards *shards;
    const char *path;
    const char *list;    /* the file that the index was read from, for messages */
    int64_t done, total; /* files */
    double started;
    const struct alibi_call *call;
};

/* Checks that the file is the one of the list. */
static alibi_status compare(const struct shard *s, int width, const struct shard_entry *entry,
                            const char *list)
{
    const char *header = (const char *)s->ids - SHARD_HEADER_BYTES;
    uint32_t crc = checksum_join(checksum(0, header, SHARD_HEADER_BYTES), s->checksum,
                                 (size_t)(s->count * s->width));

    if (s->width != width)
        return fail(ALIBI_BAD_INPUT, "'%s' has tokens of %d bits, but %s says %d", s->path,
                    8 * s->width, list, 8 * width);
    if (s->count != entry->tokens)
        return fail(ALIBI_BAD_INPUT, "'%s' has %lld tokens, but %s says %lld", s->path,
                    (long long)s->count, list, (long long)entry->tokens);
    if (crc != entry->crc32)
        return fail(ALIBI_BAD_INPUT, "'%s' is damaged: its checksum is %08lx, but %s says %08lx",
                    s->path, (unsigned long)crc, list, (unsigned long)entry->crc32);
    return ALIBI_OK;
}

/* Maps the file, computes its checksum, and compares it with `entry` unless that is NULL. `width`
 * is that of the index with the entry. */
static alibi_status add_file(struct opening *o, const char *path, int width,
                             const struct shard_entry *entry)
{
    alibi_status status;
    struct shard s = { 0 };
    struct shard_header header;
    const char *bytes;
    size_t length;
    double seconds;

    TRY(text_copy(&s.path, path));
    TRY(mapping_open(&s.mapping, path));
    bytes = mapping_view(s.mapping, &length);
    TRY(shard_header_parse(&header, bytes, length, (int64_t)length, path));
    s.ids = (void *)(bytes + SHARD_HEADER_BYTES);
    s.width = header.width;
    s.count = header.count;
    shard_seal(&s);
    if (entry != NULL)
        TRY(compare(&s, width, entry, o->list));
    TRY(shards_push(o->shards, &s));
    s = (struct shard){ 0 };
    o->done++;
    if (call_stopped(o->call))
        TRY(fail(ALIBI_INTERRUPTED, "stopped after checking %lld of %lld shards in '%s'",
                 (long long)o->done, (long long)o->total, o->path));
    seconds = clock_seconds() - o->started;
    if (seconds >= report_seconds)
        call_progress(o->call, &(struct alibi_progress){
                                   .task = "check shards",
                                   .unit = "shards",
                                   .done = o->done,
                                   .total = o->total,
                                   .seconds = seconds,
                                   .seconds_left = seconds_left(seconds, o->done, o->total),
                                   .loss = NAN,
                               });
out:
    shard_fini(&s);
    return status;
}

static alibi_status add_within(struct opening *o, const char *name, int width,
                               const struct shard_entry *entry)
{
    alibi_status status;
    char *path = NULL;

    TRY(path_join(&path, o->path, name));
    TRY(add_file(o, path, width, entry));
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

    TRY(path_join(&path, folder, NAME_TOKENIZER));
    TRY(file_read_all(&bytes, &length, path, TOKENIZER_BYTES_MAX));
    TRY(tokenizer_read(&t, bytes, length, path));
    if (tokenizer_checksum(t) != index->tokenizer)
        TRY(fail(ALIBI_BAD_INPUT,
                 "'%s' is not the tokenizer of these shards: its checksum is %08lx, "
                 "but " NAME_SHARD_INDEX " says %08lx",
                 path, (unsigned long)tokenizer_checksum(t), (unsigned long)index->tokenizer));
    *out = t;
    t = NULL;
out:
    alibi_tokenizer_free(t);
    mem_free(path);
    mem_free(bytes);
    return status;
}

/* `only` is the name of one shard; NULL: all shards. */
static alibi_status add_entries(struct opening *o, const struct shard_index *index,
                                const char *only)
{
    o->total = only != NULL ? 1 : index->entry_count;
    for (int64_t i = 0; i < index->entry_count; i++)
        if (only == NULL || strcmp(only, index->entries[i].name) == 0)
            TRY_RETURN(add_within(o, index->entries[i].name, index->width, &index->entries[i]));
    if (o->done < o->total)
        return fail(ALIBI_BAD_INPUT, "'%s/%s' is not a shard that " NAME_SHARD_INDEX " names",
                    o->path, only);
    return ALIBI_OK;
}

alibi_status shards_open_listed(struct shards *l, const struct shard_index *index, const char *list,
                                const char *folder, const struct alibi_call *call)
{
    struct opening o = {
        .shards = l, .path = folder, .list = list, .started = clock_seconds(), .call = call
    };

    return add_entries(&o, index, NULL);
}

/* The documents, words and bytes of `only` one shard are unknown, so *index stays as it is. */
static alibi_status open_indexed(struct opening *o, const char *only, struct shard_index *index,
                                 alibi_tokenizer **tokenizer)
{
    alibi_status status;
    struct shard_index read = { 0 };
    alibi_tokenizer *t = NULL;

    TRY(shard_index_read(&read, o->path));
    o->list = NAME_SHARD_INDEX;
    TRY(read_tokenizer(&t, &read, o->path));
    TRY(add_entries(o, &read, only));
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
    return ends_with(name, ".bin") && strcmp(name, ".bin") != 0;
}

static int64_t count_bins(char *const *names, int count)
{
    int64_t bins = 0;

    for (int i = 0; i < count; i++)
        bins += is_bin(names[i]);
    return bins;
}

/* ---- any path */

/* Whether alibi_tokenize() has begun here: the request is the first file it writes. */
static alibi_status has_begun(bool *yes, const char *folder)
{
    TRY_RETURN(folder_has(yes, folder, NAME_SHARD_PROGRESS));
    return *yes ? ALIBI_OK : folder_has(yes, folder, NAME_SHARD_REQUEST);
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
        TRY_RETURN(folder_has(&found, path, NAME_SHARD_INDEX));
        if (!found)
            TRY_RETURN(has_begun(&found, path));
        if (!found)
            TRY_RETURN(has_bins(&found, path));
    }
    *yes = found;
    return ALIBI_OK;
}

/* A text file named x.bin is not refused. */
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
    alibi_status status;
    char **names = NULL;
    int count = 0;
    bool unfinished;

    TRY(folder_has(has_index, o->path, NAME_SHARD_INDEX));
    if (*has_index)
        return open_indexed(o, NULL, index, tokenizer);
    TRY(has_begun(&unfinished, o->path));
    if (unfinished)
        TRY(fail(ALIBI_BAD_INPUT,
                 "'%s' holds unfinished shards; repeat the alibi tokenize command that began them",
                 o->path));
    TRY(folder_list(&names, &count, o->path));
    o->total = count_bins(names, count);
    if (o->total == 0)
        TRY(fail(ALIBI_BAD_INPUT, "'%s' holds no token shards: there is no .bin file in it",
                 o->path));
    for (int i = 0; i < count; i++)
        if (is_bin(names[i]))
            TRY(add_within(o, names[i], 0, NULL));
out:
    names_free(names, count);
    return status;
}

/* A file with a name like ours is a part of the index in its folder, if there is one. */
static alibi_status open_file(struct opening *o, struct shard_index *index, bool *has_index,
                              alibi_tokenizer **tokenizer)
{
    alibi_status status;
    const char *path = o->path, *slash = strrchr(path, '/'),
               *name = slash != NULL ? slash + 1 : path;
    bool is_index = strcmp(name, NAME_SHARD_INDEX) == 0,
         ours = strncmp(name, "tokens-", strlen("tokens-")) == 0;
    char *folder = NULL;

    TRY(path_folder(&folder, path));
    if (ours)
        TRY(folder_has(&ours, folder, NAME_SHARD_INDEX));
    o->path = folder;
    if (is_index)
        TRY(open_folder(o, index, has_index, tokenizer));
    else if (ours)
        TRY(open_indexed(o, name, index, tokenizer));
    else
        TRY(add_file(o, path, 0, NULL));
out:
    mem_free(folder);
    return status;
}

alibi_status shards_open(struct shards *l, struct shard_index *index, bool *has_index,
                         alibi_tokenizer **tokenizer, const char *path,
                         const struct alibi_call *call)
{
    struct opening o = {
        .shards = l, .path = path, .total = 1, .started = clock_seconds(), .call = call
    };
    enum path_kind kind;

    *has_index = false;
    TRY_RETURN(path_look(&kind, path));
    return (kind == PATH_FOLDER ? open_folder : open_file)(&o, index, has_index, tokenizer);
}
