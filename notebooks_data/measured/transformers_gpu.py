"""One run of Hugging Face transformers on one GPU, under DDP as transformers' Trainer has it, or under FSDP2: peaks, step times, device memory in use; a trace of the allocator on demand.
python3 transformers_gpu.py OUT.json NAME key=value ...   (torchrun for several ranks)"""
import gc, json, os, sys, time
import torch
import torch.distributed as dist

DEFAULTS = dict(family="qwen3_moe", layers=4, hidden=2048, heads=32, kv_heads=4, head_dim=128, experts=128, top_k=8, ffn=768, dense_ffn=6144,
                vocab=32768, sequences=1, length=4096, ckpt=0, state="bf16", experts_impl="grouped_mm", attention="sdpa", lora=0,
                targets="attention", fsdp=0, steps=6, trace=0, foreach="fused", autocast=0, labels=1, shared=0, dense_layers=0,
                q_lora=0, kv_lora=512, nope=128, rope=64, v_dim=128, groups=1, expandable=0, tied=0, trainer=0, keep=1, ddp=0)


def config_of(c):
    import transformers as t
    common = dict(hidden_size=c["hidden"], num_hidden_layers=c["layers"], num_attention_heads=c["heads"], num_key_value_heads=c["kv_heads"],
                  vocab_size=c["vocab"], max_position_embeddings=max(4096, c["length"]), tie_word_embeddings=bool(c["tied"]), use_cache=False)
    f = c["family"]
    if f == "qwen3_moe":
        return t.Qwen3MoeConfig(**common, head_dim=c["head_dim"], num_experts=c["experts"], num_experts_per_tok=c["top_k"],
                                moe_intermediate_size=c["ffn"], intermediate_size=c["dense_ffn"], norm_topk_prob=True)
    if f == "mixtral":
        return t.MixtralConfig(**common, head_dim=c["head_dim"], num_local_experts=c["experts"], num_experts_per_tok=c["top_k"],
                               intermediate_size=c["ffn"], sliding_window=None)
    if f == "olmoe":
        return t.OlmoeConfig(**common, num_experts=c["experts"], num_experts_per_tok=c["top_k"], intermediate_size=c["ffn"])
    if f == "deepseek_v3":
        return t.DeepseekV3Config(**common, n_routed_experts=c["experts"], num_experts_per_tok=c["top_k"], moe_intermediate_size=c["ffn"],
                                  intermediate_size=c["dense_ffn"], n_shared_experts=c["shared"], first_k_dense_replace=c["dense_layers"],
                                  q_lora_rank=c["q_lora"] or None, kv_lora_rank=c["kv_lora"], qk_nope_head_dim=c["nope"],
                                  qk_rope_head_dim=c["rope"], v_head_dim=c["v_dim"], n_group=c["groups"], topk_group=c["groups"])
    if f == "gpt_oss":
        return t.GptOssConfig(**common, head_dim=c["head_dim"], num_local_experts=c["experts"], num_experts_per_tok=c["top_k"],
                              intermediate_size=c["ffn"])
    raise SystemExit("family " + f)


def model_of(c, device):
    import transformers as t
    cfg = config_of(c)
    cfg._attn_implementation = c["attention"]
    dtype = {"bf16": torch.bfloat16, "fp32": torch.float32}[c["state"]]
    old = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    with torch.device("meta"):
        model = t.AutoModelForCausalLM.from_config(cfg, attn_implementation=c["attention"], dtype=dtype)
    torch.set_default_dtype(old)
    model.set_experts_implementation(c["experts_impl"]) if hasattr(model, "set_experts_implementation") else None
    model.train()
    if c["ckpt"]:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if c["lora"]:
        import peft
        names = {"attention": ["q_proj", "k_proj", "v_proj", "o_proj"], "all": "all-linear"}[c["targets"]]
        if c["ckpt"]:
            model.enable_input_require_grads()
        model = peft.get_peft_model(model, peft.LoraConfig(r=c["lora"], lora_alpha=16, target_modules=names, task_type="CAUSAL_LM"),
                                    autocast_adapter_dtype=False)
    return model


def fill(model, device):
    gen = torch.Generator(device=device).manual_seed(1 + (dist.get_rank() if dist.is_initialized() else 0))
    with torch.no_grad():
        for name, p in model.named_parameters():
            q = p.to_local() if hasattr(p, "to_local") else p
            q.normal_(0.0, 0.02, generator=gen) if p.dim() > 1 else q.fill_(1.0)
        for module in model.modules():
            for name, b in list(module._buffers.items()):
                if b is not None:
                    b.zero_()
            if hasattr(module, "inv_freq"):
                pass


def shard(model, c):
    from torch.distributed.fsdp import fully_shard, MixedPrecisionPolicy
    mesh = dist.device_mesh.init_device_mesh("cuda", (dist.get_world_size(),))
    mp = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32 if c["state"] == "fp32" else None)
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    for layer in base.model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=mp)
    fully_shard(model, mesh=mesh, mp_policy=mp)


