/* llamacpp_tokenizer.c - the tokenizer in the metadata of a GGUF file
 *
 * Byte-level BPE is "tokenizer.ggml.model" gpt2, with the tokens and merges as texts; a name,
 * "tokenizer.ggml.pre", stands for the expressions that cut text. BPE of characters, as Llama 2 has
 * it, is the model llama, with tokens and scores. A file may also have the whole tokenizer.json. It
 * is more complete, so it is preferred, and written. Our other kinds of tokenizers are stored only
 * in our own form. */
#include <string.h>

#include "base/json.h"
#include "exchange/exchange.h"
#include "formats/gguf.h"

static const char key_model[] = "tokenizer.ggml.model", key_pre[] = "tokenizer.ggml.pre",
                  key_tokens[] = "tokenizer.ggml.tokens", key_types[] = "tokenizer.ggml.token_type",
                  key_merges[] = "tokenizer.ggml.merges", key_scores[] = "tokenizer.ggml.scores",
                  key_begin[] = "tokenizer.ggml.bos_token_id",
                  key_end[] = "tokenizer.ggml.eos_token_id",
                  key_add_begin[] = "tokenizer.ggml.add_bos_token",
                  key_prefix[] = "tokenizer.ggml.add_space_prefix",
                  key_json[] = "tokenizer.huggingface.json", key_ours[] = "alibi.tokenizer";

/* The kind of a token, with llama.cpp's numbers. */
enum {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN = 2, /* stands for characters without a token */
    TOKEN_CONTROL = 3,
    TOKEN_USER = 4,
    TOKEN_UNUSED = 5,
    TOKEN_BYTE = 6
};

/* ---- names of expressions */

#define BLOOM " ?[^(\\s|[.,!?…。，、।۔،])]+"
#define LLAMA3                                                                                     \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+" \
    "[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define QWEN2                                                                                      \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+"      \
    "[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* If several names mean the same, the first one is written. llama.cpp does not normalize text, even
 * if the original tokenizer of that name does. */
static const struct pre {
    const char *name, *pattern; /* NULL: GPT-2's */
    bool nfc, ignore_merges;
} pres[] = {
    { "gpt-2", NULL, false, false },      { "mpt", NULL, true, false },
    { "olmo", NULL, true, false },        { "phi-2", NULL, false, false },
    { "jais", NULL, false, false },       { "bloom", BLOOM, false, false },
    { "llama-bpe", LLAMA3, false, true }, { "llama3", LLAMA3, false, true },
    { "llama-v3", LLAMA3, false, true },  { "smaug-bpe", LLAMA3, false, false },
    { "dbrx", LLAMA3, false, false },     { "qwen2", QWEN2, true, false },
    { "stablelm2", QWEN2, true, false },
};

enum { PRES = COUNT(pres) };

static const struct pre *pre_named(struct slice name)
{
    for (int i = 0; i < PRES; i++)
        if (strlen(pres[i].name) == name.bytes && memcmp(pres[i].name, name.at, name.bytes) == 0)
            return &pres[i];
    return NULL;
}

/* NULL: llama.cpp has no name for how this tokenizer cuts text. */
static const struct pre *pre_of(const struct bpe_file *f)
{
    bool known = f->split_count == 1 && !f->splits[0].plain && f->prefix == PREFIX_NONE;

    for (int i = 0; i < PRES && known; i++) {
        const char *pattern = pres[i].pattern ? pres[i].pattern : bpe_gpt2_pattern;
        if (strcmp(f->splits[0].pattern, pattern) == 0 && pres[i].nfc == f->nfc &&
            pres[i].ignore_merges == f->ignore_merges)
            return &pres[i];
    }
    return NULL;
}

bool tokenizer_cuts_as(const struct bpe_file *f, const char *name)
{
    const struct pre *pre = f->characters ? NULL : pre_of(f);

    return pre && strcmp(pre->name, name) == 0;
}

/* ---- reading */

