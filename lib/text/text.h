/* text.h - tokenizers, corpora, batches
 *
 *   files -> source (blocks of documents) -> encoding (ids) -> shards on disk, or in memory
 *   shards -> corpus (three splits) -> span (a split's tokens) -> windows of L + 1 tokens -> loader
 *
 * A token is a 32-bit id here, however a corpus stores it. */
#ifndef TEXT_H
#define TEXT_H

#include "formats/formats.h"

/* ---- tokenizers (tokenizer.c, and a file per kind: bpe.c, words.c) */

/* Ids that grow in number; start from {0}, mem_free(at). */
struct ids {
    int32_t *at;
    int64_t count, capacity;
};
alibi_status ids_reserve(struct ids *ids, int64_t more); /* room for that many more */
alibi_status ids_append(struct ids *ids, const int32_t *at, int64_t count);

/* A tokenizer never changes, and any number of threads may use one. */
alibi_status tokenizer_new_bytes(alibi_tokenizer **out);
/* Takes ownership of the file, even on failure. */
alibi_status tokenizer_new_bpe(alibi_tokenizer **out, struct bpe_file *file, const char *path);
/* words[0] replaces unknown words, words[1] is the end of a line. The words are copied. */
alibi_status tokenizer_new_words(alibi_tokenizer **out, const struct slice *words, int64_t count);
alibi_status tokenizer_new_ids(alibi_tokenizer **out, int64_t vocab); /* text is numbers */

/* As tokenizer.json, read and written. */
enum { TOKENIZER_BYTES_MAX = 256 << 20 };
alibi_status tokenizer_read(alibi_tokenizer **out, const char *bytes, size_t length,
                            const char *path);
alibi_status tokenizer_format(const alibi_tokenizer *t, struct text *json);
/* The checksum of that file: tokenizers with equal checksums give equal ids. */
uint32_t tokenizer_checksum(const alibi_tokenizer *t);

/* Adds an owner. Each owner calls alibi_tokenizer_free. */
alibi_tokenizer *tokenizer_share(const alibi_tokenizer *t);

/* The bytes of an id, borrowed. The end of a document has no bytes, except for words; a word
 * includes the blank after it. */
const char *tokenizer_bytes(const alibi_tokenizer *t, int32_t id, size_t *bytes);
/* A whole text, without its begin and end. */
alibi_status tokenizer_encode(const alibi_tokenizer *t, const char *text, size_t bytes,
                              struct ids *ids);
/* The same for a text that continues another one: no blank is put before it. */
alibi_status tokenizer_encode_more(const alibi_tokenizer *t, const char *text, size_t bytes,
                                   struct ids *ids);
/* The id before the first token of a text: the begin, or the end of the document before; -1: there
 * is none. */
int32_t tokenizer_start(const alibi_tokenizer *t);
/* Whether one blank at the start of a decoded text is dropped. */
bool tokenizer_drops_blank(const alibi_tokenizer *t);

/* ---- encoding part by part (tokenizer.c) */

/* A part of a document. text[from..stop) is to be encoded; text[0..end) is known and may be
 * inspected. If `last`, the document ends at `end`; otherwise it may continue. A document starts at
 * from == 0, unless the text `continues` one. */
struct stretch {
    const char *text;
    size_t from, stop, end;
    bool last, continues;
};

/* The state of one thread that encodes: scratch, and a cache of pieces. */
struct encoder;
alibi_status encoder_new(struct encoder **out, const alibi_tokenizer *t);
void encoder_free(struct encoder *e);

/* Appends the ids of the stretch up to *reached, the first cut at or after `stop`; or, if not
 * `last`, an earlier cut, where text after `end` may decide the next one. A cut is where the
 * tokenizer's pieces end: from there the text is encoded whatever is before it. So a document can
 * be encoded in any stretches that start where others ended. */
alibi_status encoder_run(struct encoder *e, const struct stretch *s, struct ids *ids,
                         size_t *reached);

/* Appends the begin id, if the tokenizer has one. */
alibi_status encoder_begin(struct encoder *e, struct ids *ids);
/* Appends the end id, if the tokenizer has one; for words, only if the last line has no end. */
alibi_status encoder_end(struct encoder *e, struct slice document_tail, struct ids *ids);

/* ---- pieces (pattern.c, cutter.c): text cut by the regular expressions of a BPE */

struct pattern; /* never changes; any number of threads may use one */
alibi_status pattern_new(struct pattern **out, const struct bpe_split *splits, int count,
                         const char *path);
