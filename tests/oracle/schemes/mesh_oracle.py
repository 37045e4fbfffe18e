#!/usr/bin/env python3
"""Jobs on MaxText's mesh with axes tensor and context against a brute force over tokens, written from docs/schemes.md, section
2.8, and docs/step_traffic.md: which tokens every rank routes, rows, bytes and drops, the bytes of every exchange, state, the
largest live set of a layer, and the collectives of a step. Random meshes, each with the trace by data-parallel rank and by rank.

mesh_oracle.py SPILLWAY SCRATCH [--cases N]"""
import json
import pathlib
import sys

import h5py
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))  # what rooms share
from oracle_run import Oracle
from replay_case import CLUSTER, Tokens

program, scratch = (pathlib.Path(a).resolve() for a in sys.argv[1:3])
cases = int(sys.argv[sys.argv.index("--cases") + 1]) if "--cases" in sys.argv else 30
scratch = scratch / "mesh_oracle"
scratch.mkdir(parents=True, exist_ok=True)
oracle = Oracle(str(program), "mesh_oracle")
SCHEMES = ["gmm", "gmm:buffer_factor=1.25", "ring", "ring:buffer_factor=1.25", "ragged:buffer_factor=1.5", "ragged-ring",
           "dense:capacity_factor=1.25", "dense:capacity_factor=0.6"]
HEADS, WIDTH, WORDS = 8, 4, 96


