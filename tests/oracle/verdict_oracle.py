#!/usr/bin/env python3
"""replay, explain, plan and report say the same of whether a point fits: by what must be live, a lower bound, which is never a bare
"fits", with what the newest stack of the cluster says beside it; and by a stack's arena. README's own job is the case.

verdict_oracle.py SPILLWAY SCRATCH SOURCE_ROOT"""
import json
import pathlib
import re
import sys

from oracle_run import Oracle

program, scratch, root = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
GIB, NEWEST = 2.0**30, "maxtext-rocm-2026-05"
SCHEMES = ("dense:capacity_factor=1.25", "gmm", "gmm-deepep", "megatron-alltoall")  # the last one no stack of XLA knows
oracle = Oracle(program, "verdict_oracle")
check, run = oracle.check, oracle.must


def verdict_of(peak, budget):
    return "oom" if peak > budget else "tight" if peak > 0.95 * budget else "fits"


def said(arena, budget):
    """What a sentence says of an arena; None where it says nothing else than the lower bound, which fits."""
    if arena["verdict"] == "oom":
        return "does not fit"
    return "may not fit" if arena["high_bytes"] > budget else "is tight" if arena["verdict"] == "tight" else None


def table_verdicts(text):
    """The column `memory` of a table, by scheme."""
    lines = text.splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith("scheme") and "memory" in line)
    found = {}
    for line in lines[head + 1:]:
        if not line:
            break
        found[line.split()[0]] = re.match(r"\S+ +(?:\d+ +)*((?:live )?(?:fits|tight|oom))", line)[1]
    return found


def explain_verdict(job, scheme, sequences, *extra):
    text = run("explain", "--job", job, "--scheme", scheme, "--sequences-per-gpu", sequences, *extra)
    return next(line for line in text.splitlines() if line.startswith("peak ")).rsplit(": ", 1)[1], text


def page_of(result):
    page = scratch / "page.html"
    run("report", result, "--output", page)
    return page.read_text()


def page_verdicts(page):
    """Verdicts of the report's table, "live " before those of a lower bound; what the newest stack says, by scheme."""
    rows = re.findall(r'<th scope="row">([^<]*)</th><td>(live )?<span class="verdict (\w+)">(\w+)</span>(?:<br><small>([^<]*)</small>)?', page)
    return {scheme: ((live or "") + verdict, newest) for scheme, live, verdict, same, newest in rows if verdict == same}


def live(job, trace, sequences, want):
    """Without a stack, and with --stack none, which is the same."""
    schemes = [f"--scheme={scheme}" for scheme in SCHEMES]
    common = ["--job", job, "--sequences-per-gpu", sequences, *schemes]
    result = scratch / "live.h5"
    answers = [json.loads(run("replay", trace, *common, *extra, "--format", "json")) for extra in ((), ("--stack", "none"))]
    answer, none = answers
    check(answer["rows"] == none["rows"] and answer["settings"]["stack"] is None is none["settings"]["stack"], "replay --stack none is another replay")
    text = run("replay", trace, *common, "--output", result)
    plan = json.loads(run("plan", *common, "--trace", trace, "--stack", "none", "--format", "json"))
    plan_text = run("plan", *common, "--trace", trace, "--stack", "none", "--all").split("every point")
    arena = {row["scheme"]: row["memory"] for row in
             json.loads(run("plan", *common, "--trace", trace, "--stack", NEWEST, "--format", "json"))["rows"]}
    default = json.loads(run("plan", *common, "--trace", trace, "--format", "json"))
    page = page_of(result)
    shown, planned, drawn = table_verdicts(text), table_verdicts(plan_text[1]), page_verdicts(page)
    for row, other, by_default in zip(answer["rows"], plan["rows"], default["rows"]):
        scheme, memory = row["scheme"], row["memory"]
        budget, newest = memory["budget_bytes"], memory["by_newest_stack"]
        known = scheme != "megatron-alltoall"
        check(memory["kind"] == "live" and (newest is not None) == known, f"{scheme}: {newest}")
        check(by_default["memory"]["by_newest_stack"] is None, f"{scheme}: plan by default has the arena itself, and its lower bound")
        allocator = memory["allocator"]  # replay has PyTorch's by itself; plan and explain have not
        check((allocator is None) == known, f"{scheme}: {allocator}")
        verdict = verdict_of(memory["max_bytes"], budget) if known else memory["verdict"]
        check(memory["verdict"] == verdict, f"{scheme}: {memory['verdict']} want {verdict}")
        bound = lambda name: name if name == "oom" else "live " + name
        check(shown[scheme] == (bound(verdict) if known else verdict), f"{scheme}: replay says '{shown[scheme]}'")
        check(drawn[scheme][0] == shown[scheme], f"{scheme}: report says '{drawn[scheme][0]}', replay '{shown[scheme]}'")
        check(planned[scheme] == bound(other["memory"]["verdict"]), f"{scheme}: plan says '{planned[scheme]}'")
        if not known:
            check("newest stack" not in explain_verdict(job, scheme, sequences)[1], f"{scheme}: a stack that does not know it")
            continue
        check(other["memory"] == memory, f"{scheme}: plan --stack none has another memory")
        for extra in ((), ("--stack", "none")):
            told, explained = explain_verdict(job, scheme, sequences, *extra)
            check(told == shown[scheme], f"{scheme}: explain {extra} says '{told}'")
            check(("newest stack" in explained) == (said(newest, budget) is not None), f"{scheme}: {explained[:600]}")
        same = {name: arena[scheme][name] for name in ("verdict", "peak_bytes", "low_bytes", "high_bytes")}
        check(newest == {"stack": NEWEST, **same}, f"{scheme}: newest {newest}, plan with it {same}")
        words = said(newest, budget)
        gib = f"{newest['peak_bytes'] / GIB:.1f} GiB ({newest['low_bytes'] / GIB:.1f} to {newest['high_bytes'] / GIB:.1f}) of {budget / GIB:.1f}"
        check(words == want.get(scheme), f"{scheme}: the arena {words}, the case wants {want}")
        sentence = f"{scheme}, expert 8, {sequences} sequence{'s' if sequences > 1 else ''} a GPU, {words}: {gib}"
        for who, told in (("replay", text), ("plan", plan_text[0])):
            check((sentence in told) if words else (f"{scheme}, expert 8" not in told), f"{scheme}: {who} does not say '{sentence}'")
            check((f"--stack {NEWEST}" in told) == bool(want), f"{who}: how to ask the stack")
        explained = explain_verdict(job, scheme, sequences)[1]
        check(words is None or f"it {words}: {gib} (--stack {NEWEST} explains it)" in explained, f"{scheme}: explain does not say {words}")
        check(words is None or f"</b> {words}: {gib}</li>" in page, f"{scheme}: the report does not say {words}")
        check((words is not None) == bool(drawn[scheme][1]), f"{scheme}: the report's table says '{drawn[scheme][1]}'")
    refused = sum(words == "does not fit" for words in want.values())
    lead = re.search(r'<p class="lead">(.*?)</p>', page)[1]
    check("by what must be live" in lead, f"the lead says '{lead}'")
    check((f"by the arena of {NEWEST} {refused} of {len(SCHEMES)} " in lead) == (refused > 0), f"the lead says '{lead}'")


