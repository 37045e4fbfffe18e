#!/usr/bin/env python3
"""Golden tests of the command line. Each case of a command's folder: NAME.cmd (arguments), NAME.out (stdout, exact),
NAME.err (stderr, exact; absent = nothing) and NAME.exit (absent = 0). The program runs in a scratch folder that holds
the job of files/, a tiny trace, a script of tests/frameworks as it is and with a line changed, and what belongs to measured runs, so that no
path of a machine is printed.

run.py SPILLWAY SCRATCH [--accept] [FOLDER | FOLDER/NAME]...    --accept rewrites the expectations; default: all cases"""
import os
import pathlib
import shlex
import shutil
import sys

here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here.parent / "oracle"))
import program as caller  # noqa: E402

accept, names = "--accept" in sys.argv, [a for a in sys.argv[3:] if not a.startswith("--")]
program = pathlib.Path(sys.argv[1]).resolve()
scratch = pathlib.Path(sys.argv[2]).resolve() / "_".join(["scratch", *names]).replace("/", "_")
environment = {k: v for k, v in os.environ.items() if k not in ("ARGP_HELP_FMT", "COLUMNS")}
environment.update(LC_ALL="C", OMP_NUM_THREADS="2", SPILLWAY_PROGRESS_S="0")  # a slow machine shows progress


def spillway(arguments):
    return caller.run(program, *arguments, cwd=scratch, env=environment)


def compare(case, suffix, got):
    """Whether the text is the expected one; an expectation that is absent is an empty text."""
    path = case.with_suffix(suffix)
    want = path.read_text() if path.exists() else ""
    if accept:
        path.write_text(got) if got else path.unlink(missing_ok=True)
    elif got != want:
        print(f"FAIL {case.parent.name}/{case.stem}{suffix}\n--- want\n{want}--- got\n{got}")
        return False
    return True


stray = sorted(path.name for path in here.glob("*.cmd"))
if stray:
    sys.exit(f"{', '.join(stray)}: a case lies in the folder of its command, tests/cli/COMMAND/")
shutil.rmtree(scratch, ignore_errors=True)
shutil.copytree(here / "files", scratch)
script = (here.parent / "frameworks/megatron_mixtral_8x7b.sh").read_text()
for name, said, instead in (("train.sh", "", ""), ("odd.sh", "--micro-batch-size 1", "--micro-batch-size 3"),
                            ("slip.sh", "--expert-model-parallel-size", "--expert-model-paralel-size")):
    (scratch / name).write_text(script.replace(said, instead, 1))
for tables in ("compiled", "judged", "kernels", "measured", "megatron", "profiles", "published", "reserved"):
    shutil.copytree(here.parents[1] / "notebooks_data" / tables, scratch / tables)
made = spillway(shlex.split((here / "files" / "trace.arguments").read_text()))
if made.returncode != 0:
    sys.exit(f"the trace cannot be made: {made.stderr}")
bad = count = 0
for case in sorted(here.glob("*/*.cmd")):
    if names and case.parent.name not in names and f"{case.parent.name}/{case.stem}" not in names:
        continue
    done = spillway(shlex.split(case.read_text()))
    status = f"{done.returncode}\n" if done.returncode else ""
    results = [compare(case, ".out", done.stdout), compare(case, ".err", done.stderr), compare(case, ".exit", status)]
    count += 1
    bad += not all(results)
print(f"{count} cases, {bad} failed")
sys.exit(1 if bad or not count else 0)
