"""spillway_torch.py against PyTorch's own products in fp64.

    python3 kernels/torch/verify_torch.py build/kernels/libspillway_torch_cuda.so [--device cuda] [--time]

Every result and every gradient is compared; operators go through torch.library.opcheck and torch.compile; what must be refused is; results that are
wrong on purpose are rejected. Where transformers is installed, a small Qwen3-MoE computes with its experts swapped. --time measures layers.
Exit status 1: something failed.
"""
import argparse
import itertools
import os
import statistics
import sys

import torch
import torch.utils.checkpoint

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import spillway_torch
from case_torch import ACTIVATIONS, PARTS, Case
from judge_torch import Judge, copies, numbers, refuses, share_of, wanted_gemm
from verify_torch_float8 import Layer, check_float8, check_float8_operators, check_layers, in_codes
from verify_torch_models import check_others, check_transformers, check_use


# ---- grouped GEMM -----------------------------------------------------------------------------------------------------
def check_gemm(judge, device, dtype, sizes, inner, out, transposed, tail=3):
    rows, share = sum(sizes) + tail, share_of(dtype)
    offset = [0, *itertools.accumulate(sizes)]
    x = numbers(rows, inner, dtype=dtype, device=device)
    w = numbers(len(sizes), *((out, inner) if transposed else (inner, out)), dtype=dtype, device=device)
    x64, w64 = copies(x, w)
    y = spillway_torch.grouped_gemm(x, w, torch.tensor(offset, dtype=torch.int32, device=device), transposed=transposed)
    want = wanted_gemm(x64, w64, offset, transposed)
    dy = torch.randn_like(y)
    y.backward(dy), want.backward(dy.double().cpu())
    name = f"grouped GEMM {sizes} {inner} x {out} {dtype} {'[out][in]' if transposed else '[in][out]'}"
    judge.near(f"{name}: y", y, want, share)
    judge.near(f"{name}: dx", x.grad, x64.grad, share)
    judge.near(f"{name}: dw", w.grad, w64.grad, share)
    judge.holds(f"{name}: the tail is 0", not bool(y[offset[-1]:].any()) and not bool(x.grad[offset[-1]:].any()))


def check_grouped_mm(judge, device, dtype):
    x, w = numbers(40, 32, dtype=dtype, device=device), numbers(3, 48, 32, dtype=dtype, device=device)
    ends = torch.tensor([7, 7, 40], dtype=torch.int32, device=device)
    for name, wide in (("a view", w.transpose(1, 2)), ("a copy", w.transpose(1, 2).contiguous())):
        want = wanted_gemm(x.double().cpu(), wide.double().cpu(), [0, 7, 7, 40], False)
        judge.near(f"grouped_mm of {name}", spillway_torch.grouped_mm(x, wide, offs=ends), want, share_of(dtype))


def check_nothing(judge, device, dtype):
    """A rank to which no row came, widths of 0 and no experts: nothing is summed."""
    for rows, experts, inner, out in ((0, 3, 16, 8), (5, 3, 0, 8), (5, 3, 16, 0), (5, 0, 16, 8)):
        x, w = numbers(rows, inner, dtype=dtype, device=device), numbers(experts, inner, out, dtype=dtype, device=device)
        offset = torch.full((experts + 1,), rows, dtype=torch.int32, device=device)
        offset[0] = 0
        y = spillway_torch.grouped_gemm(x, w, offset)
        y.sum().backward()
        for part, one, shape in (("y", y, (rows, out)), ("dx", x.grad, x.shape), ("dw", w.grad, w.shape)):
            judge.holds(f"{rows} rows, {experts} experts of {inner} x {out}: {part}", one.shape == shape and not bool(one.any()))


