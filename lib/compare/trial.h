/* trial.h - one model: trained, then tested, each step on disk before the next */
#ifndef TRIAL_H
#define TRIAL_H

#include "train/train.h"

/* One evaluation of the trained model. */
struct trial_test {
    struct alibi_eval eval;
    const alibi_corpus *corpus; /* its validation split is scored */
    const char *name;           /* in progress reports, after the length: "", " sliding" */
    struct alibi_eval_result *result;
    int *done; /* counts it once it is done */
};

struct trial {
    alibi_device *device;
    const alibi_corpus *corpus;
    const struct alibi_call *call;
    struct forecast *forecast; /* of all models */
    const char *name;          /* of the model */
    const char *run;           /* its folder */
    struct alibi_config config;
    struct alibi_training training;
    bool measured; /* an earlier call has trained it: `cost` is known */
    struct alibi_compare_seed *cost;
    alibi_status (*save)(const struct trial *t); /* after the training and after each test */
    const void *user;
};

/* Trains the model, or what is missing of it, and does the tests in their order. A test at which
 * the method is not defined, or for which the text is too short, gets a result without tokens. */
alibi_status trial_run(const struct trial *t, const struct trial_test *tests, int count);

#endif