/* The tokens of a file. */
struct listed {
    const struct gguf_value *tokens, *types; /* types: NULL: all are normal */
    int64_t count;                           /* without those that only pad the embedding */
    int64_t begin, end;                      /* ids; -1: none */
    bool characters;
};

static int64_t type_of_token(const struct listed *l, int64_t id)
{
    int64_t type = TOKEN_NORMAL;

    return l->types && gguf_integer(l->types, id, &type) ? type : TOKEN_NORMAL;
}

/* Matched in the text before anything else. llama.cpp does so with a token of the user that has
 * U+2581 too, but finds it only where text has that letter; where text has blanks, it merges it. */
static bool is_added(const struct listed *l, int64_t id, struct slice token)
{
    int64_t type = type_of_token(l, id);

    if (type == TOKEN_USER)
        return !l->characters || token.bytes == 0 ||
               !memmem(token.at, token.bytes, BPE_BLANK, strlen(BPE_BLANK));
    return type == TOKEN_CONTROL || (type == TOKEN_UNKNOWN && l->characters) || id == l->begin ||
           id == l->end;
}

/* An id in the metadata; `standard` if it is not there, -1 if there is no such token. */
static int64_t id_at(const struct gguf *g, const char *key, int64_t standard, int64_t count)
{
    const struct gguf_value *v = gguf_find(g, key);
    int64_t id = standard;

    if (v && (v->array || !gguf_integer(v, 0, &id)))
        id = -1;
    return id >= 0 && id < count ? id : -1;
}

static bool flag_at(const struct gguf *g, const char *key, bool standard)
{
    const struct gguf_value *v = gguf_find(g, key);

    if (v)
        gguf_flag(v, &standard);
    return standard;
}

/* Llama 2 has its special tokens first, and puts one before a text, unless the file says otherwise.
 * `begins`: the same holds for byte-level BPE that has the id in the metadata. */
static alibi_status find_tokens(struct listed *out, const struct gguf *g, bool characters,
                                bool begins, const char *path)
{
    struct listed l = { .tokens = gguf_find(g, key_tokens),
                        .types = gguf_find(g, key_types),
                        .characters = characters };

    if (!l.tokens || !l.tokens->array || l.tokens->kind != GGUF_TEXT)
        return fail(ALIBI_BAD_INPUT, "'%s' lacks the texts \"%s\"", path, key_tokens);
    l.count = l.tokens->count;
    while (l.count > 0 && type_of_token(&l, l.count - 1) == TOKEN_UNUSED)
        l.count--;
    l.end = id_at(g, key_end, characters ? 2 : -1, l.count);
    if (flag_at(g, key_add_begin, begins))
        l.begin = id_at(g, key_begin, characters ? 1 : -1, l.count);
    else
        l.begin = -1;
    *out = l;
    return ALIBI_OK;
}

static void put(struct text *json, const char *literal)
{
    text_append_bytes(json, literal, strlen(literal));
}

static void put_added(struct text *json, const struct listed *l)
{
    const char *at = l->tokens->at;
    bool any = false;

    put(json, "\"added_tokens\": [");
    for (int64_t id = 0; id < l->count; id++) {
        struct slice token = gguf_next_text(&at);
        if (!is_added(l, id, token))
            continue;
        text_append(json, "%s{\"id\": %lld, \"content\": ", any ? ",\n" : "", (long long)id);
        json_append_string(json, token.at, token.bytes);
        text_append(json,
                    ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
                    "\"normalized\": false, \"special\": %s%s}",
                    type_of_token(l, id) == TOKEN_USER ? "false" : "true",
                    id == l->end ? ", \"end_of_document\": true" : "");
        any = true;
    }
    put(json, "],\n");
}

