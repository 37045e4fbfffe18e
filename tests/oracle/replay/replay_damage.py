#!/usr/bin/env python3
"""Bad input to `spillway replay` and `explain`: one line on stderr that names the problem, the right exit status,
nothing on stdout, no file left half written.

replay_damage.py SPILLWAY SCRATCH"""
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys
import time

import h5py
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from processes import wait_for_group
from replay_case import Case, Tokens, replay, run

USAGE, FILE = 2, 3
sanitized = any(name in sys.argv[1] for name in ("asan", "tsan"))
program, folder = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve() / "replay_damage"
shutil.rmtree(folder, ignore_errors=True)
folder.mkdir(parents=True)
failures, checks = [], 0


def expect(what, good, detail=""):
    global checks
    checks += 1
    if not good:
        failures.append(f"{what}: {detail}")


def refused(what, status, words, *arguments, lines=1, **keywords):
    """The program says no: exit status, and the words that its message must have."""
    before = sorted(folder.iterdir())
    done = run(program, *arguments, cwd=folder, **keywords)
    said = done.stderr.rstrip("\n").split("\n")
    expect(what, done.returncode == status, f"exit {done.returncode}, want {status}: {done.stderr!r}")
    expect(what, 1 <= len(said) <= lines and said[0], f"{len(said)} lines on stderr: {done.stderr!r}")
    for word in words:
        expect(what, word in done.stderr, f"no '{word}' in {done.stderr!r}")
    expect(what, done.stdout == "", f"stdout: {done.stdout[:200]!r}")
    expect(what, done.stderr.isprintable() or all(c.isprintable() or c == "\n" for c in done.stderr),
           f"control characters: {done.stderr!r}")
    expect(what, sorted(folder.iterdir()) == before, "files were left behind")


# --- The good case that everything below damages ---

case = Case(nodes=1, gpus_per_node=4, expert=2, experts=6, top_k=2, sequences=2, length=8, model_layers=2,
            schemes=("dense:capacity_factor=1.25", "gmm"))
rng = np.random.default_rng(1)
rows = case.ranks * case.tokens
ids = np.argsort(rng.random((2 * rows, 2, 6)), axis=2)[:, :, :2].astype(np.uint8)
rank = np.tile(np.repeat(np.arange(4), case.tokens), 2)
sequence = np.tile(np.repeat(np.arange(8), case.length), 2)
trace = Tokens(ids, [rows, rows], 6, 4, rank, sequence, np.tile(np.arange(case.length), 16))
good = trace.write(folder / "good.h5", dict(chunks=(16, 1, 2), shuffle=True, compression="gzip"))
job = case.write(folder)
expect("the good case", replay(program, good, job)["rows"][0]["evidence"] == "exact")


def damaged(name, change):
    path = folder / f"{name}.h5"
    shutil.copy(good, path)
    with h5py.File(path, "r+") as f:
        change(f)
    return path


def replaced(f, path, data):
    del f[path]
    f[path] = data


# --- Traces ---

def bad_trace(what, words, change):
    path = damaged(what.replace(" ", "_").replace("/", "_"), change)
    refused(what, FILE, [path.name, *words], "replay", path, "--job", job, "--output", folder / "out.h5")


def set_id(value, row=70, layer=1):
    def change(f):
        f["tokens/expert_id"][row, layer, 0] = value
    return change


