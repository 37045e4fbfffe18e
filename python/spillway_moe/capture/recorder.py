"""From calls of a framework's hooks to shards, on a thread of its own."""
import atexit
import contextlib
import os
import pathlib
import queue
import threading
import warnings
from typing import Dict, Iterator, Mapping, Optional, Sequence

import numpy as np

from .place import Claim, place_of, whole
from .shard import Shard

DONE = object()
SHARED = -1  # no thread's number


class CaptureWarning(UserWarning):
    """Something is not captured. Training goes on."""


class Capture:
    """Collects what routers chose, one file a rank and step.

    folder: made where it is missing. experts, top_k, layers: of the model; layers are indices in it. rank, ranks: this process and how
    many there are; without them torch.distributed, JAX or the launcher (torchrun, mpirun, srun) say it. every: keep each n-th step.
    weights, order, phase, sequence_length, model: as in `Shard`. queue_bytes: so much may wait to be written; then the thread that
    trains waits too, since a trace with holes would be no trace.

    overwrite: files of this rank may be in the folder, as when a run is resumed; those of the same steps are replaced. Without it they
    are refused here.
    strict: what fails while a step is captured, as a full disk, is raised by the next call here, at the latest by `close`. Without it
    the step is lost, a CaptureWarning says so, `lost` keeps the reason, and training goes on.
    Calls that are wrong in themselves are always errors: steps that do not rise, a layer that was not said, use after `close`, and a
    first step in which no forward pass was seen.
    """

    def __init__(self, folder, *, experts: int, top_k: int, layers: Sequence[int], rank: Optional[int] = None, ranks: Optional[int] = None,
                 every: int = 1, weights: bool = False, order: str = "unspecified", phase: str = "train",
                 sequence_length: Optional[int] = None, model: Optional[Mapping[str, object]] = None, source: str = "",
                 queue_bytes: int = 256 << 20, overwrite: bool = False, strict: bool = False):
        self.rank, self.ranks = place_of(rank, ranks)
        self.every, self.queue_bytes = whole("every", every, 1, 2**63 - 1), whole("queue_bytes", queue_bytes, 1, 2**63 - 1)
        self.folder = pathlib.Path(folder)
        self.experts, self.top_k, self.layers = experts, top_k, [whole("layer", x, 0, 2**31 - 1) for x in layers]
        self.weights, self.strict = weights, strict
        self.lost: Dict[int, str] = {}  # step: why it is not captured
        self._options = dict(layers=self.layers, experts=experts, top_k=top_k, rank=self.rank, order=order, weights=weights, phase=phase,
                             sequence_length=sequence_length, model=model, source=source, overwrite=overwrite)
        self._place = {layer: i for i, layer in enumerate(self.layers)}
        Shard(self.path(0), **{**self._options, "overwrite": True}).discard()  # what cannot be is refused at once
        self.folder.mkdir(parents=True, exist_ok=True)
        self._claim = Claim(self.folder, self.rank)
        try:
            self._look_round(overwrite)
        except BaseException:
            self._claim.release()
            raise
        self._queue: queue.Queue = queue.Queue()
        self._room = threading.Condition()
        self._waiting = 0
        self._failure: Optional[BaseException] = None
        self._warned = 0
        self._shard: Optional[Shard] = None  # of the writing thread alone, as are the next two
        self._failed_step: Optional[int] = None
        self._sequences = 0
        self._step: Optional[int] = None  # under way, and kept
        self._inside = self._closed = self._finished = False
        self._last: Optional[int] = None  # the newest step
        self._micro = self._kept = self._seen = 0  # micro-batches of the step; steps that were to be kept; passes of all of them
        self._passes: Dict[int, dict] = {}  # of each thread: what its forward pass has chosen
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._thread = threading.Thread(target=self._write, name="spillway-capture", daemon=True)
        self._thread.start()
        atexit.register(self._close_at_exit)

    def _look_round(self, overwrite: bool) -> None:
        """Refuses files of this rank, and removes what a killed run left half written."""
        for part in self.folder.glob(f"rank{self.rank:05}_step*.h5.*.part"):
            with contextlib.suppress(OSError):
                part.unlink()
        there = sorted(path.name for path in self.folder.glob(f"rank{self.rank:05}_step*.h5"))
        if there and not overwrite:
            raise FileExistsError(f"{self.folder} holds {len(there)} files of rank {self.rank} already, the first {there[0]}: those of another "
                                  "run, or of a process whose rank= is the same. Name another folder, or say overwrite=True to go on in it and "
                                  "replace those of the same steps")

    # --- What the training program says ---

    @contextlib.contextmanager
    def step(self, step: int) -> Iterator["Capture"]:
        """The forward passes inside belong to this step, each a micro-batch. A step that fails is not written. Steps rise over the whole
        run, also where an epoch begins."""
        self._check()
        step = whole("step", step, 0, 2**63 - 1)
        if self._inside:
            raise RuntimeError(f"step {step} begins inside of step {self._last}")
        if self._last is not None and step <= self._last:
            raise ValueError(f"step {step} comes after step {self._last}: steps must rise over the whole run, also over epochs")
        self._last, self._inside, self._micro = step, True, 0
        wanted = step % self.every == 0
        self._step = step if wanted else None
        try:
            yield self
            if wanted and not self._closed:
                self._end_step(step)
        except BaseException:
            if wanted and not self._closed:
                self._send(("discard", None), 0)
            raise
        finally:
            self._step, self._inside = None, False
            with self._lock:
                self._passes.clear()

    def _end_step(self, step: int) -> None:
        self._kept += 1
        with self._lock:
            others = [thread for thread in self._passes if thread != threading.get_ident()]
        if others:
            self._send(("lose", (step, RuntimeError(f"it ended while {len(others)} other threads were inside of a forward pass"))), 0)
        elif self._micro > 0:
            self._put(("close", step), 0)
        elif self._seen == 0:
            raise RuntimeError(f"no forward pass was seen in step {step}: nothing was hooked, or the model that was hooked is not the one that "
                               "runs; call watch(model, capture), or begin(), record() and end()")
        else:
            self._lose(step, "no forward pass was seen in it")

    def begin(self, shared: bool = False) -> None:
        """A forward pass of this thread begins; `shared`: of all threads, as JAX calls back from threads of its own. Hooks of a framework
        call it."""
        if self._step is not None:
            self._check()
            with self._lock:
                if shared and SHARED in self._passes:
                    raise RuntimeError("a forward pass begins inside of another one")
                self._passes[SHARED if shared else threading.get_ident()] = {}

    def _pass(self) -> Optional[dict]:
        """The pass of this thread. With the lock."""
        return self._passes.get(threading.get_ident(), self._passes.get(SHARED))

    def chosen(self, layer: Optional[int] = None):
        """Inside of a forward pass: what record() was given for the layer, or None; without a layer, whether there is a pass."""
        with self._lock:
            found = self._pass()
            return found is not None if layer is None else (found or {}).get(layer)

    def record(self, layer: int, fetch, size: int) -> None:
        """What the router of `layer` chose. fetch() gives ids [tokens][k] and weights or None, on the writing thread; `size`: the bytes
        that it keeps alive. Outside of a forward pass (as when activations are computed again for the backward pass) it is ignored."""
        with self._lock:
            found = self._pass()
            if found is None:
                return
            if layer not in self._place:
                raise ValueError(f"layer {layer} is not among the layers {self.layers}")
            if layer in found:
                raise RuntimeError(f"layer {layer} chose twice in one forward pass")
            found[layer] = (fetch, size)

    def end(self, failed: bool = False) -> None:
        """The forward pass of this thread ends: its choices go to the writing thread, or nowhere if it failed."""
        with self._lock:
            own = threading.get_ident()
            parts = self._passes.pop(own if own in self._passes else SHARED, None)
            if not parts or failed:
                return
            lacking = [layer for layer in self.layers if layer not in parts]
            if lacking:
                raise RuntimeError(f"no choices of layers {lacking} in step {self._step}; the capture was told of layers {self.layers}")
            micro, self._micro, self._seen = self._micro, self._micro + 1, self._seen + 1
            self._put(("pass", (self._step, micro, parts)), sum(size for _, size in parts.values()))

    def add_sequences(self, arrays) -> None:
        """Inside of a step: the routed experts that vLLM or SGLang return, an array [tokens][layers][k] a response."""
        self._check()
        if not self._inside:
            raise RuntimeError("add_sequences() outside of a step; `with capture.step(n):` around it would be right")
        if isinstance(arrays, np.ndarray) and arrays.ndim == 3:
            raise ValueError(f"one array of shape {arrays.shape}; a list of arrays [tokens, {len(self.layers)}, {self.top_k}], one a response, "
                             "would be right: add_sequences([array])")
        whole_pass = np.concatenate([np.asarray(a) for a in arrays])
        if whole_pass.ndim != 3 or whole_pass.shape[1] != len(self.layers):
            raise ValueError(f"arrays of shape {whole_pass.shape}; [tokens, {len(self.layers)}, {self.top_k}] would be right")
        self.begin()
        for i, layer in enumerate(self.layers):
            part = np.ascontiguousarray(whole_pass[:, i])
            self.record(layer, lambda part=part: (part, None), part.nbytes)
        self.end()

    def close(self) -> None:
        """Waits until everything is written. What is not closed is closed when the program ends."""
        if self._finished or os.getpid() != self._process:
            return
        if not self._closed:
            self._closed = True
            if self._inside and self._step is not None:
                self._kept += 1
                self._queue.put((("lose", (self._step, RuntimeError("the capture was closed inside of it"))), 0))
            self._queue.put((DONE, 0))
        self._thread.join()
        self._finished = True
        atexit.unregister(self._close_at_exit)
        self._claim.release()
        if self.strict:
            self._raise_failure()
        if self.lost:
            first = min(self.lost)
            self._warn(f"{len(self.lost)} of {self._kept} steps are not captured, the first {first}: {self.lost[first]}")
        elif self._kept == 0 and self._last is not None:
            self._warn(f"nothing is captured: of the steps up to {self._last} none is a multiple of every={self.every}, or all of them failed")

    def _close_at_exit(self) -> None:
        try:
            self.close()
        except Exception as failure:  # a program that ends has nobody to tell but standard error
            self._warn(str(failure))

    def __enter__(self) -> "Capture":
        return self

    def __exit__(self, kind, value, trace) -> None:
        try:
            self.close()
        except BaseException:
            if kind is None:
                raise

    def path(self, step: int) -> pathlib.Path:
        return self.folder / f"rank{self.rank:05}_step{step:09}.h5"

    # --- What goes wrong ---

    def _check(self) -> None:
        if os.getpid() != self._process:
            raise RuntimeError(f"this Capture was made in process {self._process}, of which this one is a fork: it has no thread that writes; make "
                               "one here, with its own rank=")
        if self._closed:
            raise RuntimeError("the capture is closed")
        if self.strict:
            self._raise_failure()
        elif len(self.lost) > 2 * self._warned:  # the 1st, 3rd, 7th ...: a disk that stays full is no news
            self._warned = len(self.lost)
            step, reason = list(self.lost.items())[-1]
            self._warn(f"step {step} is not captured: {reason}; training goes on")

    def _warn(self, text: str) -> None:
        warnings.warn(f"{self.folder}, rank {self.rank}: {text}", CaptureWarning, stacklevel=2)

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise RuntimeError(f"the trace could not be written: {failure}") from failure

    def _lose(self, step: int, reason) -> None:
        self.lost.setdefault(step, f"{reason}" or type(reason).__name__)
        if isinstance(reason, BaseException):
            self._failure = self._failure or reason

    # --- The queue ---

    def _put(self, item, size: int) -> None:
        with self._room:
            # one item larger than the queue may wait alone
            self._room.wait_for(lambda: self._waiting == 0 or self._waiting + size <= self.queue_bytes)
        self._send(item, size)
        self._check()

    def _send(self, item, size: int) -> None:
        with self._room:
            self._waiting += size
        self._queue.put((item, size))

    def _write(self) -> None:
        while True:
            item, size = self._queue.get()
            try:
                if item is DONE:
                    self._drop()
                    return
                self._handle(*item)
            except BaseException as failure:  # that thread must not end
                self._drop()
                self._failed_step = item[1][0] if isinstance(item[1], tuple) else item[1]
                self._lose(self._failed_step, failure)
            finally:
                item = None
                with self._room:
                    self._waiting -= size
                    self._room.notify_all()

    def _handle(self, what: str, content) -> None:
        if what == "discard":
            self._drop()
        elif what == "lose":
            self._drop()
            self._lose(*content)
        elif what == "close" and self._shard is not None:
            shard, self._shard = self._shard, None
            shard.close()
            self._sequences += shard.tokens // (shard.sequence_length or 1)
        elif what == "pass":
            step, micro, parts = content
            if step == self._failed_step:  # an earlier micro-batch of it failed
                return
            if self._shard is None:
                self._shard = Shard(self.path(step), first_sequence=self._sequences, **self._options)
            self._shard.append(step, micro, *self._join(parts))

    def _drop(self) -> None:
        shard, self._shard = self._shard, None
        if shard is not None:
            shard.discard()

    def _join(self, parts):
        """ids and weights [tokens][layers][k]."""
        fetched = [parts[layer][0]() for layer in self.layers]
        sizes = {layer: len(ids) for layer, (ids, _) in zip(self.layers, fetched)}
        if len(set(sizes.values())) != 1:
            raise ValueError(f"layers that route different numbers of tokens: {sizes}")
        ids = np.stack([ids for ids, _ in fetched], 1)
        weights = np.stack([w for _, w in fetched], 1) if self.weights else None
        return ids, weights
