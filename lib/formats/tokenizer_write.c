/* tokenizer_write.c - a tokenizer.json of byte-level BPE
 *
 * A line per token and per merge, so that files can be compared line by line. A merge is written as
 * "left right", which every version of Hugging Face's library reads. The many short strings are
 * appended as bytes: formatting each would take most of the time. */
#include <string.h>

#include "base/json.h"
#include "formats/bpe_build.h"

static void put(struct text *json, const char *literal)
{
    text_append_bytes(json, literal, strlen(literal));
}

static void put_number(struct text *json, int64_t number)
{
    char digits[24];

    snprintf(digits, sizeof digits, "%lld", (long long)number);
    put(json, digits);
}

/* The name of a token: a letter for each byte. JSON escapes only the quote and the backslash. */
static void put_letters(struct text *json, struct slice bytes)
{
    for (size_t i = 0; i < bytes.bytes; i++) {
        char letter[3] = "\\";
        bool special = bytes.at[i] == '"' || bytes.at[i] == '\\';
        size_t length = byte_letter_put(letter + special, (unsigned char)bytes.at[i]);
        text_append_bytes(json, letter, special + length);
    }
}

static void put_added(struct text *json, const struct bpe_file *f)
{
    put(json, "\"added_tokens\": [");
    for (int i = 0; i < f->added_count; i++) {
        const struct bpe_added *a = &f->added[i];
        put(json, i > 0 ? ",\n{\"id\": " : "\n{\"id\": ");
        put_number(json, a->id);
        put(json, ", \"content\": ");
        json_append_string(json, a->text.at, a->text.bytes);
        put(json, ", \"single_word\": false, \"lstrip\": ");
        put(json, a->lstrip ? "true" : "false");
        put(json, a->rstrip ? ", \"rstrip\": true" : ", \"rstrip\": false");
        put(json, ", \"normalized\": false, \"special\": ");
        put(json, a->special ? "true" : "false");
        put(json, a->ends_document ? ", \"end_of_document\": true}" : "}");
    }
    put(json, "],\n");
}

static void put_byte_level(struct text *json, bool use_regex)
{
    put(json, "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": true, "
              "\"use_regex\": ");
    put(json, use_regex ? "true}" : "false}");
}

/* GPT-2's expression is ByteLevel's own; others are Splits before it. */
static void put_pre_tokenizer(struct text *json, const struct bpe_file *f)
{
    bool gpt2 = f->split_count == 1 && !f->splits[0].plain &&
                strcmp(f->splits[0].pattern, bpe_gpt2_pattern) == 0;

    put(json, "\"pre_tokenizer\": ");
    if (f->split_count == 0 || gpt2) {
        put_byte_level(json, gpt2);
        put(json, ",\n");
        return;
    }
    put(json, "{\"type\": \"Sequence\", \"pretokenizers\": [\n");
    for (int i = 0; i < f->split_count; i++) {
        const struct bpe_split *s = &f->splits[i];
        put(json, "{\"type\": \"Split\", \"pattern\": {");
        put(json, s->plain ? "\"String\": " : "\"Regex\": ");
        json_append_string(json, s->pattern, strlen(s->pattern));
        put(json, "}, \"behavior\": \"Isolated\", \"invert\": false},\n");
    }
    put_byte_level(json, false);
    put(json, "]},\n");
}

/* Added tokens have their own text as their name, the others letters. */
static void put_vocab(struct text *json, const struct bpe_file *f)
{
    const char *between = "\n";
    int next = 0; /* of the added tokens, which are sorted by id */

    put(json, "\"vocab\": {");
    for (int64_t id = 0; id < f->vocab; id++) {
        const struct bpe_added *added =
            next < f->added_count && f->added[next].id == id ? &f->added[next++] : NULL;
        if (added != NULL && !added->in_vocab)
            continue;
        put(json, between);
        if (added != NULL) {
            json_append_string(json, f->tokens[id].at, f->tokens[id].bytes);
        } else {
            put(json, "\"");
            put_letters(json, f->tokens[id]);
            put(json, "\"");
        }
        put(json, ": ");
        put_number(json, id);
        between = ",\n";
    }
    put(json, "},\n");
}

static void put_merges(struct text *json, const struct bpe_file *f)
{
    bool pairs = false;

    /* "#version ..." would be taken for the comment at the top of merges.txt. */
    for (int64_t i = 0; i < f->merge_count && !pairs; i++)
        pairs = slice_begins(f->tokens[f->merges[i].left], "#version");
    put(json, "\"merges\": [");
    for (int64_t i = 0; i < f->merge_count; i++) {
        put(json, i > 0 ? ",\n" : "\n");
        put(json, pairs ? "[\"" : "\"");
        put_letters(json, f->tokens[f->merges[i].left]);
        put(json, pairs ? "\", \"" : " ");
        put_letters(json, f->tokens[f->merges[i].right]);
        put(json, pairs ? "\"]" : "\"");
    }
    put(json, "]");
}

alibi_status bpe_file_write(const struct bpe_file *f, struct text *json)
{
    put(json, "{\"version\": \"1.0\",\n\"truncation\": null,\n\"padding\": null,\n");
    put_added(json, f);
    put(json, f->nfc ? "\"normalizer\": {\"type\": \"NFC\"},\n" : "\"normalizer\": null,\n");
    put_pre_tokenizer(json, f);
    put(json, "\"post_processor\": ");
    put_byte_level(json, true);
    put(json, ",\n\"decoder\": ");
    put_byte_level(json, true);
    put(json, ",\n\"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, "
              "\"continuing_subword_prefix\": null, \"end_of_word_suffix\": null, \"fuse_unk\": "
              "false, \"byte_fallback\": false, \"ignore_merges\": ");
    put(json, f->ignore_merges ? "true,\n" : "false,\n");
    put_vocab(json, f);
    put_merges(json, f);
    put(json, "}}\n");
    return text_status(json);
}
