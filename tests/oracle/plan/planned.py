"""What tests of plans share: a job, how a plan is asked for, and its answers against a search over all of its points."""
import json
import math
import pathlib
import sys

from oracle_run import Oracle, most_bytes

program, scratch, root = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
TRACE = root / "traces/data/training_aux_e64_slice.h5"
JOB = """model: scratch-moe-e64
cluster: mi355x-8x8
precision: bf16
library_limits: ignore
parallel: {expert: 8, fsdp: 8}
batch: {sequences_per_gpu: [1, 2], sequence_length: 512}
memory_fraction: %s
schemes: [%s]
"""
oracle = Oracle(program, pathlib.Path(sys.argv[0]).stem)
check = oracle.check


def run(*arguments):
    details = ("--details",) if arguments[0] == "plan" and "--format" not in arguments else ()
    text = oracle.must(*arguments, *details, "--wide")  # its tables are read by row
    return text.split("\n\n", 1)[1] if details else text  # without the three lines, which are looked at below


def key(row):
    return row["scheme"], row["expert_parallel"], row["sequences_per_gpu"]


def surely_fits(row):
    return fits(row) and max(most_bytes(row), row["memory"]["max_bytes"]) <= row["memory"]["budget_bytes"]


def fits(row):
    """By the replayed allocator where there is one."""
    if row["memory"]["allocator"]:
        return row["memory"]["allocator"]["failed_steps"] == 0
    return row["memory"]["max_bytes"] <= row["memory"]["budget_bytes"]


def measures(row):
    """Less is better in each."""
    speed = row["time"]["tokens_per_s_per_gpu"]
    return row["memory"]["max_bytes"], -(speed or 0.0), row["drops"]["fraction"], not surely_fits(row), row["drops"].get("at_least", False)


def front(rows):
    good = [i for i, row in enumerate(rows) if fits(row)]
    worse = lambda a, b: all(x <= y for x, y in zip(measures(rows[b]), measures(rows[a]))) and \
        measures(rows[a])[:4] != measures(rows[b])[:4] and \
        (rows[a]["time"]["step_s"] is None) == (rows[b]["time"]["step_s"] is None) and \
        rows[a]["memory"]["kind"] == rows[b]["memory"]["kind"]
    return [i for i in good if not any(worse(i, j) for j in good if j != i)]


def judge(plan, job, *extra):
    rows = plan["rows"]
    check(plan["format"] == "spillway-result", "the format is not spillway-result")
    check(len({key(row) for row in rows}) == len(rows), "a point stands twice")
    for split in sorted({row["expert_parallel"] for row in rows}):
        alone = json.loads(run("replay", TRACE, "--job", job, "--expert-parallel", split, "--stack",
                               plan["settings"]["stack"], *extra, "--format", "json"))
        want = {key(row): row for row in alone["rows"]}
        for row in rows:
            if row["expert_parallel"] != split:
                continue
            for part in ("memory", "traffic", "drops", "time", "fsdp", "evidence"):
                expected = want[key(row)][part]
                if part == "drops" and row[part]["tokens_fully_dropped"] is None:  # a plan need not count them
                    expected = {**expected, "tokens_fully_dropped": None}
                check(row[part] == expected, f"{key(row)}: {part} differs from replay's")
    return judge_answers(plan)


def rank(rows, i):
    """Less is better: with a time, surely fits, faster, less memory, fewer drops; without one the larger batch, less memory, fewer drops; then
    the order of the rows."""
    time, memory = rows[i]["time"], (rows[i]["memory"]["max_bytes"], rows[i]["drops"]["fraction"])
    doubt = not surely_fits(rows[i])
    if time["step_s"] is None:
        return 1, doubt, -rows[i]["sequences_per_gpu"], memory, i
    return 0, doubt, -time["tokens_per_s_per_gpu"], memory, i


