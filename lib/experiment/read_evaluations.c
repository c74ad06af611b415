/* read_evaluations.c - what is measured on which models, from an experiment's file */
#include <string.h>

#include "eval/eval.h"
#include "experiment/read.h"

/* The models of an evaluation: names of models, or of groups of them. */
static alibi_status read_models_of(struct reader *r, const json_t *json, bool has[ALIBI_LIST_MAX])
{
    const alibi_experiment *e = r->e;
    const json_t *list = json_object_get(json, "models");
    int index = 0;

    for (int m = 0; m < e->models; m++)
        has[m] = list == NULL;
    if (list == NULL)
        return ALIBI_OK;
    if (!json_is_array(list))
        return fail_type(r, "models", "a list of names of models or groups");
    reader_enter(r, "models");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        bool group = false;

        reader_enter_index(r, i);
        for (int m = 0; name != NULL && m < e->models; m++)
            if (strcmp(e->model[m].group, name) == 0)
                has[m] = group = true;
        if (!group)
            TRY_RETURN(reader_find(r, name ? name : "", e->model[0].name, sizeof e->model[0],
                                   e->models, "model", &index));
        if (!group)
            has[index] = true;
        reader_leave(r);
    }
    reader_leave(r);
    return ALIBI_OK;
}

static alibi_status check_perplexity(struct reader *r, struct experiment_evaluation *v,
                                     const json_t *json)
{
    int64_t longest = v->lengths.count > 0 ? v->lengths.at[v->lengths.count - 1] : 0;
    const char *protocol = alibi_protocol_view(v->protocol)->name;
    bool strided = alibi_protocol_view(v->protocol)->strided;

    if (v->protocol == ALIBI_STREAM) {
        if (json_object_get(json, "lengths"))
            return fail_type(r, "lengths", "no list, since a stream has no windows; \"tokens\"");
        if (v->block > 0)
            return fail_type(r, "block", "no such key, since a stream is one block; \"tokens\"");
        if (v->tokens < 2)
            return fail_type(r, "tokens", "the number of tokens of the stream");
        v->lengths = (struct alibi_int_list){ 1, { v->tokens } };
        return ALIBI_OK;
    }
    if (v->lengths.count == 0)
        return fail_type(r, "lengths", "a list of lengths to test at");
    if (v->tokens != 0 && v->tokens < longest) {
        reader_enter(r, "tokens");
        return at_place(r, fail(ALIBI_BAD_INPUT,
                                "%lld is less than the longest length, %lld; raise it, or use 0",
                                (long long)v->tokens, (long long)longest));
    }
    if (v->lengths.at[0] < protocol_least_length(v->protocol)) {
        reader_enter(r, "lengths");
        return at_place(r, fail(ALIBI_BAD_INPUT, "protocol %s scores nothing at length %lld",
                                protocol, (long long)v->lengths.at[0]));
    }
    if (protocol_is_foreign(v->protocol) && v->block > 0) {
        reader_enter(r, "block");
        return at_place(r, fail(ALIBI_BAD_INPUT,
                                "protocol %s reads the text from its start, without blocks",
                                protocol));
    }
    if (v->block == 0 && !protocol_is_foreign(v->protocol))
        v->block = longest;
    if ((v->block > 0 && v->block < longest) || (v->tokens > 0 && v->block > v->tokens)) {
        reader_enter(r, "block");
        return at_place(r, fail(ALIBI_BAD_INPUT,
                                "%lld is not within the longest length, %lld, and the tokens",
                                (long long)v->block, (long long)longest));
    }
    if (v->stride > v->lengths.at[0] || (v->stride > 0 && !strided)) {
        reader_enter(r, "stride");
        return at_place(r, fail(ALIBI_BAD_INPUT,
                                strided ? "it is longer than the shortest length"
                                        : "only the protocols sliding and stride have a stride"));
    }
    return ALIBI_OK;
}

/* Its models are measured in turn, so they may differ in their position method only. */
static alibi_status check_speed(struct reader *r, const struct experiment_evaluation *v)
{
    const alibi_experiment *e = r->e;
    const struct experiment_model *first = NULL;

    for (int m = 0; m < e->models; m++) {
        const struct experiment_model *x = &e->model[m];

        if (!v->has[m])
            continue;
        first = first != NULL ? first : x;
        if (x->config.layers == first->config.layers && x->config.width == first->config.width &&
            x->config.heads == first->config.heads && x->config.vocab == first->config.vocab &&
            x->config.ff_width == first->config.ff_width && x->text == first->text)
            continue;
        reader_enter(r, "models");
        return at_place(r, fail(ALIBI_BAD_INPUT,
                                "'%s' and '%s' differ in more than their position method",
                                first->name, x->name));
    }
    return ALIBI_OK;
}

/* A context has at least one token that is read and one that is decoded. */
static alibi_status check_stream(struct reader *r, const struct experiment_evaluation *v)
{
    if (v->lengths.at[0] >= 2)
        return ALIBI_OK;
    reader_enter(r, "lengths");
    return at_place(r, fail(ALIBI_BAD_INPUT, "%lld: a stream has 2 tokens or more",
                            (long long)v->lengths.at[0]));
}

