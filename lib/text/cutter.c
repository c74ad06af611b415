/* cutter.c - a text cut into pieces by regular expressions
 *
 * Expression k cuts the pieces of expression k - 1: its matches are pieces, and so is the text
 * between two matches. An empty match cuts too; directly after a match it is skipped, together with
 * the character there.
 *
 * If the text continues after its known part, PCRE2 uses hard partial matching: a match that
 * inspects the end is reported as undecided. So text that follows cannot change a piece.
 *
 * A match sees a window of the text. The window grows only if the match inspected its end, and in a
 * longer window only a match at its start is tried. Within a stretch the cost of long windows is a
 * debt, which their matches pay back by their length. So no expression can take time that grows
 * with the square of the text. A stretch starts without debt, so a refusal does not depend on
 * earlier text. An expression that is not simple (pattern.c) has short windows and PCRE2's match
 * limit. */
#include <string.h>

#include "text/pattern.h"

enum {
    WINDOW = 4096,
    WINDOW_MAX = 2 * PIECE_MAX,
    INTRICATE_WINDOW = 256, /* for expressions that are not simple */
    INTRICATE_MAX = 16384,
    WINDOW_GROWTH = 8,
    LOOK = 4096, /* bytes after `stop` that are inspected at first */
    DEBT_MAX = 1 << 28,
    STEPS_PER_BYTE = 16, /* of the match limit */
    JIT_STACK_START = 32 << 10,
    JIT_STACK_MAX = 1 << 20,
    HEAP_MAX_KB = 64 << 10
};

/* Each level of cutting has its own result, because the next level runs in between. */
struct cutter {
    const struct pattern *pattern;
    pcre2_match_context *limits;
    pcre2_jit_stack *stack;
    pcre2_match_data *results[BPE_SPLITS_MAX];
    size_t limits_for; /* the window that `limits` are set for */
    bool limits_long;  /* and whether it is longer than the first one */
    int64_t debt;      /* of this stretch: the cost of long windows that no match has paid for */
    piece_sink *sink;
    void *user;
    const char *cut; /* the end of the piece of the first level that is handed over */
};

/* ---- cutters */

alibi_status cutter_new(struct cutter **out, const struct pattern *p)
{
    alibi_status status;
    struct cutter *c = NULL;

    TRY(NEW_ZERO_ARRAY(&c, 1, "a cutter"));
    c->pattern = p;
    pattern_memory_failed = false;
    c->limits = pcre2_match_context_create(p->memory);
    c->stack = pcre2_jit_stack_create(JIT_STACK_START, JIT_STACK_MAX, p->memory);
    if (c->limits == NULL || c->stack == NULL)
        TRY(pattern_out_of_memory());
    pcre2_set_heap_limit(c->limits, HEAP_MAX_KB);
    pcre2_jit_stack_assign(c->limits, NULL, c->stack);
    for (int i = 0; i < p->count; i++) {
        c->results[i] = pcre2_match_data_create(1, p->memory);
        if (c->results[i] == NULL)
            TRY(pattern_out_of_memory());
    }
    *out = c;
    c = NULL;
out:
    cutter_free(c);
    return status;
}

void cutter_free(struct cutter *c)
{
    if (c == NULL)
        return;
    for (int i = 0; i < BPE_SPLITS_MAX; i++)
        pcre2_match_data_free(c->results[i]);
    pcre2_jit_stack_free(c->stack);
    pcre2_match_context_free(c->limits);
    mem_free(c);
}

/* ---- one match */

/* UTF-8 that one level cuts. ended: expressions see its end as the end of the text; otherwise more
 * text follows. */
struct subject {
    const char *text;
    size_t from, stop, end;
    bool ended;
    bool newer; /* it has characters that PCRE2 may not know */
    int level;
};

/* How a subject is being walked through. */
struct walk {
    size_t piece;      /* the start of the undecided piece */
    size_t at;         /* no match starts between `piece` and here */
    size_t last_match; /* where the last match ended */
    size_t opened;     /* where the window starts: at `at` or before */
    size_t window;     /* where it ends */
    size_t first;      /* initial length of windows */
    size_t asked;      /* its length before it was clipped to the subject or to a character */
    int64_t cost;      /* of the long windows since the last match */
};

struct match {
    enum { FOUND, FOUND_NONE, FOUND_PART } found; /* PART: it may continue after the window */
    size_t start, end;
};

/* Finds the next match in the window. An empty match at the window's end does not count: with more
 * text it might be longer. In a long window, only a match at its start is tried. */
