#!/usr/bin/python3
"""one_start.py PROGRAM: the program is loaded once where a shell has noted `_` or, where it has replaced itself by the program, its
folder, and waits passively in either case; so is each process that `bench plan` starts. What it starts finds what the shell noted."""
import os
import pathlib
import subprocess
import sys
import tempfile

BASE = {"PATH": os.environ.get("PATH", ""), "LD_DEBUG": "libs", "OMP_DISPLAY_ENV": "true"}


def starts(program, **more):
    done = subprocess.run([program, "--version"], env={**BASE, **more}, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    policies = [line for line in done.stderr.splitlines() if "OMP_WAIT_POLICY = " in line]
    return done.stderr.count("initialize program:"), policies[-1].split("'")[1].lower() if policies else None


def loads_of_bench(program):
    """Of the program and of the processes that it times, one a job."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([program, "bench", "plan", "--repeats", "1", "--format", "csv"], stdin=subprocess.DEVNULL, text=True, capture_output=True,
                              env={**BASE, "_": program, "LD_DEBUG_OUTPUT": f"{folder}/loads", "OMP_DISPLAY_ENV": "false"})
        assert done.returncode == 0, done.stderr[-2000:]
        return sum(p.read_text().count("initialize program:") for p in pathlib.Path(folder).iterdir()), len(done.stdout.splitlines()) - 1


def found_beside(program):
    """The folder that is noted for a program that ours starts."""
    with tempfile.TemporaryDirectory() as folder:
        beside = pathlib.Path(folder) / "beside"
        beside.write_text(f"#!{sys.executable}\nimport os\nopen('{folder}/found', 'w').write(os.environ.get('PWD', 'none'))\n")
        beside.chmod(0o755)
        subprocess.run([program, "bench", "plan", "--repeats", "1", "--beside", beside], check=True, capture_output=True,
                       env={"PATH": BASE["PATH"], "PWD": "/noted"})
        return (pathlib.Path(folder) / "found").read_text()


def main():
    program = os.path.abspath(sys.argv[1])
    for more, loads, policy in (({"_": "/bin/x"}, 1, "passive"), ({}, 2, "passive"), ({"__": "x"}, 2, "passive"),
                                ({"PWD": "/"}, 1, "passive"), ({"SHLVL": "1"}, 1, "passive"), ({"OLDPWD": "/", "PWD": "/"}, 1, "passive"),
                                ({"PWDX": "/"}, 2, "passive"), ({"PWD": "/", "OMP_WAIT_POLICY": "active"}, 1, "active"),
                                ({"_": "x", "OMP_WAIT_POLICY": "active"}, 1, "active"), ({"OMP_WAIT_POLICY": "active", "_": "x"}, 1, "active")):
        found = starts(program, **more)
        assert found == (loads, policy), f"{more}: loads and policy {found}, not {(loads, policy)}"
    for shell in ("sh", "bash"):
        done = subprocess.run([shell, "-c", f"exec {program} --version"], env=BASE, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        assert done.stderr.count(f"initialize program: {program}\n") == 1, f"{shell}: {done.stderr[-2000:]}"
    assert found_beside(program) == "/noted", "PWD is lost"
    loads, jobs = loads_of_bench(program)
    assert loads == 1 + jobs, f"{loads} loads of bench plan with {jobs} jobs"


main()
