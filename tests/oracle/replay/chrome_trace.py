#!/usr/bin/env python3
"""`--chrome-trace` of replay and plan against the JSON of the same run, by the fields of the Trace Event Format: events nest, the
durations of what a step waits for sum to the step, what is hidden is the rest of the kernels.
chrome_trace.py SPILLWAY SCRATCH SOURCE"""
import collections
import json
import math
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_run import Oracle

spillway, scratch, source = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
scratch = scratch / "chrome_trace"
scratch.mkdir(exist_ok=True)
oracle = Oracle(spillway, "chrome_trace")
check, file = oracle.check, scratch / "step.json"


def near(a, b):
    return math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-9)


def compare(events, row, where):
    """The events of one process are the timeline of its row."""
    time, threads = row["time"], collections.defaultdict(list)
    for e in events:
        if e["ph"] == "X":
            check({"name", "cat", "pid", "tid", "ts", "dur", "args"} <= set(e) and e["dur"] > 0 and e["ts"] >= 0, f"{where}: fields of {e}")
            threads[e["tid"]].append(e)
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    title = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    check(len(title) == 1 and title[0].startswith(f"{row['scheme']}, sequences {row['sequences_per_gpu']},"), f"{where}: {title}")
    check(set(names) == set(threads) and names[0] == "what the step waits for", f"{where}: threads {names}")
    step, parts = threads[0][0], threads[0][1:]
    check(step["name"] == "step" and step["ts"] == 0 and near(step["dur"], time["step_s"] * 1e6), f"{where}: step {step}")
    check(near(step["args"]["low_us"], time["low_s"] * 1e6) and near(step["args"]["high_us"], time["high_s"] * 1e6), f"{where}: interval")
    check(near(sum(e["dur"] for e in parts), step["dur"]), f"{where}: the parts do not sum to the step")
    for thread, list_of in threads.items():
        end = 0.0
        for e in parts if thread == 0 else list_of:
            check(near(e["ts"], end), f"{where}: {e['name']} begins at {e['ts']}, the one before ends at {end}")
            end = e["ts"] + e["dur"]
        check(thread != 0 or end <= step["dur"] * (1 + 1e-12), f"{where}: events reach out of their step")
    waited = {e["name"]: e["dur"] for e in parts}
    hidden = {e["name"]: e["dur"] for t, list_of in threads.items() if t > 0 for e in list_of}
    for name, c in time["components"].items():
        check(near(waited.pop(name, 0.0), c["exposed_s"] * 1e6), f"{where}: {name} waited for")
        check(near(hidden.pop(name, 0.0), (c["seconds"] - c["exposed_s"]) * 1e6), f"{where}: {name} hidden")
    check(not waited and not hidden, f"{where}: more than the row has: {waited} {hidden}")
    check(all(names[t] == f"hidden: {e['cat']}" for t, list_of in threads.items() if t > 0 for e in list_of), f"{where}: streams")


def run(*command):
    file.unlink(missing_ok=True)
    rows = json.loads(oracle.must(*command, "--format", "json", "--chrome-trace", file))["rows"]
    document = json.loads(file.read_text())
    check(set(document) == {"traceEvents", "displayTimeUnit", "otherData"} and document["displayTimeUnit"] == "ms", "the document")
    check(document["otherData"]["command"] == command[0] and "order" in document["otherData"], "what it is of")
    timed = {i + 1 for i, row in enumerate(rows) if row["time"]["step_s"] is not None}
    check(timed == {e["pid"] for e in document["traceEvents"]} and timed, "rows")
    for i in timed:
        compare([e for e in document["traceEvents"] if e["pid"] == i], rows[i - 1], f"{command[0]}, row {i}")
    return len(timed)


trace, job = source / "traces/data/training_aux_e64_slice.h5", source / "sim/jobs/scratch-moe-e64.yaml"
check(run("plan", "--job", source / "sim/jobs/deepseek-v3-mi355x-plan.yaml") > 5, "points of a plan")
check(run("plan", "--job", source / "sim/jobs/olmoe-h200-megatron.yaml") > 2, "points of Megatron-Core")
check(run("replay", trace, "--job", job, "--stack", "xla-cuda-0.10.2", "--each-step") >= 2, "rows of a replay")
done = oracle.call("replay", trace, "--job", job, "--chrome-trace", scratch / "none.json")
check(done.returncode == 2 and "no row has a step time; --stack NAME" in done.stderr and done.stdout == "", f"no times: {done.stderr}")
check(not (scratch / "none.json").exists(), "an empty trace")
done = oracle.call("replay", trace, "--job", job, "--stack", "xla-cuda-0.10.2", "--chrome-trace", trace)
check(done.returncode == 2 and trace.stat().st_size > 10000, "a trace over its own input")
oracle.finish(200)
