/* compare.c - one model per position method and seed, equal in everything else, tested at growing
 * lengths
 *
 *   for each seed, for each method:
 *       train (or resume) -> open the last checkpoint -> evaluate at each length, again with a
 *       sliding window, then as one stream and its tokens in windows -> result.json after each
 *   then:
 *       results.json, results.csv, report.html
 *
 * With N ranks, rank r does the models r, r + N, ... of those without a result. Only rank 0 writes
 * files that do not belong to one model.
 *
 * Every completed step is on disk before the next begins, so stopping at any moment loses at most
 * one step. Seeds are the outer loop: a comparison that is stopped early has some of them whole. */
#include "base/names.h"
#include "compare/compare.h"
#include "compare/trial.h"
#include "eval/eval.h"
#include "report/report.h"

/* The remaining work: the models without a result. */
struct work {
    struct forecast forecast;
    int64_t checkpoints;                            /* that they will add to the disk */
    double train_tokens, valid_tokens, test_tokens; /* of each */
    int64_t own;                                    /* models of this rank */
    uint32_t seen;                                  /* checksum of what is missing */
    bool mine[ALIBI_LIST_MAX * ALIBI_LIST_MAX];     /* by number: methods within seeds */
};

/* Sets the forecast for `models` models that remain to be trained. */
static void count_models(struct work *w, int64_t models)
{
    double later = models > 1 ? (double)models - 1 : 0;

    w->forecast.models = models;
    w->forecast.train_tokens = w->train_tokens * later;
    w->forecast.valid_tokens = w->valid_tokens * later;
    w->forecast.test_tokens = w->test_tokens * (double)models;
}

bool result_is_complete(const struct alibi_compare_seed *m, const struct alibi_compare *c)
{
    return m->lengths == c->lengths.count &&
           m->sliding_lengths == (c->sliding_tokens > 0 ? c->lengths.count : 0) &&
           (c->stream_tokens == 0 || (m->stream.length > 0 && m->passage.length > 0));
}

/* ---- one model after the other */

/* The first seed has the method's name, as if it were the only one. */
alibi_status request_folder(char **out, const struct request *r, int i, int k, const char *dir)
{
    char method[ALIBI_NAME_MAX], name[ALIBI_NAME_MAX + 32];

    pattern_file_name(method, r->compare.methods.at[i]);
    snprintf(name, sizeof name, "%s-seed-%lld", method, (long long)r->compare.seeds.at[k]);
    return path_join(out, dir, k == 0 ? method : name);
}

/* The model of one method and seed. */
struct job {
    const char *method, *path; /* its result.json */
};

static alibi_status save(const struct trial *t)
{
    const struct job *j = t->user;

    return result_write(t->cost, j->method, j->path);
}

/* Lists the missing tests. The sliding window advances by half its length: from the second window
 * on, every scored token has at least that much context. It never scores more tokens than the other
 * protocol, and scores the same tokens if sliding_tokens allows as many. */
enum { TESTS_MAX = 2 * ALIBI_LIST_MAX + 2 };

static int list_tests(struct trial_test tests[TESTS_MAX], const struct request *r,
                      struct alibi_compare_seed *s, const alibi_corpus *corpus, int once[2])
{
    const struct alibi_compare *c = &r->compare;
    int64_t longest = c->lengths.at[c->lengths.count - 1];
    int64_t targets = corpus_span(corpus, ALIBI_VALID).count - 1;
    int64_t passage = c->stream_tokens < targets ? c->stream_tokens : targets;
    int64_t sliding = c->eval_tokens == 0 || c->eval_tokens > c->sliding_tokens ? c->sliding_tokens
                                                                                : c->eval_tokens;
    int count = 0;

