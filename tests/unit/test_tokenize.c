/* test_tokenize.c - text to shards: the ids, the counts, and going on after a stop */
#include "tokenizing.h"

#include <fcntl.h>
#include <omp.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>

/* ---- ids and counts */

static void expect_all(const struct corpus *c, const alibi_tokenizer *t, struct ids *ids,
                       struct alibi_tokenize_result *r)
{
    *r = (struct alibi_tokenize_result){ .documents = FILES };
    for (int i = 0; i < FILES; i++) {
        expect_document(t, c->text[i], c->bytes[i], ids);
        r->words += expect_words(c->text[i], c->bytes[i]);
        r->bytes += (int64_t)c->bytes[i];
    }
    r->tokens = ids->count;
}

static void check_folder(const char *folder, const struct ids *expected,
                         const struct alibi_tokenize_result *counts)
{
    struct shard_index index = { 0 };
    struct ids found = { 0 };

    assert_ok(shard_index_read(&index, folder));
    read_shards(folder, &index, &found);
    assert_same_ids(&found, expected);
    assert_int_equal(index.documents, counts->documents);
    assert_int_equal(index.tokens, counts->tokens);
    assert_int_equal(index.words, counts->words);
    assert_int_equal(index.bytes, counts->bytes);
    mem_free(found.at);
    shard_index_fini(&index);
}

static void shards_hold_the_ids_of_every_document_whatever_the_blocks(void **state)
{
    static const size_t blocks[] = { 1, 7, 64, 1000, ENCODING_BLOCK_BYTES };
    struct corpus *c = *state;
    const char *folder = keep(c, "shards");

    for (int i = 0; i < 3; i++) {
        struct ids expected = { 0 };
        struct alibi_tokenize_result counts, result;
        expect_all(c, c->tokenizers[i], &expected, &counts);
        for (size_t b = 0; b < sizeof blocks / sizeof *blocks; b++) {
            limits.block_bytes = blocks[b];
            assert_ok(tokenize_within(&limits, c->tokenizers[i], c->paths, FILES, NULL, 999, folder,
                                      &result, test_call()));
            check_folder(folder, &expected, &counts);
            assert_int_equal(result.documents, FILES);
            assert_int_equal(result.tokens, expected.count);
            assert_int_equal(result.words, counts.words);
            assert_int_equal(result.bytes, counts.bytes);
            assert_int_equal(result.shards, (expected.count + 998) / 999);
            assert_true(result.peak_bytes > 0 && result.seconds >= 0);
            assert_false(file_exists(within(folder, NAME_SHARD_PROGRESS)));
            remove_folder(folder);
        }
        print_message("%-5s %lld tokens\n", alibi_tokenizer_type(c->tokenizers[i]),
                      (long long)expected.count);
        mem_free(expected.at);
    }
}

static void a_last_shard_that_is_full_is_not_followed_by_an_empty_one(void **state)
{
    struct corpus *c = *state;
    const char *folder = keep(c, "shards");
    struct alibi_tokenize_result result;

    assert_ok(tokenize_within(&limits, c->tokenizers[0], &c->paths[1], 1, NULL,
                              (int64_t)c->bytes[1] + 1, folder, &result, test_call()));
    assert_int_equal(result.shards, 1);
    assert_false(file_exists(within(folder, "tokens-00001.bin")));
    remove_folder(folder);
}

static void words_are_counted_within_their_document(void **state)
{
    struct corpus *c = *state;
    const char *folder = keep(c, "shards"), *path = keep(c, "lines.jsonl");
    const char lines[] =
        "{\"text\":\"ab\"}\n{\"text\":\"cd ef\"}\n{\"text\":\" \"}\n{\"text\":\"g\"}\n";
    struct alibi_tokenize_result result;

    write_file(path, lines, strlen(lines));
    for (limits.block_bytes = 1; limits.block_bytes < 12; limits.block_bytes++) {
        assert_ok(tokenize_within(&limits, c->tokenizers[0], &path, 1, NULL, 1000, folder, &result,
                                  test_call()));
        assert_int_equal(result.documents, 4);
        assert_int_equal(result.words, 4);
        assert_int_equal(result.bytes, 9);
        assert_int_equal(result.tokens, 13);
        remove_folder(folder);
    }
}