static void put_pre(struct text *json, const struct pre *pre)
{
    put(json, pre->nfc ? "\"normalizer\": {\"type\": \"NFC\"},\n" : "\"normalizer\": null,\n");
    if (!pre->pattern) {
        put(json, "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
                  "\"trim_offsets\": true, \"use_regex\": true},\n");
        return;
    }
    put(json, "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": "
              "\"Split\", \"pattern\": {\"Regex\": ");
    json_append_string(json, pre->pattern, strlen(pre->pattern));
    put(json, "}, \"behavior\": \"Isolated\", \"invert\": false}, {\"type\": \"ByteLevel\", "
              "\"add_prefix_space\": false, \"trim_offsets\": true, \"use_regex\": false}]},\n");
}

/* The token that is put before a text. */
static void put_template(struct text *json, const struct listed *l)
{
    const char *at = l->tokens->at;
    struct slice name = { 0 };

    if (l->begin < 0) {
        put(json, "\"post_processor\": null,\n");
        return;
    }
    for (int64_t id = 0; id <= l->begin; id++)
        name = gguf_next_text(&at);
    put(json, "\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": "
              "[{\"SpecialToken\": {\"id\": ");
    json_append_string(json, name.at, name.bytes);
    put(json, ", \"type_id\": 0}}, {\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}],\n"
              "\"special_tokens\": {");
    json_append_string(json, name.at, name.bytes);
    put(json, ": {\"id\": ");
    json_append_string(json, name.at, name.bytes);
    text_append(json, ", \"ids\": [%lld]}}},\n", (long long)l->begin);
}

static void put_vocabulary(struct text *json, const struct listed *l)
{
    const char *at = l->tokens->at;

    put(json, "\"vocab\": {");
    for (int64_t id = 0; id < l->count; id++) {
        struct slice token = gguf_next_text(&at);
        put(json, id > 0 ? ",\n" : "\n");
        json_append_string(json, token.at, token.bytes);
        text_append(json, ": %lld", (long long)id);
    }
    put(json, "}, \"merges\": [");
}

static alibi_status read_byte_level(alibi_tokenizer **out, const struct gguf *g, const char *path)
{
    alibi_status status;
    const struct gguf_value *merges = gguf_find(g, key_merges), *pre = gguf_find(g, key_pre);
    const struct pre *known;
    const char *at;
    struct slice name = { "default", 7 };
    struct listed l;
    struct text json = { 0 };

    if (pre && !gguf_text(pre, &name))
        return fail(ALIBI_BAD_INPUT, "'%s': \"%s\" is not a text", path, key_pre);
    known = pre_named(name);
    if (!known)
        return fail(ALIBI_BAD_INPUT, "'%s': text is split as '%.*s', which is not supported", path,
                    (int)(name.bytes < 60 ? name.bytes : 60), name.at);
    TRY_RETURN(find_tokens(&l, g, false, known->ignore_merges, path));
    if (!merges || !merges->array || merges->kind != GGUF_TEXT)
        return fail(ALIBI_BAD_INPUT, "'%s' lacks the texts \"%s\"", path, key_merges);
    put(&json, "{");
    put_added(&json, &l);
    put_pre(&json, known);
    put_template(&json, &l);
    text_append(&json, "\"model\": {\"type\": \"BPE\", \"ignore_merges\": %s, ",
                known->ignore_merges ? "true" : "false");
    put_vocabulary(&json, &l);
    at = merges->at;
    for (int64_t i = 0; i < merges->count; i++) {
        struct slice merge = gguf_next_text(&at);
        put(&json, i > 0 ? ",\n" : "\n");
        json_append_string(&json, merge.at, merge.bytes);
    }
    put(&json, "]}}\n");
    TRY(text_status(&json));
    TRY(tokenizer_read(out, json.data, json.length, path));
out:
    text_free(&json);
    return status;
}

