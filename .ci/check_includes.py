#!/usr/bin/env python3
"""Fails when a folder or a room includes a header that the dependency order forbids, or two source files share a name."""
import collections
import pathlib
import re
import sys

ALLOWED = {  # folder -> folders whose headers it may include (itself is always allowed)
    "base": set(),
    "traces": {"base"},
    "reference": {"base"},
    "kernels": {"base", "reference"},
    "sim": {"base", "traces", "reference", "kernels"},
    "tests": {"base", "traces", "reference", "kernels", "sim"},
}
MOST_FILES = 40  # of a folder of code
ROOMS = {  # folder -> its rooms in the order in which data flows: a room may include those before it. A folder within a room is of the room
    "kernels": ["gpu", "record", "local", "gemm", "exchange", "layer", "experts", "jax", "torch", "verify", "bench", "emulate"],
    "sim": ["print", "statistics", "read", "model", "machine", "job", "routing", "schemes", "weights", "memory/allocator", "memory/tensors", "memory/kept", "memory/live", "memory/compiled",
            "memory/step", "frameworks", "traffic", "time", "replay", "result", "plan", "peers", "verify", "report", "score", "command", "calibrate", "library", "manual"],
}
EXTERNAL = {  # library header -> the only folders that may know it
    "mpi.h": {"base"},
    "hdf5": {"traces", "sim", "tests"},
    "gsl/": {"traces", "sim", "tests"},
    "libdeflate.h": {"traces", "tests"},
    "jansson.h": {"traces", "sim", "tests"},
    "zip.h": {"traces"},
    "yaml.h": {"sim"},
    "argp.h": {"sim"},
    "cuda": {"kernels"},
    "hip/": {"kernels"},
    "xla/": {"kernels"},
    "omp.h": {"kernels", "reference", "sim", "tests", "traces"},
}


def room_of(folder, inside):
    """The room of a path within a folder: memory/live/footprint.c is of memory/live, schemes/torch/tutel.c of schemes."""
    parts = inside.split("/")
    return next((room for room in ("/".join(parts[:2]), parts[0]) if room in ROOMS.get(folder, [])), parts[0])


root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
bad = files = 0
names, in_folder = collections.defaultdict(list), collections.Counter()
for path in sorted(p for folder in ALLOWED for p in (root / folder).rglob("*")
                   if p.suffix in {".c", ".h", ".hip"} and "build" not in p.parts):
    files += 1
    folder, inside = path.relative_to(root).as_posix().split("/", 1)
    room = room_of(folder, inside)
    in_folder[path.parent] += 1
    order = ROOMS.get(folder, [])
    if order and room not in order and room != "main.c":
        print(f"{path}: {folder} has no room {room}")
        bad += 1
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = re.match(r"\s*#\s*include\s+<([^>]+)>", line)
        for header, folders in EXTERNAL.items():
            if match and match.group(1).startswith(header) and folder not in folders:
                print(f"{path}:{number}: {folder} must not include {match.group(1)}")
                bad += 1
        match = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        if match and match.group(1).split("/")[0] not in ALLOWED[folder] | {folder}:
            print(f"{path}:{number}: {folder} must not include {match.group(1)}")
            bad += 1
        if match and room in order and match.group(1).startswith(folder + "/"):
            there = room_of(folder, match.group(1).split("/", 1)[1])
            if there not in order or order.index(there) > order.index(room):
                print(f"{path}:{number}: room {room} must not include {match.group(1)}: it comes before {there}")
                bad += 1
    if path.suffix == ".c" and path.with_suffix(".h").exists():
        first = next((l for l in path.read_text().splitlines() if l.startswith("#include")), "")
        if path.with_suffix(".h").relative_to(root).as_posix() not in first:
            print(f"{path}: its own header must be the first include")
            bad += 1
    if folder != "tests":
        names[path.name].append(path)
for name, paths in names.items():
    if len(paths) > 1:
        print(f"{name} is there {len(paths)} times: {', '.join(map(str, paths))}")
        bad += 1
in_folder.update(path.parent for path in (root / "tests").rglob("*.py") if "build" not in path.parts)
for path, count in in_folder.items():
    if count > MOST_FILES:
        print(f"{path}: {count} files of code, at most {MOST_FILES}")
        bad += 1
print(f"{files} files, {bad} violations")
sys.exit(1 if bad or not files else 0)
