/* formats.h - parsers of foreign files, and writers of the same formats
 *
 * A parser takes bytes and a length, or a file. It validates everything before it builds anything.
 * Large JSON is scanned in place (scan.h). */
#ifndef FORMATS_H
#define FORMATS_H

#include "base/base.h"

/* ---- safetensors (safetensors.c)
 *
 * u64 header length, JSON header, data. Strict: contiguous from 0, no hole, no overlap, sizes equal
 * to shape times type, ends at the end of the file. */

struct safetensor {
    char *name;
    char type[8]; /* "F32", ... */
    int rank;
    int64_t shape[8];
    int64_t begin, end; /* bytes within the file */
};

struct safetensors {
    struct safetensor *tensors; /* in the order of their data */
    int count;
};

/* Checks the header of a file of file_bytes bytes; bytes[0..length) are the first of them. */
alibi_status safetensors_parse(struct safetensors **out, const char *bytes, size_t length,
                               int64_t file_bytes, const char *path);
alibi_status safetensors_open(struct safetensors **out, const char *path);
void safetensors_free(struct safetensors *s);

/* Bytes of an element of that type; 0: the format has no such type. */
size_t safetensor_type_bytes(const char *type);

/* Appends the header for tensors in this order, padded with spaces to 8 bytes, and sets their begin
 * and end. */
alibi_status safetensors_header(struct text *header, struct safetensor *tensors, int count);

/* ---- the index of several safetensors files (weight_index.c) */

enum { WEIGHT_FILES_MAX = 4096 };

/* The files that it names, in the folder of the index, in the order in which they first appear.
 * Which tensors a file has, the file says. */
struct weight_index {
    char *files[WEIGHT_FILES_MAX];
    int count;
};

alibi_status weight_index_parse(struct weight_index **out, const char *bytes, size_t length,
                                const char *path);
void weight_index_free(struct weight_index *x);

/* ---- tokenizers (tokenizer_json.c, tokenizer_steps.c, tokenizer_added.c and vocab_merges.c read,
 * with bpe_build.c in common; tokenizer_write.c writes)
 *
 * BPE as Hugging Face's tokenizer.json has it, or GPT-2's vocab.json and merges.txt. A byte-level
 * one merges bytes, and its file writes every byte as a printable letter (bpe_build.c), so that
 * every token is text without blanks. The other kind, Llama 2's, merges characters: its file writes
 * a blank as U+2581, and a character without a token is the tokens "<0xXX>" of its bytes. */

struct slice {
    const char *at;
    size_t bytes;
};

struct bpe_merge {
    int32_t left, right, result;
};

/* Matched in the text before anything else, the leftmost first, and the longest of those. It is
 * never cut or merged. */
struct bpe_added {
    struct slice text;
    int32_t id;
    bool special;
    bool lstrip, rstrip; /* it takes the white space before it, after it */
    bool single_word;    /* no letter, digit or mark is before it or after it */
    bool normalized;     /* looked for after the others, in what is between them */
    bool prefixed;       /* matched in the prefixed text, where it has a blank before it */
    bool in_vocab;       /* the file lists it in the vocabulary too */
    bool ends_document;  /* our own member "end_of_document": chosen in place of the usual one */
    bool begins, ends;   /* the template of the post-processor puts it before, after a text */
};

/* Where a blank is put before text. */
enum bpe_prefix {
    PREFIX_NONE,
    PREFIX_FIRST,  /* before a document, */
    PREFIX_EACH,   /* and after every added token, unless a blank is there, */
    PREFIX_ALWAYS, /* and even if one is there */
};

/* Cuts text into pieces: its matches, and the text between two matches. */
enum bpe_split_kind { SPLIT_PATTERN, SPLIT_DIGITS, SPLIT_PUNCTUATION };

struct bpe_split {
    enum bpe_split_kind kind;
    char *pattern; /* a regular expression in Oniguruma's spelling, or a plain text to look for */
    bool plain;
    bool each;        /* digits, punctuation: every character is a piece, not a run of them */
    bool after_bytes; /* it sees bytes, which ByteLevel wrote as letters; never the first one */
};

enum { BPE_SPLITS_MAX = 8, BPE_FILE_MAX = 256 << 20 /* bytes */ };

struct bpe_file {
    char *storage;            /* of all slices */
    struct slice *tokens;     /* [vocab] by id: its bytes */
    int64_t vocab;            /* ids are 0..vocab-1, each exists */
    int32_t byte_ids[256];    /* the token that is this byte alone */
    struct bpe_merge *merges; /* by rank: the first one that applies is done first */
    int64_t merge_count;
    struct bpe_added *added; /* by id */
    int added_count;
    struct bpe_split splits[BPE_SPLITS_MAX]; /* each cuts the pieces of the one before */
    int split_count;
    bool nfc;        /* text is normalized first, to form C, between added tokens */
    bool characters; /* merged from characters, not from bytes; U+2581 in text is a blank */
    bool cut_blanks; /* characters: every blank starts a piece; else pieces do not matter */
    enum bpe_prefix prefix;
    bool ignore_merges; /* a piece that is a token is that token, whatever the merges say */
};

