/* tokenizer_steps.c - what a tokenizer.json does with text before and after its model
 *
 *   normalizer -> pre-tokenizer -> model -> post-processor,   and back: decoder
 *
 * Two kinds of files are read. A byte-level one ends its pre-tokenizer with ByteLevel. One that
 * merges characters writes blanks as U+2581, either by the normalizers Prepend and Replace, as
 * Llama 2 does, or by the pre-tokenizer Metaspace. Everything else is refused by name.
 *
 * A decoder must be one of the usual ones of its kind: text is decoded to what was encoded, not
 * step by step. */
#include <string.h>

#include "formats/bpe_build.h"

/* ---- parts that several steps share */

typedef alibi_status read_part(struct bpe_build *b, size_t at);

/* The type of the object at `at`. Borrowed until the next string is read. */
static alibi_status read_type(struct bpe_build *b, size_t at, const char *what, const char **type)
{
    struct scan *s = &b->scan;
    struct scan_member member = { "type", true, 0 };
    size_t before = s->used;

    s->at = at;
    TRY_RETURN(scan_find(s, what, &member));
    s->at = member.at;
    TRY_RETURN(scan_string(s, type));
    s->used = before;
    s->at = at;
    return ALIBI_OK;
}

static alibi_status read_each(struct bpe_build *b, size_t at, read_part *read)
{
    struct scan *s = &b->scan;

    s->at = at;
    TRY_RETURN(scan_expect(s, '['));
    if (scan_take(s, ']'))
        return ALIBI_OK;
    do {
        size_t element, next;
        scan_peek(s);
        element = s->at;
        TRY_RETURN(scan_skip(s, NULL));
        next = s->at;
        TRY_RETURN(read(b, element));
        s->at = next;
    } while (scan_take(s, ','));
    return scan_expect(s, ']');
}

/* A part that may be missing or null: one object, or a Sequence of them in the list `key`. */
static alibi_status read_optional(struct bpe_build *b, size_t at, const char *what, const char *key,
                                  read_part *read)
{
    struct scan_member m[] = { { "type", true, 0 }, { key, true, 0 } };
    const char *type = NULL;

    b->scan.at = at;
    if (at == 0 || scan_take_null(&b->scan))
        return ALIBI_OK;
    TRY_RETURN(read_type(b, at, what, &type));
    if (strcmp(type, "Sequence") != 0)
        return read(b, at);
    TRY_RETURN(scan_object(&b->scan, what, m, COUNT(m)));
    return read_each(b, m[1].at, read);
}

alibi_status bpe_read_flag(struct bpe_build *b, const struct scan_member *m, bool *flag)
{
    if (m->at == 0)
        return ALIBI_OK;
    b->scan.at = m->at;
    return scan_take_null(&b->scan) ? ALIBI_OK : scan_bool(&b->scan, flag);
}

/* The text of a member, borrowed until the next string is read. */
static alibi_status read_text(struct bpe_build *b, const struct scan_member *m, const char **text)
{
    size_t before = b->scan.used;

    b->scan.at = m->at;
    TRY_RETURN(scan_string(&b->scan, text));
    b->scan.used = before;
    b->scan.at = m->at;
    return ALIBI_OK;
}

alibi_status bpe_expect_text(struct bpe_build *b, const struct scan_member *m, const char *text)
{
    const char *found = NULL;

    TRY_RETURN(read_text(b, m, &found));
    return strcmp(found, text) == 0
               ? ALIBI_OK
               : scan_fail(&b->scan, "'%s' is '%.80s', only '%s' is supported,", m->key, found,
                           text);
}

static alibi_status expect_flag(struct bpe_build *b, const struct scan_member *m, bool value)
{
    bool found = value;

    TRY_RETURN(bpe_read_flag(b, m, &found));
    if (found == value)
        return ALIBI_OK;
    b->scan.at = m->at;
    return scan_fail(&b->scan, "'%s' is %s, which is not supported,", m->key,
                     found ? "true" : "false");
}

/* {"Regex": text} or {"String": text}, borrowed until the next string is read. */
static alibi_status read_pattern(struct bpe_build *b, size_t at, const char **pattern, bool *plain)
{
    struct scan_member p[] = { { "Regex", false, 0 }, { "String", false, 0 } };
    struct scan *s = &b->scan;

    s->at = at;
    TRY_RETURN(scan_object(s, "a pattern", p, COUNT(p)));
    if ((p[0].at == 0) == (p[1].at == 0))
        return scan_fail(s, "a pattern must have one of 'Regex' and 'String'; it ends");
    *plain = p[1].at != 0;
    TRY_RETURN(read_text(b, &p[*plain], pattern));
    return (*pattern)[0] != '\0' ? ALIBI_OK : scan_fail(s, "the pattern is empty");
}

