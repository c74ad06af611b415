/* results.c - the results so far: results.json, results.csv, report.html, the terminal */
#include <math.h>
#include <string.h>

#include "base/names.h"
#include "compare/trial.h"
#include "experiment/experiment.h"

/* ---- JSON */

static void write_reference(struct json_writer *w, const char *key, const alibi_experiment *e,
                            const struct reference *r)
{
    struct value v = reference_value(e, r);

    json_write_object_line(w, key);
    if (r->model >= 0) {
        json_write_string(w, "model", e->model[r->model].name);
        json_write_string(w, "evaluation", e->evaluation[r->evaluation].name);
        json_write_int(w, "length", e->evaluation[r->evaluation].lengths.at[r->length]);
        json_write_string(w, "quantity", quantity_names[r->quantity]);
        if (r->quantity == QUANTITY_SCORE)
            json_write_string(w, "task", e->evaluation[r->evaluation].tasks.tasks.at[r->task]);
        if (e->evaluation[r->evaluation].kind == KIND_TARGETS) {
            json_write_string(w, "condition", target_condition_names[r->condition]);
            json_write_string(w, "targets", target_kind_names[r->targets]);
        }
    }
    json_write_real(w, "value", v.value);
    if (r->model >= 0) {
        json_write_real(w, r->quantity == QUANTITY_SCORE ? "standard_error" : "relative_error",
                        v.error);
        json_write_int(w, "seeds", v.seeds);
        json_write_real(w, "paper", r->paper);
    }
    json_write_end(w);
}

static void write_claim(struct json_writer *w, const alibi_experiment *e, int claim)
{
    const struct claim *c = &e->claim[claim];
    struct alibi_claim shown;

    alibi_experiment_get_claim(e, claim, &shown);
    json_write_object(w, NULL);
    json_write_string(w, "claim", shown.claim);
    json_write_string(w, "where", shown.where);
    json_write_string(w, "paper", shown.paper);
    json_write_string(w, "verdict", verdict_name(shown.verdict));
    json_write_bool(w, "few_seeds", shown.few_seeds);
    json_write_array(w, "comparisons");
    for (int i = 0; i < c->count; i++) {
        const struct comparison *x = &c->comparison[i];
        struct outcome o = comparison_outcome(e, x);
        bool score = x->left.quantity == QUANTITY_SCORE;

        json_write_object(w, NULL);
        write_reference(w, "is", e, &x->left);
        write_reference(w, x->above ? "above" : "below", e, &x->right);
        json_write_real(w, x->margin > 0 ? "within" : "by",
                        100 * (score ? fabs(x->margin) : expm1(fabs(x->margin))));
        json_write_real(w, score ? "difference" : "log_ratio", o.d);
        json_write_real(w, "standard_error", o.error);
        json_write_int(w, "seeds", o.seeds);
        json_write_bool(w, "learned_nothing", o.ignorant);
        if (score)
            json_write_bool(w, "task_not_learned", o.unlearned);
        json_write_string(w, "verdict", verdict_name(o.verdict));
        json_write_bool(w, "few_seeds", o.few_seeds);
        json_write_end(w);
    }
    json_write_end(w);
    json_write_end(w);
}

static void write_evaluation(struct json_writer *w, const struct experiment_evaluation *v,
                             const struct alibi_eval_result *r)
{
    json_write_object_line(w, NULL);
    json_write_string(w, "evaluation", v->name);
    json_write_string(w, "protocol", alibi_protocol_view(v->protocol)->name);
    json_write_int(w, "length", r->length);
    json_write_int(w, "stride", r->stride);
    json_write_string(w, "first_token", alibi_protocol_view(v->protocol)->first_tokens);
    json_write_string(w, "normaliser", alibi_protocol_view(v->protocol)->normaliser);
    json_write_int(w, "tokens", r->tokens);
    json_write_int(w, "words", r->words);
    json_write_int(w, "bytes", r->bytes);
    json_write_int(w, "block", r->block);
    json_write_int(w, "blocks", r->blocks);
    json_write_int(w, "start", r->start);
    json_write_int(w, "available", r->available);
    json_write_real(w, "nll", r->nll);
    json_write_real(w, "standard_error", r->standard_error);
    json_write_real(w, "ppl", r->ppl);
    json_write_real(w, "word_ppl", r->word_ppl);
    json_write_real(w, "bits_per_byte", r->bits_per_byte);
    json_write_real(w, "tokens_per_s", r->tokens_per_s);
    json_write_int(w, "peak_bytes", (int64_t)r->peak_bytes);
    json_write_array_line(w, "by_position");
    for (int i = 0; i < r->bins; i++) {
        json_write_array_line(w, NULL);
        json_write_int(w, NULL, r->by_position[i].first);
        json_write_int(w, NULL, r->by_position[i].last);
        json_write_real(w, NULL, r->by_position[i].nll);
        json_write_end(w);
    }
    json_write_end(w);
    json_write_end(w);
}

