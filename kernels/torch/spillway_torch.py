"""Spillway's expert products for PyTorch: operators with gradients, for GPUs, CPUs and torch.compile.

    import spillway_torch
    spillway_torch.register("libspillway_torch_cuda.so")      # bash kernels/build.sh torch-cuda; CPUs alone: torch

    spillway_torch.use(model)                                  # the experts of a model of transformers, in one line
    y = spillway_torch.experts(x, expert, weight, w_up, w_down)
    y = spillway_torch.grouped_mm(x, w, offs=ends)             # torch.nn.functional.grouped_mm

docs/torch.md says what is fused, what it costs and where it ran.
"""
import contextlib
import types
import typing

import torch

from spillway_torch_call import ELEMENTS, expect, is_view, register, run, widths  # noqa: F401: register is for those who import this
from spillway_torch_models import computes_as_known, experts_of

_PLAN_CHUNK, _ROW_SUM_TILE = 1024, 128
_ACTIVATIONS = ("swiglu", "geglu", "relu2")  # by their numbers in the entry
_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def _sizes(w, transposed, rows, multiprocessors):
    inner, out = widths(w, transposed)
    return {"experts": w.shape[0], "rows": rows, "in": inner, "out": out, "transposed": transposed, "multiprocessors": multiprocessors}


def _expect_integers(array, what):
    if array.dtype not in _INTEGERS:
        raise ValueError(f"{what} is {array.dtype}; integers would be right")


def _limit(multiprocessors):
    if multiprocessors < 0:
        raise ValueError(f"{multiprocessors} multiprocessors; 0 for all of the GPU's, or more, would be right")
    return int(multiprocessors)


# ---- grouped GEMM -----------------------------------------------------------------------------------------------------
@torch.library.custom_op("spillway::grouped_gemm", mutates_args=())
def _gemm(x: torch.Tensor, w: torch.Tensor, offset: torch.Tensor, transposed: bool, multiprocessors: int = 0) -> torch.Tensor:
    inner, out = widths(w, transposed)
    expect(x, (x.shape[0], inner), "x", w.dtype), expect(offset, (w.shape[0] + 1,), "offset", torch.int32)
    y = x.new_empty(x.shape[0], out)
    run("forward", (x, w, offset), (y,), device=x.device, dtype=x.dtype,
        **_sizes(w, transposed, x.shape[0], multiprocessors))
    return y


@_gemm.register_fake
def _(x, w, offset, transposed, multiprocessors=0):
    return x.new_empty(x.shape[0], widths(w, transposed)[1])


@torch.library.custom_op("spillway::grouped_gemm_dx", mutates_args=())
def _gemm_dx(dy: torch.Tensor, w: torch.Tensor, offset: torch.Tensor, transposed: bool, multiprocessors: int = 0) -> torch.Tensor:
    inner, out = widths(w, transposed)
    expect(dy, (dy.shape[0], out), "dy", w.dtype)
    dx = dy.new_empty(dy.shape[0], inner)
    run("input_gradient", (dy, w, offset), (dx,), device=dy.device, dtype=dy.dtype,
        **_sizes(w, transposed, dy.shape[0], multiprocessors))
    return dx


@_gemm_dx.register_fake
def _(dy, w, offset, transposed, multiprocessors=0):
    return dy.new_empty(dy.shape[0], widths(w, transposed)[0])


@torch.library.custom_op("spillway::grouped_gemm_dw", mutates_args=())
def _gemm_dw(x: torch.Tensor, dy: torch.Tensor, offset: torch.Tensor, transposed: bool, multiprocessors: int = 0) -> torch.Tensor:
    expect(dy, (x.shape[0], dy.shape[1]), "dy", x.dtype)
    dw = x.new_empty(offset.shape[0] - 1, *((dy.shape[1], x.shape[1]) if transposed else (x.shape[1], dy.shape[1])))
    run("weight_gradient", (x, dy, offset), (dw,), device=x.device, dtype=x.dtype,
        **_sizes(dw, transposed, x.shape[0], multiprocessors))
    return dw