/* A Replace of the plain text `from` by `to`, and no other. */
static alibi_status expect_replace(struct bpe_build *b, size_t at, const char *from, const char *to)
{
    struct scan_member m[] = { { "type", true, 0 },
                               { "pattern", true, 0 },
                               { "content", true, 0 } };
    const char *pattern = NULL;
    bool plain = false;

    b->scan.at = at;
    TRY_RETURN(scan_object(&b->scan, "a Replace", m, COUNT(m)));
    TRY_RETURN(read_pattern(b, m[1].at, &pattern, &plain));
    if (!plain || strcmp(pattern, from) != 0)
        return scan_fail(&b->scan,
                         "a Replace of '%.80s' is not supported, only of '%s' by '%s' is,", pattern,
                         from, to);
    return bpe_expect_text(b, &m[2], to);
}

/* ---- normalizer */

static alibi_status read_normalizer(struct bpe_build *b, size_t at)
{
    struct scan_member m[] = { { "type", true, 0 }, { "prepend", true, 0 } };
    const char *type = NULL;

    TRY_RETURN(read_type(b, at, "the normalizer", &type));
    if (strcmp(type, "NFC") == 0) {
        b->file->nfc = true;
        return ALIBI_OK;
    }
    if (strcmp(type, "Replace") == 0) {
        b->replaces = true;
        return expect_replace(b, at, " ", BPE_BLANK);
    }
    if (strcmp(type, "Prepend") != 0 || b->file->prefix != PREFIX_NONE)
        return scan_fail(
            &b->scan,
            "the normalizer '%.80s' is not supported, only NFC, or one Prepend and Replace, are,",
            type);
    b->file->prefix = PREFIX_ALWAYS;
    TRY_RETURN(scan_object(&b->scan, "a Prepend", m, COUNT(m)));
    return bpe_expect_text(b, &m[1], BPE_BLANK);
}

/* ---- pre-tokenizer */

static alibi_status add_split(struct bpe_build *b, const struct bpe_split *split)
{
    struct bpe_file *f = b->file;
    struct bpe_split *added = &f->splits[f->split_count];

    if (f->split_count == BPE_SPLITS_MAX)
        return scan_fail(&b->scan, "the pre-tokenizer has more than %d patterns", BPE_SPLITS_MAX);
    if (b->byte_level && f->split_count == 0)
        return scan_fail(&b->scan,
                         "a pre-tokenizer after a ByteLevel that does not cut text is not "
                         "supported,");
    *added = *split;
    added->after_bytes = b->byte_level;
    added->pattern = NULL;
    TRY_RETURN(text_copy(&added->pattern, split->pattern));
    f->split_count++;
    return ALIBI_OK;
}

/* After a Split, the blank of add_prefix_space would be put before every piece. */
static alibi_status read_byte_level(struct bpe_build *b, size_t at)
{
    struct scan_member m[] = { { "type", true, 0 },
                               { "add_prefix_space", true, 0 },
                               { "trim_offsets", false, 0 },
                               { "use_regex", false, 0 } };
    bool use_regex = true, trim_offsets = false, prefix = false;

    b->scan.at = at;
    TRY_RETURN(scan_object(&b->scan, "the pre-tokenizer", m, COUNT(m)));
    TRY_RETURN(bpe_read_flag(b, &m[1], &prefix));
    if (prefix && b->file->split_count > 0)
        return scan_fail(&b->scan, "'%s' after another pre-tokenizer is not supported,", m[1].key);
    if (prefix)
        b->file->prefix = PREFIX_EACH;
    TRY_RETURN(bpe_read_flag(b, &m[2], &trim_offsets));
    TRY_RETURN(bpe_read_flag(b, &m[3], &use_regex));
    if (use_regex)
        TRY_RETURN(
            add_split(b, &(struct bpe_split){ .pattern = (char *)(uintptr_t)bpe_gpt2_pattern }));
    b->byte_level = true;
    return ALIBI_OK;
}

