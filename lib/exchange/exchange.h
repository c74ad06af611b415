/* exchange.h - models of other programs, read and written
 *
 *   import   their files ── tensor_source ── tensors_as_ours ── checkpoint_write_weights
 *   export   a checkpoint ── tensor_source ── tensors_as_theirs ── their files
 *
 * A family is a kind of model of another program, as one table for both directions: the meaning of
 * its configuration keys in ours, and the rows of our parameters that each of its tensors holds.
 * Features of a family that our model lacks are refused by name. Tensors are copied from file to
 * file a few rows at a time, so memory is bounded by one tensor, whatever the model. */
#ifndef EXCHANGE_H
#define EXCHANGE_H

#include "base/json.h"
#include "checkpoint/checkpoint.h"

/* ---- configurations (config.c) */

enum key_kind {
    KEY_INT, /* int64_t, double, bool at `offset` of struct alibi_config */
    KEY_REAL,
    KEY_FLAG,
    KEY_CHOICE, /* an int there: the value of a text */
    KEY_ONLY,   /* the model has only `only` of it; any other value is refused */
    KEY_SAID,   /* `only` is written; what it means when it is read, the family knows */
};

struct key_choice {
    const char *text; /* NULL: past the last; of texts with the same value the first is written */
    int value;
};

struct config_key {
    const char *name, *other; /* other: another spelling, which is read only; NULL: none. A dot
                                 leads into an object: "attn_config.alibi" */
    enum key_kind kind;
    size_t offset;
    const char *standard; /* JSON: what an absent key or null means; NULL: it must be there */
    const char *only;     /* JSON, for KEY_ONLY; it is written if the key is */
    const struct key_choice *choices;
};

/* ---- families (family.c has the table; one file each) */

/* The rows of one of our parameters that a tensor holds: all, or those of the queries, keys or
 * values of attention.qkv, or of the gates and of the others of ff.up. */
enum row_part { ROWS_ALL, ROWS_QUERIES, ROWS_KEYS, ROWS_VALUES, ROWS_GATE, ROWS_UP };

/* The row of the part that row `row` of their tensor is. */
typedef int64_t row_fn(const struct model *outline, int64_t row);

/* Names without ".weight" and ".bias": a rule is for both. "*" is the number of the layer. */
struct tensor_rule {
    const char *theirs, *ours;
    enum row_part part;
    row_fn *row;     /* NULL: the rows have our order */
    bool transposed; /* their matrix is [in, out] */
};

struct family {
    const char *name;         /* "bloom": model_type of Hugging Face's config.json */
    const char *architecture; /* "BloomForCausalLM" */
    const struct config_key *keys;
    int key_count;
    /* Facts of all models of the family that no key states. */
    const char *position; /* NULL: as `read` says */
    bool embedding_norm;
    /* Conversions that do not belong to a single key. read: after the keys, before the
     * configuration is resolved. write: within the root object, after the keys. NULL: nothing. */
    alibi_status (*read)(struct alibi_config *c, const json_t *config, const char *path);
    void (*write)(const struct alibi_config *c, struct json_writer *w);
    /* Why the other program would not compute what a model of that configuration does, although the
     * configuration can be written: NULL: it would. NULL: always. */
    const char *(*lacks)(const struct alibi_config *c);
    const struct tensor_rule *rules;
    int rule_count;
    const char *prefix;         /* of most names, which files may omit; NULL: none */
    const char *const *ignored; /* ends of names of tensors that hold no weights; ends with NULL */
};

extern const struct family family_bloom, family_mpt, family_falcon, family_gpt2, family_neox,
    family_llama, family_mistral, family_qwen2, family_qwen3;

typedef const struct family *family_at_fn(int index); /* NULL past the last */
family_at_fn family_at;
/* The family of that name in the table; `what` it names in the file, for the message. */
alibi_status family_find(const struct family **out, family_at_fn *at, const char *name,
                         const char *what, const char *path);

/* [head][q, k, v][D] for attention.qkv of a model with as many key heads as heads. */
row_fn row_by_head;

/* The value of a key, through dots; NULL: absent or null. */
const json_t *config_value(const json_t *config, const char *name);

/* Rotary positions (rope.c). read: position and base from "rope_theta" and its scaling, or from
 * GPT-NeoX's keys, which rotate a share of each head. */
struct rope {
    double base, share, factor; /* as options of `rotary` */
    int64_t original, window;
    int64_t rotated; /* pairs of each head */
};
alibi_status rope_read(struct alibi_config *c, const json_t *config, const char *path);
alibi_status rope_read_share(struct alibi_config *c, const json_t *config, const char *path);
void rope_write(const struct alibi_config *c, struct json_writer *w);
struct rope rope_of(const struct alibi_config *c); /* of the first layer */
/* For [Q | K | V] of a model that rotates the first 2R elements of a head, n with n + R; ours are
 * rotated n with n + D/2. In a head of queries or keys n stays, R + n is D/2 + n of ours, and the
 * elements that are not rotated fill the rest in their order. */