static void any_number_of_threads_gives_the_same_files(void **state)
{
    struct corpus *c = *state;
    const char *path = keep(c, "large"), *one = keep(c, "one"), *more = keep(c, "more");
    struct alibi_tokenize_result result;
    int threads = omp_get_max_threads();
    size_t bytes;
    char *text = write_text(5, 1500000, &bytes);

    write_file(path, text, bytes);
    free(text);
    for (int i = 0; i < 3; i++) {
        limits.block_bytes = i == 1 ? 700001 : ENCODING_BLOCK_BYTES;
        omp_set_num_threads(1);
        assert_ok(tokenize_within(&limits, c->tokenizers[i], &path, 1, NULL, 100000, one, &result,
                                  test_call()));
        for (int n = 2; n <= 3; n++) {
            omp_set_num_threads(n);
            assert_ok(tokenize_within(&limits, c->tokenizers[i], &path, 1, NULL, 100000, more,
                                      &result, test_call()));
            assert_same_folder(one, more);
            remove_folder(more);
        }
        remove_folder(one);
    }
    omp_set_num_threads(threads);
}

static void ids_beyond_16_bits_have_32(void **state)
{
    struct corpus *c = *state;
    const char *folder = keep(c, "shards"), *path = keep(c, "far");
    const char text[] = "word69999 word0 nobody\n";
    alibi_tokenizer *t = words_tokenizer(70000);
    struct shard_index index = { 0 };
    struct ids ids = { 0 };
    struct alibi_tokenize_result result;

    write_file(path, text, strlen(text));
    assert_ok(tokenize_within(&limits, t, &path, 1, NULL, 3, folder, &result, test_call()));
    assert_ok(shard_index_read(&index, folder));
    assert_int_equal(index.width, 4);
    assert_int_equal(index.entry_count, 2);
    read_shards(folder, &index, &ids);
    assert_int_equal(ids.count, 4);
    assert_int_equal(ids.at[0], 70001);
    assert_int_equal(ids.at[2], 0);
    assert_int_equal(ids.at[3], 1);
    mem_free(ids.at);
    shard_index_fini(&index);
    alibi_tokenizer_free(t);
}

/* ---- to a caller */

static void documents_are_handed_over_in_order_with_their_ends(void **state)
{
    static const size_t blocks[] = { 3, 100, ENCODING_BLOCK_BYTES };
    struct corpus *c = *state;

    for (int i = 0; i < 9; i++) {
        struct ids expected = { 0 };
        struct alibi_tokenize_result counts;
        struct receiver r = { .wanted = 100 };
        limits.block_bytes = blocks[i / 3];
        expect_all(c, c->tokenizers[i % 3], &expected, &counts);
        assert_ok(tokenize_each_within(&limits, c->tokenizers[i % 3], c->paths, FILES, NULL,
                                       receive, &r, test_call()));
        assert_int_equal(r.documents, FILES);
        assert_same_ids(&r.all, &expected);
        r.documents = 0;
        r.wanted = 2;
        assert_ok(tokenize_each_within(&limits, c->tokenizers[i % 3], c->paths, FILES, NULL,
                                       receive, &r, test_call()));
        assert_int_equal(r.documents, 2);
        mem_free(expected.at);
        mem_free(r.all.at);
    }
}

static void a_document_is_handed_over_in_runs_of_bounded_length(void **state)
{
    enum { LONG = 2000000, FEW = 50000 };
    struct corpus *c = *state;
    const char *path = keep(c, "long");
    struct receiver r = { .wanted = 2 };
    size_t bytes, before;
    char *text = write_text(7, LONG, &bytes);

    write_file(path, text, bytes);
    free(text);
    limits.block_bytes = FEW;
    assert_ok(ids_reserve(&r.all, LONG + 1000)); /* what the test keeps does not count */
    alibi_memory_reset_peak();
    before = alibi_memory_peak();
    assert_ok(
        tokenize_each_within(&limits, c->tokenizers[0], &path, 1, NULL, receive, &r, test_call()));
    print_message("%lld ids, in runs of at most %lld; memory %zu\n", (long long)r.all.count,
                  (long long)r.longest, alibi_memory_peak() - before);
    assert_int_equal(r.documents, 1);
    assert_int_equal(r.all.count, bytes + 1);
    assert_true(r.longest <= 2 * FEW);
    assert_true(alibi_memory_peak() - before < LONG * sizeof(int32_t) / 2);
    mem_free(r.all.at);
}

