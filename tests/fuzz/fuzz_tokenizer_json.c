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
    if (status != ALIBI_OK) {
        check_refusal(status, "fuzz.json");
    } else {
        if (size % 4 == 0) /* it takes longer than all the rest: a quarter of the inputs will do */
            check_written(f);
        check_round_trip(f, text);
    }
    require(alibi_memory_now() == 0);
    return 0;
}
