/* alibi.h - train language models on short inputs, test them on long ones
 *
 * This header is the whole public interface and its manual. The program `alibi` uses nothing else.
 *
 * Conventions
 *   - Every function that can fail returns an alibi_status and writes its results only on success.
 *     alibi_error() then has one line that says what failed, on which object, and why.
 *   - The library never prints, exits or aborts. A long call reports through the callbacks of its
 *     struct alibi_call, and stops when the call's stop flag says so.
 *   - Ownership follows the verb: an object from _new or _open is released with _free; _get copies
 *     into the caller's struct; _view returns a pointer that the object still owns.
 *   - Letters in comments: B batch, L length, H heads, D head width, C model width, F feed-forward
 *     width, V vocabulary, N layers.
 *   - The same seed on the same kind of machine with the same number of threads gives the same
 *     bits.
 *
 * Threads
 *   - The library has no process-wide state that a call changes, apart from the memory counters,
 *     which are atomic, and injected faults, which are for tests. alibi_error() is per thread.
 *   - The first device that is opened changes settings of the process: OpenMP's idle threads sleep
 *     from then on, and an OpenBLAS that does not know the CPU changes its kernels. Open a device
 *     before other threads use OpenBLAS or read the environment.
 *   - Any number of threads may use a tokenizer, a corpus or a model at once. alibi_model_fit() is
 *     the only function that changes one of them.
 *   - A session is used by one thread at a time. Only alibi_session_cancel() may be called from
 *     any thread.
 *   - A device may be shared. On the CPU, passes of different threads run at once; on a GPU they
 *     take turns. A benchmark must have its GPU to itself.
 *   - alibi_stop_request() may be called from any thread and from a signal handler. Callbacks run
 *     in the thread that made the call.
 *   - Two runs, comparisons or tokenizations into one folder exclude each other, in one process
 *     and between processes. */
#ifndef ALIBI_H
#define ALIBI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ALIBI_API __attribute__((visibility("default")))

/* ---- status */

/* The values are the exit codes of the program, and will not change. */
typedef enum alibi_status {
    ALIBI_OK = 0,
    ALIBI_USAGE = 2,        /* an option that does not exist, or a value out of range */
    ALIBI_BAD_INPUT = 3,    /* a file, a text or a configuration that cannot be used as it is */
    ALIBI_MEMORY = 4,       /* not enough memory */
    ALIBI_IO = 5,           /* reading, writing, locking or syncing failed */
    ALIBI_NUMERIC = 6,      /* a loss, gradient or weight that is not finite */
    ALIBI_DEVICE = 7,       /* the requested device does not exist or failed */
    ALIBI_INTERRUPTED = 75, /* stopped on request; alibi_error() says which work is kept */
} alibi_status;

/* The message of the last failure in this thread, "" if there was none. Valid until the next
 * failing call in this thread. */
ALIBI_API const char *alibi_error(void);

ALIBI_API const char *alibi_version(void);
ALIBI_API const char *alibi_commit(void); /* of the source; "" if not known */

/* The date and time now, in UTC: "2026-11-15T21:24:13Z". The environment variable
 * SOURCE_DATE_EPOCH, in seconds since 1970, replaces the clock, so that files can be reproduced
 * byte for byte. */
enum { ALIBI_DATE_MAX = 24 };
ALIBI_API void alibi_date(char date[ALIBI_DATE_MAX]);

/* ---- calls: progress, log, stop, skipping */

struct alibi_progress {
    const char *task; /* "train alibi", "eval 1024" */
    const char *unit; /* what done and total count: "steps", "tokens" */
    int64_t done, total;
    double seconds, seconds_left;
    double tokens_per_s;
    double loss;       /* NaN if there is none yet */
    double valid_loss; /* of the last validation; 0: none */
};

enum alibi_log_level { ALIBI_NOTE, ALIBI_WARNING };

/* A request to stop. The caller owns it and may use it for several calls. Initialise with {0}. */
struct alibi_stop {
    int requested; /* only through the functions below */
};

/* Safe in a signal handler and from any thread. The calls that were given `stop` save what they can
 * and return ALIBI_INTERRUPTED at their next step. */
ALIBI_API void alibi_stop_request(struct alibi_stop *stop);
ALIBI_API bool alibi_stop_requested(const struct alibi_stop *stop); /* NULL: false */

/* Processes that work on one model together: see "ranks" below. */
typedef struct alibi_comm alibi_comm;

/* The context of one call. Functions that may take long accept one as their last parameter. NULL
 * means no callbacks, no stop flag and no skipping. The library keeps no copy of it after the call,
 * so calls in different threads do not see each other. Callbacks run in the thread of the call. */
struct alibi_call {
    void *user;
    void (*progress)(void *user, const struct alibi_progress *p);          /* may be NULL */
    void (*log)(void *user, enum alibi_log_level level, const char *line); /* may be NULL */
    struct alibi_stop *stop;                                               /* may be NULL */
    double skip; /* attention's skipping budget: keys that together provably have less than this
                    share of a query's weight are skipped; 0: every pair is computed. Training has
                    its own option, because it shapes the result. */
    const char *events; /* may be NULL: alibi_train() writes event files for TensorBoard into this
                           folder; the training does not depend on them */
    /* May be NULL. Training, evaluation, probes, comparisons and experiments divide their work
     * among these processes, each of which makes the call. All of them return the same status and
     * result, unless the function says otherwise. */
    alibi_comm *comm;
};

/* For tests: from now on, makes the n-th allocation ("memory"), file operation ("file") or gradient
 * ("nan") fail. n counts from 1; 0 removes the fault. */
ALIBI_API alibi_status alibi_inject_fault(const char *how, int64_t n);

/* Bytes that the library has allocated: now, and the peak since alibi_memory_reset_peak(). */
ALIBI_API size_t alibi_memory_now(void);
ALIBI_API size_t alibi_memory_peak(void);
ALIBI_API void alibi_memory_reset_peak(void);

/* ---- ranks: processes that a launcher, mpirun or srun, has started to work together
 *
 * How many processes the launcher has started; 0: no launcher has started this one. Nothing is
 * connected. */
ALIBI_API int64_t alibi_comm_launched(void);

/* Connects this process with the others, through MPI, which is loaded at run time. Without a
 * launcher there is one rank, and nothing is loaded. ALIBI_DEVICE: there are others, but the
 * library that connects them, or one of its dependencies, is not installed. Call it once per
 * process. If the others do not answer for half a minute plus a quarter of a second per rank,
 * SIGALRM ends the process. If a rank stops responding later, the calls of the others fail with
 * ALIBI_IO. docs/cluster.md has examples.
 *
 * ALIBI_USAGE: the launcher has not connected its processes, or there are more than 512 of them.
 * After a failure that other ranks have too, *out is set: alibi_comm_get_info() then says which of
 * them should report it, and if they are connected, alibi_comm_free() waits until it has. `size` is
 * 1 if they are not. Otherwise *out stays as it was. */
ALIBI_API alibi_status alibi_comm_open(alibi_comm **out);
/* status: how the work ended. After a failure that the ranks have not agreed on, the others would
 * wait forever. The connection then stays open, so that the launcher ends them with this
 * process. */
ALIBI_API void alibi_comm_free(alibi_comm *comm, alibi_status status);

struct alibi_comm_info {
    int rank, size; /* of this process, from 0; number of processes */
    int local_rank; /* among those of this machine */
    bool agreed;    /* after a failure: another rank reports it if this one is not rank 0 */
    bool watched;   /* the failure of a rank's machine will be noticed */
};

ALIBI_API void alibi_comm_get_info(const alibi_comm *comm, struct alibi_comm_info *info);

/* All ranks call it at the same point of their work. Returns ALIBI_OK if all ranks pass it;
 * otherwise all get the first failure, and its message in alibi_error(). message: of a failure of
 * this rank; NULL: alibi_error(). */
ALIBI_API alibi_status alibi_comm_agree(alibi_comm *comm, alibi_status status, const char *message);

/* ---- options: one table serves flags, recipes, help and checks */

enum { ALIBI_LIST_MAX = 32, ALIBI_NAME_MAX = 192 };

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
    const char *value;   /* the name of the value in help: "N", "DIR" */
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

/* The option of that name (dashes and underscores are equal), or NULL; *group is the group that
 * contains it. */
ALIBI_API const struct alibi_option *alibi_options_find(const struct alibi_option_group *groups,
                                                        int count, const char *name,
                                                        const struct alibi_option_group **group);

/* Sets one value from text: 4096, 4k (k, M and G are powers of 1024), 2^12 or 1e6; 0.5, 2^-24 or,
 * if the maximum is at most 1, 50%; names in any case; lists with commas. ALIBI_USAGE: there is no
 * such option (the message suggests the nearest), or the value is not a number or out of range. */
ALIBI_API alibi_status alibi_options_set(const struct alibi_option_group *groups, int count,
                                         const char *name, const char *text);

/* Reads a recipe: a JSON object with the names of the options, and its version as "recipe": 1,
 * which may be missing. ALIBI_BAD_INPUT names file, line and key, or a version that is newer. */
ALIBI_API alibi_status alibi_options_read(const struct alibi_option_group *groups, int count,
                                          const char *path);

/* Writes all values as a recipe, in the order of the tables: the same values give the same
 * bytes. */
ALIBI_API alibi_status alibi_options_write(const struct alibi_option_group *groups, int count,
                                           const char *path);

/* The nearest of `count` names to `name`, or NULL if none is near: the name for which other
 * programs use `name`, the one with the least edit distance, or one that `name` begins or ends
 * with, or the reverse. */
ALIBI_API const char *alibi_nearest(const char *name, const char *const *names, int count);

/* ---- devices */

enum alibi_device_kind { ALIBI_DEVICE_AUTO, ALIBI_DEVICE_CPU, ALIBI_DEVICE_CUDA };
/* Q8_0, 8 bits with a scale for each 32 numbers, exists in GGUF files only. */
enum alibi_precision { ALIBI_PRECISION_AUTO, ALIBI_FP32, ALIBI_BF16, ALIBI_FP16, ALIBI_Q8_0 };
/* How a GPU chooses the algorithms of matrix products in training. Wide: the fastest of all. They
 * are found by timing, so two runs may differ by rounding. A run stores them in its checkpoints. */
enum alibi_autotune { ALIBI_AUTOTUNE_SAME_BITS, ALIBI_AUTOTUNE_WIDE };

/* Where models run, and in which precision. Device auto: an NVIDIA GPU if one can be used,
 * otherwise the CPU; the reason is logged if the machine has NVIDIA's driver. Precision auto: bf16
 * on a GPU, fp32 on the CPU, which supports no other. With bf16 the master weights, statistics,
 * sums, losses and biases of scores stay fp32. */
struct alibi_compute {
    int device;    /* enum alibi_device_kind */
    int precision; /* enum alibi_precision */
    int64_t gpu;   /* which GPU of several, from 0 */
    int autotune;  /* enum alibi_autotune */
};

