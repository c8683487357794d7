"""What of fine-tuning goes together: losses, adapters, quantised bases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memcalc.components import DecoderLayer, Head
from memcalc.errors import InputError
from memcalc.specs.run import Run

if TYPE_CHECKING:
    from memcalc.specs.model import ModelSpec


UPCAST = ("nf4", "nf4-dq", "fp4", "fp4-dq", "int8", "awq")
"""What prepare_model_for_kbit_training casts to fp32 around; it leaves GPTQ's and HQQ's alone (peft/utils/other.py)."""

OF_BASES = {
    "kbit_upcast": "what becomes of the rest of a quantised base",
    "bnb_4bit_quant_storage": "how packed values are filed",
    "bnb_4bit_compute_dtype": "in which dtype products with packed weights are",
    "llm_int8_skip_modules": "which layers of a quantised base stay as they are",
    "bnb_keeps_inputs": "what bitsandbytes keeps of a quantised base's inputs",
}
"""Keys that mean something beside quantization only."""

OF_ONE_LOSS = ("prompt", "contrastive", "evaluation", "logits_to_keep")
"""Keys of training on labels alone, which no preference task and no server reads."""

OF_TRAINED_MODULES = (*OF_ONE_LOSS, "packing", "fp8", "liger")
"""Keys that say how modules are run in training, which no server reads."""

OF_TRAINING = (
    *("lengths", "holds_logits", "upcast_logits"),
    *("loss", "grad_accum", "trainable_layers", "checkpoint_save"),
    *("optimizer", "optimizer_foreach", "optimizer_in_backward", "momentum", "optimizer_rank", "optim_target_modules"),
    *("recompute", "recompute_method", "recompute_num_layers", "recompute_modules", "use_reentrant"),
    *("sharding.reduce_dtype", "sharding.gradient_as_bucket_view", "sharding.bucket_cap_mb", "sharding.sync_each_batch"),
    *("offload.optimizer", "offload.activations"),
)
"""Keys that say how a model is trained."""


def load_quantised(run: Run, model: ModelSpec) -> tuple[Run, ModelSpec, list[str]]:
    """A run whose base is stored quantised: what it then holds and computes in, the model, and what was assumed.

    Raises:
        InputError: nothing on top takes a gradient; modules or degrees that cannot have it.
        UnknownNameError: no such quantization.
    """
    run, assumed = as_stored(run, model)
    if run.quantization is None:
        for key in run.model_fields_set & OF_BASES.keys():
            raise InputError(f"it says {OF_BASES[key]}; give quantization", where=key)
        return run, model, []
    from memcalc.models.quantized import loading, quantise

    trains = run.task == "train"
    if trains and run.lora is None and run.prompt is None:
        raise InputError(f"weights in {run.quantization} take no gradient, so nothing would be trained; give lora", where="quantization")
    if trains and not loading(run.quantization).trainable:
        raise InputError(f"transformers brings {run.quantization} weights back to {run.dtype} before it trains on top; leave it out", where="quantization")
    if run.sharding.tp > 1:
        raise InputError(f"packed weights are not cut, and tp is {run.sharding.tp}; use dp", where="quantization")
    own = run.autocast or run.dtype
    compute, held, keeps = own, None, False
    if loading(run.quantization).kernel == "4-bit":
        compute, held, keeps = run.bnb_4bit_compute_dtype or own, own, run.bnb_keeps_inputs
    model = quantise(model, run.quantization, compute=compute, held=held, keeps_inputs=keeps, skipped=run.llm_int8_skip_modules)
    if any(weight.is_expert for _, weight, _ in model.weights()):
        assumed.append("experts are quantised one by one, as transformers 4 holds them")
        if run.sharding.ep > 1:
            raise InputError(f"packed experts are not spread, and ep is {run.sharding.ep}; use dp", where="quantization")
    if trains and run.kbit_upcast and run.quantization in UPCAST and run.dtype != "float32" and not sharded(run):
        assumed.append(f"kbit_upcast: what is not quantised is held in fp32, computed under autocast in {run.autocast or run.dtype}")
        run = run.model_copy(update={"dtype": "float32", "autocast": run.autocast or run.dtype})
    return run, model, assumed


def as_stored(run: Run, model: ModelSpec) -> tuple[Run, list[str]]:
    """A run of a checkpoint whose weights stay packed: transformers holds it as it is stored, whatever else is asked for.

    Source: transformers/quantizers/auto.py, merge_quantization_configs.
    """
    if model.quantization is None or run.code != "transformers":
        return run, []
    from memcalc.models.quantized import loading_of

    name = loading_of(model.quantization)
    if name is None or name == run.quantization:
        return run, []
    instead = "" if run.quantization is None else f", not {run.quantization}"
    return run.model_copy(update={"quantization": name}), [f"quantization {name}{instead}: the checkpoint's own ({model.quantization.name})"]


def sharded(run: Run) -> bool:
    """Whether an engine spreads the model, which then keeps one dtype: TRL does not upcast there, and DeepSpeed casts back."""
    return run.sharding.engine not in (None, "ddp") or run.sharding.deepspeed is not None


def with_mini_batches(run: Run) -> Run:
    """Under GradCache, mini-batches after the first find gradients there, as further micro-batches do."""
    asked = run.contrastive
    if asked is None or asked.mini_batch is None or asked.mini_batch >= run.micro_batch * asked.texts:
        return run
    return run.model_copy(update={"grad_accum": max(run.grad_accum, 2)})


def refuse_finetuning(run: Run, model: ModelSpec, *, engine: str, zero: int) -> None:
    """Say no to what is asked and cannot be given.

    Raises:
        InputError: a loss that the model's code or the engine cannot compute in this way.
    """
    _refuse_training(run, engine)
    _refuse_prompt(run)
    if run.evaluation is not None:
        from memcalc.engine.evaluation import refuse_evaluation

        refuse_evaluation(run, run.evaluation)
    if run.attention_mask and run.code != "transformers":
        raise InputError(f"padded batches are known for transformers' modules; code {run.code} packs samples instead", where="attention_mask")
    if run.packing:
        _refuse_packing(run, model)
    if run.recompute == "submodules":
        _refuse_submodules(run, model, engine)
    _refuse_fp8(run)
    _refuse_contrastive(run)
    _refuse_kept_logits(run, model)
    if run.quantization is not None and run.lora is not None and run.lora.target_parameters:
        raise InputError("packed experts have no parameters to wrap; target_modules are what is adapted there", where="lora.target_parameters")
    if run.quantization is not None and engine == "deepspeed" and zero == 3 and not run.quantization.startswith(("nf4", "fp4")):
        raise InputError(f"what stage 3 makes of weights in {run.quantization} is not known; use nf4, or zero 2", where="quantization")
    if run.loss != "cross_entropy" and run.task == "train":
        _refuse_loss(run, model, engine=engine, zero=zero)


def refuse_elsewhere(run: Run, *, serves: bool) -> None:
    """Say no to what belongs to training on labels, where the task has several models, or a server runs one.

    Raises:
        InputError: such a key is given.
    """
    if run.task in ("train", "inference") and not serves:
        return
    given = [key for key in (OF_TRAINED_MODULES if serves else OF_ONE_LOSS) if getattr(run, key) not in (None, False)]
    if given:
        who = f"code {run.code} serves, and has no such knob" if serves else f"not known for task {run.task}"
        raise InputError(f"{who}; it belongs to task train", where=given[0])


def _refuse_training(run: Run, engine: str) -> None:
    if run.offload.activations is not None and (run.code not in ("transformers", "torchtune") or run.sharding.pp > 1):
        raise InputError("saved activations on the host are known for transformers' and torchtune's modules without a pipeline", where="offload.activations")
    if run.trainable_layers is not None:
        if run.lora is not None or run.quantization is not None:
            raise InputError("adapters freeze all layers, and quantised ones take no gradient; leave lora and quantization out", where="trainable_layers")
        if run.code != "transformers" or engine not in ("ddp", "fsdp2") or run.sharding.pp > 1:
            raise InputError("freezing layers is known for transformers' modules under engine ddp or fsdp2", where="trainable_layers")
    if run.lora is not None and run.lora.use_dora and run.sharding.tp > 1:
        raise InputError(f"magnitudes are those of whole rows, which tp {run.sharding.tp} cuts", where="lora.use_dora")


def assumed_of(run: Run, model: ModelSpec) -> list[str]:
    """What is taken for granted of a run that trains, in words."""
    found = []
    moves = run.lora is not None and run.code == "transformers" and not run.lora.target_parameters
    if moves and any("/experts/" in path and "/lora_A/" in path for path, _, _ in model.weights()):
        found.append("experts are parameters in transformers 5, which PEFT adapts by whole merged weights, without dropout")
    if run.offload.activations is not None:
        found.append("offload.activations: of 1 KiB or more, as often as saved, but no weights (TRL's hooks leave on the card what is saved a second time)")
    if run.contrastive is not None:
        found.append("contrastive: texts of all columns are counted as one batch, which embeds them one column after another")
    if run.fp8 is not None:
        found.append("fp8: all linear layers but the output head" + ("; the scaling recipe is delayed" if run.fp8 == "te" else ""))
    if run.prompt is not None:
        found.append(f"prompt: {run.prompt.num_virtual_tokens} virtual tokens come on top of seq_len")
    return found


def _refuse_fp8(run: Run) -> None:
    """Products in fp8 where the layers are not converted, or memcalc does not know how they are."""
    if run.fp8_params and (run.fp8 != "te" or run.code != "megatron"):
        raise InputError("weights held in fp8 are known for code megatron with fp8: te", where="fp8_params")
    if run.fp8 is None:
        return
    if run.task != "train" or run.quantization is not None:
        raise InputError("products in fp8 are known for training, without a quantised base", where="fp8")
    if run.code == "megatron" and run.fp8 != "te":
        raise InputError("Megatron's products in fp8 are Transformer Engine's: fp8: te", where="fp8")
    if run.code == "transformers" and (run.lora is not None or run.sharding.tp > 1):
        raise InputError("products in fp8 with adapters or tp are known for code megatron", where="fp8")


def _refuse_contrastive(run: Run) -> None:
    """A contrastive loss where texts are not whole on a card, or beside another loss."""
    if run.contrastive is None:
        return
    sharding = run.sharding
    if run.task != "train" or run.code != "transformers" or (sharding.tp, sharding.pp, sharding.cp) != (1, 1, 1):
        raise InputError("embedders are known for training with transformers' modules, with tp, pp and cp 1", where="contrastive")
    if run.loss != "cross_entropy" or run.evaluation is not None or run.prompt is not None or run.packing or run.images:
        raise InputError("an embedder has no logits: leave loss, evaluation, prompt, packing and images out", where="contrastive")


def _refuse_kept_logits(run: Run, model: ModelSpec) -> None:
    """Logits of some tokens where the model has no such argument, or where labels of all tokens are given beside it."""
    if run.logits_to_keep is None:
        return
    if run.code != "transformers" or run.task not in ("train", "inference") or run.sharding.cp > 1 or run.contrastive is not None:
        raise InputError("this is an argument of transformers' modules, known for tasks train and inference without cp", where="logits_to_keep")
    if run.loss != "cross_entropy" or run.evaluation is not None or run.prompt is not None:
        raise InputError("labels of all tokens come with another loss, evaluation or prompt: leave them out", where="logits_to_keep")
    if not all(type(block.module) is Head for block in model.blocks if block.role == "head"):
        raise InputError(f"transformers' {model.model_type} has no such argument, or memcalc does not know it", where="logits_to_keep")


def _refuse_packing(run: Run, model: ModelSpec) -> None:
    """Packed samples where the model's code would not keep them apart, or memcalc does not know how it does."""
    if run.task != "train" or run.code not in ("transformers", "torchtune") or run.attention_mask or run.prompt is not None or run.sharding.cp > 1:
        raise InputError("packed samples are known for training transformers' and torchtune's modules, without attention_mask, prompt and cp", where="packing")
    fronts = [block.module for block in model.blocks if block.role == "embedding"]
    if not all(getattr(front, "style", "") == "decoder" and (getattr(front, "rotary", None) or getattr(front, "local_rotary", None)) for front in fronts):
        raise InputError(f"packed samples are known for rotary positions, which {model.model_type} does not have alone", where="packing")


