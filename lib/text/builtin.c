/* builtin.c - the built-in text: chronicles of a river country, written by rule
 *
 *   rules (words, sentences) + facts of the document (people, places, what they keep) -> paragraphs
 *
 * The text has one purpose: a fact is told once and needed again 10, 100 or 3,000 words later, so a
 * model that remembers more of its context predicts better. Names are made of syllables for each
 * document. They cannot be learned in training, only read earlier in the document. All choices
 * follow Zipf's law: the first alternative of a rule is drawn most often, and so is the fact used
 * most recently.
 *
 * Every choice is an integer drawn from (seed, document), so a seed gives the same bytes on any
 * machine, and a document does not depend on those before it. */
#include <string.h>

#include "text/text.h"

/* ---- the grammar */

/* Alternatives, most frequent first, separated by `separator`. In a sentence, {thing} is replaced
 * by an alternative of that rule and {COUNT} by a fact of the scene (enum fact). No rule contains
 * itself. */
struct rule {
    const char *name;
    char separator;
    const char *alternatives;
};

static const struct rule rules[] = {
    { "thing", ' ',
      "key lamp rope kettle lantern basket candle barrel hammer bell coin button needle cup plate "
      "spoon bowl jar bottle chest sack bucket ladder broom saw nail hook chain wheel oar net sail "
      "anchor map book ledger pen ring mirror comb thimble loom blanket pillow rug stool chair "
      "clock whistle drum fiddle flute horn pipe cart saddle bridle yoke plough rake spade sickle "
      "shovel chisel pot pan sieve churn tub jug flask tray crate purse hinge bolt latch lever "
      "pole peg pin" },
    { "stuff", ' ',
      "brass copper iron silver tin clay oak pine glass leather linen bone stone paper wicker "
      "pewter bronze steel cedar walnut birch velvet silk canvas felt ivory amber slate marble "
      "wax" },
    { "land", ' ',
      "river hill road field wood valley bridge shore path meadow marsh lake stream lane ridge "
      "bank cliff pond island moor harbour forest orchard pasture well quarry hedge ditch market "
      "bay" },
    { "look", ' ',
      "old small long heavy dark grey round plain thin empty broken wide worn crooked dusty white "
      "black green brown red pale cold warm wet dry rough smooth bright rusty quiet steep narrow "
      "low far muddy lonely sunny windy silent broad famous forgotten" },
    { "goods", ' ',
      "bread salt flour wool corn timber coal cloth oil wheat barley tar rye hay straw honey cider "
      "cheese butter soap chalk pepper sugar" },
    { "creature", ' ',
      "dog horse cat crow hen goat fox hare rabbit heron owl raven otter swan duck lamb pig "
      "sparrow" },
    { "folk", ' ',
      "neighbour stranger farmer sailor widow shepherd traveller clerk merchant soldier beggar "
      "judge doctor teacher pilgrim hunter drover" },
    { "trade", ' ',
      "miller baker weaver potter carter cooper tanner dyer cobbler saddler mason joiner printer "
      "locksmith gardener brewer butcher fisher scribe" },
    { "house", ' ',
      "mill barn tower inn forge chapel cottage granary bakery dairy stable brewery tannery" },
    { "did", ' ',
      "carried mended counted cleaned sold found washed painted moved lifted emptied polished hid "
      "buried borrowed wrapped patched weighed dropped turned pulled packed repaired inspected" },
    { "went", ' ', "walked went came rode ran climbed hurried wandered marched strolled" },
    { "rested", ' ', "slept waited sang smiled sighed laughed nodded listened yawned" },
    { "how", ' ', "slowly quietly carefully gladly often badly happily sadly politely boldly" },
    { "when", '|', "in the morning|at night|that evening|one winter|after the rain|in the spring" },
    { "weather", ' ', "wind rain mist snow frost storm fog smoke" },
    /* names; every alternative is equally likely */
    { "~first", ' ',
      "al ber cor dan el fen gar hal is jor kel lan mor nor os per ros sam tam ul ver wil est "
      "jan" },
    { "~man", ' ', "in us ard ian old o ric win bert mund ek ron" },
    { "~woman", ' ', "a ette ia ine wen lind ess ora ica ild yn una" },
    { "~last", ' ',
      "crow wes gam hol ash mar thorn pen lock bram cald dun far grim hart kirk lind nor rud "
      "stan" },
    { "~kin", ' ', "ley ard ton man son wood ford by er well" },
    { "~town", ' ',
      "neth bram rook mal hol win wick stone ald cal dor ember frost glen hazel lor mist pel "
      "quarr" },
    { "~end", ' ', "mere fell combe bourne ham stead wick ford ley gate haven moor" },

    /* places and people enter: the only paragraphs that tell a new fact */
    { "place", '|',
      "{PLACE} is the {look} town by the {look} {land}, known for its {HOUSE}. Those who come to "
      "the gate of {PLACE} after dark must give the word, and the word at {PLACE} is \"{WORD}\". "
      "{scenery}|the road comes down to {PLACE} past the {look} {land}. {PLACE} has one {look} "
      "street, one gate and one {HOUSE}. {scenery} At night the gate of {PLACE} opens to two words "
      "only: \"{WORD}\"." },
    { "person", '|',
      "{OWNER} is the {TRADE} of {HOME}. {keeps} {daily} {deed}"
      "|the {TRADE} in {HOME} is called {OWNER}. {deed} {keeps} {daily}"
      "|in {HOME} lives {OWNER}, the {TRADE}. {scenery} {keeps} {daily}" },
    { "more", '|', "{keeps} {daily} {scenery}|that is not all. {keeps} {deed} {daily}" },
    { "keeps", '|',
      "in the {HOUSE} at {PLACE} {OWNER} keeps {COUNT} {THINGS}."
      "|{OWNER} has {COUNT} {THINGS}, no more and no fewer, in the {HOUSE} at {PLACE}." },
    { "daily", '|',
      "every evening the {TRADE} counts the {THINGS}: {COUNT}, always {COUNT}."
      "|ask {FIRST} how many {THINGS} there are, and {HE} will say {COUNT}." },

    /* paragraphs that need what was told */
    { "work", '|',
      "{OWNER} {did} the {look} {thing} {when}. {thought} {deed} {visit}"
      "|{OWNER} {went} to the {HOUSE} at {PLACE}. {deed} {thought} {scenery}"
      "|{scenery} {OWNER} {did} the {goods}. {thought} {deed} {visit}" },
    { "thought", '|',
      "the {THINGS} were still in the {HOUSE} at {PLACE}, all {COUNT} of them."
      "|{FIRST} thought of the {THINGS} in the {HOUSE} at {PLACE} and {rested}."
      "|the {folk} asked {FIRST} for one of the {THINGS}, but {HE} wanted to keep all {COUNT}."
      "|being the {TRADE} of {HOME}, {FIRST} had no time for the {THINGS} {when}." },
    { "visit", '|',
      "{OTHER} came over from {THERE} and {rested} {how}."
      "|{OTHER} looked in and asked after the {THINGS}."
      "|{FIRST} and {OTHER} {rested} together by the {land}." },
    { "travel", '|',
      "{when} {OWNER} {went} from {PLACE} to {THERE}. {scenery} {deed} At the gate of {THERE} the "
      "{folk} asked for the word. \"{PASS},\" said {FIRST}, and the gate opened."
      "|{OWNER} had to go to {THERE}. {HE} {went} past the {look} {land} with {HIS} {creature}. "
      "{scenery} It was dark at the gate of {THERE}. \"{PASS},\" said the {TRADE}. {thought}" },
    { "talk", '|',
      "{OTHER} and {OWNER} {rested} in the {HOUSE} at {PLACE}. \"How many {THINGS} do you keep?\" "
      "asked {OTHER}. \"{COUNT},\" said {OWNER}. {deed}"
      "|\"are the {THINGS} still in the {HOUSE} at {PLACE}?\" asked {OTHER}. {scenery} \"All "
      "{COUNT},\" said {OWNER}, \"and there they stay.\"" },
    { "letter", '|',
      "{OTHER} wrote from {THERE}: \"Dear {FIRST}, I hope that the {COUNT} {THINGS} are safe in "
      "the {HOUSE} at {PLACE}. Here the {land} is {look}.\" {OWNER} {rested} and {did} the "
      "{thing}." },
    { "search", '|',
      "the {folk} asked what had become of the {THINGS} of {OWNER}. So {OWNER} went back to the "
      "{HOUSE} at {PLACE} and counted the {THINGS} again: {COUNT}. {deed}|for a long time nobody "
      "had thought of {OWNER}, the {TRADE} of {HOME}. {scenery} {HIS} {THINGS} were where they had "
      "always been, in the {HOUSE} at {PLACE}, all {COUNT} of them." },
    { "list", '|', "the clerk wrote down who keeps what.|this is what they counted {when}." },
    { "entry", '|', "{OWNER}, {TRADE} of {HOME}: {COUNT} {THINGS}, in the {HOUSE} at {PLACE}." },
    { "loss", '|',
      "{OWNER} had {BEFORE} {THINGS} in the {HOUSE} at {PLACE}, and {OTHER} had need of {MOVED}. "
      "{deed} {BEFORE} less {MOVED} is {COUNT}, and {COUNT} is what {OWNER} keeps.|{when} {MOVED} "
      "of the {THINGS} of {OWNER} were gone. {BEFORE} less {MOVED} is {COUNT}. {visit}" },
    { "gain", '|',
      "{OWNER} found {MOVED} more {THINGS} by the {look} {land} and brought them to the {HOUSE} at "
      "{PLACE}. {BEFORE} and {MOVED} is {COUNT}. {scenery}" },
    { "pause", '|', "{scenery} {scenery}|{scenery} {scenery} {scenery}" },

    /* sentences that need nothing */
    { "deed", '|',
      "{FIRST} {did} the {look} {thing} {how}."
      "|{HE} {went} to the {land} and {did} the {stuff} {thing}s."
      "|with the {creature} {HE} {went} along the {look} {land} and {rested}."
      "|{FIRST} {did} the {goods} and the {goods} {when}."
      "|{HE} gave the {folk} some {goods} and {did} the {thing}." },
    { "scenery", '|',
      "the {weather} came over the {land}."
      "|beyond the {look} {land} the {creature}s {rested}, as they often did {when}."
      "|the {land} was {look} and the {land} was {look}."
      "|the {folk} {went} by with the {goods}."
      "|there was {weather} on the {land}, and the {creature} {rested} {how}." },
};

