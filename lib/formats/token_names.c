/* token_names.c - from a token's name to its id */
#include "formats/token_names.h"

#include <stdlib.h>
#include <string.h>

/* FNV-1a, continued from `hash`. */
static uint64_t hash_more(uint64_t hash, struct slice s)
{
    for (size_t i = 0; i < s.bytes; i++)
        hash = (hash ^ (unsigned char)s.at[i]) * 0x100000001B3ull;
    return hash;
}

/* The last bytes hardly reach the leading bits of FNV-1a; another multiplication spreads them. */
static uint64_t hash_pair(struct slice left, struct slice right)
{
    uint64_t hash = hash_more(hash_more(0xCBF29CE484222325ull, left), right);

    return (hash ^ hash >> 32) * 0x9E3779B97F4A7C15ull;
}

static int compare_bytes(const char *a, const char *b, size_t bytes)
{
    return bytes > 0 ? memcmp(a, b, bytes) : 0;
}

/* The name against left + right; by length first. */
static int compare_to_pair(struct slice name, struct slice left, struct slice right)
{
    int order;

    if (name.bytes != left.bytes + right.bytes)
        return name.bytes < left.bytes + right.bytes ? -1 : 1;
    order = compare_bytes(name.at, left.at, left.bytes);
    return order != 0 ? order : compare_bytes(name.at + left.bytes, right.at, right.bytes);
}

static int compare_names(const void *a, const void *b)
{
    const struct token_name *s = a, *t = b;

    if (s->hash != t->hash)
        return s->hash < t->hash ? -1 : 1;
    return compare_to_pair(s->name, t->name, (struct slice){ 0 });
}

static int bits_for(int64_t count)
{
    int bits = 1;

    while ((int64_t)1 << bits < count)
        bits++;
    return bits;
}

static alibi_status make_index(struct token_names *n)
{
    int64_t at = 0;

    n->bits = bits_for(n->count);
    TRY_RETURN(NEW_ARRAY(&n->starts, ((int64_t)1 << n->bits) + 1, "the names of tokens"));
    for (int64_t lead = 0; lead <= (int64_t)1 << n->bits; lead++) {
        while (at < n->count && (int64_t)(n->at[at].hash >> (64 - n->bits)) < lead)
            at++;
        n->starts[lead] = (int32_t)at;
    }
    return ALIBI_OK;
}

alibi_status token_names_sort(struct token_names *n, const char *path)
{
    for (int64_t i = 0; i < n->count; i++)
        n->at[i].hash = hash_pair(n->at[i].name, (struct slice){ 0 });
    if (n->count > 0)
        qsort(n->at, (size_t)n->count, sizeof *n->at, compare_names);
    for (int64_t i = 1; i < n->count; i++)
        if (compare_names(&n->at[i - 1], &n->at[i]) == 0)
            return fail(ALIBI_BAD_INPUT, "cannot read '%s': the token '%.80s' is repeated", path,
                        n->at[i].name.at);
    return make_index(n);
}

int32_t token_names_find(const struct token_names *n, struct slice left, struct slice right)
{
    uint64_t hash = hash_pair(left, right);
    int32_t low = n->starts[hash >> (64 - n->bits)], high = n->starts[(hash >> (64 - n->bits)) + 1];

    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        const struct token_name *t = &n->at[middle];
        int order =
            t->hash != hash ? (t->hash < hash ? -1 : 1) : compare_to_pair(t->name, left, right);
        if (order == 0)
            return t->id;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return -1;
}

void token_names_fini(struct token_names *n)
{
    mem_free(n->at);
    mem_free(n->starts);
}