/* Names all protocols. */
static alibi_status fail_protocol(struct reader *r)
{
    char names[256] = "one of";

    for (int p = 0; alibi_protocol_view(p) != NULL; p++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s %s", p > 0 ? "," : "",
                 alibi_protocol_view(p)->name);
    return fail_type(r, "protocol", names);
}

/* A model gains over the context that is near for it, so that must be one of the contexts. */
static alibi_status check_targets(struct reader *r, const struct experiment_evaluation *v)
{
    const alibi_experiment *e = r->e;

    for (int m = 0; m < e->models; m++) {
        struct alibi_targets asked = v->targets;
        alibi_status status;

        if (!v->has[m])
            continue;
        asked.contexts = v->lengths;
        status = targets_resolve(&asked, e->model[m].training.train_length);
        if (status == ALIBI_OK && asked.contexts.count == v->lengths.count)
            continue;
        if (status != ALIBI_OK)
            return at_place(r, status);
        reader_enter(r, "lengths");
        return at_place(r, fail(ALIBI_BAD_INPUT,
                                "the contexts lack %lld, which is near for '%s'; add it, or set "
                                "\"length\" to one of them",
                                (long long)asked.length, e->model[m].name));
    }
    return ALIBI_OK;
}

/* Its tasks by their own names, each once. */
static alibi_status read_tasks(struct reader *r, const json_t *json, struct alibi_name_list *out)
{
    const json_t *list = json_object_get(json, "tasks");

    if (!json_is_array(list) || json_array_size(list) < 1 || json_array_size(list) > ALIBI_LIST_MAX)
        return fail_type(r, "tasks", "a list of names of tasks");
    reader_enter(r, "tasks");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        alibi_status status;
        int kind;

        reader_enter_index(r, i);
        status = task_named(&kind, name ? name : "");
        if (status != ALIBI_OK)
            return at_place(r, status == ALIBI_USAGE ? ALIBI_BAD_INPUT : status);
        for (int k = 0; k < out->count; k++)
            if (strcmp(out->at[k], alibi_task_name(kind, NULL)) == 0)
                return at_place(r, fail(ALIBI_BAD_INPUT, "'%s' is listed twice", name));
        snprintf(out->at[out->count++], sizeof *out->at, "%s", alibi_task_name(kind, NULL));
        reader_leave(r);
    }
    reader_leave(r);
    return ALIBI_OK;
}

/* A task is learned at the training length, so that must be one of the lengths. */
static alibi_status check_tasks(struct reader *r, const json_t *json,
                                struct experiment_evaluation *v)
{
    const alibi_experiment *e = r->e;

    TRY_RETURN(read_tasks(r, json, &v->tasks.tasks));
    v->tasks.length = v->targets.length;
    reader_enter(r, "lengths");
    for (int m = 0; m < e->models; m++) {
        int64_t near = v->tasks.length > 0 ? v->tasks.length : e->model[m].training.train_length;
        int i = 0;

        while (i < v->lengths.count && v->lengths.at[i] != near)
            i++;
        if (v->has[m] && i == v->lengths.count)
            return at_place(r, fail(ALIBI_BAD_INPUT,
                                    "the lengths lack %lld, at which '%s' has to know the tasks; "
                                    "add it, or set \"length\" to one of them",
                                    (long long)near, e->model[m].name));
    }
    reader_leave(r);
    return ALIBI_OK;
}

enum {
    PERPLEXITY = 1 << KIND_PERPLEXITY,
    TARGETS = 1 << KIND_TARGETS,
    ATTENTION = 1 << KIND_ATTENTION,
    TASKS = 1 << KIND_TASKS,
    STREAM = 1 << KIND_STREAM
};

/* The keys that only some kinds have. */
static alibi_status check_keys(struct reader *r, const json_t *json, int kind, const char *name)
{
    static const struct {
        const char *key;
        int kinds;
    } keys[] = {
        { "protocol", PERPLEXITY },
        { "tokens", PERPLEXITY },
        { "stride", PERPLEXITY },
        { "text", PERPLEXITY | TARGETS | ATTENTION | TASKS | STREAM },
        { "block", PERPLEXITY | TARGETS },
        { "length", TARGETS | TASKS },
        { "blocks", TARGETS },
        { "gram", TARGETS },
        { "sinks", TARGETS },
        { "windows", ATTENTION },
        { "near", ATTENTION },
        { "tasks", TASKS },
        { "cases", TASKS },
        { "depths", TASKS },
    };

    for (int i = 0; i < COUNT(keys); i++)
        if (json_object_get(json, keys[i].key) && !(keys[i].kinds & 1 << kind)) {
            reader_enter(r, keys[i].key);
            return at_place(
                r, fail(ALIBI_BAD_INPUT, "an evaluation of kind '%s' has no such key", name));
        }
    return ALIBI_OK;
}

