#!/usr/bin/env python3
"""What spillway_moe.capture.torch takes from what a router returns, with a stand-in for PyTorch of numpy arrays: the real one is only there
in long runs (capture_torch.py). Ids with and without weights, scores, Megatron's map, logits alone; who asks for weights that are not there
is told so, and the step is not written.
capture_routers.py SCRATCH SOURCE"""
import pathlib
import shutil
import sys
import types

import h5py
import numpy as np

scratch, source = pathlib.Path(sys.argv[1]).resolve() / "capture_routers", pathlib.Path(sys.argv[2]).resolve()
checks = 0


class Tensor:
    is_cuda = False

    def __init__(self, data):
        self.data = np.asarray(data)
        self.shape, self.dtype = self.data.shape, self.data.dtype

    def __len__(self):
        return len(self.data)

    def dim(self):
        return self.data.ndim

    def reshape(self, *shape):
        return Tensor(self.data.reshape(*shape))

    def is_floating_point(self):
        return self.dtype.kind == "f"

    def long(self):
        return Tensor(self.data.astype("i8"))

    def float(self):
        return Tensor(self.data.astype("f4"))

    def to(self, dtype):
        return Tensor(self.data.astype(dtype))

    def gather(self, axis, at):
        return Tensor(np.take_along_axis(self.data, at.data, axis))

    def topk(self, count, axis):
        order = np.argsort(-self.data, axis, kind="stable")[:, :count]
        return Top(Tensor(np.take_along_axis(self.data, order, axis)), Tensor(order))

    def clone(self):
        return Tensor(self.data.copy())

    detach = clone

    def numpy(self):
        return self.data

    def numel(self):
        return self.data.size

    def element_size(self):
        return self.dtype.itemsize


class Top(tuple):
    def __new__(cls, values, indices):
        made = super().__new__(cls, (values, indices))
        made.indices = indices
        return made


class Module:
    def __init__(self, **children):
        self.children, self.before, self.after = children, [], []

    def named_modules(self, prefix=""):
        yield prefix, self
        for name, child in self.children.items():
            yield from child.named_modules(f"{prefix}.{name}" if prefix else name)

    def register_forward_hook(self, hook):
        self.after.append(hook)
        return types.SimpleNamespace(remove=lambda: self.after.remove(hook))

    def register_forward_pre_hook(self, hook):
        self.before.append(hook)
        return types.SimpleNamespace(remove=lambda: self.before.remove(hook))

    def __call__(self, *inputs):
        for hook in self.before:
            hook(self, inputs)
        output = self.forward(*inputs)
        for hook in self.after:
            hook(self, inputs, output)
        return output


class Linear(Module):
    pass


plain = lambda value: value.data if isinstance(value, Tensor) else value
torch = types.ModuleType("torch")
torch.Tensor, torch.bool, torch.int32, torch.inf = Tensor, np.dtype(bool), "i4", np.inf
torch.nn = types.SimpleNamespace(Linear=Linear, Module=Module)
torch.no_grad = lambda: (lambda function: function)
torch.where = lambda *parts: Tensor(np.where(*map(plain, parts)))
torch.isfinite = lambda tensor: Tensor(np.isfinite(tensor.data))
sys.modules["torch"] = torch
sys.path.insert(0, str(source / "python"))
from spillway_moe.capture import Capture
from spillway_moe.capture.torch import routers, watch

EXPERTS, TOP_K, TOKENS = 6, 2, 5
draw = np.random.default_rng(33)
IDS = np.array([draw.permutation(EXPERTS)[:TOP_K] for _ in range(TOKENS)])
SCORES = draw.permutation(TOKENS * EXPERTS).reshape(TOKENS, EXPERTS).astype("f4") / 64
WEIGHTS = np.arange(1, 1 + TOKENS * TOP_K).reshape(TOKENS, TOP_K).astype("f4") / 16
MAP = np.zeros((TOKENS, EXPERTS), bool)
np.put_along_axis(MAP, IDS, True, 1)
MAP[3, IDS[3, 0]] = False  # capacity has taken one choice
BEST = np.argsort(-SCORES, 1)[:, :TOP_K]


def check(good, what):
    global checks
    checks += 1
    if not good:
        sys.exit(f"capture_routers: {what}")


def raises(words, act):
    try:
        act()
    except ValueError as error:
        check(words in str(error), f"wanted '{words}', got '{error}'")
    else:
        check(False, f"nothing was raised; wanted '{words}'")


class TopKRouter(Module):
    forward = None


def router_of(output):
    router = TopKRouter()
    router.forward = lambda *_: output
    return router


def model_of(*modules, dense=()):
    """Layers 0 and up; a layer is its router beside its experts."""
    layers = Module(**{str(i): Module(mlp=Module(gate=m, experts=Module())) for i, m in enumerate(modules)}, **{str(i): Module(gate=Linear()) for i in dense})
    model = Module(layers=layers)
    model.forward = lambda *_: [m() for m in modules]
    return model


