"""One file of the format moe-routing-trace 1.0: the micro-batches of one rank and step."""
import contextlib
import datetime
import errno
import itertools
import os
import pathlib
import threading
from typing import Mapping, Optional, Sequence

import h5py
import numpy as np

from .place import MOST_RANKS, whole

ORDERS = ("descending_weight", "ascending_id", "unspecified")
PHASES = {"train": 0, "eval": 1, "prefill": 2, "decode": 3, "mixed": 4}
CHUNK_TOKENS = 8192
LARGEST_WEIGHT = float(np.finfo("f2").max)
NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EACCES, errno.EINVAL)
_images = itertools.count()
# A process that forks waits until no thread is inside of HDF5: its locks would be held in the child for ever.
_hdf5 = threading.RLock()
os.register_at_fork(before=_hdf5.acquire, after_in_parent=_hdf5.release, after_in_child=_hdf5.release)


def _put(file: int, image: bytes) -> None:
    left = memoryview(image)
    while left:
        left = left[os.write(file, left):]


def _write_whole(image: bytes, path: pathlib.Path, overwrite: bool) -> None:
    """The file appears under its name with all of its bytes, or not at all; OSError. FileExistsError where it is there already."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            _put(file, image)
        finally:
            os.close(file)  # NFS tells of a full disk here
        if overwrite:
            os.replace(temporary, path)
        else:
            _name_new(temporary, path)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)


def _name_new(temporary: pathlib.Path, path: pathlib.Path) -> None:
    try:
        os.link(temporary, path)  # unlike a rename it never replaces what another process has written by now
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        if path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
        os.replace(temporary, path)


def _check_ids(ids: np.ndarray, layers: int, top_k: int, experts: int) -> None:
    if ids.ndim != 3 or ids.shape[1:] != (layers, top_k):
        raise ValueError(f"ids of shape {ids.shape}; [tokens, {layers}, {top_k}] would be right")
    if ids.dtype.kind not in "iu":
        raise ValueError(f"ids of type {ids.dtype}; whole numbers would be right")
    if ids.size and (ids.min() < -1 or ids.max() >= experts):
        raise ValueError(f"ids from {ids.min()} to {ids.max()}; -1 and 0 to {experts - 1} would be right")
    order = np.sort(ids, -1)
    twice = ((order[..., 1:] == order[..., :-1]) & (order[..., 1:] >= 0)).any(-1)
    if twice.any():
        token, layer = np.argwhere(twice)[0]
        raise ValueError(f"token {token} chooses an expert twice in the layer at position {layer}: {ids[token, layer].tolist()}; once would be right")


def _check_weights(weights: np.ndarray, ids: np.ndarray, falling: bool) -> None:
    if weights.shape != ids.shape:
        raise ValueError(f"weights of shape {weights.shape}; that of the ids, {ids.shape}, would be right")
    values = weights.astype("f4")
    wrong = ~((values >= 0) & (values <= LARGEST_WEIGHT)) & (ids >= 0)
    if wrong.any():
        token, layer, k = np.argwhere(wrong)[0]
        raise ValueError(f"the weight {weights[token, layer, k]} of token {token} in the layer at position {layer}; a number from 0 to "
                         f"{LARGEST_WEIGHT:.0f} would be right, as weights are kept in 16 bits")
    rises = (np.diff(values.astype("f2"), axis=-1) > 0) & (ids[..., 1:] >= 0) if falling else np.zeros(1, bool)
    if rises.any():
        token, layer = np.argwhere(rises)[0][:2]
        raise ValueError(f"the weights {weights[token, layer].tolist()} of token {token} rise; order='unspecified' would be right")


class Shard:
    """Appends micro-batches to a file that appears under its name when it is whole (`close`), or not at all (`discard`).

    The file grows in memory, compressed, and is written at once: HDF5 meets no disk, as its library ends the process when one is full.
    overwrite: replace a file of that name; without it FileExistsError.

    layers: indices in the model of the layers that have experts. rank: the source rank, of which all tokens are. model: attributes of
    /model, such as name or hidden_size. weights: router weights are kept too. sequence_length: the tokens of a micro-batch are
    sequences of so many tokens, one after the other; with it a replay can keep sequences whole. They are numbered from
    first_sequence upwards.
    """

    def __init__(self, path, *, layers: Sequence[int], experts: int, top_k: int, rank: int = 0, order: str = "unspecified",
                 weights: bool = False, phase: str = "train", sequence_length: Optional[int] = None, first_sequence: int = 0,
                 model: Optional[Mapping[str, object]] = None,
                 source: str = "", generator: str = "spillway_moe.capture", overwrite: bool = False):
        layers = [whole("layer", x, 0, 2**31 - 1) for x in layers]
        if not layers or len(set(layers)) != len(layers):
            raise ValueError(f"layers {layers}: each index once, 0 or above")
        whole("rank", rank, 0, MOST_RANKS - 1)
        if not 1 <= whole("top_k", top_k, 0, 2**31) <= whole("experts", experts, 0, 2**31) <= 65535:
            raise ValueError(f"top-{top_k} of {experts} experts cannot be")
        if order not in ORDERS:
            raise ValueError(f"order '{order}' is none of {', '.join(ORDERS)}")
        if phase not in PHASES:
            raise ValueError(f"phase '{phase}' is none of {', '.join(PHASES)}")
        self.path, self.layers, self.experts, self.top_k, self.phase = pathlib.Path(path), layers, experts, top_k, PHASES[phase]
        self.dtype = np.uint8 if experts <= 255 else np.uint16
        self.missing = int(np.iinfo(self.dtype).max)
        self.sequence_length, self.first_sequence = sequence_length, first_sequence
        self.tokens, self.weights, self.falling = 0, weights, order == "descending_weight"
        self._steps: list = []  # (id, micro-batch, tokens)
        self._counts: list = []
        self.overwrite = overwrite
        if not overwrite and self.path.exists():
            raise FileExistsError(errno.EEXIST, "there is such a file already; overwrite=True replaces it", str(self.path))
        # a name of its own: HDF5 opens no two files of one name
        try:
            with _hdf5:
                self._file = h5py.File(f"{self.path.name}.{next(_images)}", "w", driver="core", backing_store=False, block_size=1 << 20,
                                       libver=("earliest", "v110"))
                self._begin(rank, order, weights, model or {}, source, generator)
        except BaseException:
            self.discard()
            raise

    def _begin(self, rank, order, weights, model, source, generator):
        h, shape = self._file, (0, len(self.layers), self.top_k)
        h.attrs.update(format="moe-routing-trace", format_version="1.0.0", content="tokens+counts", synthetic=0,
                       generator=generator, source=source, created=datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"))
        for name, values in (("layer", self.layers), ("expert", range(self.experts)), ("k", range(self.top_k)), ("rank", [rank])):
            h.create_dataset(name, data=np.asarray(values, "i4")).make_scale(name)
        group = h.create_group("model")
        group.attrs.update(model)
        group["num_experts"] = np.full(len(self.layers), self.experts, "i4")
        group["top_k"] = np.full(len(self.layers), self.top_k, "i4")
        options = dict(chunks=(CHUNK_TOKENS, 1, self.top_k), maxshape=(None, *shape[1:]), shuffle=True, compression="gzip", compression_opts=4)
        ids = h.create_dataset("tokens/expert_id", shape, self.dtype, fillvalue=self.missing, **options)
        ids.attrs.update(missing_value=self.missing, order=order, expert_axis="logical")
        if weights:
            h.create_dataset("tokens/weight", shape, "f2", **options).attrs["weight_kind"] = "gate_used"

    def append(self, step: int, microbatch: int, ids: np.ndarray, weights: Optional[np.ndarray] = None) -> None:
        """ids [tokens][layers][k], -1 for no choice; weights of the same shape where the shard keeps them."""
        ids = np.asarray(ids)
        step, microbatch = whole("step", step, 0, 2**63 - 1), whole("micro-batch", microbatch, 0, 2**31 - 1)
        _check_ids(ids, len(self.layers), self.top_k, self.experts)
        if self.weights:
            weights = np.asarray(weights)
            _check_weights(weights, ids, self.falling)
        if self.sequence_length and len(ids) % self.sequence_length:
            raise ValueError(f"{len(ids)} tokens are not whole sequences of {self.sequence_length}")
        if self._steps and (step, microbatch) <= self._steps[-1][:2]:
            raise ValueError(f"step {step}, micro-batch {microbatch} comes after {self._steps[-1][:2]}")
        end = self.tokens + len(ids)
        parts = {"tokens/expert_id": np.where(ids < 0, self.missing, ids).astype(self.dtype)}
        if self.weights:
            parts["tokens/weight"] = np.where(np.isfinite(weights), weights, 0)  # without a choice: anything
        with _hdf5:
            for name, values in parts.items():
                self._file[name].resize(end, 0)
                self._file[name][self.tokens:end] = values
        counts = np.zeros((len(self.layers), self.experts), "u4")
        for l in range(len(self.layers)):
            chosen = ids[:, l][ids[:, l] >= 0]
            counts[l] = np.bincount(chosen.ravel(), minlength=self.experts)
        self._counts.append(counts)
        self._steps.append((step, microbatch, len(ids)))
        self.tokens = end

    def close(self) -> None:
        """Writes what is known at the end and gives the file its name."""
        if not self._steps:
            raise ValueError("a trace without a step")
        h, (step, micro, tokens) = self._file, (np.asarray(x) for x in zip(*self._steps))
        with _hdf5:
            try:
                h["tokens/source_rank"] = np.zeros(self.tokens, "u2")
                if self.sequence_length:
                    h["tokens/sequence"] = (self.first_sequence + np.arange(self.tokens) // self.sequence_length).astype("i4")
                    h["tokens/position"] = (np.arange(self.tokens) % self.sequence_length).astype("i4")
                h["tokens/step_offset"] = np.concatenate([[0], np.cumsum(tokens)]).astype("i8")
                h["steps/id"], h["steps/num_tokens"] = step.astype("i8"), tokens.astype("i8")
                h["steps/microbatch"], h["steps/phase"] = micro.astype("i4"), np.full(len(step), self.phase, "u1")
                h["steps/id"].make_scale("step")
                routed = h.create_dataset("counts/routed", data=np.stack(self._counts))
                routed.attrs.update(units="token_expert_assignments", expert_axis="logical")
                h.create_dataset("counts/by_rank", data=np.stack(self._counts)[:, None])
                h.flush()
                image = h.id.get_file_image()
            finally:
                self.discard()
        _write_whole(image, self.path, self.overwrite)

    def discard(self) -> None:
        with contextlib.suppress(Exception), _hdf5:
            self._file.close()


def write_shard(path, steps, **options) -> None:
    """The whole of it: steps is an iterable of (step, micro-batch, ids) or (step, micro-batch, ids, weights)."""
    shard = Shard(path, **options)
    try:
        for step in steps:
            shard.append(*step)
    except BaseException:
        shard.discard()
        raise
    shard.close()
