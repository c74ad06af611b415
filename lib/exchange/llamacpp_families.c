/* llamacpp_families.c - the architectures of llama.cpp that a model may have
 *
 * A GGUF file does not say everything about a model by keys: some of it follows from the tensors
 * that are there. To the tables here a file is therefore one flat object, of its metadata and of
 * the number of rows of each tensor under the tensor's name (llamacpp.c).
 *
 * Queries, keys and values are [Q | K | V] in one tensor, or three tensors. llama.cpp computes GELU
 * by its approximation with tanh everywhere, also where the authors of a family use erf; a file of
 * ours says by "alibi.activation" which of them the model was trained with. */
#include <string.h>

#include "exchange/exchange.h"

#define AT(field) offsetof(struct alibi_config, field)

/* clang-format off */
#define KEY(name, kind, field, standard) { name, NULL, kind, AT(field), standard, NULL, NULL }
#define ONLY(name, value) { name, NULL, KEY_ONLY, 0, value, value, NULL }
#define CHOICE(name, field, standard, choices)                                                     \
    { name, NULL, KEY_CHOICE, AT(field), standard, NULL, choices }
#define WHOLE(theirs, ours) { theirs, ours, ROWS_ALL, NULL, false }

#define SIZES(arch)                                                                                \
    KEY("token_embd.weight", KEY_INT, vocab, NULL),                                                \
    KEY(arch ".block_count", KEY_INT, layers, NULL),                                               \
    KEY(arch ".context_length", KEY_INT, train_length, NULL),                                      \
    KEY(arch ".embedding_length", KEY_INT, width, NULL),                                           \
    KEY(arch ".feed_forward_length", KEY_INT, ff_width, NULL),                                     \
    KEY(arch ".attention.head_count", KEY_INT, heads, NULL),                                       \
    KEY(arch ".attention.head_count_kv", KEY_INT, kv_heads, "0")

/* The first tensor, the last ones, and those of a block that are the same everywhere. */
#define TENSORS                                                                                    \
    WHOLE("token_embd", "embedding"),                                                              \
    WHOLE("output_norm", "norm"),                                                                  \
    WHOLE("output", "head"),                                                                       \
    WHOLE("blk.*.attn_norm", "blocks.*.norm1"),                                                    \
    WHOLE("blk.*.ffn_norm", "blocks.*.norm2"),                                                     \
    WHOLE("blk.*.attn_output", "blocks.*.attention.out"),                                          \
    WHOLE("blk.*.ffn_down", "blocks.*.ff.down")
/* clang-format on */

static const struct key_choice gelus[] = { { "gelu-tanh", ALIBI_GELU_TANH },
                                           { "gelu-erf", ALIBI_GELU_ERF },
                                           { NULL, 0 } };

#define GELU CHOICE("alibi.activation", activation, "\"gelu-tanh\"", gelus)

/* The tensors whose presence is an option. */
static const char output_tensor[] = "output.weight", bias_tensor[] = "blk.0.attn_qkv.bias",
                  learned_tensor[] = "position_embd.weight";

static void read_tensors(struct alibi_config *c, const json_t *config)
{
    c->tied = !config_value(config, output_tensor);
}

static void write_tensors(const struct alibi_config *c, struct json_writer *w)
{
    if (!c->tied)
        json_write_int(w, output_tensor, c->vocab);
}

/* ---- gpt2: learned positions, LayerNorm, GELU, biases */

static const struct config_key gpt2_keys[] = {
    SIZES("gpt2"), KEY("gpt2.attention.layer_norm_epsilon", KEY_REAL, norm_eps, NULL), GELU
};

static alibi_status gpt2_read(struct alibi_config *c, const json_t *config, const char *path)
{
    (void)path;
    read_tensors(c, config);
    c->max_length = c->train_length;
    snprintf(c->position, sizeof c->position, "learned");
    return ALIBI_OK;
}

static const struct tensor_rule gpt2_rules[] = {
    TENSORS,
    WHOLE("position_embd", "position"),
    WHOLE("blk.*.attn_qkv", "blocks.*.attention.qkv"),
    WHOLE("blk.*.ffn_up", "blocks.*.ff.up"),
};

/* ---- bloom: ALiBi with slopes that end at 2^-8, and a norm after the embedding */

static const struct config_key bloom_keys[] = {
    SIZES("bloom"), KEY("bloom.attention.layer_norm_epsilon", KEY_REAL, norm_eps, NULL), GELU
};

static alibi_status bloom_read(struct alibi_config *c, const json_t *config, const char *path)
{
    (void)path;
    read_tensors(c, config);
    c->embedding_norm = true;
    return ALIBI_OK;
}

static const struct tensor_rule bloom_rules[] = {
    TENSORS,
    WHOLE("token_embd_norm", "embedding_norm"),
    WHOLE("blk.*.attn_qkv", "blocks.*.attention.qkv"),
    WHOLE("blk.*.ffn_up", "blocks.*.ff.up"),
};

/* ---- mpt: ALiBi with any slopes, learned positions or none; with biases or without */

static const struct config_key mpt_keys[] = {
    SIZES("mpt"),
    KEY("mpt.attention.layer_norm_epsilon", KEY_REAL, norm_eps, NULL),
    KEY("mpt.attention.max_alibi_bias", KEY_REAL, bias_max, "0"),
    ONLY("mpt.attention.clamp_kqv", "0"),
    GELU,
};

