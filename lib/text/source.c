/* source.c - files to blocks of documents
 *
 *   paths -> files -> input (checked text) -> runs of a document's text, and its end -> blocks
 *
 * A file is read once, from front to back. At most a buffer of it, or one line of JSON, is in
 * memory. The documents depend on the files alone, not on the sizes of blocks.
 *
 * Invariants: `run` is text of the document at `at`, and at.offset counts its bytes that were
 * handed over. If `ended`, run is the rest of the document. So the end of a document always comes
 * with its last byte. */
#include <stdatomic.h>
#include <string.h>

#include "text/source.h"

enum {
    WHITE_MAX = 1 << 16, /* a line that begins with more white space counts as text */
    LONGEST_CHARACTER = 4,
};

size_t source_line_max = 256 << 20;

/* ---- one file as checked text: UTF-8 without a byte 0
 *
 *   bytes[0 .. at)         done
 *   bytes[at .. checked)   whole characters, checked
 *   bytes[checked .. end)  the start of a character */

struct input {
    struct unpack *unpack; /* NULL: no file is open */
    const char *name;      /* for messages; borrowed */
    char *bytes;           /* [INPUT_BYTES], kept from file to file */
    size_t at, checked, end;
    int64_t offset; /* of bytes[0] in the unpacked file */
    int64_t line;   /* of bytes[checked], from 1 */
    bool ended;     /* the file ends at bytes[end], and all is checked */
};

static alibi_status input_open(struct input *in, const char *path, const struct alibi_call *call)
{
    if (in->bytes == NULL)
        TRY_RETURN(NEW_ARRAY(&in->bytes, INPUT_BYTES, "a block of a file"));
    TRY_RETURN(unpack_open(&in->unpack, path, call));
    in->name = strcmp(path, "-") == 0 ? "standard input" : path;
    in->at = in->checked = in->end = 0;
    in->offset = 0;
    in->line = 1;
    in->ended = false;
    return ALIBI_OK;
}

static void input_close(struct input *in)
{
    unpack_close(in->unpack);
    in->unpack = NULL;
}

static int64_t count_lines(const char *bytes, size_t length)
{
    const char *end = bytes + length;
    int64_t lines = 0;

    while ((bytes = memchr(bytes, '\n', (size_t)(end - bytes))) != NULL) {
        bytes++;
        lines++;
    }
    return lines;
}

/* Checks the new bytes. Up to three bytes at the end may be the start of a character, unless the
 * file ends. */
static alibi_status input_check(struct input *in)
{
    const char *fresh = in->bytes + in->checked;
    size_t length = in->end - in->checked, valid = utf8_valid_prefix(fresh, length);
    const char *zero = memchr(fresh, 0, valid);

    if (zero != NULL)
        return fail(ALIBI_BAD_INPUT, "'%s' is not text: byte 0 at offset %lld", in->name,
                    (long long)in->offset + (long long)(zero - in->bytes));
    if (valid < length && (in->ended || length - valid >= LONGEST_CHARACTER)) {
        size_t at = in->checked + valid;
        return fail(ALIBI_BAD_INPUT, "'%s' is not UTF-8: byte 0x%02x at offset %lld (line %lld)",
                    in->name, (unsigned char)in->bytes[at], (long long)in->offset + (long long)at,
                    (long long)(in->line + count_lines(fresh, valid)));
    }
    in->line += count_lines(fresh, valid);
    in->checked += valid;
    return ALIBI_OK;
}

/* Drops the bytes before `at` and reads more. Requires at > 0 or checked < INPUT_BYTES - 4. */
static alibi_status input_fill(struct input *in)
{
    size_t got = 0, room, done = in->at;

    memmove(in->bytes, in->bytes + done, in->end - done);
    in->at = 0;
    in->checked -= done;
    in->end -= done;
    in->offset += (int64_t)done;
    room = INPUT_BYTES - in->end;
    TRY_RETURN(unpack_read(in->unpack, in->bytes + in->end, room, &got));
    in->end += got;
    in->ended = got < room;
    return input_check(in);
}

/* ---- the source */

struct source_entry {
    char *path;
    int64_t bytes; /* 0: not known */
    bool named;    /* given by the caller, not found in a folder */
};

