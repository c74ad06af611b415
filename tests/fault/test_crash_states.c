/* test_crash_states.c - what a power cut can leave of a run, at every point of it, in a model of a
 * disk
 *
 * Whatever the library had said was saved must be found in every state of the model (disk.h). A
 * control shows that the test can fail: without the syncs of folders, checkpoints are lost. */
#include "training.h"

#include <omp.h>

#include "fault/disk.h"
#include "fault/together.h"

enum { STEPS = 4, RESUME_EVERY = 29 };

/* ---- what was said */

static void note_saved(void *user, enum alibi_log_level level, const char *line)
{
    long long step;

    (void)user;
    (void)level;
    if (sscanf(line, "saved step %lld in", &step) == 1)
        said_saved = step;
}

/* ---- what the library finds */

/* The step of the newest checkpoint that verifies, 0 if there is none, -1 if there are only broken
 * ones. */
static int64_t find_step(const char *run, const struct alibi_call *call)
{
    char *path = NULL;
    int64_t step = -1;

    if (checkpoint_find(&path, run, call) == ALIBI_OK)
        step = path ? strtoll(strrchr(path, '-') + 1, NULL, 10) : 0;
    mem_free(path);
    return step;
}

static void resume(struct site *p)
{
    assert_ok(train_at(p, p->run, true));
    assert_same_run(p->whole, p->run, STEPS);
}

/* How many states, of all points, have lost what was said to be saved. */
static long count_lost(struct site *p, bool folders_too, bool resuming, long *states)
{
    struct listener l;
    long lost = 0;

    *states = 0;
    clear_disk();
    for (int point = 0; point < event_count; point++) {
        int64_t saved = point + 1 < event_count ? events[point + 1].saved : said_saved;
        replay(&events[point], folders_too);
        for (int draw = 0; point % stride() == 0 && draw < STATES_PER_POINT; draw++) {
            cut_power(p->run, point, draw);
            listen_to(&l, 0);
            lost += find_step(p->run, &l.call) < saved ||
                    strstr(l.log, "skipping the checkpoint") != NULL;
            if (resuming && ++*states % RESUME_EVERY == 0)
                resume(p);
        }
    }
    return lost;
}

static int record_run(void **state, struct site *p,
                      alibi_status (*train)(struct site *p, const char *run, bool resume))
{
    snprintf(recorded_folder, sizeof recorded_folder, "%s", p->whole);
    said_saved = 0;
    p->call = &(struct alibi_call){ .log = note_saved };
    watch = record;
    assert_ok(train(p, p->whole, false));
    watch = NULL;
    p->call = NULL;
    *state = p;
    return 0;
}

static int set_up(void **state)
{
    return record_run(state, new_site(STEPS, 1), train_at);
}

/* One process resumes what a power cut leaves of the files of several ranks. */
static int set_up_ranks(void **state)
{
    return record_run(state, new_site_of_ranks(STEPS, 1), train_together);
}

static int tear_down(void **state)
{
    forget_changes();
    return drop_site(state);
}

static void no_power_cut_loses_what_was_saved(void **state)
{
    long states, lost = count_lost(*state, true, true, &states);

    print_message("%d changes, %ld states after a power cut, %ld lost\n", event_count, states,
                  lost);
    assert_int_equal(said_saved, STEPS);
    assert_int_equal(lost, 0);
}

static void without_the_syncs_of_folders_the_model_loses_checkpoints(void **state)
{
    long states, lost = count_lost(*state, false, false, &states);

    print_message("control: %ld states lost\n", lost);
    assert_true(lost > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_power_cut_loses_what_was_saved),
        cmocka_unit_test(without_the_syncs_of_folders_the_model_loses_checkpoints),
    };

    omp_set_num_threads(1);
    return cmocka_run_group_tests_name("one process", tests, set_up, tear_down) +
           cmocka_run_group_tests_name("several ranks", tests, set_up_ranks, tear_down);
}
