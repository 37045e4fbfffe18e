#!/usr/bin/env python3
"""Reserved memory through micro-batches and pipeline stages, written a second time: PyTorch's caching allocator from the rules in
docs/reserved.md and c10/cuda/CUDACachingAllocator.cpp, with a list of segments in place of sorted pools, fed with the events of 1F1B
and interleaved schedules that are found by running all stages against each other and not by a formula. What a layer allocates comes
from the same job with one micro-batch, whose list other tests hold. The optimizer's first step allocates its moments behind the passes of
the first step, two tensors a parameter, whose sizes are worked out here from the shapes of the layers. Peaks of every step must be equal to the byte, of lists that
are replayed whole and of those in which states that come again are left out.

allocator_oracle.py ALLOCATOR_DUMP SCRATCH [--cases N]"""
import json
import pathlib
import subprocess
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from replay_case import CLUSTER

dump, scratch = (pathlib.Path(a).resolve() for a in sys.argv[1:3])
cases = int(sys.argv[sys.argv.index("--cases") + 1]) if "--cases" in sys.argv else 10
folder = scratch / "allocator_oracle"
folder.mkdir(parents=True, exist_ok=True)
checks = failed = 0
MIB = 1 << 20


def check(good, what):
    global checks, failed
    checks += 1
    if not good:
        failed += 1
        print(f"allocator_oracle: {what}")