enum { RULES = COUNT(rules), ALTERNATIVES = 96 };

/* ---- the facts of a document */

enum {
    DOCUMENT_BYTES = 24000, /* about 4,200 words */
    FEWEST_DOCUMENTS = 20,  /* a small text has shorter documents rather than fewer, until they are
                               SHORT_DOCUMENT bytes long */
    LEAST_DOCUMENTS = 3,    /* one for each split */
    SHORT_DOCUMENT = ALIBI_BUILTIN_LEAST / LEAST_DOCUMENTS,
    PEOPLE = 14,
    PLACES = 7,
    HOLDINGS = 2 * PEOPLE,
    NAME_BYTES = 24,
    PHRASE_BYTES = 32,
    FEWEST_THINGS = 4,
    MOST_THINGS = 40,
};

struct person {
    char name[2 * NAME_BYTES], first[NAME_BYTES], trade[NAME_BYTES];
    bool woman;
    int home;
};

struct town {
    char name[NAME_BYTES], house[NAME_BYTES], word[PHRASE_BYTES]; /* the word opens its gate */
};

/* A number of things of one kind that one person keeps in one place. */
struct holding {
    int owner, place, count;
    char things[PHRASE_BYTES];
};

/* Facts that sentences can name. */
enum fact {
    OWNER,
    FIRST,
    HE,
    HIS,
    TRADE,
    HOME,
    THINGS,
    COUNT,
    BEFORE,
    MOVED,
    PLACE,
    HOUSE,
    WORD,
    OTHER,
    THERE,
    PASS,
    FACTS
};