    for (int i = s->lengths; i < c->lengths.count; i++)
        tests[count++] = (struct trial_test){
            .eval = { .length = c->lengths.at[i], .tokens = c->eval_tokens, .block = longest },
            .corpus = corpus,
            .name = "",
            .result = &s->by_length[i],
            .done = &s->lengths
        };
    for (int i = s->sliding_lengths; c->sliding_tokens > 0 && i < c->lengths.count; i++)
        tests[count++] =
            (struct trial_test){ .eval = { .length = c->lengths.at[i],
                                           .protocol = ALIBI_SLIDING,
                                           .stride =
                                               c->lengths.at[i] > 1 ? c->lengths.at[i] / 2 : 1,
                                           .tokens = sliding,
                                           .block = longest },
                                 .corpus = corpus,
                                 .name = " sliding",
                                 .result = &s->sliding[i],
                                 .done = &s->sliding_lengths };
    if (c->stream_tokens > 0 && s->stream.length == 0)
        tests[count++] =
            (struct trial_test){ .eval = { .protocol = ALIBI_STREAM, .tokens = c->stream_tokens },
                                 .corpus = corpus,
                                 .name = " stream",
                                 .result = &s->stream,
                                 .done = &once[0] };
    /* The tokens of the stream in windows of the training length, for comparison. */
    if (c->stream_tokens > 0 && s->passage.length == 0)
        tests[count++] = (struct trial_test){
            .eval = { .length = r->training.train_length, .tokens = passage, .contiguous = true },
            .corpus = corpus,
            .name = " passage",
            .result = &s->passage,
            .done = &once[1]
        };
    return count;
}

/* Does the remaining work for method i and seed k, and adds the results to `result`, which is
 * initialised. */
static alibi_status run_model(alibi_device *device, const struct request *r, int i, int k,
                              const alibi_corpus *corpus, const char *dir,
                              struct alibi_compare_seed *result, struct work *work,
                              const struct alibi_call *call)
{
    alibi_status status;
    struct job j = { .method = r->compare.methods.at[i] };
    struct trial t = { .device = device,
                       .corpus = corpus,
                       .call = call,
                       .forecast = &work->forecast,
                       .name = j.method,
                       .training = r->training,
                       .cost = result,
                       .save = save,
                       .user = &j };
    struct trial_test tests[TESTS_MAX];
    char *run = NULL, *path = NULL;
    int count, once[2] = { 0 };

    if (r->compare.seeds.count > 1)
        snprintf(t.label, sizeof t.label, ", seed %d of %d", k + 1, r->compare.seeds.count);
    t.training.seed = r->compare.seeds.at[k];
    TRY(request_config(r, i, &t.config));
    TRY(request_folder(&run, r, i, k, dir));
    TRY(path_join(&path, run, NAME_RESULT));
    t.run = run;
    j.path = path;
    t.measured = file_exists(path);
    if (t.measured)
        TRY(result_read(result, j.method, &r->compare.lengths, path));
    if (result_is_complete(result, &r->compare))
        goto out;
    count = list_tests(tests, r, result, corpus, once);
    TRY(trial_run(&t, tests, count));
    if (!t.measured)
        count_models(work, work->forecast.models - 1);
out:
    mem_free(run);
    mem_free(path);
    return status;
}

/* Notes the remaining work, and fails if the disk has no room for its checkpoints and for one more
 * while it is written. */
static alibi_status announce(alibi_device *device, const struct request *r, const char *dir,
                             const struct work *w, const struct alibi_call *call)
{
    const struct alibi_compare *c = &r->compare;
    int64_t models = w->forecast.models;
    const struct alibi_training *t = &r->training;
    struct alibi_config config;
    struct alibi_plan plan;
    char needed[BYTES_TEXT], available[BYTES_TEXT];
    int64_t free_bytes;
    double bytes;

    if (models == 0)
        return ALIBI_OK;
    TRY_RETURN(request_config(r, 0, &config));
    config.vocab = r->config.vocab;
    TRY_RETURN(plan_training(&plan, &config, t, &device->device, device->type, false));
    TRY_RETURN(folder_free_space(&free_bytes, dir));
    bytes = checkpoint_bytes(plan.parameters, t->optimizer) * ((double)w->checkpoints + 1);
    if (bytes > (double)free_bytes)
        return fail(ALIBI_IO,
                    "'%s' needs %s for the checkpoints of %lld models, and the disk has %s free; "
                    "make room, or use another --out",
                    dir, short_bytes(needed, (size_t)bytes), (long long)models,
                    short_bytes(available, (size_t)free_bytes));
    call_note(call,
              "to train: %lld of %d x %d models (methods x seeds), %lld steps each; to test: at %d "
              "lengths",
              (long long)models, c->methods.count, c->seeds.count, (long long)t->steps,
              c->lengths.count);
    return ALIBI_OK;
}

