/* arena.c - memory in chunks, each filled from its start; a large piece has a chunk of its own */
#include "base/arena.h"

enum { ALIGNMENT = 8, CHUNK_BYTES = 64 << 10, LARGE_SHARE = 8 };

struct arena_chunk {
    struct arena_chunk *before;
    size_t used, bytes;
    _Alignas(ALIGNMENT) char memory[];
};

static alibi_status new_chunk(struct arena_chunk **out, size_t bytes, const char *what)
{
    size_t total = 0;
    struct arena_chunk *chunk = NULL;

    if (!size_add(&total, bytes, sizeof *chunk))
        return fail(ALIBI_MEMORY, "not enough memory for %s: %zu bytes needed", what, bytes);
    TRY_RETURN(mem_new((void **)&chunk, total, what));
    *chunk = (struct arena_chunk){ .bytes = bytes };
    *out = chunk;
    return ALIBI_OK;
}

alibi_status arena_new(struct arena *a, void **out, size_t bytes, const char *what)
{
    size_t chunk_bytes = a->chunk_bytes > 0 ? a->chunk_bytes : CHUNK_BYTES;
    size_t rounded = bytes / ALIGNMENT * ALIGNMENT + (bytes % ALIGNMENT > 0 ? ALIGNMENT : 0);
    struct arena_chunk *chunk = NULL;

    if (bytes > chunk_bytes / LARGE_SHARE) {
        /* Linked before the last chunk, which is filled further. */
        struct arena_chunk **link = a->last != NULL ? &a->last->before : &a->last;
        TRY_RETURN(new_chunk(&chunk, bytes, what));
        chunk->used = bytes;
        chunk->before = *link;
        *link = chunk;
        *out = chunk->memory;
        return ALIBI_OK;
    }
    if (a->last == NULL || a->last->bytes - a->last->used < rounded) {
        TRY_RETURN(new_chunk(&chunk, chunk_bytes, what));
        chunk->before = a->last;
        a->last = chunk;
    }
    *out = a->last->memory + a->last->used;
    a->last->used += rounded;
    return ALIBI_OK;
}

void arena_fini(struct arena *a)
{
    while (a->last != NULL) {
        struct arena_chunk *before = a->last->before;
        mem_free(a->last);
        a->last = before;
    }
}