def used():
    free, total = torch.cuda.mem_get_info()
    return total - free


def main():
    out, name = sys.argv[1:3]
    c = dict(DEFAULTS)
    for item in sys.argv[3:]:
        k, v = item.split("=")
        c[k] = type(DEFAULTS[k])(v)
    rank = int(os.environ.get("LOCAL_RANK", 0))
    torch.cuda.set_device(rank)
    device = torch.device("cuda", rank)
    r = dict(name=name, config=c, torch=torch.__version__, ranks=int(os.environ.get("WORLD_SIZE", 1)))
    import transformers
    r["transformers"] = transformers.__version__
    r["card"] = torch.cuda.get_device_name()
    if c["fsdp"] or c["ddp"]:
        dist.init_process_group("nccl", device_id=device)
    if c["trace"]:
        torch.cuda.memory._record_memory_history(enabled="all", context="alloc", stacks="python", max_entries=400000)
    model = model_of(c, device)
    if c["fsdp"]:
        shard(model, c)
    model.to_empty(device=device)
    fill(model, device)
    for m in model.modules():
        if hasattr(m, "rope_type") and hasattr(m, "compute_default_rope_parameters"):
            try:
                inv, _ = m.compute_default_rope_parameters(m.config, device)
            except TypeError:  # 5.24
                inv, _ = m.compute_default_rope_parameters(m.config)
            m.inv_freq.copy_(inv)
    if c["ddp"]:
        from torch.nn.parallel import DistributedDataParallel
        model = DistributedDataParallel(model, device_ids=[rank], find_unused_parameters=bool(c["lora"] or not c["ckpt"]))
    params = [p for p in model.parameters() if p.requires_grad]
    r["parameters"] = sum(p.numel() for p in model.parameters())
    r["trained"] = sum(p.numel() for p in params)
    optimizer = torch.optim.AdamW(params, lr=1e-5, fused=c["foreach"] == "fused", foreach=True if c["foreach"] == "foreach" else None)
    gen = torch.Generator(device=device).manual_seed(7 + rank)
    ids = torch.randint(0, c["vocab"], (c["sequences"], c["length"]), device=device, generator=gen)
    labels = ids.clone()
    gc.collect()
    r["begin_requested"] = torch.cuda.memory_stats()["requested_bytes.all.current"]
    r["begin_reserved"] = torch.cuda.memory_reserved()
    r["begin_used"] = used()
    steps, times = [], []
    for step in range(c["steps"]):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        t0 = time.perf_counter()
        with torch.autocast("cuda", torch.bfloat16, enabled=bool(c["autocast"])):
            o = model(input_ids=ids, labels=labels)
        loss = o.loss
        if not c["keep"]:
            del o
        loss.backward()
        after = torch.cuda.memory_stats()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        o = loss = None
        torch.cuda.synchronize()
        times.append(time.perf_counter() - t0)
        s = torch.cuda.memory_stats()
        steps.append(dict(requested=s["requested_bytes.all.peak"], allocated=s["allocated_bytes.all.peak"],
                          reserved=s["reserved_bytes.all.peak"], passes=after["requested_bytes.all.peak"],
                          left=s["requested_bytes.all.current"], used=used()))
    r["steps"], r["times"] = steps, times
    r["retries"] = torch.cuda.memory_stats()["num_alloc_retries"]
    r["step_ms"] = sorted(times[2:])[len(times[2:]) // 2] * 1e3 if len(times) > 2 else None
    if c["trace"] and rank == 0:
        import numpy
        snap = torch.cuda.memory._snapshot()
        trace = [e for t in snap["device_traces"] for e in t]
        actions = sorted({e["action"] for e in trace})
        def where(e):
            for f in e.get("frames", []):
                if "site-packages" in f["filename"] or "hf_run" in f["filename"]:
                    return f["filename"].split("site-packages/")[-1][-60:] + ":" + str(f["line"]) + ":" + f["name"]
            return ""
        places = [where(e) for e in trace]
        names = sorted(set(places))
        at = {n: i for i, n in enumerate(names)}
        numpy.savez_compressed(out.replace(".json", ".npz"), action=numpy.array([actions.index(e["action"]) for e in trace], "u1"),
                               addr=numpy.array([e["addr"] for e in trace], "u8"), size=numpy.array([e["size"] for e in trace], "u8"),
                               stream=numpy.array([e.get("stream", 0) for e in trace], "u8"),
                               place=numpy.array([at[p] for p in places], "u4"), names=numpy.array(names), actions=numpy.array(actions))
    if rank == 0:
        with open(out, "w") as f:
            json.dump(r, f)
        last = steps[-1]
        print(name, "ms %.1f" % (r["step_ms"] or 0), "req %.3f res %.3f used-res %.3f GB" %
              (max(s["requested"] for s in steps) / 1e9, last["reserved"] / 1e9, (last["used"] - last["reserved"]) / 1e9), flush=True)
    if c["fsdp"] or c["ddp"]:
        dist.destroy_process_group()


main()