/* ---- stopped, and going on */

/* Stops after a few blocks, again and again, until it is through. */
static int stop_and_go_on(struct corpus *c, const alibi_tokenizer *t, const char *folder, int every,
                          int limit)
{
    struct alibi_tokenize_result result;
    alibi_status status = ALIBI_INTERRUPTED;
    int stops = 0;

    while (status != ALIBI_OK && stops < limit) {
        struct stopper s = { .stop_at = every + stops % 3 };
        test_watch(&s, stop_at_report, keep_line);
        status =
            tokenize_within(&limits, t, c->paths, FILES, NULL, 500, folder, &result, test_call());
        if (status != ALIBI_OK)
            assert_fails(status, ALIBI_INTERRUPTED, "stopped");
        stops += status != ALIBI_OK;
    }
    test_watch(NULL, NULL, NULL);
    assert_int_equal(status, ALIBI_OK);
    return stops;
}

static void stopped_at_any_block_it_goes_on_to_the_same_bytes(void **state)
{
    struct corpus *c = *state;
    const char *whole = keep(c, "whole"), *parts = keep(c, "parts");
    struct alibi_tokenize_result result;

    for (int i = 0; i < 3; i++) {
        limits.block_bytes = i == 1 ? 3000 : 1700;
        assert_ok(tokenize_within(&limits, c->tokenizers[i], c->paths, FILES, NULL, 500, whole,
                                  &result, test_call()));
        for (int every = 2; every < 5; every++) {
            int stops = stop_and_go_on(c, c->tokenizers[i], parts, every, 100);
            assert_true(stops > 0);
            assert_same_folder(whole, parts);
            remove_folder(parts);
        }
        remove_folder(whole);
    }
}

/* The digit before "one" makes it a part of a word, also where a resumed call begins at "one". */
static void a_resumed_call_knows_the_letter_before_its_first_word(void **state)
{
    enum { REPEATS = 2000, BYTES = 5 * REPEATS };
    static char text[BYTES + 1];
    struct corpus *c = *state;
    const char *whole = keep(c, "whole"), *parts = keep(c, "parts"), *path = keep(c, "text");
    struct alibi_tokenize_result result;
    alibi_tokenizer *t = NULL;

    for (int i = 0; i < REPEATS; i++)
        memcpy(text + 5 * i, "1one ", 5);
    write_file(path, text, BYTES);
    assert_ok(alibi_tokenizer_open(&t, TEST_FOLDER "/golden/tokenizers/words.json", NULL));
    for (limits.block_bytes = 1700; limits.block_bytes < 1705; limits.block_bytes++) {
        alibi_status status = ALIBI_INTERRUPTED;
        assert_ok(tokenize_within(&limits, t, &path, 1, NULL, 500, whole, &result, test_call()));
        for (int stops = 0; status != ALIBI_OK && stops < 20; stops++) {
            struct stopper s = { .stop_at = 2 };
            test_watch(&s, stop_at_report, keep_line);
            status = tokenize_within(&limits, t, &path, 1, NULL, 500, parts, &result, test_call());
        }
        test_watch(NULL, NULL, NULL);
        assert_ok(status);
        assert_same_folder(whole, parts);
        remove_folder(whole);
        remove_folder(parts);
    }
    alibi_tokenizer_free(t);
}

static void stop_at_once(void *user, const struct alibi_progress *p)
{
    (void)user;
    (void)p;
    alibi_stop_request(&test_stop);
}

