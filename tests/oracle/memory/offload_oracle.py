#!/usr/bin/env python3
"""Megatron-Core's offloading of activations against tensors that are taken to the host and back one by one, written from
docs/schemes.md: the lists of sections 5.2 to 5.4, the rules of section 7.17. Random pipelines, virtual stages, micro-batches,
layers shared out unevenly, tensors above and below the size from which on they are taken; routing that leaves some ranks
below it; what Megatron-Core's own manager held on a GPU.

offload_oracle.py SPILLWAY SCRATCH ROOT"""
import csv
import itertools
import json
import pathlib
import re
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from offloaded import BYTES_PER_S, finish, folder, program, same, traffic
from replay_case import Case, Tokens, replay, run, without_formats

schemes = (pathlib.Path(sys.argv[3]) / "docs/schemes.md").read_text()
data = pathlib.Path(sys.argv[3]) / "notebooks_data/measured"
LEAST = 1 << 20   # elements
GROUPS = {"expert_fc1": ("fc1_input",), "moe_act": ("fc1_output", "row_probs")}


# --- The lists of the document ---

def lists(section, which=0):
    """[(step, [(+1 or -1, tensor)])] of the pass that keeps and of the backward pass."""
    text = schemes[schemes.index(f"- **{section} "):]
    for _ in range(which + 1):
        text = text[text.index("keeping:"):]
        keeping, backward = re.match(r"keeping:(.*?)backward:(.*?)\n\n", text, re.S).groups()
        text = text[1:]
    return [[(" ".join(step.partition(":")[0].split()),
              [(1 if word[0] == "+" else -1, word[1:]) for word in step.partition(":")[2].split()])
             for step in part.split(";")] for part in (keeping, backward)]


LISTS = {"megatron-alltoall": lists("5.2"), "megatron-allgather": lists("5.3"),
         "megatron-flex:backend=hybridep": lists("5.4", 1)}


def sizes(case, tokens):
    """Elements and bytes of each, of a gradient d_x those of x; of balanced routing, where all rows are T K."""
    T, R, E, K, H, F = tokens, case.expert, case.experts, case.top_k, case.hidden, case.ffn
    e, M = E // R, tokens * case.top_k
    table = {"logits": (T * E, 4), "probs": (T * E, 4), "probs_by_expert": (T * E, 4), "chosen_probs": (T * K, 4),
             "routing_map": (T * E, 1), "map_by_expert": (T * E, 1), "argsort": (T * E, 8), "permutation": (M, 8),
             "sent_probs": (M, 4), "received_probs": (M, 4), "row_probs": (M, 4), "output": (T * H, 2), "x": (T * H, 2),
             "fc1_output": (M * 2 * F, 2), "fc2_input": (M * F, 2)}
    for rows in ("sent_rows", "received_rows", "fc1_input", "fc2_output", "unsorted_rows", "combined_rows"):
        table[rows] = (M * H, 2)
    gathered = {"gathered_map": (R * T * E, 1), "gathered_probs": (R * T * E, 4), "gathered_rows": (R * T * H, 2),
                "local_map": (R * T * e, 1), "local_probs": (R * T * e, 4), "map_by_expert": (R * T * e, 1),
                "argsort": (R * T * e, 8), "probs_by_expert": (R * T * e, 4), "prob_mask": (R * T * e, 1),
                "restored_rows": (R * T * H, 2), "restored_fp32": (R * T * H, 4), "reduced_fp32": (T * H, 4)}
    return table | (gathered if case.schemes[0] == "megatron-allgather" else {})


# recipe, kind of GPU, bytes of 32 elements of a copy, copies, has a tensor one scale, multiple of an expert's rows (7.12)
RECIPES = (("delayed", "hopper", 32, 2, True, 16), ("tensorwise", "hopper", 32, 2, True, 16), ("tensorwise", "blackwell", 32, 1, True, 16),
           ("blockwise", "hopper", 33, 2, False, 16), ("mxfp8", "blackwell", 33, 2, False, 32))