void pattern_free(struct pattern *p);

struct cutter; /* of one thread */
alibi_status cutter_new(struct cutter **out, const struct pattern *p);
void cutter_free(struct cutter *c);

/* Hands over the pieces of the stretch, in order, up to *reached (as in encoder_run). A byte that
 * is not UTF-8 is a piece of its own. A piece of more than PIECE_MAX bytes is ALIBI_BAD_INPUT. */
enum { PIECE_MAX = 16 << 20 };
typedef alibi_status piece_sink(void *user, const char *piece, size_t bytes);
alibi_status cutter_run(struct cutter *c, const struct stretch *s, piece_sink *sink, void *user,
                        size_t *reached);
/* Where the piece of the first expression ends that has the piece just handed over: a cut. */
const char *cutter_cut(const struct cutter *c);

/* ---- reading (source.c): files to blocks of documents */

/* The place of a byte of a document in the input. */
struct place {
    int64_t file;     /* 0.. */
    int64_t document; /* within the file, 0.. */
    int64_t offset;   /* within the document's text */
};

/* Some text of the input: whole documents, and after the last of them perhaps the first part of
 * one that continues in the next block. */
struct block {
    char *text;
    size_t bytes, capacity;
    size_t *ends; /* where documents end */
    int64_t end_count, end_capacity;
    struct place start; /* of text[0] */
};
void block_fini(struct block *b); /* start from {0} */

/* Letters, digits, '-' and '_', or nothing: an option that takes a name or another text takes it as
 * a name. */
bool looks_like_a_name(const char *text);

struct source;
/* The input of alibi_tokenize(). Folders are listed now, files are opened one by one. */
alibi_status source_open(struct source **out, const char *const *paths, int count,
                         const struct alibi_reading *reading, const struct alibi_call *call);
/* The built-in text instead of files. */
alibi_status source_open_builtin(struct source **out, const struct alibi_builtin *which);
/* Texts in memory instead, which are borrowed. */
alibi_status source_open_texts(struct source **out, const char *const *texts, const size_t *bytes,
                               int64_t count);
void source_close(struct source *s);
int source_file_count(const struct source *s);
const char *source_file(const struct source *s, int64_t file); /* its path */
const char *source_name(const struct source *s, int64_t file); /* the same for messages */
/* Bytes of all files on the disk, packed or not; 0: unknown. And those read so far. */
int64_t source_bytes_total(const struct source *s);
int64_t source_bytes_done(const struct source *s);
/* Continues as if `place` had been reached by reading. Only before the first read. */
alibi_status source_seek(struct source *s, struct place place);
/* The last bytes of the document before that place, enough for a character. */
struct slice source_before(const struct source *s);
/* Whether the file that is being read began with a byte-order mark, which no place counts. */
bool source_skipped_mark(const struct source *s);
/* Replaces the content of the block by the next `bytes` of text, about. At the end of the input
 * there is nothing: bytes == 0, no ends. The end of a document comes with its last byte. The line
 * ends of its lines are part of it; blank lines are not documents. Text that is not UTF-8 or has a
 * byte 0 is refused; documents are never empty. ALIBI_BAD_INPUT names file and place. */
alibi_status source_read(struct source *s, struct block *b, size_t bytes);
/* Nothing is read any more: a read of another thread that waits for a pipe fails. */
void source_abandon(struct source *s);
/* Logs what was noticed in the files so far, such as Windows line ends. Between reads, in the
 * thread of the call. */
void source_tell(struct source *s);

/* ---- the built-in text (builtin.c), document by document */

enum { BUILTIN_WORDS = 5000 }; /* between white space it has fewer different ones, at any size */

struct builtin;
alibi_status builtin_open(struct builtin **out, const struct alibi_builtin *which);
void builtin_close(struct builtin *b); /* NULL is fine */
/* Borrowed until the next call; no bytes: there are no more. */
alibi_status builtin_next(struct builtin *b, struct slice *document);

/* ---- the pipeline (encode.c): source to ids on all threads, while the next block is read */

struct encoded {
    const int32_t *ids;
    int64_t count;
    const int64_t *ends; /* of each document that ends here: the index in ids after its end token */
    int64_t end_count;
    int64_t words, bytes; /* of the text of these ids; a word counts where it begins */
    struct place start;   /* of the first id: a source that starts there gives the same ids */
    int64_t source_bytes; /* source_bytes_done() when their text had been read */
};