ALIBI_API const struct alibi_option *alibi_compute_options(int *count);

/* A device in one precision. Functions that make, open, train, plan or time a model take one. It
 * must outlive the models on it. Several may be open at once, even on the same GPU. ALIBI_DEVICE:
 * the requested GPU cannot be used; the message says why: there is none, its driver is too old, or
 * the library that drives it is not installed.
 *
 * The first CPU device makes two settings for the process, unless the environment has them: idle
 * OpenMP threads sleep instead of spinning (OMP_WAIT_POLICY), and OpenBLAS, if it does not know the
 * CPU, uses the kernels for its vector unit (OPENBLAS_CORETYPE). */
typedef struct alibi_device alibi_device;

ALIBI_API alibi_status alibi_device_open(alibi_device **out, const struct alibi_compute *compute,
                                         const struct alibi_call *call);
ALIBI_API void alibi_device_free(alibi_device *device);

enum { ALIBI_DEVICE_NAME_MAX = 128 };

struct alibi_device_info {
    char name[ALIBI_DEVICE_NAME_MAX];    /* "cpu", "NVIDIA H200" */
    char machine[ALIBI_DEVICE_NAME_MAX]; /* with the processor: "AMD EPYC 7763, 8 threads" */
    bool gpu;
    size_t total_bytes, free_bytes; /* on the CPU: of the machine or of the cgroup */
    int precision;                  /* ALIBI_FP32 or ALIBI_BF16 */
};

ALIBI_API void alibi_device_get_info(const alibi_device *device, struct alibi_device_info *info);

ALIBI_API const char *alibi_precision_name(int precision); /* "fp32", "bf16" */

/* ---- model configuration */

enum alibi_norm { ALIBI_LAYERNORM, ALIBI_RMSNORM };
enum alibi_activation { ALIBI_GELU_TANH, ALIBI_GELU_ERF, ALIBI_RELU, ALIBI_SWIGLU };
enum alibi_rotary_layout { ALIBI_ROTARY_HALVES, ALIBI_ROTARY_PAIRS };

struct alibi_config {
    int64_t vocab; /* rows of the embedding; 0: as many as the tokenizer has ids; more: padding */
    int64_t layers, width, heads;
    int64_t kv_heads; /* 0: as many as heads */
    int64_t ff_width; /* 0: 4 * width */
    int norm;         /* enum alibi_norm */
    double norm_eps;
    int activation;               /* enum alibi_activation */
    bool biases;                  /* in linear layers and norms */
    bool qkv_biases, norm_biases; /* only in these, if biases is false */
    bool parallel; /* both branches of a block read its input and are added to it together */
    bool tied;     /* the output layer shares the weights of the embedding */
    bool embedding_norm;
    bool final_norm;
    bool qk_norm;           /* RMS norm of each head's queries and keys, before their positions */
    double embedding_scale; /* factor on the embedding before positions are added; 0: sqrt(width) */
    /* A method for all layers, "alibi" or "alibi:bias-max=16", or a pattern over the layers,
     * "3*rotary:window=64,none": docs/positions.md. The members from bias_max to t5_max_distance
     * are the defaults for methods that do not set them. */
    char position[ALIBI_NAME_MAX];
    double bias_max;    /* alibi: the slopes end at 2^-bias_max */
    bool train_slopes;  /* alibi: they start there, and are trained */
    int64_t max_length; /* learned: rows of the table; 0: the training length */
    double rotary_base;
    int rotary_layout; /* enum alibi_rotary_layout */
    int64_t t5_buckets, t5_max_distance;
    /* Adaptive input and softmax (Baevski, Auli 2019), for vocabularies whose ids are ordered by
     * falling frequency: the ids below the first cut-off form the head, those from each cut-off to
     * the next a tail. Embeddings of tail i have width / factor^i numbers. Empty: no clusters. The
     * logits of an adaptive model are log-probabilities. */
    struct alibi_int_list adaptive_cutoffs;
    int64_t adaptive_factor;
    int64_t train_length; /* set by training; longer inputs are allowed, with a note */
};

ALIBI_API const struct alibi_option *alibi_config_options(int *count);

/* Replaces values of 0 that mean "derived from the others", and checks that the options agree.
 * ALIBI_USAGE names the option. */
ALIBI_API alibi_status alibi_config_resolve(struct alibi_config *config);

/* Name and one-line summary of position method number `index`; NULL past the last. */
ALIBI_API const char *alibi_position_name(int index, const char **summary);
/* Name, summary and pattern of preset number `index`, a name for a pattern; NULL past the last. */
ALIBI_API const char *alibi_preset_name(int index, const char **summary, const char **pattern);

/* ---- text */

/* Text to token ids and back. */
typedef struct alibi_tokenizer alibi_tokenizer;

/* Opens a tokenizer.json (of ours, or of a BPE of Hugging Face's library), a folder with one, or a
 * folder with GPT-2's vocab.json and merges.txt. NULL or "bytes": the built-in one, which has an id
 * for each byte and one for the end of a document. A file with an unsupported feature is
 * ALIBI_BAD_INPUT, which names it.
 *
 * `end` names the token that ends a document; files, shards and checkpoints that are written with
 * this tokenizer store it. NULL: the token that the file says; else the one after the text of its
 * template; else the first of "<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>", "[EOS]",
 * "<|eos|>" among its added tokens; else its only special token. Without any of these, nothing
 * separates documents. */
ALIBI_API alibi_status alibi_tokenizer_open(alibi_tokenizer **out, const char *path,
                                            const char *end);
ALIBI_API alibi_status alibi_tokenizer_write(const alibi_tokenizer *t,
                                             const char *path); /* as tokenizer.json */
ALIBI_API void alibi_tokenizer_free(alibi_tokenizer *t);
/* "bytes", "bpe", "words", or "ids": numbers, for a model whose own tokenizer is not available. */
ALIBI_API const char *alibi_tokenizer_type(const alibi_tokenizer *t);
ALIBI_API int64_t alibi_tokenizer_vocab(const alibi_tokenizer *t); /* ids are 0..vocab-1 */
/* The ids before and after each document; -1: there is none. */
ALIBI_API int32_t alibi_tokenizer_begin(const alibi_tokenizer *t);
ALIBI_API int32_t alibi_tokenizer_end(const alibi_tokenizer *t);

/* Encoding returns the ids of a text of any bytes, without begin and end; free them with
 * alibi_ids_free(). Decoding returns the text of ids, followed by a 0 byte; free it with
 * alibi_text_free(). For bytes and BPE it is the encoded text, unless the tokenizer normalizes text
 * first. Ids outside 0..vocab-1 are ALIBI_BAD_INPUT. */
ALIBI_API alibi_status alibi_tokenizer_encode(const alibi_tokenizer *t, const char *text,
                                              size_t bytes, int32_t **ids, int64_t *count);
ALIBI_API alibi_status alibi_tokenizer_decode(const alibi_tokenizer *t, const int32_t *ids,
                                              int64_t count, char **text, size_t *bytes);
/* The same for ids that continue a text. It keeps the blank that some tokenizers put before a text
 * and that alibi_tokenizer_decode() removes. */
ALIBI_API alibi_status alibi_tokenizer_decode_more(const alibi_tokenizer *t, const int32_t *ids,
                                                   int64_t count, char **text, size_t *bytes);
ALIBI_API void alibi_ids_free(int32_t *ids);

/* How files are read as documents. Text is UTF-8; a byte-order mark at the start of a file is
 * skipped, and nothing else is changed. Files compressed with gzip or zstd are recognised by their
 * content, and files that are not text are refused by name. A folder means all files in it and in
 * its subfolders, in the order of their names; "-" means standard input. */
enum alibi_format { ALIBI_FORMAT_AUTO, ALIBI_FORMAT_TEXT, ALIBI_FORMAT_JSONL };

struct alibi_reading {
    int format;     /* enum alibi_format; auto: JSON lines for .jsonl and .ndjson, otherwise text */
    char *field;    /* JSON lines: the member with the text; NULL: "text" */
    char *document; /* text: a document is a "file" (or NULL), a "line", the lines between blank
                       lines ("blank-line"), or the text between separators: any other text, with
                       \n, \r, \t and \\ for these bytes */
};

ALIBI_API const struct alibi_option *alibi_reading_options(int *count);

/* A vocabulary learned from text. */
enum alibi_vocabulary_type { ALIBI_BPE, ALIBI_WORDS };

struct alibi_vocabulary {
    int type;          /* enum alibi_vocabulary_type */
    int64_t vocab;     /* at most this many ids; 0: 32000 for bpe, all for words */
    int64_t min_count; /* a rarer pair (or word) does not become a token */
    char *pattern; /* bpe: "gpt2" (or NULL), "bloom", "gpt4", or a regular expression that cuts text
                      into pieces; words: NULL */
};

ALIBI_API const struct alibi_option *alibi_vocabulary_options(int *count);

/* Deterministic: the same text gives the same tokenizer on any number of threads. */
ALIBI_API alibi_status alibi_tokenizer_train(alibi_tokenizer **out,
                                             const struct alibi_vocabulary *how,
                                             const char *const *paths, int count,
                                             const struct alibi_reading *reading,
                                             const struct alibi_call *call);

/* Counts of a tokenized text. Words are runs of bytes between white space. */
struct alibi_tokenize_result {
    int64_t documents, tokens, words, bytes;
    int64_t shards;
    double seconds; /* of this call */
    size_t peak_bytes;
};

/* Writes the tokens of a corpus of any size into the folder `dir`: shards of `shard_tokens` tokens
 * in llm.c's format, with 16-bit ids for vocabularies up to 65,536 and 32-bit ids beyond;
 * index.json with counts and checksums; tokenizer.json; and request.json with the arguments. `dir`
 * must not be inside a folder of `paths`. There are at most 50,000 shards. reading NULL: each file
 * is a document, as with `auto`.
 *
 * If the call was interrupted (by its stop flag, a kill or a power cut), the same call resumes
 * after the last finished shard, and the shards are byte for byte those of a call that was never
 * interrupted. The files must have the same size and time; standard input must provide the same
 * text again from its start, which is compared with the shards. Finished shards are verified before
 * anything is added.
 *
 * On a finished folder the same call does nothing and returns the same counts; with standard input
 * it is refused. A different request is ALIBI_BAD_INPUT, which names the difference; but if no
 * shard is finished, it takes over the folder. A folder with other files is also ALIBI_BAD_INPUT.
 * If the text cannot be read and no shard is finished, no new folder remains. */
ALIBI_API alibi_status alibi_tokenize(const alibi_tokenizer *t, const char *const *paths, int count,
                                      const struct alibi_reading *reading, int64_t shard_tokens,
                                      const char *dir, struct alibi_tokenize_result *result,
                                      const struct alibi_call *call);