alibi_status read_evaluation(struct reader *r, const char *key, json_t *json)
{
    static const char *const kinds[] = { "perplexity", "speed", "targets",
                                         "attention",  "tasks", "stream" };
    alibi_experiment *e = r->e;
    struct experiment_evaluation *v = &e->evaluation[e->evaluations];
    const char *kind = kinds[0], *protocol = alibi_protocol_view(0)->name, *text = NULL;

    TRY_RETURN(reader_count(r, e->evaluations, "evaluations"));
    *v = (struct experiment_evaluation){ .about = "", .text = -1, .selected = true };
    v->targets = (struct alibi_targets){ .blocks = 128, .gram = 3 };
    v->attention.windows = 8;
    v->tasks.cases = 100;
    v->tasks.depths = 5;
    TRY_RETURN(reader_name(r, v->name, key));
    TRY_RETURN(KEYS(r, json, "about", "kind", "protocol", "text", "models", "lengths", "tokens",
                    "stride", "block", "length", "blocks", "gram", "sinks", "windows", "near",
                    "tasks", "cases", "depths"));
    TRY_RETURN(reader_text(r, json, "about", &v->about));
    TRY_RETURN(reader_text(r, json, "kind", &kind));
    TRY_RETURN(reader_text(r, json, "protocol", &protocol));
    TRY_RETURN(reader_text(r, json, "text", &text));
    v->kind = name_index(kind, kinds, KINDS);
    while (alibi_protocol_view(v->protocol) != NULL &&
           strcmp(protocol, alibi_protocol_view(v->protocol)->name) != 0)
        v->protocol++;
    if (v->kind < 0)
        return fail_type(r, "kind",
                         "\"perplexity\", \"speed\", \"targets\", \"attention\", \"tasks\" or "
                         "\"stream\"");
    TRY_RETURN(check_keys(r, json, v->kind, kind));
    if (alibi_protocol_view(v->protocol) == NULL)
        return fail_protocol(r);
    reader_enter(r, "text");
    if (text != NULL)
        TRY_RETURN(
            reader_find(r, text, e->text[0].name, sizeof e->text[0], e->texts, "text", &v->text));
    reader_leave(r);
    TRY_RETURN(reader_list(r, json, "lengths", 1, 1 << 24, &v->lengths));
    list_sort(&v->lengths);
    TRY_RETURN(reader_int(r, json, "tokens", 0, (int64_t)1e15, &v->tokens));
    TRY_RETURN(reader_int(r, json, "stride", 1, 1 << 24, &v->stride));
    TRY_RETURN(reader_int(r, json, "block", 1, (int64_t)1e15, &v->block));
    TRY_RETURN(read_models_of(r, json, v->has));
    for (int m = 0; v->kind == KIND_SPEED && m < e->models; m++)
        v->has[m] = v->has[m] && e->model[m].of < 0; /* it is of fresh models */
    TRY_RETURN(reader_int(r, json, "length", 1, 1 << 24, &v->targets.length));
    TRY_RETURN(reader_int(r, json, "blocks", 1, 16384, &v->targets.blocks));
    TRY_RETURN(reader_int(r, json, "gram", 1, 64, &v->targets.gram));
    TRY_RETURN(reader_int(r, json, "sinks", 0, SINKS_MAX, &v->targets.sinks));
    TRY_RETURN(reader_int(r, json, "windows", 1, 1024, &v->attention.windows));
    TRY_RETURN(reader_int(r, json, "near", 1, 1 << 24, &v->attention.near));
    TRY_RETURN(reader_int(r, json, "cases", 1, 1 << 20, &v->tasks.cases));
    TRY_RETURN(reader_int(r, json, "depths", 1, ALIBI_DEPTHS_MAX, &v->tasks.depths));
    if (v->kind != KIND_PERPLEXITY && v->lengths.count == 0)
        return fail_type(r, "lengths", "a list of lengths to measure at");
    v->targets.block = v->kind == KIND_TARGETS ? v->block : 0;
    TRY_RETURN(v->kind == KIND_PERPLEXITY ? check_perplexity(r, v, json)
               : v->kind == KIND_SPEED    ? check_speed(r, v)
               : v->kind == KIND_TARGETS  ? check_targets(r, v)
               : v->kind == KIND_TASKS    ? check_tasks(r, json, v)
               : v->kind == KIND_STREAM   ? check_stream(r, v)
                                          : ALIBI_OK);
    e->evaluations++;
    return ALIBI_OK;
}

void settle_old_blocks(alibi_experiment *e)
{
    int64_t longest = 0;

    for (int v = 0; v < e->evaluations; v++) {
        const json_t *json =
            json_object_get(json_object_get(e->json, "evaluations"), e->evaluation[v].name);

        if (json_object_get(json, "block"))
            return;
        longest = e->evaluation[v].block > longest ? e->evaluation[v].block : longest;
    }
    for (int v = 0; v < e->evaluations; v++)
        if (e->evaluation[v].block > 0 &&
            (e->evaluation[v].tokens == 0 || longest <= e->evaluation[v].tokens))
            e->evaluation[v].block = longest;
}
