/* alibi.h - train language models on short inputs, test them on long ones
 *
 * This header is the whole public interface and its manual. The program `alibi` uses nothing else.
 *
 * Conventions
 *   - Every function that can fail returns an alibi_status and writes its results only on success. The reason, as one line
 *     that names the object, the reason and the place, is then in alibi_error().
 *   - The library never prints, exits or aborts. What a long call has to say goes through alibi_set_hooks().
 *   - Ownership follows the verb: what _new or _open returned is released with _free; _get and _view lend.
 *   - Letters in comments: B batch, L length, H heads, D head width, C model width, F feed-forward width, V vocabulary, N layers.
 *   - Same seed, same machine kind, same number of threads: same bits. */
#ifndef ALIBI_H
#define ALIBI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ALIBI_API __attribute__((visibility("default")))

/* ---- status -------------------------------------------------------------------------------------------------------- */

/* The values are the exit codes of the program, and will not change. */
typedef enum alibi_status {
    ALIBI_OK = 0,
    ALIBI_USAGE = 2,        /* an option that does not exist, or a value out of its range */
    ALIBI_BAD_INPUT = 3,    /* a file, a text or a configuration that cannot be used as it is */
    ALIBI_MEMORY = 4,       /* not enough memory */
    ALIBI_IO = 5,           /* reading, writing, locking or syncing failed */
    ALIBI_NUMERIC = 6,      /* a loss, gradient or weight that is not finite */
    ALIBI_DEVICE = 7,       /* the device asked for is not there or failed */
    ALIBI_INTERRUPTED = 75, /* stopped on request; training and comparison have saved what is done, and go on from there */
} alibi_status;

/* The message of the last failure in this thread, "" if there was none. Valid until the next failing call in this thread. */
ALIBI_API const char *alibi_error(void);

ALIBI_API const char *alibi_version(void);

/* ---- hooks: progress, log, stop ------------------------------------------------------------------------------------ */

struct alibi_progress {
    const char *task; /* "train alibi", "eval 1024" */
    const char *unit; /* what done and total count: "steps", "tokens" */
    int64_t done, total;
    double seconds, seconds_left;
    double tokens_per_s;
    double loss; /* NaN where there is none yet */
};

enum alibi_log_level { ALIBI_NOTE, ALIBI_WARNING };

struct alibi_hooks {
    void *user;
    void (*progress)(void *user, const struct alibi_progress *p);
    void (*log)(void *user, enum alibi_log_level level, const char *line);
};

/* Process-wide; NULL switches them off. The callbacks are called from the thread that called the library. */
ALIBI_API void alibi_set_hooks(const struct alibi_hooks *hooks);

/* Asks the training or comparison now running to save and return ALIBI_INTERRUPTED at its next step. Safe in a signal handler.
 * The request ends with the call, whichever way that ends; made between calls, it is for the next one. */
ALIBI_API void alibi_request_stop(void);
ALIBI_API bool alibi_stop_requested(void);

/* Some settings of the libraries below act only if they stand in the environment when a process starts. Puts those that matter
 * for speed there, where the user has not chosen. True: some were added, and a program that starts itself anew (execv) runs
 * faster. Not thread-safe: call it first in main(). */
ALIBI_API bool alibi_set_environment(void);

/* For tests: let the n-th allocation (file operation, gradient) from now on fail as if memory (the disk, the arithmetic) had;
 * n counts from 1, 0 switches the fault off. `how` is "memory", "file" or "nan". */
ALIBI_API alibi_status alibi_inject_fault(const char *how, int64_t n);

/* Bytes that the library holds now, and the most it held since alibi_memory_reset_peak(). */
ALIBI_API size_t alibi_memory_now(void);
ALIBI_API size_t alibi_memory_peak(void);
ALIBI_API void alibi_memory_reset_peak(void);

/* ---- options: one table serves flags, recipes, help and checks ------------------------------------------------------- */

enum { ALIBI_LIST_MAX = 32, ALIBI_NAME_MAX = 32 };

struct alibi_int_list {
    int count;
    int64_t at[ALIBI_LIST_MAX];
};

struct alibi_name_list {
    int count;
    char at[ALIBI_LIST_MAX][ALIBI_NAME_MAX];
};

enum alibi_option_type {
    ALIBI_OPTION_INT,    /* int64_t, min..max */
    ALIBI_OPTION_REAL,   /* double, min..max, finite */
    ALIBI_OPTION_FLAG,   /* bool; as a flag `--x`, `--no-x`; in JSON true, false */
    ALIBI_OPTION_TEXT,   /* char *, owned, NULL when not given */
    ALIBI_OPTION_NAME,   /* char[ALIBI_NAME_MAX] */
    ALIBI_OPTION_CHOICE, /* int, index into choices */
    ALIBI_OPTION_INTS,   /* struct alibi_int_list, each min..max; "64,128,256" or a JSON array */
    ALIBI_OPTION_NAMES,  /* struct alibi_name_list */
};

