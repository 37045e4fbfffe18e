"""The entry in C of Spillway's operators for PyTorch: spw_torch_run, an operation by its name and arrays by their places (docs/torch.md)."""
import ctypes

import torch

_OPERATIONS = ("plan", "forward", "input_gradient", "weight_gradient", "up", "down_gradient", "combine", "row_sums",
               "float8_rows", "float8_weights", "float8_product", "float8_weight_gradient", "float8_activation", "float8_slopes")
_PRODUCTS = ("forward", "input_gradient", "weight_gradient", "up", "down_gradient")  # first two operands and a result may be views
_PLAIN = _PRODUCTS[:3]
ELEMENTS = (torch.bfloat16, torch.float32, torch.float16)  # by their numbers in the entry
_library = None


class _Call(ctypes.Structure):
    _fields_ = ([(name, ctypes.c_int) for name in ("operation", "device", "element", "transposed", "gathers", "activation", "pairs",
                                                       "multiprocessors")]
                + [(name, ctypes.c_float) for name in ("limit", "alpha")]
                + [(name, ctypes.c_size_t) for name in ("experts", "rows", "in", "out", "tokens", "top_k")]
                + [("stride_" + name, ctypes.c_size_t) for name in ("left", "right", "result", "expert", "h", "d_h")]
                + [("operand", ctypes.c_void_p * 6), ("result", ctypes.c_void_p * 5), ("stream", ctypes.c_void_p)])


def register(library):
    """Loads what `bash kernels/build.sh torch-cuda`, `torch-amd` or `torch` builds; once, before the first call."""
    global _library
    loaded = ctypes.CDLL(library)
    if not hasattr(loaded, "spw_torch_run"):
        raise ValueError(f"{library} has no spw_torch_run; what `kernels/build.sh torch` builds would be right")
    loaded.spw_torch_run.restype = ctypes.c_char_p
    loaded.spw_torch_run.argtypes = [ctypes.POINTER(_Call)]
    _library = loaded


def is_view(array):
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


def aligned(array):
    """An operand, copied where on a GPU its first element is at no place of 16 bytes: a slice of choices' weights may begin anywhere."""
    if array is None or array.device.type == "cpu" or array.data_ptr() % 16 == 0:
        return array
    return array.clone(memory_format=torch.contiguous_format)


def _strides(**arrays):
    """From row to row, and of three dimensions from expert to expert; nothing of what is packed."""
    said = {}
    for name, array in arrays.items():
        if not array.is_contiguous():
            said["stride_" + name] = array.stride(-2) if array.shape[-2] > 1 else array.shape[-1]
            if array.dim() == 3 and array.shape[0] > 1:
                said["stride_expert"] = array.stride(0)
    return said


def run(operation, operands, results, *, device, dtype=torch.bfloat16, **sizes):
    if _library is None:
        raise RuntimeError("no library; spillway_torch.register(\"libspillway_torch.so\") first would be right")
    if dtype not in ELEMENTS:
        raise ValueError(f"{dtype}; bfloat16 or float16, on a CPU also float32, would be right")
    views = ()
    operands = tuple(aligned(a) for a in operands)
    if operation in _PRODUCTS:
        operands = (*(a if is_view(a) else a.contiguous() for a in operands[:2]), *operands[2:])
        result = results[1] if operation in ("up", "down_gradient") or results[0] is None else results[0]
        views = (*operands[:2], result)
        sizes.update(_strides(left=views[0], right=views[1], result=result))
        if operation in _PLAIN and not all(view.numel() for view in views):  # sums of nothing: a rank to which no row came
            if results[0] is not None:
                results[0].zero_()
            return
    for array in (*operands, *results):
        taken = array is None or array.is_contiguous() or (any(array is view for view in views) and is_view(array))
        if not taken or (array is not None and array.device != device):
            raise ValueError(f"an array of {tuple(array.shape)} on {array.device} with strides {array.stride()}; contiguous on {device} "
                             "would be right")
    call = _Call(operation=_OPERATIONS.index(operation), device=-1, element=ELEMENTS.index(dtype), **sizes)
    call.operand = (ctypes.c_void_p * 6)(*(None if a is None else a.data_ptr() for a in operands))
    call.result = (ctypes.c_void_p * 5)(*(None if a is None else a.data_ptr() for a in results))
    if device.type == "cpu":
        message = _library.spw_torch_run(ctypes.byref(call))
    else:
        with torch.cuda.device(device):
            call.device, call.stream = torch.cuda.current_device(), torch.cuda.current_stream().cuda_stream
            message = _library.spw_torch_run(ctypes.byref(call))
    if message is not None:
        raise RuntimeError(message.decode())


def widths(w, transposed):
    """in, out of weights [experts][in][out], transposed [experts][out][in]."""
    if w.dim() != 3:
        raise ValueError(f"weights are {w.dtype} {tuple(w.shape)}; three dimensions, the experts first, would be right")
    return (w.shape[2], w.shape[1]) if transposed else (w.shape[1], w.shape[2])


def expect(array, shape, what, dtype=None):
    if tuple(array.shape) != tuple(shape) or (dtype is not None and array.dtype != dtype):
        raise ValueError(f"{what} is {array.dtype} {tuple(array.shape)}; {dtype or array.dtype} {tuple(shape)} would be right")
