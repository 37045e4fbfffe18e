"""The trace reader, writer, generator and verifier against h5py, which knows nothing of them.

usage: trace_oracle.py TRACE_DUMP SPILLWAY SCRATCH
"""
import json
import os
import pathlib
import shutil
import sys

import h5py
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
import program as caller

DUMP, SPILLWAY, SCRATCH = sys.argv[1:4]
SCRATCH = os.path.join(SCRATCH, "trace_oracle")
PATH = os.path.join(SCRATCH, "t.h5")
checks = 0


def check(good, what):
    global checks
    checks += 1
    if not good:
        sys.exit(f"FAILED: {what}")


def run(*command):
    done = caller.call(command, text=False)
    check(b"Sanitizer" not in done.stderr or done.returncode in (0, 1, 2, 3), done.stderr.decode()[-2000:])
    return done.returncode, done.stdout, done.stderr.decode()


def text(value, fixed):
    return np.bytes_(value) if fixed else value


def make(experts=16, top_k=4, layers=3, tokens=(300, 0, 1, 77, 500), ranks=0, chunk=(128, 1, 4), dtype="u1", weights=False,
         missing=True, fixed=False, libver=("earliest", "v110"), seed=0, by_rank=True, **storage):
    """A valid trace at PATH; returns ids [N][L][K] (65535 = missing) and weights."""
    rng = np.random.default_rng(seed)
    n, offset = sum(tokens), np.concatenate([[0], np.cumsum(tokens)])
    ids = np.argsort(rng.random((n, layers, experts)), axis=2)[:, :, :top_k].astype("u2")
    if missing:
        ids[rng.random(ids.shape) < 0.1] = 65535
    top = np.iinfo(dtype).max
    weight = rng.random(ids.shape).astype("f2")
    source = (rng.integers(0, ranks, n) if ranks else np.zeros(n)).astype("u2")
    with h5py.File(PATH, "w", libver=libver) as h:
        for name, value in (("format", "moe-routing-trace"), ("format_version", "1.2.3"), ("content", "tokens+counts"),
                            ("license", "CC0-1.0"), ("source", "oracle")):
            h.attrs[name] = text(value, fixed)
        h["layer"], h["expert"], h["k"] = (np.arange(x, dtype="i4") for x in (layers, experts, top_k))
        if ranks:
            h["rank"] = np.arange(ranks, dtype="i4")
            h["tokens/source_rank"] = source
        h["model/num_experts"] = np.full(layers, experts, "i4")
        h["model/top_k"] = np.full(layers, top_k, ">i2")
        h["model"].attrs["hidden_size"] = np.float32(64)
        h["steps/id"], h["steps/num_tokens"] = np.arange(len(tokens)), np.array(tokens)
        d = h.create_dataset("tokens/expert_id", data=np.where(ids == 65535, top, ids).astype(dtype), chunks=chunk,
                             maxshape=(None, layers, top_k) if chunk else None, **storage)
        d.attrs["missing_value"] = np.int16(top) if dtype == "u1" else np.uint64(top)
        if weights:
            h.create_dataset("tokens/weight", data=weight, chunks=chunk, **storage)
        h["tokens/step_offset"] = offset
        counts = np.zeros((len(tokens), max(ranks, 1), layers, experts), "u4")
        for s in range(len(tokens)):
            for t in range(offset[s], offset[s + 1]):
                for l in range(layers):
                    good = ids[t, l][ids[t, l] != 65535]
                    counts[s, source[t], l, good] += 1
        h.create_dataset("counts/routed", data=counts.sum(1), chunks=(2, layers, 5), compression="gzip", shuffle=True,
                         fletcher32=True)
        if ranks and by_rank:
            h.create_dataset("counts/by_rank", data=counts.astype(">u8"), chunks=(1, 2, 2, 7), compression="gzip")
    return ids, weight, offset


