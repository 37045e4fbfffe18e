#!/usr/bin/env python3
"""replay, explain, plan and report say the same of whether a point fits: by what must be live, a lower bound, which is never a bare
"fits", with what the newest stack of the cluster says beside it; and by a stack's arena. README's own job is the case.

verdict_oracle.py SPILLWAY SCRATCH SOURCE_ROOT"""
import json
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_run import EXPANDABLE, SHARE, Oracle, fit_sentence

program, scratch, root = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
GIB, NEWEST = 2.0**30, "maxtext-rocm-2026-05"
SCHEMES = ("dense:capacity_factor=1.25", "gmm", "gmm-deepep", "megatron-alltoall")  # the last one no stack of XLA knows
oracle = Oracle(program, "verdict_oracle")
check, run = oracle.check, oracle.must


def verdict_of(peak, budget):
    """Of a lower bound."""
    return "oom" if peak > budget else "tight" if peak > 0.95 * budget else "fits"


def interval_verdict(peak, high, budget):
    return "oom" if peak > budget else "tight" if high > budget else "fits"


def said(arena, budget):
    """What a sentence says of an arena; None where it says nothing else than the lower bound, which fits."""
    if arena["verdict"] == "oom":
        return "does not fit"
    return "is tight, and may not fit" if arena["high_bytes"] > budget else None


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
    rows = re.findall(r'<th scope="row">([^<]*)</th><td>(live )?<span class="verdict (\w+)">(\w+)</span>(?:<br><small>may not fit</small>)?(?:<br><small>([^<]*)</small>)?', page)
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
        check(planned[scheme] == (bound if known else str)(other["memory"]["verdict"]), f"{scheme}: plan says '{planned[scheme]}'")
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
            beside = re.sub(r"no times without a software stack: --stack\s\S+", "", told)  # which a replay always names
            check((f"--stack {NEWEST}" in beside) == bool(want), f"{who}: how to ask the stack")
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
        verdict = interval_verdict(memory["peak_bytes"], memory["high_bytes"], memory["budget_bytes"])
        seen.add(verdict)
        check(memory["kind"] == "arena" and memory["by_newest_stack"] is None, f"{scheme}: {memory['kind']}")
        explained = explain_verdict(job, scheme, sequences, "--stack", NEWEST)[0]
        told = (memory["verdict"], shown[scheme], drawn[scheme][0], explained, other["memory"]["verdict"])
        check(set(told) == {verdict}, f"{scheme}: {told} want {verdict}")
    check("newest " not in text, "a stack that is asked is said twice")
    return seen


SEARCHED = ["--model", "olmoe-1b-7b", "--cluster", "h200:8x1", "--scheme", "megatron-alltoall", "--optimizer", "distributed"]
SPACE = [word for key in ("expert-parallel=8", "pipeline=1", "micro-batches=1", "virtual-stages=0", "remat=full,none") for word in ("--over", key)]


