/* llamacpp_families.c - the supported architectures of llama.cpp
 *
 * The keys of a GGUF file do not describe a model completely: some of it follows from the tensors.
 * The tables here therefore see a file as one flat object, with its metadata and the number of rows
 * of each tensor under the tensor's name (llamacpp.c).
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
static const char output_tensor[] = "output.weight", learned_tensor[] = "position_embd.weight",
                  bias_tensor[] = "blk.0.attn_output.bias", qkv_tensor[] = "blk.0.attn_qkv.bias",
                  norm_tensor[] = "blk.0.attn_norm.bias", query_tensor[] = "blk.0.attn_q.bias";

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
    c->qkv_biases = !c->biases && config_value(config, qkv_tensor);
    c->norm_biases = !c->biases && config_value(config, norm_tensor);
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
    if (c->biases || c->qkv_biases)
        json_write_int(w, qkv_tensor, c->width);
    if (c->biases || c->norm_biases)
        json_write_int(w, norm_tensor, c->width);
    if (strcmp(c->position, "learned") == 0)
        json_write_int(w, learned_tensor, c->max_length);
}

static const struct tensor_rule mpt_rules[] = {
    TENSORS,
    WHOLE("position_embd", "position"),
    WHOLE("blk.*.attn_qkv", "blocks.*.attention.qkv"),
    WHOLE("blk.*.ffn_up", "blocks.*.ff.up"),
};

/* ---- gptneox: rotary positions in a part of each head, parallel branches, biases */

static const struct config_key gptneox_keys[] = {
    SIZES("gptneox"),
    KEY("gptneox.attention.layer_norm_epsilon", KEY_REAL, norm_eps, NULL),
    KEY("gptneox.use_parallel_residual", KEY_FLAG, parallel, NULL),
    KEY("gptneox.rope.freq_base", KEY_REAL, rotary_base, "10000"),
    ONLY("gptneox.rope.scaling.type", "\"none\""),
    GELU,
};

static const char rotated_key[] = "gptneox.rope.dimension_count";

/* llama.cpp needs an output layer of its own. */
static alibi_status gptneox_read(struct alibi_config *c, const json_t *config, const char *path)
{
    const json_t *value = config_value(config, rotated_key);
    int64_t D = c->heads > 0 ? c->width / c->heads : 0;
    json_int_t rotated = value ? json_integer_value(value) : (json_int_t)D;

    if (rotated < 2 || rotated > D || rotated % 2 != 0)
        return fail(ALIBI_BAD_INPUT, "'%s': \"%s\" is not an even number up to %lld", path,
                    rotated_key, (long long)D);
    c->tied = false;
    text_print(c->position, sizeof c->position,
               rotated < D ? "rotary:share=%.17g:spread" : "rotary", (double)rotated / (double)D);
    return ALIBI_OK;
}

static void gptneox_write(const struct alibi_config *c, struct json_writer *w)
{
    struct rope r = rope_of(c);

    if (r.rotated > 0)
        json_write_int(w, rotated_key, 2 * r.rotated);
}

static const struct tensor_rule gptneox_rules[] = {
    TENSORS,
    { "blk.*.attn_qkv", "blocks.*.attention.qkv", ROWS_ALL, rope_row, false },
    WHOLE("blk.*.ffn_up", "blocks.*.ff.up"),
};

/* ---- llama, qwen2, qwen3: rotary, RMS norm, SwiGLU, no biases
 *
 * Qwen2 has biases of queries, keys and values, Qwen3 norms of queries and keys.
 *
 * In the architecture llama the elements 2n and 2n + 1 of a head are rotated together, so the rows
 * of queries and keys of models that rotate n and n + D/2 are in another order in its files. A file
 * that does not say "alibi.rotary_layout" comes from such a model, as those of Llama are. */

static const struct key_choice layouts[] = { { "halves", ALIBI_ROTARY_HALVES },
                                             { "pairs", ALIBI_ROTARY_PAIRS },
                                             { NULL, 0 } };

/* clang-format off */
#define ROTARY_KEYS(arch)                                                                          \
    SIZES(arch),                                                                                   \
    KEY(arch ".attention.layer_norm_rms_epsilon", KEY_REAL, norm_eps, NULL),                       \
    KEY(arch ".rope.freq_base", KEY_REAL, rotary_base, "10000"),                                   \
    ONLY(arch ".rope.scaling.type", "\"none\""),                                                   \
    ONLY(arch ".rope.scale_linear", "1"),                                                          \
    ONLY(arch ".expert_count", "0"),                                                               \
    ONLY(arch ".attention.scale", "0")
/* clang-format on */

