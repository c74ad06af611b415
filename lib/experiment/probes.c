/* probes.c - evaluations of the kinds `targets` and `attention`: what a model does with its context
 *
 *   targets     fixed targets with growing context: the losses of every context, condition and kind
 *               of targets by document (lib/eval/probe.c), which claims compare like any other loss
 *   attention   the weight of keys by distance, for each layer and head (lib/eval/reach.c)
 *
 * Both belong to a trained model, and are members of its result.json. */
#include <string.h>

#include "experiment/experiment.h"

/* ---- requests */

struct alibi_targets targets_asked(const alibi_experiment *e, int model, int evaluation)
{
    const struct experiment_evaluation *v = &e->evaluation[evaluation];
    struct alibi_targets asked = v->targets;

    asked.contexts = v->lengths;
    (void)targets_resolve(&asked, e->model[model].training.train_length); /* checked when read */
    return asked;
}

struct alibi_attention attention_asked(const alibi_experiment *e, int model, int evaluation,
                                       int length)
{
    const struct experiment_evaluation *v = &e->evaluation[evaluation];
    struct alibi_attention asked = v->attention;

    asked.length = v->lengths.at[length];
    if (asked.near == 0)
        asked.near = e->model[model].training.train_length;
    return asked;
}

double probes_tokens(const alibi_experiment *e, int model, int evaluation, int test)
{
    const struct experiment_evaluation *v = &e->evaluation[evaluation];
    struct alibi_targets targets;
    struct alibi_attention attention;
    double tokens = 0;

    if (v->kind == KIND_TASKS) {
        for (int i = 0; i < v->lengths.count; i++)
            tokens += (double)v->lengths.at[i] * (double)v->tasks.cases;
        return tokens;
    }
    if (v->kind == KIND_TARGETS) {
        targets = targets_asked(e, model, evaluation);
        return targets_inputs(&targets);
    }
    if (v->kind == KIND_STREAM)
        return (double)v->lengths.at[test];
    attention = attention_asked(e, model, evaluation, test);
    return (double)attention.length * (double)attention.windows;
}

alibi_status probes_new(const alibi_experiment *e, int model, int evaluation, struct measured *m)
{
    const struct experiment_evaluation *v = &e->evaluation[evaluation];
    const struct alibi_config *config = &e->model[model].config;

    if (v->kind == KIND_TARGETS)
        return NEW_ZERO_ARRAY(&m->targets.at, v->lengths.count, "the losses of fixed targets");
    if (v->kind == KIND_ATTENTION)
        return NEW_ZERO_ARRAY(&m->attention.head, config->layers * config->heads,
                              "attention by distance");
    if (v->kind == KIND_TASKS)
        return NEW_ZERO_ARRAY(&m->task, 1, "the scores of a task");
    return ALIBI_OK;
}

void probes_free(struct measured *m)
{
    mem_free(m->targets.at);
    mem_free(m->attention.head);
    mem_free(m->task);
}

alibi_status probes_note_short(const alibi_experiment *e, const struct alibi_call *call)
{
    for (int v = 0; v < e->evaluations; v++)
        for (int m = 0; m < e->models; m++) {
            const struct experiment_text *text = evaluated_text(e, m, v);
            struct alibi_targets asked;
            int64_t longest, most;
            char above[48] = "";

            if (e->evaluation[v].kind != KIND_TARGETS || !e->evaluation[v].has[m] ||
                text->corpus == NULL)
                continue;
            asked = targets_asked(e, m, v);
            most = asked.contexts.at[asked.contexts.count - 1];
            TRY_RETURN(targets_longest(&longest, corpus_span(text->corpus, ALIBI_VALID)));
            if (longest >= most + asked.block)
                continue;
            if (targets_trim(&asked, longest))
                snprintf(above, sizeof above, " for contexts above %lld",
                         (long long)asked.contexts.at[asked.contexts.count - 1]);
            call_note(call,
                      "%s: no value%s, the longest document to validate on of text '%s' has %lld "
                      "tokens, and a context of %lld needs %lld",
                      e->evaluation[v].name, above, text->name, (long long)longest, (long long)most,
                      (long long)(most + asked.block));
            break;
        }
    return ALIBI_OK;
}