def searched(fraction, share=SHARE, extra=()):
    """A search says of its best point, in text, in JSON and on its page, what plan, --until and the point's own report say; and which
    is the best that surely fits."""
    common = [*SEARCHED, "--memory-fraction", fraction, "--sequences-per-gpu", "1,2", *extra]
    text = " ".join(run("plan", *common, "--search", *SPACE, "--details", "--wide").split())
    found = json.loads(run("plan", *common, "--search", *SPACE, "--format", "json"))
    result = scratch / "search.json"
    result.write_text(json.dumps(found))
    page = re.sub("<[^>]*>", "", page_of(result))
    best, sure = found["best"], found["best_sure"]
    own = [*SEARCHED, "--memory-fraction", fraction, *extra, *best["options"].split()[2:]]
    row, = json.loads(run("plan", *own, "--format", "json"))["rows"]
    sentence = fit_sentence(row, share)
    gib, of = best["peak_bytes"] / GIB, best["budget_bytes"] / GIB
    check(re.search(rf"best .*?{gib:.1f} GiB[^;]* of {of:.1f}: it {sentence};", text), f"{fraction}: the search does not say that its best {sentence}")
    check(best["verdict"] == row["memory"]["verdict"] and best["surely_fits"] == row["memory"]["surely_fits"] == ("surely" in sentence),
          f"{fraction}: {best['verdict']}, {best['surely_fits']}, plan {row['memory']['verdict']}, {sentence}")
    planned = " ".join(run("plan", *own, "--details", "--wide").split())
    check(f"it {sentence}: {gib:.1f}" in planned or (sentence == "surely fits" and row["memory"]["allocator"] is None), f"{fraction}: plan does not say that it {sentence}")
    check(f"of {of:.1f}: it {sentence}" in page, f"{fraction}: the search's page does not say that it {sentence}")
    until = json.loads(run("plan", *own, "--until", "oom", "--format", "json"))[0]
    check((until["sure"] is not None) == row["memory"]["surely_fits"], f"{fraction}: --until is sure up to {until['sure']}, plan {row['memory']['surely_fits']}")
    rows = json.loads(run("plan", *common, "--remat", "none", "--expert-parallel", 8, "--format", "json"))["rows"]
    rows += json.loads(run("plan", *common, "--remat", "full", "--expert-parallel", 8, "--format", "json"))["rows"]
    surely = [r for r in rows if "surely" in fit_sentence(r, share)]
    fastest = max(surely, key=lambda r: r["time"]["tokens_per_s_per_gpu"], default=None)
    check((sure and sure["peak_bytes"]) == (fastest and fastest["memory"]["max_bytes"]), f"{fraction}: surely {sure}, not {fastest}")
    check(("no point surely fits" in text) == ("No point surely fits" in page) == (fastest is None), f"{fraction}: that none surely fits")
    check(fastest is None or sure == best or "surely megatron-alltoall" in text and f"{fastest['time']['tokens_per_s_per_gpu']:.0f} tokens/s" in page,
          f"{fraction}: the best that surely fits is not named")
    return sentence


def main():
    scratch.mkdir(parents=True, exist_ok=True)
    job, trace = root / "sim/jobs/deepseek-v3-mi355x.yaml", scratch / "verdict.h5"
    run("trace", "generate", trace, "--counts-only", "--experts", 256, "--top-k", 8, "--layers", 1, "--first-layer", 3, "--ranks", 64,
        "--tokens-per-rank", 4096, "--hidden", 7168)
    live(job, trace, 8, {"gmm": "does not fit", "gmm-deepep": "is tight, and may not fit"})
    live(job, trace, 1, {})
    seen = compiled(job, trace, 8) | compiled(job, trace, 9)
    check(seen == {"fits", "tight", "oom"}, f"verdicts {seen}: the test sees too little")
    said_of = {searched(fraction, extra=("--no-allocator",)) for fraction in (0.14, 0.145, 0.9)}
    said_of.add(searched(0.14, EXPANDABLE, ("--no-allocator", "--set", "allocator.expandable_segments=true")))
    replayed = {searched(fraction) for fraction in (0.145, 0.16, 0.9)}
    check(replayed >= {"is tight, and may not fit", "surely fits"}, f"{replayed}: the test sees too little of the allocator")
    check(said_of == {"is tight, and may not fit", "may not fit", "surely fits", "is tight, and surely fits"}, f"{said_of}: the test sees too little")
    text = run("replay", trace, "--job", job, "--scheme", "gmm", "--fits-at", 99)
    check("by what must be live alone, a lower bound" in text, "the largest batch is a bare one")
    text = run("replay", trace, "--job", job, "--scheme", "gmm", "--fits-at", 99, "--stack", NEWEST)
    check("lower bound" not in text, "the largest batch by an arena is called a lower bound")
    oracle.finish(80)


main()
