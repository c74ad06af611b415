/* ids.c - token ids as text, the format that --print-ids prints and --decode reads
 *
 *   464 6842 318 257 50256      a document per line, its end id last */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "cli.h"

bool cli_print_ids(void *user, const int32_t *ids, int64_t count, bool ends)
{
    bool *begun = user;

    for (int64_t i = 0; i < count && !ferror(stdout); i++) {
        printf("%s%" PRId32, *begun ? " " : "", ids[i]);
        *begun = true;
    }
    if (ends) {
        putchar('\n');
        *begun = false;
    }
    return !ferror(stdout); /* false: the reader is gone */
}

/* ---- reading */

struct input {
    FILE *file;
    const char *name;
    int64_t line;
};

enum { LINE_END = -1, FILE_END = -2 };

/* The next id, or LINE_END or FILE_END. */
static alibi_status read_id(struct input *in, int64_t vocab, int32_t *out)
{
    int64_t id = 0;
    int c;

    do {
        c = getc_unlocked(in->file);
    } while (c == ' ' || c == '\t' || c == '\r');
    if (c == EOF && ferror(in->file))
        return cli_fail(ALIBI_IO, "cannot read '%s': %s", in->name, strerror(errno));
    if (c == EOF || c == '\n') {
        *out = c == EOF ? FILE_END : LINE_END;
        in->line += c == '\n';
        return ALIBI_OK;
    }
    if (c < '0' || c > '9')
        return cli_fail(ALIBI_BAD_INPUT, "'%s' line %lld: byte 0x%02x is not part of an id",
                        in->name, (long long)in->line, c);
    for (; c >= '0' && c <= '9'; c = getc_unlocked(in->file)) {
        id = 10 * id + (c - '0');
        if (id >= vocab)
            return cli_fail(ALIBI_BAD_INPUT,
                            "'%s' line %lld: an id is above %lld, the last one of the tokenizer",
                            in->name, (long long)in->line, (long long)vocab - 1);
    }
    ungetc(c, in->file);
    *out = (int32_t)id;
    return ALIBI_OK;
}

/* ---- decoding */

/* Documents of any length are decoded in parts. The last id of a part is held back until it is
 * known whether the line ends there, because it may be the end id, which is not printed (except
 * with a tokenizer of words, where it ends the last line). The begin id is not printed either. */
struct decoder {
    const alibi_tokenizer *tokenizer;
    bool prints_end;
    int32_t ids[4096];
    int count;
    bool begun;     /* a part of the document was printed */
    bool between;   /* a document has ended, and the next one has not begun */
    char last_byte; /* that was printed */
};

static alibi_status print_part(struct decoder *d, int count)
{
    char *text = NULL;
    size_t bytes = 0;
    int begin = !d->begun && count > 0 && d->ids[0] == alibi_tokenizer_begin(d->tokenizer);

    TRY_RETURN((d->begun ? alibi_tokenizer_decode_more : alibi_tokenizer_decode)(
        d->tokenizer, d->ids + begin, count - begin, &text, &bytes));
    d->begun = true;
    if (bytes > 0) {
        if (d->between && d->last_byte != '\n')
            putchar('\n');
        d->between = false;
        d->last_byte = text[bytes - 1];
        fwrite(text, 1, bytes, stdout);
    }
    alibi_text_free(text);
    return ALIBI_OK;
}

static alibi_status add_id(struct decoder *d, int32_t id)
{
    if (d->count == CLI_COUNT(d->ids)) {
        TRY_RETURN(print_part(d, d->count - 1));
        d->ids[0] = d->ids[d->count - 1];
        d->count = 1;
    }
    d->ids[d->count++] = id;
    return ALIBI_OK;
}

static alibi_status end_document(struct decoder *d)
{
    if (d->count == 0)
        return ALIBI_OK;
    if (!d->prints_end && d->ids[d->count - 1] == alibi_tokenizer_end(d->tokenizer))
        d->count--;
    TRY_RETURN(print_part(d, d->count));
    d->count = 0;
    d->begun = false;
    d->between = true;
    return ALIBI_OK;
}

static alibi_status print_file(struct decoder *d, struct input *in)
{
    int64_t vocab = alibi_tokenizer_vocab(d->tokenizer);
    int32_t id = LINE_END;

    while (id != FILE_END && !ferror(stdout)) {
        TRY_RETURN(read_id(in, vocab, &id));
        TRY_RETURN(id >= 0 ? add_id(d, id) : end_document(d));
    }
    return ALIBI_OK;
}

static alibi_status open_input(struct input *in, const char *path)
{
    struct stat found;

    if (stat(path, &found) == 0 && S_ISDIR(found.st_mode))
        return cli_fail(ALIBI_BAD_INPUT, "'%s' is a folder; --decode reads files of ids", path);
    *in = (struct input){ fopen(path, "r"), path, 1 };
    if (!in->file)
        return cli_fail(ALIBI_BAD_INPUT, "cannot open '%s': %s", path, strerror(errno));
    return ALIBI_OK;
}

alibi_status cli_print_text(const alibi_tokenizer *t, const char *const *paths, int count)
{
    struct decoder d = { .tokenizer = t,
                         .prints_end = strcmp(alibi_tokenizer_type(t), "words") == 0,
                         .last_byte = '\n' };
    alibi_status status = ALIBI_OK;

    for (int i = 0; i < count && status == ALIBI_OK; i++) {
        bool standard = strcmp(paths[i], "-") == 0;
        struct input in = { stdin, "standard input", 1 };

        if (!standard)
            TRY_RETURN(open_input(&in, paths[i]));
        status = print_file(&d, &in);
        if (!standard)
            fclose(in.file);
    }
    return status;
}
