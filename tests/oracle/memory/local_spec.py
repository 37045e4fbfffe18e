"""One training step of a GPT of Megatron-Core's local spec (no TransformerEngine; NVIDIA/Megatron-LM d98e8a64), allocation
by allocation in the order of the code: what a GPU holds in a layer's attention. Written from that source and beside
recordings of it. A MoE layer is what it keeps between its passes."""
import dataclasses


@dataclasses.dataclass
class Shape:
    H: int
    F: int
    E: int
    K: int
    heads: int
    kv: int
    D: int       # of a head
    S: int       # tokens of a sequence
    p: int       # sequences of a micro-batch
    TP: int      # tensor parallel, with sequence parallelism
    ETP: int = 1

    @property
    def T(self):
        return self.p * self.S // self.TP

    def moe_saved(self, rows):
        """Of one MoE layer with `rows` rows: fc1 input and output, fc2 input, weights; norm output and statistics;
        routing; what the dispatcher replaces in every step (probs, routing_map, permutation) is there before it."""
        return (2 * rows * (self.H + 3 * self.F // self.ETP) + 4 * rows + 2 * self.T * self.H + 4 * self.T
                + 12 * self.T * self.E + 4 * self.T * self.K + 128)


class Memory:
    """What is allocated under a name, and the most that ever was."""

    def __init__(self):
        self.live, self.now, self.peak, self.at = {}, 0, 0, ""

    def new(self, name, size):
        assert name not in self.live
        self.live[name] = size
        self.now += size
        if self.now > self.peak:
            self.peak, self.at = self.now, name

    def free(self, *names):
        for name in names:
            self.now -= self.live.pop(name)


def attention_forward(m, s, l):
    """Ends with what autograd saves, and the sum of residual and output."""
    tokens, heads, kv, b = s.p * s.S, s.heads // s.TP, s.kv // s.TP, 2
    scores = s.p * heads * s.S * s.S
    wide, narrow = tokens * heads * s.D * b, tokens * kv * s.D * b
    m.new(f"norm1.{l}", s.T * s.H * b)
    m.new(f"rstd.{l}", s.T * 4)
    m.new("qkv", wide + 2 * narrow)
    for name, size in (("q", wide), ("k", narrow)):
        m.new(f"cos.{name}.{l}", tokens * s.D * b)
        m.new(f"sin.{name}.{l}", tokens * s.D * b)
        m.new(f"rotated.{name}", size)
    if heads > kv:  # repeat_interleave copies keys and values; the copies are what the products save
        m.new("k.repeated", wide)
        m.new("v.repeated", wide)
        m.free("rotated.k")
    m.new("raw", 2 * scores)
    m.new("raw.fp32", 4 * scores)
    m.new("softmax", 4 * scores)  # over what the mask filled in place
    m.new("softmax.bf16", 2 * scores)
    m.free("raw.fp32")
    m.new("context", wide)
    m.free("raw")
    if heads > kv:
        m.free("qkv")
    m.new(f"sum.{l}", s.T * s.H * b)
    kept = ["softmax", "softmax.bf16", "context", "rotated.q"]
    kept += ["k.repeated", "v.repeated"] if heads > kv else ["rotated.k", "qkv"]
    for name in kept:  # saved under the layer's number from here on
        m.live[f"{name}.{l}"] = m.live.pop(name)


def attention_backward(m, s, l):
    tokens, heads, kv, b = s.p * s.S, s.heads // s.TP, s.kv // s.TP, 2
    scores, wide = s.p * heads * s.S * s.S, tokens * heads * s.D * b
    m.free(f"sum.{l}")  # the input of the second norm
    m.new("d.context", wide)
    m.free(f"context.{l}")
    m.new("d.softmax.bf16", 2 * scores)
    m.new("d.v", wide)
    m.free("d.context", f"softmax.bf16.{l}", f"v.repeated.{l}" if heads > kv else f"qkv.{l}")
    m.new("d.softmax", 4 * scores)
    m.free("d.softmax.bf16")
    m.new("d.raw.fp32", 4 * scores)
    m.new("product", 4 * scores)  # gradient times result, of PyTorch's softmax
    m.free("product", "d.softmax", f"softmax.{l}")
    m.new("d.raw", 2 * scores)
    m.free("d.raw.fp32")
    m.new("d.q", wide)
    m.free("d.raw", f"rotated.q.{l}", f"k.repeated.{l}" if heads > kv else f"rotated.k.{l}", "d.v", "d.q")
    m.free(*(f"{name}.{l}" for name in ("cos.q", "sin.q", "cos.k", "sin.k", "norm1", "rstd")))


def step(s, rows, dispatcher=0, full=False):
    """Peak above what was there before, and where it is; rows of every layer. `dispatcher`: what one keeps until its next pass; among
    what a MoE layer keeps, which in a layer that runs again are other tensors. full: every layer runs again before its backward
    pass, and leaves input and output of its experts until its next forward pass."""
    m = Memory()
    for l in range(len(rows) if full else 0):
        m.new(f"dispatcher.{l}", dispatcher)
        m.new(f"left.{l}", 4 * s.T * s.H)
    for l, held in enumerate(rows):
        m.new(f"carry.{l}", 2 * s.T * s.H)
        if full:
            m.free(f"left.{l}")
        else:
            attention_forward(m, s, l)
            m.new(f"moe.{l}", s.moe_saved(held) + dispatcher)
    m.new("d.residual", 2 * s.T * s.H)
    for l in reversed(range(len(rows))):
        if full:
            attention_forward(m, s, l)
            m.new(f"moe.{l}", s.moe_saved(rows[l]))
        m.free(f"moe.{l}")
        attention_backward(m, s, l)
        m.free(f"carry.{l}")
        if full:
            m.new(f"left.{l}", 4 * s.T * s.H)
    m.free("d.residual", *(f"{name}.{l}" for l in range(len(rows) if full else 0) for name in ("dispatcher", "left")))
    assert m.now == 0
    return m.peak, m.at
