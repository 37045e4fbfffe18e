"""Compiles MaxText's training step for GPUs that are not there, and says what XLA needs on each: what `spillway ask-xla` starts.

    python -c "$(cat ask_xla.py)" '{"settings": {"model_name": "mixtral-8x7b", ...}, "nodes": 8, "gpus_per_node": 8, ...}'

A request is one JSON object: settings (names and values of MaxText's base.yml), nodes, gpus_per_node, generation (ampere, hopper or
blackwell), pool_bytes and hbm_bytes_per_s of a GPU, and maxtext, a checkout or null for the installed package. The answer is one JSON object on
standard output: argument_bytes, temporary_bytes, output_bytes, peak_gib, jax, maxtext, attention, seconds, left_out. All that MaxText and XLA
print goes to a file, whose end is shown on standard error when there is no answer.

Nothing is executed. Attention and grouped products are calls that XLA knows by their shapes alone, as it knows cuDNN's; both
have the inputs, outputs and saved tensors of cuDNN's flash attention and of a grouped GEMM. Packages that MaxText imports and its step does
not call (data pipelines, checkpoints, tokenizers) are replaced by empty ones where they are not installed; `left_out` names them.
"""
from __future__ import annotations

import glob
import importlib.abc
import importlib.machinery
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import types
from typing import Any

# XLA, xla/backends/gpu/target_config/specs: a100, h100 and b200; per multiprocessor and per block in bytes.
GPUS = {"ampere": {"major": 8, "cores": 108, "shared": 167936, "block": 166912, "l2": 41943040, "ghz": 1.41},
        "hopper": {"major": 9, "cores": 132, "shared": 233472, "block": 232448, "l2": 52428800, "ghz": 1.98},
        "blackwell": {"major": 10, "cores": 148, "shared": 233472, "block": 232448, "l2": 132644864, "ghz": 1.965}}
# XLA's GetSchedulerMemoryLimit, without a process that says what it may take: a share of the device's memory, of which 0.95 x (that - arguments)
# is planned for. Kimi K2, dense, says "can't reduce below 179.59 GiB" of a device of 230.4: 89.72 + 0.95 x (0.8 x 230.4 - 89.72).
PLANNED_SHARE = 0.8
LEAST_PEAK = 0.005  # of the temporaries: smaller values are not listed
MOST_PEAKS = 90     # of SPW_CELL_PEAKS
LEAST_COVER = 0.9   # of the temporaries: XLA's list of what is live leaves loops' own values out, and what covers less is another moment

# What MaxText's training step imports and does not call.
UNCALLED = ("tokenizers pathwaysutils tensorflow transformers grain datasets tensorboardX sentencepiece tiktoken google "
            "cloud_tpu_diagnostics ml_goodput_measurement tunix huggingface_hub tensorflow_datasets tensorflow_text array_record jetstream gcsfs psutil "
            "cloud_accelerator_diagnostics tpu_inference vllm safetensors torch PIL librosa pandas matplotlib requests jsonlines evaluate nltk "
            "mlperf_logging transformer_engine pylatexenc math_verify seqio kagglehub").split()


