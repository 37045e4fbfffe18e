"""The commands that the fault tests run, on inputs so small that a run takes milliseconds."""
import dataclasses
import json
import os
import pathlib
import shutil
import subprocess

import numpy

ROOT = pathlib.Path(__file__).resolve().parents[2]
PUBLISHED = ROOT / "notebooks_data" / "published" / "deepseek3_mi355x_2026_05.csv"
RUNS = ROOT / "notebooks_data" / "measured" / "megatron_h200_runs.csv"
JOB = """model: model.json
cluster: cluster.yaml
parallel: {expert: 4, fsdp: 1}
batch: {sequences_per_gpu: 1, sequence_length: 16}
schemes: [dense:capacity_factor=1.25, gmm]
"""
GENERATE = ["--experts", "12", "--top-k", "3", "--layers", "2", "--first-layer", "1", "--steps", "2", "--ranks", "4",
            "--tokens-per-rank", "16", "--sequence-length", "16", "--hidden", "4096", "--ffn", "2048"]


@dataclasses.dataclass
class Case:
    name: str
    arguments: list  # the program runs in a folder beside `inputs`
    outputs: list = dataclasses.field(default_factory=list)  # files that it replaces
    threads: int = 1


def router_lines():
    for step in range(2):
        for layer in range(2):
            ids = [[(3 * t + layer) % 8, (3 * t + layer + 4) % 8] for t in range(4)]
            yield json.dumps({"step": step, "stage": "pre_dispatch", "block": "decoder", "layer": layer, "rank": 0,
                              "num_tokens": 4, "topk": 2, "top_indices": ids}) + "\n"


def make_inputs(spillway, folder):
    folder.mkdir(parents=True)
    for name in ("cluster.yaml", "model.json"):
        shutil.copy(ROOT / "tests" / "cli" / "files" / name, folder)
    (folder / "job.yaml").write_text(JOB)
    (folder / "router.jsonl").write_text("".join(router_lines()))
    ids = numpy.array([[[(t + l) % 8, (t + l + 3) % 8] for l in range(2)] for t in range(6)], dtype=numpy.int16)
    numpy.savez(folder / "ids.npz", ids=ids)
    (folder / "table.csv").write_text("".join(PUBLISHED.read_text().splitlines(keepends=True)))
    (folder / "few.csv").write_text("".join(PUBLISHED.read_text().splitlines(keepends=True)[:5]))
    environment = dict(os.environ, OMP_WAIT_POLICY="passive", OMP_NUM_THREADS="1")
    for arguments in (["trace", "generate", "trace.h5", *GENERATE],
                      ["replay", "trace.h5", "--job", "job.yaml", "--output", "result.h5"]):
        subprocess.run([spillway, *arguments], cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)


def make(spillway, folder):
    """Writes the inputs into `folder`; the list of cases."""
    make_inputs(spillway, folder)
    trace, job, table = "../inputs/trace.h5", ["--job", "../inputs/job.yaml"], "../inputs/table.csv"
    return [
        Case("generate", ["trace", "generate", "out.h5", *GENERATE], ["out.h5"]),
        Case("generate-2", ["trace", "generate", "out.h5", *GENERATE], ["out.h5"], threads=2),
        Case("info", ["trace", "info", trace]),
        Case("trace-verify", ["trace", "verify", trace]),
        Case("slice", ["trace", "slice", trace, "out.h5", "--steps", "0:1"], ["out.h5"]),
        Case("record", ["trace", "slice", trace, "--record", "out.record"], ["out.record"]),
        Case("import", ["trace", "import", "megatron-router", "../inputs/router.jsonl", "--output", "out.h5", "--experts",
                        "8", "--top-k", "2", "--ranks", "1"], ["out.h5"]),
        Case("import-npz", ["trace", "import", "array", "../inputs/ids.npz", "--array", "ids", "--output", "out.h5",
                            "--experts", "8", "--top-k", "2", "--axes", "tokens,layers,k"], ["out.h5"]),
        Case("replay", ["replay", trace, *job]),
        Case("replay-json", ["replay", trace, *job, "--format", "json"]),
        Case("replay-2", ["replay", trace, *job], threads=2),
        Case("replay-output", ["replay", trace, *job, "--output", "out.h5"], ["out.h5"]),
        Case("report", ["report", "../inputs/result.h5", "--output", "out.html"], ["out.html"]),
        Case("plan", ["plan", *job, "--format", "json"]),
        Case("plan-trace", ["plan", *job, "--trace", trace, "--expert-parallel", "2,4"]),
        Case("explain", ["explain", *job, "--scheme", "gmm"]),
        Case("verify", ["verify", "--random", "1"]),
        Case("score", ["score", "../inputs/few.csv", "--format", "json"]),
        Case("calibrate", ["calibrate", "memory", table, "--stack", "maxtext-rocm-2026-05", "--output", "out.yaml"],
             ["out.yaml"]),
    ]