/* ---- result.json: fixed targets
 *
 * For every measured context and condition: the summed losses of repeats and of others in each
 * part, whose tokens are the same for all of them. */

static void write_pairs(struct json_writer *w, const char *key, int count,
                        const int64_t (*tokens)[2], const double (*nll)[2])
{
    json_write_array_line(w, key);
    for (int i = 0; i < 2 * count; i++)
        if (nll != NULL)
            json_write_real(w, NULL, nll[i / 2][i % 2]);
        else
            json_write_int(w, NULL, tokens[i / 2][i % 2]);
    json_write_end(w);
}

/* The losses of all parts, including those without tokens, which the evaluation does not list. */
static void losses_by_part(double (*nll)[2], const struct target_losses *t, int context,
                           int condition)
{
    int next[2] = { 0, 0 };

    for (int k = 0; k < t->parts; k++)
        for (int i = 0; i < 2; i++)
            nll[k][i] = t->tokens[k][i] > 0
                            ? t->at[context][condition][ALIBI_REPEATS + i].part[next[i]++].nll
                            : 0;
}

static void write_asked_targets(struct json_writer *w, const struct alibi_targets *a)
{
    json_write_int(w, "near", a->length);
    json_write_int(w, "asked_blocks", a->blocks);
    json_write_int(w, "block", a->block);
    json_write_int(w, "gram", a->gram);
    if (a->sinks > 0)
        json_write_int(w, "sinks", a->sinks);
    json_write_array_line(w, "contexts");
    for (int i = 0; i < a->contexts.count; i++)
        json_write_int(w, NULL, a->contexts.at[i]);
    json_write_end(w);
}

static void write_targets(struct json_writer *w, const alibi_experiment *e, int model, int v,
                          const struct target_losses *t)
{
    struct alibi_targets asked = targets_asked(e, model, v);

    json_write_object(w, NULL);
    json_write_string(w, "evaluation", e->evaluation[v].name);
    json_write_int(w, "text", evaluated_text(e, model, v)->text_checksum);
    write_asked_targets(w, &asked);
    json_write_int(w, "blocks", t->blocks);
    json_write_int(w, "documents", t->documents);
    json_write_int(w, "start", t->start);
    json_write_int(w, "available", t->available);
    write_pairs(w, "tokens", t->parts, t->tokens, NULL);
    json_write_array(w, "losses");
    for (int c = 0; c < asked.contexts.count && t->parts > 0; c++)
        for (int condition = 0; condition < TARGET_CONDITIONS; condition++) {
            double nll[ALIBI_EVAL_PARTS][2];

            if (t->at[c][condition][ALIBI_ALL_TARGETS].tokens == 0)
                continue;
            losses_by_part(nll, t, c, condition);
            json_write_object_line(w, NULL);
            json_write_int(w, "context", asked.contexts.at[c]);
            json_write_string(w, "condition", target_condition_names[condition]);
            write_pairs(w, "nll", t->parts, NULL, (const double(*)[2])nll);
            json_write_end(w);
        }
    json_write_end(w);
    json_write_end(w);
}

static alibi_status read_tokens(const json_t *entry, struct target_losses *t, const char *path)
{
    const json_t *list = json_object_get(entry, "tokens");
    size_t count = json_array_size(list);

    if (!json_is_array(list) || count % 2 != 0 || count > 2 * ALIBI_EVAL_PARTS)
        return fail(ALIBI_BAD_INPUT, "'%s': 'tokens' is not an array of at most %d pairs", path,
                    ALIBI_EVAL_PARTS);
    t->parts = (int)count / 2;
    for (size_t i = 0; i < count; i++) {
        int64_t n = json_integer_value(json_array_get(list, i));

        if (n < 0 || n > INT32_MAX)
            return fail(ALIBI_BAD_INPUT, "'%s': 'tokens' has %lld", path, (long long)n);
        t->tokens[i / 2][i % 2] = n;
    }
    return ALIBI_OK;
}