static void write_model(struct json_writer *w, const alibi_experiment *e, int model)
{
    const struct experiment_model *m = &e->model[model];

    json_write_object(w, NULL);
    json_write_string(w, "name", m->name);
    json_write_string(w, "group", m->group);
    json_write_string(w, "text", e->text[m->text].name);
    json_write_string(w, "position", tested_position(m));
    if (m->of >= 0)
        json_write_string(w, "of", e->model[m->of].name);
    json_write_int(w, "train_length", m->training.train_length);
    json_write_int(w, "batch", m->training.batch * m->training.accumulate);
    json_write_int(w, "steps", m->training.steps);
    json_write_object_line(w, "mix");
    for (int i = 0; i < m->mix.count; i++)
        json_write_real(w, m->mix.at[i], m->share[i]);
    json_write_end(w);
    json_write_bool(w, "learned_nothing", model_is_ignorant(e, model));
    json_write_array(w, "seeds");
    for (int k = 0; k < m->seeds.count; k++) {
        const struct trained *t = &m->seed[k];

        if (t->cost.version[0] == '\0')
            continue;
        json_write_object(w, NULL);
        if (t->fitted[0])
            json_write_string(w, "fitted", t->fitted);
        result_write_cost(w, &t->cost);
        learned_write(w, &t->learned);
        json_write_array(w, "results");
        for (int v = 0; v < e->evaluations; v++)
            for (int i = 0; t->measured[v] != NULL && i < evaluation_tests(&e->evaluation[v]); i++)
                if (t->measured[v][i].done && e->evaluation[v].kind == KIND_PERPLEXITY)
                    write_evaluation(w, &e->evaluation[v], &t->measured[v][i].result);
        json_write_end(w);
        json_write_end(w);
    }
    json_write_end(w);
    json_write_end(w);
}

/* Each seed of a model counts. */
struct progress {
    int trainings, trained; /* without models that have the weights of another */
    int models, done;       /* with them; trained and tested */
};

/* Whether some evaluation needs a training of the model: evaluations of speed need none. */
static bool is_tested(const alibi_experiment *e, int model)
{
    for (int v = 0; v < e->evaluations; v++)
        if (e->evaluation[v].has[model] && e->evaluation[v].kind != KIND_SPEED)
            return true;
    return false;
}

static struct progress progress_of(const alibi_experiment *e)
{
    struct progress p = { 0 };

    for (int m = 0; m < e->models; m++)
        for (int k = 0; k < e->model[m].seeds.count; k++) {
            bool own = e->model[m].of < 0 && is_tested(e, m);

            p.trainings += own;
            p.trained += own && e->model[m].seed[k].cost.version[0] != '\0';
            p.models++;
            p.done += model_is_complete(e, m, k);
        }
    return p;
}