struct source {
    const struct alibi_call *call; /* its stop ends the reading of a pipe */
    struct source_entry *files;
    int64_t count, capacity;
    struct alibi_reading reading; /* with a field of its own */
    int64_t bytes_before;         /* of the files that are done */
    _Atomic int64_t bytes_done;   /* read by the thread that waits for the next block */

    struct builtin *builtin; /* the source of documents instead of files; NULL: files */
    struct input in;
    /* Takes text from `in` into `run`, or notices the end of the document. *more: all of the
     * buffer was taken. */
    alibi_status (*split)(struct source *s, bool *more);
    bool within_line; /* past the white space at its start */
    struct text line; /* of JSON, as far as it was read */
    struct text text; /* that it holds */
    int64_t line_number;

    struct slice run;
    bool ended;
    struct place at;
    bool any_document, sought;
};

/* ---- how files are read */

#define AT(field) offsetof(struct alibi_reading, field)

static const struct alibi_option options[] = {
    { "format", ALIBI_OPTION_CHOICE, AT(format), 0, 0, "auto|text|jsonl", "auto", "NAME",
      "format of the files; auto: JSON lines if named .jsonl or .ndjson, else text" },
    { "field", ALIBI_OPTION_TEXT, AT(field), 0, 0, NULL, "text", "NAME",
      "JSON lines: the member that holds the text" },
    { "document", ALIBI_OPTION_CHOICE, AT(document), 0, 0, "file|line|blank-line", "file", "NAME",
      "text: a document is a file, a line, or the lines between blank lines" },
};

const struct alibi_option *alibi_reading_options(int *count)
{
    *count = sizeof options / sizeof options[0];
    return options;
}

static bool ends_with(const char *name, size_t length, const char *suffix)
{
    size_t bytes = strlen(suffix);

    return length >= bytes && memcmp(name + length - bytes, suffix, bytes) == 0;
}

static bool is_json(const struct source *s, const char *path)
{
    size_t length = strlen(path);

    if (s->reading.format != ALIBI_FORMAT_AUTO)
        return s->reading.format == ALIBI_FORMAT_JSONL;
    if (ends_with(path, length, ".gz"))
        length -= strlen(".gz");
    else if (ends_with(path, length, ".zst"))
        length -= strlen(".zst");
    return ends_with(path, length, ".jsonl") || ends_with(path, length, ".ndjson");
}

/* ---- text as documents */

static void take_run(struct source *s, size_t bytes)
{
    s->run = (struct slice){ s->in.bytes + s->in.at, bytes };
    s->in.at += bytes;
}

static alibi_status split_file(struct source *s, bool *more)
{
    *more = s->in.at == s->in.checked;
    take_run(s, s->in.checked - s->in.at);
    return ALIBI_OK;
}

static void split_within_line(struct source *s, bool *more)
{
    const char *text = s->in.bytes + s->in.at;
    size_t bytes = s->in.checked - s->in.at;
    const char *line_end = memchr(text, '\n', bytes);

    *more = bytes == 0;
    if (line_end == NULL) {
        take_run(s, bytes);
        return;
    }
    take_run(s, (size_t)(line_end - text) + 1);
    s->within_line = false;
    s->ended = s->reading.document == ALIBI_DOCUMENT_LINE;
}

/* Skips the line if it is blank, which ends a document. Otherwise the line begins with its white
 * space. */
static void split_line_start(struct source *s, bool *more)
{
    const char *text = s->in.bytes + s->in.at;
    size_t bytes = s->in.checked - s->in.at, white = 0;

    while (white < bytes && white < WHITE_MAX && text[white] != '\n' && is_white_space(text[white]))
        white++;
    *more = white == bytes && white < WHITE_MAX;
    if (*more) {
        s->in.at += s->in.ended ? white : 0;
    } else if (white < WHITE_MAX && text[white] == '\n') {
        s->in.at += white + 1;
        s->ended = s->at.offset > 0;
    } else {
        s->within_line = true;
    }
}

static alibi_status split_lines(struct source *s, bool *more)
{
    if (s->within_line)
        split_within_line(s, more);
    else
        split_line_start(s, more);
    return ALIBI_OK;
}

static bool is_blank(struct slice line)
{
    for (size_t i = 0; i < line.bytes; i++)
        if (!is_white_space(line.at[i]))
            return false;
    return true;
}

