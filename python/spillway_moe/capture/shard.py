"""One file of the format moe-routing-trace 1.0: the micro-batches of one rank and step."""
import contextlib
import datetime
import os
import pathlib
from typing import Mapping, Optional, Sequence

import h5py
import numpy as np

ORDERS = ("descending_weight", "ascending_id", "unspecified")
PHASES = {"train": 0, "eval": 1, "prefill": 2, "decode": 3, "mixed": 4}
CHUNK_TOKENS = 8192


class Shard:
    """Appends micro-batches to a file that appears under its name when it is whole (`close`), or not at all (`discard`).

    layers: indices in the model of the layers that have experts. rank: the source rank, of which all tokens are. model: attributes of
    /model, such as name or hidden_size. weights: router weights are kept too. sequence_length: the tokens of a micro-batch are
    sequences of so many tokens, one after the other; with it a replay can keep sequences whole. They are numbered from
    first_sequence upwards.
    """

    def __init__(self, path, *, layers: Sequence[int], experts: int, top_k: int, rank: int = 0, order: str = "unspecified",
                 weights: bool = False, phase: str = "train", sequence_length: Optional[int] = None, first_sequence: int = 0,
                 model: Optional[Mapping[str, object]] = None,
                 source: str = "", generator: str = "spillway_moe.capture"):
        layers = [int(x) for x in layers]
        if not layers or len(set(layers)) != len(layers) or min(layers) < 0:
            raise ValueError(f"layers {layers}: each index once, 0 or above")
        if not 1 <= top_k <= experts <= 65535:
            raise ValueError(f"top-{top_k} of {experts} experts cannot be")
        if order not in ORDERS:
            raise ValueError(f"order '{order}' is none of {', '.join(ORDERS)}")
        if phase not in PHASES:
            raise ValueError(f"phase '{phase}' is none of {', '.join(PHASES)}")
        self.path, self.layers, self.experts, self.top_k, self.phase = pathlib.Path(path), layers, experts, top_k, PHASES[phase]
        self.dtype = np.uint8 if experts <= 255 else np.uint16
        self.missing = int(np.iinfo(self.dtype).max)
        self.sequence_length, self.first_sequence = sequence_length, first_sequence
        self.tokens = 0
        self._steps: list = []  # (id, micro-batch, tokens)
        self._counts: list = []
        self._temporary = self.path.with_name(self.path.name + f".{os.getpid()}.part")
        self._file = h5py.File(self._temporary, "w", libver=("earliest", "v110"))
        try:
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
        if ids.ndim != 3 or ids.shape[1:] != (len(self.layers), self.top_k):
            raise ValueError(f"ids of shape {ids.shape}; [tokens, {len(self.layers)}, {self.top_k}] would be right")
        if ids.size and (ids.min() < -1 or ids.max() >= self.experts):
            raise ValueError(f"ids from {ids.min()} to {ids.max()}; -1 and 0 to {self.experts - 1} would be right")
        if self.sequence_length and len(ids) % self.sequence_length:
            raise ValueError(f"{len(ids)} tokens are not whole sequences of {self.sequence_length}")
        if self._steps and (step, microbatch) <= self._steps[-1][:2]:
            raise ValueError(f"step {step}, micro-batch {microbatch} comes after {self._steps[-1][:2]}")
        end = self.tokens + len(ids)
        data = self._file["tokens/expert_id"]
        data.resize(end, 0)
        data[self.tokens:end] = np.where(ids < 0, self.missing, ids).astype(self.dtype)
        if "tokens/weight" in self._file:
            if weights is None or np.shape(weights) != ids.shape:
                raise ValueError(f"weights of shape {np.shape(weights)}; that of the ids, {ids.shape}, would be right")
            self._file["tokens/weight"].resize(end, 0)
            self._file["tokens/weight"][self.tokens:end] = weights
        counts = np.zeros((len(self.layers), self.experts), "u4")
        for l in range(len(self.layers)):
            chosen = ids[:, l][ids[:, l] >= 0]
            counts[l] = np.bincount(chosen.ravel(), minlength=self.experts)
        self._counts.append(counts)
        self._steps.append((int(step), int(microbatch), len(ids)))
        self.tokens = end

    def close(self) -> None:
        """Writes what is known at the end and gives the file its name."""
        if not self._steps:
            raise ValueError("a trace without a step")
        h, (step, micro, tokens) = self._file, (np.asarray(x) for x in zip(*self._steps))
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
            h.close()
            os.replace(self._temporary, self.path)
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        with contextlib.suppress(Exception):
            self._file.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._temporary)


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
