"""A Python that has jax, or another framework: this one, or a virtual environment into which it comes from PyPI once. Without a
network the test fails; the build option SPW_JAX=OFF leaves those of jax out, and CTest then lists them as not run."""
import importlib.util
import os
import subprocess
import sys

JAX = ["jax==0.10.2; python_version >= '3.11'", "jax; python_version < '3.11'", "h5py"]
IMPORTS = ["safetensors", "pyarrow", "h5py", "protobuf", "grpcio-tools"]
TORCH = ["torch>=2.9", "transformers>=5", "h5py", "spmd_types", "tyro", "torchtitan==0.3.0", "megatron-core==0.16.1"]


def is_complete(path, packages):
    if not os.path.exists(path):
        return False
    with open(path) as file:
        return file.read() == repr(packages)


def enter(folder, module="jax", packages=JAX, way_out="cmake -DSPW_JAX=OFF leaves this test out"):
    """Runs the calling program again, with "inside" behind its arguments, unless it runs with the module already."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    if sys.argv[-1] == "inside" or importlib.util.find_spec(module) is not None:
        return
    python = os.path.join(folder, "bin", "python")
    done = os.path.join(folder, "complete")
    if not is_complete(done, packages):
        steps = [[sys.executable, "-m", "venv", "--clear", folder],
                 [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--timeout", "15",
                  "--retries", "1", *packages]]
        for step in steps:
            result = subprocess.run(step, capture_output=True, text=True)
            if result.returncode != 0:
                reason = (result.stderr.strip() or result.stdout.strip()).splitlines()
                sys.exit(f"{module} cannot be installed here ({way_out}): "
                         + (reason[-1] if reason else " ".join(step)))
        with open(done, "w") as file:
            file.write(repr(packages))
    os.execv(python, [python, os.path.abspath(sys.argv[0]), *sys.argv[1:], "inside"])
