"""Routing in files that Python alone reads, as traces: PyTorch's .pt and .pth, safetensors, Parquet.

    from spillway_moe.importing import import_arrays
    print(import_arrays("replay.pt", "run.h5", axes="tokens,k", experts=64, top_k=8))

or, in a shell, with the options of `spillway trace import array`:

    python -m spillway_moe.importing replay.pt --output run.h5 --axes tokens,k --experts 64 --top-k 8

A file gives one array, or a list of arrays, one a layer; `key` names the entry of a dictionary, the tensor of a safetensors file or
the column of a table. The arrays go to the program's importer, whose rules are in docs/import.md. PyTorch, safetensors and pyarrow
are needed for their own files only.
"""
from __future__ import annotations

import argparse
import importlib
import os
import pathlib
import re
import sys
import tempfile
from typing import Any, Callable, Mapping, Sequence

import numpy

from ._library import answer_of, options_of


def _package(name: str, path: pathlib.Path, project: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ImportError(f"{path}: reading it needs the package {project}; pip install {project} would be right") from None


def _entry(path: pathlib.Path, entries: Mapping[str, Any], key: str | None) -> Any:
    """The entry `key`, or the only one there is."""
    names = ", ".join(map(str, list(entries)[:8])) + (", ..." if len(entries) > 8 else "")
    if key is None and len(entries) == 1:
        return next(iter(entries.values()))
    if key is None:
        raise ValueError(f"{path} holds {names}; key= (--key) says which")
    if key not in entries:
        raise ValueError(f"{path} has no {key!r}; it holds {names}")
    return entries[key]


def _torch(path: pathlib.Path, key: str | None) -> Any:
    torch = _package("torch", path, "torch")
    content = torch.load(path, map_location="cpu", weights_only=True)  # tensors and containers of them, nothing that runs
    for part in key.split(".") if key else []:
        content = _entry(path, content, part) if isinstance(content, Mapping) else content[int(part)]
    if isinstance(content, Mapping):
        content = _entry(path, content, None)
    plain = lambda t: (t.float() if t.is_floating_point() else t).numpy()
    return [plain(t) for t in content] if isinstance(content, (list, tuple)) else plain(content)


def _safetensors(path: pathlib.Path, key: str | None) -> Any:
    tensors = _package("safetensors.numpy", path, "safetensors").load_file(path)
    pairs = [re.fullmatch(r"(\d+)_(\d+)", name) for name in tensors]
    if key is not None or not all(pairs) or len(tensors) < 2:
        return _entry(path, tensors, key)
    # TensorRT-LLM's statistics of experts, a tensor "{iteration}_{layer}"   -> axes steps,layers,experts
    steps, layers = (sorted({int(pair[i]) for pair in pairs}) for i in (1, 2))
    missing = [f"{s}_{l}" for s in steps for l in layers if f"{s}_{l}" not in tensors]
    if missing:
        raise ValueError(f"{path}: the tensor {missing[0]} is missing; every iteration must have the layers {layers}")
    return numpy.stack([[tensors[f"{s}_{l}"] for l in layers] for s in steps])


def _parquet(path: pathlib.Path, key: str | None) -> Any:
    parquet = _package("pyarrow.parquet", path, "pyarrow")
    table = parquet.read_table(path)
    column = _entry(path, {name: table[name] for name in table.column_names}, key)
    rows = column.to_pylist()
    lengths = {len(row) if isinstance(row, list) else 0 for row in rows}
    if len(lengths) > 1:
        raise ValueError(f"{path}: the rows of the column have {min(lengths)} to {max(lengths)} numbers; all must have as many")
    return numpy.array(rows)


_READERS: dict[str, Callable[[pathlib.Path, str | None], Any]] = {
    ".pt": _torch, ".pth": _torch, ".safetensors": _safetensors, ".parquet": _parquet}


def _save(path: pathlib.Path, key: str | None, folder: str) -> str:
    """A file as NumPy keeps it, under the same name with one more suffix."""
    reader = _READERS.get(path.suffix)
    if reader is None:
        raise ValueError(f"{path}: files that are read end in {', '.join(_READERS)}; `spillway trace import` reads others")
    content = reader(path, key)
    if isinstance(content, list):
        numpy.savez(os.path.join(folder, path.name + ".npz"), *content)
        return os.path.join(folder, path.name + ".npz")
    numpy.save(os.path.join(folder, path.name + ".npy"), content)
    return os.path.join(folder, path.name + ".npy")


def _run(files: Sequence[str | os.PathLike], output: str | os.PathLike, key: str | None, options: Sequence[str]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        saved = [_save(pathlib.Path(file), key, folder) for file in files]
        _, notes = answer_of("trace import", ["array", *saved, "--output", os.fspath(output), *options])
    return notes.strip()


def import_arrays(inputs: str | os.PathLike | Sequence[str | os.PathLike], output: str | os.PathLike, *, key: str | None = None,
                  **options: Any) -> str:
    """Writes the trace `output` of one file or several, and returns what the program says of it, whose last line is what was written.

    options are those of `spillway trace import array`: experts=, top_k=, axes=, files=, layers=, dense_layers=, missing= ..."""
    several = [inputs] if isinstance(inputs, (str, os.PathLike)) else inputs
    return _run(several, output, key, list(options_of(options)))


def main() -> int:
    """python -m spillway_moe.importing FILE... --output OUT.h5 [--key KEY] [options of `spillway trace import array`]"""
    parser = argparse.ArgumentParser(prog="python -m spillway_moe.importing", description=__doc__.splitlines()[0],
                                     epilog="Every other option is one of `spillway trace import array`.", allow_abbrev=False)
    parser.add_argument("--output", required=True, metavar="OUT.h5")
    parser.add_argument("--key", help="entry, tensor or column")
    asked, rest = parser.parse_known_args()
    files = [word for word in rest if pathlib.Path(word).suffix in _READERS]
    try:
        print(_run(files, asked.output, asked.key, [word for word in rest if word not in files]))
    except Exception as error:  # one line, as the program does
        print(f"spillway_moe.importing: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