/* Counts a model if it has no result yet, and the checkpoints that it will add: of every model the
 * newest two stay. */
static alibi_status count_model(struct work *w, const struct request *r, int i, int k,
                                const char *dir)
{
    alibi_status status;
    const struct alibi_training *t = &r->training;
    char *run = NULL, *path = NULL;
    struct step_folder *folders = NULL;
    int count = 0, added = t->steps > t->save_every ? 2 : 1;

    TRY(request_folder(&run, r, i, k, dir));
    TRY(path_join(&path, run, NAME_RESULT));
    if (file_exists(path))
        goto out;
    if (folder_exists(run))
        TRY(step_folders(&folders, &count, run));
    for (int n = 0; n < count && added > 0; n++)
        added -= folders[n].complete;
    count_models(w, w->forecast.models + 1);
    w->checkpoints += added;
out:
    step_folders_free(folders, count);
    mem_free(run);
    mem_free(path);
    return status;
}

/* Counts the models without a result, the cost of training and testing them, and assigns each to a
 * rank. A model with a result, in which tests may be missing, goes to the rank of the next model
 * without one. */
static alibi_status count_work(struct work *w, const struct request *r, const alibi_corpus *corpus,
                               const char *dir, const alibi_comm *comm)
{
    const struct alibi_compare *c = &r->compare;
    const struct alibi_training *t = &r->training;
    double all = (double)corpus_span(corpus, ALIBI_VALID).count, scored = (double)c->eval_tokens;
    double sliding = (double)c->sliding_tokens, stream = (double)c->stream_tokens;

    scored = scored > 0 && scored < all ? scored : all;
    sliding = sliding < scored ? sliding : scored; /* whose windows read each token twice */
    stream = stream < all ? stream : all;          /* as one stream, and in windows */
    w->train_tokens =
        (double)t->batch * (double)t->train_length * (double)t->accumulate * (double)t->steps;
    w->valid_tokens = forecast_validation_tokens(corpus, t, 0);
    w->test_tokens = c->lengths.count * (scored + 2 * sliding) + 2 * stream;
    for (int n = 0; n < c->seeds.count * c->methods.count; n++) {
        int64_t before = w->forecast.models;

        TRY_RETURN(count_model(w, r, n % c->methods.count, n / c->methods.count, dir));
        w->mine[n] = before % comm_size(comm) == comm_rank(comm);
        w->seen = checksum(w->seen, &before, sizeof before);
        w->own += w->mine[n] ? w->forecast.models - before : 0;
    }
    return ALIBI_OK;
}

/* Models whose loss was not finite. */
struct failures {
    int count, first; /* the number of the first */
    char message[512];
};

/* Joins the failures of all ranks. */
static alibi_status join_failures(struct failures *f, alibi_comm *comm)
{
    alibi_status status;
    int size = comm_size(comm);
    struct failures *all = NULL;

    status = NEW_ZERO_ARRAY(&all, size, "the failures of ranks");
    TRY(comm_agree(comm, status));
    all[comm_rank(comm)] = *f;
    TRY(comm_collect(comm, all, sizeof *all));
    *f = (struct failures){ 0 };
    for (int k = 0; k < size; k++) {
        int count = f->count + all[k].count;

        if (all[k].count > 0 && (f->count == 0 || all[k].first < f->first))
            *f = all[k];
        f->count = count;
    }
out:
    mem_free(all);
    return status;
}

