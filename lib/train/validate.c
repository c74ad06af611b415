/* validate.c - the loss on the validation split while a model trains
 *
 * The split is scored in windows of the training length, with the skipping budget of training. The
 * tokens are a function of the split and the options, so every validation of a run scores the same
 * ones. */
#include "eval/eval.h"
#include "train/train.h"

bool validation_possible(const alibi_corpus *corpus, const struct alibi_training *t)
{
    return corpus_span(corpus, ALIBI_VALID).count > t->train_length;
}

alibi_status validate(const struct model *m, const alibi_corpus *corpus,
                      const struct alibi_training *t, double *loss, int64_t *tokens,
                      const struct alibi_call *call)
{
    /* No progress of its own: a validation is a part of its step. */
    const struct alibi_call within = { .stop = call ? call->stop : NULL, .skip = t->skip };
    struct alibi_eval eval = { .length = t->train_length, .tokens = t->eval_tokens };
    struct alibi_eval_result result;

    if (eval.tokens > 0 && eval.tokens < eval.length)
        eval.tokens = eval.length;
    TRY_RETURN(
        evaluate_span(m, corpus_span(corpus, ALIBI_VALID), &eval, "validate", &result, &within));
    *loss = result.nll;
    *tokens = result.tokens;
    return ALIBI_OK;
}
