/* journal.c - log.jsonl and timing.json
 *
 * The log is synced before each checkpoint, so it is never behind the checkpoint that a run resumes
 * from. Lines beyond that are cut off; the steps that are repeated write them again. */
#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/names.h"
#include "train/train.h"

enum { BLOCK = 1 << 16, LOG_BYTES_MAX = 1 << 30 };

/* ---- the log */

/* *end is the offset after line `lines`, or the size of the file if it has fewer; *found counts the
 * lines up to there. */
static alibi_status find_line_end(struct file *f, int64_t lines, int64_t *end, int64_t *found)
{
    alibi_status status = ALIBI_OK;
    char *block = NULL;
    size_t got = BLOCK;

    *end = *found = 0;
    TRY(NEW_ARRAY(&block, BLOCK, "a block of the log"));
    while (got == BLOCK && *found < lines) {
        size_t used = 0;
        TRY(file_read(f, block, BLOCK, &got));
        while (used < got && *found < lines)
            *found += block[used++] == '\n';
        *end += (int64_t)used;
    }
out:
    mem_free(block);
    return status;
}

/* Opens the log to append after that many lines. */
static alibi_status open_log(struct file **out, const char *path, int64_t lines,
                             const struct alibi_call *call)
{
    alibi_status status;
    struct file *log = NULL, *reading = NULL;
    int64_t end = 0, found = 0;

    TRY(file_open_append(&log, path));
    TRY(file_open_read(&reading, path));
    TRY(find_line_end(reading, lines, &end, &found));
    if (found < lines)
        call_warn(call, "'%s' has %lld lines, but there were %lld when the checkpoint was saved",
                  path, (long long)found, (long long)lines);
    if (end < file_size(reading))
        TRY(file_truncate(path, end));
    *out = log;
    log = NULL;
out:
    file_close(reading);
    file_close(log);
    return status;
}

alibi_status journal_record(struct journal *j, int64_t step, double loss, double gradient_norm,
                            double lr)
{
    struct text *line = &j->line;

    line->length = 0;
    text_append(line, "{\"step\": %lld, \"loss\": ", (long long)step);
    json_append_real(line, loss);
    text_append(line, ", \"gradient_norm\": ");
    json_append_real(line, gradient_norm);
    text_append(line, ", \"lr\": ");
    json_append_real(line, lr);
    text_append(line, "}\n");
    TRY_RETURN(text_status(line));
    return file_write(j->log, line->data, line->length);
}

alibi_status journal_record_validation(struct journal *j, const struct train_validation *v,
                                       const struct alibi_text_loss *text, int texts)
{
    struct text *line = &j->line;

    line->length = 0;
    text_append(line, "{\"step\": %lld, \"valid_loss\": ", (long long)v->step);
    json_append_real(line, v->loss);
    text_append(line, ", \"valid_tokens\": %lld", (long long)v->tokens);
    for (int i = 0; i < texts; i++) {
        text_append(line, "%s", i == 0 ? ", \"valid_losses\": {" : ", ");
        json_append_string(line, text[i].name, strlen(text[i].name));
        text_append(line, ": ");
        json_append_real(line, text[i].loss);
    }
    text_append(line, "%s}\n", texts > 0 ? "}" : "");
    TRY_RETURN(text_status(line));
    return file_write(j->log, line->data, line->length);
}

/* A loss that was not finite is null. */
static alibi_status read_loss(const json_t *line, const char *key, double *loss, const char *path)
{
    const json_t *value = json_object_get(line, key);

    *loss = NAN;
    return value && !json_is_null(value) ? json_get_real(line, key, loss, path) : ALIBI_OK;
}

alibi_status journal_read(const char *run, void (*record)(void *user, const struct journal_line *l),
                          void *user)
{
    alibi_status status;
    char *path = NULL, *bytes = NULL;
    size_t length, at = 0;
    const char *end;

    TRY(path_join(&path, run, NAME_LOG));
    TRY(file_read_all(&bytes, &length, path, LOG_BYTES_MAX));
    for (; (end = memchr(bytes + at, '\n', length - at)) != NULL; at = (size_t)(end - bytes) + 1) {
        struct journal_line l;
        json_t *line = NULL;

        status = json_parse(&line, bytes + at, (size_t)(end - bytes) - at, path);
        if (status == ALIBI_OK)
            status = json_get_int(line, "step", 1, INT64_MAX, &l.step, path);
        if (status == ALIBI_OK)
            status = read_loss(line, "loss", &l.loss, path);
        if (status == ALIBI_OK)
            status = read_loss(line, "valid_loss", &l.valid_loss, path);
        json_decref(line);
        if (status != ALIBI_OK)
            goto out;
        record(user, &l);
    }
out:
    mem_free(bytes);
    mem_free(path);
    return status;
}

/* ---- the times */

static const struct alibi_option timing_options[] = {
    { "seconds", ALIBI_OPTION_REAL, offsetof(struct journal, seconds), 0, 1e15, NULL, NULL, "X",
      "of all steps" },
    { "peak-bytes", ALIBI_OPTION_INT, offsetof(struct journal, peak_bytes), 0, 0x1p62, NULL, NULL,
      "N", "of memory" },
};

static struct alibi_option_group timing_group(struct journal *j)
{
    return (struct alibi_option_group){ "timing", timing_options,
                                        sizeof timing_options / sizeof *timing_options, j };
}

/* Times are for people: a file that cannot be read costs the times, not the run. */
static alibi_status read_timing(struct journal *j, const struct alibi_call *call)
{
    struct alibi_option_group group = timing_group(j);
    alibi_status status;

    if (!file_exists(j->timing_path))
        return ALIBI_OK;
    status = alibi_options_read(&group, 1, j->timing_path);
    if (status != ALIBI_BAD_INPUT)
        return status;
    call_warn(call, "earlier times are lost: %s", alibi_error());
    return ALIBI_OK;
}

alibi_status journal_sync(struct journal *j, size_t peak)
{
    alibi_status status;
    struct alibi_option_group group = timing_group(j);
    struct text json = { 0 };

    if ((int64_t)peak > j->peak_bytes)
        j->peak_bytes = (int64_t)peak;
    TRY(file_sync(j->log));
    TRY(options_format(&group, 1, &json));
    TRY(file_replace(j->timing_path, json.data, json.length));
out:
    text_free(&json);
    return status;
}

/* ---- both */

alibi_status journal_open(struct journal *j, const char *run, const struct train_state *state,
                          const struct alibi_call *call)
{
    alibi_status status;
    struct journal made = { 0 };
    char *path = NULL;

    TRY(path_join(&path, run, NAME_LOG));
    TRY(path_join(&made.timing_path, run, NAME_TIMING));
    if (state->step > 0)
        TRY(read_timing(&made, call));
    TRY(open_log(&made.log, path, state->step + state->validation.count, call));
    *j = made;
    made = (struct journal){ 0 };
out:
    mem_free(path);
    journal_close(&made);
    return status;
}

void journal_close(struct journal *j)
{
    file_close(j->log);
    text_free(&j->line);
    mem_free(j->timing_path);
    *j = (struct journal){ 0 };
}
