/* source.c - files to blocks of documents
 *
 *   paths -> files -> input (checked text) -> runs of a document's text, and its end -> blocks
 *
 * A file is read once, from front to back. At most a buffer of it, or one line of JSON, is in
 * memory. The documents depend on the files alone, not on the sizes of blocks. Text is not changed,
 * except that a byte-order mark at the start of a file is skipped.
 *
 * Invariants: `run` is text of the document at `at`, and at.offset counts its bytes that were
 * handed over. If `ended`, run is the rest of the document. So the end of a document always comes
 * with its last byte. */
#include <ctype.h>
#include <stdatomic.h>
#include <string.h>

#include "base/names.h"
#include "text/source.h"

enum {
    WHITE_MAX = 1 << 16, /* a line that begins with more white space counts as text */
    LONGEST_CHARACTER = 4,
    LINE_MAX_BYTES = 256 << 20, /* of JSON */
    SEPARATOR_MAX = 256,
};

static const char byte_order_mark[] = "\xEF\xBB\xBF", end_of_text[] = "<|endoftext|>";

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
    bool marked;    /* it began with a byte-order mark, which was skipped */
};

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

/* Text in any encoding has almost no control characters other than those of lines and pages. Of
 * random bytes, a tenth are such characters. */
static bool is_binary(const char *bytes, size_t length)
{
    size_t controls = 0;

    for (size_t i = 0; i < length; i++)
        controls += (unsigned char)bytes[i] < 0x20 && !(bytes[i] >= '\t' && bytes[i] <= '\r');
    return length >= 64 && controls > length / 32;
}

static alibi_status fail_at_zero(const char *name, int64_t offset)
{
    return fail(ALIBI_BAD_INPUT, "'%s' is not text: byte 0 at offset %lld", name,
                (long long)offset);
}

/* Drops the bytes before `at`, reads more and checks them. Up to three bytes at the end may be the
 * start of a character, unless the file ends. Requires at > 0 or checked < INPUT_BYTES - 4. */
static alibi_status input_fill(struct input *in)
{
    bool first = in->offset == 0 && in->end == 0;
    size_t got = 0, room, length, valid, done = in->at;
    const char *fresh, *zero;

    memmove(in->bytes, in->bytes + done, in->end - done);
    in->at = 0;
    in->checked -= done;
    in->end -= done;
    in->offset += (int64_t)done;
    room = INPUT_BYTES - in->end;
    TRY_RETURN(unpack_read(in->unpack, in->bytes + in->end, room, &got));
    in->end += got;
    in->ended = got < room;
    if (first)
        TRY_RETURN(foreign_refuse(in->bytes, in->end, in->name));

    fresh = in->bytes + in->checked;
    length = in->end - in->checked;
    valid = utf8_valid_prefix(fresh, length);
    zero = memchr(fresh, 0, valid);
    if (zero != NULL)
        return fail_at_zero(in->name, in->offset + (zero - in->bytes));
    if (valid < length && (in->ended || length - valid >= LONGEST_CHARACTER)) {
        size_t at = in->checked + valid;

        if (is_binary(in->bytes, in->end))
            return fail(ALIBI_BAD_INPUT, "'%s' is not text: it has binary data", in->name);
        return fail(ALIBI_BAD_INPUT,
                    "'%s' is not UTF-8: byte 0x%02x at offset %lld (line %lld); if it is text in "
                    "another encoding, convert it, as with iconv -f WINDOWS-1252 -t UTF-8",
                    in->name, (unsigned char)in->bytes[at], (long long)in->offset + (long long)at,
                    (long long)(in->line + count_lines(fresh, valid)));
    }
    in->line += count_lines(fresh, valid);
    in->checked += valid;
    in->marked = first ? in->end >= 3 && memcmp(in->bytes, byte_order_mark, 3) == 0 : in->marked;
    in->at = first && in->marked ? 3 : 0;
    return ALIBI_OK;
}

alibi_status alibi_text_check(const char *text, size_t bytes, const char *name)
{
    size_t valid = utf8_valid_prefix(text, bytes);
    const char *zero;

    if (bytes == 0) /* which may have no address */
        return ALIBI_OK;
    zero = memchr(text, 0, valid);
    TRY_RETURN(foreign_refuse(text, bytes, name));
    if (zero != NULL)
        return fail_at_zero(name, zero - text);
    if (valid < bytes)
        return fail(ALIBI_BAD_INPUT, "'%s' is not UTF-8: byte 0x%02x at offset %zu", name,
                    (unsigned char)text[valid], valid);
    return ALIBI_OK;
}

