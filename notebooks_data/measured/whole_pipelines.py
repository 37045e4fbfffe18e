"""Whole training steps of small models under Megatron-Core with TransformerEngine: bytes and milliseconds of every rank, and where a step
runs out of memory under a known limit. One process a rank, fresh for every run.

whole_pipelines.py RUNS.json OUT.jsonl SECONDS LANE [LANE...]     LANE: GPUs as 0,1. NVIDIA/Megatron-LM d98e8a64, TransformerEngine 2.20.2

A run is an object: name, model (a key of MODELS), gpus, pipeline, virtual, expert, micro_batches, micro_batch, sequence, layout, mtp, remat,
routing (whole_routing.py), steps, limit (bytes that the allocator may reserve, 0: no limit), spec (te, local), permute_fusion, fused_wgrad,
loss (unfused, te), fp8, tensor (with sequence parallelism), expert_tensor, history (snapshot: every allocation, as PyTorch records it;
frames: the same with the program's place of each), outside (what of the device the allocator does not hold, after the first call of every
kind in every process group)."""
import json
import lzma
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import types

import numpy
import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from whole_routing import choices

MODELS = json.load(open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "whole_models.json")))
STATE = {"step": -1, "phase": "build", "micro_batch": -1, "chunk": -1, "layer": -1}
KEYS = ("requested_bytes", "allocated_bytes", "reserved_bytes")


def now():
    s = torch.cuda.memory_stats()
    return {k: s.get(f"{k}.all.current", 0) for k in KEYS}, {k: s.get(f"{k}.all.peak", 0) for k in KEYS}, s


class Marks:
    """Fullest moments since the last mark, named; and over a step."""

    def __init__(self, quiet):
        self.quiet = quiet  # for times: nothing is asked of the allocator within a step
        self.list, self.peak = [], {k: 0 for k in KEYS}

    def take(self, name):
        if self.quiet:
            return
        current, peak, _ = now()
        for k in KEYS:
            self.peak[k] = max(self.peak[k], peak[k])
        self.list.append([name, current["requested_bytes"], peak["requested_bytes"]])
        torch.cuda.reset_peak_memory_stats()


def outside():
    """Bytes in use on this process's device that its allocator has not reserved."""
    free, total = torch.cuda.mem_get_info()
    return total - free - torch.cuda.memory_stats().get("reserved_bytes.all.current", 0)


def watch_groups(seen):
    """[call, process group's name, its ranks, step, phase, outside before, outside after] of the first call of each kind in each group."""
    import torch.distributed as dist
    kept = {}

    def watch(name, group_of):
        whole = getattr(dist, name)

        def call(*args, **kwargs):
            if not torch.cuda.is_initialized():
                return whole(*args, **kwargs)
            group = group_of(args, kwargs) or dist.group.WORLD
            key = name, getattr(group, "group_name", "?")
            if key in kept:
                return whole(*args, **kwargs)
            before = outside()
            out = whole(*args, **kwargs)
            kept[key] = True
            seen.append([name, getattr(group, "group_desc", key[1]), dist.get_process_group_ranks(group), STATE["step"], STATE["phase"],
                         before, outside()])
            return out
        setattr(dist, name, call)
    plain = {"all_reduce": 2, "broadcast": 2, "all_gather_into_tensor": 2, "reduce_scatter_tensor": 3, "all_to_all_single": 4, "barrier": 0,
             "_all_gather_base": 2, "_reduce_scatter_base": 3, "all_gather": 2}
    for name, at in plain.items():
        if hasattr(dist, name):
            watch(name, lambda a, k, at=at: k.get("group", a[at] if len(a) > at else None))
    watch("batch_isend_irecv", lambda a, k: a[0][0].group)


