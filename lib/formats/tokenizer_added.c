/* tokenizer_added.c - the added tokens of a tokenizer.json
 *
 * Hugging Face's library ignores the ids of the list. An added token has its id in the vocabulary,
 * and the others are numbered after that, in the order of the list. A list with other ids is
 * refused.
 *
 * The library matches tokens with "normalized" false first, and the others in the remaining text.
 * This equals matching all at once, unless a token of the first kind and one of the second can
 * overlap, or a normalizer can change a token of the second kind, or make one. */
#include <stdlib.h>
#include <string.h>

#include "formats/bpe_build.h"

enum { COMPARISONS_MAX = 1 << 28 };

enum { ID, CONTENT, SINGLE_WORD, LSTRIP, RSTRIP, NORMALIZED, SPECIAL, END, MEMBERS };

struct list {
    struct bpe_build *build;
    bool *normalized; /* [count] */
    int64_t outside;  /* of the vocabulary, so far */
    bool single_word; /* of any token */
};

/* ---- one token */

static alibi_status read_flag(struct scan *s, const struct scan_member *m, bool *out)
{
    s->at = m->at;
    return scan_bool(s, out);
}

/* The id must be that of the vocabulary, or the next one after it. */
static alibi_status check_id(struct list *l, struct bpe_added *a, int64_t id)
{
    const struct token_names *names = &l->build->names;
    int64_t known = token_names_find(names, a->text, (struct slice){ 0 });
    int64_t due = known >= 0 ? known : names->count + l->outside;

    if (id != due)
        return scan_fail(&l->build->scan, "the added token '%.80s' has the id %lld, but %s is %lld",
                         a->text.at, (long long)id,
                         known >= 0 ? "its id in the vocabulary" : "the next free one",
                         (long long)due);
    if (known >= 0 && !l->build->file->characters && name_is_letters(a->text) &&
        !name_is_ascii(a->text))
        return scan_fail(&l->build->scan,
                         "the added token '%.80s' has other bytes in the vocabulary", a->text.at);
    a->id = (int32_t)id;
    a->in_vocab = known >= 0;
    l->outside += known < 0;
    return ALIBI_OK;
}

/* Whether NFC leaves the token as it is in every text, and makes it of no other: letters and some
 * signs compose with a mark that follows, K ; and ` are made of other characters, and so may be
 * characters beyond ASCII. */
static bool is_stable(struct slice text)
{
    unsigned char last = (unsigned char)text.at[text.bytes - 1];

    for (size_t i = 0; i < text.bytes; i++)
        if ((unsigned char)text.at[i] >= 0x80 || strchr("K;`", text.at[i]) != NULL)
            return false;
    return strchr("<=>", last) == NULL && !((last | 0x20) >= 'a' && (last | 0x20) <= 'z');
}

/* Whether the text has a blank, in either spelling. */
static bool has_blank(struct slice text)
{
    for (size_t i = 0; i < text.bytes; i++)
        if (text.at[i] == ' ' ||
            slice_begins((struct slice){ text.at + i, text.bytes - i }, BPE_BLANK))
            return true;
    return false;
}

/* A normalized token after Prepend: the library prefixes the token too, and finds it only after a
 * blank. */
static alibi_status check_prefixed(struct list *l, struct bpe_added *a)
{
    a->prefixed = true;
    if (has_blank(a->text) || a->lstrip || a->rstrip || a->single_word)
        return scan_fail(&l->build->scan,
                         "the added token '%.80s' is 'normalized' by Prepend, and is a single word "
                         "or has or takes blanks, which is not supported,",
                         a->text.at);
    return ALIBI_OK;
}

