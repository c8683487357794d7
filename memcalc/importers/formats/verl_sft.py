"""verl's SFT trainer (``verl.trainer.fsdp_sft_trainer``): its YAML and its Hydra overrides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memcalc.importers import adapters, liger
from memcalc.importers.facts import TRAINER, Facts, Rule
from memcalc.importers.format import Format
from memcalc.importers.formats.verl import VERSION, prepare, sequence_ranks
from memcalc.importers.rules import each, names, switch, unless, when, whole_number

PRETRAINED = "model.partial_pretrain"


def recognise(keys: Mapping[str, Any]) -> bool:
    """By its name for the model."""
    model = keys.get("model")
    return PRETRAINED in keys or (isinstance(model, Mapping) and "partial_pretrain" in model)


KEYS: dict[str, Rule] = {
    PRETRAINED: "model",
    "model.fsdp_config.model_dtype": "dtype",
    "model.fsdp_config.cpu_offload": unless("false", why="without offload_params all stays on the card"),
    "model.fsdp_config.offload_params": each(switch("offload.params", "cpu", None), switch("offload.optimizer", "cpu", None)),
    "model.enable_gradient_checkpointing": switch("recompute", "full", "none"),
    "model.lora_rank": whole_number("~lora_rank"),
    "model.target_modules": lambda facts, entry: facts.put("lora.target_modules", entry.value, entry.where),
    "model.use_liger": liger.without_labels,
    "model.strategy": lambda facts, entry: facts.put("~strategy", entry.word, entry.where),
    "data.max_length": whole_number("seq_len"),
    "data.micro_batch_size_per_gpu": whole_number("micro_batch"),
    "data.micro_batch_size": whole_number("micro_batch"),
    "data.train_batch_size": whole_number("~global_batch"),
    "ulysses_sequence_parallel_size": sequence_ranks,
    "use_remove_padding": when("", None, then="without padding a micro-batch is shorter than its longest sequences; whole ones are counted"),
    "trainer.n_gpus_per_node": whole_number("~gpus_per_node"),
    "trainer.nnodes": whole_number("~nodes"),
}


def finish(facts: Facts) -> None:
    """FSDP over weights in fp32 that compute in bf16, and adapters where their rank is above 0."""
    facts.put("~engine", "fsdp1" if facts.get("~strategy", "fsdp2") == "fsdp" else "fsdp2", facts.where("~strategy"))
    for name, value in {"dtype": "float32", "autocast": "bfloat16", "sharding.reduce_dtype": "float32"}.items():
        facts.default(name, value, VERSION)
    adapters.ranked(facts, VERSION)


FORMAT = Format(
    name="verl_sft",
    title="verl SFT YAML and Hydra overrides",
    version=VERSION,
    rank=TRAINER,
    recognise=recognise,
    keys=KEYS,
    ignored=names("defaults hydra.* data.* model.* optim.* trainer.* profiler.* checkpoint.*"),
    defaults={"micro_batch": 4, "seq_len": 1024, "recompute": "full", "optimizer": "adamw_torch", "~strategy": "fsdp2"},
    prepare=prepare,
    finish=finish,
    order=14,
    notes="Weights are held in fp32 and compute in bf16; gradients are reduced in fp32.",
)