static alibi_status format_json(struct text *out, const alibi_experiment *e)
{
    struct json_writer w = json_writer(out);
    struct progress p = progress_of(e);

    json_write_object(&w, NULL);
    json_write_int(&w, "experiment", EXPERIMENT_VERSION);
    json_write_string(&w, "name", e->name);
    json_write_string(&w, "title", e->title);
    json_write_string(&w, "about", e->about);
    json_write_string(&w, "tier", e->tier);
    json_write_string(&w, "version", alibi_version());
    json_write_int(&w, "trainings", p.trainings);
    json_write_int(&w, "trained", p.trained);
    json_write_int(&w, "seeds", p.models);
    json_write_int(&w, "done", p.done);
    json_write_array(&w, "claims");
    for (int i = 0; i < e->claims; i++)
        write_claim(&w, e, i);
    json_write_end(&w);
    json_write_object(&w, "texts");
    for (int i = 0; i < e->texts; i++) {
        json_write_object(&w, e->text[i].name);
        json_write_string(&w, "about", e->text[i].about);
        if (e->text[i].text_checksum != 0)
            text_write(&w, e, i);
        json_write_end(&w);
    }
    json_write_end(&w);
    json_write_array(&w, "speed");
    for (int v = 0; v < e->evaluations; v++)
        if (e->evaluation[v].kind == KIND_SPEED)
            speed_write(&w, e, v);
    json_write_end(&w);
    TRY_RETURN(probes_report(&w, e));
    TRY_RETURN(tasks_report(&w, e));
    streams_report(&w, e);
    json_write_array(&w, "models");
    for (int m = 0; m < e->models; m++)
        write_model(&w, e, m);
    json_write_end(&w);
    json_write_end(&w);
    return text_status(out);
}

/* ---- CSV: a line per model, seed, evaluation and length; of costs a line per quantity */

static void append_real(struct text *out, double value)
{
    if (isfinite(value)) {
        text_append(out, ",");
        json_append_real(out, value);
    } else {
        text_append(out, ",%s", isinf(value) ? "inf" : "");
    }
}

static void append_count(struct text *out, int64_t count)
{
    text_append(out, count > 0 ? ",%lld" : ",", (long long)count);
}

/* A line without its task and its cost. Models that are not trained have no seed. condition and
 * targets: of fixed targets, else "". */
static void append_line(struct text *out, const alibi_experiment *e, int model,
                        const struct trained *t, int v, const struct alibi_eval_result *r,
                        const char *condition, const char *targets)
{
    static const char *const rules[KINDS][3] = {
        [KIND_SPEED] = { "speed", "", "" },
        [KIND_TARGETS] = { "targets", "every target has the context", "scored tokens" },
        [KIND_TASKS] = { "tasks", "", "tokens of answers" },
        [KIND_STREAM] = { "cost", "", "" },
    };
    const struct experiment_model *x = &e->model[model];
    const struct alibi_compare_seed *c = &t->cost;
    const struct alibi_protocol_info *protocol = alibi_protocol_view(e->evaluation[v].protocol);
    const char *const *rule = rules[e->evaluation[v].kind];

    text_append(out, c->version[0] ? "%s,%lld" : "%s,", x->name, (long long)c->seed);
    append_field(out, t->fitted[0] ? t->fitted : tested_position(x), false);
    text_append(out, ",%lld,%s,%s,%lld,%lld,%lld", (long long)x->training.train_length,
                e->evaluation[v].name, rule[0] ? rule[0] : protocol->name, (long long)r->length,
                (long long)r->stride, (long long)r->tokens);
    append_real(out, r->nll);
    append_real(out, r->standard_error);
    append_real(out, r->ppl);
    append_real(out, r->word_ppl);
    append_real(out, r->bits_per_byte);
    append_real(out, r->tokens_per_s);
    append_count(out, (int64_t)r->peak_bytes);
    append_real(out, c->train_tokens_per_s);
    append_real(out, c->train_seconds);
    append_count(out, (int64_t)c->peak_bytes);
    append_count(out, c->parameters);
    append_field(out, c->device, false);
    append_field(out, c->precision ? alibi_precision_name(c->precision) : "", false);
    append_field(out, c->date, false);
    append_field(out, c->version, false);
    append_field(out, rule[0] ? rule[1] : protocol->first_tokens, false);
    append_field(out, rule[0] ? rule[2] : protocol->normaliser, false);
    text_append(out, ",%s,%s", condition, targets);
}

#define NO_TASK ",,,,"
#define NO_COST ",,,"

