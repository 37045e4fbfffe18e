"""Questions of pairs_kept.py about how uneven routing may get, about whole steps of Megatron-Core through the allocator, about checks by
execution."""
import pair_tables as jobs
from pair_tables import Table

TAKEN = {"fusions", "resident", "formats", "attention"}  # their pairs stand in "explain megatron"


def without(axes, names):
    return {axis: values for axis, values in axes.items() if axis not in names}


def fewer(axes, **values):
    """The same axes, of which these have other values."""
    return {**axes, **values}


def until(command):
    return [f"{command} --until {limit}{more}" for limit, more in (
        ("oom,step=1.2", " --format json"), ("step=1.05", ""), ("oom", " --format csv"), ("oom,step=1.5", " --format json --memory-fraction 0.5"))]


ROUTINGS = {"routing": ["", "--routing zipf:exponent=0.5", "--routing collapse --routing-steps 3", "--routing hot-rank:share=0.2,rank=1,ranks=4",
                        "--seed 3 --routing lognormal:sigma=0.5"]}
SMALL_BATCH = {"batch": ["--sequences-per-gpu 4 --micro-batches 4", "--sequences-per-gpu 8 --micro-batches 8", "--sequences-per-gpu 8 --micro-batches 4",
                         "--global-batch 256 --micro-batches 4"],
               "length": ["--sequence-length 1024", "--sequence-length 2048"],
               "cluster": ["--cluster h200:8x4", "--cluster gb200:4x8", "--cluster mi355x:8x8"]}
UNTIL = until("plan --routing-tokens 512 --no-allocator")
WHOLE = ["plan --routing-tokens 512 --drop-at-most 100 --format json", "plan --routing-tokens 512 --drop-at-most 100 --format json --every-rank",
         "plan --routing-tokens 512 --drop-at-most 100 --details"]
MEGATRON_UNTIL = fewer(without(jobs.megatron(UNTIL, ("flame-moe-290m", "olmoe-1b-7b")), TAKEN), **SMALL_BATCH, **ROUTINGS)
MEGATRON_WHOLE = fewer(without(jobs.megatron(WHOLE, ("flame-moe-290m",)), {"resident"}), **SMALL_BATCH, **jobs.ALLOCATOR,
                       mtp=jobs.keys("parallel.mtp_num_layers", 1))
PLAN = "plan --routing-tokens 512 --no-allocator --drop-at-most 100"
LAYOUT_KEY = "--set parallel.pipeline_model_parallel_layout"
LAYOUTS = {  # 16 layers each
    **without(jobs.megatron(["explain --format json", "explain --traffic --format json", f"{PLAN} --format json --chrome-trace out.json",
                             *(f"{PLAN} --flags {name}" for name in ("megatron", "bridge", "primus")),
                             "explain --as megatron --format json"], ("olmoe-1b-7b",)),
              TAKEN | {"finetune", "recipe"}),
    **SMALL_BATCH,
    "pipeline": [f"--pipeline 2 {LAYOUT_KEY}='Et*8|t*8L'", f"--pipeline 2 {LAYOUT_KEY}='Et*7|t*9,L'", f"--pipeline 4 {LAYOUT_KEY}='Et*3|t*5|t*5|t*3,L'",
                 f"--pipeline 2 --virtual-stages 2 {LAYOUT_KEY}='Et*3|t*4|t*4|t*5,L'", f"--pipeline 2 {LAYOUT_KEY}='E|t*16,L'",
                 f"--pipeline 2 {LAYOUT_KEY}='Et*16|L'", f"--pipeline 2 --virtual-stages 3 {LAYOUT_KEY}='E|(t*4|)*4L'",
                 f"--pipeline 2 --set parallel.mtp_num_layers=1 {LAYOUT_KEY}='Et*9|t*7,mL'",
                 f"--pipeline 4 --set parallel.mtp_num_layers=1 {LAYOUT_KEY}='Et*4|t*6|t*6,m|L'"],
    "mtp": [""],
}

TABLES = [
    Table("layouts", "allocator", LAYOUTS, ("out.json",), quick={"ask": "explain"}),
    Table("until megatron", "until", MEGATRON_UNTIL, quick={"ask": "explain", "routing": ""}),
    Table("until maxtext", "until", jobs.maxtext(UNTIL, ("olmoe-1b-7b", "flame-moe-290m"), **ROUTINGS), quick={"ask": "explain", "routing": ""}),
    Table("until pytorch", "until", fewer(jobs.pytorch(UNTIL, ("flame-moe-290m", "olmoe-1b-7b"), **ROUTINGS),
                                          length=["--sequence-length 1024", "--sequence-length 512"]), quick={"ask": "explain", "routing": ""}),
    Table("allocator megatron", "allocator", MEGATRON_WHOLE, quick={"ask": "explain", "allocator": ""}),
    Table("verify random", "until", {
        "ask": ["verify --random 1 --format json", "verify --random 2"],
        "scheme": [f"--scheme {scheme}" for scheme in (
            "megatron-alltoall", "megatron-flex:capacity_factor=1", "megatron-allgather", "megatron-alltoall:capacity_factor=1,pad=true", "megatron-alltoall:align=16",
            "megatron-syncfree:rank_capacity=1.25", "megatron-ncclep:rank_capacity=1.5", "primus-syncfree", "primus-megamoe", "gmm", "gmm:buffer_factor=1.25",
            "dense:capacity_factor=1.25", "ring", "ragged", "ragged-ring:buffer_factor=1.5", "ragged-deepep", "gmm-deepep", "torchtitan",
            "torchtitan-hybridep:capacity=0.3,pad=8", "deepep:pad=16", "deepep-ll", "hybrid-ep:budget=1.25,pad=8",
            "moe-dedup:buffer_factor=1.25,overflow_factor=0.5", "tutel:capacity_factor=1", "megablocks:impl=sparse")],
        "expert": ["--expert-parallel 4", "--expert-parallel 2", "--expert-parallel 8"], "shrink": ["", "--shrink 128"]}),
]