/* Passes the ids to `ids` in order, as they are produced: a document, or a part of one, at a time.
 * `ends`: the document ends with these ids, which include its end id. A part is never longer than a
 * block of the text, so memory is bounded for documents of any size. Returning false ends the
 * call. */
ALIBI_API alibi_status alibi_tokenize_each(const alibi_tokenizer *t, const char *const *paths,
                                           int count, const struct alibi_reading *reading,
                                           bool (*ids)(void *user, const int32_t *ids,
                                                       int64_t count, bool ends),
                                           void *user, const struct alibi_call *call);

/* A text as tokens, in three splits. */
typedef struct alibi_corpus alibi_corpus;

enum alibi_split { ALIBI_TRAIN, ALIBI_VALID, ALIBI_TEST, ALIBI_ALL };

/* If only tokens are known and the vocabulary is of words, the documents are lines, because words
 * have no other end token. If the tokenizer has no end token, the number of documents in a split,
 * and in shards of other programs, is unknown: 0. */
enum { ALIBI_TEXT_NAME_MAX = 256 };

struct alibi_corpus_info {
    int64_t documents, tokens, words, bytes;
    int64_t vocab;
    int64_t checksum;               /* of all tokens of the corpus, for every split */
    char name[ALIBI_TEXT_NAME_MAX]; /* its first path, or "built-in text"; a long path is cut */
    int64_t paths;                  /* how many were given, including that of a validation text */
};

/* Which built-in text. ALIBI_BUILTIN_LEAST is the smallest size, with a short document for each
 * split. */
enum { ALIBI_BUILTIN_LEAST = 9000 };

struct alibi_builtin {
    int64_t seed, bytes;
};

ALIBI_API const struct alibi_option *alibi_builtin_options(int *count);

/* The built-in corpus: text that a generator makes from the seed, of about `bytes` bytes, split by
 * document. ALIBI_USAGE if either is out of the range of its option. `t` NULL: bytes. A corpus
 * keeps its tokenizer; the caller may free `t`. */
ALIBI_API alibi_status alibi_corpus_builtin(alibi_corpus **out, uint64_t seed, int64_t bytes,
                                            const alibi_tokenizer *t,
                                            const struct alibi_call *call);

/* Opens text files and folders of them, or token shards: folders written by alibi_tokenize(), .bin
 * files of llm.c, and folders of those. Text is tokenized into memory with `t` (NULL: bytes);
 * shards are mapped. Folders written by alibi_tokenize() contain their tokenizer, and `t` must be
 * NULL or the same; other shards need `t`. Every id is checked against the vocabulary.
 *
 * valid NULL: the last twentieth of the text is the test split and the one before it the validation
 * split, cut at line ends if there are any. Otherwise the validation split is that file or folder,
 * the training split is all of `paths`, and the test split is empty; a warning says if it is also
 * text to train on. */
ALIBI_API alibi_status alibi_corpus_open(alibi_corpus **out, const char *const *paths, int count,
                                         const char *valid, const alibi_tokenizer *t,
                                         const struct alibi_reading *reading,
                                         const struct alibi_call *call);
/* The same of texts in memory, each a document of bytes[i] bytes; empty ones are skipped. They are
 * not kept. A run that is trained on them does not store where they are, so a resumed one needs
 * them again. */
ALIBI_API alibi_status alibi_corpus_texts(alibi_corpus **out, const char *const *texts,
                                          const size_t *bytes, int64_t count,
                                          const alibi_tokenizer *t, const struct alibi_call *call);
/* ALIBI_BAD_INPUT if these bytes are not text in UTF-8. The message says what they are, if that is
 * known (a PDF, an image, UTF-16), and what to do; `name` is the name of their file. */
ALIBI_API alibi_status alibi_text_check(const char *text, size_t bytes, const char *name);
/* ALIBI_BAD_INPUT if the folder `dir`, which need not exist, is one of the folders `paths` or
 * `valid` (may be NULL), or inside one, and its files would be read as text too. Functions that
 * read a text and write to `dir` refuse it themselves; this is for programs that first read a large
 * text. */
ALIBI_API alibi_status alibi_text_check_folder(const char *const *paths, int count,
                                               const char *valid, const char *dir);
/* Name and one-line summary of synthetic task number `index`; NULL past the last. docs/tasks.md
 * explains them. summary may be NULL. */
ALIBI_API const char *alibi_task_name(int index, const char **summary);

/* The windows of a task to train on, alone or in a mixture; only training accepts them. Their
 * number is unlimited. Tasks that hide something in text need a text in the mixture; the first one
 * is used. ALIBI_USAGE lists the existing tasks, and ALIBI_BAD_INPUT names what the tokenizer
 * lacks. `t` as in alibi_corpus_builtin(). */
ALIBI_API alibi_status alibi_corpus_task(alibi_corpus **out, const char *name,
                                         const alibi_tokenizer *t);
/* Several corpora to train on, each with its share of the training windows; shares are relative to
 * their sum. They must have the same tokenizer, and none may be a mixture. Validation scores each
 * separately; the loss of the mixture is their mean, weighted by shares. Only training accepts a
 * mixture. On success it owns the parts. */
ALIBI_API alibi_status alibi_corpus_mix(alibi_corpus **out, alibi_corpus *const *parts,
                                        const double *shares, int count);
ALIBI_API void alibi_corpus_free(alibi_corpus *corpus);
ALIBI_API const alibi_tokenizer *alibi_corpus_view_tokenizer(const alibi_corpus *corpus);
ALIBI_API void alibi_corpus_get_info(const alibi_corpus *corpus, enum alibi_split split,
                                     struct alibi_corpus_info *info);

/* Writes the text of a split unchanged to a file, or to standard output if path is "-". The
 * exception is a document without a final line end that another follows: it gets one. A failure
 * leaves the file unchanged. */
ALIBI_API alibi_status alibi_corpus_write(const alibi_corpus *corpus, enum alibi_split split,
                                          const char *path);

/* ---- training */

enum alibi_optimizer { ALIBI_ADAMW, ALIBI_NESTEROV };
enum alibi_schedule { ALIBI_COSINE, ALIBI_LINEAR, ALIBI_CONSTANT, ALIBI_WSD };

/* The size of random weights. gpt2: N(0, 0.02), smaller for weights that add to the residual stream
 * and for wide tied embeddings. width: N(0, 1 / sqrt(width)) for all of these, so that the output
 * of a layer is as large as its input. Adaptive inputs and outputs start as fairseq's. */
enum alibi_init_scale { ALIBI_INIT_GPT2, ALIBI_INIT_WIDTH };

/* Activation checkpointing: what the backward pass recomputes. Only norms (none); also activation
 * functions, which saves more than a quarter of the memory (cheap); or whole blocks, keeping only
 * their inputs (block). Results are bit-exact, with one exception: cheap in bf16 recomputes from
 * rounded inputs, so only the loss is the same. */
enum alibi_recompute { ALIBI_RECOMPUTE_NONE, ALIBI_RECOMPUTE_CHEAP, ALIBI_RECOMPUTE_BLOCK };

/* The type of gradients that ranks send each other; their sums are fp32. */
enum alibi_wire { ALIBI_WIRE_FP32, ALIBI_WIRE_BF16 };

/* The transport between ranks. auto: NCCL if each rank has a GPU and the library is installed,
 * otherwise MPI through the host's memory. nccl: an error if it cannot be used. */
enum alibi_comm_by { ALIBI_COMM_AUTO, ALIBI_COMM_MPI, ALIBI_COMM_NCCL };

/* The memory that ranks divide: the state of the optimizer, or also the sums of gradients. In the
 * second case gradients are sent during each pass, and memory holds those of only one layer. */
enum alibi_shard { ALIBI_SHARD_OPTIMIZER, ALIBI_SHARD_GRADIENTS };

struct alibi_training {
    int64_t train_length, batch, accumulate, steps;
    int optimizer, schedule;
    double lr;          /* the peak; 0: a default for adamw and the width of the model */
    double min_lr;      /* at the end of the schedule */
    int64_t warmup;     /* steps from 0 to lr */
    double decay_share; /* wsd: share of the steps, at the end, in which lr falls */
    double beta1, beta2, adam_eps, weight_decay, momentum;
    double clip;               /* largest gradient norm; 0: no clipping */
    double dropout;            /* on the embedding and on each residual branch */
    double attention_dropout;  /* on the weights of attention, after the softmax */
    double activation_dropout; /* after the activation of the feed-forward layer */
    double adaptive_dropout;   /* on the projected input of each tail of an adaptive output layer */
    double skip;               /* attention's skipping budget, as in struct alibi_call */
    int64_t seed;
    int init_scale;         /* enum alibi_init_scale */
    bool deterministic_sum; /* gradients of passes are added in the order of their numbers, so that
                               any number of ranks gives the same bits */
    int wire;               /* enum alibi_wire */
    int64_t save_every;     /* steps between checkpoints; the last step always saves */
    int64_t eval_every;     /* steps between validations, and after the last step; 0: none */
    int64_t eval_tokens;    /* at most, per validation, spread over the split; 0: the whole split */
    bool keep_best;         /* keep the checkpoint with the lowest validation loss */
    int recompute;          /* enum alibi_recompute */
    int comm;               /* enum alibi_comm_by */
    int shard;              /* enum alibi_shard; sharded gradients imply deterministic_sum */
    char *init;             /* model to start from: a checkpoint or a run; NULL: random weights */
};

ALIBI_API const struct alibi_option *alibi_training_options(int *count);

/* The validation of one text of a mixture. */
struct alibi_text_loss {
    char name[ALIBI_TEXT_NAME_MAX]; /* of its file or folder; a second one is "name 2" */
    double share;                   /* of the training windows */
    double loss;                    /* mean, nats per token */
    int64_t tokens;                 /* scored */
};

struct alibi_train_result {
    int64_t step;       /* steps done, including those before a resume */
    int64_t parameters; /* learned numbers */
    double loss;        /* of the last step, nats per token */
    double seconds;     /* of all steps, including those before a resume */
    double tokens_per_s;
    size_t peak_bytes;
    int64_t valid_step;   /* of the last validation; 0: there was none */
    double valid_loss;    /* its mean loss, nats per token */
    int64_t valid_tokens; /* that it scored */
    int64_t best_step;    /* of the lowest validation loss; 0: none */
    double best_loss;
    /* A mixture: the last validation by text. 0: there was none in this call. */
    int valid_texts;
    struct alibi_text_loss valid_text[ALIBI_LIST_MAX];
    bool diverged; /* the loss is more than twice that of a model that has learned nothing */
};