/* An empty text is not a document. */
static alibi_status take_json(struct source *s, struct slice line)
{
    s->line_number++;
    if (is_blank(line))
        return ALIBI_OK;
    s->text.length = 0;
    TRY_RETURN(json_line_field(&s->text, line, s->reading.field, s->in.name, s->line_number));
    s->run = (struct slice){ s->text.data, s->text.length };
    s->ended = s->text.length > 0;
    return ALIBI_OK;
}

static alibi_status keep_line(struct source *s, const char *bytes, size_t length)
{
    if (length > source_line_max - s->line.length)
        return fail(ALIBI_BAD_INPUT, "cannot read '%s': line %lld is longer than %zu bytes",
                    s->in.name, (long long)s->line_number + 1, source_line_max);
    text_append_bytes(&s->line, bytes, length);
    return text_status(&s->line);
}

/* Most lines are complete in the buffer and read there. The parts of others are joined first. */
static alibi_status split_json(struct source *s, bool *more)
{
    const char *text = s->in.bytes + s->in.at;
    size_t left = s->in.checked - s->in.at;
    const char *line_end = memchr(text, '\n', left);
    struct slice line = { text, line_end != NULL ? (size_t)(line_end - text) : left };

    *more = line_end == NULL && (!s->in.ended || (left == 0 && s->line.length == 0));
    s->in.at += line.bytes + (line_end != NULL);
    if (*more || s->line.length > 0) {
        TRY_RETURN(keep_line(s, line.at, line.bytes));
        line = (struct slice){ s->line.data, s->line.length };
    }
    if (*more)
        return ALIBI_OK;
    s->line.length = 0;
    return take_json(s, line);
}

/* ---- events */

static alibi_status split_builtin(struct source *s, bool *more)
{
    TRY_RETURN(builtin_next(s->builtin, &s->run));
    s->ended = s->run.bytes > 0;
    s->in.ended = *more = !s->ended;
    return ALIBI_OK;
}

static alibi_status open_file(struct source *s)
{
    const char *path = s->files[s->at.file].path;

    TRY_RETURN(input_open(&s->in, path, s->call));
    s->split = is_json(s, path)                             ? split_json
               : s->reading.document == ALIBI_DOCUMENT_FILE ? split_file
                                                            : split_lines;
    s->within_line = false;
    s->line.length = 0;
    s->line_number = 0;
    return ALIBI_OK;
}

static alibi_status fill(struct source *s)
{
    TRY_RETURN(input_fill(&s->in));
    atomic_store(&s->bytes_done, s->bytes_before + unpack_position(s->in.unpack));
    return ALIBI_OK;
}

enum event { TEXT_COMES, DOCUMENT_ENDS, FILE_ENDS, ALL_ENDS };

/* The next event. It stays until it is taken: by take_text, end_document, end_file. */
static alibi_status look(struct source *s, enum event *event)
{
    bool more = false, file_ends = false;

    while (s->run.bytes == 0 && !s->ended && !file_ends && s->at.file < s->count) {
        if (s->in.unpack == NULL && s->builtin == NULL)
            TRY_RETURN(open_file(s));
        TRY_RETURN(s->split(s, &more));
        if (more && !s->in.ended)
            TRY_RETURN(fill(s));
        else if (more && s->at.offset > 0)
            s->ended = true;
        else
            file_ends = more;
    }
    *event = s->run.bytes > 0 ? TEXT_COMES
             : s->ended       ? DOCUMENT_ENDS
             : file_ends      ? FILE_ENDS
                              : ALL_ENDS;
    return ALIBI_OK;
}

static void take_text(struct source *s, size_t bytes)
{
    s->run.at += bytes;
    s->run.bytes -= bytes;
    s->at.offset += (int64_t)bytes;
}

static void end_document(struct source *s)
{
    s->ended = false;
    s->any_document = true;
    s->at.document++;
    s->at.offset = 0;
}

static alibi_status end_file(struct source *s)
{
    if (s->files[s->at.file].named && s->in.offset == 0 && s->in.end == 0)
        return fail(ALIBI_BAD_INPUT, "'%s' is empty", s->in.name);
    if (s->in.unpack != NULL)
        s->bytes_before += unpack_position(s->in.unpack);
    input_close(&s->in);
    s->at = (struct place){ .file = s->at.file + 1 };
    return ALIBI_OK;
}

static alibi_status end_all(const struct source *s)
{
    if (!s->any_document && !s->sought)
        return fail(ALIBI_BAD_INPUT, "there is no text in '%s'%s", s->files[0].path,
                    s->count > 1 ? " and the other files" : "");
    return ALIBI_OK;
}

