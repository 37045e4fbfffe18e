#!/usr/bin/env python3
"""`spillway report` of what is damaged or asked for wrongly: one line, and nothing is left behind.

report_damage_oracle.py SPILLWAY TEST_REPORT SCRATCH ROOT"""
import json
import os
import pathlib
import resource
import shutil
import sys

import h5py
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from replay_case import run
from report_cases import FILE, OK, USAGE, chosen, good, page_path, refused, rng, small_trace
from report_page import Page, expect, finish, folder, program, report
import unittest.mock


# --- Damage ---

def bad_file(what, words, change, accepted=False):
    path = folder / "bad.h5"
    shutil.copy(good, path)
    with h5py.File(path, "r+") as f:
        change(f)
    if accepted:
        return report(path)
    refused(what, FILE, ["bad.h5", *words], "report", path, "--output", page_path)
    path.unlink()
    return None


def put(f, name, data):
    del f[name]
    f[name] = data


def summary(change):
    """Changes the JSON, in a text of fixed length as the writer's."""
    def apply(f):
        answer = json.loads(f["summary_json"][()])
        text = change(answer)
        put(f, "summary_json", np.bytes_((text if isinstance(text, str) else json.dumps(answer)).encode()))
    return apply


def set_in(*path, to):
    def change(answer):
        at = answer
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = to
    return summary(change)


