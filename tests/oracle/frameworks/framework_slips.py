#!/usr/bin/env python3
"""Files of training frameworks and people: tokens that are counted, names that are misspelt, what is not said, where a failure lies, and
files that no framework takes.

usage: framework_slips.py SPILLWAY SCRATCH ROOT"""
import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from framework_checks import FILES, MESH, PROGRAM, SCRATCH, check, job_of, oracle
import program as asked

ZERO = '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true},\n"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}'


def planned(name, text, *options):
    (SCRATCH / name).write_text(text)
    return asked.run(PROGRAM, "plan", "--from", name, "--cluster", "h100:8x1", *options, cwd=SCRATCH)


def in_a_line(listing):
    """What stands in comments is folded."""
    return " ".join(listing.replace("#", "").split())


def check_tokens():
    """A torchtitan file that gives the tokens of a rank's micro-batch: with stages so many micro-batches pass through them, each of so many
    tokens, and a step has the sequences of them all; without stages there is one."""
    for stages, pieces, each in ((1, None, 3), (2, 4, 1), (4, 8, 2), (4, 4, 5)):
        (SCRATCH / "tokens.toml").write_text(
            f"[training]\nseq_len = 1024\nnum_tokens_per_microbatch_per_dp_rank = {1024 * each}\n"
            f"[parallelism]\npipeline_parallel_degree = {stages}\nexpert_parallel_degree = 4\n" + (f"num_pp_microbatches = {pieces}\n" if pieces else ""))
        got = job_of("--from", "tokens.toml", "--cluster", "h100:8x4", "--model", "deepseek-v2-lite", folder=SCRATCH)
        check(got.returncode == 0, f"tokens {stages}: {got.stderr}")
        batch = json.loads(got.stdout)["job"]["batch"] if got.returncode == 0 else {}
        said = batch.get("sequences_per_gpu"), batch.get("micro_batches")
        check(said == ([each * (pieces or 1)], pieces or 1), f"{stages} stages, {pieces} micro-batches of {each}: {said}")


def check_counted():
    """Embedding and loss count as a layer each where a file says so: of 32 with them a virtual stage of four stages has two."""
    for layers, counted in ((32, ()), (31, ("embedding",)), (31, ("loss",)), (30, ("embedding", "loss"))):
        (SCRATCH / "counted.sh").write_text(
            f"torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers {layers} --hidden-size 2048 --ffn-hidden-size 1024 --num-attention-heads 16 --swiglu "
            "--num-experts 8 --moe-router-topk 2 --seq-length 4096 --micro-batch-size 1 --global-batch-size 64 --bf16 --pipeline-model-parallel-size 4 "
            "--num-layers-per-virtual-pipeline-stage 2 --moe-token-dispatcher-type alltoall --use-distributed-optimizer "
            "--untie-embeddings-and-output-weights --disable-bias-linear --normalization RMSNorm "
            + " ".join(f"--account-for-{what}-in-pipeline-split" for what in counted))
        (SCRATCH / "counted.json").write_text(json.dumps(dict(
            model_type="generic", num_hidden_layers=layers, hidden_size=2048, vocab_size=32000, num_attention_heads=16, num_key_value_heads=16, head_dim=128,
            intermediate_size=4096, moe_intermediate_size=1024, num_experts=8, num_experts_per_tok=2, tie_word_embeddings=False)))
        got = job_of("--from", "counted.sh", "--cluster", "h100:8x1", "--model", "./counted.json", folder=SCRATCH)
        split = json.loads(got.stdout)["job"]["parallel"] if got.returncode == 0 else {}
        check(split.get("virtual_stages") == 4, f"counted {layers} {counted}: {got.returncode} {got.stderr} {split}")


