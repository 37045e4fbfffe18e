#!/usr/bin/env python3
"""`replay --snapshot` against measured runs: a balanced rank's recording in, the memory of skewed steps out, beside what PyTorch
said of these steps on two H200 (notebooks_data/measured/megatron_h200_snapshots.csv). No number of the skewed steps is in the
recording. Then damaged recordings, each with its message.

snapshot_oracle.py SPILLWAY SCRATCH ROOT"""
import collections
import csv
import json
import lzma
import pathlib
import shutil
import sys

import h5py
import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
import program as caller

program, root = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[3]).resolve()
folder = pathlib.Path(sys.argv[2]).resolve() / "snapshot_oracle"
shutil.rmtree(folder, ignore_errors=True)
folder.mkdir(parents=True)
measured = root / "notebooks_data" / "measured"
GIB = 2**30
HEADS = {"olmoe": (16, 16), "mini": (32, 8)}
RANKS = 2
checks = 0

CLUSTER = """name: two
nodes: 1
gpus_per_node: 2
hbm_gib: {value: 139.80, evidence: measured, source: test}
bf16_flops: {value: 9.894e14, evidence: datasheet, source: test}
fp8_flops: {value: 1.9789e15, evidence: datasheet, source: test}
hbm_bytes_per_s: {value: 4.8e12, evidence: datasheet, source: test}
link_bytes_per_s: {value: 450.0e9, evidence: datasheet, source: test}
nic_bytes_per_s: {value: 50.0e9, evidence: datasheet, source: test}
launch_s: {value: 5.0e-6, evidence: assumed, source: test}
"""
JOB = """model: model.json
cluster: cluster.yaml
parallel: {expert: 2, fsdp: 1}
batch: {sequences_per_gpu: 1, sequence_length: %d}
precision: {weights: bf16, gradients: fp32, activations: bf16}
remat: none
memory_fraction: 1
schemes: [megatron-alltoall]
"""


def spillway(*arguments):
    return caller.call([program, *arguments], cwd=folder, capture_output=True, text=True)


def check(what, good, *said):
    global checks
    checks += 1
    if not good:
        sys.exit(f"{what}: {' '.join(map(str, said))}")


def choices(rows, tokens, experts, top_k):
    """Ids of `tokens` tokens of which `rows` choices go to the first half of the experts, evenly."""
    half, low = experts // 2, numpy.full(tokens, rows // tokens)
    low[: rows % tokens] += 1
    return numpy.array([[(t + i) % half for i in range(low[t])] + [half + (t + i) % half for i in range(top_k - low[t])]
                        for t in range(tokens)], numpy.int16)


def prepare(row, steps):
    """The job, and a trace that gives rank 0 the measured rows in every layer of every step."""
    heads, groups = HEADS[row["model"]]
    tokens, experts, top_k = int(row["tokens"]), int(row["experts"]), int(row["top_k"])
    (folder / "model.json").write_text(json.dumps(dict(
        model_type="olmoe", attention_bias=False, hidden_size=int(row["hidden"]), intermediate_size=int(row["ffn"]),
        num_attention_heads=heads, num_experts=experts, num_experts_per_tok=top_k, num_hidden_layers=int(row["layers"]),
        num_key_value_heads=groups, tie_word_embeddings=False, vocab_size=32768)))
    (folder / "cluster.yaml").write_text(CLUSTER)
    (folder / "job.yaml").write_text(JOB % tokens)
    made = {}
    for step in steps:
        for rows in step["rows"]:
            if rows not in made:
                made[rows] = choices(rows, RANKS * tokens, experts, top_k)
    numpy.save(folder / "ids.npy", numpy.array([[made[rows] for rows in step["rows"]] for step in steps]))
    done = spillway("trace", "import", "array", "ids.npy", "--output", "trace.h5", "--experts", str(experts), "--top-k",
                    str(top_k), "--axes", "steps,layers,tokens,k", "--tokens-per-rank", str(tokens))
    check("import", done.returncode == 0, done.stderr)


def read_steps(name):
    """The measured steps after the recording: rank 0's rows, and over the ranks the most of each figure."""
    steps = collections.OrderedDict()
    with open(measured / "megatron_h200_snapshots.csv", newline="") as table:
        for row in csv.DictReader(table):
            if row["snapshot"] != name or (row["tensor"], row["expert"]) != ("1", "2"):
                continue
            step = steps.setdefault(int(row["step"]), {"row": row, "allocated": 0, "reserved": 0})
            if row["rank"] == "0":
                step["rows"] = tuple(int(x) for x in row["rows_received_per_layer"].split(";"))
            step["allocated"] = max(step["allocated"], int(row["allocated_peak_bytes"]))
            step["reserved"] = max(step["reserved"], int(row["reserved_bytes"]))
    return steps


def unpack(name):
    text = lzma.open(measured / f"snapshot_{name}.json.xz").read()
    (folder / f"{name}.json").write_bytes(text)
    return json.loads(text)


