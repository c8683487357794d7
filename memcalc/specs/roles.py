"""What may be said of the models beside the one that is trained (``roles`` of a run): keys of a run, and a few of their own."""

from __future__ import annotations

ROLES = ("reference", "critic", "reward", "teacher")
"""The models that there may be beside the actor, which is the run's own."""

OF_ROLE = (
    *("model", "attention", "attention_mask", "micro_batch", "grad_accum", "dtype", "autocast", "precision", "recompute", "use_reentrant"),
    *("optimizer", "optimizer_foreach", "momentum", "lora", "quantization", "kbit_upcast", "trainable_layers", "offload", "sharding"),
)
"""Keys of a run that a role may have its own of; what it leaves out is the actor's."""

OWN = ("on", "shares", "idle", "precomputed")
"""A role's own keys: on which cards it lives (``same`` or ``other``), whose weights it uses (``actor``), what of it is on the host while others work
(``{params: cpu, optimizer: cpu}``), and whether its part was done before (a reference whose log-probabilities stand in the data)."""
