/* test_bf16.c - bfloat16: its conversions, and sums of numbers that were rounded to it */
#include "ops/bf16.h"
#include "ops/cpu/cpu.h"

#include "check.h"

static float float_of_bits(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

static void every_bf16_survives_the_way_to_float_and_back(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 1u << 16; bits++) {
        float wide = bf16_to_float((uint16_t)bits);
        if (isnan(wide))
            assert_true(isnan(bf16_to_float(bf16_from_float(wide))));
        else
            assert_int_equal(bf16_from_float(wide), bits);
    }
}

static void floats_are_rounded_to_the_nearest_bf16_and_ties_to_even(void **state)
{
    static const struct {
        uint32_t from;
        uint16_t to;
    } cases[] = {
        { 0x3F800000, 0x3F80 }, /* 1 */
        { 0x3F807FFF, 0x3F80 }, /* below the middle */
        { 0x3F808000, 0x3F80 }, /* the middle: the even one is below */
        { 0x3F808001, 0x3F81 }, /* above it */
        { 0x3F818000, 0x3F82 }, /* the middle: the even one is above */
        { 0xBF818000, 0xBF82 }, /* and for negative numbers */
        { 0x3FFFFFFF, 0x4000 }, /* the carry goes into the exponent */
        { 0x7F7F7FFF, 0x7F7F }, /* the largest */
        { 0x7F7FFFFF, 0x7F80 }, /* beyond it: infinite */
        { 0xFF800000, 0xFF80 }, /* infinite */
        { 0x80000000, 0x8000 }, /* -0 */
        { 0x00018000, 0x0002 }, /* subnormal */
    };

    (void)state;
    for (int i = 0; i < COUNT(cases); i++)
        assert_int_equal(bf16_from_float(float_of_bits(cases[i].from)), cases[i].to);
}

/* A NaN whose bits are all in the lower half must not become infinite, nor one of all ones 0. */
static void a_nan_stays_one(void **state)
{
    static const uint32_t nans[] = { 0x7F800001, 0xFF800001, 0x7FC00000, 0x7FFFFFFF, 0xFFFFFFFF };

    (void)state;
    for (int i = 0; i < COUNT(nans); i++)
        assert_true(isnan(bf16_to_float(bf16_from_float(float_of_bits(nans[i])))));
}

static void upload_rounds_and_download_widens(void **state)
{
    const float host[] = { 1.5f, -0.1f, 3e30f },
                expected[] = { 1.5f, -0.10009765625f, 0x1.2ep+101f };
    struct device dev = { .ops = &ops_ref };
    uint16_t stored_bits[3];
    float back[3];
    struct tensor t = tensor_1(stored_bits, DTYPE_BF16, 3);

    (void)state;
    assert_ok(ops_ref.upload(&dev, t, host));
    assert_ok(ops_ref.download(&dev, back, t));
    assert_memory_equal(back, expected, sizeof back);
}

static struct tensor random_tensor(struct tensor shape, uint64_t stream)
{
    assert_ok(mem_new(&shape.data, (size_t)tensor_count(shape) * dtype_bytes(shape.type), "test"));
    for (int64_t i = 0; i < tensor_count(shape); i++)
        set(shape, i, random_normal(5, stream, (uint64_t)i));
    return shape;
}

/* Whatever dup was rounded to. */
static void sums_of_dup_in_bf16_are_of_what_is_stored(void **state)
{
    enum { ROWS = 9, C = 16, F = 37 };
    struct tensor dy = random_tensor(tensor_2(NULL, DTYPE_BF16, ROWS, C), 1),
                  activated = random_tensor(tensor_2(NULL, DTYPE_BF16, ROWS, F), 2);
    struct tensor weight = random_tensor(tensor_2(NULL, DTYPE_BF16, C, F), 3),
                  up = random_tensor(tensor_2(NULL, DTYPE_BF16, ROWS, F), 4);
    struct tensor dup = random_tensor(tensor_2(NULL, DTYPE_BF16, ROWS, F), 7),
                  scratch = random_tensor(tensor_2(NULL, DTYPE_BF16, ROWS, F), 7),
                  dweight = random_tensor(tensor_2(NULL, DTYPE_F32, C, F), 5);
    struct tensor sums = random_tensor(tensor_1(NULL, DTYPE_F32, F), 6),
                  before = random_tensor(tensor_1(NULL, DTYPE_F32, F), 6);
    struct tensor all[] = { dy, activated, weight, up, dup, scratch, dweight, sums, before };
    struct device dev = { .ops = ops_cpu() };

    (void)state;
    assert_ok(dev.ops->linear_activation_backward(
        &dev, &(struct linear_activation_args){ .kind = ALIBI_GELU_TANH,
                                                .dup = dup,
                                                .dup_sums = sums,
                                                .scratch = scratch,
                                                .dweight = dweight,
                                                .dy = dy,
                                                .activated = activated,
                                                .weight = weight,
                                                .up = up }));
    for (int64_t f = 0; f < F; f++) {
        double expected = get(before, f);
        for (int64_t r = 0; r < ROWS; r++)
            expected += get(dup, r * F + f);
        assert_close(get(sums, f), expected, 0x1p-24 * fabs(expected));
    }
    for (int i = 0; i < COUNT(all); i++)
        mem_free(all[i].data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_bf16_survives_the_way_to_float_and_back),
        cmocka_unit_test(floats_are_rounded_to_the_nearest_bf16_and_ties_to_even),
        cmocka_unit_test(a_nan_stays_one),
        cmocka_unit_test(upload_rounds_and_download_widens),
        cmocka_unit_test(sums_of_dup_in_bf16_are_of_what_is_stored),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