/* One context and condition. */
static alibi_status read_losses(const json_t *series, struct target_losses *t, const char *path)
{
    const json_t *list = json_object_get(series, "nll");
    const char *name;
    double nll[ALIBI_EVAL_PARTS][2];
    int64_t context;
    int c = 0, condition;

    TRY_RETURN(json_get_int(series, "context", 1, INT64_MAX, &context, path));
    TRY_RETURN(json_get_text(series, "condition", &name, path));
    condition = name_index(name, target_condition_names, TARGET_CONDITIONS);
    while (c < t->request.contexts.count && t->request.contexts.at[c] != context)
        c++;
    if (condition < 0 || c == t->request.contexts.count ||
        json_array_size(list) != (size_t)(2 * t->parts))
        return fail(ALIBI_BAD_INPUT,
                    "'%s': losses of context %lld, '%s' are not of this evaluation", path,
                    (long long)context, name);
    for (int i = 0; i < 2 * t->parts; i++) {
        const json_t *loss = json_array_get(list, (size_t)i);

        if (!json_is_number(loss))
            return fail(ALIBI_BAD_INPUT, "'%s': a loss of context %lld is not a number", path,
                        (long long)context);
        nll[i / 2][i % 2] = json_number_value(loss);
    }
    target_losses_set(t, c, condition, (const double(*)[2])nll);
    return ALIBI_OK;
}

static bool same_targets(const struct alibi_targets *a, const struct alibi_targets *b)
{
    return a->length == b->length && a->blocks == b->blocks && a->block == b->block &&
           a->gram == b->gram && a->sinks == b->sinks && a->contexts.count == b->contexts.count &&
           memcmp(a->contexts.at, b->contexts.at,
                  (size_t)a->contexts.count * sizeof *a->contexts.at) == 0;
}

static alibi_status read_targets(const alibi_experiment *e, int model, int v, struct measured *m,
                                 const json_t *entry, const char *path)
{
    struct alibi_targets asked = targets_asked(e, model, v), there = { 0 };
    const json_t *list = json_object_get(entry, "contexts");
    struct target_losses *t = &m->targets;

    TRY_RETURN(json_get_int(entry, "near", 1, INT64_MAX, &there.length, path));
    TRY_RETURN(json_get_int(entry, "asked_blocks", 1, INT64_MAX, &there.blocks, path));
    TRY_RETURN(json_get_int(entry, "block", 1, INT64_MAX, &there.block, path));
    TRY_RETURN(json_get_int(entry, "gram", 1, INT64_MAX, &there.gram, path));
    if (json_object_get(entry, "sinks"))
        TRY_RETURN(json_get_int(entry, "sinks", 0, INT64_MAX, &there.sinks, path));
    for (size_t i = 0; i < json_array_size(list) && i < ALIBI_LIST_MAX; i++)
        there.contexts.at[there.contexts.count++] = json_integer_value(json_array_get(list, i));
    if (!same_targets(&asked, &there))
        return ALIBI_OK;
    t->request = asked;
    TRY_RETURN(json_get_int(entry, "blocks", 0, INT64_MAX, &t->blocks, path));
    TRY_RETURN(json_get_int(entry, "documents", 0, INT64_MAX, &t->documents, path));
    TRY_RETURN(json_get_int(entry, "start", 0, INT64_MAX, &t->start, path));
    TRY_RETURN(json_get_int(entry, "available", 0, INT64_MAX, &t->available, path));
    TRY_RETURN(read_tokens(entry, t, path));
    for (int c = 0; c < asked.contexts.count; c++)
        for (int condition = 0; condition < TARGET_CONDITIONS; condition++)
            target_losses_set(t, c, condition, NULL);
    list = json_object_get(entry, "losses");
    for (size_t i = 0; i < json_array_size(list); i++)
        TRY_RETURN(read_losses(json_array_get(list, i), t, path));
    m->done = 1;
    return ALIBI_OK;
}