static void a_stop_is_seen_behind_each_shard_of_a_block(void **state)
{
    struct corpus *c = *state;
    const char *folder = keep(c, "shards"), *whole = keep(c, "whole");
    struct alibi_tokenize_result r;

    for (int i = 1; i <= 3; i++) {
        test_watch(NULL, stop_at_once, NULL);
        assert_int_equal(tokenize_within(&limits, c->tokenizers[0], c->paths, FILES, NULL, 10,
                                         folder, &r, test_call()),
                         ALIBI_INTERRUPTED);
        assert_non_null(strstr(alibi_error(), i == 1   ? "has 1 complete shard,"
                                              : i == 2 ? "has 2 complete shards"
                                                       : "has 3 complete shards"));
    }
    test_watch(NULL, NULL, NULL);
    assert_ok(tokenize_within(&limits, c->tokenizers[0], c->paths, FILES, NULL, 10, folder, &r,
                              test_call()));
    assert_ok(tokenize_within(&limits, c->tokenizers[0], c->paths, FILES, NULL, 10, whole, &r,
                              test_call()));
    assert_same_folder(folder, whole);
}

static void a_stop_before_the_first_shard_says_so(void **state)
{
    struct corpus *c = *state;
    struct alibi_tokenize_result r;

    limits.block_bytes = 100;
    alibi_stop_request(&test_stop);
    assert_fails(tokenize_within(&limits, c->tokenizers[0], c->paths, FILES, NULL, 500,
                                 keep(c, "shards"), &r, test_call()),
                 ALIBI_INTERRUPTED, "had a complete shard");
    test_watch(NULL, NULL, NULL);
}

static void on_alarm(int number)
{
    (void)number;
    alibi_stop_request(&test_stop);
}

/* With nobody at the other end, with somebody who is silent, and with somebody who paused. */
static void a_stop_is_seen_while_a_pipe_is_silent(void **state)
{
    const struct itimerval soon = { .it_value = { .tv_usec = 100000 } };
    struct corpus *c = *state;
    const char *path = keep(c, "pipe"), *folder = keep(c, "shards");
    struct alibi_tokenize_result r;
    alibi_corpus *corpus = NULL;
    int other = -1;

    assert_int_equal(mkfifo(path, 0600), 0);
    signal(SIGALRM, on_alarm);
    for (int i = 0; i < 3; i++) {
        if (i == 1)
            other = open(path, O_RDWR);
        if (i == 2)
            assert_int_equal(write(other, "some text", 9), 9);
        test_watch(NULL, NULL, NULL);
        setitimer(ITIMER_REAL, &soon, NULL);
        assert_int_equal(tokenize_within(&limits, c->tokenizers[0], &path, 1, NULL, 500, folder, &r,
                                         test_call()),
                         ALIBI_INTERRUPTED);
        test_watch(NULL, NULL, NULL);
        setitimer(ITIMER_REAL, &soon, NULL);
        assert_fails(alibi_corpus_open(&corpus, &path, 1, NULL, NULL, NULL, test_call()),
                     ALIBI_INTERRUPTED, "pipe");
    }
    signal(SIGALRM, SIG_DFL);
    test_watch(NULL, NULL, NULL);
    close(other);
}

enum { READ_BYTES = 1 << 18 }; /* that source.c reads at a time */

/* A child writes two blocks of text to the pipe, with a little of the next, and then nothing. */
static pid_t write_and_pause(const char *path)
{
    pid_t child = fork();

    if (child == 0) {
        static char text[2 * READ_BYTES + 10];
        int pipe = open(path, O_WRONLY);
        memset(text, 'x', sizeof text);
        memset(text + 5, ' ', 1);
        alarm(10); /* if nobody kills it */
        while (write(pipe, text, sizeof text) > 0)
            pause();
        _exit(1);
    }
    return child;
}

static bool take_none(void *user, const int32_t *ids, int64_t count, bool ends)
{
    (void)user;
    (void)ids;
    (void)count;
    (void)ends;
    return false;
}

/* The block after the last one that is wanted is being read by then. */
static void a_failure_or_an_end_does_not_wait_for_the_writer_of_a_pipe(void **state)
{
    struct corpus *c = *state;
    const char *path = keep(c, "pipe"), *folder = keep(c, "shards");
    struct alibi_tokenize_result r;
    alibi_tokenizer *ids = NULL;
    double began = clock_seconds();

    assert_int_equal(mkfifo(path, 0600), 0);
    assert_ok(tokenizer_new_ids(&ids, 10));
    limits.block_bytes = READ_BYTES;
    for (int i = 0; i < 2; i++) {
        pid_t child = write_and_pause(path);
        if (i == 0)
            assert_fails(
                tokenize_within(&limits, ids, &path, 1, NULL, 500, folder, &r, test_call()),
                ALIBI_BAD_INPUT, "'xxxxx' is not an id");
        else
            assert_ok(tokenize_each_within(&limits, c->tokenizers[0], &path, 1, NULL, take_none,
                                           NULL, test_call()));
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, NULL, 0), child);
    }
    assert_true(clock_seconds() - began < 8);
    alibi_tokenizer_free(ids);
}

