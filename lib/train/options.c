/* options.c - what a training run can be told, with its ranges */
#include "train/train.h"

#define AT(field) offsetof(struct alibi_training, field)

/* The defaults suit byte models of a few million parameters. Upper limits are far beyond any
 * machine; they keep every product of a few of these within 63 bits. */
static const struct alibi_option options[] = {
    { "train-length", ALIBI_OPTION_INT, AT(train_length), 1, 1 << 24, NULL, "128", "N",
      "tokens per training window" },
    { "batch", ALIBI_OPTION_INT, AT(batch), 1, 1 << 16, NULL, "16", "N", "windows per pass" },
    { "accumulate", ALIBI_OPTION_INT, AT(accumulate), 1, 1 << 16, NULL, "1", "N",
      "passes whose gradients make one step" },
    { "steps", ALIBI_OPTION_INT, AT(steps), 1, 1e9, NULL, "1000", "N", "updates of the weights" },
    { "optimizer", ALIBI_OPTION_CHOICE, AT(optimizer), 0, 0, "adamw|nesterov", "adamw", "NAME",
      "how gradients become updates" },
    { "schedule", ALIBI_OPTION_CHOICE, AT(schedule), 0, 0, "cosine|linear|constant|wsd", "cosine",
      "NAME", "shape of the learning rate after warm-up" },
    { "lr", ALIBI_OPTION_REAL, AT(lr), 1e-12, 1e3, NULL, "1e-3", "X",
      "learning rate at its highest" },
    { "min-lr", ALIBI_OPTION_REAL, AT(min_lr), 0, 1e3, NULL, "0", "X",
      "learning rate the schedule falls to by its end" },
    { "warmup", ALIBI_OPTION_INT, AT(warmup), 0, 1e9, NULL, "50", "N",
      "steps in which the learning rate rises from 0" },
    { "decay-share", ALIBI_OPTION_REAL, AT(decay_share), 0, 1, NULL, "0.2", "X",
      "wsd: share of the steps, at the end, in which the rate falls" },
    { "beta1", ALIBI_OPTION_REAL, AT(beta1), 0, 0.999999, NULL, "0.9", "X",
      "adamw: memory of the gradient's mean" },
    { "beta2", ALIBI_OPTION_REAL, AT(beta2), 0, 0.999999, NULL, "0.95", "X",
      "adamw: memory of the gradient's square" },
    { "adam-eps", ALIBI_OPTION_REAL, AT(adam_eps), 1e-30, 1, NULL, "1e-8", "X",
      "adamw: added to the root of the square" },
    { "weight-decay", ALIBI_OPTION_REAL, AT(weight_decay), 0, 100, NULL, "0.1", "X",
      "pull of matrices towards zero" },
    { "momentum", ALIBI_OPTION_REAL, AT(momentum), 0, 0.999999, NULL, "0.99", "X",
      "nesterov: share of the last update kept" },
    { "clip", ALIBI_OPTION_REAL, AT(clip), 0, 1e6, NULL, "1", "X",
      "largest gradient norm; 0: no clipping" },
    { "dropout", ALIBI_OPTION_REAL, AT(dropout), 0, 0.95, NULL, "0", "X",
      "share of numbers dropped in training" },
    { "seed", ALIBI_OPTION_INT, AT(seed), 0, 0x1p62, NULL, "1", "N",
      "keys weights, data order and dropout" },
    { "skip", ALIBI_OPTION_REAL, AT(skip), 0, 0.999, NULL, "5.9604644775390625e-08", "X",
      "weight of keys that attention may leave out, relative to what it uses; 0: none" },
    /* Last, because they do not shape the result: see training_shaping_options. */
    { "save-every", ALIBI_OPTION_INT, AT(save_every), 1, 1e9, NULL, "500", "N",
      "steps between checkpoints" },
    { "recompute", ALIBI_OPTION_CHOICE, AT(recompute), 0, 0, "none|cheap|block", "none", "NAME",
      "what the backward pass computes again instead of keeping it: less memory, more time" },
};

enum { OPTIONS = sizeof options / sizeof *options, NOT_SHAPING = 2 };

const struct alibi_option *alibi_training_options(int *count)
{
    *count = OPTIONS;
    return options;
}

const struct alibi_option *training_shaping_options(int *count)
{
    *count = OPTIONS - NOT_SHAPING;
    return options;
}

alibi_status training_check(const struct alibi_training *t)
{
    struct alibi_training copy = *t;
    struct alibi_option_group group = { "training", options, OPTIONS, &copy };

    TRY_RETURN(options_check(&group, 1));
    if (t->min_lr > t->lr)
        return fail(ALIBI_USAGE, "min-lr %g is above lr %g", t->min_lr, t->lr);
    return ALIBI_OK;
}
