/* test_tokenize_faults.c - killed, cut from power, or refused memory or disk at any point, a call
 * of alibi_tokenize() leaves its finished shards whole and leaks nothing, and the next call resumes
 * to the bytes of an uninterrupted one */
#include "fault/trials.h"

#include <omp.h>

#include "fault/disk.h"
#include "text/shards.h"

enum { FILES = 2, SHARD_TOKENS = 150 };

static const struct tokenize_limits limits = { .block_bytes = 300, .shards = 100 };

struct scene {
    char *folder, whole[256], shards[256], text[FILES][256];
    const char *paths[FILES];
    alibi_tokenizer *tokenizer;
    struct alibi_tokenize_result result;
};

static alibi_status tokenize(struct scene *s, const char *folder)
{
    return tokenize_within(&limits, s->tokenizer, s->paths, FILES, NULL, SHARD_TOKENS, folder,
                           &s->result, test_call());
}

static void write_texts(struct scene *s)
{
    for (int i = 0; i < FILES; i++) {
        char text[1200];
        size_t used = 0;
        for (int word = 0; used < sizeof text - 32; word++)
            used += (size_t)snprintf(text + used, sizeof text - used, "river's %d%s",
                                     word * word % 89, word % 7 ? " bank " : "\n");
        snprintf(s->text[i], sizeof s->text[i], "%s/text-%d", s->folder, i);
        write_file(s->text[i], text, used - (size_t)i);
        s->paths[i] = s->text[i];
    }
}

/* `whole` is the folder that nothing happens to. */
static int set_up(void **state)
{
    struct scene *s = calloc(1, sizeof *s);
    char pattern[] = "gpt2";
    struct alibi_vocabulary how = {
        .type = ALIBI_BPE, .vocab = 270, .min_count = 2, .pattern = pattern
    };

    assert_non_null(s);
    s->folder = fast_folder();
    snprintf(s->whole, sizeof s->whole, "%s/whole", s->folder);
    snprintf(s->shards, sizeof s->shards, "%s/shards", s->folder);
    write_texts(s);
    assert_ok(alibi_tokenizer_train(&s->tokenizer, &how, s->paths, FILES, NULL, test_call()));
    snprintf(recorded_folder, sizeof recorded_folder, "%s", s->whole);
    watch = record;
    assert_ok(tokenize(s, s->whole));
    watch = NULL;
    assert_true(s->result.shards > 4);
    *state = s;
    return 0;
}

static int tear_down(void **state)
{
    struct scene *s = *state;

    end_trials();
    forget_changes();
    remove_temporary_folder(s->folder);
    alibi_tokenizer_free(s->tokenizer);
    free(s);
    return alibi_memory_now() != 0;
}

static void clear_shards(void *subject)
{
    struct scene *s = subject;

    nftw(s->shards, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* ---- what must hold after anything */

/* Finished shards that are known to a folder; those that are known are there, with the bytes they
 * should have. */
static int64_t count_finished(struct scene *s)
{
    struct progress p = { 0 };
    struct shard_index x = { 0 };
    int64_t finished = 0;

    if (access(path_at("%s/" NAME_SHARD_INDEX, s->shards), F_OK) == 0) {
        assert_ok(shard_index_read(&x, s->shards));
        finished = x.entry_count;
    } else if (access(path_at("%s/" NAME_SHARD_PROGRESS, s->shards), F_OK) == 0) {
        assert_ok(progress_read(&p, s->shards));
        finished = p.shards.count;
    }
    for (int64_t i = 0; i < finished; i++)
        assert_same_file(s->whole, s->shards,
                         x.entries != NULL ? x.entries[i].name : p.shards.at[i].name);
    shard_index_fini(&x);
    progress_fini(&p);
    return finished;
}

static void assert_same_shards(struct scene *s)
{
    char **names = NULL, **others = NULL;
    int count = 0, other_count = 0;

    assert_ok(folder_list(&names, &count, s->whole));
    assert_ok(folder_list(&others, &other_count, s->shards));
    assert_int_equal(count, other_count);
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], "lock") != 0)
            assert_same_file(s->whole, s->shards, names[i]);
    names_free(names, count);
    names_free(others, other_count);
}

static void assert_goes_on_to_the_same(struct scene *s)
{
    assert_ok(tokenize(s, s->shards));
    assert_same_shards(s);
}

/* Progress is put down once before the first shard. */
static void verify_shards(void *subject, int64_t saved)
{
    assert_true(count_finished(subject) >= saved - 1);
    assert_goes_on_to_the_same(subject);
}

/* ---- what it happens to */

static alibi_status tokenize_to_shards(void *subject)
{
    struct scene *s = subject;

    return tokenize(s, s->shards);
}

static void watch_for_progress_and_death(const struct change *c, bool done)
{
    if (done && c->kind == CHANGE_RENAME && ends_with(c->to, NAME_SHARD_PROGRESS))
        news->saved++;
    watch_for_death(c, done);
}

