/* forecast.c - the expected time of the work, printed once, after its first steps
 *
 * Time is counted in tokens, at the time per token of the steps so far. A validation has no
 * backward pass: its tokens cost a third. A test has longer inputs too: half. */
#include "train/train.h"

/* "34 s", "12 minutes", "2.5 hours" */
static const char *spell_time(char text[32], double seconds)
{
    if (seconds < 100)
        snprintf(text, 32, "%.0f s", seconds);
    else if (seconds < 5400)
        snprintf(text, 32, "%.0f minutes", seconds / 60);
    else
        snprintf(text, 32, "%.1f hours", seconds / 3600);
    return text;
}

double forecast_validation_tokens(const alibi_corpus *corpus, const struct alibi_training *t,
                                  int64_t step)
{
    double count;

    if (t->eval_every == 0 || step >= t->steps || !validation_possible(corpus, t))
        return 0;
    count = (double)(t->steps / t->eval_every - step / t->eval_every);
    count += t->steps % t->eval_every != 0;
    return count * (double)validation_tokens(corpus, t);
}

/* "5 models take about 2 minutes to train, 7 s to validate and 40 s to test", or "9997 steps take
 * about 12 minutes, 0.07 s each, and their validations 34 s" */
static void say(const struct forecast *f, int64_t left, int64_t an_hour, double pace,
                const double seconds[3], const struct alibi_call *call)
{
    static const double hour = 3600;
    double total = seconds[0] + seconds[1] + seconds[2];
    char train[32], valid[32], test[32], line[256], advice[192] = "";
    bool alone = f->models == 1 && f->test_tokens == 0;

    spell_time(train, seconds[0]);
    spell_time(valid, seconds[1]);
    spell_time(test, seconds[2]);
    if (alone)
        snprintf(line, sizeof line, "%lld step%s take%s about %s on this machine, %.2g s each%s%s",
                 (long long)left, left == 1 ? "" : "s", left == 1 ? "s" : "", train, pace,
                 seconds[1] > 0 ? ", and validation " : "", seconds[1] > 0 ? valid : "");
    else
        snprintf(line, sizeof line, "%lld model%s take%s about %s to train%s%s%s and %s to test",
                 (long long)f->models, f->models == 1 ? "" : "s", f->models == 1 ? "s" : "", train,
                 seconds[1] > 0 ? ", " : "", seconds[1] > 0 ? valid : "",
                 seconds[1] > 0 ? " to validate" : "", test);
    if (total > hour && alone)
        snprintf(advice, sizeof advice,
                 "; --steps %lld takes an hour, and a smaller --width, --layers or --batch is "
                 "faster",
                 (long long)an_hour);
    else if (total > hour && f->experiment)
        snprintf(advice, sizeof advice,
                 "; --only takes some of the models, --tier a smaller variant");
    else if (total > hour)
        snprintf(advice, sizeof advice,
                 "; fewer --steps, --methods or --seeds, or a smaller --width or --layers, take "
                 "less");
    (total > hour ? call_warn : call_note)(call, "%s%s%s", line, alone ? "" : " on this machine",
                                           advice);
}

void forecast_begin(struct forecast *f)
{
    f->steps = 0;
    f->seconds = 0;
}

void forecast_step(struct forecast *f, const alibi_corpus *corpus, const struct alibi_training *t,
                   int64_t step, double seconds, const struct alibi_call *call)
{
    enum { FEW = 3 };
    static const double few_seconds = 2, enough_seconds = 5, worth_saying = 20, hour = 3600;
    double step_tokens = (double)t->batch * (double)t->train_length * (double)t->accumulate;
    double valid_tokens = f->valid_tokens + forecast_validation_tokens(corpus, t, step);
    double pace, token, parts[3], total;
    int64_t left = t->steps - step;

    if (f->said)
        return;
    if (f->steps++ == 0) /* the first step is slower than the others */
        return;
    f->seconds += seconds;
    if (f->seconds < (f->steps > FEW ? few_seconds : enough_seconds))
        return;
    f->said = true;
    pace = f->seconds / (double)(f->steps - 1);
    token = pace / step_tokens;
    parts[0] = pace * (double)left + token * f->train_tokens;
    parts[1] = token * valid_tokens / 3;
    parts[2] = token * f->test_tokens / 2;
    total = parts[0] + parts[1] + parts[2];
    if (left > 0 && total >= worth_saying)
        say(f, left, step + (int64_t)((double)left * hour / total), pace, parts, call);
}
