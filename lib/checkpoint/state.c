/* state.c - the options of a training run, and state.json, which records its progress */
#include <math.h>

#include "checkpoint/parts.h"

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
    { "lr", ALIBI_OPTION_REAL, AT(lr), 0, 1e3, NULL, "0", "X",
      "peak learning rate; 0: a default for adamw by the width, 4e-3 up to 128" },
    { "min-lr", ALIBI_OPTION_REAL, AT(min_lr), 0, 1e3, NULL, "0", "X",
      "learning rate at the end of the schedule" },
    { "warmup", ALIBI_OPTION_INT, AT(warmup), 0, 1e9, NULL, "50", "N",
      "steps in which the learning rate rises from 0" },
    { "decay-share", ALIBI_OPTION_REAL, AT(decay_share), 0, 1, NULL, "0.2", "X",
      "wsd: share of the steps, at the end, during which the rate falls" },
    { "beta1", ALIBI_OPTION_REAL, AT(beta1), 0, 0.999999, NULL, "0.9", "X",
      "adamw: decay rate of the gradient's mean" },
    { "beta2", ALIBI_OPTION_REAL, AT(beta2), 0, 0.999999, NULL, "0.95", "X",
      "adamw: decay rate of the gradient's square" },
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
    { "adaptive-dropout", ALIBI_OPTION_REAL, AT(adaptive_dropout), 0, 0.95, NULL, "0", "X",
      "the same in the tails of an adaptive output layer" },
    { "attention-dropout", ALIBI_OPTION_REAL, AT(attention_dropout), 0, 0.95, NULL, "0", "X",
      "share of attention weights dropped in training" },
    { "activation-dropout", ALIBI_OPTION_REAL, AT(activation_dropout), 0, 0.95, NULL, "0", "X",
      "share of the feed-forward layers' activations dropped in training" },
    { "seed", ALIBI_OPTION_INT, AT(seed), 0, 0x1p62, NULL, "1", "N",
      "seed of weights, data order and dropout" },
    { "init-scale", ALIBI_OPTION_CHOICE, AT(init_scale), 0, 0, "gpt2|width", "gpt2", "NAME",
      "standard deviation of random weights; gpt2: 0.02 and less; width: 1/sqrt(width), which "
      "learns faster at first" },
    { "skip", ALIBI_OPTION_REAL, AT(skip), 0, 0.999, NULL, "5.9604644775390625e-08", "X",
      "weight of keys that attention may skip, relative to the others; 0: every pair is computed" },
    { "deterministic-sum", ALIBI_OPTION_FLAG, AT(deterministic_sum), 0, 0, NULL, NULL, NULL,
      "add the gradients of passes in the order of their numbers, so that any number of processes "
      "gives the same bits; costs memory and time" },
    { "wire", ALIBI_OPTION_CHOICE, AT(wire), 0, 0, "fp32|bf16", "fp32", "TYPE",
      "several processes: type of the gradients that they send each other; sums are fp32" },
    /* Last, because a resumed run need not agree in them: see training_shaping_options. */
    { "save-every", ALIBI_OPTION_INT, AT(save_every), 1, 1e9, NULL, "500", "N",
      "steps between checkpoints" },
    { "eval-every", ALIBI_OPTION_INT, AT(eval_every), 0, 1e9, NULL, "500", "N",
      "steps between validations; the last step is also followed by one; 0: none" },
    { "eval-tokens", ALIBI_OPTION_INT, AT(eval_tokens), 0, 1e15, NULL, "65536", "N",
      "at most this many tokens scored per validation, spread over the whole split; 0: all" },
    { "keep-best", ALIBI_OPTION_FLAG, AT(keep_best), 0, 0, NULL, NULL, NULL,
      "keep the checkpoint with the lowest validation loss, which opens as DIR/best" },
    { "recompute", ALIBI_OPTION_CHOICE, AT(recompute), 0, 0, "none|cheap|block", "none", "NAME",
      "activation checkpointing: what the backward pass recomputes instead of keeping it; less "
      "memory, more time" },
    { "comm", ALIBI_OPTION_CHOICE, AT(comm), 0, 0, "auto|mpi|nccl", "auto", "NAME",
      "several processes: transport between them; auto: nccl if each has its own GPU" },
    { "shard", ALIBI_OPTION_CHOICE, AT(shard), 0, 0, "optimizer|gradients", "optimizer", "NAME",
      "state that several processes divide; gradients: these too, with less memory, more "
      "communication, and the sums of --deterministic-sum" },
    { "init", ALIBI_OPTION_TEXT, AT(init), 0, 0, NULL, NULL, "MODEL",
      "start from the weights of another model, a checkpoint or a run" },
};

enum { OPTIONS = COUNT(options), NOT_SHAPING = 8 };

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

/* The best rate falls with the width C:
 *
 *   lr = 4e-3 sqrt(128 / C), at most 4e-3
 *
 * At C = 512, 2e-3 was better than 1e-3 and 4e-3 for each of four position methods: 33M tokens of
 * Wikipedia, 34M parameters. */