static alibi_status read_token(struct list *l, int index)
{
    struct scan_member m[MEMBERS] = { { "id", true, 0 },          { "content", true, 0 },
                                      { "single_word", true, 0 }, { "lstrip", true, 0 },
                                      { "rstrip", true, 0 },      { "normalized", true, 0 },
                                      { "special", true, 0 },     { "end_of_document", false, 0 } };
    struct scan *s = &l->build->scan;
    struct bpe_added *a = &l->build->file->added[index];
    int64_t id = 0;
    size_t end;

    TRY_RETURN(scan_object(s, "an added token", m, MEMBERS));
    end = s->at;
    s->at = m[CONTENT].at;
    TRY_RETURN(scan_slice(s, &a->text));
    if (a->text.bytes == 0)
        return scan_fail(s, "an added token without letters");
    TRY_RETURN(read_flag(s, &m[SINGLE_WORD], &a->single_word));
    l->single_word = l->single_word || a->single_word;
    TRY_RETURN(read_flag(s, &m[LSTRIP], &a->lstrip));
    TRY_RETURN(read_flag(s, &m[RSTRIP], &a->rstrip));
    TRY_RETURN(read_flag(s, &m[NORMALIZED], &a->normalized));
    l->normalized[index] = a->normalized;
    if (l->normalized[index] && l->build->file->nfc && !is_stable(a->text))
        return scan_fail(s, "the added token '%.80s' is 'normalized', and NFC may change it,",
                         a->text.at);
    TRY_RETURN(read_flag(s, &m[SPECIAL], &a->special));
    if (l->normalized[index] && l->build->file->prefix == PREFIX_ALWAYS)
        TRY_RETURN(check_prefixed(l, a));
    if (m[END].at != 0)
        TRY_RETURN(read_flag(s, &m[END], &a->ends_document));
    s->at = m[ID].at;
    TRY_RETURN(scan_count(s, &id));
    TRY_RETURN(check_id(l, a, id));
    s->at = end;
    return ALIBI_OK;
}

/* ---- all tokens */

/* Whether b can begin at a byte of a and agree with it as far as both go. */
static bool reaches_into(struct slice a, struct slice b)
{
    for (size_t i = 0; i < a.bytes; i++) {
        size_t both = a.bytes - i < b.bytes ? a.bytes - i : b.bytes;
        if (a.at[i] == b.at[0] && memcmp(a.at + i, b.at, both) == 0)
            return true;
    }
    return false;
}

/* Tokens of `bytes` bytes in all are about to be compared with every token: a hostile list would
 * take hours. */
static alibi_status check_comparisons(const struct list *l, size_t bytes, const char *why)
{
    if (bytes <= (size_t)COMPARISONS_MAX / (size_t)l->build->file->added_count)
        return ALIBI_OK;
    return scan_fail(&l->build->scan, "too many added tokens%s, in the list that ends", why);
}

static alibi_status check_overlaps(const struct list *l)
{
    const struct bpe_file *f = l->build->file;
    size_t bytes = 0;
    bool alike = true;

    for (int i = 0; i < f->added_count; i++) {
        bytes += f->added[i].text.bytes;
        alike = alike && l->normalized[i] == l->normalized[0];
    }
    if (alike)
        return ALIBI_OK;
    TRY_RETURN(check_comparisons(l, bytes, ", only some of them 'normalized'"));
    for (int i = 0; i < f->added_count; i++)
        for (int j = 0; j < i; j++) {
            struct slice a = f->added[i].text, b = f->added[j].text;
            if (l->normalized[i] != l->normalized[j] && (reaches_into(a, b) || reaches_into(b, a)))
                return scan_fail(
                    &l->build->scan,
                    "the added tokens '%.80s' and '%.80s' can overlap, and only one of them is "
                    "'normalized', in the list that ends",
                    a.at, b.at);
        }
    return ALIBI_OK;
}

static int compare_texts(const void *a, const void *b)
{
    const struct slice *s = &((const struct bpe_added *)a)->text,
                       *t = &((const struct bpe_added *)b)->text;

    if (s->bytes != t->bytes)
        return s->bytes < t->bytes ? -1 : 1;
    return memcmp(s->at, t->at, s->bytes);
}

static int compare_ids(const void *a, const void *b)
{
    const struct bpe_added *s = a, *t = b;

    return s->id < t->id ? -1 : s->id > t->id;
}

static bool ends_in_blank(struct slice text)
{
    size_t blank = strlen(BPE_BLANK);

    return text.bytes >= blank && memcmp(text.at + text.bytes - blank, BPE_BLANK, blank) == 0;
}

/* White space that one token takes cannot be another token: the library's result depends on which
 * of them it looks for first. The blank before a token that has one belongs to no other token. */