/* ---- result.json: attention by distance. A head is its mean distance, its entropy, its weight
 * beyond `near`, and its shares by distance. */

static void write_head(struct json_writer *w, const char *key, const struct alibi_head_attention *h,
                       int bins)
{
    json_write_array_line(w, key);
    json_write_real(w, NULL, h->distance);
    json_write_real(w, NULL, h->entropy);
    json_write_real(w, NULL, h->beyond);
    for (int b = 0; b < bins; b++)
        json_write_real(w, NULL, h->share[b]);
    json_write_end(w);
}

static void write_attention_result(struct json_writer *w, const struct alibi_attention_result *a)
{
    json_write_int(w, "windows", a->windows);
    json_write_int(w, "queries", a->queries);
    json_write_int(w, "layers", a->layers);
    json_write_int(w, "heads", a->heads);
    json_write_int(w, "bins", a->bins);
    json_write_real(w, "seconds", a->seconds);
    if (a->windows == 0)
        return;
    write_head(w, "uniform", &a->uniform, a->bins);
    json_write_array(w, "head");
    for (int64_t i = 0; i < a->layers * a->heads; i++)
        write_head(w, NULL, &a->head[i], a->bins);
    json_write_end(w);
}

static void write_attention(struct json_writer *w, const alibi_experiment *e, int model, int v,
                            int test, const struct alibi_attention_result *a)
{
    struct alibi_attention asked = attention_asked(e, model, v, test);

    json_write_object(w, NULL);
    json_write_string(w, "evaluation", e->evaluation[v].name);
    json_write_int(w, "text", evaluated_text(e, model, v)->text_checksum);
    json_write_int(w, "length", asked.length);
    json_write_int(w, "near", asked.near);
    json_write_int(w, "asked_windows", asked.windows);
    write_attention_result(w, a);
    json_write_end(w);
}

static alibi_status read_head(const json_t *list, struct alibi_head_attention *h, int bins,
                              const char *path)
{
    double *first[] = { &h->distance, &h->entropy, &h->beyond };

    if (json_array_size(list) != (size_t)(bins + 3))
        return fail(ALIBI_BAD_INPUT, "'%s': a head of attention does not have %d numbers", path,
                    bins + 3);
    for (int i = 0; i < bins + 3; i++)
        *(i < 3 ? first[i] : &h->share[i - 3]) = json_number_value(json_array_get(list, (size_t)i));
    return ALIBI_OK;
}

static alibi_status read_attention(const alibi_experiment *e, int model, int v, struct measured *m,
                                   int test, const json_t *entry, const char *path)
{
    const struct alibi_config *config = &e->model[model].config;
    struct alibi_attention asked = attention_asked(e, model, v, test);
    struct alibi_attention_result *a = &m->attention;
    const json_t *heads = json_object_get(entry, "head");
    int64_t length, near, windows, bins;

    TRY_RETURN(json_get_int(entry, "length", 1, INT64_MAX, &length, path));
    TRY_RETURN(json_get_int(entry, "near", 1, INT64_MAX, &near, path));
    TRY_RETURN(json_get_int(entry, "asked_windows", 1, INT64_MAX, &windows, path));
    if (asked.length != length || asked.near != near || asked.windows != windows)
        return ALIBI_OK;
    a->length = length;
    a->near = near;
    TRY_RETURN(json_get_int(entry, "windows", 0, INT64_MAX, &a->windows, path));
    TRY_RETURN(json_get_int(entry, "queries", 0, INT64_MAX, &a->queries, path));
    TRY_RETURN(json_get_int(entry, "layers", 0, config->layers, &a->layers, path));
    TRY_RETURN(json_get_int(entry, "heads", 0, config->heads, &a->heads, path));
    TRY_RETURN(json_get_int(entry, "bins", 0, ALIBI_POSITION_BINS, &bins, path));
    TRY_RETURN(json_get_real(entry, "seconds", &a->seconds, path));
    a->bins = (int)bins;
    m->done = 1;
    if (a->windows == 0)
        return ALIBI_OK;
    if (a->layers != config->layers || a->heads != config->heads || a->bins < 1 ||
        json_array_size(heads) != (size_t)(a->layers * a->heads))
        return fail(ALIBI_BAD_INPUT,
                    "'%s': attention is not of %lld layers of %lld heads, by distance", path,
                    (long long)config->layers, (long long)config->heads);
    TRY_RETURN(read_head(json_object_get(entry, "uniform"), &a->uniform, a->bins, path));
    for (size_t i = 0; i < json_array_size(heads); i++)
        TRY_RETURN(read_head(json_array_get(heads, i), &a->head[i], a->bins, path));
    return ALIBI_OK;
}

