"""From calls of a framework's hooks to shards, on a thread of its own."""
import contextlib
import pathlib
import queue
import threading
from typing import Iterator, Mapping, Optional, Sequence

import numpy as np

from .shard import Shard

DONE = object()


class Capture:
    """Collects what routers chose, one file a rank and step.

    folder: made where it is missing. experts, top_k, layers: of the model; layers are indices in it. rank, ranks: this process and how
    many there are. every: keep each n-th step. weights, order, phase, sequence_length, model: as in `Shard`. queue_bytes: so much may wait to be written; then the
    thread that trains waits too, since a trace with holes would be no trace. What failed on the writing thread is raised by the next
    call here, at the latest by `close`.
    """

    def __init__(self, folder, *, experts: int, top_k: int, layers: Sequence[int], rank: int = 0, ranks: int = 1, every: int = 1,
                 weights: bool = False, order: str = "unspecified", phase: str = "train", sequence_length: Optional[int] = None, model: Optional[Mapping[str, object]] = None,
                 source: str = "", queue_bytes: int = 256 << 20):
        if not 0 <= rank < ranks or every < 1 or queue_bytes < 1:
            raise ValueError(f"rank {rank} of {ranks}, every {every}, queue of {queue_bytes} bytes cannot be")
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.experts, self.top_k, self.layers, self.rank, self.ranks, self.every = experts, top_k, [int(x) for x in layers], rank, ranks, every
        self.weights, self.queue_bytes = weights, queue_bytes
        self._options = dict(layers=self.layers, experts=experts, top_k=top_k, rank=rank, order=order, weights=weights, phase=phase,
                             sequence_length=sequence_length, model=model, source=source)
        self._place = {layer: i for i, layer in enumerate(self.layers)}
        self._queue: queue.Queue = queue.Queue()
        self._room = threading.Condition()
        self._waiting = 0
        self._failure: Optional[BaseException] = None
        self._shard: Optional[Shard] = None  # of the writing thread alone, as is the next line
        self._sequences = 0
        self._step: Optional[int] = None
        self._micro = 0
        self._open: Optional[dict] = None
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._write, name="spillway-capture", daemon=True)
        self._thread.start()

    # --- What the training program says ---

    @contextlib.contextmanager
    def step(self, step: int) -> Iterator["Capture"]:
        """The forward passes inside belong to this step, each a micro-batch. A step that fails is not written."""
        self._check()
        if self._step is not None:
            raise RuntimeError(f"step {step} begins inside of step {self._step}")
        self._step, self._micro, self._open = int(step), 0, None
        wanted = step % self.every == 0
        if not wanted:
            self._step = None
        try:
            yield self
        except BaseException:
            if wanted:
                self._put(("discard", None), 0)
            raise
        else:
            if wanted:
                self._put(("close", None), 0)
        finally:
            self._step = self._open = None

    def begin(self) -> None:
        """A forward pass begins. Hooks of a framework call it."""
        if self._step is not None:
            self._open = {}

    def record(self, layer: int, fetch, size: int) -> None:
        """What the router of `layer` chose. fetch() gives ids [tokens][k] and weights or None, on the writing thread; `size`: the bytes
        that it keeps alive. Outside of a forward pass (as when activations are computed again for the backward pass) it is ignored."""
        with self._lock:
            if self._open is None:
                return
            if layer not in self._place:
                raise ValueError(f"layer {layer} is not among the layers {self.layers}")
            if layer in self._open:
                raise RuntimeError(f"layer {layer} chose twice in one forward pass")
            self._open[layer] = (fetch, size)

    def end(self) -> None:
        """The forward pass ends: its choices go to the writing thread."""
        with self._lock:
            if self._open is None:
                return
            parts, self._open = self._open, None
        if not parts:
            return
        lacking = [layer for layer in self.layers if layer not in parts]
        if lacking:
            raise RuntimeError(f"no choices of layers {lacking} in step {self._step}; the capture was told of layers {self.layers}")
        self._put(("pass", (self._step, self._micro, parts)), sum(size for _, size in parts.values()))
        self._micro += 1

    def add_sequences(self, arrays) -> None:
        """Inside of a step: the routed experts that vLLM or SGLang return, an array [tokens][layers][k] a response."""
        whole = np.concatenate([np.asarray(a) for a in arrays])
        if whole.ndim != 3 or whole.shape[1] != len(self.layers):
            raise ValueError(f"arrays of shape {whole.shape}; [tokens, {len(self.layers)}, {self.top_k}] would be right")
        self.begin()
        for i, layer in enumerate(self.layers):
            part = np.ascontiguousarray(whole[:, i])
            self.record(layer, lambda part=part: (part, None), part.nbytes)
        self.end()

    def close(self) -> None:
        """Waits until everything is written."""
        if self._thread.is_alive():
            self._put(DONE, 0)
            self._thread.join()
        self._check()

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

    # --- The queue ---

    def _check(self) -> None:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise RuntimeError(f"the trace could not be written: {failure}") from failure

    def _put(self, item, size: int) -> None:
        with self._room:
            # one item larger than the queue may wait alone
            self._room.wait_for(lambda: self._waiting == 0 or self._waiting + size <= self.queue_bytes)
            self._waiting += size
        self._queue.put((item, size))
        if item is not DONE:
            self._check()

    def _write(self) -> None:
        while True:
            item, size = self._queue.get()
            try:
                if item is DONE:
                    self._drop()
                    return
                self._handle(*item)
            except BaseException as failure:  # handed to the thread that trains
                self._failure = self._failure or failure
                self._drop()
            finally:
                with self._room:
                    self._waiting -= size
                    self._room.notify_all()

    def _handle(self, what: str, content) -> None:
        if what == "discard":
            self._drop()
        elif what == "close" and self._shard is not None:
            shard, self._shard = self._shard, None
            shard.close()
            self._sequences += shard.tokens // (shard.sequence_length or 1)
        elif what == "pass":
            step, micro, parts = content
            if micro == 0:
                self._shard = Shard(self.path(step), first_sequence=self._sequences, **self._options)
            if self._shard is not None:  # None: an earlier micro-batch of the step failed
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