/* Folders of shards are not searched, so a run may be inside one. */
alibi_status alibi_text_check_folder(const char *const *paths, int count, const char *valid,
                                     const char *dir)
{
    for (int i = 0; i < count + (valid != NULL); i++) {
        const char *path = i < count ? paths[i] : valid;
        enum path_kind kind = PATH_FILE;
        bool shards = false, within = false;

        if (strcmp(path, "-") != 0)
            TRY_RETURN(path_look(&kind, path));
        if (kind == PATH_FOLDER)
            TRY_RETURN(path_is_within(&within, dir, path));
        if (within)
            TRY_RETURN(shards_recognise(&shards, path));
        if (within && !shards)
            return fail(ALIBI_BAD_INPUT,
                        "cannot write to '%s': it is within '%s', which is read as text; choose a "
                        "folder outside it",
                        dir, path);
    }
    return ALIBI_OK;
}

/* ---- the source */

struct source_entry {
    char *path;
    int64_t bytes; /* 0: not known */
    bool named;    /* given by the caller, not found in a folder */
};

/* Facts that the user may not expect. Each is told once, in the thread of the call. */
enum { NOTE_LINE_ENDS, NOTE_END_OF_TEXT, NOTE_NO_SEPARATOR, NOTES };

struct source {
    const struct alibi_call *call; /* its stop ends the reading of a pipe, */
    struct alibi_stop unwanted;    /* and so does this one */
    struct source_entry *files;
    int64_t count, capacity;
    enum alibi_format format;
    char *field;
    enum { BY_FILE, BY_LINE, BY_BLANK_LINE, BY_SEPARATOR } document;
    char separator[SEPARATOR_MAX];
    size_t separator_bytes;
    size_t line_max;            /* bytes of a line of JSON */
    int64_t bytes_before;       /* of the files that are done */
    _Atomic int64_t bytes_done; /* read by the thread that waits for the next block */

    struct builtin *builtin;  /* the source of documents instead of files; NULL: files, or */
    const char *const *texts; /* texts in memory: those that remain, borrowed */
    const size_t *text_bytes;
    int64_t texts_left, texts_done;
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
    char before[LONGEST_CHARACTER]; /* the last bytes of the document that source_seek() skipped */
    size_t before_bytes;
    bool any_document, any_separator, sought;
    struct {
        bool due, told;
        int64_t file;
    } notes[NOTES];
};

/* ---- how files are read */

#define AT(field) offsetof(struct alibi_reading, field)

static const struct alibi_option options[] = {
    { "format", ALIBI_OPTION_CHOICE, AT(format), 0, 0, "auto|text|jsonl", "auto", "NAME",
      "format of the files; auto: JSON lines if named .jsonl or .ndjson, else text" },
    { "field", ALIBI_OPTION_TEXT, AT(field), 0, 0, NULL, "text", "NAME",
      "JSON lines: the member that holds the text" },
    { "document", ALIBI_OPTION_TEXT, AT(document), 0, 0, NULL, "file", "HOW",
      "text: a document is a file, a line, the lines between blank lines (blank-line), or the text "
      "between separators, such as '<|endoftext|>' or '\\n***\\n'" },
};

const struct alibi_option *alibi_reading_options(int *count)
{
    *count = COUNT(options);
    return options;
}

bool looks_like_a_name(const char *text)
{
    if (*text == '-' || *text == '_') /* such as a line of them */
        return false;
    while (isalnum((unsigned char)*text) || *text == '-' || *text == '_')
        text++;
    return *text == '\0';
}