struct alibi_option {
    const char *name; /* "train-length"; recipes spell it "train_length" */
    enum alibi_option_type type;
    size_t offset;       /* of the value within the group's struct */
    double min, max;     /* for numbers */
    const char *choices; /* "layernorm|rmsnorm" for CHOICE */
    const char *initial; /* default, spelled as on the command line; NULL: zero, empty, NULL */
    const char *value;   /* how help names the value: "N", "DIR" */
    const char *help;    /* one line */
};

/* Some options and the struct that holds their values. */
struct alibi_option_group {
    const char *title;
    const struct alibi_option *options;
    int count;
    void *values;
};

/* Sets every value to its default. The structs need not be initialised. */
ALIBI_API alibi_status alibi_options_init(const struct alibi_option_group *groups, int count);
ALIBI_API void alibi_options_free(const struct alibi_option_group *groups, int count);

/* The option of that name (dashes and underscores are the same), or NULL; *group is where it was found. */
ALIBI_API const struct alibi_option *alibi_options_find(const struct alibi_option_group *groups, int count, const char *name,
                                                        const struct alibi_option_group **group);

/* Sets one value from text. ALIBI_USAGE: no such name (the nearest is named), not a number, out of range. */
ALIBI_API alibi_status alibi_options_set(const struct alibi_option_group *groups, int count, const char *name, const char *text);

/* Reads a recipe: a JSON object with the names of the options. ALIBI_BAD_INPUT names file, line and key. */
ALIBI_API alibi_status alibi_options_read(const struct alibi_option_group *groups, int count, const char *path);

/* Writes all values as a recipe, in the order of the tables, so that the same values give the same bytes. */
ALIBI_API alibi_status alibi_options_write(const struct alibi_option_group *groups, int count, const char *path);

/* Of `count` names the one nearest to `name` by edit distance, or NULL if none is near. */
ALIBI_API const char *alibi_nearest(const char *name, const char *const *names, int count);

/* ---- model configuration --------------------------------------------------------------------------------------------- */

enum alibi_norm { ALIBI_LAYERNORM, ALIBI_RMSNORM };
enum alibi_activation { ALIBI_GELU_TANH, ALIBI_GELU_ERF, ALIBI_RELU, ALIBI_SWIGLU };
enum alibi_rotary_layout { ALIBI_ROTARY_HALVES, ALIBI_ROTARY_PAIRS };

struct alibi_config {
    int64_t vocab; /* set from the tokenizer, not an option */
    int64_t layers, width, heads;
    int64_t kv_heads; /* 0: as many as heads */
    int64_t ff_width; /* 0: 4 * width */
    int norm;         /* enum alibi_norm */
    double norm_eps;
    int activation; /* enum alibi_activation */
    bool biases;    /* in linear layers and norms */
    bool tied;      /* the output layer is the embedding */
    bool embedding_norm;
    bool final_norm;
    double embedding_scale; /* factor on the embedding before positions are added; 0: sqrt(width) */
    char position[ALIBI_NAME_MAX];
    double bias_max;    /* alibi: the slopes end at 2^-bias_max */
    int64_t max_length; /* learned: rows of its table; 0: the training length */
    double rotary_base;
    int rotary_layout; /* enum alibi_rotary_layout */
    int64_t t5_buckets, t5_max_distance;
    int64_t train_length; /* what the model was trained at; going past it is allowed and noted. Set by training */
};

ALIBI_API const struct alibi_option *alibi_config_options(int *count);

/* Fills in what is 0 and checks that the parts fit together (ALIBI_USAGE names the option). */
ALIBI_API alibi_status alibi_config_resolve(struct alibi_config *config);

/* The position methods, in the order of their table: name and one-line summary, NULL past the end. */
ALIBI_API const char *alibi_position_name(int index, const char **summary);

/* ---- text ------------------------------------------------------------------------------------------------------------ */

typedef struct alibi_corpus alibi_corpus;

enum alibi_split { ALIBI_TRAIN, ALIBI_VALID, ALIBI_TEST, ALIBI_ALL };

struct alibi_corpus_info {
    int64_t documents, tokens, words, bytes;
    int64_t vocab;
};

/* Which built-in text. */
struct alibi_builtin {
    int64_t seed, bytes;
};

ALIBI_API const struct alibi_option *alibi_builtin_options(int *count);

