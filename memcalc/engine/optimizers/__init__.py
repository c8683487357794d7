"""The optimizers by their transformers names: one line each. What one keeps and needs is in the file of its kind, which alone is imported."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from typing import Any, NamedTuple

from memcalc.engine.optimizers.base import Held, Optimizer, Stepped
from memcalc.errors import UnknownNameError


class Entry(NamedTuple):
    """Where an optimizer is.

    Attributes:
        kind: the file.
        name: the class in it.
        args, keys: what it is made with.
    """

    kind: str
    name: str
    args: tuple[Any, ...] = ()
    keys: dict[str, Any] = {}  # noqa: RUF012 (never changed)


OPTIMIZERS: dict[str, Entry] = {
    "adamw_torch": Entry("dense", "AdamW"),
    "adamw_torch_fused": Entry("dense", "AdamW", (), {"fused": True}),
    "adamw_torch_xla": Entry("dense", "AdamW", (), {"fused": True}),
    "adamw_torch_npu_fused": Entry("dense", "AdamW", (), {"fused": True}),
    "adamw_torch_4bit": Entry("blocks", "TorchAO", (), {"bits": 4}),
    "adamw_torch_8bit": Entry("blocks", "TorchAO", (), {"bits": 8}),
    "adamw_anyprecision": Entry("dense", "AnyPrecision"),
    "adamw_bnb_8bit": Entry("blocks", "BitsAndBytes", (), {"states": 2, "bits": 8}),
    "adamw_8bit": Entry("blocks", "BitsAndBytes", (), {"states": 2, "bits": 8}),
    "paged_adamw_8bit": Entry("blocks", "BitsAndBytes", (), {"states": 2, "bits": 8, "paged": True}),
    "paged_adamw_32bit": Entry("blocks", "BitsAndBytes", (), {"states": 2, "bits": 32, "paged": True}),
    "lion_32bit": Entry("blocks", "BitsAndBytes", (), {"states": 1, "bits": 32}),
    "lion_8bit": Entry("blocks", "BitsAndBytes", (), {"states": 1, "bits": 8}),
    "paged_lion_32bit": Entry("blocks", "BitsAndBytes", (), {"states": 1, "bits": 32, "paged": True}),
    "paged_lion_8bit": Entry("blocks", "BitsAndBytes", (), {"states": 1, "bits": 8, "paged": True}),
    "ademamix": Entry("blocks", "BitsAndBytes", (), {"states": 3, "bits": 32}),
    "ademamix_8bit": Entry("blocks", "BitsAndBytes", (), {"states": 3, "bits": 8}),
    "paged_ademamix_32bit": Entry("blocks", "BitsAndBytes", (), {"states": 3, "bits": 32, "paged": True}),
    "paged_ademamix_8bit": Entry("blocks", "BitsAndBytes", (), {"states": 3, "bits": 8, "paged": True}),
    "rmsprop_bnb": Entry("blocks", "BitsAndBytes", (), {"states": 1, "bits": 32}),
    "rmsprop_bnb_32bit": Entry("blocks", "BitsAndBytes", (), {"states": 1, "bits": 32}),
    "rmsprop_bnb_8bit": Entry("blocks", "BitsAndBytes", (), {"states": 1, "bits": 8}),
    "adafactor": Entry("factored", "Adafactor"),
    "sgd": Entry("dense", "SGD"),
    "adagrad": Entry("dense", "Averages", ("sum of squares", 1, "torch/optim/adagrad.py"), {"roots": 2, "counts": True}),
    "rmsprop": Entry("dense", "RMSprop"),
    "galore_adamw": Entry("matrices", "LowRank"),
    "galore_adamw_8bit": Entry("matrices", "LowRank", ("adamw_8bit",)),
    "galore_adafactor": Entry("matrices", "LowRank", ("adafactor",)),
    "galore_adamw_layerwise": Entry("matrices", "LowRank", (), {"layerwise": True}),
    "galore_adamw_8bit_layerwise": Entry("matrices", "LowRank", ("adamw_8bit",), {"layerwise": True}),
    "galore_adafactor_layerwise": Entry("matrices", "LowRank", ("adafactor",), {"layerwise": True}),
    "apollo_adamw": Entry("matrices", "LowRank", (), {"apollo": True}),
    "apollo_adamw_layerwise": Entry("matrices", "LowRank", (), {"apollo": True, "layerwise": True}),
    "lomo": Entry("factored", "Lomo"),
    "adalomo": Entry("factored", "Lomo", (), {"adaptive": True}),
    "schedule_free_adamw": Entry("dense", "Averages", ("z and square average", 2, "schedulefree/adamw_schedulefree.py"), {"roots": 1}),
    "schedule_free_radam": Entry("dense", "Averages", ("z and square average", 2, "schedulefree/radam_schedulefree.py"), {"roots": 1}),
    "schedule_free_sgd": Entry("dense", "Averages", ("z", 1, "schedulefree/sgd_schedulefree.py")),
    "grokadamw": Entry("dense", "GrokAdamW"),
    "stable_adamw": Entry("dense", "Averages", ("moments", 2, "optimi/stableadamw.py, _init_state"), {"scalars": 6, "kahan": True}),
    "muon": Entry("matrices", "Muon"),
}
"""Those of transformers.training_args.OptimizerNames, and Muon, which other trainers offer."""


@lru_cache
def optimizer_for(name: str) -> Optimizer:
    """The optimizer of a name.

    Raises:
        UnknownNameError: there is none; the message names the near ones.
    """
    if name not in OPTIMIZERS:
        hint = "(torch's are adamw_torch and adamw_torch_fused)" if name.lower() in ("adam", "adamw") else ""
        raise UnknownNameError("optimizer", name, OPTIMIZERS, where="optimizer", hint=hint)
    entry = OPTIMIZERS[name]
    found: Optimizer = getattr(import_module(f"memcalc.engine.optimizers.{entry.kind}"), entry.name)(*entry.args, **entry.keys)
    return found


__all__ = ["OPTIMIZERS", "Held", "Optimizer", "Stepped", "optimizer_for"]
