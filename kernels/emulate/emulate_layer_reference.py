"""The expert layer's formulas in fp64 for the emulator's tests, and the judge of rows."""
import numpy as np

ROUNDINGS = 8  # to bf16 between an input and an output, at most: verify_layer_checks.c


def route(logits, top_k):
    """Softmax in fp64; the largest, renormalised to 1."""
    score = np.exp(logits.astype(np.float64) - logits.max(-1, keepdims=True))
    score /= score.sum(-1, keepdims=True)
    expert = np.argsort(-score, axis=-1, kind="stable")[..., :top_k]
    weight = np.take_along_axis(score, expert, -1)
    return expert.astype(np.int32), weight / weight.sum(-1, keepdims=True)


def layer_of(x, dy, expert, weight, kept, gate, up, down):
    """y, dx, d_weight and the gradients of the three weights, in fp64. x, dy [rank][token][hidden]; kept [rank][token][k]: not dropped."""
    y, dx, d_weight = np.zeros(x.shape), np.zeros(x.shape), np.zeros(weight.shape)
    gradients = [np.zeros(w.shape) for w in (gate, up, down)]
    for e in range(len(gate)):
        r, t, k = np.nonzero((expert == e) & kept)
        rows, d, w = x[r, t], dy[r, t], weight[r, t, k][:, None]
        h, u = rows @ gate[e], rows @ up[e]
        sigmoid = 1 / (1 + np.exp(-h))
        act = h * sigmoid * u
        out = act @ down[e]
        np.add.at(y, (r, t), w * out)
        d_weight[r, t, k] = (d * out).sum(1)
        d_act = w * d @ down[e].T
        d_up, d_gate = d_act * h * sigmoid, d_act * u * sigmoid * (1 + h * (1 - sigmoid))
        np.add.at(dx, (r, t), d_gate @ gate[e].T + d_up @ up[e].T)
        for gradient, value in zip(gradients, (rows.T @ d_gate, rows.T @ d_up, act.T @ (w * d))):
            gradient[e] = value
    return y, dx, d_weight, *gradients


def rows_good(got, want):
    """Every row as a whole: the norm of its error beside its own, or beside the mean of all where it is smaller: its terms have
    cancelled, their errors have not. A row of zeros must be one. Returns which are good, and the largest share of what is allowed."""
    got, want = (np.asarray(a, np.float64).reshape(-1, want.shape[-1]) for a in (got, want))
    norm, error = np.sqrt((want**2).sum(1)), np.sqrt(((got - want) ** 2).sum(1))
    usual = np.sqrt((norm**2).sum() / max(np.count_nonzero(norm), 1))
    allowed = np.where(norm > 0, ROUNDINGS * 2.0**-8 * np.maximum(norm, usual), 0)
    return error <= allowed, (error / np.where(allowed > 0, allowed, np.inf)).max()


def ring_kept(expert, experts, rows):
    """[rank][token][k]: choices that find room where every rank holds `rows` rows of its own experts, by expert, rank, token."""
    ranks, local = len(expert), experts // len(expert)
    kept = np.zeros(expert.shape, bool)
    for d in range(ranks):
        found = [place for x in range(d * local, (d + 1) * local) for place in np.argwhere(expert == x)][:rows]
        kept[tuple(np.array(found, int).reshape(-1, 3).T)] = True
    return kept
