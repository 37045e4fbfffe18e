/* The judge of GPU results, judged; and the made-up routings. No GPU needed. */
#include "kernels/gpu/device.h"
#include "kernels/record/choices.h"
#include "kernels/record/numbers.h"
#include "kernels/record/routing.h"
#include "kernels/verify/judge.h"
#include "kernels/verify/kernel_case.h"
#include "reference/bf16.h"
#include "reference/fp16.h"
#include "tests/unit/check.h"

#include <math.h>
#include <string.h>

static void test_interval(void) {
    spw_judge judge = {0};
    const float want = 32.378f,
                scale = 500.0f; /* between 32.25 and 32.5: half a step, 0.125, is 2^-8 of it */
    const uint16_t near = spw_bf16_from_float(32.378f), next = (uint16_t)(near + 1),
                   far = (uint16_t)(near + 2);
    CHECK_OK(spw_judge_bf16(&judge, false, 1, 64, &near, &want, &scale));
    CHECK_STATUS(spw_judge_bf16(&judge, false, 1, 64, &next, &want, &scale), SPW_EMISMATCH);
    CHECK_STATUS(spw_judge_bf16(&judge, false, 1, 64, &far, &want, &scale), SPW_EMISMATCH);
    const float edge = 32.375f; /* a tie: the least error of the sum may round it either way */
    const uint16_t below = spw_bf16_from_float(32.25f), above = spw_bf16_from_float(32.5f);
    CHECK_OK(spw_judge_bf16(&judge, false, 1, 64, &below, &edge, &scale));
    CHECK_OK(spw_judge_bf16(&judge, false, 1, 64, &above, &edge, &scale));
    CHECK(judge.worst > 0.9 && judge.worst <= 1.0);
}

/* What is wrong is measured by half a step of bf16, which is 2^-7 at 2.03, and by the bound of the sum, 3 * 2^-24. */
static void test_units(void) {
    const uint16_t below = spw_bf16_from_float(2.015625f), nan = 0xffff;
    const float want = 2.02803636f, scale = 1, half = 0x1p-8f;
    spw_judged judged;
    spw_judge_all_bf16(1, 1, &below, &want, &scale, &judged);
    CHECK(judged.failed == 1 && fabs(judged.worst / (0.01241136 / (0x1p-7 + 3 * 0x1p-24)) - 1) < 1e-4);
    spw_judge_all_bf16(1, 1, &below, &want, NULL, &judged); /* one number alone is right */
    CHECK(judged.failed == 1 && isinf(judged.worst));
    spw_judge_all_bf16(1, 1, &nan, &want, &scale, &judged);
    CHECK(judged.failed == 1 && isinf(judged.worst));
    const uint16_t edge = (uint16_t)(spw_bf16_from_float(half) - 1); /* neighbours below are half as far */
    spw_judge_all_bf16(1, 1, &edge, &half, &half, &judged);
    CHECK(judged.failed == 1 && judged.worst > 1);
}

/* Exactly the bound passes, and the next number behind it does not: 14 terms of scale 1 may be off by 16 x 2^-24 = 2^-20. In bf16, whose
 * neighbours above 1 are 2^-7 apart, a sum that is off by 2^-7 may be the next number, and not the one behind that. */
static void test_bounds(void) {
    enum { TERMS = 14 };
    spw_judge judge = {0};
    spw_judged judged;
    const float one = 1.0f, unit = 1.0f, wide = 0x1p13f; /* (14 + 2) 2^-24 2^13 = 2^-7 */
    for (int sign = -1; sign <= 1; sign += 2) {
        const float at = 1.0f + (float)sign * 0x1p-20f, behind = nextafterf(at, (float)(1 + sign));
        CHECK_OK(spw_judge_float(&judge, false, 1, TERMS, &at, &one, &unit));
        CHECK_STATUS(spw_judge_float(&judge, false, 1, TERMS, &behind, &one, &unit), SPW_EMISMATCH);
        spw_judge_all_float(1, TERMS, &at, &one, &unit, &judged);
        CHECK(judged.failed == 0 && judged.worst == 1.0);
        spw_judge_all_float(1, TERMS, &behind, &one, &unit, &judged);
        CHECK(judged.failed == 1 && judged.worst > 1.0 && judged.worst < 1.25);
    }
    const uint16_t next = spw_bf16_from_float(1.0f + 0x1p-7f), far = spw_bf16_from_float(1.0f + 0x1p-6f);
    CHECK_OK(spw_judge_bf16(&judge, false, 1, TERMS, &next, &one, &wide));
    CHECK_STATUS(spw_judge_bf16(&judge, false, 1, TERMS, &far, &one, &wide), SPW_EMISMATCH);
    spw_judge_all_bf16(1, TERMS, &next, &one, &wide, &judged);
    CHECK(judged.failed == 0);
    spw_judge_all_bf16(1, TERMS, &far, &one, &wide, &judged);
    CHECK(judged.failed == 1);
}

