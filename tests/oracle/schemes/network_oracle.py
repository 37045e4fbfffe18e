"""A network of several levels, by brute force: every pair's bytes walk over their path port by port. 30 random hierarchies and
matrices must give the program's bytes exactly, and one replayed job its levels, its slowest level and its time.

usage: network_oracle.py FABRIC_DUMP SPILLWAY SCRATCH ROOT"""
import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import h5py

dump, program, scratch, root = (Path(a) for a in sys.argv[1:5])
scratch.mkdir(parents=True, exist_ok=True)
checks = 0


def check(good, what):
    global checks
    checks += 1
    if not good:
        sys.exit(f"network_oracle: {what}")


def parts(rails):
    return [r for r in range(1, rails + 1) if rails % r == 0]


def hierarchy(draw):
    """[(joins, rails)] from the lowest level up, GPUs of a node."""
    gpus = draw.choice([1, 2, 4, 6, 8])
    levels, rails = [], gpus
    for _ in range(draw.randint(2, 4)):
        rails = draw.choice(parts(rails))
        levels.append((draw.randint(1, 4), rails))
    levels[-1] = (levels[-1][0], 1)
    return levels, gpus


def nest(levels, gpus):
    """A dictionary a level, from a GPU to the switch that it is below: the hierarchy built as boxes in boxes."""
    boxes = [[node * gpus + i for i in range(gpus)] for node in range(product(levels))]
    above = []
    for joins, rails in levels:
        boxes = [sum(boxes[i:i + joins], []) for i in range(0, len(boxes), joins)]
        above.append({gpu: (number, gpu % gpus % rails) for number, box in enumerate(boxes) for gpu in box})
    return above


def product(levels):
    nodes = 1
    for joins, _ in levels:
        nodes *= joins
    return nodes


def walk(above, matrix):
    """Up from the sender until the receiver is below the same switch, then down: the ports' bytes, by level."""
    out, into = Counter(), Counter()
    for (source, target), count in matrix.items():
        here, there = ("gpu", source), ("gpu", target)
        for level, switch_of in enumerate(above):
            out[level, here] += count
            into[level, there] += count
            here, there = switch_of[source], switch_of[target]
            if here == there:
                break
    return [max([v for (l, _), v in list(out.items()) + list(into.items()) if l == level], default=0)
            for level in range(len(above))]


def cluster_text(levels, gpus, ports, latency=500):
    base = (root / "sim/clusters/h200-8x8.yaml").read_text().split("\ngemm:")[0].split("\n# Point by point")[0]
    base = base.replace("name: h200-8x8", "name: drawn").replace("nodes: 8", f"nodes: {product(levels)}")
    base = base.replace("gpus_per_node: 8", f"gpus_per_node: {gpus}")
    rows = {"name": [f"l{i}" for i in range(len(levels))], "size": [s for s, _ in levels],
            "switches": [r for _, r in levels], "port_mb_per_s": ports, "latency_ns": [latency] * len(levels)}
    if not ports:
        return base
    body = "".join(f"  {key}: [{', '.join(map(str, value))}]\n" for key, value in rows.items())
    return f"{base}\nlevels:\n{body}  source: drawn by a test\n"