row_fn rope_row;

/* The configuration of a model from their JSON, resolved. ALIBI_BAD_INPUT names path and key. */
alibi_status family_read_config(const struct family *f, struct alibi_config *out,
                                const json_t *config, const char *path);
/* The members of the JSON object that is open in the writer. */
void family_write_config(const struct family *f, const struct alibi_config *c,
                         struct json_writer *w);

/* ---- tensors under other names (mapping.c) */

/* `theirs` as the tensors of our model `outline`, and `ours`, which has the tensors of the outline,
 * as theirs. The source that they are made of must outlive *out. ALIBI_BAD_INPUT names a tensor
 * that is missing, has another shape, or has no place in the model. */
alibi_status tensors_as_ours(struct tensor_source **out, struct tensor_source *theirs,
                             const struct family *f, const struct model *outline);
alibi_status tensors_as_theirs(struct tensor_source **out, struct tensor_source *ours,
                               const struct family *f, const struct model *outline);

/* ---- safetensors as a source (safetensors_source.c) */

/* A source of one file, or of the files of a folder, found by its index or the name
 * model.safetensors. */
alibi_status safetensors_source_file(struct tensor_source **out, const char *path);
alibi_status safetensors_source_folder(struct tensor_source **out, const char *folder);

/* ---- a model of another program */

/* The input of an importer. */
struct foreign {
    const struct family *family;
    struct alibi_config config;
    struct tensor_source *tensors; /* under their names */
    alibi_tokenizer *tokenizer;    /* NULL: none that can be read; `reason` says why */
    char reason[512];
    struct gguf *gguf; /* that the tensors are in; NULL: none */
};

void foreign_fini(struct foreign *f);
/* After an attempt to open f->tokenizer: ALIBI_BAD_INPUT becomes f->reason, and so does a tokenizer
 * with more ids than the model has. */
alibi_status foreign_tokenizer(struct foreign *f, alibi_status status);

/* ---- models of Hugging Face's transformers (huggingface.c) */

alibi_status huggingface_open(struct foreign *out, const char *folder);
/* The family and configuration of a config.json (config.c). */
alibi_status huggingface_config(const struct family **family, struct alibi_config *out,
                                const char *bytes, size_t length, const char *path);

/* The output of an exporter. */
struct outgoing {
    const struct family *family;
    const struct alibi_config *config;
    struct tensor_source *tensors;    /* under their names */
    const alibi_tokenizer *tokenizer; /* NULL: none that they know */
    const alibi_tokenizer *own_tokenizer;
    const char *type; /* of all tensors; NULL: each as it is */
    int64_t shard_bytes;
    const struct alibi_call *call;
};

/* The folder appears with all its files, or not at all. */
alibi_status huggingface_write(const struct outgoing *o, const char *folder);

/* ---- models of llama.cpp in GGUF files (llamacpp.c) */

struct gguf;
struct gguf_writer;

/* Its architectures (llamacpp_families.c). */
family_at_fn llamacpp_family_at;
/* The family and configuration that the metadata and tensors of a file say, and the metadata that
 * says it (llamacpp_config.c). */
alibi_status llamacpp_config(const struct family **family, struct alibi_config *out,
                             const struct gguf *gguf, const char *path);
alibi_status llamacpp_put_config(struct gguf_writer *w, const struct family *f,
                                 const struct alibi_config *c);
alibi_status llamacpp_open(struct foreign *out, const char *path);
/* The file, which must not exist, appears whole or not at all. */
alibi_status llamacpp_write(const struct outgoing *o, const char *path);

/* The merges of a tokenizer.json, as pairs with commas, that give the ids which llama.cpp gives for
 * tokens with scores (llamacpp_scores.c). Sorts the tokens. ALIBI_BAD_INPUT: no merges do. */
struct scored_token {
    struct slice text;
    double score;
    int32_t id;
};
alibi_status llamacpp_merges(struct text *json, struct scored_token *tokens, int64_t count,
                             const char *path);

/* The tokenizer in the metadata (llamacpp_tokenizer.c). A model has `vocab` rows for its ids. */
alibi_status llamacpp_read_tokenizer(alibi_tokenizer **out, const struct gguf *g, const char *path);
alibi_status llamacpp_put_tokenizer(struct gguf_writer *w, const alibi_tokenizer *t, int64_t vocab,
                                    const struct alibi_call *call);
/* Whether a byte-level file normalizes and cuts text as the one that llama.cpp calls so. */
bool tokenizer_cuts_as(const struct bpe_file *f, const char *name);

#endif
