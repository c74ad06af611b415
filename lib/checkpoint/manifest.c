/* manifest.c - the list that makes a folder a checkpoint: size and checksum of every part, and a
 * checksum of itself
 *
 *   { "format": 1, "step": N, "parts": [ { "name", "bytes", "crc32" } ... ], "crc32": of everything
 *   before this member }
 *
 * A manifest has one spelling: what was read must format to the same bytes. So a flipped bit in its
 * spaces is found like any other, and there is nothing in it that the checksum does not cover. */
#include <string.h>

#include "base/json.h"
#include "checkpoint/parts.h"

enum { MANIFEST_FORMAT = 1, MANIFEST_BYTES_MAX = 1 << 16, BLOCK = 1 << 16 };

const char *const part_names[PARTS] = {
    [PART_MODEL] = "model.safetensors", [PART_OPTIMIZER] = "optimizer.safetensors",
    [PART_CONFIG] = "config.json",      [PART_TOKENIZER] = "tokenizer.json",
    [PART_STATE] = "state.json",
};

/* ---- writing */

alibi_status manifest_format(const struct manifest *m, struct text *json)
{
    size_t start = json->length;

    TRY_RETURN(text_append(json, "{\n  \"format\": %d,\n  \"step\": %lld,\n  \"parts\": [",
                           MANIFEST_FORMAT, (long long)m->step));
    for (int i = 0; i < PARTS; i++)
        TRY_RETURN(text_append(
            json, "%s\n    { \"name\": \"%s\", \"bytes\": %lld, \"crc32\": %lu }", i ? "," : "",
            part_names[i], (long long)m->parts[i].bytes, (unsigned long)m->parts[i].crc32));
    TRY_RETURN(text_append(json, "\n  ],\n"));
    return text_append(json, "  \"crc32\": %lu\n}\n",
                       (unsigned long)checksum(0, json->data + start, json->length - start));
}

/* ---- reading */

static alibi_status read_part(struct part *part, const json_t *entry, const char *name,
                              const char *path)
{
    const char *found;
    int64_t crc;

    TRY_RETURN(json_get_text(entry, "name", &found, path));
    if (strcmp(found, name) != 0)
        return fail(ALIBI_BAD_INPUT, "'%s': part '%s' stands where '%s' should", path, found, name);
    TRY_RETURN(json_get_int(entry, "bytes", 0, INT64_MAX, &part->bytes, path));
    TRY_RETURN(json_get_int(entry, "crc32", 0, UINT32_MAX, &crc, path));
    part->crc32 = (uint32_t)crc;
    return ALIBI_OK;
}

static alibi_status read_members(struct manifest *m, const json_t *json, const char *path)
{
    const json_t *parts = json_object_get(json, "parts");
    int64_t format;

    TRY_RETURN(json_get_int(json, "format", 1, INT64_MAX, &format, path));
    if (format != MANIFEST_FORMAT)
        return fail(ALIBI_BAD_INPUT, "'%s': format %lld, this version reads format %d", path,
                    (long long)format, MANIFEST_FORMAT);
    TRY_RETURN(json_get_int(json, "step", 1, INT64_MAX, &m->step, path));
    if (json_array_size(parts) != PARTS)
        return fail(ALIBI_BAD_INPUT, "'%s': %zu parts, expected %d", path, json_array_size(parts),
                    PARTS);
    for (int i = 0; i < PARTS; i++)
        TRY_RETURN(read_part(&m->parts[i], json_array_get(parts, (size_t)i), part_names[i], path));
    return ALIBI_OK;
}

static alibi_status check_spelling(const struct manifest *m, const char *bytes, size_t length,
                                   const char *path)
{
    alibi_status status;
    struct text again = { 0 };

    TRY(manifest_format(m, &again));
    if (again.length != length || memcmp(again.data, bytes, length) != 0)
        status = fail(ALIBI_BAD_INPUT, "'%s': checksum differs", path);
out:
    text_free(&again);
    return status;
}

alibi_status manifest_read(struct manifest *m, const char *folder)
{
    alibi_status status;
    char *path = NULL, *bytes = NULL;
    size_t length;
    json_t *json = NULL;
    struct manifest read = { 0 };

    TRY(path_join(&path, folder, "manifest.json"));
    TRY(file_read_all(&bytes, &length, path, MANIFEST_BYTES_MAX));
    TRY(json_parse(&json, bytes, length, path));
    TRY(read_members(&read, json, path));
    TRY(check_spelling(&read, bytes, length, path));
    *m = read;
out:
    json_decref(json);
    mem_free(bytes);
    mem_free(path);
    return status;
}

/* ---- verifying */

static alibi_status checksum_file(struct file *f, char *block, uint32_t *crc)
{
    size_t got;

    *crc = 0;
    do {
        TRY_RETURN(file_read(f, block, BLOCK, &got));
        *crc = checksum(*crc, block, got);
    } while (got == BLOCK);
    return ALIBI_OK;
}

static alibi_status verify_part(const struct part *part, const char *path, char *block)
{
    alibi_status status;
    struct file *f = NULL;
    uint32_t crc;

    TRY(file_open_read(&f, path));
    if (file_size(f) != part->bytes) {
        status = fail(ALIBI_BAD_INPUT, "'%s': %lld bytes, the manifest says %lld", path,
                      (long long)file_size(f), (long long)part->bytes);
        goto out;
    }
    TRY(checksum_file(f, block, &crc));
    if (crc != part->crc32)
        status = fail(ALIBI_BAD_INPUT, "'%s': checksum differs", path);
out:
    file_close(f);
    return status;
}

alibi_status manifest_verify(const struct manifest *m, const char *folder)
{
    alibi_status status;
    char *block = NULL, *path = NULL;

    TRY(NEW_ARRAY(&block, BLOCK, "a block to verify"));
    for (int i = 0; i < PARTS; i++) {
        TRY(path_join(&path, folder, part_names[i]));
        TRY(verify_part(&m->parts[i], path, block));
        mem_free(path);
        path = NULL;
    }
out:
    mem_free(path);
    mem_free(block);
    return status;
}
