# From AI-Hypercomputer/maxtext e591f30c tests/end_to_end/gpu/mixtral/test_8x7b.sh, shortened
python3 -m maxtext.trainers.pre_train.train "${MAXTEXT_CONFIGS_DIR:-${MAXTEXT_REPO_ROOT:-$PWD}/src/maxtext/configs}"//base.yml model_name=mixtral-8x7b hardware=gpu \
    load_parameters_path=${SCANNED_CHECKPOINT} \
    base_output_directory=${BASE_OUTPUT_PATH} dataset_path=${DATASET_PATH} \
    run_name=dropping_pre_training async_checkpointing=true \
    attention=cudnn_flash_te capacity_factor=1.25 dtype=bfloat16 \
    ici_expert_parallelism=-1 ici_fsdp_parallelism=1 \
    max_target_length=1024 megablox=False per_device_batch_size=1 \
    reuse_example_batch=1 steps=5 tokenizer_path="${MAXTEXT_ASSETS_ROOT:-${MAXTEXT_PKG_DIR:-${MAXTEXT_REPO_ROOT:-$PWD}/src/maxtext/assets/tokenizers}}"/tokenizer.mistral-v1 \
    weight_dtype=bfloat16 sparse_matmul=False packing=False
