/* neox.c - GPT-NeoX and Pythia (EleutherAI, 2022): rotary positions in a part of each head,
 * parallel branches, biases
 *
 * The rows of the fused projection are [head][q, k, v][D], and those of queries and keys are
 * rotated in another order (rope_row()). */
#include "exchange/exchange.h"

#define AT(field) offsetof(struct alibi_config, field)

static const struct key_choice activations[] = {
    { "gelu", ALIBI_GELU_ERF },       { "gelu_new", ALIBI_GELU_TANH },
    { "gelu_fast", ALIBI_GELU_TANH }, { "gelu_pytorch_tanh", ALIBI_GELU_TANH },
    { "relu", ALIBI_RELU },           { NULL, 0 }
};

static const struct config_key keys[] = {
    { "vocab_size", NULL, KEY_INT, AT(vocab), NULL, NULL, NULL },
    { "hidden_size", NULL, KEY_INT, AT(width), NULL, NULL, NULL },
    { "num_hidden_layers", NULL, KEY_INT, AT(layers), NULL, NULL, NULL },
    { "num_attention_heads", NULL, KEY_INT, AT(heads), NULL, NULL, NULL },
    { "intermediate_size", NULL, KEY_INT, AT(ff_width), NULL, NULL, NULL },
    { "max_position_embeddings", NULL, KEY_INT, AT(train_length), "2048", NULL, NULL },
    { "hidden_act", NULL, KEY_CHOICE, AT(activation), "\"gelu\"", NULL, activations },
    { "layer_norm_eps", NULL, KEY_REAL, AT(norm_eps), "1e-5", NULL, NULL },
    { "use_parallel_residual", NULL, KEY_FLAG, AT(parallel), "true", NULL, NULL },
    { "tie_word_embeddings", NULL, KEY_FLAG, AT(tied), "false", NULL, NULL },
    { "attention_bias", NULL, KEY_ONLY, 0, "true", "true", NULL },
};

static void neox_write(const struct alibi_config *c, struct json_writer *w)
{
    struct rope r = rope_of(c);

    json_write_real(w, "rotary_pct", r.share);
    json_write_real(w, "rotary_emb_base", r.base);
}

static int64_t row(const struct model *outline, int64_t theirs)
{
    return rope_row(outline, row_by_head(outline, theirs));
}

static const struct tensor_rule rules[] = {
    { "gpt_neox.embed_in", "embedding", ROWS_ALL, NULL, false },
    { "gpt_neox.layers.*.input_layernorm", "blocks.*.norm1", ROWS_ALL, NULL, false },
    { "gpt_neox.layers.*.attention.query_key_value", "blocks.*.attention.qkv", ROWS_ALL, row,
      false },
    { "gpt_neox.layers.*.attention.dense", "blocks.*.attention.out", ROWS_ALL, NULL, false },
    { "gpt_neox.layers.*.post_attention_layernorm", "blocks.*.norm2", ROWS_ALL, NULL, false },
    { "gpt_neox.layers.*.mlp.dense_h_to_4h", "blocks.*.ff.up", ROWS_ALL, NULL, false },
    { "gpt_neox.layers.*.mlp.dense_4h_to_h", "blocks.*.ff.down", ROWS_ALL, NULL, false },
    { "gpt_neox.final_layer_norm", "norm", ROWS_ALL, NULL, false },
    { "embed_out", "head", ROWS_ALL, NULL, false },
};

static const char *const ignored[] = { ".attention.bias", ".attention.masked_bias",
                                       ".rotary_emb.inv_freq", NULL };

const struct family family_neox = {
    .name = "gpt_neox",
    .architecture = "GPTNeoXForCausalLM",
    .keys = keys,
    .key_count = COUNT(keys),
    .read = rope_read_share,
    .write = neox_write,
    .rules = rules,
    .rule_count = COUNT(rules),
    .prefix = "gpt_neox.",
    .ignored = ignored,
};