static void a_shard_that_changed_since_is_found_before_anything_is_added(void **state)
{
    struct corpus *c = *state;
    const char *folder = keep(c, "shards");
    struct alibi_tokenize_result r;
    char *bytes = NULL;
    size_t length;

    assert_int_equal(begin(c, folder), ALIBI_INTERRUPTED);
    assert_ok(file_read_all(&bytes, &length, within(folder, "tokens-00001.bin"), 1 << 20));
    bytes[length - 5] ^= 4;
    write_file(within(folder, "tokens-00001.bin"), bytes, length);
    assert_fails(tokenize_within(&limits, c->tokenizers[0], c->paths, FILES, NULL, 500, folder, &r,
                                 test_call()),
                 ALIBI_BAD_INPUT, "tokens-00001.bin' is damaged");
    bytes[length - 5] ^= 4;
    write_file(within(folder, "tokens-00001.bin"), bytes, length);
    assert_ok(tokenize_within(&limits, c->tokenizers[0], c->paths, FILES, NULL, 500, folder, &r,
                              test_call()));
    mem_free(bytes);
}

/* Cut inside a word: the call that resumes must know that the word was counted. */
static void a_word_in_two_blocks_counts_once_though_a_stop_came_between(void **state)
{
    struct corpus *c = *state;
    const char *folder = keep(c, "shards"), *path = keep(c, "long");
    struct alibi_tokenize_result result;
    struct stopper s = { .stop_at = 5 };

    write_file(path, "aaaaaaaaaaaaaaaaaaaaaaaaa bbb", 29);
    limits.block_bytes = 4;
    test_watch(&s, stop_at_report, keep_line);
    assert_int_equal(
        tokenize_within(&limits, c->tokenizers[0], &path, 1, NULL, 5, folder, &result, test_call()),
        ALIBI_INTERRUPTED);
    s.done = 0;
    test_watch(&s, stop_at_report, keep_line);
    assert_ok(tokenize_within(&limits, c->tokenizers[0], &path, 1, NULL, 5, folder, &result,
                              test_call()));
    assert_non_null(strstr(s.line, "resuming"));
    assert_int_equal(result.words, 2);
    assert_int_equal(result.bytes, 29);
    assert_int_equal(result.tokens, 30);
}

/* The first versions counted a byte-order mark as text. */
static void an_old_place_in_a_file_with_a_mark_is_refused(void **state)
{
    struct corpus *c = *state;
    const char *folder = keep(c, "shards"), *path = keep(c, "marked");
    struct alibi_tokenize_result result;

    for (int i = 0; i < 4; i++) {
        struct stopper s = { .stop_at = 5 };
        struct progress p = { 0 };
        bool marked = i % 2 == 1, old = i / 2 == 1;
        write_file(path,
                   marked ? "\xEF\xBB\xBF"
                            "aaaaaaaaaaaaaaaaaaaaaaaaa bbb"
                          : "aaaaaaaaaaaaaaaaaaaaaaaaa bbb",
                   marked ? 32 : 29);
        limits.block_bytes = 4;
        test_watch(&s, stop_at_report, NULL);
        assert_int_equal(tokenize_within(&limits, c->tokenizers[0], &path, 1, NULL, 5, folder,
                                         &result, test_call()),
                         ALIBI_INTERRUPTED);
        test_watch(NULL, NULL, NULL);
        assert_ok(progress_read(&p, folder));
        assert_true(p.place.offset > 0 && !p.counts_marks);
        p.counts_marks = old;
        assert_ok(shard_folder_save(folder, &p));
        progress_fini(&p);
        if (marked && old) {
            assert_fails(tokenize_within(&limits, c->tokenizers[0], &path, 1, NULL, 5, folder,
                                         &result, test_call()),
                         ALIBI_BAD_INPUT, "counted the byte-order mark of '");
        } else {
            assert_ok(tokenize_within(&limits, c->tokenizers[0], &path, 1, NULL, 5, folder, &result,
                                      test_call()));
            assert_int_equal(result.tokens, 30);
        }
        remove_folder(folder);
    }
}

