#!/usr/bin/env python3
"""spillway_moe.importing: files that Python alone reads become traces, which `trace verify` and `replay` accept, and whose rows are
those that are counted here. safetensors and pyarrow come from PyPI; torch is tried by .ci/run long.
importing.py SPILLWAY SOURCE LIBRARY SCRATCH VENV [torch]"""
import errno
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
import framework_venv

torch_too = "torch" in sys.argv
if torch_too:
    framework_venv.enter(sys.argv[5], "torch", framework_venv.TORCH, "it is run by .ci/run long alone")
else:
    framework_venv.enter(sys.argv[5], "pyarrow", framework_venv.IMPORTS, "cmake -DSPW_JAX=OFF leaves this test out")
program, source, shared, scratch = (pathlib.Path(a).resolve() for a in sys.argv[1:5])
scratch /= "importing"
os.environ.update(SPILLWAY_LIBRARY=str(shared), PYTHONPATH=str(source / "python"))
sys.path.insert(0, str(source / "python"))
import h5py
import numpy as np

from spillway_moe import Error
from spillway_moe.importing import import_arrays

RANKS, TOKENS, LAYERS, EXPERTS, TOP_K = 8, 64, 7, 64, 8
checks = 0
shutil.rmtree(scratch, ignore_errors=True)
scratch.mkdir(parents=True)
random = np.random.default_rng(5)
ids = np.argsort(random.random((RANKS, TOKENS, LAYERS, EXPERTS)) ** np.linspace(1, 3, EXPERTS), axis=-1)[..., :TOP_K].astype(np.int32)
flat = ids.reshape(RANKS * TOKENS, LAYERS, TOP_K)
STATED = dict(experts=EXPERTS, top_k=TOP_K)
JOB = {"model": "scratch-moe-e64", "cluster": "mi355x:8x1", "parallel": {"expert": RANKS, "fsdp": 1}, "schemes": ["gmm"],
       "batch": {"sequences_per_gpu": 1, "sequence_length": TOKENS}}
(scratch / "job.yaml").write_text(json.dumps(JOB))


def check(good, what):
    global checks
    checks += 1
    if not good:
        sys.exit(f"FAIL {what}")


def refused(says, kind, *arguments, **options):
    out = scratch / "none.h5"
    try:
        import_arrays(*arguments, out, **{**STATED, **options})
    except kind as error:
        check(says in str(error), f"'{error}' says nothing of '{says}'")
    else:
        check(False, f"nothing was wrong, but '{says}' should be")
    check(not out.exists(), f"{says}: a trace is there")


