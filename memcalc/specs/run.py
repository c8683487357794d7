"""Run: what was asked, as typed in a run file, on the command line or in Python. Frozen and closed.

Every key has a flag of the same name with dashes. `memcalc.specs.job` holds what a run resolves to.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from memcalc.specs.roles import RLSpec, RolloutSpec, Task
from memcalc.specs.serving import GenerationSpec, LoadingSpec, ServingSpec
from memcalc.specs.spec import MAX_COUNT, PATH, Cards, Count, Dtype, Spec

Device = Literal["cpu", "nvme"]
Engine = Literal["ddp", "deepspeed", "fsdp1", "fsdp2", "megatron"]
Attention = Literal["eager", "sdpa", "flash_attention_2"]
Recompute = Literal["none", "selective", "full", "submodules"]
Loss = Literal["cross_entropy", "chunked", "chunked_output", "linear_cross_entropy", "fused_linear", "cut_cross_entropy", "in_place"]


class ShardingSpec(Spec):
    """How the job is spread over cards.

    Degrees are numbers of ranks. ``dp`` left out follows from the cards: gpus / (tp · pp · cp). Keys below the degrees are
    engines' own knobs under their own names; each applies to the engine that its description names.
    """

    engine: Engine | None = Field(None, description="who shards: ddp, deepspeed, fsdp1, fsdp2 or megatron; by default what the other keys imply")
    zero: Annotated[int, Field(ge=0, le=3, strict=True)] | None = Field(None, description="ZeRO stage: 1 optimizer states, 2 and gradients, 3 and weights")
    dp: Cards | None = Field(None, description="data-parallel ranks")
    tp: Cards = Field(1, description="tensor-parallel ranks")
    sp: bool = Field(False, description="sequence parallelism beside tp: norms and residuals split along the sequence")
    pp: Cards = Field(1, description="pipeline stages")
    vpp: Cards = Field(1, description="virtual stages (model chunks) on each pipeline rank")
    cp: Cards = Field(1, description="context-parallel ranks: the sequence is split everywhere")
    ep: Cards = Field(1, description="expert-parallel ranks")
    etp: Cards | None = Field(None, description="tensor-parallel ranks inside an expert (megatron; by default tp)")
    dp_replicate: Cards = Field(1, description="replicas of the sharded group (HSDP)")
    reshard_after_forward: bool = Field(True, description="fsdp2: free gathered weights after forward")
    reduce_dtype: Dtype | None = Field(None, description="dtype in which gradients are reduced")
    deepspeed: dict[str, Any] | str | None = Field(None, description="a DeepSpeed configuration, inline or a path; it says the stage", json_schema_extra=PATH)
    zero3_init_flag: bool = Field(True, description="deepspeed, stage 3: the model is built in shards (zero.Init), not whole on every rank first")
    deepspeed_auto: Literal["trainer", "deepspeed"] = Field(
        "trainer", description='who fills in "auto": transformers\' Trainer (and accelerate), or deepspeed, which drops such keys'
    )
    fsdp_sharding_strategy: Literal["FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"] = Field("FULL_SHARD", description="fsdp1")
    fsdp_backward_prefetch: Literal["BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH"] = Field("BACKWARD_PRE", description="fsdp1")
    fsdp_auto_wrap_policy: Literal["TRANSFORMER_BASED_WRAP", "NO_WRAP"] = Field(
        "TRANSFORMER_BASED_WRAP", description="fsdp1: NO_WRAP makes the whole model one unit"
    )
    fsdp_forward_prefetch: bool = Field(False, description="fsdp1: gather the next unit while one runs forward")
    fsdp_wrap_ends: bool = Field(
        False, description="fsdp2: the embedding, and the final norm with the head, are groups of their own, as accelerate and torchtitan make them"
    )
    sync_each_batch: bool = Field(
        True, description="fsdp1, fsdp2: reduce gradients after every micro-batch; false: they wait whole for the last one, as under accelerate unless told"
    )
    gradient_as_bucket_view: bool = Field(False, description="ddp: gradients are views of the buckets")
    pp_schedule: Literal["gpipe", "1f1b", "interleaved", "zero_bubble", "zbv"] | None = Field(
        None, description="order of micro-batches in a pipeline; by default 1f1b, interleaved with vpp"
    )
    decoder_first_pipeline_num_layers: Count | None = Field(None, description="layers of the first pipeline stage, where it is not like the others")
    decoder_last_pipeline_num_layers: Count | None = Field(None, description="layers of the last pipeline stage, where it is not like the others")
    account_for_embedding_in_pipeline_split: bool = Field(False, description="the embedding stands for a layer when layers are spread over stages")
    account_for_loss_in_pipeline_split: bool = Field(False, description="the loss stands for a layer when layers are spread over stages")
    cp_comm_type: Literal["p2p", "all_gather", "a2a"] = Field(
        "p2p", description="how context-parallel ranks exchange keys and values: in a ring, gathered, or heads for sequence (Ulysses)"
    )
    pipeline_model_parallel_layout: str | None = Field(None, description="Megatron's layout of the pipeline: Et*3|(tt|)*29m|L")
    use_distributed_optimizer: bool | None = Field(None, description="megatron: share optimizer states over data-parallel ranks; zero 1 is the same")
    grad_reduce_in_bf16: bool = Field(False, description="megatron: accumulate and reduce gradients in bf16")
    gradient_accumulation_fusion: bool = Field(True, description="megatron: products add gradients of weights to their buffers themselves")
    use_precision_aware_optimizer: bool = Field(False, description="megatron: states in the dtypes that follow")
    optimizer_offload_fraction: Annotated[float, Field(gt=0, le=1)] = Field(
        1.0, description="megatron: share of main parameters and moments that offload.optimizer keeps on the host"
    )
    main_grads_dtype: Literal["fp32", "bf16"] = Field("fp32", description="megatron, precision-aware optimizer: the gradient buffer")
    main_params_dtype: Literal["fp32", "fp16"] = Field("fp32", description="megatron, precision-aware optimizer: main parameters")
    exp_avg_dtype: Literal["fp32", "fp16", "bf16", "fp8"] = Field("fp32", description="megatron, precision-aware optimizer: first moment")
    exp_avg_sq_dtype: Literal["fp32", "fp16", "bf16", "fp8"] = Field("fp32", description="megatron, precision-aware optimizer: second moment")
    make_vocab_size_divisible_by: Count = Field(128, description="megatron: the vocabulary is padded to a multiple of this times tp")
    cross_entropy_fusion_impl: Literal["native", "te"] | None = Field(None, description="megatron: fused loss; te keeps the logits alone")
    expert_imbalance: Annotated[float, Field(ge=1)] = Field(1.0, description="tokens on the busiest expert-parallel rank over the even share")
    capacity_factor: Annotated[float, Field(gt=0)] | None = Field(None, description="the most tokens of an expert over the even share; others are dropped")
    moe_pad_expert_input_to_capacity: bool = Field(False, description="megatron: experts always get as many tokens as their capacity")
    moe_token_dispatcher_type: Literal["alltoall", "allgather"] = Field("alltoall", description="megatron: how tokens get to their experts")
    moe_router_dtype: Literal["fp32", "fp64"] | None = Field(None, description="megatron: dtype of the router's logits; by default the model's")
    moe_grouped_gemm: bool = Field(True, description="megatron: products of experts run together, in workspaces of their own; false: one by one")
    moe_permute_fusion: bool = Field(False, description="megatron: rows are put in order by Transformer Engine's kernels")
    apply_rope_fusion: bool = Field(True, description="megatron: rotary positions are applied by one kernel")
    bucket_cap_mb: Annotated[float, Field(gt=0)] = Field(25, description="ddp: size of a bucket in MiB")


class LengthsSpec(Spec):
    """How long sequences are, where they vary and a micro-batch is padded to its own longest; those longer than seq_len are left out."""

    min: Count = Field(1, description="tokens of the shortest")
    mean: Annotated[float, Field(gt=0)] | None = Field(
        None, description="of all sequences, with std: a log-normal spread; by default an even one up to seq_len"
    )
    std: Annotated[float, Field(gt=0)] | None = Field(None, description="standard deviation of all sequences")


class PromptSpec(Spec):
    """Virtual tokens that are trained before a frozen model (PEFT's names)."""

    type: Literal["prompt_tuning", "p_tuning", "prefix_tuning"] = Field(
        "prompt_tuning", description="embeddings of virtual tokens, those out of a small network, or keys and values of every layer"
    )
    num_virtual_tokens: Count = Field(20, description="tokens before each sequence")
    dtype: Dtype = Field("float32", description="dtype of what is trained")
    encoder_hidden_size: Count | None = Field(None, description="p_tuning, prefix_projection: width of the network; by default that of its input")
    prefix_projection: bool = Field(False, description="prefix_tuning: keys and values come out of a network, not a table")


class LoraSpec(Spec):
    """Low-rank adapters (PEFT's names)."""

    r: Count = Field(8, description="rank")
    target_modules: str | tuple[str, ...] = Field("all-linear", description="names, one regular expression, all-linear, or default: PEFT's own choice")
    target_parameters: tuple[str, ...] | None = Field(None, description="stacked weights of experts that get adapters, too: [gate_up_proj, down_proj]")
    exclude_modules: str | tuple[str, ...] | None = Field(None, description="names or one regular expression: of those targeted, which get none")
    layers_to_transform: tuple[str, ...] | None = Field(None, description="numbers of the layers that get adapters; by default all")
    dtype: Dtype = Field("float32", description="dtype of the adapters")
    dropout: Annotated[float, Field(ge=0, lt=1)] = Field(0.0, description="on the adapters' input")
    rank_pattern: dict[str, Any] | None = Field(None, description="other ranks, by the ends of layers' paths: {q_proj: 16}")
    modules_to_save: tuple[str, ...] | None = Field(None, description="the token table or the output head, of which a whole copy is trained")
    kernels: tuple[str, ...] | None = Field(None, description="axolotl's kernels, adapters and frozen layers in one function: [mlp, qkv, o]")
    use_dora: bool = Field(False, description="train the magnitudes of the merged weights' rows, too")


class LigerSpec(Spec):
    """Which of Liger's kernels run (the names of transformers' ``liger_kernel_config``); by default those that Liger itself takes for the model type."""

    rope: bool | None = Field(None, description="queries and keys are turned by rotary positions in place")
    rms_norm: bool | None = Field(None, description="RMSNorms")
    layer_norm: bool | None = Field(None, description="LayerNorms, of vision towers")
    swiglu: bool | None = Field(None, description="gates of feed-forward networks, and experts")
    geglu: bool | None = Field(None, description="gates of Gemma's feed-forward networks")
    relu_squared: bool | None = Field(None, description="Nemotron's activation")
    cross_entropy: bool | None = Field(None, description="the loss of whole logits, whose gradient takes their place")
    fused_linear_cross_entropy: bool | None = Field(None, description="the loss that makes logits in pieces: loss: fused_linear")


class ContrastiveSpec(Spec):
    """Texts that are told apart in a batch (sentence-transformers' MultipleNegativesRankingLoss)."""

    texts: Annotated[int, Field(ge=2, le=MAX_COUNT, strict=True)] = Field(2, description="of each example: an anchor, its match, and hard negatives")
    mini_batch: Count | None = Field(None, description="texts that have a graph at a time (GradCache, CachedMultipleNegativesRankingLoss); by default all")
    pooling: Literal["mean", "cls", "last"] = Field("mean", description="which hidden states make a text's vector")
    gather_across_devices: bool = Field(False, description="candidates of all data-parallel ranks, not of one")


class OffloadSpec(Spec):
    """What lives outside the card."""

    optimizer: Device | None = Field(None, description="where optimizer states live and step")
    params: Device | None = Field(None, description="where weights live between their uses")
    activations: Literal["cpu"] | None = Field(None, description="where saved activations wait for backward")


class EvaluationSpec(Spec):
    """An evaluation between two steps of training (the Trainer's names)."""

    micro_batch: Count | None = Field(None, description="sequences per card and forward pass; by default as many as are trained on")
    prediction_loss_only: bool = Field(True, description="keep the loss alone; false: logits of all samples, for metrics")
    samples: Count | None = Field(None, description="sequences that are evaluated in all, where their logits are kept")
    accumulation_steps: Count | None = Field(None, description="forward passes after which logits go to the host; by default when all are through")


class HardwareSpec(Spec):
    """The cards."""

    gpu: str | None = Field(None, description="a card of `memcalc gpus`, or the memory that torch sees of one, such as 79.1GiB")
    gpus: Cards | None = Field(None, description="how many in all")
    gpus_per_node: Cards = Field(8, description="how many share one host's memory")
    host_memory: str | None = Field(None, description="memory of a node's host, such as 744GB: what is kept there has to fit it, too")


class Run(Spec):
    """One job, as asked."""

    model: str = Field(description="a catalogue name, a Hub id, or a path to a config.json, its folder or a .gguf file", json_schema_extra=PATH)
    task: Task = Field("train", description="what the job does")
    code: Literal["transformers", "megatron", "torchtitan", "torchtune", "litgpt", "vllm", "sglang", "trtllm", "llamacpp"] = Field(
        "transformers", description="whose modules run; vllm, sglang, trtllm and llamacpp serve"
    )
    attention: Attention = Field("sdpa", description="attention kernel")
    attention_mask: bool = Field(False, description="the batch is padded and says so, so that the fused kernel gets a mask that it could do without")
    packing: bool = Field(False, description="a sequence holds several samples, kept apart by position_ids of the batch; flash attention needs no mask for it")
    torch_compile: bool = Field(False, description="modules are compiled: torchtune's are counted so; of others, a bound is given of what fusing them saves")
    liger: LigerSpec | None = Field(None, description="Liger's kernels in the place of the model's own modules; its loss, unless another is named")
    micro_batch: Count = Field(1, description="sequences per GPU and forward pass")
    seq_len: Count | None = Field(None, description="tokens per sequence; by default the model's own length, at most 4096")
    expandable_segments: bool = Field(False, description="the caching allocator's segments grow in place: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")
    lengths: LengthsSpec | None = Field(None, description="lengths that vary from step to step: the caching allocator keeps segments of many sizes")
    new_tokens: Annotated[int, Field(ge=0, le=MAX_COUNT, strict=True)] = Field(
        0, description="inference with transformers: tokens generated after a prompt of seq_len"
    )
    num_beams: Count = Field(1, description="inference with transformers: beams of each sequence, which are as many sequences from the prompt on")
    images: Annotated[int, Field(ge=0, le=MAX_COUNT, strict=True)] = Field(0, description="images in each sequence; their tokens are part of seq_len")
    image_size: Count | None = Field(None, description="pixels of an image, high and wide; by default the size that the model is made for")
    grad_accum: Count = Field(1, description="micro-batches per optimizer step")
    dtype: Dtype = Field("bfloat16", description="what the trained weights are held in")
    autocast: Dtype | None = Field(None, description="compute dtype where it differs from dtype")
    precision: str | None = Field(
        None,
        description="a name for dtype, autocast, fp8 and lora.dtype: fp32, pure_bf16, amp, amp_fp16, bf16, fp16, fp8, fp8_amp, fp8_torchao, trl, llamafactory",
    )
    fp8: Literal["te", "torchao"] | None = Field(
        None, description="products of layers in fp8: Transformer Engine's, which save inputs so, or torchao's, which cast both operands each time"
    )
    fp8_params: bool = Field(False, description="te, megatron: weights of layers are held in fp8 (fp8_param_gather), not in bf16 beside their copies")
    optimizer: str = Field("adamw_torch", description="by its transformers name")
    optimizer_foreach: bool | None = Field(None, description="multi-tensor step, where the optimizer's default is not wanted")
    optimizer_in_backward: bool = Field(False, description="each weight steps as its gradient is there, which then goes (torchtune's optimizer_in_bwd)")
    momentum: Annotated[float, Field(ge=0, lt=1)] = Field(0.0, description="of sgd and rmsprop")
    optimizer_rank: Count = Field(128, description="galore and apollo: rank of the projected gradients")
    optim_target_modules: str | tuple[str, ...] = Field(
        "all-linear", description="galore and apollo: whose gradients are projected; names, one regular expression, or all-linear"
    )
    recompute: Recompute = Field(
        "none", description="activation checkpointing; submodules: of norms, mixer and network of each layer, each by itself, as NeMo Automodel has it"
    )
    use_reentrant: bool = Field(
        False, description="reentrant checkpoints, transformers 4's default; under fsdp1 with adapters, what they make of a layer's input stays"
    )
    recompute_method: Literal["uniform", "block"] | None = Field(None, description="full recomputation of every n layers as one, or of the first n")
    recompute_num_layers: Count | None = Field(None, description="the n of recompute_method")
    recompute_modules: str | tuple[str, ...] | None = Field(None, description="megatron: what selective recomputation runs again; by default core_attn")
    mtp_num_layers: Count | None = Field(None, description="megatron: modules that predict further tokens")
    hidden_dropout: Annotated[float, Field(ge=0, lt=1)] | None = Field(None, description="megatron: dropout on what branches add; by default the model's")
    attention_dropout: Annotated[float, Field(ge=0, lt=1)] | None = Field(None, description="megatron: dropout on attention; by default the model's")
    loss: Loss = Field("cross_entropy", description="how the loss is computed")
    holds_logits: bool = Field(False, description="the loop's own variable holds the logits through backward: outputs = model(…); outputs.loss.backward()")
    upcast_logits: bool = Field(
        True, description="cross_entropy, chunked_output: the loss is taken of logits in fp32; false: of logits as they are, unless under autocast"
    )
    logits_to_keep: Annotated[int, Field(ge=0)] | None = Field(
        None, description="logits of the last so many tokens of each sequence, with labels to match; 0: of all; by default all in training, one in inference"
    )
    contrastive: ContrastiveSpec | None = Field(None, description="the model embeds texts, and each example's are told from all others of the batch")
    sharding: ShardingSpec = Field(ShardingSpec.model_construct(), description="how the job is spread over cards")
    checkpoint_save: Literal["full"] | None = Field(
        None, description="show the instant of a checkpoint, too, as the engine saves it: full, of the whole model, gathered where the engine gathers it"
    )
    evaluation: EvaluationSpec | None = Field(None, description="show the instant of an evaluation, too, and what it keeps on the host")
    initialize: bool = Field(False, description="show the instant in which the engine is constructed, too")
    trainable_layers: Count | None = Field(None, description="train the last so many layers and nothing else (freeze tuning)")
    prompt: PromptSpec | None = Field(None, description="virtual tokens before a frozen model")
    lora: LoraSpec | None = Field(None, description="low-rank adapters on a frozen model")
    quantization: str | None = Field(None, description="how the frozen base is stored: nf4, nf4-dq, int8, gptq, awq, …")
    bnb_4bit_quant_storage: Dtype = Field(
        "uint8", description="nf4: dtype that packed values are filed under; fsdp1 spreads those that have the dtype of the other weights"
    )
    bnb_4bit_compute_dtype: Dtype | None = Field(
        None, description="nf4, fp4: dtype of products with packed weights, where they were packed from another: they are brought back in that, then cast"
    )
    llm_int8_skip_modules: tuple[str, ...] | None = Field(
        None, description="names of linear layers that stay as they are on a quantised base; by default the output head, lm_head"
    )
    bnb_keeps_inputs: bool = Field(False, description="nf4, fp4: layers keep their input for backward, as in bitsandbytes before 0.43.2")
    kbit_upcast: bool = Field(
        True, description="of a quantised base, what stays as it is (tables, norms, head) is cast to fp32, as prepare_model_for_kbit_training does"
    )
    offload: OffloadSpec = Field(OffloadSpec.model_construct(), description="what lives outside the card")
    generation: GenerationSpec = Field(GenerationSpec.model_construct(), description="how transformers generates")
    loading: LoadingSpec = Field(LoadingSpec.model_construct(), description="how transformers loads")
    serving: ServingSpec = Field(ServingSpec.model_construct(), description="what a serving engine is told")
    roles: dict[str, Any] | None = Field(
        None, description="the models beside the one that is trained: {reference, critic, reward, teacher}, each with keys of a run; null: there is none"
    )
    rollout: RolloutSpec = Field(RolloutSpec.model_construct(), description="how answers come about in reinforcement learning")
    rl: RLSpec = Field(RLSpec.model_construct(), description="the algorithm of reinforcement learning")
    hardware: HardwareSpec = Field(HardwareSpec.model_construct(), description="the cards")
