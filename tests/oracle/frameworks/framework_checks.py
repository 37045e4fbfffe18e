"""What tests of frameworks' files share: the program, how a job is asked for, and checks that every setting is somewhere."""
import pathlib
import re
import sys

from oracle_run import Oracle
import program as asked

PROGRAM, SCRATCH, ROOT = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
FILES = ROOT / "tests/frameworks"
NOT_SAID = object()

oracle = Oracle(PROGRAM, pathlib.Path(sys.argv[0]).stem)
check = oracle.check


def at(job, path):
    for part in path.split("."):
        job = job.get(part, NOT_SAID) if isinstance(job, dict) else NOT_SAID
    return job


def job_of(*words, folder=FILES):
    return asked.run(PROGRAM, "job", *words, "--format", "json", cwd=folder)


def check_settings(name, answer):
    """Every setting of a file is in one group and no other; and what is assumed names no setting that stands in the file."""
    groups = {"counts": answer["counts"]}
    groups.update({kind: notes for kind, notes in answer["notes"].items() if kind != "assumed"})
    place = {}
    for group, settings in groups.items():
        group = "doubts" if group in ("no_counterpart", "may_need_more", "not_said", "given_twice") else group
        for setting in settings:
            if setting["line"] > 0:
                place.setdefault((setting["name"], setting["line"]), set()).add(group)
    several = {key: value for key, value in place.items() if len(value) > 1}
    check(not several, f"{name}: settings in several groups: {several}")
    said = {setting["name"] for settings in groups.values() for setting in settings if setting["line"] > 0}
    check(len(place) <= answer["settings"] and (len(said) > 0 or answer["framework"] == "deepspeed"), f"{name}: {len(place)} of {answer['settings']} settings are listed")
    short = {key.split(".")[-1] for key in said if "_" in key or key in ("bf16", "fp16")}
    for note in answer["notes"]["assumed"]:
        words = set(re.findall(r"[a-z0-9_]+", f"{note['name']} {note['why']}"))
        check(not words & short, f"{name}: assumed names {words & short}, which the file has: {note}")


MESH = "model_name: mixtral-8x7b\nper_device_batch_size: 1\nici_fsdp_parallelism: 1\nici_expert_parallelism: 8\nremat_policy: full\n"
