"""Megatron's flags that bear on nothing, and a run as its flags."""

from __future__ import annotations

from typing import Any

from memcalc.errors import InputError
from memcalc.importers.rules import names
from memcalc.specs.run import Run

IGNORED = names(
    "lr* min_lr weight_decay* adam_* sgd_* clip_grad train_iters train_samples eval_* log_* tensorboard_* wandb_* save* load* data_* train_data_path "
    "valid_data_path test_data_path tokenizer_name_or_path tokenizer_path tokenizer.* vocab_file merge_file split seed init_method_* num_workers distributed_* "
    "no_load_* no_save_* ckpt_* dist_ckpt_* use_mcore_models transformer_impl rotary_* use_rope_scaling rope_* "
    "norm_epsilon layernorm_epsilon no_masked_softmax_fusion masked_softmax_fusion bias_*fusion overlap_* tp_comm_* ddp_bucket_size "
    "moe_aux_loss_coeff moe_router_load_balancing_type moe_router_* moe_shared_expert_overlap moe_z_loss_coeff exit_* timing_* "
    "manual_gc* attention_softmax_in_fp32 accumulate_allreduce_grads_in_fp32 apply_layernorm_1p mock_data no_*_fusion "
    "use_cpu_initialization fp8_amax_* fp8_margin fp8_interval fp8_recipe fp8_e4m3 fp8_hybrid fp8_wgrad reduce_amax async_* finetune decoder_*_fusion "
    "swiglu_* logger* checkpoint.* scheduler.* rng.* exp_manager.* run.* defaults name s3_checkpointing.* optim.* log.* logging.* profiling.* ft.* "
    "nsys_profile_* warmup_* max_epochs max_steps limit_* val_check_interval accelerator enable_* gradient_clip_val benchmark use_distributed_sampler "
    "accumulate_grad_batches dataloader_* data_impl splits_string validation_* mcore_gpt restore_from_* skip_* rampup_* use_scaled_init_method "
    "ffn_dropout apply_query_key_layer_scaling pre_process post_process persist_layer_norm headscale transformer_block_type "
    "openai_gelu normalize_attention_scores attention_type batch_p2p_comm seq_len_interpolation_factor scale_positional_embedding drop_layers "
    "reset_lr* native_amp_* hysteresis fp32_residual_connection fp16_lm_cross_entropy megatron_amp_O2 grad_* get_attention_mask_from_fusion "
    "resume_from_checkpoint onnx_safe apex_* gradient_as_bucket_view sync_batch_comm nccl_* fsdp_* num_micro_batches_with_partial_* use_emha ub_tp_* "
    "activations_checkpoint_layers_per_pipeline eod_mask_loss reset_* shuffle_* context_length index_mapping_* num_samples pad_* exchange_indices_* "
    "random_seed path_to_* dataset_* sequence_len model_type spec_name local_rank test_mode use_checkpoint_args auto_detect_ckpt_format "
    "do_layer_norm_weight_decay use_flash_attention cpu_offloading_* sharp *timer_kwargs* gc_interval finetune_lr dist.* data.* model.data.* "
    "check_weight_hash* lr beta1 beta2 eps moe_use_legacy_grouped_gemm moe_enable_deepep cuda_graph* te_rng_tracker inference_* sched_* data_kwargs "
    "config_path pretrained_checkpoint seq_len packed_sequence_specs* account_* expert_interval bias_gelu_fusion vocab_extra_ids"
)  # fmt: skip