def check_slips():
    """A name a letter from a known one is said, whatever its value; others that are off are not."""
    for value in (-1, 8):
        got = planned("slip.yml", MESH.replace("ici_fsdp_parallelism: 1", f"ici_fsdp_paralelism: {value}"))
        words = " ".join(got.stdout.split())
        check(f"ici_fsdp_paralelism {value}: unknown" in words and "did you mean ici_fsdp_parallelism?" in words,
              f"slip {value}: {got.stderr} {got.stdout[:600]}")
    got = planned("no_slip.yml", MESH + "wonderful_parallelism: -1\n")
    check(got.returncode == 0 and "did you mean" not in got.stdout, f"no slip: {got.stderr} {got.stdout[:600]}")
    axolotl = "base_model: openai/gpt-oss-20b\nadapter: lora\nlora_r: 16\nsequence_len: 4096\nmicro_batch_size: 2\nbf16: true\n"
    titan = "[model]\nname = \"deepseek_v3\"\nflavor = \"671B\"\n[training]\nlocal_batch_size = 4\nseq_len = 4096\n[parallelism]\nexpert_parallel_degree = 64\n"
    speed = ('{"train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": true}, "zero_optimization": {"stage": 3, '
             '"offload_optimizer": {"device": "cpu"}}}')
    for file, text, right, wrong in (
            ("short.yml", axolotl, "lora_r", "lora_rr"),  # short names
            ("first.yml", axolotl, "adapter", "adaptr"),
            ("end.yml", axolotl, "sequence_len", "sequence_length"),  # an end too much, or missing
            ("end.toml", titan, "parallelism.expert_parallel_degree", "parallelism.expert_parallel_deg"),
            ("rest.toml", titan, "training.local_batch_size", "training.local_batchsize"),  # within what a section has beside them
            ("rest.json", speed, "zero_optimization.stage", "zero_optimization.stag"),
            ("deep.json", speed, "zero_optimization.offload_optimizer.device", "zero_optimization.offload_optimiser.device")):
        part, slip = next((a, b) for a, b in zip(right.split("."), wrong.split(".")) if a != b)
        (SCRATCH / file).write_text(text)
        good = asked.run(PROGRAM, "job", file, cwd=SCRATCH)
        (SCRATCH / file).write_text(text.replace(part, slip, 1))
        words = in_a_line(asked.run(PROGRAM, "job", file, cwd=SCRATCH).stdout)
        check("did you mean" not in good.stdout and f"did you mean {right}?" in words and f"{wrong} " in words, f"{wrong}: {words}")
    for file, text in (("other.yml", axolotl + "lore_a: 3\nzora_r: 4\n"), ("other.toml", titan.replace("[training]", "[training]\nsteps = 10\nmax_norm = 1.0")),
                       ("other.json", speed.replace('"stage": 3', '"stage": 3, "stage3_max_live_parameters": 1e9, "overlap_comm": true'))):
        (SCRATCH / file).write_text(text)
        got = asked.run(PROGRAM, "job", file, cwd=SCRATCH)
        check(got.stdout != "" and "did you mean" not in got.stdout, f"no slips in {file}: {got.stdout}")


def check_mixed():
    """Bridge's mixed_precision by a name: formats, recipe and gathered weights are those that its words say."""
    head = ("model:\n  tensor_model_parallel_size: 1\n  pipeline_model_parallel_size: 1\n  expert_model_parallel_size: 8\n  seq_length: 4096\n"
            "train:\n  global_batch_size: 64\n  micro_batch_size: 1\nddp:\n  use_distributed_optimizer: true\n  grad_reduce_in_fp32: ")
    recipes = {"delayed_scaling": "delayed", "current_scaling": "tensorwise", "subchannel_scaling": "blockwise"}
    names = [f"{half}{part}_mixed" for half in ("bf16", "fp16") for part in ("", "_with_mxfp8", *(f"_with_fp8_{scaling}" for scaling in recipes))]
    for name in [*names, "nemotron_h_bf16_with_fp8_current_scaling_mixed", "nanov2_bf16_with_fp8_current_scaling_mixed", "bf16-mixed", "bf16-with-mxfp8-mixed"]:
        half = "fp16" if name.startswith("fp16") else "bf16"
        plain = name.replace("-", "_")
        recipe = "blockwise" if plain.startswith("nanov2") else next((r for s, r in recipes.items() if s in plain), "mxfp8" if "mxfp8" in plain else None)
        text = head + ("true" if half == "fp16" else "false") + f"\nmixed_precision: {name}\n"  # which mixed_precision overwrites
        (SCRATCH / "mixed.yaml").write_text(text)
        printed = asked.run(PROGRAM, "job", "mixed.yaml", cwd=SCRATCH).stdout
        told = re.findall(r"^ *(\w+:) (\S+)", printed, re.M)
        said = {key: next((value for k, value in told if k == key), None) for key in ("weights:", "activations:", "gradients:", "recipe:", "fp8_param_gather:")}
        said["optimizer:"] = [value for k, value in told if k == "optimizer:"]
        want = {"weights:": half, "activations:": half, "gradients:": "bf16" if half == "fp16" else "fp32", "optimizer:": ["fp32", "distributed"],
                "recipe:": recipe, "fp8_param_gather:": "true" if recipe and "subchannel" not in plain else None}
        check(said == want, f"mixed_precision {name}: {want} {said}")
        doubt = "the first and the last layers stay in bf16" in in_a_line(printed)
        check(doubt == ("current_scaling" in plain), f"mixed_precision {name}: layers at the ends")
    for text, what in (("mixed_precision: bf16_mixd\n", "no recipe of formats that is known"), ("", "the file says no mixed_precision; bf16 is planned")):
        (SCRATCH / "mixed.yaml").write_text(head + "true\n" + text)
        told = in_a_line(asked.run(PROGRAM, "job", "mixed.yaml", cwd=SCRATCH).stdout)
        check(what in told and "Megatron-LM alone" not in told, f"{text!r}: {told}")


