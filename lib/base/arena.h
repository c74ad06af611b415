/* arena.h - many small pieces of memory that are freed together */
#ifndef ARENA_H
#define ARENA_H

#include "base/base.h"

struct arena_chunk;

/* Start from {0}. For one thread at a time. */
struct arena {
    struct arena_chunk *last;
    size_t chunk_bytes; /* asked for at a time; 0: 64 KiB */
};

/* Aligned to 8 bytes. */
alibi_status arena_new(struct arena *a, void **out, size_t bytes, const char *what);
void arena_fini(struct arena *a);

#endif
