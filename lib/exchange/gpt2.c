/* gpt2.c - GPT-2 (Radford et al., 2019): learned positions, biases, tied weights
 *
 * Its linear layers are stored as [in, out], and the fused projection as [Q | K | V]. Old files
 * have the causal mask among their tensors. */
#include "exchange/exchange.h"

#define AT(field) offsetof(struct alibi_config, field)

static const struct key_choice activations[] = { { "gelu_new", ALIBI_GELU_TANH },
                                                 { "gelu_pytorch_tanh", ALIBI_GELU_TANH },
                                                 { "gelu", ALIBI_GELU_ERF },
                                                 { "relu", ALIBI_RELU },
                                                 { NULL, 0 } };

static const struct config_key keys[] = {
    { "vocab_size", NULL, KEY_INT, AT(vocab), NULL, NULL, NULL },
    { "n_embd", "hidden_size", KEY_INT, AT(width), NULL, NULL, NULL },
    { "n_layer", "num_hidden_layers", KEY_INT, AT(layers), NULL, NULL, NULL },
    { "n_head", "num_attention_heads", KEY_INT, AT(heads), NULL, NULL, NULL },
    { "n_inner", NULL, KEY_INT, AT(ff_width), "null", NULL, NULL },
    { "n_positions", "n_ctx", KEY_INT, AT(train_length), "1024", NULL, NULL },
    { "activation_function", NULL, KEY_CHOICE, AT(activation), "\"gelu_new\"", NULL, activations },
    { "layer_norm_epsilon", NULL, KEY_REAL, AT(norm_eps), "1e-5", NULL, NULL },
    { "tie_word_embeddings", NULL, KEY_FLAG, AT(tied), "true", NULL, NULL },
    { "scale_attn_weights", NULL, KEY_ONLY, 0, "true", "true", NULL },
    { "scale_attn_by_inverse_layer_idx", NULL, KEY_ONLY, 0, "false", "false", NULL },
    { "add_cross_attention", NULL, KEY_ONLY, 0, "false", "false", NULL },
};

static const struct tensor_rule rules[] = {
    { "transformer.wte", "embedding", ROWS_ALL, NULL, false },
    { "transformer.wpe", "position", ROWS_ALL, NULL, false },
    { "transformer.h.*.ln_1", "blocks.*.norm1", ROWS_ALL, NULL, false },
    { "transformer.h.*.attn.c_attn", "blocks.*.attention.qkv", ROWS_ALL, NULL, true },
    { "transformer.h.*.attn.c_proj", "blocks.*.attention.out", ROWS_ALL, NULL, true },
    { "transformer.h.*.ln_2", "blocks.*.norm2", ROWS_ALL, NULL, false },
    { "transformer.h.*.mlp.c_fc", "blocks.*.ff.up", ROWS_ALL, NULL, true },
    { "transformer.h.*.mlp.c_proj", "blocks.*.ff.down", ROWS_ALL, NULL, true },
    { "transformer.ln_f", "norm", ROWS_ALL, NULL, false },
    { "lm_head", "head", ROWS_ALL, NULL, false },
};

static const char *const ignored[] = { ".attn.bias", ".attn.masked_bias", NULL };

const struct family family_gpt2 = {
    .name = "gpt2",
    .architecture = "GPT2LMHeadModel",
    .keys = keys,
    .key_count = COUNT(keys),
    .position = "learned",
    .rules = rules,
    .rule_count = COUNT(rules),
    .prefix = "transformer.",
    .ignored = ignored,
};
