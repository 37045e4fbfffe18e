#!/usr/bin/env python3
"""spillway_moe.check with NumPy: right kernels pass, mistakes are found and are run again by the command that the report names.
check_numpy.py PACKAGE_FOLDER LIBRARY RECORD"""
import os
import pathlib
import subprocess
import sys
import tempfile

if __name__ == "__main__":
    folder, shared, record = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
    os.environ.update(SPILLWAY_LIBRARY=str(shared), PYTHONPATH=str(folder))
    sys.path.insert(0, str(folder))
import numpy as np


def grouped_gemm(x, w, offset, transposed=False):
    y = np.full((len(x), w.shape[1 if transposed else 2]), np.nan, x.dtype)
    for e in range(len(w)):
        y[offset[e]:offset[e + 1]] = x[offset[e]:offset[e + 1]] @ (w[e].T if transposed else w[e])
    return y


def grouped_gemm_fp16(x, w, offset):
    return grouped_gemm(x.astype(np.float32), w.astype(np.float32), offset).astype(np.float16)


def cut_fp16(x, w, offset):
    """Without the last of fp16's bits."""
    return (grouped_gemm_fp16(x, w, offset).view(np.uint16) & 0xFFFE).view(np.float16)


def input_gradient(dy, w, offset):
    return grouped_gemm(dy, w.swapaxes(1, 2), offset)


def weight_gradient(x, dy, offset):
    return np.stack([x[a:b].T @ dy[a:b] for a, b in zip(offset, offset[1:])])


