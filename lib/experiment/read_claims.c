/* read_claims.c - claims and their comparisons, from an experiment's file */
#include <math.h>

#include "base/names.h"
#include "experiment/read.h"

const char *const quantity_names[QUANTITIES] = {
    "ppl",   "train_seconds", "train_memory",   "eval_seconds", "eval_memory",
    "score", "read_seconds",  "decode_seconds", "cache_bytes",
};

/* The kind of evaluation that has it; fixed targets have perplexities too. */
static int kind_of_quantity(int quantity)
{
    return quantity == QUANTITY_PPL     ? KIND_PERPLEXITY
           : quantity == QUANTITY_SCORE ? KIND_TASKS
           : quantity < QUANTITY_SCORE  ? KIND_SPEED
                                        : KIND_STREAM;
}

/* NULL: not given. That of a speed or a stream must be. */
static alibi_status read_quantity(struct reader *r, const struct experiment_evaluation *v,
                                  const char *name, int *quantity)
{
    static const char *const expected[KINDS] = {
        [KIND_SPEED] = "\"train_seconds\", \"train_memory\", \"eval_seconds\" or \"eval_memory\"",
        [KIND_TASKS] = "\"score\"",
        [KIND_STREAM] = "\"read_seconds\", \"decode_seconds\" or \"cache_bytes\"",
    };
    int kind = v->kind == KIND_TARGETS ? KIND_PERPLEXITY : v->kind;

    if (name == NULL)
        name = quantity_names[kind == KIND_TASKS ? QUANTITY_SCORE : QUANTITY_PPL];
    *quantity = name_index(name, quantity_names, QUANTITIES);
    if (*quantity < 0 || kind_of_quantity(*quantity) != kind)
        return fail_type(r, "quantity", expected[kind] ? expected[kind] : "\"ppl\"");
    return ALIBI_OK;
}

/* NULL: not given, which will do if there is only one. */
static alibi_status read_task(struct reader *r, const struct experiment_evaluation *v,
                              const char *name, int *task)
{
    if (v->kind != KIND_TASKS && name != NULL)
        return fail_type(r, "task", "no such key, except for tasks; \"length\"");
    if (v->kind != KIND_TASKS || (name == NULL && v->tasks.tasks.count == 1))
        return ALIBI_OK;
    if (name == NULL)
        return fail_type(r, "task", "the name of one of the tasks");
    reader_enter(r, "task");
    TRY_RETURN(reader_find(r, name, v->tasks.tasks.at[0], sizeof *v->tasks.tasks.at,
                           v->tasks.tasks.count, "task", task));
    reader_leave(r);
    return ALIBI_OK;
}

static alibi_status read_reference(struct reader *r, json_t *json, const char *evaluation,
                                   struct reference *out)
{
    const alibi_experiment *e = r->e;
    const struct experiment_evaluation *v;
    const char *model = "", *quantity = NULL, *task = NULL;
    const char *condition = target_condition_names[0], *targets = target_kind_names[0];
    int64_t length = 0;

    *out = (struct reference){ .model = -1, .number = NAN, .paper = NAN };
    if (json_is_number(json)) {
        out->number = json_number_value(json);
        return out->number > 0 ? ALIBI_OK
                               : at_place(r, fail(ALIBI_BAD_INPUT, "a number above 0 is expected"));
    }
    TRY_RETURN(KEYS(r, json, "model", "evaluation", "length", "quantity", "condition", "targets",
                    "task", "paper"));
    TRY_RETURN(reader_text(r, json, "model", &model));
    TRY_RETURN(reader_text(r, json, "evaluation", &evaluation));
    TRY_RETURN(reader_text(r, json, "quantity", &quantity));
    TRY_RETURN(reader_text(r, json, "task", &task));
    TRY_RETURN(reader_text(r, json, "condition", &condition));
    TRY_RETURN(reader_text(r, json, "targets", &targets));
    TRY_RETURN(reader_int(r, json, "length", 1, (int64_t)1e15, &length));
    TRY_RETURN(reader_real(r, json, "paper", &out->paper));
    reader_enter(r, "model");
    TRY_RETURN(reader_find(r, model, e->model[0].name, sizeof e->model[0], e->models, "model",
                           &out->model));
    reader_leave(r);
    reader_enter(r, "evaluation");
    TRY_RETURN(reader_find(r, evaluation, e->evaluation[0].name, sizeof e->evaluation[0],
                           e->evaluations, "evaluation", &out->evaluation));
    v = &e->evaluation[out->evaluation];
    if (!v->has[out->model])
        return at_place(r,
                        fail(ALIBI_BAD_INPUT, "'%s' does not have the model '%s'", v->name, model));
    reader_leave(r);
    if (v->kind == KIND_ATTENTION) {
        reader_enter(r, "evaluation");
        return at_place(
            r, fail(ALIBI_BAD_INPUT, "'%s' measures attention, which no claim compares", v->name));
    }
    TRY_RETURN(read_quantity(r, v, quantity, &out->quantity));
    TRY_RETURN(read_task(r, v, task, &out->task));
    out->condition = name_index(condition, target_condition_names, TARGET_CONDITIONS);
    out->targets = name_index(targets, target_kind_names, ALIBI_TARGET_KINDS);
    if (v->kind != KIND_TARGETS && json_object_get(json, "condition"))
        return fail_type(r, "condition", "no such key, except for fixed targets; \"length\"");
    if (v->kind != KIND_TARGETS && json_object_get(json, "targets"))
        return fail_type(r, "targets", "no such key, except for fixed targets; \"length\"");
    if (out->condition < 0)
        return fail_type(r, "condition", "\"own\", \"swapped\" or \"window\"");
    if (out->targets < 0)
        return fail_type(r, "targets", "\"all\", \"repeats\" or \"others\"");
    if (v->protocol == ALIBI_STREAM && length == 0)
        length = v->tokens;
    while (out->length < v->lengths.count && v->lengths.at[out->length] != length)
        out->length++;
    reader_enter(r, "length");
    if (out->length == v->lengths.count)
        return at_place(r, fail(ALIBI_BAD_INPUT, "%lld is not one of the lengths of '%s'",
                                (long long)length, v->name));
    if (out->condition != TARGETS_OWN &&
        length <= targets_asked(e, out->model, out->evaluation).length)
        return at_place(r, fail(ALIBI_BAD_INPUT,
                                "a context of %lld is near, so it has no condition \"%s\"",
                                (long long)length, condition));
    reader_leave(r);
    return ALIBI_OK;
}