static const char *const fact_names[FACTS] = {
    "OWNER",  "FIRST", "HE",    "HIS",   "TRADE", "HOME",  "THINGS", "COUNT",
    "BEFORE", "MOVED", "PLACE", "HOUSE", "WORD",  "OTHER", "THERE",  "PASS",
};

struct choice {
    struct slice at[ALTERNATIVES];
    int count;
};

struct builtin {
    uint64_t seed, document, drawn;
    size_t bytes, typical_bytes, written;
    struct random4 numbers;
    struct choice choices[RULES];
    uint32_t zipf[ALTERNATIVES + 1]; /* zipf[n]: sum of the weights of ranks 0..n-1 */
    struct text out;
    struct person people[PEOPLE];
    struct town places[PLACES];
    struct holding holdings[HOLDINGS];
    int people_count, place_count, holding_count;
    int recent[HOLDINGS]; /* holdings, the most recently used first */
    const char *facts[FACTS];
    char numbers_in_words[3][PHRASE_BYTES]; /* COUNT, BEFORE, MOVED */
};

/* ---- chance */

static int draw_below(struct builtin *b, int n)
{
    if (b->drawn % 4 == 0)
        b->numbers = random_block(b->seed, RANDOM_STREAM(RANDOM_CORPUS, b->document), b->drawn / 4);
    return (int)((uint64_t)b->numbers.at[b->drawn++ % 4] * (uint64_t)n >> 32);
}

