"""The FSDP keys of accelerate, which transformers' ``fsdp_config``, axolotl and ms-swift share, with and without their prefix."""

from __future__ import annotations

from memcalc.importers.facts import Entry, Facts, Rule
from memcalc.importers.rules import each, switch, unless, word

STRATEGIES = {name.lower(): name for name in ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD")}
STRATEGIES |= {
    "1": "FULL_SHARD",
    "2": "SHARD_GRAD_OP",
    "3": "NO_SHARD",
    "4": "HYBRID_SHARD",
    "hybrid_shard_zero2": "_HYBRID_SHARD_ZERO2",
    "5": "_HYBRID_SHARD_ZERO2",
}


def version(facts: Facts, entry: Entry) -> None:
    """Which FSDP."""
    facts.put("~fsdp_version", 2 if entry.word == "2" else 1, entry.where)


def reshard(facts: Facts, entry: Entry) -> None:
    """Of FSDP2 a bool; some files for FSDP1 put the strategy here."""
    if entry.word in STRATEGIES and not entry.word.isdigit():
        facts.put("sharding.fsdp_sharding_strategy", STRATEGIES[entry.word], entry.where)
    else:
        facts.put("sharding.reshard_after_forward", entry.is_on, entry.where)


def strategy(facts: Facts, entry: Entry) -> None:
    """Of FSDP1 a name or its number."""
    word("sharding.fsdp_sharding_strategy", STRATEGIES)(facts, entry)
    facts.put("sharding.reshard_after_forward", entry.word not in ("shard_grad_op", "2"), entry.where)


def wrap(facts: Facts, entry: Entry) -> None:
    """How modules are grouped."""
    if entry.word == "size_based_wrap":
        facts.leave(entry, "each decoder layer is counted as a unit")
        return
    word("sharding.fsdp_auto_wrap_policy", {"transformer_based_wrap": "TRANSFORMER_BASED_WRAP", "no_wrap": "NO_WRAP"})(facts, entry)


def offload(facts: Facts, entry: Entry) -> None:
    """Weights, gradients and states on the host."""
    if entry.is_on:
        facts.put("offload.params", "cpu", entry.where)
        facts.put("offload.optimizer", "cpu", entry.where)


def words(facts: Facts, entry: Entry) -> None:
    """Transformers' ``fsdp``: a list, or words in a text such as ``full_shard auto_wrap``."""
    found = [str(item) for item in entry.value] if isinstance(entry.value, list) else str(entry.value).replace(",", " ").split()
    found = [item.strip().lower() for item in found]
    if not found or found[0] in ("false", "none", "''"):
        return
    facts.put("~fsdp", value=True, where=entry.where)
    facts.put("sharding.fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP" if "auto_wrap" in found or "fsdp2" in found else "NO_WRAP", entry.where)
    for item in found:
        if item in STRATEGIES:
            strategy(facts, entry._replace(value=item))
        elif item == "offload":
            offload(facts, entry._replace(value=True))
        elif item in ("fsdp2", "fsdp_2"):
            facts.put("~fsdp_version", 2, entry.where)
        elif item not in ("auto_wrap", "true"):
            facts.leave(entry, f"{item} is not known")


KEYS: dict[str, Rule] = {
    "version": version,
    "sharding_strategy": strategy,
    "reshard_after_forward": reshard,
    "offload_params": offload,
    "activation_checkpointing": switch("recompute", "full", None),
    "auto_wrap_policy": wrap,
    "min_num_params": unless(0, why="each decoder layer is counted as a unit"),
    "transformer_layer_cls_to_wrap": each(),
    "backward_prefetch": word(
        "sharding.fsdp_backward_prefetch",
        {
            "backward_pre": "BACKWARD_PRE",
            "backward_post": "BACKWARD_POST",
            "no_prefetch": "NO_PREFETCH",
            "1": "BACKWARD_PRE",
            "2": "BACKWARD_POST",
            "false": "NO_PREFETCH",
        },
    ),
    "forward_prefetch": "sharding.fsdp_forward_prefetch",
    "ignored_modules": unless(),
    "cpu_offload": offload,
}
"""By their names without ``fsdp_``."""

IGNORED = (
    "state_dict_type", "sync_module_states", "use_orig_params", "cpu_ram_efficient_loading", "limit_all_gathers", "xla*", "mixed_precision_policy",
    "final_state_dict_type",
)  # fmt: skip


def keys_below(section: str) -> dict[str, Rule]:
    """The same in a section, with and without the prefix."""
    return {f"{section}{prefix}{name}": rule for name, rule in KEYS.items() for prefix in ("", "fsdp_")}


def ignored_below(section: str) -> tuple[str, ...]:
    """What is ignored there."""
    return tuple(f"{section}{prefix}{name}" for name in IGNORED for prefix in ("", "fsdp_"))


def finish(facts: Facts, *, default_version: int, framework: str) -> None:
    """Which engine it is, once all keys are read."""
    if not facts.get("~fsdp", False):
        return
    if "~fsdp_version" not in facts.found:
        facts.default("~fsdp_version", default_version, framework)
        facts.assumed.append(f"FSDP{default_version}: default of {framework}")
    facts.put("~engine", f"fsdp{facts.get('~fsdp_version')}", facts.where("~fsdp"))
    facts.put("~no_sync", value=True, where="accelerate")
    if "sharding.fsdp_backward_prefetch" not in facts.found:
        facts.default("sharding.fsdp_backward_prefetch", "NO_PREFETCH" if framework.startswith("accelerate") else "BACKWARD_PRE", framework)


__all__ = ["IGNORED", "KEYS", "finish", "ignored_below", "keys_below", "offload", "strategy", "version", "words"]