/* A line per length of a task that has a value. */
static void append_cells(struct text *out, const alibi_experiment *e, int model, int k, int v,
                         int task)
{
    for (int i = 0; i < e->evaluation[v].lengths.count; i++) {
        const struct alibi_task_cell *cell = tasks_cell(e, model, k, v, task, i);
        struct alibi_eval_result r = result_none(e->evaluation[v].lengths.at[i]);

        if (cell == NULL)
            continue;
        r.nll = cell->nll;
        r.tokens_per_s = NAN;
        append_line(out, e, model, &e->model[model].seed[k], v, &r, "", "");
        text_append(out, ",%s,%lld", e->evaluation[v].tasks.tasks.at[task], (long long)cell->cases);
        append_real(out, cell->score.value);
        append_real(out, cell->score.error);
        text_append(out, NO_COST "\n");
    }
}

static void append_series(struct text *out, const alibi_experiment *e, int model, int k, int v)
{
    for (int c = 0; c < e->evaluation[v].lengths.count; c++)
        for (int condition = 0; condition < TARGET_CONDITIONS; condition++)
            for (int kind = 0; kind < ALIBI_TARGET_KINDS; kind++) {
                const struct alibi_eval_result *r =
                    targets_losses(e, model, k, v, c, condition, kind);

                if (r == NULL)
                    continue;
                append_line(out, e, model, &e->model[model].seed[k], v, r,
                            target_condition_names[condition], target_kind_names[kind]);
                text_append(out, NO_TASK NO_COST "\n");
            }
}

/* A line for one cost at a length (an index). Its error is a share; NaN: there is none. */
static void append_cost(struct text *out, const alibi_experiment *e, int model,
                        const struct trained *t, int v, int length, int quantity, double value,
                        double error)
{
    struct alibi_eval_result none = result_none(e->evaluation[v].lengths.at[length]);

    none.tokens_per_s = NAN;
    append_line(out, e, model, t, v, &none, "", "");
    text_append(out, NO_TASK ",%s", quantity_names[quantity]);
    append_real(out, value);
    append_real(out, error);
    text_append(out, "\n");
}

static void append_stream(struct text *out, const alibi_experiment *e, int model, int k, int v,
                          int length)
{
    const struct trained *t = &e->model[model].seed[k];
    const struct bench_stream *s = &t->measured[v][length].stream;

    if (s->read_seconds == 0)
        return;
    append_cost(out, e, model, t, v, length, QUANTITY_READ_SECONDS, s->read_seconds, s->read_error);
    append_cost(out, e, model, t, v, length, QUANTITY_DECODE_SECONDS, s->decode_seconds,
                s->decode_error);
    append_cost(out, e, model, t, v, length, QUANTITY_CACHE_BYTES, s->cache_bytes, NAN);
}

static void append_speed(struct text *out, const alibi_experiment *e, int model, int v, int length)
{
    const struct speed *s = &e->evaluation[v].speed[length * e->models + model];
    struct trained fresh = { .cost = { .train_tokens_per_s = NAN, .train_seconds = NAN } };

    if (s->train_seconds == 0)
        return;
    memcpy(fresh.cost.device, s->device, sizeof s->device);
    memcpy(fresh.cost.date, s->date, sizeof s->date);
    append_cost(out, e, model, &fresh, v, length, QUANTITY_TRAIN_SECONDS, s->train_seconds,
                s->train_error);
    append_cost(out, e, model, &fresh, v, length, QUANTITY_TRAIN_MEMORY, s->train_memory, NAN);
    append_cost(out, e, model, &fresh, v, length, QUANTITY_EVAL_SECONDS, s->eval_seconds,
                s->eval_error);
    append_cost(out, e, model, &fresh, v, length, QUANTITY_EVAL_MEMORY, s->eval_memory, NAN);
}

/* All lines of one seed and evaluation, of any kind but speed. */
static void append_evaluation(struct text *out, const alibi_experiment *e, int model, int k, int v)
{
    const struct trained *trained = &e->model[model].seed[k];
    const struct measured *m = trained->measured[v];
    int kind = e->evaluation[v].kind;

    if (kind == KIND_TARGETS)
        append_series(out, e, model, k, v);
    for (int i = 0; m != NULL && i < evaluation_tests(&e->evaluation[v]); i++) {
        if (kind == KIND_TASKS)
            append_cells(out, e, model, k, v, i);
        if (kind == KIND_STREAM)
            append_stream(out, e, model, k, v, i);
        if (kind == KIND_PERPLEXITY && m[i].done) {
            append_line(out, e, model, trained, v, &m[i].result, "", "");
            text_append(out, NO_TASK NO_COST "\n");
        }
    }
}