static alibi_status find(struct cutter *c, const struct subject *s, const struct walk *w,
                         struct match *m)
{
    bool whole = s->ended && w->window == s->end, is_long = w->asked > w->first;
    uint32_t options = PCRE2_NO_UTF_CHECK | (whole ? 0 : PCRE2_PARTIAL_HARD);
    PCRE2_SPTR at = (PCRE2_SPTR)s->text + w->at;
    size_t bytes = w->window - w->at, *places;
    pcre2_match_data *result = c->results[s->level];
    const pcre2_code *code;
    int rc;

    m->found = FOUND_NONE;
    if (c->pattern->count == 0 || bytes == 0)
        return ALIBI_OK;
    if (c->limits_for != w->asked || c->limits_long != is_long) {
        pcre2_set_match_limit(c->limits, STEPS_PER_BYTE * (uint32_t)w->asked);
        pcre2_set_offset_limit(c->limits, is_long ? 0 : PCRE2_UNSET);
        c->limits_for = w->asked;
        c->limits_long = is_long;
    }
    code = c->pattern->codes[s->level];
    if (s->newer && c->pattern->exact[s->level] != NULL)
        code = c->pattern->exact[s->level];
    rc = pcre2_match(code, at, bytes, 0, options, result, c->limits);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) /* expressions with groups; the interpreter has a heap */
        rc = pcre2_match(code, at, bytes, 0, options | PCRE2_NO_JIT, result, c->limits);
    if (rc == PCRE2_ERROR_NOMATCH)
        return ALIBI_OK;
    if (rc == PCRE2_ERROR_NOMEMORY)
        return pattern_out_of_memory();
    if (rc < 0 && rc != PCRE2_ERROR_PARTIAL) {
        char reason[256];
        pcre2_get_error_message(rc, (PCRE2_UCHAR *)reason, sizeof reason);
        return fail(ALIBI_BAD_INPUT, "the pattern '%.80s' at '%.*s': %s",
                    c->pattern->sources[s->level], (int)(s->end - w->at < 40 ? s->end - w->at : 40),
                    s->text + w->at, reason);
    }
    places = pcre2_get_ovector_pointer(result);
    m->start = w->at + places[0];
    m->end = w->at + places[1];
    if (m->start < w->window || whole)
        m->found = rc == PCRE2_ERROR_PARTIAL ? FOUND_PART : FOUND;
    return ALIBI_OK;
}

/* ---- windows */

static void open_window(const struct subject *s, struct walk *w, size_t bytes)
{
    size_t end = s->end - w->at > bytes ? w->at + bytes : s->end;

    while (end < s->end && utf8_continues(s->text[end]))
        end--;
    w->opened = w->at;
    w->window = end;
    w->asked = bytes;
}

static alibi_status too_long(const char *text)
{
    return fail(ALIBI_BAD_INPUT,
                "the tokenizer makes a piece of more than %d bytes, which starts with '%.40s'",
                PIECE_MAX, text);
}

/* A match in the longer window can cost as many steps as it has bytes, or their square if the
 * expression is not simple. */
static alibi_status lengthen_window(struct cutter *c, const struct subject *s, struct walk *w)
{
    bool simple = w->first == WINDOW;
    size_t left = s->end - w->at, bytes = w->asked * WINDOW_GROWTH;
    size_t seen = left < bytes ? left : bytes;
    int64_t cost = (int64_t)(simple ? seen : seen * seen / 4);

    if (simple && w->asked >= WINDOW_MAX)
        return too_long(s->text + w->at);
    if (!simple && w->asked >= INTRICATE_MAX)
        return fail(
            ALIBI_BAD_INPUT,
            "the pattern '%.80s' is too intricate for a piece of more than %d bytes, at '%.40s'",
            c->pattern->sources[s->level], INTRICATE_MAX, s->text + w->at);
    w->cost += cost;
    c->debt += cost;
    if (c->debt > DEBT_MAX)
        return fail(
            ALIBI_BAD_INPUT,
            "the pattern '%.80s' takes too long: it looks far ahead to match little, at '%.40s'",
            c->pattern->sources[s->level], s->text + w->at);
    open_window(s, w, bytes);
    return ALIBI_OK;
}

/* Returns to short windows. A match that needed most of its window has paid for it. */
static void shorten_window(struct cutter *c, const struct subject *s, struct walk *w,
                           size_t matched)
{
    if (matched >= w->asked / (2 * WINDOW_GROWTH))
        c->debt -= w->cost < c->debt ? w->cost : c->debt;
    w->cost = 0;
    open_window(s, w, w->first);
}

/* ---- one level */

static alibi_status cut(struct cutter *c, const struct subject *s, size_t *reached);