/* 0..n-1, with probability proportional to 1 / (rank + 1). */
static int draw_zipf(struct builtin *b, int n)
{
    uint32_t ticket = (uint32_t)draw_below(b, (int)b->zipf[n]);
    int rank = 0;

    while (b->zipf[rank + 1] <= ticket)
        rank++;
    return rank;
}

/* ---- from rules to sentences */

static bool is_name(const char *name, size_t length, const char *known)
{
    return strncmp(known, name, length) == 0 && known[length] == '\0';
}

/* Appends the text with its {slots} filled. */
static void say(struct builtin *b, struct slice text)
{
    const char *end = text.at + text.bytes;

    for (const char *at = text.at; at < end;) {
        const char *open = memchr(at, '{', (size_t)(end - at)), *stop = open ? open : end;
        size_t length;
        text_append_bytes(&b->out, at, (size_t)(stop - at));
        if (open == NULL)
            return;
        length = strcspn(open, "}") - 1;
        for (int i = 0; i < FACTS; i++)
            if (is_name(open + 1, length, fact_names[i]))
                text_append_bytes(&b->out, b->facts[i], strlen(b->facts[i]));
        for (int i = 0; i < RULES; i++)
            if (is_name(open + 1, length, rules[i].name)) {
                const struct choice *c = &b->choices[i];
                say(b, c->at[*rules[i].name == '~' ? draw_below(b, c->count)
                                                   : draw_zipf(b, c->count)]);
            }
        at = open + length + 2;
    }
}

static struct slice slice_of(const char *text)
{
    return (struct slice){ text, strlen(text) };
}

/* The same, but into `out` instead of the document. */
static void compose(struct builtin *b, char *out, size_t size, const char *text)
{
    size_t start = b->out.length;

    say(b, slice_of(text));
    snprintf(out, size, "%s", b->out.data != NULL ? b->out.data + start : "");
    b->out.length = start;
}

/* 1..99 */
static void name_number(char out[PHRASE_BYTES], int n)
{
    static const char *const small[] = {
        "",         "one",     "two",     "three",     "four",     "five",     "six",
        "seven",    "eight",   "nine",    "ten",       "eleven",   "twelve",   "thirteen",
        "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
    };
    static const char *const tens[] = { "twenty", "thirty",  "forty",  "fifty",
                                        "sixty",  "seventy", "eighty", "ninety" };

    if (n < 20)
        snprintf(out, PHRASE_BYTES, "%s", small[n]);
    else
        snprintf(out, PHRASE_BYTES, "%s%s%s", tens[n / 10 - 2], n % 10 > 0 ? "-" : "",
                 small[n % 10]);
}

/* ---- facts enter, are used, and change */

static char upper(char c)
{
    return c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
}

static void use_holding(struct builtin *b, int rank)
{
    int holding = b->recent[rank];

    memmove(b->recent + 1, b->recent, (size_t)rank * sizeof *b->recent);
    b->recent[0] = holding;
}

/* Sets the facts of the next sentences: a holding, and the owner and place of another one. */
static void set_scene(struct builtin *b, int rank)
{
    const struct holding *h, *other;
    const struct person *owner;
    int second;

    use_holding(b, rank);
    h = &b->holdings[b->recent[0]];
    second = b->holding_count > 1 ? 1 + draw_zipf(b, b->holding_count - 1) : 0;
    for (int i = 1; i < b->holding_count && b->holdings[b->recent[second]].owner == h->owner; i++)
        second = 1 + second % (b->holding_count - 1);
    other = &b->holdings[b->recent[second]];
    owner = &b->people[h->owner];
    name_number(b->numbers_in_words[0], h->count);
    b->facts[OWNER] = owner->name;
    b->facts[FIRST] = owner->first;
    b->facts[HE] = owner->woman ? "she" : "he";
    b->facts[HIS] = owner->woman ? "her" : "his";
    b->facts[TRADE] = owner->trade;
    b->facts[HOME] = b->places[owner->home].name;
    b->facts[THINGS] = h->things;
    b->facts[COUNT] = b->numbers_in_words[0];
    b->facts[PLACE] = b->places[h->place].name;
    b->facts[HOUSE] = b->places[h->place].house;
    b->facts[WORD] = b->places[h->place].word;
    b->facts[OTHER] = b->people[other->owner].name;
    b->facts[THERE] = b->places[other->place].name;
    b->facts[PASS] = b->places[other->place].word;
}