static void progress_ends_with_all_bytes(void **state)
{
    struct corpus *c = *state;
    struct alibi_tokenize_result result;
    struct stopper s = { 0 };

    limits.block_bytes = 1000;
    test_watch(&s, stop_at_report, keep_line);
    assert_ok(tokenize_within(&limits, c->tokenizers[0], c->paths, FILES, NULL, 500,
                              keep(c, "shards"), &result, test_call()));
    assert_true(s.reports > 10);
    assert_int_equal(s.done, c->bytes[0] + c->bytes[1] + c->bytes[2]);
    assert_int_equal(s.total, s.done);
}

static void another_request_is_refused_with_what_differs(void **state)
{
    struct corpus *c = *state;
    const char *folder = keep(c, "shards");
    const char *turned[] = { c->paths[1], c->paths[0], c->paths[2] };
    const char *more[] = { keep(c, "other"), c->paths[0], c->paths[1], c->paths[2] };
    struct alibi_reading by_line = { .document = "line" };
    struct alibi_tokenize_result r;

    write_file(more[0], "other", 5);
    assert_int_equal(begin(c, folder), ALIBI_INTERRUPTED);
    assert_fails(tokenize_within(&limits, c->tokenizers[0], c->paths, FILES, NULL, 501, folder, &r,
                                 test_call()),
                 ALIBI_BAD_INPUT, "it has 500 tokens in a shard, this request 501");
    assert_fails(tokenize_within(&limits, c->tokenizers[1], c->paths, FILES, NULL, 500, folder, &r,
                                 test_call()),
                 ALIBI_BAD_INPUT, "another tokenizer (bytes, 257 ids)");
    assert_fails(tokenize_within(&limits, c->tokenizers[0], c->paths, FILES, &by_line, 500, folder,
                                 &r, test_call()),
                 ALIBI_BAD_INPUT, "'document' was 'file', now it is 'line'");
    assert_fails(
        tokenize_within(&limits, c->tokenizers[0], c->paths, 2, NULL, 500, folder, &r, test_call()),
        ALIBI_BAD_INPUT, "had 3 files, this request has 2");
    assert_non_null(strstr(alibi_error(), "text-2' is not in this request"));
    assert_fails(tokenize_within(&limits, c->tokenizers[0], c->paths + 2, 1, NULL, 500, folder, &r,
                                 test_call()),
                 ALIBI_BAD_INPUT, "had 3 files, this request has 1");
    assert_non_null(strstr(alibi_error(), "text-0' is not in this request"));
    assert_fails(tokenize_within(&limits, c->tokenizers[0], turned, FILES, NULL, 500, folder, &r,
                                 test_call()),
                 ALIBI_BAD_INPUT, "text-1' is at the position of '");
    assert_fails(tokenize_within(&limits, c->tokenizers[0], more, FILES + 1, NULL, 500, folder, &r,
                                 test_call()),
                 ALIBI_BAD_INPUT, "had 3 files, this request has 4");
    assert_non_null(strstr(alibi_error(), "other' is new"));
    write_file(c->paths[2], c->text[2], c->bytes[2]);
    assert_fails(tokenize_within(&limits, c->tokenizers[0], c->paths, FILES, NULL, 500, folder, &r,
                                 test_call()),
                 ALIBI_BAD_INPUT, "text-2' was modified");
    write_file(c->paths[2], "another text", 12);
    assert_fails(tokenize_within(&limits, c->tokenizers[0], c->paths, FILES, NULL, 500, folder, &r,
                                 test_call()),
                 ALIBI_BAD_INPUT, "text-2' had ");
    assert_non_null(strstr(alibi_error(), " bytes, now it has 12"));
    write_file(within(folder, NAME_SHARD_REQUEST), "{}", 2);
    assert_fails(tokenize_within(&limits, c->tokenizers[0], c->paths, FILES, NULL, 500, folder, &r,
                                 test_call()),
                 ALIBI_BAD_INPUT, "(unknown, 0 ids)");
    write_file(within(folder, NAME_SHARD_REQUEST), "{", 1);
    assert_fails(tokenize_within(&limits, c->tokenizers[0], c->paths, FILES, NULL, 500, folder, &r,
                                 test_call()),
                 ALIBI_BAD_INPUT, NAME_SHARD_REQUEST);
}

