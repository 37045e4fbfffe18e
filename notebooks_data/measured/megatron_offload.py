"""Megatron-Core's own offload manager on one GPU, around products of experts and a filler in the place of attention: bytes after
every forward pass and at the peak, above those before the step, and seconds of a step. One row a run; the rates of the link on
stderr. Of Megatron-Core the file of the manager alone is loaded, with stand-ins for what it imports.

megatron_offload.py FINE_GRAINED_ACTIVATION_OFFLOAD_PY SECONDS > h200_offload.csv     (NVIDIA/Megatron-LM d98e8a64)"""
import sys
import time
import types

import torch


def stand_in(name, **names):
    module = types.ModuleType(name)
    module.__dict__.update(names)
    sys.modules[name] = module
    return module


class CpuOffload:
    CPUOffloadEnabled = False


for package in ("megatron", "megatron.core", "megatron.core.telemetry", "megatron.core.transformer", "megatron.core.extensions"):
    stand_in(package)
stand_in("megatron.core.telemetry.fallbacks", trace_fn=lambda *_, **__: lambda function: function)
stand_in("megatron.core.transformer.cuda_graphs", is_graph_capturing=lambda: False)
stand_in("megatron.core.utils", nvtx_range_pop=lambda *_: None, nvtx_range_push=lambda *_: None)
stand_in("megatron.core.extensions.transformer_engine", cpu_offload=CpuOffload)
manager = stand_in("manager")
exec(compile(open(sys.argv[1]).read(), sys.argv[1], "exec"), manager.__dict__)
manager.print_offload_summary_table = lambda *_, **__: None
Offload = manager.FineGrainedActivationOffloadingInterface
GPU = dict(device="cuda", dtype=torch.bfloat16)


def rates():
    """10^9 bytes/s of pinned copies: there, back, each of both at once."""
    size = 1 << 30
    gpu, host = ([torch.empty(size, dtype=torch.uint8, **where) for _ in range(2)]
                 for where in ({"device": "cuda"}, {"pin_memory": True}))
    streams = torch.cuda.Stream(), torch.cuda.Stream()

    def timed(copies):
        for repeat in range(6):
            if repeat == 1:
                torch.cuda.synchronize()
                begin = time.perf_counter()
            for way in copies:
                with torch.cuda.stream(streams[way]):
                    (host[0].copy_(gpu[0], non_blocking=True) if way == 0 else gpu[1].copy_(host[1], non_blocking=True))
        torch.cuda.synchronize()
        return 5 * size / (time.perf_counter() - begin) / 1e9
    return {"there": timed([0]), "back": timed([1]), "each of both": timed([0, 1])}


class Product(torch.autograd.Function):
    """Keeps its input; its weight's gradient is added to main_grad."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x)
        ctx.weight = weight
        return x @ weight

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        ctx.weight.main_grad.addmm_(x.t(), gradient)
        return gradient @ ctx.weight.t(), None


class SwiGLU(torch.autograd.Function):
    """Times the router's weights. Keeps its input and these."""

    @staticmethod
    def forward(ctx, x, probs):
        ctx.save_for_backward(x, probs)
        gate, up = x.chunk(2, -1)
        return (torch.nn.functional.silu(gate) * up).mul_(probs.to(x.dtype))

    @staticmethod
    def backward(ctx, gradient):
        x, probs = ctx.saved_tensors
        (gate, up), half = x.chunk(2, -1), x.shape[1] // 2
        sigmoid, out, weighted = torch.sigmoid(gate), torch.empty_like(x), gradient * probs.to(gradient.dtype)
        torch.mul(weighted, gate * sigmoid, out=out[:, half:])
        torch.mul(weighted * up, sigmoid * (1 + gate * (1 - sigmoid)), out=out[:, :half])
        return out, None


class Filler(torch.autograd.Function):
    """Work that keeps nothing: `times` square products of 8192 rows, twice as many backward."""

    @staticmethod
    def forward(ctx, x, weight, times):
        ctx.weight, ctx.times, rows = weight, times, x[:8192]
        for _ in range(times):
            rows = rows @ weight
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        rows = gradient[:8192]
        for _ in range(2 * ctx.times):
            rows = rows @ ctx.weight
        return gradient.clone(), None, None


