/* family.c - the families that are known, and the orders of rows that several of them have */
#include <string.h>

#include "exchange/exchange.h"

/* Those of ALiBi first; of several that can say the same, the first is written. */
static const struct family *const families[] = { &family_bloom,   &family_mpt,   &family_falcon,
                                                 &family_gpt2,    &family_neox,  &family_llama,
                                                 &family_mistral, &family_qwen2, &family_qwen3 };

enum { FAMILIES = sizeof families / sizeof *families };

const struct family *family_at(int index)
{
    return index >= 0 && index < FAMILIES ? families[index] : NULL;
}

const struct family *family_find(const char *name)
{
    for (int i = 0; i < FAMILIES; i++)
        if (strcmp(families[i]->name, name) == 0)
            return families[i];
    return NULL;
}

int64_t row_by_head(const struct alibi_config *c, int64_t row)
{
    int64_t D = c->width / c->heads, head = row / (3 * D), which = row / D % 3;

    return which * c->width + head * D + row % D;
}
