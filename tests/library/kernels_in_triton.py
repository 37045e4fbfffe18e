"""A grouped GEMM in Triton for docs/check_your_kernel.md and its test, and the same with a mistake. TRITON_INTERPRET=1 runs it without
a GPU, in float32: the interpreter multiplies the bits of bfloat16 and cuts what it should round, which the check notices."""
import torch
import triton
import triton.language as tl


@triton.jit
def grouped_gemm_kernel(x, w, offset, y, IN: tl.constexpr, OUT: tl.constexpr, TERMS: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
                        K: tl.constexpr):
    """A program has the columns of a tile of one expert and walks down its rows."""
    expert = tl.program_id(0)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    end = tl.load(offset + expert + 1)
    row = tl.load(offset + expert)
    while row < end:
        rows = row + tl.arange(0, M)
        sums = tl.zeros((M, N), tl.float32)
        for k in range(0, TERMS, K):
            terms = k + tl.arange(0, K)
            left = tl.load(x + rows[:, None] * IN + terms[None, :], mask=(rows[:, None] < end) & (terms[None, :] < IN), other=0.0)
            right = tl.load(w + (expert * IN + terms[:, None]) * OUT + columns[None, :],
                            mask=(terms[:, None] < IN) & (columns[None, :] < OUT), other=0.0)
            sums = tl.dot(left, right, sums, input_precision="ieee")
        tl.store(y + rows[:, None] * OUT + columns[None, :], sums.to(y.dtype.element_ty),
                 mask=(rows[:, None] < end) & (columns[None, :] < OUT))
        row += M


def launch(x, w, offset, y, terms):
    experts, inner, outer = w.shape
    grid = (experts, triton.cdiv(outer, 64))
    grouped_gemm_kernel[grid](x, w, offset, y, IN=inner, OUT=outer, TERMS=terms, M=32, N=64, K=32)


def grouped_gemm(x, w, offset, out):
    launch(x, w, offset, out, w.shape[1])


def whole_tiles_alone(x, w, offset, out):
    """Wrong on purpose: what is behind the last whole tile of a sum is forgotten."""
    launch(x, w, offset, out, w.shape[1] // 32 * 32)


def grouped_gemm_returned(x, w, offset):
    y = torch.empty(x.shape[0], w.shape[2], dtype=x.dtype, device=x.device)
    grouped_gemm(x, w, offset, y)
    return y