static alibi_status read_split(struct bpe_build *b, size_t at)
{
    struct scan_member m[] = {
        { "type", true, 0 }, { "pattern", true, 0 }, { "behavior", true, 0 }, { "invert", true, 0 }
    };
    const char *pattern = NULL;
    bool plain = false;

    b->scan.at = at;
    TRY_RETURN(scan_object(&b->scan, "a Split", m, COUNT(m)));
    TRY_RETURN(bpe_expect_text(b, &m[2], "Isolated"));
    TRY_RETURN(expect_flag(b, &m[3], false));
    TRY_RETURN(read_pattern(b, m[1].at, &pattern, &plain));
    /* After ByteLevel digits are what they were; nothing else needs to be. */
    if (b->byte_level && (plain || strspn(pattern, "0123456789[]-") < strlen(pattern)))
        return scan_fail(&b->scan,
                         "the pattern '%.80s' after ByteLevel is not supported, only digits are,",
                         pattern);
    return add_split(b,
                     &(struct bpe_split){ .pattern = (char *)(uintptr_t)pattern, .plain = plain });
}

/* Category N of Unicode 16, and what it gained in 17, which the library has here. */
#define DIGITS "[\\p{N}\xF0\x91\xB7\xA0-\xF0\x91\xB7\xA9\xF0\x96\xBF\xB4-\xF0\x96\xBF\xB6]"

static alibi_status read_digits(struct bpe_build *b, size_t at)
{
    struct scan_member m[] = { { "type", true, 0 }, { "individual_digits", true, 0 } };
    struct bpe_split split = { .kind = SPLIT_DIGITS };
    char each[] = DIGITS, runs[] = DIGITS "+";

    b->scan.at = at;
    TRY_RETURN(scan_object(&b->scan, "a Digits", m, COUNT(m)));
    TRY_RETURN(bpe_read_flag(b, &m[1], &split.each));
    split.pattern = split.each ? each : runs;
    return add_split(b, &split);
}

static alibi_status read_punctuation(struct bpe_build *b, size_t at)
{
    static const uint32_t ranges[][2] = {
#include "formats/punctuation.inc"
    };
    struct scan_member m[] = { { "type", true, 0 }, { "behavior", false, 0 } };
    struct bpe_split split = { .kind = SPLIT_PUNCTUATION };
    struct text pattern = { 0 };
    const char *behavior = "Isolated";
    alibi_status status;

    b->scan.at = at;
    TRY(scan_object(&b->scan, "a Punctuation", m, COUNT(m)));
    if (m[1].at != 0)
        TRY(read_text(b, &m[1], &behavior));
    split.each = strcmp(behavior, "Isolated") == 0;
    if (b->byte_level || (!split.each && strcmp(behavior, "Contiguous") != 0))
        TRY(scan_fail(&b->scan, "a Punctuation that is '%.80s'%s is not supported,", behavior,
                      b->byte_level ? " after ByteLevel" : ""));
    text_append_bytes(&pattern, "[", 1);
    for (int i = 0; i < COUNT(ranges); i++) {
        bool bracket = ranges[i][0] == '['; /* the only sign of syntax that begins a range */
        char character[4];
        text_append_bytes(&pattern, "\\", bracket);
        text_append_bytes(&pattern, character, utf8_put(character, ranges[i][0]));
        if (ranges[i][1] > ranges[i][0]) {
            text_append_bytes(&pattern, "-", 1);
            text_append_bytes(&pattern, character, utf8_put(character, ranges[i][1]));
        }
    }
    text_append_bytes(&pattern, split.each ? "]" : "]+", split.each ? 1 : 2);
    TRY(text_status(&pattern));
    split.pattern = pattern.data;
    TRY(add_split(b, &split));
out:
    text_free(&pattern);
    return status;
}

/* Old files have add_prefix_space, which must agree with prepend_scheme. */
static alibi_status read_metaspace(struct bpe_build *b, size_t at)
{
    enum { TYPE, REPLACEMENT, ADD_PREFIX, SCHEME, SPLIT, STR_REP };
    static const char *const schemes[] = { "never", "first", "always" };
    struct scan_member m[] = { { "type", true, 0 },
                               { "replacement", true, 0 },
                               { "add_prefix_space", false, 0 },
                               { "prepend_scheme", false, 0 },
                               { "split", false, 0 },
                               { "str_rep", false, 0 } };
    struct scan *s = &b->scan;
    const char *scheme = "always";
    bool prefix = true;
    int i = 0;

    s->at = at;
    TRY_RETURN(scan_object(s, "a Metaspace", m, COUNT(m)));
    TRY_RETURN(bpe_expect_text(b, &m[REPLACEMENT], BPE_BLANK));
    if (m[STR_REP].at != 0)
        TRY_RETURN(bpe_expect_text(b, &m[STR_REP], BPE_BLANK));
    TRY_RETURN(bpe_read_flag(b, &m[ADD_PREFIX], &prefix));
    b->file->cut_blanks = true;
    TRY_RETURN(bpe_read_flag(b, &m[SPLIT], &b->file->cut_blanks));
    if (m[SCHEME].at != 0)
        TRY_RETURN(read_text(b, &m[SCHEME], &scheme));
    while (i < COUNT(schemes) && strcmp(schemes[i], scheme) != 0)
        i++;
    if (i == COUNT(schemes))
        return scan_fail(s, "'prepend_scheme' is '%.80s', not one of always, first, never,",
                         scheme);
    if (!prefix && i != PREFIX_NONE)
        return scan_fail(s, "'add_prefix_space' is false, but 'prepend_scheme' is '%s',",
                         schemes[i]);
    b->file->prefix = (enum bpe_prefix)i;
    return ALIBI_OK;
}

