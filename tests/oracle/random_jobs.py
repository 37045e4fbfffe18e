"""Random jobs of every family of schemes, in which no two sizes are alike, for tests that look at what the program says of them."""
import json
import math

from replay_case import CLUSTER

BYTES = {"bf16": 2, "fp32": 4}
MAXTEXT = ["gmm", "gmm:buffer_factor=1.5", "gmm-deepep", "ring", "ring:token_chunks=2", "ragged", "ragged-deepep", "ragged-ring",
           "dense:capacity_factor=1.25", "dense:capacity_factor=1.25,layout=gathered", "dense:capacity_factor=1.25,layout=peeled"]
PYTORCH = ["megablocks", "tutel:capacity_factor=1.5", "scattermoe", "sonicmoe", "torchtitan", "torchtitan-hybridep", "torchtitan-async", "deepep",
           "hybrid-ep", "moe-dedup:buffer_factor=1.5"]
MEGATRON = ["megatron-alltoall", "megatron-alltoall:align=16", "megatron-alltoall:capacity_factor=1.5,pad=true", "megatron-allgather",
            "megatron-flex", "megatron-flex:backend=hybridep", "megatron-ncclep", "megatron-syncfree:rank_capacity=1.5", "primus-syncfree",
            "primus-megamoe"]
REMAT = {"maxtext": ["full", "minimal", "save_out_proj", "save_qkv_proj", "none"], "pytorch": ["full", "selective", "none"],
         "megatron": ["full", "none", "moe_act", "moe", "layernorm", "moe_act+layernorm", "core_attn"]}
FEATURES = {  # of Megatron-Core, one or none a job
    "precision.recipe": ["delayed", "blockwise", "mxfp8"], "cross_entropy": ["native", "te"], "attention": ["unfused"],
    "optimizer_algorithm": ["muon"], "finetune.frozen": ["experts"], "overlap_grad_reduce": ["true"], "offload_modules": ["moe_act", "expert_fc1"],
    "gradient_accumulation_fusion": ["false"], "moe_shared_expert_overlap": ["true"]}


