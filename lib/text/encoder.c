/* encoder.c - what one thread needs to encode texts in parts
 *
 * What a stretch is and where it may be cut is the affair of each kind of tokenizer; here is only
 * what all have. */
#include "text/tokenizer.h"

struct encoder {
    const alibi_tokenizer *tokenizer;
    void *state;
};

alibi_status encoder_new_for(struct encoder **out, const alibi_tokenizer *t, size_t bytes)
{
    alibi_status status;
    struct encoder *e = NULL;

    TRY(NEW_ZERO_ARRAY(&e, 1, "an encoder"));
    e->tokenizer = t;
    if (t->kind->state_new != NULL)
        TRY(t->kind->state_new(&e->state, t, bytes));
    *out = e;
    e = NULL;
out:
    encoder_free(e);
    return status;
}

alibi_status encoder_new(struct encoder **out, const alibi_tokenizer *t)
{
    return encoder_new_for(out, t, SIZE_MAX);
}

void encoder_free(struct encoder *e)
{
    if (e == NULL)
        return;
    if (e->state != NULL)
        e->tokenizer->kind->state_free(e->state);
    mem_free(e);
}

alibi_status encoder_run(struct encoder *e, const struct stretch *s, struct ids *ids,
                         size_t *reached)
{
    return e->tokenizer->kind->run(e->tokenizer, e->state, s, ids, reached);
}

alibi_status encoder_end(struct encoder *e, struct slice document_tail, struct ids *ids)
{
    return e->tokenizer->kind->end(e->tokenizer, document_tail, ids);
}

alibi_status tokenizer_append_end(const alibi_tokenizer *t, struct slice tail, struct ids *ids)
{
    (void)tail;
    return ids_append(ids, &t->end, 1);
}
