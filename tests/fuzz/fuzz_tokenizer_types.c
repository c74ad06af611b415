/* fuzz_tokenizer_types.c - any bytes as a tokenizer of type bytes, words or ids, and a text
 *
 * The input is the file, a form feed, the text. A tokenizer that is read comes back from being
 * written. The ids of a text decode to a text with the same ids, also if it is encoded a few bytes
 * at a time. */
#include "fuzz.h"

/* Every id of type ids takes memory, up to 2^24 of them: more than five digits would take all the
 * time of the runs. */
static bool has_large_number(struct slice file)
{
    int digits = 0;

    for (size_t i = 0; i < file.bytes && digits <= 5; i++)
        digits = file.at[i] >= '0' && file.at[i] <= '9' ? digits + 1 : 0;
    return digits > 5;
}

static void check_rewritten(const alibi_tokenizer *t)
{
    struct text json = { 0 }, again = { 0 };
    alibi_tokenizer *back = NULL;

    require(tokenizer_format(t, &json) == ALIBI_OK);
    require(tokenizer_read(&back, json.data, json.length, "written") == ALIBI_OK);
    require(tokenizer_format(back, &again) == ALIBI_OK);
    require(again.length == json.length && memcmp(again.data, json.data, json.length) == 0);
    alibi_tokenizer_free(back);
    text_free(&json);
    text_free(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice text = { (const char *)data, size }, file = next_part(&text);
    alibi_tokenizer *t = NULL;
    alibi_status status;

    if (has_large_number(file))
        return 0;
    status = tokenizer_read(&t, file.at, file.bytes, "fuzz.json");
    if (status == ALIBI_OK) {
        check_rewritten(t);
        check_decoded(t, text, true, false); /* unknown words; type ids refuses what is no id */
    } else {
        check_refusal(status, "fuzz.json");
    }
    alibi_tokenizer_free(t);
    require(alibi_memory_now() == 0);
    return 0;
}
