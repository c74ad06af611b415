/* tokenizer_write.c - a tokenizer.json of BPE
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

/* The names of tokens that are merged from characters. */
struct names {
    const struct bpe_file *file;
    int16_t *byte;   /* [vocab] the byte that the token is; -1: none */
    struct text now; /* scratch */
};

static alibi_status names_init(struct names *n, const struct bpe_file *f)
{
    *n = (struct names){ .file = f };
    TRY_RETURN(NEW_ARRAY(&n->byte, f->vocab, "the names of tokens"));
    for (int64_t id = 0; id < f->vocab; id++)
        n->byte[id] = -1;
    for (int byte = 0; byte < 256; byte++)
        n->byte[f->byte_ids[byte]] = (int16_t)byte;
    return ALIBI_OK;
}

static void add_name(struct names *n, int64_t id)
{
    struct slice text = n->file->tokens[id];
    char byte[8];

    if (n->byte[id] >= 0) {
        text_append_bytes(&n->now, byte, byte_name_put(byte, (unsigned char)n->byte[id]));
        return;
    }
    for (size_t i = 0; i < text.bytes; i++) {
        bool blank = text.at[i] == ' ';
        text_append_bytes(&n->now, blank ? BPE_BLANK : text.at + i, blank ? strlen(BPE_BLANK) : 1);
    }
}

/* The names that were added, as one string. */
static void put_names(struct text *json, struct names *n)
{
    json_append_string(json, n->now.data, n->now.length);
    n->now.length = 0;
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
        put(json, a->single_word ? ", \"single_word\": true" : ", \"single_word\": false");
        put(json, ", \"lstrip\": ");
        put(json, a->lstrip ? "true" : "false");
        put(json, a->rstrip ? ", \"rstrip\": true" : ", \"rstrip\": false");
        put(json, a->normalized ? ", \"normalized\": true" : ", \"normalized\": false");
        put(json, a->special ? ", \"special\": true" : ", \"special\": false");
        put(json, a->ends_document ? ", \"end_of_document\": true}" : "}");
    }
    put(json, "],\n");
}

static void put_byte_level(struct text *json, bool prefix, bool use_regex)
{
    put(json, "{\"type\": \"ByteLevel\", \"add_prefix_space\": ");
    put(json, prefix ? "true" : "false");
    put(json, ", \"trim_offsets\": true, \"use_regex\": ");
    put(json, use_regex ? "true}" : "false}");
}

static void put_split(struct text *json, const struct bpe_split *s)
{
    if (s->kind == SPLIT_DIGITS) {
        put(json, "{\"type\": \"Digits\", \"individual_digits\": ");
        put(json, s->each ? "true}" : "false}");
    } else if (s->kind == SPLIT_PUNCTUATION) {
        put(json, "{\"type\": \"Punctuation\", \"behavior\": \"");
        put(json, s->each ? "Isolated\"}" : "Contiguous\"}");
    } else {
        put(json, "{\"type\": \"Split\", \"pattern\": {");
        put(json, s->plain ? "\"String\": " : "\"Regex\": ");
        json_append_string(json, s->pattern, strlen(s->pattern));
        put(json, "}, \"behavior\": \"Isolated\", \"invert\": false}");
    }
}

/* GPT-2's expression is ByteLevel's own; others are Splits before it, or after it. */
static void put_pre_tokenizer(struct text *json, const struct bpe_file *f)
{
    bool gpt2 = f->split_count == 1 && !f->splits[0].plain &&
                strcmp(f->splits[0].pattern, bpe_gpt2_pattern) == 0;

    put(json, "\"pre_tokenizer\": ");
    if (f->split_count == 0 || gpt2) {
        put_byte_level(json, f->prefix != PREFIX_NONE, gpt2);
        put(json, ",\n");
        return;
    }
    put(json, "{\"type\": \"Sequence\", \"pretokenizers\": [\n");
    for (int i = 0; i <= f->split_count; i++) {
        bool before = i < f->split_count && !f->splits[i].after_bytes;
        bool after = i < f->split_count && f->splits[i].after_bytes;
        if (!before && (i == 0 || !f->splits[i - 1].after_bytes))
            put_byte_level(json, false, false);
        put(json, after ? ",\n" : "");
        if (before || after)
            put_split(json, &f->splits[i]);
        put(json, before ? ",\n" : "");
    }
    put(json, "]},\n");
}

#define BLANK_TO_TEXT                                                                              \
    "{\"type\": \"Replace\", \"pattern\": {\"String\": \"" BPE_BLANK "\"}, "                       \
    "\"content\": \" \"}, {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}"

/* The normalizer, the pre-tokenizer and the decoder. */
static void put_steps(struct text *json, const struct bpe_file *f)
{
    static const char *const schemes[] = { "never", "first", "always" };

    if (!f->characters) {
        put(json, f->nfc ? "\"normalizer\": {\"type\": \"NFC\"},\n" : "\"normalizer\": null,\n");
        put_pre_tokenizer(json, f);
        return;
    }
    if (f->prefix == PREFIX_ALWAYS) {
        put(json, "\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": "
                  "\"Prepend\", \"prepend\": \"" BPE_BLANK "\"}, {\"type\": \"Replace\", "
                  "\"pattern\": {\"String\": \" \"}, \"content\": \"" BPE_BLANK "\"}]},\n"
                  "\"pre_tokenizer\": null,\n");
        return;
    }
    put(json, "\"normalizer\": null,\n\"pre_tokenizer\": {\"type\": \"Metaspace\", "
              "\"replacement\": \"" BPE_BLANK "\", \"prepend_scheme\": \"");
    put(json, schemes[f->prefix]);
    put(json, f->cut_blanks ? "\", \"split\": true},\n" : "\", \"split\": false},\n");
}

