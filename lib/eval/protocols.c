/* protocols.c - the names of protocols, and the windows of those that other programs use
 *
 * t[0] .. t[N-1] is the text, L the length, S the stride. Rules as of the versions that were read
 * in November 2026:
 *
 *   stride      the guide "Perplexity of fixed-length models" of Hugging Face's transformers
 *   llama.cpp   tools/perplexity of llama.cpp, without --ppl-stride
 *   rolling     get_rolling_token_windows and loglikelihood_rolling of lm-evaluation-harness, with
 *               its context of 1
 *
 * docs/evaluation.md has the rules in full. */
#include <stdlib.h>

#include "eval/eval.h"

static const struct alibi_protocol_info protocols[] = {
    [ALIBI_NONOVERLAPPING] = { "nonoverlapping",
                               "the first of a window has one token of context; the first of the "
                               "text is not scored",
                               "scored tokens", false },
    [ALIBI_SLIDING] = { "sliding", "the first of the text is not scored", "scored tokens", true },
    [ALIBI_STREAM] = { "stream", "the first of the text is not scored", "scored tokens", false },
    [ALIBI_STRIDE] = { "stride", "the first of the text is not scored",
                       "scored tokens, one less for each window after the first", true },
    [ALIBI_LLAMA_CPP] = { "llama.cpp",
                          "a chunk begins with the begin or end token, if any, and its first half "
                          "is not scored",
                          "scored tokens", false },
    [ALIBI_ROLLING] = { "rolling",
                        "a document begins after the begin or end token, and its first token is "
                        "scored",
                        "scored tokens; words and bytes of the documents", false },
};

const struct alibi_protocol_info *alibi_protocol_view(int protocol)
{
    int count = sizeof protocols / sizeof *protocols;

    return protocol >= 0 && protocol < count ? &protocols[protocol] : NULL;
}

bool protocol_is_foreign(int protocol)
{
    return protocol == ALIBI_STRIDE || protocol == ALIBI_LLAMA_CPP || protocol == ALIBI_ROLLING;
}

/* Shorter windows would score nothing. */
int64_t protocol_least_length(int protocol)
{
    return protocol == ALIBI_LLAMA_CPP ? 3 : protocol == ALIBI_STRIDE ? 2 : 1;
}

/* The tokens that are read. */
static int64_t text_tokens(struct span span, const struct alibi_eval *e)
{
    return e->tokens > 0 && e->tokens < span.count ? e->tokens : span.count;
}

/* Whether the tokens from `first` on start with the begin token. */
static bool has_begin(struct span span, int64_t first)
{
    int32_t begin = alibi_tokenizer_begin(corpus_tokenizer(span.corpus)), id = -1;

    if (begin >= 0 && first < span.count)
        span_read(span, first, 1, &id);
    return begin >= 0 && id == begin;
}

alibi_status protocol_check_text(struct span span, const struct alibi_eval *e)
{
    bool starts = tokenizer_start(corpus_tokenizer(span.corpus)) >= 0;
    int64_t tokens = text_tokens(span, e), least = 1;

    if (e->protocol == ALIBI_ROLLING && !starts)
        return fail(ALIBI_BAD_INPUT,
                    "protocol rolling puts a begin or end-of-document token before a document, and "
                    "the tokenizer has none; use another protocol");
    if (e->protocol == ALIBI_STRIDE)
        least = e->length;
    if (e->protocol == ALIBI_LLAMA_CPP) /* two chunks, as the program itself wants */
        least =
            e->length > INT64_MAX / 2 ? INT64_MAX : 2 * e->length - (starts && !has_begin(span, 0));
    if (tokens < least)
        return fail(ALIBI_BAD_INPUT,
                    "'%s': protocol %s at length %lld takes %lld tokens, there are %lld",
                    corpus_name(span.corpus), protocols[e->protocol].name, (long long)e->length,
                    (long long)least, (long long)tokens);
    return ALIBI_OK;
}

static alibi_status add(struct windows *w, struct window window)
{
    window.index = window.start + 1 + window.first;
    TRY_RETURN(RESERVE_ARRAY(&w->list, &w->capacity, w->count + 1, "windows"));
    w->list[w->count++] = window;
    w->scored += window.inputs - window.first;
    return ALIBI_OK;
}

/* Window [a, end) has end - a - 1 inputs with a target. The guide takes the mean of the targets
 * that no window before had, and counts it for as many targets less one, because in a window
 * without context the first target is lost; in all others nothing is lost. A window of one token
 * has no target, and the guide's own sum would not be a number. */