/* Trains into the folder `dir`: checkpoints `step-00000100/`, `recipe.json` with all options as
 * requested (and the built-in text if it was used), `source.json` with the paths of the text, and
 * `log.jsonl` with a line per step and one per validation. A folder that holds a comparison, or
 * into which another process trains, is an error.
 *
 * resume: continue from the newest checkpoint that verifies, bit-exact as if never stopped; start
 * if there is none. Without it a folder that holds a run is an error. `steps` may differ from
 * before: the learning rate is a function of (step, steps), so from the next step on it follows the
 * schedule of the new total. If it changes, a note has the old and the new value.
 *
 * eval_every: the validation split is scored in windows of the training length, unless the split is
 * shorter than one window. keep_best: alibi_model_open() opens the checkpoint of the lowest
 * validation loss as `dir`/best.
 *
 * training->init: start from the weights of another model. The tokenizer must be the same. A tensor
 * of another shape is ALIBI_BAD_INPUT that names it; tensors that only one of the models has are
 * listed in a note, and new ones are initialised. A resumed run does not read it again.
 *
 * A stop request makes the call save and return ALIBI_INTERRUPTED; catching signals is up to the
 * caller. A loss or gradient that is not finite ends the call with ALIBI_NUMERIC; nothing of that
 * step is kept. A finite loss is not a failure, however large it is: see result->diverged. */
ALIBI_API alibi_status alibi_train(alibi_device *device, const struct alibi_config *config,
                                   const struct alibi_training *training,
                                   const alibi_corpus *corpus, const char *dir, bool resume,
                                   struct alibi_train_result *result,
                                   const struct alibi_call *call);

/* Checks what alibi_train() would refuse for any text: options that do not agree, a folder that
 * holds something else or is in use. This is for programs that first read a large text. Nothing is
 * written. */
ALIBI_API alibi_status alibi_train_check(const struct alibi_config *config,
                                         const struct alibi_training *training, const char *dir,
                                         bool resume);

/* Opens the text that the run in `run` is trained on, with the tokenizer of its checkpoint.
 * ALIBI_BAD_INPUT names a file that is no longer there, or the run if it is inside a folder of its
 * text. */
ALIBI_API alibi_status alibi_corpus_of_run(alibi_corpus **out, const char *run,
                                           const struct alibi_call *call);

/* The device memory that training needs, computed before anything is allocated. */
struct alibi_plan {
    int64_t parameters, batch, length; /* tokens of one pass: batch x length */
    size_t weights;      /* fp32 master weights, and in bf16 the copies that passes read; then each
                            of several ranks has a part of the masters */
    size_t weight_bytes; /* of one weight as passes read it: 4, in bf16 2 */
    size_t gradients, optimizer;
    size_t activations; /* kept for the backward pass */
    size_t passing;     /* gradients of activations, logits, tables: reused by every layer */
    size_t workspace;   /* of the operations themselves */
    size_t validation;  /* the passes of --eval-every, which are held at the same time */
    size_t total;
    size_t available; /* free on the device, or all that the machine has */
    bool fits;
    /* At this length, and at this batch; 0: none; -1: not known. */
    int64_t largest_batch, longest_input;
};

/* The plan for each of `ranks` ranks, which share the optimizer's state; 1: for one process.
 * ALIBI_USAGE: several ranks with ALIBI_AUTOTUNE_WIDE, which is for one. */
ALIBI_API alibi_status alibi_plan_training(alibi_device *device, const struct alibi_config *config,
                                           const struct alibi_training *training, int64_t ranks,
                                           struct alibi_plan *plan);

/* The same, with the same refusal, for a GPU that need not be in this machine, with `free_bytes` of
 * its memory free, in bf16. The workspace is an estimate. */
ALIBI_API alibi_status alibi_plan_gpu(const struct alibi_config *config,
                                      const struct alibi_training *training, int64_t ranks,
                                      size_t free_bytes, enum alibi_autotune autotune,
                                      struct alibi_plan *plan);

/* The cost of a step of several ranks, each on its own device. */
struct alibi_cluster_plan {
    int64_t passes;          /* of a rank in a step */
    int64_t exchanges;       /* of gradients: 1, or one per pass of a rank */
    double bytes;            /* that a rank sends in a step; it receives as many */
    double exchange_seconds; /* of the step, during which these bytes are sent */
    double step_seconds, tokens_per_s;
    double share; /* of `ranks` times the speed of one device */
};

/* link_gbps: Gbit/s of a rank in each direction. pass_seconds: of one pass, measured on one device;
 * 0: the times are 0. ALIBI_USAGE: the ranks cannot divide the passes of a step. */
ALIBI_API alibi_status alibi_plan_cluster(const struct alibi_plan *plan,
                                          const struct alibi_training *training, int64_t ranks,
                                          double link_gbps, double pass_seconds,
                                          struct alibi_cluster_plan *out);

/* ---- models */

typedef struct alibi_model alibi_model;

/* Opens a checkpoint folder, or the newest checkpoint that verifies within a run's folder RUN.
 * RUN/best is the one with the lowest validation loss, if the run keeps it. The model has its
 * fitted position (alibi_model_keep_fit()), if there is one. */
ALIBI_API alibi_status alibi_model_open(alibi_model **out, alibi_device *device, const char *path,
                                        const struct alibi_call *call);
/* The same with a position other than the trained one, such as "rotary:stretch=yarn:factor=8": for
 * tests, and for methods that change a trained model. The learned tensors of the position must have
 * the same shapes; ALIBI_USAGE says what does not fit. "trained": the trained position, without a
 * fitted temperature. */
ALIBI_API alibi_status alibi_model_open_as(alibi_model **out, alibi_device *device,
                                           const char *path, const char *position,
                                           const struct alibi_call *call);
ALIBI_API void alibi_model_free(alibi_model *model);

/* Writes the model into `dir`, which must be empty or not exist, as a checkpoint of its weights
 * alone, in fp32, bf16 or fp16 (enum alibi_precision). alibi_model_open() and training->init accept
 * it; training cannot resume from it. ALIBI_NUMERIC names a tensor that fp16 cannot hold. */
ALIBI_API alibi_status alibi_model_save(const alibi_model *model, const char *dir, int precision,
                                        const struct alibi_call *call);

/* Models of other programs (docs/exchange.md). Weights pass from file to file, so memory is bounded
 * by the largest tensor. */
enum alibi_foreign { ALIBI_HUGGING_FACE, ALIBI_GGUF };

struct alibi_exchanged {
    char family[ALIBI_NAME_MAX]; /* "bloom" */
    int64_t parameters;
    /* Export: the factor by which the embedding was multiplied and, if the output layer shares it,
     * the last norm divided; 1: nothing changed. */
    double embedding_scale;
    bool tokenizer; /* false: there is none that both sides can read; text of an import is then
                       token ids */
};

/* Reads a folder in the format of transformers (config.json, safetensors, tokenizer.json) and
 * writes a checkpoint of its weights, in their original types, into `dir`, which must be empty or
 * not exist. ALIBI_BAD_INPUT names an unsupported feature of the model or its files; a tokenizer
 * that cannot be read is a warning. */
ALIBI_API alibi_status alibi_import(const char *source, const char *dir,
                                    struct alibi_exchanged *result, const struct alibi_call *call);

struct alibi_export {
    int format;           /* enum alibi_foreign */
    int weights;          /* enum alibi_precision; auto: the type of each tensor */
    int64_t shard_bytes;  /* a larger file of weights is divided; 0: 5e9 */
    const char *position; /* as for alibi_model_open_as(); NULL: that of the model, as fitted */
};

/* Writes the model of a checkpoint or a run as one of the family that computes the same function.
 * If there is none, as for a model with a fitted temperature, ALIBI_BAD_INPUT says how the closest
 * family differs. */
ALIBI_API alibi_status alibi_export(const char *model, const struct alibi_export *how,
                                    const char *out, struct alibi_exchanged *result,
                                    const struct alibi_call *call);

/* The configuration of a model, without opening it. */
ALIBI_API alibi_status alibi_model_read_config(struct alibi_config *config, const char *path,
                                               const struct alibi_call *call);
/* The same for a model that starts from that one (struct alibi_training's init), before other
 * options are set: kv_heads is 0 if it is heads, and max_length is 0 unless positions are learned.
 * They then follow the new heads and train_length. */
ALIBI_API alibi_status alibi_model_read_start(struct alibi_config *config, const char *path,
                                              const struct alibi_call *call);
ALIBI_API const struct alibi_config *alibi_model_view_config(const alibi_model *model);
ALIBI_API const alibi_tokenizer *alibi_model_view_tokenizer(const alibi_model *model);
ALIBI_API int64_t alibi_model_parameters(const alibi_model *model);
/* The built-in text that a model was trained on, from the recipe.json of its run. bytes == 0: it
 * was trained on files, or is not in the folder of a run. */
ALIBI_API alibi_status alibi_model_get_builtin(const alibi_model *model,
                                               struct alibi_builtin *text);

/* The text of the run that the model is from: the first of its files; NULL: not known. *path is
 * released with alibi_text_free(). */
ALIBI_API alibi_status alibi_model_get_text(const alibi_model *model, char **path);

enum alibi_seen {
    ALIBI_UNSEEN,
    ALIBI_SEEN_PARTLY, /* the validation and the test split of this corpus were held out */
    ALIBI_SEEN,
};

/* Whether a model was trained on the text of a split, according to its run, by checksum and by
 * path: a file, and the folder that it is in, are the same text. The splits of the run's own text
 * that were held out are unseen. A model outside the folder of a run has seen nothing. */
ALIBI_API alibi_status alibi_model_has_seen(const alibi_model *model, const alibi_corpus *corpus,
                                            enum alibi_split split, enum alibi_seen *seen);

/* Describes a checkpoint, a run's folder, a safetensors file, a text file, a tokenizer, token
 * shards (every byte is verified) or the folder of a comparison, as text or as JSON. *out is
 * released with alibi_text_free(). */
ALIBI_API alibi_status alibi_inspect(char **out, const char *path, bool json,
                                     const struct alibi_call *call);
ALIBI_API void alibi_text_free(char *text);

/* ---- evaluation */

/* Stream: one pass in which every token has all of the text before it as context, for methods that
 * use only distances. The last three are protocols of other programs, so that results can be
 * compared with theirs: Hugging Face's guide to perplexity, llama.cpp's perplexity tool, and the
 * rolling log-likelihood of lm-evaluation-harness. They read the split, or its first `tokens`
 * tokens, as a whole. docs/evaluation.md has their rules. */
enum alibi_protocol {
    ALIBI_NONOVERLAPPING,
    ALIBI_SLIDING,
    ALIBI_STREAM,
    ALIBI_STRIDE,
    ALIBI_LLAMA_CPP,
    ALIBI_ROLLING
};

struct alibi_protocol_info {
    const char *name;         /* "nonoverlapping" */
    const char *first_tokens; /* how tokens without context are treated */
    const char *normaliser;   /* what the sum of losses is divided by */
    bool strided;             /* windows advance by a stride that the caller chooses */
};

/* NULL: there is no such protocol. */
ALIBI_API const struct alibi_protocol_info *alibi_protocol_view(int protocol);

