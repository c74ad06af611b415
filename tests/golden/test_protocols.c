/* test_protocols.c - every protocol agrees with PyTorch (make_protocols.py), which computed each
 * number from the rules alone, window by window */
#include "training.h"

static const char folder[] = TEST_FOLDER "/golden/protocols";

static int protocol_of(const char *name)
{
    int protocol = 0;

    while (strcmp(alibi_protocol_view(protocol)->name, name) != 0)
        protocol++;
    return protocol;
}

static void every_protocol_agrees_with_pytorch(void **state)
{
    alibi_model *m = open_model_at(path_at("%s/model", folder));
    char path[300], name[32], words[40], bytes[40];
    const char *paths[] = { path };
    long long length, stride, tokens;
    double nll;
    alibi_corpus *c = NULL;
    FILE *expected;
    int seen[8] = { 0 };

    (void)state;
    snprintf(path, sizeof path, "%s/documents.jsonl", folder);
    assert_ok(alibi_corpus_open(&c, paths, 1, NULL, NULL, NULL, NULL));
    expected = fopen(path_at("%s/expected.txt", folder), "r");
    assert_non_null(expected);
    while (fscanf(expected, "%31s %lld %lld %lld %lf %39s %39s", name, &length, &stride, &tokens,
                  &nll, words, bytes) == 7) {
        int protocol = protocol_of(name);
        const struct alibi_eval eval = { .length = length, .protocol = protocol, .stride = stride };
        struct alibi_eval_result r;

        assert_ok(alibi_evaluate(m, c, ALIBI_ALL, &eval, &r, NULL));
        print_message("%-14s length %3lld stride %3lld  nll %.6f  error %.1e  limit 1e-04\n", name,
                      length, stride, r.nll, fabs(r.nll - nll));
        assert_int_equal(r.tokens, tokens);
        assert_close(r.nll, nll, 1e-4);
        assert_true(r.parts > 1 && r.standard_error > 0);
        if (words[0] != '-') {
            assert_close(log(r.word_ppl), log(atof(words)), 1e-3); /* a sum over a word's bytes */
            assert_close(r.bits_per_byte, atof(bytes), 1e-4);
        }
        seen[protocol]++;
    }
    fclose(expected);
    for (int i = 0; alibi_protocol_view(i); i++)
        assert_true(seen[i] > 0);
    alibi_corpus_free(c);
    alibi_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_protocol_agrees_with_pytorch),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
