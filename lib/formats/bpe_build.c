/* bpe_build.c - vocabulary and merges, from names to bytes
 *
 * A name consists of letters of bytes (byte_letters.c), or it is literal text, as special tokens
 * are, which may have blanks. Text is always encoded as letters, so no merge can make a literal
 * token; a file with such a merge is refused. */
#include "formats/bpe_build.h"

#include <string.h>

const char bpe_gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/* ---- begin, end */

alibi_status bpe_check_text(struct slice text, const char *path)
{
    size_t valid;

    if (text.bytes > BPE_FILE_MAX)
        return fail(ALIBI_BAD_INPUT, "cannot read '%s': it has %zu bytes, at most %d are allowed",
                    path, text.bytes, BPE_FILE_MAX);
    valid = utf8_valid_prefix(text.at, text.bytes);
    if (valid < text.bytes)
        return fail(ALIBI_BAD_INPUT, "cannot read '%s': byte %zu is not UTF-8", path, valid);
    return ALIBI_OK;
}

alibi_status bpe_build_init(struct bpe_build *b, struct slice text, const char *path)
{
    *b = (struct bpe_build){
        .scan = { .text = text.at, .end = text.bytes, .path = path, .lines = true }
    };
    TRY_RETURN(bpe_check_text(text, path));
    TRY_RETURN(NEW_ZERO_ARRAY(&b->file, 1, "a tokenizer"));
    return NEW_ARRAY(&b->scan.strings, (int64_t)text.bytes, "the names of tokens");
}

void bpe_build_fini(struct bpe_build *b)
{
    mem_free(b->scan.strings);
    bpe_file_free(b->file);
    token_names_fini(&b->names);
}

void bpe_file_free(struct bpe_file *f)
{
    if (f == NULL)
        return;
    for (int i = 0; i < f->split_count; i++)
        mem_free(f->splits[i].pattern);
    mem_free(f->storage);
    mem_free(f->tokens);
    mem_free(f->merges);
    mem_free(f->added);
    mem_free(f);
}

/* ---- letters */

/* The first character of valid UTF-8, and its bytes. One beyond U+07FF is not the letter of any
 * byte, so its code point does not matter. */
static uint32_t letter_at(const char *at, size_t *bytes)
{
    unsigned char lead = (unsigned char)at[0];

    if (lead < 0x80) {
        *bytes = 1;
        return lead;
    }
    *bytes = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    return *bytes == 2 ? (uint32_t)(lead & 0x1F) << 6 | (at[1] & 0x3F) : UINT32_MAX;
}

bool name_is_letters(struct slice name)
{
    size_t step;

    for (size_t i = 0; i < name.bytes; i += step)
        if (byte_of_letter(letter_at(name.at + i, &step)) < 0)
            return false;
    return true;
}

bool name_is_ascii(struct slice name)
{
    for (size_t i = 0; i < name.bytes; i++)
        if ((unsigned char)name.at[i] >= 0x80)
            return false;
    return true;
}

/* A letter is never shorter than its byte, so the bytes overwrite the letters. */
static struct slice bytes_of_letters(struct slice name, char *storage)
{
    char *bytes = storage + (name.at - storage);
    size_t count = 0, step;

    for (size_t i = 0; i < name.bytes; i += step)
        bytes[count++] = (char)byte_of_letter(letter_at(name.at + i, &step));
    return (struct slice){ bytes, count };
}

/* ---- vocabulary */

static alibi_status read_entry(struct bpe_build *b)
{
    struct token_name *entry = &b->names.at[b->names.count];
    int64_t id = 0;

    TRY_RETURN(scan_slice(&b->scan, &entry->name));
    TRY_RETURN(scan_expect(&b->scan, ':'));
    TRY_RETURN(scan_count(&b->scan, &id));
    if (entry->name.bytes == 0)
        return scan_fail(&b->scan, "token %lld has no letters", (long long)id);
    if (id >= b->file->vocab)
        return scan_fail(&b->scan,
                         "the token '%.80s' has the id %lld, but ids are 0 to %lld, each once",
                         entry->name.at, (long long)id, (long long)b->file->vocab - 1);
    if (b->file->tokens[id].at != NULL)
        return scan_fail(&b->scan, "the tokens '%.80s' and '%.80s' both have the id %lld",
                         b->file->tokens[id].at, entry->name.at, (long long)id);
    entry->id = (int32_t)id;
    b->file->tokens[id] = entry->name;
    b->names.count++;
    return ALIBI_OK;
}