/* fp16's neighbours above 1 are 2^-10 apart, so that bf16's interval would let in what is wrong here; those of subnormal numbers are
 * 2^-24 apart. */
static void test_fp16(void) {
    enum { TERMS = 14 };
    spw_judge judge = {0};
    spw_judged judged;
    const float one = 1.0f, wide = 0x1p10f; /* (14 + 2) 2^-24 2^10 = 2^-10 */
    const uint16_t next = 0x3c01, far = 0x3c02, before = 0x3bfe, too_low = 0x3bfd;
    CHECK_OK(spw_judge_fp16(&judge, false, 1, TERMS, &next, &one, &wide));
    CHECK_OK(spw_judge_fp16(&judge, false, 1, TERMS, &before, &one, &wide));
    CHECK_STATUS(spw_judge_fp16(&judge, false, 1, TERMS, &far, &one, &wide), SPW_EMISMATCH);
    CHECK_STATUS(spw_judge_fp16(&judge, false, 1, TERMS, &too_low, &one, &wide), SPW_EMISMATCH);
    spw_judge_all_fp16(1, TERMS, &next, &one, &wide, &judged);
    CHECK(judged.failed == 0 && judged.worst > 0.5 && judged.worst < 1);
    spw_judge_all_fp16(1, TERMS, &far, &one, &wide, &judged);
    CHECK(judged.failed == 1 && judged.worst > 1);
    const float small = 0x1.8p-24f, exact = 0x1p-40f; /* a tie of subnormal numbers */
    const uint16_t one_step = 1, two_steps = 2, three_steps = 3;
    CHECK_OK(spw_judge_fp16(&judge, false, 1, 1, &one_step, &small, &exact));
    CHECK_OK(spw_judge_fp16(&judge, false, 1, 1, &two_steps, &small, &exact));
    CHECK_STATUS(spw_judge_fp16(&judge, false, 1, 1, &three_steps, &small, &exact), SPW_EMISMATCH);
    CHECK_OK(spw_judge_fp16(&judge, true, 1, 1, &two_steps, &small, &exact)); /* to even */
    CHECK_STATUS(spw_judge_fp16(&judge, true, 1, 1, &one_step, &small, &exact), SPW_EMISMATCH);
    CHECK(judge.worst <= 1);
}

/* A sum beyond fp16's end is infinity, one that may lie on either side of 65520 is either, and nothing else is. */
static void test_fp16_overflow(void) {
    spw_judge judge = {0};
    spw_judged judged;
    const uint16_t inf = 0x7c00, minus = 0xfc00, largest = 0x7bff, nan = 0x7e00;
    const float beyond = 70000.0f, edge = 65519.0f, inside = 60000.0f,
                scale = 0x1p20f; /* 3 2^-24 2^20 = 0.19 */
    const float rough = 0x1p24f; /* 3: over 65520 */
    for (int exact = 0; exact < 2; exact++) {
        CHECK_OK(spw_judge_fp16(&judge, exact, 1, 1, &inf, &beyond, &scale));
        CHECK_STATUS(spw_judge_fp16(&judge, exact, 1, 1, &largest, &beyond, &scale), SPW_EMISMATCH);
        CHECK_STATUS(spw_judge_fp16(&judge, exact, 1, 1, &minus, &beyond, &scale), SPW_EMISMATCH);
        CHECK_STATUS(spw_judge_fp16(&judge, exact, 1, 1, &nan, &beyond, &scale), SPW_EMISMATCH);
        CHECK_STATUS(spw_judge_fp16(&judge, exact, 1, 1, &inf, &inside, &scale), SPW_EMISMATCH);
        CHECK_STATUS(spw_judge_fp16(&judge, exact, 1, 1, &inf, &edge, &scale), SPW_EMISMATCH);
    }
    CHECK_OK(spw_judge_fp16(&judge, false, 1, 1, &inf, &edge, &rough));
    CHECK_OK(spw_judge_fp16(&judge, false, 1, 1, &largest, &edge, &rough));
    CHECK(isfinite(judge.worst));
    spw_judge_all_fp16(1, 1, &inf, &beyond, &scale, &judged);
    CHECK(judged.failed == 0 && judged.worst == 0);
    spw_judge_all_fp16(1, 1, &inf, &beyond, NULL, &judged);
    CHECK(judged.failed == 0);
    spw_judge_all_fp16(1, 1, &inf, &inside, &scale, &judged);
    CHECK(judged.failed == 1 && isinf(judged.worst));
    spw_judge_all_fp16(1, 1, &largest, &beyond, NULL, &judged);
    CHECK(judged.failed == 1);
    spw_judge_all_fp16(1, 1, &nan, &beyond, &scale, &judged);
    CHECK(judged.failed == 1);
}

