/* tasks.c - windows whose answers only far context determines
 *
 * All tasks but the last hide something in a haystack and ask for it at the end. |answers|:
 *
 *   passkey     ... The pass key is 41852. ...      The pass key is |41852|
 *   needles     ... [note] a b v ... [note] c b w ...   [ask] c b |w| [ask] a b |v|
 *   latest      ... [write] v ... [write] w ...         [ask] |w|
 *   recall      ~~~ [pairs] a v b w c u ~~~             [ask] b |w| [ask] a |v|
 *   induction   ~~~ [copy] a b c d ~~~                  [copy] |a b c d|
 *   markov      [chain] |s s s s s s ...|
 *
 * The haystack is text (...), for passkey-filler five sentences again and again, or noise (~~~),
 * symbols that have no other use. Marks and symbols are the last ids of the vocabulary: the rarest
 * words or merges, or bytes that do not occur in text. The amount hidden depends on the training
 * length, not on the length of the window, so that a longer window is the same task at a larger
 * distance; only needles-growing hides more.
 *
 * The chain has k states, and every window has another transition matrix, whose rows are drawn from
 * a symmetric Dirichlet distribution. Given the tokens so far, with c_ij transitions from i to j,
 *
 *   p(j | i) = (c_ij + a) / (c_i + k a)
 *
 * is the best possible prediction. Drawing each token from it gives the same distribution of
 * windows as drawing the matrix first (Polya's urn), so the matrix is never needed. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "text/tasks.h"

enum haystack { NO_HAY, TEXT_HAY, FILLER_HAY, NOISE_HAY };
enum mark { ASK, NOTE, WRITE, PAIRS, COPY, CHAIN, MARKS };
enum { DIGITS = 5, SYMBOLS = 32, NEEDLES = 4, NEEDLES_MAX = SYMBOLS * SYMBOLS, STATES_MAX = 32 };
enum { WRITES_MAX = 6, PAIRS_MAX = 64, QUERIES = 8 };

static const double prior = 0.25; /* a */
static const char sentence[] = "\nThe pass key is ";

/* The purpose of a random number of a window. */
enum draw { DRAW_GAP, DRAW_KEY, DRAW_VALUE, DRAW_HAY, DRAW_COUNT, DRAW_ASKED };

/* Numbers of symbols, and of things that are hidden: at most, of writes and pairs. */
struct sizes {
    int64_t noise, values, keys, span, states;
    int64_t needles, writes, pairs, copied;
};

struct window {
    const struct task_windows *w;
    struct sizes size;
    uint64_t key; /* of its random numbers */
    double depth; /* of what is hidden, if it is one thing */
    int64_t hay;  /* tokens of the haystack */
    int64_t from; /* the first of them within the text */
    int64_t used; /* how many are in the window */
    int32_t first;
    int32_t *targets; /* the tokens after the first */
    int64_t count;    /* of tokens */
    struct task_answer *answers;
    int answer_count;
};

static void hide_passkey(struct window *x);
static void hide_needles(struct window *x);
static void hide_writes(struct window *x);
static void hide_pairs(struct window *x);
static void hide_copy(struct window *x);
static void run_chain(struct window *x);

static const struct kind {
    const char *name, *summary;
    enum haystack haystack;
    int64_t symbols; /* at least */
    bool whole;      /* an answer is right or wrong as a whole */
    void (*fill)(struct window *x);
} kinds[] = {
    { "passkey", "a key of five digits in text", TEXT_HAY, 0, true, hide_passkey },
    { "passkey-filler", "the same between five sentences that repeat", FILLER_HAY, 0, true,
      hide_passkey },
    { "needles", "four keys of two symbols in text, each with a value", TEXT_HAY, 2, true,
      hide_needles },
    { "needles-growing", "the same with four keys for each training length of text", TEXT_HAY, 2,
      true, hide_needles },
    { "latest", "a value in text that is written several times; the last one counts", TEXT_HAY, 2,
      true, hide_writes },
    { "recall", "the values of keys from a list of pairs, after noise", NOISE_HAY, 5, true,
      hide_pairs },
    { "induction", "the copy of a span of symbols, after noise", NOISE_HAY, 3, false, hide_copy },
    { "markov", "a chain with transitions of its own, against Bayes' loss", NO_HAY, 2, false,
      run_chain },
};
enum { PASSKEY, PASSKEY_FILLER, TASK_NEEDLES, TASK_GROWING, LATEST, RECALL, INDUCTION, MARKOV };
enum { KINDS = COUNT(kinds) };