def permute(x, expert, out):
    chosen = expert.ravel()
    order = np.argsort(chosen, kind="stable")[(chosen < 0).sum():]
    out[...] = x[order // expert.shape[1]]


def unpermute(rows, row, weight):
    return (np.where(row >= 0, weight, 0)[..., None] * rows[np.maximum(row, 0)]).sum(1, dtype=np.float32)


def swiglu(gate, up):
    return gate / (1 + np.exp(-gate)) * up


def router(logits, top_k, sigmoid, renormalize):
    score = 1 / (1 + np.exp(-logits)) if sigmoid else np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    expert = np.argsort(-logits, axis=1, kind="stable")[:, :top_k]
    weight = np.take_along_axis(score, expert, 1)
    return expert, weight / weight.sum(1, keepdims=True) if renormalize else weight


def goes(expert, experts):
    """[ranks, from which][tokens][ranks, to which]"""
    ranks = len(expert)
    return np.stack([((expert >= 0) & (expert // (experts // ranks) == d)).any(2) for d in range(ranks)], 2)


def dispatch(x, expert, offset, experts):
    to = goes(expert, experts)
    return np.concatenate([x[to[..., d]] for d in range(len(x))])


def combine(rows, expert, offset, experts):
    to = goes(expert, experts)
    y = np.zeros((*expert.shape[:2], rows.shape[1]), np.float32)
    for d in range(len(expert)):
        y[to[..., d]] += rows[offset[d]:offset[d + 1]]
    return y


def by_expert(logits, top_k, sigmoid, renormalize):
    """Wrong: the choices stand by expert, not by score."""
    expert, weight = router(logits, top_k, sigmoid, renormalize)
    order = np.argsort(expert, 1)
    return np.take_along_axis(expert, order, 1), np.take_along_axis(weight, order, 1)


def tail_too(x, dy, offset):
    """Wrong: the last expert has the unused tail."""
    return weight_gradient(x, dy, np.r_[offset[:-1], len(x)].astype(np.int32))


def missing_is_last(rows, row, weight):
    """Wrong: row -1 is the last one."""
    return (weight[..., None] * rows[row]).sum(1, dtype=np.float32)


def unstable(x, expert, out):
    """Wrong: an expert's rows stand the other way round."""
    chosen = expert.ravel()[::-1]
    order = np.argsort(chosen, kind="stable")[(chosen < 0).sum():]
    out[...] = x[(len(chosen) - 1 - order) // expert.shape[1]]


def before(x, expert, out):
    """Wrong: an element before the output is written."""
    permute(x, expert, out)
    np.lib.stride_tricks.as_strided(out.base.view(np.float32)[4096 // 4 - 1:], (1,))[0] = 0


def swiglu_of_logits(logits):
    return logits


def as_dispatched(rows, expert, offset):
    return rows


def half(gate, up):
    return swiglu(gate, up).astype(np.float16)


def large_alone(gate, up, rows):
    return swiglu(gate, up) if rows > 100 else NotImplemented


def divides(gate, up):
    return 1 // 0


def writes(gate, up):
    result = swiglu(gate, up)
    up[-1, -1] += 1
    return result


def writes_offset(x, w, offset):
    result = grouped_gemm(x, w, offset)
    offset[-1] -= 1
    return result


def rows_in_16_bits(gate, up):
    return swiglu(gate, up)[np.arange(len(gate)).astype(np.uint16)]


def leaves(gate, up):
    sys.exit(0)


def leaves_at_once(gate, up):
    return os._exit(0) if len(gate) == 165 else swiglu(gate, up)


def crashes(gate, up):
    return os.kill(os.getpid(), 11) if len(gate) == 165 else swiglu(gate, up)


def stays(gate, up):
    while len(gate) == 165:
        pass
    return swiglu(gate, up)


def main():
    from spillway_moe import Error, check

    checks = 0

    def ensure(good, what):
        nonlocal checks
        checks += 1
        if not good:
            sys.exit(f"FAIL {what}")

    def verdict(kernel, fn, **options):
        return getattr(check, kernel)(fn, dtype=np.float32, arrays="numpy", **options)

    rights = {"grouped_gemm": grouped_gemm, "input_gradient": input_gradient, "weight_gradient": weight_gradient, "permute": permute,
              "unpermute": unpermute, "swiglu": swiglu, "dispatch": dispatch, "combine": combine}
    for kernel, fn in rights.items():
        for of in (None, record):
            report, cases = verdict(kernel, fn, record=of), (2 if kernel in ("dispatch", "combine") else 8) if of else 31
            ensure(report and len(report.verdicts) == cases and len(report.of("passed")) == len(report.verdicts), str(report))
            ensure(all(0 <= v["error"] <= 1 for v in report.verdicts), f"{kernel}: beyond its bound")
    report = verdict("router", router)
    ensure(report and len(report.of("passed")) == 21, str(report))
    report = verdict("grouped_gemm", grouped_gemm, transposed=True)
    ensure(report and [v["case"] for v in report.verdicts] == [*range(30, 60), 61], str(report))
    names = {v["name"].split(", ")[2] for v in report.verdicts}
    ensure(names == {"uniform", "zipf0.8", "one-expert", "empty-experts", "short"}, str(names))

    # (kernel, mistake, cases that fail, words of the message)
    short = set(range(12, 15)) | set(range(27, 30))
    for kernel, fn, cases, of, says in (("weight_gradient", tail_too, short, None, "elements are wrong"),
                                        ("unpermute", missing_is_last, short, None, "elements are wrong"),
                                        ("permute", unstable, None, None, "elements are wrong"),
                                        ("unpermute", missing_is_last, None, record, "elements are wrong"),
                                        ("permute", before, set(range(31)), None, "outside of its output, before"),
                                        ("router", by_expert, set(range(21)), None, "indices are wrong"),
                                        ("router", swiglu_of_logits, set(range(21)), None, "a pair of arrays"),
                                        ("combine", as_dispatched, set(range(31)), None, "would be right"),
                                        ("swiglu", half, set(range(31)), None, "returned float16 [48, 64]; float32 [48, 64] would"),
                                        ("swiglu", divides, set(range(31)), None, "ZeroDivisionError"),
                                        ("swiglu", writes, set(range(31)), None, "wrote to its argument 1, which must stay as it is"),
                                        ("grouped_gemm", writes_offset, {*range(30), 60}, None, "wrote to its argument 2"),
                                        ("swiglu", leaves, set(range(31)), None, "the function ended the program: SystemExit(0)"),
                                        ("swiglu", rows_in_16_bits, {30}, None, "elements are wrong")):
        report = verdict(kernel, fn, **({"record": of} if of else {}))
        failed = {v["case"] for v in report.of("failed")}
        ensure(not report and failed and (cases is None or failed == cases), f"{fn.__name__} fails in {failed}")
        first = report.of("failed")[0]
        ensure(says in first["message"] and first["name"] in str(report), first["message"])
        words = first["again"].split()
        ensure(words[:3] == ["python", "-m", "spillway_moe.check"], first["again"])
        if fn is divides:  # one case alone: the exception, with its way
            done = subprocess.run([sys.executable, *words[1:]], capture_output=True, text=True)
            ensure(done.returncode == 1 and "in divides" in done.stderr, done.stderr)
        elif fn in (tail_too, before, leaves, writes) or of is not None:
            done = subprocess.run([sys.executable, *words[1:]], capture_output=True, text=True)
            ensure(done.returncode == 1 and str(report).splitlines()[0] in done.stdout, f"{words}: {done.stdout}{done.stderr}")
    worst = verdict("weight_gradient", tail_too).of("failed")[0]
    ensure(worst["error"] > 1 and len(worst["at"]) == 3 and not np.isfinite(worst["got"]) and worst["low"] <= worst["want"] <= worst["high"],
           str(worst))
    table = verdict("weight_gradient", tail_too).rows
    ensure(len(table) == 31 and (table["status"] == "failed").sum() == 6, "the table")

    for dtype in ("fp16", "float16", np.float16):
        report = check.grouped_gemm(grouped_gemm_fp16, dtype=dtype, arrays="numpy")
        ensure(report and "grouped_gemm fp16: 31 of 31 cases passed, 0 left out" in str(report), str(report))
    report = check.grouped_gemm(cut_fp16, dtype="fp16", arrays="numpy")
    ensure(len(report.of("failed")) > 15, f"a result without its last bit passed: {report}")
    ensure(not check.grouped_gemm(lambda x, w, offset: grouped_gemm(x, w, offset).astype(np.float32), dtype="fp16", arrays="numpy", case=0),
           "a result in another type passed")

    report = verdict("swiglu", large_alone)
    ensure(report and len(report.of("left out")) == 10 and "21 of 21 cases passed, 10 left out" in str(report), str(report))
    ensure(not verdict("swiglu", lambda gate, up: NotImplemented), "nothing was compared, and it passed")
    ensure("spillway_moe.check.swiglu(" in verdict("swiglu", lambda gate, up: gate).of("failed")[0]["again"], "a function without a name")
    for options, says in ((dict(dtype="fp8"), "bfloat16, float16 and float32"), (dict(arrays="dance"), "arrays='torch', 'jax' or 'numpy'"),
                          (dict(device="cuda"), "NumPy's arrays are on the cpu"), (dict(case=31), "cases 0 to 30"),
                          (dict(record="no.record"), "no.record")):
        try:
            check.swiglu(swiglu, **{"dtype": "float", "arrays": "numpy", **options})
        except (ValueError, Error) as error:
            ensure(says in str(error), f"'{error}' says nothing of '{says}'")
        else:
            ensure(False, f"{options} are fine")
    try:
        check.grouped_gemm(grouped_gemm, dtype="float", arrays="numpy", case=30)
    except ValueError as error:
        ensure("cases 0 to 60, without 30 to 59" in str(error), str(error))
    else:
        ensure(False, "a case of transposed weights")

    # what ends or keeps its process, from a shell: exit status 1 and the case
    def shell(where, *words):
        return subprocess.run([sys.executable, "-m", "spillway_moe.check", "swiglu", where, "--arrays", "numpy", "--dtype", "float", *words],
                              capture_output=True, text=True)

    here = f"{pathlib.Path(__file__).resolve()}:"
    for name, says in (("leaves_at_once", "FAILED swiglu, float, case 1: the function ended its process (exit status 0)"),
                       ("crashes", "FAILED swiglu, float, case 1: the function crashed (Segmentation fault)"),
                       ("stays", "FAILED swiglu, float, case 1: the function did not come back: 1 s")):
        done = shell(here + name, "--case-seconds", "1") if name == "stays" else shell(here + name)
        ensure(done.returncode == 1 and says in done.stdout, f"{name}: {done.returncode} {done.stdout}{done.stderr}")
    done = shell(here + "leaves_at_once", "--case", "1")
    ensure(done.returncode == 1 and "case 1: the function ended its process" in done.stdout, f"one case: {done.stdout}{done.stderr}")
    done = shell(here + "swiglu")
    ensure(done.returncode == 0 and "31 of 31 cases passed" in done.stdout, done.stdout + done.stderr)
    done = shell(here + "half")
    ensure(done.returncode == 1 and "0 of 31 cases passed" in done.stdout, done.stdout + done.stderr)
    with tempfile.TemporaryDirectory() as folder:
        for line, says in (("import sys; sys.exit(0)", "ended the program as it was loaded"), ("import os; os._exit(0)", "")):
            file = pathlib.Path(folder) / "leaving.py"
            file.write_text(line + "\ndef fn(gate, up): pass\n")
            done = shell(f"{file}:fn")
            ensure(done.returncode == 1 and says in done.stderr, f"{line}: {done.returncode} {done.stderr}")
    print(f"{checks} checks")


if __name__ == "__main__":
    main()