def build(run, rank, world):
    from megatron.core import parallel_state, tensor_parallel
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec, get_gpt_mtp_block_spec
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.transformer import TransformerConfig
    from megatron.core.transformer.module import Float16Module
    from megatron.core.transformer.transformer_config import MLATransformerConfig
    from megatron.core.tensor_parallel import layers as parallel_layers
    m = MODELS[run["model"]]
    te, virtual = run["spec"] == "te", run["virtual"] or None
    parallel_state.initialize_model_parallel(run["tensor"], run["pipeline"], virtual_pipeline_model_parallel_size=virtual,
                                             expert_model_parallel_size=run["expert"],
                                             expert_tensor_parallel_size=run["expert_tensor"] or None)
    tensor_parallel.model_parallel_cuda_manual_seed(1)
    layers = m["num_hidden_layers"]
    moe = [0] * m.get("first_k_dense_replace", 0)
    moe += [1] * (layers - len(moe))
    keys = dict(num_layers=layers, hidden_size=m["hidden_size"], num_attention_heads=m["num_attention_heads"],
                ffn_hidden_size=m.get("intermediate_size", m["moe_intermediate_size"]), gated_linear_unit=True, activation_func=F.silu,
                add_bias_linear=False, normalization="RMSNorm", hidden_dropout=0.0, attention_dropout=0.0, bf16=True,
                params_dtype=torch.bfloat16, pipeline_dtype=torch.bfloat16, pipeline_model_parallel_size=run["pipeline"],
                virtual_pipeline_model_parallel_size=virtual, expert_model_parallel_size=run["expert"],
                num_moe_experts=m["num_experts"], moe_router_topk=m["num_experts_per_tok"], moe_ffn_hidden_size=m["moe_intermediate_size"],
                moe_layer_freq=moe, moe_router_load_balancing_type="none", moe_token_dispatcher_type="alltoall", moe_grouped_gemm=te,
                moe_enable_routing_replay=True, moe_permute_fusion=run["permute_fusion"], moe_router_fusion=False,
                bias_activation_fusion=True, bias_dropout_fusion=True, masked_softmax_fusion=te, apply_rope_fusion=te,
                deallocate_pipeline_outputs=True, batch_p2p_comm=virtual is None, overlap_p2p_comm=virtual is not None,
                gradient_accumulation_fusion=run["fused_wgrad"], cross_entropy_loss_fusion=run["loss"] != "unfused",
                cross_entropy_fusion_impl="te" if run["loss"] == "te" else "native",
                transformer_impl="transformer_engine" if te else "local")
    if run["tensor"] > 1:
        keys.update(tensor_model_parallel_size=run["tensor"], sequence_parallel=True)
    if run["expert_tensor"]:
        keys.update(expert_tensor_parallel_size=run["expert_tensor"])
    if m.get("shared_intermediate_size"):
        keys.update(moe_shared_expert_intermediate_size=m["shared_intermediate_size"])
    if run["layout"]:
        keys.update(pipeline_model_parallel_layout=run["layout"])
    if run["mtp"]:
        keys.update(mtp_num_layers=run["mtp"])
    if run["remat"] == "full":
        keys.update(recompute_granularity="full", recompute_method="uniform", recompute_num_layers=1)
    elif run["remat"] != "none":
        keys.update(recompute_granularity="selective", recompute_modules=run["remat"].split("+"))
    if run["fp8"]:
        keys.update(fp8="e4m3" if run["fp8"] == "blockwise" else "hybrid", fp8_recipe=run["fp8"])
    if "kv_lora_rank" in m:
        keys.update(q_lora_rank=m.get("q_lora_rank"), kv_lora_rank=m["kv_lora_rank"], qk_head_dim=m["qk_nope_head_dim"],
                    qk_pos_emb_head_dim=m["qk_rope_head_dim"], v_head_dim=m["v_head_dim"], rope_type="rope", qk_layernorm=True,
                    apply_rope_fusion=False)
        config = MLATransformerConfig(**keys)
    else:
        config = TransformerConfig(num_query_groups=m["num_key_value_heads"], kv_channels=m["head_dim"],
                                   qk_layernorm=m.get("qk_norm", True), **keys)
    parallel_layers._grad_accum_fusion_available = True
    chunks = []
    for v in range(virtual or 1):
        vp = v if virtual else None
        spec = get_gpt_decoder_block_spec(config, use_transformer_engine=te, normalization="RMSNorm", vp_stage=vp)
        mtp = get_gpt_mtp_block_spec(config, get_gpt_decoder_block_spec(config, use_transformer_engine=te, normalization="RMSNorm", vp_stage=vp)
                                     if spec.layer_specs else spec, use_transformer_engine=te, vp_stage=vp) if run["mtp"] else None
        model = GPTModel(config, spec, m["vocab_size"], run["sequence"],
                         pre_process=parallel_state.is_pipeline_first_stage(ignore_virtual=False, vp_stage=vp),
                         post_process=parallel_state.is_pipeline_last_stage(ignore_virtual=False, vp_stage=vp),
                         position_embedding_type="rope", share_embeddings_and_output_weights=False, mtp_block_spec=mtp, vp_stage=vp)
        for module in model.modules():
            if isinstance(module, (parallel_layers.ColumnParallelLinear, parallel_layers.RowParallelLinear)):
                module.gradient_accumulation_fusion = False
        model.cuda(torch.cuda.current_device())
        chunks.append(Float16Module(config, model))
    ddp = DistributedDataParallelConfig(use_distributed_optimizer=True, grad_reduce_in_fp32=True, overlap_grad_reduce=False)
    chunks = [DistributedDataParallel(config, ddp, c, disable_bucketing=i > 0) for i, c in enumerate(chunks)]
    optimizer = get_megatron_optimizer(OptimizerConfig(optimizer="adam", lr=1e-4, weight_decay=0.1, bf16=True, params_dtype=torch.bfloat16,
                                                       use_distributed_optimizer=True, clip_grad=1.0), chunks)
    config.finalize_model_grads_func = finalize_model_grads
    config.grad_scale_func = optimizer.scale_loss
    return config, chunks, optimizer


