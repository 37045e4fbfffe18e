"""What the tests of `spillway replay` share: writing a trace, its model, cluster and job, and running the
program on them. The schema of a trace is docs/trace_format.md."""
import dataclasses
import json
import os
import pathlib

import h5py
import numpy as np

import program as caller

CLUSTER = """name: {name}
nodes: {nodes}
gpus_per_node: {gpus_per_node}
hbm_gib: {{value: 80, evidence: assumed, source: "a test"}}
bf16_flops: {{value: 1e15, evidence: assumed, source: "a test"}}
fp8_flops: {{value: 2e15, evidence: assumed, source: "a test"}}
hbm_bytes_per_s: {{value: 3e12, evidence: assumed, source: "a test"}}
link_bytes_per_s: {{value: 450e9, evidence: assumed, source: "a test"}}
nic_bytes_per_s: {{value: 50e9, evidence: assumed, source: "a test"}}
launch_s: {{value: 5e-6, evidence: assumed, source: "a test"}}
"""


@dataclasses.dataclass
class Case:
    """A job, and the trace that is replayed for it."""
    nodes: int = 1
    gpus_per_node: int = 2
    expert: int = 2              # expert-parallel size; fsdp is the rest
    experts: int = 4
    top_k: int = 2
    hidden: int = 16
    ffn: int = 8
    model_layers: int = 1        # MoE layers of the model, all of them
    sequences: int = 1           # per GPU
    length: int = 4              # tokens of a sequence
    remat: str = "full"
    schemes: tuple = ("gmm",)
    vocab: int = 64
    dense_layers: int = 0        # of a preset, before those

    @property
    def ranks(self):
        return self.nodes * self.gpus_per_node

    @property
    def tokens(self):
        return self.sequences * self.length

    @property
    def repeats(self):
        """Does the backward pass run a MoE layer again?"""
        return self.remat not in ("none", "selective", "moe_act")

    def write(self, folder, name="case"):
        """Writes model, cluster and job; returns the path of the job."""
        folder = pathlib.Path(folder)
        model = dict(model_type="generic", num_hidden_layers=self.model_layers, hidden_size=self.hidden,
                     vocab_size=self.vocab, num_attention_heads=2, head_dim=8, num_experts=self.experts,
                     num_experts_per_tok=self.top_k, moe_intermediate_size=self.ffn)
        (folder / f"{name}_model.json").write_text(json.dumps(model))
        (folder / f"{name}_cluster.yaml").write_text(
            CLUSTER.format(name=name, nodes=self.nodes, gpus_per_node=self.gpus_per_node))
        job = folder / f"{name}_job.yaml"
        # fsdp2 off: gradients of weights, which torchtitan lists under FSDP2, are no part of what is compared (test_fsdp2 has them)
        job.write_text(f"model: ./{name}_model.json\ncluster: ./{name}_cluster.yaml\n"
                       f"parallel: {{expert: {self.expert}, fsdp: {self.ranks // self.expert}}}\n"
                       f"batch: {{sequences_per_gpu: {self.sequences}, sequence_length: {self.length}}}\n"
                       f"remat: {self.remat}\nprecision: bf16\nlibrary_limits: ignore\nfsdp2: {{reshard_after_forward: off}}\nschemes:\n" +
                       "".join(f"- \"{s}\"\n" for s in self.schemes))
        return job


def without_formats(job):
    """The job's text where its number formats are to be those of Megatron-Core, or others."""
    return job.read_text().replace("precision: bf16\n", "")


@dataclasses.dataclass
class Tokens:
    """The rows of a trace, all steps one after the other."""
    expert_id: np.ndarray                  # [tokens][layers][top_k], missing = the greatest number of its type
    step_tokens: list
    experts: int
    ranks: int = 0                         # 0: the trace does not know its source ranks
    source_rank: np.ndarray = None         # [tokens] each of the three
    sequence: np.ndarray = None
    position: np.ndarray = None
    phase: int = 0
    weight: np.ndarray = None              # [tokens][layers][top_k]; stored as IEEE halves

    @property
    def missing(self):
        return np.iinfo(self.expert_id.dtype).max

    @property
    def offsets(self):
        return np.concatenate([[0], np.cumsum(self.step_tokens)]).astype(np.int64)

    def write(self, path, storage=None):
        """storage: the keywords of h5py's create_dataset for the ids."""
        layers, top_k = self.expert_id.shape[1:]
        steps = len(self.step_tokens)
        with h5py.File(path, "w") as f:
            f.attrs["format"], f.attrs["format_version"], f.attrs["content"] = "moe-routing-trace", "1.0.0", "tokens"
            f["layer"] = np.arange(layers, dtype=np.int32)
            f["expert"] = np.arange(self.experts, dtype=np.int32)
            f["k"] = np.arange(top_k, dtype=np.int32)
            f["model/num_experts"] = np.full(layers, self.experts, np.int32)
            f["model/top_k"] = np.full(layers, top_k, np.int32)
            f["steps/id"] = 10 * np.arange(steps, dtype=np.int64)
            f["steps/num_tokens"] = np.asarray(self.step_tokens, np.int64)
            f["steps/phase"] = np.full(steps, self.phase, np.uint8)
            ids = f.create_dataset("tokens/expert_id", data=self.expert_id, **(storage or {}))
            ids.attrs["missing_value"] = self.missing
            f["tokens/step_offset"] = self.offsets
            if self.weight is not None:
                f["tokens/weight"] = self.weight.astype(np.float16)
                f["tokens/weight"].attrs["weight_kind"] = "gate_used"
            if self.ranks:
                f["rank"] = np.arange(self.ranks, dtype=np.int32)
                f["tokens/source_rank"] = self.source_rank.astype(np.uint16)
            for name in ("sequence", "position"):
                if getattr(self, name) is not None:
                    f[f"tokens/{name}"] = getattr(self, name).astype(np.int32)
        return path


def run(program, *arguments, threads=1, **keywords):
    """Runs the program; keywords go to program.run."""
    environment = dict(os.environ, OMP_NUM_THREADS=str(threads))
    return caller.run(program, *arguments, env=environment, **keywords)


def replay(program, trace, job, *arguments, **keywords):
    """Runs a replay that must succeed in silence; returns its JSON."""
    done = run(program, "replay", trace, "--job", job, "--format", "json", *arguments, **keywords)
    if done.returncode != 0 or done.stderr:
        raise AssertionError(f"replay {trace} {job}: exit {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)
