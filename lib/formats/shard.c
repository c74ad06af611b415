/* shard.c - the header of a file of tokens
 *
 *   int32 magic, version, count, 253 zeros | count tokens of 16 or 32 bits, all little-endian
 *
 * The count must agree with the file's size to the byte. llm.c's readers ignore the zeros, and so
 * do we. */
#include <string.h>

#include "formats/formats.h"

static const struct kind {
    uint32_t magic, version;
    int width;
} kinds[] = { { 20240520, 1, 2 }, { 20240801, 7, 4 } };

enum { KINDS = COUNT(kinds), NUMBER_BYTES = 4 };

static uint32_t number_at(const char *bytes, int index)
{
    const unsigned char *p = (const unsigned char *)bytes + index * NUMBER_BYTES;

    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void put_number(char *bytes, int index, uint32_t number)
{
    for (int i = 0; i < NUMBER_BYTES; i++)
        bytes[index * NUMBER_BYTES + i] = (char)(number >> 8 * i);
}

alibi_status shard_header_parse(struct shard_header *out, const char *bytes, size_t length,
                                int64_t file_bytes, const char *path)
{
    const struct kind *kind = NULL;
    uint32_t magic, version, count;
    int64_t need;

    if (length < SHARD_HEADER_BYTES)
        return fail(
            ALIBI_BAD_INPUT,
            "cannot read '%s': the header of a token shard needs %d bytes, the file ends at %zu",
            path, SHARD_HEADER_BYTES, length);
    magic = number_at(bytes, 0);
    version = number_at(bytes, 1);
    count = number_at(bytes, 2);
    for (int i = 0; i < KINDS; i++)
        if (magic == kinds[i].magic)
            kind = &kinds[i];
    if (kind == NULL)
        return fail(ALIBI_BAD_INPUT,
                    "cannot read '%s': it is not a token shard: it starts with %u, not %u or %u",
                    path, magic, kinds[0].magic, kinds[1].magic);
    if (version != kind->version)
        return fail(ALIBI_BAD_INPUT,
                    "cannot read '%s': a token shard of magic %u has version %u, not %u (byte 4)",
                    path, magic, kind->version, version);
    if (count > SHARD_TOKENS_MAX)
        return fail(ALIBI_BAD_INPUT,
                    "cannot read '%s': %u tokens are announced, at most %d are allowed (byte 8)",
                    path, count, SHARD_TOKENS_MAX);
    need = SHARD_HEADER_BYTES + (int64_t)count * kind->width;
    if (need != file_bytes)
        return fail(ALIBI_BAD_INPUT,
                    "cannot read '%s': %u tokens of %d bytes end at %lld, the file ends at %lld",
                    path, count, kind->width, (long long)need, (long long)file_bytes);
    *out = (struct shard_header){ .width = kind->width, .count = count };
    return ALIBI_OK;
}

void shard_header_format(const struct shard_header *h, char bytes[SHARD_HEADER_BYTES])
{
    const struct kind *kind = &kinds[h->width == kinds[0].width ? 0 : 1];

    memset(bytes, 0, SHARD_HEADER_BYTES);
    put_number(bytes, 0, kind->magic);
    put_number(bytes, 1, kind->version);
    put_number(bytes, 2, (uint32_t)h->count);
}