# ---- views -----------------------------------------------------------------------------------------------------------
def apart(array, beside, dim=-1, fill=float("nan")):
    """The same numbers as a slice of a wider array, which is `fill` beside it."""
    shape = list(array.shape)
    shape[dim] += beside
    wide = array.new_full(shape, fill)
    view = wide.narrow(dim, beside // 2, array.shape[dim])
    view.copy_(array)
    return view


def check_views(judge, device, dtype):
    """Views give the bits of packed arrays, without a copy; a result goes into a view, and nothing beside it."""
    offset = torch.tensor([0, 9, 9, 40], dtype=torch.int32, device=device)
    for transposed in (False, True):
        x, dy = (numbers(43, n, dtype=dtype, device=device, grad=False) for n in (64, 48))
        w = numbers(3, *((48, 64) if transposed else (64, 48)), dtype=dtype, device=device, grad=False)
        side_by_side = apart(w.transpose(0, 1).contiguous(), 16).transpose(0, 1)
        behind = lambda a: torch.cat([a.new_zeros(1), a.flatten()])[1:].view(a.shape)  # noqa: E731
        for name, wx, ww, wdy in (("contiguous, no place of 16 bytes", behind(x), behind(w), behind(dy)), ("rows apart", apart(x, 32), apart(apart(w, 16), 2, 1), apart(dy, 16)),
                                  ("experts side by side", x, side_by_side, dy), ("a stride of 0", x, w, dy[:1].expand(43, 48)),
                                  ("no place of 16 bytes", apart(x, 2), apart(w, 6), apart(dy, 2)),
                                  ("columns apart", apart(x.t().contiguous(), 8).t(), w, dy)):
            answers = []
            for a, b, c in ((x, w, wdy.contiguous()), (wx, ww, wdy)):
                a, b = a.detach().requires_grad_(), b.detach().requires_grad_()
                y = spillway_torch.grouped_gemm(a, b, offset, transposed=transposed)
                y.backward(c)
                answers.append((y.detach(), a.grad, b.grad))
            for part, one, other in zip(("y", "dx", "dw"), *answers):
                judge.holds(f"{name}, {'[out][in]' if transposed else '[in][out]'}: {part}", torch.equal(one, other))
        judge.holds("no copy of views", all(spillway_torch.is_view(a) for a in (apart(x, 32), apart(w, 16), side_by_side)))
        both = x.new_full((43, 2 * 48 + 16), -1)
        for place, column in ((0, 0), (1, 56)):
            half = both[:, column : column + 48]
            judge.holds("out is what it was given", spillway_torch.grouped_gemm(x, w, offset, transposed=transposed, out=half) is half)
            judge.holds(f"out, half {place}", torch.equal(half, spillway_torch.grouped_gemm(x, w, offset, transposed=transposed)))
        judge.holds("beside out", bool((both[:, 48:56] == -1).all()) and bool((both[:, 104:] == -1).all()))
    said = torch.library.opcheck(torch.ops.spillway.grouped_gemm_out, (x, w, offset, both[:, :48], True), raise_exception=False,
                                 test_utils=("test_schema", "test_faketensor", "test_aot_dispatch_static"))
    judge.holds(f"opcheck grouped_gemm_out: {said}", set(said.values()) == {"SUCCESS"})


def check_layer_views(judge, case):
    """A layer whose arrays are views, main gradients among them; and of some tokens, whose choices and weights begin anywhere."""
    part = slice(1, 8)
    half = spillway_torch.experts(case.x[part], case.expert[part], case.weight[part], case.w_up, case.w_down, transposed=case.transposed)
    plain = case.got()
    judge.holds("experts of some tokens", torch.equal(half, plain[0][part]))
    packed = case.x, case.w_up, case.w_down, case.dy
    case.x, case.w_up, case.w_down = (apart(a.detach(), 16).requires_grad_() for a in packed[:3])
    case.dy = apart(case.dy, 8)
    for part, one, other in zip(PARTS, plain, case.got()):
        judge.holds(f"experts of views: {part}", torch.equal(one, other))
    main = [apart(torch.zeros(w.shape, dtype=torch.float32, device=w.device), 16, fill=7) for w in (case.w_up, case.w_down)]
    case.got(main_grads=main)
    for part, grown, want in zip(PARTS[3:5], main, plain[3:5]):
        judge.near(f"experts of views: main {part}", grown, want, 2 * share_of(case.dtype))
    case.x, case.w_up, case.w_down, case.dy = packed


# ---- layers ----------------------------------------------------------------------------------------------------------
def check_experts(judge, case, gathers):
    want, share = case.wanted(), 2 * share_of(case.dtype)
    case.near(judge, f"experts {case.name}, gathers={gathers}", case.got(gathers=gathers), want, share)
    main = [torch.ones_like(w, dtype=torch.float32) for w in (case.w_up, case.w_down)]
    for _ in range(2):
        got = case.got(gathers=gathers, main_grads=main)
    judge.holds(f"experts {case.name}: no .grad beside main_grads", got[3] is None and got[4] is None)
    for part, array, right in zip(PARTS[3:5], main, want[3:5]):
        judge.near(f"experts {case.name}, gathers={gathers}: main {part}", array - 1, 2 * right, share)


def check_activations(judge, device, dtype):
    for number, activation in enumerate(ACTIVATIONS):
        for biased in (False, True):
            for shape, gathers in (((33, 64, 24, 5, 3), True), ((40, 16, 264, 3, 2), False)):
                check_experts(judge, Case(device, dtype, shape, (number + biased) % 2 == 0, 0.2 * gathers, activation, biased), gathers)
            if biased:
                check_compiled(judge, Case(device, dtype, (33, 64, 24, 5, 3), True, 0.2, activation, biased))


def check_compiled(judge, case):
    torch._dynamo.reset()
    compiled = torch.compile(lambda: case.call(), backend="aot_eager", fullgraph=True)
    for part, eager, got in zip(PARTS, case.got(), case.got(compiled)):
        judge.holds(f"experts compiled: {part} as without", torch.equal(eager, got))


def check_checkpoint(judge, case):
    """The same bits where the forward pass is computed once more in the backward pass, by both ways of torch.utils.checkpoint."""
    eager = case.got()
    for reentrant in (False, True):
        again = case.got(lambda: torch.utils.checkpoint.checkpoint(lambda x: case.call(), case.x, use_reentrant=reentrant))
        for part, one, other in zip(PARTS, eager, again):
            judge.holds(f"{case.name} under a checkpoint{', reentrant' * reentrant}: {part}", torch.equal(one, other))


def check_autocast(judge, case):
    """fp32 weights under torch.autocast: what their rounded ones give, gradients in fp32."""
    kind, wide = case.x.device.type, type(case).__new__(type(case))
    wide.__dict__ = {**case.__dict__, **{n: getattr(case, n).detach().float().requires_grad_() for n in ("x", "weight", "w_up", "w_down")}}
    wide.biases = {n: b.detach().float().requires_grad_() for n, b in case.biases.items()}

    def call():
        with torch.autocast(kind, dtype=case.dtype):
            return wide.call()

    for part, one, other in zip(PARTS, case.got(), wide.got(call)):
        judge.holds(f"{case.name} under autocast: {part}", torch.equal(one.float(), other.float()) and
                    other.dtype == (case.dtype if part == "y" else torch.float32))


def check_frozen(judge, case):
    """Gradients of the others are the same bits where some are not wanted; of weights that are frozen no product makes any."""
    eager, counted = case.got(), []
    original = spillway_torch._Layer.run
    spillway_torch._Layer.run = lambda layer, operation, *more, **sizes: counted.append(operation) or original(layer, operation, *more, **sizes)
    for frozen, products in (((), 2), (("w_up",), 1), (("w_down",), 1), (("w_up", "w_down"), 0), (("x", "weight"), 2)):
        for name in frozen:
            getattr(case, name).requires_grad_(False)
        counted.clear()
        for name, one, other in zip(PARTS, eager, case.got()):
            off = name in ["d" + n if n == "x" else "d_" + n for n in frozen]
            judge.holds(f"{case.name}, {frozen} frozen: {name}", other is None if off else torch.equal(one, other))
        judge.holds(f"{case.name}, {frozen} frozen: {counted}", counted.count("weight_gradient") == products or isinstance(case, Layer))
        for name in frozen:
            getattr(case, name).requires_grad_()
    spillway_torch._Layer.run = original


def check_meta(judge, case):
    """Shapes of results of arrays that have shapes alone."""
    arrays = {name: getattr(case, name).detach().to("meta") for name in ("x", "expert", "weight", "w_up", "w_down")}
    y = spillway_torch.experts(**arrays, b_down=arrays["w_down"].new_empty(case.w_up.shape[0], case.x.shape[1]), transposed=case.transposed)
    judge.holds(f"meta arrays: {y.shape}", y.shape == case.x.shape and y.dtype == case.dtype)


def check_multiprocessors(judge, case):
    """The same bits on some of them; on a CPU there are none to count."""
    for number in (1, 7, 100):
        for part, some, all_ in zip(PARTS, case.got(multiprocessors=number), case.got()):
            judge.holds(f"{case.name} on {number} multiprocessors: {part}", torch.equal(some, all_))


def check_fp16(judge, device):
    """Sums beyond fp16's end are infinity, subnormal numbers stay."""
    x = torch.tensor([[128.0] * 8, [-128.0] * 8, [2.0 ** -20] * 8], device=device).half()
    w = torch.full((1, 8, 8), 96.0, device=device).half()
    offset = torch.tensor([0, 3], dtype=torch.int32, device=device)
    y = spillway_torch.grouped_gemm(x, w, offset)[:, 0].tolist()
    judge.holds(f"fp16's ends: {y}", y == [float("inf"), float("-inf"), 8 * 96 * 2.0 ** -20])
    y = spillway_torch.grouped_gemm(x, w.new_full((1, 8, 8), 2.0 ** -4), offset)[2, 0].item()
    judge.holds(f"fp16's subnormal results: {y}", y == 2.0 ** -21)


def check_operators(judge, case):
    row, assignment, offset = torch.ops.spillway.expert_plan(case.expert.int(), case.w_up.shape[0])
    rows = case.x.detach()[assignment.long() // case.expert.shape[1]].requires_grad_()
    dy = torch.randn(rows.shape[0], case.w_down.shape[1], device=rows.device).to(case.dtype)
    plan, ops = (row, assignment, offset), torch.ops.spillway
    how = (case.transposed, True, spillway_torch._activation_numbers("swiglu", True, 1.5, 1.702))
    bias = numbers(*case.w_up.shape[:2], dtype=case.dtype, device=case.x.device)
    h = ops.experts(*case.leaves(), bias, *plan, [], None, None, *how)[1].detach()
    bare = [leaf.detach() for leaf in (*case.leaves(), bias)]
    main = [torch.zeros_like(w, dtype=torch.float32) for w in bare[2:4]]
    for operator, arguments in (
            (ops.expert_plan, (case.expert.int(), case.w_up.shape[0])),
            (ops.grouped_gemm, (rows, case.w_up, offset, case.transposed)),
            (ops.grouped_gemm_dx, (dy, case.w_down.detach(), offset, case.transposed)) if not case.transposed else
            (ops.grouped_gemm_dx, (dy, bare[3], offset, True)),
            (ops.grouped_gemm_dw, (rows.detach(), dy, offset, case.transposed)),
            (ops.experts, (*case.leaves(), bias, *plan, [], None, None, *how)),
            (ops.experts, (*case.leaves(), None, *plan, [], None, None, *how)),
            (ops.experts_backward, (case.dy, h, *bare, *plan, [], *how)),
            (ops.experts_backward_add, (case.dy, h, *bare, *plan, [], *how, *main))):
        said = torch.library.opcheck(operator, arguments, raise_exception=False,
                                     test_utils=("test_schema", "test_faketensor", "test_aot_dispatch_static"))
        judge.holds(f"opcheck {operator}: {said}", set(said.values()) == {"SUCCESS"})


# ---- what is wrong on purpose ----------------------------------------------------------------------------------------
def check_wrong(judge, case):
    """The judge must reject a layer whose choices, weights or experts are shifted by one."""
    want, other = case.wanted(), Judge()
    shifts = [("expert", (case.expert + 1) % case.w_up.shape[0]), ("weight", case.weight.roll(1, 0)), ("w_up", case.w_up.roll(1, 0)),
              ("w_down", case.w_down.roll(1, 0)), ("x", case.x.roll(1, 0))]
    for name, shifted in shifts:
        arrays = {"x": case.x, "expert": case.expert, "weight": case.weight, "w_up": case.w_up, "w_down": case.w_down, name: shifted}
        y = spillway_torch.experts(**arrays, transposed=case.transposed)
        with open(os.devnull, "w") as nowhere:
            kept, sys.stdout = sys.stdout, nowhere
            good = other.near(name, y, want[0], 2 * share_of(case.dtype))
            sys.stdout = kept
        judge.holds(f"a layer with {name} shifted by one is rejected", not good)


def check_refused(judge, device, dtype):
    good = torch.tensor([0, 4, 10], dtype=torch.int32, device=device)
    x, w = torch.ones(10, 16, dtype=dtype, device=device), torch.ones(2, 16, 8, dtype=dtype, device=device)
    calls = [
        ("x of another width", "would be right", lambda: spillway_torch.grouped_gemm(x[:, :8].contiguous(), w, good)),
        ("offsets of another number", "would be right", lambda: spillway_torch.grouped_gemm(x, w, good[:2])),
        ("offsets of int64", "would be right", lambda: spillway_torch.grouped_gemm(x, w, good.long())),
        ("fp64", "bfloat16 or float16", lambda: spillway_torch.grouped_gemm(x.double(), w.double(), good)),
        ("fewer than no multiprocessors", "0 for all", lambda: spillway_torch.grouped_gemm(x, w, good, multiprocessors=-1)),
        ("out whose rows overlap", "contiguous", lambda: spillway_torch.grouped_gemm(x, w, good, out=x.new_empty(80).as_strided((10, 8), (4, 1)))),
        ("out of columns apart", "contiguous", lambda: spillway_torch.grouped_gemm(x, w, good, out=x.new_empty(8, 10).t())),
        ("out of another width", "out is", lambda: spillway_torch.grouped_gemm(x, w, good, out=x.new_empty(10, 16))),
        ("out with gradients", "torch.no_grad()", lambda: spillway_torch.grouped_gemm(x.detach().requires_grad_(), w, good, out=x.new_empty(10, 8))),
        ("w_down of another width", "w_down", lambda: spillway_torch.experts(
            x, good[None, :2].expand(10, 2) * 0, torch.ones(10, 2, device=device), torch.ones(2, 16, 16, dtype=dtype, device=device), w[:, :8].contiguous())),
        ("out in place of x", "memory of its own", lambda: spillway_torch.grouped_gemm(x[:, :8], w[:, :8].contiguous(), good, out=x[:, :8])),
        ("one expert's matrix", "experts first", lambda: spillway_torch.grouped_gemm(x, w[0], good)),
        ("one matrix in grouped_mm", "experts first", lambda: spillway_torch.grouped_mm(x, w[0], offs=good[1:])),
        ("ends that are no integers", "integers", lambda: spillway_torch.grouped_mm(x, w, offs=good[1:].float())),
        ("an activation of another name", "swiglu, geglu, relu2", lambda: spillway_torch.experts(
            x, good[None, :2].expand(10, 2) * 0, torch.ones(10, 2, device=device), w, w, activation="gelu")),
        ("a limit of geglu", "a positive one of swiglu", lambda: spillway_torch.experts(
            x, good[None, :2].expand(10, 2) * 0, torch.ones(10, 2, device=device), w, w, activation="geglu", limit=7.0)),
        ("a bias of another width", "b_up", lambda: spillway_torch.experts(
            x, good[None, :2].expand(10, 2) * 0, torch.ones(10, 2, device=device), w, w.transpose(1, 2)[:, :4].contiguous(), b_up=w[:, 0, :4].contiguous(),
            transposed=False)),
        ("a model without experts", "gate_up_proj", lambda: spillway_torch.use(torch.nn.Linear(2, 2))),
    ]
    if device == "cpu":
        calls.append(("offsets that fall", "offset[2]", lambda: spillway_torch.grouped_gemm(x, w, good[[0, 2, 1]])))
    else:
        calls.append(("fp32 on a GPU", "bf16", lambda: spillway_torch.grouped_gemm(x.float(), w.float(), good)))
    for name, words, call in calls:
        refuses(judge, name, words, call)


def check_layer_refused(judge, case):
    """Arrays of a layer, one wrong at a time: forward, though products would read beside them or not look at them."""
    right = {"x": case.x, "expert": case.expert, "weight": case.weight, "w_up": case.w_up, "w_down": case.w_down}
    main = [torch.zeros_like(w, dtype=torch.float32) for w in (case.w_up, case.w_down)]
    hidden, experts = case.x.shape[1], case.w_up.shape[0]
    for name, words, wrong in (
            ("a weight a token", "weight is", {"weight": case.weight[:, 0]}),
            ("weights of fewer tokens", "weight is", {"weight": case.weight[:3]}),
            ("weights of more choices", "weight is", {"weight": case.weight.repeat(1, 2)}),
            ("choices of other tokens", "would be right", {"expert": case.expert[:3], "weight": case.weight[:3]}),
            ("a choice a token without its dimension", "[tokens, top_k]", {"expert": case.expert[:, 0], "weight": case.weight[:, 0]}),
            ("no choices", "[tokens, top_k]", {"expert": case.expert[:, :0], "weight": case.weight[:, :0]}),
            ("choices that are no integers", "integers", {"expert": case.expert.float()}),
            ("sequences", "[tokens, hidden]", {"x": case.x[None]}),
            ("no experts", "w_up is", {"w_up": case.w_up[:0], "w_down": case.w_down[:0]}),
            ("one expert's matrix", "w_up is", {"w_up": case.w_up[0]}),
            ("down biases of fewer experts", "b_down is", {"b_down": case.x.new_zeros(experts - 1, hidden)}),
            ("down biases of more experts", "b_down is", {"b_down": case.x.new_zeros(experts + 1, hidden)}),
            ("one main gradient", "two arrays", {"main_grads": main[:1]}),
            ("no main gradient of w_up", "two arrays", {"main_grads": [None, main[1]]}),
            ("main gradients the other way around", "main_grads[0] is", {"main_grads": main[::-1]}),
            ("main gradients of 16 bits", "main_grads[0] is", {"main_grads": [w.detach().bfloat16() for w in main]})):
        refuses(judge, name, words, lambda wrong=wrong: spillway_torch.experts(**{**right, **wrong}, transposed=case.transposed))


# ---- time ------------------------------------------------------------------------------------------------------------
LAYERS = [("fine-7b", 24576, 1536, 256, 128, 8), ("fine-30b", 32768, 4096, 512, 128, 8), ("qwen3-30b-a3b", 4096, 2048, 768, 128, 8),
          ("fine-120b", 32768, 4096, 1024, 128, 8), ("fine-120b-k4", 32768, 4096, 2048, 64, 4),
          ("deepseek-v3, 32 experts", 8192, 7168, 2048, 32, 8), ("deepseek-v3, 4 experts", 8192, 7168, 2048, 4, 4)]


def plain_torch(x, expert, weight, w_up, w_down):
    """Sort, torch's grouped_mm, SwiGLU, and a sum by token: a layer as frameworks write it."""
    order = expert.reshape(-1).argsort(stable=True)
    ends = torch.bincount(expert.reshape(-1), minlength=w_up.shape[0]).cumsum(0).to(torch.int32)
    token = order // expert.shape[1]
    gate, up = torch.nn.functional.grouped_mm(x[token], w_up.transpose(1, 2), offs=ends).chunk(2, 1)
    y = torch.nn.functional.grouped_mm(torch.nn.functional.silu(gate) * up, w_down.transpose(1, 2), offs=ends)
    y = y * weight.reshape(-1)[order][:, None].to(y.dtype)
    return torch.zeros_like(x).index_add(0, token, y)


def timed(case, call):
    """Milliseconds of a forward and of a backward pass, and MiB that stay between them beside y."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(3)]
    for leaf in case.leaves():
        leaf.grad = None
    before = torch.cuda.memory_allocated()
    events[0].record()
    y = call()
    events[1].record()
    kept = torch.cuda.memory_allocated() - before - y.numel() * y.element_size()
    y.backward(case.dy)
    events[2].record()
    events[2].synchronize()
    return events[0].elapsed_time(events[1]), events[1].elapsed_time(events[2]), kept / 2 ** 20


def measure(runs):
    print("layer,who,forward ms,backward ms,kept MiB")
    for name, *shape in LAYERS:
        case = Layer("cuda", torch.bfloat16, shape, True)
        codes, main = case.codes(), [torch.zeros_like(w, dtype=torch.float32) for w in (case.w_up, case.w_down)]
        bf16 = lambda **more: Case.call(case, **more)  # noqa: E731
        calls = {"bf16, gathers": bf16, "bf16, copies": lambda: bf16(gathers=False), "bf16, main_grads": lambda: bf16(main_grads=main),
                 "fp8": case.call, "fp8, codes of weights given": lambda: case.call(codes=codes),
                 "fp8, codes given, main_grads": lambda: case.call(codes=codes, main_grads=main),
                 "torch, bf16": lambda: plain_torch(case.x, case.expert, case.weight, case.w_up, case.w_down)}
        times = {who: [] for who in calls}
        for run in range(runs + 2):
            for who, call in calls.items():
                took = timed(case, call)
                if run > 1:
                    times[who].append(took)
        for who, took in times.items():
            forward, backward, kept = (statistics.median(of) for of in zip(*took))
            print(f"\"{name}\",\"{who}\",{forward:.3f},{backward:.3f},{kept:.0f}", flush=True)
        del case, codes, main, calls, bf16
        torch.cuda.empty_cache()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--time", action="store_true")
    arguments = parser.parse_args()
    spillway_torch.register(arguments.library)
    torch.manual_seed(1)
    judge, device = Judge(), arguments.device
    for dtype in (torch.bfloat16, torch.float16, torch.float32)[:3 if device == "cpu" else 2]:
        codes = in_codes(device, dtype)
        for transposed in (False, True):
            for sizes, inner, out in (([5, 0, 130, 1], 64, 40), ([17], 136, 264), ([0, 0, 3], 8, 16)):
                check_gemm(judge, device, dtype, sizes, inner, out, transposed)
            for sizes, inner, out in (([5, 0, 130, 1], 64, 48), ([17], 144, 272), ([0, 0, 3], 16, 16), ([300, 129], 272, 144))[: 4 * codes]:
                check_float8(judge, device, dtype, sizes, inner, out, transposed)
            for shape in ((33, 64, 24, 5, 3), (70, 72, 264, 8, 2), (5, 40, 8, 4, 1)):
                for absent, gathers in ((0.0, True), (0.3, True), (0.3, False)):
                    check_experts(judge, Case(device, dtype, shape, transposed, absent), gathers)
        case = Case(device, dtype, (40, 64, 32, 6, 2), True)
        check_activations(judge, device, dtype)
        if codes:
            check_float8_operators(judge, device, dtype), check_layers(judge, device, dtype)
        check_grouped_mm(judge, device, dtype), check_use(judge, device, dtype), check_wrong(judge, case), check_refused(judge, device, dtype)
        check_nothing(judge, device, dtype), check_layer_refused(judge, case), check_others(judge, device, dtype)
        for either in [case] + [Layer(device, dtype, (40, 64, 32, 6, 2), True)] * codes:
            check_checkpoint(judge, either), check_frozen(judge, either)
            if dtype is not torch.float32:
                check_autocast(judge, either)
        check_multiprocessors(judge, case), check_meta(judge, case)
        check_views(judge, device, dtype), check_layer_views(judge, case)
        if dtype is torch.float16:
            check_fp16(judge, device)
        check_operators(judge, case), check_compiled(judge, case), check_transformers(judge, device, dtype)
    print(f"{judge.comparisons} comparisons, {judge.failed} failed")
    if arguments.time:
        measure(9)
    return 1 if judge.failed or not judge.comparisons else 0


if __name__ == "__main__":
    sys.exit(main())
