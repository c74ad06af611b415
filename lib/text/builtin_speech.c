/* builtin_speech.c - templates to sentences
 *
 *   "^{an} {look} {tool} {drift.ed}"  ->  "A rusty bell trembled"
 *
 * Rank r of a class of words is drawn with weight 1 / (r + 3), Zipf's law but for the first few,
 * which the words that stand in the templates themselves supply. Most draws are from the palette,
 * the words of a class that the document used last, so a word that was used is likely to be used
 * again soon, as in any text about something. */
#include <string.h>

#include "text/builtin.h"

enum { ZIPF_UNIT = 1 << 20, ZIPF_SHIFT = 3, PALETTE_SHARE = 60 };

/* ---- numbers */

static uint32_t draw(struct writer *w)
{
    if (w->drawn % 4 == 0)
        w->numbers = random_block(w->seed, RANDOM_STREAM(RANDOM_CORPUS, w->document), w->drawn / 4);
    return w->numbers.at[w->drawn++ % 4];
}

int speech_draw_below(struct writer *w, int n)
{
    return (int)(((uint64_t)draw(w) * (uint64_t)n) >> 32);
}

bool speech_draw_chance(struct writer *w, int of_hundred)
{
    return speech_draw_below(w, 100) < of_hundred;
}

/* The r with sums[r] <= target < sums[r + 1]. */
static int find_rank(const uint32_t *sums, int n, uint32_t target)
{
    int low = 0, high = n - 1;

    while (low < high) {
        int middle = (low + high) / 2;
        if (target < sums[middle + 1])
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

int speech_draw_zipf(struct writer *w, int n)
{
    const uint32_t *sums = w->lexicon->zipf;

    return find_rank(sums, n, (uint32_t)speech_draw_below(w, (int)sums[n]));
}

/* ---- the lexicon */

static const char *form_end(const char *text)
{
    return text + strcspn(text, " /");
}

/* Splits the words of a class; returns how many there are, at most CLASS_WORDS. */
static int split_words(struct word *words, const char *text)
{
    int count = 0;

    while (*text != '\0' && count < CLASS_WORDS) {
        size_t entry = strcspn(text, " ");
        words[count++] = (struct word){ .text = text, .length = (int)(form_end(text) - text) };
        text += entry;
        text += strspn(text, " ");
    }
    return count;
}

static int count_templates(const struct rule *rule)
{
    int count = 0;

    while (rule->templates[count] != NULL)
        count++;
    return count;
}

static int compare_name(const struct symbol *s, const char *name, size_t length)
{
    int order = strncmp(s->name, name, length);

    return order != 0 ? order : s->name[length] != '\0';
}

/* Keeps the symbols sorted by name. */
static void add_symbol(struct lexicon *l, struct symbol s)
{
    int at = l->symbol_count++;

    for (; at > 0 && strcmp(l->symbols[at - 1].name, s.name) > 0; at--)
        l->symbols[at] = l->symbols[at - 1];
    l->symbols[at] = s;
}

static const struct symbol *find_symbol(const struct lexicon *l, const char *name, size_t length)
{
    int low = 0, high = l->symbol_count;

    while (low < high) {
        int middle = (low + high) / 2;
        int order = compare_name(&l->symbols[middle], name, length);
        if (order == 0)
            return &l->symbols[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static void add_rules(struct lexicon *l, const struct rule *rules)
{
    for (; rules->name != NULL && l->symbol_count < SYMBOLS; rules++)
        add_symbol(l, (struct symbol){
                          .name = rules->name, .rule = rules, .index = count_templates(rules) });
}

void speech_init(struct lexicon *l)
{
    for (int r = 0; r < CLASS_WORDS; r++)
        l->zipf[r + 1] = l->zipf[r] + ZIPF_UNIT / (uint32_t)(r + ZIPF_SHIFT);
    for (int i = 0; i < CLASSES && builtin_classes[i].name != NULL; i++) {
        l->sizes[i] = split_words(l->words[i], builtin_classes[i].words);
        add_symbol(l, (struct symbol){ .name = builtin_classes[i].name, .index = i });
    }
    add_rules(l, builtin_phrases);
    add_rules(l, builtin_stories);
}

void speech_begin(struct writer *w, uint64_t document)
{
    w->document = document;
    w->drawn = 0;
    w->out.length = 0;
    for (int i = 0; i < CLASSES && w->lexicon->sizes[i] > 0; i++)
        for (int k = 0; k < PALETTE; k++)
            w->palette[i][k] = (uint8_t)speech_draw_below(w, w->lexicon->sizes[i]);
}

/* ---- output */

static void append(struct writer *w, const char *text, size_t length)
{
    if (w->status == ALIBI_OK)
        w->status = text_append_bytes(&w->out, text, length);
}

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static void append_capital(struct writer *w, const char *text, size_t length)
{
    size_t first = 0;
    char capital;

    while (first < length && !is_letter(text[first]))
        first++;
    append(w, text, first);
    if (first == length)
        return;
    capital = (char)(text[first] & ~0x20);
    append(w, &capital, 1);
    append(w, text + first + 1, length - first - 1);
    w->capital = false;
}

/* "a" or "an" waits for the word it belongs to; the template's space between them comes first and
 * is not written. */
static void put_article(struct writer *w, char next)
{
    bool vowel = memchr("aeiouAEIOU", next, 10) != NULL;

    w->article = false;
    speech_put(w, vowel ? "an " : "a ", vowel ? 3 : 2);
}

void speech_put(struct writer *w, const char *text, size_t length)
{
    if (w->article && length > 0 && text[0] == ' ') {
        text++;
        length--;
    }
    if (length == 0)
        return;
    if (w->article)
        put_article(w, text[0]);
    if (w->capital)
        append_capital(w, text, length);
    else
        append(w, text, length);
}

void speech_put_text(struct writer *w, const char *text)
{
    speech_put(w, text, strlen(text));
}

void speech_put_number(struct writer *w, int n)
{
    static const char *const low[] = { "none",    "one",     "two",       "three",    "four",
                                       "five",    "six",     "seven",     "eight",    "nine",
                                       "ten",     "eleven",  "twelve",    "thirteen", "fourteen",
                                       "fifteen", "sixteen", "seventeen", "eighteen", "nineteen" };
    static const char *const tens[] = { "twenty", "thirty",  "forty",  "fifty",
                                        "sixty",  "seventy", "eighty", "ninety" };

    if (n < 20) {
        speech_put_text(w, low[n]);
        return;
    }
    speech_put_text(w, tens[n / 10 - 2]);
    if (n % 10 > 0) {
        speech_put_text(w, "-");
        speech_put_text(w, low[n % 10]);
    }
}

/* ---- words and their forms */

enum word_form { FORM_FIRST, FORM_S, FORM_ED, FORM_ING };

static bool ends_in(const struct word *word, const char *end)
{
    size_t length = strlen(end);

    return (size_t)word->length >= length &&
           memcmp(word->text + word->length - length, end, length) == 0;
}

static bool ends_in_consonant_and_y(const struct word *word)
{
    return ends_in(word, "y") && word->length > 1 &&
           strchr("aeiou", word->text[word->length - 2]) == NULL;
}

static void put_stem(struct writer *w, const struct word *word, int dropped, const char *ending)
{
    speech_put(w, word->text, (size_t)(word->length - dropped));
    speech_put_text(w, ending);
}

static void put_s(struct writer *w, const struct word *word)
{
    if (ends_in_consonant_and_y(word))
        put_stem(w, word, 1, "ies");
    else if (ends_in(word, "s") || ends_in(word, "x") || ends_in(word, "ch") ||
             ends_in(word, "sh") || ends_in(word, "o"))
        put_stem(w, word, 0, "es");
    else
        put_stem(w, word, 0, "s");
}

static void put_ed(struct writer *w, const struct word *word)
{
    if (ends_in_consonant_and_y(word))
        put_stem(w, word, 1, "ied");
    else
        put_stem(w, word, 0, ends_in(word, "e") ? "d" : "ed");
}

static void put_ing(struct writer *w, const struct word *word)
{
    put_stem(w, word, ends_in(word, "e") && !ends_in(word, "ee") ? 1 : 0, "ing");
}

/* The irregular form number n, counted from 1, if the entry has it. */
static bool put_irregular(struct writer *w, const struct word *word, int n)
{
    const char *form = word->text;

    for (; n > 0; n--) {
        form = form_end(form);
        if (*form != '/')
            return false;
        form++;
    }
    speech_put(w, form, (size_t)(form_end(form) - form));
    return true;
}

static void put_word(struct writer *w, const struct word *word, enum word_kind kind,
                     enum word_form form)
{
    if (form == FORM_FIRST)
        put_stem(w, word, 0, "");
    else if (form == FORM_S && (kind == WORD_VERB || !put_irregular(w, word, 1)))
        put_s(w, word);
    else if (form == FORM_ED && !put_irregular(w, word, 1))
        put_ed(w, word);
    else if (form == FORM_ING && !put_irregular(w, word, 2))
        put_ing(w, word);
}

static enum word_form form_of(const char *suffix, size_t length)
{
    if (length == 1 && suffix[0] == 's')
        return FORM_S;
    if (length == 2 && memcmp(suffix, "ed", 2) == 0)
        return FORM_ED;
    return length == 3 && memcmp(suffix, "ing", 3) == 0 ? FORM_ING : FORM_FIRST;
}

/* Puts the word in front of the palette: from where it stood in it, or in place of the one not used
 * for longest. */
static void use_word(uint8_t palette[PALETTE], int rank)
{
    int at = 0;

    while (at < PALETTE - 1 && palette[at] != rank)
        at++;
    memmove(palette + 1, palette, (size_t)at);
    palette[0] = (uint8_t)rank;
}

/* Of the palette all but the last word used, lest it be "a kettle and a kettle". */
static int draw_word(struct writer *w, int class)
{
    int rank, size = w->lexicon->sizes[class];

    if (builtin_classes[class].kind == WORD_NAME)
        return speech_draw_below(w, size);
    if (size > 2 * PALETTE && speech_draw_chance(w, PALETTE_SHARE))
        rank = w->palette[class][1 + speech_draw_zipf(w, PALETTE - 1)];
    else
        rank = speech_draw_zipf(w, size);
    use_word(w->palette[class], rank);
    return rank;
}

/* ---- templates */

static void say_class(struct writer *w, int class, enum word_form form)
{
    struct word word = w->lexicon->words[class][draw_word(w, class)];

    if (word.text[0] == '^') {
        w->capital = true;
        word.text++;
        word.length--;
    }
    put_word(w, &word, builtin_classes[class].kind, form);
}

/* What stands between braces: a name, perhaps with a form behind a dot. */
static void say_symbol(struct writer *w, const char *name, size_t length)
{
    const char *dot = memchr(name, '.', length);
    size_t base = dot != NULL ? (size_t)(dot - name) : length;
    const struct symbol *s = find_symbol(w->lexicon, name, base);

    if (length == 2 && memcmp(name, "an", 2) == 0)
        w->article = true;
    else if (s != NULL && s->rule != NULL)
        speech_say(w, s->rule->templates[speech_draw_zipf(w, s->index)]);
    else if (s != NULL)
        say_class(w, s->index, dot != NULL ? form_of(dot + 1, length - base - 1) : FORM_FIRST);
    else if (!world_say(w, name, length) && w->status == ALIBI_OK)
        w->status =
            fail(ALIBI_BAD_INPUT, "built-in text: the grammar has no '%.*s'", (int)length, name);
}

/* Calls itself through say_symbol, as deep as the rules are nested; no rule leads back to itself,
 * so that is a few levels. */
void speech_say(struct writer *w, const char *template)
{
    while (*template != '\0') {
        size_t plain = strcspn(template, "{^");
        speech_put(w, template, plain);
        template += plain;
        if (*template == '^') {
            w->capital = true;
            template ++;
        } else if (*template == '{') {
            size_t name = strcspn(template + 1, "}");
            say_symbol(w, template + 1, name);
            template += name + (template[name + 1] == '}' ? 2 : 1);
        }
    }
}

void speech_compose(struct writer *w, char *out, size_t size, const char *template)
{
    size_t start = w->out.length, length;

    speech_say(w, template);
    length = w->status == ALIBI_OK ? w->out.length - start : 0;
    if (length >= size)
        length = size - 1;
    if (length > 0)
        memcpy(out, w->out.data + start, length);
    out[length] = '\0';
    w->out.length = start;
}

void speech_compose_pair(struct writer *w, char *one, char *many, size_t size,
                         const char *one_template, const char *many_template)
{
    uint64_t drawn = w->drawn;
    uint8_t palette[CLASSES][PALETTE];

    memcpy(palette, w->palette, sizeof palette);
    speech_compose(w, one, size, one_template);
    memcpy(w->palette, palette, sizeof palette);
    w->drawn = drawn;
    w->numbers = random_block(w->seed, RANDOM_STREAM(RANDOM_CORPUS, w->document), drawn / 4);
    speech_compose(w, many, size, many_template);
}