def check_unsaid():
    """What spillway job assumes as a file does not say it stands in the plan, unless an option says it; state on the host is a doubt."""
    model = ("--model", "qwen3-30b-a3b")
    for options, there in ((model, True), ((*model, "--set", "batch.sequence_length=2048"), False)):
        got = planned("zero.json", ZERO, *options)
        words = " ".join(got.stdout.split())
        check(("batch.sequence_length: 4096" in words) is there, f"unsaid {options}: {got.stderr} {got.stdout[:900]}")
        less = words.partition("less memory than these figures is needed by the file: ")[2]
        check(less.startswith("zero_optimization.offload_optimizer.device cpu: "), f"host: {got.stderr} {got.stdout[:900]}")


MEGATRON = ("torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 "
            "--group-query-attention --num-query-groups 8 --num-experts 8 --moe-router-topk 2 --swiglu --normalization RMSNorm --disable-bias-linear "
            "--untie-embeddings-and-output-weights --vocab-size 32000 --bf16 --use-distributed-optimizer --sequence-parallel --seq-length 4096 "
            "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 --expert-model-parallel-size 8 --micro-batch-size 1 --global-batch-size 128 "
            "--moe-token-dispatcher-type alltoall --recompute-granularity full --recompute-method uniform --recompute-num-layers 1")


def check_unset():
    """A size of the split, the batch or the model that is a variable without a value is in the plan, with what says it instead, and nothing surely fits,
    unless an option or another line says it. How many GPUs there are says the cluster."""
    plan = ("plan", "--cluster", "h100:8x8", "--routing", "uniform")
    for flag, said, option in (("--tensor-model-parallel-size 2", "--tensor N", ("--tensor", "2")), ("--micro-batch-size 1", "--micro-batches N", None),
                               ("--num-experts 8", "--model NAME", ("--model", "mixtral-8x7b")), ("--seq-length 4096", "--sequence-length N", None),
                               ("--moe-router-topk 2", "--model NAME", None), ("--nnodes 2", None, None)):
        name = flag.split()[0]
        (SCRATCH / "unset.sh").write_text(MEGATRON.replace(flag, f"{name} ${{WHICH}}", 1))
        got = asked.run(PROGRAM, *plan, "--from", "unset.sh", cwd=SCRATCH)
        words = " ".join(got.stdout.split())
        there = f"{name[2:].replace('-', '_')} ${{WHICH}}: a variable that the file does not set" in words and f"write WHICH=... into it, or give {said}" in words
        check(got.returncode == 0 and there == (said is not None) and ("it may not fit" in words) == there, f"unset {name}: {got.stderr} {words[:1200]}")
        check(f"no value: {name[2:].replace('-', '_')};" in got.stderr, f"unset {name}: {got.stderr}")
        for more, text in ((option, f"{name} $WHICH"), ((), f"{name} $WHICH {flag}")):
            if option is None: continue
            (SCRATCH / "unset.sh").write_text(MEGATRON.replace(flag, text, 1))
            got = asked.run(PROGRAM, *plan, "--from", "unset.sh", *more, cwd=SCRATCH)
            check(got.returncode == 0 and "may be needed" not in got.stdout, f"unset {name} {more} {text}: {got.stderr} {got.stdout[:600]}")