/* For a child: how often it put down its progress is news. */
static alibi_status tokenize_and_tell(void *subject)
{
    watch = watch_for_progress_and_death;
    return tokenize_to_shards(subject);
}

/* Stops when a few shards are finished, so that resuming is tried too. */
static void stop_in_the_middle(void *user, const struct alibi_progress *p)
{
    (void)user;
    if (p->done > p->total / 2)
        alibi_stop_request(&test_stop);
}

static void leave_half(void *subject)
{
    clear_shards(subject);
    test_watch(NULL, stop_in_the_middle, NULL);
    assert_int_equal(tokenize_to_shards(subject), ALIBI_INTERRUPTED);
    test_watch(NULL, NULL, NULL);
}

/* ---- kill -9 before, inside and after every call that changes a file */

static void killed_at_any_call_it_keeps_its_shards_and_goes_on(void **state)
{
    kill_at_each_call(&(struct trial){ clear_shards, tokenize_and_tell, verify_shards, 0 }, *state);
}

static void killed_again_and_again_it_gets_there(void **state)
{
    const struct trial t = { .act = tokenize_and_tell };
    int64_t finished = 0;
    int deaths = 0;

    new_news();
    death.moment = BEFORE;
    for (death.call = 3; death.call < 1000; death.call += 4) {
        if (!act_in_child(&t, *state))
            break;
        deaths++;
        assert_true(count_finished(*state) >= finished);
        finished = count_finished(*state);
    }
    assert_true(deaths > 5);
    assert_goes_on_to_the_same(*state);
    free_news();
}

/* ---- a power cut */

/* How many states, of all points, do not resume to the same shards. */
static long count_lost(struct scene *s, bool folders_too, long *states)
{
    long lost = 0;

    *states = 0;
    clear_disk();
    for (int point = 0; point < event_count; point++) {
        replay(&events[point], folders_too);
        for (int draw = 0; point % stride() == 0 && draw < STATES_PER_POINT; draw++) {
            cut_power(s->shards, point, draw);
            ++*states;
            if (tokenize(s, s->shards) != ALIBI_OK)
                lost++;
            else if (folders_too)
                assert_same_shards(s);
        }
    }
    return lost;
}

static void no_power_cut_keeps_it_from_going_on(void **state)
{
    long states, lost = count_lost(*state, true, &states);

    print_message("%d changes, %ld states after a power cut, %ld lost\n", event_count, states,
                  lost);
    assert_int_equal(lost, 0);
}

static void what_is_finished_survives_a_power_cut(void **state)
{
    struct scene *s = *state;

    clear_disk();
    for (int point = 0; point < event_count; point++)
        replay(&events[point], true);
    for (int draw = 0; draw < STATES_PER_POINT; draw++) {
        cut_power(s->shards, event_count, draw);
        assert_int_equal(count_finished(s), s->result.shards);
    }
}

static void without_the_syncs_of_folders_the_model_loses_shards(void **state)
{
    long states, lost = count_lost(*state, false, &states);

    print_message("control: %ld states lost\n", lost);
    assert_true(lost > 0);
}

/* ---- the n-th allocation or file operation fails */

static void fail_each_job(void *subject, const char *how, alibi_status expected, bool may_succeed)
{
    fail_each(&(struct trial){ clear_shards, tokenize_to_shards, verify_shards, 0 }, subject, how,
              expected, may_succeed);
    fail_each(&(struct trial){ leave_half, tokenize_to_shards, verify_shards, 0 }, subject, how,
              expected, may_succeed);
}

static void every_failing_allocation_is_a_clean_error(void **state)
{
    fail_each_job(*state, "memory", ALIBI_MEMORY, false);
}

/* A failure while an input file is closed costs nothing. */
static void every_failing_file_operation_is_a_clean_error(void **state)
{
    fail_each_job(*state, "file", ALIBI_IO, true);
}

/* ---- disks that are full or slow */

static void a_full_disk_is_seen_before_a_shard_is_begun(void **state)
{
    struct scene *s = *state;

    leave_half(s);
    pretended_space = 1024 + 20;
    assert_fails(tokenize(s, s->shards), ALIBI_IO, "/shards' has 1044 free");
    pretended_space = -1;
    assert_goes_on_to_the_same(s);
}

static void short_reads_and_writes_are_continued(void **state)
{
    struct scene *s = *state;

    longest_transfer = 13;
    assert_ok(tokenize(s, s->shards));
    longest_transfer = 0;
    assert_same_shards(s);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(killed_at_any_call_it_keeps_its_shards_and_goes_on),
        TEST(killed_again_and_again_it_gets_there),
        TEST(no_power_cut_keeps_it_from_going_on),
        TEST(what_is_finished_survives_a_power_cut),
        TEST(without_the_syncs_of_folders_the_model_loses_shards),
        TEST(every_failing_allocation_is_a_clean_error),
        TEST(every_failing_file_operation_is_a_clean_error),
        TEST(a_full_disk_is_seen_before_a_shard_is_begun),
        TEST(short_reads_and_writes_are_continued),
    };

    omp_set_num_threads(1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