struct alibi_eval {
    int64_t length; /* L_valid: at most this many tokens of context; not for streams */
    int protocol;   /* enum alibi_protocol */
    int64_t stride; /* sliding, stride: tokens by which windows advance, 1..length */
    /* tokens 0: the whole split is scored. Otherwise tokens / block blocks of `block` consecutive
     * tokens are scored, spread evenly over the whole split: the first is at its start, the last at
     * its end, and a single one in its middle. The choice of tokens depends only on the split,
     * tokens and block. So lengths score the same tokens if they use the same block, the longest
     * length. tokens may not be less than length; block is at most tokens. */
    int64_t tokens;
    int64_t block;   /* at least length; 0: the length */
    bool contiguous; /* the first `tokens` tokens as one block instead; a stream always scores so */
    bool verify; /* also compute the skipped weight in double precision, which takes longer than the
                    evaluation */
    /* Stream with alibi and skipping: keys that no query can reach with scores up to this are
     * evicted, which bounds memory; a larger score ends the call with ALIBI_NUMERIC. 0: all keys
     * stay. */
    double window_score;
    /* Any protocol: in every layer a token sees only the last `window` tokens, including itself, so
     * N layers see at most N (window - 1) tokens back. 0: all. */
    int64_t window;
    /* Several processes divide each window, instead of dividing whole windows among them, for
     * windows that are too long for one. Results equal those of one process up to rounding and the
     * skipping budget. Not with verify. */
    bool split_windows;
};

/* Mean loss of the targets at positions first..last of their windows (position 0 has one token of
 * context). */
struct alibi_position_loss {
    int64_t first, last, tokens;
    double nll;
};

/* The summed loss of some neighbouring tokens. */
struct alibi_eval_part {
    int64_t tokens;
    double nll;
};

enum { ALIBI_POSITION_BINS = 64, ALIBI_EVAL_PARTS = 64 };

struct alibi_eval_result {
    int64_t length, stride;
    int64_t window; /* as in struct alibi_eval; 0: none */
    int protocol;
    /* The scored tokens: `blocks` blocks of `block` tokens each, the first of them after `start` of
     * the `available` tokens of the split that can be scored (all but its first). */
    int64_t block, blocks, start, available;
    double nll;            /* mean negative log likelihood per token, nats */
    double standard_error; /* of nll, with the parts as independent units */
    double ppl, word_ppl, bits_per_byte;
    int64_t tokens, words, bytes; /* scored */
    double seconds, tokens_per_s;
    size_t peak_bytes;     /* of the process that needed the most */
    double tiles_used;     /* share of attention's tiles that were computed; 1 without skipping */
    double skipped_weight; /* verify: the largest share of a query's weight that was skipped */
    double attention_seconds;
    /* With split_windows: keys and values that processes sent to each other, and the amount if each
     * had needed all earlier ones. */
    int64_t sent_bytes, earlier_bytes;
    int bins; /* loss by position, in bins that double; bins without tokens are not listed */
    struct alibi_position_loss by_position[ALIBI_POSITION_BINS];
    /* The scored tokens in parts: blocks, or groups of neighbouring blocks if there are too many,
     * or equal stretches of each block if there are fewer than 8 blocks. Like the tokens they do
     * not depend on length, stride or model. 0: not known. */
    int parts;
    struct alibi_eval_part part[ALIBI_EVAL_PARTS];
};

ALIBI_API alibi_status alibi_evaluate(const alibi_model *model, const alibi_corpus *corpus,
                                      enum alibi_split split, const struct alibi_eval *eval,
                                      struct alibi_eval_result *result,
                                      const struct alibi_call *call);

/* Checks what alibi_evaluate() would refuse for any text, as alibi_train_check() does. */
ALIBI_API alibi_status alibi_eval_check(const alibi_model *model, const struct alibi_eval *eval,
                                        const struct alibi_call *call);
/* The same for this text, which may be too short for the length. */
ALIBI_API alibi_status alibi_eval_check_text(const alibi_corpus *corpus, enum alibi_split split,
                                             const struct alibi_eval *eval);

/* a->nll - b->nll and its standard error. The two are compared part by part, so the common
 * difficulty of a part does not count as an error. False, and both NaN, if they did not score the
 * same tokens or their parts are not known. The error is infinite if there is only one part. */
ALIBI_API bool alibi_eval_difference(const struct alibi_eval_result *a,
                                     const struct alibi_eval_result *b, double *difference,
                                     double *error);

/* The mean loss, on the tokens that `eval` scores, of a model that knows only the frequency of each
 * token in the training split. One is added to every count; in a large split 2^24 tokens are
 * counted, spread over it. A model that is no better has learned nothing about context. Under the
 * protocols of other programs it is the loss on the tokens that they read. */
ALIBI_API alibi_status alibi_corpus_unigram(const alibi_corpus *corpus, enum alibi_split split,
                                            const struct alibi_eval *eval, double *nll);

/* Which tokens were scored, in words: "64 blocks of 1024 tokens over the whole split". */
ALIBI_API void alibi_eval_describe(const struct alibi_eval_result *result, char *text,
                                   size_t bytes);

/* ---- a temperature, fitted to a trained model */

/* Queries that see n keys, more than the training length L, are multiplied by 1 + c ln(n / L). c is
 * chosen on text that the model was not trained on. It has the least loss at `length`, first in a
 * short list and then by golden-section search; it is 0 if the gain over 0 is less than 0.005 nats
 * or two standard errors. */
struct alibi_fit {
    int64_t length; /* of the windows; 0: four times the training length */
    int64_t tokens; /* scored for each c, as in struct alibi_eval; 0: the whole split */
};

enum { ALIBI_FIT_POINTS = 24 };

struct alibi_fit_point {
    double temperature; /* c */
    double nll, standard_error;
    double gain, gain_error; /* nll(0) - nll(c), paired: alibi_eval_difference() */
};

struct alibi_fit_result {
    int64_t length, tokens;
    int points, best;
    struct alibi_fit_point point[ALIBI_FIT_POINTS]; /* by ascending c, from 0 */
    bool at_edge; /* the best is the largest that was tried: a larger one might be better */
};

/* The model's position then has the best temperature: evaluations use it, and alibi_model_save()
 * writes it. The call changes the model's position, so no other thread may use the model
 * meanwhile. */
ALIBI_API alibi_status alibi_model_fit(alibi_model *model, const alibi_corpus *corpus,
                                       enum alibi_split split, const struct alibi_fit *how,
                                       struct alibi_fit_result *result,
                                       const struct alibi_call *call);
/* Writes the position as fitted.json into the folder of the model's checkpoint, which is opened
 * with that position from then on. A resumed run ignores it. If the position is the trained one, no
 * file is needed, and an existing one is removed. */
ALIBI_API alibi_status alibi_model_keep_fit(const alibi_model *model);
/* Checks whether alibi_model_save() could write into `dir` now, in fp32, or, if dir is NULL,
 * whether alibi_model_keep_fit() could write. Call it before work that would otherwise be lost. */
ALIBI_API alibi_status alibi_model_check_writable(const alibi_model *model, const char *dir);

/* ---- fixed targets: does a model use far context? */

/* The same target tokens are scored with growing context. They are blocks of consecutive tokens,
 * spread over documents, at least the longest context into their document. If nll(c) is the mean
 * loss after exactly c tokens, nll(L) - nll(c) is the gain of a context of c over one of L. Two
 * controls show the source of the gain: the context beyond L is swapped for that of another
 * document, and attention is cut to the last L keys. */
struct alibi_targets {
    int64_t length;                 /* L, the largest near context; 0: the training length */
    struct alibi_int_list contexts; /* none: L/2, L, 2L, 4L, 8L, 16L; L is always among them */
    int64_t blocks;                 /* at most this many */
    int64_t block; /* targets per block; 0: 128, or L/4 if that is less, because target number i of
                      a block has c + i tokens of context */
    int64_t gram;  /* a target repeats far text if the n-gram of this size that ends with it is in
                      the longest context, and not in the last L tokens before the block; 0: 3,
                      or 12 if the tokens are bytes */
    int64_t sinks; /* first tokens of the context that attention also sees when it is cut to the
                      last L; layers with gates see none */
};

ALIBI_API const struct alibi_option *alibi_targets_options(int *count);

/* The error is a bootstrap standard error; see alibi_targets_result. NaN: not measured. */
struct alibi_estimate {
    double value, error;
};

/* Nats per token. The gains are over nll(L), target by target. */
struct alibi_target_context {
    int64_t context; /* c */
    struct alibi_estimate nll;
    struct alibi_estimate gain;
    struct alibi_estimate step;    /* the gain over the next smaller context */
    struct alibi_estimate swapped; /* the gain that remains if the text beyond L is swapped */
    struct alibi_estimate content; /* gain - swapped: the use of the far text's content */
    struct alibi_estimate window;  /* the gain that remains if attention is cut to the last L */
    struct alibi_estimate beyond;  /* gain - window: the use of keys farther than L */
};

/* All targets, those that repeat far text, and the others. */
enum alibi_target_kind { ALIBI_ALL_TARGETS, ALIBI_REPEATS, ALIBI_OTHERS, ALIBI_TARGET_KINDS };

struct alibi_target_results {
    int64_t tokens; /* 0: the text has no such target */
    struct alibi_target_context at[ALIBI_LIST_MAX];
};

/* The verdict over all targets, from L to the longest context C. An effect counts if it is 0.005
 * nats or more and 0 is not in its 95% interval, which is Student's with units - 1 degrees of
 * freedom.
 *   breaks: nll(C) is above nll(L) by 0.01 nats or more, and 0 is not in the interval
 *   uses:   the gain counts, and so do the use of content and that of keys farther than L
 *   holds:  neither */
enum alibi_reach { ALIBI_BREAKS, ALIBI_HOLDS, ALIBI_USES };

/* "breaks", "holds" or "uses", and its rule in words; NULL: there is no such verdict. */
ALIBI_API const char *alibi_reach_name(int reach, const char **rule);

struct alibi_targets_result {
    struct alibi_targets request; /* resolved: ascending contexts */
    int64_t blocks, documents;    /* scored */
    int64_t short_documents;      /* skipped: no room for a block */
    /* The bootstrap draws documents, or blocks if there are fewer than 8 documents. Neighbouring
     * blocks are similar, so the error is then too small. */
    int64_t units;
    bool units_are_documents;
    int reach; /* enum alibi_reach; -1: no context is longer than L */
    struct alibi_target_results kind[ALIBI_TARGET_KINDS];
    double seconds;
    int64_t falls_to; /* every step from L up to this context gains, at 95%; L: none */
};

/* Checks what alibi_probe_targets() refuses for any text, such as a context that the position
 * method does not support. */
ALIBI_API alibi_status alibi_targets_check(const alibi_model *model,
                                           const struct alibi_targets *targets);
