"""The part of verify_torch.py that is of fp8: products of codes, and their operators."""
import itertools
import os
import sys

import torch

import spillway_torch_float8
from judge_torch import Judge, numbers, share_of, wanted_gemm


def coded(x, height, width):
    """What codes of e4m3 with a scale for blocks of height x width stand for, in fp64."""
    rows, columns = x.shape
    padded = torch.nn.functional.pad(x.detach().float().cpu(), (0, -columns % width, 0, -rows % height))
    tiles = padded.reshape(-(-rows // height), height, -(-columns // width), width)
    scale = tiles.abs().amax((1, 3), keepdim=True) / 448
    scale = torch.where(scale > 0, scale, 1.0)
    values = (tiles / scale).to(torch.float8_e4m3fn).double() * scale.double()
    return values.reshape(padded.shape)[:rows, :columns]


def check_float8(judge, device, dtype, sizes, inner, out, transposed, tail=3):
    """The product and both gradients of the numbers that codes stand for; main gradients; shifted codes are rejected."""
    rows, share, block = sum(sizes) + tail, share_of(dtype), spillway_torch_float8.BLOCK
    offset = [0, *itertools.accumulate(sizes)]
    x = numbers(rows, inner, dtype=dtype, device=device)
    w = numbers(len(sizes), *((out, inner) if transposed else (inner, out)), dtype=dtype, device=device)
    there = torch.tensor(offset, dtype=torch.int32, device=device)
    y = spillway_torch_float8.grouped_gemm(x, w, there, transposed=transposed)
    dy = torch.randn_like(y)
    y.backward(dy)
    of_w = torch.stack([coded(one, block, block) for one in w])
    want_y = wanted_gemm(coded(x, 1, block), of_w, offset, transposed)
    want_dx = wanted_gemm(coded(dy, 1, block), of_w, offset, not transposed)
    left, right = (x, dy) if not transposed else (dy, x)
    want_dw = torch.stack([coded(left[a:b], block, 1).t() @ coded(right[a:b], block, 1) for a, b in itertools.pairwise(offset)])
    name = f"fp8 {sizes} {inner} x {out} {dtype} {'[out][in]' if transposed else '[in][out]'}"
    judge.near(f"{name}: y", y, want_y, share), judge.near(f"{name}: dx", x.grad, want_dx, share)
    judge.near(f"{name}: dw", w.grad, want_dw, share)
    judge.holds(f"{name}: the tail is 0", not bool(y[offset[-1]:].any()) and not bool(x.grad[offset[-1]:].any()))
    main, kept = torch.ones_like(w, dtype=torch.float32), w.grad.clone()
    w.grad = None
    spillway_torch_float8.grouped_gemm(x, w, there, transposed=transposed, main_grad=main).backward(dy)
    judge.near(f"{name}: main grows", main, want_dw + 1, share)
    judge.holds(f"{name}: no .grad beside main", w.grad is None)
    if sizes[0] > 1:
        other = Judge()
        with open(os.devnull, "w") as nowhere:
            sys.stdout, terminal = nowhere, sys.stdout
            good = [other.near(name, y, want_y.roll(1, 0), share), other.near(name, kept, want_dw.roll(1, 1), share)]
            sys.stdout = terminal
        judge.holds(f"{name}: shifted results are rejected", not any(good))


def check_float8_operators(judge, device, dtype):
    """Shapes of fake tensors, gradients and torch.compile, bit by bit."""
    x, w = numbers(40, 64, dtype=dtype, device=device), numbers(3, 64, 48, dtype=dtype, device=device)
    offset, main = torch.tensor([0, 7, 7, 38], dtype=torch.int32, device=device), torch.zeros(3, 64, 48, device=device)
    like = x.detach()
    left, right = (spillway_torch_float8.rows(a, offset, False, True)[2:] for a in (like, like[:, :48].contiguous()))
    calls = [("float8_rows", (like, offset, True, True)), ("float8_weights", (w.detach(), False, True, True)),
             ("float8_weight_gradient", (*left, *right, offset, like, False)),
             ("float8_weight_gradient_add", (*left, *right, offset, like, False, main)),
             ("float8_grouped_gemm", (x, w, offset, None, False, True, True))]
    for operator, arguments in calls:
        tests = ("test_faketensor",) if "gradient" in operator else ("test_schema", "test_faketensor")  # test_schema multiplies what comes in
        try:
            torch.library.opcheck(getattr(torch.ops.spillway, operator).default, arguments, test_utils=tests)
            said = "nothing"
        except Exception as error:  # noqa: BLE001
            said = str(error)
        judge.holds(f"{operator}: opcheck says {said}", said == "nothing")
    step = torch.compile(lambda x, w: spillway_torch_float8.grouped_gemm(x, w, offset), fullgraph=True)
    results = []
    for call in (lambda x, w: spillway_torch_float8.grouped_gemm(x, w, offset), step):
        x.grad = w.grad = None
        y = call(x, w)
        y.backward(torch.ones_like(y))
        results.append((y.detach(), x.grad, w.grad))
    judge.holds(f"fp8 compiled is bit by bit the same, {dtype}", all(torch.equal(a, b) for a, b in zip(*results)))