def compare(name, recorded, reserved_most):
    steps = [step for number, step in read_steps(name).items() if number >= recorded]
    prepare(steps[0]["row"], steps)
    unpack(name)
    (folder / "out.h5").unlink(missing_ok=True)
    done = spillway("replay", "trace.h5", "--job", "job.yaml", "--snapshot", f"{name}.json", "--output", "out.h5", "--format", "json")
    check(name, done.returncode == 0, done.stderr)
    found = json.loads(done.stdout)["rows"][0]["memory"]["allocator"]["snapshot"]
    check(f"{name}: all that follows the routing is found", found["routed_tensors_found"] == found["routed_tensors"] > 0, found)
    with h5py.File(folder / "out.h5") as file:
        allocated, reserved = file["allocated_gib"][0] * GIB, file["reserved_gib"][0] * GIB
    worst = [0.0, 0.0]
    for i, step in enumerate(steps):
        errors = allocated[i] / step["allocated"] - 1, reserved[i] / step["reserved"] - 1
        worst = [max(w, abs(e)) for w, e in zip(worst, errors)]
        check(f"{name} step {i}: allocated", abs(errors[0]) < 1e-3, allocated[i], step["allocated"])
        check(f"{name} step {i}: reserved", abs(errors[1]) < reserved_most, reserved[i], step["reserved"])
    most, least = max(s["allocated"] for s in steps), min(s["allocated"] for s in steps)
    check(f"{name}: routing matters here", most > 1.01 * least, most, least)
    print(f"{name}: {len(steps)} steps, worst error allocated {100 * worst[0]:.3f} %, reserved {100 * worst[1]:.3f} %")


def refused(what, text, expected):
    (folder / "bad.json").write_text(text if isinstance(text, str) else json.dumps(text))
    done = spillway("replay", "trace.h5", "--job", "job.yaml", "--snapshot", "bad.json")
    check(what, done.returncode == 2 and expected in done.stderr and done.stdout == "", done.returncode, done.stderr)


