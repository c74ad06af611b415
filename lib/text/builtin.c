/* builtin.c - the built-in text: chronicles of a river country, written by rule
 *
 * A document opens with a few places and people; the others enter one by one while it runs. Between
 * them come paragraphs of many kinds about those already known. What they need (who keeps what,
 * where, how many; the word at a gate; a saying) was said once, a few words or a few thousand words
 * before, so a reader who remembers more is surprised less. */
#include "text/builtin.h"

enum {
    DOCUMENT_BYTES = 24000, /* about 4,100 words */
    SHORT_DOCUMENT = 3000,
    FEWEST_DOCUMENTS =
        20, /* a small text has shorter documents rather than fewer, down to the short ones */
    LEAST_DOCUMENTS = 3, /* one for each split */
    OPENING_PLACES = 2,
    OPENING_PEOPLE = 2,
    BYTES_PER_PERSON = 1600,
    BYTES_PER_PLACE = 3200,
};

typedef alibi_status document_taker(void *user, const char *text, size_t length);

/* ---- kinds of paragraphs */

struct kind {
    int weight;
    void (*cast)(struct writer *w);
    const char *open, *item, *close; /* item and close may be NULL */
    int items;                       /* at most; at least two */
    const char *between;             /* sentences */
};

/* weight, about whom, opening, item, close, items at most, between sentences */
static const struct kind kinds[] = {
    { 15, world_cast_lately, "{work}", NULL, NULL, 0, " " },
    { 13, world_cast_lately, "{travel}", NULL, NULL, 0, " " },
    { 13, world_cast_lately, "{dialogue}", NULL, NULL, 0, " " },
    { 8, world_cast_lately, "{letter}", NULL, NULL, 0, " " },
    { 8, world_cast_long_ago, "{search}", NULL, NULL, 0, " " },
    { 7, world_cast_oldest, "{recap_open}", "{recap_item}", "{recap_close}", 5, " " },
    { 5, world_cast_oldest, "{ledger_open}", "{ledger_item}", "{ledger_close}", 6, "\n" },
    { 6, world_cast_oldest, "{meeting_open}", "{meeting_item}", "{meeting_close}", 4, " " },
    { 6, world_cast_lately, "{pause}", NULL, NULL, 0, " " },
};

enum { KINDS = sizeof kinds / sizeof kinds[0], TRADE_WEIGHT = 16 };

static void begin_paragraph(struct writer *w)
{
    w->scene.named = 0;
    w->capital = true;
}

static void end_paragraph(struct writer *w)
{
    w->capital = false;
    speech_put_text(w, "\n\n");
}

static void write_paragraph(struct writer *w, const char *template)
{
    begin_paragraph(w);
    speech_say(w, template);
    end_paragraph(w);
}

static void write_kind(struct writer *w, const struct kind *kind)
{
    int items = kind->item != NULL ? 2 + speech_draw_below(w, kind->items - 1) : 0;

    if (items > w->world.known_holdings.count)
        items = w->world.known_holdings.count;
    begin_paragraph(w);
    kind->cast(w);
    speech_say(w, kind->open);
    for (int i = 0; i < items; i++) {
        if (i > 0)
            kind->cast(w);
        speech_put_text(w, kind->between);
        speech_say(w, kind->item);
    }
    if (kind->close != NULL) {
        speech_put_text(w, kind->between);
        speech_say(w, kind->close);
    }
    end_paragraph(w);
}

static void write_trade(struct writer *w)
{
    world_cast_lately(w);
    if (world_give(w))
        write_paragraph(w, "{gives}");
    else if (world_lose(w))
        write_paragraph(w, "{loses_some}");
    else if (world_find(w))
        write_paragraph(w, "{finds_more}");
}

static void write_any(struct writer *w)
{
    int total = TRADE_WEIGHT, ticket;

    for (int i = 0; i < KINDS; i++)
        total += kinds[i].weight;
    ticket = speech_draw_below(w, total);
    for (int i = 0; i < KINDS; i++) {
        if (ticket < kinds[i].weight) {
            write_kind(w, &kinds[i]);
            return;
        }
        ticket -= kinds[i].weight;
    }
    write_trade(w);
}

/* ---- who enters, and when */

