/* read.h - shared by the files that read an experiment's file, see read.c */
#ifndef EXPERIMENT_READ_H
#define EXPERIMENT_READ_H

#include "experiment/experiment.h"

enum { READER_DEPTH = 12 };

/* The experiment that is being filled, and the path of keys to the member that is being read.
 * fill_numbers(), which is called before the sections are read, refuses a file whose members are so
 * deep that the path has no room for them. */
struct reader {
    alibi_experiment *e;
    const char *path[READER_DEPTH];
    char index[READER_DEPTH][24];
    int depth;
};

/* ---- members (read_members.c) */

/* The line of the deepest member of path[0..depth) that the JSON has, *found levels deep. The key
 * of a member of an array is its number. */
int place_line(const char *text, size_t length, const char *const *path, int depth, int *found);

void reader_enter(struct reader *r, const char *key);
void reader_enter_index(struct reader *r, size_t index);
void reader_leave(struct reader *r);

/* Puts file, line and key before the message of a failure. A key that a tier replaces is found
 * there. */
alibi_status at_place(const struct reader *r, alibi_status status);
/* The failure "`type` is expected" of a member. */
alibi_status fail_type(struct reader *r, const char *key, const char *type);

/* Every key of an object is one of those named. */
alibi_status reader_keys(struct reader *r, json_t *object, const char *const *names, int count);
#define KEYS(r, object, ...)                                                                       \
    reader_keys(r, object, (const char *const[]){ __VA_ARGS__ },                                   \
                (int)(sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *)))

/* A missing member leaves *out as it is. Lists are of whole numbers, each once. */
alibi_status reader_text(struct reader *r, const json_t *object, const char *key, const char **out);
alibi_status reader_int(struct reader *r, const json_t *object, const char *key, int64_t min,
                        int64_t max, int64_t *out);
alibi_status reader_real(struct reader *r, const json_t *object, const char *key, double *out);
alibi_status reader_list(struct reader *r, const json_t *object, const char *key, int64_t min,
                         int64_t max, struct alibi_int_list *out);

/* A name of a text, model or evaluation: it becomes the name of a file. */
alibi_status reader_name(struct reader *r, char out[ALIBI_NAME_MAX], const char *name);
/* Fails if there is no room for one more of `what`. */
alibi_status reader_count(struct reader *r, int count, const char *what);
/* The index of a name, or a failure that has the nearest; `names` are `size` bytes apart. */
alibi_status reader_find(struct reader *r, const char *name, const void *names, size_t size,
                         int count, const char *what, int *out);

/* ---- the file as it is to be run (read_tiers.c) */

/* Merges the tier that was asked for, and removes all of them. */
alibi_status apply_tier(struct reader *r, const char *tier);
/* Fills in the numbers of all texts within an object or array. */
alibi_status fill_numbers(struct reader *r, const json_t *numbers, json_t *json);

/* ---- sections. Each reads one member, whose key has been entered; claims are all read at once. */

alibi_status read_text(struct reader *r, const char *key, json_t *json);
alibi_status read_group(struct reader *r, const char *key, json_t *json);
alibi_status read_evaluation(struct reader *r, const char *key, json_t *json);
alibi_status read_claims(struct reader *r);

/* The options of a model: of its configuration, and of its training. */
void model_groups(struct alibi_option_group out[2], struct experiment_model *m);

/* The experiment.json of a folder names all blocks. In older ones all evaluations have the longest
 * length of all as their block, if they score as many tokens. */
void settle_old_blocks(alibi_experiment *e);

#endif