def judge_times(row):
    """Every number of a step time has an interval around it, and tokens/s are those of the ends; a row without one says why."""
    time = row["time"]
    told = [text for text in row["assumptions"] if text.startswith(f"{row['scheme']}: no times: ")]
    check((row["why_no_time"] is None) == (time["step_s"] is not None), f"{key(row)}: why_no_time {row['why_no_time']}")
    check(told == ([f"{row['scheme']}: no times: {row['why_no_time']}"] if row["why_no_time"] and told else []), f"{key(row)}: {told}, and {row['why_no_time']}")
    if time["step_s"] is None:
        check(all(value is None for value in time.values()), f"{key(row)}: a time of a row without one: {time}")
        return
    for name, low, high in (("step_s", "low_s", "high_s"), ("balanced_step_s", "balanced_low_s", "balanced_high_s"),
                            ("aligned_step_s", "aligned_low_s", "aligned_high_s"), ("worst_step_s", "worst_low_s", "worst_high_s"),
                            ("tokens_per_s_per_gpu", "tokens_per_s_low", "tokens_per_s_high")):
        check(0 < time[low] < time[name] < time[high], f"{key(row)}: {name} is {time[name]}, between {time[low]} and {time[high]}")
    for speed, step in (("tokens_per_s_low", "high_s"), ("tokens_per_s_high", "low_s"), ("tokens_per_s_per_gpu", "step_s")):
        check(math.isclose(time[speed] * time[step], row["sequences_per_gpu"] * row["sequence_length"], rel_tol=1e-9), f"{key(row)}: {speed}")


def judge_outside(row):
    """The list names every feature that the sentences name, memory and time apart."""
    for of, words in (("memory", ": beyond what was fitted: "), ("time", ": times beyond what was fitted: ")):
        told = [text.split(words)[1].split("; ") for text in row["assumptions"] if text.startswith(row["scheme"] + words)]
        named = [item["feature"] for item in row["outside_fit"] if item["of"] == of]
        check(sorted(named) == sorted(feature for part in told for feature in part), f"{key(row)}: outside the fit {named}, told {told}")


def judge_answers(plan):
    rows, answers = plan["rows"], plan["answers"]
    order = sorted((i for i, row in enumerate(rows) if fits(row)), key=lambda i: rank(rows, i))
    listed = front(rows)
    check(answers["order"] == order, f"the order {answers['order']} is not that of a search")
    check(plan["plan"]["front"] == answers["front"] == sorted((i for i in order if i in listed), key=lambda i: i != answers["fastest"]), "the front is not that of a search over all points")
    check(answers["fastest"] in [None, *answers["front"][:1]], f"the fastest, {answers['fastest']}, is not first of the front {answers['front']}")
    check(answers["drop_at_most"] == plan["plan"]["drop_at_most"], "two limits of drops")
    room = [i for i, row in enumerate(rows) if fits(row)] or range(len(rows))
    check(answers["least_memory"] == min(room, key=lambda i: (rows[i]["memory"]["max_bytes"], i)), f"least memory {answers['least_memory']}")
    for row in rows:
        check(row["memory"]["surely_fits"] == (fits(row) and surely_fits(row)), f"{key(row)}: surely fits")
        judge_times(row)
        judge_outside(row)
    timed = [i for i, row in enumerate(rows) if fits(row) and row["time"]["step_s"] is not None]
    most = plan["plan"]["drop_at_most"]
    within = [i for i in timed if rows[i]["drops"]["fraction"] <= most]
    for name, among in (("fastest", within), ("fastest_whatever_drops", timed),
                        ("fastest_sure", [i for i in within if surely_fits(rows[i])]),
                        ("fastest_dropless", [i for i in timed if rows[i]["drops"]["dropped"] == 0]),
                        ("fastest_dropless_sure",
                         [i for i in timed if rows[i]["drops"]["dropped"] == 0 and surely_fits(rows[i])])):
        best = min(among, key=lambda i: rank(rows, i), default=None)
        check(plan["plan"][name] == answers[name] == best, f"{name}: {plan['plan'][name]}, {answers[name]}, by search {best}")
    for i in timed:
        time = rows[i]["time"]
        check(math.isclose(sum(c["exposed_s"] for c in time["components"].values()), time["step_s"],
                           rel_tol=1e-9), f"{key(rows[i])}: exposed seconds do not sum to the step")
        check(math.isclose(time["tokens_per_s_per_gpu"] * time["step_s"],
                           rows[i]["sequences_per_gpu"] * rows[i]["sequence_length"], rel_tol=1e-9),
              f"{key(rows[i])}: tokens over seconds")
    return timed


def line(text, start):
    """The line that starts so, with those that continue it."""
    rows = text.splitlines()
    at = next((i for i, row in enumerate(rows) if row.startswith(start)), None)
    if at is None:
        return ""
    end = at + 1
    while end < len(rows) and rows[end].startswith("        "):
        end += 1
    return " ".join([rows[at], *(row.strip() for row in rows[at + 1:end])])
