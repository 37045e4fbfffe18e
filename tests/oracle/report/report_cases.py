"""Results and plans that tests of reports share, and how a file is refused."""

import numpy as np

from replay_case import Case, Tokens, run
from report_page import expect, folder, program, replayed

OK, USAGE, FILE = 0, 2, 3

rng = np.random.default_rng(1)


def tokens_of(case, steps, skew=0.0):
    rows = case.ranks * case.tokens
    weight = rng.random((steps * rows, case.model_layers, case.experts)) + skew * np.linspace(1, 0, case.experts)
    ids = np.argsort(-weight, axis=2)[:, :, :case.top_k].astype(np.uint8)
    rank = np.tile(np.repeat(np.arange(case.ranks), case.tokens), steps)
    sequence = np.tile(np.repeat(np.arange(case.ranks * case.sequences), case.length), steps)
    position = np.tile(np.arange(case.length), steps * case.ranks * case.sequences)
    return Tokens(ids, [rows] * steps, case.experts, case.ranks, rank, sequence, position)


small = Case(nodes=2, gpus_per_node=4, expert=4, experts=8, top_k=2, sequences=2, length=8, model_layers=3, hidden=64, ffn=32,
             schemes=("dense:capacity_factor=1.25", "gmm", "gmm-deepep", "megatron-alltoall", "ring"))
small_job = small.write(folder)
small_tokens = tokens_of(small, 5, 1.5)
small_trace = small_tokens.write(folder / "small.h5")


def deepseek_trace():
    """Uneven counts of 64 ranks in three layers of DeepSeek-V3."""
    trace = folder / "deepseek.h5"
    run(program, "trace", "generate", trace, "--counts-only", "--experts", 256, "--top-k", 8, "--layers", 3, "--first-layer", 3, "--ranks", 64,
        "--tokens-per-rank", 4096, "--hidden", 7168, "--distribution", "lognormal:sigma=0.5")
    return trace


def chosen(section):
    """Whom the answer names as a choice, in order: paragraphs that are neither the lead nor a doubt."""
    return [next(p.all("b")).text() for p in section.all("p") if "class" not in p.attributes and list(p.all("b"))]


def at(answer, *path):
    for key in path:
        answer = answer[key]
    return answer


def refused(what, status, words, *arguments, lines=1, **keywords):
    before = sorted((p.name, p.stat().st_mtime_ns) for p in folder.iterdir())
    done = run(program, *arguments, cwd=folder, **keywords)
    said = done.stderr.rstrip("\n").split("\n")
    expect(what, done.returncode == status, f"exit {done.returncode}, want {status}: {done.stderr!r}")
    expect(what, 1 <= len(said) <= lines and said[0], f"{len(said)} lines on stderr: {done.stderr!r}")
    for word in words:
        expect(what, word in done.stderr, f"no '{word}' in {done.stderr!r}")
    expect(what, done.stdout == "", f"stdout: {done.stdout[:200]!r}")
    expect(what, all(c.isprintable() or c == "\n" for c in done.stderr), f"control characters: {done.stderr!r}")
    expect(what, sorted((p.name, p.stat().st_mtime_ns) for p in folder.iterdir()) == before, "files were left behind or changed")


good, good_answer = replayed("good", small_trace, small_job)
page_path = folder / "page.html"
