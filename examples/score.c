/* score.c - how likely a model finds a text, and how it would continue it
 *
 *   score MODEL TEXT                                      MODEL is a checkpoint or a run's folder
 *   cc score.c $(pkg-config --cflags --libs alibi)        after make install */
#include <stdio.h>
#include <string.h>

#include "alibi.h"

static bool print(void *user, int which, const char *text, size_t bytes)
{
    (void)user, (void)which;
    return fwrite(text, 1, bytes, stdout) == bytes;
}

int main(int argc, char **argv)
{
    const struct alibi_compute compute = { .device = ALIBI_DEVICE_AUTO };
    const struct alibi_generation how = { .tokens = 40, .sampling = { 0.8, 0, 1, 1 } };
    const char *path = argc > 1 ? argv[1] : "runs/train", *text = argc > 2 ? argv[2] : "It was";
    struct alibi_prompt prompt = { text, strlen(text) };
    alibi_device *device = NULL;
    alibi_model *model = NULL;
    struct alibi_scores *scores = NULL;
    bool ok = alibi_device_open(&device, &compute, NULL) == ALIBI_OK &&
              alibi_model_open(&model, device, path, NULL) == ALIBI_OK &&
              alibi_score(&scores, model, NULL, 0, text, strlen(text), 1, NULL) == ALIBI_OK;

    for (int64_t i = 0; ok && i < scores->count; i++)
        printf("id %6d  logprob %8.4f  likeliest %6d\n", scores->ids[i], scores->logprobs[i],
               scores->choices[i].id);
    ok = ok && alibi_generate(model, &prompt, 1, &how, print, NULL, NULL) == ALIBI_OK;
    puts("");
    if (!ok)
        fprintf(stderr, "score: %s\n", alibi_error());
    alibi_scores_free(scores);
    alibi_model_free(model);
    alibi_device_free(device);
    return ok ? 0 : 1;
}