/* Only one model's results are in memory at a time: those of the others would count as memory of
 * its training. A model whose loss is not finite does not stop the others, and is tried again by
 * the same command. */
static alibi_status run_models(alibi_device *device, const struct request *r,
                               const alibi_corpus *corpus, const char *dir,
                               const struct alibi_call *call)
{
    alibi_comm *comm = call_comm(call);
    int methods = r->compare.methods.count, models = r->compare.seeds.count * methods;
    struct failures failed = { 0 };
    struct work work = { 0 };
    struct alone alone;
    alibi_status status = count_work(&work, r, corpus, dir, comm);

    if (status == ALIBI_OK)
        status = announce(device, r, dir, &work, call);
    TRY_RETURN(comm_agree(comm, status));
    TRY_RETURN(comm_same(comm, &work.seen, sizeof work.seen, "list of missing models"));
    count_models(&work, work.own);
    alone_begin(&alone, call);
    for (int n = 0; n < models && status == ALIBI_OK; n++) {
        struct alibi_compare_seed result = { 0 };
        int k = n / methods;

        if (!work.mine[n])
            continue;
        status = call_stopped(call) || call_stopped(&alone.call)
                     ? ALIBI_INTERRUPTED
                     : result_init(&result, r->compare.seeds.at[k], r->compare.lengths.count);
        if (status == ALIBI_OK)
            status = run_model(device, r, n % methods, k, corpus, dir, &result, &work, &alone.call);
        result_fini(&result);
        if (status == ALIBI_NUMERIC) {
            if (failed.count++ == 0) {
                failed.first = n;
                snprintf(failed.message, sizeof failed.message, "%s: %s",
                         r->compare.methods.at[n % methods], alibi_error());
            }
            status = ALIBI_OK;
        }
    }
    TRY_RETURN(alone_end(&alone, status));
    TRY_RETURN(join_failures(&failed, comm));
    if (failed.count == 0)
        return ALIBI_OK;
    return comm_agree(comm, fail(ALIBI_NUMERIC,
                                 "%s; %d of %d models have no result; the results of the others "
                                 "remain",
                                 failed.message, failed.count, models));
}

/* ---- results */

/* Reads the results of all models from the disk. */
static alibi_status collect(struct alibi_compare_result **out, alibi_device *device,
                            const struct request *r, const alibi_corpus *corpus, const char *dir,
                            const struct alibi_call *call)
{
    alibi_status status;
    struct alibi_compare_result *result = NULL;
    struct work work = { .forecast.said = true }; /* no work remains */
    const struct alibi_int_list *lengths = &r->compare.lengths;
    const struct alibi_eval eval = { .length = lengths->at[0],
                                     .tokens = r->compare.eval_tokens,
                                     .block = lengths->at[lengths->count - 1] };

    TRY(NEW_ZERO_ARRAY(&result, 1, "the comparison's results"));
    TRY(NEW_ZERO_ARRAY(&result->method, r->compare.methods.count, "the comparison's results"));
    request_describe(r, result);
    TRY(alibi_corpus_unigram(corpus, ALIBI_VALID, &eval, &result->unigram_nll));
    for (int i = 0; i < r->compare.methods.count; i++) {
        struct alibi_compare_method *m = &result->method[result->methods++];

        snprintf(m->name, sizeof m->name, "%s", r->compare.methods.at[i]);
        TRY(NEW_ZERO_ARRAY(&m->seed, r->compare.seeds.count, "the comparison's results"));
        for (int k = 0; k < r->compare.seeds.count; k++) {
            struct alibi_compare_seed *seed = &m->seed[m->seeds++];

            TRY(result_init(seed, r->compare.seeds.at[k], r->compare.lengths.count));
            TRY(run_model(device, r, i, k, corpus, dir, seed, &work, call));
        }
    }
    *out = result;
    result = NULL;
out:
    alibi_compare_free(result);
    return status;
}

