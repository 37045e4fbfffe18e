"""Spillway's expert products for PyTorch: operators with gradients, for GPUs, CPUs and torch.compile.

    import spillway_torch
    spillway_torch.register("libspillway_torch_cuda.so")      # bash kernels/build.sh torch-cuda; CPUs alone: torch

    spillway_torch.use(model)                                  # the experts of a model of transformers, in one line
    y = spillway_torch.experts(x, expert, weight, w_up, w_down)
    y = spillway_torch.grouped_mm(x, w, offs=ends)             # torch.nn.functional.grouped_mm

docs/torch.md says what is fused, what it costs and where it ran.
"""
import ctypes
import types
import typing

import torch

_OPERATIONS = ("plan", "forward", "input_gradient", "weight_gradient", "up", "down_gradient", "combine", "row_sums",
               "float8_rows", "float8_weights", "float8_product", "float8_weight_gradient")
_PRODUCTS = ("forward", "input_gradient", "weight_gradient", "up", "down_gradient")  # first two operands and a result may be views
_PLAN_CHUNK, _ROW_SUM_TILE = 1024, 128
_ACTIVATIONS = ("swiglu", "geglu", "relu2")  # by their numbers in the entry
_ELEMENTS = (torch.bfloat16, torch.float32, torch.float16)  # the same
_library = None


class _Call(ctypes.Structure):
    _fields_ = ([(name, ctypes.c_int) for name in ("operation", "device", "element", "transposed", "gathers", "activation", "pairs",
                                                       "multiprocessors")]
                + [(name, ctypes.c_float) for name in ("limit", "alpha")]
                + [(name, ctypes.c_size_t) for name in ("experts", "rows", "in", "out", "tokens", "top_k")]
                + [("stride_" + name, ctypes.c_size_t) for name in ("left", "right", "result", "expert", "h", "d_h")]
                + [("operand", ctypes.c_void_p * 6), ("result", ctypes.c_void_p * 4), ("stream", ctypes.c_void_p)])


def register(library):
    """Loads what `bash kernels/build.sh torch-cuda`, `torch-amd` or `torch` builds; once, before the first call."""
    global _library
    loaded = ctypes.CDLL(library)
    if not hasattr(loaded, "spw_torch_run"):
        raise ValueError(f"{library} has no spw_torch_run; what `kernels/build.sh torch` builds would be right")
    loaded.spw_torch_run.restype = ctypes.c_char_p
    loaded.spw_torch_run.argtypes = [ctypes.POINTER(_Call)]
    _library = loaded


def _is_view(array):
    """Rows that products take where they are: each contiguous, none over another, on a GPU from 16 bytes to 16 bytes."""
    if array.is_contiguous():
        return True
    (*experts, rows, width), (*apart, row, one) = array.shape, array.stride()
    if one != 1 or row < width or len(experts) > 1:
        return False
    if experts and experts[0] > 1:  # one behind the other, or their rows side by side
        if apart[0] < width or not (apart[0] >= (rows - 1) * row + width or (experts[0] - 1) * apart[0] + width <= row):
            return False
    return array.device.type == "cpu" or (array.data_ptr() % 16 == 0 and all(stride % 8 == 0 for stride in (*apart, row)))


def _strides(**arrays):
    """From row to row, and of three dimensions from expert to expert; nothing of what is packed."""
    said = {}
    for name, array in arrays.items():
        if not array.is_contiguous():
            said["stride_" + name] = array.stride(-2) if array.shape[-2] > 1 else array.shape[-1]
            if array.dim() == 3 and array.shape[0] > 1:
                said["stride_expert"] = array.stride(0)
    return said


def _run(operation, operands, results, *, device, dtype=torch.bfloat16, **sizes):
    if _library is None:
        raise RuntimeError("no library; spillway_torch.register(\"libspillway_torch.so\") first would be right")
    if dtype not in _ELEMENTS:
        raise ValueError(f"{dtype}; bfloat16 or float16, on a CPU also float32, would be right")
    views = ()
    if operation in _PRODUCTS:
        operands = (*(a if _is_view(a) else a.contiguous() for a in operands[:2]), *operands[2:])
        result = results[1] if operation in ("up", "down_gradient") or results[0] is None else results[0]
        views = (*operands[:2], result)
        sizes.update(_strides(left=views[0], right=views[1], result=result))
    for array in (*operands, *results):
        taken = array is None or array.is_contiguous() or (any(array is view for view in views) and _is_view(array))
        if not taken or (array is not None and array.device != device):
            raise ValueError(f"an array of {tuple(array.shape)} on {array.device} with strides {array.stride()}; contiguous on {device} "
                             "would be right")
    call = _Call(operation=_OPERATIONS.index(operation), device=-1, element=_ELEMENTS.index(dtype), **sizes)
    call.operand = (ctypes.c_void_p * 6)(*(None if a is None else a.data_ptr() for a in operands))
    call.result = (ctypes.c_void_p * 4)(*(None if a is None else a.data_ptr() for a in results))
    if device.type == "cpu":
        message = _library.spw_torch_run(ctypes.byref(call))
    else:
        with torch.cuda.device(device):
            call.device, call.stream = torch.cuda.current_device(), torch.cuda.current_stream().cuda_stream
            message = _library.spw_torch_run(ctypes.byref(call))
    if message is not None:
        raise RuntimeError(message.decode())


