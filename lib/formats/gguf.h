/* gguf.h - GGUF, the files of llama.cpp: metadata and tensors (gguf.c reads, gguf_write.c writes,
 * gguf_types.c has the types of tensors)
 *
 *   "GGUF" | u32 version | u64 tensors | u64 pairs | pairs | entries of tensors | data
 *
 *   text    u64 bytes | bytes
 *   pair    text key | u32 kind | value; an array is u32 kind of its items | u64 count | items
 *   entry   text name | u32 rank | u64 dimensions, the innermost first | u32 type | u64 offset
 *
 * All numbers are little-endian. The data begins at a multiple of the alignment (32, or the pair
 * general.alignment), offsets count from there, and each tensor begins at the first multiple of the
 * alignment after the one before it. Versions 2 and 3 are the same. */
#ifndef GGUF_H
#define GGUF_H

#include "formats/formats.h"

/* ---- types of tensors (gguf_types.c)
 *
 * A row is whole blocks of `block` numbers in `bytes` bytes each. Q8_0: 32 numbers are a scale in
 * fp16 and 32 signed bytes. */

struct gguf_type {
    const char *name; /* "F32", "F16", "BF16", "Q8_0" */
    uint32_t id;
    int64_t block;
    size_t bytes;
    /* `count` numbers, whole blocks. Numbers to be encoded are finite. */
    void (*decode)(float *numbers, const void *bytes, int64_t count);
    void (*encode)(void *bytes, const float *numbers, int64_t count);
    double largest; /* that encode() can keep finite; Q8_0: of a whole block */
};

const struct gguf_type *gguf_type_named(const char *name); /* in any case; NULL: none */
/* NULL if it is not one of these; *name is then what llama.cpp calls it, or NULL. */
const struct gguf_type *gguf_type_of(uint32_t id, const char **name);

/* ---- reading (gguf.c) */

enum gguf_kind {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_TEXT,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_KINDS
};

/* A value as its bytes in the file, which need not be aligned. Arrays of arrays are refused. */
struct gguf_value {
    enum gguf_kind kind; /* of the value or, in an array, of its items */
    bool array;
    int64_t count; /* items; 1 if it is not an array */
    const char *at;
    size_t bytes;
};

enum { GGUF_NAME_MAX = 64, GGUF_RANK_MAX = 4, GGUF_ALIGNMENT = 32 };

/* Keys and names of tensors are printable ASCII without blanks, each once. */
struct gguf_pair {
    struct slice key;
    struct gguf_value value;
};

struct gguf_tensor {
    char name[GGUF_NAME_MAX + 1];
    const struct gguf_type *type;
    int rank;
    int64_t shape[GGUF_RANK_MAX]; /* the outermost dimension first: the reverse of the file */
    int64_t begin, end;           /* bytes within the file */
};

struct gguf {
    struct gguf_pair *pairs; /* in the order of the file */
    int pair_count;
    struct gguf_tensor *tensors; /* in the order of their data */
    int tensor_count;
};

/* Checks the metadata and entries of a file of file_bytes bytes; bytes[0..length) are the first of
 * them, and must outlive the result. */
alibi_status gguf_parse(struct gguf **out, const char *bytes, size_t length, int64_t file_bytes,
                        const char *path);
alibi_status gguf_open(struct gguf **out, const char *path);
void gguf_free(struct gguf *g);

const struct gguf_value *gguf_find(const struct gguf *g, const char *key); /* NULL: absent */

/* Item `i` of a value, as an integer of any kind, a real number (or an integer), true or false.
 * False: it is of another kind, or does not fit. */
bool gguf_integer(const struct gguf_value *v, int64_t i, int64_t *out);
bool gguf_real(const struct gguf_value *v, int64_t i, double *out);
bool gguf_flag(const struct gguf_value *v, bool *out);
/* The text of a value; false: it is an array or of another kind. */
bool gguf_text(const struct gguf_value *v, struct slice *out);
/* The texts of an array in order: *at starts as the value's. */
struct slice gguf_next_text(const char **at);

/* ---- writing (gguf_write.c), version 3 */

struct gguf_writer {
    struct text pairs; /* remembers the first failure */
    uint64_t count;
};

void gguf_put(struct gguf_writer *w, const char *key, const struct gguf_value *value);
void gguf_put_u32(struct gguf_writer *w, const char *key, uint32_t value);
void gguf_put_f32(struct gguf_writer *w, const char *key, double value);
void gguf_put_bool(struct gguf_writer *w, const char *key, bool value);
void gguf_put_slice(struct gguf_writer *w, const char *key, struct slice value);
void gguf_put_text(struct gguf_writer *w, const char *key, const char *value);

/* One more item of an array of texts, whose items are collected in `items`. */
void gguf_append_text(struct text *items, struct slice text);

/* Appends everything before the data, which is for tensors in this order, and sets their begin and
 * end. A file has zeros from the end of a tensor to the next multiple of GGUF_ALIGNMENT, after the
 * last one too. */
alibi_status gguf_header(struct text *header, const struct gguf_writer *w,
                         struct gguf_tensor *tensors, int count);
void gguf_writer_fini(struct gguf_writer *w);

#endif