struct task {
    int kind;
    int64_t vocab;
    int32_t end;
    struct ids before, after; /* the pass key: its sentence */
    int32_t digit[10];
    struct ids filler;
};

const char *alibi_task_name(int index, const char **summary)
{
    if (index < 0 || index >= KINDS)
        return NULL;
    if (summary)
        *summary = kinds[index].summary;
    return kinds[index].name;
}

int task_find(const char *name)
{
    const char *names[KINDS];

    for (int i = 0; i < KINDS; i++)
        names[i] = kinds[i].name;
    return name_index(name, names, KINDS);
}

alibi_status task_named(int *kind, const char *name)
{
    struct text names = { 0 };
    const char *each;
    alibi_status status;

    *kind = task_find(name);
    if (*kind >= 0)
        return ALIBI_OK;
    for (int i = 0; (each = alibi_task_name(i, NULL)) != NULL; i++)
        text_append(&names, "%s%s", i > 0 ? ", " : "", each);
    status = text_status(&names);
    if (status == ALIBI_OK)
        status = fail(ALIBI_USAGE, "no task '%s'; there are %s", name, names.data);
    text_free(&names);
    return status;
}

/* ---- ids */

static int64_t symbol_count(const struct task *t)
{
    return t->vocab - (t->end >= 0) - MARKS;
}

/* From the end of the vocabulary, without the id that ends a document. */
static int32_t id_from_end(const struct task *t, int64_t rank)
{
    int32_t id = (int32_t)(t->vocab - 1 - rank);

    return t->end >= 0 && id <= t->end ? id - 1 : id;
}

static int32_t mark(const struct task *t, enum mark which)
{
    return id_from_end(t, which);
}

static int32_t symbol(const struct task *t, int64_t i)
{
    return id_from_end(t, MARKS + i);
}