static void a_request_without_a_finished_shard_gives_way(void **state)
{
    struct corpus *c = *state;
    const char *folder = keep(c, "shards"), *whole = keep(c, "whole");
    struct stopper s = { .stop_at = 1 };
    struct alibi_tokenize_result r;

    limits.block_bytes = 100;
    test_watch(&s, stop_at_report, NULL);
    assert_int_equal(tokenize_within(&limits, c->tokenizers[0], c->paths, FILES, NULL, 500, folder,
                                     &r, test_call()),
                     ALIBI_INTERRUPTED);
    test_watch(NULL, NULL, NULL);
    assert_ok(tokenize_within(&limits, c->tokenizers[2], c->paths, 1, NULL, 400, folder, &r,
                              test_call()));
    assert_ok(
        tokenize_within(&limits, c->tokenizers[2], c->paths, 1, NULL, 400, whole, &r, test_call()));
    assert_same_folder(folder, whole);
}

static void a_finished_folder_stays_as_it_is(void **state)
{
    struct corpus *c = *state;
    const char *folder = keep(c, "shards"), *whole = keep(c, "whole");
    struct alibi_tokenize_result first, again;
    struct stopper s = { 0 };

    assert_ok(tokenize_within(&limits, c->tokenizers[0], c->paths, FILES, NULL, 500, folder, &first,
                              test_call()));
    assert_ok(tokenize_within(&limits, c->tokenizers[0], c->paths, FILES, NULL, 500, whole, &first,
                              test_call()));
    write_file(within(folder, NAME_SHARD_PROGRESS), "", 0); /* a kill just before it was removed */
    test_watch(&s, NULL, keep_line);
    assert_ok(tokenize_within(&limits, c->tokenizers[0], c->paths, FILES, NULL, 500, folder, &again,
                              test_call()));
    assert_non_null(strstr(s.line, "there is nothing to do"));
    assert_int_equal(again.tokens, first.tokens);
    assert_int_equal(again.documents, first.documents);
    assert_int_equal(again.words, first.words);
    assert_int_equal(again.bytes, first.bytes);
    assert_int_equal(again.shards, first.shards);
    assert_fails(tokenize_within(&limits, c->tokenizers[0], c->paths, 1, NULL, 500, folder, &again,
                                 test_call()),
                 ALIBI_BAD_INPUT, "finished shards of another request");
    assert_same_folder(folder, whole);
}

static void with_input_from(const char *path, struct corpus *c, const char *folder,
                            alibi_status expected)
{
    const char *input = "-";
    struct alibi_tokenize_result r;
    int before = dup(STDIN_FILENO), fd = open(path, O_RDONLY);

    assert_true(before >= 0 && fd >= 0 && dup2(fd, STDIN_FILENO) == STDIN_FILENO);
    assert_int_equal(
        tokenize_within(&limits, c->tokenizers[0], &input, 1, NULL, 500, folder, &r, test_call()),
        expected);
    dup2(before, STDIN_FILENO);
    close(before);
    close(fd);
}

static void standard_input_goes_on_when_it_is_fed_the_same_again(void **state)
{
    struct corpus *c = *state;
    const char *folder = keep(c, "shards"), *whole = keep(c, "whole");
    struct stopper s = { .stop_at = 4 };
    struct alibi_tokenize_result r;

    limits.block_bytes = 1000;
    test_watch(&s, NULL, NULL);
    assert_ok(
        tokenize_within(&limits, c->tokenizers[0], c->paths, 1, NULL, 500, whole, &r, test_call()));
    alibi_stop_request(&test_stop);
    with_input_from(c->paths[0], c, folder, ALIBI_INTERRUPTED);
    test_watch(NULL, NULL, NULL);
    with_input_from(c->paths[0], c, folder, ALIBI_OK);
    assert_true(same_file(within(folder, NAME_SHARD_INDEX), within(whole, NAME_SHARD_INDEX)));
    with_input_from(c->paths[0], c, folder, ALIBI_BAD_INPUT);
    assert_non_null(strstr(alibi_error(), "without a size"));
}

