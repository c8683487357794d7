"""GPT-NeoX's YAML: a model of sizes, and DeepSpeed's keys beside them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from memcalc.importers.facts import TRAINER, Entry, Facts, Rule, whole
from memcalc.importers.format import Format, normal
from memcalc.importers.formats import deepspeed
from memcalc.importers.rules import names, switch, unless, when, whole_number
from memcalc.importers.source import Source

VERSION = "GPT-NeoX 2.0"
DEEPSPEED_KEYS = names("train_batch_size train_micro_batch_size_per_gpu gradient_accumulation_steps zero_optimization fp16 bf16 gradient_clipping data_types")
NOT_DEEPSPEEDS = ("fp16", "bf16", "type", "load_from_fp32_weights")
"""Keys that NeoX takes in DeepSpeed's blocks, and DeepSpeed does not."""
VOCABULARIES = {"spmtokenizer": 32000}
SIZES = {
    "num_layers": "num_hidden_layers", "hidden_size": "hidden_size", "num_attention_heads": "num_attention_heads", "num_kv_heads": "num_key_value_heads",
    "intermediate_size": "intermediate_size", "max_position_embeddings": "max_position_embeddings",
}  # fmt: skip


def recognise(keys: Mapping[str, Any]) -> bool:
    """By its degrees beside the sizes of a model, or DeepSpeed's keys."""
    degrees = any(key in keys for key in ("pipe_parallel_size", "model_parallel_size"))
    return (degrees and any(key in keys for key in ("num_layers", "zero_optimization"))) or ("zero_optimization" in keys and "checkpoint_activations" in keys)


def prepare(source: Source) -> Source:
    """DeepSpeed's keys as a configuration of its own, checked as one.

    Raises:
        InputError: DeepSpeed would not take it.
    """
    data = {normal(key): value for key, value in source.data.items()}
    lines = {(normal(place[0]), *place[1:]): line for place, line in source.lines.items()}
    config = {key: _without(data[key]) for key in DEEPSPEED_KEYS if key in data}
    if data.get("precision") == "bfloat16":
        config["bf16"] = {"enabled": True}
    if not config:
        return source._replace(data=data, lines=lines)
    made = deepspeed.prepare(source._replace(data=config, lines=lines))
    return source._replace(data={**{key: value for key, value in data.items() if key not in DEEPSPEED_KEYS}, **made.data}, lines=lines)


def _without(block: Any) -> Any:
    return {key: value for key, value in block.items() if key not in NOT_DEEPSPEEDS} if isinstance(block, Mapping) else block


def _size(name: str) -> Rule:
    def write(facts: Facts, entry: Entry) -> None:
        facts.put(f"~size.{name}", entry.number, entry.where)

    return write


def _told(name: str) -> Rule:
    def write(facts: Facts, entry: Entry) -> None:
        facts.put(f"~told.{name}", entry.value, entry.where)

    return write


def _stages(facts: Facts, entry: Entry) -> None:
    """0 is a model without a pipeline, 1 a pipeline of one stage."""
    if entry.number > 1:
        facts.put("sharding.pp", entry.number, entry.where)


KEYS: dict[str, Rule] = {
    **deepspeed.KEYS,
    **{key: _size(name) for key, name in SIZES.items()},
    **{key: _told(key) for key in ("norm", "activation", "rotary_pct", "tokenizer_type", "attention_config", "mlp_multiple_of", "pos_emb")},
    "gpt_j_residual": switch("~told.gpt_j_residual"),
    "no_weight_tying": switch("~told.untied"),
    "seq_length": whole_number("seq_len"),
    "model_parallel_size": whole_number("sharding.tp"),
    "pipe_parallel_size": _stages,
    "global_num_gpus": whole_number("~world"),
    "checkpoint_activations": switch("recompute", "full", "none"),
    "checkpoint_num_layers": unless(1),
    "partition_activations": unless("false", why="each tensor-parallel rank keeps its part of what is saved"),
    "hidden_dropout": unless(0, 0.0),
    "use_bnb_optimizer": switch("optimizer", "adamw_bnb_8bit", None),
    "optimizer.type": unless("adam", "adamw"),
    "moe_num_experts": unless(0, 1),
    "sequence_parallel": when("", None),
    "te_*": unless("false", why="Transformer Engine's modules keep other tensors"),
}


