/* tokenizer_write.c - a tokenizer.json of byte-level BPE
 *
 * One token and one merge a line, so that files can be compared line by line. Merges are "left
 * right", which every version of Hugging Face's library reads. */
#include <string.h>

#include "base/json.h"
#include "formats/bpe_build.h"

static alibi_status put(struct text *json, const char *literal)
{
    return text_append_bytes(json, literal, strlen(literal));
}

static alibi_status put_number(struct text *json, int64_t number)
{
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%lld", (long long)number);

    return text_append_bytes(json, digits, (size_t)length);
}

/* The name of a token: a letter for each byte. Of these only the quote and the backslash are
 * special in JSON. */
static alibi_status put_letters(struct text *json, struct slice bytes)
{
    for (size_t i = 0; i < bytes.bytes; i++) {
        char letter[3] = "\\";
        bool special = bytes.at[i] == '"' || bytes.at[i] == '\\';
        size_t length = byte_letter_put(letter + special, (unsigned char)bytes.at[i]);
        TRY_RETURN(text_append_bytes(json, letter, special + length));
    }
    return ALIBI_OK;
}

/* ---- added tokens */

static alibi_status put_added_token(struct text *json, const struct bpe_added *a)
{
    TRY_RETURN(put(json, "{\"id\": "));
    TRY_RETURN(put_number(json, a->id));
    TRY_RETURN(put(json, ", \"content\": "));
    TRY_RETURN(json_append_string(json, a->text.at, a->text.bytes));
    TRY_RETURN(put(
        json,
        ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false, \"special\": "));
    TRY_RETURN(put(json, a->special ? "true" : "false"));
    return put(json, a->ends_document ? ", \"end_of_document\": true}" : "}");
}

static alibi_status put_added(struct text *json, const struct bpe_file *f)
{
    TRY_RETURN(put(json, "\"added_tokens\": ["));
    for (int i = 0; i < f->added_count; i++) {
        TRY_RETURN(put(json, i > 0 ? ",\n" : "\n"));
        TRY_RETURN(put_added_token(json, &f->added[i]));
    }
    return put(json, "],\n");
}

/* ---- pre-tokenizer */

static alibi_status put_byte_level(struct text *json, bool use_regex)
{
    TRY_RETURN(put(
        json,
        "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, \"use_regex\": "));
    return put(json, use_regex ? "true}" : "false}");
}

static alibi_status put_split(struct text *json, const struct bpe_split *s)
{
    TRY_RETURN(put(json, "{\"type\": \"Split\", \"pattern\": {"));
    TRY_RETURN(put(json, s->plain ? "\"String\": " : "\"Regex\": "));
    TRY_RETURN(json_append_string(json, s->pattern, strlen(s->pattern)));
    return put(json, "}, \"behavior\": \"Isolated\", \"invert\": false}");
}

static bool is_gpt2(const struct bpe_file *f)
{
    return f->split_count == 1 && !f->splits[0].plain &&
           strcmp(f->splits[0].pattern, bpe_gpt2_pattern) == 0;
}

static alibi_status put_pre_tokenizer(struct text *json, const struct bpe_file *f)
{
    TRY_RETURN(put(json, "\"pre_tokenizer\": "));
    if (f->split_count == 0 || is_gpt2(f)) {
        TRY_RETURN(put_byte_level(json, f->split_count > 0));
        return put(json, ",\n");
    }
    TRY_RETURN(put(json, "{\"type\": \"Sequence\", \"pretokenizers\": [\n"));
    for (int i = 0; i < f->split_count; i++) {
        TRY_RETURN(put_split(json, &f->splits[i]));
        TRY_RETURN(put(json, ",\n"));
    }
    TRY_RETURN(put_byte_level(json, false));
    return put(json, "]},\n");
}

/* ---- model */

static alibi_status put_token(struct text *json, struct slice token, const struct bpe_added *added)
{
    if (added != NULL)
        return json_append_string(json, token.at, token.bytes);
    TRY_RETURN(put(json, "\""));
    TRY_RETURN(put_letters(json, token));
    return put(json, "\"");
}

static alibi_status put_vocab(struct text *json, const struct bpe_file *f)
{
    const char *between = "\n";
    int next = 0; /* of the added tokens, which come by id */

    TRY_RETURN(put(json, "\"vocab\": {"));
    for (int64_t id = 0; id < f->vocab; id++) {
        const struct bpe_added *added =
            next < f->added_count && f->added[next].id == id ? &f->added[next++] : NULL;
        if (added != NULL && !added->in_vocab)
            continue;
        TRY_RETURN(put(json, between));
        TRY_RETURN(put_token(json, f->tokens[id], added));
        TRY_RETURN(put(json, ": "));
        TRY_RETURN(put_number(json, id));
        between = ",\n";
    }
    return put(json, "},\n");
}

/* A line that begins so is taken for the comment at the top of merges.txt. */
static bool looks_like_comment(const struct bpe_file *f)
{
    for (int64_t i = 0; i < f->merge_count; i++)
        if (slice_begins(f->tokens[f->merges[i].left], "#version"))
            return true;
    return false;
}

static alibi_status put_merges(struct text *json, const struct bpe_file *f)
{
    bool pairs = looks_like_comment(f);

    TRY_RETURN(put(json, "\"merges\": ["));
    for (int64_t i = 0; i < f->merge_count; i++) {
        TRY_RETURN(put(json, i > 0 ? ",\n" : "\n"));
        TRY_RETURN(put(json, pairs ? "[\"" : "\""));
        TRY_RETURN(put_letters(json, f->tokens[f->merges[i].left]));
        TRY_RETURN(put(json, pairs ? "\", \"" : " "));
        TRY_RETURN(put_letters(json, f->tokens[f->merges[i].right]));
        TRY_RETURN(put(json, pairs ? "\"]" : "\""));
    }
    return put(json, "]");
}

static alibi_status put_model(struct text *json, const struct bpe_file *f)
{
    TRY_RETURN(put(
        json,
        "\"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, "
        "\"continuing_subword_prefix\": null, \"end_of_word_suffix\": null, \"fuse_unk\": false, "
        "\"byte_fallback\": false, \"ignore_merges\": "));
    TRY_RETURN(put(json, f->ignore_merges ? "true,\n" : "false,\n"));
    TRY_RETURN(put_vocab(json, f));
    TRY_RETURN(put_merges(json, f));
    return put(json, "}}\n");
}

alibi_status bpe_file_write(const struct bpe_file *f, struct text *json)
{
    TRY_RETURN(put(json, "{\"version\": \"1.0\",\n\"truncation\": null,\n\"padding\": null,\n"));
    TRY_RETURN(put_added(json, f));
    TRY_RETURN(put(json, "\"normalizer\": null,\n"));
    TRY_RETURN(put_pre_tokenizer(json, f));
    TRY_RETURN(put(json, "\"post_processor\": "));
    TRY_RETURN(put_byte_level(json, true));
    TRY_RETURN(put(json, ",\n\"decoder\": "));
    TRY_RETURN(put_byte_level(json, true));
    TRY_RETURN(put(json, ",\n"));
    return put_model(json, f);
}