static alibi_status format_csv(struct text *out, const alibi_experiment *e)
{
    text_append(out, "model,seed,position,train_length,evaluation,protocol,length,stride,tokens,"
                     "nll,standard_error,ppl,word_ppl,bits_per_byte,eval_tokens_per_s,"
                     "eval_peak_bytes,train_tokens_per_s,train_seconds,peak_bytes,parameters,"
                     "device,precision,date,version,first_token,normaliser,condition,targets,"
                     "task,cases,score,score_error,cost,cost_value,cost_error\n");
    for (int m = 0; m < e->models; m++)
        for (int k = 0; k < e->model[m].seeds.count; k++)
            for (int v = 0; v < e->evaluations; v++)
                append_evaluation(out, e, m, k, v);
    for (int v = 0; v < e->evaluations; v++)
        for (int m = 0; m < e->models && e->evaluation[v].kind == KIND_SPEED; m++)
            for (int i = 0; i < e->evaluation[v].lengths.count; i++)
                append_speed(out, e, m, v, i);
    return text_status(out);
}

/* ---- the same for lib/report */

static void name_number(struct report_number *n, const alibi_experiment *e,
                        const struct reference *r)
{
    struct value v = reference_value(e, r);

    *n = (struct report_number){ .value = v.value, .error = v.error, .paper = r->paper };
    if (r->model < 0)
        return;
    n->quantity = r->quantity == QUANTITY_PPL     ? ' '
                  : r->quantity == QUANTITY_SCORE ? 'p'
                  : r->quantity == QUANTITY_TRAIN_MEMORY || r->quantity == QUANTITY_EVAL_MEMORY ||
                          r->quantity == QUANTITY_CACHE_BYTES
                      ? 'B'
                      : 's';
    if (r->quantity == QUANTITY_SCORE) {
        snprintf(n->name, sizeof n->name, "%s at %lld (%s)", e->model[r->model].name,
                 (long long)e->evaluation[r->evaluation].lengths.at[r->length],
                 e->evaluation[r->evaluation].tasks.tasks.at[r->task]);
        return;
    }
    if (r->quantity != QUANTITY_PPL) {
        snprintf(n->name, sizeof n->name, "%s at %lld (%s, %s)", e->model[r->model].name,
                 (long long)e->evaluation[r->evaluation].lengths.at[r->length],
                 e->evaluation[r->evaluation].name,
                 (const char *[]){ "", "training time", "training memory", "evaluation time",
                                   "evaluation memory", "", "reading time", "decoding time",
                                   "cache" }[r->quantity]);
        return;
    }
    if (e->evaluation[r->evaluation].kind == KIND_TARGETS) {
        static const char *const conditions[] = { "", ", far text swapped", ", attention cut" };
        static const char *const kinds[] = { "", ", repeats", ", others" };

        snprintf(n->name, sizeof n->name, "%s after %lld tokens (%s%s%s)", e->model[r->model].name,
                 (long long)e->evaluation[r->evaluation].lengths.at[r->length],
                 e->evaluation[r->evaluation].name, conditions[r->condition], kinds[r->targets]);
        return;
    }
    snprintf(n->name, sizeof n->name, "%s at %lld%s%s%s", e->model[r->model].name,
             (long long)e->evaluation[r->evaluation].lengths.at[r->length],
             r->evaluation > 0 ? " (" : "",
             r->evaluation > 0 ? e->evaluation[r->evaluation].name : "",
             r->evaluation > 0 ? ")" : "");
}

