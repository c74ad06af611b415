/* sealed.c - checksums, and JSON files in which one altered bit is found
 *
 *   {
 *     ...,
 *     "crc32": N         the checksum of every byte before this line
 *   }
 *
 * The checksum covers what precedes its line, and the line and the end of the file have one
 * spelling, so no byte is uncovered. Comparisons of version 0.1 called the member "checksum". */
#include <string.h>
#include <zlib.h>

#include "base/json.h"

/* CRC-32 finds every single flipped bit, and every burst of up to 32. */
uint32_t checksum(uint32_t crc, const void *bytes, size_t length)
{
    return length > 0 ? (uint32_t)crc32_z(crc, bytes, length) : crc;
}

uint32_t checksum_join(uint32_t first, uint32_t second, size_t length)
{
    return (uint32_t)crc32_combine(first, second, (z_off_t)length);
}

static void append_seal(struct text *json, const char *key, const char *bytes, size_t length)
{
    text_append(json, "  \"%s\": %lu\n}\n", key, (unsigned long)checksum(0, bytes, length));
}

void json_write_seal(struct json_writer *w)
{
    struct text *out = w->out;

    text_append(out, ",\n");
    if (out->status == ALIBI_OK)
        append_seal(out, "crc32", out->data + w->start, out->length - w->start);
    w->depth = 0;
}

alibi_status sealed_write(const char *path, const struct text *json)
{
    TRY_RETURN(text_status(json));
    return file_replace(path, json->data, json->length);
}

/* Whether the file ends with the seal that its content must have. */
static alibi_status check_seal(bool *good, const char *bytes, size_t length, const char *key)
{
    alibi_status status;
    struct text seal = { 0 };
    size_t content = length;

    *good = false;
    if (length < 3 || memcmp(bytes + length - 3, "\n}\n", 3) != 0)
        return ALIBI_OK;
    /* Back to the start of the line before the last brace. */
    for (content = length - 3; content > 0 && bytes[content - 1] != '\n'; content--)
        ;
    append_seal(&seal, key, bytes, content);
    TRY(text_status(&seal));
    *good = seal.length == length - content && memcmp(seal.data, bytes + content, seal.length) == 0;
out:
    text_free(&seal);
    return status;
}

alibi_status sealed_read(json_t **out, const char *path, size_t limit)
{
    alibi_status status;
    char *bytes = NULL;
    size_t length;
    bool good;

    TRY(file_read_all(&bytes, &length, path, limit));
    TRY(check_seal(&good, bytes, length, "crc32"));
    if (!good)
        TRY(check_seal(&good, bytes, length, "checksum"));
    if (good)
        TRY(json_parse(out, bytes, length, path));
    else
        status = fail(ALIBI_BAD_INPUT,
                      "'%s' is damaged: its checksum differs; remove the file or restore it", path);
out:
    mem_free(bytes);
    return status;
}