alibi_status bpe_build_vocab(struct bpe_build *b)
{
    struct scan *s = &b->scan;
    size_t start = s->at;

    if (scan_peek(s) != '{')
        return scan_fail(s, "'{' expected");
    TRY_RETURN(scan_skip(s, &b->file->vocab));
    TRY_RETURN(NEW_ARRAY(&b->names.at, b->file->vocab, "the names of tokens"));
    TRY_RETURN(NEW_ZERO_ARRAY(&b->file->tokens, b->file->vocab, "tokens"));
    s->at = start;
    TRY_RETURN(scan_expect(s, '{'));
    if (!scan_take(s, '}')) {
        do
            TRY_RETURN(read_entry(b));
        while (scan_take(s, ','));
        TRY_RETURN(scan_expect(s, '}'));
    }
    return token_names_sort(&b->names, s->path);
}

/* ---- merges */

alibi_status bpe_build_merges(struct bpe_build *b, int64_t count)
{
    return NEW_ARRAY(&b->file->merges, count, "merges");
}

static int print_bytes(struct slice s)
{
    return (int)(s.bytes < 80 ? s.bytes : 80);
}

static alibi_status find_part(int32_t *id, const struct bpe_build *b, const struct scan *place,
                              struct slice part)
{
    *id = token_names_find(&b->names, part, (struct slice){ 0 });
    if (*id < 0)
        return scan_fail(place, "the merge has '%.*s', which is not in the vocabulary,",
                         print_bytes(part), part.at);
    return ALIBI_OK;
}

alibi_status bpe_build_merge(struct bpe_build *b, const struct scan *place, struct slice left,
                             struct slice right)
{
    struct bpe_merge *m = &b->file->merges[b->file->merge_count];

    TRY_RETURN(find_part(&m->left, b, place, left));
    TRY_RETURN(find_part(&m->right, b, place, right));
    m->result = token_names_find(&b->names, left, right);
    if (m->result < 0)
        return scan_fail(place, "the merge makes '%.*s%.*s', which is not in the vocabulary,",
                         print_bytes(left), left.at, print_bytes(right), right.at);
    if (!name_is_letters(left) || !name_is_letters(right))
        return scan_fail(place, "the merge of '%.*s' and '%.*s' has letters of no byte",
                         print_bytes(left), left.at, print_bytes(right), right.at);
    b->file->merge_count++;
    return ALIBI_OK;
}

alibi_status bpe_build_merge_line(struct bpe_build *b, const struct scan *place, struct slice line)
{
    const char *blank = line.bytes > 0 ? memchr(line.at, ' ', line.bytes) : NULL;
    struct slice left, right;

    if (blank == NULL)
        return scan_fail(place, "two tokens with a blank between them expected");
    left = (struct slice){ line.at, (size_t)(blank - line.at) };
    right = (struct slice){ blank + 1, line.bytes - left.bytes - 1 };
    if (right.bytes > 0 && memchr(right.at, ' ', right.bytes) != NULL)
        return scan_fail(place, "two tokens with one blank between them expected");
    return bpe_build_merge(b, place, left, right);
}

/* Keeps the last of several merges of the same pair. Merges with the same result are equal if they
 * cut it at the same place, so a result has at most as many merges as its name has letters. */
static alibi_status drop_repeated(struct bpe_file *f)
{
    alibi_status status;
    int32_t *last = NULL;   /* [vocab] the last kept merge that makes the token; -1: none */
    int32_t *before = NULL; /* [merge_count] the kept merge of the same token before that one */
    int64_t kept = f->merge_count;

    TRY(NEW_ARRAY(&last, f->vocab, "merges"));
    TRY(NEW_ARRAY(&before, f->merge_count, "merges"));
    memset(last, 0xFF, (size_t)f->vocab * sizeof *last);
    for (int64_t i = f->merge_count - 1; i >= 0; i--) {
        const struct bpe_merge m = f->merges[i];
        int32_t other = last[m.result];
        while (other >= 0 && f->merges[other].left != m.left)
            other = before[other];
        if (other >= 0)
            continue;
        kept--;
        f->merges[kept] = m;
        before[kept] = last[m.result];
        last[m.result] = (int32_t)kept;
    }
    f->merge_count -= kept;
    memmove(f->merges, f->merges + kept, (size_t)f->merge_count * sizeof *f->merges);
out:
    mem_free(last);
    mem_free(before);
    return status;
}