def flags(run: Run) -> str:
    """Flags of ``pretrain_gpt.py``, one to a line.

    Raises:
        InputError: Megatron does not run it.
    """
    s = run.sharding
    if run.code != "megatron" and s.engine != "megatron":
        raise InputError("the run is not Megatron's: give it code megatron", where="code")
    if run.lora is not None:
        raise InputError("Megatron-LM's flags have no adapters", where="lora")
    gpus = run.hardware.gpus or (s.dp or 1) * s.tp * s.pp * s.cp
    dp = s.dp or gpus // (s.tp * s.pp * s.cp)
    numbers: dict[str, Any] = {
        "tensor-model-parallel-size": s.tp,
        "pipeline-model-parallel-size": s.pp,
        "context-parallel-size": s.cp,
        "expert-model-parallel-size": s.ep,
        "micro-batch-size": run.micro_batch,
        "global-batch-size": run.micro_batch * run.grad_accum * dp,
    }
    numbers |= {"expert-tensor-parallel-size": s.etp} if s.etp is not None else {}
    numbers |= {"num-virtual-stages-per-pipeline-rank": s.vpp} if s.vpp > 1 else {}
    numbers |= {"seq-length": run.seq_len} if run.seq_len is not None else {}
    for name in ("recompute_method", "recompute_num_layers", "mtp_num_layers", "hidden_dropout", "attention_dropout"):
        value = getattr(run, name)
        numbers |= {name.replace("_", "-"): value} if value is not None else {}
    for name in ("main_grads_dtype", "main_params_dtype", "exp_avg_dtype", "exp_avg_sq_dtype"):
        numbers |= {name.replace("_", "-"): getattr(s, name)} if s.use_precision_aware_optimizer else {}
    for name in ("decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers", "moe_router_dtype", "pipeline_model_parallel_layout"):
        numbers |= {name.replace("_", "-"): getattr(s, name)} if getattr(s, name) is not None else {}
    numbers |= {"moe-expert-capacity-factor": s.capacity_factor} if s.capacity_factor is not None else {}
    numbers |= {"make-vocab-size-divisible-by": s.make_vocab_size_divisible_by, "moe-token-dispatcher-type": s.moe_token_dispatcher_type}
    numbers |= {"recompute-granularity": run.recompute} if run.recompute != "none" else {}
    numbers |= (
        {"recompute-modules": " ".join((run.recompute_modules,) if isinstance(run.recompute_modules, str) else run.recompute_modules)}
        if run.recompute_modules
        else {}
    )
    numbers |= {"cross-entropy-fusion-impl": s.cross_entropy_fusion_impl} if s.cross_entropy_fusion_impl else {}
    numbers |= {"optimizer": run.optimizer} if run.optimizer == "sgd" else {}
    numbers |= {"fp8-format": "hybrid"} if run.fp8 == "te" else {}
    numbers |= {"attention-backend": {"flash_attention_2": "flash", "sdpa": "fused", "eager": "unfused"}[run.attention]}
    switches = {
        "sequence-parallel": s.sp,
        "use-distributed-optimizer": bool(s.use_distributed_optimizer or s.zero),
        "grad-reduce-in-bf16": s.grad_reduce_in_bf16,
        "use-precision-aware-optimizer": s.use_precision_aware_optimizer,
        "cross-entropy-loss-fusion": s.cross_entropy_fusion_impl is not None,
        "bf16": run.dtype == "bfloat16",
        "fp16": run.dtype == "float16",
        "moe-pad-expert-input-to-capacity": s.moe_pad_expert_input_to_capacity,
        "moe-grouped-gemm": s.moe_grouped_gemm and run.dtype == "bfloat16",
        "moe-permute-fusion": s.moe_permute_fusion,
        "no-rope-fusion": not s.apply_rope_fusion,
        "no-gradient-accumulation-fusion": not s.gradient_accumulation_fusion,
        "optimizer-cpu-offload": run.offload.optimizer == "cpu",
        "account-for-embedding-in-pipeline-split": s.account_for_embedding_in_pipeline_split,
        "account-for-loss-in-pipeline-split": s.account_for_loss_in_pipeline_split,
    }
    lines = [f"--{name} {value}" for name, value in numbers.items()] + [f"--{name}" for name, on in switches.items() if on]
    return "\n".join(lines) + "\n"
