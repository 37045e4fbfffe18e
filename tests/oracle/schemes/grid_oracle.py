#!/usr/bin/env python3
"""Jobs under tensor, context, expert-tensor, expert, data and pipeline parallelism against a brute force over tokens, written
from docs/schemes.md, section 5.10: which tokens every GPU routes, rows, bytes and drops of every GPU, parameters, gradients and
optimizer of every GPU; random grids, each with the trace by GPU and by data-parallel rank. The layers of the trace by GPU are
executed too, and must come to the same rows, bytes and drops.

grid_oracle.py SPILLWAY SCRATCH ROOT [--cases N]"""
import json
import pathlib
import sys

import h5py
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_run import Oracle
from replay_case import CLUSTER, Tokens

program, scratch, root = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
cases = int(sys.argv[sys.argv.index("--cases") + 1]) if "--cases" in sys.argv else 50
scratch = scratch / "grid_oracle"
scratch.mkdir(parents=True, exist_ok=True)
oracle = Oracle(str(program), "grid_oracle")


def divisors(n):
    return [d for d in range(1, n + 1) if n % d == 0]


class Grid:
    """A random split of 2 to 32 GPUs a stage, and shapes that it divides."""

    def __init__(self, rng):
        pick = lambda values: int(rng.choice(values))
        self.stage = pick([2, 4, 6, 8, 12, 16, 24, 32])
        self.TP = pick([d for d in divisors(self.stage) if d <= 8])
        self.CP = pick([d for d in divisors(self.stage // self.TP) if d <= 4])
        self.DP = self.stage // self.TP // self.CP
        self.ETP = pick([d for d in divisors(self.stage) if d <= 4]) if EXPERT_TENSOR else 1
        self.EP = pick([d for d in divisors(self.stage // self.ETP) if d <= 16])
        self.EDP = self.stage // self.ETP // self.EP
        self.E = self.EP * pick([1, 2, 3, 4])
        self.K = pick(range(1, min(4, self.E) + 1))
        self.p = pick([1, 2, 3])
        self.S = 2 * self.CP * self.TP * pick([1, 2, 3, 5])
        self.heads = 8 * 3
        self.kv = pick([k for k in divisors(self.heads) if (k % self.TP == 0 or self.TP % k == 0) and 2 * k * 4 % self.TP == 0])
        self.H, self.F = 8 * pick([2, 3, 4]), self.ETP * pick([4, 6, 10])
        self.shared, self.dense_layers = pick([0, 1]), pick([0, 1])
        if self.shared or self.dense_layers:
            self.kv = self.heads  # MLA
        self.layers, self.node = self.dense_layers + pick([1, 2]), pick([n for n in divisors(self.stage) if n <= 8])

    def tokens(self, gpu):
        """Rows [sequence][token] of the data-parallel rank that GPU `gpu` of a stage routes, in its order: context ranks
        take one piece from the front and one from the back, tensor ranks cut what the context rank has."""
        t, c, d = gpu % self.TP, gpu // self.TP % self.CP, gpu // self.TP // self.CP
        pieces = np.array_split(np.arange(self.S), 2 * self.CP)
        mine = np.concatenate([pieces[c], pieces[2 * self.CP - 1 - c]]) if self.CP > 1 else np.arange(self.S)
        return d, np.array_split(mine, self.TP)[t]

    def write(self, name, schemes, optimizer="distributed"):
        model = dict(model_type="deepseek_v2" if self.shared or self.dense_layers else "generic", num_hidden_layers=self.layers,
                     hidden_size=self.H, vocab_size=96, num_attention_heads=self.heads, num_key_value_heads=self.kv, head_dim=4,
                     num_experts=self.E, num_experts_per_tok=self.K, moe_intermediate_size=self.F)
        if self.shared or self.dense_layers:
            for key in ("num_experts", "head_dim"):
                del model[key]
            model.update(n_routed_experts=self.E, n_shared_experts=self.shared * 24, intermediate_size=48, kv_lora_rank=6,
                         q_lora_rank=10, qk_nope_head_dim=4, qk_rope_head_dim=2, v_head_dim=4,
                         first_k_dense_replace=self.dense_layers, tie_word_embeddings=False, topk_method="greedy")
        (scratch / f"{name}.json").write_text(json.dumps(model))
        (scratch / f"{name}_cluster.yaml").write_text(CLUSTER.format(name="c", nodes=self.stage // self.node,
                                                                     gpus_per_node=self.node))
        job = scratch / f"{name}.yaml"
        job.write_text(f"model: ./{name}.json\ncluster: ./{name}_cluster.yaml\n"
                       f"library_limits: ignore\nparallel: {{expert: {self.EP}, fsdp: {self.EDP}, tensor: {self.TP}, context: {self.CP}, "
                       f"expert_tensor: {self.ETP}, data: {self.DP}}}\n"
                       f"batch: {{sequences_per_gpu: {self.p}, sequence_length: {self.S}}}\n"
                       "precision: {weights: bf16, gradients: fp32, optimizer: fp32, activations: bf16}\n"
                       f"optimizer: {optimizer}\nschemes:\n" + "".join(f"- \"{s}\"\n" for s in schemes))
        return job


EXPERT_TENSOR = True


def kept_of(grid, ids, weights, scheme):
    """1 where a choice of one GPU's tokens is kept: C slots an expert and GPU."""
    kept = np.ones(ids.shape, bool)
    option = dict(o.split("=") for o in scheme.partition(":")[2].split(",") if o)
    if "capacity_factor" not in option:
        return kept
    capacity = int(np.ceil(len(ids) * grid.K / grid.E * float(option["capacity_factor"])))
    if capacity > len(ids):
        return kept
    for x in range(grid.E):
        at = [(t, k) for t in range(len(ids)) for k in range(grid.K) if ids[t, k] == x]
        if option.get("policy", "probs") == "probs":
            at.sort(key=lambda c: (-weights[c], c[0]))
        for place in at[capacity:]:
            kept[place] = False
    return kept


def wanted(grid, ids, weights, scheme, row_bytes):
    """ids [DP][sequence][token][K]. Per GPU of a stage: rows, bytes sent and received in one dispatch, dropped. GPU g of the
    experts' grid is (j, i, group), j fastest: it sends to GPUs of the same j, and what arrived goes on to the ETP - 1 others."""
    R, e = grid.EP * grid.ETP, grid.E // grid.EP
    out = {k: np.zeros(grid.stage, np.int64) for k in ("rows_received", "bytes_sent", "bytes_received", "dropped")}
    arrived, travel = np.zeros(grid.stage, np.int64), np.zeros(2)
    for g in range(grid.stage):
        d, at = grid.tokens(g)
        mine = ids[d][:, at].reshape(-1, grid.K)
        kept = kept_of(grid, mine, weights[d][:, at].reshape(-1, grid.K), scheme)
        out["dropped"][g] = (~kept).sum()
        for x in mine[kept]:
            to = g // R * R + x // e * grid.ETP + g % grid.ETP
            arrived[to] += 1
            if to != g:
                travel[0] += 1
                out["bytes_sent"][g] += row_bytes
                out["bytes_received"][to] += row_bytes
    for g in range(grid.stage):
        peers = [g // grid.ETP * grid.ETP + j for j in range(grid.ETP)]
        out["rows_received"][g] = arrived[peers].sum()
        travel[1] += (grid.ETP - 1) * arrived[g]
        out["bytes_sent"][g] += (grid.ETP - 1) * arrived[g] * row_bytes
        out["bytes_received"][g] += sum(arrived[q] for q in peers if q != g) * row_bytes
    out["travel"] = travel
    return out


def check_traffic(what, traffic, rows, layers, H):
    """rows: sent by all-to-all and gathered, a GPU. Forward, again, backward: router weights of 4 B go with the rows to the
    experts; what goes back is summed in fp32."""
    to, back, summed = 2 * H + 4, 2 * H, 4 * H
    want = {"dispatch_bytes_per_gpu": rows.sum() * to / layers, "combine_bytes_per_gpu": (rows[0] * back + rows[1] * summed) / layers,
            "step_bytes_per_gpu": 3 * (rows[0] * (to + back) + rows[1] * (to + summed))}
    for key, value in want.items():
        oracle.check(abs(traffic[key] - value) <= 1e-9 * max(value, 1), f"{what} {key}: {traffic[key]} for {value}")


EXECUTED_HIDDEN = 8  # of `verify`, for a trace that names no model


def check_executed(grid, path, schemes, ids, weights):
    """The layers of every group executed, rank by rank: all that is compared agrees, and sums are the brute force's."""
    schemes = [s for s in schemes if "alltoall" in s]
    arguments = [a for s in schemes for a in ("--scheme", s)]
    done = oracle.must("verify", "--trace", path, "--expert-parallel", grid.EP, "--expert-tensor", grid.ETP, "--all-groups",
                       *arguments, "--format", "json")
    H = EXECUTED_HIDDEN
    for row, scheme in zip(json.loads(done), schemes):
        what, want, travel = f"executed {vars(grid)} {scheme}", dict(rows_executed=0, dropped_executed=0), np.zeros(2)
        for layer in range(len(ids)):
            one = wanted(grid, ids[layer], weights[layer], scheme, 1)
            want["rows_executed"] += one["rows_received"].sum()
            want["dropped_executed"] += one["dropped"].sum()
            travel += one["travel"]
        want["bytes_executed"] = 3 * (travel[0] * (4 * H + 4) + travel[1] * (6 * H + 4))
        oracle.check(row["comparisons"] == row["agreed"] > 0, f"{what}: {row}")
        for key, value in want.items():
            oracle.check(row[key] == value, f"{what} {key}: {row[key]} for {value}")


def check_rows(grid, name, rng):
    L = grid.layers - grid.dense_layers
    ids = np.argsort(rng.gumbel(size=(L, grid.DP, grid.p, grid.S, grid.E)) + 2 * rng.normal(size=grid.E), axis=-1)[..., -grid.K:]
    weights = rng.permutation(2 * ids.size)[:ids.size].reshape(ids.shape) % 997 / 1024 + 2**-10
    weights = weights.astype(np.float16).astype(np.float64)
    schemes = ["megatron-alltoall", "megatron-alltoall:capacity_factor=0.6,policy=position", "megatron-alltoall:capacity_factor=0.8"]
    if grid.ETP == 1:
        schemes += ["megatron-flex", "megatron-allgather"]  # of these rows and drops
        if grid.EP % grid.node == 0 or grid.node % grid.EP == 0:
            schemes += [f"megatron-syncfree:rank_capacity={grid.E}"]
    job = grid.write(name, schemes)
    position = np.tile(np.arange(grid.S), grid.DP * grid.p)
    by_data = Tokens(np.moveaxis(ids, 0, 3).reshape(-1, L, grid.K).astype(np.uint8), [grid.DP * grid.p * grid.S], grid.E, grid.DP,
                     np.repeat(np.arange(grid.DP), grid.p * grid.S), np.tile(np.repeat(np.arange(grid.p), grid.S), grid.DP),
                     position, weight=np.moveaxis(weights, 0, 3).reshape(-1, L, grid.K))
    rows = [(g, q, s) for g in range(grid.stage) for q in range(grid.p) for s in range(grid.S // (grid.TP * grid.CP))]
    pick = [np.stack([ids[:, d, q, at[s]] for g, q, s in rows for d, at in [grid.tokens(g)]]),
            np.stack([weights[:, d, q, at[s]] for g, q, s in rows for d, at in [grid.tokens(g)]])]
    by_gpu = Tokens(pick[0].astype(np.uint8), [len(rows)], grid.E, grid.stage, np.array([g for g, _, _ in rows]),
                    np.array([q for _, q, _ in rows]), np.array([s for _, _, s in rows]), weight=pick[1])
    for kind, trace in (("data", by_data), ("gpu", by_gpu)):
        path, out = scratch / f"{name}_{kind}.h5", scratch / f"{name}_{kind}_out.h5"
        trace.write(path)
        result = json.loads(oracle.must("replay", path, "--job", job, "--format", "json", "--output", out))
        with h5py.File(out) as f:
            for i, scheme in enumerate(schemes):
                what = f"{name} {kind} {vars(grid)} {scheme}"
                row = result["rows"][i]
                oracle.check(row["evidence"] in ("exact", "folded"), f"{what}: {row['evidence']}")
                row_bytes, travel = grid.H * 2 + 4, np.zeros(2)
                for layer in range(L):
                    want = wanted(grid, ids[layer], weights[layer], scheme, row_bytes)
                    travel += want.pop("travel")
                    for field in want:
                        got = f[field][i, 0, layer]
                        if "alltoall" not in scheme and field.startswith("bytes"):
                            continue
                        oracle.check(np.array_equal(got, want[field]), f"{what} layer {layer} {field}: {got} for {want[field]}")
                if "alltoall" in scheme:
                    check_traffic(what, row["traffic"], travel / grid.stage, L, grid.H)
    check_executed(grid, path, schemes, ids, weights)


def parameters(grid):
    """Of one GPU: routed, of the tensor-parallel rest, replicated; matrix by matrix."""
    H, heads, moe = grid.H, grid.heads, grid.layers - grid.dense_layers
    if grid.shared or grid.dense_layers:
        q, kv, v = heads * 6, heads * 8, heads * 4
        cut = [10 * q, 6 * kv, v * H]
        whole = [H * 10, 10, H * (6 + 2), 6]
    else:
        cut, whole = [H * heads * 4, 2 * H * grid.kv * 4, heads * 4 * H], []
    sharded = sum(x / grid.TP for x in cut) * grid.layers + moe * grid.shared * 3 * H * 24 * grid.F / grid.TP
    sharded += grid.dense_layers * 3 * H * 48 / grid.TP + 2 * 96 * H / grid.TP
    replicated = (sum(whole) + 2 * H) * grid.layers + moe * grid.E * H + H
    routed = moe * grid.E / grid.EP * 3 * H * grid.F / grid.ETP
    return routed, sharded + replicated, replicated


def attention(grid, tokens):
    """Bytes that a GPU keeps of one block of attention, tensor by tensor: of its T tokens the block's input, normed, and two of
    the norms around; of all tokens of the tensor group its own heads of rotated queries and keys and of the output, and the
    product in which its values lie: its part, or, where GPUs share a key and value head, the whole; and
    1 / rms of its T tokens in two norms."""
    own, kv_own, d = grid.heads // grid.TP, max(grid.kv // grid.TP, 1), 4
    product = (grid.heads + 2 * grid.kv) * d // (1 if grid.kv < grid.TP else grid.TP)
    return 3 * tokens // grid.TP * grid.H * 2 + tokens * ((2 * own * d + kv_own * d + product) * 2 + 4 * own) + 8 * tokens // grid.TP


def check_state(grid, name):
    routed, rest, _ = parameters(grid)
    for optimizer, experts, others in (("distributed", grid.EDP, grid.DP * grid.CP), ("replicated", 1, 1)):
        job = grid.write(name, ["megatron-alltoall"], optimizer)
        want = {"weights": 2 * (routed + rest), "gradients": 4 * (routed + rest),
                "optimizer": 8 * (routed / experts + rest / others), "master_weights": 4 * (routed / experts + rest / others)}
        got = {row["component"]: row["bytes"] for row in json.loads(oracle.must("explain", "--job", job, "--format", "json"))}
        T = grid.p * grid.S // (grid.TP * grid.CP)
        want.update(carries=grid.layers * T * grid.H * 2, logits=(2 + 4) * T * 96)
        if grid.TP > 1:
            want["gathered_sequence"] = 2 * grid.TP * T * grid.H * 2
        if not (grid.shared or grid.dense_layers):
            want["attention"] = attention(grid, grid.TP * T)
        oracle.check(("gathered_sequence" in got) == (grid.TP > 1), f"{name}: gathered_sequence with tensor {grid.TP}")
        for part, value in want.items():
            oracle.check(abs(got[part] - value) <= 1, f"{name} {vars(grid)} {optimizer} {part}: {got[part]} for {value}")
        kept = {row["component"]: row["bytes"]
                for row in json.loads(oracle.must("explain", "--job", job, "--remat", "none", "--format", "json"))}
        value = grid.layers * kept["attention"] + (grid.layers - grid.dense_layers) * kept.get("shared_expert", 0)
        value += grid.dense_layers * 0.75 * kept.get("dense_ffn", 0)
        oracle.check(abs(kept["saved_activations"] - value) <= 1, f"{name} {vars(grid)}: {kept['saved_activations']} for {value}")


def check_collectives(grid, name):
    """Bytes out of one GPU in one step, remat full, by purpose: every tensor counted by pencil and paper."""
    routed, rest, whole = parameters(grid)
    T, TP, CP, replicas = grid.p * grid.S // (grid.TP * grid.CP), grid.TP, grid.CP, grid.DP * grid.CP
    moe, share = grid.layers - grid.dense_layers, (TP - 1) / TP
    if grid.shared or grid.dense_layers:  # MLA: latents go in, gathered forward, again, for the weights; scattered once
        attention, ring = 4 * (10 + 6) + 3 * 2 + 3 * grid.H, grid.heads * (4 + 2 + 4)
    else:
        attention, ring = 7 * grid.H, 2 * max(grid.kv, grid.TP) * 4
        if grid.kv < grid.TP:  # queries, keys and values are gathered, again, and their gradient is scattered
            attention += 3 * (grid.heads + 2 * grid.kv) * 4
    ffn = 7 * grid.H * (moe * (grid.shared > 0) + grid.dense_layers)
    sequence = (attention * grid.layers + ffn + 5 * grid.H) * TP * T * 2
    want = {"expert_weights": (grid.EDP - 1) / grid.EDP * 6 * routed, "other_weights": (replicas - 1) / replicas * 6 * rest,
            "tensor_parallel": share * (sequence + 2 * 3 * TP * T * 4 + 2 * 4 * whole),
            "context_parallel": (CP - 1) * 4 * T * ring * 2 * grid.layers}
    job, got = grid.write(name, ["megatron-alltoall"]), dict.fromkeys(want, 0.0)
    for row in json.loads(oracle.must("explain", "--traffic", "--job", job, "--format", "json")):
        got[row["purpose"]] = got.get(row["purpose"], 0.0) + row["step_bytes"]
    for purpose, value in want.items():
        oracle.check(abs(got[purpose] - value) <= 1e-9 * value + 1, f"{name} {vars(grid)} {purpose}: {got[purpose]} for {value}")


def check_refusals(trace):
    """What cannot be, or is not modelled, says so."""
    for arguments, word in ((["--scheme", "gmm"], "share experts"), (["--expert-parallel", 1, "--scheme", "megatron-alltoall"], "its"),
                            (["--expert-tensor", 2, "--scheme", "megatron-alltoall:align=16"], "rows that experts pad")):
        sharers = [] if "--expert-tensor" in arguments else ["--expert-tensor", 7]
        done = oracle.call("verify", "--trace", trace, *sharers, *arguments)
        oracle.check(done.returncode != 0 and word in done.stderr, f"{arguments}: {done.stderr}")
    grid = Grid(np.random.default_rng(5))
    for key, value, word in (("data", grid.DP + 1, "data"), ("tensor", 7 * grid.stage, "does not divide"),
                             ("sequence_parallel", "false", "sequence_parallel: true"),):
        grid.TP, grid.CP, grid.DP = (2 if grid.stage % 2 == 0 else grid.stage), 1, grid.stage // 2
        job = grid.write("refused", ["megatron-alltoall"])
        done = oracle.call("explain", "--job", job, "--set", f"parallel.{key}={value}")
        oracle.check(done.returncode != 0 and word in done.stderr, f"{key}={value}: {done.stderr}")
    grid.S, grid.shared, grid.dense_layers, grid.heads = 2 * grid.TP * 3, 0, 0, 12 * grid.TP
    for grid.TP, grid.kv, arguments, word in ((4, 3, [], "demands one of both"), (2, 1, ["--set", "attention=unfused"], "of a shared head"),
                                              (2, 1, ["--set", "optimizer_algorithm=muon"], "a part of a head")):
        grid.DP = grid.stage // grid.TP
        done = oracle.call("explain", "--job", grid.write("refused", ["megatron-alltoall"]), *arguments)
        oracle.check(done.returncode != 0 and word in done.stderr, f"{grid.kv} heads {arguments}: {done.stderr}")
    grid.kv = grid.heads
    job = grid.write("refused", ["megatron-alltoall"])
    for arguments, word in ((["--scheme", "gmm"], "Megatron-Core's dispatchers"), (["--optimizer", "sharded"], "distributed or replicated"),
                            (["--set", f"batch.sequence_length={grid.S + 1}"], "use a multiple of")):
        done = oracle.call("explain", "--job", job, *arguments)
        oracle.check(done.returncode != 0 and word in done.stderr, f"{arguments}: {done.stderr}")


def check_unsaid_group():
    """Without --expert-parallel it is the most that divides experts, and with the sharers of one the ranks of the trace."""
    trace = scratch / "eight.h5"
    oracle.must("trace", "generate", trace, "--experts", 16, "--top-k", 2, "--layers", 1, "--steps", 1, "--ranks", 8, "--tokens-per-rank", 8)
    for sharers in (1, 2, 4):
        words = ("verify", "--trace", trace, "--expert-tensor", sharers, "--scheme", "megatron-alltoall", "--format", "json")
        said = oracle.must(*words, "--expert-parallel", 8 // sharers)
        oracle.check(oracle.must(*words) == said, f"expert-tensor {sharers} alone is not as with expert-parallel {8 // sharers}")


for seed in range(cases):
    generator = np.random.default_rng(seed)
    one = Grid(generator)
    check_rows(one, f"case{seed}", generator)
    check_state(one, f"case{seed}")
    check_collectives(one, f"case{seed}")
check_refusals(scratch / "case0_gpu.h5")
check_unsaid_group()
oracle.finish(least=10 * cases)
