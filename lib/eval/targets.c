/* targets.c - the target tokens of a probe, and which of them repeat far text
 *
 * Targets are the same for every context. With the longest context C and blocks of T targets, a
 * document of n tokens has room for (n - C) / T blocks after its first C tokens. Documents get
 * equal numbers of blocks as far as they have room, and within a document its blocks are spread
 * evenly. All of it is a function of the text and the request. */
#include <math.h>
#include <string.h>

#include "eval/eval.h"

const char *const target_condition_names[] = { "own", "swapped", "window" };
const char *const target_kind_names[] = { "all", "repeats", "others" };

const char *alibi_reach_name(int reach, const char **rule)
{
    static const char *const verdicts[][2] = {
        [ALIBI_BREAKS] = { "breaks", "the loss with the longest context is above that with L by "
                                     "0.01 nats or more, shown at 95%" },
        [ALIBI_HOLDS] = { "holds", "neither" },
        [ALIBI_USES] = { "uses", "the gain of the longest context over L, the part of it lost when "
                                 "text beyond L is swapped for other text, and the part lost when "
                                 "attention is cut to the last L keys are each 0.005 nats or more, "
                                 "shown at 95%" },
    };

    if (reach < 0 || reach > ALIBI_USES)
        return NULL;
    if (rule != NULL)
        *rule = verdicts[reach][1];
    return verdicts[reach][0];
}

struct document {
    int64_t first, count; /* tokens within the span, its end token included */
    int64_t room, blocks;
};

struct documents {
    int64_t context, block; /* the longest one; targets of a block */
    struct document *at;    /* those with room */
    int64_t count, capacity;
    int64_t all, longest;
};

static alibi_status add_document(void *user, int64_t first, int64_t count, bool ended)
{
    struct documents *d = user;

    (void)ended; /* its end is a target like others */
    d->all++;
    d->longest = count > d->longest ? count : d->longest;
    if (count < d->context + d->block)
        return ALIBI_OK;
    TRY_RETURN(RESERVE_ARRAY(&d->at, &d->capacity, d->count + 1, "documents"));
    d->at[d->count++] = (struct document){ first, count, .room = (count - d->context) / d->block };
    return ALIBI_OK;
}

/* Blocks of all documents if none has more than `most`. */
static int64_t blocks_up_to(const struct documents *d, int64_t most)
{
    int64_t sum = 0;

    for (int64_t i = 0; i < d->count; i++)
        sum += d->at[i].room < most ? d->at[i].room : most;
    return sum;
}

/* Every document gets the same number of blocks, or as many as it has room for. The rest of the
 * `wanted` blocks goes to documents with more room, spread over the list. */
static void share_out(struct documents *d, int64_t wanted)
{
    int64_t low = 0, high = wanted, rest, open = 0, seen = 0;

    while (low < high) { /* the largest `low` that all documents can have */
        int64_t middle = low + (high - low + 1) / 2;

        if (blocks_up_to(d, middle) <= wanted)
            low = middle;
        else
            high = middle - 1;
    }
    rest = wanted - blocks_up_to(d, low);
    for (int64_t i = 0; i < d->count; i++)
        open += d->at[i].room > low;
    for (int64_t i = 0; i < d->count; i++) {
        bool more = d->at[i].room > low;

        d->at[i].blocks = more ? low : d->at[i].room;
        if (more && (seen + 1) * rest / open > seen * rest / open)
            d->at[i].blocks++;
        seen += more;
    }
}

static void place(struct targets *t, const struct documents *d)
{
    int64_t C = d->context, T = d->block;

    for (int64_t i = 0; i < d->count; i++) {
        const struct document *doc = &d->at[i];
        int64_t free = doc->count - C - T, gaps = doc->blocks - 1;

        for (int64_t k = 0; k < doc->blocks; k++)
            t->at[t->count++] = (struct target_block){
                .start = doc->first + C + (gaps > 0 ? k * free / gaps : free / 2),
                .document = t->documents,
                .other = -1,
            };
        t->documents += doc->blocks > 0;
    }
}

/* The block whose far context replaces that of block k: the first one of another document, searched
 * from half the list away; if there is only one document, one whose context does not overlap. */
static int64_t partner(const struct targets *t, int64_t k, int64_t C, int64_t T)
{
    for (int64_t j = 0; j < t->count; j++) {
        int64_t i = (k + t->count / 2 + j) % t->count;
        int64_t apart = t->at[i].start - t->at[k].start;

        if (t->documents > 1 ? t->at[i].document != t->at[k].document
                             : apart >= C + T || -apart >= C + T)
            return i;
    }
    return -1;
}