def with_copies(case, modules, recipe, listed):
    """The lists of 5.2 under a recipe (7.12): an operand is cast before its product; of an input the copy that the gradient of the
    weights reads waits, and no bf16, but of one that is offloaded (fc1_input) or run again (fc2_input): these wait in bf16, or not
    at all, and are cast by row forward and by column, with one scale a tensor in all copies, backward."""
    copies, tensor_scale = recipe[3], recipe[4]
    again = {"fc1_input": "expert_fc1" in modules, "fc2_input": case.remat == "moe_act"}
    both = lambda name: [name + "_fp8"] + ([name + "_fp8_t"] if copies == 2 else [])
    waits = lambda name: both(name)[-1]
    out = []
    for step, events in listed[0]:
        name = {"fc1": "fc1_input", "fc2": "fc2_input"}.get(step)
        if name:
            made = [name + "_fp8"] if again[name] else both(name)
            gone = [c for c in made if again[name] or c != waits(name)]
            events = [(1, c) for c in made] + events + [(-1, c) for c in gone] + ([(-1, name)] if name == "fc2_input" and not again[name] else [])
        if step == "layer end":
            events = events + ([] if again["fc1_input"] else [(-1, "fc1_input")])
        out.append((step, events))
    back = []
    for step, events in listed[1]:
        product, _, what = step.partition(" ")
        if product in ("fc1", "fc2") and what == "input gradient":
            events = [(1, c) for c in both({"fc1": "d_fc1_output", "fc2": "d_fc2_output"}[product])] + events
        if product in ("fc1", "fc2") and what == "weight gradient":
            name, gradient = product + "_input", {"fc1": "d_fc1_output", "fc2": "d_fc2_output"}[product]
            cast = (both(name) if tensor_scale else [waits(name)]) if again[name] else []
            rest = [(-1, c) for c in (cast or [waits(name)]) + both(gradient)]
            keep = [e for e in events if e != (-1, name) or again[name]]
            events = [(1, c) for c in cast] + keep + rest
        back.append((step, events))
    return [out, back]


