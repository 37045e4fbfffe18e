"""Steps of one model under Megatron-Core with TransformerEngine, its cells in turns: every round makes one step of each, so that a cell and
its partner meet the same machine.  One process a rank for all cells of a model.

whole_rounds.py RUNS.json OUT_FOLDER SECONDS [NAME,NAME...]    names of a group run at the same time, on GPUs of their own; groups in turn

A run: name, model (whole_models.json), gpus, expert, rounds, budget (seconds), te settings as in whole_pipelines.py, and cells: name, routing
(whole_routing.py; `fresh` draws anew in every round), micro_batch, micro_batches.  Writes rounds.csv (run x rank x cell x round) and
kernels.csv (run x rank x cell x group of kernels, of one profiled step)."""
import csv
import json
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
DEFAULTS = dict(pipeline=1, virtual=0, expert=1, sequence=4096, layout="", mtp=0, remat="none", spec="te", permute_fusion=True, fused_wgrad=True,
                loss="te", fp8="", rounds=12, budget=40.0, limit=0, quiet=True)
GROUPS = (("exchanges", ("nccl",)), ("attention", ("flash", "fmha", "sdpa", "cudnn")), ("products", ("gemm", "nvjet", "cutlass", "xmma", "sm90_")),
          ("rows", ("permute", "sort_chunks")), ("activation", ("triton", "swiglu", "silu", "gated", "act")),
          ("optimizer", ("adam", "multi_tensor", "l2norm")), ("copies", ("memcpy", "memset", "copy", "fill", "cat")))


def group(name):
    low = name.lower()
    return next((g for g, words in GROUPS if any(w in low for w in words)), "other")


def work(run, lane, rank, folder, out):
    import numpy
    import torch
    import torch.distributed as dist
    import whole_pipelines as whole
    from whole_routing import choices
    whole.imports()
    from megatron.core import parallel_state
    from megatron.core.pipeline_parallel import get_forward_backward_func, schedules
    torch.cuda.set_device(lane[rank])
    begun = time.time()
    while not os.path.exists(f"{folder}/{run['name']}.go"):
        time.sleep(0.05)
    begun = time.time()
    dist.init_process_group("nccl", init_method=f"file://{folder}/{run['name']}.store", rank=rank, world_size=run["gpus"])
    torch.manual_seed(1)
    config, chunks, optimizer = whole.build(run, rank, run["gpus"])
    data, m = parallel_state.get_data_parallel_rank(), whole.MODELS[run["model"]]
    numbers = []
    for c in chunks:
        for _, module in c.named_modules():
            if getattr(module, "router_replay", None) is not None:
                module.router_replay.number = module.layer_number - 1
                numbers.append(module.router_replay.number)
    assert len(set(numbers)) == len(numbers), numbers
    table, most = {}, max(c["micro_batches"] for c in run["cells"])

    def draw(cell, at, step):
        for mb in range(cell["micro_batches"]):
            for layer in numbers:
                ids = choices(cell["routing"], step, mb, layer, data, cell["micro_batch"] * run["sequence"], m["num_experts_per_tok"],
                              m["num_experts"], run["expert"])
                table[at, mb, layer] = torch.from_numpy(numpy.ascontiguousarray(ids)).pin_memory()
    for at, cell in enumerate(run["cells"]):
        draw(cell, at, 3)
    run["micro_batches"] = most
    seen = whole.patch(run, whole.Marks(True), table, 1)
    events = []
    for name in ("forward_step", "backward_step"):
        inner = getattr(schedules, name)

        def timed(*args, inner=inner, name=name, **kwargs):
            a, b, t = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True), time.perf_counter()
            a.record()
            result = inner(*args, **kwargs)
            b.record()
            events.append((name, a, b, time.perf_counter() - t))
            return result
        setattr(schedules, name, timed)

    def step_forward(iterator, model):
        ids, labels, mask, positions = next(iterator)
        output = model(ids, positions, None, labels=labels)

        def loss_of(losses):
            losses, flat = losses.view(-1).float(), mask.view(-1).float()
            loss, count = torch.sum(losses * flat), flat.sum().clone().detach().to(torch.int)
            return loss, count, {"lm loss": torch.cat([loss.clone().detach().view(1), count.view(1)])}
        return output, loss_of
    config.calculate_per_token_loss = False
    function = get_forward_backward_func()

    def batches(cell):
        shape = (cell["micro_batch"], run["sequence"])
        for _ in iter(int, 1):
            ids = torch.randint(0, m["vocab_size"], shape)
            yield (ids.cuda(), ids.roll(-1, 1).cuda(), torch.ones(shape).cuda(), torch.arange(shape[1]).expand(shape).contiguous().cuda())
    iterators = [batches(c) for c in run["cells"]]

    def step(at):
        cell = run["cells"][at]
        whole.STATE.update(step=at, micro_batch=-1, chunk=-1, layer=-1)
        seen.update(forward=0, backward=0)
        events.clear()
        dist.barrier()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for c in chunks:
            c.zero_grad_buffer()
        optimizer.zero_grad()
        function(forward_step_func=step_forward, data_iterator=iterators[at], model=chunks[0], num_microbatches=cell["micro_batches"],
                 seq_length=run["sequence"], micro_batch_size=cell["micro_batch"], forward_only=False)
        torch.cuda.synchronize()
        middle = time.perf_counter()
        optimizer.step()
        torch.cuda.synchronize()
        end = time.perf_counter()
        sums = {f"{kind}_{what}": 1e3 * sum(v for n, v in what_of if n == f"{kind}_step") for what, what_of in
                (("host_ms", [(n, h) for n, _, _, h in events]), ("gpu_ms", [(n, a.elapsed_time(b) / 1e3) for n, a, b, _ in events]))
                for kind in ("forward", "backward")}
        return dict(step_ms=1e3 * (end - begin), optimizer_ms=1e3 * (end - middle), **sums, reserved=torch.cuda.memory_reserved())
    path, fields = f"{out}/rounds.{run['name']}.{rank}.csv", None
    file = open(path, "w")

    def write(rows):
        nonlocal fields
        for r in rows:
            if fields is None:
                fields = list(r)
                file.write(",".join(fields) + "\n")
            file.write(",".join(f"{v:.3f}" if isinstance(v, float) else str(v) for v in r.values()) + "\n")
        file.flush()
    over = torch.zeros(1, device="cuda")
    for turn in range(-2, run["rounds"]):
        for at, cell in enumerate(run["cells"]):
            if cell.get("fresh"):
                draw(cell, at, 100 + turn)
            got = step(at)
            write([dict(run=run["name"], rank=rank, cell=cell["name"], turn=turn, **got)])
        over[0] = time.time() - begun > run["budget"]
        dist.all_reduce(over, op=dist.ReduceOp.MAX)
        if over.item() and turn >= 2:
            break
    with open(f"{out}/kernels.{run['name']}.{rank}.csv", "w") as kernels:
        kernels.write("run,rank,cell,group,kernels,ms\n")
        for at, cell in enumerate(run["cells"]):
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
                got = step(at)
            sums, spans = {}, []
            for e in profile.profiler.kineto_results.events():
                if "cuda" not in str(e.device_type()).lower():
                    continue
                g = sums.setdefault(group(e.name()), [0, 0.0])
                g[0], g[1] = g[0] + 1, g[1] + e.duration_ns() / 1e6
                spans.append((e.start_ns(), e.start_ns() + e.duration_ns()))
            busy, last = 0, 0
            for a, b in sorted(spans):
                busy, last = busy + max(0, b - max(a, last)), max(last, b)
            for g, (n, ms) in sums.items():
                kernels.write(f"{run['name']},{rank},{cell['name']},{g},{n},{ms:.3f}\n")
            kernels.write(f"{run['name']},{rank},{cell['name']},busy,0,{busy / 1e6:.3f}\n")
            kernels.write(f"{run['name']},{rank},{cell['name']},step under the profiler,0,{got['step_ms']:.3f}\n")
            kernels.flush()
    os._exit(0)