/* A paragraph starts, and each sentence in it, with a capital letter. */
static void write_paragraph(struct builtin *b, const char *text, const char *end)
{
    size_t at = b->out.length;
    bool starts = true;

    say(b, slice_of(text));
    for (; at < b->out.length; at++) {
        char *c = &b->out.data[at];
        if (starts)
            *c = upper(*c);
        starts = *c == '.' || (starts && !(*c >= 'A' && *c <= 'Z'));
    }
    text_append_bytes(&b->out, end, strlen(end));
}

static void add_place(struct builtin *b)
{
    struct town *p = &b->places[b->place_count++];

    compose(b, p->name, sizeof p->name, "{~town}{~end}");
    p->name[0] = upper(p->name[0]);
    compose(b, p->house, sizeof p->house, "{house}");
    compose(b, p->word, sizeof p->word, "{stuff} {thing}");
    b->facts[PLACE] = p->name;
    b->facts[HOUSE] = p->house;
    b->facts[WORD] = p->word;
    write_paragraph(b, "{place}", "\n\n");
}

static void add_holding(struct builtin *b, int owner, int place, const char *paragraph)
{
    int i = b->holding_count++;
    struct holding *h = &b->holdings[i];

    *h = (struct holding){ .owner = owner, .place = place };
    compose(b, h->things, sizeof h->things, "{stuff} {thing}s");
    h->count = FEWEST_THINGS + draw_below(b, MOST_THINGS - FEWEST_THINGS + 1);
    b->recent[i] = i;
    set_scene(b, i);
    write_paragraph(b, paragraph, "\n\n");
}

static void add_person(struct builtin *b)
{
    int i = b->people_count++;
    struct person *p = &b->people[i];

    p->woman = draw_below(b, 2) == 0;
    p->home = draw_below(b, b->place_count);
    compose(b, p->first, sizeof p->first, p->woman ? "{~first}{~woman}" : "{~first}{~man}");
    compose(b, p->trade, sizeof p->trade, "{trade}");
    p->first[0] = upper(p->first[0]);
    b->facts[FIRST] = p->first;
    compose(b, p->name, sizeof p->name, "{FIRST} {~last}{~kin}");
    p->name[strlen(p->first) + 1] = upper(p->name[strlen(p->first) + 1]);
    add_holding(b, i, p->home, "{person}");
    if (draw_below(b, 2) == 0)
        add_holding(b, i, draw_below(b, b->place_count), "{more}");
}

/* Some things go or come, and the text does the sum. */
static void write_change(struct builtin *b)
{
    struct holding *h;
    bool loss;
    int moved;

    set_scene(b, draw_zipf(b, b->holding_count));
    h = &b->holdings[b->recent[0]];
    loss = h->count > MOST_THINGS || (h->count > FEWEST_THINGS && draw_below(b, 2) == 0);
    moved = 1 + draw_below(b, loss ? h->count / 2 : MOST_THINGS / 4);
    name_number(b->numbers_in_words[1], h->count);
    name_number(b->numbers_in_words[2], moved);
    h->count += loss ? -moved : moved;
    name_number(b->numbers_in_words[0], h->count);
    b->facts[BEFORE] = b->numbers_in_words[1];
    b->facts[MOVED] = b->numbers_in_words[2];
    write_paragraph(b, loss ? "{loss}" : "{gain}", "\n\n");
}

/* A list returns to the holdings that were not used for longest. */
static void write_list(struct builtin *b)
{
    int entries = 2 + draw_below(b, 5);

    write_paragraph(b, "{list}", "\n");
    for (int i = 0; i < entries && i < b->holding_count; i++) {
        set_scene(b, b->holding_count - 1);
        write_paragraph(b, "{entry}", "\n");
    }
    text_append_bytes(&b->out, "\n", 1);
}