def captured(name, output, weights):
    """The ids and weights that a trace of one step has, of two layers of which the second has its tokens in reverse."""
    back = lambda value: tuple(map(back, value)) if isinstance(value, tuple) else Tensor(np.flip(value.data, max(0, value.dim() - 2))) if isinstance(value, Tensor) else value
    folder = scratch / name
    with Capture(folder, experts=EXPERTS, top_k=TOP_K, layers=[0, 1], rank=0, weights=weights) as capture:
        handles = watch(model := model_of(router_of(output), router_of(back(output)), dense=(2,)), capture)
        with capture.step(0):
            model()
        for handle in handles:
            handle.remove()
        model()  # nobody watches any more
    (path,) = folder.iterdir()
    with h5py.File(path) as h:
        ids = h["tokens/expert_id"][:].astype("i4")
        ids[ids == h["tokens/expert_id"].attrs["missing_value"]] = -1
        check(("tokens/weight" in h) == weights, f"{name}: weights")
        return ids, h["tokens/weight"][:] if weights else None


def same(name, output, ids, weight):
    for weights in (False, True) if weight is not None else (False,):
        got_ids, got = captured(f"{name}_{weights}", output, weights)
        check(got_ids.size == 2 * TOKENS * TOP_K, f"{name}: {got_ids.shape}")
        by_layer = got_ids.reshape(TOKENS, 2, TOP_K) if got_ids.shape[0] == TOKENS else got_ids.reshape(2, TOKENS, TOP_K).swapaxes(0, 1)
        got = None if got is None else got.reshape(TOKENS, 2, TOP_K) if got.shape[0] == TOKENS else got.reshape(2, TOKENS, TOP_K).swapaxes(0, 1)
        for layer, turn in ((0, slice(None)), (1, slice(None, None, -1))):
            check((by_layer[:, layer] == ids[turn]).all(), f"{name}, layer {layer}: {by_layer[:, layer]}, not {ids[turn]}")
            if got is not None:
                check(np.allclose(got[:, layer], np.where(ids >= 0, weight, 0)[turn], rtol=1e-3), f"{name}, layer {layer}: {got[:, layer]}, not {weight[turn]}")
    if weight is not None:
        return
    folder = scratch / f"{name}_refused"
    with Capture(folder, experts=EXPERTS, top_k=TOP_K, layers=[0, 1], rank=0, weights=True) as capture:
        watch(model := model_of(router_of(output), router_of(output)), capture)

        def step():
            with capture.step(0):
                model()
        raises("the router of layer 0 returns no weights; Capture(weights=False) would be right", step)
        model()  # outside of a step nobody is asked
        capture.expected = 0
    check(list(folder.iterdir()) == [], f"{name}: a step without weights was written")


def main():
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    ids, scores, weights = Tensor(IDS), Tensor(SCORES), Tensor(WEIGHTS)
    same("ids", ids, IDS, None)
    same("pair", (weights, ids), IDS, WEIGHTS)
    same("scores", (scores, ids), IDS, np.take_along_axis(SCORES, IDS, 1))
    same("both", (scores, weights, ids), IDS, WEIGHTS)
    same("logits", scores, BEST, None)
    same("batch", (Tensor(WEIGHTS[None]), Tensor(IDS[None]), "a word", Tensor(np.arange(3))), IDS, WEIGHTS)
    held = np.where(MAP, SCORES, -np.inf)
    order = np.argsort(-held, 1)[:, :TOP_K]
    kept = np.where(np.isfinite(np.take_along_axis(held, order, 1)), order, -1)
    same("map", (scores, Tensor(MAP)), kept, np.take_along_axis(SCORES, order, 1))

    named = [name for name, _ in routers(model_of(Linear(), router_of(ids), dense=(2, 3)))]
    check(named == ["layers.0.mlp.gate", "layers.1.mlp.gate"], f"a linear layer counts beside experts alone: {named}")
    with Capture(scratch / "none", experts=EXPERTS, top_k=TOP_K, layers=[0], rank=0, weights=False) as capture:
        raises("several routers of one layer", lambda: watch(Module(a=Module(**{"0": router_of(ids)}), b=Module(**{"0": router_of(ids)})), capture))
        raises("routers of layers [0, 1] were found, the capture was told of [0]", lambda: watch(model_of(router_of(ids), router_of(ids)), capture))
        raises("has no number of a layer", lambda: watch(Module(a=router_of(ids)), capture))
        watch(model := model_of(router_of(Tensor(SCORES[:, 1:]))), capture)

        def step():
            with capture.step(0):
                model()
        raises(f"neither {TOP_K} choices nor {EXPERTS} scores a token", step)
    print(f"capture_routers: {checks} checks")


main()
