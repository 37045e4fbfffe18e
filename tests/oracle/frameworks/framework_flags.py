#!/usr/bin/env python3
"""A job as a framework's flags, read back: the same job, byte by byte and key by key, for jobs drawn at random.

usage: framework_flags.py SPILLWAY SCRATCH CASES"""
import json
import math
import pathlib
import random
import shlex
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
import program as asked
from oracle_run import Oracle

PROGRAM, SCRATCH, CASES = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3])
MODELS = ["deepseek-v3", "qwen3-30b-a3b", "mixtral-8x7b", "olmoe-1b-7b", "glm-4.5-air", "gpt-oss-20b", "deepseek-v2-lite", "dbrx",
          "qwen3-235b-a22b", "minimax-m2"]
MEGATRON = ["megatron-alltoall", "megatron-alltoall:capacity_factor=1.25,pad=true", "megatron-allgather", "megatron-flex",
            "megatron-flex:backend=hybridep", "megatron-flex:capacity_factor=2,policy=position", "megatron-syncfree:rank_capacity=1.5,graph=full",
            "megatron-syncfree:rank_capacity=2,stash=1.2,host=1,page=128", "megatron-ncclep"]
PRIMUS = MEGATRON + ["primus-syncfree:level=1", "primus-syncfree:level=3", "primus-megamoe"]
MAXTEXT = ["gmm", "gmm:buffer_factor=2", "ragged", "ring", "ring:ragged_sort=true,buffer_factor=1.5", "ragged-ring", "dense:capacity_factor=1.25"]
TITAN = ["torchtitan", "torchtitan-hybridep", "torchtitan-async"]

# Keys that the frameworks have no setting for, or that follow from others there.
OURS = {"memory_fraction", "price_per_gpu_hour", "allocator.expandable_segments", "library_limits"}
# Megatron-LM has switches for kernels that are fused and none for those that are not (of rotation the other way round): their absence says it.
UNNAMED = {"megatron": OURS | {"cross_entropy", "moe_permute_fusion", "moe_router_fusion", "apply_rope_fusion"}, "bridge": OURS | {"cross_entropy"}, "primus": OURS | {"cross_entropy"}, "maxtext": OURS, "torchtitan": OURS}

oracle = Oracle(PROGRAM, "framework_flags")
check = oracle.check


def megatron_words(draw, framework):
    scheme = draw.choice(PRIMUS if framework == "primus" else MEGATRON)
    tensor, pipeline, context = draw.choice([1, 1, 2]), draw.choice([1, 1, 2, 4]), draw.choice([1, 1, 2])
    words = ["--scheme", scheme, "--optimizer", draw.choice(["distributed", "distributed", "replicated"]), "--tensor", tensor, "--pipeline", pipeline,
             "--context", context, "--expert-tensor", 1, "--remat", draw.choice(["none", "full", "moe_act", "selective", "moe_act+layernorm"])]
    if draw.random() < 0.3 and "capacity" not in scheme and scheme.startswith(("megatron-alltoall", "megatron-flex")):
        recipe = draw.choice(["delayed", "tensorwise", "blockwise", "nvfp4"])
        if draw.random() < 0.5:  # the recipe implies it
            words[1] += ("," if ":" in scheme else ":") + f"align={128 if recipe == 'nvfp4' else 16}"
        words += ["--set", f"precision.recipe={recipe}"]
    if draw.random() < 0.3:
        words += ["--set", "overlap_grad_reduce=true"]
        if words[3] == "distributed" and draw.random() < 0.5:
            words += ["--set", "overlap_param_gather=true"]
    for chance, setting in ((0.15, "moe_permute_fusion=true"), (0.15, "moe_permute_fusion=false"), (0.2, "moe_router_fusion=true"), (0.2, "apply_rope_fusion=false"),
                            (0.1, "use_transformer_engine_op_fuser=true"), (0.1, "moe_shared_expert_overlap=true" if "allgather" not in scheme else "moe_router_fusion=false"), (0.3, "precision.gradients=bf16"), (0.2, "precision.optimizer=bf16"), (0.3, "cross_entropy=native"),
                            (0.3, "cross_entropy=te_in_place"), (0.1, "cross_entropy=te"), (0.2, "optimizer_algorithm=muon"),
                            (0.2, "memory_fraction=0.9"), (0.1, "price_per_gpu_hour=2.5"), (0.1, "allocator.expandable_segments=true"),
                            (0.1, "library_limits=ignore"), (0.1, "parallel.sequence_parallel=true")):
        if draw.random() < chance:
            words += ["--set", setting]
    return words


