/* falcon.c - Falcon-RW (TII, 2023): ALiBi with slopes divided by sqrt(D), biases, tied weights
 *
 * The rows of the fused projection are [head][q, k, v][D]. transformers rounds slopes, and their
 * products with positions of keys, to bf16: exact up to position 256 where slopes are powers of
 * two, so for at most 8 heads. Here they are not rounded. The larger models of the family, which
 * have rotary positions, one key head and parallel branches after one norm, are refused. */
#include "exchange/exchange.h"

#define AT(field) offsetof(struct alibi_config, field)

static const struct key_choice activations[] = { { "gelu", ALIBI_GELU_ERF },
                                                 { "gelu_new", ALIBI_GELU_TANH },
                                                 { "gelu_pytorch_tanh", ALIBI_GELU_TANH },
                                                 { "relu", ALIBI_RELU },
                                                 { NULL, 0 } };

static const struct config_key keys[] = {
    { "vocab_size", NULL, KEY_INT, AT(vocab), NULL, NULL, NULL },
    { "hidden_size", "n_embed", KEY_INT, AT(width), NULL, NULL, NULL },
    { "num_hidden_layers", "n_layer", KEY_INT, AT(layers), NULL, NULL, NULL },
    { "num_attention_heads", "n_head", KEY_INT, AT(heads), NULL, NULL, NULL },
    { "ffn_hidden_size", NULL, KEY_INT, AT(ff_width), "null", NULL, NULL },
    { "max_position_embeddings", NULL, KEY_INT, AT(train_length), "2048", NULL, NULL },
    { "activation", NULL, KEY_CHOICE, AT(activation), "\"gelu\"", NULL, activations },
    { "layer_norm_epsilon", NULL, KEY_REAL, AT(norm_eps), "1e-5", NULL, NULL },
    { "tie_word_embeddings", NULL, KEY_FLAG, AT(tied), "true", NULL, NULL },
    { "alibi", NULL, KEY_ONLY, 0, "false", "true", NULL },
    { "bias", NULL, KEY_ONLY, 0, "false", "true", NULL },
    { "multi_query", NULL, KEY_ONLY, 0, "true", "false", NULL },
    { "parallel_attn", NULL, KEY_ONLY, 0, "true", "false", NULL },
    { "new_decoder_architecture", NULL, KEY_ONLY, 0, "false", "false", NULL },
};

static const struct tensor_rule rules[] = {
    { "transformer.word_embeddings", "embedding", ROWS_ALL, NULL, false },
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

const struct family family_falcon = {
    .name = "falcon",
    .architecture = "FalconForCausalLM",
    .keys = keys,
    .key_count = COUNT(keys),
    .position = "alibi:scaled",
    .rules = rules,
    .rule_count = COUNT(rules),
    .prefix = "transformer.",
};
