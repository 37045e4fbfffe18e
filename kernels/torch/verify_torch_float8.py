"""The part of verify_torch.py that is of fp8: products of codes, layers of them, and their operators."""
import itertools
import os
import sys

import torch

import spillway_torch
import spillway_torch_float8
from case_torch import ACTIVATIONS, PARTS, Case, activate
from judge_torch import Judge, numbers, refuses, share_of, wanted_gemm


def coded(x, height, width):
    """What codes of e4m3 with a scale for blocks of height x width stand for, in fp64."""
    rows, columns = x.shape
    padded = torch.nn.functional.pad(x.detach().float().cpu(), (0, -columns % width, 0, -rows % height))
    tiles = padded.reshape(-(-rows // height), height, -(-columns // width), width)
    scale = tiles.abs().amax((1, 3), keepdim=True) / 448
    scale = torch.where(scale > 0, scale, 1.0)
    values = (tiles / scale).to(torch.float8_e4m3fn).double() * scale.double()
    return values.reshape(padded.shape)[:rows, :columns]


def quiet(call):
    with open(os.devnull, "w") as nowhere:
        sys.stdout, terminal = nowhere, sys.stdout
        try:
            return call()
        finally:
            sys.stdout = terminal


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
        good = quiet(lambda: [other.near(name, y, want_y.roll(1, 0), share), other.near(name, kept, want_dw.roll(1, 1), share)])
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


# ---- layers ----------------------------------------------------------------------------------------------------------
def in_codes(device, dtype):
    """Whether fp8 is made of such rows there."""
    return device == "cpu" or dtype is torch.bfloat16


BLOCK = spillway_torch_float8.BLOCK
SHAPES = ((33, 64, 48, 5, 3), (70, 144, 272, 8, 2), (300, 272, 144, 2, 2), (5, 48, 16, 4, 1))
# By how many codes, which are off by 2^-4 at most, a result may differ from that of a layer whose weights alone are coded. x counts twice where it
# comes through the activation: y has x and act, dx has dy and the slopes' x and d_h, and so on.
CODINGS = dict(zip(PARTS, (3, 4, 3, 5, 4)))


class Layer(Case):
    """A layer in fp8."""

    def call(self, **more):
        return spillway_torch_float8.experts(self.x, self.expert, self.weight, self.w_up, self.w_down, transposed=self.transposed,
                                             **self.activation, **more)

    def codes(self):
        return spillway_torch_float8.coded_weights(self.w_up, self.w_down, transposed=self.transposed)

    def stored(self, x):
        return x.to(self.dtype).double()

    def of_weights(self):
        """What codes of the weights stand for, in fp64."""
        return [torch.stack([coded(one, BLOCK, BLOCK) for one in w]) for w in (self.w_up, self.w_down)]

    def numbers_of(self):
        return [a.detach().double().cpu() for a in (self.x, self.weight, self.dy)]

    def wanted_codes(self):
        """All results by the layer's own steps in fp64: what is stored is rounded, what is multiplied is coded."""
        (x, weight, dy), (w_up, w_down), expert = self.numbers_of(), self.of_weights(), self.expert.cpu()
        y, dx, d_weight = torch.zeros_like(x), torch.zeros_like(x), torch.zeros_like(weight)
        d_up, d_down, self.weight_terms = torch.zeros_like(w_up), torch.zeros_like(w_down), torch.zeros_like(weight)
        turn = (lambda a: a.t()) if self.transposed else (lambda a: a)
        for e in range(w_up.shape[0]):
            token, k = (expert == e).nonzero(as_tuple=True)
            up, down, rows, d_rows, factor = turn(w_up[e]), turn(w_down[e]), x[token], dy[token], weight[token, k][:, None]
            h = self.stored(coded(rows, 1, BLOCK) @ up).requires_grad_()
            act = activate(h, **self.activation)
            y.index_add_(0, token, factor * self.stored(coded(self.stored(act), 1, BLOCK) @ down))
            d_act = self.stored(coded(d_rows, 1, BLOCK) @ down.t())
            d_h = self.stored(torch.autograd.grad(act, h, factor * d_act)[0])
            act = act.detach()
            dx.index_add_(0, token, self.stored(coded(d_h, 1, BLOCK) @ up.t()))
            d_weight[token, k] = (d_act * act).sum(1)
            self.weight_terms[token, k] = (d_act * act).norm(dim=1)
            by_columns = [coded(a, BLOCK, 1) for a in (rows, d_h, self.stored(factor * act), d_rows)]
            d_up[e], d_down[e] = turn(by_columns[0].t() @ by_columns[1]), turn(by_columns[2].t() @ by_columns[3])
        return y, dx, d_weight, d_up, d_down

    def wanted_near(self):
        """By autograd, of the weights that codes stand for; nothing else is coded."""
        kept = self.w_up, self.w_down
        self.w_up, self.w_down = self.of_weights()
        want = self.wanted()
        self.w_up, self.w_down = kept
        return want


CLOSE = 2 * share_of(torch.bfloat16)


def near_part(judge, name, got, want, terms=None):
    """A number whose rounding turns over takes the next code, 2^-4 of it away. On a CPU few do. A GPU's sums of codes keep 14 bits, so more
    do, and a row of few terms may be one such number: there its limit is a code more. The limit of the whole is half of that of a CPU's rows."""
    turned = 2.0 ** -4 if got.is_cuda else 0.0
    good = judge.near(name, got, want, CLOSE + turned, terms)
    if not turned or terms is not None:
        return good
    whole = bool((got.detach().double().cpu() - want).norm() <= CLOSE / 2 * want.norm() + 1e-30)
    judge.holds(f"{name}, as a whole", whole)
    return good and whole


def near_all(judge, case, name, got, want):
    """True where all parts are near."""
    return all([near_part(judge, f"{name}: {part}", one, right, case.weight_terms if part == "d_weight" else None)
                for part, one, right in zip(PARTS, got, want)])


def near_autograd(judge, name, got, want, terms):
    """The router's gradients as a whole, beside the norm of the terms that they are sums of: these cancel."""
    share = {part: n * 2.0 ** -4 for part, n in CODINGS.items()}
    good = [judge.near(f"{name}: {part}", one, right, share[part]) for part, one, right in zip(PARTS, got, want) if part != "d_weight"]
    off = (got[2].detach().double().cpu() - want[2]).norm()
    good.append(bool(off <= share["d_weight"] * (want[2].norm() + terms.norm())))
    judge.holds(f"{name}: d_weight", good[-1])
    return all(good)


def check_layer(judge, case):
    name, want = f"fp8 layer {case.name}", case.wanted_codes()
    got = case.got()
    near_all(judge, case, name, got, want)
    for part, one, other in zip(PARTS, got, case.got(codes=case.codes())):
        judge.holds(f"{name}: codes that are given, {part}", torch.equal(one, other))
    main = [torch.ones_like(w, dtype=torch.float32) for w in (case.w_up, case.w_down)]
    for _ in range(2):
        grown = case.got(main_grads=main)
    judge.holds(f"{name}: no .grad beside main_grads", grown[3] is None and grown[4] is None)
    for part, array, right in zip(PARTS[3:], main, want[3:]):
        near_part(judge, f"{name}: main {part}", array - 1, 2 * right)
    # At a limit gradients end, for one a number on this side and for the other not; and norms of a few numbers say little.
    if not case.activation.get("limit") and case.x.shape[0] > 32:
        near_autograd(judge, f"{name}, beside autograd", got, case.wanted_near(), case.weight_terms)


def check_dead(judge, device, dtype):
    """Ranks whose experts nobody chose, and ranks to which no token came: results and gradients are 0, and finite."""
    for tokens, absent in ((40, 1.1), (0, 0.0)):
        for kind in Layer, Case:
            case = kind(device, dtype, (tokens, 64, 32, 4, 2), True, absent)
            main = [torch.ones_like(w, dtype=torch.float32) for w in (case.w_up, case.w_down)]
            for part, one in zip(PARTS, case.got()):
                judge.holds(f"{kind.__name__} of {tokens} tokens that chose nobody: {part}", bool((one == 0).all()))
            case.got(main_grads=main)
            judge.holds(f"{kind.__name__} of {tokens} tokens that chose nobody: main", all(bool((m == 1).all()) for m in main))


def check_kept(judge, device, dtype):
    """Beside its arguments the layer keeps gate and up, as they are stored, and the plan."""
    case, kept = Layer(device, dtype, (300, 64, 48, 5, 3), True), []
    codes = case.codes()
    arguments = {a.data_ptr() for a in (case.x, case.weight, case.w_up, case.w_down, *codes)}
    for more in {}, {"codes": codes}:
        kept.clear()
        with torch.autograd.graph.saved_tensors_hooks(lambda a: kept.append(a) or a, lambda a: a):
            case.call(**more)
        beside = {a.data_ptr(): a.numel() * a.element_size() for a in kept if a.data_ptr() not in arguments}
        want = 900 * 2 * 48 * case.x.element_size() + (900 + 900 + 6) * 4
        judge.holds(f"fp8 layer keeps {sum(beside.values())} bytes, {want} are right", sum(beside.values()) == want)


def check_layer_wrong(judge, case):
    """The judge must reject arguments that are shifted by one, and codes of others."""
    want, near, other = case.wanted_codes(), case.wanted_near(), Judge()
    for name in "x", "expert", "weight", "w_up", "w_down", "dy":
        kept = getattr(case, name)
        shifted = (kept + 1) % case.w_up.shape[0] if name == "expert" else kept.detach().roll(1, 0)
        setattr(case, name, shifted.requires_grad_() if name in ("x", "weight", "w_up", "w_down") else shifted)
        got = case.got()
        setattr(case, name, kept)
        good = quiet(lambda: [near_all(other, case, name, got, want), near_autograd(other, name, got, near, case.weight_terms)])
        judge.holds(f"fp8 layer with {name} shifted by one is rejected by both: {good}", not any(good))
    codes = case.codes()
    turned = [a.view(torch.uint8).roll(1, 0).view(a.dtype) for a in codes]
    for name, wrong in (("of the next expert", turned), ("with scales twice as large", [2 * a if i % 2 else a for i, a in enumerate(codes)]),
                        ("with the next expert's scales for dx", [turned[i] if i == 3 else a for i, a in enumerate(codes)])):
        good = quiet(lambda: near_all(other, case, name, case.got(codes=wrong), want))
        judge.holds(f"fp8 layer by codes {name} is rejected", not good)


def check_layer_operators(judge, case):
    """Fake tensors and torch.compile, bit by bit; what is refused; models."""
    row, assignment, offset = torch.ops.spillway.expert_plan(case.expert.int(), case.w_up.shape[0])
    bare, plan = [leaf.detach() for leaf in case.leaves()], (row, assignment, offset)
    numbers_ = spillway_torch._activation_numbers("swiglu", False, None, 1.702, products=spillway_torch_float8._PRODUCTS)
    main, ops = [torch.zeros_like(w, dtype=torch.float32) for w in bare[2:]], torch.ops.spillway
    for codes in [], case.codes():
        h = ops.experts(*bare, None, *plan, codes, None, None, case.transposed, True, numbers_)[1]
        arguments = (case.dy, h, *bare, None, *plan, codes, case.transposed, True, numbers_)
        for operator, given in ((ops.experts, (*bare, None, *plan, codes, None, None, case.transposed, True, numbers_)),
                                (ops.experts_backward, arguments), (ops.experts_backward_add, (*arguments, *main))):
            said = torch.library.opcheck(operator, given, raise_exception=False, test_utils=("test_faketensor",))
            judge.holds(f"opcheck of fp8, {len(codes)} codes, {operator}: {said}", set(said.values()) == {"SUCCESS"})
        torch._dynamo.reset()
        compiled = torch.compile(lambda: case.call(codes=codes or None), backend="aot_eager", fullgraph=True)
        for part, eager, got in zip(PARTS, case.got(), case.got(compiled)):
            judge.holds(f"fp8 layer compiled, {len(codes)} codes: {part} as without", torch.equal(eager, got))
    narrow = Layer(case.x.device.type, case.dtype, (8, 24, 16, 2, 1), True)
    refusals = [("7 codes", "the 8 of coded_weights", lambda: case.call(codes=case.codes()[:7])),
                ("codes of other weights", "would be right", lambda: narrow.call(codes=case.codes())),
                ("no such activation", "swiglu, geglu, relu2", lambda: spillway_torch_float8.experts(*[case.x] * 5, activation="gelu"))]
    if case.x.is_cuda:
        refusals += [("24 columns", "a positive multiple of 16", narrow.call),
                     ("fp16", "bf16 would be right", Layer("cuda", torch.float16, (8, 32, 16, 2, 1), True).call)]
    for name, words, call in refusals:
        refuses(judge, f"fp8 layer with {name}", words, call)


def check_layers(judge, device, dtype):
    for number, shape in enumerate(SHAPES):
        for transposed in (False, True):
            check_layer(judge, Layer(device, dtype, shape, transposed, 0.3 * (number % 2)))
    for number, activation in enumerate(ACTIVATIONS):
        check_layer(judge, Layer(device, dtype, (70, 144, 272, 8, 2), number % 2 == 0, 0.2, activation))
    case = Layer(device, dtype, (40, 64, 32, 6, 2), True)
    check_dead(judge, device, dtype), check_kept(judge, device, dtype), check_layer_wrong(judge, case), check_layer_operators(judge, case)
