/* corpus.h - the corpus, for the files that make it (corpus.c) and read it (span.c) */
#ifndef CORPUS_H
#define CORPUS_H

#include "text/tasks.h"

enum { SPLITS = 3 };

/* The arguments that opened a corpus of files; count 0: none did (origin.c). */
struct origin {
    char **paths, *valid;
    int count;
    struct text reading; /* as a recipe has it */
};

/* After a failure too, the caller ends it with origin_fini. */
alibi_status origin_init(struct origin *o, const char *const *paths, int count, const char *valid,
                         const struct alibi_reading *reading);
void origin_fini(struct origin *o);
/* Whether the validation text is one of the other paths, or inside one, or has one inside. */
alibi_status origin_overlaps(const struct origin *o, bool *yes);

struct alibi_corpus {
    alibi_corpus **parts; /* of a mixture, which has no tokens of its own */
    double *shares;       /* of each; their sum is 1 */
    int part_count;       /* 0: not a mixture */
    bool borrows;         /* its first part belongs to the caller */
    struct task *task;    /* NULL: it is text; a task has no tokens of its own */
    struct origin origin;
    alibi_tokenizer *tokenizer;
    char *name;
    int64_t paths;            /* given, that of a validation text included */
    struct shards shards;     /* all tokens, in order */
    int64_t count;            /* of tokens */
    int64_t cuts[SPLITS + 1]; /* split s is tokens cuts[s]..cuts[s + 1] - 1 */
    uint32_t checksum;
    bool own_valid;               /* the validation split is a text of its own */
    uint32_t files_checksum;      /* of the tokens before it */
    struct alibi_builtin builtin; /* which it is; bytes == 0: none */
    bool indexed;         /* every shard is in an index: words and bytes are those of the indices */
    bool unknown;         /* some shards have no index, so that their documents are not known */
    int64_t documents;    /* of indices and of text */
    int64_t words, bytes; /* of indices */
};

const char *corpus_bytes(const alibi_corpus *c, int64_t i, size_t *bytes); /* of token i */
bool corpus_starts_line(const alibi_corpus *c, int64_t i);                 /* i > 0 */

#endif