class Job:
    """A random one, in which no two sizes are alike, and what its letters stand for."""

    def __init__(self, rng, number, folder):
        pick, self.rng = rng.choice, rng
        self.family, schemes = pick([("maxtext", MAXTEXT), ("pytorch", PYTORCH), ("megatron", MEGATRON), ("megatron", MEGATRON)])
        self.scheme, megatron = pick(schemes), self.family == "megatron"
        self.EP, self.FS = pick([(2, 1), (2, 3), (4, 2), (3, 4), (6, 1), (4, 1), (8, 3)])
        self.TP, self.CP, self.PP = (pick([(1, 1, 1), (1, 1, 1), (2, 1, 1), (1, 2, 1), (2, 2, 1), (1, 1, 2), (2, 1, 3)]) if megatron
                                     else (1, 1, pick([1, 1, 1, 2])) if self.family == "pytorch" else (1, 1, 1))
        self.micro = pick([1, 2, 3]) if self.PP == 1 and self.family != "maxtext" else self.PP * pick([1, 2]) if self.PP > 1 else 1
        stage = math.lcm(self.EP * self.FS, self.TP * self.CP)
        self.FS, self.DP, self.G = stage // self.EP, stage // self.TP // self.CP, stage
        self.e, self.K, self.p = pick([2, 3, 5]), pick([1, 2]), self.micro * pick([1, 2])
        self.S = 2 * self.CP * self.TP * pick([24, 40, 56])
        self.H, self.F, self.V, self.heads, self.hd = 64 * pick([3, 5]), 32 * pick([7, 11, 13]), 16 * pick([55, 61]), 8, pick([16, 48])
        self.kv = pick([2, 4, 8])
        self.moe, self.dense = self.PP * pick([1, 2, 3]), 0 if self.PP > 1 else pick([0, 0, 1, 2])
        self.F_dense, self.shared = 32 * 17, pick([0, 0, 1])
        self.remat = pick(REMAT[self.family])
        self.precision = {k: pick(list(BYTES)) for k in ("weights", "gradients", "optimizer", "activations")}
        if self.precision["weights"] == "fp32" or megatron:
            self.precision["gradients"] = "fp32"
        if self.precision["activations"] == "fp32":
            self.precision["weights"] = "fp32"
        if megatron:
            self.precision["activations"] = self.precision["weights"] = "bf16"
        self.optimizer = "distributed" if megatron else pick(["sharded", "sharded", "replicated"])
        self.set = []
        if megatron and rng.random() < 0.6:
            key = pick(list(FEATURES))
            self.set = ["--set", f"{key}={pick(FEATURES[key])}"]
        if self.family == "pytorch" and self.optimizer == "sharded" and rng.random() < 0.5:
            self.set = ["--set", pick(["fsdp2.reshard_after_forward=off", "fsdp2.reshard_after_forward=always", "fsdp2.prefetch=2"])]
        self.folder = folder
        self.path = self.write(f"job{number}")

    def write(self, name):
        E = self.EP * self.e
        model = dict(model_type="deepseek_v2" if self.shared else "generic", num_hidden_layers=self.dense + self.moe, hidden_size=self.H,
                     vocab_size=self.V, num_attention_heads=self.heads, num_experts_per_tok=self.K, moe_intermediate_size=self.F,
                     first_k_dense_replace=self.dense, intermediate_size=self.F_dense)
        if self.shared:
            model.update(n_routed_experts=E, n_shared_experts=self.shared, kv_lora_rank=24, q_lora_rank=40, qk_nope_head_dim=16,
                         qk_rope_head_dim=8, v_head_dim=16, tie_word_embeddings=False, topk_method="greedy")
        else:
            model.update(num_experts=E, num_key_value_heads=self.kv, head_dim=self.hd)
        (self.folder / f"{name}.json").write_text(json.dumps(model))
        per_node = self.G if self.G <= 8 else self.G // 2 if self.G % 2 == 0 else self.G // 3
        (self.folder / f"{name}_cluster.yaml").write_text(CLUSTER.format(name="c", nodes=self.G * self.PP // per_node, gpus_per_node=per_node))
        split = dict(expert=self.EP, fsdp=self.FS, tensor=self.TP, context=self.CP, pipeline=self.PP, data=self.DP, expert_tensor=1)
        if self.TP == self.CP == 1:
            split = dict(expert=self.EP, fsdp=self.FS, pipeline=self.PP)
        job = self.folder / f"{name}.yaml"
        job.write_text(f"model: ./{name}.json\ncluster: ./{name}_cluster.yaml\nlibrary_limits: ignore\nparallel: {json.dumps(split)}\n"
                       f"batch: {{sequences_per_gpu: {self.p}, sequence_length: {self.S}, micro_batches: {self.micro}}}\n"
                       f"precision: {json.dumps(self.precision)}\noptimizer: {self.optimizer}\nremat: {self.remat}\n"
                       f"schemes: [\"{self.scheme}\"]\n")
        return job

    def letters(self):
        """What docs/schemes.md calls them, of one micro-batch."""
        words = dict(H=self.H, F=self.F, V=self.V, E=self.EP * self.e, K=self.K, e=self.e, R=self.EP, p=self.p // self.micro, heads=self.heads,
                     b=BYTES[self.precision["activations"]], w=BYTES[self.precision["weights"]], g=BYTES[self.precision["gradients"]],
                     o=BYTES[self.precision["optimizer"]], T=self.p // self.micro * self.S // self.CP // self.TP, G=self.G, TP=self.TP, CP=self.CP,
                     DP=self.DP, EDP=self.FS, F_dense=self.F_dense, F_shared=self.shared * self.F, t=1,
                     kv_heads=self.kv, head_dim=self.hd, v=self.hd, P_routed=3 * self.moe * self.EP * self.e * self.H * self.F)
        if "optimizer_algorithm=muon" in " ".join(self.set):  # whose matrices are padded
            del words["P_routed"]
        if self.shared:
            words.update(q_lora=40, kv_lora=24, nope=16, rope=8, v=16)
        gathered = {"w": words["b"], "g": words["b"]}  # weights at work, and what is summed of their gradients
        return [words, {**words, **gathered}, {**words, "w": words["b"]}, {**words, "g": words["w"]}, {**words, "w": words["g"]}]
