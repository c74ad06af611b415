/* vocab_merges.c - GPT-2's pair of files
 *
 *   vocab.json   { token: id, ... }
 *   merges.txt   "#version: 0.2", then "left right" on each line, in order of rank */
#include <string.h>

#include "formats/bpe_build.h"

static const char end_of_text[] = "<|endoftext|>";

/* The next line, without its end. */
static struct slice next_line(struct scan *s)
{
    const char *start = s->text + s->at, *end = memchr(start, '\n', s->end - s->at);
    size_t bytes = end != NULL ? (size_t)(end - start) : s->end - s->at;

    s->at += bytes + (end != NULL);
    return (struct slice){ start, bytes > 0 && start[bytes - 1] == '\r' ? bytes - 1 : bytes };
}

/* Blank lines may only follow the last merge. */
static alibi_status read_merges(struct bpe_build *b, struct scan *s)
{
    struct scan count = *s;
    int64_t lines = 0;
    bool ended = false;

    while (count.at < count.end && next_line(&count).bytes > 0)
        lines++;
    TRY_RETURN(NEW_ARRAY(&b->file->merges, lines, "merges"));
    while (s->at < s->end) {
        struct scan place = *s;
        struct slice line = next_line(s);
        if (ended && line.bytes > 0)
            return scan_fail(&place, "a merge after an empty line");
        ended = line.bytes == 0;
        if (!ended && !slice_begins(line, "#version"))
            TRY_RETURN(bpe_build_merge_line(b, &place, line));
    }
    return ALIBI_OK;
}

/* GPT-2's vocabulary lists the end of a text like any other token; that it is special is not in
 * the files. */
static alibi_status add_end_of_text(struct bpe_build *b)
{
    struct slice text = { end_of_text, sizeof end_of_text - 1 };
    int32_t id = token_names_find(&b->names, text, (struct slice){ 0 });

    if (id < 0)
        return ALIBI_OK;
    TRY_RETURN(NEW_ARRAY(&b->file->added, 1, "added tokens"));
    b->file->added[0] =
        (struct bpe_added){ b->file->tokens[id], id, .special = true, .in_vocab = true };
    b->file->added_count = 1;
    return ALIBI_OK;
}

alibi_status bpe_file_parse_pair(struct bpe_file **out, struct slice vocab, const char *vocab_path,
                                 struct slice merges, const char *merges_path)
{
    alibi_status status;
    struct bpe_build b;
    struct scan lines = {
        .text = merges.at, .end = merges.bytes, .path = merges_path, .lines = true
    };

    TRY(bpe_build_init(&b, vocab, vocab_path));
    TRY(bpe_check_text(merges, merges_path));
    TRY(bpe_build_vocab(&b));
    TRY(scan_end(&b.scan));
    TRY(read_merges(&b, &lines));
    TRY(add_end_of_text(&b));
    TRY(text_copy(&b.file->splits[0].pattern, bpe_gpt2_pattern));
    b.file->split_count = 1;
    TRY(bpe_build_end(&b, out));
out:
    bpe_build_fini(&b);
    return status;
}