static alibi_status mpt_read(struct alibi_config *c, const json_t *config, const char *path)
{
    bool learned = config_value(config, learned_tensor) != NULL, alibi = c->bias_max > 0;

    if (learned && alibi)
        return fail(ALIBI_BAD_INPUT,
                    "'%s' has both \"mpt.attention.max_alibi_bias\" and tensor '%s'; the model has "
                    "one of them",
                    path, learned_tensor);
    read_tensors(c, config);
    c->biases = config_value(config, bias_tensor) != NULL;
    snprintf(c->position, sizeof c->position, alibi ? "alibi" : learned ? "learned" : "none");
    if (learned)
        c->max_length = c->train_length;
    if (!alibi)
        c->bias_max = 8; /* of no consequence, but it may not be 0 */
    return ALIBI_OK;
}

static void mpt_write(const struct alibi_config *c, struct json_writer *w)
{
    write_tensors(c, w);
    if (c->biases)
        json_write_int(w, bias_tensor, c->width);
    if (strcmp(c->position, "learned") == 0)
        json_write_int(w, learned_tensor, c->max_length);
}

static const struct tensor_rule mpt_rules[] = {
    TENSORS,
    WHOLE("position_embd", "position"),
    WHOLE("blk.*.attn_qkv", "blocks.*.attention.qkv"),
    WHOLE("blk.*.ffn_up", "blocks.*.ff.up"),
};

/* ---- llama: rotary, RMS norm, SwiGLU, no biases
 *
 * llama.cpp rotates the elements 2n and 2n + 1 of a head together, so the rows of queries and keys
 * of models that rotate n and n + D/2 are in another order in its files. A file that does not say
 * "alibi.rotary_layout" comes from such a model, as those of Llama are. */

static const struct key_choice layouts[] = { { "halves", ALIBI_ROTARY_HALVES },
                                             { "pairs", ALIBI_ROTARY_PAIRS },
                                             { NULL, 0 } };

static const struct config_key llama_keys[] = {
    SIZES("llama"),
    KEY("llama.attention.layer_norm_rms_epsilon", KEY_REAL, norm_eps, NULL),
    KEY("llama.rope.freq_base", KEY_REAL, rotary_base, "10000"),
    ONLY("llama.rope.scaling.type", "\"none\""),
    ONLY("llama.rope.scale_linear", "1"),
    ONLY("llama.expert_count", "0"),
    ONLY("llama.attention.scale", "0"),
    CHOICE("alibi.rotary_layout", rotary_layout, "\"halves\"", layouts),
};

/* A head has width / heads numbers, all of which are rotated. */
static alibi_status check_head_width(const struct alibi_config *c, const json_t *config,
                                     const char *path)
{
    static const char *const names[] = { "llama.rope.dimension_count", "llama.attention.key_length",
                                         "llama.attention.value_length" };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const json_t *value = config_value(config, names[i]);
        if (value && (!json_is_integer(value) ||
                      json_integer_value(value) * c->heads != (json_int_t)c->width))
            return fail(ALIBI_BAD_INPUT, "'%s': \"%s\" is not width / heads, %lld / %lld", path,
                        names[i], (long long)c->width, (long long)c->heads);
    }
    if (config_value(config, "rope_freqs.weight"))
        return fail(ALIBI_BAD_INPUT,
                    "'%s' has the tensor 'rope_freqs.weight': rotary frequencies scaled as in "
                    "Llama 3.1 are not supported",
                    path);
    return ALIBI_OK;
}

static alibi_status llama_read(struct alibi_config *c, const json_t *config, const char *path)
{
    TRY_RETURN(check_head_width(c, config, path));
    read_tensors(c, config);
    c->norm = ALIBI_RMSNORM;
    c->activation = ALIBI_SWIGLU;
    c->biases = false;
    snprintf(c->position, sizeof c->position, "rotary");
    return ALIBI_OK;
}

/* Row 2n + j of a head is row n + j D/2 of ours. */
static int64_t row_of_pair(const struct alibi_config *c, int64_t row)
{
    int64_t D = c->width / c->heads, in = row % D;

    return c->rotary_layout == ALIBI_ROTARY_PAIRS ? row : row - in + in / 2 + in % 2 * (D / 2);
}

static const struct tensor_rule llama_rules[] = {
    TENSORS,
    { "blk.*.attn_q", "blocks.*.attention.qkv", ROWS_QUERIES, row_of_pair, false },
    { "blk.*.attn_k", "blocks.*.attention.qkv", ROWS_KEYS, row_of_pair, false },
    { "blk.*.attn_v", "blocks.*.attention.qkv", ROWS_VALUES, NULL, false },
    { "blk.*.ffn_gate", "blocks.*.ff.up", ROWS_GATE, NULL, false },
    { "blk.*.ffn_up", "blocks.*.ff.up", ROWS_UP, NULL, false },
};

/* ---- the table */

#define COUNT(array) (int)(sizeof(array) / sizeof *(array))
#define FAMILY(arch)                                                                               \
    .name = #arch, .keys = arch##_keys, .key_count = COUNT(arch##_keys), .read = arch##_read,      \
    .rules = arch##_rules, .rule_count = COUNT(arch##_rules)

static const struct family families[] = {
    { FAMILY(gpt2), .write = write_tensors },
    { FAMILY(bloom), .write = write_tensors },
    { FAMILY(mpt), .write = mpt_write },
    { FAMILY(llama), .write = write_tensors },
};

const struct family *llamacpp_family_at(int index)
{
    return index < COUNT(families) ? &families[index] : NULL;
}