class Allocator:
    """Segments are lists of [bytes, allocated]; no expandable segments, no limit of splits."""

    def __init__(self, limit):
        self.limit, self.reserved, self.allocated, self.requested = limit, 0, 0, 0
        self.segments = []  # [small, number, blocks, free ones]
        self.peaks()

    def peaks(self):
        self.most = [self.requested, self.allocated, self.reserved]

    def fitting(self, small, size):
        found = None
        for segment in self.segments:
            if segment[0] != small or segment[3] == 0:
                continue
            address = 0
            for block in segment[2]:
                if not block[1] and block[0] >= size:
                    key = (block[0], segment[1], address)
                    if found is None or key < found[0]:
                        found = (key, segment, block)
                address += block[0]
        return found and found[1:]

    def grow(self, small, size):
        whole = 2 * MIB if small else 20 * MIB if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
        if self.reserved + whole > self.limit:
            for segment in [s for s in self.segments if len(s[2]) == 1 and not s[2][0][1]]:
                self.reserved -= segment[2][0][0]
                self.segments.remove(segment)
        if self.reserved + whole > self.limit:
            return None
        number = 1 + max((s[1] for s in self.segments), default=0)
        self.segments.append([small, max(number, getattr(self, "number", 0) + 1), [[whole, False]], 1])
        self.number = self.segments[-1][1]
        self.reserved += whole
        return self.segments[-1], self.segments[-1][2][0]

    def allocate(self, size):
        if size == 0:
            return "nothing"
        rounded = -(-size // 512) * 512
        small = rounded <= MIB
        found = self.fitting(small, rounded) or self.grow(small, rounded)
        if found is None:
            return None
        segment, block = found
        rest = block[0] - rounded
        if rest >= 512 if small else rest > MIB:
            block[0] = rounded
            segment[2].insert(next(i for i, b in enumerate(segment[2]) if b is block) + 1, [rest, False])
            segment[3] += 1
        block[1] = True
        segment[3] -= 1
        self.requested += size
        self.allocated += block[0]
        self.most = [max(a, b) for a, b in zip(self.most, (self.requested, self.allocated, self.reserved))]
        return segment, block, size

    def free(self, handle):
        if handle == "nothing":
            return
        segment, block, size = handle
        self.requested -= size
        self.allocated -= block[0]
        block[1] = False
        segment[3] += 1
        blocks, at = segment[2], next(i for i, b in enumerate(segment[2]) if b is block)
        for other in (at + 1, at - 1):
            if 0 <= other < len(blocks) and not blocks[other][1]:
                low = min(at, other)
                blocks[low][0] += blocks[low + 1][0]
                del blocks[low + 1]
                segment[3] -= 1
                at = low


def schedule(stages, chunks, parts):
    """Passes of every stage, (backward, micro-batch, chunk), by running them: a stage does what it can, a forward pass while fewer than
    its warm-up are under way, else a backward pass if one may begin, else it waits. Interleaved, passes go in groups of as many
    micro-batches as there are stages, chunk by chunk (Narayanan et al. 2021)."""
    def numbered(backward):
        order = []
        for group in range(0, parts, stages):
            here = range(group, min(group + stages, parts))
            for chunk in (reversed(range(chunks)) if backward else range(chunks)):
                order += [(b, chunk) for b in here]
        return order
    forward, backward = numbered(False), numbered(True)
    out = [[] for _ in range(stages)]
    done = set()
    for clock in range(100000):
        if all(len(o) == 2 * parts * chunks for o in out):
            return out
        ended = []
        for s in range(stages):
            f, b = sum(not p[0] for p in out[s]), sum(p[0] for p in out[s])
            later = stages - 1 - s
            warm = later if chunks == 1 else 2 * later + (chunks - 1) * stages
            turn = f < len(forward) and f - b <= warm and (f < warm or f == b + min(warm, len(forward)))
            if turn:
                part, chunk = forward[f]
                index = chunk * stages + s
                ready = index == 0 or (False, part, index - 1) in done
            else:
                part, chunk = backward[b] if b < len(backward) else (0, 0)
                index = chunk * stages + s
                ready = b < len(backward) and (index == stages * chunks - 1 or (True, part, index + 1) in done) and (False, part, index) in done
            if ready:
                out[s].append((not turn, part, chunk))
                ended.append((not turn, part, index))
        done.update(ended)
    raise SystemExit("a schedule that does not end")


def run(job, scheme, stage, rows, step=0):
    done = subprocess.run([dump, job, scheme, str(stage), str(step)], input="".join(f"{a} {b} {c}\n" for a, b, c in rows), capture_output=True, text=True)
    check(done.returncode == 0, done.stderr)
    return done.stdout.split("\n")[:-1]


def passes_of(lines):
    """What comes and goes before, (slot, bytes or None for a death); the moments; the passes of a step: lists of (slot, bytes or None, layer)."""
    passes = [[]]
    for line in lines:
        if line == "pass":
            passes.append([])
        elif line[0].isdigit():
            layer, born, _, slot, size, _ = (int(w) for w in line.split())
            passes[-1].append((slot, size if born else None, layer))
    check(not passes.pop(), "events behind the last pass")
    begin = [(int(slot), None if size == "-" else int(size)) for word, size, slot in (l.split() for l in lines if l.startswith("begin"))]
    return (begin, [int(line.split()[1]) for line in lines if line.startswith("optimizer")]), passes


def parameters(model, stage, stages, chunks, shards, ranks):
    """Elements of the parameters whose state a GPU has: `shards` of what is no expert, by Megatron-Core's cut of the buffer or (each)
    a part of every one. [(elements, count)], and all elements with the norms."""
    H, F, D, V = (model[k] for k in ("hidden_size", "moe_intermediate_size", "head_dim", "vocab_size"))
    heads, kv, E, layers = (model[k] for k in ("num_attention_heads", "num_key_value_heads", "num_experts", "num_hidden_layers"))
    blocks = chunks  # a buffer each
    here = layers // stages // blocks
    rest = [((heads + 2 * kv) * D * H, here), (heads * D * H, here), (E * H, here)]
    rest += [(V * H, (stage == 0) + (stage == stages - 1))]
    norms = blocks * here * 2 * H + (H if stage == stages - 1 else 0)
    cut = []
    for elements, count in rest[:-1] * blocks + rest[-1:]:
        whole, part = divmod(count, shards)
        cut += [(elements, whole), (elements * part // shards, 1 if part else 0)]
    experts = [(2 * F * H, blocks * here * E // ranks), (H * F, blocks * here * E // ranks)]
    every = [(e, n) for e, n in cut + experts if n]
    return every, sum(e * n for e, n in every) + norms // shards


def one(seed):
    rng = np.random.default_rng(seed)
    pick = lambda values: values[int(rng.integers(len(values)))]
    stages, chunks, parts = pick(((1, 1, 4), (2, 1, 3), (2, 1, 9), (4, 1, 6), (3, 1, 2), (2, 2, 4), (2, 2, 8), (3, 2, 6)))
    scheme, remat = pick(("megatron-alltoall", "megatron-alltoall", "megablocks", "torchtitan")), pick(("none", "full"))
    optimizer = pick(("distributed", "replicated")) if scheme.startswith("megatron") else pick(("sharded", "replicated"))
    if scheme == "torchtitan" and stages == 1:
        optimizer = "replicated"  # sharded gradients have a stream of their own: tests/unit/memory/test_made_gradients.c
    E, K, S, R, steps = 8, pick((1, 2)), 512, 2, 3
    layers = stages * chunks * pick((1, 2))
    model = dict(model_type="generic", hidden_size=512, moe_intermediate_size=pick((256, 512)), intermediate_size=1024, num_attention_heads=4,
                 head_dim=64, num_key_value_heads=2, num_experts=E, num_experts_per_tok=K, num_hidden_layers=layers,
                 tie_word_embeddings=False, vocab_size=2048)
    (folder / "model.json").write_text(json.dumps(model))
    (folder / "cluster.yaml").write_text(CLUSTER.format(name="case", nodes=stages, gpus_per_node=R))

    def write(name, count):
        (folder / name).write_text(
            f"model: ./model.json\ncluster: ./cluster.yaml\nremat: {remat}\noptimizer: {optimizer}\nlibrary_limits: ignore\n"
            f"parallel: {{expert: {R}, fsdp: 1, pipeline: {stages}, virtual_stages: {chunks}}}\n"
            f"batch: {{sequences_per_gpu: {count}, micro_batches: {count}, sequence_length: {S}}}\n"
            "precision: {weights: bf16, gradients: fp32, optimizer: fp32, activations: bf16}\n")
        return folder / name

    few = stages if chunks > 1 else 1
    job, alone = write("job.yaml", parts), write("alone.yaml", few)
    even = rng.random() < 0.4  # every micro-batch and step alike: states come again
    draw = lambda: int(S * K * (1.0 if even else rng.uniform(0.3, 2.0)))
    held = [[[draw() for _ in range(parts)] for _ in range(layers)] for _ in range(steps)]
    rows = [(h, h, S * K) for step in held for layer in step for h in layer]
    what = f"case {seed}: {scheme}, remat {remat}, {optimizer}, {stages} stages, {chunks} chunks, {parts} micro-batches, even {even}"
    order, short = schedule(stages, chunks, parts), schedule(stages, chunks, few)
    most, said = [[0, 0] for _ in range(steps)], []
    for stage in range(stages):
        known, made = {}, set()

        def events(of_part, backward, chunk):
            """One pass of a micro-batch with these rows, alone on the stage, in a step that had one before."""
            if of_part not in known:
                _, passes = passes_of(run(alone, scheme, stage, [(h, h, S * K) for h in of_part for _ in range(few)] * 2, 1))
                known[of_part] = {(b, c): passes[i] for i, (b, p, c) in enumerate(short[stage]) if p == 0}
                if scheme == "torchtitan" and optimizer == "sharded":
                    made.update(ended_last(passes[-1]))
            return known[of_part][backward, chunk]

        moments, built = [], []
        if scheme.startswith("megatron"):  # else products of all experts are one parameter
            shards = R if optimizer != "replicated" else 1
            every, all_of = parameters(model, stage, stages, chunks, shards, R)
            moments = sorted(4 * e for e, n in every for _ in range(2 * n))
            left = 4 * (all_of - sum(e * n for e, n in every))
            moments = sorted(moments + [left, left])
            if optimizer == "distributed":
                whole, all_whole = parameters(model, stage, stages, chunks, 1, R)
                built = [2 * e for e, n in whole for _ in range(n)] + [2 * (all_whole - sum(e * n for e, n in whole))]
                built = sorted(built + [b // 2 for b in moments[::2]])  # and a copy of each weight whose master is made
        lines = run(job, scheme, stage, rows)
        check_order(f"{what}, stage {stage}", model, passes_of(lines)[0][1], moments, layers // stages, E // R, stage == stages - 1)
        peaks = hold(f"{what}, stage {stage}", lines, order[stage], held, events, (moments, built, made))
        most = [[max(a, b) for a, b in zip(p, m)] for p, m in zip(peaks, most)]
        said = [[int(w) for w in line.split()[1:]] for line in lines if line.startswith("job")]
    check(said == most, f"{what}: the job's steps {said}, want {most}")


def ended_last(backward):
    """Slots that end behind all that a step allocates: whole gradients of FSDP2 beside pipeline stages, which are reduced there. A layer's is made
    in its first backward pass of a step (docs/schemes.md, 7.14)."""
    last = max(i for i, (_, size, _) in enumerate(backward) if size is not None)
    return [slot for slot, _, _ in backward[last + 1:]]


def left_by(backward):
    """Slots that a backward pass fills for the next one, and their layers (docs/schemes.md, 7.19)."""
    births = {slot: layer for slot, size, layer in backward if size is not None}
    for slot, size, _ in backward:
        if size is None:
            births.pop(slot, None)
    return births


def check_order(what, model, optimizer, moments, layers, each, last):
    """Megatron-Core's buffers run from a model's last parameter to its first, and experts have an optimizer of their own."""
    if not moments:
        return
    H, F, V = (model[k] for k in ("hidden_size", "moe_intermediate_size", "vocab_size"))
    layer = [4 * H * F] * each + [8 * H * F] * each
    tail = optimizer[-2 - 2 * len(layer) * layers:-2:2]
    check(tail == layer * layers, f"{what}: experts' moments come as {tail}")
    check(not last or optimizer[0] in (4 * V * H, 2 * V * H), f"{what}: the head's moments come first, not {optimizer[0]}")


def ended_of(begin):
    """Bytes of what is gone before the first step."""
    live, gone = {}, []
    for slot, size in begin:
        if size is None:
            gone.append(live.pop(slot))
        else:
            live[slot] = size
    return sorted(gone)


def hold(what, lines, order, held, events, wanted):
    (begin, optimizer), passes = passes_of(lines)
    moments, built, made = wanted
    check(not moments or ended_of(begin) == built, f"{what}: built {ended_of(begin)[-9:]}, want {built[-9:]}")
    check(not moments or sorted(optimizer) == moments, f"{what}: moments {sorted(optimizer)[-9:]}, want {moments[-9:]}")
    check(len(optimizer) > 0, f"{what}: no moments")
    peaks = []
    got, fast = ([line.split() for line in lines if line.startswith(word)] for word in ("step", "fast"))
    check(len(got) == len(held) and [g[1:5] for g in got] == [f[1:5] for f in fast], f"{what}: {got} whole, {fast} fast")
    allocator, live = Allocator(1 << 60), {}
    for slot, size in begin:
        if size is None:
            allocator.free(live.pop(("begin", slot)))
        else:
            live["begin", slot] = allocator.allocate(size)
    for step, layers in enumerate(held):
        allocator.peaks()
        listed = []
        for backward, part, chunk in order:
            mine = events(tuple(layer[part] for layer in layers), backward, chunk)
            left = {slot: of for slot, of in left_by(mine if backward else events(tuple(layer[part] for layer in layers), True, chunk)).items()
                    if slot not in made}
            listed.append([])
            again = set()

            def free(name):
                allocator.free(live.pop(name))
                listed[-1].append(None)

            for slot, size, layer in mine:
                if slot in made:
                    if size is not None and ("made", slot) not in live:
                        live["made", slot] = allocator.allocate(size)
                        listed[-1].append(size)
                    continue
                for other in [o for o, of in left.items() if backward and of == layer and o not in again]:
                    again.add(other)
                    if ("left", other) in live:
                        free(("left", other))
                name = ("left", slot) if slot in left else (part, chunk, slot)
                if size is not None:
                    live[name] = allocator.allocate(size)
                    listed[-1].append(size)
                elif name in live:  # nothing was left before the first step
                    free(name)
        for name in sorted(n for n in live if n[0] == "made"):
            free(name)
        for size in optimizer if step == 0 else ():
            allocator.allocate(size)
        peaks.append(allocator.most[1:])
        want = [str(v) for v in allocator.most]
        check(got[step][1:4] == want, f"{what}, step {step}: {got[step][1:4]}, want {want}")
        if step == 0:
            check([[size for _, size, _ in p] for p in passes] == listed, f"{what}: other passes")
    still = [name for name in live if name[0] not in ("left", "begin")]
    check(not still, f"{what}: {len(still)} tensors are never freed")
    skipped.append(sum(int(f[5]) for f in fast))
    return peaks


skipped = []
for case in range(cases):
    one(case)
check(sum(s > 0 for s in skipped) > len(skipped) // 8, f"no states come again: {skipped}")
print(f"allocator_oracle: {checks} checks, {failed} failed")
sys.exit(1 if failed or checks < 4 * cases else 0)
