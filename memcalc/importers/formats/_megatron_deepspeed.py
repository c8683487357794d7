"""Flags that Megatron-DeepSpeed adds to Megatron's: DeepSpeed shards, around layers that transformers' stand for."""

from __future__ import annotations

from memcalc.importers.facts import Entry, Facts, Link, Rule
from memcalc.importers.links import located, name_deepspeed
from memcalc.importers.rules import switch, unless, whole_number

VERSION = "Megatron-DeepSpeed"
OF_MEGATRON = ("sharding.use_distributed_optimizer", "sharding.sp")


def _config(facts: Facts, entry: Entry) -> None:
    """Its scripts write the file just before they start."""
    if located(Link(str(entry.value), entry.where, facts.folder)) is None:
        facts.leave(entry, "there is no such file here; DeepSpeed's own defaults are counted, or give it with --from")
    else:
        name_deepspeed(facts, entry.value, where=entry.where, key=entry.key)
        facts.put("~auto_by", "deepspeed", VERSION)


KEYS: dict[str, Rule] = {
    "deepspeed": switch("~megatron_deepspeed"),
    "deepspeed_config": _config,
    "zero_stage": whole_number("sharding.zero"),
    "checkpoint_activations": switch("recompute", "full", None),
    "deepspeed_activation_checkpointing": switch("recompute", "full", None),
    "cpu_optimizer": switch("offload.optimizer", "cpu", None),
    "num_key_value_heads": whole_number("~shape.num_query_groups"),
    **dict.fromkeys(("use_flash_attn_v1", "use_flash_attn_v2", "use_flash_attn_triton"), switch("attention", "flash_attention_2", None)),
    "no_pipeline_parallel": lambda _facts, _entry: None,
    "ds_sequence_parallel_size": unless(1, why="sequences spread over ranks by Ulysses"),
}


def finish(facts: Facts) -> None:
    """DeepSpeed in the place of Megatron's own engine."""
    if not facts.get("~megatron_deepspeed", False):
        facts.found.pop("sharding.zero", None)
        return
    for name in OF_MEGATRON:
        facts.found.pop(name, None)
    facts.put("~engine", "deepspeed", facts.where("~megatron_deepspeed"))
    facts.put("code", "transformers", facts.where("~megatron_deepspeed"))
    if facts.found["attention"].is_default:
        facts.put("attention", "eager", f"{VERSION} without --use-flash-attn")
    facts.assumed.append(f"{VERSION}: transformers' layers stand for its own")


__all__ = ["KEYS", "finish"]