static alibi_status view_claims(struct report_experiment *x, const alibi_experiment *e)
{
    TRY_RETURN(NEW_ZERO_ARRAY(&x->claim, e->claims, "the report of an experiment"));
    for (x->claims = 0; x->claims < e->claims;) {
        const struct claim *c = &e->claim[x->claims];
        struct report_claim *out = &x->claim[x->claims];

        TRY_RETURN(NEW_ZERO_ARRAY(&out->comparison, c->count, "the report of an experiment"));
        alibi_experiment_get_claim(e, x->claims++, &out->claim);
        for (out->count = 0; out->count < c->count; out->count++) {
            struct report_comparison *r = &out->comparison[out->count];
            struct outcome o = comparison_outcome(e, &c->comparison[out->count]);

            name_number(&r->left, e, &c->comparison[out->count].left);
            name_number(&r->right, e, &c->comparison[out->count].right);
            r->above = c->comparison[out->count].above;
            r->margin = c->comparison[out->count].margin;
            r->d = o.d;
            r->error = o.error;
            r->seeds = o.seeds;
            r->ignorant = o.ignorant;
            r->unlearned = o.unlearned;
            r->few_seeds = o.few_seeds;
            r->verdict = o.verdict;
        }
    }
    return ALIBI_OK;
}

/* The seeds of a model that have begun this evaluation. */
static alibi_status view_model(struct alibi_compare_method *out, const alibi_experiment *e,
                               int model, int evaluation)
{
    const struct experiment_model *m = &e->model[model];
    int lengths = e->evaluation[evaluation].lengths.count;

    memcpy(out->name, m->name, sizeof out->name);
    TRY_RETURN(NEW_ZERO_ARRAY(&out->seed, m->seeds.count, "the report of an experiment"));
    for (int k = 0; k < m->seeds.count; k++) {
        const struct measured *t = m->seed[k].measured[evaluation];
        struct alibi_compare_seed *s = &out->seed[out->seeds];
        struct alibi_eval_result *results = NULL;
        int done = 0;

        for (int i = 0; i < lengths; i++)
            done += t[i].done;
        if (done == 0)
            continue;
        TRY_RETURN(NEW_ZERO_ARRAY(&results, lengths, "the report of an experiment"));
        done = 0;
        for (int i = 0; i < lengths; i++)
            if (t[i].done)
                results[done++] = t[i].result;
        *s = m->seed[k].cost;
        s->by_length = results;
        s->lengths = done;
        out->seeds++;
    }
    return ALIBI_OK;
}

/* all: with the models that it does not test, which have no results. */
static alibi_status view_section(struct report_section *out, const alibi_experiment *e,
                                 int evaluation, bool all)
{
    static const char *const headings[] = {
        [ALIBI_NONOVERLAPPING] = "in windows that do not overlap",
        [ALIBI_SLIDING] = "with a sliding window",
        [ALIBI_STREAM] = "as one stream",
        [ALIBI_STRIDE] = "as in Hugging Face's guide",
        [ALIBI_LLAMA_CPP] = "as in llama.cpp",
        [ALIBI_ROLLING] = "as in lm-evaluation-harness, rolling",
    };
    const struct experiment_evaluation *v = &e->evaluation[evaluation];
    struct alibi_compare_result *r = NULL;
    bool any = false;

    out->name = v->name;
    out->about = v->about;
    out->windows = v->protocol == ALIBI_NONOVERLAPPING;
    snprintf(out->heading, sizeof out->heading, "perplexity, %s", headings[v->protocol]);
    TRY_RETURN(NEW_ZERO_ARRAY(&out->result, 1, "the report of an experiment"));
    r = out->result;
    r->compare.seeds.count = 1;
    TRY_RETURN(NEW_ZERO_ARRAY(&r->method, e->models, "the report of an experiment"));
    for (int m = 0; m < e->models; m++) {
        const struct experiment_model *x = &e->model[m];
        bool has = v->has[m] && v->kind == KIND_PERPLEXITY;

        if (!has && all)
            memcpy(r->method[r->methods++].name, x->name, sizeof x->name);
        if (!has)
            continue;
        if (!any) {
            r->config = x->config;
            r->training = x->training;
            r->text = e->text[v->text < 0 ? x->text : v->text].info;
            r->unigram_nll = unigram_of(e, m, evaluation);
        } else if (x->training.train_length != r->training.train_length) {
            r->training.train_length = 0;
        }
        any = true;
        if (x->seeds.count > r->compare.seeds.count)
            r->compare.seeds = x->seeds;
        TRY_RETURN(view_model(&r->method[r->methods++], e, m, evaluation));
    }
    if (r->training.train_length == 0)
        r->unigram_nll = 0; /* the place that tells what was learned differs too */
    return ALIBI_OK;
}