@_gemm_dw.register_fake
def _(x, dy, offset, transposed, multiprocessors=0):
    return x.new_empty(offset.shape[0] - 1, *((dy.shape[1], x.shape[1]) if transposed else (x.shape[1], dy.shape[1])))


def _gemm_setup(ctx, inputs, output):
    x, w, offset, ctx.transposed, ctx.multiprocessors = inputs
    ctx.save_for_backward(x, w, offset)


def _gemm_backward(ctx, dy):
    x, w, offset = ctx.saved_tensors
    dx, dw = None, None
    if ctx.needs_input_grad[0]:
        dx = _gemm_dx(dy, w, offset, ctx.transposed, ctx.multiprocessors)
    if ctx.needs_input_grad[1]:
        dw = _gemm_dw(x, dy, offset, ctx.transposed, ctx.multiprocessors)
    return dx, dw, None, None, None


_gemm.register_autograd(_gemm_backward, setup_context=_gemm_setup)


@torch.library.custom_op("spillway::grouped_gemm_out", mutates_args=("out",))
def _gemm_out(x: torch.Tensor, w: torch.Tensor, offset: torch.Tensor, out: torch.Tensor, transposed: bool,
              multiprocessors: int = 0) -> None:
    inner, wide = widths(w, transposed)
    expect(x, (x.shape[0], inner), "x", w.dtype), expect(offset, (w.shape[0] + 1,), "offset", torch.int32)
    expect(out, (x.shape[0], wide), "out", x.dtype)
    if out.numel() and out.data_ptr() in (x.data_ptr(), w.data_ptr()):
        raise ValueError("out is where x or w is; memory of its own would be right")
    run("forward", (x, w, offset), (out,), device=x.device, dtype=x.dtype, **_sizes(w, transposed, x.shape[0], multiprocessors))


@_gemm_out.register_fake
def _(x, w, offset, out, transposed, multiprocessors=0):
    return None


def grouped_gemm(x, w, offset, *, transposed=False, multiprocessors=0, out=None):
    """y[r] = x[r] @ w[e] where offset[e] <= r < offset[e + 1]; 0 from offset[experts] on. Gradients of x and w.

    x       [rows, in]            bf16 or fp16; on a CPU also fp32. Rows sorted by expert
    w       [experts, in, out]    of x's type; [experts, out, in] when transposed (as torch.nn.Linear stores it)
    offset  [experts + 1] int32
    multiprocessors  of the GPU's that the product and its gradients take at most, so that others are free for work beside them; 0: all
    out     an array for the result, which may be a view; None: a new one. Without gradients
    returns [rows, out], each sum rounded once; in fp16 65520 and more become infinity. On a GPU `in` and `out` are multiples of 8.

    x, w and the gradient of the result may be views: of rows, and of matrices of experts, that lie apart. They are taken where they are
    if a row is contiguous and, on a GPU, all strides and the first element's place are multiples of 16 bytes, else copied; `out` is
    refused. `out` must not overlap x or w.
    """
    if out is None:
        return _gemm(x, w, offset, bool(transposed), _limit(multiprocessors))
    if torch.is_grad_enabled() and (x.requires_grad or w.requires_grad):
        raise ValueError("out= where x or w needs a gradient; torch.no_grad(), or out=None, would be right")
    _gemm_out(x, w, offset, out, bool(transposed), _limit(multiprocessors))
    return out


def grouped_mm(x, w, *, offs):
    """torch.nn.functional.grouped_mm(x, w, offs=offs) of rows by experts: w is [experts, in, out], or a transposed view. Other views as
    grouped_gemm takes them."""
    widths(w, False), _expect_integers(offs, "offs")
    offset = torch.nn.functional.pad(offs.to(torch.int32), (1, 0))
    if w.stride(2) != 1 and w.stride(1) == 1:
        return _gemm(x, w.transpose(1, 2), offset, True)
    return _gemm(x, w, offset, False)


