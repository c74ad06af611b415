/* events.c - event files of a training for TensorBoard
 *
 * Event files are for people: if the disk fails, they end with a warning, and the training
 * continues. The training does not depend on them; a sample has its own random numbers. */
#include <string.h>

#include "eval/eval.h"
#include "formats/formats.h"
#include "text/tasks.h"
#include "train/train.h"

enum { PROMPT_TOKENS = 32, SAMPLE_TOKENS = 64 };

static void settle(struct events *e, alibi_status status, const struct alibi_call *call)
{
    if (status == ALIBI_OK)
        return;
    call_warn(call, "the training continues without events for TensorBoard: %s", alibi_error());
    events_close(e);
}

alibi_status events_open(struct events *e, const char *folder, int64_t step)
{
    return tensorboard_open(&e->file, folder, step + 1);
}

void events_close(struct events *e)
{
    tensorboard_close(e->file);
    *e = (struct events){ 0 };
}

void events_step(struct events *e, const struct events_numbers *n, const struct alibi_call *call)
{
    const struct tensorboard_scalar scalars[] = {
        { "loss/train", n->loss },
        { "optimizer/gradient_norm", n->gradient_norm },
        { "optimizer/learning_rate", n->lr },
        { "speed/tokens_per_s", n->tokens_per_s },
        { "memory/peak_mib", (double)n->peak_bytes / (1 << 20) },
    };

    if (e->file)
        settle(e, tensorboard_scalars(e->file, n->step, scalars, sizeof scalars / sizeof *scalars),
               call);
}

void events_validation(struct events *e, int64_t step, const struct validation *v,
                       const struct alibi_call *call)
{
    struct tensorboard_scalar scalars[1 + CORPUS_PARTS_MAX] = { { "loss/valid", v->loss } };
    char tag[CORPUS_PARTS_MAX][ALIBI_TEXT_NAME_MAX + 16];

    if (!e->file)
        return;
    for (int i = 0; i < v->texts; i++) {
        snprintf(tag[i], sizeof tag[i], "loss/valid %s", v->text[i].name);
        line_clean(tag[i]);
        scalars[1 + i] = (struct tensorboard_scalar){ tag[i], v->text[i].loss };
    }
    settle(e, tensorboard_scalars(e->file, step, scalars, 1 + v->texts), call);
}

/* ---- samples */

/* The first part of a mixture that is text; NULL: all are tasks, whose tokens are no text. */
static const alibi_corpus *first_text(const alibi_corpus *corpus)
{
    for (int i = 0; i < corpus_parts(corpus); i++)
        if (!corpus_is_task(corpus_part(corpus, i)))
            return corpus_part(corpus, i);
    return NULL;
}

/* The first tokens of the validation split as text, from its first whole character on. */
static alibi_status find_prompt(struct text *prompt, const alibi_corpus *corpus, int64_t tokens)
{
    struct span span = corpus_span(corpus, ALIBI_VALID);
    int32_t ids[PROMPT_TOKENS];
    size_t broken = 0, length;

    if (span.count == 0)
        span = corpus_span(corpus, ALIBI_TRAIN);
    if (tokens > span.count)
        tokens = span.count;
    span_read(span, 0, tokens, ids);
    for (int64_t i = 0; i < tokens; i++) {
        const char *bytes = tokenizer_bytes(corpus_tokenizer(corpus), ids[i], &length);
        text_append_bytes(prompt, bytes, length);
    }
    TRY_RETURN(text_status(prompt));
    while (broken < prompt->length && utf8_continues(prompt->data[broken]))
        broken++;
    if (prompt->length > broken)
        memmove(prompt->data, prompt->data + broken, prompt->length - broken);
    prompt->length = utf8_valid_prefix(prompt->data, prompt->length - broken);
    return ALIBI_OK;
}

/* TensorBoard shows Markdown; indented lines are shown as they are. */
static bool add_indented(void *user, int which, const char *text, size_t bytes)
{
    struct text *sample = user;

    (void)which;
    for (size_t i = 0; i < bytes; i++) {
        if (sample->length == 0)
            text_append(sample, "    ");
        text_append_bytes(sample, &text[i], 1);
        if (text[i] == '\n')
            text_append(sample, "    ");
    }
    return sample->status == ALIBI_OK;
}

void events_sample(struct events *e, int64_t step, struct model *m, const alibi_corpus *corpus,
                   const struct alibi_training *t, const struct alibi_call *call)
{
    /* Within the training length, so that every position method can. */
    int64_t length = t->train_length, few = length / 4, more = length / 2 + 1;
    struct alibi_generation how = {
        .tokens = more < SAMPLE_TOKENS ? more : SAMPLE_TOKENS,
        .sampling = { .temperature = 0.8, .top_p = 1, .seed = (uint64_t)step },
    };
    alibi_model model = { .model = m, .tokenizer = (alibi_tokenizer *)corpus_tokenizer(corpus) };
    const struct alibi_call within = { .stop = call ? call->stop : NULL, .skip = t->skip };
    struct text prompt = { 0 }, sample = { 0 };
    alibi_status status;

    if (!e->file || e->no_samples || !first_text(corpus))
        return;
    TRY(find_prompt(&prompt, first_text(corpus), few < PROMPT_TOKENS ? few : PROMPT_TOKENS));
    add_indented(&sample, 0, prompt.data, prompt.length);
    text_append(&sample, "\xC2\xBB"); /* here the model begins */
    TRY(alibi_generate(&model, &(struct alibi_prompt){ prompt.data, prompt.length }, 1, &how,
                       add_indented, &sample, &within));
    TRY(text_status(&sample));
    settle(e, tensorboard_text(e->file, step, "sample", sample.data, sample.length), call);
out:
    if (status != ALIBI_OK && status != ALIBI_INTERRUPTED) {
        call_warn(call, "TensorBoard gets no samples: %s", alibi_error());
        e->no_samples = true;
    }
    text_free(&prompt);
    text_free(&sample);
}

void events_sync(struct events *e, const struct alibi_call *call)
{
    if (e->file)
        settle(e, tensorboard_sync(e->file), call);
}