def _widths(w, transposed):
    """in, out of weights [experts][in][out], transposed [experts][out][in]."""
    return (w.shape[2], w.shape[1]) if transposed else (w.shape[1], w.shape[2])


def _sizes(w, transposed, rows, multiprocessors):
    inner, out = _widths(w, transposed)
    return {"experts": w.shape[0], "rows": rows, "in": inner, "out": out, "transposed": transposed, "multiprocessors": multiprocessors}


def _limit(multiprocessors):
    if multiprocessors < 0:
        raise ValueError(f"{multiprocessors} multiprocessors; 0 for all of the GPU's, or more, would be right")
    return int(multiprocessors)


def _expect(array, shape, what, dtype=None):
    if tuple(array.shape) != tuple(shape) or (dtype is not None and array.dtype != dtype):
        raise ValueError(f"{what} is {array.dtype} {tuple(array.shape)}; {dtype or array.dtype} {tuple(shape)} would be right")


# ---- grouped GEMM -----------------------------------------------------------------------------------------------------
@torch.library.custom_op("spillway::grouped_gemm", mutates_args=())
def _gemm(x: torch.Tensor, w: torch.Tensor, offset: torch.Tensor, transposed: bool, multiprocessors: int = 0) -> torch.Tensor:
    inner, out = _widths(w, transposed)
    _expect(x, (x.shape[0], inner), "x", w.dtype), _expect(offset, (w.shape[0] + 1,), "offset", torch.int32)
    y = x.new_empty(x.shape[0], out)
    _run("forward", (x, w, offset), (y,), device=x.device, dtype=x.dtype,
         **_sizes(w, transposed, x.shape[0], multiprocessors))
    return y


@_gemm.register_fake
def _(x, w, offset, transposed, multiprocessors=0):
    return x.new_empty(x.shape[0], _widths(w, transposed)[1])


@torch.library.custom_op("spillway::grouped_gemm_dx", mutates_args=())
def _gemm_dx(dy: torch.Tensor, w: torch.Tensor, offset: torch.Tensor, transposed: bool, multiprocessors: int = 0) -> torch.Tensor:
    inner, out = _widths(w, transposed)
    _expect(dy, (dy.shape[0], out), "dy", w.dtype)
    dx = dy.new_empty(dy.shape[0], inner)
    _run("input_gradient", (dy, w, offset), (dx,), device=dy.device, dtype=dy.dtype,
         **_sizes(w, transposed, dy.shape[0], multiprocessors))
    return dx


@_gemm_dx.register_fake
def _(dy, w, offset, transposed, multiprocessors=0):
    return dy.new_empty(dy.shape[0], _widths(w, transposed)[0])