def patch(run, marks, table, virtual):
    """What runs when: marks around every pass, the routing of each, and the layer at work."""
    from megatron.core.pipeline_parallel import schedules
    from megatron.core.transformer.moe.router_replay import RouterReplay
    forward, backward, seen = schedules.forward_step, schedules.backward_step, {"forward": 0, "backward": 0}
    order = schedules.get_schedule_table(run["micro_batches"], virtual, run["pipeline"]) if virtual > 1 else None

    def enter(phase):
        n = seen[phase]
        seen[phase] += 1
        m, c = order[n] if order else (n, 0)
        STATE.update(phase=phase, micro_batch=m, chunk=virtual - 1 - c if order and phase == "backward" else c, layer=-1)
        marks.take(f"before {phase} {m}.{STATE['chunk']}")

    def forward_step(*args, **kwargs):
        enter("forward")
        out = forward(*args, **kwargs)
        marks.take(f"forward {STATE['micro_batch']}.{STATE['chunk']}")
        STATE.update(phase="between")
        return out

    def backward_step(*args, **kwargs):
        enter("backward")
        out = backward(*args, **kwargs)
        marks.take(f"backward {STATE['micro_batch']}.{STATE['chunk']}")
        STATE.update(phase="between")
        return out
    schedules.forward_step, schedules.backward_step = forward_step, backward_step

    def replay(self, scores, topk, num_groups=None, group_topk=None, default_compute_topk=None):
        ids = table[STATE["step"], STATE["micro_batch"], self.number].to(scores.device, non_blocking=True).long()
        if ids.shape[0] != scores.shape[0]:  # a tensor-parallel rank has its part of the sequence
            from megatron.core import parallel_state
            ids = ids.chunk(run["tensor"])[parallel_state.get_tensor_model_parallel_rank()]
        return scores.gather(1, ids), ids
    RouterReplay.get_replay_topk = replay
    return seen