def test_layouts():
    z = dict(compression="gzip", compression_opts=9, shuffle=True)
    layouts = [dict(chunk=(128, 1, 4), **z), dict(chunk=(100, 3, 4), **z), dict(chunk=(64, 2, 4), dtype="u2", **z),
               dict(chunk=None), dict(chunk=None, dtype="u2", fixed=True), dict(chunk=(128, 1, 4)),
               dict(chunk=(128, 1, 4), fletcher32=True, **z), dict(chunk=(128, 1, 3), **z), dict(chunk=(128, 1, 4), shuffle=True, dtype="u2"),
               dict(chunk=(32, 3, 2), fletcher32=True, dtype="u2", **z), dict(chunk=(128, 1, 4), compression="gzip", dtype="u2"),
               dict(dtype=">u2", chunk=(128, 1, 4), **z), dict(libver="latest", chunk=(128, 1, 4), ranks=5, **z),
               dict(experts=700, dtype="u2", ranks=7, chunk=(50, 1, 4), fletcher32=True, **z)]
    for number, layout in enumerate(layouts):
        ids, weight, offset = make(weights=number % 2 == 0, seed=number, **layout)
        steps, layers = len(offset) - 1, ids.shape[1]

        def record(a, b, l):
            part = ids[offset[a]:offset[b], l].tobytes()
            return part + (weight[offset[a]:offset[b], l].tobytes() if number % 2 == 0 else b"")

        orders = {"steps": [(s, s + 1, l) for s in range(steps) for l in range(layers)],
                  "layers": [(s, s + 1, l) for l in range(layers) for s in range(steps)],
                  "3": [(s, min(s + 3, steps), l) for s in range(0, steps, 3) for l in range(layers)]}
        for order, records in orders.items():
            code, out, error = run(DUMP, PATH, order)
            check(code == 0, f"layout {layout}: {error}")
            check(out == b"".join(record(*r) for r in records), f"layout {layout}, order {order}")
        code, out, error = run(SPILLWAY, "trace", "verify", PATH)
        check(code == 0, f"layout {layout}: {out} {error}")


def test_unwritten_chunks():
    make(missing=False, compression="gzip")
    with h5py.File(PATH, "a") as h:
        del h["tokens/expert_id"], h["counts"]
        h.attrs["content"] = "tokens"
        d = h.create_dataset("tokens/expert_id", shape=(878, 3, 4), chunks=(128, 1, 4), dtype="u1", fillvalue=255)
        d[0:128, 0, 0] = 7
    code, out, error = run(DUMP, PATH, "layers")
    got = np.frombuffer(out, "u2")
    check(code == 0 and (got[:512:4] == 7).all() and (np.delete(got, np.s_[:512:4]) == 65535).all(), "chunks that were never written")


def damage(expect, message, change, code=3, tool="dump", **kinds):
    """Changes a good file, then wants one clear line and the right exit status."""
    make(**{**dict(compression="gzip", shuffle=True), **kinds})
    if callable(change):
        with h5py.File(PATH, "a") as h:
            change(h)
    got, out, error = run(DUMP, PATH, "steps")
    check(got == code, f"{message}: exit status {got}, {error}")
    check(error.startswith(expect) and message in error and error.count("\n") == (code != 0), f"wanted '{message}', got '{error}'")


def replace(h, name, data, **how):
    attributes = dict(h[name].attrs)
    del h[name]
    d = h.create_dataset(name, data=data, **how)
    for key, value in attributes.items():
        d.attrs[key] = value


