"""What tests of offloading share: the program, its copies of a job, and checks that are counted."""
import json
import pathlib
import shutil
import sys

from replay_case import run

program = pathlib.Path(sys.argv[1]).resolve()
folder = pathlib.Path(sys.argv[2]).resolve() / pathlib.Path(sys.argv[0]).stem
shutil.rmtree(folder, ignore_errors=True)
folder.mkdir(parents=True)
checks = 0


def same(what, got, want):
    global checks
    checks += 1
    if got != want:
        sys.exit(f"FAILED {what}: got {got}, want {want}")


def traffic(job, what):
    done = run(program, "explain", "--traffic", "--job", job, "--format", "json")
    if done.returncode != 0:
        sys.exit(f"FAILED explain --traffic {what}: {done.stderr}")
    return json.loads(done.stdout)


BYTES_PER_S = 55.2e9   # of copies, one way


def finish(said=""):
    """Ends the test, which has checked something."""
    print(f"{checks} checks{said}")
    sys.exit(0 if checks else 1)