/* The tokens that are made of characters, with their scores. */
static alibi_status read_scores(struct scored_token *tokens, int64_t *count, const struct listed *l,
                                const struct gguf *g, const char *path)
{
    const struct gguf_value *scores = gguf_find(g, key_scores);
    const char *at = l->tokens->at;

    *count = 0;
    for (int64_t id = 0; id < l->count; id++) {
        struct slice text = gguf_next_text(&at);
        double score = 0;
        if (!scores || !scores->array || !gguf_real(scores, id, &score))
            return fail(ALIBI_BAD_INPUT, "'%s' lacks a number for each token in \"%s\"", path,
                        key_scores);
        if (!is_added(l, id, text) && type_of_token(l, id) != TOKEN_BYTE)
            tokens[(*count)++] = (struct scored_token){ text, score, (int32_t)id };
    }
    return ALIBI_OK;
}

static alibi_status read_characters(alibi_tokenizer **out, const struct gguf *g, const char *path)
{
    alibi_status status;
    struct listed l;
    struct text json = { 0 };
    struct scored_token *tokens = NULL;
    int64_t count = 0;
    bool prefix = flag_at(g, key_prefix, true);

    TRY_RETURN(find_tokens(&l, g, true, true, path));
    if (l.count > INT32_MAX)
        return fail(ALIBI_BAD_INPUT, "'%s' has too many tokens", path);
    TRY(NEW_ARRAY(&tokens, l.count, "the tokens of a tokenizer"));
    TRY(read_scores(tokens, &count, &l, g, path));
    put(&json, "{");
    put_added(&json, &l);
    put(&json, "\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [");
    put(&json, prefix ? "{\"type\": \"Prepend\", \"prepend\": \"" BPE_BLANK "\"}, " : "");
    put(&json, "{\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"" BPE_BLANK
               "\"}]},\n\"pre_tokenizer\": null,\n");
    put_template(&json, &l);
    put(&json, "\"model\": {\"type\": \"BPE\", \"byte_fallback\": true, ");
    put_vocabulary(&json, &l);
    TRY(llamacpp_merges(&json, tokens, count, path));
    put(&json, "]}}\n");
    TRY(text_status(&json));
    TRY(tokenizer_read(out, json.data, json.length, path));
out:
    mem_free(tokens);
    text_free(&json);
    return status;
}

alibi_status llamacpp_read_tokenizer(alibi_tokenizer **out, const struct gguf *g, const char *path)
{
    const struct gguf_value *whole = gguf_find(g, key_json), *model = gguf_find(g, key_model);
    struct slice text = { 0 };

    if (!whole)
        whole = gguf_find(g, key_ours);
    if (whole && gguf_text(whole, &text))
        return tokenizer_read(out, text.at, text.bytes, path);
    if (!model || !gguf_text(model, &text))
        return fail(ALIBI_BAD_INPUT, "'%s' has no \"%s\"", path, key_model);
    if (text.bytes == 4 && memcmp(text.at, "gpt2", 4) == 0)
        return read_byte_level(out, g, path);
    if (text.bytes == 5 && memcmp(text.at, "llama", 5) == 0)
        return read_characters(out, g, path);
    return fail(ALIBI_BAD_INPUT, "'%s': tokenizers of kind '%.*s' are not supported", path,
                (int)(text.bytes < 60 ? text.bytes : 60), text.at);
}

/* ---- writing */

/* A token as the file spells it: a letter for each byte. */
static void append_letters(struct text *out, struct slice bytes)
{
    for (size_t i = 0; i < bytes.bytes; i++) {
        char letter[2];
        text_append_bytes(out, letter, byte_letter_put(letter, (unsigned char)bytes.at[i]));
    }
}

static struct slice slice_of(const struct text *t)
{
    return (struct slice){ t->data, t->length };
}

/* The tokens and their kinds, one by one. */
struct tokens {
    struct text texts, types, spelled;
    int64_t count;
};

static void add_token(struct tokens *t, struct slice text, int32_t type)
{
    gguf_append_text(&t->texts, text);
    text_append_bytes(&t->types, &type, sizeof type);
    t->count++;
}