def _refuse_submodules(run: Run, model: ModelSpec, engine: str) -> None:
    """Checkpoints of parts of layers where nobody sets them, or memcalc does not know how they run."""
    if run.code != "transformers" or engine == "deepspeed" or run.offload.activations is not None:
        raise InputError("submodules are known for transformers' modules, without engine deepspeed and offload.activations; use full", where="recompute")
    if any(type(block.module) is not DecoderLayer for block in model.blocks if block.role == "layer"):
        raise InputError(f"submodules are known for layers of a mixer and a network, which {model.model_type} does not have alone; use full", where="recompute")


def _refuse_prompt(run: Run) -> None:
    """Virtual tokens where PEFT has none, or where memcalc does not know them."""
    prompt, sharding = run.prompt, run.sharding
    if prompt is None:
        return
    if run.task != "train" or run.code != "transformers" or (sharding.tp, sharding.pp, sharding.cp) != (1, 1, 1):
        raise InputError("virtual tokens are known for training with transformers' modules, with tp, pp and cp 1", where="prompt")
    if run.lora is not None or run.trainable_layers is not None:
        raise InputError("virtual tokens are trained before a frozen model: leave lora and trainable_layers out", where="prompt")
    if prompt.type == "prefix_tuning" and run.recompute != "none":
        raise InputError("prefix tuning keeps a cache, which PEFT refuses beside checkpoints; use recompute: none", where="recompute")
    if prompt.type == "prefix_tuning" and run.attention == "flash_attention_2":
        raise InputError("prefix tuning is known with attention sdpa or eager", where="attention")
    if prompt.prefix_projection and prompt.type != "prefix_tuning":
        raise InputError(f"{prompt.type} has no such network; p_tuning always has its own", where="prompt.prefix_projection")
    if prompt.encoder_hidden_size is not None and prompt.type != "p_tuning" and not prompt.prefix_projection:
        raise InputError(f"{prompt.type} has no network here; use p_tuning, or prefix_projection", where="prompt.encoder_hidden_size")