def copy_sizes(table, recipe):
    for name in ("fc1_input", "fc2_input", "d_fc1_output", "d_fc2_output"):
        elements = size_of(table, name)[0]
        for copy in (name + "_fp8", name + "_fp8_t"):
            table[copy] = (elements // 32 * recipe[2], 1)


def size_of(table, name):
    if name in table:
        return table[name]
    if name == "dx":
        return table["x"]
    return table[name.removeprefix("d_")]


# --- The schedule of a stage ---

def passes(stage, stages, chunks, micro):
    """(backward, micro-batch, chunk) in order: 1F1B, interleaved where there are several chunks."""
    if chunks == 1:
        units, warm = [(m, 0) for m in range(micro)], min(stages - 1 - stage, micro)
    else:
        units = [(m, c) for first in range(0, micro, stages) for c in range(chunks) for m in range(first, first + stages)]
        warm = min(2 * (stages - 1 - stage) + (chunks - 1) * stages, micro * chunks)
    forward, backward = [(False, m, c) for m, c in units], [(True, m, chunks - 1 - c) for m, c in units]
    order = forward[:warm]
    for i in range(warm, len(units)):
        order += [forward[i], backward[i - warm]]
    return order + backward[len(units) - warm:]


class Stops(Exception):
    """A pass whose one MoE layer leaves both groups on the GPU."""


class Stage:
    """Everything that one stage's MoE layers hold, tensor by tensor."""

    def __init__(self, case, modules, table, order, layers, listed=None):
        self.lists = listed or LISTS[case.schemes[0]]
        self.case, self.modules, self.table, self.layers = case, modules, table, layers
        self.order = [p for p in order if layers[p[2]] > 0]
        self.turn = [(m, c) for backward, m, c in self.order if backward]   # of the backward passes
        self.begun, self.done = 0, set()
        self.stack = {key: [] for key in self.turn}
        self.live, self.now, self.most, self.between, self.copied, self.after = {}, 0, 0, 0, 0, []

    def birth(self, key, name):
        assert (key, name) not in self.live, (key, name)
        elements, each = size_of(self.table, name)
        self.live[key, name] = elements * each
        self.now += elements * each
        self.most = max(self.most, self.now)

    def death(self, key, name):
        self.now -= self.live.pop((key, name))

    def front(self):
        return self.turn[self.begun] if self.begun < len(self.turn) else None

    def offload(self, at, layer, module):
        last = layer == self.layers[at[1]] - 1
        if last and at in (self.turn[0], self.front()):
            if len(self.modules) > 1 and layer == 0:
                raise Stops
            return
        self.stack[at].append((layer, module))

    def take(self, at, layer, name):
        """To the host, if its group goes there and it is large enough."""
        module = next((m for m in self.modules if name in GROUPS[m]), None)
        elements, each = size_of(self.table, name)
        if (layer, module) in self.stack[at] and elements >= LEAST:
            self.death((at, layer), name)
            self.copied += elements * each

    def bring(self, at):
        layer, module = self.stack[at].pop()
        for name in GROUPS[module]:
            if name in self.table and size_of(self.table, name)[0] >= LEAST:
                self.birth((at, layer), name)

    def next_group(self, at):
        if self.stack[at]:
            self.bring(at)
        elif self.front() in self.done and self.stack[self.front()]:
            self.bring(self.front())

    def step(self, key, events):
        for sign, name in events:
            self.birth(key, name) if sign > 0 else self.death(key, name)

    def forward(self, at, keeping):
        for layer in range(self.layers[at[1]]):
            for step, events in keeping:
                self.step((at, layer), events)
                if step == "fc2" and self.case.remat == "moe_act":
                    self.death((at, layer), "fc2_input")
                for module, ends in (("expert_fc1", "fc1"), ("moe_act", "fc2")):
                    if step == ends and module in self.modules:
                        self.offload(at, layer, module)
                        self.take(at, layer, GROUPS[module][0])
            if "row_probs" in self.table:
                self.take(at, layer, "row_probs")
        self.done.add(at)
        self.between = max(self.between, self.now)
        self.after.append(self.now)

    def backward(self, at, backward):
        self.begun += 1
        for layer in reversed(range(self.layers[at[1]])):
            for step, events in backward:
                if step == "fc2 input gradient" and self.case.remat == "moe_act":
                    self.birth((at, layer), "fc2_input")
                self.step((at, layer), events)
                for module, ends in (("moe_act", "swiglu gradient"), ("expert_fc1", "fc1 weight gradient")):
                    if step == ends and module in self.modules:
                        self.next_group(at)

    def play(self):
        keeping, backward = self.lists
        for back, m, c in self.order:
            self.backward((m, c), backward) if back else self.forward((m, c), keeping)
        assert not self.live and not any(self.stack.values()), sorted({n for _, n in self.live}) or self.stack
        return self


# --- Cases ---

def blocks_of(stages, chunks, layers, ends):
    """Layers of every block, first stages first: [chunk][stage]. ends: of the first and of the last stage."""
    if ends is None:
        all_ = [layers // (stages * chunks) + (i < layers % (stages * chunks)) for i in range(stages * chunks)]
        return [all_[c * stages:(c + 1) * stages] for c in range(chunks)]
    middle = (layers - sum(ends)) // (stages - 2)
    of_stage = [ends[0]] + [middle] * (stages - 2) + [ends[1]]
    return [[n // chunks for n in of_stage] for _ in range(chunks)]


def components(job, what):
    done = run(program, "explain", "--job", job, "--format", "json")
    if done.returncode != 0:
        sys.exit(f"FAILED explain {what}: {done.stderr}")
    return {c["component"]: c["bytes"] for c in json.loads(done.stdout)}


def random_case(seed):
    rng = np.random.default_rng(seed)
    stages, micro, chunks, ends = int(rng.choice([1, 1, 2, 3, 4])), int(rng.choice([1, 2, 3, 6])), 1, None
    if stages > 1 and seed % 2:
        micro, chunks = stages * int(rng.integers(1, 4)), int(rng.choice([2, 3]))
    layers = int(rng.integers(stages * chunks, 4 * stages * chunks + 1))
    if stages > 2 and seed % 3 == 0:
        ends = (chunks * int(rng.integers(1, 4)), chunks * int(rng.integers(1, 4)))
        layers = sum(ends) + (stages - 2) * chunks * int(rng.integers(1, 4))
    scheme = list(LISTS)[seed % 3]
    modules = [["expert_fc1"], ["moe_act"], ["expert_fc1", "moe_act"]][int(rng.integers(3))]
    expert = int(rng.choice([2, 4]))
    tokens, hidden, ffn = [(1024, 512, 256), (1024, 256, 512), (4096, 64, 1024), (1000, 512, 512), (2048, 1024, 192),
                           (1 << 19, 16, 16)][int(rng.integers(6))]
    case = Case(nodes=stages, gpus_per_node=expert, expert=expert, experts=2 * expert, top_k=2, hidden=hidden, ffn=ffn,
                model_layers=layers, sequences=micro, length=tokens, remat=str(rng.choice(["none", "moe_act"])),
                schemes=(scheme,))
    recipe = None
    if scheme == "megatron-alltoall" and seed % 4 > 0 and tokens % 256 == 0 and hidden % 32 == 0:
        refused = ["delayed"] * (case.remat == "moe_act" or "expert_fc1" in modules) + ["mxfp8"] * ("expert_fc1" in modules)
        recipe = RECIPES[int(rng.choice([i for i, r in enumerate(RECIPES) if r[0] not in refused]))]
    return judge(f"s{seed}", case, modules, stages, chunks, ends, recipe)


def judge(name, case, modules, stages=1, chunks=1, ends=None, recipe=None):
    """True: something is copied; None: Megatron-Core stops."""
    scheme, micro, layers, tokens, expert = case.schemes[0], case.sequences, case.model_layers, case.length, case.expert
    job = case.write(folder, name)
    parallel = f"fsdp: 1, pipeline: {stages}" + (f", virtual_stages: {chunks}" if chunks > 1 else "")
    if ends is not None:
        parallel += f", decoder_first_pipeline_num_layers: {ends[0]}, decoder_last_pipeline_num_layers: {ends[1]}"
    job.write_text(without_formats(job).replace(f"fsdp: {case.ranks // expert}", parallel)
                   .replace("batch: {", f"batch: {{micro_batches: {micro}, ")
                   + f"optimizer: distributed\noffload_modules: [{', '.join(modules)}]\n")
    blocks, table, listed = blocks_of(stages, chunks, layers, ends), sizes(case, tokens), None
    if recipe:
        recipes_seen.add(recipe[:2])
        job.write_text(without_formats(job).replace(scheme, f"{scheme}:align={recipe[5]},pay=router") + f"precision: {{recipe: {recipe[0]}}}\n")
        cluster = folder / f"{name}_cluster.yaml"
        cluster.write_text(cluster.read_text() + f"gpu_generation: {recipe[1]}\n")
        listed = with_copies(case, modules, recipe, LISTS[scheme])
        copy_sizes(table, recipe)
    what = f"case {name} {recipe} {scheme} {modules} {stages} x {chunks}, {micro} micro-batches, {blocks}, remat {case.remat}"
    try:
        played = [Stage(case, modules, table, passes(s, stages, chunks, micro), [blocks[c][s] for c in range(chunks)], listed).play()
                  for s in range(stages)]
    except Stops:
        done = run(program, "explain", "--job", job)
        same(f"{what} exit", done.returncode, 2)
        same(f"{what} stops", "Chunk mismatch" in done.stderr, True)
        return None
    got = components(job, what)
    found = (sum(b for name, b in got.items() if name.startswith("moe.")) + got["saved_rows_of_other_layers"],
             got["saved_rows"] + got["staying_groups"])
    wanted = [(s.most, s.between) for s in played]
    same(f"{what}: {found} in {wanted}", found in wanted, True)
    if stages == 1:
        same(what, found, wanted[0])
    host = [i for i in traffic(job, what) if i["purpose"] == "host_offload"]
    same(f"{what} copies", round(sum(i["step_bytes"] for i in host) * stages), 2 * sum(s.copied for s in played))
    return sum(s.copied for s in played) > 0


# --- Routing ---

def routed_case(seed):
    """One stage and micro-batch: what waits of every layer, and what stays of the last, of the rank that is fullest."""
    rng = np.random.default_rng(1000 + seed)
    layers, steps, ranks, tokens = int(rng.integers(2, 5)), 2, 4, 1024
    case = Case(gpus_per_node=ranks, expert=ranks, experts=8, hidden=512, ffn=256, model_layers=layers, length=tokens, vocab=65536,
                remat="none", schemes=("megatron-alltoall",))
    job = case.write(folder, f"r{seed}")
    job.write_text(without_formats(job) + "optimizer: distributed\noffload_modules: [expert_fc1]\n")
    skew = rng.random((steps, 1, layers, 8)) ** rng.exponential(1.0, (steps, 1, 1, 1))
    ids = np.argsort(-rng.random((steps, ranks * tokens, layers, 8)) * skew, axis=3)[..., :2].astype(np.uint8)
    source, position = np.tile(np.repeat(np.arange(ranks), tokens), steps), np.tile(np.arange(tokens), steps * ranks)
    path = Tokens(ids.reshape(-1, layers, 2), [ranks * tokens] * steps, 8, ranks, source, position * 0,
                  position).write(folder / f"r{seed}.h5")
    got = replay(program, path, job)["rows"][0]["memory"]["components"]
    shaped = ids.reshape(steps, ranks, tokens, layers, 2)
    wanted, small = [], 0
    for s in range(steps):
        for r in range(ranks):
            saved = stays = 0
            for l in range(layers):
                rows, sent = int((shaped[s, :, :, l] // 2 == r).sum()), tokens * 2
                fc1_input = rows * 512
                small += fc1_input < LEAST
                taken = 2 * fc1_input if fc1_input >= LEAST else 0
                saved += rows * (512 + 3 * 256) * 2 + 4 * rows + tokens * (17 * 8 + 4 * 2) + 8 * sent - taken
                stays = taken
            wanted.append((saved, stays))
    found = (got["saved_rows"], got["staying_groups"])
    same(f"routed {seed}: {found} in {wanted}", found in wanted, True)
    return small > 0


# --- Measured ---

def measured():
    """Megatron-Core's own manager on a GPU: bytes after every forward pass, seconds between the bounds."""
    LISTS["measured"] = [[("norm", [(1, "fc1_input")]), ("fc1", [(1, "fc1_output")]), ("swiglu", [(1, "fc2_input")]), ("fc2", [])],
                         [("fc2", [(-1, "fc2_input")]), ("swiglu gradient", [(-1, "fc1_output")]),
                          ("fc1 weight gradient", [(-1, "fc1_input")])]]
    case, without = Case(remat="none", schemes=("measured",)), {}
    for row in csv.DictReader((data / "h200_offload.csv").open()):
        hidden, ffn, rows, layers, stages, stage, micro = (int(row[name]) for name in (
            "hidden", "ffn", "rows", "layers", "stages", "stage", "micro_batches"))
        modules = [] if row["modules"] == "none" else row["modules"].split()
        table = {"fc1_input": (rows * hidden, 2), "fc1_output": (rows * 2 * ffn, 2), "fc2_input": (rows * ffn, 2)}
        order = passes(stage, stages, 1, micro)
        played = Stage(case, modules, table, order, [layers]).play()
        flight = itertools.accumulate(-1 if backward else 1 for backward, _, _ in order)
        outputs = [n * rows * hidden * 2 for n, (backward, _, _) in zip(flight, order) if not backward]
        what, seconds = f"measured {row}", float(row["step_s"])
        same(what, list(map(int, row["kept_bytes"].split())), [a + b for a, b in zip(played.after, outputs)])
        job = (hidden, stages, stage, micro, row["fill"])
        without.setdefault(job, seconds)
        one_way = played.copied / BYTES_PER_S
        same(f"{what} time", max(without[job], one_way) * 0.995 <= seconds <= without[job] + 2 * one_way + 1e-9, True)


recipes_seen = set()
results = [random_case(seed) for seed in range(100)]
stopped, copying = results.count(None), results.count(True)
if stopped < 3 or copying < 50 or results.count(False) < 3:
    sys.exit(f"FAILED {stopped} stop, {copying} copy of {len(results)} cases: the cases say little")
if len(recipes_seen) < len(RECIPES):
    sys.exit(f"FAILED recipes {recipes_seen}: the cases say little")
if sum(routed_case(seed) for seed in range(12)) < 4:
    sys.exit("FAILED too few routings leave a rank below the least size")
measured()
finish(f"; {copying} cases copy, {stopped} stop Megatron-Core")