extern const char bpe_gpt2_pattern[]; /* the expression of "ByteLevel" */

/* ALIBI_BAD_INPUT names path, place and defect: malformed content, or a feature that is not
 * supported (dropout, say). */
alibi_status bpe_file_parse(struct bpe_file **out, const char *bytes, size_t length,
                            const char *path);
/* vocab.json and merges.txt; "<|endoftext|>" is special if it is there, the pattern is GPT-2's. */
alibi_status bpe_file_parse_pair(struct bpe_file **out, struct slice vocab, const char *vocab_path,
                                 struct slice merges, const char *merges_path);
/* A tokenizer.json that Hugging Face's library reads, and that bpe_file_parse() reads back to the
 * same. */
alibi_status bpe_file_write(const struct bpe_file *f, struct text *json);
void bpe_file_free(struct bpe_file *f);

/* Where the white space that starts at `at` ends, at most at `end`; and where that which ends at
 * `at` starts, at least at `from`. */
size_t white_space_after(const char *text, size_t at, size_t end);
size_t white_space_before(const char *text, size_t from, size_t at);

/* The letter (a code point) of a byte, and the byte of a letter; -1: it is the letter of none. */
uint32_t byte_letter(unsigned char byte);
int byte_of_letter(uint32_t letter);
/* Writes the letter as UTF-8; returns its bytes, 1 or 2. */
size_t byte_letter_put(char out[2], unsigned char byte);

/* The blank of files that merge characters: U+2581. */
#define BPE_BLANK "\xE2\x96\x81"

/* ---- packed files (unpack.c)
 *
 * A file as a stream of bytes, unpacked while it is read if it starts like gzip or zstd. Several
 * packed parts in a row are one stream. A stream that ends early, or fails its checksum, is
 * ALIBI_BAD_INPUT with the place. */

struct unpack;

/* As file_open_input(). */
alibi_status unpack_open(struct unpack **out, const char *path, const struct alibi_call *call,
                         const struct alibi_stop *unwanted);
/* *got < bytes only at the end. */
alibi_status unpack_read(struct unpack *u, void *buffer, size_t bytes, size_t *got);
int64_t unpack_position(const struct unpack *u); /* bytes of the packed file that were used */
void unpack_close(struct unpack *u);

/* ---- files that are not text (foreign.c) */

/* ALIBI_BAD_INPUT if a file that begins with these bytes is known not to be text in UTF-8: the
 * message says what it is and what to do. A few KiB suffice, or the whole file. */
alibi_status foreign_refuse(const char *bytes, size_t length, const char *path);

/* ---- JSON lines (json_line.c) */

/* Appends the text of member `field` of the object on this line. ALIBI_BAD_INPUT names path, line
 * number, byte and defect: the line is not an object or malformed anywhere, or the member is
 * missing, repeated, not a string, or has half a surrogate pair. */
alibi_status json_line_field(struct text *out, struct slice line, const char *field,
                             const char *path, int64_t number);

/* ---- event files of TensorBoard (tensorboard.c): written only */

struct tensorboard;

/* A new file in the folder, for events from `step` on: a reader drops what earlier files have of
 * these steps. */
alibi_status tensorboard_open(struct tensorboard **out, const char *folder, int64_t step);
alibi_status tensorboard_sync(struct tensorboard *t);
void tensorboard_close(struct tensorboard *t); /* NULL is fine */

struct tensorboard_scalar {
    const char *tag; /* "loss/train": its curve, in the group of its first part */
    double value;
};
alibi_status tensorboard_scalars(struct tensorboard *t, int64_t step,
                                 const struct tensorboard_scalar *scalars, int count);
/* Markdown in UTF-8. */
alibi_status tensorboard_text(struct tensorboard *t, int64_t step, const char *tag,
                              const char *text, size_t bytes);

uint32_t tensorboard_checksum(const void *bytes, size_t length); /* a masked CRC-32C */

/* ---- token shards (shard.c)
 *
 * llm.c's files, little-endian: 256 numbers of 32 bits, the first three of which are magic, version
 * and count, then the tokens. Magic 20240520, version 1: 16-bit tokens; magic 20240801, version 7:
 * 32-bit tokens. */

enum { SHARD_HEADER_BYTES = 1024, SHARD_TOKENS_MAX = INT32_MAX };

struct shard_header {
    int width; /* bytes of a token: 2 or 4 */
    int64_t count;
};

/* Checks the header of a file of file_bytes bytes, which must be exactly those it announces. */
alibi_status shard_header_parse(struct shard_header *out, const char *bytes, size_t length,
                                int64_t file_bytes, const char *path);
void shard_header_format(const struct shard_header *h, char bytes[SHARD_HEADER_BYTES]);

#endif