static alibi_status read_document(struct source *s, const char *how)
{
    static const char *const names[] = { "file", "line", "blank-line" };
    static const char escapes[] = "n\nr\rt\t\\\\"; /* letter, byte, ... */

    for (int i = 0; i < COUNT(names); i++)
        if (how == NULL || strcmp(how, names[i]) == 0) {
            s->document = i;
            return ALIBI_OK;
        }
    if (looks_like_a_name(how)) { /* a misspelled name would separate nothing */
        const char *nearest = alibi_nearest(how, names, 3);
        return fail(ALIBI_USAGE,
                    "option '--document': '%s' is not one of file, line, blank-line%s%s%s; a "
                    "separator has more than letters and digits, such as '\\n%s\\n'",
                    how, nearest != NULL ? ": did you mean '" : "", nearest != NULL ? nearest : "",
                    nearest != NULL ? "'?" : "", how);
    }
    for (; *how != '\0'; how++) {
        const char *escape = how[0] == '\\' && how[1] != '\0' ? strchr(escapes, how[1]) : NULL;
        if (s->separator_bytes == SEPARATOR_MAX)
            return fail(ALIBI_USAGE, "option '--document': a separator has at most %d bytes",
                        SEPARATOR_MAX);
        if (how[0] == '\\' && (escape == NULL || (escape - escapes) % 2 != 0))
            return fail(ALIBI_USAGE,
                        "option '--document': '\\%.1s' is not known in a separator, only \\n, \\r, "
                        "\\t and \\\\",
                        how + 1);
        s->separator[s->separator_bytes++] = escape != NULL ? escape[1] : *how;
        how += escape != NULL;
    }
    if (utf8_valid_prefix(s->separator, s->separator_bytes) < s->separator_bytes)
        return fail(ALIBI_USAGE, "option '--document': the separator is not UTF-8");
    s->document = BY_SEPARATOR;
    return ALIBI_OK;
}