def check_uncounted():
    """What may need more memory is in JSON of plan and search, and a page gives that reason; what is spelt well is in neither."""
    titan = "[model]\nname = \"qwen3\"\nflavor = \"30B-A3B\"\n[training]\nlocal_batch_size = 4\nseq_len = 4096\n[parallelism]\nexpert_parallel_degree = 8\n"
    for name, text, right, wrong in (("uncounted.toml", titan, "expert_parallel_degree", "expert_paralel_degree"),
                                     ("uncounted.sh", MEGATRON + " --moe-ffn-hidden-size 14336", "moe-ffn-hidden-size", "moe-ffn-hiden-size"),
                                     ("uncounted.yml", MESH, "ici_fsdp_parallelism", "ici_fsdp_paralelism")):
        for spelt in (right, wrong):
            (SCRATCH / name).write_text(text.replace(right, spelt))
            for command, *options in (("plan",), ("plan", "--search"))[:1 + name.endswith(".yml")]:
                got = asked.run(PROGRAM, command, "--from", name, "--cluster", "h100:8x8", *options, "--format", "json", cwd=SCRATCH)
                answer = json.loads(got.stdout) if got.returncode == 0 else {}
                told = answer.get("settings", answer).get("may_need_more", "")
                doubt = f"did you mean {'parallelism.' * ('toml' in name)}{right.replace('-', '_')}?" in told
                check(got.returncode == 0 and doubt == (spelt == wrong), f"{command} {options} {spelt}: {got.stderr} {told}")
                (SCRATCH / "uncounted.json").write_text(got.stdout)
                page = SCRATCH / "uncounted.html"
                asked.run(PROGRAM, "report", "uncounted.json", "--output", str(page), cwd=SCRATCH)
                words = page.read_text()
                check((told != "" and told.replace("'", "&#39;") in words) == doubt, f"page of {command} {options} {spelt}")
                if name.endswith((".sh", ".toml")) and doubt:
                    check("the file has what may need more memory" in words and "allocator may take up to" not in words, f"reason on the page of {name}")


def check_places():
    """A failure of the whole job names the file alone: lines of the job that was made of it are nobody's."""
    got = planned("odd.json", ZERO.replace('gpu": 1', 'gpu": 3, "train_batch_size": 16'), "--model", "qwen3-30b-a3b")
    check(got.returncode == 2 and "\nspillway: odd.json: " in got.stderr, f"place: {got.returncode} {got.stderr}")


