"""Spillway's expert products in fp8 for PyTorch: codes of e4m3 with a scale for blocks of 128, forward and both gradients.

    import spillway_torch, spillway_torch_float8
    spillway_torch.register("libspillway_torch_cuda.so")
    y = spillway_torch_float8.grouped_gemm(x, w, offset)

x, w and the gradients stay bf16 (main gradients fp32); each product codes its operands: rows in blocks of 1 x 128, weights in blocks of
128 x 128, and x and dy for the gradient of weights in blocks of 128 x 1. For the backward pass codes are kept, x and w are not.
"""
import typing

import torch

from spillway_torch import _expect, _run, _widths

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


def _row_shapes(x, experts, by_rows, by_columns):
    rows, width = x.shape
    across, down = -(-width // BLOCK), blocks(rows, experts)
    return (_codes(x, *((rows, width) if by_rows else (0,))), _scales(x, *((rows, across) if by_rows else (0,))),
            _codes(x, *((width, BLOCK * down) if by_columns else (0,))), _scales(x, *((down, width) if by_columns else (0,))))


@torch.library.custom_op("spillway::float8_rows", mutates_args=())
def rows(x: _TENSOR, offset: _TENSOR, by_rows: bool, by_columns: bool) -> tuple[_TENSOR, _TENSOR, _TENSOR, _TENSOR]:
    """Codes and scales of x's rows by experts: by rows [rows, width] and [rows, width / 128], by columns [width, 128 blocks] and
    [blocks, width], blocks = rows // 128 + experts. What is not wanted has no elements."""
    _expect(offset, offset.shape, "offset", torch.int32)
    out, experts = _row_shapes(x, offset.shape[0] - 1, by_rows, by_columns), offset.shape[0] - 1
    if x.numel():
        _run("float8_rows", (x, None, offset), _given(out), device=x.device, dtype=x.dtype, experts=experts, rows=x.shape[0], **{"in": x.shape[1]})
    return out


@rows.register_fake
def _(x, offset, by_rows, by_columns):
    return _row_shapes(x, offset.shape[0] - 1, by_rows, by_columns)


def _weight_shapes(w, transposed, forward, backward):
    experts, (inner, out) = w.shape[0], _widths(w, transposed)
    down, across = -(-out // BLOCK), -(-inner // BLOCK)
    return (_codes(w, *((experts, out, inner) if forward else (0,))), _scales(w, *((experts, down, across) if forward else (0,))),
            _codes(w, *((experts, inner, out) if backward else (0,))), _scales(w, *((experts, across, down) if backward else (0,))))


@torch.library.custom_op("spillway::float8_weights", mutates_args=())
def weights(w: _TENSOR, transposed: bool, forward: bool, backward: bool) -> tuple[_TENSOR, _TENSOR, _TENSOR, _TENSOR]:
    """Codes and scales of weights [experts, in, out], transposed [experts, out, in]: for the forward product [experts, out, in], for the
    input gradient [experts, in, out]. The codes are the same, once turned."""
    out = _weight_shapes(w, transposed, forward, backward)
    inner, wide = _widths(w, transposed)
    _run("float8_weights", (w,), _given(out), device=w.device, dtype=w.dtype, experts=w.shape[0], out=wide, transposed=transposed, **{"in": inner})
    return out


@weights.register_fake
def _(w, transposed, forward, backward):
    return _weight_shapes(w, transposed, forward, backward)


@torch.library.custom_op("spillway::float8_product", mutates_args=())
def product(x: _TENSOR, x_scale: _TENSOR, w: _TENSOR, w_scale: _TENSOR, offset: _TENSOR, like: _TENSOR) -> _TENSOR:
    """y[r] = x[r] @ w[e].T of codes by rows and of weights [experts, out, in]; of like's type."""
    experts, out, inner = w.shape
    _expect(x, (x.shape[0], inner), "x", torch.float8_e4m3fn), _expect(offset, (experts + 1,), "offset", torch.int32)
    _expect(x_scale, (x.shape[0], -(-inner // BLOCK)), "x_scale", torch.float32)
    _expect(w_scale, (experts, -(-out // BLOCK), -(-inner // BLOCK)), "w_scale", torch.float32)
    y = like.new_empty(x.shape[0], out)
    if y.numel():
        _run("float8_product", (x, w, offset, x_scale, w_scale), (y,), device=x.device, dtype=y.dtype, experts=experts, rows=x.shape[0], out=out,
             transposed=True, **{"in": inner})
    return y


@product.register_fake
def _(x, x_scale, w, w_scale, offset, like):
    return like.new_empty(x.shape[0], w.shape[1])


def _gradient(x, x_scale, dy, dy_scale, offset, n_rows, transposed, dtype, results):
    experts, (inner, out), down = offset.shape[0] - 1, (x.shape[0], dy.shape[0]), blocks(n_rows, offset.shape[0] - 1)
    for what, code, scale in (("x", x, x_scale), ("dy", dy, dy_scale)):
        _expect(code, (code.shape[0], BLOCK * down), f"{what} by columns", torch.float8_e4m3fn)
        _expect(scale, (down, code.shape[0]), f"{what}'s scales by columns", torch.float32)
    _run("float8_weight_gradient", (x, dy, offset, x_scale, dy_scale), results, device=x.device, dtype=dtype, experts=experts, rows=n_rows, out=out,
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
    _expect(main, _gradient_shape(x, dy, offset, transposed), "main", torch.float32)
    _gradient(x, x_scale, dy, dy_scale, offset, like.shape[0], transposed, like.dtype, (None, main))


@weight_gradient_add.register_fake
def _(x, x_scale, dy, dy_scale, offset, like, transposed, main):
    return None


@torch.library.custom_op("spillway::float8_grouped_gemm", mutates_args=())
def _gemm(x: _TENSOR, w: _TENSOR, offset: _TENSOR, main: _MAYBE, transposed: bool, grows: bool,
          passes: bool) -> tuple[_TENSOR, _TENSOR, _TENSOR, _TENSOR, _TENSOR]:
    """y, then what the backward pass reads: x by columns and its scales, weights [in][out] and their scales."""
    inner, _ = _widths(w, transposed)
    _expect(x, (x.shape[0], inner), "x", w.dtype), _expect(offset, (w.shape[0] + 1,), "offset", torch.int32)
    code, scale, *by_columns = rows(x, offset, True, grows)
    w_code, w_scale, *turned = weights(w, transposed, True, passes)
    return product(code, scale, w_code, w_scale, offset, x), *by_columns, *turned


@_gemm.register_fake
def _(x, w, offset, main, transposed, grows, passes):
    y = x.new_empty(x.shape[0], _widths(w, transposed)[1])
    return y, *_row_shapes(x, w.shape[0], False, grows)[2:], *_weight_shapes(w, transposed, False, passes)[2:]


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
        _expect(main_grad, w.shape, "main_grad", torch.float32)
    return _gemm(x.contiguous(), w, offset, main_grad, bool(transposed), w.requires_grad, x.requires_grad)[0]