alibi_status targets_longest(int64_t *tokens, struct span span)
{
    struct documents d = { .context = INT64_MAX / 2 }; /* none has room */

    TRY_RETURN(span_documents(span, add_document, &d));
    *tokens = d.longest;
    return ALIBI_OK;
}

bool targets_trim(struct alibi_targets *targets, int64_t document)
{
    struct alibi_int_list *c = &targets->contexts;

    while (c->count > 0 && c->at[c->count - 1] + targets->block > document)
        c->count--;
    return c->count > 0 && c->at[c->count - 1] >= targets->length &&
           c->at[c->count - 1] >= targets->gram;
}

alibi_status targets_new(struct targets *t, struct span span, int64_t context, int64_t block,
                         int64_t blocks)
{
    alibi_status status;
    struct documents d = { .context = context, .block = block };
    int64_t room, wanted;

    *t = (struct targets){ 0 };
    TRY(span_documents(span, add_document, &d));
    if (d.count == 0)
        TRY(fail(ALIBI_BAD_INPUT,
                 "'%s' has no document of %lld tokens, for a context of %lld and %lld targets: "
                 "its longest has %lld; use smaller contexts or longer documents",
                 corpus_name(span.corpus), (long long)(context + block), (long long)context,
                 (long long)block, (long long)d.longest));
    room = blocks_up_to(&d, INT64_MAX);
    wanted = blocks < room ? blocks : room;
    TRY(NEW_ARRAY(&t->at, wanted, "target blocks"));
    share_out(&d, wanted);
    place(t, &d);
    t->short_documents = d.all - d.count;
    t->swappable = true;
    for (int64_t k = 0; k < t->count; k++) {
        int64_t i = partner(t, k, context, block);

        t->at[k].other = i < 0 ? -1 : t->at[i].start;
        t->swappable = t->swappable && i >= 0;
    }
out:
    mem_free(d.at);
    return status;
}

/* The nearest earlier place of the n-gram that ends at ids[at]; -1: there is none. */
static int64_t nearest_copy(const int32_t *ids, int64_t at, int64_t gram)
{
    for (int64_t j = at - 1; j >= gram - 1; j--)
        if (ids[j] == ids[at] &&
            memcmp(ids + j - gram + 1, ids + at - gram + 1, (size_t)(gram - 1) * sizeof *ids) == 0)
            return j;
    return -1;
}

void targets_mark(const int32_t *ids, int64_t context, int64_t near, int64_t block, int64_t gram,
                  bool *repeats)
{
    for (int64_t i = 0; i < block; i++) {
        int64_t j = nearest_copy(ids, context + i, gram);

        repeats[i] = j >= 0 && j < context - near;
    }
}

/* ---- losses by part */

/* Parts without targets of the kind say nothing about its error, and are not kept. */
static void add_part(struct alibi_eval_result *r, int64_t tokens, double nll)
{
    if (tokens == 0)
        return;
    r->part[r->parts++] = (struct alibi_eval_part){ tokens, nll };
    r->tokens += tokens;
    r->nll += nll;
}

void target_losses_set(struct target_losses *t, int context, int condition, const double (*nll)[2])
{
    for (int kind = 0; kind < ALIBI_TARGET_KINDS; kind++) {
        struct alibi_eval_result *r = &t->at[context][condition][kind];

        *r = (struct alibi_eval_result){ .length = t->request.contexts.at[context],
                                         .block = t->request.block,
                                         .blocks = t->blocks,
                                         .start = t->start,
                                         .available = t->available,
                                         .word_ppl = NAN,
                                         .bits_per_byte = NAN,
                                         .tokens_per_s = NAN };
        for (int k = 0; nll != NULL && k < t->parts; k++) {
            const int64_t *tokens = t->tokens[k];

            if (kind == ALIBI_ALL_TARGETS)
                add_part(r, tokens[0] + tokens[1], nll[k][0] + nll[k][1]);
            else
                add_part(r, tokens[kind == ALIBI_OTHERS], nll[k][kind == ALIBI_OTHERS]);
        }
        r->nll = r->tokens > 0 ? r->nll / (double)r->tokens : (double)NAN;
        r->ppl = exp(r->nll);
        r->standard_error = r->tokens > 0 ? parts_error(r->part, r->parts) : (double)NAN;
    }
}
