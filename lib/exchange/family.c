/* family.c - the families that are known, and the orders of rows that several of them have */
#include <string.h>

#include "exchange/exchange.h"

/* Families with ALiBi first; if several can represent a model, the first is written. */
static const struct family *const families[] = { &family_bloom,   &family_mpt,   &family_falcon,
                                                 &family_gpt2,    &family_neox,  &family_llama,
                                                 &family_mistral, &family_qwen2, &family_qwen3 };

const struct family *family_at(int index)
{
    return index >= 0 && index < COUNT(families) ? families[index] : NULL;
}

alibi_status family_find(const struct family **out, family_at_fn *at, const char *name,
                         const char *what, const char *path)
{
    struct text known = { 0 };
    alibi_status status;

    *out = NULL;
    for (int i = 0; at(i) && !*out; i++) {
        if (strcmp(at(i)->name, name) == 0)
            *out = at(i);
        text_append(&known, "%s%s", i > 0 ? ", " : "", at(i)->name);
    }
    status = *out ? ALIBI_OK : text_status(&known);
    if (!*out && status == ALIBI_OK)
        status = fail(ALIBI_BAD_INPUT, "'%s': the %s '%.60s' is not known; these are: %s", path,
                      what, name, known.data);
    text_free(&known);
    return status;
}

int64_t row_by_head(const struct model *outline, int64_t row)
{
    const struct alibi_config *c = &outline->config;
    int64_t D = c->width / c->heads, head = row / (3 * D), which = row / D % 3;

    return which * c->width + head * D + row % D;
}
