"""quack's kernels (SonicMoE's grouped GEMMs) compiled ahead of time for Hopper, on a machine without a GPU, for bench_quack.py.

    pip install nvidia-cutlass-dsl==4.4.2 'apache-tvm-ffi<0.2'; pip install --no-deps quack-kernels==0.3.11
    python3 kernels/bench/quack_objects.py OBJECTS [NAME ...]     NAMEs: what is made, all of them when none is given; about 8 s each
    nvcc -shared -o quack.so OBJECTS/*.o .../libcuda_dialect_runtime_static.a .../libtvm_ffi.so; ls OBJECTS | sed -n 's/\\.o$//p' > quack.names

Both libraries are in the packages above. PyTorch and Triton are stand-ins: nothing of them is called.
"""
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import types

os.environ.update(CUTE_DSL_ARCH="sm_90a", QUACK_ARCH="90", QUACK_CACHE_ENABLED="0")


class _Anything(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _anything(name)

    def __or__(cls, other):
        return cls

    __ror__ = __or__


def _anything(name):
    """A class that any annotation or decorator takes."""
    return _Anything(name, (), {"__init__": lambda self, *a, **k: None, "__class_getitem__": classmethod(lambda cls, key: cls),
                                "__call__": lambda self, *a, **k: a[0] if a and callable(a[0]) else self})


class _Absent(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        setattr(self, name, _anything(name))
        return getattr(self, name)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if name.split(".")[0] in ("torch", "triton") else None

    def create_module(self, spec):
        return _Absent(spec.name)

    def exec_module(self, module):
        pass


def jobs():
    sys.meta_path.insert(0, _Finder())
    package = types.ModuleType("quack")  # without its __init__, which compiles kernels of another kind
    package.__path__ = list(importlib.util.find_spec("quack").submodule_search_locations)
    sys.modules["quack"] = package
    from cutlass import BFloat16, Float32
    from cutlass.base_dsl.compiler import Compiler
    Compiler._check_cuda_dependencies_once = lambda self, libraries: None  # it asks for a driver
    from quack.gemm import _compile_gemm
    from quack.gemm_act import _compile_gemm_act
    from quack.gemm_dact import _compile_gemm_dact
    from quack.rounding import RoundingMode
    bf16, hopper, made = BFloat16, (9, 0), {}
    tiles = [(128, 192, 2, 1, True), (128, 192, 1, 2, True), (128, 256, 2, 1, False), (128, 256, 1, 2, False), (256, 128, 2, 1, False),
             (256, 192, 2, 1, False), (128, 208, 2, 1, True), (192, 128, 2, 1, True)]
    gathering = [t for t in tiles if t[3] == 1 and t[1] % 32 == 0]

    def add(kind, tile, compiled):
        down, across, *cluster, pingpong = tile
        made[f"{kind}_{down}x{across}_{cluster[0]}{cluster[1]}{'pp' if pingpong else 'co'}"] = lambda: compiled(
            ((down, across), (*cluster, 1), pingpong, True, False))

    def plain(a, b, d, weights, gathers):
        return lambda how: _compile_gemm(bf16, bf16, bf16, None, a, b, d, None, *how, None, None, 0, 0, 0, False, (), not weights, weights, gathers,
                                         False, False, hopper, RoundingMode.RN, 0, False)
    for tile in tiles:
        add("rows_k", tile, plain("k", "k", "n", False, False)), add("rows_n", tile, plain("k", "n", "n", False, False))
        add("weights", tile, plain("m", "n", "n", True, False))
    for tile in gathering:
        add("gweights_n", tile, plain("m", "n", "n", True, True)), add("gweights_m", tile, plain("m", "n", "m", True, True))
        add("gated", tile, lambda how: _compile_gemm_act(bf16, bf16, bf16, None, bf16, "k", "k", "n", None, "n", *how, "swiglu", None, None, 0, True,
                                                         True, (), hopper, "gated"))
    for tile in [(128, n, 2, 1, True) for n in (128, 160, 192)] + [(m, n, 2, 1, False) for m, n in ((128, 256), (256, 128), (128, 128), (256, 192))]:
        add("dgated_n", tile, lambda how: _compile_gemm_dact(bf16, bf16, Float32, Float32, bf16, bf16, "k", "n", "n", "n", "n", *how, "swiglu",
                                                             Float32, 1, Float32, 2, True, True, hopper, "dgated"))
    return made


def main():
    folder, *names = sys.argv[1:]
    made = jobs()
    os.makedirs(folder, exist_ok=True)
    for name in names or made:
        made[name]().export_to_c(object_file_path=os.path.join(folder, name + ".o"), function_name=name)
        print(name, flush=True)


if __name__ == "__main__":
    main()
