/* longer.c - train at 64 tokens, test at up to 1024, from C
 *
 *   cc longer.c $(pkg-config --cflags --libs alibi) -o longer && ./longer runs/longer 300 */
#include <alibi.h>
#include <stdio.h>
#include <stdlib.h>

static int failed(const char *what)
{
    fprintf(stderr, "longer: %s: %s\n", what, alibi_error());
    return 1;
}

int main(int argc, char **argv)
{
    const char *folder = argc > 1 ? argv[1] : "runs/longer";
    struct alibi_config config;
    struct alibi_training training;
    struct alibi_train_result trained;
    struct alibi_option_group groups[2] = { { .title = "model", .values = &config },
                                            { .title = "training", .values = &training } };
    alibi_corpus *corpus = NULL;
    const struct alibi_compute compute = { .device = ALIBI_DEVICE_AUTO };
    alibi_device *device = NULL;
    alibi_model *model = NULL;

    groups[0].options = alibi_config_options(&groups[0].count);
    groups[1].options = alibi_training_options(&groups[1].count);
    if (alibi_options_init(groups, 2) != ALIBI_OK ||
        alibi_options_set(groups, 2, "position", "alibi") != ALIBI_OK)
        return failed("options");
    training.train_length = 64;
    training.batch = 8;
    training.steps = argc > 2 ? atoll(argv[2]) : 300;
    training.lr = 4e-3;

    if (alibi_device_open(&device, &compute, NULL) != ALIBI_OK)
        return failed("device");
    if (alibi_corpus_builtin(&corpus, 1, 1 << 22, NULL, NULL) != ALIBI_OK)
        return failed("text");
    if (alibi_train(device, &config, &training, corpus, folder, true, &trained, NULL) != ALIBI_OK)
        return failed("training");
    if (alibi_model_open(&model, device, folder, NULL) != ALIBI_OK)
        return failed("opening");
    for (int64_t length = 64; length <= 1024; length *= 2) {
        struct alibi_eval eval = { .length = length,
                                   .protocol = ALIBI_NONOVERLAPPING,
                                   .tokens = 16384 };
        struct alibi_eval_result result;
        if (alibi_evaluate(model, corpus, ALIBI_VALID, &eval, &result, NULL) != ALIBI_OK)
            return failed("evaluation");
        printf("length %4lld  perplexity %.3f\n", (long long)length, result.ppl);
    }
    alibi_model_free(model);
    alibi_device_free(device);
    alibi_corpus_free(corpus);
    return 0;
}