static alibi_status add_strides(struct windows *w, int64_t N)
{
    int64_t last = 0;

    for (int64_t a = 0, end; last < N; a += w->stride, last = end) {
        end = a + w->length < N ? a + w->length : N;
        if (end - a > 1)
            TRY_RETURN(add(w, (struct window){ .start = a,
                                               .inputs = end - a - 1,
                                               .first = last > a ? last - a - 1 : 0,
                                               .uncounted = last > a }));
    }
    return ALIBI_OK;
}

/* The text begins with the begin token, or else the end token, and in every chunk of L tokens that
 * token replaces the first one. `from` is 0 if the text has the token already, otherwise -1. The
 * rest of the text, less than a chunk, is not read. */
static alibi_status add_chunks(struct windows *w, int64_t from, int64_t N, bool begins)
{
    for (int64_t a = from; a + w->length <= N; a += w->length)
        TRY_RETURN(add(w, (struct window){ .start = a,
                                           .inputs = w->length - 1,
                                           .first = w->length / 2,
                                           .begins = begins }));
    return ALIBI_OK;
}

/* White space at the ends of a document: the harness counts the pieces between white space, so the
 * first or the last piece is then empty. */
static int64_t empty_words(struct span s, int64_t first, int64_t count)
{
    const alibi_tokenizer *t = corpus_tokenizer(s.corpus);
    int32_t ids[2];
    size_t bytes[2];
    const char *text[2];

    span_read(s, first, 1, &ids[0]);
    span_read(s, first + count - 1, 1, &ids[1]);
    for (int i = 0; i < 2; i++)
        text[i] = tokenizer_bytes(t, ids[i], &bytes[i]);
    if (tokenizer_drops_blank(t) && bytes[0] > 0) { /* a blank that is not in the text */
        bool alone = bytes[0] == 1 && count > 1;
        if (alone)
            span_read(s, first + 1, 1, &ids[0]);
        text[0] = alone ? tokenizer_bytes(t, ids[0], &bytes[0]) : text[0] + 1;
        bytes[0] -= !alone;
    }
    return (bytes[0] > 0 && is_white_space(text[0][0])) +
           (bytes[1] > 0 && is_white_space(text[1][bytes[1] - 1]));
}

struct rolling {
    struct windows *windows;
    struct span span;
};

/* The first window has the begin token, or the end token of the previous document, and the first
 * L - 1 tokens. Each of the others scores the next L targets, the last one those that remain, with
 * as many tokens of context as there is room for. */
static alibi_status add_document(void *user, int64_t first, int64_t count, bool ended)
{
    const struct rolling *r = user;
    struct windows *w = r->windows;
    bool begun = has_begin(r->span, first);
    int64_t n = count - ended - begun, L = w->length;

    if (n <= 0)
        return ALIBI_OK;
    first += begun;
    w->extra_words += empty_words(r->span, first, n);
    TRY_RETURN(
        add(w, (struct window){ .start = first - 1, .inputs = n < L ? n : L, .begins = true }));
    for (int64_t done = L, more; done < n; done += more) {
        more = n - done < L ? n - done : L;
        TRY_RETURN(add(w, (struct window){ .start = first + done + more - L - 1,
                                           .inputs = L,
                                           .first = L - more }));
    }
    return ALIBI_OK;
}

/* Windows with the same number of inputs are evaluated together. */
static int longest_first(const void *left, const void *right)
{
    const struct window *a = left, *b = right;

    if (a->inputs != b->inputs)
        return a->inputs < b->inputs ? 1 : -1;
    return (a->start > b->start) - (a->start < b->start);
}

alibi_status protocol_windows(struct windows *w, struct span span, const struct alibi_eval *e)
{
    bool starts = tokenizer_start(corpus_tokenizer(span.corpus)) >= 0;
    int64_t N = text_tokens(span, e);
    struct rolling rolling = { w, { span.corpus, span.first, N } };

    *w = (struct windows){ .length = e->length,
                           .stride = e->protocol == ALIBI_STRIDE ? e->stride : e->length,
                           .blocks = { .all = span.count, .size = N, .count = 1 } };
    if (e->protocol == ALIBI_STRIDE)
        return add_strides(w, N);
    if (e->protocol == ALIBI_LLAMA_CPP)
        return add_chunks(w, starts && !has_begin(span, 0) ? -1 : 0, N, starts);
    TRY_RETURN(span_documents(rolling.span, add_document, &rolling));
    qsort(w->list, (size_t)w->count, sizeof *w->list, longest_first);
    return ALIBI_OK;
}