static const struct config_key llama_keys[] = {
    ROTARY_KEYS("llama"),
    CHOICE("alibi.rotary_layout", rotary_layout, "\"halves\"", layouts),
};
static const struct config_key qwen2_keys[] = { ROTARY_KEYS("qwen2") };
static const struct config_key qwen3_keys[] = { ROTARY_KEYS("qwen3") };

/* A head has width / heads numbers, all of which are rotated. */
static alibi_status read_rotary(struct alibi_config *c, const json_t *config, const char *path,
                                const char *arch)
{
    static const char *const names[] = { "rope.dimension_count", "attention.key_length",
                                         "attention.value_length" };
    char name[64];

    for (int i = 0; i < COUNT(names); i++) {
        const json_t *value;
        snprintf(name, sizeof name, "%s.%s", arch, names[i]);
        value = config_value(config, name);
        if (value && c->heads > 0 &&
            (!json_is_integer(value) || c->width % c->heads != 0 ||
             json_integer_value(value) != (json_int_t)(c->width / c->heads)))
            return fail(ALIBI_BAD_INPUT, "'%s': \"%s\" is not width / heads, %lld / %lld", path,
                        name, (long long)c->width, (long long)c->heads);
    }
    if (config_value(config, "rope_freqs.weight"))
        return fail(ALIBI_BAD_INPUT,
                    "'%s' has the tensor 'rope_freqs.weight': rotary frequencies scaled as in "
                    "Llama 3.1 are not read from GGUF files; import the Hugging Face model",
                    path);
    read_tensors(c, config);
    c->norm = ALIBI_RMSNORM;
    c->activation = ALIBI_SWIGLU;
    c->biases = false;
    snprintf(c->position, sizeof c->position, "rotary");
    return ALIBI_OK;
}

static alibi_status llama_read(struct alibi_config *c, const json_t *config, const char *path)
{
    c->qkv_biases = config_value(config, query_tensor);
    return read_rotary(c, config, path, "llama");
}

static alibi_status qwen2_read(struct alibi_config *c, const json_t *config, const char *path)
{
    c->qkv_biases = true;
    return read_rotary(c, config, path, "qwen2");
}

static alibi_status qwen3_read(struct alibi_config *c, const json_t *config, const char *path)
{
    c->qk_norm = true;
    return read_rotary(c, config, path, "qwen3");
}

static void llama_write(const struct alibi_config *c, struct json_writer *w)
{
    write_tensors(c, w);
    if (c->qkv_biases)
        json_write_int(w, query_tensor, c->width);
}

/* Row 2n + j of a head is row n + j D/2 of ours. */
static int64_t row_of_pair(const struct model *outline, int64_t row)
{
    const struct alibi_config *c = &outline->config;
    int64_t D = c->width / c->heads, in = row % D;

    return c->rotary_layout == ALIBI_ROTARY_PAIRS ? row : row - in + in / 2 + in % 2 * (D / 2);
}

/* clang-format off */
#define ROTARY_RULES(row)                                                                          \
    TENSORS,                                                                                       \
    { "blk.*.attn_q", "blocks.*.attention.qkv", ROWS_QUERIES, row, false },                        \
    { "blk.*.attn_k", "blocks.*.attention.qkv", ROWS_KEYS, row, false },                           \
    { "blk.*.attn_v", "blocks.*.attention.qkv", ROWS_VALUES, NULL, false },                        \
    { "blk.*.ffn_gate", "blocks.*.ff.up", ROWS_GATE, NULL, false },                                \
    { "blk.*.ffn_up", "blocks.*.ff.up", ROWS_UP, NULL, false }
/* clang-format on */

static const struct tensor_rule llama_rules[] = { ROTARY_RULES(row_of_pair) };
static const struct tensor_rule qwen2_rules[] = { ROTARY_RULES(NULL) };
static const struct tensor_rule qwen3_rules[] = {
    ROTARY_RULES(NULL),
    WHOLE("blk.*.attn_q_norm", "blocks.*.attention.q_norm"),
    WHOLE("blk.*.attn_k_norm", "blocks.*.attention.k_norm"),
};

/* ---- the table: an export takes the first that fits */

#define FAMILY(arch)                                                                               \
    .name = #arch, .keys = arch##_keys, .key_count = COUNT(arch##_keys), .read = arch##_read,      \
    .rules = arch##_rules, .rule_count = COUNT(arch##_rules)

static const struct family families[] = {
    { FAMILY(gpt2), .write = write_tensors },  { FAMILY(bloom), .write = write_tensors },
    { FAMILY(mpt), .write = mpt_write },       { FAMILY(gptneox), .write = gptneox_write },
    { FAMILY(qwen2), .write = write_tensors }, { FAMILY(qwen3), .write = write_tensors },
    { FAMILY(llama), .write = llama_write },
};

const struct family *llamacpp_family_at(int index)
{
    return index < COUNT(families) ? &families[index] : NULL;
}
