# one micro-batch in a pipeline of 2 stages, which MaxText refuses
python3 -m maxtext.trainers.pre_train.train src/maxtext/configs/base.yml \
    model_name=deepseek2-16b per_device_batch_size=0.5 num_pipeline_microbatches=1 \
    ici_pipeline_parallelism=2 ici_fsdp_parallelism=1 ici_expert_parallelism=4 \
    sparse_matmul=true megablox=true max_target_length=1024
