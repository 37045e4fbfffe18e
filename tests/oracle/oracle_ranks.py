"""What oracles of whole replays share: from the tokens of a trace to the ranks of a job, random routings, and how what differs is told."""
import traceback

import numpy as np


def own_rows(trace, step, source):
    """Rows of a source rank by sequence and position."""
    begin, end = trace.offsets[step], trace.offsets[step + 1]
    rows = np.arange(begin, end)
    rows = rows[trace.source_rank[begin:end] == source] if trace.ranks else rows
    position = trace.position if trace.position is not None else np.arange(len(trace.expert_id))
    sequence = trace.sequence if trace.sequence is not None else np.zeros(len(trace.expert_id), int)
    return rows[np.lexsort((position[rows], sequence[rows]))]


def compose(case, trace, step):
    """rank [tokens], sequence [tokens], row [tokens] of the job's micro-batches."""
    rows = []
    if trace.ranks:  # its own ranks, or consecutive blocks of them until the tokens are filled
        block = trace.ranks // case.ranks
        for r in range(case.ranks):
            rows.append(np.concatenate([own_rows(trace, step, s) for s in range(r * block, (r + 1) * block)]))
    else:            # whole sequences, one after the other; the last one of a job sequence is cut
        whole = own_rows(trace, step, 0)
        pieces = np.split(whole, np.flatnonzero(np.diff(trace.sequence[whole])) + 1)
        for r in range(case.ranks):
            mine = []
            for _ in range(case.sequences):
                filled = np.empty(0, int)
                while len(filled) < case.length:
                    filled = np.concatenate([filled, pieces.pop(0)])
                mine.append(filled[:case.length])
            rows.append(np.concatenate(mine))
    rows = [r[:case.tokens] for r in rows]
    assert all(len(r) == case.tokens for r in rows)
    rank = np.repeat(np.arange(case.ranks), case.tokens)
    return rank, np.tile(np.arange(case.tokens) // case.length, case.ranks), np.concatenate(rows)


class Wrong(AssertionError):
    pass


def same(what, got, want):
    if not np.array_equal(got, want):
        raise Wrong(f"{what}: got {np.asarray(got).ravel()[:16]}, want {np.asarray(want).ravel()[:16]}")


def close(what, got, want):
    if not abs(got - want) <= 1e-12 * max(abs(want), 1):
        raise Wrong(f"{what}: got {got!r}, want {want!r}")


def random_ids(rng, shape, experts, skew):
    """Distinct ids, by adding Gumbel noise to the logarithm of a popularity and taking the largest."""
    tokens, layers, top_k = shape
    logit = {"uniform": np.zeros(experts), "zipf": -2 * np.log(1 + rng.permutation(experts)),
             "one": np.where(np.arange(experts) < top_k, 1e3, 0),
             "last": np.where(np.arange(experts) >= experts - top_k, 1e3, 0)}[skew]
    noise = rng.gumbel(size=(tokens, layers, experts))
    return np.argsort(-(logit + noise), axis=2)[:, :, :top_k]


def random_storage(rng):
    return [None, dict(chunks=True), dict(chunks=True, shuffle=True, compression="gzip", compression_opts=4),
            dict(chunks=True, compression="gzip"), dict(chunks=True, shuffle=True, compression="gzip",
                                                        fletcher32=True)][rng.integers(5)]


def guarded(job):
    function, arguments = job
    try:
        function(*arguments)
        text = None
    except Exception as error:
        text = str(error) if isinstance(error, Wrong) else traceback.format_exc()
    return f"{function.__name__}{tuple(str(a) for a in arguments[2:])}", text
