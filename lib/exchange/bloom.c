/* bloom.c - BLOOM (BigScience, 2022): ALiBi, a norm after the embedding, biases, tied weights
 *
 * The rows of the fused projection are [head][q, k, v][D]. Files of the hub have the names without
 * "transformer.". */
#include "exchange/exchange.h"

#define AT(field) offsetof(struct alibi_config, field)

static const struct config_key keys[] = {
    { "vocab_size", NULL, KEY_INT, AT(vocab), NULL, NULL, NULL },
    { "hidden_size", "n_embed", KEY_INT, AT(width), NULL, NULL, NULL },
    { "n_layer", "num_hidden_layers", KEY_INT, AT(layers), NULL, NULL, NULL },
    { "n_head", "num_attention_heads", KEY_INT, AT(heads), NULL, NULL, NULL },
    { "layer_norm_epsilon", NULL, KEY_REAL, AT(norm_eps), "1e-5", NULL, NULL },
    { "seq_length", NULL, KEY_INT, AT(train_length), "2048", NULL, NULL },
    { "tie_word_embeddings", NULL, KEY_FLAG, AT(tied), "true", NULL, NULL },
    { "apply_residual_connection_post_layernorm", NULL, KEY_ONLY, 0, "false", "false", NULL },
};

static const struct tensor_rule rules[] = {
    { "transformer.word_embeddings", "embedding", ROWS_ALL, NULL, false },
    { "transformer.word_embeddings_layernorm", "embedding_norm", ROWS_ALL, NULL, false },
    { "transformer.h.*.input_layernorm", "blocks.*.norm1", ROWS_ALL, NULL, false },
    { "transformer.h.*.self_attention.query_key_value", "blocks.*.attention.qkv", ROWS_ALL,
      row_by_head, false },
    { "transformer.h.*.self_attention.dense", "blocks.*.attention.out", ROWS_ALL, NULL, false },
    { "transformer.h.*.post_attention_layernorm", "blocks.*.norm2", ROWS_ALL, NULL, false },
    { "transformer.h.*.mlp.dense_h_to_4h", "blocks.*.ff.up", ROWS_ALL, NULL, false },
    { "transformer.h.*.mlp.dense_4h_to_h", "blocks.*.ff.down", ROWS_ALL, NULL, false },
    { "transformer.ln_f", "norm", ROWS_ALL, NULL, false },
    { "lm_head", "head", ROWS_ALL, NULL, false },
};

const struct family family_bloom = {
    .name = "bloom",
    .architecture = "BloomForCausalLM",
    .keys = keys,
    .key_count = COUNT(keys),
    .embedding_norm = true,
    .rules = rules,
    .rule_count = COUNT(rules),
    .prefix = "transformer.",
};