def finish(facts: Facts) -> None:
    """DeepSpeed starts as it is, around a model of these sizes."""
    facts.put("~engine", "deepspeed", VERSION)
    facts.put("~auto_by", "deepspeed", VERSION)
    facts.default("optimizer", "adamw_torch_fused", VERSION)
    kinds = json.dumps(facts.get("~told.attention_config", ""))
    facts.default("attention", "flash_attention_2" if "flash" in kinds else "eager", VERSION)
    if facts.get("~mixed_precision") in ("bf16", "fp16"):
        facts.put("dtype", {"bf16": "bfloat16", "fp16": "float16"}[facts.get("~mixed_precision")], facts.where("~mixed_precision"))
    facts.assumed.append(f"{VERSION}: transformers' modules stand for its own")
    _model(facts, other=any(kind in kinds for kind in ("mamba", "rwkv", "gmlp")) or facts.get("~told.pos_emb") == "none")


def _model(facts: Facts, *, other: bool) -> None:
    """NeoX's own layers, or, with RMSNorm and SwiGLU, Llama's."""
    size = {name.removeprefix("~size."): fact.value for name, fact in facts.found.items() if name.startswith("~size.")}
    told = {name.removeprefix("~told."): fact.value for name, fact in facts.found.items() if name.startswith("~told.")}
    if "model" in facts.found or not {"num_hidden_layers", "hidden_size", "num_attention_heads"} <= set(size):
        return
    gated, gelu = (told.get("norm", "layernorm"), told.get("activation", "gelu")) == ("rmsnorm", "swiglu"), told.get("activation", "gelu") == "gelu"
    if other or not (gated or (gelu and told.get("norm", "layernorm") == "layernorm" and "num_key_value_heads" not in size)):
        facts.unused.append("the sizes of the model (num_layers, hidden_size, …): they are of layers that NeoX has alone; give another with --model")
        return
    vocab = VOCABULARIES.get(str(told.get("tokenizer_type", "")).lower(), 32000 if gated else 50304)
    facts.assumed.append(f"a vocabulary of {vocab:,}, which the file does not say; another with --model")
    config: dict[str, Any] = {**size, "vocab_size": vocab, "tie_word_embeddings": not told.get("untied", False)}
    hidden = size["hidden_size"]
    if gated:
        part, step = size.get("intermediate_size", 4 * hidden * 2) // 3, whole(told.get("mlp_multiple_of", 256), name="mlp_multiple_of")
        config |= {"model_type": "llama", "intermediate_size": -(-part // step) * step if step > 0 else part}
    else:
        config |= {"model_type": "gpt_neox", "use_parallel_residual": bool(told.get("gpt_j_residual", False)), "rotary_pct": told.get("rotary_pct", 1.0)}
        config.setdefault("intermediate_size", 4 * hidden)
    facts.put("model", json.dumps(config), facts.where("~size.num_hidden_layers", "~size.hidden_size"))


FORMAT = Format(
    name="gpt_neox",
    title="GPT-NeoX YAML",
    version=VERSION,
    rank=TRAINER,
    recognise=recognise,
    keys=KEYS,
    ignored=names(
        "pos_emb rotary_* rope_* output_layer_* *init_method* layernorm_* *fusion use_bias_* rms_norm_epsilon norm_epsilon optimizer.params.* min_lr lr_* "
        "warmup* decay_lr_to override_lr_scheduler data_impl data_path *_data_paths *_data_weights split num_workers checkpoint_factor "
        "synchronize_each_layer attention_dropout weight_decay train_iters train_epochs eval_* distributed_backend extra_save_iters save load log_* "
        "keep_last_n_checkpoints steps_per_print wall_clock_breakdown vocab_file merge_file tokenizer_* tensorboard_* use_wandb wandb_* use_comet comet_* "
        "hostfile launcher deepspeed_* finetune make_vocab_size_divisible_by comment num_samples profile* memory_profiling* checkpoint_validation_* "
        "gradient_clipping fp32_allreduce precision zero_optimization* attention_softmax_in_fp32 "
        "train_micro_batch_size_per_gpu pipe_partition_method "
        "sliding_window_width"
    ),
    defaults={"recompute": "none"},
    prepare=prepare,
    finish=finish,
    order=8,
    notes="DeepSpeed's keys count as in its own JSON. The sizes make a model: NeoX's layers, or Llama's where norms are RMSNorm and the activation SwiGLU.",
)  # fmt: skip