alibi_status training_resolve(struct alibi_training *t, const struct alibi_config *config)
{
    struct alibi_training made = *t;
    struct alibi_option_group group = { "training", options, OPTIONS, &made };

    TRY_RETURN(options_check(&group, 1));
    if (made.lr == 0 && made.optimizer != ALIBI_ADAMW)
        return fail(ALIBI_USAGE, "the optimizer has no default learning rate: give --lr (the "
                                 "paper's is 1.0 for nesterov, with --clip 0.1 and warm-up)");
    if (made.lr == 0)
        made.lr = fmin(4e-3, 4e-3 * sqrt(128.0 / (double)config->width));
    if (made.min_lr > made.lr)
        return fail(ALIBI_USAGE, "min-lr %g is above lr %g", made.min_lr, made.lr);
    if (made.shard == ALIBI_SHARD_GRADIENTS)
        made.deterministic_sum = true; /* those of a pass do not wait for those of the next */
    *t = made;
    return ALIBI_OK;
}

/* ---- state.json: how far the run is, and what shapes it */

/* The state as the options know it. */
struct state_file {
    int64_t step, corpus_checksum, files_checksum;
    double loss;
    struct train_validation validation;
};

#undef AT
#define AT(field) offsetof(struct state_file, field)

static const struct alibi_option state_options[] = {
    { "step", ALIBI_OPTION_INT, AT(step), 1, 1e9, NULL, NULL, "N", "steps done" },
    { "corpus-checksum", ALIBI_OPTION_INT, AT(corpus_checksum), 0, UINT32_MAX, NULL, NULL, "N",
      "of all tokens of the text" },
    { "files-checksum", ALIBI_OPTION_INT, AT(files_checksum), 0, UINT32_MAX, NULL, NULL, "N",
      "of those outside --valid" },
    { "loss", ALIBI_OPTION_REAL, AT(loss), 0, 1e30, NULL, NULL, "X", "of the last step" },
};

static const struct alibi_option validation_options[] = {
    { "validations", ALIBI_OPTION_INT, AT(validation.count), 0, 1e9, NULL, NULL, "N", "so far" },
    { "valid-step", ALIBI_OPTION_INT, AT(validation.step), 0, 1e9, NULL, NULL, "N",
      "of the last one" },
    { "valid-tokens", ALIBI_OPTION_INT, AT(validation.tokens), 0, 1e15, NULL, NULL, "N",
      "that it scored" },
    { "valid-loss", ALIBI_OPTION_REAL, AT(validation.loss), 0, 1e30, NULL, NULL, "X", "its loss" },
    { "best-step", ALIBI_OPTION_INT, AT(validation.best_step), 0, 1e9, NULL, NULL, "N",
      "of the lowest loss" },
    { "best-loss", ALIBI_OPTION_REAL, AT(validation.best_loss), 0, 1e30, NULL, NULL, "X",
      "the lowest" },
};

enum {
    STATE_OPTIONS = COUNT(state_options),
    VALIDATION_OPTIONS = COUNT(validation_options),
    GROUPS = 3
};

static void state_groups(struct alibi_option_group groups[GROUPS], struct state_file *state,
                         struct alibi_training *training)
{
    groups[0] = (struct alibi_option_group){ "state", state_options, STATE_OPTIONS, state };
    groups[1] = (struct alibi_option_group){ .title = "training", .values = training };
    groups[1].options = training_shaping_options(&groups[1].count);
    groups[2] =
        (struct alibi_option_group){ "validation", validation_options, VALIDATION_OPTIONS, state };
}

alibi_status state_write_json(const struct train_state *state,
                              const struct alibi_training *training, struct text *json)
{
    struct state_file file = { state->step, state->corpus_checksum, state->files_checksum,
                               state->loss, state->validation };
    struct alibi_training copy = *training;
    struct alibi_option_group groups[GROUPS];

    state_groups(groups, &file, &copy);
    return options_format(groups, state->validation.count > 0 ? GROUPS : GROUPS - 1, json);
}

alibi_status checkpoint_read_state(const char *path, struct train_state *state,
                                   struct alibi_training *training)
{
    alibi_status status;
    struct state_file file = { 0 };
    struct alibi_training read = { 0 };
    struct alibi_option_group groups[GROUPS];
    char *name = NULL;

    state_groups(groups, &file, &read);
    TRY(path_join(&name, path, part_names[PART_STATE]));
    TRY(alibi_options_read(groups, GROUPS, name));
    if (file.step < 1)
        TRY(fail(ALIBI_BAD_INPUT, "'%s': the key 'step' is missing", name));
    *state = (struct train_state){ file.step, (uint32_t)file.corpus_checksum,
                                   (uint32_t)file.files_checksum, file.loss, file.validation };
    *training = read;
out:
    mem_free(name);
    return status;
}
