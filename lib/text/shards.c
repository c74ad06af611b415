/* shards.c - lists of shards, ids in memory, and what is checked of every byte and every id
 *
 * The checksum of a long range is put together from those of its blocks, which are taken on all
 * threads. */
#include <string.h>

#include "text/tokenize.h"

enum {
    CHECK_BYTES = 1 << 22,      /* a block of one thread */
    MEMORY_IDS_FIRST = 1 << 12, /* room in memory at first */
    MEMORY_IDS_MOST =
        1 << 22, /* then another shard begins, so that little is copied as a text grows */
};

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- the list */

void shard_fini(struct shard *s)
{
    if (s->mapping == NULL)
        mem_free(s->ids);
    mapping_close(s->mapping);
    mem_free(s->path);
    *s = (struct shard){ 0 };
}

void shards_free(struct shard *shards, int count)
{
    for (int i = 0; i < count; i++)
        shard_fini(&shards[i]);
    mem_free(shards);
}

alibi_status shards_push(struct shard **shards, int *count, const struct shard *s)
{
    size_t have = (size_t)*count * sizeof **shards;
    const struct shard *before = *count > 0 ? &(*shards)[*count - 1] : NULL;
    int64_t first = before != NULL ? before->first + before->count : 0;

    TRY_RETURN(mem_grow((void **)shards, have, have + sizeof **shards, "the list of shards"));
    (*shards)[*count] = *s;
    (*shards)[*count].first = first;
    (*count)++;
    return ALIBI_OK;
}

/* ---- ids in memory */

static alibi_status make_room(struct shard *s)
{
    int64_t capacity = s->capacity > 0 ? 2 * s->capacity : MEMORY_IDS_FIRST;
    size_t width = (size_t)s->width;

    if (s->count < s->capacity)
        return ALIBI_OK;
    TRY_RETURN(mem_grow(&s->ids, (size_t)s->count * width, (size_t)capacity * width,
                        "the tokens of a text"));
    s->capacity = capacity;
    return ALIBI_OK;
}

static void store(struct shard *s, const int32_t *ids, int64_t count)
{
    uint16_t *narrow = (uint16_t *)s->ids + s->count;

    if (s->width == 2)
        for (int64_t i = 0; i < count; i++)
            narrow[i] = (uint16_t)ids[i];
    else
        memcpy((int32_t *)s->ids + s->count, ids, (size_t)count * sizeof *ids);
    s->count += count;
}

static bool takes_more(const struct shard *s, int width)
{
    return s->mapping == NULL && s->width == width && s->count < MEMORY_IDS_MOST;
}

alibi_status shards_append(struct shard **shards, int *count, const int32_t *ids, int64_t id_count,
                           int width)
{
    while (id_count > 0) {
        struct shard *s;
        int64_t some;

        if (*count == 0 || !takes_more(&(*shards)[*count - 1], width))
            TRY_RETURN(shards_push(shards, count, &(struct shard){ .width = width }));
        s = &(*shards)[*count - 1];
        TRY_RETURN(make_room(s));
        some = smaller(id_count, s->capacity - s->count);
        store(s, ids, some);
        ids += some;
        id_count -= some;
    }
    return ALIBI_OK;
}

/* ---- every byte, every id */

/* checksum(A B) = checksum(A 0...0) ^ checksum(B) for as many zeros as B is long, so the blocks may
 * come in any order. */
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

static int64_t largest_within(const struct shard *s, int64_t from, int64_t end)
{
    uint32_t largest = 0;

    for (int64_t i = from; i < end; i++) {
        uint32_t id = shard_id(s, i);
        largest = id > largest ? id : largest;
    }
    return largest;
}

int64_t shard_largest(const struct shard *s)
{
    int64_t largest = -1, step = CHECK_BYTES / s->width;

#pragma omp parallel for reduction(max : largest) if (s->count > step)
    for (int64_t from = 0; from < s->count; from += step) {
        int64_t here = largest_within(s, from, smaller(from + step, s->count));
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
    return fail(ALIBI_BAD_INPUT, "'%s': token %lld is %lu, the tokenizer has ids up to %lld",
                s->path ? s->path : "text", (long long)i, (unsigned long)shard_id(s, i),
                (long long)vocab - 1);
}