def ignored_by_training(run: Run) -> tuple[str, ...]:
    """Keys of training that were given, and that inference or a kind of base does not read."""
    given = {*run.model_fields_set, *(f"{part}.{key}" for part in ("sharding", "offload") for key in getattr(run, part).model_fields_set)}
    found = {}
    if run.task == "inference":
        found = dict.fromkeys(OF_TRAINING, "nothing is trained")
        if run.sharding.zero in (1, 2):
            found["sharding.zero"] = "there are no states or gradients to shard"
    elif run.sharding.pp > 1 or run.task != "train":
        found["lengths"] = "lengths that vary are played for one model without a pipeline"
    if run.quantization is not None and (run.quantization not in UPCAST or sharded(run)):
        found["kbit_upcast"] = f"a base in {run.quantization} keeps its dtype here"
    if run.quantization is not None and not run.quantization.startswith(("nf4", "fp4")):
        found |= dict.fromkeys(("bnb_4bit_compute_dtype", "bnb_4bit_quant_storage", "bnb_keeps_inputs"), f"a base in {run.quantization} has no 4-bit layers")
    return tuple(f"{key}: {why}" for key, why in found.items() if key in given)


def _refuse_loss(run: Run, model: ModelSpec, *, engine: str, zero: int) -> None:
    from memcalc.components import Head

    if run.code in ("torchtune", "litgpt"):
        return
    if run.code != "transformers" or run.loss == "linear_cross_entropy":
        has = "cross_entropy" if run.code != "transformers" else "others; linear_cross_entropy is torchtune's"
        raise InputError(f"loss {run.loss} replaces the head of transformers' models; code {run.code} has {has}", where="loss")
    if run.sharding.tp > 1 and run.loss != "chunked_output":
        raise InputError(f"loss {run.loss} takes the whole weight of the head, which tp {run.sharding.tp} cuts; use cross_entropy", where="loss")
    if engine == "deepspeed" and zero == 3 and run.loss == "chunked":
        raise InputError(f"loss {run.loss} takes the head's weight past its module, where stage 3 gathers it; use cross_entropy", where="loss")
    heads = [block.module for block in model.blocks if block.role == "head"]
    if not heads or not all(type(head) is Head for head in heads):
        raise InputError(f"loss {run.loss} takes a head that is one projection, which {model.model_type} does not have; use cross_entropy", where="loss")
