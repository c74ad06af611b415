/* train_cells.c - the distinct pieces of a text, laid out for merging (train_bpe.h) */
#include <stdlib.h>

#include "text/train_bpe.h"

static int by_falling_count(const void *left, const void *right)
{
    const struct piece *a = left, *b = right;

    return (a->count < b->count) - (a->count > b->count);
}

/* One cell for each byte, and one for each border. */
static alibi_status count_cells(int64_t *cells, const struct tally *t)
{
    size_t total = tally_bytes(t) + (size_t)tally_count(t) + 1;

    if (total >= CELL_NONE)
        return fail(ALIBI_MEMORY, "not enough memory for a text of %zu bytes in distinct pieces",
                    tally_bytes(t));
    *cells = (int64_t)total;
    return ALIBI_OK;
}

static int64_t count_groups(const struct piece *pieces, int64_t count)
{
    int64_t groups = 0;

    for (int64_t i = 0; i < count; i++)
        groups += i == 0 || pieces[i].count != pieces[i - 1].count;
    return groups;
}

static void fill(struct cells *c, const struct piece *pieces, int64_t count,
                 const uint32_t *symbols)
{
    int64_t n = 0;

    for (int64_t i = 0; i < count; i++) {
        if (i == 0 || pieces[i].count != pieces[i - 1].count)
            c->groups[c->group_count++] = (struct weight_group){ (uint32_t)n, pieces[i].count };
        c->at[n++] = CELL_NONE;
        for (uint32_t k = 0; k < pieces[i].bytes; k++)
            c->at[n++] = symbols[(unsigned char)pieces[i].at[k]];
    }
    c->at[n++] = CELL_NONE;
    c->count = n;
}

static void index_groups(struct cells *c)
{
    int64_t g = 0;

    for (int64_t i = 0; i <= c->count >> GROUP_SHIFT; i++) {
        while (g + 1 < c->group_count && c->groups[g + 1].first <= i << GROUP_SHIFT)
            g++;
        c->group_of[i] = (uint32_t)g;
    }
}

alibi_status cells_init(struct cells *c, const struct tally *t, const uint32_t *symbols)
{
    alibi_status status;
    struct piece *pieces = NULL;
    int64_t count = 0, cells = 0;

    TRY(tally_list(t, &pieces, &count));
    qsort(pieces, (size_t)count, sizeof *pieces, by_falling_count);
    TRY(count_cells(&cells, t));
    TRY(NEW_ARRAY(&c->at, cells, "the text as symbols"));
    TRY(NEW_ARRAY(&c->groups, count_groups(pieces, count), "the counts of pieces"));
    TRY(NEW_ARRAY(&c->group_of, (cells >> GROUP_SHIFT) + 1, "the counts of pieces"));
    fill(c, pieces, count, symbols);
    index_groups(c);
out:
    mem_free(pieces);
    return status;
}

void cells_fini(struct cells *c)
{
    mem_free(c->at);
    mem_free(c->groups);
    mem_free(c->group_of);
}