static void test_rejections(void) {
    spw_judge judge = {0};
    const uint16_t nan = 0xffff, inf = 0x7f80;
    const float one = 1.0f, poison = NAN, slack = 1e30f;
    CHECK_STATUS(spw_judge_bf16(&judge, false, 1, 1, &nan, &one, &slack), SPW_EMISMATCH);
    CHECK_STATUS(spw_judge_bf16(&judge, false, 1, 1, &inf, &one, &slack), SPW_EMISMATCH);
    CHECK_STATUS(spw_judge_float(&judge, false, 1, 1, &poison, &one, &slack), SPW_EMISMATCH);
    const float off = nextafterf(1.0f, 2.0f);
    CHECK_STATUS(spw_judge_float(&judge, true, 1, 1, &off, &one, &slack), SPW_EMISMATCH);
    CHECK_OK(spw_judge_float(&judge, true, 1, 1, &one, &one, &slack));
    const int32_t a[2] = {1, 2}, b[2] = {1, 3};
    CHECK_OK(spw_judge_bytes(1, sizeof *a, a, b));
    CHECK_STATUS(spw_judge_bytes(2, sizeof *a, a, b), SPW_EMISMATCH);
    judge.quiet = true;
    spw_judge_count(&judge, SPW_OK, "right");
    spw_judge_count(&judge, SPW_EMISMATCH, "wrong");
    CHECK(judge.comparisons == 2 && judge.failed == 1);
}

/* Outside their contract both say that nothing is chosen. */
static void test_no_choice(void) {
    int32_t expert[6] = {7, 7, 7, 7, 7, 7};
    spw_choices_fill(SPW_CHOICES_UNIFORM, 3, 2, 1, 1, 1, expert);
    for (int i = 0; i < 6; i++) CHECK(expert[i] == -1);
    spw_choices_fill(SPW_CHOICES_SKEWED, 3, 2, 2, 1, 1, expert);
    for (int i = 0; i < 6; i++) CHECK(expert[i] == 0 || expert[i] == 1);
    for (int r = 0; r < SPW_ROUTING_COUNT; r++) CHECK(spw_routing_expert((spw_routing)r, 0, 8, 1, 3) == -1);
}

static void test_routing(void) {
    enum { EXPERTS = 9, ROWS = 1000 };
    size_t offset[EXPERTS + 1];
    int offset32[EXPERTS + 1];
    for (int r = 0; r < SPW_ROUTING_COUNT; r++) {
        spw_routing_offsets((spw_routing)r, EXPERTS, ROWS, 1, offset, offset32);
        CHECK(offset[0] == 0 && offset[EXPERTS] == (r == SPW_ROUTING_SHORT ? ROWS * 5 / 8 : ROWS));
        for (size_t e = 0; e < EXPERTS; e++)
            CHECK(offset[e] <= offset[e + 1] && offset32[e] == (int)offset[e]);
        if (r == SPW_ROUTING_EMPTY) CHECK(offset[1] == 0 && offset[EXPERTS - 1] == ROWS && offset[2] > 0);
        if (r == SPW_ROUTING_ONE) CHECK(offset[EXPERTS / 2] == 0 && offset[EXPERTS / 2 + 1] == ROWS);
        if (r == SPW_ROUTING_ZIPF) CHECK(offset[1] > ROWS / EXPERTS);
    }
}

