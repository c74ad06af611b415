/* journal.c - log.jsonl and timing.json
 *
 * The log is synced before each checkpoint, so it never ends before the checkpoint that a run
 * resumes from; what it has beyond that is cut off and written again, the same, by the steps that
 * are done again. */
#include <string.h>

#include "base/json.h"
#include "train/train.h"

enum { BLOCK = 1 << 16 };

/* ---- the log */

/* *end = the offset behind line number `lines`, or the end of the file if it has fewer; *found =
 * lines up to there. */
static alibi_status find_line_end(struct file *f, int64_t lines, char *block, int64_t *end,
                                  int64_t *found)
{
    size_t got = BLOCK;

    *end = *found = 0;
    while (got == BLOCK && *found < lines) {
        size_t used = 0;
        TRY_RETURN(file_read(f, block, BLOCK, &got));
        while (used < got && *found < lines)
            *found += block[used++] == '\n';
        *end += (int64_t)used;
    }
    return ALIBI_OK;
}

static alibi_status measure_log(const char *path, int64_t lines, int64_t *end, int64_t *size)
{
    alibi_status status;
    struct file *f = NULL;
    char *block = NULL;
    int64_t found;

    TRY(NEW_ARRAY(&block, BLOCK, "a block of the log"));
    TRY(file_open_read(&f, path));
    TRY(find_line_end(f, lines, block, end, &found));
    *size = file_size(f);
    if (found < lines)
        log_warning("'%s' has %lld lines, the checkpoint stands at step %lld", path,
                    (long long)found, (long long)lines);
out:
    file_close(f);
    mem_free(block);
    return status;
}

static alibi_status open_log(struct file **out, const char *path, int64_t step)
{
    alibi_status status;
    struct file *log = NULL;
    int64_t end = 0, size = 0;

    TRY(file_open_append(&log, path));
    TRY(measure_log(path, step, &end, &size));
    if (end < size)
        TRY(file_truncate(path, end));
    *out = log;
    log = NULL;
out:
    file_close(log);
    return status;
}

alibi_status journal_record(struct journal *j, int64_t step, double loss, double gradient_norm,
                            double lr)
{
    struct text *line = &j->line;

    line->length = 0;
    TRY_RETURN(text_append(line, "{\"step\": %lld, \"loss\": ", (long long)step));
    TRY_RETURN(json_append_real(line, loss));
    TRY_RETURN(text_append(line, ", \"gradient_norm\": "));
    TRY_RETURN(json_append_real(line, gradient_norm));
    TRY_RETURN(text_append(line, ", \"lr\": "));
    TRY_RETURN(json_append_real(line, lr));
    TRY_RETURN(text_append(line, "}\n"));
    return file_write(j->log, line->data, line->length);
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
static alibi_status read_timing(struct journal *j)
{
    struct alibi_option_group group = timing_group(j);
    alibi_status status;

    if (!file_exists(j->timing_path))
        return ALIBI_OK;
    status = alibi_options_read(&group, 1, j->timing_path);
    if (status != ALIBI_BAD_INPUT)
        return status;
    log_warning("earlier times are lost: %s", alibi_error());
    return ALIBI_OK;
}

alibi_status journal_sync(struct journal *j, size_t peak)
{
    struct alibi_option_group group = timing_group(j);

    if ((int64_t)peak > j->peak_bytes)
        j->peak_bytes = (int64_t)peak;
    TRY_RETURN(file_sync(j->log));
    return alibi_options_write(&group, 1, j->timing_path);
}

/* ---- both */

alibi_status journal_open(struct journal *j, const char *run, int64_t step)
{
    alibi_status status;
    struct journal made = { 0 };
    char *path = NULL;

    TRY(path_join(&path, run, "log.jsonl"));
    TRY(path_join(&made.timing_path, run, "timing.json"));
    if (step > 0)
        TRY(read_timing(&made));
    TRY(open_log(&made.log, path, step));
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