/* ---- blocks */

void block_fini(struct block *b)
{
    mem_free(b->text);
    mem_free(b->ends);
    *b = (struct block){ 0 };
}

static alibi_status reserve_text(struct block *b, size_t bytes)
{
    size_t need = bytes > LONGEST_CHARACTER ? bytes : LONGEST_CHARACTER;

    if (need <= b->capacity)
        return ALIBI_OK;
    TRY_RETURN(mem_grow((void **)&b->text, 0, need, "a block of text"));
    b->capacity = need;
    return ALIBI_OK;
}

static alibi_status add_end(struct block *b)
{
    TRY_RETURN(RESERVE_ARRAY(&b->ends, &b->end_capacity, b->end_count + 1, "ends of documents"));
    b->ends[b->end_count++] = b->bytes;
    return ALIBI_OK;
}

/* Bytes of the run that fit, in whole characters; at least one character if need_one. */
static size_t fitting(struct slice run, size_t room, bool need_one)
{
    size_t bytes = room;

    if (run.bytes <= room)
        return run.bytes;
    while (bytes > 0 && utf8_continues(run.at[bytes]))
        bytes--;
    if (bytes == 0 && need_one)
        for (bytes = 1; bytes < run.bytes && utf8_continues(run.at[bytes]);)
            bytes++;
    return bytes;
}

static size_t move_text(struct source *s, struct block *b, size_t limit)
{
    size_t bytes = fitting(s->run, limit > b->bytes ? limit - b->bytes : 0, b->bytes == 0);

    memcpy(b->text + b->bytes, s->run.at, bytes);
    b->bytes += bytes;
    take_text(s, bytes);
    return bytes;
}

alibi_status source_read(struct source *s, struct block *b, size_t bytes)
{
    enum event event;

    b->bytes = 0;
    b->end_count = 0;
    TRY_RETURN(reserve_text(b, bytes));
    for (;;) {
        TRY_RETURN(look(s, &event));
        if (b->bytes == 0)
            b->start = s->at;
        if (event == ALL_ENDS)
            return end_all(s);
        if (event == TEXT_COMES && move_text(s, b, bytes) == 0)
            return ALIBI_OK;
        if (event == DOCUMENT_ENDS) {
            TRY_RETURN(add_end(b));
            end_document(s);
        }
        if (event == FILE_ENDS)
            TRY_RETURN(end_file(s));
    }
}

/* ---- continuing at a place */

static alibi_status refuse_place(const struct source *s, struct place place)
{
    return fail(ALIBI_BAD_INPUT, "the input has changed: '%s' has no byte %lld of document %lld",
                place.file >= 0 && place.file < s->count ? s->files[place.file].path
                                                         : "a file that is gone",
                (long long)place.offset, (long long)place.document);
}

static bool is_before(struct place a, struct place b)
{
    return a.document < b.document || (a.document == b.document && a.offset < b.offset);
}

/* Skips the next event before `place`, which is in this file. */
static alibi_status skip_event(struct source *s, struct place place)
{
    enum event event;
    size_t bytes;

    TRY_RETURN(look(s, &event));
    bytes = s->run.bytes;
    if (event == DOCUMENT_ENDS && s->at.document < place.document) {
        end_document(s);
    } else if (event == TEXT_COMES) {
        if (s->at.document == place.document && (int64_t)bytes > place.offset - s->at.offset)
            bytes = (size_t)(place.offset - s->at.offset);
        take_text(s, bytes);
    } else {
        return refuse_place(s, place);
    }
    return ALIBI_OK;
}

alibi_status source_seek(struct source *s, struct place place)
{
    enum event event = TEXT_COMES;

    if (place.file < 0 || place.file > s->count || place.document < 0 || place.offset < 0 ||
        (place.file == s->count && (place.document > 0 || place.offset > 0)))
        return refuse_place(s, place);
    for (int64_t i = 0; i < place.file; i++)
        s->bytes_before += s->files[i].bytes;
    atomic_store(&s->bytes_done, s->bytes_before);
    s->at = (struct place){ .file = place.file };
    s->sought = true;
    while (is_before(s->at, place))
        TRY_RETURN(skip_event(s, place));
    if (place.offset > 0)
        TRY_RETURN(look(s, &event));
    return event == TEXT_COMES ? ALIBI_OK : refuse_place(s, place);
}

