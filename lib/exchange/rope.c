/* rope.c - rotary positions in the configurations of other programs
 *
 * transformers 4 has "rope_theta" and "rope_scaling", transformers 5 one object "rope_parameters".
 * Both are read; the older spelling, which both understand, is written. */
#include <string.h>

#include "exchange/exchange.h"

/* The first of two keys that is there. */
static const json_t *either(const json_t *config, const char *new, const char *old)
{
    const json_t *value = config_value(config, new);

    return value ? value : config_value(config, old);
}

static alibi_status read_number(const json_t *value, double standard, double least, double *out,
                                const char *what, const char *path)
{
    *out = value ? json_number_value(value) : standard;
    if ((value && !json_is_number(value)) || !(*out >= least && *out <= 1e12))
        return fail(ALIBI_BAD_INPUT, "'%s': \"%s\" is not a number from %g to 1e12", path, what,
                    least);
    return ALIBI_OK;
}

/* How the angles were stretched when the model was trained further. */
static alibi_status read_scaling(struct alibi_config *c, const json_t *config, const char *path)
{
    const json_t *scaling = either(config, "rope_parameters", "rope_scaling");
    const char *type = json_string_value(either(scaling, "rope_type", "type"));
    double factor, original, low, high;

    if (!scaling || !type || strcmp(type, "default") == 0)
        return ALIBI_OK;
    TRY_RETURN(read_number(config_value(scaling, "factor"), 1, 1, &factor, "factor", path));
    if (strcmp(type, "linear") == 0) {
        if (factor > 1)
            text_print(c->position, sizeof c->position, "rotary:stretch=pi:factor=%.17g", factor);
        return ALIBI_OK;
    }
    if (strcmp(type, "llama3") != 0)
        return fail(ALIBI_BAD_INPUT,
                    "'%s': the scaling '%.40s' of rotary positions is not known; default, linear "
                    "and llama3 are",
                    path, type);
    TRY_RETURN(
        read_number(config_value(scaling, "low_freq_factor"), 1, 0, &low, "low_freq_factor", path));
    TRY_RETURN(read_number(config_value(scaling, "high_freq_factor"), 4, 0, &high,
                           "high_freq_factor", path));
    TRY_RETURN(read_number(config_value(scaling, "original_max_position_embeddings"), 8192, 1,
                           &original, "original_max_position_embeddings", path));
    if (low != 1 || high != 4 || original > 1 << 24)
        return fail(ALIBI_BAD_INPUT,
                    "'%s': rotary scaling 'llama3' is known with low_freq_factor 1 and "
                    "high_freq_factor 4, up to %d positions",
                    path, 1 << 24);
    if (factor > 1)
        text_print(c->position, sizeof c->position,
                   "rotary:stretch=llama3:factor=%.17g:original=%.0f", factor, original);
    return ALIBI_OK;
}

alibi_status rope_read(struct alibi_config *c, const json_t *config, const char *path)
{
    const json_t *theta = either(config, "rope_parameters.rope_theta", "rope_theta");

    snprintf(c->position, sizeof c->position, "rotary");
    TRY_RETURN(read_number(theta, 10000, 1, &c->rotary_base, "rope_theta", path));
    return read_scaling(c, config, path);
}

alibi_status rope_read_share(struct alibi_config *c, const json_t *config, const char *path)
{
    const json_t *theta = either(config, "rope_parameters.rope_theta", "rotary_emb_base");
    const json_t *part = either(config, "rope_parameters.partial_rotary_factor", "rotary_pct");
    const char *type = json_string_value(config_value(config, "rope_parameters.rope_type"));
    double share, D = c->heads > 0 ? (double)(c->width / c->heads) : 0;

    TRY_RETURN(read_number(theta, 10000, 1, &c->rotary_base, "rotary_emb_base", path));
    TRY_RETURN(read_number(part, 0.25, 0, &share, "rotary_pct", path));
    if ((type && strcmp(type, "default") != 0) || config_value(config, "rope_scaling"))
        return fail(ALIBI_BAD_INPUT,
                    "'%s': rotary positions with a scaling are not supported for GPT-NeoX", path);
    if (share > 1 || (int64_t)(D * share) % 2 != 0 || D * share < 2)
        return fail(ALIBI_BAD_INPUT,
                    "'%s': \"rotary_pct\" is %g, which is not a number of pairs of heads of %.0f",
                    path, share, D);
    text_print(c->position, sizeof c->position, share < 1 ? "rotary:share=%.17g:spread" : "rotary",
               share);
    return ALIBI_OK;
}

/* ---- what a configuration of ours has */

static double option_of(const struct position *p, const char *name)
{
    const struct alibi_option_group group = { .options = p->method->options,
                                              .count = p->method->option_count };
    const struct alibi_option *o = alibi_options_find(&group, 1, name, NULL);
    const void *at = o ? p->own + o->offset : NULL;

    return !o                             ? 0
           : o->type == ALIBI_OPTION_INT  ? (double)*(const int64_t *)at
           : o->type == ALIBI_OPTION_REAL ? *(const double *)at
                                          : (double)*(const int *)at;
}

/* Pairs of each head that are rotated. */
static int64_t rotated_pairs(const struct position *p, const struct alibi_config *c)
{
    int64_t half = c->width / c->heads / 2;

    return p->method == &position_rotary ? (int64_t)(option_of(p, "share") * (double)half + 0.5)
                                         : 0;
}

struct rope rope_of(const struct alibi_config *c)
{
    struct pattern pattern;
    const struct position *p = &pattern.kind[0];

    if (pattern_read(&pattern, c) != ALIBI_OK || p->method != &position_rotary)
        return (struct rope){ .base = c->rotary_base, .share = 1 };
    return (struct rope){ .base = option_of(p, "base"),
                          .share = option_of(p, "share"),
                          .factor = option_of(p, "factor"),
                          .original = (int64_t)option_of(p, "original"),
                          .window = p->window,
                          .rotated = rotated_pairs(p, c) };
}

int64_t rope_row(const struct model *outline, int64_t row)
{
    const struct alibi_config *c = &outline->config;
    int64_t D = c->width / c->heads, in = row % D, R;

    if (row >= 2 * c->width)
        return row;
    R = rotated_pairs(&outline->pattern.kind[0], c);
    return in < R || in >= D / 2 + R ? row : in < 2 * R ? row - R + D / 2 : row - R;
}

/* The stretch of a position by the name that its pattern writes. */
void rope_write(const struct alibi_config *c, struct json_writer *w)
{
    struct rope r = rope_of(c);
    bool linear = strstr(c->position, "stretch=pi"), llama3 = strstr(c->position, "stretch=llama3");

    json_write_real(w, "rope_theta", r.base);
    if (!linear && !llama3)
        return;
    json_write_object(w, "rope_scaling");
    json_write_string(w, "rope_type", linear ? "linear" : "llama3");
    json_write_real(w, "factor", r.factor);
    if (llama3) {
        json_write_real(w, "low_freq_factor", 1);
        json_write_real(w, "high_freq_factor", 4);
        json_write_int(w, "original_max_position_embeddings", r.original);
    }
    json_write_end(w);
}