static alibi_status write_report(const struct alibi_compare_result *result, const char *dir,
                                 const char *name,
                                 alibi_status (*format)(struct text *out,
                                                        const struct alibi_compare_result *r))
{
    alibi_status status;
    struct text text = { 0 };

    TRY(format(&text, result));
    TRY(file_replace_within(dir, name, &text));
out:
    text_free(&text);
    return status;
}

static alibi_status take_folder(const struct request *r, const alibi_corpus *corpus,
                                const char *dir, struct lock **lock)
{
    TRY_RETURN(corpus_check_folder(corpus, dir));
    TRY_RETURN(folder_create(dir));
    TRY_RETURN(folder_refuse_other(dir, FOLDER_COMPARISON)); /* before the lock leaves its file */
    TRY_RETURN(lock_take(lock, dir));
    return request_enter(r, dir);
}

/* Rank 0 makes `dir` the folder of the request; the other ranks compare their requests with it. */
static alibi_status enter(const struct request *r, const alibi_corpus *corpus, const char *dir,
                          struct lock **lock, alibi_comm *comm)
{
    bool root = comm_is_root(comm);

    TRY_RETURN(comm_agree(comm, root ? take_folder(r, corpus, dir, lock) : ALIBI_OK));
    TRY_RETURN(ranks_find(comm, dir, NAME_RECIPE));
    return comm_agree(comm, root ? ALIBI_OK : request_enter(r, dir));
}

static alibi_status write_reports(const struct request *r,
                                  const struct alibi_compare_result *result, const char *dir)
{
    TRY_RETURN(write_report(result, dir, NAME_RESULTS, report_json));
    TRY_RETURN(write_report(result, dir, "results.csv", report_csv));
    return page_write(r, result, dir, 0, NULL);
}

/* ---- the public interface */

alibi_status alibi_compare_run(alibi_device *device, const struct alibi_compare *compare,
                               const struct alibi_config *config,
                               const struct alibi_training *training, const alibi_corpus *corpus,
                               const char *dir, struct alibi_compare_result **out,
                               const struct alibi_call *call)
{
    alibi_status status;
    struct request request;
    struct lock *lock = NULL;
    struct alibi_compare_result *result = NULL;
    alibi_comm *comm = call_comm(call);
    struct alone alone;

    status = request_init(&request, compare, config, training, corpus);
    TRY(comm_agree(comm, status));
    TRY(enter(&request, corpus, dir, &lock, comm));
    TRY(run_models(device, &request, corpus, dir, call));
    alone_begin(&alone, call);
    if (comm_is_root(comm))
        status = collect(&result, device, &request, corpus, dir, &alone.call);
    if (comm_is_root(comm) && status == ALIBI_OK)
        status = write_reports(&request, result, dir);
    TRY(alone_end(&alone, status));
    *out = result;
    result = NULL;
out:
    if (status == ALIBI_INTERRUPTED)
        fail(status, "stopped; completed work is saved in '%s', and the same command resumes it",
             dir);
    alibi_compare_free(result);
    lock_release(lock);
    return status;
}

void alibi_compare_free(struct alibi_compare_result *result)
{
    if (!result)
        return;
    for (int i = 0; i < result->methods; i++) {
        for (int k = 0; k < result->method[i].seeds; k++)
            result_fini(&result->method[i].seed[k]);
        mem_free(result->method[i].seed);
    }
    mem_free(result->method);
    mem_free(result);
}

alibi_status alibi_compare_text(char **out, const struct alibi_compare_result *result, int columns,
                                bool colour)
{
    struct text text = { 0 };

    return text_give(&text, report_text(&text, result, columns, colour), out);
}

alibi_status alibi_compare_json(char **out, const struct alibi_compare_result *result)
{
    struct text text = { 0 };

    return text_give(&text, report_json(&text, result), out);
}