/* The built-in corpus: text that a generator writes from the seed; `bytes` is its size, about. Split by document. ALIBI_USAGE if
 * either is out of the range that the options have. */
ALIBI_API alibi_status alibi_corpus_builtin(alibi_corpus **out, uint64_t seed, int64_t bytes);

/* UTF-8 text files, one document each, as bytes. The last twentieth of the text is the test split, the one before it the
 * validation split, cut at line ends where there are any. */
ALIBI_API alibi_status alibi_corpus_open(alibi_corpus **out, const char *const *paths, int count);
ALIBI_API void alibi_corpus_free(alibi_corpus *corpus);
ALIBI_API void alibi_corpus_get_info(const alibi_corpus *corpus, enum alibi_split split, struct alibi_corpus_info *info);

/* Writes the text of a split to a file, as it was read but for line ends: one is added between two documents where the first has
 * none of its own. A failure leaves the file as it was. */
ALIBI_API alibi_status alibi_corpus_write(const alibi_corpus *corpus, enum alibi_split split, const char *path);

/* ---- training -------------------------------------------------------------------------------------------------------- */

enum alibi_optimizer { ALIBI_ADAMW, ALIBI_NESTEROV };
enum alibi_schedule { ALIBI_COSINE, ALIBI_LINEAR, ALIBI_CONSTANT, ALIBI_WSD };

struct alibi_training {
    int64_t train_length, batch, accumulate, steps;
    int optimizer, schedule;
    double lr, min_lr;  /* min_lr: where the schedule ends */
    int64_t warmup;     /* steps from 0 to lr */
    double decay_share; /* wsd: the share of the steps at the end in which lr falls */
    double beta1, beta2, adam_eps, weight_decay, momentum;
    double clip;    /* largest gradient norm; 0: no clipping */
    double dropout; /* on the embedding and on each residual branch */
    int64_t seed;
    int64_t save_every; /* steps between checkpoints; the last step always saves */
};

ALIBI_API const struct alibi_option *alibi_training_options(int *count);

struct alibi_train_result {
    int64_t step;       /* steps done in all */
    int64_t parameters; /* numbers the model learns */
    double loss;        /* of the last step, nats per token */
    double seconds;     /* of all steps, earlier calls that this one resumed included */
    double tokens_per_s;
    size_t peak_bytes;
};

/* Trains into the folder `dir`: checkpoints `step-00000100/`, `recipe.json` with all options as asked, which names the built-in
 * text if it was that, and `log.jsonl` with a line per step. A folder that holds a comparison is an error.
 *
 * resume: continue from the newest checkpoint that verifies, bit for bit as if never stopped; with none, start. Without it a
 * folder that holds a run is an error. A second run into a folder in use is an error. SIGTERM and SIGINT are the caller's to
 * catch: alibi_request_stop() makes the call save and return ALIBI_INTERRUPTED.
 * A loss or gradient that is not finite ends the call with ALIBI_NUMERIC; nothing of that step is kept. */
ALIBI_API alibi_status alibi_train(const struct alibi_config *config, const struct alibi_training *training,
                                   const alibi_corpus *corpus, const char *dir, bool resume, struct alibi_train_result *result);

/* ---- models ---------------------------------------------------------------------------------------------------------- */

typedef struct alibi_model alibi_model;

/* Opens a checkpoint folder, or the newest checkpoint that verifies within a run's folder. */
ALIBI_API alibi_status alibi_model_open(alibi_model **out, const char *path);
ALIBI_API void alibi_model_free(alibi_model *model);
ALIBI_API const struct alibi_config *alibi_model_view_config(const alibi_model *model);
ALIBI_API int64_t alibi_model_parameters(const alibi_model *model);

/* What a checkpoint, a run's folder, a safetensors file, a text file or a comparison's folder is made of, for people or as JSON.
 * *out is freed with alibi_text_free. */
ALIBI_API alibi_status alibi_inspect(char **out, const char *path, bool json);
ALIBI_API void alibi_text_free(char *text);

/* ---- evaluation ------------------------------------------------------------------------------------------------------ */

enum alibi_protocol { ALIBI_NONOVERLAPPING, ALIBI_SLIDING };

struct alibi_eval {
    int64_t length; /* L_valid: tokens of context at most */
    int protocol;   /* enum alibi_protocol */
    int64_t stride; /* sliding: tokens scored per window, 1..length */
    int64_t tokens; /* score this many at most, not fewer than length; 0: all */
};

/* Mean loss of the targets at positions first..last of their windows (position 0 has one token of context). */
struct alibi_position_loss {
    int64_t first, last, tokens;
    double nll;
};

enum { ALIBI_POSITION_BINS = 64 };