def damage():
    good = unpack("bare_olmoe")
    events = good["device_traces"][0]
    refused("no JSON", "\x80\x04pickle", "json.dump")
    refused("a list", [1], "json.dump")
    refused("no traces", {"segments": []}, "device_traces")
    refused("nothing recorded", {"device_traces": [[], []]}, "nothing recorded")
    refused("two devices", {"device_traces": [events, events]}, "several devices")
    refused("no action", {"device_traces": [[{"addr": 1, "size": 2}]]}, "event 0 has no `action`")
    refused("sizes", {"device_traces": [[{"action": "alloc", "addr": 1, "size": -2}]]}, "event 0: `addr` and `size`")
    refused("out of memory", {"device_traces": [events + [{"action": "oom"}]]}, "ran out of memory")
    births = [i for i, event in enumerate(events) if event["action"] == "alloc"]
    refused("one step", {"device_traces": [events[: births[len(births) // 3]]]}, "two equal steps")
    other = json.loads((folder / "model.json").read_text())
    other["intermediate_size"] = 896
    (folder / "model.json").write_text(json.dumps(other))
    refused("another model", good, "tensors that follow the routing are found")
    done = spillway("replay", "trace.h5", "--job", "job.yaml", "--snapshot", "bare_olmoe.json", "--output", "bare_olmoe.json")
    check("its own input", done.returncode == 2 and json.loads((folder / "bare_olmoe.json").read_text()) == good, done.stderr)


def last_step(text):
    """Events before the last step, and those of it: (block or None, size), a birth's block is its number, a death's how many births ago
    it was. As in docs/snapshot.md the step is the shortest part with which the recording ends twice."""
    born, events = {}, []
    count = 0
    for event in text["device_traces"][0]:
        if event["action"] == "alloc":
            born[event["addr"]] = count
            events.append((True, event["size"], count))
            count += 1
        elif event["action"] == "free_requested" and event["addr"] in born:
            events.append((False, event["size"], born.pop(event["addr"])))
    words = [event[:2] for event in events]
    length = next(n for n in range(100, len(words) // 2) if words[-n:] == words[-2 * n:-n])
    return events[:-length], events[-length:]


def accumulated(text, micro_batches, steps):
    """The same process, had it run its step that often before each step of an optimizer, which is a tensor of 600 bytes."""
    begin, step = last_step(text)
    births = sum(born for born, _, _ in step)
    out = [(born, size, ("recorded", number)) for born, size, number in begin]
    first = next(number for born, _, number in step if born)
    for turn in range(micro_batches * steps):
        for born, size, number in step:
            later = number + turn * births  # of a block that a step before has left, that of the turn before
            out.append((born, size, ("recorded", later)))
        if turn % micro_batches == micro_batches - 1:
            out += [(True, 600, ("optimizer", turn)), (False, 600, ("optimizer", turn))]
    known = {}
    live = [(born, size, known.setdefault(name, len(known) + 1)) for born, size, name in out]
    check("a step frees what it or the one before it made", all(number >= first - births for _, _, number in step), first)
    return {"device_traces": [[{"action": "alloc" if born else "free_requested", "addr": 512 * block, "size": size} for born, size, block in live]]}


def parts():
    """Micro-batches, and a last pipeline stage, whose passes follow one another as those of accumulated gradients do: pairs of steps of
    the recording of one micro-batch."""
    name, pair = "bare_olmoe", 2
    steps = [step for number, step in read_steps(name).items() if number >= 3][:6]
    row = steps[0]["row"]
    layers, tokens, experts, top_k = (int(row[key]) for key in ("layers", "tokens", "experts", "top_k"))
    prepare(row, steps)
    text = unpack(name)

    def peaks(*options):
        (folder / "out.h5").unlink(missing_ok=True)
        done = spillway("replay", "trace.h5", "--job", "job.yaml", "--snapshot", *options, "--output", "out.h5", "--format", "json")
        check(f"{options}", done.returncode == 0, done.stderr)
        found = json.loads(done.stdout)["rows"][0]["memory"]["allocator"]
        check(f"{options}: all that follows the routing is found",
              found["snapshot"]["routed_tensors_found"] == found["snapshot"]["routed_tensors"] > 0, found["snapshot"])
        with h5py.File(folder / "out.h5") as file:
            return [(file["allocated_gib"][0] * GIB, file["reserved_gib"][0] * GIB), found]

    (allocated, reserved), _ = peaks(f"{name}.json")
    want = [[max(figure[i:i + pair]) for i in range(0, len(steps), pair)] for figure in (allocated, reserved)]
    ids = numpy.load(folder / "ids.npy")  # [steps][layers][tokens of both ranks][top_k]
    ids = ids.reshape(len(steps) // pair, pair, layers, RANKS, tokens, top_k).transpose(0, 2, 3, 1, 4, 5).reshape(
        len(steps) // pair, layers, RANKS * pair * tokens, top_k)
    (folder / "two.json").write_text(json.dumps(accumulated(text, pair, 3)))
    model, job = json.loads((folder / "model.json").read_text()), (folder / "job.yaml").read_text()
    for stages in (1, 2):
        numpy.save(folder / "ids.npy", ids if stages == 1 else numpy.concatenate([ids[:, ::-1], ids], axis=1))
        (folder / "model.json").write_text(json.dumps({**model, "num_hidden_layers": stages * layers}))
        (folder / "cluster.yaml").write_text(CLUSTER.replace("nodes: 1", f"nodes: {stages}"))
        (folder / "job.yaml").write_text(job.replace("fsdp: 1", f"fsdp: 1, pipeline: {stages}").replace(
            "sequences_per_gpu: 1", f"sequences_per_gpu: {pair}, micro_batches: {pair}"))
        done = spillway("trace", "import", "array", "ids.npy", "--output", "trace.h5", "--experts", str(experts), "--top-k", str(top_k),
                        "--axes", "steps,layers,tokens,k", "--tokens-per-rank", str(pair * tokens))
        check("import", done.returncode == 0, done.stderr)
        got, found = peaks("two.json", "--snapshot-stage", str(stages - 1))
        for what, figures, wanted in zip(("allocated", "reserved"), got, want):
            for i, (a, b) in enumerate(zip(figures, wanted)):
                check(f"{stages} stages, step {i}: {what}", abs(a - b) <= 4 << 20, a, b)
        check("the stage that was recorded", found["worst_reserved"]["stage"] == stages - 1, found["worst_reserved"])
    done = spillway("replay", "trace.h5", "--job", "job.yaml", "--snapshot", "two.json", "--snapshot-stage", "2")
    check("a stage that is none", done.returncode == 2 and "2 stages" in done.stderr, done.stderr)


def micro_batches(name, recording, *options):
    """A whole model under TransformerEngine with micro-batches, recorded while balanced; beside a run of its own, the bytes that its tensors ask
    for. One run's routing is drawn anew in every step, the other has two stages."""
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(measured))
    import pipeline_jobs
    ranks = pipeline_jobs.read("whole_validation_h100.csv")[name]
    pipeline_jobs.write_job(ranks[0], str(folder / "parts.yaml"))
    pipeline_jobs.write_trace(ranks[0], str(folder / "parts.h5"))
    with lzma.open(measured / f"{recording}.json.xz") as packed:
        (folder / "parts.json").write_bytes(packed.read())
    done = spillway("replay", "parts.h5", "--job", "parts.yaml", "--scheme", "megatron-alltoall", "--snapshot", "parts.json", *options,
                    "--format", "json")
    check(name, done.returncode == 0, done.stderr)
    got = json.loads(done.stdout)["rows"][0]["memory"]["allocator"]
    found, said = got["snapshot"], max(int(r["requested_peak"]) for r in ranks)
    check(f"{name}: found", found["routed_bytes_found"] > 0.999 * found["routed_bytes"], found)
    check(f"{name}: requested", abs(got["requested"]["max_bytes"] / said - 1) < 1e-4, got["requested"], said)


compare("gpt_olmoe", 4, 0.001)
compare("gpt_mini", 4, 0.01)
parts()
micro_batches("gl-ep2-zipf", "snapshot_gl_ep2_parts")
micro_batches("gl-pp2", "snapshot_gl_pp2_parts", "--snapshot-stage", "1")
compare("bare_olmoe", 3, 0.001)
damage()
print(f"{checks} checks")