def work(run, lane, rank, folder):
    import torch.distributed as dist
    from megatron.core.pipeline_parallel import get_forward_backward_func
    from megatron.core import parallel_state
    world = run["gpus"]
    torch.cuda.set_device(lane[rank])
    flag, path = f"{folder}/{run['name']}.out", f"{folder}/{run['name']}.{rank}.json"
    out = dict(run, rank=rank, steps_done=[], failed=None)
    started = time.time()

    def write(**more):
        out.update(more)
        free, total = torch.cuda.mem_get_info()
        _, _, stats = now()
        out.update(device_total=total, device_used=total - free, reserved_now=stats.get("reserved_bytes.all.current", 0),
                   reserved_peak_ever=stats.get("reserved_bytes.all.peak", 0), retries=stats.get("num_alloc_retries", 0),
                   ooms=stats.get("num_ooms", 0), seconds=time.time() - started)
        json.dump(out, open(path + ".tmp", "w"))
        os.rename(path + ".tmp", path)

    def watch():
        while True:
            time.sleep(0.2)
            if os.path.exists(flag) and out["failed"] is None:
                time.sleep(0.5)
                write(failed={"why": "a peer ran out of memory", **STATE}, stats=list(now()[:2]))
                os._exit(0)
    threading.Thread(target=watch, daemon=True).start()
    marks = Marks(run["quiet"])
    groups, places = out.setdefault("groups", []), out.setdefault("outside_marks", [])
    try:
        torch.zeros(1, device="cuda")
        places.append(["context", outside()])
        if run["history"]:
            torch.cuda.memory._record_memory_history(max_entries=10_000_000, context="alloc" if run["history"] == "frames" else None,
                                                     stacks="python")
        if run["outside"]:
            watch_groups(groups)
        dist.init_process_group("nccl", init_method=f"file://{folder}/{run['name']}.store", rank=rank, world_size=world)
        total = torch.cuda.get_device_properties(lane[rank]).total_memory
        if run["limit"]:
            torch.cuda.set_per_process_memory_fraction(run["limit"] / total, lane[rank])
        torch.manual_seed(1)
        places.append(["process group", outside()])
        config, chunks, optimizer = build(run, rank, world)
        places.append(["built", outside()])
        virtual = len(chunks)
        stage = parallel_state.get_pipeline_model_parallel_rank()
        data = parallel_state.get_data_parallel_rank()
        out.update(stage=stage, data_rank=data, parameters=sum(p.numel() for c in chunks for p in c.parameters()))
        number, layer_numbers = 0, []
        for c in chunks:
            for name, module in c.named_modules():
                if hasattr(module, "router_replay") and module.router_replay is not None:
                    mtp = ".mtp." in name
                    module.router_replay.number = layer_of(module, mtp, run)
                    layer_numbers.append(module.router_replay.number)
                if type(module).__name__ == "TransformerLayer":
                    at = module.layer_number - 1
                    module.register_forward_pre_hook(lambda _, __, at=at: STATE.update(layer=at))
        out.update(moe_layers=layer_numbers)
        m = MODELS[run["model"]]
        tokens = run["micro_batch"] * run["sequence"]
        table = {}
        for step in range(run["steps"]):
            for mb in range(run["micro_batches"]):
                for layer in layer_numbers:
                    ids = choices(run["routing"], step, mb, layer, data, tokens, m["num_experts_per_tok"], m["num_experts"], run["expert"])
                    table[step, mb, layer] = torch.from_numpy(ids).pin_memory()
        seen = patch(run, marks, table, virtual)

        def batches():
            shape = (run["micro_batch"], run["sequence"])
            for _ in iter(int, 1):
                ids = torch.randint(0, m["vocab_size"], shape)
                yield (ids.cuda(), ids.roll(-1, 1).cuda(), torch.ones(shape).cuda(),
                       torch.arange(shape[1]).expand(shape).contiguous().cuda())

        def loss_of(mask, losses):
            losses = losses.view(-1).float()
            mask = mask.view(-1).float()
            loss = torch.sum(losses * mask)
            count = mask.sum().clone().detach().to(torch.int)
            return loss, count, {"lm loss": torch.cat([loss.clone().detach().view(1), count.view(1)])}

        def step_forward(iterator, model):
            ids, labels, mask, positions = next(iterator)
            keys = {"loss_mask": mask} if run["mtp"] else {}
            output = model(ids, positions, None, labels=labels, **keys)
            return output, lambda losses: loss_of(mask, losses)
        config.calculate_per_token_loss = False
        function = get_forward_backward_func()
        iterators = [batches() for _ in range(virtual)]
        losses = []
        for step in range(run["steps"]):
            STATE.update(step=step, phase="zero", micro_batch=-1, chunk=-1, layer=-1)
            seen.update(forward=0, backward=0)
            dist.barrier()
            torch.cuda.synchronize()
            marks.list.clear()
            marks.peak = {k: 0 for k in KEYS}
            torch.cuda.reset_peak_memory_stats()
            begin = time.perf_counter()
            for c in chunks:
                c.zero_grad_buffer()
            optimizer.zero_grad()
            marks.take("zero")
            done = function(forward_step_func=step_forward, data_iterator=iterators if virtual > 1 else iterators[0],
                            model=chunks if virtual > 1 else chunks[0], num_microbatches=run["micro_batches"], seq_length=run["sequence"],
                            micro_batch_size=run["micro_batch"], forward_only=False)
            marks.take("finalize")
            torch.cuda.synchronize()
            middle = time.perf_counter()
            STATE.update(phase="optimizer", micro_batch=-1, chunk=-1, layer=-1)
            optimizer.step()
            torch.cuda.synchronize()
            end = time.perf_counter()
            marks.take("optimizer")
            if run["quiet"]:
                marks.peak = now()[1]
            places.append([f"step {step}", outside()])
            out["steps_done"].append(dict(step=step, ms=1e3 * (end - begin), optimizer_ms=1e3 * (end - middle), **marks.peak,
                                          after=now()[0]["requested_bytes"], marks=list(marks.list) if step in (0, run["steps"] - 1) else None,
                                          reserved_now=now()[0]["reserved_bytes"]))
            losses += [float(d["lm loss"][0]) for d in done if "lm loss" in d][:1]
        write(losses=losses)
        if run["history"]:
            keep_history(run, torch.cuda.memory._snapshot(), f"{folder}/{run['name']}.{rank}.history.xz")
    except Exception as e:
        text = str(e)
        oom = isinstance(e, torch.OutOfMemoryError) or "out of memory" in text
        if oom:
            open(flag, "w").close()
        import traceback
        marks.take("failure")
        frames = [f"{os.path.basename(f.filename)}:{f.lineno} {f.name}" for f in traceback.extract_tb(e.__traceback__)][-6:]
        write(failed={"why": "out of memory" if oom else type(e).__name__, "text": text[:600], "frames": frames, **STATE},
              peak=marks.peak, marks=list(marks.list), stats=list(now()[:2]))
        print(run["name"], rank, "FAILED", type(e).__name__, text[:300], frames, flush=True)
    sys.stdout.flush()
    os._exit(0)