def table(out):
    """Medians, fastest, spread: a line a cell."""
    import statistics
    rows = []
    for name in sorted(os.listdir(out)):
        if name.startswith("rounds.") and name.endswith(".0.csv"):
            rows += list(csv.DictReader(open(f"{out}/{name}")))
    for key in dict.fromkeys((r["run"], r["cell"]) for r in rows):
        mine = [r for r in rows if (r["run"], r["cell"]) == key and int(r["turn"]) >= 0]
        if mine:
            t = sorted(float(r["step_ms"]) for r in mine)
            med = {k: statistics.median(float(r[k]) for r in mine) for k in mine[0] if k.endswith("_ms")}
            print(f"{key[0]:10s} {key[1]:14s} n {len(t):2d} median {statistics.median(t):7.1f} fastest {t[0]:7.1f} slowest {t[-1]:7.1f} "
                  + " ".join(f"{k[:-3]} {v:.0f}" for k, v in med.items() if k != "step_ms"), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "child":
        run = json.loads(sys.argv[2])
        try:
            work(run, json.loads(sys.argv[3]), int(sys.argv[4]), sys.argv[5], sys.argv[6])
        except BaseException as e:
            import traceback
            print(run["name"], sys.argv[4], "FAILED", type(e).__name__, str(e)[:400], traceback.format_exc()[-900:], flush=True)
            os._exit(1)
    runs = {r["name"]: dict(DEFAULTS, **r) for r in json.load(open(sys.argv[1]))}
    out, deadline, folder = sys.argv[2], time.time() + float(sys.argv[3]), tempfile.mkdtemp()
    groups = [g.split(",") for g in sys.argv[4:]]

    def start(names):
        children, at = [], 0
        for n in names:
            run = runs[n]
            lane = list(range(at, at + run["gpus"]))
            at += run["gpus"]
            children += [subprocess.Popen([sys.executable, os.path.abspath(__file__), "child", json.dumps(run), json.dumps(lane), str(rank),
                                           folder, out]) for rank in range(run["gpus"])]
        return names, children
    coming = start(groups[0])
    for i in range(len(groups)):
        names, children = coming
        t = time.time()
        for n in names:
            open(f"{folder}/{n}.go", "w").close()
        if i + 1 < len(groups) and time.time() < deadline - 20:
            coming = start(groups[i + 1])
        most = min(deadline, t + max(runs[n]["budget"] for n in names) + 45)
        failed = None
        while any(c.poll() is None for c in children) and time.time() < most:
            time.sleep(0.1)
            if any(c.poll() for c in children):
                failed = failed or time.time()
                if time.time() > failed + 3:
                    break
        for c in children:
            if c.poll() is None:
                c.kill()
            c.wait()
        print(f"{','.join(names)}: {time.time() - t:.0f} s", flush=True)
        if time.time() >= deadline:
            break
    for c in coming[1]:
        if c.poll() is None:
            c.kill()
    table(out)