static void introduce_place(struct writer *w)
{
    world_add_place(w);
    write_paragraph(w, "{place_first}");
}

static void introduce_person(struct writer *w)
{
    world_add_person(w);
    write_paragraph(w, w->world.people[w->scene.a].kin >= 0 ? "{kin_first}" : "{person_first}");
    if (speech_draw_chance(w, 50)) {
        world_add_holding(w);
        write_paragraph(w, "{keeps_also}");
    }
}

/* Of `most` that enter over the first three quarters of the document, is the next one due? */
static bool is_due(const struct writer *w, int known, int most, size_t bytes)
{
    return known < most && w->out.length / (size_t)known > bytes * 3 / 4 / (size_t)most;
}

/* ---- documents */

/* The first two places know of each other before either is described. */
static void write_opening(struct writer *w)
{
    world_add_place(w);
    world_add_place(w);
    for (int i = 0; i < OPENING_PLACES; i++) {
        w->scene.x = i;
        w->scene.y = 1 - i;
        if (i == 0)
            write_paragraph(w, "{title}");
        write_paragraph(w, "{place_first}");
    }
    for (int i = 0; i < OPENING_PEOPLE; i++)
        introduce_person(w);
}

static int between(int low, size_t value, int high)
{
    return value < (size_t)low ? low : value > (size_t)high ? high : (int)value;
}

static void write_document(struct writer *w, uint64_t number, size_t typical_bytes)
{
    size_t bytes;
    int people, places;

    speech_begin(w, number);
    world_begin(w);
    bytes = typical_bytes * (size_t)(80 + speech_draw_below(w, 41)) / 100;
    people = between(OPENING_PEOPLE, bytes / BYTES_PER_PERSON, PEOPLE - speech_draw_below(w, 4));
    places = between(OPENING_PLACES, bytes / BYTES_PER_PLACE, PLACES);
    write_opening(w);
    while (w->status == ALIBI_OK && w->out.length < bytes) {
        if (is_due(w, w->world.known_places.count, places, bytes))
            introduce_place(w);
        if (is_due(w, w->world.known_people.count, people, bytes))
            introduce_person(w);
        write_any(w);
    }
}

static alibi_status write_documents(struct writer *w, size_t bytes, document_taker *take,
                                    void *user)
{
    size_t written = 0,
           typical = (size_t)between(SHORT_DOCUMENT, bytes / FEWEST_DOCUMENTS, DOCUMENT_BYTES);

    for (uint64_t number = 0; written < bytes || number < LEAST_DOCUMENTS; number++) {
        write_document(w, number, typical);
        TRY_RETURN(w->status);
        TRY_RETURN(take(user, w->out.data, w->out.length));
        written += w->out.length;
    }
    return ALIBI_OK;
}

/* ---- which text */

#define AT(field) offsetof(struct alibi_builtin, field)

static const struct alibi_option options[] = {
    { "text-seed", ALIBI_OPTION_INT, AT(seed), 0, INT32_MAX, NULL, "1", "N",
      "seed of the built-in text" },
    { "text-bytes", ALIBI_OPTION_INT, AT(bytes), 1, 1 << 30, NULL, "4194304", "N",
      "size of the built-in text, about" },
};

const struct alibi_option *alibi_builtin_options(int *count)
{
    *count = sizeof options / sizeof *options;
    return options;
}

alibi_status builtin_write(uint64_t seed, int64_t bytes,
                           alibi_status (*document)(void *user, const char *text, size_t length),
                           void *user)
{
    alibi_status status;
    struct lexicon *lexicon = NULL;
    struct writer *w = NULL;

    if (bytes < 1)
        return fail(ALIBI_USAGE, "the built-in text cannot have %lld bytes", (long long)bytes);
    TRY(NEW_ZERO_ARRAY(&lexicon, 1, "the words of the built-in text"));
    TRY(NEW_ZERO_ARRAY(&w, 1, "the writer of the built-in text"));
    speech_init(lexicon);
    w->lexicon = lexicon;
    w->seed = seed;
    TRY(write_documents(w, (size_t)bytes, document, user));
out:
    if (w != NULL)
        text_free(&w->out);
    mem_free(w);
    mem_free(lexicon);
    return status;
}
