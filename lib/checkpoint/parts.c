/* parts.c - the files of a checkpoint, and the manifest that makes a folder one
 *
 *   {
 *     "format": 1,
 *     "step": N,
 *     "parts": [ { "name": ..., "bytes": ..., "crc32": ... }, ... ],
 *     "crc32": of every byte before this line
 *   }
 *
 * The manifest is a sealed file: one altered bit in it is found like one in a part. Parts appear in
 * the order of part_names. */
#include <string.h>

#include "base/json.h"
#include "base/names.h"
#include "checkpoint/parts.h"

enum { MANIFEST_FORMAT = 1, MANIFEST_BYTES_MAX = 1 << 16, BLOCK = 1 << 16 };

const char *const part_names[PARTS] = {
    [PART_MODEL] = NAME_WEIGHTS, [PART_OPTIMIZER] = NAME_OPTIMIZER,
    [PART_CONFIG] = NAME_CONFIG, [PART_TOKENIZER] = NAME_TOKENIZER,
    [PART_STATE] = NAME_STATE,   [PART_PRODUCTS] = NAME_PRODUCTS,
};

/* ---- the manifest */

void manifest_format(const struct manifest *m, struct text *json)
{
    struct json_writer w = json_writer(json);

    json_write_object(&w, NULL);
    json_write_int(&w, "format", MANIFEST_FORMAT);
    json_write_int(&w, "step", m->step);
    json_write_array(&w, "parts");
    for (int i = 0; i < PARTS; i++) {
        if (!m->parts[i].present)
            continue;
        json_write_object_line(&w, NULL);
        json_write_string(&w, "name", part_names[i]);
        json_write_int(&w, "bytes", m->parts[i].bytes);
        json_write_int(&w, "crc32", m->parts[i].crc32);
        json_write_end(&w);
    }
    json_write_end(&w);
    json_write_seal(&w);
}

static alibi_status read_parts(struct manifest *m, const json_t *parts, const char *path)
{
    size_t used = 0, count = json_array_size(parts);

    for (int i = 0; i < PARTS && used < count; i++) {
        const json_t *entry = json_array_get(parts, used);
        const char *name;
        int64_t crc;
        TRY_RETURN(json_get_text(entry, "name", &name, path));
        if (strcmp(name, part_names[i]) != 0)
            continue;
        TRY_RETURN(json_get_int(entry, "bytes", 0, INT64_MAX, &m->parts[i].bytes, path));
        TRY_RETURN(json_get_int(entry, "crc32", 0, UINT32_MAX, &crc, path));
        m->parts[i].crc32 = (uint32_t)crc;
        m->parts[i].present = true;
        used++;
    }
    if (used < count)
        return fail(ALIBI_BAD_INPUT, "'%s': part %zu is unknown, repeated or out of order", path,
                    used + 1);
    for (int i = 0; i < PARTS; i++)
        if (!m->parts[i].present && i != PART_OPTIMIZER && i != PART_STATE && i != PART_PRODUCTS)
            return fail(ALIBI_BAD_INPUT, "'%s' lacks the part '%s'", path, part_names[i]);
    if (m->parts[PART_OPTIMIZER].present != m->parts[PART_STATE].present)
        return fail(ALIBI_BAD_INPUT, "'%s' has only one of the parts '%s' and '%s'", path,
                    part_names[PART_OPTIMIZER], part_names[PART_STATE]);
    return ALIBI_OK;
}

alibi_status manifest_read(struct manifest *m, const char *folder)
{
    alibi_status status;
    char *path = NULL;
    json_t *json = NULL;
    struct manifest read = { 0 };
    int64_t format;

    TRY(path_join(&path, folder, NAME_MANIFEST));
    TRY(sealed_read(&json, path, MANIFEST_BYTES_MAX));
    TRY(json_get_int(json, "format", 1, INT64_MAX, &format, path));
    if (format != MANIFEST_FORMAT)
        TRY(fail(ALIBI_BAD_INPUT, "'%s' has format %lld; this version reads format %d", path,
                 (long long)format, MANIFEST_FORMAT));
    TRY(json_get_int(json, "step", 0, INT64_MAX, &read.step, path));
    TRY(read_parts(&read, json_object_get(json, "parts"), path));
    *m = read;
out:
    json_decref(json);
    mem_free(path);
    return status;
}

/* ---- verifying */

static struct range share_of(const struct part *part, int rank, int ranks)
{
    int64_t each = part->bytes / ranks, more = part->bytes % ranks;
    int64_t first = each * rank + (rank < more ? rank : more);

    return (struct range){ first, each + (rank < more) };
}

/* The checksum of the bytes of a part that a rank reads: an N-th of them. */
static alibi_status read_share(const struct part *part, const char *path, char *block, int rank,
                               int ranks, uint32_t *crc32)
{
    alibi_status status;
    struct file *f = NULL;
    struct range share = share_of(part, rank, ranks);

    TRY(file_open_read(&f, path));
    if (file_size(f) != part->bytes)
        TRY(fail(ALIBI_BAD_INPUT, "'%s' has %lld bytes; its manifest says %lld", path,
                 (long long)file_size(f), (long long)part->bytes));
    for (int64_t done = 0; done < share.count; done += BLOCK) {
        int64_t left = share.count - done, some = left < BLOCK ? left : BLOCK;
        TRY(file_read_at(f, block, (size_t)some, share.first + done));
        *crc32 = checksum(*crc32, block, (size_t)some);
    }
out:
    file_close(f);
    return status;
}

static alibi_status read_shares(const struct manifest *m, const char *folder, int rank, int ranks,
                                uint32_t crcs[PARTS])
{
    alibi_status status;
    char *block = NULL, *path = NULL;

    TRY(NEW_ARRAY(&block, BLOCK, "a block to verify"));
    for (int i = 0; i < PARTS; i++) {
        if (!m->parts[i].present)
            continue;
        TRY(path_join(&path, folder, part_names[i]));
        TRY(read_share(&m->parts[i], path, block, rank, ranks, &crcs[i]));
        mem_free(path);
        path = NULL;
    }
out:
    mem_free(path);
    mem_free(block);
    return status;
}

/* crcs [ranks][PARTS] */
static alibi_status compare_checksums(const struct manifest *m, const char *folder, int ranks,
                                      uint32_t (*crcs)[PARTS])
{
    for (int i = 0; i < PARTS; i++) {
        uint32_t crc = 0;
        for (int r = 0; r < ranks; r++)
            crc = checksum_join(crc, crcs[r][i], (size_t)share_of(&m->parts[i], r, ranks).count);
        if (m->parts[i].present && crc != m->parts[i].crc32)
            return fail(ALIBI_BAD_INPUT, "'%s/%s' is damaged: its checksum differs", folder,
                        part_names[i]);
    }
    return ALIBI_OK;
}

alibi_status manifest_verify(const struct manifest *m, const char *folder, alibi_comm *comm)
{
    alibi_status status;
    int rank = comm_rank(comm), ranks = comm_size(comm);
    uint32_t(*crcs)[PARTS] = NULL;

    status = NEW_ZERO_ARRAY(&crcs, ranks, "checksums");
    if (status == ALIBI_OK)
        status = read_shares(m, folder, rank, ranks, crcs[rank]);
    TRY(comm_agree(comm, status));
    TRY(comm_collect(comm, crcs, sizeof *crcs));
    TRY(comm_agree(comm, compare_checksums(m, folder, ranks, crcs)));
out:
    mem_free(crcs);
    return status;
}
