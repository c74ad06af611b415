/* fuzz_llamacpp.c - any bytes as the metadata of a GGUF file: configuration and tokenizer
 *
 * An accepted input is a configuration that can be resolved again, and a tokenizer that encodes a
 * text and decodes it. The tokens of the 256 bytes, which every vocabulary must have, are put
 * before the tokens of the input, so that inputs are short. */
#include "exchange/exchange.h"
#include "formats/gguf.h"
#include "fuzz.h"

enum { BYTES = 256, BYTE_TYPE = 6 };

static bool is_key(struct slice key, const char *name)
{
    return key.bytes == strlen(name) && memcmp(key.at, name, key.bytes) == 0;
}

/* The items of the 256 bytes in a list of tokens, of their types, or of their scores. */
static struct text byte_items(const struct gguf_pair *p, bool characters)
{
    struct text items = { 0 };

    for (int byte = 0; byte < BYTES; byte++) {
        char name[8];
        size_t bytes = characters ? (size_t)snprintf(name, sizeof name, "<0x%02X>", byte)
                                  : byte_letter_put(name, (unsigned char)byte);
        if (is_key(p->key, "tokenizer.ggml.tokens"))
            gguf_append_text(&items, (struct slice){ name, bytes });
        else if (p->value.kind == GGUF_F32)
            text_append_bytes(&items, &(float){ 0 }, sizeof(float));
        else
            text_append_bytes(&items, &(int32_t){ characters ? BYTE_TYPE : 1 }, sizeof(int32_t));
    }
    return items;
}

/* The metadata with these tokens before its own; gguf_free() it, then free the text. */
static struct gguf *with_bytes(struct text *header, const struct gguf *g)
{
    static const char *const keys[] = { "tokenizer.ggml.tokens", "tokenizer.ggml.token_type",
                                        "tokenizer.ggml.scores" };
    static const enum gguf_kind kinds[] = { GGUF_TEXT, GGUF_I32, GGUF_F32 };
    const struct gguf_value *model = gguf_find(g, "tokenizer.ggml.model");
    struct gguf_writer w = { 0 };
    struct gguf *made = NULL;
    struct slice kind = { 0 };
    bool characters = model && gguf_text(model, &kind) && is_key(kind, "llama");

    for (int i = 0; i < g->pair_count; i++) {
        struct gguf_pair p = g->pairs[i];
        struct text key = { 0 }, items = { 0 };
        for (int k = 0; k < 3; k++)
            if (is_key(p.key, keys[k]) && p.value.array && p.value.kind == kinds[k]) {
                items = byte_items(&p, characters);
                text_append_bytes(&items, p.value.at, p.value.bytes);
                p.value.at = items.data;
                p.value.bytes = items.length;
                p.value.count += BYTES;
            }
        text_append_bytes(&key, p.key.at, p.key.bytes);
        require(text_status(&key) == ALIBI_OK && text_status(&items) == ALIBI_OK);
        gguf_put(&w, key.data, &p.value);
        text_free(&key);
        text_free(&items);
    }
    require(gguf_header(header, &w, NULL, 0) == ALIBI_OK);
    gguf_writer_fini(&w);
    require(gguf_parse(&made, header->data, header->length, (int64_t)header->length, "made") ==
            ALIBI_OK);
    return made;
}

static void check_config(const struct gguf *g)
{
    const struct family *family = NULL;
    struct alibi_config config, again;
    alibi_status status = llamacpp_config(&family, &config, g, "'fuzz.gguf'");

    if (status != ALIBI_OK) {
        check_refusal(status, "'fuzz.gguf'");
        return;
    }
    again = config;
    require(alibi_config_resolve(&again) == ALIBI_OK);
    require(memcmp(&again, &config, sizeof config) == 0);
}

static void check_text(const alibi_tokenizer *t, const char *text, size_t bytes)
{
    int32_t *ids = NULL;
    int64_t count = 0;
    char *decoded = NULL;

    if (alibi_tokenizer_encode(t, text, bytes, &ids, &count) == ALIBI_OK) {
        for (int64_t i = 0; i < count; i++)
            require(ids[i] >= 0 && ids[i] < alibi_tokenizer_vocab(t));
        require(alibi_tokenizer_decode(t, ids, count, &decoded, &bytes) == ALIBI_OK);
    }
    alibi_ids_free(ids);
    alibi_text_free(decoded);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char text[] = "Abab  a\xC3\xA9<s> banana\n\n  \xE2\x96\x81\xFF ab";
    struct gguf *g = NULL, *made;
    struct text header = { 0 };
    alibi_tokenizer *t = NULL;
    alibi_status status = gguf_parse(&g, (const char *)data, size, (int64_t)size, "fuzz.gguf");

    if (status == ALIBI_OK) {
        check_config(g);
        made = with_bytes(&header, g);
        status = llamacpp_read_tokenizer(&t, made, "fuzz.gguf");
        if (status != ALIBI_OK)
            check_refusal(status, "fuzz.gguf");
        else
            check_text(t, text, sizeof text - 1);
        alibi_tokenizer_free(t);
        gguf_free(made);
        gguf_free(g);
        text_free(&header);
    } else {
        check_refusal(status, "fuzz.gguf");
    }
    require(alibi_memory_now() == 0);
    return 0;
}