def maxtext_words(draw):
    scheme = draw.choice(MAXTEXT)
    recipe = ["--set", "precision.recipe=delayed"] if scheme.startswith("dense") and draw.random() < 0.5 else []
    return ["--scheme", scheme, "--remat", draw.choice(["none", "full", "minimal", "save_out_proj", "minimal_with_context"]),
            "--precision", draw.choice(["framework", "bf16"]), "--tensor", draw.choice([1, 1, 1, 2]), *recipe]


def titan_words(draw):
    scheme = draw.choice(TITAN)
    words = ["--scheme", scheme, "--optimizer", "sharded", "--remat", "full" if scheme == "torchtitan-async" else draw.choice(["none", "full", "selective_op"] if scheme == "torchtitan" else ["none", "full"]),
             "--precision", draw.choice(["framework", "bf16"])]
    if draw.random() < 0.2:
        words += ["--set", "fsdp2.reshard_after_forward=never"]
    if scheme == "torchtitan" and "selective_op" not in words and draw.random() < 0.5:
        words += ["--set", "precision.recipe=tensorwise"]
    return words


def draw_job(draw, framework):
    words = {"maxtext": maxtext_words, "torchtitan": titan_words}.get(framework, lambda d: megatron_words(d, framework))(draw)
    micro = draw.choice([1, 2, 4])
    return ["--model", draw.choice(MODELS), "--cluster", draw.choice(["h100:8x2", "h200:8x4", "mi300x:8x8", "gb200:8x4"]),
            "--sequence-length", draw.choice([1024, 4096, 8192]), "--expert-parallel", draw.choice([1, 2, 4, 8]),
            "--sequences-per-gpu", micro * draw.choice([1, 2, 4]), "--micro-batches", micro, *words]


def explained(*words):
    got = asked.run(PROGRAM, "explain", "--stack", "none", "--format", "json", *words)
    return got.returncode, got.stdout, got.stderr


def same(first, second):
    """Components with their bytes; the text of a scheme may name its defaults."""
    a, b = json.loads(first), json.loads(second)
    for row in a + b:
        row.pop("scheme")
    return a == b


def job_of(path, options):
    got = asked.run(PROGRAM, "job", path, *options, "--format", "json")
    return json.loads(got.stdout)["job"] if got.returncode == 0 else got.stderr


def first_line(text):
    """The options, put together again where they are broken."""
    lines = text.splitlines()
    first = lines[0] if lines else ""
    for line in lines[1:]:
        if not line.startswith("#     --"):
            break
        first += " " + line[1:].strip()
    return first


def check_one(framework, words, path):
    code, bytes_of, _ = explained(*words)
    if code != 0:
        return False  # no such job
    flags = asked.run(PROGRAM, "plan", *words, "--flags", framework, "--stack", "none", "--routing", "uniform")
    check(flags.returncode == 0, f"{framework} {words}: {flags.stderr}")
    if flags.returncode != 0:
        return True
    path.write_text(flags.stdout)
    first = first_line(flags.stdout)
    check(max(map(len, flags.stdout.splitlines())) <= 120 or "{" in first, f"{framework}: a line of more than 120 columns in {flags.stdout}")
    check(first.startswith("# spillway plan --from FILE"), f"{framework}: first line {first}")
    options = shlex.split(first)[5:]
    unnamed = [o for o in options if o.startswith("--") and o not in ("--cluster", "--set", "--model")]
    keys = {o.split("=")[0] for o in options if "=" in o} - UNNAMED[framework]
    check(not unnamed and not keys, f"{framework}: {unnamed} {keys} are options, though the framework has names for them: {first}")
    code, again, error = explained("--from", path, *options)
    check(code == 0 and same(bytes_of, again), f"{framework}: another job comes back: {' '.join(map(str, words))}; {first}; {error[-200:]}")
    job = job_of(path, options)
    given = dict(zip(map(str, words[::2]), words[1::2]))
    for key, option in (("sequence_length", "--sequence-length"), ("micro_batches", "--micro-batches")):
        check(job["batch"][key] == given[option], f"{framework}: {key} {job['batch'][key]}, was {given[option]}")
    check(job["batch"]["sequences_per_gpu"] == [given["--sequences-per-gpu"]], f"{framework}: sequences {job['batch']}")
    check(job["parallel"]["expert"] == given["--expert-parallel"], f"{framework}: expert {job['parallel']}")
    return True


# DeepSeek-V3 over 16 stages: what the recipes of Megatron-LM have and its own defaults do not; 61 layers do not divide.
V3 = ["--model", "deepseek-v3", "--cluster", "h100:8x32", "--scheme", "megatron-flex", "--optimizer", "distributed", "--pipeline", 16,
      "--expert-parallel", 16, "--global-batch", 2048, "--micro-batches", 128]