def compiled(job, trace, sequences):
    """By a stack's arena: one verdict in all four, and no lower bound."""
    schemes = SCHEMES[:3]
    common = ["--job", job, "--sequences-per-gpu", sequences, *(f"--scheme={scheme}" for scheme in schemes), "--stack", NEWEST]
    result = scratch / "arena.h5"
    text = run("replay", trace, *common, "--output", result)
    rows = json.loads(run("replay", trace, *common, "--format", "json"))["rows"]
    planned = json.loads(run("plan", *common, "--trace", trace, "--format", "json"))["rows"]
    shown, drawn = table_verdicts(text), page_verdicts(page_of(result))
    seen = set()
    for row, other in zip(rows, planned):
        scheme, memory = row["scheme"], row["memory"]
        verdict = verdict_of(memory["peak_bytes"], memory["budget_bytes"])
        seen.add(verdict)
        check(memory["kind"] == "arena" and memory["by_newest_stack"] is None, f"{scheme}: {memory['kind']}")
        explained, _, doubt = explain_verdict(job, scheme, sequences, "--stack", NEWEST)[0].partition(", ")
        over = verdict != "oom" and memory["high_bytes"] > memory["budget_bytes"]
        check(doubt == ("and may not fit" if over else ""), f"{scheme}: explain doubts '{doubt}' of {memory['high_bytes']}")
        told = (memory["verdict"], shown[scheme], drawn[scheme][0], explained, other["memory"]["verdict"])
        check(set(told) == {verdict}, f"{scheme}: {told} want {verdict}")
    check("newest " not in text, "a stack that is asked is said twice")
    return seen


def main():
    scratch.mkdir(parents=True, exist_ok=True)
    job, trace = root / "sim/jobs/deepseek-v3-mi355x.yaml", scratch / "verdict.h5"
    run("trace", "generate", trace, "--counts-only", "--experts", 256, "--top-k", 8, "--layers", 1, "--first-layer", 3, "--ranks", 64,
        "--tokens-per-rank", 4096, "--hidden", 7168)
    live(job, trace, 8, {"gmm": "does not fit", "gmm-deepep": "may not fit"})
    live(job, trace, 1, {})
    seen = compiled(job, trace, 8) | compiled(job, trace, 9)
    check(seen == {"fits", "tight", "oom"}, f"verdicts {seen}: the test sees too little")
    text = run("replay", trace, "--job", job, "--scheme", "gmm", "--fits-at", 99)
    check("by what must be live alone, a lower bound" in text, "the largest batch is a bare one")
    text = run("replay", trace, "--job", job, "--scheme", "gmm", "--fits-at", 99, "--stack", NEWEST)
    check("lower bound" not in text, "the largest batch by an arena is called a lower bound")
    oracle.finish(80)


main()
