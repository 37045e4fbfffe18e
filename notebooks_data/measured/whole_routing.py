"""Who chooses which expert: [tokens, top_k], int16.
balanced: choice j of token t is expert (t + j (E div K)) mod E. hot1: every choice on the first of the expert-parallel ranks, evenly.
onehot: the first choice of every token is expert 0, the others are even. zipf:X: drawn without replacement, popularity i^-X in an order
of each layer's own. hot:F: share F of the choices on the first of two expert-parallel ranks, evenly on each. A>B@S: A before step S and B from there on. A|B: A in even micro-batches and B in odd ones."""
import zlib

import numpy


def choices(routing, step, micro_batch, layer, source, tokens, top_k, experts, ranks):
    if ">" in routing:
        (first, rest) = routing.split(">", 1)
        then, at = rest.rsplit("@", 1)
        routing = first if step < int(at) else then
    if "|" in routing:
        routing = routing.split("|")[micro_batch % 2]
    t, j = numpy.arange(tokens)[:, None], numpy.arange(top_k)[None, :]
    if routing == "balanced":
        return ((t + j * (experts // top_k)) % experts).astype(numpy.int16)
    if routing == "hot1":
        mine = experts // ranks
        return ((t + j * max(1, mine // top_k)) % mine).astype(numpy.int16)
    if routing == "onehot":
        ids = 1 + (t + (j - 1) * ((experts - 1) // (top_k - 1))) % (experts - 1)
        ids[:, 0] = 0
        return ids.astype(numpy.int16)
    kind, exponent = routing.split(":")
    if kind == "hot":
        share = 2 * float(exponent) - 1
        hot = (t[:, 0] + 1) * share // 1 > t[:, 0] * share // 1
        place = numpy.where(hot, numpy.cumsum(hot), numpy.cumsum(~hot)) - 1
        mine = experts // ranks
        even = (place[:, None] + j * (experts // top_k)) % experts
        return numpy.where(hot[:, None], (place[:, None] + j * max(1, mine // top_k)) % mine, even).astype(numpy.int16)
    assert kind == "zipf"
    seed = zlib.crc32(f"{step}.{micro_batch}.{layer}.{source}".encode())
    draw = numpy.random.Generator(numpy.random.PCG64(seed))
    order = numpy.random.Generator(numpy.random.PCG64(layer)).permutation(experts)
    weight = numpy.empty(experts)
    weight[order] = -float(exponent) * numpy.log(numpy.arange(1, experts + 1))
    noise = weight[None, :] + draw.gumbel(size=(tokens, experts))
    return numpy.argpartition(-noise, top_k, axis=1)[:, :top_k].astype(numpy.int16)