LAYOUT = "Et*4(|t*4)*12(|ttt)*3L"  # 13 x 4 + 3 x 3 = 61
WORDS = {
    "megatron": ["--swiglu", "--disable-bias-linear", "--normalization RMSNorm", "--moe-grouped-gemm", "--moe-router-num-groups 8",
                 "--moe-router-group-topk 4", "--moe-router-score-function sigmoid", "--moe-router-enable-expert-bias", "--qk-layernorm",
                 f"--pipeline-model-parallel-layout '{LAYOUT}'"],
    "bridge": ["gated_linear_unit: true", "add_bias_linear: false", "normalization: RMSNorm", "moe_grouped_gemm: true",
               "moe_router_num_groups: 8", "moe_router_group_topk: 4", f"pipeline_model_parallel_layout: '{LAYOUT}'"],
    "primus": ["swiglu: true", "add_bias_linear: false", "normalization: RMSNorm", "moe_grouped_gemm: true", "moe_router_num_groups: 8",
               "moe_router_group_topk: 4", f"pipeline_model_parallel_layout: '{LAYOUT}'"],
}


def check_words():
    for framework, words in WORDS.items():
        got = asked.run(PROGRAM, "plan", *V3, "--flags", framework)
        for word in words:
            check(f"    {word}" in got.stdout or f"  {word}" in got.stdout, f"{framework}: {word} is not in {got.stdout} {got.stderr}")
        options = first_line(got.stdout)
        check(options == "# spillway plan --from FILE --cluster h100:8x32", f"{framework}: first line {options}")
    got = asked.run(PROGRAM, "plan", *V3)
    check(f"layout    needed, as the layers do not divide: --pipeline-model-parallel-layout '{LAYOUT}'" in got.stdout, f"layout: {got.stdout}")
    # Megatron-LM takes a layout or a number of virtual stages, not both (arguments.py validate_args)
    got = asked.run(PROGRAM, "plan", *V3, "--virtual-stages", 2, "--flags", "megatron")
    check("virtual" not in got.stdout and "--pipeline-model-parallel-layout" in got.stdout, f"virtual stages: {got.stdout} {got.stderr}")
    # MaxText's axes multiply to all GPUs: fsdp counts the GPUs of context here, and not there
    got = asked.run(PROGRAM, "plan", "--model", "mixtral-8x7b", "--cluster", "h100:8x1", "--scheme", "ring", "--optimizer", "sharded",
                    "--expert-parallel", 2, "--context", 2, "--flags", "maxtext")
    sizes = [int(word.split("=")[1]) for word in got.stdout.split() if word.startswith("ici_")]
    check(got.returncode == 0 and math.prod(sizes) == 8 and sizes.count(2) == 3, f"maxtext, context: {got.stdout} {got.stderr}")
    # fp4 has arguments of its own, and so has the weight that is FP4 itself
    fp4 = ["--model", "mixtral-8x7b", "--scheme", "megatron-alltoall:align=128", "--optimizer", "distributed", "--expert-parallel", 8]
    for framework, cluster, recipe, gather, words in (
            ("megatron", "b200:8x1", "nvfp4", True, ["--fp4-format e2m1", "--fp4-recipe nvfp4", "--fp4-param-gather"]),
            ("bridge", "b200:8x1", "nvfp4", True, ["fp4: e2m1", "fp4_recipe: nvfp4", "fp4_param_gather: true"]),
            ("primus", "mi355x:8x1", "mxfp4", False, ["fp4: e2m1", "fp4_recipe: mxfp4"])):
        job = [*fp4, "--cluster", cluster, "--set", f"precision.recipe={recipe}", "--set", f"precision.fp8_param_gather={str(gather).lower()}"]
        got = asked.run(PROGRAM, "plan", *job, "--flags", framework)
        for word in words:
            check(word in got.stdout and "fp8" not in got.stdout, f"{framework}: {word} is not in {got.stdout} {got.stderr}")
        path = SCRATCH / f"fp4_{framework}{'.sh' if framework == 'megatron' else '.yaml'}"
        path.write_text(got.stdout)
        code, back, error = explained("--from", path, *shlex.split(got.stdout.splitlines()[0])[5:])
        check(code == 0 and same(explained(*job)[1], back), f"{framework}: another job comes back: {got.stdout} {error}")
    path.write_text(got.stdout.replace("fp4: e2m1", "fp4: e2m1\n      fp8: hybrid"))
    code, back, error = explained("--from", path, *shlex.split(got.stdout.splitlines()[0])[5:])
    check(code == 2 and "leave out one of --fp4-format and --fp8-format" in error, f"both: {code} {error}")
    # without a gate: no --swiglu; biases: no --disable-bias-linear
    model = json.dumps({"model_type": "generic", "num_hidden_layers": 4, "hidden_size": 1024, "vocab_size": 32000, "num_attention_heads": 8,
                        "n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 4096, "expert_matrices": 2, "ffn_matrices": 2,
                        "qkv_bias": True, "expert_bias": True, "norm_bias": True})
    got = asked.run(PROGRAM, "plan", "--model", model, "--cluster", "h100:8x1", "--scheme", "megatron-alltoall", "--flags", "megatron")
    check("--swiglu" not in got.stdout and "bias-linear" not in got.stdout and "--normalization LayerNorm" in got.stdout,
          f"no gate: {got.stdout} {got.stderr}")
    # MaxText: axes of a node make up its GPUs, axes between nodes make up the nodes
    got = asked.run(PROGRAM, "plan", "--model", "mixtral-8x7b", "--cluster", "h100:8x4", "--scheme", "gmm", "--expert-parallel", 8, "--flags", "maxtext")
    axes = dict(word.strip(" \\").split("=") for word in got.stdout.splitlines() if "_parallelism=" in word)
    inner = [int(v) for k, v in axes.items() if k.startswith("ici_")]
    outer = [int(v) for k, v in axes.items() if k.startswith("dcn_")]
    check(math.prod(inner) == 8 and math.prod(outer) == 4, f"maxtext: {axes} {got.stderr}")
    # HybridEP is NVIDIA's
    got = asked.run(PROGRAM, "plan", "--model", "mixtral-8x7b", "--cluster", "mi300x:8x2", "--scheme", "megatron-flex:backend=hybridep",
                    "--optimizer", "distributed", "--expert-parallel", 8)
    check(got.returncode == 2 and "NVIDIA's GPUs alone" in got.stderr, f"hybridep on AMD: {got.returncode} {got.stdout[:200]} {got.stderr}")


