"""quack's grouped GEMMs (SonicMoE's), torch's and ours in one process, and SonicMoE's layer beside ours, on one H100 or H200.

    bash kernels/build.sh gemm; bash kernels/build.sh torch-cuda
    python3 kernels/bench/bench_quack.py QUACK.so [--sonic SONIC_MOE] [--only products,layers] [--runs 9] > quack.csv

QUACK.so is what quack_objects.py makes ahead of time, without a GPU. SONIC_MOE is the unpacked wheel of sonic-moe; its sums of rows and its
routing are in Triton. quack is the fastest of the tiles that are in QUACK.so, and a row names it. Others of ours are tiles, forced.
A layer begins with choices and weights of the router: the plan of rows is inside on both sides. Layers are replayed from CUDA graphs, so that
no Python is timed. Ceilings are those of bench_same_run.py, of this run.
"""
import argparse
import ctypes
import os
import sys
import types

import torch
import tvm_ffi
from torch.nn.functional import grouped_mm

from bench_same_run import ceilings, offsets, rounds
from bench_same_run import worst as worst_of_all
from gemm_library import FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, GemmLibrary, _Variant

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "torch"))
import spillway_torch  # noqa: E402

OPERATIONS = {FORWARD: "forward", INPUT_GRADIENT: "input gradient", WEIGHT_GRADIENT: "weight gradient"}
SHAPES = [  # name, experts, rows, in, out, routings
    ("deepseek-v3 gate and up", 32, 65536, 7168, 4096, ("uniform", "zipf1.2", "hot50%")),
    ("deepseek-v3 down", 32, 65536, 2048, 7168, ("uniform",)),
    ("deepseek-v3 down of 256", 256, 65536, 2048, 7168, ("uniform", "zipf1.2")),
    ("mixtral gate and up", 8, 32768, 4096, 28672, ("uniform",)),
    ("olmoe gate and up", 64, 65536, 2048, 2048, ("uniform",)),
    ("olmoe down", 64, 65536, 1024, 2048, ("uniform",)),
    ("gpt-oss gate and up", 32, 32768, 2880, 5760, ("uniform",)),
    ("gpt-oss down", 32, 32768, 2880, 2880, ("uniform",)),
    ("qwen3-30b gate and up", 128, 65536, 2048, 1536, ("uniform", "hot50%")),
    ("qwen3-30b down", 128, 65536, 768, 2048, ("uniform",)),
    ("fine-7b up", 128, 196608, 1536, 512, ("uniform",)),
    ("fine-7b down", 128, 196608, 256, 1536, ("uniform",)),
    ("fine-30b up", 128, 262144, 4096, 1024, ("uniform",)),
    ("fine-30b down", 128, 262144, 512, 4096, ("uniform",)),
    ("128 rows an expert", 32, 4096, 7168, 4096, ("equal",)),
    ("256 rows an expert", 32, 8192, 7168, 4096, ("equal",)),
]
LAYERS = [("fine-7b", 24576, 1536, 256, 128, 8), ("fine-30b", 32768, 4096, 512, 128, 8), ("fine-120b", 32768, 4096, 1024, 128, 8),
          ("fine-120b-k4", 32768, 4096, 2048, 64, 4), ("qwen3-30b-a3b", 4096, 2048, 768, 128, 8)]
BF16 = {"device": "cuda", "dtype": torch.bfloat16}


def worst(ours, theirs):
    """Of at most 2^26 elements, spread over both."""
    step = 1 + (ours.numel() >> 26)
    return worst_of_all(ours.flatten()[::step], theirs.flatten()[::step])


class Quack:
    """Functions named KIND_MxN_CLUSTER and pp or co, e.g. rows_k_128x192_21pp."""

    def __init__(self, path):
        self._module = tvm_ffi.load_module(os.path.abspath(path))
        with open(os.path.splitext(path)[0] + ".names", encoding="ascii") as names:
            self.names = names.read().split()

    def tiles(self, kind):
        return [name for name in self.names if name.rsplit("_", 2)[0] == kind]

    def call(self, name, a, b, d, c, epilogue, varlen):
        clusters = torch.cuda.get_device_properties(0).multi_processor_count // 2
        with tvm_ffi.use_torch_stream():
            self._module[name](a, b, d, c, epilogue, (clusters, None, 8, None, None), varlen, None)

    def plain(self, name, a, b, d, rows=None, terms=None, gathered=None):
        self.call(name, a, b, d, None, (None,) * 7, (rows, terms, gathered))