ALIBI_API alibi_status alibi_probe_targets(const alibi_model *model, const alibi_corpus *corpus,
                                           enum alibi_split split,
                                           const struct alibi_targets *targets,
                                           struct alibi_targets_result *result,
                                           const struct alibi_call *call);

/* ---- tasks: can a model reach far context? */

/* Synthetic tasks (alibi_task_name) at growing lengths, in windows that never occur in training.
 * docs/tasks.md explains the scores. */
enum { ALIBI_DEPTHS_MAX = 16 };

struct alibi_tasks {
    int64_t length;                /* L, at which a task must be learned; 0: the training length */
    struct alibi_int_list lengths; /* none: L, 2L, 4L, 8L, 16L; L is always among them */
    struct alibi_name_list tasks;  /* none: all that fit the lengths and the text */
    int64_t cases;                 /* windows of each task and length */
    int64_t depths;                /* equal parts of a window by which scores are listed */
    int64_t seed;
};

/* Without length and lengths, which commands already have. */
ALIBI_API const struct alibi_option *alibi_tasks_options(int *count);

enum alibi_cell {
    ALIBI_CELL_MEASURED,
    ALIBI_CELL_NOT_LEARNED,  /* past L and the training length, and the task is not learned */
    ALIBI_CELL_NO_POSITIONS, /* the position method ends before that length */
};

/* One task at one length. */
struct alibi_task_cell {
    int64_t length;
    int why; /* enum alibi_cell; the rest is 0 unless it was measured */
    int64_t cases;
    /* The share of right answers; for markov the learned share of what can be learned, where 1 is
     * Bayes' loss, and NaN if nothing can be, as in windows of two tokens. The error is over cases;
     * a single case has none (NaN). */
    struct alibi_estimate score;
    double low, high;                        /* its 95% interval (Wilson); NaN for markov */
    double nll;                              /* mean loss of the answers' tokens, nats */
    double bayes;                            /* markov: the lowest possible mean; NaN for others */
    int64_t depth_answers[ALIBI_DEPTHS_MAX]; /* by depth, from the start of the window */
    double depth_score[ALIBI_DEPTHS_MAX];    /* NaN: no answer at that depth */
    int bins;                                /* markov: loss by position, as for an evaluation */
    struct alibi_position_loss by_position[ALIBI_POSITION_BINS];
    double bayes_by_position[ALIBI_POSITION_BINS];
};

struct alibi_task_result {
    char name[ALIBI_NAME_MAX];
    bool learned;   /* the score at L, with the position of the training, is 0.95 or more */
    bool has_depth; /* depth_score has values */
    bool chain;     /* markov */
    double chance;  /* the score of guessing; for markov the loss of equal frequencies */
    struct alibi_estimate trained; /* that score, if the model has another position; or NaN */
    struct alibi_task_cell at[ALIBI_LIST_MAX]; /* for each of request.lengths */
};

struct alibi_tasks_result {
    struct alibi_tasks request; /* resolved: ascending lengths, the measured tasks */
    int tasks;
    struct alibi_task_result *task;
    double seconds;
};

/* Checks what alibi_probe_tasks() refuses for any text. */
ALIBI_API alibi_status alibi_tasks_check(const alibi_model *model, const struct alibi_tasks *tasks);
/* A named task that does not fit a length or the text is ALIBI_BAD_INPUT. If no task is named,
 * those that do not fit are skipped with a note. *out is released with alibi_tasks_free(). */
ALIBI_API alibi_status alibi_probe_tasks(struct alibi_tasks_result **out, const alibi_model *model,
                                         const alibi_corpus *corpus, enum alibi_split split,
                                         const struct alibi_tasks *tasks,
                                         const struct alibi_call *call);
ALIBI_API void alibi_tasks_free(struct alibi_tasks_result *result);

/* ---- attention by distance */

/* How far back each head looks, measured on a text: the weights of its keys, averaged over about
 * 512 queries in the second half of each window, so that every query has half a window before it.
 */
struct alibi_attention {
    int64_t length;  /* of a window; 0: the training length */
    int64_t near;    /* distances from here on are far; 0: the training length */
    int64_t windows; /* at most, spread over the split */
};

/* Means over queries. */
struct alibi_head_attention {
    double share[ALIBI_POSITION_BINS]; /* of the weight, by distance: bin 0 is the token itself, bin
                                          b > 0 the distances 2^(b-1) .. 2^b - 1 */
    double beyond;                     /* the share at distances of `near` and more */
    double distance;                   /* mean distance, weighted */
    double entropy;                    /* nats; log n if all n keys have the same weight */
};

struct alibi_attention_result {
    int64_t length, near, windows;
    int64_t queries; /* of each head */
    int64_t layers, heads;
    int bins;
    struct alibi_head_attention *head;   /* [layers, heads] */
    struct alibi_head_attention uniform; /* of a head that gives all keys the same weight */
    double seconds;
};

/* The weights are recomputed on the CPU, whichever the device. *out is released with
 * alibi_attention_free(). */
ALIBI_API alibi_status alibi_probe_attention(struct alibi_attention_result **out,
                                             const alibi_model *model, const alibi_corpus *corpus,
                                             enum alibi_split split,
                                             const struct alibi_attention *how,
                                             const struct alibi_call *call);
ALIBI_API void alibi_attention_free(struct alibi_attention_result *result);

/* ---- attention alone, on the caller's own tensors */

/* Causal attention with a linear bias, over tensors in the memory of the device: on the CPU any
 * memory of the process, on a GPU its own. Nothing is copied.
 *
 *   s(i, j) = scale q_i . k_j - slopes[h] (p - j),      j <= p = keys - queries + i
 *   y_i = sum_j softmax_j(s(i, j)) v_j,     lse_i = log sum_j exp(s(i, j))
 *
 * Queries are at the last positions of the keys, and query head h reads key/value head
 * h / (heads / kv_heads). Shapes and names are those of flash-attn. A call has one of three forms:
 *
 *   a batch       q [batch, queries, heads, head_width]
 *                 k and v [batch, keys, kv_heads, head_width]
 *   packed        sequences of different lengths, one after another: q [total_q, heads, head_width]
 *                 k and v [total_k, kv_heads, head_width]
 *   with a cache  decoding: q [batch, 1, heads, head_width]
 *                 k and v [cache_batch, keys, kv_heads, head_width]
 *                 Each row of the batch reads the filled part of one row of the cache. */

/* Numbers in the precision of the device, in one of these shapes. Each row of head_width numbers is
 * contiguous; strides are in numbers. */
struct alibi_rows {
    void *data;
    int64_t batch, position, head; /* strides; all 0: contiguous. Packed: batch is not read */
};

/* slopes, lse and dslopes are fp32, even if the device is in bf16. */
struct alibi_attend {
    int64_t batch, queries, keys; /* packed: the number of sequences, and the largest of each */
    int64_t heads, kv_heads, head_width;
    double scale;              /* 0: 1 / sqrt(head_width) */
    int64_t window;            /* a query sees at most this many keys, its own the last; 0: all */
    double skip;               /* alibi_attend()'s skipping budget; 0: every pair is computed */
    const float *slopes;       /* [heads]; NULL: no bias */
    bool batch_slopes;         /* slopes and dslopes are [batch, heads] instead */
    struct alibi_rows q, k, v; /* inputs, as are dy and, for alibi_attend_backward(), y and lse */
    struct alibi_rows y;       /* like q */
    float *lse;                /* [batch, heads, queries]; packed: [heads, total_q] */
    struct alibi_rows dy, dq, dk, dv;
    float *dslopes; /* like slopes; NULL: not wanted */

    /* Packed: sequence b has the queries cu_seqlens_q[b] .. cu_seqlens_q[b + 1] - 1, and keys by
     * cu_seqlens_k in the same way. Both [batch + 1], ascending from 0, in the memory of the
     * device; NULL: not packed. On a GPU every pair of packed sequences is computed, whatever
     * `skip` allows. */
    const int32_t *cu_seqlens_q, *cu_seqlens_k;
    int64_t total_q, total_k;

    /* With a cache: row b reads the first cache_seqlens[b] keys, which include its own, of row
     * cache_batch_idx[b] of the cache; NULL: of row b. Both [batch], in the memory of the device;
     * cache_seqlens NULL: no cache. */
    const int32_t *cache_seqlens, *cache_batch_idx;
    int64_t cache_batch;

    /* GPU: the caller's cudaStream_t; NULL: the default one. The call is queued in that stream and
     * returns before it is done. With a workspace nothing is allocated, and the call can be
     * captured in a CUDA graph; without one the device keeps its own memory between calls. */
    void *stream;
    void *workspace; /* aligned to ALIBI_WORKSPACE_ALIGNMENT; NULL: the device's own */
    size_t workspace_bytes;
};

enum { ALIBI_WORKSPACE_ALIGNMENT = 256 };

/* Bytes of workspace that such a call needs. They depend only on its sizes, so data may be absent,
 * except that of optional members. 0 on the CPU, where a call uses the heap and leaves nothing
 * there. */
ALIBI_API alibi_status alibi_attend_workspace(alibi_device *device, const struct alibi_attend *a,
                                              bool backward, size_t *bytes);

/* Writes y and lse. The CPU refuses wrong values of the four integer arrays. On a GPU the host
 * cannot read them in time: wrong values give wrong numbers, but no access outside the tensors. */
ALIBI_API alibi_status alibi_attend(alibi_device *device, const struct alibi_attend *a);

/* Computes the gradients of q, k, v and the slopes from y, lse and the gradient dy of y. Each
 * sequence must have as many queries as keys: cu_seqlens_k is not read. Every pair is computed,
 * whatever alibi_attend() skipped. */
ALIBI_API alibi_status alibi_attend_backward(alibi_device *device, const struct alibi_attend *a);

/* ---- sessions: one user of a model */

/* A session holds the KV cache of several sequences of tokens, and the buffers of its passes. The
 * model must outlive it. Sequences are numbered from 0; they start empty and grow independently.
 * Results for a sequence do not depend on the other sequences: it gets the same tokens as alone.
 *
 *   alibi_session_new(&s, model, NULL, call);
 *   alibi_session_feed(s, 0, prompt, prompt_tokens);
 *   for (i = 0; i < n; i++) {
 *       alibi_session_sample(s, 0, &sampling, i, &token);
 *       alibi_session_step(s, &(int64_t){ 0 }, &token, 1);
 *   } */
typedef struct alibi_session alibi_session;

struct alibi_session_options {
    int64_t sequences;   /* number of sequences; 0: 1 */
    double window_score; /* as in struct alibi_eval */
};

/* options NULL: one sequence. The session keeps the skipping budget and the stop flag of `call`.
 * The flag must outlive the session and stops every call on it. */
ALIBI_API alibi_status alibi_session_new(alibi_session **out, const alibi_model *model,
                                         const struct alibi_session_options *options,
                                         const struct alibi_call *call);
