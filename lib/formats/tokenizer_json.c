/* tokenizer_json.c - Hugging Face's tokenizer.json of byte-level BPE
 *
 *   { "version": "1.0", "truncation": null, "padding": null, "added_tokens": [...],
 *     "normalizer": null,
 *     "pre_tokenizer": ByteLevel, or a Sequence of Splits and then ByteLevel,
 *     "post_processor": ..., "decoder": ByteLevel,
 *     "model": { "type": "BPE", "vocab": {...}, "merges": [...] } }
 *
 * A file that needs anything else is refused, and the message names the feature. The post-processor
 * is the exception: it only adds special tokens around a text.
 *
 * Members may have any order: one pass over an object finds where they are, then they are read. */
#include <string.h>

#include "formats/bpe_build.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* ---- steps that several parts share */

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

/* The list `key` of a Sequence. */
static alibi_status read_sequence(struct bpe_build *b, size_t at, const char *what, const char *key,
                                  read_part *read)
{
    struct scan_member m[] = { { "type", true, 0 }, { key, true, 0 } };

    b->scan.at = at;
    TRY_RETURN(scan_object(&b->scan, what, m, COUNT(m)));
    return read_each(b, m[1].at, read);
}

/* A flag that may be missing, or null: then it keeps its value. */
static alibi_status read_flag(struct bpe_build *b, const struct scan_member *m, bool *flag)
{
    if (m->at == 0)
        return ALIBI_OK;
    b->scan.at = m->at;
    return scan_take_null(&b->scan) ? ALIBI_OK : scan_bool(&b->scan, flag);
}

static alibi_status expect_text(struct bpe_build *b, const struct scan_member *m, const char *text)
{
    const char *found = NULL;
    size_t before = b->scan.used;

    b->scan.at = m->at;
    TRY_RETURN(scan_string(&b->scan, &found));
    b->scan.used = before;
    b->scan.at = m->at;
    return strcmp(found, text) == 0
               ? ALIBI_OK
               : scan_fail(&b->scan, "'%s' is '%.80s', only '%s' is supported,", m->key, found,
                           text);
}

static alibi_status expect_flag(struct bpe_build *b, const struct scan_member *m, bool value)
{
    bool found = value;

    TRY_RETURN(read_flag(b, m, &found));
    if (found == value)
        return ALIBI_OK;
    b->scan.at = m->at;
    return scan_fail(&b->scan, "'%s' is %s, which is not supported,", m->key,
                     found ? "true" : "false");
}

/* ---- pre-tokenizer */

static alibi_status add_split(struct bpe_build *b, const char *pattern, bool plain)
{
    struct bpe_file *f = b->file;

    if (f->split_count == BPE_SPLITS_MAX)
        return scan_fail(&b->scan, "the pre-tokenizer has more than %d patterns", BPE_SPLITS_MAX);
    TRY_RETURN(text_copy(&f->splits[f->split_count].pattern, pattern));
    f->splits[f->split_count++].plain = plain;
    return ALIBI_OK;
}

static alibi_status read_byte_level(struct bpe_build *b, size_t at)
{
    struct scan_member m[] = { { "type", true, 0 },
                               { "add_prefix_space", true, 0 },
                               { "trim_offsets", false, 0 },
                               { "use_regex", false, 0 } };
    bool use_regex = true, trim_offsets = false;

    b->scan.at = at;
    TRY_RETURN(scan_object(&b->scan, "the pre-tokenizer", m, COUNT(m)));
    TRY_RETURN(expect_flag(b, &m[1], false));
    TRY_RETURN(read_flag(b, &m[2], &trim_offsets));
    TRY_RETURN(read_flag(b, &m[3], &use_regex));
    return use_regex ? add_split(b, bpe_gpt2_pattern, false) : ALIBI_OK;
}

