/* tokenizer_json.c - Hugging Face's tokenizer.json of BPE
 *
 *   { "version": "1.0", "truncation": null, "padding": null, "added_tokens": [...],
 *     "normalizer": ..., "pre_tokenizer": ..., "post_processor": ..., "decoder": ...,
 *     "model": { "type": "BPE", "vocab": {...}, "merges": [...] } }
 *
 * A file that needs a feature that is not supported is refused, and the message names it.
 *
 * Members may have any order: one pass over an object finds where they are, then they are read. */
#include <string.h>

#include "formats/bpe_build.h"

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
    return m->at == 0 || scan_take_null(&b->scan) ? ALIBI_OK : bpe_expect_text(b, m, "");
}

/* unk_token, fuse_unk, byte_fallback. The token for unknown characters is not used: every byte has
 * a token, and characters may become bytes. */
static alibi_status read_unknown(struct bpe_build *b, const struct scan_member m[3])
{
    bool fuse = false, fallback = false;
    size_t before = b->scan.used;
    struct slice token;

    TRY_RETURN(bpe_read_flag(b, &m[1], &fuse));
    TRY_RETURN(bpe_read_flag(b, &m[2], &fallback));
    if (b->file->characters && !fallback)
        return scan_fail(&b->scan,
                         "without 'byte_fallback' characters that have no token would be lost: a "
                         "model of characters must have it; this one ends");
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
    return fail(ALIBI_BAD_INPUT, "cannot read '%s': it is a %.80s tokenizer; only BPE is read",
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
    TRY_RETURN(bpe_read_flag(b, &m[IGNORE], &b->file->ignore_merges));
    if (b->file->ignore_merges && b->file->characters)
        return scan_fail(&b->scan, "'ignore_merges' with 'byte_fallback' is not supported,");
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
        TRY_RETURN(bpe_expect_text(b, &m[VERSION], "1.0"));
    TRY_RETURN(refuse(b, &m[TRUNCATION]));
    TRY_RETURN(refuse(b, &m[PADDING]));
    TRY_RETURN(bpe_build_steps(b, m[NORMALIZER].at, m[PRE_TOKENIZER].at, m[POST_PROCESSOR].at,
                               m[DECODER].at));
    TRY_RETURN(read_model(b, m[MODEL].at));
    b->scan.at = m[ADDED].at;
    if (m[ADDED].at != 0)
        TRY_RETURN(bpe_build_added(b));
    return bpe_build_template(b);
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