static void standard_input_that_is_fed_another_text_is_refused(void **state)
{
    struct corpus *c = *state;
    const char *folder = keep(c, "shards"), *other = keep(c, "other"), *whole = keep(c, "whole");
    struct alibi_tokenize_result r;

    assert_ok(
        tokenize_within(&limits, c->tokenizers[0], c->paths, 1, NULL, 500, whole, &r, test_call()));
    limits.block_bytes = 1000;
    for (int i = 0; i < 2; i++) {
        test_watch(NULL, stop_at_once, NULL);
        with_input_from(c->paths[0], c, folder, ALIBI_INTERRUPTED);
    }
    test_watch(NULL, NULL, NULL);
    c->text[0][3] ^= 1; /* far before the place at which it resumes */
    write_file(other, c->text[0], c->bytes[0]);
    with_input_from(other, c, folder, ALIBI_BAD_INPUT);
    assert_non_null(strstr(alibi_error(), "the input has changed: its token 3 is "));
    c->text[0][3] ^= 1;
    write_file(other, c->text[0], 700);
    with_input_from(other, c, folder, ALIBI_BAD_INPUT);
    assert_non_null(strstr(alibi_error(), "the input has changed: its token 700 is 256"));
    with_input_from(c->paths[0], c, folder, ALIBI_OK);
    assert_true(same_file(within(folder, NAME_SHARD_INDEX), within(whole, NAME_SHARD_INDEX)));
}

static void standard_input_is_called_so(void **state)
{
    static const struct alibi_reading lines = { .document = "line" };
    struct corpus *c = *state;
    const char *blank = keep(c, "blank"), *dash = "-";
    int before = dup(STDIN_FILENO), fd;
    struct alibi_tokenize_result r;

    write_file(blank, " \n\n", 3);
    fd = open(blank, O_RDONLY);
    assert_true(before >= 0 && fd >= 0 && dup2(fd, STDIN_FILENO) == STDIN_FILENO);
    assert_fails(tokenize_within(&limits, c->tokenizers[0], &dash, 1, &lines, 500,
                                 keep(c, "shards"), &r, test_call()),
                 ALIBI_BAD_INPUT, "there is no text in 'standard input'");
    dup2(before, STDIN_FILENO);
    close(before);
    close(fd);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(shards_hold_the_ids_of_every_document_whatever_the_blocks),
        TEST(a_last_shard_that_is_full_is_not_followed_by_an_empty_one),
        TEST(words_are_counted_within_their_document),
        TEST(any_number_of_threads_gives_the_same_files),
        TEST(ids_beyond_16_bits_have_32),
        TEST(documents_are_handed_over_in_order_with_their_ends),
        TEST(a_document_is_handed_over_in_runs_of_bounded_length),
        TEST(stopped_at_any_block_it_goes_on_to_the_same_bytes),
        TEST(a_resumed_call_knows_the_letter_before_its_first_word),
        TEST(a_stop_is_seen_behind_each_shard_of_a_block),
        TEST(a_stop_before_the_first_shard_says_so),
        TEST(a_stop_is_seen_while_a_pipe_is_silent),
        TEST(a_failure_or_an_end_does_not_wait_for_the_writer_of_a_pipe),
        TEST(a_shard_that_changed_since_is_found_before_anything_is_added),
        TEST(a_word_in_two_blocks_counts_once_though_a_stop_came_between),
        TEST(an_old_place_in_a_file_with_a_mark_is_refused),
        TEST(progress_ends_with_all_bytes),
        TEST(another_request_is_refused_with_what_differs),
        TEST(a_request_without_a_finished_shard_gives_way),
        TEST(a_finished_folder_stays_as_it_is),
        TEST(standard_input_goes_on_when_it_is_fed_the_same_again),
        TEST(standard_input_that_is_fed_another_text_is_refused),
        TEST(standard_input_is_called_so),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