static alibi_status read_split(struct bpe_build *b, size_t at)
{
    struct scan_member m[] = {
        { "type", true, 0 }, { "pattern", true, 0 }, { "behavior", true, 0 }, { "invert", true, 0 }
    };
    struct scan_member p[] = { { "Regex", false, 0 }, { "String", false, 0 } };
    struct scan *s = &b->scan;
    const char *pattern = NULL;
    size_t before = s->used;
    bool plain;

    s->at = at;
    TRY_RETURN(scan_object(s, "a Split", m, COUNT(m)));
    TRY_RETURN(expect_text(b, &m[2], "Isolated"));
    TRY_RETURN(expect_flag(b, &m[3], false));
    s->at = m[1].at;
    TRY_RETURN(scan_object(s, "a pattern", p, COUNT(p)));
    if ((p[0].at == 0) == (p[1].at == 0))
        return scan_fail(s, "a pattern must have one of 'Regex' and 'String'; it ends");
    plain = p[1].at != 0;
    s->at = plain ? p[1].at : p[0].at;
    TRY_RETURN(scan_string(s, &pattern));
    if (pattern[0] == '\0')
        return scan_fail(s, "the pattern is empty");
    s->used = before;
    return add_split(b, pattern, plain);
}

/* ByteLevel must be the last of the list: a step after it would see letters, not text. */
static alibi_status read_step(struct bpe_build *b, size_t at)
{
    const char *type = NULL;

    TRY_RETURN(read_type(b, at, "a pre-tokenizer", &type));
    if (b->byte_level)
        return scan_fail(&b->scan, "the pre-tokenizer '%.80s' after ByteLevel is not supported,",
                         type);
    if (strcmp(type, "Split") == 0)
        return read_split(b, at);
    if (strcmp(type, "ByteLevel") != 0)
        return scan_fail(
            &b->scan,
            "the pre-tokenizer '%.80s' is not supported, only ByteLevel and Splits before it are,",
            type);
    b->byte_level = true;
    return read_byte_level(b, at);
}

static alibi_status read_pre_tokenizer(struct bpe_build *b, size_t at)
{
    const char *type = NULL;

    b->scan.at = at;
    if (scan_take_null(&b->scan))
        return scan_fail(&b->scan, "the pre-tokenizer is null, which is not byte-level,");
    TRY_RETURN(read_type(b, at, "the pre-tokenizer", &type));
    if (strcmp(type, "Sequence") == 0)
        TRY_RETURN(read_sequence(b, at, "the pre-tokenizer", "pretokenizers", read_step));
    else
        TRY_RETURN(read_step(b, at));
    b->scan.at = at;
    return b->byte_level ? ALIBI_OK : scan_fail(&b->scan, "the pre-tokenizer has no ByteLevel");
}

/* ---- post-processor, decoder */

static alibi_status read_processor(struct bpe_build *b, size_t at)
{
    const char *type = NULL;

    TRY_RETURN(read_type(b, at, "the post-processor", &type));
    if (strcmp(type, "ByteLevel") == 0 || strcmp(type, "TemplateProcessing") == 0)
        return ALIBI_OK;
    return scan_fail(
        &b->scan,
        "the post-processor '%.80s' is not supported, only ByteLevel and TemplateProcessing are,",
        type);
}

static alibi_status read_decoder(struct bpe_build *b, size_t at)
{
    const char *type = NULL;

    TRY_RETURN(read_type(b, at, "the decoder", &type));
    if (strcmp(type, "ByteLevel") == 0)
        return ALIBI_OK;
    return scan_fail(&b->scan, "the decoder '%.80s' is not supported, only ByteLevel is,", type);
}

/* A part that may be missing or null: one object, or a Sequence of them in the list `key`. */
static alibi_status read_optional(struct bpe_build *b, size_t at, const char *what, const char *key,
                                  read_part *read)
{
    const char *type = NULL;

    b->scan.at = at;
    if (at == 0 || scan_take_null(&b->scan))
        return ALIBI_OK;
    TRY_RETURN(read_type(b, at, what, &type));
    return strcmp(type, "Sequence") == 0 ? read_sequence(b, at, what, key, read) : read(b, at);
}

/* ---- model */