def check_runnable():
    """Numbers of the model's own file, and of a run: by hand. Qwen3-30B-A3B has no dense layer, and a width of one all the same."""
    qwen = ["plan", "--model", "qwen3-30b-a3b", "--cluster", "h100:8x16", "--scheme", "megatron-alltoall", "--optimizer", "distributed",
            "--expert-parallel", 8, "--set", "allocator.expandable_segments=true"]
    text = asked.run(PROGRAM, *qwen, "--flags", "megatron").stdout
    for word in ("--ffn-hidden-size 6144", "--moe-ffn-hidden-size 768", "--vocab-size 151936", "--make-vocab-size-divisible-by 128",
                 "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", "#   --tokenizer-type HuggingFaceTokenizer", "#   --rotary-base N"):
        check(word in text, f"runnable: {word} is not in {text}")
    check("--set" not in text and "# megatron-alltoall, EP 8, 1 sequence: " in text, f"runnable: {text}")
    path = SCRATCH / "flags_config.json"
    path.write_text(json.dumps({"model_type": "mixtral", "num_hidden_layers": 4, "hidden_size": 1024, "vocab_size": 50280, "num_attention_heads": 8,
                                "num_key_value_heads": 8, "intermediate_size": 2048, "num_local_experts": 8, "num_experts_per_tok": 2,
                                "rope_theta": 1000000.0, "rms_norm_eps": 1e-05, "max_position_embeddings": 32768, "tie_word_embeddings": False}))
    text = asked.run(PROGRAM, "plan", "--model", path, *qwen[3:], "--tensor", 2, "--flags", "megatron").stdout
    # 50280 = 8 x 6285: of a tensor group of 2 a multiple of 4
    for word in ("--rotary-base 1000000 ", "--norm-epsilon 1e-05 ", "--max-position-embeddings 32768 ", "--position-embedding-type rope ",
                 "--make-vocab-size-divisible-by 4 "):
        check(f"    {word}" in text, f"runnable: {word} is not in {text}")
    check("#   --rotary-base N" not in text, f"runnable: said twice in {text}")
    text = asked.run(PROGRAM, "plan", "--model", "mixtral-8x7b", "--cluster", "mi300x:8x8", "--scheme", "ragged", "--set", "memory_fraction=0.95",
                     "--flags", "maxtext").stdout
    for word in ("export XLA_PYTHON_CLIENT_MEM_FRACTION=0.95", "    hardware=gpu ", "    attention=cudnn_flash_te ", "#   run_name=NAME",
                 "# outside the fit: "):
        check(word in text, f"runnable: {word} is not in {text}")
    # what is doubtful of a file stands above what comes of it
    path = SCRATCH / "flags_doubt.sh"
    path.write_text("torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --swiglu "
                    "--num-attention-heads 32 --num-query-groups 8 --group-query-attention --num-experts 8 --moe-router-topk 2 --seq-length 4096 "
                    "--micro-batch-size 1 --global-batch-size 128 --bf16 --expert-model-parallel-size 8 --use-distributed-optimizer "
                    "--moe-token-dispatcher-type alltoall --recompute-granularity full --recompute-method block --recompute-num-layers 2 "
                    "--untie-embeddings-and-output-weights --disable-bias-linear --normalization RMSNorm")
    text = asked.run(PROGRAM, "plan", "--from", path, "--cluster", "h100:8x2", "--flags", "megatron").stdout
    check("# may need more memory: recompute_num_layers 2" in text, f"doubt: {text}")


