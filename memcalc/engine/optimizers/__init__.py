"""The optimizers by their transformers names: one line each. What one keeps and needs is in the file of its kind."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from memcalc.engine.optimizers.base import Held, Optimizer, Stepped
from memcalc.engine.optimizers.blocks import BitsAndBytes, TorchAO
from memcalc.engine.optimizers.dense import SGD, AdamW, AnyPrecision, Averages, GrokAdamW, RMSprop
from memcalc.engine.optimizers.factored import Adafactor, Lomo
from memcalc.engine.optimizers.matrices import LowRank, Muon
from memcalc.errors import UnknownNameError

OPTIMIZERS: dict[str, Callable[[], Optimizer]] = {
    "adamw_torch": AdamW,
    "adamw_torch_fused": lambda: AdamW(fused=True),
    "adamw_torch_xla": lambda: AdamW(fused=True),
    "adamw_torch_npu_fused": lambda: AdamW(fused=True),
    "adamw_torch_4bit": lambda: TorchAO(bits=4),
    "adamw_torch_8bit": lambda: TorchAO(bits=8),
    "adamw_anyprecision": AnyPrecision,
    "adamw_bnb_8bit": lambda: BitsAndBytes(states=2, bits=8),
    "adamw_8bit": lambda: BitsAndBytes(states=2, bits=8),
    "paged_adamw_8bit": lambda: BitsAndBytes(states=2, bits=8, paged=True),
    "paged_adamw_32bit": lambda: BitsAndBytes(states=2, bits=32, paged=True),
    "lion_32bit": lambda: BitsAndBytes(states=1, bits=32),
    "lion_8bit": lambda: BitsAndBytes(states=1, bits=8),
    "paged_lion_32bit": lambda: BitsAndBytes(states=1, bits=32, paged=True),
    "paged_lion_8bit": lambda: BitsAndBytes(states=1, bits=8, paged=True),
    "ademamix": lambda: BitsAndBytes(states=3, bits=32),
    "ademamix_8bit": lambda: BitsAndBytes(states=3, bits=8),
    "paged_ademamix_32bit": lambda: BitsAndBytes(states=3, bits=32, paged=True),
    "paged_ademamix_8bit": lambda: BitsAndBytes(states=3, bits=8, paged=True),
    "rmsprop_bnb": lambda: BitsAndBytes(states=1, bits=32),
    "rmsprop_bnb_32bit": lambda: BitsAndBytes(states=1, bits=32),
    "rmsprop_bnb_8bit": lambda: BitsAndBytes(states=1, bits=8),
    "adafactor": Adafactor,
    "sgd": SGD,
    "adagrad": lambda: Averages("sum of squares", 1, "torch/optim/adagrad.py", roots=2, counts=True),
    "rmsprop": RMSprop,
    "galore_adamw": LowRank,
    "galore_adamw_8bit": lambda: LowRank("adamw_8bit"),
    "galore_adafactor": lambda: LowRank("adafactor"),
    "galore_adamw_layerwise": lambda: LowRank(layerwise=True),
    "galore_adamw_8bit_layerwise": lambda: LowRank("adamw_8bit", layerwise=True),
    "galore_adafactor_layerwise": lambda: LowRank("adafactor", layerwise=True),
    "apollo_adamw": lambda: LowRank(apollo=True),
    "apollo_adamw_layerwise": lambda: LowRank(apollo=True, layerwise=True),
    "lomo": Lomo,
    "adalomo": lambda: Lomo(adaptive=True),
    "schedule_free_adamw": lambda: Averages("z and square average", 2, "schedulefree/adamw_schedulefree.py", roots=1),
    "schedule_free_radam": lambda: Averages("z and square average", 2, "schedulefree/radam_schedulefree.py", roots=1),
    "schedule_free_sgd": lambda: Averages("z", 1, "schedulefree/sgd_schedulefree.py"),
    "grokadamw": GrokAdamW,
    "stable_adamw": lambda: Averages("moments", 2, "optimi/stableadamw.py, _init_state", scalars=6, kahan=True),
    "muon": Muon,
}
"""Those of transformers.training_args.OptimizerNames, and Muon, which other trainers offer."""


@lru_cache
def optimizer_for(name: str) -> Optimizer:
    """The optimizer of a name.

    Raises:
        UnknownNameError: there is none; the message names the near ones.
    """
    if name not in OPTIMIZERS:
        raise UnknownNameError("optimizer", name, OPTIMIZERS, where="optimizer")
    return OPTIMIZERS[name]()


__all__ = ["OPTIMIZERS", "Held", "Optimizer", "Stepped", "optimizer_for"]