static void write_any(struct builtin *b)
{
    static const struct {
        int weight;
        const char *paragraph;
    } kinds[] = { { 16, "{work}" },   { 14, "{travel}" }, { 14, "{talk}" },   { 8, "{letter}" },
                  { 12, "{search}" }, { 6, "{pause}" },   { 14, "{change}" }, { 16, "{list}" } };
    int kind = 0, ticket = draw_below(b, 100);

    for (; ticket >= kinds[kind].weight; kind++)
        ticket -= kinds[kind].weight;
    if (kind == 7) {
        write_list(b);
    } else if (kind == 6) {
        write_change(b);
    } else {
        /* A search is for something not used for long, all else about something used recently. */
        int rank = draw_zipf(b, b->holding_count);
        set_scene(b, kind == 4 ? b->holding_count - 1 - rank : rank);
        write_paragraph(b, kinds[kind].paragraph, "\n\n");
    }
}

/* ---- documents */

/* `most` enter over the first three quarters of the document: is the next one due? */
static bool is_due(const struct builtin *b, int known, int most, size_t bytes)
{
    return known < most && b->out.length / (size_t)known > bytes * 3 / 4 / (size_t)most;
}

static int clamp(size_t value, int low, int high)
{
    return value < (size_t)low ? low : value > (size_t)high ? high : (int)value;
}

static void write_document(struct builtin *b)
{
    size_t bytes;
    int people, places;

    b->drawn = 0;
    b->out.length = 0;
    b->people_count = b->place_count = b->holding_count = 0;
    bytes = b->typical_bytes * (size_t)(80 + draw_below(b, 41)) / 100;
    people = clamp(bytes / 1600, 2, PEOPLE - draw_below(b, 4));
    places = clamp(bytes / 3200, 2, PLACES);
    for (int i = 0; i < 2; i++)
        add_place(b);
    for (int i = 0; i < 2; i++)
        add_person(b);
    while (b->out.length < bytes && text_status(&b->out) == ALIBI_OK) {
        if (is_due(b, b->place_count, places, bytes))
            add_place(b);
        if (is_due(b, b->people_count, people, bytes))
            add_person(b);
        write_any(b);
    }
}

alibi_status builtin_next(struct builtin *b, struct slice *document)
{
    *document = (struct slice){ 0 };
    if (b->written >= b->bytes && b->document >= LEAST_DOCUMENTS)
        return ALIBI_OK;
    write_document(b);
    TRY_RETURN(text_status(&b->out));
    b->document++;
    b->written += b->out.length;
    *document = (struct slice){ b->out.data, b->out.length };
    return ALIBI_OK;
}

/* ---- which text */

#define AT(field) offsetof(struct alibi_builtin, field)

static const struct alibi_option options[] = {
    { "text-seed", ALIBI_OPTION_INT, AT(seed), 0, INT32_MAX, NULL, "1", "N",
      "seed of the built-in text" },
    { "text-bytes", ALIBI_OPTION_INT, AT(bytes), 1, 1 << 30, NULL, "4194304", "N",
      "approximate size of the built-in text, at least 9000" },
};

const struct alibi_option *alibi_builtin_options(int *count)
{
    *count = COUNT(options);
    return options;
}

alibi_status builtin_open(struct builtin **out, const struct alibi_builtin *which)
{
    struct builtin *b = NULL;

    /* The options' ranges, so that a recipe can name every text that was used. */
    if (which->seed < 0 || (double)which->seed > options[0].max)
        return fail(ALIBI_USAGE, "the built-in text has seeds 0 to %.0f, not %lld", options[0].max,
                    (long long)which->seed);
    if (which->bytes < 1 || (double)which->bytes > options[1].max)
        return fail(ALIBI_USAGE, "the built-in text has 1 to %.0f bytes, not %lld", options[1].max,
                    (long long)which->bytes);
    TRY_RETURN(NEW_ZERO_ARRAY(&b, 1, "the built-in text"));
    b->seed = (uint64_t)which->seed;
    b->bytes = (size_t)which->bytes;
    b->typical_bytes = (size_t)clamp(b->bytes / FEWEST_DOCUMENTS, SHORT_DOCUMENT, DOCUMENT_BYTES);
    for (int i = 0; i < ALTERNATIVES; i++)
        b->zipf[i + 1] = b->zipf[i] + (1 << 20) / (uint32_t)(i + 1);
    for (int i = 0; i < RULES; i++)
        for (const char *at = rules[i].alternatives; *at != '\0'; at += *at == rules[i].separator) {
            size_t length = strcspn(at, (const char[]){ rules[i].separator, '\0' });
            b->choices[i].at[b->choices[i].count++] = (struct slice){ at, length };
            at += length;
        }
    *out = b;
    return ALIBI_OK;
}

void builtin_close(struct builtin *b)
{
    if (b == NULL)
        return;
    text_free(&b->out);
    mem_free(b);
}