def check_job_hint():
    for name, expected in (("megatron_mixtral_8x7b.sh", "--from megatron_mixtral_8x7b.sh"), ("torchtitan_llama4_scout.toml", "--from torchtitan"),
                           ("primus_qwen3_30b.yaml", "--from primus"), ("deepspeed_zero2.json", "--from deepspeed")):
        got = asked.run(PROGRAM, "plan", "--job", name, cwd=FILES)
        check(got.returncode == 2 and expected in got.stderr, f"--job {name}: {got.stderr}")
        for path in (name, f"./{name}"):
            got = asked.run(PROGRAM, "plan", "--model", path, "--cluster", "h100:8x1", cwd=FILES)
            check(got.returncode == 2 and f"--from {path} instead of --model" in got.stderr, f"--model {path}: {got.stderr}")
    (SCRATCH / "config_hint.json").write_text('{"model_type": "qwen3_moe", "hidden_size": 2048, "num_experts": 8}')
    for words in (("plan", "--job", "config_hint.json"), ("plan", "--from", "config_hint.json", "--cluster", "h100:8x1"), ("job", "config_hint.json")):
        got = asked.run(PROGRAM, *words, cwd=SCRATCH)
        check(got.returncode == 2 and "the config.json of a model, and no job: --model config_hint.json" in got.stderr, f"{words}: {got.stderr}")
    got = asked.run(PROGRAM, "plan", "--model", "config_hint.jsn", "--cluster", "h100:8x1", cwd=SCRATCH)
    check(got.returncode == 2 and "config_hint.jsn: no such file, and no preset; " in got.stderr, f"no such file: {got.stderr}")
    (SCRATCH / "table_hint.csv").write_text("scheme,sequences\n")
    got = asked.run(PROGRAM, "report", "table_hint.csv", "--output", "hint.html", cwd=SCRATCH)
    check(got.returncode == 3 and "--format json" in got.stderr, f"a table: {got.returncode} {got.stderr}")
    for size, text in ((1, "with 1 GPU a sequence these are 0.5 sequences"), (2, "with 2 GPUs a sequence these are 0.2 sequences")):
        got = planned("odd_device.yml", MESH.replace("batch_size: 1", f"batch_size: {0.5 if size == 1 else 0.1}").replace("ici_expert_parallelism: 8", f"ici_tensor_parallelism: {size}"))
        check(text in got.stderr, f"{size} GPUs a sequence: {got.stderr}")


HOSTILE = {
    "empty.sh": b"", "zero.sh": b"--num-layers 3\0 2", "open.json": b"{\"zero_optimization\": {", "list.json": b"[1, 2]",
    "twice.json": b"{\"train_batch_size\": 1, \"train_batch_size\": 2}", "alias.yaml": b"base_model: &a x\nb: *a\n",
    "deep.yaml": b"a: " + b"{a: " * 40 + b"1" + b"}" * 40, "bad.toml": b"[training\nseq_len = 3\n", "half.toml": b"[training]\nseq_len = \n",
    "quote.toml": b"[training]\ndataset = \"c4\n", "negative.sh": b"x --micro-batch-size -3 --global-batch-size 8 --num-layers 4",
    "huge.sh": b"x --micro-batch-size 99999999999999999999 --num-layers 4", "long.sh": b"x --micro-batch-size " + b"9" * 5000,
    "words.sh": b"x " + b"y " * 3000 + b"--num-layers 2", "loop.sh": b"A=$B\nB=$A\nx --micro-batch-size $A --num-layers $((1/0))",
    "mapping.yaml": b"base_model: {a: b}\nsequence_len: [1, 2]\n", "latin.yaml": b"base_model: \xff\xfe\n",
    "stage.json": b"{\"zero_optimization\": {\"stage\": 9}}", "dispatcher.sh": b"x --moe-token-dispatcher-type other --num-layers 2",
    "kind.yaml": b"something: else\nentirely: 1\n", "command.sh": b"x --micro-batch-size $(touch MARK) --num-layers `touch MARK`",
}


def check_hostile():
    folder = SCRATCH / "framework_hostile"
    folder.mkdir(exist_ok=True)
    for name, text in HOSTILE.items():
        (folder / name).write_bytes(text)
        got = job_of(name, "--cluster", "h100:8x1", "--model", "olmoe-1b-7b", folder=folder)
        check(got.returncode in (0, 2) and (got.returncode == 0 or got.stderr.startswith(("spillway: ", "from "))),
              f"{name}: {got.returncode} {got.stderr}")
        if name not in ("mapping.yaml", "loop.sh", "command.sh", "words.sh", "long.sh"):
            check(got.returncode == 2, f"{name}: was taken, {got.stdout[:200]}")
    check(not (folder / "MARK").exists(), "a command of a file was executed")
    got = asked.run(PROGRAM, "plan", "--from", "missing.sh", cwd=folder)
    check(got.returncode != 0 and "missing.sh" in got.stderr, f"missing: {got.stderr}")
    got = asked.run(PROGRAM, "plan", "--from", "a", "--job", "b", cwd=folder)
    check(got.returncode == 2 and "write one" in got.stderr, f"both: {got.stderr}")


check_tokens()
check_counted()
check_slips()
check_mixed()
check_unsaid()
check_unset()
check_uncounted()
check_places()
check_job_hint()
check_hostile()
oracle.finish()
