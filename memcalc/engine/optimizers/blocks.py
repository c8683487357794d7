"""Optimizers whose states are quantised in blocks, and those that page: bitsandbytes and torchao."""

from __future__ import annotations

from collections.abc import Iterator

from memcalc.engine.optimizers.base import Held, Optimizer, Stepped
from memcalc.formulas.optimizers import blocks
from memcalc.specs.job import Job

BNB = "bitsandbytes/optim/optimizer.py, init_state"
TABLES = "transformers/trainer.py, create_optimizer (register_module_override)"


class BitsAndBytes(Optimizer):
    """bitsandbytes' optimizers, whose kernels need nothing on top.

    Args:
        states: 1, 2 or 3.
        bits: 8 or 32; the Trainer has tables stepped in 32.
        paged: large states are managed memory, which the card sends to the host when it needs the room.
    """

    def __init__(self, *, states: int, bits: int, paged: bool = False) -> None:
        self.num_states, self.bits, self.paged = states, bits, paged

    def states(self, job: Job, t: Stepped) -> Iterator[Held]:
        """States with their scales; those of a table in fp32 by a name of their own."""
        bits = 32 if t.is_table else self.bits
        found = blocks.bnb_state_bytes(t.num_params, states=self.num_states, bits=bits)
        name, source = ("states of tables", TABLES) if t.is_table and self.bits == 8 else ("states", BNB)
        formula = f"{self.num_states} * 4 * num_params" if bits == 32 else f"{self.num_states} * (num_params + 4 * blocks of 256); small tensors 4 * num_params"
        paged = blocks.bnb_paged_bytes(t.num_params, states=self.num_states, bits=bits)
        if self.paged:
            yield Held(f"paged {name}", paged, f"{self.num_states} * num_params * {bits // 8}, of tensors of 100,000 or more", BNB, on_host=True)
            found = found - paged
        yield Held(name, found, formula, source)


class TorchAO(Optimizer):
    """torchao's AdamW of 8 or 4 bits, whose compiled step needs nothing on top."""

    def __init__(self, *, bits: int) -> None:
        self.bits = bits

    def states(self, job: Job, t: Stepped) -> Iterator[Held]:
        """Both moments with scales and the tables of their codes."""
        found = blocks.torchao_state_bytes(t.num_params, bits=self.bits, width=t.width)
        formula = f"2 * (num_params * {self.bits} / 8 + 4 * num_params / 256 + {4 * 2**self.bits}); small or odd tensors 2 * num_params * width"
        yield Held("moments", found, formula, "torchao/optim/adam.py, _new_buffer")