def check_stages():
    """What MaxText's pipeline runs where nobody says micro-batches: sequences of its flags, counted from the flags alone, are those of the step."""
    stem = ["plan", "--model", "deepseek-v3", "--cluster", "mi355x:8x8", "--scheme", "gmm", "--expert-parallel", 8]
    for stages, each in ((8, 1), (4, 2), (2, 3)):
        words = [*stem, "--pipeline", stages, "--gpus", 8 * stages, "--no-allocator"]
        said = [asked.run(PROGRAM, *words, *batch, "--format", "json").stdout
                for batch in (["--sequences-per-gpu", each], ["--sequences-per-gpu", stages * each, "--micro-batches", stages],
                              ["--global-batch", 8 * stages * each])]
        rows = [json.loads(text)["rows"] for text in said]
        check(rows[0] == rows[1] == rows[2], f"stages {stages}: {said}")
        path = SCRATCH / "flags_stages.sh"
        path.write_text(asked.run(PROGRAM, *words, "--sequences-per-gpu", each, "--flags", "maxtext").stdout)
        flags = dict(word.strip(" \\").split("=", 1) for word in path.read_text().splitlines() if "=" in word and word.startswith("    "))
        sequences = float(flags["per_device_batch_size"]) * 8 * stages
        check(int(flags["num_pipeline_microbatches"]) % stages == 0 and sequences == 8 * stages * each, f"stages {stages}: {flags}")
        time = rows[0][0]["time"]
        tokens = time["tokens_per_s_per_gpu"] * 8 * stages * time["step_s"]
        check(abs(tokens / (sequences * 4096) - 1) < 1e-9, f"stages {stages}: {tokens} tokens a step, flags say {sequences} sequences")
        back = asked.run(PROGRAM, "plan", "--from", path, "--cluster", "mi355x:8x8", "--gpus", 8 * stages, "--no-allocator", "--format", "json")
        again = json.loads(back.stdout)["rows"][0]
        check(all(again[key] == rows[0][0][key] for key in ("sequences_per_gpu", "memory", "time")), f"stages {stages}: read back {again} {back.stderr}")
        text = path.read_text().replace(f"num_pipeline_microbatches={stages}", f"num_pipeline_microbatches={stages + 1}")
        path.write_text(text)
        got = asked.run(PROGRAM, "plan", "--from", path, "--cluster", "mi355x:8x8", "--gpus", 8 * stages)
        check(got.returncode == 2 and f"write {2 * stages}, or -1" in got.stderr, f"stages {stages}: {got.returncode} {got.stderr}")


draw = random.Random(20261126)
for framework in ("megatron", "bridge", "primus", "maxtext", "torchtitan"):
    ending = ".yaml" if framework in ("bridge", "primus") else ".sh"
    done = 0
    for _ in range(8 * CASES):
        done += check_one(framework, draw_job(draw, framework), SCRATCH / f"flags_{framework}{ending}")
        if done == CASES:
            break
    check(done == CASES, f"{framework}: only {done} jobs could be drawn")
got = asked.run(PROGRAM, "plan", "--model", "olmoe-1b-7b", "--cluster", "h100:8x1", "--scheme", "gmm", "--flags", "megatron")
check(got.returncode == 2 and "no scheme gmm" in got.stderr, f"gmm of Megatron: {got.stderr}")
got = asked.run(PROGRAM, "plan", "--model", "olmoe-1b-7b", "--cluster", "h100:8x1", "--flags", "deepspeed")
check(got.returncode == 2 and "write megatron" in got.stderr, f"deepspeed: {got.stderr}")
check_words()
check_runnable()
check_stages()
oracle.finish()