/* A step after ByteLevel sees letters, not text: only what cuts digits may follow. */
static alibi_status read_pre_tokenizer(struct bpe_build *b, size_t at)
{
    const char *type = NULL;

    TRY_RETURN(read_type(b, at, "a pre-tokenizer", &type));
    if (!b->metaspace && strcmp(type, "Split") == 0)
        return read_split(b, at);
    if (!b->metaspace && strcmp(type, "Digits") == 0)
        return read_digits(b, at);
    if (!b->metaspace && strcmp(type, "Punctuation") == 0)
        return read_punctuation(b, at);
    if (b->byte_level || b->metaspace)
        return scan_fail(&b->scan, "the pre-tokenizer '%.80s' after %s is not supported,", type,
                         b->byte_level ? "ByteLevel" : "Metaspace");
    if (strcmp(type, "Metaspace") == 0 && b->file->split_count == 0 &&
        b->file->prefix == PREFIX_NONE) {
        b->metaspace = true;
        return read_metaspace(b, at);
    }
    if (strcmp(type, "ByteLevel") != 0)
        return scan_fail(&b->scan,
                         "the pre-tokenizer '%.80s' is not supported here, only ByteLevel with "
                         "Split, Digits and Punctuation, and a Metaspace alone are,",
                         type);
    return read_byte_level(b, at);
}

/* Which kind of file the steps make, `at` the pre-tokenizer. */
static alibi_status check_kind(struct bpe_build *b, size_t at)
{
    struct bpe_file *f = b->file;

    b->scan.at = at;
    f->characters = b->metaspace || b->replaces;
    if (!b->byte_level && !f->characters)
        return scan_fail(&b->scan,
                         "the pre-tokenizer has no ByteLevel, and blanks are not replaced "
                         "by '" BPE_BLANK "', which is not supported,");
    if (b->byte_level && (f->characters || f->prefix == PREFIX_ALWAYS))
        return scan_fail(&b->scan,
                         "the normalizers Prepend and Replace with ByteLevel are not supported,");
    if (f->characters && f->nfc)
        return scan_fail(&b->scan, "NFC with blanks as '" BPE_BLANK "' is not supported,");
    if (f->characters && f->split_count > 0)
        return scan_fail(&b->scan, "a Split, Digits or Punctuation with blanks as '" BPE_BLANK
                                   "' is not supported,");
    return ALIBI_OK;
}

/* ---- decoder */

static alibi_status read_decoder(struct bpe_build *b, size_t at)
{
    static const char *const usual[] = { "Metaspace", "ByteFallback", "Fuse", "Strip" };
    bool characters = b->file->characters;
    const char *type = NULL;

    TRY_RETURN(read_type(b, at, "the decoder", &type));
    if (!characters && strcmp(type, "ByteLevel") == 0)
        return ALIBI_OK;
    if (characters && strcmp(type, "Replace") == 0)
        return expect_replace(b, at, BPE_BLANK, " ");
    for (int i = 0; i < COUNT(usual) && characters; i++)
        if (strcmp(type, usual[i]) == 0)
            return ALIBI_OK;
    return scan_fail(&b->scan, "the decoder '%.80s' is not supported, only %s,", type,
                     characters ? "Metaspace, Replace, ByteFallback, Fuse and Strip are"
                                : "ByteLevel is");
}

/* ---- post-processor
 *
 * ByteLevel and RobertaProcessing change offsets, or add tokens that a model of the other direction
 * wants; neither changes the ids of a text. The template of a single text says which tokens are
 * put before and after it. */