struct encoding;
/* Source and tokenizer are borrowed. `block_bytes` of text are read at a time. */
enum { ENCODING_BLOCK_BYTES = 8 << 20 };
alibi_status encoding_open(struct encoding **out, struct source *source, const alibi_tokenizer *t,
                           size_t block_bytes);
void encoding_close(struct encoding *e); /* NULL is fine */
/* The ids of the next block, borrowed until the next call; count == 0 at the end, where ends and
 * counts may still follow (of text that gives no ids). The same blocks on any number of threads. */
alibi_status encoding_next(struct encoding *e, struct encoded *out);

/* ---- tokenizing (tokenize.c) */

/* alibi_tokenize() and alibi_tokenize_each() with limits of their own, which tests make small. */
struct tokenize_limits {
    size_t block_bytes;
    int64_t shards; /* of a folder: a process can map a few more files */
};
extern const struct tokenize_limits tokenize_limits_usual;
alibi_status tokenize_within(const struct tokenize_limits *limits, const alibi_tokenizer *t,
                             const char *const *paths, int count,
                             const struct alibi_reading *reading, int64_t shard_tokens,
                             const char *dir, struct alibi_tokenize_result *result,
                             const struct alibi_call *call);
alibi_status tokenize_each_within(const struct tokenize_limits *limits, const alibi_tokenizer *t,
                                  const char *const *paths, int count,
                                  const struct alibi_reading *reading,
                                  bool (*ids)(void *user, const int32_t *ids, int64_t count,
                                              bool ends),
                                  void *user, const struct alibi_call *call);

/* ---- shards (shards.c, shard_files.c): tokens in files, mapped */

/* Consecutive tokens of a corpus, in a mapped file or in memory. */
struct shard {
    struct mapping *mapping; /* NULL: ids are owned memory */
    void *ids;
    int width;         /* bytes of an id: 2 or 4 */
    int64_t count;     /* of ids */
    int64_t capacity;  /* in memory: of ids */
    int64_t first;     /* index in the corpus */
    uint32_t checksum; /* of the ids as they are stored, once they are sealed */
    char *path;        /* of the file, for messages; NULL: in memory */
};

/* Their list. Start from {0}. */
struct shards {
    struct shard *at;
    int count;
    int64_t capacity;
};

/* The content of index.json. */
struct shard_index {
    uint32_t tokenizer; /* its checksum */
    int width;
    int64_t documents, tokens, words, bytes;
    struct shard_entry {
        char name[32];
        int64_t tokens;
        uint32_t crc32; /* of the whole file */
    } * entries;
    int64_t entry_count;
};
/* Strict: ALIBI_BAD_INPUT names the path and the defect. */
alibi_status shard_index_read(struct shard_index *x, const char *folder);
void shard_index_fini(struct shard_index *x);

/* ALIBI_BAD_INPUT if there are shards at the path, which is to be read as text. */
alibi_status shards_refuse(const char *path);
/* Whether the path is a shard, or a folder with shards, finished or not. */
alibi_status shards_recognise(bool *yes, const char *path);
/* Maps the shards at `path` and appends them: of a folder (or its index.json), or of one file. With
 * an index: its checksums are compared, *tokenizer is the folder's own, and the caller ends *index
 * with shard_index_fini. One shard of such a folder has the tokenizer, but no index of its own.
 * Without: both stay as they are. Ids are not checked yet. After a failure some shards may have
 * been appended. */
alibi_status shards_open(struct shards *l, struct shard_index *index, bool *has_index,
                         alibi_tokenizer **tokenizer, const char *path,
                         const struct alibi_call *call);
/* The shards of a folder that `index` lists, and nothing else of it: mapped, compared and appended.
 * Messages call the index `list`. */
alibi_status shards_open_listed(struct shards *l, const struct shard_index *index, const char *list,
                                const char *folder, const struct alibi_call *call);
int64_t shards_tokens(const struct shards *l); /* of all of them */
/* Takes the shard on success. */
alibi_status shards_push(struct shards *l, const struct shard *s);
/* Appends ids in memory, in shards of bounded size. */
alibi_status shards_append(struct shards *l, const int32_t *ids, int64_t count, int width);
void shard_seal(struct shard *s); /* computes its checksum; those of files are sealed */
/* Every id is below vocab, or ALIBI_BAD_INPUT names the shard, the place and the id. */
alibi_status shard_check(const struct shard *s, int64_t vocab);
int64_t shard_largest(const struct shard *s); /* of its ids; -1: there is none */
uint32_t shard_id(const struct shard *s, int64_t i);
void shards_fini(struct shards *l);

