#!/usr/bin/env python3
"""Installs the library into an empty folder, builds the examples against it by pkg-config (shared and static) and by
find_package, runs them, and looks at what the shared library exports.

install.py BUILD SCRATCH SOURCE CMAKE"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

build, scratch, source, cmake = (pathlib.Path(a) for a in sys.argv[1:5])
prefix, example = scratch / "prefix", source / "tests" / "library" / "example"
shutil.rmtree(prefix, ignore_errors=True)
shutil.rmtree(scratch / "made", ignore_errors=True)
(scratch / "made").mkdir(parents=True)
checks = 0


def run(*command, **options):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def check(good, what):
    global checks
    checks += 1
    if not good:
        sys.exit(f"FAIL {what}")


for component in ("library", "development"):
    run(cmake, "--install", build, "--prefix", prefix, "--component", component)
shared = next(prefix.rglob("libspillway.so"))
header = (prefix / "include" / "spillway" / "spillway.h").read_text()

# Exactly the functions of the header are exported, under one name of the library.
declared = set(re.findall(r"^(?:[a-z][a-z_ ]*[ *])(spw_[a-z0-9_]+)\(", header, re.M))
exported = {line.split()[-1] for line in run("nm", "-D", "--defined-only", shared).splitlines()}
check(len(declared) > 20 and exported == declared, f"exported and declared differ: {exported ^ declared}")
version = re.search(r"SONAME\s+libspillway\.so\.(\S+)", run("objdump", "-p", shared)).group(1)
check(re.fullmatch(r"\d+\.\d+", version), f"the SONAME ends in {version}")
stray = {line.split()[-1] for line in run("nm", "-g", "--defined-only", next(prefix.rglob("libspillway.a")),).splitlines() if len(line.split()) == 3}
check(all(name.startswith(("spw_", ".gomp_critical_user_spw_")) for name in stray), f"the static library has {[n for n in stray if not 'spw_' in n]}")

# The examples say what the program says.
trace, job = source / "traces/data/training_aux_e64_slice.h5", source / "sim/jobs/scratch-moe-e64.yaml"
result = json.loads(run(build / "sim/spillway", "replay", trace, "--job", job, "--scheme", "gmm", "--scheme", "ring",
                        "--format", "json"))
want = [row["memory"]["peak_bytes"] / 2**30 for row in result["rows"]]
packages = {"PKG_CONFIG_PATH": str(shared.parent / "pkgconfig"), "LD_LIBRARY_PATH": str(shared.parent)}
environment = {**os.environ, **packages}
cc, cxx = shutil.which("cc"), shutil.which("c++")
check(cc and cxx, "no C or C++ compiler")


def agrees(program):
    got = [float(line.split()[0]) for line in run(program, trace, job, env=environment).splitlines()]
    check(len(got) == len(want) and all(abs(g - w) < 0.006 for g, w in zip(got, want)), f"{program}: {got}, not {want}")


for name, compiler, kind in (("c", cc, []), ("cpp", cxx, []), ("c", cc, ["--static"])):
    flags = run("pkg-config", "--cflags", "--libs", *kind, "spillway", env=environment).split()
    if kind:
        flags = [str(shared.with_suffix(".a")) if flag == "-lspillway" else flag for flag in flags]
    program = scratch / "made" / f"{name}{''.join(kind)}"
    run(compiler, "-Wall", "-Wextra", "-Werror", example / f"example.{name}", "-o", program, *flags)
    agrees(program)
check(run("pkg-config", "--modversion", "spillway", env=environment).strip().startswith(version), "version of pkg-config")
run(cmake, "-S", example, "-B", scratch / "made" / "package", f"-DCMAKE_PREFIX_PATH={prefix}")
run(cmake, "--build", scratch / "made" / "package")
for name in ("c", "cpp"):
    agrees(scratch / "made" / "package" / f"example_{name}")
print(f"{checks} checks")