def passes(stage, stages, micro_batches):
    """(backward, micro-batch) of one stage in 1F1B."""
    warm = min(stages - 1 - stage, micro_batches)
    forward, backward = ([(way, m) for m in range(micro_batches)] for way in (False, True))
    order = forward[:warm]
    for i in range(warm, micro_batches):
        order += [forward[i], backward[i - warm]]
    return order + backward[micro_batches - warm:]


class Job:
    def __init__(self, hidden, ffn, rows, layers, order, modules, fill):
        self.order, self.modules, self.fill = order, modules, fill
        self.square = torch.randn(hidden, hidden, **GPU) / hidden ** 0.5
        self.weights = [[self.weight(hidden, 2 * ffn), self.weight(ffn, hidden)] for _ in range(layers)]
        self.input, self.probs = torch.randn(rows, hidden, **GPU), torch.rand(rows, 1, device="cuda")
        manager.PipelineOffloadManager.reset_instance()

    @staticmethod
    def weight(rows, columns):
        out = torch.randn(rows, columns, **GPU) / rows ** 0.5
        out.main_grad = torch.zeros(rows, columns, **GPU)
        return out

    def forward(self):
        if self.modules:
            Offload.init_chunk_handler(0, None, None, 1 << 20, 0, 1.0)
        x = self.input.detach().requires_grad_(True)
        for fc1, fc2 in self.weights:
            x = Filler.apply(x, self.square, self.fill)
            group = Offload("expert_fc1" in self.modules, x, "expert_fc1")
            with group as x:
                wide = Product.apply(x, fc1)
            wide = group.group_offload(wide, forced_released_tensors=[x])
            del x
            group = Offload("moe_act" in self.modules, wide, "moe_act")
            with group as wide:
                narrow = SwiGLU.apply(wide, self.probs)
            x = Product.apply(narrow, fc2)
            del narrow
            x = group.group_offload(x, forced_released_tensors=[wide])
            del wide
        return x

    def step(self, wait=False):
        outputs, kept = {}, []
        for backward, m in self.order:
            if backward:
                output = outputs.pop(m)
                torch.autograd.backward(output, torch.ones_like(output))
                del output
            else:
                outputs[m] = self.forward()
            if wait:
                torch.cuda.synchronize()
                kept += [] if backward else [torch.cuda.memory_allocated()]
        Offload.reset()
        torch.cuda.synchronize()
        return kept

    def measure(self):
        for _ in range(3):
            self.step()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        kept, seconds = [bytes_ - before for bytes_ in self.step(wait=True)], []
        peak = torch.cuda.max_memory_allocated() - before
        for _ in range(7):
            begin = time.perf_counter()
            self.step()
            seconds.append(time.perf_counter() - begin)
        return kept, peak, sorted(seconds)[3]


print(torch.cuda.get_device_name(), torch.__version__, rates(), file=sys.stderr)
print("hidden,ffn,rows,layers,stages,stage,micro_batches,fill,modules,kept_bytes,peak_bytes,step_s")
end = time.time() + float(sys.argv[2])
for shape in ((2048, 1024, 65536, 8), (4096, 1536, 32768, 6)):
    for pipeline in ((1, 0, 2), (3, 0, 4), (3, 1, 4), (1, 0, 1)):
        for fill in (0, 8):
            for modules in ((), ("expert_fc1",), ("moe_act",), ("expert_fc1", "moe_act")):
                if time.time() > end:
                    sys.exit(0)
                torch.cuda.empty_cache()
                stages, stage, micro_batches = pipeline
                kept, peak, seconds = Job(*shape, passes(stage, stages, micro_batches), modules, fill).measure()
                print(*shape, *pipeline, fill, " ".join(modules) or "none", " ".join(map(str, kept)), peak, f"{seconds:.5f}",
                      sep=",", flush=True)
