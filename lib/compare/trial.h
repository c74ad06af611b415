/* trial.h - one model: trained, then tested, each step on disk before the next */
#ifndef TRIAL_H
#define TRIAL_H

#include "base/json.h"
#include "bench/bench.h"
#include "comm/comm.h"
#include "eval/eval.h"
#include "train/train.h"

/* One test of the trained model: an evaluation, or a probe if there is room for its result. */
struct trial_test {
    struct alibi_eval eval;
    struct alibi_targets targets; /* resolved; for `losses` */
    struct target_losses *losses;
    struct alibi_attention attention;     /* for `reach` */
    struct alibi_attention_result *reach; /* with room for the heads */
    struct alibi_tasks tasks;             /* one task, L and the lengths; for `answers` */
    struct alibi_task_result *answers;    /* a cell for each of the lengths */
    int64_t context;                      /* for `cost` */
    struct bench_stream *cost;            /* of a token after it */
    const alibi_corpus *corpus;           /* its validation split is scored */
    const char *name;                 /* in progress reports, after the length: "", " sliding" */
    struct alibi_eval_result *result; /* of an evaluation */
    int *done;                        /* counts it once it is done */
};

struct trial {
    alibi_device *device;
    const alibi_corpus *corpus;
    const struct alibi_call *call;
    struct forecast *forecast; /* of all models */
    const char *name;          /* of the model */
    const char *run;           /* its folder */
    char label[48];            /* after its tasks in progress reports: "", ", 3 of 33" */
    struct alibi_config config;
    struct alibi_training training;
    bool measured;        /* an earlier call has trained it: `cost` is known */
    const char *position; /* position of the tests; NULL: that of its training */
    struct alibi_fit fit; /* of a temperature before the tests; length 0: none */
    const alibi_corpus
        *fit_corpus; /* on its test split, or if that is too short its training split */
    char *fitted;    /* [ALIBI_NAME_MAX] the position that was found; "": not yet */
    struct alibi_compare_seed *cost;
    alibi_status (*save)(const struct trial *t); /* after the training and after each test */
    const void *user;
};

/* Trains the model, or what is missing of it, and does the tests in their order. A test at which
 * the method is not defined, or for which the text is too short, gets a result without tokens; a
 * probe leaves its result as it is. */
alibi_status trial_run(const struct trial *trial, const struct trial_test *tests, int count);

/* ---- models divided among ranks (ranks.c) */

/* The work of one rank between two points at which all synchronise. With one rank, `call` is that
 * of the caller. */
struct alone {
    struct alibi_call call; /* for the work: without ranks */
    const struct alibi_call *outer;
    alibi_comm *comm;
    struct alibi_stop stop;
    bool told; /* another rank has ended its work early */
    struct text warnings;
};
void alone_begin(struct alone *a, const struct alibi_call *call);
/* status: of this rank's work. If another rank failed, its failure. */
alibi_status alone_end(struct alone *a, alibi_status status);

/* ALIBI_IO if some rank does not see the file `name` of `dir`, which rank 0 has written. */
alibi_status ranks_find(alibi_comm *comm, const char *dir, const char *name);

/* ---- results as members of a JSON object (result.c)
 *
 * The cost of a training: seed, speed, memory, device, date. An evaluation; one without tokens is
 * read as result_none(). Numbers read back exactly. */
void result_write_cost(struct json_writer *w, const struct alibi_compare_seed *s);
void result_write_eval(struct json_writer *w, const struct alibi_eval_result *e);
alibi_status result_read_cost(const json_t *file, struct alibi_compare_seed *s, const char *path);
alibi_status result_read_eval(const json_t *object, int protocol, struct alibi_eval_result *e,
                              const char *path);

/* alibi_report_write() for the folder of a comparison or a run (page.c). */
alibi_status page_of_folder(const char *dir, int64_t refresh, bool *finished);

/* The entry of a length at which a method is not defined: no tokens, every number NaN. */
struct alibi_eval_result result_none(int64_t length);

#endif
