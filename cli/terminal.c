/* terminal.c - progress, notes and signals
 *
 * On a terminal the progress is one line that is rewritten in place; elsewhere it is a plain line
 * every ten seconds. The progress line is removed before anything else is printed. */
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"

static const double REWRITE_SECONDS = 0.1; /* on a terminal */
static const double LINE_SECONDS = 10;     /* elsewhere */
static const double KEPT_SECONDS = 1;      /* a task that took this long keeps its last line */

static struct {
    bool quiet, mute;
    bool rewrites; /* stderr is a terminal that can move its cursor */
    bool pending;  /* there is a progress line, not yet ended */
    int64_t ended; /* `done` of the last task, until another one begins */
    double shown;  /* when the last line was printed */
} screen;

/* ---- the terminal */

/* mpirun gives its processes a terminal of its own, wherever their output goes. */
static bool can_rewrite(int descriptor)
{
    const char *term = getenv("TERM");

    return isatty(descriptor) && term && strcmp(term, "dumb") != 0 && alibi_comm_launched() == 0;
}

static int columns_of(int descriptor)
{
    const char *columns = getenv("COLUMNS");
    struct winsize size;
    int n = 0;

    if (ioctl(descriptor, TIOCGWINSZ, &size) == 0)
        n = size.ws_col;
    if (n == 0 && columns)
        n = atoi(columns);
    return n >= 20 && n <= 1000 ? n : 80;
}

int cli_columns(void)
{
    return columns_of(STDOUT_FILENO);
}

bool cli_colour(void)
{
    return can_rewrite(STDOUT_FILENO) && !getenv("NO_COLOR");
}

/* ---- short forms */

const char *cli_short_count(char *buffer, double value)
{
    static const char suffixes[] = " kMGT";
    int power = 0;

    while (fabs(value) >= 999.5 && power < 4) {
        value /= 1000;
        power++;
    }
    if (power == 0)
        snprintf(buffer, CLI_SHORT, value == floor(value) ? "%.0f" : "%.1f", value);
    else
        snprintf(buffer, CLI_SHORT, "%.*f%c", value < 99.95 ? 1 : 0, value, suffixes[power]);
    return buffer;
}

const char *cli_short_bytes(char *buffer, size_t bytes)
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
    double value = (double)bytes;
    int unit = 0;

    while (value >= 1023.5 && unit < 4) {
        value /= 1024;
        unit++;
    }
    snprintf(buffer, CLI_SHORT, "%.*f %s", unit && value < 99.95 ? 1 : 0, value, units[unit]);
    return buffer;
}