/* ---- which files */

static alibi_status add_file(struct source *s, const char *path, bool named)
{
    struct source_entry entry = { .named = named };
    int64_t modified;

    if (strcmp(path, "-") != 0)
        TRY_RETURN(file_measure(&entry.bytes, &modified, path));
    TRY_RETURN(RESERVE_ARRAY(&s->files, &s->capacity, s->count + 1, "a list of files"));
    TRY_RETURN(text_copy(&entry.path, path));
    s->files[s->count++] = entry;
    return ALIBI_OK;
}

static alibi_status add_folder(struct source *s, const char *folder)
{
    alibi_status status;
    char **paths = NULL;
    int count = 0;

    TRY(folder_list_files(&paths, &count, folder));
    for (int i = 0; i < count; i++)
        TRY(add_file(s, paths[i], false));
out:
    names_free(paths, count);
    return status;
}

static alibi_status add_paths(struct source *s, const char *const *paths, int count)
{
    for (int i = 0; i < count; i++) {
        enum path_kind kind = PATH_FILE;
        if (strcmp(paths[i], "-") != 0) {
            TRY_RETURN(shards_refuse(paths[i]));
            TRY_RETURN(path_look(&kind, paths[i]));
        }
        TRY_RETURN(kind == PATH_FOLDER ? add_folder(s, paths[i]) : add_file(s, paths[i], true));
    }
    if (s->count == 0)
        return fail(ALIBI_BAD_INPUT, "there is no file in '%s'", paths[0]);
    return ALIBI_OK;
}

static alibi_status check_reading(const struct alibi_reading *r)
{
    bool known = r->format >= 0 && r->format <= ALIBI_FORMAT_JSONL && r->document >= 0 &&
                 r->document <= ALIBI_DOCUMENT_BLANK_LINE;

    if (!known)
        return fail(ALIBI_USAGE, "unknown way to read text: format %d, document %d", r->format,
                    r->document);
    return ALIBI_OK;
}

alibi_status source_open(struct source **out, const char *const *paths, int count,
                         const struct alibi_reading *reading, const struct alibi_call *call)
{
    alibi_status status;
    struct source *s = NULL;

    if (count < 1)
        return fail(ALIBI_USAGE, "a corpus needs at least one file");
    TRY(NEW_ZERO_ARRAY(&s, 1, "a source of text"));
    s->call = call;
    if (reading != NULL) {
        TRY(check_reading(reading));
        s->reading = *reading;
    }
    s->reading.field = NULL;
    TRY(text_copy(&s->reading.field,
                  reading != NULL && reading->field != NULL ? reading->field : "text"));
    TRY(add_paths(s, paths, count));
    *out = s;
    s = NULL;
out:
    source_close(s);
    return status;
}

alibi_status source_open_builtin(struct source **out, const struct alibi_builtin *which)
{
    alibi_status status;
    struct source *s = NULL;

    TRY(NEW_ZERO_ARRAY(&s, 1, "a source of text"));
    TRY(builtin_open(&s->builtin, which));
    TRY(NEW_ZERO_ARRAY(&s->files, 1, "a list of files"));
    s->count = 1;
    TRY(text_copy(&s->files[0].path, "built-in text"));
    s->split = split_builtin;
    *out = s;
    s = NULL;
out:
    source_close(s);
    return status;
}

void source_close(struct source *s)
{
    if (s == NULL)
        return;
    for (int64_t i = 0; i < s->count; i++)
        mem_free(s->files[i].path);
    mem_free(s->files);
    mem_free(s->reading.field);
    builtin_close(s->builtin);
    input_close(&s->in);
    mem_free(s->in.bytes);
    text_free(&s->line);
    text_free(&s->text);
    mem_free(s);
}

int source_file_count(const struct source *s)
{
    return (int)s->count;
}

const char *source_file(const struct source *s, int64_t file)
{
    return s->files[file].path;
}

int64_t source_bytes_total(const struct source *s)
{
    int64_t total = 0;

    for (int64_t i = 0; i < s->count; i++) {
        if (s->files[i].named && s->files[i].bytes == 0)
            return 0;
        total += s->files[i].bytes;
    }
    return total;
}

int64_t source_bytes_done(const struct source *s)
{
    return atomic_load(&s->bytes_done);
}
