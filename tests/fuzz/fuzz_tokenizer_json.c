/* fuzz_tokenizer_json.c - any bytes as a tokenizer.json, and a text to encode with it
 *
 * The input is the file, a form feed, the text. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice text = { (const char *)data, size }, part = next_part(&text);
    struct text json = expand_part(part);
    struct bpe_file *f = NULL;
    alibi_status status = bpe_file_parse(&f, json.data, json.length, "fuzz.json");

    text_free(&json);
    return check_tokenizer(status, f, text, size, "fuzz.json");
}