static void view_fini(struct report_experiment *x)
{
    probes_view_fini(x);
    tasks_view_fini(x);
    streams_view_fini(x);
    mem_free(x->numbers);
    text_free(&x->derived);
    for (int i = 0; i < x->claims; i++)
        mem_free(x->claim[i].comparison);
    mem_free(x->claim);
    for (int i = 0; i < x->sections; i++)
        alibi_compare_free(x->section[i].result);
    mem_free(x->section);
    mem_free(x->training.log);
    mem_free(x->cost);
}

static alibi_status view_costs(struct report_experiment *x, const alibi_experiment *e)
{
    int most = 0;

    for (int v = 0; v < e->evaluations; v++)
        if (e->evaluation[v].kind == KIND_SPEED)
            most += e->evaluation[v].lengths.count * e->models;
    TRY_RETURN(NEW_ZERO_ARRAY(&x->cost, most, "the report of an experiment"));
    for (int v = 0; v < e->evaluations; v++)
        for (int n = 0;
             e->evaluation[v].speed != NULL && n < e->evaluation[v].lengths.count * e->models;
             n++) {
            const struct speed *s = &e->evaluation[v].speed[n];

            if (s->train_seconds == 0)
                continue;
            x->cost[x->costs++] =
                (struct report_cost){ .method = n % e->models,
                                      .machine = s->device,
                                      .length = e->evaluation[v].lengths.at[n / e->models],
                                      .train_seconds = s->train_seconds,
                                      .train_error = s->train_error,
                                      .train_memory = s->train_memory,
                                      .eval_seconds = s->eval_seconds,
                                      .eval_error = s->eval_error,
                                      .eval_memory = s->eval_memory };
        }
    return ALIBI_OK;
}

/* The curves as logs: a bin for each point. */
static void view_curve(struct report_bins *bins, const struct curve *c)
{
    for (int i = 0; i < c->count; i++) {
        bins->count[i] = 1;
        bins->step[i] = (double)c->step[i];
        bins->loss[i] = c->loss[i];
    }
}

static alibi_status view_logs(struct report_training *t, const alibi_experiment *e)
{
    TRY_RETURN(NEW_ZERO_ARRAY(&t->log, t->models, "the report of an experiment"));
    for (int m = 0; m < e->models; m++)
        for (int k = 0; k < e->model[m].seeds.count; k++) {
            const struct trained *x = &e->model[m].seed[k];
            struct report_log *log = &t->log[t->logs];

            if (x->train.count == 0 || e->model[m].of >= 0)
                continue;
            log->method = m;
            log->step = e->model[m].training.steps;
            view_curve(&log->train, &x->train);
            view_curve(&log->valid, &x->valid);
            t->logs++;
        }
    return ALIBI_OK;
}

/* "fitted: plain, with rotary:temperature=0.2 (seed 1), without a temperature (seed 2)" */
static void view_derived(struct text *out, const alibi_experiment *e)
{
    for (int i = 0; i < e->models; i++) {
        const struct experiment_model *m = &e->model[i];

        if (m->of < 0)
            continue;
        text_append(out, "%s: %s", m->name, e->model[m->of].name);
        if (m->fit.length == 0)
            text_append(out, ", with %s", tested_position(m));
        for (int k = 0; m->fit.length > 0 && k < m->seeds.count; k++) {
            const char *fitted = m->seed[k].fitted;

            if (fitted[0] == '\0')
                continue;
            if (strcmp(fitted, tested_position(m)) != 0)
                text_append(out, ", with %s", fitted);
            else if (m->as_position[0])
                text_append(out, ", with %s and no temperature, since none helped", fitted);
            else
                text_append(out, ", without a temperature, since none helped");
            text_append(out, " (seed %lld)", (long long)m->seeds.at[k]);
        }
        text_append(out, "\n");
    }
}

