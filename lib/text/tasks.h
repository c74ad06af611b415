/* tasks.h - windows of synthetic tasks, whose answers only far context determines (tasks.c)
 *
 * A window is a function of (task, seed, use, number, length), for any tokenizer and any length. It
 * has the same form as a window of text: length + 1 tokens, of which all but the last are inputs
 * and all but the first are targets. */
#ifndef TASKS_H
#define TASKS_H

#include "text/text.h"

/* A task for a tokenizer. It never changes, and any number of threads may use one. */
struct task;

/* The index of the task of that name, or -1: names and summaries are those of alibi_task_name().
 * task_named() fails with ALIBI_USAGE and the names that there are. */
int task_find(const char *name);
alibi_status task_named(int *kind, const char *name);
/* ALIBI_BAD_INPUT if the tokenizer has too few ids, or none for the digits of a pass key. */
alibi_status task_new(struct task **out, int kind, const alibi_tokenizer *t);
void task_free(struct task *t); /* NULL is fine */
int task_kind(const struct task *t);
bool task_kind_needs_text(int kind); /* it hides something in text */

/* How its windows are used. */
struct task_traits {
    bool has_depth;  /* its answers have one */
    bool trains_all; /* on whole windows; otherwise on answers alone, because the rest is noise */
    bool answers_whole; /* an answer counts only as a whole; otherwise the share of right tokens */
    bool chain;         /* it is scored against task_bayes() */
};
struct task_traits task_traits(const struct task *t);

/* Windows of different uses have nothing in common. */
enum task_use { TASK_TRAIN, TASK_VALID, TASK_PROBE };

struct task_windows {
    const struct task *task;
    struct span text; /* to hide things in; corpus NULL: none */
    int64_t near;     /* the training length, which says how much is hidden */
    int64_t length;   /* inputs of a window */
    uint64_t seed;
    enum task_use use;
};

/* ALIBI_BAD_INPUT names the task that needs longer windows, more text or more ids. */
alibi_status task_check(const struct task_windows *w);

/* The targets first..first+count-1 of a window. depth: 0 the start of the window, 1 the end. */
struct task_answer {
    int64_t first, count;
    double depth;
};
enum { TASK_ANSWERS_MAX = 8, TASK_ANSWER_TOKENS = 32 }; /* the chain: one of `length` tokens */

/* inputs, targets [length]. Returns how many answers there are, in the order of the window; none
 * overlaps another. task_check() must have agreed. */
int task_window(const struct task_windows *w, int64_t number, int32_t *inputs, int32_t *targets,
                struct task_answer answers[TASK_ANSWERS_MAX]);
/* The other targets become -1: they are not scored. */
void task_keep_answers(const struct task_windows *w, const struct task_answer *answers, int count,
                       int32_t *targets);
/* The share of right answers of a model that knows the task and has not seen the window; for the
 * chain the loss of such a model. */
double task_chance(const struct task_windows *w);
/* The loss of each target of a chain under the best prediction there is, nll [length]. */
void task_bayes(const struct task_windows *w, const int32_t *targets, double *nll);

/* ---- tasks as corpora (corpus.c) */

/* A text and tasks to train on, as alibi_corpus_mix() has them: the tasks have their shares of the
 * windows, and the text, which the caller still owns, the rest. If there is no rest, the text is no
 * part of it. */
alibi_status corpus_mix_tasks(alibi_corpus **out, alibi_corpus *text,
                              const struct alibi_name_list *tasks, const double *shares);

/* Whether a corpus is a task, made by alibi_corpus_task(). */
bool corpus_is_task(const alibi_corpus *c);
/* The windows of part `i` of a corpus, which is a task. Things are hidden in the first text of the
 * mixture: in its training split, or in its validation split if that is the use. */
struct task_windows corpus_task_windows(const alibi_corpus *c, int i, enum task_use use,
                                        int64_t length, uint64_t seed);

#endif