/* "a b", or ["a", "b"]. Some lists of the first kind contain the comment of an old merges.txt. */
static alibi_status read_merge(struct bpe_build *b, bool pairs)
{
    struct scan *s = &b->scan;
    size_t before = s->used;
    struct slice left, right;

    if (pairs)
        TRY_RETURN(scan_expect(s, '['));
    TRY_RETURN(scan_slice(s, &left));
    if (pairs) {
        TRY_RETURN(scan_expect(s, ','));
        TRY_RETURN(scan_slice(s, &right));
        TRY_RETURN(scan_expect(s, ']'));
        TRY_RETURN(bpe_build_merge(b, s, left, right));
    } else if (!slice_begins(left, "#version")) {
        TRY_RETURN(bpe_build_merge_line(b, s, left));
    }
    s->used = before;
    return ALIBI_OK;
}

static alibi_status read_merges(struct bpe_build *b, size_t at)
{
    struct scan *s = &b->scan;
    int64_t count = 0;
    bool pairs;

    s->at = at;
    TRY_RETURN(scan_skip(s, &count));
    TRY_RETURN(NEW_ARRAY(&b->file->merges, count, "merges"));
    s->at = at;
    TRY_RETURN(scan_expect(s, '['));
    if (scan_take(s, ']'))
        return ALIBI_OK;
    pairs = scan_peek(s) == '[';
    do
        TRY_RETURN(read_merge(b, pairs));
    while (scan_take(s, ','));
    return scan_expect(s, ']');
}

/* Must be null, or a number that is 0 in any spelling, so that no merge is skipped at random. */
static alibi_status read_dropout(struct bpe_build *b, size_t at)
{
    struct scan *s = &b->scan;

    s->at = at;
    if (scan_take_null(s))
        return ALIBI_OK;
    TRY_RETURN(scan_skip(s, NULL));
    for (size_t i = at; i < s->at && s->text[i] != 'e' && s->text[i] != 'E'; i++)
        if (strchr("-0.", s->text[i]) == NULL) {
            s->at = at;
            return scan_fail(s, "the dropout of the model is not supported, only null and 0 are,");
        }
    return ALIBI_OK;
}

/* A prefix or suffix of words, which byte-level BPE does not have. */
static alibi_status expect_empty(struct bpe_build *b, const struct scan_member *m)
{
    b->scan.at = m->at;
    return m->at == 0 || scan_take_null(&b->scan) ? ALIBI_OK : expect_text(b, m, "");
}

/* The token for unknown letters is not used: every byte has a token. */
static alibi_status read_unknown(struct bpe_build *b, const struct scan_member m[3])
{
    bool flag = false;
    size_t before = b->scan.used;
    struct slice token;

    TRY_RETURN(read_flag(b, &m[1], &flag));
    TRY_RETURN(read_flag(b, &m[2], &flag));
    b->scan.at = m[0].at;
    if (m[0].at == 0 || scan_take_null(&b->scan))
        return ALIBI_OK;
    TRY_RETURN(scan_slice(&b->scan, &token));
    b->scan.used = before;
    return ALIBI_OK;
}

/* Checked first: the file of another kind of model would be refused for some other part, but its
 * type is the reason. Old files have no type; they must have a vocabulary and merges. */
static alibi_status check_model_type(struct bpe_build *b, size_t at)
{
    struct scan_member m = { "type", false, 0 };
    size_t before = b->scan.used;
    const char *type = NULL;

    b->scan.at = at;
    TRY_RETURN(scan_find(&b->scan, "the model", &m));
    if (m.at == 0)
        return ALIBI_OK;
    b->scan.at = m.at;
    TRY_RETURN(scan_string(&b->scan, &type));
    b->scan.used = before;
    if (strcmp(type, "BPE") == 0)
        return ALIBI_OK;
    return fail(ALIBI_BAD_INPUT,
                "cannot read '%s': it is a %.80s tokenizer; only byte-level BPE is read",
                b->scan.path, type);
}