/* ---- corpus (corpus.c, span.c) */

/* One split: consecutive tokens. */
struct span {
    const struct alibi_corpus *corpus;
    int64_t first, count; /* tokens */
};

struct span corpus_span(const alibi_corpus *c, enum alibi_split split);
const alibi_tokenizer *corpus_tokenizer(const alibi_corpus *c);
/* The corpora of a mixture, and their shares, whose sum is 1; one that is none is its only part. */
enum { CORPUS_PARTS_MAX = 32 };
int corpus_parts(const alibi_corpus *c);
const alibi_corpus *corpus_part(const alibi_corpus *c, int i);
double corpus_share(const alibi_corpus *c, int i);
/* For messages: the first file, or "built-in text". */
const char *corpus_name(const alibi_corpus *c);
/* bytes == 0: it is not the built-in text. */
struct alibi_builtin corpus_builtin(const alibi_corpus *c);
/* Whether the validation split is a text of its own, not a part of the files. */
bool corpus_has_own_valid(const alibi_corpus *c);
/* The checksum of all tokens, because a resumed run must see the same text; and of all without a
 * validation text. */
uint32_t corpus_checksum(const alibi_corpus *c);
uint32_t corpus_files_checksum(const alibi_corpus *c);

/* Whether results may be written to `dir`: alibi_text_check_folder() for all its paths. */
alibi_status corpus_check_folder(const alibi_corpus *c, const char *dir);

/* Where the corpus came from, as JSON; nothing if it was made in memory. And a corpus from such a
 * file: ALIBI_BAD_INPUT names a path that is no longer there (origin.c). */
alibi_status corpus_describe(const alibi_corpus *c, struct text *json);
alibi_status corpus_open_described(alibi_corpus **out, const char *path, const alibi_tokenizer *t,
                                   const struct alibi_call *call);
/* How much of a split the run with this file was trained on, judged by paths. */
alibi_status corpus_seen_by(enum alibi_seen *seen, const alibi_corpus *c, enum alibi_split split,
                            const char *path);

/* Tokens from..from+count-1 of the span. */
void span_read(struct span s, int64_t from, int64_t count, int32_t *ids);

/* Hands over every document that is at least partly in the span: its first token and how many, its
 * end token, if it `ended`, included. The end token of a vocabulary of words ends a line, and some
 * tokenizers have none: their documents are not known, and the span is one that has not ended. */
alibi_status span_documents(struct span s,
                            alibi_status (*document)(void *user, int64_t first, int64_t count,
                                                     bool ended),
                            void *user);

/* Words and bytes of the text of tokens from..from+count-1. A word belongs to the token with its
 * first byte. */
void span_measure(struct span s, int64_t from, int64_t count, int64_t *words, int64_t *bytes);

/* ---- batches (batches.c) */

/* Windows of length + 1 tokens: inputs are the first `length` of each, targets the last. Each epoch
 * cuts the span into windows from another offset, in another order, both keyed by (seed, epoch).
 * Batch n is a pure function of n, so a resumed run needs its number and nothing else. */
struct batches {
    const alibi_corpus *corpus; /* whose parts they are; some may be tasks. NULL: one span */
    int parts;
    struct span spans[CORPUS_PARTS_MAX];
    int64_t upto[CORPUS_PARTS_MAX]; /* of MIX_BLOCK samples, those of parts 0..i */
    int64_t length, batch;
    uint64_t seed;
};

/* ALIBI_BAD_INPUT if the span has fewer than length + 1 tokens. */
alibi_status batches_init(struct batches *b, struct span span, int64_t length, int64_t batch,
                          uint64_t seed);
/* Batches of the training split of a corpus and, if it is a mixture, of all its parts. */
alibi_status batches_of_corpus(struct batches *b, const alibi_corpus *c, int64_t length,
                               int64_t batch, uint64_t seed);
/* tokens, targets [batch, length]. A target that a task does not train is -1. */
void batches_read(const struct batches *b, int64_t number, int32_t *tokens, int32_t *targets);

/* Reads the next batch on a thread of its own while this one is used. */
struct loader;
alibi_status loader_new(struct loader **out, const struct batches *b);
void loader_free(struct loader *l);
/* Batch `number`, borrowed until the next call. Any order works; batch `next` is read ahead. */
alibi_status loader_get(struct loader *l, int64_t number, int64_t next, const int32_t **tokens,
                        const int32_t **targets);

#endif
