/* builtin.h - inside the generator of the built-in text
 *
 *   words and grammar (data) -> speech (templates to sentences) -> world (people, places, things)
 *   -> plot (paragraphs, documents)
 *
 * Every choice is an integer drawn from (seed, document), so the same seed gives the same bytes on
 * any machine. A document is written from its own numbers alone and knows nothing of the others. */
#ifndef BUILTIN_H
#define BUILTIN_H

#include "text/text.h"

/* ---- words (builtin_words.c) */

/* Words in order of frequency, separated by spaces. Irregular forms follow a slash: "knife/knives",
 * "go/went/going"; the others are made by rule. WORD_NAME: syllables, all equally frequent. */
enum word_kind { WORD_PLAIN, WORD_NOUN, WORD_VERB, WORD_NAME };
struct word_class {
    const char *name; /* how templates call it */
    enum word_kind kind;
    const char *words;
};
extern const struct word_class builtin_classes[];

/* ---- grammar (builtin_phrases.c, builtin_stories.c) */

/* A rule is a choice of templates, the likeliest first, NULL behind the last. In a template {x}
 * stands for a word of class x, a choice of rule x, or a fact of the scene (builtin_world.c), and ^
 * makes the next letter a capital. No rule leads back to itself. */
struct rule {
    const char *name;
    const char *const *templates;
};
extern const struct rule builtin_phrases[], builtin_stories[];

/* ---- the state of a writer */

enum {
    CLASSES = 64,
    CLASS_WORDS = 160,
    PALETTE = 10,
    SYMBOLS = 256,
    NAME_BYTES = 24,
    PHRASE_BYTES = 96,
};

struct word {
    const char *text; /* the whole entry, irregular forms included */
    int length;       /* of its first form */
};

struct symbol {
    const char *name;
    const struct rule *rule; /* NULL: a class of words */
    int index;               /* of the class; of a rule, how many templates it has */
};

struct lexicon {
    struct word words[CLASSES][CLASS_WORDS];
    int sizes[CLASSES];
    struct symbol symbols[SYMBOLS];
    int symbol_count;
    uint32_t zipf[CLASS_WORDS + 1]; /* running sum of the weights of ranks */
};

/* Two holdings may come with each person, and the spare ones by giving. */
enum {
    PEOPLE = 14,
    PLACES = 7,
    SPARE_HOLDINGS = 8,
    HOLDINGS = 2 * PEOPLE + SPARE_HOLDINGS,
    SAYINGS = 3
};

struct person {
    char first[NAME_BYTES], last[NAME_BYTES];
    bool woman;
    char trade[NAME_BYTES], beast[NAME_BYTES], pet[NAME_BYTES];
    char trait[PHRASE_BYTES];
    int home; /* a place */
    int kin;  /* an earlier person, or -1 */
};

struct town {
    char name[NAME_BYTES], house[NAME_BYTES];
    char look[NAME_BYTES];
    char password[PHRASE_BYTES]; /* opens its gate */
    int miles[PLACES];           /* to each place before it */
};

/* So many things of one kind, of one person, in one place. */
struct holding {
    int owner, place;
    char thing[PHRASE_BYTES], things[PHRASE_BYTES];
    int count;
};

/* Numbers 0..count-1 of people, places or holdings, the most lately used first. */
struct recency {
    int at[HOLDINGS];
    int count;
};

struct world {
    struct person people[PEOPLE];
    struct town places[PLACES];
    struct holding holdings[HOLDINGS];
    char sayings[SAYINGS][PHRASE_BYTES];
    struct recency known_people, known_places, known_holdings;
};

/* Whom and what a sentence is about. h is a's, g is b's. */
struct scene {
    int a, b, c; /* people */
    int x, y;    /* places */
    int h, g;    /* holdings */
    int moved, before;
    int saying;
    uint32_t named; /* people whose full name this paragraph has given, one bit each */
};

struct writer {
    const struct lexicon *lexicon;
    uint64_t seed, document, drawn;
    struct random4 numbers;
    struct text out;
    alibi_status status; /* of the first failure; from then on nothing is written, so that sentences
                            need not look */
    bool capital, article;
    uint8_t palette[CLASSES]
                   [PALETTE]; /* of each class, the words used lately, the last one first */
    struct world world;
    struct scene scene;
};

/* ---- speech (builtin_speech.c) */

void speech_init(struct lexicon *l);
void speech_begin(struct writer *w,
                  uint64_t document); /* fresh numbers, a fresh palette, an empty page */
int speech_draw_below(struct writer *w, int n);
int speech_draw_zipf(struct writer *w, int n); /* 0..n-1, the small ones more often */
bool speech_draw_chance(struct writer *w, int of_hundred);
void speech_put(struct writer *w, const char *text, size_t length);
void speech_put_text(struct writer *w, const char *text);
void speech_put_number(struct writer *w, int n); /* 0..99, in words */
void speech_say(struct writer *w, const char *template);
/* Speaks aside: the result goes into `out` instead of the document. The pair is of the same words,
 * once singular, once plural. */
void speech_compose(struct writer *w, char *out, size_t size, const char *template);
void speech_compose_pair(struct writer *w, char *one, char *many, size_t size,
                         const char *one_template, const char *many_template);

/* ---- world (builtin_world.c) */

void world_begin(struct writer *w);
void world_add_place(struct writer *w); /* scene.x is the new place */
void world_add_person(
    struct writer *w); /* scene.a is the new person, scene.h what they keep at home */
void world_add_holding(struct writer *w); /* something that a keeps in another place: scene.h */
/* Writes the fact that a template calls `name`, such as A, A.his, X.house, H.count; false if there
 * is none of that name. */
bool world_say(struct writer *w, const char *name, size_t length);

/* Fill the scene: with what was used lately, mostly; with what was not used for long, mostly. */
void world_cast_lately(struct writer *w);
void world_cast_long_ago(struct writer *w);
void world_cast_oldest(struct writer *w); /* called again, it goes through all of them */

/* Change how many h there are: some go from a to b (then g is b's), some are lost, some are found.
 * False, and nothing is changed, if there are too few or too many for that, or by chance. */
bool world_give(struct writer *w);
bool world_lose(struct writer *w);
bool world_find(struct writer *w);

#endif