def forced(library, symbol):
    """A variant that is one launcher of the library."""
    launch = ctypes.cast(getattr(library._library, symbol), ctypes.c_void_p)
    other = object.__new__(GemmLibrary)
    other.__dict__.update(library.__dict__)
    other._kept = _Variant(symbol.encode(), launch)
    other._variant = ctypes.byref(other._kept)
    return other


def products(quack, ours, rates, runs, operations):
    print("part,what,shape,routing,experts,rows,in,out,ours ms,ours TFLOP/s,of the limit,torch / ours,quack / ours,quack's tile,"
          "difference,others of ours,all of quack")
    for name, experts, rows, inner, out, routings in SHAPES:
        x, dy = torch.empty(rows, inner, **BF16), torch.empty(rows, out, **BF16)
        w = torch.empty(experts, out, inner, **BF16)
        for routing in routings:
            offset = offsets(experts, rows, routing)
            for operation, what in [(o, OPERATIONS[o]) for o in operations]:
                left, right = (x if operation != INPUT_GRADIENT else dy), (dy if operation == WEIGHT_GRADIENT else w)
                result = torch.empty(*((rows, out), (rows, inner), w.shape)[operation], **BF16)
                kept = {}

                def by_torch(operation=operation, offset=offset, kept=kept):
                    kept["torch"] = (grouped_mm(x, w.transpose(1, 2), offs=offset[1:]) if operation == FORWARD else
                                     grouped_mm(dy, w, offs=offset[1:]) if operation == INPUT_GRADIENT else
                                     grouped_mm(dy.t(), x, offs=offset[1:]))
                calls = {"torch": by_torch}
                for label, library in ours.items():
                    calls[label] = lambda library=library: library.product(operation, left, right, offset, result, experts, inner, out, True)
                kind = ("rows_k", "rows_n", "weights")[operation]
                for tile in quack.tiles(kind):
                    if operation == FORWARD:
                        calls[tile] = lambda tile=tile: quack.plain(tile, x, w.permute(1, 2, 0), result, rows=offset)
                    elif operation == INPUT_GRADIENT:
                        calls[tile] = lambda tile=tile: quack.plain(tile, dy, w.permute(2, 1, 0), result, rows=offset)
                    else:
                        calls[tile] = lambda tile=tile: quack.plain(tile, dy.t(), x.t(), result.permute(1, 2, 0), terms=offset)
                fresh = lambda: (left.normal_(), right.normal_())
                fresh(), by_torch()
                off = {}
                for who in [c for c in calls if c != "torch"]:
                    result.fill_(float("nan"))
                    calls[who]()
                    off[who] = worst(result, kept["torch"])
                ms = rounds(fresh, calls, runs)
                best = min(quack.tiles(kind), key=ms.get)
                work, moved = 2 * rows * inner * out, 2 * (left.numel() + right.numel() + result.numel())
                limit = max(moved / rates[0], work / rates[1]) * 1e3
                mine = ms["ours"]
                print(f"product,{what},{name},{routing},{experts},{rows},{inner},{out},{mine:.4f},{1e-9 * work / mine:.1f},{limit / mine:.3f},"
                      f"{ms['torch'] / mine:.3f},{ms[best] / mine:.3f},{best[len(kind) + 1:]},{max(off.values()):.1e},"
                      + " ".join(f"{o[5:].replace(' ', '_')}={ms[o]:.4f}" for o in ours if o != "ours" and o in ms) + ","
                      + " ".join(f"{t[len(kind) + 1:]}={ms[t]:.4f}" for t in quack.tiles(kind)), flush=True)
                del result, kept


# ---- layers ----------------------------------------------------------------------------------------------------------
def sonic_kernels(folder):
    """sonic-moe's Triton kernels without its package, which wants CuTe DSL."""
    for name in ("sonicmoe", "sonicmoe.functional"):
        package = types.ModuleType(name)
        package.__path__ = [os.path.join(folder, *name.split("."))]
        sys.modules[name] = package
    utils = types.ModuleType("sonicmoe.utils")
    utils.get_powers_of_2 = lambda first, last: [1 << i for i in range(first.bit_length() - 1, last.bit_length())]
    sys.modules["sonicmoe.utils"] = utils
    from sonicmoe.functional.reduction_over_k_gather import token_gather_and_sum_varlen_K_triton
    from sonicmoe.functional.triton_kernels import TC_topk_router_metadata_triton
    return token_gather_and_sum_varlen_K_triton, TC_topk_router_metadata_triton