static bool is_json(const struct source *s, const char *path)
{
    static const char *const endings[] = { ".jsonl",  ".jsonl.gz",  ".jsonl.zst",
                                           ".ndjson", ".ndjson.gz", ".ndjson.zst" };
    bool named = false;

    for (int i = 0; i < COUNT(endings); i++)
        named = named || ends_with(path, endings[i]);
    return s->format == ALIBI_FORMAT_AUTO ? named : s->format == ALIBI_FORMAT_JSONL;
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

/* A blank line is skipped and ends a document. Any other begins with its white space. */
static alibi_status split_lines(struct source *s, bool *more)
{
    const char *text = s->in.bytes + s->in.at;
    size_t bytes = s->in.checked - s->in.at, white = 0;

    if (s->within_line) {
        const char *line_end = memchr(text, '\n', bytes);
        *more = bytes == 0;
        take_run(s, line_end != NULL ? (size_t)(line_end - text) + 1 : bytes);
        s->within_line = line_end == NULL;
        s->ended = line_end != NULL && s->document == BY_LINE;
        return ALIBI_OK;
    }
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
    return ALIBI_OK;
}

/* The separator is in no document, nor is the end of its line directly after it. Text that may be
 * the start of one waits for more, in whole characters. */
static alibi_status split_at_separator(struct source *s, bool *more)
{
    const char *text = s->in.bytes + s->in.at;
    size_t bytes = s->in.checked - s->in.at, length = s->separator_bytes;
    const char *found = memmem(text, bytes, s->separator, length);
    size_t before = found != NULL ? (size_t)(found - text) : bytes, line_end = 0;

    if (found == NULL && !s->in.ended)
        for (before = bytes < length ? 0 : bytes - (length - 1); before > 0; before--)
            if (before == bytes || !utf8_continues(text[before]))
                break;
    *more = before == 0 && (found == NULL || (bytes < length + 2 && !s->in.ended));
    if (*more)
        return ALIBI_OK;
    if (before > 0) {
        take_run(s, before);
        return ALIBI_OK;
    }
    if (s->separator[length - 1] != '\n') {
        bool carriage_return = bytes > length && text[length] == '\r';
        if (bytes > length + carriage_return && text[length + carriage_return] == '\n')
            line_end = 1 + (size_t)carriage_return;
    }
    s->in.at += length + line_end;
    s->ended = s->at.offset > 0;
    s->any_separator = true;
    return ALIBI_OK;
}

/* Most lines are complete in the buffer and read there. The parts of others are joined first. An
 * empty text is not a document, and neither is a blank line. */
static alibi_status split_json(struct source *s, bool *more)
{
    const char *text = s->in.bytes + s->in.at;
    size_t left = s->in.checked - s->in.at, white = 0;
    const char *line_end = memchr(text, '\n', left);
    struct slice line = { text, line_end != NULL ? (size_t)(line_end - text) : left };

    *more = line_end == NULL && (!s->in.ended || (left == 0 && s->line.length == 0));
    s->in.at += line.bytes + (line_end != NULL);
    if (*more || s->line.length > 0) {
        if (line.bytes > s->line_max - s->line.length)
            return fail(ALIBI_BAD_INPUT, "cannot read '%s': line %lld is longer than %zu bytes",
                        s->in.name, (long long)s->line_number + 1, s->line_max);
        text_append_bytes(&s->line, line.at, line.bytes);
        TRY_RETURN(text_status(&s->line));
        line = (struct slice){ s->line.data, s->line.length };
    }
    if (*more)
        return ALIBI_OK;
    s->line.length = 0;
    s->line_number++;
    while (white < line.bytes && is_white_space(line.at[white]))
        white++;
    if (white == line.bytes)
        return ALIBI_OK;
    s->text.length = 0;
    TRY_RETURN(json_line_field(&s->text, line, s->field, s->in.name, s->line_number));
    s->run = (struct slice){ s->text.data, s->text.length };
    s->ended = s->text.length > 0;
    return ALIBI_OK;
}

static alibi_status split_builtin(struct source *s, bool *more)
{
    TRY_RETURN(builtin_next(s->builtin, &s->run));
    s->ended = s->run.bytes > 0;
    s->in.ended = *more = !s->ended;
    return ALIBI_OK;
}

/* As in JSON, an empty text is not a document. */
static alibi_status split_texts(struct source *s, bool *more)
{
    char name[32];

    for (; s->texts_left > 0 && !s->ended; s->texts_left--) {
        s->run = (struct slice){ *s->texts++, *s->text_bytes++ };
        s->ended = s->run.bytes > 0;
        atomic_fetch_add(&s->bytes_done, (int64_t)s->run.bytes);
        snprintf(name, sizeof name, "text %lld", (long long)++s->texts_done);
        TRY_RETURN(alibi_text_check(s->run.at, s->run.bytes, name));
    }
    s->in.ended = *more = !s->ended;
    return ALIBI_OK;
}

/* ---- notes */

static void note(struct source *s, int which)
{
    if (s->notes[which].due)
        return;
    s->notes[which].due = true;
    s->notes[which].file = s->at.file;
}

/* Looks at the first buffer of a text. */
static void look_for_surprises(struct source *s)
{
    const char *text = s->in.bytes;
    size_t bytes = s->in.checked;
    const char *line_end = memchr(text, '\n', bytes);

    if (line_end != NULL && line_end > text && line_end[-1] == '\r')
        note(s, NOTE_LINE_ENDS);
    if (s->document != BY_SEPARATOR &&
        memmem(text, bytes, end_of_text, sizeof end_of_text - 1) != NULL)
        note(s, NOTE_END_OF_TEXT);
}

void source_tell(struct source *s)
{
    static const char *const what[] = {
        [NOTE_LINE_ENDS] = "has Windows line ends (CR LF), which are kept; dos2unix removes them",
        [NOTE_END_OF_TEXT] = "contains <|endoftext|>; if it separates documents, give --document "
                             "'<|endoftext|>'",
        [NOTE_NO_SEPARATOR] = "does not contain the separator of --document, nor does any file "
                              "before it: every file is one document",
    };

    for (int i = 0; i < NOTES; i++) {
        if (s->notes[i].due && !s->notes[i].told)
            call_note(s->call, "'%s' %s", source_name(s, s->notes[i].file), what[i]);
        s->notes[i].told = s->notes[i].due;
    }
}

/* ---- events */

static alibi_status open_file(struct source *s)
{
    const char *path = s->files[s->at.file].path;
    struct input *in = &s->in;

    if (in->bytes == NULL)
        TRY_RETURN(NEW_ARRAY(&in->bytes, INPUT_BYTES, "a block of a file"));
    TRY_RETURN(unpack_open(&in->unpack, path, s->call, &s->unwanted));
    *in = (struct input){ .unpack = in->unpack, .bytes = in->bytes, .line = 1 };
    in->name = source_name(s, s->at.file);
    s->split = is_json(s, path)              ? split_json
               : s->document == BY_FILE      ? split_file
               : s->document == BY_SEPARATOR ? split_at_separator
                                             : split_lines;
    s->within_line = false;
    s->line.length = 0;
    s->line_number = 0;
    return ALIBI_OK;
}

enum event { TEXT_COMES, DOCUMENT_ENDS, FILE_ENDS, ALL_ENDS };

/* The next event. It stays until it is taken: by take_text, end_document, end_file. */
static alibi_status look(struct source *s, enum event *event)
{
    bool more = false, file_ends = false;

    while (s->run.bytes == 0 && !s->ended && !file_ends && s->at.file < s->count) {
        if (s->in.unpack == NULL && s->builtin == NULL && s->texts == NULL)
            TRY_RETURN(open_file(s));
        TRY_RETURN(s->split(s, &more));
        if (more && !s->in.ended) {
            bool first = s->in.offset == 0 && s->in.end == 0;
            TRY_RETURN(input_fill(&s->in));
            if (first && s->split != split_json)
                look_for_surprises(s);
            atomic_store(&s->bytes_done, s->bytes_before + unpack_position(s->in.unpack));
        } else if (more && s->at.offset > 0) {
            s->ended = true;
        } else {
            file_ends = more;
        }
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
    if (s->at.file + 1 == s->count && s->document == BY_SEPARATOR && !s->any_separator &&
        !s->sought && s->split == split_at_separator)
        note(s, NOTE_NO_SEPARATOR);
    s->at = (struct place){ .file = s->at.file + 1 };
    return ALIBI_OK;
}

/* ---- blocks */

void block_fini(struct block *b)
{
    mem_free(b->text);
    mem_free(b->ends);
    *b = (struct block){ 0 };
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

alibi_status source_read(struct source *s, struct block *b, size_t bytes)
{
    size_t need = bytes > LONGEST_CHARACTER ? bytes : LONGEST_CHARACTER, some;
    enum event event;

    b->bytes = 0;
    b->end_count = 0;
    if (need > b->capacity) {
        TRY_RETURN(mem_grow((void **)&b->text, 0, need, "a block of text"));
        b->capacity = need;
    }
    for (;;) {
        TRY_RETURN(look(s, &event));
        if (b->bytes == 0)
            b->start = s->at;
        switch (event) {
        case TEXT_COMES:
            some = fitting(s->run, bytes > b->bytes ? bytes - b->bytes : 0, b->bytes == 0);
            if (some == 0)
                return ALIBI_OK;
            memcpy(b->text + b->bytes, s->run.at, some);
            b->bytes += some;
            take_text(s, some);
            break;
        case DOCUMENT_ENDS:
            TRY_RETURN(
                RESERVE_ARRAY(&b->ends, &b->end_capacity, b->end_count + 1, "ends of documents"));
            b->ends[b->end_count++] = b->bytes;
            end_document(s);
            break;
        case FILE_ENDS:
            TRY_RETURN(end_file(s));
            break;
        case ALL_ENDS:
            if (!s->any_document && !s->sought)
                return fail(ALIBI_BAD_INPUT, "there is no text in '%s'%s", source_name(s, 0),
                            s->count > 1 ? " and the other files" : "");
            return ALIBI_OK;
        }
    }
}

/* ---- continuing at a place */

static alibi_status refuse_place(const struct source *s, struct place place)
{
    return fail(ALIBI_BAD_INPUT, "the input has changed: '%s' has no byte %lld of document %lld",
                place.file >= 0 && place.file < s->count ? source_name(s, place.file)
                                                         : "a file that is gone",
                (long long)place.offset, (long long)place.document);
}

static void skip_text(struct source *s, size_t bytes)
{
    size_t kept = bytes < LONGEST_CHARACTER ? LONGEST_CHARACTER - bytes : 0;
    size_t taken = LONGEST_CHARACTER - kept;

    kept = kept < s->before_bytes ? kept : s->before_bytes;
    memmove(s->before, s->before + s->before_bytes - kept, kept);
    memcpy(s->before + kept, s->run.at + bytes - taken, taken);
    s->before_bytes = kept + taken;
    take_text(s, bytes);
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
    while (s->at.document < place.document ||
           (s->at.document == place.document && s->at.offset < place.offset)) {
        TRY_RETURN(look(s, &event));
        if (event == DOCUMENT_ENDS && s->at.document < place.document) {
            end_document(s);
            s->before_bytes = 0;
        } else if (event == TEXT_COMES) {
            int64_t left = place.offset - s->at.offset;
            bool there = s->at.document == place.document && (int64_t)s->run.bytes > left;
            skip_text(s, there ? (size_t)left : s->run.bytes);
        } else {
            return refuse_place(s, place);
        }
    }
    if (place.offset > 0)
        TRY_RETURN(look(s, &event));
    return place.offset == 0 || event == TEXT_COMES ? ALIBI_OK : refuse_place(s, place);
}

void source_abandon(struct source *s)
{
    alibi_stop_request(&s->unwanted);
}

struct slice source_before(const struct source *s)
{
    return (struct slice){ s->before, s->before_bytes };
}

/* ---- open and close */

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

/* A folder that this program made is not text, although there are files with JSON in it. */
static alibi_status refuse_own(const char *folder)
{
    static const struct {
        const char *has[2], *what, *resume;
    } kinds[] = {
        { { NAME_EXPERIMENT, NAME_LOCK },
          "an experiment",
          "to resume it: alibi reproduce NAME --out" },
        { { NAME_COMPARED_TEXT, NAME_RECIPE },
          "a comparison",
          "to resume it: alibi compare TEXT --out" },
        { { NAME_LOG, NAME_RECIPE }, "a training run", "to resume it: alibi train --resume --out" },
        { { NAME_MANIFEST, NAME_WEIGHTS },
          "a checkpoint",
          "to train from it: alibi train TEXT --init" },
    };

    for (int i = 0; i < COUNT(kinds); i++) {
        bool first, second;
        TRY_RETURN(folder_has(&first, folder, kinds[i].has[0]));
        TRY_RETURN(folder_has(&second, folder, kinds[i].has[1]));
        if (first && second)
            return fail(ALIBI_BAD_INPUT, "'%s' is %s, not a text; %s %s", folder, kinds[i].what,
                        kinds[i].resume, folder);
    }
    return ALIBI_OK;
}

/* A file, or all files of a folder. */
static alibi_status add_path(struct source *s, const char *path)
{
    alibi_status status;
    enum path_kind kind = PATH_FILE;
    char **found = NULL;
    int count = 0;

    if (strcmp(path, "-") != 0) {
        TRY(shards_refuse(path));
        TRY(path_look(&kind, path));
    }
    if (kind != PATH_FOLDER)
        return add_file(s, path, true);
    TRY(refuse_own(path));
    TRY(folder_list_files(&found, &count, path));
    for (int i = 0; i < count; i++)
        TRY(add_file(s, found[i], false));
out:
    names_free(found, count);
    return status;
}

alibi_status source_open(struct source **out, const char *const *paths, int count,
                         const struct alibi_reading *reading, const struct alibi_call *call)
{
    const struct alibi_reading how = reading != NULL ? *reading : (struct alibi_reading){ 0 };
    alibi_status status;
    struct source *s = NULL;

    if (count < 1)
        return fail(ALIBI_USAGE, "a corpus needs at least one file");
    if (how.format < 0 || how.format > ALIBI_FORMAT_JSONL)
        return fail(ALIBI_USAGE, "unknown way to read text: format %d", how.format);
    TRY(NEW_ZERO_ARRAY(&s, 1, "a source of text"));
    s->call = call;
    s->format = (enum alibi_format)how.format;
    s->line_max = LINE_MAX_BYTES;
    TRY(read_document(s, how.document));
    TRY(text_copy(&s->field, how.field != NULL ? how.field : "text"));
    for (int i = 0; i < count; i++)
        TRY(add_path(s, paths[i]));
    if (s->count == 0)
        TRY(fail(ALIBI_BAD_INPUT, "there is no file in '%s'", paths[0]));
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

alibi_status source_open_texts(struct source **out, const char *const *texts, const size_t *bytes,
                               int64_t count)
{
    alibi_status status;
    struct source *s = NULL;

    if (count < 1)
        return fail(ALIBI_USAGE, "a corpus needs at least one text");
    TRY(NEW_ZERO_ARRAY(&s, 1, "a source of text"));
    TRY(NEW_ZERO_ARRAY(&s->files, 1, "a list of files"));
    s->count = 1;
    TRY(text_copy(&s->files[0].path, "texts"));
    for (int64_t i = 0; i < count; i++)
        s->files[0].bytes += (int64_t)bytes[i];
    s->texts = texts;
    s->text_bytes = bytes;
    s->texts_left = count;
    s->split = split_texts;
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
    mem_free(s->field);
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

const char *source_name(const struct source *s, int64_t file)
{
    return strcmp(s->files[file].path, "-") == 0 ? "standard input" : s->files[file].path;
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

bool source_skipped_mark(const struct source *s)
{
    return s->in.unpack != NULL && s->in.marked;
}

void source_set_line_max(struct source *s, size_t bytes)
{
    s->line_max = bytes;
}
