# From yanring/Megatron-MoE-ModelZoo e8650517 best_practice/deepseek-v3/run_deepseek_v3_gb200.sh, shortened
export CLUSTER=${CLUSTER:-}
export CONTAINER_IMAGE=${CONTAINER_IMAGE:-}
export GB200_CLUSTER=1
export BINDPCIE_PATH=${BINDPCIE_PATH:-}
export MEGATRON_PATH=${MEGATRON_PATH:-}
export MCORE_RELEASE_VERSION=${MCORE_RELEASE_VERSION:-0.16}
export MODEL=${MODEL:-DeepSeek-V3}
export DATASET=${DATASET:-}
export MBS=${MBS:-1}
export SEQ_LEN=${SEQ_LEN:-4096}
export MOE_GROUPED_GEMM=${MOE_GROUPED_GEMM:-true}
export PRETRAIN=${PRETRAIN:-0}
export DISPATCHER=${DISPATCHER:-hybridep}
export RUN_TIME=${RUN_TIME:-00:30:00}
export WANDB_API_KEY=${WANDB_API_KEY:-}
export PYTORCH_CUDA_ALLOC_CONF=${PYTORCH_CUDA_ALLOC_CONF:-expandable_segments:True}
PR=mxfp8 TP=1 PP=4 EP=64 VPP=4 NNODES=64 GBS=8192 SEGMENT=16 bash sbatch_benchmarking.sh \
  --recompute-granularity selective --recompute-modules mlp \
  --cuda-graph-impl transformer_engine --cuda-graph-scope attn moe_router moe_preprocess --te-rng-tracker --cuda-graph-warmup-steps 0 \
  --pipeline-model-parallel-layout "Et*4|(tttt|)*14tmL" \
  --mtp-num-layers 1 --mtp-loss-scaling-factor 0.1 \
  --offload-optimizer-states \
  --moe-router-force-load-balancing