def traces():
    def replay_of(path):
        return "replay", path, "--job", job

    refused("missing file", FILE, ["nowhere.h5"], *replay_of("nowhere.h5"))
    (folder / "empty").mkdir(exist_ok=True)
    refused("a folder without shards", FILE, [], *replay_of(folder / "empty"))
    (folder / "text.h5").write_text("this is no HDF5 file\n")
    refused("not HDF5", FILE, ["text.h5", "HDF5"], *replay_of("text.h5"))
    (folder / "empty.h5").write_bytes(b"")
    refused("empty", FILE, ["empty.h5"], *replay_of("empty.h5"))
    whole = good.read_bytes()
    for part in (8, 100, 1000, len(whole) // 2, len(whole) - 1):
        (folder / "cut.h5").write_bytes(whole[:part])
        refused(f"cut to {part}", FILE, ["cut.h5"], *replay_of("cut.h5"))
    if os.geteuid() != 0:
        shutil.copy(good, folder / "locked.h5")
        (folder / "locked.h5").chmod(0)
        refused("not readable", FILE, ["locked.h5"], *replay_of("locked.h5"))
    with h5py.File(folder / "other.h5", "w") as f:
        f["x"] = [1]
    refused("another HDF5 file", FILE, ["other.h5", "moe-routing-trace"], *replay_of("other.h5"))

    bad_trace("wrong format", ["moe-routing-trace"], lambda f: f.attrs.__setitem__("format", "a\nb\x1b[2J"))
    bad_trace("wrong version", ["format_version", "2.0.0"],
              lambda f: f.attrs.__setitem__("format_version", "2.0.0"))
    for name in ("layer", "expert", "k", "model/num_experts", "model/top_k", "steps/id", "steps/num_tokens",
                 "tokens/step_offset", "tokens/expert_id", "rank"):
        bad_trace(f"without {name}", [name.split("/")[-1]], lambda f, name=name: f.__delitem__(name))
    bad_trace("ids of two axes", ["expert_id"], lambda f: replaced(f, "tokens/expert_id", ids[:, 0]))
    bad_trace("ids of floats", ["expert_id"], lambda f: replaced(f, "tokens/expert_id", ids.astype(float)))
    bad_trace("ids of other layers", ["expert_id"], lambda f: replaced(f, "tokens/expert_id", ids[:, :1]))
    bad_trace("ids of other rows", ["128"], lambda f: replaced(f, "tokens/expert_id", ids[:-1]))
    bad_trace("short ranks", ["source_rank"], lambda f: replaced(f, "tokens/source_rank", rank[:-1]))
    bad_trace("ranks of text", ["source_rank"],
              lambda f: replaced(f, "tokens/source_rank", np.array([b"x"] * len(rank))))
    bad_trace("rank out of range", ["source_rank", "4"],
              lambda f: f["tokens/source_rank"].__setitem__(64 + 3, 4))
    bad_trace("id out of range", ["id 6", "step 10", "layer 1", "token 6"], set_id(6))
    bad_trace("id far out of range", ["id 254"], set_id(254))
    bad_trace("missing value is an expert", ["missing_value"],
              lambda f: f["tokens/expert_id"].attrs.__setitem__("missing_value", 3))
    bad_trace("physical experts", ["physical"],
              lambda f: f["tokens/expert_id"].attrs.__setitem__("expert_axis", "physical"))
    bad_trace("an offset below 0", ["step_offset", "is -64"],
              lambda f: f["tokens/step_offset"].__setitem__(slice(None), [0, -64, 128]))
    bad_trace("every choice missing", ["every choice is missing"], lambda f: f["tokens/expert_id"].write_direct(
        np.full(ids.shape, 255, np.uint8)))
    for offsets in ([0, 129, 128], [1, 64, 128], [0, 64, 129], [0, 60, 128], [0, -64, 128],
                    [0, 2**62, 128]):
        bad_trace(f"offsets {offsets}", ["step_offset"],
                  lambda f, offsets=offsets: f["tokens/step_offset"].__setitem__(slice(None), offsets))
    bad_trace("num_tokens below 0", ["num_tokens"], lambda f: f["steps/num_tokens"].__setitem__(0, -1))
    bad_trace("no experts in a layer", ["num_experts"], lambda f: f["model/num_experts"].__setitem__(1, 0))
    bad_trace("top_k above the experts", ["top_k"], lambda f: f["model/top_k"].__setitem__(0, 7))
    bad_trace("no steps", ["steps/id"], lambda f: replaced(f, "steps/id", np.zeros(0, np.int64)))

    def empty_step(f):
        f["tokens/step_offset"][...] = [0, 128, 128]
        f["steps/num_tokens"][...] = [128, 0]
    bad_trace("a step without tokens", ["no tokens"], empty_step)

    def vast(f):  # 2^40 rows on paper, none on the disk
        del f["tokens/expert_id"]
        f.create_dataset("tokens/expert_id", (2**40, 2, 2), np.uint8, chunks=(2**20, 1, 2), fillvalue=0)
        for name in ("source_rank", "sequence", "position"):
            del f[f"tokens/{name}"]
            f.create_dataset(f"tokens/{name}", (2**40,), np.uint16 if name == "source_rank" else np.int32,
                             chunks=(2**20,))
        f["tokens/step_offset"][...] = [0, 2**39, 2**40]
        f["steps/num_tokens"][...] = [2**39, 2**39]
    bad_trace("2^40 rows", [], vast)
    bad_trace("10^6 experts", ["expert"], lambda f: replaced(f, "expert", np.zeros(10**6, np.int32)))
    bad_trace("10^5 layers", ["layer"], lambda f: replaced(f, "layer", np.zeros(10**5, np.int32)))

    def broken_chunk(f):
        offset = f["tokens/expert_id"].id.get_chunk_info(1).byte_offset
        f.flush()
        broken_chunk.offset = offset
    path = damaged("chunk", broken_chunk)
    with open(path, "r+b") as raw:
        raw.seek(broken_chunk.offset)
        raw.write(b"\xff" * 24)
    refused("a broken chunk", FILE, ["chunk.h5"], *replay_of(path), "--output", folder / "out.h5")


def weights():
    scheme = "megatron-alltoall:capacity_factor=1"

    def weighted(name, value):
        def change(f):
            data = np.full(f["tokens/expert_id"].shape, 0.5, np.float16)
            data[70, 1, 0] = value
            f.create_dataset("tokens/weight", data=data, chunks=(16, 1, 2))
        return damaged(name, change)

    refused("no weights", USAGE, ["drops by router weight"], "replay", good, "--job", job, "--scheme", scheme + ",policy=probs")
    expect("no weights, no policy", run(program, "replay", good, "--job", job, "--scheme", scheme).returncode == 0)
    expect("weights", run(program, "replay", weighted("weights", 0.0), "--job", job, "--scheme", scheme).returncode == 0)
    for name, value, words in (("weight_nan", np.nan, "no number"), ("weight_inf", np.inf, "no number"),
                               ("weight_below", -0.25, "below 0")):
        path = weighted(name, value)
        refused(name, FILE, [path.name, "/tokens/weight", "layer", "token row 70", words],
                "replay", path, "--job", job, "--scheme", scheme)
        found = run(program, "trace", "verify", path)
        expect(name, found.returncode == 1 and words in found.stdout, f"trace verify: {found.returncode} {found.stdout!r}")


def flipped():
    """Any byte may be wrong: the program says no in one line, or replays what it found; it never crashes."""
    whole, path = bytearray(good.read_bytes()), folder / "flipped.h5"
    for _ in range(120):
        changed = whole.copy()
        for at in rng.integers(0, len(whole), int(rng.integers(1, 4))):
            changed[at] = rng.integers(256)
        path.write_bytes(changed)
        done = run(program, "replay", path, "--job", job, "--format", "csv")
        clean = done.returncode == 0 and not done.stderr
        refusal = done.returncode in (USAGE, FILE) and done.stderr.count("\n") == 1 and not done.stdout
        if "Sanitizer" in done.stderr:  # inside HDF5, in the process that tries it out before it is trusted
            refusal = done.returncode == FILE and "H5" in done.stderr
        expect("flipped bytes", clean or refusal, f"exit {done.returncode}: {done.stderr!r}")
    path.unlink()


# --- Jobs ---

def bad_job(what, words, old, new, status=USAGE):
    text = job.read_text()
    assert old in text, what
    path = folder / "bad_job.yaml"
    path.write_text(text.replace(old, new))
    refused(what, status, ["bad_job.yaml", *words], "replay", good, "--job", path)
    path.unlink()


def jobs():
    refused("no such job", FILE, ["nowhere.yaml"], "replay", good, "--job", "nowhere.yaml")
    bad_job("unknown key", ["colour", ":5"], "remat: full", "colour: red")
    bad_job("wrong type", ["expert", ":3"], "expert: 2", "expert: two")
    bad_job("out of range", ["expert"], "expert: 2", "expert: 65537")
    bad_job("experts not divisible", ["6", "4"], "{expert: 2, fsdp: 2}", "{expert: 4, fsdp: 1}")
    bad_job("ranks are not the cluster's", ["4"], "fsdp: 2", "fsdp: 3")
    bad_job("no such model", ["gpt-9"], "./case_model.json", "gpt-9")
    bad_job("no such model file", ["none.json"], "./case_model.json", "./none.json", FILE)
    bad_job("no YAML", [], "model:", "model: [")
    (folder / "bad_job.yaml").write_text(job.read_text().replace("./case_model.json", "deepseek-v3"))
    refused("mismatching experts", USAGE, ["6 experts", "256"], "replay", good, "--job", "bad_job.yaml",
            "--output", folder / "out.h5")
    (folder / "bad_job.yaml").unlink()
    def other_top_k(f):
        f["model/top_k"][1] = 1
    refused("mismatching top_k of a layer", USAGE, ["top-1 in layer", "top-2"], "replay",
            damaged("layer_top_k", other_top_k), "--job", job)
    text = (folder / "case_model.json").read_text()
    (folder / "case_model.json").write_text(text.replace('"num_experts_per_tok": 2', '"num_experts_per_tok": 3'))
    refused("mismatching top_k", USAGE, ["top-2", "top-3"], "replay", good, "--job", job)
    (folder / "case_model.json").write_text(text)
    bad_job("tensor", ["tensor"], "fsdp: 2}", "fsdp: 1, tensor: 3}")


# --- Options ---

def options():
    def bad(what, words, *arguments, status=USAGE, lines=1):
        refused(what, status, words, "replay", good, "--job", job, *arguments, lines=lines)

    refused("no command", USAGE, ["usage"], lines=22)
    refused("no such command", USAGE, ["fly"], "fly", lines=23)
    # argp adds "Try ... --help", broken at 80 characters
    refused("no trace", USAGE, ["which trace"], "replay", "--job", job, lines=3)
    refused("two traces", USAGE, ["second"], "replay", good, good, "--job", job, lines=3)
    refused("no job", USAGE, ["--job"], "replay", good)
    bad("no such option", ["colour"], "--colour", lines=3)
    bad("an option without its value", ["steps"], "--steps", lines=3)
    for text in ("gmn", "", ":", "dense", "dense:", "dense:capacity_factor=", "dense:capacity_factor=0",
                 "dense:capacity_factor=-1", "dense:capacity_factor=nan", "dense:capacity_factor=1x",
                 "dense:factor=1", "gmm:buffer_factor=-1", "gmm-deepep:x=1", "ring,gmm", "gmm:buffer_factor",
                 "a" * 200):
        bad(f"scheme '{text[:30]}'", ["scheme"], "--scheme", text)
    for text in ("", "2:2", "2:1", "x", "1:x", "-1", "-1:1", "0:0", "1.5", "0:99999999999999999999"):
        bad(f"steps '{text}'", ["--steps"], f"--steps={text}")
    bad("steps outside", ["steps", "0:2"], "--steps", "1:3", "--output", folder / "out.h5")
    bad("layers outside", ["layers", "0:2"], "--layers", "2")
    for text in ("", "0", "x", "1,x", "-1", "1.5", "2000000", ",", "1" * 300):
        bad(f"sequences '{text[:9]}'", ["--sequences-per-gpu"], f"--sequences-per-gpu={text}")
    bad("expert-parallel 3", ["--expert-parallel"], "--expert-parallel", "3")
    bad("expert-parallel 4 of 6 experts", ["6", "4"], "--expert-parallel", "4")
    bad("expert-parallel x", ["--expert-parallel"], "--expert-parallel", "x")
    bad("expert-parallel 0", ["--expert-parallel"], "--expert-parallel", "0")
    bad("format", ["--format", "xml"], "--format", "xml")
    bad("seed", ["--seed"], "--seed", "-1")
    bad("a buffer factor for one rank", ["buffer_factor"], "--expert-parallel", "1", "--scheme",
        "gmm:buffer_factor=1")
    bad("output in no folder", ["nowhere/out.h5"], "--output", "nowhere/out.h5", status=FILE)
    bad("output onto a folder", [], "--output", folder, status=FILE)
    few = lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 28, 1 << 28))
    if run(program, "--help", preexec_fn=few).returncode == 0:  # a sanitizer needs more to begin with
        refused("more memory than there is", FILE, ["allocate"], "replay", good, "--job", job, "--sequences-per-gpu",
                "1048576", preexec_fn=few)
    other = folder / "explain_job.yaml"
    other.write_text(job.read_text().replace("./case_model.json", "deepseek-v3"))
    refused("explain of a trace of other experts", USAGE, ["256"], "explain", "--job", other, "--trace", good)
    other.unlink()
    refused("explain of rank 4", USAGE, ["--rank"], "explain", "--job", job, "--rank", "4")
    refused("explain of a missing trace", FILE, ["nowhere.h5"], "explain", "--job", job, "--trace", "nowhere.h5")


