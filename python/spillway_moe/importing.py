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

from ._library import Error, answer_of, options_of


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


_SLACK_BYTES = 1 << 20  # what a list of small tensors may share
_SAFE_TORCH = (2, 6)  # before, a pickle could run code in spite of weights_only: CVE-2025-32434


def _plain(path: pathlib.Path, tensors: Sequence[Any]) -> list[numpy.ndarray]:
    """The tensors as arrays. All of them together fit the file: a view may claim any number of elements of a few bytes."""
    for tensor in tensors:
        if not hasattr(tensor, "untyped_storage"):
            raise ValueError(f"{path} holds a {type(tensor).__name__} where a tensor would be right; key= (--key) may name one")
    claimed, there = sum(t.numel() * t.element_size() for t in tensors), path.stat().st_size
    if claimed > there + _SLACK_BYTES:
        raise ValueError(f"{path}: its tensors claim {claimed} bytes, but the file has {there}; a file that holds every element "
                         "(tensor.clone() before torch.save) would be right")
    return [(t.float() if t.is_floating_point() else t).numpy() for t in tensors]


def _torch(path: pathlib.Path, key: str | None) -> Any:
    torch = _package("torch", path, "torch")
    if tuple(int(part) for part in re.findall(r"\d+", torch.__version__)[:2]) < _SAFE_TORCH:
        raise ImportError(f"{path}: PyTorch {torch.__version__} may run code that the file holds (CVE-2025-32434); "
                          "pip install 'torch>=2.6' would be right")
    content = torch.load(path, map_location="cpu", weights_only=True)  # tensors and containers of them, nothing that runs
    for part in key.split(".") if key else []:
        content = _entry(path, content, part) if isinstance(content, Mapping) else content[int(part)]
    if isinstance(content, Mapping):
        content = _entry(path, content, None)
    several = isinstance(content, (list, tuple))
    arrays = _plain(path, content if several else [content])
    return arrays if several else arrays[0]


def _safetensors(path: pathlib.Path, key: str | None) -> Any:
    tensors = _package("safetensors.numpy", path, "safetensors").load_file(path)
    pairs = [re.fullmatch(r"([0-9]+)_([0-9]+)", name) for name in tensors]
    if key is not None or not all(pairs) or len(tensors) < 2:
        return _entry(path, tensors, key)
    # TensorRT-LLM's statistics of experts, a tensor "{iteration}_{layer}"   -> axes steps,layers,experts
    names: dict[tuple[int, int], str] = {}
    for pair in pairs:
        other = names.setdefault((int(pair[1]), int(pair[2])), pair[0])
        if other != pair[0]:
            raise ValueError(f"{path}: the tensors {other} and {pair[0]} are of one iteration and layer; one of them would be right")
    steps, layers = (sorted({place[i] for place in names}) for i in (0, 1))
    missing = [f"{s}_{l}" for s in steps for l in layers if (s, l) not in names]
    if missing:
        raise ValueError(f"{path}: the tensor {missing[0]} is missing; every iteration must have the layers {layers}")
    return numpy.stack([[tensors[names[s, l]] for l in layers] for s in steps])


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
    several = isinstance(content, list)
    saved = os.path.join(folder, path.name + (".npz" if several else ".npy"))
    try:
        numpy.savez(saved, *content) if several else numpy.save(saved, content)
    except OSError as error:
        raise OSError(error.errno, f"{path} as an array: {error.strerror or error}; a larger TMPDIR would be right", saved) from None
    return saved


def _run(files: Sequence[str | os.PathLike], output: str | os.PathLike, key: str | None, options: Sequence[str]) -> str:
    paths = [pathlib.Path(file) for file in files]
    for number, path in enumerate(paths):
        if any(path.absolute() == other.absolute() for other in paths[:number]):
            raise ValueError(f"{path} is given twice")
        if path.exists() and os.path.exists(output) and os.path.samefile(path, output):
            raise ValueError(f"{os.fspath(output)} is the input {path} itself; another file would be right")
    with tempfile.TemporaryDirectory(prefix="spillway-") as folder:
        saved = {}
        for number, path in enumerate(paths):  # a folder each: two may have one name
            own = os.path.join(folder, str(number))
            os.mkdir(own)
            saved[_save(path, key, own)] = str(path)

        def named(text: str) -> str:
            for name, path in saved.items():
                text = text.replace(name, path)
            return text

        try:
            _, notes = answer_of("trace import", ["array", *saved, "--output", os.fspath(output), *options])
        except Error as error:
            raise Error(named(str(error)), error.code) from None
    return named(notes.strip())


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