def is_right(inputs, **options):
    """The trace of the inputs holds `flat`, and the program replays it with the rows that are counted here."""
    out = scratch / "run.h5"
    out.unlink(missing_ok=True)
    said = import_arrays(inputs, out, layers=range(1, LAYERS + 1), **STATED, **options).splitlines()[-1]
    check(said.startswith(f"wrote {out}: ") and "7 MoE layer" in said, said)
    with h5py.File(out) as h:
        first = (inputs if isinstance(inputs, pathlib.Path) else inputs[0]).name
        check(first in h.attrs["import_files"] and h.attrs["import_format"] == "array", h.attrs["import_files"])
        if "tokens" in h:
            got = h["tokens/expert_id"][:]
            check((got == flat).all(), f"{inputs}: the ids")
        else:
            want = [np.bincount(flat[:, layer].ravel(), minlength=EXPERTS) for layer in range(LAYERS)]
            check((h["counts/routed"][:] == [want, want]).all(), f"{inputs}: the counts")
            return
    check(subprocess.run([program, "trace", "verify", out], capture_output=True).returncode == 0, f"{inputs}: verify")
    done = subprocess.run([program, "replay", out, "--job", scratch / "job.yaml", "--format", "json"], capture_output=True, text=True)
    check(done.returncode == 0, done.stderr)
    rows = [[(flat[:, layer] // (EXPERTS // RANKS) == d).sum() for d in range(RANKS)] for layer in range(LAYERS)]
    row = json.loads(done.stdout)["rows"][0]
    check(row["evidence"] == "exact" and row["traffic"]["rows_max"] == np.max(rows), f"{inputs}: {row['evidence']}, {row['traffic']}")


def full_disk(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


if torch_too:
    import torch

    tensor = torch.from_numpy(flat)
    torch.save([tensor[:, layer] for layer in range(LAYERS)], scratch / "replay.pt")  # Megatron's RouterReplay: a tensor a layer
    is_right(scratch / "replay.pt", axes="tokens,k", tokens_per_rank=TOKENS)
    torch.save({"routing": {"ids": tensor, "step": 3}}, scratch / "nested.pth")
    is_right(scratch / "nested.pth", key="routing.ids", axes="tokens,layers,k", tokens_per_rank=TOKENS)
    refused("holds ids, step", ValueError, scratch / "nested.pth", key="routing", axes="tokens,layers,k")
    torch.save({"run": print}, scratch / "code.pt")  # a pickle that would call something
    refused("", Exception, scratch / "code.pt", axes="tokens,layers,k")
    torch.save({"step": 3}, scratch / "none.pt")
    refused("holds a int where a tensor", ValueError, scratch / "none.pt", axes="tokens,layers,k")
    torch.save(torch.zeros(1, 2, dtype=torch.int64).expand(50_000_000, 2), scratch / "bomb.pt")  # 800 MB of two numbers
    check((scratch / "bomb.pt").stat().st_size < 4096, "the file is as small as it says")
    refused("claim 800000000 bytes", ValueError, scratch / "bomb.pt", axes="tokens,k", files="layers")
    row = torch.zeros(1000, 2, dtype=torch.int64)
    torch.save([row] * 1000, scratch / "many.pt")  # 16 MB of one tensor
    refused("claim 16000000 bytes", ValueError, scratch / "many.pt", axes="tokens,k")
    version, torch.__version__ = torch.__version__, "2.5.1+cpu"
    refused("CVE-2025-32434", ImportError, scratch / "nested.pth", key="routing.ids", axes="tokens,layers,k")
    torch.__version__ = version
else:
    import pyarrow
    import pyarrow.parquet
    from safetensors.numpy import save_file

    save_file({"ids": flat}, scratch / "ids.safetensors")
    is_right(scratch / "ids.safetensors", axes="tokens,layers,k", tokens_per_rank=TOKENS)
    save_file({"ids": flat, "other": flat}, scratch / "two.safetensors")
    is_right(scratch / "two.safetensors", key="ids", axes="tokens,layers,k", tokens_per_rank=TOKENS)
    refused("key= (--key) says which", ValueError, scratch / "two.safetensors", axes="tokens,layers,k")
    refused("has no 'x'; it holds ids, other", ValueError, scratch / "two.safetensors", key="x", axes="tokens,layers,k")
    counts = {f"{step}_{layer}": np.bincount(flat[:, layer].ravel(), minlength=EXPERTS) for step in (4, 5) for layer in range(LAYERS)}
    save_file(counts, scratch / "rank0.safetensors")  # TensorRT-LLM's statistics
    is_right(scratch / "rank0.safetensors", axes="steps,layers,experts")
    counts.pop("5_3")
    save_file(counts, scratch / "gap.safetensors")
    refused("the tensor 5_3 is missing", ValueError, scratch / "gap.safetensors", axes="steps,layers,experts")

    names = [f"{step}_{layer:03}" for step in (4, 5) for layer in range(LAYERS)]  # with zeros in front, all of them
    counts["5_3"] = counts["4_3"]
    save_file(dict(zip(names, (counts[f"{n[0]}_{int(n[2:])}"] for n in names))), scratch / "padded.safetensors")
    is_right(scratch / "padded.safetensors", axes="steps,layers,experts")
    save_file({"01_0": counts["4_0"], "1_0": counts["4_1"]}, scratch / "twice.safetensors")
    refused("01_0 and 1_0 are of one iteration and layer", ValueError, scratch / "twice.safetensors", axes="steps,layers,experts")

    files = []  # FLAME-MoE's traces: a table a layer, the ids of a token a row
    for layer in range(LAYERS):
        files.append(scratch / f"layer_{layer:02}.parquet")
        pyarrow.parquet.write_table(pyarrow.table({"token": list(range(len(flat))), "indices": flat[:, layer].tolist()}), files[-1])
    is_right(files, key="indices", axes="tokens,k", files="layers", tokens_per_rank=TOKENS)
    ranks = []  # files of one name in two folders, which are the user's in every message
    for number in range(2):
        (scratch / f"rank{number}").mkdir()
        ranks.append(scratch / f"rank{number}" / "layer.parquet")
        part = flat[number * 32:(number + 1) * 32, 0]
        pyarrow.parquet.write_table(pyarrow.table({"indices": part.tolist()}), ranks[-1])
    said = import_arrays(ranks, scratch / "two.h5", axes="tokens,k", files="layers", **STATED)
    with h5py.File(scratch / "two.h5") as h:
        check((h["tokens/expert_id"][:] == np.stack([flat[:32, 0], flat[32:64, 0]], axis=1)).all(), "two files of one name")
    refused(f"{ranks[1]}: axis k has 8 elements", Error, ranks[1], top_k=4, axes="tokens,k", files="layers")
    refused("is given twice", ValueError, [ranks[0], ranks[0]], axes="tokens,k", files="layers")
    before = ranks[0].read_bytes()
    try:
        import_arrays(ranks[0], ranks[0], axes="tokens,k", files="layers", **STATED)
        check(False, "an output over its input")
    except ValueError as error:
        check("is the input" in str(error) and ranks[0].read_bytes() == before, str(error))
    small = tempfile.tempdir
    tempfile.tempdir = str(scratch / "full")  # a folder in which nothing can be kept
    (scratch / "full").mkdir()
    np_save, np.save = np.save, full_disk
    refused(f"{ranks[0]} as an array: No space left on device", OSError, ranks[0], axes="tokens,k", files="layers")
    np.save, tempfile.tempdir = np_save, small
    pyarrow.parquet.write_table(pyarrow.table({"indices": [[1, 2], [3]]}), scratch / "uneven.parquet")
    refused("1 to 2 numbers", ValueError, scratch / "uneven.parquet", axes="tokens,k")
    (scratch / "replay.pt").write_bytes(b"")
    refused("needs the package torch; pip install torch", ImportError, scratch / "replay.pt", axes="layers,tokens,k")

    words = ["-m", "spillway_moe.importing", str(scratch / "ids.safetensors"), "--output", str(scratch / "shell.h5"), "--axes", "tokens,layers,k",
             "--experts", "64", "--top-k"]
    done = subprocess.run([sys.executable, *words, "8"], capture_output=True, text=True)
    check(done.returncode == 0 and done.stdout.splitlines()[-1].startswith("wrote "), f"{done.stdout}{done.stderr}")
    done = subprocess.run([sys.executable, *words, "9"], capture_output=True, text=True)
    check(done.returncode == 2 and done.stderr.count("\n") == 1 and "spillway_moe.importing: " in done.stderr, done.stderr)
refused("files that are read end in .pt", ValueError, scratch / "job.yaml", axes="tokens,k")
name = "nested.pth" if torch_too else "ids.safetensors"
more = {"key": "routing.ids"} if torch_too else {}
refused("--axes", Error, scratch / name, **more)
print(f"{checks} checks")