ALIBI_API void alibi_session_free(alibi_session *session);

/* Appends tokens to one sequence, a chunk at a time. On failure, and on ALIBI_INTERRUPTED, the
 * chunks that were read remain: alibi_session_length() returns their number of tokens. */
ALIBI_API alibi_status alibi_session_feed(alibi_session *session, int64_t sequence,
                                          const int32_t *tokens, int64_t count);

/* Appends one token to each of `count` different sequences, of any lengths, in one pass over the
 * model. On failure no sequence changes. */
ALIBI_API alibi_status alibi_session_step(alibi_session *session, const int64_t *sequences,
                                          const int32_t *tokens, int64_t count);

/* A token that might come next, and the natural logarithm of its probability. */
struct alibi_choice {
    int32_t id; /* -1: none */
    double logprob;
};

/* Feeds tokens, and computes the log-probability of each given all tokens before it; NaN for the
 * first token of an empty sequence, which nothing predicts. With alternatives > 0, choices [count *
 * alternatives] receives that many likeliest tokens at the position of each, likeliest first. */
ALIBI_API alibi_status alibi_session_score(alibi_session *session, int64_t sequence,
                                           const int32_t *tokens, int64_t count, double *logprobs,
                                           int alternatives, struct alibi_choice *choices);

/* Feeds tokens, and copies the logits after each of them into logits [count * vocab], where vocab
 * is that of the model's configuration. */
ALIBI_API alibi_status alibi_session_logits(alibi_session *session, int64_t sequence,
                                            const int32_t *tokens, int64_t count, float *logits);

struct alibi_sampling {
    double temperature; /* 0: always the likeliest token */
    int64_t top_k;      /* choose among this many likeliest tokens; 0: all */
    double top_p;       /* choose among the fewest likeliest tokens with this share; 1: all */
    uint64_t seed;
};

/* Chooses the token to follow a sequence, without feeding it. The random number is a function of
 * (seed, index), so the caller counts tokens in `index`. The result is always an id of the
 * tokenizer. */
ALIBI_API alibi_status alibi_session_sample(alibi_session *session, int64_t sequence,
                                            const struct alibi_sampling *sampling, uint64_t index,
                                            int32_t *token);

/* The logits [vocab] after the last token of a sequence, borrowed until the sequence changes; NULL
 * if it is empty. */
ALIBI_API const float *alibi_session_view_logits(const alibi_session *session, int64_t sequence);

ALIBI_API int64_t alibi_session_length(const alibi_session *session, int64_t sequence);
ALIBI_API void alibi_session_clear(alibi_session *session, int64_t sequence); /* empty again */

/* From any thread: the call that runs on this session, or else the next one, returns
 * ALIBI_INTERRUPTED within the time of a layer. Other sessions are not affected, and this one stays
 * usable. */
ALIBI_API void alibi_session_cancel(alibi_session *session);

/* ---- generation and scores */

struct alibi_prompt {
    const char *text; /* UTF-8; empty: the beginning of a document */
    size_t bytes;
};

struct alibi_generation {
    int64_t tokens;
    struct alibi_sampling sampling; /* prompt i is continued with seed + i */
    double window_score;            /* as in struct alibi_eval */
};

/* Continues several prompts at once. Each piece of text is passed to `emit` as soon as it consists
 * of whole characters, with the number of its prompt; emit returns false to end that
 * continuation. */
ALIBI_API alibi_status alibi_generate(const alibi_model *model, const struct alibi_prompt *prompts,
                                      int count, const struct alibi_generation *how,
                                      bool (*emit)(void *user, int which, const char *text,
                                                   size_t bytes),
                                      void *user, const struct alibi_call *call);

struct alibi_scores {
    int64_t count;                /* tokens of the text */
    int32_t *ids;                 /* [count] */
    double *logprobs;             /* [count] */
    int alternatives;             /* as requested */
    struct alibi_choice *choices; /* [count * alternatives]; NULL: none requested */
    int64_t scored;               /* tokens with a log-probability: count, or one less */
    double logprob;               /* the sum of these */
};

/* The log-probability of each token of a text after a prompt, which may be empty: then the text is
 * the beginning of a document. If the tokenizer has no begin token and no end-of-document token,
 * the first token of such a text has no log-probability. */
ALIBI_API alibi_status alibi_score(struct alibi_scores **out, const alibi_model *model,
                                   const char *prompt, size_t prompt_bytes, const char *text,
                                   size_t bytes, int alternatives, const struct alibi_call *call);
ALIBI_API void alibi_scores_free(struct alibi_scores *scores);

/* ---- the comparison: the main job */

struct alibi_compare {
    struct alibi_name_list methods;
    struct alibi_int_list lengths;
    struct alibi_int_list seeds; /* each method is trained once with each; none: training's seed */
    int64_t eval_tokens; /* at most, scored per method and length, spread over the validation split;
                            0: all of it */
    int64_t sliding_tokens; /* scored again with a sliding window, at most those of eval_tokens, at
                               lengths up to this number; 0: none */
    int64_t stream_tokens;  /* read again as one stream from the start of the validation split, at
                               most all of it; 0: none */
};

ALIBI_API const struct alibi_option *alibi_compare_options(int *count);

/* One training of a method, and the evaluations of the model. */
struct alibi_compare_seed {
    int64_t seed;
    double train_tokens_per_s, train_seconds, train_loss;
    size_t peak_bytes;
    int64_t parameters;
    /* Where its training was measured: "cpu", "NVIDIA H200"; "": not known, because an older
     * version trained it. The precision, ALIBI_FP32 or ALIBI_BF16, is known if the device is. */
    char device[ALIBI_DEVICE_NAME_MAX];
    int precision;
    /* As in struct alibi_device_info; the end of the training; the version. "": not known. */
    char machine[ALIBI_DEVICE_NAME_MAX], date[ALIBI_DATE_MAX], version[ALIBI_NAME_MAX];
    /* One evaluation per length. tokens == 0: the method has no value there, such as `learned` past
     * its table. */
    int lengths;
    struct alibi_eval_result *by_length;
    /* The same lengths with a sliding window whose stride is half the length; none if not
     * requested. */
    int sliding_lengths;
    struct alibi_eval_result *sliding;
    /* tokens == 0: not requested, or the method cannot stream (`learned`, `sinusoidal`). */
    struct alibi_eval_result stream;
    /* The tokens of the stream, a contiguous passage, in windows of the training length. tokens ==
     * 0: not requested, or it is shorter than a window. */
    struct alibi_eval_result passage;
};

struct alibi_compare_method {
    char name[ALIBI_NAME_MAX];
    int seeds;
    struct alibi_compare_seed *seed; /* in the order requested */
};

struct alibi_compare_result {
    struct alibi_config config; /* of every method, except its position */
    struct alibi_training training;
    struct alibi_compare compare; /* as requested, with ascending lengths and at least one seed */
    struct alibi_corpus_info text;
    char tokenizer[ALIBI_NAME_MAX]; /* its type: "bytes", "bpe", "words", "ids" */
    bool own_valid;                 /* the validation split is a separate text */
    struct alibi_builtin builtin;   /* which built-in text it is; bytes == 0: files */
    double unigram_nll; /* of token frequencies on the scored tokens (alibi_corpus_unigram); 0: not
                           known */
    int methods;
    struct alibi_compare_method *method;
};

/* Trains one model per method and seed with the same data, evaluates each at every length, and
 * writes results.json, results.csv, report.html and recipe.json, with which it can be repeated,
 * into `dir`. A stopped comparison resumes, and seeds can be added to an existing one.
 * ALIBI_BAD_INPUT if `dir` holds a different one. *out is released with alibi_compare_free(). Ranks
 * train whole models in `dir`, which all must see; only rank 0 has a result, *out is NULL
 * elsewhere. */
ALIBI_API alibi_status alibi_compare_run(alibi_device *device, const struct alibi_compare *compare,
                                         const struct alibi_config *config,
                                         const struct alibi_training *training,
                                         const alibi_corpus *corpus, const char *dir,
                                         struct alibi_compare_result **out,
                                         const struct alibi_call *call);
ALIBI_API void alibi_compare_free(struct alibi_compare_result *result);

/* Checks what alibi_compare_run() would refuse for any text, as alibi_train_check() does. */
ALIBI_API alibi_status alibi_compare_check(const struct alibi_compare *compare,
                                           const struct alibi_config *config,
                                           const struct alibi_training *training, const char *dir);

/* The result as tables and a plot for a terminal of `columns` columns, or as the JSON of
 * results.json. *out is released with alibi_text_free(). */
ALIBI_API alibi_status alibi_compare_text(char **out, const struct alibi_compare_result *result,
                                          int columns, bool colour);
ALIBI_API alibi_status alibi_compare_json(char **out, const struct alibi_compare_result *result);

/* ---- experiments: several models, their evaluations, and the claims that they check */

/* An experiment is a JSON file (docs/experiments.md). Opening it checks everything that needs
 * neither text nor device. tier: a variant of the experiment, such as "cpu"; NULL: as written.
 * ALIBI_BAD_INPUT names the file, the line and the key. Strings of the functions below are borrowed
 * from it. */
typedef struct alibi_experiment alibi_experiment;

ALIBI_API alibi_status alibi_experiment_open(alibi_experiment **out, const char *path,
                                             const char *tier);
ALIBI_API void alibi_experiment_free(alibi_experiment *e);

struct alibi_experiment_info {
    const char *name, *title, *about;
    const char *tier, *tier_about; /* the chosen tier; "": none */
    struct alibi_name_list tiers;  /* that the file has */
    int texts, evaluations, claims;
    int models, trainings; /* selected by alibi_experiment_select(), or all; trainings: models times
                              their seeds, without those that use the weights of another */
    int texts_read;        /* texts that models are trained or tested on; 0: tasks only */
    double train_tokens;   /* of these trainings */
};

ALIBI_API void alibi_experiment_get_info(const alibi_experiment *e,
                                         struct alibi_experiment_info *info);
/* The name of a text, and a description of it; NULL past the last. */
ALIBI_API const char *alibi_experiment_text_name(const alibi_experiment *e, int text,
                                                 const char **about);

/* Sets the location of a text: files, folders or shards, as for alibi_corpus_open(). name NULL: the
 * only text. Without this call the built-in text is used. count 0: only `valid` is set. */
ALIBI_API alibi_status alibi_experiment_set_text(alibi_experiment *e, const char *name,
                                                 const char *const *paths, int count,
                                                 const char *valid);

/* The next run trains and evaluates only these models, or groups of models, and measures only these
 * speed evaluations. */
ALIBI_API alibi_status alibi_experiment_select(alibi_experiment *e, const char *const *names,
                                               int count);

struct alibi_experiment_run {
    bool discard_checkpoints;     /* of each model, once all its evaluations are done */
    struct alibi_builtin builtin; /* which built-in text */
    struct alibi_reading reading; /* how text files are read */
};

