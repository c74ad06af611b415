/* validate.c - the loss on the validation split while a model trains
 *
 * The split is scored in windows of the training length, with the skipping budget of training. The
 * tokens are a function of the split and the options, so every validation of a run scores the same
 * ones. Each text of a mixture is scored separately. For a task the answers are scored, in windows
 * that do not occur in training. Several ranks divide the batches, and all get the result. */
#include <string.h>

#include "eval/eval.h"
#include "train/train.h"

bool validation_possible(const alibi_corpus *corpus, const struct alibi_training *t)
{
    for (int i = 0; i < corpus_parts(corpus); i++) {
        const alibi_corpus *part = corpus_part(corpus, i);

        if (!corpus_is_task(part) && corpus_span(part, ALIBI_VALID).count <= t->train_length)
            return false;
    }
    return true;
}

static int64_t task_cases(const struct alibi_training *t)
{
    enum { CASES = 256 };
    int64_t cases = t->eval_tokens / t->train_length;

    return t->eval_tokens == 0 ? CASES : cases > 0 ? cases : 1;
}

int64_t validation_tokens(const alibi_corpus *corpus, const struct alibi_training *t)
{
    int64_t tokens = 0;

    for (int i = 0; i < corpus_parts(corpus); i++) {
        const alibi_corpus *part = corpus_part(corpus, i);
        int64_t all = corpus_is_task(part) ? task_cases(t) * t->train_length
                                           : corpus_span(part, ALIBI_VALID).count;

        tokens += t->eval_tokens > 0 && t->eval_tokens < all ? t->eval_tokens : all;
    }
    return tokens;
}

/* Without its folder: the log must not depend on where a run is resumed from. */
static struct slice short_name(const alibi_corpus *part)
{
    const char *name = corpus_name(part), *end = name + strlen(name), *start;

    while (end > name + 1 && end[-1] == '/')
        end--;
    for (start = end; start > name && start[-1] != '/';)
        start--;
    return (struct slice){ start, (size_t)(end - start) };
}

/* The second text of a name is called "name 2". */
static void name_text(struct alibi_text_loss *text, const alibi_corpus *corpus, int i)
{
    struct slice name = short_name(corpus_part(corpus, i));
    int bytes = name.bytes < sizeof text->name ? (int)name.bytes : (int)sizeof text->name - 1;
    int same = 1;

    for (int k = 0; k < i; k++) {
        struct slice other = short_name(corpus_part(corpus, k));
        same += other.bytes == name.bytes && memcmp(other.at, name.at, name.bytes) == 0;
    }
    if (same > 1)
        snprintf(text->name, sizeof text->name, "%.*s %d", bytes, name.at, same);
    else
        snprintf(text->name, sizeof text->name, "%.*s", bytes, name.at);
}

/* The mean loss of a part, and how many tokens it is of. */
static alibi_status validate_part(const struct model *m, const alibi_corpus *corpus, int i,
                                  const struct alibi_training *t, const struct alibi_call *call,
                                  struct alibi_text_loss *text)
{
    struct alibi_eval eval = { .length = t->train_length, .tokens = t->eval_tokens };
    const alibi_corpus *part = corpus_part(corpus, i);
    struct alibi_eval_result result;
    struct answers answers;

    if (corpus_is_task(part)) {
        const struct answers_job job = { .model = m,
                                         .windows = corpus_task_windows(corpus, i, TASK_VALID,
                                                                        t->train_length,
                                                                        (uint64_t)t->seed),
                                         .cases = task_cases(t),
                                         .skip = t->skip,
                                         .call = call };
        TRY_RETURN(answers_take(&answers, &job));
        text->loss = answers.nll / (double)answers.tokens;
        text->tokens = answers.tokens;
        return ALIBI_OK;
    }
    if (eval.tokens > 0 && eval.tokens < eval.length)
        eval.tokens = eval.length;
    TRY_RETURN(evaluate_span(m, corpus_span(part, ALIBI_VALID), &eval, "validate", &result, call));
    text->loss = result.nll;
    text->tokens = result.tokens;
    return ALIBI_OK;
}

alibi_status validate(const struct model *m, const alibi_corpus *corpus,
                      const struct alibi_training *t, struct validation *v,
                      const struct alibi_call *call)
{
    /* No progress of its own: a validation is a part of its step. */
    const struct alibi_call within = { .stop = call ? call->stop : NULL,
                                       .skip = t->skip,
                                       .comm = call_comm(call) };
    int count = corpus_parts(corpus);

    v->loss = 0;
    v->tokens = 0;
    v->texts = count > 1 ? count : 0;
    for (int i = 0; i < count; i++) {
        v->text[i] = (struct alibi_text_loss){ .share = corpus_share(corpus, i) };
        TRY_RETURN(validate_part(m, corpus, i, t, &within, &v->text[i]));
        v->loss += corpus_share(corpus, i) * v->text[i].loss;
        v->tokens += v->text[i].tokens;
        name_text(&v->text[i], corpus, i);
    }
    return ALIBI_OK;
}
