"""What tests of imports share: files are written afresh and imported, and what came of them is held against what was written."""
import json
import os
import pathlib
import shutil
import sys

import h5py
import numpy as np

import program as caller

SPILLWAY, SCRATCH, ROOT = sys.argv[1], pathlib.Path(sys.argv[2]) / pathlib.Path(sys.argv[0]).stem, pathlib.Path(sys.argv[3])
OUT = SCRATCH / "out.h5"
ENVIRONMENT = {**os.environ, "OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": "1"}  # hundreds of short runs
rng = np.random.default_rng(7)
checks = 0


def check(good, what):
    global checks
    checks += 1
    if not good:
        sys.exit(f"FAILED: {what}")


def run(*command):
    done = caller.call([str(c) for c in command], capture_output=True, text=True, env=ENVIRONMENT)
    check("Sanitizer" not in done.stderr, done.stderr[-3000:])
    return done.returncode, done.stdout, done.stderr


def choose(*shape, experts, top_k):
    """Ids [..., top_k], different in a row, skewed."""
    return np.argsort(rng.random((*shape, experts)) ** np.linspace(1, 3, experts), axis=-1)[..., :top_k].astype("i4")


def histogram(ids, experts):
    return np.bincount(ids[ids >= 0].ravel(), minlength=experts)


def fresh(name):
    shutil.rmtree(SCRATCH / name, ignore_errors=True)
    (SCRATCH / name).mkdir(parents=True)
    return SCRATCH / name


def imported(form, files, *options):
    """The trace that came of it, which must be one that can be true."""
    OUT.unlink(missing_ok=True)
    code, out, error = run(SPILLWAY, "trace", "import", form, *files, "--output", OUT, *options)
    check(code == 0, f"{form} {options}: {error}")
    last = error.splitlines()[-1] if error else ""  # warnings come before it
    check(out == "" and last.startswith(f"wrote {OUT}: ") and " MoE layer" in last, f"what it wrote: {out!r} {error!r}")
    check(sorted(p.name for p in SCRATCH.iterdir() if p.is_file() and p.name.startswith("out.h5")) == ["out.h5"], "left over")
    for part in ("verify", "info"):
        code, out, error = run(SPILLWAY, "trace", part, OUT)
        check(code == 0, f"{form} {options}: {part}: {out} {error}")
    h = h5py.File(OUT, "r")
    check(h.attrs["import_format"] == form and h.attrs["import_lost"] and h.attrs["import_files"], "provenance")
    check(all(pathlib.Path(f).name in h.attrs["import_files"] for f in files) or len(files) > 50, "names of files")
    check("/" not in h.attrs["import_files"], "folders in the provenance")
    stated = [o for i, o in enumerate(options) if not {"--phase", "--model", "--model-layers", "--license"} & set(options[max(i - 1, 0):i + 1])]
    check(h.attrs["import_facts"] == " ".join(map(str, stated)), h.attrs["import_facts"])
    return h


def refused(message, form, files, *options, code=3):
    """One clear line, the right exit status, and no output."""
    OUT.unlink(missing_ok=True)
    got, _, error = run(SPILLWAY, "trace", "import", form, *files, "--output", OUT, *options)
    check(got == code, f"{form}: wanted '{message}', exit status {got}: {error}")
    check(message in error and error.count("\n") == 1, f"{form}: wanted '{message}', got '{error}'")
    check(not [p for p in SCRATCH.iterdir() if p.name.startswith("out.h5")], f"{message}: left over")


def check_ids(h, want, layers, ranks=None, steps=None, sequence=None):
    """want: a list over steps of [ranks][tokens][layers][k]; a rank's tokens in the order of the trace."""
    flat = np.concatenate([np.concatenate(list(step)) for step in want])
    got = h["tokens/expert_id"][:].astype("i4")
    got[got == h["tokens/expert_id"].attrs["missing_value"]] = -1
    check(got.shape == flat.shape and (got == flat).all(), "ids")
    check(list(h["layer"][:]) == list(layers), f"layers {h['layer'][:]}")
    check(list(h["steps/id"][:]) == list(range(len(want)) if steps is None else steps), f"steps {h['steps/id'][:]}")
    check(list(h["steps/num_tokens"][:]) == [sum(len(r) for r in step) for step in want], "tokens of steps")
    experts = len(h["expert"])
    for s, step in enumerate(want):
        for l in range(len(layers)):
            by_rank = [histogram(np.asarray(r)[:, l], experts) for r in step]
            check((h["counts/routed"][s, l] == np.sum(by_rank, 0)).all(), "counts/routed")
            if ranks:
                check((h["counts/by_rank"][s, :, l] == by_rank).all(), "counts/by_rank")
    if ranks:
        source = np.concatenate([np.repeat(np.arange(ranks), [len(r) for r in step]) for step in want])
        check((h["tokens/source_rank"][:] == source).all(), "source ranks")
    else:
        check("source_rank" not in h["tokens"] and "by_rank" not in h["counts"], "source ranks out of nowhere")
    if sequence:
        position = h["tokens/position"][:].reshape(-1, sequence)
        check((position == np.arange(sequence)).all(), "positions")
        check((h["tokens/sequence"][:] == np.repeat(np.arange(len(position)), sequence)).all(), "sequences")
    else:
        check("sequence" not in h["tokens"], "sequences out of nowhere")


def check_counts(h, want, layers, steps=None, by_rank=None, top_k=2):
    """want [steps][layers][experts]; by_rank [steps][ranks][layers][experts]."""
    check(h.attrs["content"] == "counts" and "tokens" not in h, "counts only")
    check((h["counts/routed"][:] == want).all(), "counts/routed")
    check((h["steps/num_tokens"][:] == np.sum(want, (1, 2)) / len(layers) / top_k).all(), "tokens")
    check(list(h["layer"][:]) == list(layers) and list(h["steps/id"][:]) == list(steps), "layers and steps")
    check(("by_rank" in h["counts"]) == (by_rank is not None), "counts/by_rank")
    if by_rank is not None:
        check((h["counts/by_rank"][:] == by_rank).all(), "counts/by_rank")


def write_lines(path, records):
    path.write_text("".join(json.dumps(r) + "\n" for r in records))


def router_record(step, layer, rank, ids, **more):
    return {"step": step, "stage": "pre_dispatch", "block": "decoder", "layer": layer, "rank": rank, "num_tokens": len(ids),
            "topk": ids.shape[1], "top_indices": ids.tolist(), **more}


def write_router(folder, records):
    """records by rank, as one run writes them."""
    for old in folder.glob("router_trace_rank*"):
        old.unlink()
    for rank, lines in records.items():
        write_lines(folder / f"router_trace_rank{rank}.jsonl", lines)


COUNTS = ("--experts", 8, "--top-k", 2)


def save(name, array, folder="array"):
    path = SCRATCH / folder / name
    np.save(path, array)
    return path


shutil.rmtree(SCRATCH, ignore_errors=True)
SCRATCH.mkdir(parents=True)


def finish():
    """Ends the test, which has checked something."""
    shutil.rmtree(SCRATCH)
    print(f"{checks} checks")
    sys.exit(0 if checks > 0 else 1)