/* A piece of this level: cut by the next one, or handed over. */
static alibi_status hand_over(struct cutter *c, const struct subject *s, size_t from, size_t to)
{
    struct subject piece = { .text = s->text + from,
                             .stop = to - from,
                             .end = to - from,
                             .ended = true,
                             .newer = s->newer,
                             .level = s->level + 1 };
    size_t reached;

    if (from == to)
        return ALIBI_OK;
    if (s->level == 0)
        c->cut = s->text + to;
    if (piece.end > PIECE_MAX)
        return too_long(piece.text);
    if (piece.level >= c->pattern->count)
        return c->sink(c->user, piece.text, piece.end);
    return cut(c, &piece, &reached);
}

static size_t next_character(const struct subject *s, size_t at)
{
    at++;
    while (at < s->end && utf8_continues(s->text[at]))
        at++;
    return at;
}

/* Walks through the subject, a match at a time. *reached: the start of the first piece that the
 * known text does not decide. */
static alibi_status cut(struct cutter *c, const struct subject *s, size_t *reached)
{
    struct walk w = { .piece = s->from, .at = s->from, .last_match = SIZE_MAX };
    bool more = true; /* the known text decides the next step */

    w.first =
        s->level >= c->pattern->count || c->pattern->simple[s->level] ? WINDOW : INTRICATE_WINDOW;
    open_window(s, &w, w.first);
    while (w.piece < s->stop && more) {
        struct match m;

        TRY_RETURN(find(c, s, &w, &m));
        if (m.found == FOUND && m.end == m.start && m.start == w.last_match) {
            w.at = m.start < s->end ? next_character(s, m.start) : m.start;
            open_window(s, &w, w.first);
        } else if (m.found == FOUND) {
            /* The gap before the match is a piece, and so is the match unless the gap reaches
             * `stop`. */
            TRY_RETURN(hand_over(c, s, w.piece, m.start));
            w.piece = w.at = m.start;
            if (m.start < s->stop) {
                TRY_RETURN(hand_over(c, s, m.start, m.end));
                w.piece = w.at = w.last_match = m.end;
            }
            if (w.asked > w.first)
                shorten_window(c, s, &w, m.end - m.start);
        } else if (m.found == FOUND_NONE) {
            /* No match starts in the window; in a long one, none starts at its start. */
            bool only_start = w.asked > w.first && w.at < w.window;
            more = w.window < s->end || only_start;
            w.at = only_start ? next_character(s, w.at) : w.window;
            shorten_window(c, s, &w, 0);
        } else {
            more = w.window < s->end;
            w.at = m.start;
            if (more && w.at == w.opened)
                TRY_RETURN(lengthen_window(c, s, &w));
            else
                open_window(s, &w, w.first);
        }
    }
    if (!more && s->ended) {
        TRY_RETURN(hand_over(c, s, w.piece, s->end));
        w.piece = s->end;
    }
    *reached = w.piece;
    return ALIBI_OK;
}

/* ---- stretches: text that need not be UTF-8 */

/* Whether the last bytes may be the start of a character. */
static bool may_continue(const char *bytes, size_t count)
{
    unsigned char lead = (unsigned char)bytes[0];

    return lead >= 0xC2 && lead <= 0xF4 && count < (lead < 0xE0 ? 2u : lead < 0xF0 ? 3u : 4u);
}

const char *cutter_cut(const struct cutter *c)
{
    return c->cut;
}

/* The valid text is cut, and a byte that is not valid is a piece. Only `look` bytes after `stop`
 * are looked at, and more if these do not decide the first piece. */
alibi_status cutter_run(struct cutter *c, const struct stretch *s, piece_sink *sink, void *user,
                        size_t *reached)
{
    size_t at = s->from, look = LOOK;

    c->sink = sink;
    c->user = user;
    c->debt = 0;
    while (at < s->stop) {
        size_t bound = s->end - s->stop > look ? s->stop + look : s->end, before = at;
        size_t valid = at + utf8_valid_prefix(s->text + at, bound - at);
        bool whole = s->last && bound == s->end;
        bool ended = whole || (valid < bound && !may_continue(s->text + valid, bound - valid));

        if (valid > at) {
            struct subject subject = {
                .text = s->text,
                .from = at,
                .stop = s->stop < valid ? s->stop : valid,
                .end = valid,
                .ended = ended,
                .newer = newer_occurs(&c->pattern->newer, s->text + at, valid - at),
            };
            TRY_RETURN(cut(c, &subject, &at));
        } else if (ended) {
            c->cut = s->text + at + 1;
            TRY_RETURN(c->sink(c->user, s->text + at, 1));
            at++;
        }
        if (at > before)
            continue;
        if (bound == s->end && s->end - at > PIECE_MAX)
            return too_long(s->text + at);
        if (bound == s->end)
            break;
        look *= WINDOW_GROWTH;
    }
    *reached = at;
    return ALIBI_OK;
}
