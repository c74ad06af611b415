/* train_bpe.h - the two tables of BPE training: the text as symbols (train_cells.c), and its pairs
 * (train_pairs.c) */
#ifndef TRAIN_BPE_H
#define TRAIN_BPE_H

#include "text/vocabulary.h"

/* ---- the text
 *
 * Every distinct piece once, a cell for each of its bytes, a border before it and behind it. A
 * symbol of n bytes covers n cells, of which the first and the last hold its id and the others
 * nothing: so from a symbol's first cell the next symbol is n cells on, and from the cell before it
 * the one before. Pieces stand in the order of falling counts, so that where a cell is says how
 * often its piece occurs. */
#define CELL_NONE UINT32_MAX /* a border, or within a symbol */

struct weight_group {
    uint32_t first; /* cell, from which on pieces occur */
    int64_t count;  /* so often */
};

struct cells {
    uint32_t *at;
    int64_t count;
    struct weight_group *groups;
    int64_t group_count;
    uint32_t *group_of; /* of the cell i << GROUP_SHIFT */
};
enum { GROUP_SHIFT = 6 };

/* symbols [256]: the id of each byte. */
alibi_status cells_init(struct cells *c, const struct tally *t, const uint32_t *symbols);
void cells_fini(struct cells *c); /* start from {0} */

static inline int64_t cells_weight(const struct cells *c, uint32_t cell)
{
    int64_t g = c->group_of[cell >> GROUP_SHIFT];

    while (g + 1 < c->group_count && c->groups[g + 1].first <= cell)
        g++;
    return c->groups[g].count;
}

/* ---- pairs of neighbours */

struct pair {
    uint64_t key;     /* left id, right id: in the order in which ties are broken */
    int64_t count;    /* occurrences, weighted by those of the pieces */
    uint32_t *places; /* first cells of all occurrences, ascending, and of some that are no more */
    int64_t place_count;
};

static inline uint64_t pair_key(uint32_t left, uint32_t right)
{
    return (uint64_t)left << 32 | right;
}

/* A pair in the heap, with the count that it had when it came there. Counts only fall: one that
 * comes out with a count that is no longer true goes back with the true one. */
struct candidate {
    int64_t count;
    uint64_t key;
    uint32_t pair;
};

struct pairs {
    struct pair *at;
    int64_t count, capacity;
    uint32_t *slots; /* open addressing: 1 + index of a pair, 0 is free */
    uint32_t mask;
    struct arena places;
    struct candidate *heap;
    int64_t heap_count, heap_capacity;
};

void pairs_fini(struct pairs *p); /* start from {0} */
/* A pair that is not there yet; its places are to be filled in by the caller. */
alibi_status pairs_add(struct pairs *p, uint64_t key, int64_t count, int64_t place_count,
                       uint32_t **places);
/* A pair that is not there, because it was too rare from the start, is passed over. */
void pairs_subtract(struct pairs *p, uint64_t key, int64_t count);
/* The most frequent pair, of equals the one with the lowest ids, NULL if none occurs min_count
 * times. It leaves the table's consideration. Lent until the next pairs_add. */
struct pair *pairs_take_best(struct pairs *p, int64_t min_count);

#endif
