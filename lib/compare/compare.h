/* compare.h - the parts of a comparison: its request, and the results of each method so far
 *
 *   dir/recipe.json          the request; text.json: its text and tokenizer (request.c)
 *   dir/<method>/            the training run, and result.json: its results so far (result.c)
 *   dir/<method>-seed-<n>/   the same for every seed after the first
 *   dir/results.json, results.csv, report.html   once every model is done (compare.c) */
#ifndef COMPARE_H
#define COMPARE_H

#include "text/text.h"

/* ---- request (request.c) */

struct request {
    struct alibi_compare compare;   /* lengths ascending, each once; seeds: at least one */
    struct alibi_config asked;      /* as given, with the training length set */
    struct alibi_config config;     /* resolved; its position is the first method's */
    struct alibi_training training; /* its seed is the first one */
    struct alibi_builtin builtin;   /* bytes == 0: the text is files */
    int64_t text, files; /* checksums of the corpus: all of it, and without a --valid text */
    int64_t tokenizer;   /* checksum of its tokenizer */
    int64_t ids;         /* of the tokenizer */

    /* For the report: what the text is, and the type of its tokenizer. */
    struct alibi_corpus_info info;
    bool own_valid;
    char type[ALIBI_NAME_MAX];
};

/* Checks everything that can be checked before hours of training. */
alibi_status request_init(struct request *r, const struct alibi_compare *compare,
                          const struct alibi_config *config, const struct alibi_training *training,
                          const alibi_corpus *corpus);

/* Makes `dir` the folder of this request. It may hold the same comparison with the first of these
 * seeds. ALIBI_BAD_INPUT names the first difference if it holds another comparison. */
alibi_status request_enter(const struct request *r, const char *dir);

/* The configuration of method i as asked, with derived values still 0. It can be resolved. */
alibi_status request_config(const struct request *r, int i, struct alibi_config *config);

/* The request of the comparison in a folder, without its text: the checksums are 0. Facts
 * of the text that older files lack are 0 or empty. */
alibi_status request_read(struct request *r, const char *dir);

/* The settings and the text of a result. */
void request_describe(const struct request *r, struct alibi_compare_result *result);

/* The folder of the model of method i and seed k (compare.c). mem_free. */
alibi_status request_folder(char **out, const struct request *r, int i, int k, const char *dir);

/* ---- result (result.c) */

/* Memory for an evaluation at each of `count` lengths, with and without a sliding window. It is
 * allocated at once, so that the peak memory of a training does not depend on progress. On failure
 * nothing is allocated. */
alibi_status result_init(struct alibi_compare_seed *s, int64_t seed, int count);
void result_fini(struct alibi_compare_seed *s);

alibi_status result_write(const struct alibi_compare_seed *s, const char *method, const char *path);

/* Reads into initialised results. ALIBI_BAD_INPUT if the file is damaged, belongs to another method
 * or seed or has other lengths than the first of these. Files of versions that had no seeds give
 * the cost of training and no evaluations. */
alibi_status result_read(struct alibi_compare_seed *s, const char *method,
                         const struct alibi_int_list *lengths, const char *path);

/* Whether all requested evaluations are done (compare.c). */
bool result_is_complete(const struct alibi_compare_seed *m, const struct alibi_compare *c);

/* ---- the page (page.c) */

/* Writes report.html with the results and the logs of all trainings. refresh: as in struct
 * report_training. *finished, if it is not NULL: every model is done. */
alibi_status page_write(const struct request *r, const struct alibi_compare_result *result,
                        const char *dir, int64_t refresh, bool *finished);

#endif