# --- Output ---

def outputs():
    if os.path.exists("/dev/full"):
        for form in ("table", "json", "csv"):
            with open("/dev/full", "w") as full:
                done = subprocess.run([program, "replay", good, "--job", job, "--format", form], stdout=full,
                                      stderr=subprocess.PIPE, text=True)
            expect(f"stdout full, {form}", done.returncode == FILE and done.stderr.count("\n") == 1,
                   f"exit {done.returncode}: {done.stderr!r}")
    holes = damaged("holes", lambda f: f["tokens/expert_id"].__setitem__((slice(None), slice(None), 1), 255))
    said = replay(program, holes, job)["rows"][0]["assumptions"]
    expect("half of the choices missing", any(s.startswith("50 % of the choices (256 of 512) are missing") for s in said), said)
    out = folder / "kept.h5"
    out.write_text("what may not be written")
    out.chmod(0o444)
    refused("output onto a file that may not be written", FILE, ["kept.h5", "may not be written"], "replay", good,
            "--job", job, "--output", out)
    expect("it is kept", out.read_bytes() == b"what may not be written")
    out.unlink()
    out.symlink_to(folder / "not_there.h5")
    refused("output through a link to nothing", FILE, ["kept.h5", "link"], "replay", good, "--job", job, "--output", out)
    out.unlink()
    little = lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 33, 1 << 33))
    environment = dict(os.environ, OMP_NUM_THREADS="4", OMP_STACKSIZE="64G")  # no thread can start: the library exits
    if run(program, "--help", preexec_fn=little).returncode == 0:
        done = subprocess.run([program, "replay", good, "--job", job, "--output", out], capture_output=True, text=True,
                              env=environment, preexec_fn=little)
        expect("without threads", done.returncode != 0, "it ran")
        expect("without threads", not list(folder.glob("kept.h5*")), f"exit {done.returncode}: a file is left")
    out.write_text("what stood there before")
    run(program, "replay", folder / "text.h5", "--job", job, "--output", out)
    expect("a failed replay keeps the old file", out.read_text() == "what stood there before")
    out.unlink()


