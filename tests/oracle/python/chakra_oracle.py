#!/usr/bin/env python3
"""spillway_moe.chakra: its files, read by the classes that protoc makes of Chakra's own schema, hold the bytes of every pair of ranks, which
are counted here from the choices. protobuf and protoc come from PyPI.
chakra_oracle.py SPILLWAY SOURCE SCRATCH VENV"""
import collections
import json
import os
import pathlib
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
import framework_venv

framework_venv.enter(sys.argv[4], "pyarrow", framework_venv.IMPORTS, "cmake -DSPW_JAX=OFF leaves this test out")
program, source, scratch = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
scratch /= "chakra_oracle"
sys.path.insert(0, str(source / "python"))
os.environ["PYTHONPATH"] = str(source / "python")
import h5py
import numpy as np

from spillway_moe.chakra import write_chakra

shutil.rmtree(scratch, ignore_errors=True)
(scratch / "classes").mkdir(parents=True)
schema = pathlib.Path(__file__).parent / "chakra"
subprocess.run([sys.executable, "-m", "grpc_tools.protoc", f"-I{schema}", f"--python_out={scratch / 'classes'}", "et_def.proto"], check=True)
sys.path.insert(0, str(scratch / "classes"))
import et_def_pb2 as chakra

RANKS, TOKENS, LAYERS, EXPERTS, TOP_K = 8, 64, 7, 64, 8
GROUP = 4
checks = 0


def check(good, what):
    global checks
    checks += 1
    if not good:
        sys.exit(f"FAIL {what}")


def run(*words):
    done = subprocess.run([str(program), *map(str, words)], capture_output=True, text=True)
    check(done.returncode == 0, done.stderr)
    return done.stdout


def messages(path):
    """The length-delimited messages of a file."""
    content, at, out = path.read_bytes(), 0, []
    while at < len(content):
        length = shift = 0
        while True:
            byte = content[at]
            at, length, shift = at + 1, length | (byte & 127) << shift, shift + 7
            if byte < 128:
                break
        out.append(content[at:at + length])
        check(len(out[-1]) == length, f"{path} is cut short")
        at += length
    return out


random = np.random.default_rng(9)
ids = np.argsort(random.random((RANKS * TOKENS, LAYERS, EXPERTS)) ** np.linspace(1, 3, EXPERTS), axis=-1)[..., :TOP_K].astype(np.int32)
np.save(scratch / "ids.npy", ids)
run("trace", "import", "array", scratch / "ids.npy", "--output", scratch / "run.h5", "--experts", EXPERTS, "--top-k", TOP_K, "--axes",
    "tokens,layers,k", "--tokens-per-rank", TOKENS, "--layers", "1:8")
job = {"model": "scratch-moe-e64", "cluster": "mi355x:8x1", "parallel": {"expert": GROUP, "fsdp": RANKS // GROUP}, "schemes": ["gmm", "gmm-deepep"],
       "batch": {"sequences_per_gpu": 1, "sequence_length": TOKENS}}
(scratch / "job.yaml").write_text(json.dumps(job))
rows = json.loads(run("replay", scratch / "run.h5", "--job", scratch / "job.yaml", "--output", scratch / "result.h5", "--format", "json"))["rows"]
hidden = json.loads((source / "sim/models/scratch-moe-e64.json").read_text())["hidden_size"]

# Assignments (gmm) and tokens once a rank (gmm-deepep) from each rank to the ranks of its group, a mean over layers; bf16.
home = ids // (EXPERTS // GROUP)
to = np.stack([(home == d).sum(2) for d in range(GROUP)], 2).reshape(RANKS, TOKENS, LAYERS, GROUP)  # assignments of a token
for row, counted in ((0, to.sum(1)), (1, (to > 0).sum(1))):
    sent = counted.mean(1)
    sent[np.arange(RANKS), np.arange(RANKS) % GROUP] = 0  # to itself: nothing crosses
    folder = scratch / str(row)
    paths = write_chakra(scratch / "result.h5", folder, row)
    check([p.name for p in paths] == [f"moe.{r}.et" for r in range(RANKS)] and len(list(folder.iterdir())) == RANKS, f"files: {paths}")
    sends, receives, per_row = collections.Counter(), collections.Counter(), set()
    for rank, path in enumerate(paths):
        head, *nodes = messages(path)
        meta = chakra.GlobalMetadata.FromString(head)
        check(meta.version == "1.0.0" and rows[row]["scheme"] in meta.attr[0].string_val, f"{path}: {meta}")
        parsed, seen = [chakra.Node.FromString(n) for n in nodes], {}
        for node in parsed:
            attr = {a.name: getattr(a, a.WhichOneof("value")) for a in node.attr}
            check(set(attr) == {"is_cpu_op", "comm_size", "comm_src", "comm_dst", "comm_tag"} and not attr["is_cpu_op"], f"{path}: {attr}")
            check(not node.ByteSize() == 0 and node.id not in seen and all(seen[d] < attr["comm_tag"] for d in node.data_deps), f"{path}: order of {node}")
            check(bool(node.data_deps) == (attr["comm_tag"] > 0), f"{path}: {node} waits for nothing")
            seen[node.id] = attr["comm_tag"]
            key = attr["comm_src"], attr["comm_dst"], attr["comm_tag"]
            own, side = (attr["comm_src"], sends) if node.type == chakra.COMM_SEND_NODE else (attr["comm_dst"], receives)
            check(own == rank and node.type in (chakra.COMM_SEND_NODE, chakra.COMM_RECV_NODE) and key not in side, f"{path}: {node}")
            side[key] = attr["comm_size"]
        check(set(seen.values()) == set(range(2 * LAYERS)), f"{path}: {len(set(seen.values()))} phases")
    check(sends and sends == receives, "what is sent is not what is received")
    back = rows[row]["traffic"]["combine_bytes_per_gpu"] / rows[row]["traffic"]["dispatch_bytes_per_gpu"]
    for s in range(RANKS):
        for d in range(GROUP):
            target, here = s // GROUP * GROUP + d, sent[s, d]
            for layer in range(LAYERS):
                there, home_again = sends[s, target, 2 * layer], sends[target, s, 2 * layer + 1]
                check((there > 0) == (here > 0) and abs(home_again - there * back) <= 1, f"row {row}: {s} to {target}: {there}, {home_again}")
                if here > 0:
                    per_row.add(round(there / here, 2))
    check(max(per_row) - min(per_row) < 0.1 and min(per_row) > 2 * hidden - 0.1, f"row {row}: bytes of a row: {per_row}, hidden {hidden}")
    if row == 0:
        check(abs(max(per_row) - 2 * hidden) < 0.1, f"bytes of a row of gmm: {per_row}")

for words, says in (((scratch / "run.h5", scratch / "none"), "has no link_bytes"), ((scratch / "result.h5", scratch / "none", "--row", "2"), "rows 0 to 1")):
    done = subprocess.run([sys.executable, "-m", "spillway_moe.chakra", *map(str, words)], capture_output=True, text=True)
    check(done.returncode == 2 and says in done.stderr and not (scratch / "none").exists(), done.stderr)
done = subprocess.run([sys.executable, "-m", "spillway_moe.chakra", str(scratch / "result.h5"), str(scratch / "shell")], capture_output=True, text=True)
check(done.returncode == 0 and done.stdout.startswith("wrote 8 files, "), f"{done.stdout}{done.stderr}")
check((scratch / "shell" / "moe.3.et").read_bytes() == (scratch / "0" / "moe.3.et").read_bytes(), "the command writes something else")
print(f"{checks} checks")