static alibi_status read_model(struct bpe_build *b, size_t at)
{
    enum { TYPE, VOCAB, MERGES, DROPOUT, PREFIX, SUFFIX, UNKNOWN, FUSE, FALLBACK, IGNORE };
    struct scan_member m[] = { { "type", false, 0 },
                               { "vocab", true, 0 },
                               { "merges", true, 0 },
                               { "dropout", false, 0 },
                               { "continuing_subword_prefix", false, 0 },
                               { "end_of_word_suffix", false, 0 },
                               { "unk_token", false, 0 },
                               { "fuse_unk", false, 0 },
                               { "byte_fallback", false, 0 },
                               { "ignore_merges", false, 0 } };

    b->scan.at = at;
    TRY_RETURN(scan_object(&b->scan, "the model", m, COUNT(m)));
    if (m[DROPOUT].at != 0)
        TRY_RETURN(read_dropout(b, m[DROPOUT].at));
    TRY_RETURN(expect_empty(b, &m[PREFIX]));
    TRY_RETURN(expect_empty(b, &m[SUFFIX]));
    TRY_RETURN(read_unknown(b, &m[UNKNOWN]));
    TRY_RETURN(read_flag(b, &m[IGNORE], &b->file->ignore_merges));
    b->scan.at = m[VOCAB].at;
    TRY_RETURN(bpe_build_vocab(b));
    return read_merges(b, m[MERGES].at);
}

/* ---- the file */

static alibi_status refuse(struct bpe_build *b, const struct scan_member *m)
{
    b->scan.at = m->at;
    if (m->at == 0 || scan_take_null(&b->scan))
        return ALIBI_OK;
    return scan_fail(&b->scan, "'%s' is not supported, only null is,", m->key);
}

static alibi_status read_normalizer(struct bpe_build *b, size_t at)
{
    const char *type = NULL;

    TRY_RETURN(read_type(b, at, "the normalizer", &type));
    if (strcmp(type, "NFC") != 0)
        return scan_fail(&b->scan, "the normalizer '%.80s' is not supported, only NFC is,", type);
    b->file->nfc = true;
    return ALIBI_OK;
}

static alibi_status read_file(struct bpe_build *b)
{
    enum {
        VERSION,
        TRUNCATION,
        PADDING,
        ADDED,
        NORMALIZER,
        PRE_TOKENIZER,
        POST_PROCESSOR,
        DECODER,
        MODEL
    };
    struct scan_member m[] = {
        { "version", false, 0 },        { "truncation", false, 0 }, { "padding", false, 0 },
        { "added_tokens", false, 0 },   { "normalizer", false, 0 }, { "pre_tokenizer", true, 0 },
        { "post_processor", false, 0 }, { "decoder", false, 0 },    { "model", true, 0 }
    };

    TRY_RETURN(scan_object(&b->scan, "the file", m, COUNT(m)));
    TRY_RETURN(scan_end(&b->scan));
    TRY_RETURN(check_model_type(b, m[MODEL].at));
    if (m[VERSION].at != 0)
        TRY_RETURN(expect_text(b, &m[VERSION], "1.0"));
    TRY_RETURN(refuse(b, &m[TRUNCATION]));
    TRY_RETURN(refuse(b, &m[PADDING]));
    TRY_RETURN(
        read_optional(b, m[NORMALIZER].at, "the normalizer", "normalizers", read_normalizer));
    TRY_RETURN(read_pre_tokenizer(b, m[PRE_TOKENIZER].at));
    TRY_RETURN(
        read_optional(b, m[POST_PROCESSOR].at, "the post-processor", "processors", read_processor));
    TRY_RETURN(read_optional(b, m[DECODER].at, "the decoder", "decoders", read_decoder));
    TRY_RETURN(read_model(b, m[MODEL].at));
    b->scan.at = m[ADDED].at;
    return m[ADDED].at != 0 ? bpe_build_added(b) : ALIBI_OK;
}

alibi_status bpe_file_parse(struct bpe_file **out, const char *bytes, size_t length,
                            const char *path)
{
    alibi_status status;
    struct bpe_build b;

    TRY(bpe_build_init(&b, (struct slice){ bytes, length }, path));
    TRY(read_file(&b));
    TRY(bpe_build_end(&b, out));
out:
    bpe_build_fini(&b);
    return status;
}
