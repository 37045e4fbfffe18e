torchrun pretrain_gpt.py --num-layers 27 --micro-batch-size 4 --global-batch-size 128 --seq-length 4096 --bf16 --use-distributed-optimizer \
    --expert-model-parallel-size 8 --moe-token-dispatcher-type alltoall --moe-grouped-gemm --transformer-impl transformer_engine \
    --recompute-granularity selective --recompute-modules layernorm mhc_of_tomorrow --cross-entropy-loss-fusion \
    --fine-grained-activation-offloading --offload-modules core_attn moe_act