static void put_decoder(struct text *json, const struct bpe_file *f)
{
    put(json, "\"decoder\": ");
    if (!f->characters)
        put_byte_level(json, false, true);
    else if (f->prefix == PREFIX_NONE)
        put(json, "{\"type\": \"Sequence\", \"decoders\": [" BLANK_TO_TEXT "]}");
    else
        put(json, "{\"type\": \"Sequence\", \"decoders\": [" BLANK_TO_TEXT
                  ", {\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}]}");
    put(json, ",\n");
}

static void put_template_token(struct text *json, const struct bpe_added *a, const char *type_id)
{
    put(json, "{\"SpecialToken\": {\"id\": ");
    json_append_string(json, a->text.at, a->text.bytes);
    put(json, ", \"type_id\": ");
    put(json, type_id);
    put(json, "}}");
}

/* One text of the template, with its tokens. */
static void put_template_text(struct text *json, const struct bpe_added *begin,
                              const struct bpe_added *end, const char *which, const char *type_id)
{
    if (begin != NULL) {
        put_template_token(json, begin, type_id);
        put(json, ", ");
    }
    put(json, "{\"Sequence\": {\"id\": \"");
    put(json, which);
    put(json, "\", \"type_id\": ");
    put(json, type_id);
    put(json, "}}");
    if (end != NULL) {
        put(json, ", ");
        put_template_token(json, end, type_id);
    }
}

static void put_processor(struct text *json, const struct bpe_file *f)
{
    const struct bpe_added *begin = NULL, *end = NULL;
    const char *between = "";

    for (int i = 0; i < f->added_count; i++) {
        begin = f->added[i].begins ? &f->added[i] : begin;
        end = f->added[i].ends ? &f->added[i] : end;
    }
    put(json, "\"post_processor\": ");
    if (begin == NULL && end == NULL) {
        if (f->characters)
            put(json, "null");
        else
            put_byte_level(json, false, true);
        put(json, ",\n");
        return;
    }
    put(json, "{\"type\": \"TemplateProcessing\", \"single\": [");
    put_template_text(json, begin, end, "A", "0");
    put(json, "], \"pair\": [");
    put_template_text(json, begin, end, "A", "0");
    put(json, ", ");
    put_template_text(json, begin, end, "B", "1");
    put(json, "], \"special_tokens\": {");
    for (int i = 0; i < f->added_count; i++) {
        const struct bpe_added *a = &f->added[i];
        if (!a->begins && !a->ends)
            continue;
        put(json, between);
        json_append_string(json, a->text.at, a->text.bytes);
        put(json, ": {\"id\": ");
        json_append_string(json, a->text.at, a->text.bytes);
        put(json, ", \"ids\": [");
        put_number(json, a->id);
        put(json, "], \"tokens\": [");
        json_append_string(json, a->text.at, a->text.bytes);
        put(json, "]}");
        between = ", ";
    }
    put(json, "}},\n");
}

/* Added tokens have their own text as their name. */
static void put_vocab(struct text *json, const struct bpe_file *f, struct names *names)
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
            json_append_string(json, added->text.at, added->text.bytes);
        } else if (f->characters) {
            add_name(names, id);
            put_names(json, names);
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

/* A merge of characters. */
static void put_merge(struct text *json, const struct bpe_merge *m, bool pair, struct names *names)
{
    put(json, pair ? "[" : "");
    add_name(names, m->left);
    if (pair)
        put_names(json, names);
    put(json, pair ? ", " : "");
    if (!pair)
        text_append_bytes(&names->now, " ", 1);
    add_name(names, m->right);
    put_names(json, names);
    put(json, pair ? "]" : "");
}

static void put_merges(struct text *json, const struct bpe_file *f, struct names *names)
{
    bool pairs = false;

    /* "#version ..." would be taken for the comment at the top of merges.txt. */
    for (int64_t i = 0; i < f->merge_count && !pairs; i++)
        pairs = slice_begins(f->tokens[f->merges[i].left], "#version");
    put(json, "\"merges\": [");
    for (int64_t i = 0; i < f->merge_count; i++) {
        put(json, i > 0 ? ",\n" : "\n");
        if (f->characters) {
            put_merge(json, &f->merges[i], pairs, names);
            continue;
        }
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
    alibi_status status = ALIBI_OK;
    struct names names = { 0 };

    if (f->characters)
        TRY(names_init(&names, f));
    put(json, "{\"version\": \"1.0\",\n\"truncation\": null,\n\"padding\": null,\n");
    put_added(json, f);
    put_steps(json, f);
    put_processor(json, f);
    put_decoder(json, f);
    put(json, "\"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, "
              "\"continuing_subword_prefix\": null, \"end_of_word_suffix\": null, \"fuse_unk\": "
              "false, \"byte_fallback\": ");
    put(json, f->characters ? "true, \"ignore_merges\": " : "false, \"ignore_merges\": ");
    put(json, f->ignore_merges ? "true,\n" : "false,\n");
    put_vocab(json, f, &names);
    put_merges(json, f, &names);
    put(json, "}}\n");
    TRY(text_status(&names.now));
    TRY(text_status(json));
out:
    mem_free(names.byte);
    text_free(&names.now);
    return status;
}