/* "by": 5 asks for a difference of at least 5%; "within": 1 allows for 1% in the other direction.
 * For scores these are hundredths, not shares of the score, which may be 0. */
static alibi_status read_comparison(struct reader *r, json_t *json, const char *evaluation,
                                    struct comparison *c)
{
    double by = 0, within = 0;
    const char *side;
    bool score;

    TRY_RETURN(KEYS(r, json, "is", "below", "above", "by", "within"));
    c->above = json_object_get(json, "above") != NULL;
    side = c->above ? "above" : "below";
    if (c->above == (json_object_get(json, "below") != NULL))
        return at_place(r, fail(ALIBI_BAD_INPUT, "either \"below\" or \"above\" is expected"));
    if (!json_is_object(json_object_get(json, "is")))
        return fail_type(r, "is", "a model's number: an object");
    reader_enter(r, "is");
    TRY_RETURN(read_reference(r, json_object_get(json, "is"), evaluation, &c->left));
    reader_leave(r);
    score = c->left.quantity == QUANTITY_SCORE;
    reader_enter(r, side);
    TRY_RETURN(read_reference(r, json_object_get(json, side), evaluation, &c->right));
    if (c->right.model >= 0 && c->right.quantity != c->left.quantity)
        return at_place(r, fail(ALIBI_BAD_INPUT, "both numbers must have the same quantity"));
    if (score && c->right.model < 0 && c->right.number > 1)
        return at_place(r, fail(ALIBI_BAD_INPUT, "a score is at most 1"));
    reader_leave(r);
    TRY_RETURN(reader_real(r, json, "by", &by));
    TRY_RETURN(reader_real(r, json, "within", &within));
    if (by < 0 || within < 0 || by >= 1e6 || within >= 1e6 || (by > 0 && within > 0))
        return fail_type(r,
                         by > 0 && within > 0 ? "within"
                         : by < 0             ? "by"
                                              : "within",
                         "a percentage of 0 or more, and only one of \"by\" and \"within\"");
    c->margin = within > 0 ? log1p(within / 100) : -log1p(by / 100);
    if (score)
        c->margin = (within - by) / 100;
    return ALIBI_OK;
}

static alibi_status read_claim(struct reader *r, json_t *json, struct claim *c)
{
    const char *evaluation = r->e->evaluations > 0 ? r->e->evaluation[0].name : "";
    const json_t *list = json_object_get(json, "holds_if");

    TRY_RETURN(KEYS(r, json, "claim", "where", "paper", "evaluation", "holds_if"));
    c->where = c->paper = "";
    TRY_RETURN(reader_text(r, json, "claim", &c->claim));
    TRY_RETURN(reader_text(r, json, "where", &c->where));
    TRY_RETURN(reader_text(r, json, "paper", &c->paper));
    TRY_RETURN(reader_text(r, json, "evaluation", &evaluation));
    if (c->claim == NULL)
        return fail_type(r, "claim", "a sentence");
    if (!json_is_array(list) || json_array_size(list) < 1 || json_array_size(list) > 1024)
        return fail_type(r, "holds_if", "a list of 1 to 1024 comparisons");
    TRY_RETURN(NEW_ZERO_ARRAY(&c->comparison, (int64_t)json_array_size(list), "a claim"));
    reader_enter(r, "holds_if");
    for (c->count = 0; c->count < (int)json_array_size(list); c->count++) {
        reader_enter_index(r, (size_t)c->count);
        TRY_RETURN(read_comparison(r, json_array_get(list, (size_t)c->count), evaluation,
                                   &c->comparison[c->count]));
        reader_leave(r);
    }
    reader_leave(r);
    return ALIBI_OK;
}

alibi_status read_claims(struct reader *r)
{
    alibi_experiment *e = r->e;
    json_t *list = json_object_get(e->json, "claims");

    if (list == NULL)
        return ALIBI_OK;
    if (!json_is_array(list) || json_array_size(list) > 1024)
        return fail_type(r, "claims", "a list of at most 1024 claims");
    TRY_RETURN(NEW_ZERO_ARRAY(&e->claim, (int64_t)json_array_size(list), "claims"));
    reader_enter(r, "claims");
    for (size_t i = 0; i < json_array_size(list); i++) {
        reader_enter_index(r, i);
        TRY_RETURN(read_claim(r, json_array_get(list, i), &e->claim[e->claims++]));
        reader_leave(r);
    }
    reader_leave(r);
    return ALIBI_OK;
}
