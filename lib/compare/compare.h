/* compare.h - the parts of a comparison: what was asked for, and what each method has shown so far
 *
 *   dir/recipe.json          what was asked, text.json: of which text and tokenizer (request.c)
 *   dir/<method>/            the training run, and result.json: what is measured so far (result.c)
 *   dir/results.json, results.csv, report.html   once every method is done */
#ifndef COMPARE_H
#define COMPARE_H

#include "text/text.h"

/* ---- request (request.c) */

struct request {
    struct alibi_compare compare; /* lengths ascending, each once */
    struct alibi_config asked;    /* as given, but for what the text and the training say */
    struct alibi_config config;   /* resolved; its position is the first method's */
    struct alibi_training training;
    struct alibi_builtin builtin; /* bytes == 0: the text is files */
    int64_t text,
        files; /* checksums of the corpus: all of it, and without a validation text of its own */
    int64_t tokenizer; /* of its tokenizer */
};

/* Checks everything that can be checked before hours of training. */
alibi_status request_init(struct request *r, const struct alibi_compare *compare,
                          const struct alibi_config *config, const struct alibi_training *training,
                          const alibi_corpus *corpus);

/* Makes `dir` the folder of this request: ALIBI_BAD_INPUT names the first difference if it holds
 * another one. */
alibi_status request_enter(const struct request *r, const char *dir);

/* The configuration of method i, as asked: what was left to be derived is not resolved. It can be.
 * */
alibi_status request_config(const struct request *r, int i, struct alibi_config *config);

/* ---- result (result.c) */

/* The entry of a length at which a method is not defined: no tokens, every number NaN. */
struct alibi_eval_result result_none(int64_t length);

alibi_status result_write(const struct alibi_compare_method *m, const char *path);

/* ALIBI_BAD_INPUT unless the file is, byte for byte, one that result_write wrote for that method
 * with the first of these lengths. One of before there were streams, or of before devices were
 * named, gives what training took, and no evaluations. */
alibi_status result_read(struct alibi_compare_method *m, const char *name,
                         const struct alibi_int_list *lengths, const char *path);

#endif