def killed():
    """Stopped in the middle of writing: no file of that name. Only SIGKILL may leave the temporary one."""
    steps = 400
    large = Tokens(np.tile(ids, (steps // 2, 1, 1)), [rows] * steps, 6, 4, np.tile(rank, steps // 2),
                   np.tile(sequence, steps // 2), np.tile(trace.position, steps // 2))
    path, out = large.write(folder / "large.h5", dict(chunks=(16, 1, 2))), folder / "killed.h5"
    arguments = [program, "replay", path, "--job", job, "--output", out, *["--scheme=gmm"] * 30]
    for sign in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
        tries = 0
        for delay in np.linspace(0.02, 0.2, 7):
            process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
            time.sleep(delay)
            alive = process.poll() is None
            process.send_signal(sign)
            process.wait()
            expect(f"{sign.name} after {delay:.2f} s", wait_for_group(process.pid), "its worker goes on")
            if alive and process.returncode != 0:
                tries += 1
                expect(f"{sign.name} after {delay:.2f} s", not out.exists(), "a file stands at the target")
            out.unlink(missing_ok=True)
            left = [p.name for p in folder.glob("killed.h5*")]
            if sign != signal.SIGKILL or not sanitized:  # under a sanitizer nobody watches over the process that works
                expect(f"{sign.name} after {delay:.2f} s", not left, f"left behind: {left}")
            for name in left:
                (folder / name).unlink()
        expect(sign.name, tries > 0, "never hit the program at work")


for part in (traces, weights, flipped, jobs, options, outputs, killed):
    part()
print("\n".join(failures))
print(f"{checks} checks, {len(failures)} failed")
sys.exit(1 if failures or not checks else 0)
