/* base.h - the foundation of every room: errors, sizes, memory, text, files, threads, random
 * numbers, calls
 *
 * The rest of the library reaches the operating system only through this room, so that every
 * failure can be injected. */
#ifndef BASE_H
#define BASE_H

#include <stdarg.h>
#include <stdio.h>

#include "alibi.h"

/* ---- status (status.c) */

/* Records the message for alibi_error() and returns `status`. The message is one line: the object,
 * the reason, the place. */
alibi_status fail(alibi_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Puts the formatted text and ": " before the message already recorded; returns `status`. */
alibi_status fail_context(alibi_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A failure that another thread had: kept there, raised here. */
struct failure {
    alibi_status status;
    char message[1024];
};
/* Keeps `status` with the message that the calling thread has. */
void failure_keep(struct failure *f, alibi_status status);
alibi_status failure_raise(const struct failure *f); /* ALIBI_OK if there was none */

/* Leaves the function through its one exit on failure. The function has `alibi_status status` and a
 * label `out`. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        status = (call);                                                                           \
        if (status != ALIBI_OK)                                                                    \
            goto out;                                                                              \
    } while (0)

/* The same for functions that hold nothing to clean up. */
#define TRY_RETURN(call)                                                                           \
    do {                                                                                           \
        alibi_status try_status = (call);                                                          \
        if (try_status != ALIBI_OK)                                                                \
            return try_status;                                                                     \
    } while (0)

/* ---- sizes (size.h is all inline) */

#include "size.h"

/* The elements of an array, which must not be a pointer. */
#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* ---- memory (memory.c) */

/* All heap memory of the library: 64-byte aligned, counted, and able to fail on demand. It is not
 * cleared. A size of 0 gives a pointer that may be freed. ALIBI_MEMORY names `what` and how much
 * was asked for. mem_grow keeps the content; mem_free accepts NULL. */
alibi_status mem_new(void **out, size_t bytes, const char *what);
alibi_status mem_grow(void **inout, size_t old_bytes, size_t new_bytes, const char *what);
void mem_free(void *p);

/* Bytes for people, into the buffer that it returns: "4.2 GiB". */
enum { BYTES_TEXT = 16 };
const char *short_bytes(char buffer[BYTES_TEXT], size_t bytes);

/* The most that this process can ever have: the machine's memory and swap, or its cgroup's limit.
 */
size_t memory_of_machine(void);

/* count * sizeof **pp elements into *pp, with the product checked. */
#define NEW_ARRAY(pp, count, what) new_array((void **)(pp), (count), sizeof **(pp), false, (what))
#define NEW_ZERO_ARRAY(pp, count, what)                                                            \
    new_array((void **)(pp), (count), sizeof **(pp), true, (what))
alibi_status new_array(void **out, int64_t count, size_t size, bool zero, const char *what);

/* Makes room for `count` elements in *pp, which has room for *capacity. The content is kept; a
 * capacity that grows at least doubles. */
#define RESERVE_ARRAY(pp, capacity, count, what)                                                   \
    reserve_array((void **)(pp), (capacity), (count), sizeof **(pp), (what))
alibi_status reserve_array(void **inout, int64_t *capacity, int64_t count, size_t size,
                           const char *what);

/* ---- text (text.c) */

alibi_status text_copy(char **out, const char *text); /* mem_free */
/* vsnprintf and strtod in the C locale whatever the program has set, so that the same values give
 * the same bytes anywhere. */
int text_format(char *out, size_t size, const char *format, va_list args)
    __attribute__((format(printf, 3, 0)));
int text_print(char *out, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
double text_real(const char *text);

/* A string that grows. It remembers its first failure: after one, appends do nothing, so a
 * sequence of them needs one check, text_status(), at its end. Start from {0}. data ends with a 0,
 * and is NULL as long as nothing was appended. */
struct text {
    char *data;
    size_t length, capacity;
    alibi_status status; /* of the first append that failed */
};
void text_append(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_append_bytes(struct text *t, const void *bytes, size_t length);
/* ALIBI_OK, or the first failure of an append, with its message. */
alibi_status text_status(const struct text *t);
void text_free(struct text *t);
/* *out gets the text (mem_free) if `status`, that of the function which wrote it, is ALIBI_OK;
 * otherwise the text is freed. Returns `status`. */
alibi_status text_give(struct text *t, alibi_status status, char **out);

/* ---- files (file.c, folder.c; os.h makes the system calls) */

/* All file access of the library. Every function makes I/O calls that can be told to fail. ALIBI_IO
 * names the path and the system's reason; a path that does not exist or is of the wrong kind is
 * ALIBI_BAD_INPUT. */
struct file;

alibi_status file_open_read(struct file **out, const char *path);
/* Pipes and devices too; "-" is standard input. The size is then 0. A stop request of the call, or
 * of `unwanted`, which may be NULL, ends a read that waits for a pipe or a device with
 * ALIBI_INTERRUPTED. */
alibi_status file_open_input(struct file **out, const char *path, const struct alibi_call *call,
                             const struct alibi_stop *unwanted);
alibi_status file_create(struct file **out, const char *path);     /* truncates */
alibi_status file_open_write(struct file **out, const char *path); /* as it is; it must exist */
alibi_status file_open_append(struct file **out, const char *path);
/* *got is less than `bytes` only at the end of the file. */
alibi_status file_read(struct file *f, void *buffer, size_t bytes, size_t *got);
/* All of `bytes` bytes from byte `at` of a regular file; fewer are ALIBI_IO. */
alibi_status file_read_at(struct file *f, void *buffer, size_t bytes, int64_t at);
alibi_status file_write(struct file *f, const void *buffer, size_t bytes);
alibi_status file_write_at(struct file *f, const void *buffer, size_t bytes, int64_t at);
alibi_status file_set_size(struct file *f, int64_t bytes); /* what it did not have is 0 */
alibi_status file_sync(struct file *f);
/* Reports errors of earlier writes; f is gone either way. NULL is fine. */
alibi_status file_close(struct file *f);
int64_t file_size(const struct file *f);
/* Size and time of the last change, in nanoseconds since 1970, without opening the file. Both are 0
 * for pipes and devices. */
alibi_status file_measure(int64_t *bytes, int64_t *modified, const char *path);

/* A 0 follows the content, and is not counted. */
alibi_status file_read_all(char **out, size_t *bytes, const char *path, size_t limit);
/* Writes a file next to it, syncs, renames, syncs the folder: at every instant the old file or the
 * new one is there, whole. */
alibi_status file_replace(const char *path, const void *bytes, size_t length);
/* The same for a file that several processes may replace at the same time: none of them fails, and
 * the last one's content stays. */
alibi_status file_replace_shared(const char *path, const void *bytes, size_t length);
/* Both for a file of a folder, whose content is `text`. They fail as the text did. */
alibi_status file_replace_within(const char *folder, const char *name, const struct text *text);
alibi_status file_replace_shared_within(const char *folder, const char *name,
                                        const struct text *text);
/* The same for the bytes that `write` writes. A device, a pipe or a link is written in place, and
 * "-" is standard output, whose reader may close it early. */
alibi_status file_replace_with(const char *path,
                               alibi_status (*write)(struct file *f, const void *user),
                               const void *user);
alibi_status file_truncate(const char *path, int64_t bytes);
alibi_status file_rename(const char *from, const char *to);
alibi_status file_remove(const char *path); /* a file that does not exist is fine */
alibi_status file_remove_within(const char *folder, const char *name);
bool file_exists(const char *path);

/* A whole file as memory, read only. If another process truncates the file while it is mapped, this
 * process dies of SIGBUS: the price of not copying. */
struct mapping;
alibi_status mapping_open(struct mapping **out, const char *path);
const char *mapping_view(const struct mapping *m, size_t *bytes);
void mapping_close(struct mapping *m); /* NULL is fine */

alibi_status folder_create(const char *path); /* and its parents; one that exists is fine */
alibi_status folder_sync(const char *path);
alibi_status folder_remove(const char *path); /* the folder and the files in it, not deeper */
bool folder_exists(const char *path);
/* Sorted; released with names_free. The second one descends into folders. */
alibi_status folder_list(char ***names, int *count, const char *path);
alibi_status folder_list_files(char ***paths, int *count, const char *path);
void names_free(char **names, int count);
alibi_status folder_free_space(int64_t *bytes, const char *path);
/* Writes a file into the folder and removes it: permissions and free space say less. */
alibi_status folder_check_writable(const char *path);

/* Unlike file_exists and folder_exists, path_look tells a missing path from one that cannot be
 * seen. */
enum path_kind { PATH_NONE, PATH_FILE, PATH_FOLDER };
alibi_status path_look(enum path_kind *kind, const char *path);
/* Whether the folder has a file of that name, which must not be a folder. */
alibi_status folder_has(bool *has, const char *folder, const char *name);
/* The command that made a folder. Fails if the folder is not `mine`, and says what it is. A folder
 * that does not exist is accepted, and one that no command wrote if it has no other files. */
enum folder_use {
    FOLDER_FREE,
    FOLDER_CHECKPOINT,
    FOLDER_RUN,
    FOLDER_COMPARISON,
    FOLDER_EXPERIMENT,
    FOLDER_SHARDS
};
alibi_status folder_refuse_other(const char *folder, enum folder_use mine);
alibi_status path_join(char **out, const char *folder, const char *name); /* mem_free */
alibi_status path_absolute(char **out, const char *path); /* of what exists; mem_free */
alibi_status path_folder(char **out, const char *path);   /* its parent; mem_free */
/* Whether `path`, which need not exist yet, is `folder` or is inside it at any depth; links are
 * resolved. */
alibi_status path_is_within(bool *yes, const char *path, const char *folder);
bool path_begins(const char *path, const char *folder); /* the same for two absolute paths */
const char *path_absent(const char *path);              /* why, in words, nothing is there */

/* One writer per folder: holds the file `lock` in it until released. ALIBI_IO if another process
 * holds it. */
struct lock;
alibi_status lock_take(struct lock **out, const char *folder);
void lock_release(struct lock *l);
/* Whether another process holds it: then alibi_error() says which. Nothing is written. A folder
 * without the file, or none, is free, and so is one whose file cannot be read. */
alibi_status lock_check(bool *used, const char *folder);

/* CRC-32 (zlib's), continued from `crc`; start with 0. */
uint32_t checksum(uint32_t crc, const void *bytes, size_t length);
/* The checksum of bytes with checksum `first` followed by `length` bytes with checksum `second`. */
uint32_t checksum_join(uint32_t first, uint32_t second, size_t length);

/* ---- threads (worker.c) */

/* Makes OpenMP's idle threads sleep rather than spin, unless the environment says what they should
 * do. Called before OpenMP is used; only the first call costs anything. */
void threads_sleep_when_idle(void);

/* One thread that does one job at a time, for example reading while others compute. */
struct worker;
alibi_status worker_new(struct worker **out);
void worker_start(struct worker *w, alibi_status (*job)(void *user), void *user); /* when idle */
/* The job's status, its message in this thread; ALIBI_OK if none was started. */
alibi_status worker_wait(struct worker *w);
void worker_free(struct worker *w); /* waits first; NULL is fine */

/* ---- modules (module.c) */

/* Loads a shared library of ours: the one next to the program or libalibi.so, or where an installed
 * program finds it; otherwise the loader searches for its name. It stays loaded. ALIBI_DEVICE says
 * what is missing; `built_where`: "nvcc". global: its symbols are for what it loads itself too. */
alibi_status module_load(void **out, const char *name, bool global, const char *built_where);
/* The same for a library of others, in the places of the system. advice: what to do without it. */
alibi_status module_open(void **out, const char *name, const char *advice);
/* *function, a pointer to a function, becomes that of the symbol. */
alibi_status module_symbol(void *function, void *module, const char *name, const char *symbol);
/* fail() for a module, which has no other function of the library. */
void module_fail(int status, const char *message);

/* ---- random numbers (random.c) */

/* Philox4x32-10 (Salmon et al., SC 2011): the number at (seed, stream, index) is a function of the
 * three. Numbers can be drawn in any order and on any number of threads, and resuming needs no
 * state. */
struct random4 {
    uint32_t at[4];
};
struct random4 random_block(uint64_t seed, uint64_t stream, uint64_t index);
double random_uniform(uint64_t seed, uint64_t stream, uint64_t index); /* [0, 1) with 53 bits */
double random_normal(uint64_t seed, uint64_t stream, uint64_t index);
uint64_t random_below(uint64_t seed, uint64_t stream, uint64_t index, uint64_t n); /* 0..n-1 */

/* Streams: the high bits are the purpose, the low bits number the streams of that purpose. */
#define RANDOM_STREAM(purpose, which) (((uint64_t)(purpose) << 48) | (uint64_t)(which))
enum {
    RANDOM_INIT = 1,
    RANDOM_SHUFFLE,
    RANDOM_DROPOUT,
    RANDOM_SAMPLE,
    RANDOM_CORPUS,
    RANDOM_BENCH,
    RANDOM_MIX,
    RANDOM_BOOTSTRAP,
    RANDOM_TASK
};

/* The place of element `i` of `n` in a shuffle keyed by (seed, stream): a bijection of 0..n-1 that
 * needs no table. */
uint64_t random_permute(uint64_t seed, uint64_t stream, uint64_t i, uint64_t n);

/* ---- numbers (numbers.c) */

/* Nats per token: a smaller difference of losses is not worth a sentence, however sure it is. */
#define LEAST_EFFECT 0.005

void list_sort(struct alibi_int_list *list); /* ascending, each once */

/* Student's t with n degrees of freedom: 95% are within +- this; infinite for n < 1. */
double student_t(int64_t n);

/* The 95% interval of a share of n cases (Wilson 1927), which is not empty where all are right. */
void wilson_interval(double share, double n, double *low, double *high);

/* ---- the context of a call, and the clock (call.c) */

/* Through the callbacks of a call; a NULL call is silent and is never stopped. */
void call_note(const struct alibi_call *call, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void call_warn(const struct alibi_call *call, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void call_progress(const struct alibi_call *call, const struct alibi_progress *p);
bool call_stopped(const struct alibi_call *call);

static inline double call_skip(const struct alibi_call *call)
{
    return call != NULL ? call->skip : 0.0;
}

double clock_seconds(void); /* monotonic */
double clock_date(void);    /* since 1970, as alibi_date() has it */

/* How long the rest takes at the pace so far; 0 if that cannot be known. */
double seconds_left(double seconds, int64_t done, int64_t total);

/* True once if the injected "nan" fault is due now. */
bool fault_nan_due(void);

/* ---- names that people type (nearest.c, with alibi_nearest) */

/* In any case, with dashes or underscores; the first `length` letters, or all. */
bool same_letters(const char *a, const char *b, size_t length);
bool same_name(const char *a, const char *b);
/* The index of the name that `word` means: the same letters, or another program's word for it
 * ("rope" for "rotary"). -1: none. */
int name_index(const char *word, const char *const *names, int count);

/* ---- options (options.c): the texts of alibi_options_read and alibi_options_write */

alibi_status options_parse(const struct alibi_option_group *groups, int count, const char *bytes,
                           size_t length, const char *path);
alibi_status options_format(const struct alibi_option_group *groups, int count, struct text *json);

/* Checks values that were not set through alibi_options_set. ALIBI_USAGE names the first one that
 * is out of range. */
alibi_status options_check(const struct alibi_option_group *groups, int count);

/* Sets one value from text, as alibi_options_set. The message does not name the option. */
alibi_status option_set(const struct alibi_option *o, void *values, const char *text);

/* Whether the value of the option is the same in two structs. Not for TEXT. */
bool option_equal(const struct alibi_option *o, const void *values, const void *others);

/* One value as JSON, or, for people, without quotes and as it is typed. */
alibi_status option_format(struct text *out, const struct alibi_option *o, const void *values);
alibi_status option_format_plain(struct text *out, const struct alibi_option *o,
                                 const void *values);

/* The name as recipes spell it, "train_length". */
enum { OPTION_KEY_MAX = 64 };
void option_key(char key[OPTION_KEY_MAX], const char *name);

/* ---- text checks (text.c) */

/* White space that separates words: that of ASCII, in every locale. */
static inline bool is_white_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* Whether a byte of UTF-8 continues a character. */
static inline bool utf8_continues(char c)
{
    return ((unsigned char)c & 0xC0) == 0x80;
}

/* Bytes of the longest valid UTF-8 prefix (RFC 3629: no overlong forms, no surrogates). */
size_t utf8_valid_prefix(const char *bytes, size_t length);

/* Writes a character as UTF-8; returns its bytes, 1 to 4. */
size_t utf8_put(char *out, uint32_t code);

/* Makes foreign text safe to print as one line: control characters and invalid UTF-8 become '?'. */
void line_clean(char *line);
bool ends_with(const char *text, const char *end);

#endif
