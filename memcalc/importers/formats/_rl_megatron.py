"""Megatron's options as verl and NeMo-RL nest them. They are held until it is known that Megatron trains: a file may have other workers' sections, too."""

from __future__ import annotations

import re

from memcalc.importers.facts import Entry, Facts, Rule
from memcalc.importers.formats._megatron_adapters import LAYERS
from memcalc.importers.formats.megatron import KEYS
from memcalc.importers.rules import Write, names, switch, whole_number

HELD = "~megatron."
DEGREES = names(
    "tensor_model_parallel_size pipeline_model_parallel_size virtual_pipeline_model_parallel_size context_parallel_size expert_model_parallel_size "
    "expert_tensor_parallel_size sequence_parallel use_distributed_optimizer"
)
TRANSFORMER = names(
    "recompute_granularity recompute_method recompute_num_layers recompute_modules moe_router_dtype moe_token_dispatcher_type attention_backend "
    "account_for_embedding_in_pipeline_split account_for_loss_in_pipeline_split pipeline_model_parallel_layout hidden_dropout attention_dropout "
    "fine_grained_activation_offloading moe_expert_capacity_factor cp_comm_type make_vocab_size_divisible_by gradient_accumulation_fusion"
)
OPTIMIZER = names(
    "optimizer_cpu_offload optimizer_offload_fraction use_precision_aware_optimizer use_distributed_optimizer main_grads_dtype main_params_dtype "
    "exp_avg_dtype exp_avg_sq_dtype"
)
PARTS = {name: LAYERS[name] for name in ("linear_qkv", "linear_proj", "linear_fc1", "linear_fc2")}
"""Linear layers of transformers in those of Megatron; all four are every linear layer."""


def _predictions(facts: Facts, entry: Entry) -> None:
    if entry.number > 0:
        facts.put("mtp_num_layers", entry.number, entry.where)


OWN: dict[str, Rule] = {
    "num_layers_in_first_pipeline_stage": whole_number("sharding.decoder_first_pipeline_num_layers"),
    "num_layers_in_last_pipeline_stage": whole_number("sharding.decoder_last_pipeline_num_layers"),
    "mtp_num_layers": _predictions,
}
"""Options of the transformer that Megatron-LM's flags have under other names, or, of further tokens, where 0 is none."""

DDP: dict[str, Rule] = {"grad_reduce_in_fp32": switch("sharding.grad_reduce_in_bf16", on=False, off=True)}


def held(rule: Rule, mark: str = HELD) -> Write:
    """What a rule finds, under names that nobody reads."""

    def write(facts: Facts, entry: Entry) -> None:
        inner = Facts()
        inner.rank = facts.rank
        if isinstance(rule, str):
            inner.put(rule, entry.value, entry.where)
        else:
            rule(inner, entry)
        for name, fact in inner.found.items():
            facts.put(mark + name, fact.value, fact.where)
        if inner.unused:
            facts.put(f"{mark}~unused.{entry.key}", inner.unused, entry.where)

    return write


def options(place: str, *, transformer: str = "", optimizer: str = "", ddp: str = "", mark: str = HELD) -> dict[str, Rule]:
    """The rules of a section, with those of its own sections, each by where it stands."""
    rules = {f"{place}{name}": KEYS[name] for name in DEGREES}
    rules |= {f"{transformer or place}{name}": KEYS[name] for name in TRANSFORMER} | {f"{transformer or place}{name}": rule for name, rule in OWN.items()}
    rules |= {f"{optimizer}{name}": KEYS[name] for name in OPTIMIZER} if optimizer else {}
    rules |= {f"{ddp}{name}": rule for name, rule in DDP.items()} if ddp else {}
    return {key: held(rule, mark) for key, rule in rules.items()}


def take(facts: Facts, mark: str = HELD) -> None:
    """What was held holds."""
    for name in [name for name in facts.found if name.startswith(mark)]:
        fact, bare = facts.found.pop(name), name.removeprefix(mark)
        if bare.startswith("~unused."):
            facts.unused += fact.value
        elif bare not in facts.found or facts.found[bare].rank <= fact.rank:
            facts.found[bare] = fact
    if facts.get("offload.optimizer") is None:
        facts.found.pop("sharding.optimizer_offload_fraction", None)
    if facts.get("sharding.tp", 1) == 1:
        facts.found.pop("sharding.sp", None)


def drop(facts: Facts, mark: str = HELD) -> None:
    """Others train: what was held is of no use."""
    for name in [name for name in facts.found if name.startswith(mark)]:
        del facts.found[name]


def adapted(facts: Facts, entry: Entry) -> None:
    """Layers that get adapters, by Megatron's names for them: a list, or one as Hydra has it in a word."""
    asked = entry.value if isinstance(entry.value, list) else re.split(r"[\s,\[\]'\"]+", str(entry.value))
    found = [str(name) for name in asked if name]
    if found:
        known = tuple(part for name in found for part in PARTS.get(name, (name,)))
        facts.put("lora.target_modules", "all-linear" if set(found) == set(PARTS) else known, entry.where)


__all__ = ["HELD", "KEYS", "adapted", "drop", "held", "options", "take"]