static void add_normal(struct tokens *t, struct slice bytes)
{
    t->spelled.length = 0;
    append_letters(&t->spelled, bytes);
    add_token(t, slice_of(&t->spelled), TOKEN_NORMAL);
}

/* Each row of the embedding has a token in llama.cpp. */
static void add_padding(struct tokens *t, int64_t vocab)
{
    while (t->count < vocab) {
        t->spelled.length = 0;
        text_append(&t->spelled, "[PAD%lld]", (long long)t->count);
        add_token(t, slice_of(&t->spelled), TOKEN_UNUSED);
    }
}

/* Byte-level BPE, which has a name for how it cuts text, has merges; that of characters has scores
 * in their place. */
static alibi_status put_tokens(struct gguf_writer *w, struct tokens *t, const struct text *merges,
                               int64_t merge_count, const char *pre)
{
    gguf_put_text(w, key_model, pre ? "gpt2" : "llama");
    gguf_put_text(w, key_pre, pre ? pre : "default");
    gguf_put(w, key_tokens,
             &(struct gguf_value){ GGUF_TEXT, true, t->count, t->texts.data, t->texts.length });
    gguf_put(w, key_types,
             &(struct gguf_value){ GGUF_I32, true, t->count, t->types.data, t->types.length });
    gguf_put(w, pre ? key_merges : key_scores,
             &(struct gguf_value){ pre ? GGUF_TEXT : GGUF_F32, true, merge_count, merges->data,
                                   merges->length });
    TRY_RETURN(text_status(&t->texts));
    TRY_RETURN(text_status(&t->types));
    TRY_RETURN(text_status(&t->spelled));
    return text_status(merges);
}

static void tokens_fini(struct tokens *t)
{
    text_free(&t->texts);
    text_free(&t->types);
    text_free(&t->spelled);
}

/* A tokenizer of bytes is a BPE without merges. */
static alibi_status put_bytes(struct gguf_writer *w, const alibi_tokenizer *tokenizer,
                              int64_t vocab)
{
    struct tokens t = { 0 };
    struct text none = { 0 };
    alibi_status status;

    for (int32_t id = 0; id < alibi_tokenizer_vocab(tokenizer); id++) {
        struct slice bytes = { 0 };
        bytes.at = tokenizer_bytes(tokenizer, id, &bytes.bytes);
        if (bytes.bytes > 0)
            add_normal(&t, bytes);
        else
            add_token(&t, (struct slice){ "<|endoftext|>", 13 }, TOKEN_CONTROL);
    }
    add_padding(&t, vocab);
    status = put_tokens(w, &t, &none, 0, pres[0].name);
    tokens_fini(&t);
    return status;
}

/* An added token, if the id is of one; *next is the first of the list that may be. */
static bool add_added(struct tokens *t, const struct bpe_file *f, int64_t id, int *next)
{
    while (*next < f->added_count && f->added[*next].id < id)
        (*next)++;
    if (*next == f->added_count || f->added[*next].id != id)
        return false;
    add_token(t, f->added[*next].text, f->added[*next].special ? TOKEN_CONTROL : TOKEN_USER);
    return true;
}

/* A token of characters: a blank is U+2581. */
static void add_characters(struct tokens *t, struct slice text)
{
    t->spelled.length = 0;
    for (size_t i = 0; i < text.bytes; i++)
        text_append_bytes(&t->spelled, text.at[i] == ' ' ? BPE_BLANK : &text.at[i],
                          text.at[i] == ' ' ? 3 : 1);
    add_token(t, slice_of(&t->spelled), TOKEN_NORMAL);
}

/* llama.cpp joins the two neighbours whose token has the highest score, whatever the two are. The
 * score of a token is therefore less the later its first merge is, and least if it has none. */