class Mesh:
    """fsdp x context x tensor x expert GPUs, expert the fastest; the job's fsdp counts those of context."""

    def __init__(self, rng):
        pick = lambda values: int(rng.choice(values))
        self.TP, self.CP = [(2, 1), (4, 1), (8, 1), (1, 2), (1, 4), (2, 2), (4, 2)][pick(range(7))]
        self.R, self.fsdp = pick([2, 4]), pick([1, 2, 3])
        self.ranks = self.fsdp * self.CP * self.R  # with tokens of their own
        self.gpus, self.DP = self.ranks * self.TP, self.fsdp * self.R
        self.E = self.R * pick([1, 2, 3])
        self.K = pick(range(1, min(4, self.E) + 1))
        self.p, self.S = pick([1, 2]), 2 * self.CP * pick([2, 3, 5])
        self.H, self.F = 8 * pick([2, 3, 4]), 8 * pick([1, 2, 3])
        self.mla = pick([0, 1])
        self.shared, self.dense = pick([0, 1]) * self.mla, pick([0, 1]) * self.mla
        self.layers = self.dense + pick([1, 2])
        self.T = self.p * self.S // self.CP

    def tokens(self, rank):
        """(data-parallel rank, places in the sequence) of what a rank routes: context rank c has pieces c and 2 CP - 1 - c."""
        r, c, f = rank % self.R, rank // self.R % self.CP, rank // self.R // self.CP
        pieces = np.array_split(np.arange(self.S), 2 * self.CP)
        return f * self.R + r, np.concatenate([pieces[c], pieces[2 * self.CP - 1 - c]]) if self.CP > 1 else np.arange(self.S)

    def write(self, name):
        model = dict(num_hidden_layers=self.layers, hidden_size=self.H, vocab_size=WORDS, num_attention_heads=HEADS,
                     num_key_value_heads=HEADS, num_experts_per_tok=self.K, moe_intermediate_size=self.F)
        if self.mla:
            model.update(model_type="deepseek_v2", n_routed_experts=self.E, n_shared_experts=self.shared, intermediate_size=48,
                         kv_lora_rank=6, q_lora_rank=10, qk_nope_head_dim=4, qk_rope_head_dim=2, v_head_dim=4,
                         first_k_dense_replace=self.dense, tie_word_embeddings=False, topk_method="greedy")
        else:
            model.update(model_type="generic", num_experts=self.E, head_dim=WIDTH)
        (scratch / f"{name}.json").write_text(json.dumps(model))
        (scratch / f"{name}_cluster.yaml").write_text(CLUSTER.format(name="c", nodes=self.gpus // self.R, gpus_per_node=self.R))
        job = scratch / f"{name}.yaml"
        job.write_text(f"model: ./{name}.json\ncluster: ./{name}_cluster.yaml\n"
                       f"library_limits: ignore\nparallel: {{expert: {self.R}, fsdp: {self.fsdp * self.CP}, tensor: {self.TP}, context: {self.CP}}}\n"
                       f"batch: {{sequences_per_gpu: {self.p}, sequence_length: {self.S}}}\n"
                       "precision: {weights: bf16, gradients: fp32, optimizer: fp32, activations: bf16}\nschemes:\n"
                       + "".join(f"- \"{s}\"\n" for s in self.schemes()))
        return job

    def schemes(self):
        return [s for s in SCHEMES if self.TP == 1 or self.CP == 1 or "dense" not in s]

    def capacity(self, scheme):
        factor = float(scheme.partition("=")[2])
        return int(max(-(-self.S * self.K // self.E) * factor, factor))

    def buffer(self, scheme):
        if "dense" in scheme:
            return self.p * self.E * self.capacity(scheme)
        factor = float(scheme.partition("=")[2] or 0)
        worst = self.R * self.T * (self.K if "ring" in scheme else min(self.K, self.E // self.R))
        return min(int(self.T * self.K * factor), worst) if factor and "ring" in scheme else int(self.T * self.K * factor) or worst


def wanted(mesh, ids, scheme):
    """ids [DP][sequence][token][K]. Per rank: rows held, rows sent to and received from others, dropped."""
    R, e, buffer = mesh.R, mesh.E // mesh.R, mesh.buffer(scheme)
    out = {k: np.zeros(mesh.ranks, np.int64) for k in ("rows_received", "sent", "received", "dropped")}
    for first in range(0, mesh.ranks, R):
        arrivals = [[] for _ in range(R)]  # (source, expert, position) of every choice, a destination
        for r in range(R):
            d, at = mesh.tokens(first + r)
            mine = ids[d][:, at].reshape(-1, mesh.K)
            for t, row in enumerate(mine):
                for x in row:
                    arrivals[x // e].append((r, int(x), t))
        for to, rows in enumerate(arrivals):
            rows.sort(key=(lambda c: (c[1], c[0], c[2])) if "ring" in scheme else None)
            for r, _, _ in rows[buffer:]:
                out["dropped"][first + r] += 1
            out["rows_received"][first + to] = min(len(rows), buffer)
            for r, _, _ in rows[:buffer]:
                if r != to and "ring" not in scheme:
                    out["sent"][first + r] += 1
                    out["received"][first + to] += 1
    if "ring" in scheme:
        out["sent"][:] = out["received"][:] = (R - 1) * mesh.T
    return out


def wanted_slots(mesh, ids, scheme):
    """The same with a capacity: of every sequence, in the order in which its GPUs have the tokens, an expert keeps the first C."""
    C, slots = mesh.capacity(scheme), mesh.p * mesh.E // mesh.R * mesh.capacity(scheme)
    each = {"rows_received": slots * mesh.R, "sent": slots * (mesh.R - 1), "received": slots * (mesh.R - 1), "dropped": 0}
    out = {k: np.full(mesh.ranks, v, np.int64) for k, v in each.items()}
    taken = {}
    for c in range(mesh.CP):
        for f in range(mesh.fsdp):
            for r in range(mesh.R):
                rank = (f * mesh.CP + c) * mesh.R + r
                d, at = mesh.tokens(rank)
                for q in range(mesh.p):
                    for x in ids[d][q, at].ravel():
                        taken[d, q, x] = taken.get((d, q, x), 0) + 1
                        out["dropped"][rank] += taken[d, q, x] > C
    return out


def check_rows(mesh, name, rng):
    L = mesh.layers - mesh.dense
    ids = np.argsort(rng.gumbel(size=(L, mesh.DP, mesh.p, mesh.S, mesh.E)) + 2 * rng.normal(size=mesh.E), axis=-1)[..., -mesh.K:]
    job, length = mesh.write(name), mesh.S // mesh.CP
    places = [(g, q, s) for g in range(mesh.ranks) for q in range(mesh.p) for s in range(length)]
    by_rank = np.stack([ids[:, d, q, at[s]] for g, q, s in places for d, at in [mesh.tokens(g)]])
    traces = {"data": Tokens(np.moveaxis(ids, 0, 3).reshape(-1, L, mesh.K).astype(np.uint8), [mesh.DP * mesh.p * mesh.S], mesh.E,
                             mesh.DP, np.repeat(np.arange(mesh.DP), mesh.p * mesh.S),
                             np.tile(np.repeat(np.arange(mesh.p), mesh.S), mesh.DP), np.tile(np.arange(mesh.S), mesh.DP * mesh.p)),
              "rank": Tokens(by_rank.astype(np.uint8), [len(places)], mesh.E, mesh.ranks, np.array([g for g, _, _ in places]),
                             np.array([q for _, q, _ in places]), np.array([s for _, _, s in places]))}
    for kind, trace in traces.items():
        path, out = scratch / f"{name}_{kind}.h5", scratch / f"{name}_{kind}_out.h5"
        trace.write(path)
        result = json.loads(oracle.must("replay", path, "--job", job, "--stack", "none", "--format", "json", "--output", out))
        with h5py.File(out) as f:
            for i, scheme in enumerate(mesh.schemes()):
                what, row, rows = f"{name} {kind} {vars(mesh)} {scheme}", result["rows"][i], 0
                oracle.check(row["evidence"] == ("folded" if mesh.dense else "exact"), f"{what}: {row['evidence']}")
                slots = "dense" in scheme
                whole, part, first = 2 * mesh.H, 2 * mesh.H // mesh.TP, 2 * mesh.H + ("ring" in scheme) * 8 * mesh.E
                first = part if slots else first
                for layer in range(L):
                    want = (wanted_slots if slots else wanted)(mesh, ids[layer], scheme)
                    rows += want["sent"].sum()
                    want["bytes_sent"], want["bytes_received"] = want.pop("sent") * first, want.pop("received") * first
                    for field in want:
                        got = f[field][i, 0, layer]
                        oracle.check(np.array_equal(got, want[field]), f"{what} layer {layer} {field}: {got} for {want[field]}")
                step = 2 * first + 2 * part + whole + 4 * mesh.E if "ring" in scheme else 3 * whole + 3 * part
                step = 6 * part if slots else step
                sums = {"dispatch_bytes_per_gpu": rows * first / L, "combine_bytes_per_gpu": rows * part / L,
                        "step_bytes_per_gpu": rows * step}
                for key, value in sums.items():
                    got, value = row["traffic"][key], value / mesh.ranks
                    oracle.check(abs(got - value) <= 1e-9 * max(value, 1), f"{what} {key}: {got} for {value}")


def parameters(mesh):
    """Of one GPU before fsdp: routed, the rest that tensor cuts, what it leaves whole; a layer's of the last two by kind."""
    H, TP = mesh.H, mesh.TP
    if mesh.mla:
        attention, low = 10 * HEADS * 6 + 6 * HEADS * 8 + HEADS * 4 * H, H * 10 + 10 + H * (6 + 2) + 6
    else:
        attention, low = 4 * H * HEADS * WIDTH, 0
    norms, router = 2 * H, mesh.E * H
    moe = (attention + mesh.shared * 3 * H * mesh.F) / TP + low + norms + router
    dense = (attention + 3 * H * 48) / TP + low + norms
    L = mesh.layers - mesh.dense
    return L * mesh.E * 3 * H * mesh.F / mesh.R / TP, L * moe + mesh.dense * dense + 2 * WORDS * H / TP + H, moe, dense


def check_memory(mesh, name):
    routed, rest, moe, dense = parameters(mesh)
    job, H, TP, T = mesh.write(name), mesh.H, mesh.TP, mesh.T
    state = routed / mesh.fsdp / mesh.CP + rest / (mesh.R * mesh.fsdp * mesh.CP)
    keys = HEADS * (4 + 2 + 4) if mesh.mla else 2 * HEADS * WIDTH
    each = mesh.E // mesh.R * 3 * H * mesh.F / TP * (mesh.fsdp * mesh.CP > 1)
    several = mesh.R * mesh.fsdp * mesh.CP > 1
    fixed = {"weights": 2 * state, "optimizer": 8 * state, "gradients": 4 * state, "carries": mesh.layers * T * H // TP * 2,
             "logits": 2 * T * WORDS // TP * 2, "gathered_expert_weights": 2 * each * 2, "gathered_other_weights": 4 * moe * several,
             "whole_hidden_states": 4 * T * H * (TP > 1), "gathered_keys_values": (mesh.CP - 1) * T * keys // TP * 2,
             "gathered_dense_weights": (2 * 2 + 4) * dense * several * mesh.dense, "dense_ffn": 4 * T * 48 // TP * 2 * mesh.dense,
             "shared_expert": 3 * T * mesh.F // TP * 2 * mesh.shared}
    for scheme in mesh.schemes():
        got = {row["component"]: row["bytes"]
               for row in json.loads(oracle.must("explain", "--job", job, "--scheme", scheme, "--format", "json"))}
        for part, value in fixed.items():
            oracle.check(abs(got.get(part, 0) - value) <= 1, f"{name} {vars(mesh)} {scheme} {part}: {got.get(part)} for {value}")
        rows, F, N, h = mesh.buffer(scheme), mesh.F // TP, T * mesh.K, H // TP
        gathered = mesh.R * T * ("ring" in scheme)  # rows of all ranks
        moments = [rows * (H + 3 * F + 2 * h) + (gathered * h or 2 * N * h), gathered * H + rows * H]
        if "ragged" in scheme:
            masked = mesh.E // mesh.R * rows * (H + F)
            moments += [rows * (2 * H + 3 * F) + masked, rows * (3 * H + F) + masked]
        else:
            moments += [rows * (2 * H + 3 * F + h) * (TP > 1), rows * (3 * H + 2 * F)]
        peak = gathered * H + max(moments)
        if "dense" in scheme:
            masks = T * mesh.E * mesh.capacity(scheme)
            peak = max(rows * ((H if TP > 1 else h) + 2 * h + 3 * F) + 2 * masks, rows * (3 * h + 3 * F) + 3 * masks)
        live = sum(value for part, value in got.items() if part.startswith("moe."))
        oracle.check(live == 2 * peak, f"{name} {vars(mesh)} {scheme}: live {live} for {2 * peak}")


def check_collectives(mesh, name):
    """Bytes out of one GPU in one step, remat full, by purpose."""
    routed, rest, _, _ = parameters(mesh)
    job, H, TP, CP, T = mesh.write(name), mesh.H, mesh.TP, mesh.CP, mesh.T
    done = oracle.call("explain", "--traffic", "--job", job, "--format", "json")
    oracle.check(done.returncode == 0, f"{name} {vars(mesh)}: {done.stderr}")
    moe, fsdp = mesh.layers - mesh.dense, mesh.fsdp * CP
    keys = HEADS * (4 + 2 + 4) if mesh.mla else 2 * HEADS * WIDTH
    hidden = mesh.layers * 8 + moe * (3 + mesh.shared * 6) + mesh.dense * 7 + 3
    got = {}
    for row in json.loads(done.stdout):
        got[row["scheme"], row["purpose"]] = got.get((row["scheme"], row["purpose"]), 0) + row["step_bytes"]
    for scheme in mesh.schemes():
        slots, D, both = "dense" in scheme, mesh.buffer(scheme) * H * 2, TP > 1 and CP > 1 and not mesh.shared
        sums = 3 * T * mesh.E * 2
        if slots:
            tensor = (hidden - moe * (3 - mesh.shared)) * T * H * 2 + moe * (8 if mesh.R > 1 and fsdp > 1 else 6) * D
            sums = 2 * T * mesh.E * 2 + T * mesh.E * mesh.capacity(scheme) * 2 + T * mesh.K * 2
        else:
            tensor = (hidden + moe * both) * T * H * 2 + moe * 3 * D
        if mesh.mla:  # low ranks of queries and keys as an input each; the rotary key; two norms
            tensor += mesh.layers * (4 * T * (10 + 6) * 2 + 3 * T * 2 * 2 + 2 * 2 * 3 * T * 4)
        tensor += 2 * (moe * sums + mesh.layers * 2 * 3 * T * 4 + 3 * T * 4)
        want = {"tensor_parallel": tensor * (TP - 1) / TP, "expert_weights": routed * 8 * (fsdp - 1) / fsdp,
                "context_parallel": mesh.layers * 3 * CP * T * keys // TP * 2 * (CP - 1) / CP}
        if slots and CP > 1:  # its GPUs multiply the same slots, so gradients are summed over the others alone
            want["expert_weights"] = routed * (4 * (fsdp - 1) / fsdp + 2 * 4 * (mesh.fsdp - 1) / mesh.fsdp)
            want["context_parallel"] += 2 * moe * 3 * D * (CP - 1) / CP
        for purpose, value in want.items():
            have = got.get((scheme, purpose), 0)
            oracle.check(abs(have - value) <= 1e-9 * value + 1, f"{name} {vars(mesh)} {scheme} {purpose}: {have} for {value}")


def check_refusals():
    """What is not described says so, and what would be right."""
    mesh = Mesh(np.random.default_rng(0))
    mesh.TP, mesh.CP, mesh.R, mesh.fsdp, mesh.E, mesh.mla, mesh.shared, mesh.dense = 2, 1, 4, 4, 8, 0, 0, 0
    mesh.gpus, mesh.S = 32, 24
    job = mesh.write("refused")
    for arguments, word in ((["--scheme", "dense:capacity_factor=1,layout=peeled"], "layout=exchange"), (["--scheme", "gmm-deepep"], "and ragged-ring; use one"),
                            (["--scheme", "ring:token_chunks=2"], "token_chunks"), (["--stack", "xla-cuda-0.10.2", "--scheme", "gmm"], "make both 1"),
                            (["--scheme", "megatron-alltoall"], "distributed or replicated"),
                            (["--scheme", "dense:capacity_factor=1", "--set", "parallel.context=2"], "one at a time"),
                            (["--scheme", "dense:capacity_factor=1,layout=gathered", "--set", "parallel={expert: 4, fsdp: 8, context: 2}"],
                             "layout=exchange"),
                            (["--traffic", "--scheme", "dense:capacity_factor=1", "--remat", "none"], "full alone"),
                            (["--set", "parallel={expert: 4, fsdp: 2, tensor: 2, pipeline: 2}"], "use pipeline 1"),
                            (["--set", "parallel={expert: 4, fsdp: 4, tensor: 4, expert_tensor: 2}"], "leave expert_tensor out"),
                            (["--set", "parallel={expert: 2, fsdp: 1, tensor: 16}"], "does not divide"),
                            (["--traffic", "--remat", "minimal"], "remat none and full alone")):
        done = oracle.call("explain", "--job", job, *arguments)
        oracle.check(done.returncode != 0 and word in done.stderr, f"{arguments}: {done.stderr}")
    mesh.TP, mesh.CP, mesh.fsdp, mesh.gpus = 1, 3, 1, 12
    done = oracle.call("explain", "--job", mesh.write("odd"))
    oracle.check(done.returncode != 0 and "even" in done.stderr, f"context 3: {done.stderr}")


for seed in range(cases):
    generator = np.random.default_rng(seed)
    one = Mesh(generator)
    check_rows(one, f"case{seed}", generator)
    check_memory(one, f"case{seed}")
    check_collectives(one, f"case{seed}")
check_refusals()
oracle.finish(least=10 * cases)
