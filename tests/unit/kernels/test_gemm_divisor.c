/* Division by a multiplication, as kernels find an assignment's token, against C's own. */
#include "kernels/gemm/grouped_gemm_fused.h"
#include "tests/unit/check.h"

#include <stdint.h>

static unsigned divided(unsigned n, spw_gemm_divisor by) {
    return (unsigned)((uint64_t)(2 * n) * by.multiplier >> 32) >> by.shift;
}

/* Around the multiples of d, the lowest and the highest ones. */
static size_t wrong_of(unsigned d) {
    const spw_gemm_divisor by = spw_gemm_divisor_of(d);
    const uint64_t last = INT32_MAX / d;
    size_t wrong = 0;
    for (uint64_t i = 0; i < 400; i++)
        for (int end = 0; end < 2; end++)
            for (uint64_t beside = 0; beside < 3; beside++) {
                const uint64_t n = (end ? last - (i < last ? i : last) : i) * d + beside;
                if (n < 1 || n - 1 > INT32_MAX) continue;
                wrong += divided((unsigned)(n - 1), by) != (n - 1) / d;
            }
    return wrong;
}

int main(void) {
    for (unsigned d = 1; d <= 1024; d++) CHECK(wrong_of(d) == 0);
    for (unsigned bits = 10; bits < 31; bits++)
        for (unsigned beside = 0; beside < 3; beside++) CHECK(wrong_of((1u << bits) + beside - 1) == 0);
    CHECK(wrong_of(INT32_MAX) == 0);
    return check_done();
}
