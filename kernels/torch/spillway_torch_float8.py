"""Spillway's expert products and layers in fp8 for PyTorch: codes of e4m3 with a scale for blocks of 128, forward and all gradients.

    import spillway_torch, spillway_torch_float8
    spillway_torch.register("libspillway_torch_cuda.so")
    spillway_torch_float8.use(model)                           # as spillway_torch.use
    y = spillway_torch_float8.experts(x, expert, weight, w_up, w_down)
    y = spillway_torch_float8.grouped_gemm(x, w, offset)

Arrays that come and go stay bf16 (main gradients fp32); each product codes its operands: rows in blocks of 1 x 128, weights in blocks of
128 x 128, and both sides of a gradient of weights in blocks of 128 x 1. docs/torch.md says what is kept for the backward pass.
"""
import typing

import torch

import spillway_torch
from spillway_torch_call import expect, run, widths

BLOCK = 128
_TENSOR, _MAYBE = torch.Tensor, typing.Optional[torch.Tensor]


def blocks(rows, experts):
    """Of an array by columns: expert e begins at block offset[e] // 128 + e."""
    return rows // BLOCK + experts


def _codes(like, *shape):
    return like.new_empty(shape, dtype=torch.float8_e4m3fn)


def _scales(like, *shape):
    return like.new_empty(shape, dtype=torch.float32)


def _given(arrays):
    return tuple(a if a.numel() else None for a in arrays)