# ---- which row is whose ----------------------------------------------------------------------------------------------
@torch.library.custom_op("spillway::expert_plan", mutates_args=())
def _plan(expert: torch.Tensor, experts: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    expect(expert, expert.shape, "expert", torch.int32)
    choices = expert.numel()
    row, assignment = torch.empty_like(expert), expert.new_empty(choices)
    offset, scratch = expert.new_empty(experts + 1), expert.new_empty(experts * (-(-choices // _PLAN_CHUNK) + 1))
    run("plan", (expert,), (row, assignment, offset, scratch), device=expert.device, experts=experts, rows=choices,
         tokens=expert.shape[0], top_k=expert.shape[1])
    return row, assignment, offset


@_plan.register_fake
def _(expert, experts):
    return torch.empty_like(expert), expert.new_empty(expert.numel()), expert.new_empty(experts + 1)


# ---- a whole expert layer --------------------------------------------------------------------------------------------
class _Activation:
    """What stands between the products; operators take it as numbers: kind, pairs, limit, alpha; then multiprocessors, and whose products
    (_LAYERS)."""

    def __init__(self, numbers):
        self.kind, self.pairs, self.limit, self.alpha = int(numbers[0]), int(numbers[1]), numbers[2], numbers[3]
        self.multiprocessors = int(numbers[4])
        self.columns = 1 if _ACTIVATIONS[self.kind] == "relu2" else 2  # of the first product for one of the second

    def sizes(self):
        return {"activation": self.kind, "pairs": self.pairs, "limit": self.limit, "alpha": self.alpha}


class _Layer:
    """The products of one layer and one batch; `choice` is the plan: row, assignment, offset. codes: of the weights, in fp8 alone."""

    def __init__(self, x, w_up, w_down, b_up, choice, transposed, gathers, activation, codes=()):
        self.codes = codes
        self.x, self.w_up, self.w_down, self.b_up, self.transposed, self.gathers = x, w_up, w_down, b_up, transposed, gathers
        self.row, self.assignment, self.offset = choice
        self.rows, (self.tokens, self.top_k) = self.assignment.shape[0], self.row.shape
        self.hidden, self.wide = widths(w_up, transposed)
        self.activation = _Activation(activation)
        self.ffn = self.wide // self.activation.columns
        expect(x, (self.tokens, self.hidden), "x", w_up.dtype)
        expect(w_down, (w_up.shape[0], *((self.hidden, self.ffn) if transposed else (self.ffn, self.hidden))), "w_down", w_up.dtype)
        if b_up is not None:
            expect(b_up, (w_up.shape[0], self.wide), "b_up", w_up.dtype)

    def run(self, operation, operands, results, w=None, **sizes):
        if w is not None:
            sizes.update(_sizes(w, self.transposed, self.rows, self.activation.multiprocessors))
        run(operation, operands, results, device=self.x.device, dtype=self.x.dtype,
             **{"rows": self.rows, "tokens": self.tokens, "top_k": self.top_k, **sizes})

    def by_row(self, array):
        """Rows of tokens, copied, unless the products gather them. What no expert has is not read."""
        if self.gathers:
            return array
        return array.index_select(0, self.assignment.clamp(0, self.tokens * self.top_k - 1) // self.top_k)

    def forward(self, weight):
        h, act = self.x.new_empty(self.rows, self.wide), self.x.new_empty(self.rows, self.ffn)
        self.run("up", (self.by_row(self.x), self.w_up, self.offset, self.assignment, self.b_up), (h, act), self.w_up,
                 gathers=int(self.gathers), **self.activation.sizes())
        y_rows = self.x.new_empty(self.rows, self.hidden)
        self.run("forward", (act, self.w_down, self.offset), (y_rows,), self.w_down)
        return self.by_token(y_rows, weight), h

    def by_token(self, rows, weight=None):
        """Sums of the rows of a token, times their weights."""
        sums = self.x.new_empty(self.x.shape)
        self.run("combine", (rows, self.row, weight), (sums,), **{"in": self.hidden})
        return sums

    def by_choice(self, row_sum, weight):
        """Gradients of the weights from parts of each row's."""
        d_weight = torch.empty_like(weight)
        self.run("row_sums", (row_sum, self.row), (d_weight,), out=row_sum.shape[0])
        return d_weight

    def backward(self, dy, weight, h, d_up, d_down):
        """dx, d_weight and d_b_up, which is empty without a bias; d_up and d_down are written, or grow, or are None: of frozen weights."""
        d_h, act = torch.empty_like(h), h.new_empty(self.rows, self.ffn)
        row_sum = h.new_empty(-(-self.ffn // _ROW_SUM_TILE), self.rows, dtype=torch.float32)
        dy_rows, x_rows = self.by_row(dy), self.by_row(self.x)
        self.run("down_gradient", (dy_rows, self.w_down, self.offset, self.assignment, h, weight), (d_h, act, row_sum), self.w_down,
                 gathers=int(self.gathers), **self.activation.sizes())
        if d_down is not None:
            self.run("weight_gradient", (act, dy_rows, self.offset, self.assignment), _into(d_down), self.w_down, gathers=2 * self.gathers)
        if d_up is not None:
            self.run("weight_gradient", (x_rows, d_h, self.offset, self.assignment), _into(d_up), self.w_up, gathers=int(self.gathers))
        dx_rows = h.new_empty(self.rows, self.hidden)
        self.run("input_gradient", (d_h, self.w_up, self.offset), (dx_rows,), self.w_up)
        return self.by_token(dx_rows), self.by_choice(row_sum, weight), self.bias_gradient(d_h)

    def bias_gradient(self, d_h):
        """Sums of d_h by expert: the weights' gradient of eight columns of ones, the fewest that there are."""
        if self.b_up is None:
            return d_h.new_empty(0)
        sums = d_h.new_empty(self.w_up.shape[0], 8, self.wide)
        self.run("weight_gradient", (d_h.new_ones(self.rows, 8), d_h, self.offset), (sums,), experts=self.w_up.shape[0],
                 multiprocessors=self.activation.multiprocessors, **{"in": 8, "out": self.wide})
        return sums[:, 0].contiguous()


class _Grows:
    def __init__(self, array):
        self.array = array


def _into(gradient):
    """Results of a weight gradient: what is written, what grows."""
    return (None, gradient.array) if isinstance(gradient, _Grows) else (gradient, None)


_LAYERS = {0: _Layer}  # by the last of an activation's numbers; spillway_torch_float8 adds its own
_TENSOR, _MAYBE, _NUMBERS, _ARRAYS = torch.Tensor, typing.Optional[torch.Tensor], typing.List[float], typing.List[torch.Tensor]


def _layer_of(*arrays, activation, codes):
    """Of x, w_up, w_down, b_up, choice, transposed and gathers."""
    return _LAYERS[int(activation[5])](*arrays, activation, codes)


@torch.library.custom_op("spillway::experts", mutates_args=())
def _experts(x: _TENSOR, weight: _TENSOR, w_up: _TENSOR, w_down: _TENSOR, b_up: _MAYBE, row: _TENSOR, assignment: _TENSOR, offset: _TENSOR,
             codes: _ARRAYS, main_up: _MAYBE, main_down: _MAYBE, transposed: bool, gathers: bool,
             activation: _NUMBERS) -> tuple[_TENSOR, _TENSOR]:
    return _layer_of(x, w_up, w_down, b_up, (row, assignment, offset), transposed, gathers, activation=activation, codes=codes).forward(weight)


@_experts.register_fake
def _(x, weight, w_up, w_down, b_up, row, assignment, offset, codes, main_up, main_down, transposed, gathers, activation):
    return x.new_empty(x.shape), x.new_empty(assignment.shape[0], widths(w_up, transposed)[1])


@torch.library.custom_op("spillway::experts_backward", mutates_args=())
def _experts_backward(dy: _TENSOR, h: _TENSOR, x: _TENSOR, weight: _TENSOR, w_up: _TENSOR, w_down: _TENSOR, b_up: _MAYBE, row: _TENSOR,
                      assignment: _TENSOR, offset: _TENSOR, codes: _ARRAYS, transposed: bool, gathers: bool, activation: _NUMBERS,
                      d_up: bool = True, d_down: bool = True) -> tuple[_TENSOR, _TENSOR, _TENSOR, _TENSOR, _TENSOR]:
    """d_up, d_down: whether the weights' gradients are wanted; one that is not has no elements."""
    wanted = _weight_gradients(w_up, w_down, d_up, d_down)
    layer = _layer_of(x, w_up, w_down, b_up, (row, assignment, offset), transposed, gathers, activation=activation, codes=codes)
    return *layer.backward(dy, weight, h, *(d_w if want else None for d_w, want in zip(wanted, (d_up, d_down)))), *wanted


def _weight_gradients(w_up, w_down, *wanted):
    return tuple(w.new_empty(w.shape if want else (0,)) for w, want in zip((w_up, w_down), wanted))


def _empty_bias(b_up, x):
    return x.new_empty(0) if b_up is None else torch.empty_like(b_up)


@_experts_backward.register_fake
def _(dy, h, x, weight, w_up, w_down, b_up, row, assignment, offset, codes, transposed, gathers, activation, d_up=True, d_down=True):
    return x.new_empty(x.shape), torch.empty_like(weight), _empty_bias(b_up, x), *_weight_gradients(w_up, w_down, d_up, d_down)


@torch.library.custom_op("spillway::experts_backward_add", mutates_args=("main_up", "main_down"))
def _experts_backward_add(dy: _TENSOR, h: _TENSOR, x: _TENSOR, weight: _TENSOR, w_up: _TENSOR, w_down: _TENSOR, b_up: _MAYBE,
                          row: _TENSOR, assignment: _TENSOR, offset: _TENSOR, codes: _ARRAYS, transposed: bool, gathers: bool,
                          activation: _NUMBERS, main_up: _TENSOR, main_down: _TENSOR) -> tuple[_TENSOR, _TENSOR, _TENSOR]:
    expect(main_up, w_up.shape, "main_up", torch.float32), expect(main_down, w_down.shape, "main_down", torch.float32)
    layer = _layer_of(x, w_up, w_down, b_up, (row, assignment, offset), transposed, gathers, activation=activation, codes=codes)
    return layer.backward(dy, weight, h, _Grows(main_up), _Grows(main_down))


@_experts_backward_add.register_fake
def _(dy, h, x, weight, w_up, w_down, b_up, row, assignment, offset, codes, transposed, gathers, activation, main_up, main_down):
    return x.new_empty(x.shape), torch.empty_like(weight), _empty_bias(b_up, x)


def _experts_setup(ctx, inputs, output):
    *saved, codes, main_up, main_down, ctx.transposed, ctx.gathers, ctx.activation = inputs
    ctx.main = None if main_up is None else (main_up, main_down)  # they change between forward and backward, so they are not saved
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(output[1], *saved, *codes)


def _experts_gradient(ctx, dy, _):
    saved = ctx.saved_tensors  # once: torch.utils.checkpoint gives them no second time
    kept, codes = saved[:9], list(saved[9:])
    arguments = (dy, *kept, codes, ctx.transposed, ctx.gathers, ctx.activation)
    if ctx.main is None:
        wanted = ctx.needs_input_grad[2:4]
        dx, d_weight, d_bias, *d_w = _experts_backward(*arguments, *wanted)
        d_w = [d if want else None for d, want in zip(d_w, wanted)]
    else:
        dx, d_weight, d_bias, *d_w = *_experts_backward_add(*arguments, *ctx.main), None, None
    return dx, d_weight, *d_w, d_bias if kept[5] is not None else None, *[None] * 3, [None] * len(codes), *[None] * 5


_experts.register_autograd(_experts_gradient, setup_context=_experts_setup)


def _activation_numbers(activation, interleaved, limit, alpha, multiprocessors=0, products=0):
    if activation not in _ACTIVATIONS:
        raise ValueError(f"activation {activation!r}; one of {', '.join(_ACTIVATIONS)} would be right")
    if limit is not None and (activation != "swiglu" or not limit > 0):
        raise ValueError(f"{activation} with a limit of {limit}; None, or a positive one of swiglu, would be right")
    if interleaved and activation == "relu2":
        raise ValueError("interleaved relu2, which has one matrix; interleaved=False would be right")
    return [float(_ACTIVATIONS.index(activation)), float(bool(interleaved)), float(limit or 0), float(alpha),
            float(_limit(multiprocessors)), float(products)]


def _expect_layer(x, expert, weight, w_up, w_down, main_grads):
    """What products do not see. The others' shapes are compared where they are multiplied."""
    for what, array, shape in (("x", x, "[tokens, hidden]"), ("expert", expert, "[tokens, top_k]"), ("w_up", w_up, "[experts, .., ..]"),
                               ("w_down", w_down, "[experts, .., ..]")):
        if array.dim() != shape.count(",") + 1 or 0 in array.shape[array.dim() == 2 :]:
            raise ValueError(f"{what} is {array.dtype} {tuple(array.shape)}; {shape} would be right, and only tokens may be 0")
    _expect_integers(expert, "expert"), expect(weight, expert.shape, "weight")
    if main_grads is None:
        return None, None
    if len(main_grads) != 2 or any(array is None for array in main_grads):
        raise ValueError("main_grads other than two arrays; one like w_up and one like w_down would be right")
    for number, (array, w) in enumerate(zip(main_grads, (w_up, w_down))):
        expect(array, w.shape, f"main_grads[{number}]", torch.float32)
    return tuple(main_grads)


def _autocasts(kind):
    """Of a device; a meta array, which has shapes alone, is on none that torch.autocast knows."""
    return kind in ("cpu", "cuda") and torch.is_autocast_enabled(kind)


def _as_autocast(*arrays):
    """What is multiplied, in the type that torch.autocast asks for where it is on."""
    kind = arrays[0].device.type
    if not _autocasts(kind):
        return arrays
    return tuple(a if a is None or a.dtype not in ELEMENTS else a.to(torch.get_autocast_dtype(kind)) for a in arrays)


def _by_experts(x, expert, weight, w_up, w_down, b_up, main_grads, transposed, gathers, numbers, codes=()):
    """The layer but for b_down; choices and weights too, as operators take them."""
    main = _expect_layer(x, expert, weight, w_up, w_down, main_grads)
    x, w_up, w_down, b_up = _as_autocast(x, w_up, w_down, b_up)
    experts_, tokens = w_up.shape[0], x.shape[0]
    expert = torch.where((expert < 0) | (expert >= experts_), -1, expert).to(torch.int32).contiguous()
    weight = weight.to(torch.float32).contiguous()
    if tokens == 0:  # a rank to which nothing came: one token that chose nobody
        x, expert, weight = (torch.nn.functional.pad(a, (0, 0, 0, 1), value=by) for a, by in ((x, 0), (expert, -1), (weight, 0)))
    choice = _plan(expert, experts_)
    y = _experts(x, weight, w_up, w_down, b_up, *choice, list(codes), *main, bool(transposed), bool(gathers), numbers)[0]
    return (y, expert, weight) if tokens else (y[:0], expert[:0], weight[:0])


def _with_bias(y, expert, weight, b_down, experts_):
    """y and each choice's weight times its expert's bias, a product of [tokens, experts] by PyTorch."""
    b_down, = _as_autocast(b_down)
    expect(b_down, (experts_, y.shape[1]), "b_down", y.dtype)
    share = torch.zeros(y.shape[0], b_down.shape[0], dtype=torch.float32, device=y.device)
    share = share.scatter_add(1, expert.clamp(min=0).long(), torch.where(expert < 0, 0, weight))
    kind = y.device.type
    with torch.autocast(kind, enabled=False) if _autocasts(kind) else contextlib.nullcontext():
        return (y.float() + share @ b_down.float()).to(y.dtype)


def experts(x, expert, weight, w_up, w_down, *, b_up=None, b_down=None, activation="swiglu", interleaved=False, limit=None, alpha=1.702,
            transposed=True, gathers=True, main_grads=None, multiprocessors=0):
    """y[t] = sum over k of weight[t, k] * (act(x[t] @ w_up[e] + b_up[e]) @ w_down[e] + b_down[e]), e = expert[t, k].

    x        [tokens, hidden]         bf16 or fp16; on a CPU also fp32
    expert   [tokens, top_k]          of any integer type; negative, or as many as there are experts: none
    weight   [tokens, top_k]          its gradient is that of the router
    w_up     [experts, 2 ffn, hidden] gate, then up; w_down [experts, hidden, ffn]: as transformers stores them. With transposed=False
             [experts, hidden, 2 ffn] and [experts, ffn, hidden]. relu2 has ffn columns for 2 ffn
    b_up     [experts, 2 ffn], b_down [experts, hidden], or None
    activation  swiglu: silu(gate) * up; with a limit, of gate' = min(gate, limit) and up' = clamp(up, -limit, limit),
             gate' * sigmoid(alpha gate') * (up' + 1), as gpt-oss has it. geglu: gelu(gate) * up, by tanh. relu2: relu(h)^2
    interleaved  gate and up in turn: column 2 f is gate, 2 f + 1 up
    gathers  rows of x and of y's gradient are read through an index, else from a copy
    main_grads  two fp32 arrays like w_up and w_down, to which their gradients are added in place; `.grad` stays None. Not under
             torch.compile
    multiprocessors  of the GPU's that products, forward and backward, take at most: the others are free for what runs beside them, like
             an exchange between GPUs on another stream. 0: all of them
    returns  [tokens, hidden]; gradients of x, weight, w_up, w_down, b_up and b_down

    x, w_up, w_down, the gradient of the result and main_grads may be views as grouped_gemm takes them; other main_grads are refused.
    Under torch.autocast x, weights and biases are cast, as operands of torch's own products are.
    """
    numbers = _activation_numbers(activation, interleaved, limit, alpha, multiprocessors)
    y, expert, weight = _by_experts(x, expert, weight, w_up, w_down, b_up, main_grads, transposed, gathers, numbers)
    return y if b_down is None else _with_bias(y, expert, weight, b_down, w_up.shape[0])


# ---- models ----------------------------------------------------------------------------------------------------------
def _forward_by(experts_):
    """An experts module's forward, by `experts` of here or of spillway_torch_float8. A bias that is None is not spoken of."""
    def forward(self, hidden_states, top_k_index, top_k_weights):
        first, keywords = experts_of(self)
        for name, where in (("b_up", first + "_bias"), ("b_down", "down_proj_bias")):
            if getattr(self, where, None) is not None:
                keywords[name] = getattr(self, where)
        y = experts_(hidden_states, top_k_index, top_k_weights, getattr(self, first), self.down_proj, **keywords)
        return y.to(hidden_states.dtype)

    return forward


def use(model, by=experts):
    """Lets every module of `model` that holds experts as transformers does (gate_up_proj [experts, 2 ffn, hidden] or [experts, hidden, 2 ffn],
    down_proj, SiLU or GELU by tanh; gpt-oss; up_proj and squared ReLU; called with tokens, choices and weights) compute by `experts`. Others
    are left alone, among them those that compute something else beside (spillway_torch_models.py). Returns how many; ValueError where there is
    none."""
    found = [module for module in model.modules() if experts_of(module) and computes_as_known(module, experts_of(module)[1])]
    if not found:
        others = sorted({type(module).__name__ for module in model.modules() if experts_of(module)})
        raise ValueError("no module with gate_up_proj [experts, 2 ffn, hidden], down_proj [experts, hidden, ffn], an activation of "
                         f"{', '.join(_ACTIVATIONS)} and nothing else" + (f"; {', '.join(others)} computes more" if others else ""))
    for module in found:
        module.forward = types.MethodType(_forward_by(by), module)
    return len(found)
