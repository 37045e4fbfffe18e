# 4 GPUs of a stage with half a sequence each, in 2 micro-batches
python3 -m maxtext.trainers.pre_train.train src/maxtext/configs/base.yml \
    model_name=deepseek2-16b per_device_batch_size=0.5 \
    ici_pipeline_parallelism=2 ici_fsdp_parallelism=1 ici_expert_parallelism=4 \
    sparse_matmul=true megablox=true max_target_length=1024