def _row_shapes(like, count, width, experts, by_rows, by_columns):
    across, down = -(-width // BLOCK), blocks(count, experts)
    return (_codes(like, *((count, width) if by_rows else (0,))), _scales(like, *((count, across) if by_rows else (0,))),
            _codes(like, *((width, BLOCK * down) if by_columns else (0,))), _scales(like, *((down, width) if by_columns else (0,))))


@torch.library.custom_op("spillway::float8_rows", mutates_args=())
def rows(x: _TENSOR, offset: _TENSOR, by_rows: bool, by_columns: bool) -> tuple[_TENSOR, _TENSOR, _TENSOR, _TENSOR]:
    """Codes and scales of x's rows by experts: by rows [rows, width] and [rows, width / 128], by columns [width, 128 blocks] and
    [blocks, width], blocks = rows // 128 + experts. What is not wanted has no elements."""
    expect(offset, offset.shape, "offset", torch.int32)
    experts_ = offset.shape[0] - 1
    out = _row_shapes(x, *x.shape, experts_, by_rows, by_columns)
    if x.numel():
        run("float8_rows", (x, None, offset), _given(out), device=x.device, dtype=x.dtype, experts=experts_, rows=x.shape[0], **{"in": x.shape[1]})
    return out


@rows.register_fake
def _(x, offset, by_rows, by_columns):
    return _row_shapes(x, *x.shape, offset.shape[0] - 1, by_rows, by_columns)


def _weight_shapes(w, transposed, forward, backward):
    experts, (inner, out) = w.shape[0], widths(w, transposed)
    down, across = -(-out // BLOCK), -(-inner // BLOCK)
    return (_codes(w, *((experts, out, inner) if forward else (0,))), _scales(w, *((experts, down, across) if forward else (0,))),
            _codes(w, *((experts, inner, out) if backward else (0,))), _scales(w, *((experts, across, down) if backward else (0,))))


def _code_weights(w, transposed, forward, backward):
    out = _weight_shapes(w, transposed, forward, backward)
    inner, wide = widths(w, transposed)
    run("float8_weights", (w,), _given(out), device=w.device, dtype=w.dtype, experts=w.shape[0], out=wide, transposed=transposed, **{"in": inner})
    return out


@torch.library.custom_op("spillway::float8_weights", mutates_args=())
def weights(w: _TENSOR, transposed: bool, forward: bool, backward: bool) -> tuple[_TENSOR, _TENSOR, _TENSOR, _TENSOR]:
    """Codes and scales of weights [experts, in, out], transposed [experts, out, in]: for the forward product [experts, out, in], for the
    input gradient [experts, in, out]. The codes are the same, once turned."""
    return _code_weights(w, transposed, forward, backward)


@weights.register_fake
def _(w, transposed, forward, backward):
    return _weight_shapes(w, transposed, forward, backward)


def _multiply(x, x_scale, w, w_scale, offset, like):
    experts, out, inner = w.shape
    expect(x, (x.shape[0], inner), "x", torch.float8_e4m3fn), expect(offset, (experts + 1,), "offset", torch.int32)
    expect(x_scale, (x.shape[0], -(-inner // BLOCK)), "x_scale", torch.float32)
    expect(w_scale, (experts, -(-out // BLOCK), -(-inner // BLOCK)), "w_scale", torch.float32)
    y = like.new_empty(x.shape[0], out)
    if y.numel():
        run("float8_product", (x, w, offset, x_scale, w_scale), (y,), device=x.device, dtype=y.dtype, experts=experts, rows=x.shape[0], out=out,
             transposed=True, **{"in": inner})
    return y


@torch.library.custom_op("spillway::float8_product", mutates_args=())
def product(x: _TENSOR, x_scale: _TENSOR, w: _TENSOR, w_scale: _TENSOR, offset: _TENSOR, like: _TENSOR) -> _TENSOR:
    """y[r] = x[r] @ w[e].T of codes by rows and of weights [experts, out, in]; of like's type."""
    return _multiply(x, x_scale, w, w_scale, offset, like)


@product.register_fake
def _(x, x_scale, w, w_scale, offset, like):
    return like.new_empty(x.shape[0], w.shape[1])


def _gradient(x, x_scale, dy, dy_scale, offset, n_rows, transposed, dtype, results):
    experts, (inner, out), down = offset.shape[0] - 1, (x.shape[0], dy.shape[0]), blocks(n_rows, offset.shape[0] - 1)
    for what, code, scale in (("x", x, x_scale), ("dy", dy, dy_scale)):
        expect(code, (code.shape[0], BLOCK * down), f"{what} by columns", torch.float8_e4m3fn)
        expect(scale, (down, code.shape[0]), f"{what}'s scales by columns", torch.float32)
    run("float8_weight_gradient", (x, dy, offset, x_scale, dy_scale), results, device=x.device, dtype=dtype, experts=experts, rows=n_rows, out=out,
         transposed=transposed, **{"in": inner})


def _gradient_shape(x, dy, offset, transposed):
    return (offset.shape[0] - 1, *((dy.shape[0], x.shape[0]) if transposed else (x.shape[0], dy.shape[0])))


@torch.library.custom_op("spillway::float8_weight_gradient", mutates_args=())
def weight_gradient(x: _TENSOR, x_scale: _TENSOR, dy: _TENSOR, dy_scale: _TENSOR, offset: _TENSOR, like: _TENSOR, transposed: bool) -> _TENSOR:
    """The gradient of weights of codes by columns. like [rows, ..]: its type, and how many rows there are."""
    dw = like.new_empty(_gradient_shape(x, dy, offset, transposed))
    _gradient(x, x_scale, dy, dy_scale, offset, like.shape[0], transposed, dw.dtype, (dw, None))
    return dw


@weight_gradient.register_fake
def _(x, x_scale, dy, dy_scale, offset, like, transposed):
    return like.new_empty(_gradient_shape(x, dy, offset, transposed))


@torch.library.custom_op("spillway::float8_weight_gradient_add", mutates_args=("main",))
def weight_gradient_add(x: _TENSOR, x_scale: _TENSOR, dy: _TENSOR, dy_scale: _TENSOR, offset: _TENSOR, like: _TENSOR, transposed: bool,
                        main: _TENSOR) -> None:
    """The same, added to main in fp32."""
    expect(main, _gradient_shape(x, dy, offset, transposed), "main", torch.float32)
    _gradient(x, x_scale, dy, dy_scale, offset, like.shape[0], transposed, like.dtype, (None, main))


@weight_gradient_add.register_fake
def _(x, x_scale, dy, dy_scale, offset, like, transposed, main):
    return None


@torch.library.custom_op("spillway::float8_grouped_gemm", mutates_args=())
def _gemm(x: _TENSOR, w: _TENSOR, offset: _TENSOR, main: _MAYBE, transposed: bool, grows: bool,
          passes: bool) -> tuple[_TENSOR, _TENSOR, _TENSOR, _TENSOR, _TENSOR]:
    """y, then what the backward pass reads: x by columns and its scales, weights [in][out] and their scales."""
    inner, _ = widths(w, transposed)
    expect(x, (x.shape[0], inner), "x", w.dtype), expect(offset, (w.shape[0] + 1,), "offset", torch.int32)
    code, scale, *by_columns = rows(x, offset, True, grows)
    w_code, w_scale, *turned = weights(w, transposed, True, passes)
    return product(code, scale, w_code, w_scale, offset, x), *by_columns, *turned


@_gemm.register_fake
def _(x, w, offset, main, transposed, grows, passes):
    y = x.new_empty(x.shape[0], widths(w, transposed)[1])
    return y, *_row_shapes(x, *x.shape, w.shape[0], False, grows)[2:], *_weight_shapes(w, transposed, False, passes)[2:]


def _setup(ctx, inputs, output):
    _, _, offset, ctx.main, ctx.transposed, _, _ = inputs  # main changes between forward and backward, so it is not saved
    ctx.mark_non_differentiable(*output[1:])
    ctx.save_for_backward(offset, *output[1:])


def _backward(ctx, dy, *_):
    offset, x, x_scale, w, w_scale = ctx.saved_tensors
    dy, dx, dw = dy.contiguous(), None, None
    needs_x, needs_w = ctx.needs_input_grad[0], ctx.needs_input_grad[1]
    code, scale, by_columns, column_scale = rows(dy, offset, needs_x, needs_w)
    if needs_x:
        dx = product(code, scale, w, w_scale, offset, dy)
    if needs_w and ctx.main is None:
        dw = weight_gradient(x, x_scale, by_columns, column_scale, offset, dy, ctx.transposed)
    elif needs_w:
        weight_gradient_add(x, x_scale, by_columns, column_scale, offset, dy, ctx.transposed, ctx.main)
    return dx, dw, None, None, None, None, None


_gemm.register_autograd(_backward, setup_context=_setup)


def grouped_gemm(x, w, offset, *, transposed=False, main_grad=None):
    """y[r] = x[r] @ w[e] where offset[e] <= r < offset[e + 1], 0 from offset[experts] on, by products of fp8. Gradients of x and w.

    x, w, offset  as spillway_torch.grouped_gemm; on a GPU `in` and `out` are multiples of 16
    main_grad     an fp32 array like w, to which its gradient is added in place; `.grad` stays None. Not under torch.compile
    """
    if main_grad is not None:
        expect(main_grad, w.shape, "main_grad", torch.float32)
    return _gemm(x.contiguous(), w, offset, main_grad, bool(transposed), w.requires_grad, x.requires_grad)[0]


# ---- a whole expert layer --------------------------------------------------------------------------------------------
class _Layer(spillway_torch._Layer):
    """The layer whose products are of codes. It keeps what the layer of 16 bits keeps, x and h: codes by columns are made in the backward pass
    of these, and codes of weights, where none are given, of the weights."""

    def coded(self, operation, operands, width, by_rows, by_columns, row_sum=None, **sizes):
        """Codes and scales of rows, by rows and by columns."""
        out = _row_shapes(self.x, self.rows, width, self.w_up.shape[0], by_rows, by_columns)
        self.run(operation, operands, (*_given(out), row_sum), experts=self.w_up.shape[0], **{"in": self.ffn, **sizes})
        return out

    def gathered(self, array, by_rows, by_columns):
        """Of rows of tokens."""
        return self.coded("float8_rows", (array.contiguous(), None, self.offset, self.assignment), self.hidden, by_rows, by_columns,
                          gathers=1, **{"in": self.hidden})

    def of_weights(self, w, turned):
        """Codes and scales of w_up or w_down, for the forward product or turned for the input gradient."""
        first = 2 * turned
        if self.codes:
            return self.codes[first + 4 * (w is self.w_down) :][:2]
        return _code_weights(w.contiguous(), self.transposed, not turned, turned)[first : first + 2]

    def product(self, code, scale, w, turned):
        return _multiply(code, scale, *self.of_weights(w, turned), self.offset, self.x)

    def gradient(self, left, right, gradient):
        _gradient(*left, *right, self.offset, self.rows, self.transposed, self.x.dtype, spillway_torch._into(gradient))

    def forward(self, weight):
        h = self.product(*self.gathered(self.x, True, False)[:2], self.w_up, False)
        act = self.coded("float8_activation", (h, None, self.offset), self.ffn, True, False, **self.activation.sizes())[:2]
        return self.by_token(self.product(*act, self.w_down, False), weight), h

    def down_backward(self, dy, weight, h, d_down):
        """Codes and scales of h's gradient, and parts of the choices' weights'."""
        code, scale, *dy_columns = self.gathered(dy, True, True)
        d_act = self.product(code, scale, self.w_down, True)
        row_sum = _scales(h, -(-self.ffn // BLOCK), self.rows)
        operands = h, d_act, self.offset, self.assignment, weight
        act = self.coded("float8_activation", operands, self.ffn, False, True, row_sum, **self.activation.sizes())[2:]
        if d_down is not None:
            self.gradient(act, dy_columns, d_down)
        return *self.coded("float8_slopes", operands, self.wide, True, True, **self.activation.sizes()), row_sum

    def backward(self, dy, weight, h, d_up, d_down):
        code, scale, *d_columns, row_sum = self.down_backward(dy, weight, h, d_down)
        if d_up is not None:
            self.gradient(self.gathered(self.x, False, True)[2:], d_columns, d_up)
        dx = self.by_token(self.product(code, scale, self.w_up, True))
        return dx, self.by_choice(row_sum, weight), h.new_empty(0)


_PRODUCTS = 1
spillway_torch._LAYERS[_PRODUCTS] = _Layer


def coded_weights(w_up, w_down, *, transposed=True):
    """Codes and scales of a layer's weights for both passes, for `experts(..., codes=)`: made once a step, not once a micro-batch."""
    return [array for w in (w_up, w_down) for array in weights(w.detach().contiguous(), bool(transposed), True, True)]


def experts(x, expert, weight, w_up, w_down, *, activation="swiglu", interleaved=False, limit=None, alpha=1.702, transposed=True, codes=None,
            main_grads=None):
    """spillway_torch.experts by products of fp8, without biases: rows of x and dy are coded as they are gathered, what stands between the
    products as it is made.

    codes       of w_up and w_down as they are now (coded_weights); None: each pass codes them, and nothing of them is kept
    main_grads  as there, contiguous
    others      as there; on a GPU bf16, hidden and ffn multiples of 16
    """
    numbers = spillway_torch._activation_numbers(activation, interleaved, limit, alpha, products=_PRODUCTS)
    if codes is not None and len(codes) != 8:
        raise ValueError(f"{len(codes)} arrays of codes; the 8 of coded_weights would be right")
    return spillway_torch._by_experts(x, expert, weight, w_up, w_down, None, main_grads, transposed, True, numbers, codes or ())[0]


def use(model):
    """spillway_torch.use of fp8; modules with biases are refused."""
    biased = [module for module in model.modules() if getattr(module, "down_proj_bias", None) is not None]
    if biased:
        raise ValueError(f"{type(biased[0]).__name__} has biases; experts without, or spillway_torch.use, would be right")
    return spillway_torch.use(model, experts)