def damage():
    def of(path):
        return "report", path, "--output", page_path
    page_path.write_text("the page before")
    refused("missing", FILE, ["nowhere.h5"], *of("nowhere.h5"))
    refused("a folder", FILE, [], *of(folder))
    (folder / "text.h5").write_text("no HDF5\n")
    refused("not HDF5", FILE, ["text.h5", "HDF5"], *of("text.h5"))
    refused("a trace", FILE, ["small.h5", "format is 'moe-routing-trace'", "spillway-result"], *of(small_trace))
    whole = good.read_bytes()
    for part in (0, 8, 100, 1000, len(whole) // 3, len(whole) // 2, len(whole) - 1):
        (folder / "cut.h5").write_bytes(whole[:part])
        refused(f"cut to {part}", FILE, ["cut.h5"], *of("cut.h5"))

    bad_file("other format", ["format is 'a?b'"], lambda f: f.attrs.__setitem__("format", "a\x1bb"))
    for version in ("2.0.0", "", "10.0", "x"):
        bad_file(f"version {version}", ["format_version", "1.x"], lambda f, v=version: f.attrs.__setitem__("format_version", v))
    bad_file("no version", ["format_version"], lambda f: f.attrs.__delitem__("format_version"))
    names = ("rows_received", "bytes_sent", "bytes_received", "dropped", "peak_gib", "allocated_gib", "reserved_gib", "step", "layer", "rank",
             "result", "sequences_per_gpu", "summary_json")
    for name in names:
        bad_file(f"without {name}", [f"/{name}", "missing"], lambda f, n=name: f.__delitem__(n))
    for name in names[:4]:
        bad_file(f"{name} of 3 axes", [f"/{name}", "must have 4"], lambda f, n=name: put(f, n, f[n][0]))
        bad_file(f"{name} of floats", [f"/{name}", "integers"], lambda f, n=name: put(f, n, f[n][...].astype(float)))
        bad_file(f"{name} of fewer ranks", [f"/{name}", "dimension 3"], lambda f, n=name: put(f, n, f[n][:, :, :, :-1]))
        bad_file(f"{name} of fewer steps", [f"/{name}", "dimension 1"], lambda f, n=name: put(f, n, f[n][:, :-1]))
    for value in (np.nan, np.inf, -1.0, 1e300):
        bad_file(f"peak of {value}", ["/peak_gib", "step 2"], lambda f, v=value: f["peak_gib"].__setitem__((1, 2), v))
    bad_file("no steps", ["/step", "must be 1 to"], lambda f: put(f, "step", np.zeros(0, np.int64)))
    bad_file("5000 results", ["/result"], lambda f: put(f, "result", np.zeros(5000, np.uint64)))
    bad_file("10^5 layers", ["/layer"], lambda f: put(f, "layer", np.zeros(10**5, np.int32)))
    bad_file("other sequences", ["/summary_json", "3"], lambda f: put(f, "sequences_per_gpu", np.full(5, 3, np.uint64)))

    def vast(f):  # 2^22 steps of 2^16 ranks on paper, none on the disk
        for name, extent in (("step", (2**22,)), ("rank", (2**16,))):
            del f[name]
            f.create_dataset(name, extent, np.int64, chunks=(2**16,))
        for name in names[:4]:
            del f[name]
            f.create_dataset(name, (5, 2**22, 3, 2**16), np.uint64, chunks=(1, 1, 3, 2**16))
    bad_file("2^41 cells", ["stored"], vast)

    def elsewhere(f):
        data = f["rows_received"][...]
        with h5py.File(folder / "other.h5", "w") as other:
            other["x"] = data
        del f["rows_received"]
        f["rows_received"] = h5py.ExternalLink("other.h5", "/x")
    bad_file_link = folder / "other.h5"
    bad_file_link.touch()
    path = folder / "bad.h5"
    shutil.copy(good, path)
    with h5py.File(path, "r+") as f:
        elsewhere(f)
    refused("a link to another file", FILE, ["/rows_received", "link"], "report", path, "--output", page_path)

    for name in ("expert_choices", "link_bytes"):
        bad_file(f"{name} of 2 axes", [f"/{name}", "must have 3"], lambda f, n=name: put(f, n, f[n][0]))
        bad_file(f"{name} of fewer", [f"/{name}", "dimension 1"], lambda f, n=name: put(f, n, f[n][:, :-1]))
        bad_file(f"{name} of fewer still", [f"/{name}", "dimension 0"], lambda f, n=name: put(f, n, f[n][:-1]))
        bad_file(f"{name} of none", [f"/{name}"], lambda f, n=name: put(f, n, f[n][:, :, :0]))
    bad_file("choices of floats", ["/expert_choices", "integers"], lambda f: put(f, "expert_choices", f["expert_choices"][...].astype(float)))
    for value in (np.nan, -1.0, np.inf):
        bad_file(f"links of {value}", ["/link_bytes", "result 1"], lambda f, v=value: f["link_bytes"].__setitem__((1, 0, 1), v))
    plain = bad_file("1.2", [], lambda f: [f.__delitem__(n) for n in ("expert_choices", "link_bytes")], accepted=True)
    expect("a file of version 1.2", "Who sends" not in plain.root.text() and "Which experts" not in plain.root.text(), "pictures of nothing")

    # the summary
    bad_file("a text of variable length", ["/summary_json", "fixed length"], lambda f: put(f, "summary_json", f["summary_json"][()].decode()))
    bad_file("no JSON", ["/summary_json", "JSON"], summary(lambda a: "{"))
    bad_file("a list", ["no object"], summary(lambda a: "[]"))
    bad_file("a key twice", ["/summary_json", "duplicate"], summary(lambda a: '{"format": 1, "format": 2}'))
    bad_file("10^5 deep", ["/summary_json"], summary(lambda a: "[" * 100000))
    bad_file("not UTF-8", ["/summary_json"], lambda f: put(f, "summary_json", np.bytes_(b'{"format": "\xff"}')))
    bad_file("other JSON", ["format spillway-result"], set_in("format", to="x"))
    bad_file("version 2 of the JSON", ["version 1"], set_in("version", to=2))
    for path, value, words in ((("rows",), [], "rows; must be 5"), (("rows", 0), 7, "objects"), (("rows", 0, "memory"), None, "rows.memory"),
                               (("rows", 0, "memory", "verdict"), "maybe", "verdict"), (("rows", 2, "memory", "max_bytes"), -1, "max_bytes"),
                               (("rows", 2, "memory", "max_bytes"), "many", "max_bytes"), (("rows", 2, "memory", "oom_probability"), 1.5, "oom"),
                               (("rows", 2, "memory", "components"), [], "components"),
                               (("rows", 2, "memory", "components"), {str(i): 1 for i in range(2000)}, "more than"),
                               (("rows", 1, "traffic", "components", "exchanges"), -5, "components"), (("rows", 1, "steps", "count"), 4, "steps"),
                               (("rows", 1, "sequences_per_gpu"), 9, "9 sequences"), (("rows", 1, "assumptions"), [1], "assumptions"),
                               (("rows", 1, "scheme"), None, "scheme"), (("settings", "parallel", "expert"), 8, "8 x 2 ranks"),
                               (("rows", 1, "memory", "by_newest_stack"), {"stack": 1}, "by_newest_stack.stack"),
                               (("rows", 1, "memory", "by_newest_stack"), {"stack": "x", "verdict": "?"}, "by_newest_stack.verdict"),
                               (("rows", 1, "memory", "by_newest_stack"), {"stack": "x", "verdict": "oom", "peak_bytes": 1e19}, "peak_bytes"),
                               (("answers", "order"), [0, 1, 2, 3], "5 rows"), (("answers", "order"), [0, 1, 2, 3, 3], "twice"),
                               (("answers", "order"), [0, 1, 2, 3, 5], "from 0 to 4"), (("answers", "order"), [0, 1, 2, 3, -1], "from 0 to 4"),
                               (("answers", "order"), [0, 1, 2, 3, "x"], "from 0 to 4"), (("answers", "order"), None, "5 rows"),
                               (("answers", "least_memory"), 5, "least_memory"),
                               (("memory_timeline", "row"), 5, "memory_timeline.row"), (("memory_timeline", "row"), -1, "from 0 to 4"),
                               (("memory_timeline", "at"), [1, 0], "goes back"), (("memory_timeline", "at"), [0] * 601, "1 to 600"),
                               (("memory_timeline", "at"), [0, 1e9], "numbers from 0"), (("memory_timeline", "bytes"), [0], "as in at"),
                               (("memory_timeline", "bytes"), [], "1 to 600"), (("memory_timeline", "bytes"), ["x"], "numbers from 0"),
                               (("memory_timeline", "phases"), 3, "phases"), (("memory_timeline", "phases", "loss"), [5, 1], "rise"),
                               (("memory_timeline", "phases", "forward"), [1], "rise"), (("memory_timeline", "layers"), None, "layers"),
                               (("memory_timeline", "stage"), "x", "stage"), (("memory_timeline", "balanced"), {"at": [0]}, "bytes"),
                               (("memory_timeline",), 7, "memory_timeline"),
                               (("settings",), None, "settings"), (("rows", 0, "time"), {"step_s": 1.0}, "low_s")):
        bad_file(f"{path} = {value}", ["/summary_json", words], set_in(*path, to=value))

    # what is not damage
    old = bad_file("1.0", [], summary(lambda a: a.pop("sources") and None), accepted=True)
    expect("a file of version 1.0", "version 1.0" in old.section("Sources").text(), old.section("Sources").text())
    older = bad_file("1.1", [], summary(lambda a: [a.pop("answers"), *(row["memory"].pop("surely_fits") for row in a["rows"])] and None), accepted=True)
    told = next(older.root.all("section", "answer"))
    expect("a file of version 1.1", "version before 1.2" in told.text() and not chosen(told) and "Every scheme fits" in told.text(), told.text())
    arena = {"stack": "<b>" + "x" * 500 + "\u202e", "verdict": "oom", "peak_bytes": 9e18, "low_bytes": 0, "high_bytes": 9e18}
    hostile = bad_file("a stack of any name", [], set_in("rows", 1, "memory", "by_newest_stack", to=arena), accepted=True)
    expect("a stack of any name", "by the arena of <b>xxx" in next(hostile.root.all("p", "lead")).text(), "its name is not there as text")
    bad_file("1.9", [], lambda f: f.attrs.__setitem__("format_version", "1.9.3"), accepted=True)
    bad_file("sources of another form", [], set_in("sources", to={"figures": [1, None, {"what": 3}], "schemes": {}, "fits": "x"}), accepted=True)
    bad_file("settings of another form", [], summary(lambda a: a["settings"].update(steps=["x"], schemes=[3], seed="x", allocator=[])),
             accepted=True)
    (folder / "bad.h5").unlink()
    expect("damage", page_path.read_text() == "the page before", "a refusal changed the page that was there")

    # any byte may be wrong: a page, or a refusal in one line; never a crash
    for _ in range(165):
        changed = bytearray(whole)
        for at in rng.integers(0, len(whole), int(rng.integers(1, 4))):
            changed[at] = rng.integers(256)
        (folder / "flipped.h5").write_bytes(changed)
        done = run(program, "report", folder / "flipped.h5", "--output", page_path)
        clean = done.returncode == OK and not done.stderr
        said = [line for line in done.stderr.splitlines() if "AddressSanitizer failed to allocate" not in line]  # a forged size
        refusal = done.returncode == FILE and len(said) == 1
        if any("Sanitizer" in line for line in said):  # inside HDF5, in the process that reads it
            refusal = done.returncode == FILE and "H5" in done.stderr
        expect("flipped bytes", (clean or refusal) and not done.stdout, f"exit {done.returncode}: {done.stderr!r}")
        if clean:
            Page(page_path.read_text())


def options():
    refused("no result", USAGE, ["which result"], "report", lines=3)
    refused("three results", USAGE, ["third"], "report", good, good, good, "--output", page_path, lines=3)
    refused("no output", USAGE, ["--output"], "report", good)
    refused("an empty name", USAGE, ["the output has no name"], "report", good, "--output", "")
    refused("onto the result", USAGE, ["itself"], "report", good, "--output", good)
    refused("into no folder", FILE, ["nowhere/x.html"], "report", good, "--output", "nowhere/x.html")
    refused("onto a folder", FILE, [], "report", good, "--output", folder)
    page_path.write_text("the page before")
    small_files = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
    # ThreadSanitizer maps a file of 512 KB that it writes under TMPDIR; it does without where it cannot open one.
    with unittest.mock.patch.dict(os.environ, TMPDIR="/nowhere"):
        refused("a full disk", FILE, ["page.html", "written"], "report", good, "--output", page_path, preexec_fn=small_files)
    expect("a full disk", page_path.read_text() == "the page before", "the page is gone")


damage()
options()
finish(100)
