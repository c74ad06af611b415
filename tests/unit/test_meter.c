/* Energy and clock of a GPU, through a stand-in for NVIDIA's management library (fake_nvml.c). */
#include <math.h>

#include "check.h"
#include "ops/ops.h"

/* How many meters have the library open. */
static int users(void)
{
    int (*count)(void) = NULL;
    void *module = NULL;

    assert_ok(module_load(&module, FAKE_NVML, false, "cmake"));
    assert_ok(module_symbol(&count, module, FAKE_NVML, "fake_nvml_users"));
    return count();
}

static void a_meter_reads_joules_and_hertz_until_it_is_closed(void **state)
{
    struct meter *m = NULL;
    struct meter_reading first, second;

    (void)state;
    assert_ok(meter_open(&m, FAKE_NVML, "0000:01:00.0"));
    assert_int_equal(users(), 1);
    first = meter_read(m);
    second = meter_read(m);
    assert_close(second.joules - first.joules, 1.5, 1e-12);
    assert_close(first.hertz, 1455e6, 0);
    meter_close(m);
    assert_int_equal(users(), 0);
    meter_close(NULL);
}

static void a_number_that_a_gpu_does_not_tell_is_nan(void **state)
{
    struct meter *m = NULL;
    struct meter_reading r;

    (void)state;
    assert_ok(meter_open(&m, FAKE_NVML, "0000:02:00.0"));
    r = meter_read(m);
    assert_true(isnan(r.joules));
    assert_close(r.hertz, 1455e6, 0);
    meter_close(m);
}

static void without_library_or_gpu_there_is_no_meter(void **state)
{
    struct meter *m = NULL;

    (void)state;
    assert_fails(meter_open(&m, FAKE_NVML, "0000:03:00.0"), ALIBI_DEVICE, "0000:03:00.0");
    assert_int_equal(users(), 0);
    assert_fails(meter_open(&m, "libnothing-ml.so.1", "0000:01:00.0"), ALIBI_DEVICE,
                 "libnothing-ml.so.1");
    assert_fails(meter_open(&m, "libm.so.6", "0000:01:00.0"), ALIBI_DEVICE, "nvmlInit_v2");
    assert_null(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_meter_reads_joules_and_hertz_until_it_is_closed),
        cmocka_unit_test(a_number_that_a_gpu_does_not_tell_is_nan),
        cmocka_unit_test(without_library_or_gpu_there_is_no_meter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