/* Whether a model is neither trained, in any seed, nor part of what was measured of speed. */
static bool is_absent(const alibi_experiment *e, int model)
{
    for (int k = 0; k < e->model[model].seeds.count; k++)
        if (e->model[model].seed[k].cost.version[0] != '\0')
            return false;
    for (int v = 0; v < e->evaluations; v++)
        for (int i = 0; e->evaluation[v].speed != NULL && i < e->evaluation[v].lengths.count; i++)
            if (e->evaluation[v].speed[i * e->models + model].train_seconds > 0)
                return false;
    return true;
}

/* page: as report_experiment_html() needs it. */
static alibi_status view_init(struct report_experiment *x, const alibi_experiment *e, bool page)
{
    struct progress p = progress_of(e);

    *x = (struct report_experiment){ .name = e->name,
                                     .title = e->title,
                                     .about = e->about,
                                     .tier = e->tier,
                                     .tier_about = e->tier_about };
    x->trainings = p.trainings;
    x->trained = p.trained;
    x->training.models = p.models;
    x->training.done = p.done;
    for (int m = 0; m < e->models; m++) {
        x->model[m] = e->model[m].name;
        x->absent[m] = is_absent(e, m);
        x->untrained[m] = e->model[m].of >= 0;
        x->original[m] = e->model[m].of;
        x->train_length[m] = e->model[m].training.train_length;
    }
    view_derived(&x->derived, e);
    TRY_RETURN(text_status(&x->derived));
    TRY_RETURN(view_claims(x, e));
    TRY_RETURN(view_costs(x, e));
    TRY_RETURN(probes_view(x, e));
    TRY_RETURN(tasks_view(x, e));
    TRY_RETURN(streams_view(x, e));
    TRY_RETURN(learned_view(x, e));
    TRY_RETURN(NEW_ZERO_ARRAY(&x->section, e->evaluations, "the report of an experiment"));
    for (int v = 0; v < e->evaluations; v++)
        if (e->evaluation[v].kind == KIND_PERPLEXITY)
            TRY_RETURN(view_section(&x->section[x->sections++], e, v, page));
    if (page && x->sections == 0) /* only costs: the page still knows the models */
        TRY_RETURN(view_section(&x->section[x->sections++], e, 0, true));
    if (page)
        TRY_RETURN(view_logs(&x->training, e));
    return ALIBI_OK;
}

/* ---- files and the public interface */

/* Whether everything that the last run selected is done. */
static bool selection_is_complete(const alibi_experiment *e)
{
    for (int m = 0; m < e->models; m++)
        for (int k = 0; k < e->model[m].seeds.count; k++)
            if (e->model[m].selected && !model_is_complete(e, m, k))
                return false;
    for (int v = 0; v < e->evaluations; v++)
        if (e->evaluation[v].kind == KIND_SPEED && e->evaluation[v].selected &&
            !speed_is_complete(e, v))
            return false;
    return true;
}

alibi_status results_write(const alibi_experiment *e, const char *dir, int64_t refresh,
                           bool *finished)
{
    alibi_status status;
    struct text json = { 0 }, csv = { 0 }, page = { 0 };
    struct report_experiment x;
    bool done = selection_is_complete(e);

    TRY(view_init(&x, e, true));
    x.training.refresh = done ? 0 : refresh;
    TRY(format_json(&json, e));
    TRY(format_csv(&csv, e));
    TRY(report_experiment_html(&page, &x));
    TRY(file_replace_shared_within(dir, NAME_RESULTS, &json));
    TRY(file_replace_shared_within(dir, "results.csv", &csv));
    TRY(file_replace_shared_within(dir, NAME_PAGE, &page));
    if (finished)
        *finished = done;
out:
    view_fini(&x);
    text_free(&page);
    text_free(&csv);
    text_free(&json);
    return status;
}

alibi_status alibi_experiment_text(char **out, const alibi_experiment *e, int columns, bool colour)
{
    struct text text = { 0 };
    struct report_experiment x;
    alibi_status status = view_init(&x, e, false);

    if (status == ALIBI_OK)
        status = text_give(&text, report_experiment_text(&text, &x, columns, colour), out);
    view_fini(&x);
    return status;
}

alibi_status alibi_experiment_json(char **out, const alibi_experiment *e)
{
    struct text text = { 0 };

    return text_give(&text, format_json(&text, e), out);
}