/* ---- result.json: both */

void probes_write(struct json_writer *w, const alibi_experiment *e, int model, int seed)
{
    const struct trained *t = &e->model[model].seed[seed];

    json_write_array(w, "targets");
    for (int v = 0; v < e->evaluations; v++)
        if (e->evaluation[v].kind == KIND_TARGETS && t->measured[v] && t->measured[v]->done)
            write_targets(w, e, model, v, &t->measured[v]->targets);
    json_write_end(w);
    json_write_array(w, "attention");
    for (int v = 0; v < e->evaluations; v++)
        for (int i = 0; t->measured[v] && i < evaluation_tests(&e->evaluation[v]); i++)
            if (e->evaluation[v].kind == KIND_ATTENTION && t->measured[v][i].done)
                write_attention(w, e, model, v, i, &t->measured[v][i].attention);
    json_write_end(w);
}

/* An entry that the experiment does not ask for, or not in this form or on this text, is skipped.
 */
static alibi_status read_entry(const alibi_experiment *e, int model, struct trained *t, int kind,
                               const json_t *entry, const char *path)
{
    const char *name;
    int64_t text;

    TRY_RETURN(json_get_text(entry, "evaluation", &name, path));
    TRY_RETURN(json_get_int(entry, "text", 0, UINT32_MAX, &text, path));
    for (int v = 0; v < e->evaluations; v++) {
        if (e->evaluation[v].kind != kind || t->measured[v] == NULL ||
            strcmp(e->evaluation[v].name, name) != 0 ||
            evaluated_text(e, model, v)->text_checksum != text)
            continue;
        if (kind == KIND_TARGETS)
            TRY_RETURN(read_targets(e, model, v, t->measured[v], entry, path));
        for (int i = 0; kind == KIND_ATTENTION && i < evaluation_tests(&e->evaluation[v]); i++)
            TRY_RETURN(read_attention(e, model, v, &t->measured[v][i], i, entry, path));
    }
    return ALIBI_OK;
}

alibi_status probes_read(const alibi_experiment *e, int model, struct trained *t,
                         const json_t *file, const char *path)
{
    const json_t *targets = json_object_get(file, "targets");
    const json_t *attention = json_object_get(file, "attention");

    for (size_t i = 0; i < json_array_size(targets); i++)
        TRY_RETURN(read_entry(e, model, t, KIND_TARGETS, json_array_get(targets, i), path));
    for (size_t i = 0; i < json_array_size(attention); i++)
        TRY_RETURN(read_entry(e, model, t, KIND_ATTENTION, json_array_get(attention, i), path));
    return ALIBI_OK;
}

/* ---- values */

const struct alibi_eval_result *targets_losses(const alibi_experiment *e, int model, int seed,
                                               int evaluation, int context, int condition, int kind)
{
    const struct measured *m = e->model[model].seed[seed].measured[evaluation];
    const struct alibi_eval_result *r;

    if (m == NULL || !m->done || m->targets.parts == 0)
        return NULL;
    r = &m->targets.at[context][condition][kind];
    return r->tokens > 0 ? r : NULL;
}
