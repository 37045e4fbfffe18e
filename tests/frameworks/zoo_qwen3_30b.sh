# From yanring/Megatron-MoE-ModelZoo e8650517 best_practice/qwen3/run_30b.sh, shortened
export CONTAINER_IMAGE=
export ACCOUNT=
export MEGATRON_PATH=
export PARTITION=
export RUN_NAME="${MODEL}-benchmarking"
export CONTAINER_MOUNTS=
export CLUSTER=CW
export MODEL=Qwen3-30B-A3B
export WANDB_PROJECT=
export OUTPUT_PATH=
export PRETRAIN=0
export MBS=1
export SEQ_LEN=4096
export MOE_GROUPED_GEMM=true
export RUN_TIME=00:30:00
export COMMENT=baseline
PP=1 VPP=1 TP=1 EP=8 NNODES=4 bash ./sbatch_benchmarking.sh --moe-router-force-load-balancing
COMMENT="full_recompute" PP=1 VPP=1 TP=1 EP=8 MBS=4 NNODES=4 bash ./sbatch_benchmarking.sh --moe-router-force-load-balancing --recompute-granularity full --recompute-method uniform --recompute-num-layers 1
PP=1 TP=1 EP=8 MBS=4 NNODES=1 bash ./sbatch_benchmarking.sh --moe-router-force-load-balancing --recompute-granularity selective --recompute-modules moe_act layernorm
