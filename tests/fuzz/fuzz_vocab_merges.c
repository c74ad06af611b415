/* fuzz_vocab_merges.c - any bytes as vocab.json and merges.txt, and a text to encode with them
 *
 * The input is vocab.json, a form feed, merges.txt, a form feed, the text. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice text = { (const char *)data, size }, vocab = next_part(&text),
                 merges = next_part(&text);
    struct text json = expand_part(vocab);
    struct bpe_file *f = NULL;
    alibi_status status = bpe_file_parse_pair(&f, (struct slice){ json.data, json.length },
                                              "fuzz-vocab", merges, "fuzz-merges");

    text_free(&json);
    return check_tokenizer(status, f, text, size, "'fuzz-");
}