def keep_history(run, snapshot, path):
    """Packed: the recording as it is, or [what, address, bytes, place] of every event with the places once."""
    if run["history"] == "frames":
        places, events = {}, []
        for e in snapshot["device_traces"][torch.cuda.current_device()]:
            frames = [f"{f['filename'].rsplit('/', 1)[-1]}:{f['line']} {f['name']}" for f in e.get("frames", [])
                      if any(p in f["filename"] for p in ("megatron", "transformer_engine", "optim", "autograd", "whole_"))][:5]
            events.append([e["action"], e["addr"], e["size"], places.setdefault(" < ".join(frames), len(places))])
        snapshot = {"events": events, "places": list(places)}
    with lzma.open(path, "wt", preset=1) as file:
        json.dump(snapshot, file)


def layer_of(router, mtp, run):
    m = MODELS[run["model"]]
    return m["num_hidden_layers"] + (router.layer_number or 1) - 1 if mtp else router.layer_number - 1


def start(run, lane, folder):
    """Its processes, which import and then wait for their turn."""
    return run, [subprocess.Popen([sys.executable, os.path.abspath(__file__), "child", json.dumps(run), json.dumps(lane), str(rank), folder])
                 for rank in range(run["gpus"])]


def finish(run, children, folder, most):
    open(f"{folder}/{run['name']}.go", "w").close()
    end = time.time() + most
    while any(c.poll() is None for c in children) and time.time() < end:
        time.sleep(0.05)
    for c in children:
        if c.poll() is None:
            c.kill()
        c.wait()
    rows = []
    for rank in range(run["gpus"]):
        path = f"{folder}/{run['name']}.{rank}.json"
        rows.append(json.load(open(path)) if os.path.exists(path) else dict(run, rank=rank, failed={"why": "no record"}))
    return rows