static alibi_status read_template_item(struct bpe_build *b, size_t at)
{
    struct scan_member kinds[] = { { "SpecialToken", false, 0 }, { "Sequence", false, 0 } };
    struct scan_member m[] = { { "id", true, 0 }, { "type_id", false, 0 } };
    struct scan *s = &b->scan;
    const char **name = b->text_in_template ? &b->template_end : &b->template_begin;

    s->at = at;
    TRY_RETURN(scan_object(s, "an item of a template", kinds, COUNT(kinds)));
    if ((kinds[0].at == 0) == (kinds[1].at == 0))
        return scan_fail(s, "an item of a template must have one of 'SpecialToken' and 'Sequence'; "
                            "it ends");
    s->at = kinds[kinds[0].at == 0].at;
    TRY_RETURN(scan_object(s, "an item of a template", m, COUNT(m)));
    if (kinds[1].at != 0) {
        if (b->text_in_template)
            return scan_fail(s, "the template 'single' has a second text, which ends");
        b->text_in_template = true;
        return bpe_expect_text(b, &m[0], "A");
    }
    s->at = m[0].at;
    if (*name != NULL)
        return scan_fail(s, "a template with several tokens %s the text is not supported,",
                         b->text_in_template ? "after" : "before");
    return scan_string(s, name);
}

static alibi_status read_processor(struct bpe_build *b, size_t at)
{
    struct scan_member m[] = { { "type", true, 0 },
                               { "single", true, 0 },
                               { "pair", false, 0 },
                               { "special_tokens", true, 0 } };
    const char *type = NULL;

    TRY_RETURN(read_type(b, at, "the post-processor", &type));
    if (strcmp(type, "ByteLevel") == 0 || strcmp(type, "RobertaProcessing") == 0)
        return ALIBI_OK;
    if (strcmp(type, "TemplateProcessing") != 0)
        return scan_fail(&b->scan,
                         "the post-processor '%.80s' is not supported, only ByteLevel, "
                         "RobertaProcessing and TemplateProcessing are,",
                         type);
    if (b->template_at != 0)
        return scan_fail(&b->scan, "a second TemplateProcessing is not supported,");
    TRY_RETURN(scan_object(&b->scan, "the post-processor", m, COUNT(m)));
    b->template_at = m[3].at;
    TRY_RETURN(read_each(b, m[1].at, read_template_item));
    return b->text_in_template ? ALIBI_OK
                               : scan_fail(&b->scan, "the template 'single' has no text; it ends");
}

/* The added token that the template names; the ids that it lists must be that token's. */
static alibi_status find_template_token(struct bpe_build *b, const char *name,
                                        struct bpe_added **out)
{
    struct scan_member entry = { name, true, 0 };
    struct scan_member m[] = { { "id", true, 0 }, { "ids", true, 0 }, { "tokens", false, 0 } };
    struct bpe_file *f = b->file;
    struct scan *s = &b->scan;
    int64_t id = -1;

    s->at = b->template_at;
    TRY_RETURN(scan_find(s, "the special tokens of the template", &entry));
    s->at = entry.at;
    TRY_RETURN(scan_object(s, "a token of the template", m, COUNT(m)));
    s->at = m[1].at;
    TRY_RETURN(scan_expect(s, '['));
    TRY_RETURN(scan_count(s, &id));
    if (!scan_take(s, ']'))
        return scan_fail(s,
                         "the token '%.80s' of the template has several ids, which is not "
                         "supported,",
                         name);
    for (int i = 0; i < f->added_count; i++)
        if (f->added[i].id == id && f->added[i].text.bytes == strlen(name) &&
            memcmp(f->added[i].text.at, name, strlen(name)) == 0)
            *out = &f->added[i];
    return *out != NULL ? ALIBI_OK
                        : scan_fail(s, "no added token is '%.80s' with the id %lld of the template",
                                    name, (long long)id);
}

alibi_status bpe_build_template(struct bpe_build *b)
{
    struct bpe_added *token = NULL;

    if (b->template_begin != NULL) {
        TRY_RETURN(find_template_token(b, b->template_begin, &token));
        token->begins = true;
    }
    token = NULL;
    if (b->template_end != NULL) {
        TRY_RETURN(find_template_token(b, b->template_end, &token));
        token->ends = true;
    }
    return ALIBI_OK;
}

alibi_status bpe_build_steps(struct bpe_build *b, size_t normalizer, size_t pre_tokenizer,
                             size_t post_processor, size_t decoder)
{
    TRY_RETURN(read_optional(b, normalizer, "the normalizer", "normalizers", read_normalizer));
    TRY_RETURN(
        read_optional(b, pre_tokenizer, "the pre-tokenizer", "pretokenizers", read_pre_tokenizer));
    TRY_RETURN(check_kind(b, pre_tokenizer));
    TRY_RETURN(
        read_optional(b, post_processor, "the post-processor", "processors", read_processor));
    return read_optional(b, decoder, "the decoder", "decoders", read_decoder);
}
