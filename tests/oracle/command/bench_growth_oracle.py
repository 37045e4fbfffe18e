#!/usr/bin/env python3
"""bench growth: every value of an axis is a process of the words that its file says; exponents are those of numpy's line through the upper
half of what is printed; the axes that come with the program say what they do; what it refuses. No seconds are compared.

bench_growth_oracle.py SPILLWAY SCRATCH ROOT"""
import json
import pathlib
import re
import subprocess
import sys

import numpy

program, scratch, root = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
checks = 0


def check(good, text):
    global checks
    checks += 1
    if not good:
        sys.exit(f"bench_growth_oracle: {text}")


def bench(*words):
    once = [] if "--repeats" in words else ["--repeats", "1"]
    return subprocess.run([program, "bench", "growth", *once, *map(str, words)], capture_output=True, text=True, stdin=subprocess.DEVNULL)


def law(x, y):
    """Exponent and standard error of the upper half."""
    half = max(3, (len(x) + 1) // 2)
    x, y = numpy.log(x[-half:]), numpy.log(y[-half:])
    line, covariance = numpy.polyfit(x, y, 1, cov="unscaled")
    squares = float(((y - numpy.polyval(line, x)) ** 2).sum())
    return float(line[0]), float(covariance[0][0] * squares / (half - 2)) ** 0.5


scratch.mkdir(parents=True, exist_ok=True)
JOB = "--cluster h100:8x1 --scheme megatron-flex --optimizer distributed --sequence-length 512"
TINY = f"""model: olmoe-1b-7b
keys: [num_hidden_layers=$value, rope_theta=10000.5]
plan:
  values: [1, 2, 3, 4, 5, 6, 7]
  words: --model $model {JOB}
replay:
  values: [1, 2, 3]
  texts: ["1", "1,2", "1,2,4"]
  trace: --experts 64 --top-k 8 --layers 1 --ranks 8 --tokens-per-rank 2048 --steps $value
  words: --model olmoe-1b-7b {JOB} --sequences-per-gpu $text --steps 0:$value
search:
  values: [1, 2, 3]
  words: --model olmoe-1b-7b {JOB} --sequences-per-gpu $value --over expert-parallel=8 --over pipeline=1 --over micro-batches=1 --over remat=full
"""
tiny = scratch / "tiny.yaml"
tiny.write_text(TINY)
done = bench(tiny, "--format", "json")
check(done.returncode == 0 and done.stderr == "", done.stderr)
rows = json.loads(done.stdout)
want = {"plan": range(1, 8), "replay": range(1, 4), "search": range(1, 4)}
check([(row["command"], row["axis"], row["value"]) for row in rows] == [(command, "tiny", value) for command in want for value in want[command]],
      f"rows {rows}")
FITS = ("time_exponent", "time_error", "memory_exponent", "memory_error")
for command, values in want.items():
    own = [row for row in rows if row["command"] == command]
    for row in own[:-1]:
        check(all(row[key] is None for key in (*FITS, "above_linear")), f"a fit before the last row: {row}")
    for row in own:
        check(0 < row["process_s"] < 1e3 and 4 << 20 < row["process_bytes"] < 1 << 32, f"{row}")
    last, x = own[-1], list(values)
    by_numpy = (*law(x, [row["process_s"] for row in own]), *law(x, [row["process_bytes"] for row in own]))
    check(all(abs(last[key] - number) < 1e-6 for key, number in zip(FITS, by_numpy)), f"{last}, by numpy {by_numpy}")
    above = by_numpy[0] - 2 * by_numpy[1] > 1 or by_numpy[2] - 2 * by_numpy[3] > 1
    check(last["above_linear"] == above, f"{last}, by numpy {by_numpy}")
check(all(isinstance(row["process_bytes"], int) for row in rows), "bytes are whole")
table = bench(tiny, "--command", "replay").stdout.splitlines()
check(len(table) == 4 and table[0].split("  ")[0] == "command" and all(line.startswith("replay") for line in table[1:]), f"{table}")
two = bench(tiny, "--command", "search", "--command", "replay").stdout.splitlines()
check([line.split()[0] for line in two[1:]] == ["replay"] * 3 + ["search"] * 3, f"{two}")

# The axes that come with the program: the words of the smallest value are taken, and a search has as many points as its value says.
shipped = sorted(path.stem for path in (root / "sim/growth").glob("*.yaml"))
unknown = bench("nowhere")
check(unknown.returncode == 2, f"{unknown}")
named = re.search("presets: ([a-z, -]+);", unknown.stderr)[1].split(", ")
check(sorted(named) == shipped and len(shipped) == 8, f"{unknown.stderr} beside {shipped}")
check(all(name in bench("--help").stdout for name in shipped), "help does not name all axes")
points = (root / "sim/growth/points.yaml").read_text()
search = " ".join(points[points.index("search:"):].split())
words = re.search("words: (.*)$", search)[1]
value, text = re.search(r"values: \[(\d+)", search)[1], re.search("texts: - ([^ ]+)", search)[1]
found = json.loads(subprocess.run([program, "plan", "--search", *words.replace("$text", text).split(), "--format", "json"], capture_output=True,
                                  text=True, check=True).stdout)
check(found["points"] == int(value), f"{found['points']} points, not {value}")
check([int(one) for one in re.search(r"values: \[([^]]+)\]", search)[1].split(",")] ==
      [int(value) * (1 + line.count(",")) for line in re.findall("- (gpus=[^ ]+)", search)], "points of a search")

REFUSED = [
    ("values: [1, 2, 3, 4, 5, 6, 7]", "values: [1, 2]", "bad.yaml:4: 'plan.values' has 2 elements; it must be a list of whole numbers in "
     "[1, 1000000000000000], 3 to 16 of them"),
    ("values: [1, 2, 3, 4, 5, 6, 7]", f"values: {list(range(1, 18))}", "3 to 16 of them"),
    ("values: [1, 2, 3, 4, 5, 6, 7]", "values: 1", "3 to 16 of them"),
    ("  values: [1, 2, 3, 4, 5, 6, 7]\n", "", "bad.yaml:4: plan has no values"),
    ("values: [1, 2, 3, 4, 5, 6, 7]", "values: [1, 3, 3, 4]", "bad.yaml:4: plan: value 3 stands behind 3"),
    ('texts: ["1", "1,2", "1,2,4"]', 'texts: ["1", "1,2"]', "bad.yaml:8: replay has 3 values and 2 texts"),
    (f"  words: --model $model {JOB}\n", "", "bad.yaml:3: plan has no words"),
    ("  trace: --experts 64 --top-k 8 --layers 1 --ranks 8 --tokens-per-rank 2048 --steps $value\n", "", "bad.yaml:6: replay has no trace"),
    ("model: olmoe-1b-7b\n", "", "keys are of a model"),
    ("model: olmoe-1b-7b\n", "model: olmo\n", "bad.yaml:1: model 'olmo' is unknown"),
    ("model: olmoe-1b-7b\n", "model: olmoe-1b-7b\nmodel: olmoe-1b-7b\n", "bad.yaml:2: 'model' is given again"),
    ("rope_theta=10000.5", "rope_theta=much", "bad.yaml:2: key 'rope_theta=much' is not KEY=NUMBER"),
    ("rope_theta=10000.5", "rope_theta=1, rope_theta=2", "bad.yaml:2: 'rope_theta=2' is given again (first as 'rope_theta=1')"),
    ("num_hidden_layers=$value", "num_hiden_layers=$value",
     "bad.yaml:2: the model has no key 'num_hiden_layers', so that it would change nothing; did you mean 'num_hidden_layers'?"),
    ("--model $model", "--model $modle", "bad.yaml:5: '$modle"),
    ("num_hidden_layers=$value", "num_hidden_layers=2", "bad.yaml:5: plan does not change along the axis: it is the same at 1 and 2"),
    ("--model $model", "--model olmoe-1b-7b", "bad.yaml:5: plan does not change along the axis"),
    ("--sequences-per-gpu $value", "--sequences-per-gpu 1", "bad.yaml:13: search does not change along the axis"),
    ("--sequences-per-gpu $text", "", "bad.yaml:10: replay has texts, but names $text nowhere"),
    ("search:\n", "search:\n  trace: --steps $value\n", "bad.yaml:14: search has a trace, but no --trace $trace"),
    ("model: olmoe-1b-7b\nkeys: [num_hidden_layers=$value, rope_theta=10000.5]\n", "", "$model, but there is no 'model'"),
    ("words: --model $model", "words: --model $model --trace $trace", "$trace, but there is no 'trace'"),
    ('  texts: ["1", "1,2", "1,2,4"]\n', "", "$text, but there is no 'texts'"),
    ("--sequence-length 512\nreplay", "--sequence-length none\nreplay", "bad.yaml:5: plan at 1: its process failed"),
    ("--experts 64 --top-k 8", "--experts 64 --top-k 65", "bad.yaml:9: spillway trace generate --experts 64 --top-k 65"),
    ("plan:", "plans:", "plans"),
]
for old, new, say in REFUSED:
    check(old in TINY, f"{old} is not there")
    (scratch / "bad.yaml").write_text(TINY.replace(old, new, 1))
    done = bench(scratch / "bad.yaml")
    check(done.returncode == 2 and say in done.stderr and done.stdout == "", f"{new}: {done.returncode} {done.stderr}")
# Nothing runs before all values of all axes are looked at: else the first, which the program refuses, would be what is said.
FAILS = TINY.replace("--sequence-length 512", "--sequence-length none")
late = FAILS.replace("--sequences-per-gpu $value", "--sequences-per-gpu $valeu")
short, long = "a" * 63, "a" * 64
for name, text in (("first", FAILS), ("late", late), (long, TINY), (short, TINY[:TINY.index("replay:")])):
    (scratch / f"{name}.yaml").write_text(text)
for names in (["late.yaml"], ["first.yaml", "late.yaml"]):
    done = bench(*(scratch / name for name in names))
    check(done.returncode == 2 and "late.yaml:13: '$valeu" in done.stderr and "failed" not in done.stderr, f"{names}: {done}")
done = bench(scratch / f"{long}.yaml")
check(done.returncode == 2 and "the axis' name has 64 bytes; name the file with 63 at most" in done.stderr, f"{done}")
check(f"  {short}  " in bench(scratch / f"{short}.yaml").stdout, "a name of 63 bytes")
(scratch / "bad.yaml").write_text("model: olmoe-1b-7b\n")
(scratch / "unnamed.yaml").write_text(TINY[:TINY.index("keys:")] + TINY[TINY.index("search:"):])
(scratch / "alone.yaml").write_text(TINY[:TINY.index("search:")])
for words, say in ((["bad.yaml"], "nothing is measured"),
                   (["alone.yaml", "--command", "search"], "no axis of these has what --command asks for"),
                   (["unnamed.yaml"], "unnamed.yaml:1: no words name $model"),
                   (["alone.yaml", scratch / "alone.yaml"], "axis alone is given twice, as "),

                   (["tiny.yaml", "--command", "explain"], "it is plan, replay or search"), (["tiny.yaml", "--repeats", "0"], "--repeats 0 measures nothing"),
                   (["tiny.yaml", "--format", "xml"], "xml")):
    done = bench(scratch / words[0], *words[1:])
    check(done.returncode == 2 and say in done.stderr and done.stdout == "", f"{words}: {done.returncode} {done.stderr}")
(scratch / "trace.yaml").write_bytes(b"\x89HDF\r\n\x1a\n")
done = bench(scratch / "trace.yaml")
check(done.returncode == 2 and "; an axis is an axis' YAML file" in done.stderr, f"{done}")
done = bench(scratch / "nowhere.yaml")
check(done.returncode == 3 and "nowhere.yaml" in done.stderr, f"{done}")
print(f"{checks} checks")