static alibi_status put_characters(struct gguf_writer *w, const struct bpe_file *f, int64_t vocab)
{
    alibi_status status;
    struct tokens t = { 0 };
    float *scores = NULL;
    int added = 0;

    TRY(NEW_ARRAY(&scores, vocab, "the scores of tokens"));
    for (int64_t id = 0; id < vocab; id++)
        scores[id] = -(float)f->merge_count;
    for (int64_t i = f->merge_count - 1; i >= 0; i--)
        scores[f->merges[i].result] = -(float)i;
    for (int64_t id = 0; id < f->vocab; id++) {
        struct slice token = f->tokens[id];
        if (add_added(&t, f, id, &added))
            continue;
        if (token.bytes == 1 && f->byte_ids[(unsigned char)token.at[0]] == id) {
            t.spelled.length = 0;
            text_append(&t.spelled, "<0x%02X>", (unsigned char)token.at[0]);
            add_token(&t, slice_of(&t.spelled), TOKEN_BYTE);
        } else {
            add_characters(&t, token);
        }
    }
    add_padding(&t, vocab);
    TRY(put_tokens(
        w, &t, &(struct text){ .data = (char *)scores, .length = (size_t)vocab * sizeof *scores },
        vocab, NULL));
    gguf_put_bool(w, key_prefix, f->prefix != PREFIX_NONE);
out:
    tokens_fini(&t);
    mem_free(scores);
    return status;
}

static alibi_status put_bpe(struct gguf_writer *w, const struct bpe_file *f, int64_t vocab,
                            const struct alibi_call *call)
{
    alibi_status status;
    const struct pre *pre = pre_of(f);
    struct tokens t = { 0 };
    struct text merges = { 0 };
    int added = 0;

    for (int64_t id = 0; id < f->vocab; id++)
        if (!add_added(&t, f, id, &added))
            add_normal(&t, f->tokens[id]);
    add_padding(&t, vocab);
    for (int64_t i = 0; i < f->merge_count; i++) {
        t.spelled.length = 0;
        append_letters(&t.spelled, f->tokens[f->merges[i].left]);
        text_append_bytes(&t.spelled, " ", 1);
        append_letters(&t.spelled, f->tokens[f->merges[i].right]);
        gguf_append_text(&merges, slice_of(&t.spelled));
    }
    TRY(put_tokens(w, &t, &merges, f->merge_count, pre ? pre->name : pres[0].name));
    if (!pre)
        call_warn(call,
                  "llama.cpp has no name for how this tokenizer cuts text; the file says '%s', so "
                  "its ids may differ there",
                  pres[0].name);
out:
    tokens_fini(&t);
    text_free(&merges);
    return status;
}

alibi_status llamacpp_put_tokenizer(struct gguf_writer *w, const alibi_tokenizer *t, int64_t vocab,
                                    const struct alibi_call *call)
{
    alibi_status status;
    struct text json = { 0 };
    struct bpe_file *file = NULL;
    bool bpe = strcmp(alibi_tokenizer_type(t), "bpe") == 0;
    bool bytes = strcmp(alibi_tokenizer_type(t), "bytes") == 0;

    TRY(tokenizer_format(t, &json));
    if (bpe)
        TRY(bpe_file_parse(&file, json.data, json.length, "tokenizer.json"));
    if (bpe && file->characters)
        TRY(put_characters(w, file, vocab));
    else if (bpe)
        TRY(put_bpe(w, file, vocab, call));
    else if (bytes)
        TRY(put_bytes(w, t, vocab));
    else
        gguf_put_text(w, key_model, "no_vocab");
    gguf_put_slice(w, bpe ? key_json : key_ours, slice_of(&json));
    if (alibi_tokenizer_end(t) >= 0 && (bpe || bytes)) {
        gguf_put_u32(w, key_begin, (uint32_t)tokenizer_start(t));
        gguf_put_u32(w, key_end, (uint32_t)alibi_tokenizer_end(t));
    }
    gguf_put_bool(w, key_add_begin, alibi_tokenizer_begin(t) >= 0);
out:
    bpe_file_free(file);
    text_free(&json);
    return status;
}
