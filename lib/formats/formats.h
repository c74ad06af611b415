/* formats.h - parsers of bytes that came from elsewhere, and the writers beside them
 *
 * Parsers take (bytes, length) or a file, validate everything, then build. JSON goes through
 * base/json.h. */
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

/* Reads and checks the header of a file of that many bytes. `header` starts at the file's first
 * byte. */
alibi_status safetensors_parse(struct safetensors **out, const char *bytes, size_t length,
                               int64_t file_bytes, const char *path);
alibi_status safetensors_open(struct safetensors **out, const char *path);
void safetensors_free(struct safetensors *s);

/* Bytes of an element of that type; 0: the format has no such type. */
size_t safetensor_type_bytes(const char *type);

/* The header for tensors in this order, with begin and end filled in by the call; padded with
 * spaces to 8 bytes. */
alibi_status safetensors_header(struct text *header, struct safetensor *tensors, int count);

/* ---- tokenizers (tokenizer_json.c, vocab_merges.c read, with bpe_build.c in common;
 * tokenizer_write.c writes; byte_letters.c)
 *
 * Byte-level BPE as Hugging Face's tokenizer.json has it, or GPT-2's vocab.json and merges.txt. In
 * those files a printable letter stands for each byte (byte_letters.c), so that every token is a
 * text without blanks. */

struct slice {
    const char *at;
    size_t bytes;
};

struct bpe_merge {
    int32_t left, right, result;
};

/* Found in the text before anything else, the leftmost first and of those the longest, and never
 * cut or merged. */
struct bpe_added {
    struct slice text;
    int32_t id;
    bool special;
    bool in_vocab;      /* the file lists it in the vocabulary too */
    bool ends_document; /* our own member "end_of_document": chosen in place of the usual one */
};

/* Cuts text into pieces: its matches, and the text between two matches. */
struct bpe_split {
    char *pattern; /* a regular expression in Oniguruma's spelling, or a plain text to look for */
    bool plain;
};

enum { BPE_SPLITS_MAX = 8, BPE_FILE_MAX = 256 << 20 /* bytes */ };

struct bpe_file {
    char *storage;            /* of all slices */
    struct slice *tokens;     /* [vocab] by id, the bytes each stands for */
    int64_t vocab;            /* ids are 0..vocab-1, each exists */
    int32_t byte_ids[256];    /* the token that is this byte alone */
    struct bpe_merge *merges; /* by rank: the first one that applies is done first */
    int64_t merge_count;
    struct bpe_added *added; /* by id */
    int added_count;
    struct bpe_split
        splits[BPE_SPLITS_MAX]; /* each cuts the pieces of the one before; none: no cuts */
    int split_count;
    bool ignore_merges; /* a piece that is a token is that token, whatever the merges say */
};

extern const char bpe_gpt2_pattern[]; /* what "ByteLevel" with its own expression means */

/* ALIBI_BAD_INPUT names path, place and defect: malformed content, or a feature that is not
 * supported (a normalizer, say). */
alibi_status bpe_file_parse(struct bpe_file **out, const char *bytes, size_t length,
                            const char *path);
/* vocab.json and merges.txt; "<|endoftext|>" is special if it is there, the pattern is GPT-2's. */
alibi_status bpe_file_parse_pair(struct bpe_file **out, struct slice vocab, const char *vocab_path,
                                 struct slice merges, const char *merges_path);
/* A tokenizer.json that Hugging Face's library reads, and that bpe_file_parse() reads back to the
 * same. */
alibi_status bpe_file_write(const struct bpe_file *f, struct text *json);
void bpe_file_free(struct bpe_file *f);

/* The letter (a code point) that stands for a byte, and back; -1: the letter stands for none. */
uint32_t byte_letter(unsigned char byte);
int byte_of_letter(uint32_t letter);

/* ---- packed files (unpack.c)
 *
 * A file as a stream of bytes, unpacked on the way if it starts as gzip or zstd files do. Several
 * packed parts in a row are one stream. A stream that ends early, or fails its checksum, is
 * ALIBI_BAD_INPUT with the place. */

struct unpack;

alibi_status unpack_open(struct unpack **out, const char *path,
                         const struct alibi_call *call); /* "-": standard input */
alibi_status unpack_read(struct unpack *u, void *buffer, size_t bytes,
                         size_t *got);           /* got < bytes only at the end */
int64_t unpack_position(const struct unpack *u); /* bytes of the file itself so far */
void unpack_close(struct unpack *u);

/* ---- JSON lines (json_line.c) */

/* Appends the text of member `field` of the object on this line. ALIBI_BAD_INPUT names path, line
 * number, byte and defect: not an object, malformed anywhere in the line, the member missing, twice
 * there, not a string, or half a surrogate pair in it. */
alibi_status json_line_field(struct text *out, struct slice line, const char *field,
                             const char *path, int64_t number);

/* ---- token shards (shard.c)
 *
 * llm.c's files, little-endian: 256 numbers of 32 bits, of which the first three are magic, version
 * and count, then the tokens. Magic 20240520, version 1: 16-bit tokens; magic 20240801, version 7:
 * 32-bit tokens. */

enum { SHARD_HEADER_BYTES = 1024, SHARD_TOKENS_MAX = INT32_MAX };

struct shard_header {
    int width; /* bytes of a token: 2 or 4 */
    int64_t count;
};

/* Checks the header of a file of that many bytes, too long and too short alike. */
alibi_status shard_header_parse(struct shard_header *out, const char *bytes, size_t length,
                                int64_t file_bytes, const char *path);
void shard_header_format(const struct shard_header *h, char bytes[SHARD_HEADER_BYTES]);

#endif
