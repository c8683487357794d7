"""What Megatron's launch says beyond the sizes: fusions, dropout, what is recomputed, how experts get their tokens."""

from __future__ import annotations

from typing import Literal

from memcalc.code.context import Context
from memcalc.dataclass import dataclass

MODULES = ("core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts")
"""What ``recompute_modules`` may name (megatron/core/transformer/transformer_config.py)."""


@dataclass(frozen=True)
class Options:
    """Settings of Megatron's programs.

    Attributes:
        fused_wgrad: gradients of weights are added to their buffers by the matrix product itself (``gradient_accumulation_fusion``).
        recompute: modules that selective recomputation runs again.
        recompute_full: every layer runs again, and so do the layers of prediction modules.
        hidden_dropout, attention_dropout: probabilities, where the launch says otherwise than the model.
        cross_entropy: ``unfused`` and ``native`` keep fp32 probabilities, ``te`` writes the gradient over the logits.
        cp_comm_type: how context-parallel ranks share keys and values.
        dispatcher: how tokens get to their experts.
        router_dtype: of the router's logits, where it is not that of the model.
        permute_fusion: rows are put in order by Transformer Engine's kernels.
        rope_fusion: rotary positions are applied by one kernel.
        fp8: products inside layers are in fp8.
    """

    fused_wgrad: bool = True
    recompute: frozenset[str] = frozenset()
    recompute_full: bool = False
    hidden_dropout: float | None = None
    attention_dropout: float | None = None
    cross_entropy: Literal["unfused", "native", "te"] = "unfused"
    cp_comm_type: Literal["p2p", "all_gather", "a2a"] = "p2p"
    dispatcher: Literal["alltoall", "allgather"] = "alltoall"
    router_dtype: str | None = None
    permute_fusion: bool = False
    rope_fusion: bool = True
    fp8: bool = False


DEFAULT = Options()


def options(ctx: Context) -> Options:
    """Those of the run."""
    found = ctx.settings.options
    return found if isinstance(found, Options) else DEFAULT