class Sonic:
    """The sequence of sonic-moe's functional/forward.py and backward.py."""

    def __init__(self, quack, kernels, batch):
        self.quack, (self.sum_rows, self.metadata), self.b = quack, kernels, batch
        rows, b = batch.tokens * batch.top_k, batch
        self.index = [torch.empty(n, dtype=torch.int32, device="cuda") for n in (b.experts, b.experts + 1, rows, rows, rows)]
        self.h, self.d_h = torch.empty(rows, 2 * b.ffn, **BF16), torch.empty(rows, 2 * b.ffn, **BF16)
        self.act, self.act_weighted = torch.empty(rows, b.ffn, **BF16), torch.empty(rows, b.ffn, **BF16)
        self.y_rows, self.y, self.dx = torch.empty(rows, b.hidden, **BF16), torch.empty_like(b.x), torch.empty_like(b.x)
        self.d_up, self.d_down = torch.empty_like(b.w_up), torch.empty_like(b.w_down)
        self.d_weight = torch.empty(rows, device="cuda")
        pairs = b.w_up.view(b.experts, 2, b.ffn, b.hidden).transpose(1, 2)
        self.w_up = pairs.reshape(b.w_up.shape).contiguous()  # gate and up in turn
        self.tile, self.other = {}, torch.empty(1 << 28, dtype=torch.uint8, device="cuda")

    def step(self, kind, call):
        if kind not in self.tile:
            times = rounds(self.other.zero_, {t: (lambda t=t: call(t)) for t in self.quack.tiles(kind.split(" ")[0])}, 5)
            self.tile[kind] = min(times, key=times.get)
        call(self.tile[kind])

    def forward(self):
        b, (count, offset, token, scatter, back) = self.b, self.index
        self.metadata(b.expert, b.experts, count, offset, token, scatter, back)
        self.step("gated", lambda t: self.quack.call(t, b.x, self.w_up.permute(1, 2, 0), self.h, None,
                                                     (self.act, None, None, None, None, None, None, None), (offset, None, token)))
        self.step("rows_k", lambda t: self.quack.plain(t, self.act, b.w_down.permute(1, 2, 0), self.y_rows, rows=offset))
        self.sum_rows(self.y_rows, b.weight.view(-1), self.y, back, None, b.tokens, b.top_k, b.hidden, False)

    def down_gradient(self, tile, weight):
        b, (_, offset, token, _, _) = self.b, self.index
        across = int(tile.rsplit("_", 2)[1].split("x")[1])
        part = torch.empty(b.tokens * b.top_k, -(-b.ffn // across), device="cuda")
        self.quack.call(tile, b.dy, b.w_down.permute(2, 1, 0), self.d_h.view(torch.float32), self.h.view(torch.float32),
                        (self.act_weighted, None, None, None, None, weight, part, None, None), (offset, None, token))
        return part.sum(-1)

    def backward(self):
        b, (_, offset, token, scatter, back) = self.b, self.index
        weight = b.weight.view(-1)[scatter]
        kept = {}
        self.step("dgated_n", lambda t: kept.update(sums=self.down_gradient(t, weight)))
        self.d_weight[scatter] = kept["sums"]
        self.step("gweights_n", lambda t: self.quack.plain(t, b.dy.t(), self.act_weighted.t(), self.d_down.permute(1, 2, 0), terms=offset,
                                                           gathered=token))
        self.step("rows_n", lambda t: self.quack.plain(t, self.d_h, self.w_up.permute(2, 1, 0), self.y_rows, rows=offset))
        self.step("gweights_m", lambda t: self.quack.plain(t, b.x.t(), self.d_h.t(), self.d_up.permute(2, 1, 0), terms=offset, gathered=token))
        self.sum_rows(self.y_rows, None, self.dx, back, None, b.tokens, b.top_k, b.hidden, False)

    def results(self):
        b = self.b
        d_up = self.d_up.view(b.experts, b.ffn, 2, b.hidden).transpose(1, 2).reshape(b.w_up.shape)
        return self.y, self.dx, self.d_weight.view(b.weight.shape), d_up, self.d_down


class Ours:
    def __init__(self, batch):
        self.b = batch

    def forward(self):
        b = self.b
        choice = spillway_torch._plan(b.expert, b.experts)
        self.layer = spillway_torch._Layer(b.x, b.w_up, b.w_down, None, choice, True, True, [0.0] * 5)  # SwiGLU
        self.y, self.h = self.layer.forward(b.weight)

    def backward(self):
        b = self.b
        self.d_up, self.d_down = torch.empty_like(b.w_up), torch.empty_like(b.w_down)
        self.dx, self.d_weight, _ = self.layer.backward(b.dy, b.weight, self.h, self.d_up, self.d_down)

    def results(self):
        return self.y, self.dx, self.d_weight, self.d_up, self.d_down


def graph_of(work):
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


def layers(quack, kernels, runs):
    print("part,layer,who,forward ms,backward ms,forward: this / ours,backward: this / ours,differences (y dx dweight dup ddown),tiles")
    for name, tokens, hidden, ffn, experts, top_k in LAYERS:
        b = types.SimpleNamespace(tokens=tokens, hidden=hidden, ffn=ffn, experts=experts, top_k=top_k)
        b.x, b.dy = torch.randn(tokens, hidden, **BF16), torch.randn(tokens, hidden, **BF16)
        b.w_up = torch.randn(experts, 2 * ffn, hidden, **BF16).mul_(hidden ** -0.5)
        b.w_down = torch.randn(experts, hidden, ffn, **BF16).mul_(ffn ** -0.5)
        chosen = torch.rand(tokens, experts, device="cuda").topk(top_k, 1)
        b.expert, b.weight = chosen.indices.to(torch.int32), torch.rand(tokens, top_k, device="cuda")
        who = {"ours": Ours(b)}
        if kernels is not None:
            who["sonic"] = Sonic(quack, kernels, b)
        calls = {}
        for label, layer in who.items():
            layer.forward(), layer.backward()
            layer.forward(), layer.backward()
            try:
                calls[label + " forward"] = graph_of(layer.forward)
                calls[label + " backward"] = graph_of(layer.backward)
            except RuntimeError as error:
                print(f"{label} is not replayed: {error}", file=sys.stderr)
                calls[label + " forward"], calls[label + " backward"] = layer.forward, layer.backward
        ms = rounds(lambda: (b.x.normal_(), b.dy.normal_()), calls, runs)
        for call in calls.values():
            call()
        torch.cuda.synchronize()
        for label, layer in who.items():
            off = " ".join(f"{worst(a, o):.1e}" for a, o in zip(layer.results(), who["ours"].results()))
            f, g = ms[label + " forward"], ms[label + " backward"]
            tiles = " ".join(f"{k}:{v[len(k) + 1:]}" for k, v in getattr(layer, "tile", {}).items())
            print(f"layer,{name},{label},{f:.4f},{g:.4f},{f / ms['ours forward']:.3f},{g / ms['ours backward']:.3f},{off},{tiles}", flush=True)
        del who, calls, b, layer, call
        torch.cuda.empty_cache()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("quack", metavar="QUACK.so")
    parser.add_argument("--sonic", metavar="SONIC_MOE")
    parser.add_argument("--only", default="layers,products")
    parser.add_argument("--operations", default="forward,input,weight", help="of products")
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--gemm", default="build/kernels/libspillway_gemm.so")
    parser.add_argument("--before", metavar="LIBRARY.so", help="products of this one are timed, too")
    parser.add_argument("--torch", default="build/kernels/libspillway_torch_cuda.so")
    arguments = parser.parse_args()
    quack, library = Quack(arguments.quack), GemmLibrary(arguments.gemm)
    spillway_torch.register(arguments.torch)
    rates, parts = ceilings(), arguments.only.split(",")
    if "layers" in parts:
        layers(quack, sonic_kernels(arguments.sonic) if arguments.sonic else None, arguments.runs)
    if "products" in parts:
        others = {"ours 192": forced(library, "spw_launch_gemm_pingpong")}
        if arguments.before:
            others["ours before"] = GemmLibrary(arguments.before)
        products(quack, {"ours": library, **others}, rates,
                 arguments.runs, [o for o, what in OPERATIONS.items() if what.split()[0] in arguments.operations.split(",")])
    ceilings()


if __name__ == "__main__":
    main()
