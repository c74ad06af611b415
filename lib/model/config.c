/* config.c - the configuration of a model: the options, how they fit together, and their file */
#include <math.h>
#include <string.h>

#include "model/model.h"

#define AT(field) offsetof(struct alibi_config, field)

/* Upper limits are far beyond any machine; they keep every product of a few of these within 63
 * bits. */
static const struct alibi_option options[] = {
    { "vocab", ALIBI_OPTION_INT, AT(vocab), 0, 1 << 28, NULL, "0", "N",
      "rows of the embedding; 0: as many as the tokenizer has ids" },
    { "layers", ALIBI_OPTION_INT, AT(layers), 1, 4096, NULL, "4", "N",
      "blocks of attention and feed-forward" },
    { "width", ALIBI_OPTION_INT, AT(width), 1, 1 << 20, NULL, "128", "N",
      "numbers per token in the residual stream" },
    { "heads", ALIBI_OPTION_INT, AT(heads), 1, 4096, NULL, "8", "N",
      "attention heads; must divide the width" },
    { "kv-heads", ALIBI_OPTION_INT, AT(kv_heads), 0, 4096, NULL, "0", "N",
      "key/value heads; 0: as many as heads" },
    { "ff-width", ALIBI_OPTION_INT, AT(ff_width), 0, 1 << 22, NULL, "0", "N",
      "feed-forward width; 0: 4 x width" },
    { "norm", ALIBI_OPTION_CHOICE, AT(norm), 0, 0, "layernorm|rmsnorm", "layernorm", "NAME",
      "normalisation before each branch" },
    { "norm-eps", ALIBI_OPTION_REAL, AT(norm_eps), 0, 1, NULL, "1e-5", "X",
      "added to the variance" },
    { "activation", ALIBI_OPTION_CHOICE, AT(activation), 0, 0, "gelu-tanh|gelu-erf|relu|swiglu",
      "gelu-tanh", "NAME", "feed-forward activation" },
    { "biases", ALIBI_OPTION_FLAG, AT(biases), 0, 0, NULL, "true", NULL,
      "biases in linear layers and norms" },
    { "qkv-biases", ALIBI_OPTION_FLAG, AT(qkv_biases), 0, 0, NULL, "false", NULL,
      "biases of queries, keys and values even with --no-biases, as in Qwen2" },
    { "norm-biases", ALIBI_OPTION_FLAG, AT(norm_biases), 0, 0, NULL, "false", NULL,
      "biases of norms even with --no-biases" },
    { "parallel", ALIBI_OPTION_FLAG, AT(parallel), 0, 0, NULL, "false", NULL,
      "feed-forward reads the input of its block, as attention does, as in GPT-NeoX" },
    { "tied", ALIBI_OPTION_FLAG, AT(tied), 0, 0, NULL, "true", NULL,
      "the output layer shares the embedding's weights" },
    { "embedding-norm", ALIBI_OPTION_FLAG, AT(embedding_norm), 0, 0, NULL, "false", NULL,
      "normalise the embeddings, as in BLOOM" },
    { "final-norm", ALIBI_OPTION_FLAG, AT(final_norm), 0, 0, NULL, "true", NULL,
      "normalise before the output layer" },
    { "qk-norm", ALIBI_OPTION_FLAG, AT(qk_norm), 0, 0, NULL, "false", NULL,
      "RMS norm of each head's queries and keys" },
    { "embedding-scale", ALIBI_OPTION_REAL, AT(embedding_scale), 0, 1e6, NULL, "0", "X",
      "factor on token embeddings; 0: sqrt(width), as in the paper's code" },
    { "position", ALIBI_OPTION_NAME, AT(position), 0, 0, NULL, "alibi", "NAME",
      "position method, or a pattern of methods over the layers" },
    { "bias-max", ALIBI_OPTION_REAL, AT(bias_max), 0, 64, NULL, "8", "X",
      "alibi: the slopes end at 2^-X" },
    { "train-slopes", ALIBI_OPTION_FLAG, AT(train_slopes), 0, 0, NULL, "false", NULL,
      "alibi: train the slopes, the same in every layer" },
    { "max-length", ALIBI_OPTION_INT, AT(max_length), 0, 1 << 24, NULL, "0", "N",
      "learned: number of positions; 0: the training length" },
    { "rotary-base", ALIBI_OPTION_REAL, AT(rotary_base), 1, 1e12, NULL, "10000", "X",
      "rotary: base of the angles" },
    { "rotary-layout", ALIBI_OPTION_CHOICE, AT(rotary_layout), 0, 0, "halves|pairs", "halves",
      "NAME", "rotary: which elements are rotated together" },
    { "t5-buckets", ALIBI_OPTION_INT, AT(t5_buckets), 2, 4096, NULL, "32", "N",
      "t5: distance buckets" },
    { "t5-max-distance", ALIBI_OPTION_INT, AT(t5_max_distance), 2, 1 << 20, NULL, "128", "N",
      "t5: approximate distance at which the last bucket begins" },
    { "adaptive-cutoffs", ALIBI_OPTION_INTS, AT(adaptive_cutoffs), 1, 1 << 28, NULL, NULL, "LIST",
      "ids at which clusters of rarer, narrower embeddings begin; none: no clusters" },
    { "adaptive-factor", ALIBI_OPTION_INT, AT(adaptive_factor), 1, 1 << 20, NULL, "4", "N",
      "how much narrower each cluster is than the one before" },
};