def test_damage():
    bad = "SPW_EFORMAT"
    damage(bad, "format_version is '2.0.0'", lambda h: h.attrs.__setitem__("format_version", "2.0.0"))
    damage(bad, "format_version is ''", lambda h: h.attrs.__delitem__("format_version"))
    damage(bad, "format is 'other'", lambda h: h.attrs.__setitem__("format", "other"))
    for name in ("layer", "expert", "k", "model/num_experts", "model/top_k", "steps/id", "steps/num_tokens",
                 "tokens/step_offset", "tokens/expert_id", "counts/routed"):
        damage(bad, f"/{name}: missing", lambda h, name=name: h.__delitem__(name))
    damage(bad, "/rank: missing", lambda h: h.__delitem__("rank"), ranks=2)
    damage(bad, "must have 3", lambda h: replace(h, "tokens/expert_id", np.zeros((878, 12), "u1")))
    damage(bad, "in dimension 2; must be 4", lambda h: replace(h, "tokens/expert_id", np.zeros((878, 3, 5), "u1")))
    damage(bad, "must end at 877", lambda h: replace(h, "tokens/expert_id", np.zeros((877, 3, 4), "u1")))
    damage(bad, "must be uint8 or uint16", lambda h: replace(h, "tokens/expert_id", np.zeros((878, 3, 4), "i2")))
    damage(bad, "must be uint8 or uint16", lambda h: replace(h, "tokens/expert_id", np.zeros((878, 3, 4), "u4")))
    damage(bad, "decreases from 300 to 299", lambda h: h["tokens/step_offset"].__setitem__(slice(None), [0, 300, 299, 301, 378, 878]))
    damage(bad, "but steps/num_tokens says", lambda h: h["steps/num_tokens"].__setitem__(0, 299))
    damage(bad, "/steps/num_tokens: ", lambda h: h["steps/num_tokens"].__setitem__(0, -1))
    damage(bad, "starts at 1", lambda h: h["tokens/step_offset"].__setitem__(0, 1))
    damage(bad, "num_experts: 17", lambda h: h["model/num_experts"].__setitem__(1, 17))
    damage(bad, "top_k: 5", lambda h: h["model/top_k"].__setitem__(1, 5))
    damage(bad, "missing_value 3 ", lambda h: h["tokens/expert_id"].attrs.__setitem__("missing_value", 3))
    damage(bad, "'physical'", lambda h: h["tokens/expert_id"].attrs.__setitem__("expert_axis", "physical"))
    damage(bad, "id 16 at step 3, layer 1, token 5;", lambda h: h["tokens/expert_id"].__setitem__((306, 1, 2), 16))
    damage(bad, "source_rank: 2 at step 0, token 9;", lambda h: h["tokens/source_rank"].__setitem__(9, 2), ranks=2)
    damage(bad, "filter 32000", lambda h: replace(h, "tokens/expert_id", np.zeros((878, 3, 4), "u1"), chunks=(128, 1, 4), compression="lzf"))
    damage(bad, "/counts/routed: ", lambda h: replace(h, "counts/routed", np.zeros((5, 3, 15), "u4")))
    damage(bad, "/counts/by_rank: ", lambda h: replace(h, "counts/by_rank", np.zeros((5, 2, 3, 17), "u4")), ranks=2)

    def huge(h):
        del h["tokens/expert_id"]
        h.create_dataset("tokens/expert_id", shape=(1 << 40, 3, 4), chunks=(8192, 1, 4), dtype="u1")
        h["steps/num_tokens"][...] = [1 << 40, 0, 0, 0, 0]
        h["tokens/step_offset"][...] = [0] + [1 << 40] * 5

    damage(bad, "bytes of extent but only 0 stored", huge)

    def big_chunk(h):
        del h["tokens/expert_id"]
        h.create_dataset("tokens/expert_id", shape=(878, 3, 4), maxshape=(None, 3, 4), chunks=(1 << 24, 3, 4), dtype="u1")

    damage(bad, "chunks of more than 64 MiB", big_chunk)

    def elsewhere(h):
        del h["tokens/expert_id"]
        h["tokens/expert_id"] = h5py.ExternalLink("/etc/passwd", "x")

    damage(bad, "/tokens/expert_id: a soft or external link", elsewhere)

    def external(h):
        del h["tokens/expert_id"]
        h.create_dataset("tokens/expert_id", shape=(878, 3, 4), dtype="u1", external=[("/etc/passwd", 0, 878 * 12)])

    damage(bad, "stored in another file", external)

    def flip(what, message):
        make(compression="gzip", shuffle=True, fletcher32=what == "sum")
        with h5py.File(PATH, "r") as h:
            at = h["tokens/expert_id"].id.get_chunk_info(0)
        with open(PATH, "r+b") as f:
            f.seek(at.byte_offset + at.size // 2)
            byte = f.read(1)
            f.seek(at.byte_offset + at.size // 2)
            f.write(bytes([byte[0] ^ 0x10]))
        code, _, error = run(DUMP, PATH, "steps")
        return code == 3 and message in error, error

    good, error = flip("sum", "wrong checksum")
    check(good, error)
    good, error = flip("stream", "expert_id")  # the stream is damaged, or the ids are
    check(good, error)
    make(compression="gzip", shuffle=True)
    whole = open(PATH, "rb").read()
    for part in (0, 1, 7, 100, 1000, len(whole) // 2, len(whole) - 1):
        with open(PATH, "wb") as f:
            f.write(whole[:part])
        code, _, error = run(DUMP, PATH, "steps")
        check(code == 3 and error.count("\n") == 1, f"cut to {part} bytes: {code} {error}")
    code, _, error = run(DUMP, os.path.join(SCRATCH, "none.h5"), "steps")
    check(code == 3 and "SPW_EIO" in error and "No such file" in error, error)
    empty = os.path.join(SCRATCH, "empty")
    os.makedirs(empty, exist_ok=True)
    code, _, error = run(DUMP, empty, "steps")
    check(code == 3 and "SPW_EIO" in error and "holds no file" in error, error)


def linked(name):
    def change(h):
        h.move(name, "elsewhere")
        h[name] = h5py.SoftLink("/elsewhere")
    return change


def set_at(name, at, value):
    return lambda h: h[name].__setitem__(at, value)


def test_contradictions():
    """Good form, and yet it cannot be: the reader refuses, whoever asks. What looks alike and can be is read."""
    bad, whole = "SPW_EFORMAT", slice(None)
    damage(bad, "/layer: 1 at position 2 stands there twice", set_at("layer", 2, 1))
    damage(bad, "/layer: 5000 at position 2 stands there twice", set_at("layer", whole, [5000, 1, 5000]))
    damage(bad, "/layer: -1 at position 0; must be an index", set_at("layer", 0, -1))
    damage(bad, "/rank: 0 at position 1; must rise", set_at("rank", 1, 0), ranks=2)
    damage(bad, "/steps/id: falls from 3 to 2", set_at("steps/id", whole, [0, 1, 3, 2, 4]))
    damage(bad, "/steps/id: 1 at step positions 1 and 2", set_at("steps/id", whole, [0, 1, 1, 2, 3]))
    for micro in ([0, 0, 1, 0, 0], [0, 0, 0, 0, 0]):  # as many as there are steps, rising or not
        def numbered(h, micro=micro):
            h["steps/id"][...] = [0, 1, 1, 2, 3]
            h["steps/microbatch"] = np.array(micro, "i4")
        if micro[2]:
            damage("", "", numbered, code=0)
        else:
            damage(bad, "/steps/microbatch must tell the two apart", numbered)

    def phases(h):
        h["steps/id"][...] = [0, 1, 1, 2, 3]
        h["steps/phase"] = np.array([0, 0, 1, 0, 0], "u1")
    damage("", "", phases, code=0)
    damage(bad, "/steps/phase: 5 at step position 3", lambda h: h.__setitem__("steps/phase", np.array([0, 1, 4, 5, 0], "u1")))
    for name in ("tokens/expert_id", "counts/routed", "counts/by_rank"):
        damage(bad, f"/{name}: expert_axis is 'Physical'", lambda h: h[name].attrs.__setitem__("expert_axis", "Physical"), ranks=2)
        damage("", "", lambda h: h[name].attrs.__setitem__("expert_axis", "logical"), code=0, ranks=2)
    for name in ("tokens/source_rank", "rank", "model", "counts/routed", "steps/id", "tokens/weight"):
        damage(bad, f"/{name}: a soft or external link", linked(name), ranks=2, weights=True)
    for dtype, k in (("u1", 4), ("u2", 4), ("u1", 8), ("u2", 8), ("u2", 6), ("u1", 2)):
        how = dict(dtype=dtype, top_k=k, chunk=(128, 1, k))

        def twice(h):
            h["tokens/expert_id"][302, 1] = [1, *range(5, 3 + k), 1]
        damage(bad, "step 3, layer 1: token 1 chooses expert 1 twice", twice, **how)

        def none(h):  # a choice that is missing may be so twice
            top = np.iinfo(dtype).max
            h["tokens/expert_id"][302, 1] = [top] * k
            del h["counts"]
            h.attrs["content"] = "tokens"
        damage("", "", none, code=0, **how)
    damage(bad, "step 3, layer 1: /counts/routed is not what", set_at("counts/routed", (3, 1, 4), 0))

    def filtered(h):
        h["counts/routed"][3, 1] = 0
        h["counts/routed"].attrs["token_filter"] = "no padding"
    damage("", "", filtered, code=0)

    def flags(of_step):
        def change(h):
            h["tokens/flags"] = np.zeros(878, "u1")
            h["tokens/flags"][301:378] = of_step
        return change
    damage(bad, "/tokens/flags: all 77 tokens of step 3 are flagged", flags(1))
    damage(bad, "/tokens/flags: all 77 tokens of step 3 are flagged", flags([1, 2, 3, 5, 6, 7, 9] * 11))
    damage("", "", flags([0] + [1] * 76), code=0)
    damage("", "", flags(4), code=0)
    counted("counts/routed: expert 0 is chosen 301 times at step 0", set_at("counts/routed", (0, 2, 0), 301))
    counted("1500 choices at step 0, layer 2; must be at most 1200", set_at("counts/routed", (0, 2), [300] * 5 + [0] * 11))
    counted("/counts/by_rank sums to", set_at("counts/by_rank", (0, 0, 2, 3), 0))


def counted(message, change):
    """Counts alone: a slice reads all of them."""
    make(ranks=2)
    with h5py.File(PATH, "a") as h:
        del h["tokens"]
        h.attrs["content"] = "counts"
        change(h)
    out = os.path.join(SCRATCH, "slice.h5")
    code, _, error = run(SPILLWAY, "trace", "slice", PATH, out)
    check(code == 3 and message in error and error.count("\n") == 1 and not os.path.exists(out), f"wanted '{message}', got '{error}'")


def test_long_slice():
    """What travels along is copied in blocks: of steps that are longer than one, and of several runs."""
    make(experts=8, top_k=1, layers=2, tokens=(70000, 20, 140001), chunk=(8192, 2, 1), missing=False)
    with h5py.File(PATH, "a") as h:
        n = len(h["tokens/expert_id"])
        h["tokens/token_id"] = np.arange(n, dtype="i4")
        h["tokens/label"] = np.stack([np.arange(n) * 3, np.arange(n) * 5], axis=1)
    out = os.path.join(SCRATCH, "long.h5")
    for steps, rows in (("0:1", [(0, 70000)]), ("2:3", [(70020, 210021)]), ("0,2", [(0, 70000), (70020, 210021)])):
        code, _, error = run(SPILLWAY, "trace", "slice", PATH, out, "--steps", steps)
        check(code == 0, error)
        with h5py.File(PATH) as whole, h5py.File(out) as part:
            for name in ("tokens/token_id", "tokens/label", "tokens/expert_id"):
                want = np.concatenate([whole[name][a:b] for a, b in rows])
                check((part[name][:] == want).all(), f"{name} of steps {steps}")
        os.remove(out)


def planted(number, change, where=None, **kinds):
    make(missing=False, **{**dict(compression="gzip", shuffle=True), **kinds})
    with h5py.File(PATH, "a") as h:
        change(h)
    code, out, error = run(SPILLWAY, "trace", "verify", PATH, "--format", "json")
    rows = json.loads(out)
    failed = [r["check"] for r in rows if r["failed"] > 0]
    check(code == 1 and number in failed, f"check {number}: status {code}, failed {failed}, {error}")
    row = rows[number - 1]
    if where is not None:
        check((row["first_step"], row["first_layer"]) == where, f"check {number}: found at {row}, planted at {where}")


def test_planted():
    def count(h):
        h["counts/routed"][3, 1, 4] += 1

    def moved(h):
        h["counts/routed"][4, 2, 4] += 1
        h["counts/routed"][4, 2, 5] -= 1

    def of_rank(h):
        h["counts/by_rank"][4, 0, 2, 4] += 1
        h["counts/by_rank"][4, 1, 2, 4] -= 1

    def twice(h):
        h["tokens/expert_id"][302, 1] = [1, 2, 3, 1]

    def out_of_range(h):
        h["tokens/expert_id"][302, 1, 2] = 99

    def too_many(h):
        del h["tokens"]
        h.attrs["content"] = "counts"
        h["counts/routed"][0, 2] = [1200] + [0] * 15

    def copied(h):
        h["tokens/expert_id"][:, 2] = h["tokens/expert_id"][:, 0]

    def dummy(h):
        for i in range(400, 700):
            h["tokens/expert_id"][i, 1] = np.roll([3, 1, 2, 9], i)

    def dense(h):
        h["tokens/expert_id"][:, 2] = [0, 255, 255, 255]

    planted(1, count, (3, 1))
    planted(1, moved, (4, 2))
    planted(1, of_rank, (4, 2), ranks=2)
    planted(2, twice, (3, 1))
    planted(2, out_of_range, (3, 1))
    planted(4, too_many, (0, 2))
    planted(5, copied, (0, 2))
    planted(6, dummy, (4, 1))
    planted(7, dense, (None, 2))


def generate(*options):
    code, _, error = run(SPILLWAY, "trace", "generate", PATH, *options)
    check(code == 0, error)
    return h5py.File(PATH, "r")


def capped(p, total):
    """min(1, c p), sum total: bisection, not the generator's way."""
    low, high = 0.0, 1e9
    for _ in range(200):
        c = (low + high) / 2
        low, high = (c, high) if np.minimum(1, c * p).sum() < total else (low, c)
    return np.minimum(1, low * p)


def touched(ids, local):
    ranks = np.sort(ids // local, axis=1)
    return 1 + (np.diff(ranks, axis=1) != 0).sum(1).mean()


def test_generator():
    common = ("--experts", "256", "--top-k", "8", "--layers", "2", "--ranks", "8", "--tokens-per-rank", "2048", "--seed", "5")
    n = 8 * 2048
    for options in ("uniform", "group-limited", "zipf:exponent=0.8"):
        with generate("--distribution", options, *common) as h:
            ids = h["tokens/expert_id"][:].astype(int)
            routed = h["counts/routed"][0]
            by_rank = h["counts/by_rank"][0]
            check((np.diff(np.sort(ids, axis=2), axis=2) > 0).all(), f"{options}: a token's experts differ")
            for l in range(2):
                check((np.bincount(ids[:, l].ravel(), minlength=256) == routed[l]).all(), f"{options}: counts")
            check((by_rank.sum(0) == routed).all() and (h["tokens/source_rank"][:] == np.repeat(np.arange(8), 2048)).all(), options)
            want = capped(np.arange(1, 257) ** -0.8, 8) if options.startswith("zipf") else np.full(256, 8 / 256)
            got = np.sort(routed[0])[::-1] if options.startswith("zipf") else routed[0]
            spread = n * want * (1 - want)
            keep = spread > 0
            chi = ((got - n * want)[keep] ** 2 / spread[keep]).sum()
            # sorting pulls neighbours together, so that only too much is an error there
            check(chi < 256 + 6 * np.sqrt(2 * 256), f"{options}: chi-square {chi:.0f} of 256")
            if options == "uniform":
                check(chi > 256 - 6 * np.sqrt(2 * 256), f"{options}: chi-square {chi:.0f}, too even")
                check(abs(touched(ids[:, 0], 32) - 5.295) < 0.03, "distinct ranks, uniform")
            if options == "group-limited":
                check(abs(touched(ids[:, 0], 32) - 3.629) < 0.03, "distinct ranks, 4 of 8 groups")
    with generate("--distribution", "hot-rank:share=0.4,rank=3,ranks=8", *common) as h:
        share = h["counts/routed"][0].reshape(2, 8, 32).sum(2)[:, 3] / (8 * n)
        check((abs(share - 0.4) < 0.005).all(), f"hot rank {share}")
    with generate("--distribution", "collapse:peak=3,rise=2,recovery=2", "--steps", "8", "--counts-only", *common) as h:
        routed = h["counts/routed"][:, 0].astype(float)
        worst = routed.max(1) / routed.mean(1)
        check(worst[0] < 1.3 and worst[2] > 8 and worst[7] < worst[3] and "tokens" not in h, f"collapse {worst}")
    with generate("--distribution", "drift:drift=0.3", "--steps", "6", "--counts-only", *common) as h:
        routed = h["counts/routed"][:, 0].astype(float)
        near, far = np.corrcoef(routed[0], routed[1])[0, 1], np.corrcoef(routed[0], routed[5])[0, 1]
        check(0.5 < near < 0.999 and far < near, f"drift {near} {far}")


def test_tools():
    try:
        import xarray
    except ImportError:
        return
    generate("--experts", "8", "--top-k", "2", "--layers", "2", "--ranks", "2", "--tokens-per-rank", "8", "--steps", "3").close()
    try:
        counts = xarray.open_dataset(PATH, group="counts", engine="h5netcdf", phony_dims="sort")
    except (ImportError, ValueError) as error:
        if "engine" in str(error) or isinstance(error, ImportError):
            return
        raise
    check(dict(counts["by_rank"].sizes) == dict(step=3, rank=2, layer=2, expert=8), "names of the axes")
    check(int(counts["routed"].sum()) == 3 * 16 * 2 * 2, "sum of the counts")


shutil.rmtree(SCRATCH, ignore_errors=True)
os.makedirs(SCRATCH)
for test in (test_layouts, test_unwritten_chunks, test_damage, test_contradictions, test_planted, test_long_slice, test_generator, test_tools):
    test()
shutil.rmtree(SCRATCH)
print(f"{checks} checks")
sys.exit(0 if checks > 0 else 1)