struct alibi_eval_result {
    int64_t length, stride;
    int protocol;
    double nll;            /* mean negative log likelihood per token, nats */
    double standard_error; /* of nll, windows taken as independent */
    double ppl, word_ppl, bits_per_byte;
    int64_t tokens, words, bytes; /* scored */
    double seconds, tokens_per_s;
    size_t peak_bytes;
    int bins; /* loss by position, in bins that double */
    struct alibi_position_loss by_position[ALIBI_POSITION_BINS];
};

ALIBI_API alibi_status alibi_evaluate(alibi_model *model, const alibi_corpus *corpus, enum alibi_split split,
                                      const struct alibi_eval *eval, struct alibi_eval_result *result);

/* ---- generation ------------------------------------------------------------------------------------------------------ */

struct alibi_sampling {
    int64_t tokens;
    double temperature; /* 0: always the likeliest token */
    int64_t top_k;      /* 0: all */
    double top_p;       /* 1: all */
    uint64_t seed;
};

/* Continues `prompt`, handing each piece of text to `emit` as soon as it is whole characters; emit returns false to stop. */
ALIBI_API alibi_status alibi_generate(alibi_model *model, const char *prompt, size_t prompt_bytes,
                                      const struct alibi_sampling *sampling,
                                      bool (*emit)(void *user, const char *text, size_t bytes), void *user);

/* ---- the comparison: the main job ------------------------------------------------------------------------------------ */

struct alibi_compare {
    struct alibi_name_list methods;
    struct alibi_int_list lengths;
    int64_t eval_tokens;    /* tokens scored per method and length at most; 0: all of the validation split */
    int64_t sliding_tokens; /* of these scored with a sliding window too, where not fewer than the length; 0: none */
};

ALIBI_API const struct alibi_option *alibi_compare_options(int *count);

struct alibi_compare_method {
    char name[ALIBI_NAME_MAX];
    double train_tokens_per_s, train_seconds, train_loss;
    size_t peak_bytes;
    int64_t parameters;
    int lengths;
    struct alibi_eval_result by_length[ALIBI_LIST_MAX]; /* tokens == 0 where the method has no value: `learned` past its table */
    int sliding_lengths;                                /* as many as lengths, or 0 */
    struct alibi_eval_result sliding[ALIBI_LIST_MAX];   /* the same lengths with a sliding window, stride half the length */
};

struct alibi_compare_result {
    struct alibi_config config; /* of every method but for its position */
    struct alibi_training training;
    struct alibi_compare compare; /* as asked, the lengths ascending */
    struct alibi_corpus_info text;
    struct alibi_builtin builtin; /* the built-in text it was; bytes == 0: files */
    int methods;
    struct alibi_compare_method method[ALIBI_LIST_MAX];
};

/* Trains one model per method with the same data and seed, evaluates each at every length and writes results.json,
 * results.csv and report.html into `dir`, and recipe.json, which asks for the same again. A comparison that was stopped goes on
 * where it was; one that differs from what the folder holds is an error. */
ALIBI_API alibi_status alibi_compare_run(const struct alibi_compare *compare, const struct alibi_config *config,
                                         const struct alibi_training *training, const alibi_corpus *corpus, const char *dir,
                                         struct alibi_compare_result **out);
ALIBI_API void alibi_compare_free(struct alibi_compare_result *result);

/* The result as a table and a plot for a terminal of that many columns, with colour if asked for; freed with alibi_text_free. */
ALIBI_API alibi_status alibi_compare_text(char **out, const struct alibi_compare_result *result, int columns, bool colour);
ALIBI_API alibi_status alibi_compare_json(char **out, const struct alibi_compare_result *result);

/* ---- benchmarks ------------------------------------------------------------------------------------------------------ */

struct alibi_bench_step {
    int64_t parameters;
    double step_seconds; /* a whole training step: forward, backward, clipping, optimizer; the median of the repeats */
    double tokens_per_s;
    double step_gflops;    /* products of the step (linear layers and attention) / step_seconds */
    double product_gflops; /* what CBLAS reaches on the same linear products, alone, in the same run */
    double share;          /* step_gflops / product_gflops */
    size_t peak_bytes;
};

ALIBI_API alibi_status alibi_bench_train(const struct alibi_config *config, int64_t batch, int64_t length, int64_t repeats,
                                         struct alibi_bench_step *result);

/* Evaluates a fresh model of that configuration on one window of `length` random tokens. */
ALIBI_API alibi_status alibi_bench_eval(const struct alibi_config *config, int64_t length, double *seconds, size_t *peak_bytes);

#ifdef __cplusplus
}
#endif
#endif