def random_networks():
    for seed in range(30):
        draw = random.Random(seed)
        levels, gpus = hierarchy(draw)
        total = product(levels) * gpus
        file = scratch / f"drawn_{seed}.yaml"
        file.write_text(cluster_text(levels, gpus, [50000] + [draw.randint(1, 10**6) for _ in levels[1:]]))
        matrix = {(a, b): draw.choice([0, 1, draw.randrange(2**40)]) for a in range(total) for b in range(total)
                  if a // gpus != b // gpus and draw.random() < 0.5}
        text = "".join(f"{a} {b} {count}\n" for (a, b), count in matrix.items())
        run = subprocess.run([dump, file], input=text, capture_output=True, text=True)
        check(run.returncode == 0, f"seed {seed}: {run.stderr}")
        want = walk(nest(levels, gpus), matrix)
        check(list(map(int, run.stdout.split())) == want, f"seed {seed}: {run.stdout.split()}, by hand {want}")


def replayed(name, levels, ports, arguments, expert, latency=500):
    """One step and layer of a trace: the bytes between ranks that a replay writes, walked again."""
    gpus = 4
    file, trace, result = scratch / f"{name}.yaml", scratch / f"trace_{product(levels)}.h5", scratch / f"{name}_result.h5"
    file.write_text(cluster_text(levels, gpus, ports, latency))
    ranks = product(levels) * gpus
    if not trace.exists():
        subprocess.run([program, "trace", "generate", trace, "--ranks", str(ranks), "--experts", "64", "--top-k", "8",
                        "--tokens", "512", "--layers", "1", "--steps", "1", "--seed", "3"], check=True, capture_output=True)
    job = ["--model", "scratch-moe-e64", "--cluster", str(file), "--set", f"parallel.expert={expert}",
           "--set", "batch.sequence_length=512", "--set", "batch.sequences_per_gpu=1"]
    run = subprocess.run([program, "replay", trace, *job, *arguments, "--format", "json", "--output", result],
                         capture_output=True, text=True)
    check(run.returncode == 0, run.stderr)
    return json.loads(run.stdout)["rows"][0], result, ranks, gpus


def one_job():
    levels, expert = [(2, 4), (4, 1)], 16
    row, result, ranks, gpus = replayed("job", levels, [50000, 40000], ["--scheme", "gmm"], expert)
    with h5py.File(result) as h5:
        link = next(h5[n] for n in names(h5) if n.endswith("link_bytes"))[...].reshape(-1, ranks, expert)[0]
    matrix = {}
    for source in range(ranks):
        for member in range(expert):
            target = source // expert * expert + member
            if target // gpus != source // gpus and link[source][member] > 0:
                matrix[source, target] = round(float(link[source][member]))
    want = walk(nest(levels, gpus), matrix)
    got = row["traffic"]["levels"]
    check([l["level"] for l in got] == ["node", "l0", "l1"], f"levels {got}")
    check([l["max_port_bytes"] for l in got[1:]] == want, f"job: {got}, by hand {want}")
    check(row["traffic"]["slowest_level"] == "l1", f"slowest is {row['traffic']['slowest_level']}")
    check(any("network of 2 levels" in o["feature"] for o in row["outside_fit"]) or row["time"]["step_s"] is None,
          f"outside the fit: {row['outside_fit']}")
    return row


def times():
    """The exchanges' time by the law: linear in the slowest level, a latency for every exchange, the NICs' where the levels are
    wide; and an interval that is wider than without levels."""
    levels, expert = [(2, 4), (4, 1)], 16
    for scheme, stack in (("gmm", "xla-cuda-0.10.2"), ("megatron-alltoall", "megatron-h200-2026-11")):
        def time(name, ports, latency, levels=levels):
            return replayed(name, levels, ports, ["--scheme", scheme, "--stack", stack], expert, latency)[0]

        def exchanges(row):
            return row["time"]["components"]["exchanges"]["seconds"]

        plain, wide = time("plain", [], 0), time("wide", [50000, 10**9], 0)
        check(wide["time"]["components"] == plain["time"]["components"], f"{scheme}: wide levels slow the exchanges")
        check("levels" not in plain["traffic"] and plain["outside_fit"] != wide["outside_fit"], f"{scheme}: plain")
        check(wide["time"]["high_s"] > plain["time"]["high_s"] and wide["time"]["low_s"] < plain["time"]["low_s"],
              f"{scheme}: interval {wide['time']} of {plain['time']}")
        one = time("one", [50000], 0, [(8, 1)])
        for row in (plain, one):
            row.pop("cluster")
        check(one == plain, f"{scheme}: a network of one level is none")
        slow = [exchanges(time("slow", [50000, port], 0)) for port in (800, 400, 200)]
        check(slow[0] > 2 * exchanges(plain), f"{scheme}: {slow} of {exchanges(plain)}")
        check(abs((slow[2] - slow[1]) / (slow[1] - slow[0]) - 2) < 1e-9, f"{scheme}: {slow} not linear")
        later = exchanges(time("later", [50000, 800], 10**6)) - slow[0]
        count = later / 2e-3  # two levels of a millisecond
        check(count > 1.99 and abs(count - round(count)) < 1e-6, f"{scheme}: {count} exchanges")


def names(group):
    found = []
    group.visit(found.append)
    return found


random_networks()
one_job()
times()
print(f"network_oracle: {checks} checks")