static alibi_status check_strips(const struct list *l)
{
    const struct bpe_file *f = l->build->file;
    const struct bpe_added *strips = NULL, *blank = NULL;

    for (int i = 0; i < f->added_count; i++) {
        const struct bpe_added *a = &f->added[i];
        if (a->lstrip || a->rstrip || a->prefixed)
            strips = a;
        if (white_space_before(a->text.at, 0, a->text.bytes) < a->text.bytes ||
            white_space_after(a->text.at, 0, a->text.bytes) > 0 ||
            (f->characters && (slice_begins(a->text, BPE_BLANK) || ends_in_blank(a->text))))
            blank = a;
    }
    if (strips != NULL && blank != NULL)
        return scan_fail(&l->build->scan,
                         "the added token '%.80s' takes white space, and '%.80s' begins or ends "
                         "with it, which is not supported, in the list that ends",
                         strips->text.at, blank->text.at);
    return ALIBI_OK;
}

/* The library skips a single word that has letters around it as a whole: no token may start within
 * it. */
static alibi_status check_single_words(const struct list *l)
{
    const struct bpe_file *f = l->build->file;
    size_t bytes = 0;

    for (int i = 0; i < f->added_count; i++)
        bytes += f->added[i].single_word ? f->added[i].text.bytes : 0;
    if (bytes > 0)
        TRY_RETURN(check_comparisons(l, bytes, " with 'single_word'"));
    for (int i = 0; i < f->added_count; i++) {
        struct slice word = f->added[i].text, rest = { word.at + 1, word.bytes - 1 };
        for (int j = 0; f->added[i].single_word && j < f->added_count; j++)
            if (reaches_into(rest, f->added[j].text))
                return scan_fail(&l->build->scan,
                                 "the added token '%.80s' has 'single_word', and '%.80s' can start "
                                 "within it, which is not supported, in the list that ends",
                                 word.at, f->added[j].text.at);
    }
    return ALIBI_OK;
}

/* Checks all tokens together and sorts them by id. */
static alibi_status check_and_sort(const struct list *l)
{
    struct bpe_file *f = l->build->file;
    size_t count = (size_t)f->added_count;
    int ends = 0;

    for (int i = 0; i < f->added_count; i++)
        ends += f->added[i].ends_document;
    if (ends > 1)
        return scan_fail(&l->build->scan,
                         "%d added tokens have 'end_of_document' in the list that ends", ends);
    TRY_RETURN(check_overlaps(l));
    TRY_RETURN(check_strips(l));
    TRY_RETURN(check_single_words(l));
    qsort(f->added, count, sizeof *f->added, compare_texts);
    for (int i = 1; i < f->added_count; i++)
        if (compare_texts(&f->added[i - 1], &f->added[i]) == 0)
            return scan_fail(&l->build->scan,
                             "the added token '%.80s' is repeated in the list that ends",
                             f->added[i].text.at);
    qsort(f->added, count, sizeof *f->added, compare_ids);
    return ALIBI_OK;
}

alibi_status bpe_build_added(struct bpe_build *b)
{
    alibi_status status;
    struct bpe_file *f = b->file;
    struct list list = { .build = b };
    size_t start = b->scan.at, bytes = (size_t)f->vocab * sizeof *f->tokens;
    int64_t count = 0;

    TRY(scan_skip(&b->scan, &count));
    TRY(NEW_ZERO_ARRAY(&f->added, count, "added tokens"));
    TRY(NEW_ARRAY(&list.normalized, count, "added tokens"));
    b->scan.at = start;
    TRY(scan_expect(&b->scan, '['));
    if (!scan_take(&b->scan, ']')) {
        do
            TRY(read_token(&list, f->added_count++));
        while (scan_take(&b->scan, ','));
        TRY(scan_expect(&b->scan, ']'));
        TRY(check_and_sort(&list));
    }
    /* When a token is looked for matters only in these cases; otherwise files stay as they were. */
    for (int i = 0; i < f->added_count; i++)
        f->added[i].normalized =
            f->added[i].normalized && (f->added[i].prefixed || list.single_word);
    /* The added tokens enter the vocabulary with their literal text. */
    TRY(mem_grow((void **)&f->tokens, bytes, bytes + (size_t)list.outside * sizeof *f->tokens,
                 "tokens"));
    f->vocab += list.outside;
    for (int i = 0; i < f->added_count; i++)
        f->tokens[f->added[i].id] = f->added[i].text;
out:
    mem_free(list.normalized);
    return status;
}