/* ---- from names to bytes */

static alibi_status find_bytes(struct bpe_build *b)
{
    for (int byte = 0; byte < 256; byte++) {
        char letter[2];
        struct slice name = { letter, byte_letter_put(letter, (unsigned char)byte) };
        int32_t id = token_names_find(&b->names, name, (struct slice){ 0 });
        if (id < 0)
            return fail(ALIBI_BAD_INPUT,
                        "cannot read '%s': no token is the byte %d, written '%.*s'", b->scan.path,
                        byte, (int)name.bytes, name.at);
        b->file->byte_ids[byte] = id;
    }
    return ALIBI_OK;
}

static alibi_status spell_as_bytes(struct text *letters, struct slice bytes)
{
    for (size_t i = 0; i < bytes.bytes; i++) {
        char letter[2];
        text_append_bytes(letters, letter, byte_letter_put(letter, (unsigned char)bytes.at[i]));
    }
    return text_status(letters);
}

/* A literal token that is not an added one. No other token may have the same bytes: a piece of text
 * would have two ids. */
static alibi_status check_own_text(const struct bpe_build *b, struct slice name)
{
    alibi_status status;
    struct text letters = { 0 };

    TRY(spell_as_bytes(&letters, name));
    if (b->file->ignore_merges)
        status =
            fail(ALIBI_BAD_INPUT,
                 "cannot read '%s': with ignore_merges, the token '%.80s' has letters of no byte",
                 b->scan.path, name.at);
    else if (token_names_find(&b->names, (struct slice){ letters.data, letters.length },
                              (struct slice){ 0 }) >= 0)
        status = fail(ALIBI_BAD_INPUT,
                      "cannot read '%s': the tokens '%.80s' and '%.80s' are the same bytes",
                      b->scan.path, name.at, letters.data);
out:
    text_free(&letters);
    return status;
}

/* An added token outside the vocabulary whose name reads as letters of other bytes; NULL: none. */
static const struct bpe_added *added_like_bytes(const struct bpe_file *f)
{
    for (int i = 0; i < f->added_count; i++)
        if (!f->added[i].in_vocab && name_is_letters(f->added[i].text) &&
            !name_is_ascii(f->added[i].text))
            return &f->added[i];
    return NULL;
}

static alibi_status check_names(const struct bpe_build *b)
{
    const struct bpe_file *f = b->file;
    const struct bpe_added *like_bytes = added_like_bytes(f);
    int next = 0; /* of the added tokens, which are sorted by id */

    for (int64_t id = 0; id < b->names.count; id++) {
        bool added = next < f->added_count && f->added[next].id == id;
        next += added;
        if (added || name_is_letters(f->tokens[id]))
            continue;
        TRY_RETURN(check_own_text(b, f->tokens[id]));
        if (like_bytes != NULL)
            return fail(ALIBI_BAD_INPUT,
                        "cannot read '%s': the added token '%.80s' is spelled in letters of bytes, "
                        "the token '%.80s' is not",
                        b->scan.path, like_bytes->text.at, f->tokens[id].at);
    }
    return ALIBI_OK;
}

alibi_status bpe_build_end(struct bpe_build *b, struct bpe_file **out)
{
    TRY_RETURN(find_bytes(b));
    TRY_RETURN(check_names(b));
    TRY_RETURN(drop_repeated(b->file));
    for (int64_t id = 0; id < b->names.count; id++)
        if (name_is_letters(b->file->tokens[id]))
            b->file->tokens[id] = bytes_of_letters(b->file->tokens[id], b->scan.strings);
    b->file->storage = b->scan.strings;
    b->scan.strings = NULL;
    *out = b->file;
    b->file = NULL;
    return ALIBI_OK;
}
