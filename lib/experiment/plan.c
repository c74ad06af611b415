/* plan.c - the remaining cost of an experiment: tokens, memory, disk, time */
#include <math.h>
#include <string.h>

#include "checkpoint/checkpoint.h"
#include "experiment/experiment.h"
#include "train/train.h"

int64_t text_vocab(const struct experiment_text *t)
{
    static const int64_t bytes = 257, bpe = 32000;

    if (t->info.vocab > 0)
        return t->info.vocab;
    if (t->tokenizer == TEXT_BYTES)
        return bytes;
    return t->words.vocab > 0 ? t->words.vocab : bpe;
}

void disk_add(struct disk *d, double checkpoint, const alibi_experiment *e, int model,
              int trainings)
{
    const struct alibi_training *t = &e->model[model].training;
    double each = checkpoint * (t->steps > t->save_every ? 2 : 1);
    bool shared = false;

    for (int m = 0; m < e->models; m++)
        shared = shared || e->model[m].of == model;
    if (trainings < 1)
        return;
    d->kept += trainings * each;
    d->held += shared ? each : 0;
    d->largest = fmax(d->largest, checkpoint);
}

double disk_needed(const struct disk *d, bool discard)
{
    double all = d->kept + d->largest;

    return discard ? fmin(3 * d->largest + d->held, all) : all;
}

/* Seconds of one training and its tests, and of the model's part in evaluations of speed. A token
 * costs about half as much to test as to train: it has no backward pass, but longer inputs. */
static alibi_status measure(struct alibi_experiment_plan_model *p, alibi_device *device,
                            const struct alibi_config *config, const struct alibi_training *t,
                            double speed_tokens, const struct alibi_call *call)
{
    struct alibi_bench_step step;

    TRY_RETURN(alibi_bench_train(device, config, t->batch, t->train_length, 3, t->recompute,
                                 t->skip, &step, call));
    p->seconds = (p->train_tokens + p->test_tokens / 2) / step.tokens_per_s;
    p->speed_seconds = speed_tokens / step.tokens_per_s;
    return ALIBI_OK;
}

static alibi_status plan_model(struct alibi_experiment_plan_model *p, alibi_experiment *e,
                               alibi_device *device, int model, const char *dir, bool time,
                               const struct alibi_call *call)
{
    const struct experiment_model *m = &e->model[model];
    struct alibi_config config = m->config;
    struct alibi_plan plan;
    double speed = speed_tokens(e, device, model);

    *p = (struct alibi_experiment_plan_model){ .steps = m->training.steps };
    memcpy(p->name, m->name, sizeof p->name);
    for (int k = 0; k < m->seeds.count; k++)
        if (m->selected && !model_is_complete(e, model, k)) {
            double left;

            TRY_RETURN(untrained_tokens(&left, e, model, k, dir));
            p->trainings += m->of < 0;
            p->tested++;
            p->train_tokens += left;
            p->test_tokens += tested_tokens(e, model, k);
        }
    if (p->tested > 0) { /* seeds may differ in how far they are */
        p->train_tokens /= p->tested;
        p->test_tokens /= p->tested;
    }
    if (config.vocab == 0)
        config.vocab = text_vocab(&e->text[m->text]);
    TRY_RETURN(alibi_config_resolve(&config));
    TRY_RETURN(plan_training(&plan, &config, &m->training, &device->device, device->type, false));
    p->parameters = plan.parameters;
    p->memory = plan.total;
    p->available = plan.available;
    p->fits = plan.fits;
    p->checkpoint = (size_t)checkpoint_bytes(plan.parameters, m->training.optimizer);
    if (!time || (p->tested == 0 && speed == 0))
        return ALIBI_OK;
    p->seconds = p->speed_seconds = (double)NAN;
    return p->fits ? measure(p, device, &config, &m->training, speed, call) : ALIBI_OK;
}

/* Marks the plan if the missing tests of a model read a whole text, or one shorter than they
 * request, whose size is estimated or unknown. */
static void mark_estimates(struct alibi_experiment_plan *plan, const alibi_experiment *e, int model)
{
    for (int v = 0; v < e->evaluations; v++) {
        const struct experiment_evaluation *x = &e->evaluation[v];
        const struct experiment_text *t = evaluated_text(e, model, v);
        double tokens = text_valid_tokens(t);

        if (!x->has[model] || x->kind != KIND_PERPLEXITY)
            continue;
        plan->test_unknown |= x->tokens == 0 && isinf(tokens);
        plan->test_estimated |= isfinite(tokens) && (x->tokens == 0 || tokens < (double)x->tokens);
    }
}

/* The built-in text has too few words for the last clusters of a real text's vocabulary, so a run
 * on it would fail once the words are counted. */
static bool builtin_is_too_small(const alibi_experiment *e, int model,
                                 const struct alibi_call *call)
{
    const struct alibi_int_list *cutoffs = &e->model[model].config.adaptive_cutoffs;
    const struct experiment_text *t = &e->text[e->model[model].text];

    while (t->tokenizer_of >= 0)
        t = &e->text[t->tokenizer_of];
    if (t->count > 0 || t->info.vocab > 0 || t->tokenizer != TEXT_WORDS || cutoffs->count == 0 ||
        cutoffs->at[cutoffs->count - 1] < BUILTIN_WORDS)
        return false;
    call_warn(call,
              "text '%s': no files were given, and the run will fail with the built-in text: it "
              "has fewer than %d words, and adaptive-cutoffs of '%s' go to %lld; give %s=PATH",
              t->name, BUILTIN_WORDS, e->model[model].name,
              (long long)cutoffs->at[cutoffs->count - 1], t->name);
    return true;
}

alibi_status alibi_experiment_make_plan(alibi_experiment *e, alibi_device *device, const char *dir,
                                        bool time, struct alibi_experiment_plan *plan,
                                        const struct alibi_call *call)
{
    struct disk disk = { 0 };
    bool warned = false, any_fits = false;

    TRY_RETURN(alibi_experiment_load(e, dir));
    *plan = (struct alibi_experiment_plan){ 0 };
    for (int t = 0; t < e->texts; t++)
        text_estimate(e, t);
    for (int m = 0; m < e->models; m++) {
        struct alibi_experiment_plan_model *p = &plan->model[plan->models];

        if (!model_is_asked(e, m))
            continue;
        plan->models++;
        TRY_RETURN(plan_model(p, e, device, m, dir, time, call));
        if (p->tested > 0)
            mark_estimates(plan, e, m);
        if (p->trainings > 0 && !warned)
            warned = builtin_is_too_small(e, m, call);
        plan->trainings += p->trainings;
        plan->train_tokens += p->tested * p->train_tokens;
        plan->test_tokens += p->tested * p->test_tokens;
        if (!isnan(p->seconds)) {
            any_fits = true;
            plan->speed_seconds += p->speed_seconds;
            plan->seconds += p->tested * p->seconds + p->speed_seconds;
        }
        disk_add(&disk, (double)p->checkpoint, e, m, p->trainings);
    }
    if (plan->models > 0 && !any_fits)
        plan->seconds = (double)NAN;
    plan->disk = (size_t)disk_needed(&disk, false);
    plan->disk_discarded = (size_t)disk_needed(&disk, true);
    return ALIBI_OK;
}
