"""A search that is stopped by ^C has an answer so far, and says of how much; before that it says how to have less of it.

usage: stopped_search_oracle.py SPILLWAY"""
import json
import math
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
import program as caller  # noqa: E402
import processes  # noqa: E402,F401  (signals that a shell ignores)
from oracle_run import Oracle  # noqa: E402

SPILLWAY = sys.argv[1]
oracle = Oracle(SPILLWAY, "stopped_search_oracle")
check = oracle.check
TRIES = 20
SEARCH = ["plan", "--search", "--model", "glm-4.5-air", "--cluster", "h200:8x8", "--scheme", "megatron-flex", "--optimizer", "distributed",
          "--over", "remat=full,moe_act", "--over", "micro-batches=4,8"]


def telling(seconds):
    """The environment of one that says how far it is as often; 0: never."""
    return {**os.environ, "SPILLWAY_PROGRESS_S": seconds}


def stopped_once(word, times, options):
    running = subprocess.Popen([SPILLWAY, *SEARCH, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
                               env=telling("0.02"))
    said, left = "", times
    for line in running.stderr:
        said += line
        left -= word in line
        if left == 0:
            os.killpg(running.pid, signal.SIGINT)
            break
    out, rest = running.communicate()
    return out, said + rest, running.returncode


def stopped(word, early, *options):
    """Standard output, standard error and the exit status of a search that is stopped once it says `word`; the whole group is told, as by
    a terminal, so that the worker hears it from its supervisor as well. On a busy machine a search may be done before it is told, and
    its answer is not `early`: then one more is, told a word later."""
    for times in range(1, TRIES + 1):
        out, said, code = stopped_once(word, times, options)
        if code != 0 and early(out):
            break
    return out, said, code


def plan_of(words):
    return json.loads(oracle.must("plan", "--model", "glm-4.5-air", "--cluster", "h200:8x8", "--optimizer", "distributed", "--format", "json",
                                  *words.split()))["rows"][0]


out, said, code = stopped("spillway: search: ", lambda text: "stopped after" in text and "so far megatron" in text)
text = " ".join(out.split())
check(code == -signal.SIGINT, f"a stopped search ends with {code}")
found = re.search(r"stopped after (\d+) of (\d+) points; the best of all may be another", text)
check(found is not None and 0 < int(found[1]) < int(found[2]), f"a stopped search says: {text[:200]}")
check("best so far megatron-flex, EP " in text, f"no best so far: {text[:300]}")
check(re.search(r"proof .*\d+ points? (was|were) not looked at", text) is not None, f"a stopped search proves nothing: {text[:400]}")
check("tried" not in text and "points looked at" not in text.split("more:")[0], "as if it were whole")

out, said, code = stopped("spillway: search: ", lambda text: text and json.loads(text)["best"] and json.loads(text)["points_looked_at"] < json.loads(text)["points"],
                         "--format", "json")
answer = json.loads(out)
check(code == -signal.SIGINT, f"a stopped search in JSON ends with {code}")
check(0 < answer["points_looked_at"] < answer["points"], f"{answer['points_looked_at']} of {answer['points']}")
check(sum(answer["fates"].values()) == answer["points_looked_at"], "fates are not those of the points that were looked at")
alone = plan_of(answer["best"]["options"])
check(math.isclose(alone["time"]["tokens_per_s_per_gpu"], answer["best"]["tokens_per_s_per_gpu"], rel_tol=1e-9),
      f"the best so far is {answer['best']['tokens_per_s_per_gpu']}, planned alone {alone['time']['tokens_per_s_per_gpu']}")

proof = answer["certificate"]
check(not proof["complete"] and proof["not_looked_at"]["points"] == answer["points"] - answer["points_looked_at"], f"of a stopped search: {proof}")
whole = json.loads(oracle.must(*SEARCH, "--format", "json"))
check(whole["certificate"]["complete"], "a whole search is not complete")
check(proof["tokens_per_s_per_gpu_at_most"] is None or whole["best"]["tokens_per_s_per_gpu"] <= proof["tokens_per_s_per_gpu_at_most"],
      f"the best makes {whole['best']['tokens_per_s_per_gpu']}, a stopped search said at most {proof}")
check(proof["gap"] is None or math.isclose(1 + proof["gap"], proof["tokens_per_s_per_gpu_at_most"] / answer["best"]["tokens_per_s_per_gpu"],
                                           rel_tol=1e-9) or proof["gap"] >= 0, f"a gap of {proof}")

with tempfile.TemporaryDirectory() as folder:
    at = pathlib.Path(folder)
    pages = {}
    for name, looked_at in (("stopped", answer["points_looked_at"]), ("whole", answer["points"]), ("before", None)):
        stated = {**answer, "points_looked_at": looked_at} if looked_at is not None else {k: v for k, v in answer.items() if k != "points_looked_at"}
        (at / f"{name}.json").write_text(json.dumps(stated))
        oracle.must("report", at / f"{name}.json", "--output", at / f"{name}.html")
        pages[name] = (at / f"{name}.html").read_text()
check(f"stopped after {answer['points_looked_at']} of them" in pages["stopped"], "the page of a stopped search says nothing of it")
check("stopped after" not in pages["whole"] + pages["before"], "the page of a whole search says that it was stopped")

out, said, code = stopped("spillway: bounds: ", lambda text: "no point so far" in text, "--over", "tensor=1,2,4,8", "--over", "context=1,2,4,8",
                          "--over", "expert-tensor=1,2,4,8")
text = " ".join(out.split())
check(code == -signal.SIGINT and "no point so far that keeps to the budgets" in text, f"stopped before a point: {code}, {text[:300]}")
check("with more" not in text and "were tried" not in text, "a stopped search goes on with more GPUs")

# How to have less of it, once: the values are those that make up the jobs.
small = ["--over", "pipeline=1,2", "--over", "virtual-stages=0", "--sequences-per-gpu", "4,8"]
done = caller.run(SPILLWAY, *SEARCH, *small, "--format", "json", env=telling("0.02"))
whole = json.loads(done.stdout)
check(whole["points_looked_at"] == whole["points"] == sum(whole["fates"].values()), "a whole search has not looked at all its points")
lines = [line for line in done.stderr.splitlines() if "^C prints the best so far" in line]
check(len(lines) == 1, f"how to have less is said {len(lines)} times: {done.stderr}")
line = lines[0] if lines else ""
values = {key: int(count) for key, count in re.findall(r"([a-z-]+) \((\d+) values now\)", line)}
check(values == {key: len(list_) for key, list_ in whole["space"].items() if key not in ("sequences-per-gpu", "scheme") and len(list_) > 1},
      f"{values} are not the values of {whole['space']}")
jobs = re.search(r": (\d+) points, about \d+ (s|min|h|days) left; ", line)
check(jobs is not None and 0 < int(jobs[1]) <= whole["points"] - whole["fates"]["cannot_be"], f"more points than can be: {line}")
check(list(values.values()) == sorted(values.values(), reverse=True), f"not the most first: {line}")
check("; or --sequences-per-gpu LIST (2 now)" in line, f"batches: {line}")
quiet = caller.run(SPILLWAY, *SEARCH, *small, "--format", "csv", env=telling("0"))
check(quiet.stderr == "", f"SPILLWAY_PROGRESS_S=0 says {quiet.stderr}")

oracle.finish()