@torch.library.custom_op("spillway::grouped_gemm_dw", mutates_args=())
def _gemm_dw(x: torch.Tensor, dy: torch.Tensor, offset: torch.Tensor, transposed: bool, multiprocessors: int = 0) -> torch.Tensor:
    _expect(dy, (x.shape[0], dy.shape[1]), "dy", x.dtype)
    dw = x.new_empty(offset.shape[0] - 1, *((dy.shape[1], x.shape[1]) if transposed else (x.shape[1], dy.shape[1])))
    _run("weight_gradient", (x, dy, offset), (dw,), device=x.device, dtype=x.dtype,
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
    inner, wide = _widths(w, transposed)
    _expect(x, (x.shape[0], inner), "x", w.dtype), _expect(offset, (w.shape[0] + 1,), "offset", torch.int32)
    _expect(out, (x.shape[0], wide), "out", x.dtype)
    _run("forward", (x, w, offset), (out,), device=x.device, dtype=x.dtype, **_sizes(w, transposed, x.shape[0], multiprocessors))


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
    refused.
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
    offset = torch.nn.functional.pad(offs.to(torch.int32), (1, 0))
    if w.stride(2) != 1 and w.stride(1) == 1:
        return _gemm(x, w.transpose(1, 2), offset, True)
    return _gemm(x, w, offset, False)


# ---- which row is whose ----------------------------------------------------------------------------------------------
@torch.library.custom_op("spillway::expert_plan", mutates_args=())
def _plan(expert: torch.Tensor, experts: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    _expect(expert, expert.shape, "expert", torch.int32)
    choices = expert.numel()
    row, assignment = torch.empty_like(expert), expert.new_empty(choices)
    offset, scratch = expert.new_empty(experts + 1), expert.new_empty(experts * (-(-choices // _PLAN_CHUNK) + 1))
    _run("plan", (expert,), (row, assignment, offset, scratch), device=expert.device, experts=experts, rows=choices,
         tokens=expert.shape[0], top_k=expert.shape[1])
    return row, assignment, offset


@_plan.register_fake
def _(expert, experts):
    return torch.empty_like(expert), expert.new_empty(expert.numel()), expert.new_empty(experts + 1)


# ---- a whole expert layer --------------------------------------------------------------------------------------------
class _Activation:
    """What stands between the products; operators take it as numbers: kind, pairs, limit, alpha; then multiprocessors."""

    def __init__(self, numbers):
        self.kind, self.pairs, self.limit, self.alpha = int(numbers[0]), int(numbers[1]), numbers[2], numbers[3]
        self.multiprocessors = int(numbers[4])
        self.columns = 1 if _ACTIVATIONS[self.kind] == "relu2" else 2  # of the first product for one of the second

    def sizes(self):
        return {"activation": self.kind, "pairs": self.pairs, "limit": self.limit, "alpha": self.alpha}


class _Layer:
    """The products of one layer and one batch; `choice` is the plan: row, assignment, offset."""

    def __init__(self, x, w_up, w_down, b_up, choice, transposed, gathers, activation):
        self.x, self.w_up, self.w_down, self.b_up, self.transposed, self.gathers = x, w_up, w_down, b_up, transposed, gathers
        self.row, self.assignment, self.offset = choice
        self.rows, (self.tokens, self.top_k) = self.assignment.shape[0], self.row.shape
        self.hidden, self.wide = _widths(w_up, transposed)
        self.activation = _Activation(activation)
        self.ffn = self.wide // self.activation.columns
        _expect(x, (self.tokens, self.hidden), "x", w_up.dtype)
        _expect(w_down, (w_up.shape[0], *((self.hidden, self.ffn) if transposed else (self.ffn, self.hidden))), "w_down", w_up.dtype)
        if b_up is not None:
            _expect(b_up, (w_up.shape[0], self.wide), "b_up", w_up.dtype)

    def run(self, operation, operands, results, w=None, **sizes):
        if w is not None:
            sizes.update(_sizes(w, self.transposed, self.rows, self.activation.multiprocessors))
        _run(operation, operands, results, device=self.x.device, dtype=self.x.dtype,
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
        y_rows, y = self.x.new_empty(self.rows, self.hidden), self.x.new_empty(self.x.shape)
        self.run("forward", (act, self.w_down, self.offset), (y_rows,), self.w_down)
        self.run("combine", (y_rows, self.row, weight), (y,), **{"in": self.hidden})
        return y, h

    def backward(self, dy, weight, h, d_up, d_down):
        """dx, d_weight and d_b_up, which is empty without a bias; d_up and d_down are written, or grow."""
        grows = isinstance(d_up, _Grows)
        parts = -(-self.ffn // _ROW_SUM_TILE)
        d_h, act = torch.empty_like(h), h.new_empty(self.rows, self.ffn)
        row_sum = h.new_empty(parts, self.rows, dtype=torch.float32)
        dy_rows, x_rows = self.by_row(dy), self.by_row(self.x)
        self.run("down_gradient", (dy_rows, self.w_down, self.offset, self.assignment, h, weight), (d_h, act, row_sum), self.w_down,
                 gathers=int(self.gathers), **self.activation.sizes())
        into = (lambda grown: (None, grown.array)) if grows else (lambda written: (written, None))
        self.run("weight_gradient", (act, dy_rows, self.offset, self.assignment), into(d_down), self.w_down, gathers=2 * self.gathers)
        self.run("weight_gradient", (x_rows, d_h, self.offset, self.assignment), into(d_up), self.w_up, gathers=int(self.gathers))
        dx_rows, dx, d_weight = h.new_empty(self.rows, self.hidden), h.new_empty(self.x.shape), torch.empty_like(weight)
        self.run("input_gradient", (d_h, self.w_up, self.offset), (dx_rows,), self.w_up)
        self.run("combine", (dx_rows, self.row, None), (dx,), **{"in": self.hidden})
        self.run("row_sums", (row_sum, self.row), (d_weight,), out=parts)
        return dx, d_weight, self.bias_gradient(d_h)

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


_TENSOR, _MAYBE, _NUMBERS = torch.Tensor, typing.Optional[torch.Tensor], typing.List[float]


@torch.library.custom_op("spillway::experts", mutates_args=())
def _experts(x: _TENSOR, weight: _TENSOR, w_up: _TENSOR, w_down: _TENSOR, b_up: _MAYBE, row: _TENSOR, assignment: _TENSOR, offset: _TENSOR,
             main_up: _MAYBE, main_down: _MAYBE, transposed: bool, gathers: bool, activation: _NUMBERS) -> tuple[_TENSOR, _TENSOR]:
    return _Layer(x, w_up, w_down, b_up, (row, assignment, offset), transposed, gathers, activation).forward(weight)


@_experts.register_fake
def _(x, weight, w_up, w_down, b_up, row, assignment, offset, main_up, main_down, transposed, gathers, activation):
    return x.new_empty(x.shape), x.new_empty(assignment.shape[0], _widths(w_up, transposed)[1])


@torch.library.custom_op("spillway::experts_backward", mutates_args=())
def _experts_backward(dy: _TENSOR, h: _TENSOR, x: _TENSOR, weight: _TENSOR, w_up: _TENSOR, w_down: _TENSOR, b_up: _MAYBE, row: _TENSOR,
                      assignment: _TENSOR, offset: _TENSOR, transposed: bool, gathers: bool,
                      activation: _NUMBERS) -> tuple[_TENSOR, _TENSOR, _TENSOR, _TENSOR, _TENSOR]:
    d_up, d_down = w_up.new_empty(w_up.shape), w_down.new_empty(w_down.shape)
    layer = _Layer(x, w_up, w_down, b_up, (row, assignment, offset), transposed, gathers, activation)
    return *layer.backward(dy, weight, h, d_up, d_down), d_up, d_down


def _empty_bias(b_up, x):
    return x.new_empty(0) if b_up is None else torch.empty_like(b_up)


@_experts_backward.register_fake
def _(dy, h, x, weight, w_up, w_down, b_up, row, assignment, offset, transposed, gathers, activation):
    return (x.new_empty(x.shape), torch.empty_like(weight), _empty_bias(b_up, x), w_up.new_empty(w_up.shape),
            w_down.new_empty(w_down.shape))


@torch.library.custom_op("spillway::experts_backward_add", mutates_args=("main_up", "main_down"))
def _experts_backward_add(dy: _TENSOR, h: _TENSOR, x: _TENSOR, weight: _TENSOR, w_up: _TENSOR, w_down: _TENSOR, b_up: _MAYBE,
                          row: _TENSOR, assignment: _TENSOR, offset: _TENSOR, transposed: bool, gathers: bool, activation: _NUMBERS,
                          main_up: _TENSOR, main_down: _TENSOR) -> tuple[_TENSOR, _TENSOR, _TENSOR]:
    _expect(main_up, w_up.shape, "main_up", torch.float32), _expect(main_down, w_down.shape, "main_down", torch.float32)
    layer = _Layer(x, w_up, w_down, b_up, (row, assignment, offset), transposed, gathers, activation)
    return layer.backward(dy, weight, h, _Grows(main_up), _Grows(main_down))


@_experts_backward_add.register_fake
def _(dy, h, x, weight, w_up, w_down, b_up, row, assignment, offset, transposed, gathers, activation, main_up, main_down):
    return x.new_empty(x.shape), torch.empty_like(weight), _empty_bias(b_up, x)


def _experts_setup(ctx, inputs, output):
    *saved, main_up, main_down, ctx.transposed, ctx.gathers, ctx.activation = inputs
    ctx.main = None if main_up is None else (main_up, main_down)  # they change between forward and backward, so they are not saved
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(output[1], *saved)


def _experts_gradient(ctx, dy, _):
    arguments = (dy, *ctx.saved_tensors, ctx.transposed, ctx.gathers, ctx.activation)
    if ctx.main is None:
        dx, d_weight, d_bias, *d_w = _experts_backward(*arguments)
    else:
        dx, d_weight, d_bias, *d_w = *_experts_backward_add(*arguments, *ctx.main), None, None
    return dx, d_weight, *d_w, d_bias if ctx.saved_tensors[5] is not None else None, *[None] * 8


_experts.register_autograd(_experts_gradient, setup_context=_experts_setup)


def _activation_numbers(activation, interleaved, limit, alpha, multiprocessors=0):
    if activation not in _ACTIVATIONS:
        raise ValueError(f"activation {activation!r}; one of {', '.join(_ACTIVATIONS)} would be right")
    if limit is not None and (activation != "swiglu" or not limit > 0):
        raise ValueError(f"{activation} with a limit of {limit}; None, or a positive one of swiglu, would be right")
    if interleaved and activation == "relu2":
        raise ValueError("interleaved relu2, which has one matrix; interleaved=False would be right")
    return [float(_ACTIVATIONS.index(activation)), float(bool(interleaved)), float(limit or 0), float(alpha),
            float(_limit(multiprocessors))]


def _with_bias(y, expert, weight, b_down):
    """y and each choice's weight times its expert's bias, a product of [tokens, experts] by PyTorch."""
    _expect(b_down, (b_down.shape[0], y.shape[1]), "b_down", y.dtype)
    share = torch.zeros(y.shape[0], b_down.shape[0], dtype=torch.float32, device=y.device)
    share = share.scatter_add(1, expert.clamp(min=0).long(), torch.where(expert < 0, 0, weight))
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
    """
    experts_ = w_up.shape[0]
    numbers = _activation_numbers(activation, interleaved, limit, alpha, multiprocessors)
    expert = torch.where((expert < 0) | (expert >= experts_), -1, expert).to(torch.int32).contiguous()
    weight = weight.to(torch.float32).contiguous()
    choice = _plan(expert, experts_)
    y = _experts(x, weight, w_up, w_down, b_up, *choice, *(main_grads or (None, None)), bool(transposed), bool(gathers), numbers)[0]
    return y if b_down is None else _with_bias(y, expert, weight, b_down)


# ---- models ----------------------------------------------------------------------------------------------------------
_GATES = {"SiLU": "swiglu", "SiLUActivation": "swiglu", "GELUTanh": "geglu", "ReLUSquaredActivation": "relu2"}


def _activation_of(module):
    """Of an experts module of transformers, keywords of `experts`; None: another one."""
    act = getattr(module, "act_fn", None)
    if act is None and all(hasattr(module, name) for name in ("alpha", "limit", "gate_up_proj_bias", "down_proj_bias")):
        return {"interleaved": True, "limit": float(module.limit), "alpha": float(module.alpha)}  # gpt-oss
    if act is torch.nn.functional.silu:
        return {}
    name = _GATES.get(type(act).__name__)
    if isinstance(act, torch.nn.GELU) and act.approximate == "tanh":
        name = "geglu"
    return None if name is None else {"activation": name}


def _experts_of(module):
    """Arrays and keywords with which `experts` computes what `module` does; None where it is no experts module that it knows."""
    keywords = _activation_of(module)
    single = keywords is not None and keywords.get("activation") == "relu2"
    first = "up_proj" if single else "gate_up_proj"
    up, down = getattr(module, first, None), getattr(module, "down_proj", None)
    if keywords is None or not all(isinstance(w, torch.Tensor) and w.dim() == 3 for w in (up, down)):
        return None
    columns = 1 if single else 2
    # Shapes say which way gate and up lie, but not where there is one matrix: there transformers' mark does, which is the opposite of ours.
    for transposed in (not getattr(module, "is_transposed", False),) if single else (True, False):
        (hidden, wide), (ffn, back) = _widths(up, transposed), _widths(down, transposed)
        if wide == columns * ffn and back == hidden and up.shape[0] == down.shape[0]:
            return first, {**keywords, "transposed": transposed}
    return None


def _experts_forward(self, hidden_states, top_k_index, top_k_weights):
    first, keywords = _experts_of(self)
    biases = {name: getattr(self, where, None) for name, where in (("b_up", first + "_bias"), ("b_down", "down_proj_bias"))}
    y = experts(hidden_states, top_k_index, top_k_weights, getattr(self, first), self.down_proj, **biases, **keywords)
    return y.to(hidden_states.dtype)


def use(model):
    """Lets every module of `model` that holds experts as transformers does (gate_up_proj [experts, 2 ffn, hidden] or [experts, hidden, 2 ffn],
    down_proj, SiLU or GELU by tanh; gpt-oss; up_proj and squared ReLU; called with tokens, choices and weights) compute by `experts`.
    Returns how many; ValueError where there is none."""
    found = [module for module in model.modules() if _experts_of(module)]
    if not found:
        raise ValueError("no module with gate_up_proj [experts, 2 ffn, hidden], down_proj [experts, hidden, ffn] and an activation of "
                         f"{', '.join(_ACTIVATIONS)}")
    for module in found:
        module.forward = types.MethodType(_experts_forward, module)
    return len(found)
