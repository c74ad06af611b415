/* mpt.c - MPT (MosaicML, 2023): ALiBi, norms with only weights, no biases, tied weights
 *
 * MosaicML's own code is the reference. transformers ignores some of what the configuration can
 * say: other slopes, biases, another feed-forward width. */
#include <string.h>

#include "exchange/exchange.h"

#define AT(field) offsetof(struct alibi_config, field)

static const struct config_key keys[] = {
    { "vocab_size", NULL, KEY_INT, AT(vocab), NULL, NULL, NULL },
    { "d_model", "hidden_size", KEY_INT, AT(width), NULL, NULL, NULL },
    { "n_layers", "num_hidden_layers", KEY_INT, AT(layers), NULL, NULL, NULL },
    { "n_heads", "num_attention_heads", KEY_INT, AT(heads), NULL, NULL, NULL },
    { "max_seq_len", NULL, KEY_INT, AT(train_length), "2048", NULL, NULL },
    { "layer_norm_epsilon", NULL, KEY_REAL, AT(norm_eps), "1e-5", NULL, NULL },
    { "tie_word_embeddings", NULL, KEY_FLAG, AT(tied), "true", NULL, NULL },
    { "logit_scale", NULL, KEY_ONLY, 0, "null", "null", NULL },
    { "embedding_fraction", NULL, KEY_ONLY, 0, "1", "1.0", NULL },
    { "attn_config.alibi", NULL, KEY_SAID, 0, "true", "true", NULL },
    { "attn_config.alibi_bias_max", NULL, KEY_REAL, AT(bias_max), "8", NULL, NULL },
    { "attn_config.clip_qkv", NULL, KEY_ONLY, 0, "null", "null", NULL },
    { "attn_config.softmax_scale", NULL, KEY_ONLY, 0, "null", "null", NULL },
    { "attn_config.qk_ln", NULL, KEY_ONLY, 0, "false", "false", NULL },
    { "attn_config.prefix_lm", NULL, KEY_ONLY, 0, "false", "false", NULL },
};

/* Positions are learned only where ALiBi is off, whatever "learned_pos_emb" says beside it. */
static alibi_status read_position(struct alibi_config *c, const json_t *config, const char *path)
{
    const json_t *alibi = config_value(config, "attn_config.alibi");
    const json_t *learned = config_value(config, "learned_pos_emb");

    if (json_is_true(config_value(config, "attn_config.rope")))
        return fail(ALIBI_BAD_INPUT,
                    "'%s': \"attn_config.rope\" is true; of MPT models only those "
                    "with ALiBi, learned positions or none are known",
                    path);
    snprintf(c->position, sizeof c->position, "%s",
             !alibi || json_is_true(alibi)       ? "alibi"
             : !learned || json_is_true(learned) ? "learned"
                                                 : "none");
    return ALIBI_OK;
}

static alibi_status read_heads(struct alibi_config *c, const json_t *config, const char *path)
{
    const char *type = json_string_value(config_value(config, "attn_config.attn_type"));

    if (!type || strcmp(type, "multihead_attention") == 0)
        return ALIBI_OK;
    if (strcmp(type, "multiquery_attention") == 0) {
        c->kv_heads = 1;
        return ALIBI_OK;
    }
    if (strcmp(type, "grouped_query_attention") == 0)
        return json_get_int(json_object_get(config, "attn_config"), "kv_n_heads", 1, c->heads,
                            &c->kv_heads, path);
    return fail(ALIBI_BAD_INPUT, "'%s': \"attn_config.attn_type\" is \"%.40s\", which is not known",
                path, type);
}

static alibi_status mpt_read(struct alibi_config *c, const json_t *config, const char *path)
{
    const json_t *ratio = config_value(config, "expansion_ratio");
    const json_t *no_bias = config_value(config, "no_bias");
    const char *norm = json_string_value(config_value(config, "norm_type"));
    const char *ff = json_string_value(config_value(config, "ffn_config.ffn_type"));
    double wide = ratio ? json_number_value(ratio) * (double)c->width : 4.0 * (double)c->width;

    if (norm && !strstr(norm, "layernorm"))
        return fail(ALIBI_BAD_INPUT, "'%s': \"norm_type\" is \"%.40s\"; the family has LayerNorm",
                    path, norm);
    if (ff && strcmp(ff, "mptmlp") != 0)
        return fail(ALIBI_BAD_INPUT,
                    "'%s': \"ffn_config.ffn_type\" is \"%.40s\"; only mptmlp is known", path, ff);
    if (!(wide >= 1 && wide <= 1e9) || wide != (double)(int64_t)wide)
        return fail(ALIBI_BAD_INPUT, "'%s': \"expansion_ratio\" gives a width of %g", path, wide);
    c->ff_width = (int64_t)wide;
    c->activation = ALIBI_GELU_ERF;
    c->biases = no_bias && json_is_false(no_bias);
    TRY_RETURN(read_heads(c, config, path));
    return read_position(c, config, path);
}

static void mpt_write(const struct alibi_config *c, struct json_writer *w)
{
    (void)c;
    json_write_bool(w, "no_bias", true);
    json_write_int(w, "expansion_ratio", 4);
    json_write_bool(w, "learned_pos_emb", false);
    json_write_string(w, "norm_type", "low_precision_layernorm");
}

static const char *lacks(const struct alibi_config *c)
{
    if (c->biases)
        return "MPT has no biases in transformers; train with --no-biases";
    if (c->ff_width != 4 * c->width)
        return "MPT has a feed-forward width of 4 x width in transformers";
    if (c->bias_max != 8)
        return "MPT has slopes that end at 2^-8 in transformers";
    return NULL;
}

static const struct tensor_rule rules[] = {
    { "transformer.wte", "embedding", ROWS_ALL, NULL, false },
    { "transformer.wpe", "position", ROWS_ALL, NULL, false },
    { "transformer.blocks.*.norm_1", "blocks.*.norm1", ROWS_ALL, NULL, false },
    { "transformer.blocks.*.attn.Wqkv", "blocks.*.attention.qkv", ROWS_ALL, NULL, false },
    { "transformer.blocks.*.attn.out_proj", "blocks.*.attention.out", ROWS_ALL, NULL, false },
    { "transformer.blocks.*.norm_2", "blocks.*.norm2", ROWS_ALL, NULL, false },
    { "transformer.blocks.*.ffn.up_proj", "blocks.*.ff.up", ROWS_ALL, NULL, false },
    { "transformer.blocks.*.ffn.down_proj", "blocks.*.ff.down", ROWS_ALL, NULL, false },
    { "transformer.norm_f", "norm", ROWS_ALL, NULL, false },
    { "lm_head", "head", ROWS_ALL, NULL, false },
};

const struct family family_mpt = {
    .name = "mpt",
    .architecture = "MptForCausalLM",
    .keys = keys,
    .key_count = COUNT(keys),
    .read = mpt_read,
    .write = mpt_write,
    .lacks = lacks,
    .rules = rules,
    .rule_count = COUNT(rules),
    .prefix = "transformer.",
};