static void test_numbers(void) {
    double sum = 0, square = 0;
    for (uint64_t i = 0; i < 10000; i++) {
        const double x = spw_number_fixed(SPW_NUMBERS_BELL, 3, i) / 65536.0;
        const int32_t n = spw_number_fixed(SPW_NUMBERS_INTEGER, 3, i);
        sum += x, square += x * x;
        CHECK(n % 65536 == 0 && n >= -8 * 65536 && n <= 8 * 65536);
    }
    for (uint64_t i = 0; i < 100; i++) {
        const float n = spw_number(SPW_NUMBERS_INTEGER, 3, i), tiny = spw_number(SPW_NUMBERS_TINY, 3, i);
        CHECK(spw_number(SPW_NUMBERS_LARGE, 3, i) == 16 * n && tiny == n * 0x1p-20f);
        CHECK(fabsf(tiny) < 0x1p-14f && spw_fp16_to_float(spw_fp16_from_float(tiny)) == tiny);
    }
    /* Four uniform numbers of variance 1/12: deviations of the mean and of the variance are below 0.006 and 0.005. */
    CHECK(fabs(sum / 10000) < 0.03 && fabs(square / 10000 - 1.0 / 3) < 0.025);
}

static void test_equal(void) {
    CHECK_OK(spw_judge_equal(UINT64_MAX, UINT64_MAX));
    CHECK_STATUS(spw_judge_equal(1, (1ull << 32) + 1), SPW_EMISMATCH);
    CHECK(strcmp(spw_last_error(), "got 1, want 4294967297") == 0);
}

/* Bits are asked for where any order of sums gives them: copies, and sums of small integers. */
static void test_exact_cases(void) {
    static const struct {
        spw_kernel kernel;
        bool copies, sums;
    } kernels[] = {{SPW_KERNEL_GROUPED_GEMM, false, true},    {SPW_KERNEL_INPUT_GRADIENT, false, true},
                   {SPW_KERNEL_WEIGHT_GRADIENT, false, true}, {SPW_KERNEL_PERMUTE, true, true},
                   {SPW_KERNEL_UNPERMUTE, false, true},       {SPW_KERNEL_SWIGLU, false, false},
                   {SPW_KERNEL_ROUTER, false, false},         {SPW_KERNEL_DISPATCH, true, true},
                   {SPW_KERNEL_COMBINE, false, true}};
    enum { CASES = 20 };
    for (size_t k = 0; k < sizeof kernels / sizeof *kernels; k++) {
        size_t of[2] = {0, 0};
        for (size_t i = 0; i < CASES; i++) {
            spw_kernel_case c;
            CHECK_OK(spw_kernel_case_create(kernels[k].kernel, SPW_TYPE_FLOAT, NULL, i, &c));
            const bool integers = strstr(c.name, "integers") != NULL;
            CHECK(c.exact == (kernels[k].copies || (kernels[k].sums && integers)));
            of[integers]++;
            spw_kernel_case_destroy(&c);
        }
        CHECK(of[0] > 0 && of[1] > 0);
    }
}

/* A case of fp16 passes what is right for it, stored as fp16, and not as bf16. */
static void test_fp16_case(void) {
    for (size_t number = 0; number < 20; number++) {
        spw_kernel_case c;
        spw_judged judged;
        CHECK_OK(spw_kernel_case_create(SPW_KERNEL_GROUPED_GEMM, SPW_TYPE_FP16, NULL, number, &c));
        CHECK(c.output_bytes == c.call.rows * c.call.out * sizeof(uint16_t));
        uint16_t *const output = c.call.output;
        for (size_t i = 0; i < c.judged; i++) output[i] = spw_fp16_from_float(c.want[i]);
        CHECK_OK(spw_kernel_case_judge(&c, &judged));
        CHECK(judged.failed == 0 && judged.elements == c.judged);
        for (size_t i = 0; strstr(c.name, "integers") != NULL && i < 16; i++) {
            const float x = spw_fp16_to_float(((const uint16_t *)c.call.input[0])[i]);
            CHECK(fabsf(x) <= 8 && roundf(x) == x); /* of bf16's bits there would be other numbers */
        }
        for (size_t i = 0; i < c.judged; i++) output[i] = spw_bf16_from_float(c.want[i]);
        CHECK_STATUS(spw_kernel_case_judge(&c, &judged), SPW_EMISMATCH);
        spw_kernel_case_destroy(&c);
    }
}

int main(void) {
    test_equal();
    test_interval();
    test_units();
    test_bounds();
    test_fp16();
    test_fp16_overflow();
    test_rejections();
    test_no_choice();
    test_routing();
    test_numbers();
    CHECK(spw_device_count() >= 0);
    test_exact_cases();
    test_fp16_case();
    return check_done();
}
