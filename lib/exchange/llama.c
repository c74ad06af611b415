/* llama.c - Llama (Meta, 2023), and models that differ only slightly: Mistral has a window, Qwen2
 * biases of queries, keys and values, Qwen3 norms of queries and keys
 *
 * RMS norms, SwiGLU, rotary positions, fewer heads of keys than of queries, no biases. */
#include <string.h>

#include "exchange/exchange.h"

#define AT(field) offsetof(struct alibi_config, field)

#define COMMON_KEYS                                                                                \
    { "vocab_size", NULL, KEY_INT, AT(vocab), NULL, NULL, NULL },                                  \
        { "hidden_size", NULL, KEY_INT, AT(width), NULL, NULL, NULL },                             \
        { "num_hidden_layers", NULL, KEY_INT, AT(layers), NULL, NULL, NULL },                      \
        { "num_attention_heads", NULL, KEY_INT, AT(heads), NULL, NULL, NULL },                     \
        { "num_key_value_heads", NULL, KEY_INT, AT(kv_heads), "null", NULL, NULL },                \
        { "intermediate_size", NULL, KEY_INT, AT(ff_width), NULL, NULL, NULL },                    \
        { "max_position_embeddings", NULL, KEY_INT, AT(train_length), "2048", NULL, NULL },        \
        { "rms_norm_eps", NULL, KEY_REAL, AT(norm_eps), "1e-6", NULL, NULL },                      \
        { "tie_word_embeddings", NULL, KEY_FLAG, AT(tied), "false", NULL, NULL },                  \
    {                                                                                              \
        "hidden_act", NULL, KEY_ONLY, 0, "\"silu\"", "\"silu\"", NULL                              \
    }

static const struct config_key llama_keys[] = {
    COMMON_KEYS,
    { "attention_bias", NULL, KEY_ONLY, 0, "false", "false", NULL },
    { "mlp_bias", NULL, KEY_ONLY, 0, "false", "false", NULL },
};

static const struct config_key mistral_keys[] = { COMMON_KEYS };

static const struct config_key qwen2_keys[] = {
    COMMON_KEYS,
    { "use_sliding_window", NULL, KEY_ONLY, 0, "false", "false", NULL },
};

static const struct config_key qwen3_keys[] = {
    COMMON_KEYS,
    { "attention_bias", NULL, KEY_ONLY, 0, "false", "false", NULL },
    { "use_sliding_window", NULL, KEY_ONLY, 0, "false", "false", NULL },
};

static alibi_status llama_read(struct alibi_config *c, const json_t *config, const char *path)
{
    const json_t *width = config_value(config, "head_dim");

    c->norm = ALIBI_RMSNORM;
    c->activation = ALIBI_SWIGLU;
    c->biases = false;
    if (width && c->heads > 0 &&
        (c->width % c->heads != 0 || json_integer_value(width) != c->width / c->heads))
        return fail(
            ALIBI_BAD_INPUT,
            "'%s': \"head_dim\" is %lld; %lld heads that share a width of %lld have another "
            "one, and no other is known here",
            path, (long long)json_integer_value(width), (long long)c->heads, (long long)c->width);
    return rope_read(c, config, path);
}

/* Without the key the window is 4096, with null there is none. */
static alibi_status read_mistral(struct alibi_config *c, const json_t *config, const char *path)
{
    const json_t *window = json_object_get(config, "sliding_window");
    size_t used;

    TRY_RETURN(llama_read(c, config, path));
    used = strlen(c->position);
    if (window && !json_is_null(window) &&
        !(json_is_integer(window) && json_integer_value(window) > 0))
        return fail(ALIBI_BAD_INPUT, "'%s': \"sliding_window\" is not a number of tokens", path);
    if (!json_is_null(window))
        snprintf(c->position + used, sizeof c->position - used, ":window=%lld",
                 window ? (long long)json_integer_value(window) : 4096LL);
    return ALIBI_OK;
}

static alibi_status read_qwen2(struct alibi_config *c, const json_t *config, const char *path)
{
    c->qkv_biases = true;
    return llama_read(c, config, path);
}

static alibi_status read_qwen3(struct alibi_config *c, const json_t *config, const char *path)
{
    c->qk_norm = true;
    return llama_read(c, config, path);
}

static void llama_write(const struct alibi_config *c, struct json_writer *w)
{
    json_write_int(w, "head_dim", c->width / c->heads);
    rope_write(c, w);
}

static void write_mistral(const struct alibi_config *c, struct json_writer *w)
{
    int64_t window = rope_of(c).window;

    if (window > 0)
        json_write_int(w, "sliding_window", window);
    else
        json_write_null(w, "sliding_window");
    llama_write(c, w);
}

static const struct tensor_rule rules[] = {
    { "model.embed_tokens", "embedding", ROWS_ALL, NULL, false },
    { "model.layers.*.input_layernorm", "blocks.*.norm1", ROWS_ALL, NULL, false },
    { "model.layers.*.self_attn.q_proj", "blocks.*.attention.qkv", ROWS_QUERIES, NULL, false },
    { "model.layers.*.self_attn.k_proj", "blocks.*.attention.qkv", ROWS_KEYS, NULL, false },
    { "model.layers.*.self_attn.v_proj", "blocks.*.attention.qkv", ROWS_VALUES, NULL, false },
    { "model.layers.*.self_attn.q_norm", "blocks.*.attention.q_norm", ROWS_ALL, NULL, false },
    { "model.layers.*.self_attn.k_norm", "blocks.*.attention.k_norm", ROWS_ALL, NULL, false },
    { "model.layers.*.self_attn.o_proj", "blocks.*.attention.out", ROWS_ALL, NULL, false },
    { "model.layers.*.post_attention_layernorm", "blocks.*.norm2", ROWS_ALL, NULL, false },
    { "model.layers.*.mlp.gate_proj", "blocks.*.ff.up", ROWS_GATE, NULL, false },
    { "model.layers.*.mlp.up_proj", "blocks.*.ff.up", ROWS_UP, NULL, false },
    { "model.layers.*.mlp.down_proj", "blocks.*.ff.down", ROWS_ALL, NULL, false },
    { "model.norm", "norm", ROWS_ALL, NULL, false },
    { "lm_head", "head", ROWS_ALL, NULL, false },
};

static const char *const ignored[] = { ".rotary_emb.inv_freq", NULL };

#define FAMILY(NAME, ARCHITECTURE, KEYS, READ, WRITE)                                              \
    {                                                                                              \
        .name = (NAME), .architecture = (ARCHITECTURE), .keys = (KEYS), .key_count = COUNT(KEYS),  \
        .read = (READ), .write = (WRITE), .rules = rules, .rule_count = COUNT(rules),              \
        .prefix = "model.", .ignored = ignored,                                                    \
    }

const struct family family_llama =
    FAMILY("llama", "LlamaForCausalLM", llama_keys, llama_read, llama_write);
const struct family family_mistral =
    FAMILY("mistral", "MistralForCausalLM", mistral_keys, read_mistral, write_mistral);
const struct family family_qwen2 =
    FAMILY("qwen2", "Qwen2ForCausalLM", qwen2_keys, read_qwen2, llama_write);
const struct family family_qwen3 =
    FAMILY("qwen3", "Qwen3ForCausalLM", qwen3_keys, read_qwen3, llama_write);