const char *cli_short_time(char *buffer, double seconds)
{
    long s = seconds > 0 && seconds < 1e8 ? lround(seconds) : 0;

    if (s >= 3600)
        snprintf(buffer, CLI_SHORT, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(buffer, CLI_SHORT, "%ld:%02ld", s / 60, s % 60);
    return buffer;
}

const char *cli_short_ppl(char *buffer, double ppl)
{
    int decimals = ppl < 9.9995 ? 3 : ppl < 99.995 ? 2 : ppl < 999.95 ? 1 : 0;

    if (ppl < 99999999.5)
        snprintf(buffer, CLI_SHORT, "%.*f", decimals, ppl);
    else
        snprintf(buffer, CLI_SHORT, "%.4g", ppl);
    return buffer;
}

/* ---- progress */

double cli_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The total is 0 for standard input, whose end is not known. */
static bool is_finished(const struct alibi_progress *p)
{
    return p->total > 0 && p->done >= p->total;
}

static double share_done(const struct alibi_progress *p)
{
    return p->total > 0 ? fmin((double)p->done / (double)p->total, 1) : 0;
}

/* "412/800 steps, 18.2k tokens/s, loss 1.432, 0:35 left", without unknown parts */
static void spell_figures(const struct alibi_progress *p, char *buffer, size_t size)
{
    char number[CLI_SHORT], total[CLI_SHORT + 1] = "", speed[CLI_SHORT + 16] = "",
                                              loss[CLI_SHORT + 24] = "";
    char done[CLI_SHORT], time[CLI_SHORT];
    bool under_way = p->total > 0 && !is_finished(p);

    if (p->total > 0)
        snprintf(total, sizeof total, "/%s", cli_short_count(number, (double)p->total));
    if (p->tokens_per_s > 0)
        snprintf(speed, sizeof speed, ", %s tokens/s", cli_short_count(number, p->tokens_per_s));
    if (isfinite(p->loss) && p->valid_loss > 0)
        snprintf(loss, sizeof loss, ", loss %.3f (valid %.3f)", p->loss, p->valid_loss);
    else if (isfinite(p->loss))
        snprintf(loss, sizeof loss, ", loss %.3f", p->loss);
    snprintf(buffer, size, "%s%s %s%s%s, %s%s", cli_short_count(done, (double)p->done), total,
             p->unit, speed, loss, cli_short_time(time, under_way ? p->seconds_left : p->seconds),
             under_way ? " left" : "");
}

static void rewrite_line(const struct alibi_progress *p, bool finished)
{
    static const char full[] = "####################", empty[] = "....................";
    int filled = (int)(share_done(p) * 20);
    char figures[160], line[320];

    spell_figures(p, figures, sizeof figures);
    if (p->total > 0)
        snprintf(line, sizeof line, "%s [%.*s%s] %3.0f%%  %s", p->task, filled, full,
                 empty + filled, floor(100 * share_done(p)), figures);
    else
        snprintf(line, sizeof line, "%s  %s", p->task, figures);
    fprintf(stderr, "\r%.*s\033[K", columns_of(STDERR_FILENO) - 1, line);
    screen.pending = true;
    if (finished && p->seconds >= KEPT_SECONDS) {
        fputc('\n', stderr);
        screen.pending = false;
    }
    fflush(stderr);
}

static void show_progress(void *user, const struct alibi_progress *p)
{
    bool finished = is_finished(p), again = finished && p->done == screen.ended;
    double time = cli_now();

    (void)user;
    screen.ended = finished ? p->done : 0;
    if (screen.quiet || screen.mute || again ||
        (!finished && time - screen.shown < (screen.rewrites ? REWRITE_SECONDS : LINE_SECONDS)))
        return;
    screen.shown = time;
    if (screen.rewrites) {
        rewrite_line(p, finished);
    } else {
        char figures[160];

        spell_figures(p, figures, sizeof figures);
        if (p->total > 0)
            fprintf(stderr, "%s: %.0f%%, %s\n", p->task, floor(100 * share_done(p)), figures);
        else
            fprintf(stderr, "%s: %s\n", p->task, figures);
    }
}

void cli_terminal_clear(void)
{
    if (!screen.pending)
        return;
    fputs("\r\033[K", stderr);
    fflush(stderr);
    screen.pending = false;
}

void cli_print_report(char *report, const char *dir)
{
    if (!report)
        return;
    cli_terminal_clear();
    fputs(report, stdout);
    alibi_text_free(report);
    if (dir)
        printf("report: %s/report.html   numbers: %s/results.json, %s/results.csv\n", dir, dir,
               dir);
}

/* ---- notes */

static void show_line(void *user, enum alibi_log_level level, const char *line)
{
    (void)user;
    if (screen.mute || (screen.quiet && level == ALIBI_NOTE))
        return;
    cli_terminal_clear();
    fprintf(stderr, "%s%s\n", level == ALIBI_WARNING ? "warning: " : "", line);
}

void cli_say(enum alibi_log_level level, const char *format, ...)
{
    char line[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    show_line(NULL, level, line);
}

static struct alibi_stop stop;
static struct alibi_call call = { .progress = show_progress, .log = show_line, .stop = &stop };

const struct alibi_call *cli_call(void)
{
    return &call;
}

void cli_set_skip(double skip)
{
    call.skip = skip;
}

void cli_set_comm(alibi_comm *comm)
{
    call.comm = comm;
}

void cli_terminal_start(bool quiet)
{
    screen.quiet = quiet;
    screen.rewrites = can_rewrite(STDERR_FILENO);
    screen.shown = cli_now();
}

void cli_terminal_mute(bool mute)
{
    screen.mute = mute;
}

void cli_flush(void)
{
    if (fflush(stdout) != 0 || ferror(stdout))
        alibi_stop_request(&stop);
}

/* ---- signals */

/* The next signal acts as if it were not caught: the parent sees that nothing more was saved. A
 * save is complete or absent at every instant, so ending in the middle of one does no harm. Signals
 * within a second are one request: timeout(1), for one, signals its child and then the child's
 * group. */
static void on_signal(int number)
{
    static struct timespec first;
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    if (!alibi_stop_requested(&stop)) {
        first = now;
        alibi_stop_request(&stop);
    } else if (now.tv_sec - first.tv_sec > (now.tv_nsec < first.tv_nsec ? 1 : 0)) {
        signal(number, SIG_DFL);
        raise(number); /* when this function has returned */
    }
}

void cli_catch_signals(void)
{
    struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_RESTART };

    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, SIGINT);
    sigaddset(&action.sa_mask, SIGTERM);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}
