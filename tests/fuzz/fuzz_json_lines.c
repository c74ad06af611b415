/* fuzz_json_lines.c - any bytes as lines of JSON: each gives a text, or a defect that is named
 *
 * A text that came is valid UTF-8 without a byte 0; a line that was refused has left nothing
 * behind. */
#include "fuzz.h"

static void check_line(struct text *out, struct slice line, int64_t number)
{
    size_t before = out->length, added;
    alibi_status status = json_line_field(out, line, "text", "fuzz.jsonl", number);

    if (status != ALIBI_OK) {
        check_refusal(status, "'fuzz.jsonl:");
        require(out->length == before);
        return;
    }
    require(out->length >= before && out->length - before <= line.bytes);
    added = out->length - before;
    require(utf8_valid_prefix(out->data + before, added) == added);
    require(memchr(out->data + before, 0, added) == NULL && out->data[out->length] == '\0');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *at = (const char *)data, *end = at + size;
    struct text out = { 0 };

    for (int64_t number = 1; at < end; number++) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        size_t bytes = line_end != NULL ? (size_t)(line_end - at) : (size_t)(end - at);
        check_line(&out, (struct slice){ at, bytes }, number);
        at += bytes + (line_end != NULL);
    }
    text_free(&out);
    require(alibi_memory_now() == 0);
    return 0;
}