/* Trains and evaluates what the folder `dir` does not hold yet, and writes results.json,
 * results.csv and report.html into it, after each model and at the end. A stopped run resumes. A
 * model whose evaluations are all done needs neither its checkpoints nor its text any more: the
 * JSON files of the folder are enough to continue on another machine. ALIBI_BAD_INPUT if the folder
 * holds models with other settings or of another text. Ranks train whole models in `dir`, which all
 * must see; at the end only rank 0 has the results of all. */
ALIBI_API alibi_status alibi_experiment_run(alibi_experiment *e, alibi_device *device,
                                            const struct alibi_experiment_run *how, const char *dir,
                                            const struct alibi_call *call);

/* The remaining work for each model, and in total. Nothing is trained, and no text is opened: sizes
 * that depend on an unknown text are the requested ones. */
struct alibi_experiment_plan_model {
    char name[ALIBI_NAME_MAX];
    int trainings; /* remaining seeds; 0 if it uses the weights of another model */
    int tested;    /* seeds that remain to be trained, or only tested */
    int64_t parameters, steps;
    double train_tokens, test_tokens; /* that one of them still reads, on average; 0: none remain */
    size_t memory, available;         /* of the device, as in struct alibi_plan */
    bool fits;
    size_t checkpoint; /* bytes of one on the disk */
    /* One training and its tests, and its part in speed evaluations, which have no training. 0: not
     * measured; NaN: requested, but its steps do not fit the device. */
    double seconds, speed_seconds;
};

struct alibi_experiment_plan {
    int models, trainings; /* selected by alibi_experiment_select(), or all */
    struct alibi_experiment_plan_model model[ALIBI_LIST_MAX];
    double train_tokens, test_tokens; /* of all trainings */
    double seconds, speed_seconds; /* of everything that fits, NaN: nothing; of speed evaluations */
    size_t disk, disk_discarded;   /* peak for checkpoints; and if they are discarded */
    /* Tests of whole texts: their tokens are estimated from the sizes of files; if these are
     * unknown too, they are not counted. */
    bool test_estimated, test_unknown;
};

/* time: a few steps of each model are measured on the device. */
ALIBI_API alibi_status alibi_experiment_make_plan(alibi_experiment *e, alibi_device *device,
                                                  const char *dir, bool time,
                                                  struct alibi_experiment_plan *plan,
                                                  const struct alibi_call *call);

/* The tier that a folder was run in, "" for none; *held: it holds an experiment. */
ALIBI_API alibi_status alibi_experiment_folder_tier(const char *dir, char tier[ALIBI_NAME_MAX],
                                                    bool *held);

/* Reads the results that a folder holds; alibi_experiment_run() does that first. Results with other
 * settings are ALIBI_BAD_INPUT; evaluations that the experiment no longer contains in this form are
 * ignored. A folder that does not exist has no results. */
ALIBI_API alibi_status alibi_experiment_load(alibi_experiment *e, const char *dir);

/* A claim holds if all its comparisons are shown, and does not hold if the contrary of one is
 * shown. It is not measured if only numbers are missing. Otherwise it is not shown, also if a model
 * has learned nothing. */
enum alibi_verdict {
    ALIBI_CLAIM_NOT_SHOWN,
    ALIBI_CLAIM_HOLDS,
    ALIBI_CLAIM_FAILS,
    ALIBI_CLAIM_NOT_MEASURED
};

struct alibi_claim {
    const char *claim, *where, *paper; /* where the paper says it, and what it reports */
    enum alibi_verdict verdict;
    bool few_seeds; /* every seed shows the verdict, but so few do not prove it for others */
};

ALIBI_API void alibi_experiment_get_claim(const alibi_experiment *e, int claim,
                                          struct alibi_claim *out);

/* Verdicts and tables of the results so far, for a terminal of `columns` columns, or as the JSON of
 * results.json. *out is released with alibi_text_free(). */
ALIBI_API alibi_status alibi_experiment_text(char **out, const alibi_experiment *e, int columns,
                                             bool colour);
ALIBI_API alibi_status alibi_experiment_json(char **out, const alibi_experiment *e);

/* ---- the report of a folder */

/* Writes report.html into the folder of a finished or unfinished comparison, experiment or training
 * run, from the results and training logs in the folder. For an experiment it also writes
 * results.json and results.csv. Nothing else in the folder changes, and a process that works there
 * is not disturbed. refresh: the page of unfinished work reloads itself after this many seconds; 0:
 * never. *finished: everything requested is done; for an experiment, everything its last run
 * requested. ALIBI_BAD_INPUT if the folder holds none of them. */
ALIBI_API alibi_status alibi_report_write(const char *dir, int64_t refresh, bool *finished);

/* Writes one page, the file `path`, of several training runs: their losses side by side, and the
 * options in which they differ. *finished: all runs are. At most ALIBI_LIST_MAX of them. */
ALIBI_API alibi_status alibi_report_runs(const char *const *dirs, int count, const char *path,
                                         int64_t refresh, bool *finished);

/* ---- benchmarks */

enum { ALIBI_BENCH_TEXT_MAX = 96 };

enum { ALIBI_BENCH_PARTS = 32 };

/* The time of one kind of operation in a step. */
struct alibi_bench_part {
    char name[ALIBI_NAME_MAX];
    double seconds;
};

struct alibi_bench_step {
    int64_t parameters;
    double step_seconds; /* forward, backward, clipping and optimizer; median of the repeats */
    double tokens_per_s;
    double step_gflops;    /* products of linear layers and attention / step_seconds */
    double model_gflops;   /* by the usual formula: 6 P + 6 N L C per token, P with embeddings */
    double product_gflops; /* of the matrix library alone, on the same linear products */
    double share;          /* step_gflops / product_gflops */
    double step_joules;    /* energy of the GPU in a step, mean of the repeats; NAN: unknown */
    double clock_hertz;    /* of its multiprocessors, mean of readings after each step; or NAN */
    size_t peak_bytes;     /* of the device's memory */
    int parts;             /* times by kind of operation; 0: unknown (the CPU) */
    struct alibi_bench_part part[ALIBI_BENCH_PARTS];
};

ALIBI_API alibi_status alibi_bench_train(alibi_device *device, const struct alibi_config *config,
                                         int64_t batch, int64_t length, int64_t repeats,
                                         int recompute, double skip,
                                         struct alibi_bench_step *result,
                                         const struct alibi_call *call);

/* The same step for several position methods instead of config's own: one model per method, all in
 * memory at once. Each of `repeats` rounds takes one step of every method, in alternating order.
 * The clock of a device varies more than methods differ, but not within a round, so the ratios
 * within a round are reliable. A method may be listed twice to show the noise. */
struct alibi_bench_method {
    char name[ALIBI_NAME_MAX];
    double step_seconds; /* median over the rounds */
    double tokens_per_s;
    double ratio;                 /* to the first method's step in the same round: median */
    double ratio_low, ratio_high; /* the quartiles of the ratio */
};

/* results [methods->count] */
ALIBI_API alibi_status alibi_bench_methods(alibi_device *device, const struct alibi_config *config,
                                           const struct alibi_name_list *methods, int64_t batch,
                                           int64_t length, int64_t repeats, int recompute,
                                           double skip, struct alibi_bench_method *results,
                                           const struct alibi_call *call);

/* Evaluates a fresh model of that configuration on one window of `length` random tokens. */
ALIBI_API alibi_status alibi_bench_eval(alibi_device *device, const struct alibi_config *config,
                                        int64_t length, double *seconds, size_t *peak_bytes,
                                        const struct alibi_call *call);

/* Decoding: a step appends one token to each of several sequences of different lengths. */
struct alibi_bench_decode {
    int64_t parameters;
    double step_seconds; /* the median of the repeats */
    double tokens_per_s; /* of all sequences */
    size_t peak_bytes;
};

ALIBI_API alibi_status alibi_bench_decode(alibi_device *device, const struct alibi_config *config,
                                          int64_t sequences, int64_t length, int64_t repeats,
                                          double skip, struct alibi_bench_decode *result,
                                          const struct alibi_call *call);

/* Attention alone, on random numbers. */
struct alibi_bench_attention {
    int64_t batch, heads, kv_heads, head_width, repeats;
    bool alibi;   /* with ALiBi's slopes, otherwise without a bias */
    double skip;  /* the budget; 0: every pair is computed */
    double score; /* approximate |q| |k| / sqrt(head width) */
    bool backward, decode;
    bool verify; /* also compute skipped_weight, pair by pair in double precision */
};

struct alibi_bench_attention_result {
    int64_t length;
    double forward_seconds, backward_seconds; /* backward alone; 0 if not requested */
    double decode_seconds;                    /* of one token after length - 1 others */
    double forward_gflops, backward_gflops;   /* of the pairs that were computed */
    double used;                              /* share of the tiles that were computed */
    double skipped_weight; /* the largest share of a query's weight that was skipped */
    size_t forward_peak_bytes, peak_bytes;
};

ALIBI_API alibi_status alibi_bench_attention(alibi_device *device,
                                             const struct alibi_bench_attention *how,
                                             int64_t length,
                                             struct alibi_bench_attention_result *result,
                                             const struct alibi_call *call);

/* Attention alone, on the queries, keys and values of the layers of a model in a pass over `batch`
 * windows of the text, with the bias, window and scale of each layer. Heads, head_width, alibi and
 * score are not read. results [layers + 1]: for every layer, then for all together, with summed
 * times. every_pair: the same with skip 0, measured alternately; NULL: not measured. Peaks include
 * the model and its pass. The time of sinks is not included. */
ALIBI_API alibi_status alibi_bench_model_attention(
    const alibi_model *model, const alibi_corpus *corpus, enum alibi_split split,
    const struct alibi_bench_attention *how, int64_t length,
    struct alibi_bench_attention_result *results, struct alibi_bench_attention_result *every_pair,
    const struct alibi_call *call);

/* One operation of the library alone, at one realistic size. */
struct alibi_bench_op {
    char operation[ALIBI_BENCH_TEXT_MAX]; /* "attention_backward" */
    char sizes[ALIBI_BENCH_TEXT_MAX];     /* "B=2 Lq=2048 Lk=2048 H=12 Hkv=12 D=64 T=1 alibi" */
    double seconds;                       /* of a call: the median */
    double gflops;                        /* 0: the operation is bound by memory */
    double gbytes; /* of its operands per second, as if each were read once */
};

/* Times entry `index` of 0..alibi_bench_op_count()-1. repeats 0: only the names are filled in. */
ALIBI_API int alibi_bench_op_count(void);
ALIBI_API alibi_status alibi_bench_op(alibi_device *device, int index, int64_t repeats,
                                      struct alibi_bench_op *result, const struct alibi_call *call);

#ifdef __cplusplus
}
#endif
#endif