/* Members of the file beyond the options that a user sets. */
static const struct alibi_option derived[] = {
    { "train-length", ALIBI_OPTION_INT, AT(train_length), 0, 1 << 24, NULL, "0", "N",
      "length the model was trained at" },
};

enum {
    OPTIONS = sizeof options / sizeof *options,
    DERIVED = sizeof derived / sizeof *derived,
    GROUPS = 3
};

const struct alibi_option *alibi_config_options(int *count)
{
    *count = OPTIONS;
    return options;
}

static alibi_status check_heads(const struct alibi_config *c)
{
    if (c->width % c->heads != 0)
        return fail(ALIBI_USAGE, "heads %lld do not divide width %lld", (long long)c->heads,
                    (long long)c->width);
    if (c->heads % c->kv_heads != 0)
        return fail(ALIBI_USAGE, "kv-heads %lld do not divide heads %lld", (long long)c->kv_heads,
                    (long long)c->heads);
    return ALIBI_OK;
}

alibi_status config_check_clusters(const struct alibi_config *c)
{
    const struct alibi_int_list *cutoffs = &c->adaptive_cutoffs;
    int64_t width = c->width, before = 0;

    for (int i = 0; i < cutoffs->count; i++) {
        if (cutoffs->at[i] <= before)
            return fail(ALIBI_USAGE, "adaptive-cutoffs: %lld after %lld; they must rise",
                        (long long)cutoffs->at[i], (long long)before);
        before = cutoffs->at[i];
        width /= c->adaptive_factor;
    }
    if (width < 1)
        return fail(ALIBI_USAGE,
                    "adaptive-cutoffs: the last of %d clusters would have no numbers, with width "
                    "%lld and adaptive-factor %lld",
                    cutoffs->count + 1, (long long)c->width, (long long)c->adaptive_factor);
    if (c->vocab > 0 && before >= c->vocab)
        return fail(ALIBI_USAGE,
                    "adaptive-cutoffs: %lld is not within the vocabulary of %lld ids, so its "
                    "cluster would be empty; use a larger vocabulary (for a plan, --vocab N), or "
                    "smaller cut-offs",
                    (long long)before, (long long)c->vocab);
    return ALIBI_OK;
}

static void all_groups(struct alibi_option_group groups[GROUPS], struct alibi_config *c)
{
    /* The vocabulary, the first option, precedes the training length in the file. */
    groups[0] = (struct alibi_option_group){ "vocabulary", options, 1, c };
    groups[1] = (struct alibi_option_group){ "file", derived, DERIVED, c };
    groups[2] = (struct alibi_option_group){ "model", options + 1, OPTIONS - 1, c };
}

alibi_status alibi_config_resolve(struct alibi_config *config)
{
    struct alibi_config c = *config;
    struct alibi_option_group groups[GROUPS];
    struct pattern pattern;

    all_groups(groups, &c);
    TRY_RETURN(options_check(groups, GROUPS));
    if (c.kv_heads == 0)
        c.kv_heads = c.heads;
    if (c.ff_width == 0)
        c.ff_width = 4 * c.width;
    if (c.embedding_scale == 0)
        c.embedding_scale = sqrt((double)c.width);
    if (c.max_length == 0)
        c.max_length = c.train_length;
    if (c.biases)
        c.qkv_biases = c.norm_biases = false; /* said twice */
    TRY_RETURN(check_heads(&c));
    TRY_RETURN(config_check_clusters(&c));
    TRY_RETURN(pattern_read(&pattern, &c));
    TRY_RETURN(pattern_check(&pattern, &c));
    TRY_RETURN(pattern_name(c.position, &pattern, &c));
    *config = c;
    return ALIBI_OK;
}

alibi_status config_write_json(const struct alibi_config *config, struct text *json)
{
    struct alibi_config copy = *config;
    struct alibi_option_group groups[GROUPS];

    all_groups(groups, &copy);
    return options_format(groups, GROUPS, json);
}

alibi_status config_read_json(struct alibi_config *config, const char *bytes, size_t length,
                              const char *path)
{
    struct alibi_config c;
    struct alibi_option_group groups[GROUPS];
    alibi_status status;

    memset(&c, 0, sizeof c);
    all_groups(groups, &c);
    TRY_RETURN(alibi_options_init(groups, GROUPS));
    TRY_RETURN(options_parse(groups, GROUPS, bytes, length, path));
    status = alibi_config_resolve(&c);
    if (status != ALIBI_OK)
        return fail_context(status == ALIBI_USAGE ? ALIBI_BAD_INPUT : status, "'%s'", path);
    *config = c;
    return ALIBI_OK;
}