static int64_t clamp(int64_t x, int64_t least, int64_t most)
{
    return x < least ? least : x > most ? most : x;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* How many symbols there are of each kind, L/8 to 32 as the vocabulary allows, and how much is
 * hidden. Noise has symbols 0..noise-1; values and keys follow. */
static struct sizes sizes_of(const struct task_windows *w)
{
    int64_t symbols = symbol_count(w->task), near = w->near;
    int64_t values = clamp(w->task->kind == RECALL ? symbols / 4 : symbols, 2, SYMBOLS);
    struct sizes z;

    z.noise = clamp(near / 8, 1, clamp(symbols / 4, 1, SYMBOLS));
    z.values = clamp(near / 8, smaller(values, 8), values);
    z.keys = clamp(near / 4, 2, clamp(symbols - z.noise - z.values, 2, 2 * PAIRS_MAX));
    z.span = clamp(near / 2, 2, clamp(symbols - z.noise, 2, 2 * TASK_ANSWER_TOKENS));
    z.states = clamp(near / 32, 2, smaller(symbols, STATES_MAX));

    z.needles = clamp(near / 16, 1, NEEDLES);
    if (w->task->kind == TASK_GROWING && w->length > near)
        z.needles *= w->length / near;
    z.writes = clamp(near / 8, 2, WRITES_MAX);
    z.pairs = clamp(near / 8, 1, smaller(z.keys, PAIRS_MAX));
    z.copied = clamp(near / 4, 1, smaller(z.span, TASK_ANSWER_TOKENS));
    return z;
}

/* The most tokens of a window that are not haystack. */
static int64_t fixed_tokens(const struct task *t, const struct sizes *z)
{
    switch (t->kind) {
    case PASSKEY:
    case PASSKEY_FILLER:
        return 2 * (t->before.count + DIGITS) + t->after.count;
    case TASK_NEEDLES:
    case TASK_GROWING:
        return 4 * z->needles + 4 * smaller(z->needles, NEEDLES);
    case LATEST:
        return 2 * z->writes + 2;
    case RECALL:
        return 1 + 2 * z->pairs + 3 * smaller(z->pairs, QUERIES);
    case INDUCTION:
        return 2 * (1 + z->copied);
    default:
        return 1;
    }
}

/* ---- a task for a tokenizer */

/* Digits are ids of their own, however the tokenizer would cut a number. */
static alibi_status find_digits(struct task *t, const alibi_tokenizer *tokenizer)
{
    alibi_status status = ALIBI_OK;
    struct ids ids = { 0 };

    for (int i = 0; i < 10; i++) {
        const char digit = (char)('0' + i), *text = NULL;
        size_t bytes = 0;

        ids.count = 0;
        TRY(tokenizer_encode_more(tokenizer, &digit, 1, &ids));
        if (ids.count == 1)
            text = tokenizer_bytes(tokenizer, ids.at[0], &bytes);
        if (bytes == 0 || text[0] != digit)
            TRY(fail(ALIBI_BAD_INPUT,
                     "task '%s' needs a token for each digit, and the tokenizer has none of its "
                     "own for '%c'",
                     kinds[t->kind].name, digit));
        t->digit[i] = ids.at[0];
    }
out:
    mem_free(ids.at);
    return status;
}

static alibi_status encode(struct ids *ids, const alibi_tokenizer *tokenizer, const char *text)
{
    return tokenizer_encode_more(tokenizer, text, strlen(text), ids);
}

/* Whether the ids have all letters of the text: a word that is not in the vocabulary has not. */
static bool is_known(const struct ids *ids, const alibi_tokenizer *tokenizer, const char *text)
{
    for (int64_t i = 0; i < ids->count; i++) {
        size_t count;
        const char *bytes = tokenizer_bytes(tokenizer, ids->at[i], &count);

        for (size_t k = 0; k < count; k++) {
            if (is_white_space(bytes[k]))
                continue;
            while (is_white_space(*text))
                text++;
            if (*text == '\0' || *text++ != bytes[k])
                return false;
        }
    }
    while (is_white_space(*text))
        text++;
    return *text == '\0';
}

alibi_status task_new(struct task **out, int kind, const alibi_tokenizer *tokenizer)
{
    alibi_status status;
    struct task *t = NULL;

    TRY(NEW_ZERO_ARRAY(&t, 1, "a task"));
    t->kind = kind;
    t->vocab = alibi_tokenizer_vocab(tokenizer);
    t->end = alibi_tokenizer_end(tokenizer);
    if (kinds[kind].symbols > 0 && symbol_count(t) < kinds[kind].symbols)
        TRY(fail(ALIBI_BAD_INPUT,
                 "task '%s' needs a vocabulary of at least %lld ids; the tokenizer has %lld",
                 kinds[kind].name, (long long)(kinds[kind].symbols + MARKS + (t->end >= 0)),
                 (long long)t->vocab));
    if (kinds[kind].fill == hide_passkey) {
        TRY(find_digits(t, tokenizer));
        TRY(encode(&t->before, tokenizer, sentence));
        TRY(encode(&t->after, tokenizer, ".\n"));
        if (!is_known(&t->before, tokenizer, sentence))
            TRY(fail(ALIBI_BAD_INPUT,
                     "task '%s' needs the words 'The pass key is', and the tokenizer does not know "
                     "all of them",
                     kinds[kind].name));
    }
    if (kinds[kind].haystack == FILLER_HAY)
        TRY(encode(&t->filler, tokenizer,
                   "The grass is green. The sky is blue. The sun is yellow. Here we go. There and "
                   "back again. "));
    *out = t;
    t = NULL;
out:
    task_free(t);
    return status;
}

void task_free(struct task *t)
{
    if (t == NULL)
        return;
    mem_free(t->before.at);
    mem_free(t->after.at);
    mem_free(t->filler.at);
    mem_free(t);
}

int task_kind(const struct task *t)
{
    return t->kind;
}

bool task_kind_needs_text(int kind)
{
    return kinds[kind].haystack == TEXT_HAY;
}

struct task_traits task_traits(const struct task *t)
{
    bool text = task_kind_needs_text(t->kind), chain = t->kind == MARKOV;

    return (struct task_traits){ .has_depth = kinds[t->kind].haystack != NO_HAY,
                                 .trains_all = text || chain,
                                 .answers_whole = kinds[t->kind].whole,
                                 .chain = chain };
}

alibi_status task_check(const struct task_windows *w)
{
    const struct task *t = w->task;
    const char *name = kinds[t->kind].name;
    struct sizes z;
    int64_t keys, fixed;

    if (w->near < 1 || w->length < 1)
        return fail(ALIBI_USAGE, "task '%s': a length must be 1 or more", name);
    z = sizes_of(w);
    keys = z.values * z.values;
    if (kinds[t->kind].fill == hide_needles && z.needles > keys)
        return fail(ALIBI_BAD_INPUT,
                    "task '%s' hides %lld keys in windows of %lld tokens, and there are only %lld "
                    "different ones",
                    name, (long long)z.needles, (long long)w->length, (long long)keys);
    fixed = fixed_tokens(t, &z);
    if (w->length < fixed)
        return fail(ALIBI_BAD_INPUT,
                    "task '%s' needs windows of at least %lld tokens; the length is %lld", name,
                    (long long)fixed, (long long)w->length);
    if (!task_kind_needs_text(t->kind))
        return ALIBI_OK;
    if (w->text.corpus == NULL)
        return fail(ALIBI_USAGE, "task '%s' hides its keys in text, and there is none; add a text",
                    name);
    if (w->text.count < w->length)
        return fail(ALIBI_BAD_INPUT,
                    "'%s' has %lld tokens, too few to hide something in windows of %lld (task "
                    "'%s'); give more text, or a smaller length",
                    corpus_name(w->text.corpus), (long long)w->text.count, (long long)w->length,
                    name);
    return ALIBI_OK;
}

/* ---- building a window */

static int64_t draw(const struct window *x, enum draw what, int64_t index, int64_t n)
{
    return (int64_t)random_below(x->key, (uint64_t)what, (uint64_t)index, (uint64_t)n);
}

/* Things in a random order, each once. */
static int64_t shuffled(const struct window *x, enum draw what, int64_t index, int64_t n)
{
    return (int64_t)random_permute(x->key, (uint64_t)what, (uint64_t)index, (uint64_t)n);
}

static void put(struct window *x, int32_t id)
{
    *(x->count > 0 ? &x->targets[x->count - 1] : &x->first) = id;
    x->count++;
}

static void put_ids(struct window *x, const struct ids *ids)
{
    for (int64_t i = 0; i < ids->count; i++)
        put(x, ids->at[i]);
}

/* The next `count` tokens of the window are an answer. */
static void answer(struct window *x, int64_t count, int64_t gap)
{
    x->answers[x->answer_count++] = (struct task_answer){ .first = x->count - 1,
                                                          .count = count,
                                                          .depth = (double)gap / (double)x->hay };
}

/* `fixed` tokens of the window are not haystack. */
static void begin_hay(struct window *x, int64_t fixed)
{
    const struct task_windows *w = x->w;

    x->hay = w->length + 1 - fixed;
    if (task_kind_needs_text(w->task->kind))
        x->from = draw(x, DRAW_HAY, 0, w->text.count - x->hay + 1);
}

/* The haystack up to its token `to`. A mark that occurs in the text is not one: it becomes id 0,
 * which is a symbol or a common token. */
static void put_hay(struct window *x, int64_t to)
{
    const struct task *t = x->w->task;
    int32_t marks = kinds[t->kind].symbols > 0 ? mark(t, MARKS - 1) : INT32_MAX;

    while (task_kind_needs_text(t->kind) && x->used < to) {
        int32_t some[256];
        int64_t count = clamp(to - x->used, 1, 256);

        span_read(x->w->text, x->from + x->used, count, some);
        for (int64_t i = 0; i < count; i++)
            put(x, some[i] >= marks && some[i] != t->end ? 0 : some[i]);
        x->used += count;
    }
    for (; x->used < to; x->used++)
        put(x, kinds[t->kind].haystack == FILLER_HAY
                   ? t->filler.at[x->used % t->filler.count]
                   : symbol(t, draw(x, DRAW_HAY, x->used, x->size.noise)));
}

/* The place in the haystack of a single thing. */
static int64_t one_gap(const struct window *x)
{
    return (int64_t)(x->depth * (double)(x->hay + 1));
}

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

static void draw_gaps(const struct window *x, int64_t *gaps, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        gaps[i] = draw(x, DRAW_GAP, i, x->hay + 1);
    qsort(gaps, (size_t)count, sizeof *gaps, ascending);
}

/* ---- the tasks */

static void hide_passkey(struct window *x)
{
    const struct task *t = x->w->task;
    int64_t gap;

    begin_hay(x, fixed_tokens(t, &x->size));
    gap = one_gap(x);
    put_hay(x, gap);
    for (int time = 0; time < 2; time++) {
        put_ids(x, &t->before);
        if (time == 1)
            answer(x, DIGITS, gap);
        for (int i = 0; i < DIGITS; i++)
            put(x, t->digit[draw(x, DRAW_VALUE, i, 10)]);
        if (time == 0) {
            put_ids(x, &t->after);
            put_hay(x, x->hay);
        }
    }
}

/* Keys are different pairs out of A^2, so they share their parts. */
static void put_key(struct window *x, enum mark which, int64_t i)
{
    const struct task *t = x->w->task;
    int64_t A = x->size.values, key = shuffled(x, DRAW_KEY, i, A * A);

    put(x, mark(t, which));
    put(x, symbol(t, key / A));
    put(x, symbol(t, key % A));
}

static void hide_needles(struct window *x)
{
    const struct task *t = x->w->task;
    int64_t count = x->size.needles, A = x->size.values, gaps[NEEDLES_MAX];

    begin_hay(x, fixed_tokens(t, &x->size));
    draw_gaps(x, gaps, count);
    for (int64_t i = 0; i < count; i++) {
        put_hay(x, gaps[i]);
        put_key(x, NOTE, i);
        put(x, symbol(t, draw(x, DRAW_VALUE, i, A)));
    }
    put_hay(x, x->hay);
    for (int64_t q = 0; q < smaller(count, NEEDLES); q++) {
        int64_t i = shuffled(x, DRAW_ASKED, q, count);

        put_key(x, ASK, i);
        answer(x, 1, gaps[i]);
        put(x, symbol(t, draw(x, DRAW_VALUE, i, A)));
    }
}

/* A value differs from the one before it, so the last but one is never the answer. */
static void hide_writes(struct window *x)
{
    const struct task *t = x->w->task;
    int64_t A = x->size.values, gaps[WRITES_MAX], value = draw(x, DRAW_VALUE, 0, A);
    int64_t count = 2 + draw(x, DRAW_COUNT, 0, x->size.writes - 1);

    begin_hay(x, 2 * count + 2);
    draw_gaps(x, gaps, count);
    for (int64_t i = 0; i < count; i++) {
        put_hay(x, gaps[i]);
        value = i > 0 ? (value + 1 + draw(x, DRAW_VALUE, i, A - 1)) % A : value;
        put(x, mark(t, WRITE));
        put(x, symbol(t, value));
    }
    put_hay(x, x->hay);
    put(x, mark(t, ASK));
    answer(x, 1, gaps[count - 1]);
    put(x, symbol(t, value));
}

static int32_t pair_key(const struct window *x, int64_t i)
{
    const struct sizes *z = &x->size;

    return symbol(x->w->task, z->noise + z->values + shuffled(x, DRAW_KEY, i, z->keys));
}

static int32_t pair_value(const struct window *x, int64_t i)
{
    return symbol(x->w->task, x->size.noise + draw(x, DRAW_VALUE, i, x->size.values));
}

static void hide_pairs(struct window *x)
{
    const struct task *t = x->w->task;
    int64_t most = x->size.pairs, least = clamp(most / 8, 1, most), gap;
    int64_t pairs = least + draw(x, DRAW_COUNT, 0, most - least + 1);
    int64_t queries = smaller(pairs, QUERIES);

    begin_hay(x, 1 + 2 * pairs + 3 * queries);
    gap = one_gap(x);
    put_hay(x, gap);
    put(x, mark(t, PAIRS));
    for (int64_t i = 0; i < pairs; i++) {
        put(x, pair_key(x, i));
        put(x, pair_value(x, i));
    }
    put_hay(x, x->hay);
    for (int64_t q = 0; q < queries; q++) {
        int64_t i = shuffled(x, DRAW_ASKED, q, pairs);

        put(x, mark(t, ASK));
        put(x, pair_key(x, i));
        answer(x, 1, gap);
        put(x, pair_value(x, i));
    }
}

/* The symbols of the span are different, so each says which one follows. */
static void hide_copy(struct window *x)
{
    const struct task *t = x->w->task;
    int64_t span = x->size.copied, gap;

    begin_hay(x, fixed_tokens(t, &x->size));
    gap = one_gap(x);
    put_hay(x, gap);
    for (int time = 0; time < 2; time++) {
        put(x, mark(t, COPY));
        if (time == 1)
            answer(x, span, gap);
        for (int64_t i = 0; i < span; i++)
            put(x, symbol(t, x->size.noise + shuffled(x, DRAW_VALUE, i, x->size.span)));
        if (time == 0)
            put_hay(x, x->hay);
    }
}

/* ---- the chain */

struct counts {
    int64_t states;
    int64_t of[STATES_MAX], to[STATES_MAX][STATES_MAX];
};

/* p(j | i) times its denominator c_i + k a. */
static double weight(const struct counts *c, int64_t i, int64_t j)
{
    return (double)c->to[i][j] + prior;
}

static double weights(const struct counts *c, int64_t i)
{
    return (double)c->of[i] + prior * (double)c->states;
}

static void count_transition(struct counts *c, int64_t i, int64_t j)
{
    c->of[i]++;
    c->to[i][j]++;
}

static void run_chain(struct window *x)
{
    const struct task *t = x->w->task;
    struct counts c = { .states = x->size.states };
    int64_t i = draw(x, DRAW_VALUE, 0, c.states);

    put(x, mark(t, CHAIN));
    x->hay = 1;
    answer(x, x->w->length, 0);
    put(x, symbol(t, i));
    for (int64_t n = 1; n < x->w->length; n++) {
        double left = random_uniform(x->key, DRAW_VALUE, (uint64_t)n) * weights(&c, i);
        int64_t j = 0;

        for (; j + 1 < c.states && left >= weight(&c, i, j); j++)
            left -= weight(&c, i, j);
        count_transition(&c, i, j);
        put(x, symbol(t, j));
        i = j;
    }
}

static int64_t state_of(const struct task *t, int32_t id)
{
    int64_t i = 0;

    while (symbol(t, i) != id)
        i++;
    return i;
}

void task_bayes(const struct task_windows *w, const int32_t *targets, double *nll)
{
    struct counts c = { .states = sizes_of(w).states };
    int64_t i = state_of(w->task, targets[0]);

    nll[0] = log((double)c.states);
    for (int64_t n = 1; n < w->length; n++) {
        int64_t j = state_of(w->task, targets[n]);

        nll[n] = log(weights(&c, i) / weight(&c, i, j));
        count_transition(&c, i, j);
        i = j;
    }
}

/* ---- one window of any task */

int task_window(const struct task_windows *w, int64_t number, int32_t *inputs, int32_t *targets,
                struct task_answer answers[TASK_ANSWERS_MAX])
{
    static const double golden = 0.6180339887498949;
    struct random4 r = random_block(w->seed, RANDOM_STREAM(RANDOM_TASK, number),
                                    (uint64_t)(w->task->kind * 3 + (int)w->use));
    struct window x = { .w = w,
                        .size = sizes_of(w),
                        .key = (uint64_t)r.at[0] << 32 | r.at[1],
                        .targets = targets,
                        .answers = answers };

    /* Multiples of the golden ratio: any stretch of windows has every depth equally often. */
    x.depth = fmod(golden * (double)number +
                       random_uniform(w->seed, RANDOM_STREAM(RANDOM_TASK, 0), 1 + KINDS * 3),
                   1);
    kinds[w->task->kind].fill(&x);
    inputs[0] = x.first;
    memcpy(inputs + 1, targets, (size_t)(w->length - 1) * sizeof *inputs);
    return x.answer_count;
}

void task_keep_answers(const struct task_windows *w, const struct task_answer *answers, int count,
                       int32_t *targets)
{
    int64_t i = 0;

    for (int a = 0; a < count; a++) { /* in the order of the window */
        for (; i < answers[a].first; i++)
            targets[i] = -1;
        i += answers[a].count;
    }
    for (; i < w->length; i++)
        targets[i] = -1;
}

double task_chance(const struct task_windows *w)
{
    switch (w->task->kind) {
    case PASSKEY:
    case PASSKEY_FILLER:
        return pow(10, -DIGITS);
    case INDUCTION:
        return 1 / (double)sizes_of(w).span;
    case MARKOV:
        return log((double)sizes_of(w).states);
    default:
        return 1 / (double)sizes_of(w).values;
    }
}