class _Kind(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Kind(name, (_Empty,), {})

    def __or__(cls, other: Any) -> Any:
        return object

    __ror__ = __or__

    def __getitem__(cls, key: Any) -> Any:
        return cls

    def __iter__(cls) -> Any:
        return iter(())


class _Empty(metaclass=_Kind):
    def __init__(self, *args: Any, **named: Any):
        pass

    def __call__(self, *args: Any, **named: Any) -> Any:
        return args[0] if len(args) == 1 and callable(args[0]) else _Empty()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Empty()

    def __getitem__(self, key: Any) -> Any:
        return _Empty()

    def __iter__(self) -> Any:
        return iter(())


class _EmptyModule(types.ModuleType):
    __version__ = "9.9.9"
    __path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Kind(name, (_Empty,), {})


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Last of the finders: only what no other finds."""

    def __init__(self) -> None:
        self.left_out: set[str] = set()

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        root = name.split(".")[0]
        if root not in UNCALLED:
            return None
        self.left_out.add(root)
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: Any) -> Any:
        return _EmptyModule(spec.name)

    def exec_module(self, module: Any) -> None:
        pass


def target_of(request: dict[str, Any]) -> str:
    """XLA's GpuTargetConfigProto as text. The memory is such that the compiler plans for 0.95 x (pool - arguments)."""
    g = GPUS[request["generation"]]
    return (f"gpu_device_info {{ threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152 "
            f"shared_memory_per_core: {g['shared']} threads_per_core_limit: 2048 core_count: {g['cores']} fpus_per_core: 128 "
            f"block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535 "
            f"memory_bandwidth: {int(request['hbm_bytes_per_s'])} l2_cache_size: {g['l2']} clock_rate_ghz: {g['ghz']} "
            f"device_memory_size: {round(request['pool_bytes'] / PLANNED_SHARE)} shared_memory_per_block_optin: {g['block']} "
            f"cuda_compute_capability {{ major: {g['major']} }} registers_per_core_limit: 65536 registers_per_block_limit: 65536 }} "
            f"platform_name: \"CUDA\" dnn_version_info {{ major: 9 minor: 8 }} device_description_str: \"Spillway\"")


def arguments_of(request: dict[str, Any]) -> list[str]:
    """MaxText's arguments behind base.yml: those of a compilation, then the job's, which win."""
    said = {"run_name": "ask_xla", "hardware": "gpu", "compile_topology": "a3",
            "compile_topology_num_slices": max(1, request["nodes"] * request["gpus_per_node"] // 8), "enable_checkpointing": "false",
            "dataset_type": "synthetic", "attention": "cudnn_flash_jax", "base_output_directory": tempfile.gettempdir(),
            "log_config": "false", "skip_jax_distributed_system": "true"}
    said.update(request["settings"])
    if str(said.get("use_ragged_sort", "false")).lower() == "true":  # its gathers are TPU kernels
        said.update(ragged_gather_fallback="true", ragged_gather_reduce_fallback="true")
    return [f"{key}={value}" for key, value in said.items()]


def peak_of(assignment: str, live: str, most_bytes: int) -> str:
    """Sizes in GiB of the temporaries that live at the fullest moment, "4x5 1.5", from XLA's dumps: *-buffer-assignment.txt says which values are
    temporaries, *-live-range.txt which live then. "" where they are less than LEAST_COVER of all temporaries."""
    temporaries: set[str] = set()
    inside = False
    for line in assignment.splitlines():
        if line.startswith("allocation "):
            inside = "preallocated-temp" in line
        found = re.match(r" value: <\d+ ([\w.\-]+)(\{[\d,]*\})?(?: \(phi\))? @\d+>", line) if inside else None
        if found:
            temporaries.add(found[1] + (found[2] or "{}"))
    sizes: list[int] = []
    inside = False
    for line in live.splitlines():
        if line.startswith("  Live ranges at") and "(peak)" in line:
            inside, sizes = True, []
        elif inside:
            found = re.match(r"    ([\w.\-]+\{[\d,]*\}): (\d+) bytes", line)
            if not found:
                inside = False
            elif found[1] in temporaries and int(found[2]) >= LEAST_PEAK * most_bytes:
                sizes.append(int(found[2]))
    words: list[str] = []
    if sum(sizes) < LEAST_COVER * most_bytes:
        return ""
    sizes = sorted(sizes, reverse=True)[:MOST_PEAKS]
    for size in sorted(set(sizes), reverse=True):
        many = sizes.count(size)
        words.append(f"{size / 2**30:.4f}".rstrip("0").rstrip(".") + (f"x{many}" if many > 1 else ""))
    return " ".join(words)


def tree_of(folder: str | None) -> tuple[str | None, str]:
    """Where MaxText's package lies, None for the installed one, and its version or commit."""
    from importlib import metadata
    source = None
    if folder is not None:
        source = next((s for s in (os.path.join(folder, "src"), folder) if os.path.isdir(os.path.join(s, "maxtext"))), None)
        if source is None:
            raise SystemExit(f"{folder}: no folder maxtext or src/maxtext in it; name a checkout of MaxText")
        if os.path.exists(os.path.join(folder, ".git")):
            head = subprocess.run(["git", "-C", folder, "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True, check=False)
            if head.returncode == 0:
                return source, head.stdout.strip()
        sys.path.insert(0, source)
    try:
        return source, metadata.version("maxtext")
    except metadata.PackageNotFoundError:
        return source, "unknown"


def _replace_kernels() -> None:
    """Attention and grouped products as calls without a body. See the top of this file."""
    import jax
    import jax.numpy as jnp
    from jax.ad_checkpoint import checkpoint_name
    from jax.sharding import PartitionSpec
    import jax_cuda12_plugin._linalg as linalg
    registered = linalg.registrations()
    handlers = [value for key, value in registered.items() if "ffi" in key] or list(registered.values())
    for name in ("spw_gmm", "spw_tgmm", "spw_attention", "spw_attention_back"):
        jax.ffi.register_ffi_target(name, handlers[0], platform="CUDA")

    def call(name: str, outputs: Any, *inputs: Any) -> Any:
        return jax.ffi.ffi_call(name, outputs, vmap_method="sequential")(*inputs)

    def gmm(lhs: Any, rhs: Any, group_sizes: Any, preferred_element_type: Any = jnp.float32, *_: Any, **named: Any) -> Any:
        turned = named.get("transpose_rhs", False)

        @jax.custom_vjp
        def product(x: Any, w: Any, sizes: Any) -> Any:
            return call("spw_gmm", jax.ShapeDtypeStruct((x.shape[0], w.shape[1 if turned else 2]), preferred_element_type), x, w, sizes)

        def forward(x: Any, w: Any, sizes: Any) -> Any:
            return product(x, w, sizes), (x, w, sizes)

        def backward(saved: Any, d: Any) -> Any:
            x, w, sizes = saved
            return (call("spw_gmm", jax.ShapeDtypeStruct(x.shape, x.dtype), d, w, sizes),
                    call("spw_tgmm", jax.ShapeDtypeStruct(w.shape, w.dtype), x, d, sizes), None)
        product.defvjp(forward, backward)
        return product(lhs, rhs, group_sizes)

    def attention(self: Any, query: Any, key: Any, value: Any, decoder_segment_ids: Any, model_mode: str = "train") -> Any:
        axes = tuple(a for a in ("data", "fsdp", "fsdp_transpose", "expert") if self.mesh.shape.get(a, 1) > 1)
        rows, sums = PartitionSpec(axes, None, None, None), PartitionSpec(axes, None, None)

        def over_mesh(function: Any, inputs: Any, outputs: Any) -> Any:
            return jax.shard_map(function, mesh=self.mesh, in_specs=inputs, out_specs=outputs, check_vma=False)

        def run(q: Any, k: Any, v: Any) -> Any:
            b, t, n, _ = q.shape
            shapes = (jax.ShapeDtypeStruct((b, n, t, v.shape[-1]), q.dtype), jax.ShapeDtypeStruct((b, n, t), jnp.float32))
            out, log = call("spw_attention", shapes, q, k, v)
            return out.swapaxes(1, 2), log

        def run_back(q: Any, k: Any, v: Any, out: Any, log: Any, d: Any) -> Any:
            return tuple(call("spw_attention_back", tuple(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (q, k, v)), q, k, v, out, log, d))

        @jax.custom_vjp
        def flash(q: Any, k: Any, v: Any) -> Any:
            return over_mesh(run, (rows,) * 3, (rows, sums))(q, k, v)

        def forward(q: Any, k: Any, v: Any) -> Any:
            out, log = flash(q, k, v)
            return (out, log), (q, k, v, out, log)

        def backward(saved: Any, d: Any) -> Any:
            return over_mesh(run_back, (rows,) * 4 + (sums, rows), (rows,) * 3)(*saved, d[0])
        flash.defvjp(forward, backward)
        out, log = flash(query, key, value)
        return checkpoint_name(out, "context"), checkpoint_name(log, "context")

    import maxtext.kernels.megablox as megablox
    import maxtext.kernels.megablox.ops as ops
    import maxtext.layers.attention_op as attention_op
    ops.gmm = megablox.gmm = gmm
    attention_op.validate_gpu_flash_attention = lambda *_, **__: None
    for name in dir(attention_op):
        owner = getattr(attention_op, name)
        if isinstance(owner, type) and "cudnn_jax_flash_attention" in owner.__dict__:
            owner.cudnn_jax_flash_attention = attention  # type: ignore[attr-defined]


def compile_step(request: dict[str, Any], dump: str) -> dict[str, Any]:
    """The answer. In a process of its own: it sets the environment, and MaxText and XLA print."""
    begin = time.monotonic()
    os.environ.update(JAX_PLATFORMS="cpu", JAX_SKIP_CUDA_CONSTRAINTS_CHECK="1",
                      XLA_FLAGS=f"--xla_gpu_autotune_level=0 --xla_dump_to={dump} --xla_dump_hlo_as_text --xla_dump_hlo_module_re=.*train_step.*")
    finder = _Finder()
    sys.meta_path.append(finder)
    source, version = tree_of(request.get("maxtext"))
    if source is not None and source not in sys.path:
        sys.path.insert(0, source)
    import jax
    import numpy
    from jax.experimental import topologies
    from jax.sharding import AxisType, Mesh
    nodes, per_node = request["nodes"], request["gpus_per_node"]
    devices = numpy.array(topologies.get_topology_desc(platform="cuda", topology_name="spillway", topology=f"1x{nodes}x{per_node}",
                                                       target_config=target_of(request)).devices)
    _replace_kernels()
    import maxtext
    import maxtext.trainers.pre_train.train_compile as train_compile
    compiled: list[Any] = []

    def mesh_of(config: Any) -> Any:
        if hasattr(config, "remove_size_one_mesh_axis_from_type"):
            jax.config.update("jax_remove_size_one_mesh_axis_from_type", config.remove_size_one_mesh_axis_from_type)
        sizes = [max(1, int(getattr(config, f"ici_{n}_parallelism", 1))) * max(1, int(getattr(config, f"dcn_{n}_parallelism", 1)))
                 for n in config.mesh_axes]
        return Mesh(devices.reshape(sizes), config.mesh_axes, axis_types=(AxisType.Auto,) * len(sizes))

    own = train_compile.jit_and_compile

    def jit_and_compile(*args: Any, **named: Any) -> Any:
        compiled.append(own(*args, **named))
        return compiled[-1]
    train_compile.get_topology_mesh, train_compile.jit_and_compile = mesh_of, jit_and_compile
    base = os.path.join(os.path.dirname(list(maxtext.__path__)[0]), "maxtext", "configs", "base.yml")
    train_compile.main(["train_compile", base, *arguments_of(request)])
    memory = compiled[-1].memory_analysis()

    def dumped(name: str) -> str:
        files = sorted(glob.glob(os.path.join(dump, f"*train_step*{name}")))
        if not files:
            return ""
        with open(files[-1], encoding="utf-8", errors="replace") as file:
            return file.read()
    return {"argument_bytes": memory.argument_size_in_bytes, "temporary_bytes": memory.temp_size_in_bytes,
            "output_bytes": memory.output_size_in_bytes,
            "peak_gib": peak_of(dumped("buffer-assignment.txt"), dumped("live-range.txt"), memory.temp_size_in_bytes),
            "jax": jax.__version__, "maxtext": version, "attention": "opaque", "seconds": round(time.monotonic() - begin, 1),
            "left_out": sorted(finder.left_out)}


def main(text: str) -> int:
    """Compiles in a child, and prints its answer; 1 with the end of what it printed where there is none."""
    request = json.loads(text)
    with tempfile.TemporaryDirectory(prefix="spillway_ask_xla") as dump:
        log, reply = os.path.join(dump, "log"), os.path.join(dump, "reply.json")
        child = os.fork()
        if child == 0:
            end = 1
            try:
                said = os.open(log, os.O_WRONLY | os.O_CREAT, 0o600)
                os.dup2(said, 1)
                os.dup2(said, 2)
                answer = compile_step(request, dump)
                with open(reply, "w", encoding="utf-8") as file:
                    json.dump(answer, file)
                end = 0
            except BaseException:
                import traceback
                traceback.print_exc()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(end)
        _, state = os.waitpid(child, 0)
        if state == 0 and os.path.exists(reply):
            with open(reply, encoding="utf-8") as file:
                print(file.read())
            return 0
        with open(log, encoding="utf-8", errors="replace") as file:
            last = [line[:400] for line in file.read().splitlines() if line.strip()][-12:]
        print("\n".join(last), file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