def lane_of(runs, lane, out, folder, deadline, lock):
    """Takes the next run that has as many GPUs as the lane, until none is left or the time is over. The one after it imports meanwhile."""
    def take():
        with lock:
            run = next((r for r in runs if not os.path.exists(f"{folder}/{r['name']}.taken") and r["gpus"] == len(lane)), None)
            if run is None or time.time() > deadline:
                return None
            open(f"{folder}/{run['name']}.taken", "w").close()
        return start(run, lane, folder)
    coming = take()
    while coming:
        (run, children), t = coming, time.time()
        if t > deadline:
            for c in children:
                c.kill()
            return
        coming = take()
        rows = finish(run, children, folder, min(80.0, deadline + 45 - time.time()))
        for path in sorted(os.listdir(folder)):
            if path.startswith(run["name"] + ".") and path.endswith(".history.xz"):
                shutil.move(f"{folder}/{path}", os.path.join(os.path.dirname(os.path.abspath(out)), path))
        with lock, open(out, "a") as f:
            for r in rows:
                f.write(json.dumps(r) + "\n")
        peak = [round(max([s["requested_bytes"] for s in r.get("steps_done", [])] + [0]) / 1e9, 3) for r in rows]
        reserved = [round(r.get("reserved_peak_ever", 0) / 1e9, 3) for r in rows]
        ms = rows[0].get("steps_done") or [{"ms": 0}]
        print(f"{run['name']:34s} {time.time() - t:5.1f} s  requested {peak} reserved {reserved} last {ms[-1]['ms']:.1f} ms "
              f"{[(r['failed'] or {}).get('why') for r in rows]}", flush=True)


def imports():
    """All imports, without a context on a GPU: what asks for the GPU's kind is told Hopper."""
    import traceback
    kept = torch.cuda.get_device_capability, torch.cuda.get_device_name, torch.cuda._lazy_init
    torch.cuda.get_device_capability, torch.cuda.get_device_name = lambda *_: (9, 0), lambda *_: "NVIDIA H100 80GB HBM3"

    kept_properties = torch.cuda.get_device_properties
    torch.cuda.get_device_properties = lambda *_: types.SimpleNamespace(
        name="NVIDIA H100 80GB HBM3", major=9, minor=0, multi_processor_count=132, shared_memory_per_block_optin=232448, total_memory=85 * 10**9)

    def told():
        if not torch.cuda.is_initialized():
            print("CUDA is taken by", [f"{f.filename[-60:]}:{f.lineno} {f.name}" for f in traceback.extract_stack()][-6:-1], flush=True)
        kept[2]()
    torch.cuda._lazy_init = told
    import megatron.core.models.gpt, megatron.core.optimizer, megatron.core.distributed  # noqa
    try:
        import transformer_engine.pytorch  # noqa
    except Exception as e:
        print("no TransformerEngine:", e)
    torch.cuda.get_device_capability, torch.cuda.get_device_name, torch.cuda._lazy_init = kept
    torch.cuda.get_device_properties = kept_properties


if __name__ == "__main__":
    if sys.argv[1] == "child":
        imports()
        run, go = json.loads(sys.argv[2]), f"{sys.argv[5]}/{json.loads(sys.argv[2])['name']}.go"
        while not os.path.exists(go):
            time.sleep(0.05)
        work(run, json.loads(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
    runs, out, seconds = json.load(open(sys.argv[1])), sys.argv[2], float(sys.argv[3])
    defaults = dict(pipeline=1, virtual=0, expert=1, micro_batches=1, micro_batch=1, sequence=4096, layout="", mtp=0, remat="none",
                    routing="balanced", steps=6, limit=0, spec="te", permute_fusion=False, fused_wgrad=False, loss="unfused", fp8="", quiet=False, tensor=1, expert_tensor=0, history="", outside=False)
    runs = [dict(defaults, **r) for r in runs]
    folder, lock, deadline = tempfile.mkdtemp(), threading.Lock(), time.time() + seconds
    lanes = [threading.Thread(target=lane_of, args=(runs, [int(g) for g in lane.split(",")], out, folder, deadline, lock))
             for lane in sys.argv[4:]]
    for lane in lanes:
        lane.start()
    for lane in lanes:
        lane.join()
