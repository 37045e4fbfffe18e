"""A Python that has jax: this one, or a virtual environment into which jax comes from PyPI once. Without a network the test
fails; the build option SPW_JAX=OFF leaves it out, and CTest then lists it as not run."""
import importlib.util
import os
import subprocess
import sys

PACKAGES = ["jax==0.10.2; python_version >= '3.11'", "jax; python_version < '3.11'"]


def enter(folder):
    """Runs the calling program again, with "inside" behind its arguments, unless it runs with a jax already."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    if sys.argv[-1] == "inside" or importlib.util.find_spec("jax") is not None:
        return
    python = os.path.join(folder, "bin", "python")
    done = os.path.join(folder, "complete")
    if not os.path.exists(done):
        steps = [[sys.executable, "-m", "venv", "--clear", folder],
                 [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--timeout", "15",
                  "--retries", "1", *PACKAGES]]
        for step in steps:
            result = subprocess.run(step, capture_output=True, text=True)
            if result.returncode != 0:
                reason = (result.stderr.strip() or result.stdout.strip()).splitlines()
                sys.exit("jax cannot be installed here (cmake -DSPW_JAX=OFF leaves this test out): "
                         + (reason[-1] if reason else " ".join(step)))
        open(done, "w").close()
    os.execv(python, [python, os.path.abspath(sys.argv[0]), *sys.argv[1:], "inside"])
