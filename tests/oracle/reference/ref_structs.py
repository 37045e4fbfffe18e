"""The reference's structs as ctypes, for tests that call it from Python, held against the compiler's own layout.

    ref_structs.py REF_STRUCTS

REF_STRUCTS (ref_structs.c) prints size and offset of every field. A field added in C and not here would shift all
that follow it, and the callee would read noise: this test needs no other package, so it runs everywhere."""
import ctypes
import subprocess
import sys

size = ctypes.c_size_t
pointer = ctypes.c_void_p


class GemmStrides(ctypes.Structure):
    _fields_ = [(name, size) for name in ("left", "right", "result", "expert", "h", "d_h")]


class GemmShape(ctypes.Structure):
    _fields_ = [("experts", size), ("rows", size), ("in", size), ("out", size), ("transposed", ctypes.c_bool),
                ("element", ctypes.c_int), ("multiprocessors", size), ("stride", GemmStrides)]


class Router(ctypes.Structure):
    _fields_ = [("tokens", size), ("experts", size), ("top_k", size), ("score", ctypes.c_int), ("groups", size),
                ("groups_kept", size), ("group_terms", size), ("renormalize", ctypes.c_bool),
                ("scaling", ctypes.c_float)]


class Swiglu(ctypes.Structure):
    _fields_ = [("limit", ctypes.c_float), ("alpha", ctypes.c_float), ("plain", ctypes.c_int), ("gate", ctypes.c_int)]


class MoeShape(ctypes.Structure):
    _fields_ = [("router", Router), ("hidden", size), ("ffn", size), ("shared_ffn", size), ("activation", Swiglu),
                ("auxiliary_coefficient", ctypes.c_double), ("z_coefficient", ctypes.c_double)]


class Three(ctypes.Structure):  # spw_expert_weights, spw_expert_state, spw_expert_gradients
    _fields_ = [("a", pointer), ("b", pointer), ("c", pointer)]


class MoeWeights(ctypes.Structure):
    _fields_ = [("router", pointer), ("bias", pointer), ("routed", Three), ("shared", Three)]


class Plan(ctypes.Structure):
    _fields_ = [("tokens", size), ("top_k", size), ("experts", size), ("rows", size), ("count", pointer),
                ("offset", pointer), ("row", pointer), ("assignment", pointer)]


class MoeState(ctypes.Structure):
    _fields_ = [("logits", pointer), ("score", pointer), ("expert", pointer), ("weight", pointer), ("plan", Plan),
                ("rows", pointer), ("outputs", pointer), ("routed", Three), ("shared", Three),
                ("auxiliary_loss", ctypes.c_double), ("z_loss", ctypes.c_double)]


class MoeGradients(ctypes.Structure):
    _fields_ = [("x", pointer), ("router", pointer), ("routed", Three), ("shared", Three)]


# name in C -> class here and the names of its fields in C, where they differ
C_NAMES = {
    "spw_gemm_shape": (GemmShape, None), "spw_gemm_strides": (GemmStrides, None), "spw_router": (Router, None),
    "spw_swiglu": (Swiglu, None),
    "spw_moe_shape": (MoeShape, None), "spw_moe_weights": (MoeWeights, None), "spw_plan": (Plan, None),
    "spw_moe_state": (MoeState, None), "spw_moe_gradients": (MoeGradients, None),
    "spw_expert_weights": (Three, ("w0", "w1", "wo")), "spw_expert_state": (Three, ("gate", "up", "act")),
    "spw_expert_gradients": (Three, ("w0", "w1", "wo")),
}


def here(kind, names):
    """[(field, offset)] and the size, as ctypes lays the class out."""
    fields = [name for name, *_ in kind._fields_]
    return [(c, getattr(kind, f).offset) for c, f in zip(names or fields, fields)] + [("sizeof", ctypes.sizeof(kind))]


def main():
    said = {}
    for line in subprocess.run([sys.argv[1]], check=True, capture_output=True, text=True).stdout.splitlines():
        struct, field, value = line.split()
        said.setdefault(struct, []).append((field, int(value)))
    assert said.keys() == C_NAMES.keys(), said.keys() ^ C_NAMES.keys()
    wrong = [f"{name}: C {said[name]}, here {here(*mine)}" for name, mine in C_NAMES.items() if said[name] != here(*mine)]
    print("\n".join(wrong) or f"{len(said)} structs are laid out as the compiler does")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
