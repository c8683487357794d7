"""Closed forms for what a transformer layer saves for backward, as papers and other tools print them.

memcalc itself counts tensors; these stand beside its answer as a check, and in tests. All are of 16-bit activations.
"""

from __future__ import annotations

from typing import Any, Literal

from memcalc.units import ceil_div

Recomputed = Literal["none", "selective", "full"]


def layer_bytes(
    *, seq_len: Any, micro_batch: Any, hidden_size: Any, num_heads: Any, tp: Any = 1, sequence_parallel: bool = False, recompute: Recomputed = "none"
) -> Any:
    """One GPT layer with LayerNorm, GELU, dropout and unfused attention, h = heads * head_dim, 4h wide inside.

    Source: Korthikanti et al. 2022 (2205.05198), equations 1, 2 and 4, and table 2: ``sbh (34 + 5as/h)``, of which ``10 sbh`` are not cut by
    tensor parallelism alone; selective recomputation drops ``5as/h``, full recomputation leaves the layer's input.

    Args:
        seq_len, micro_batch, hidden_size, num_heads: s, b, h, a.
        tp: t.
        sequence_parallel: whether norms and dropouts are cut along the sequence.
        recompute: none, selective (the core of attention) or full (the layer; its input is not cut, as in table 2).

    >>> layer_bytes(seq_len=2048, micro_batch=4, hidden_size=6144, num_heads=64, tp=8) * 48 / 2**30
    59.25
    >>> layer_bytes(seq_len=2048, micro_batch=4, hidden_size=6144, num_heads=64, tp=8, sequence_parallel=True, recompute="selective") * 48 / 2**30
    9.5625
    """
    sbh = seq_len * micro_batch * hidden_size
    if recompute == "full":
        return 2 * sbh
    core = 5 * num_heads * seq_len * seq_len * micro_batch if recompute == "none" else 0
    if sequence_parallel:
        return ceil_div(34 * sbh + core, tp)
    return 10 * sbh + ceil_div(24 * sbh + core, tp)


def input_bytes(*, seq_len: Any, micro_batch: Any, hidden_size: Any, tp: Any = 1) -> Any:
    """The dropout mask of the embedding of one micro-batch, under sequence parallelism.

    Source: Korthikanti et al. 2022 (2205.05198), section 4.3: ``sbhp/t`` for the p micro-batches in flight on the first stage.

    >>> input_bytes(seq_len=2048, micro_batch=1, hidden_size=12288, tp=8)
    3145728
    """
    return ceil_div(seq_len * micro_batch * hidden_size, tp)


def head_bytes(*, seq_len: Any, micro_batch: Any, hidden_size: Any, vocab_size: Any, tp: Any = 1) -> Any:
    """The last norm and output layer with their inputs, and fp32 logits.

    Source: Korthikanti et al. 2022 (2205.05198), section 4.3: ``4 sbh/t (1 + v/h)``, present where there is no pipeline.

    >>> head_bytes(seq_len=2048, micro_batch=4, hidden_size=6144, vocab_size=51200, tp=8)
    234881024
    """
    return ceil_div(4 * seq_len * micro_batch * (hidden_size + vocab_size), tp)


def rule_of_thumb_bytes(*, seq_len: Any, micro_batch: Any, hidden_size: Any, num_layers: Any) -> tuple[Any, Any]:
    """The range that the folk rule of 34 to 40 bytes a token, layer and unit of hidden size gives for a whole model, attention scores apart.

    Source: Korthikanti et al. 2022 (2205.05198), equation 2 without its last term, for 34; 40 is the same for layers with a gate.

    >>> rule_of_thumb_bytes(seq_len=4096, micro_batch=1, hidden_size=4096, num_layers=32)
    (18253611008, 21474836480)
    """
    sbh = seq_len * micro_batch * hidden_size * num_layers
    return 34 * sbh, 40 * sbh


def megatron_lm_bytes(
    *, seq_len: int, micro_batch: int, hidden_size: int, ffn_hidden_size: float, num_layers: int, vocab_size: int, tp: int = 1, pp: int = 1,
    vpp: int | None = None, micro_batches: int | None = None, cp: int = 1
) -> float:  # fmt: skip
    """What Megatron-LM prints for the first stage, and Megatron-Bridge estimates: under sequence parallelism, with selective recomputation.

    Source: megatron/training/theoretical_memory_usage.py, ``compute_activation_memory``; Megatron-Bridge,
    src/megatron/bridge/training/utils/theoretical_memory_utils.py, ``_compute_activation_memory_bytes``, which alone knows ``cp``.

    >>> megatron_lm_bytes(seq_len=8, micro_batch=2, hidden_size=16, ffn_hidden_size=64, num_layers=4, vocab_size=32, tp=2, cp=2, micro_batches=1)
    9568.0
    >>> megatron_lm_bytes(seq_len=8, micro_batch=2, hidden_size=16, ffn_hidden_size=64, num_layers=4, vocab_size=32, tp=2, pp=2, vpp=2, micro_batches=4)
    22240.0
    """
    tokens = seq_len * micro_batch
    total = tokens * hidden_size * (18 + 4 * ffn_hidden_size / hidden_size) * num_layers + (8 * tokens + tokens * hidden_size) * pp
    if vpp is not None:
        total *= 1 + (pp - 1) / (pp * vpp)
    elif pp > 1 and micro_batches is not None:
        total *= min(1, micro_batches / pp)
    if pp == 1:
        total += tokens * hidden_size * 4 * (1 + vocab_size / hidden_size)
    return total / (tp * cp)


def mbridge_elements(
    *, seq_len: int, micro_batch: int, hidden_size: int, num_layers: int, num_heads: int, num_kv_heads: int, head_dim: int,
    moe_ffn_hidden_size: int, top_k: int, vocab_size: int, tp: int = 1
) -> int:  # fmt: skip
    """Elements that mbridge's estimator counts as activations of a mixture of experts on one rank, two bytes each.

    Source: ISEEKYAN/mbridge, memory_estimator/moe_mem_estimator/layers.py and the tree in its README. Of a layer: one norm, queries, keys and
    values, the attention output, two elements a head and token for the log-sum-exp, and twice what it counts for routed tokens and
    experts (2.5 times their width). Norms and routed tokens are not cut by tensor parallelism.

    >>> sizes = dict(hidden_size=2048, num_layers=4, num_heads=16, num_kv_heads=8, head_dim=128, moe_ffn_hidden_size=5440, top_k=2, vocab_size=32000)
    >>> mbridge_elements(seq_len=4096, micro_batch=1, **sizes)
    1308100608
    """
    tokens = seq_len * micro_batch
    attention = ((2 * num_heads + 2 * num_kv_heads) * head_dim + 2 * num_heads) // tp
    experts = 2 * top_k * (hidden_size + 5 * moe_ffn_hidden_size // (2 * tp))
    return hidden_size + tokens * (2 * hidden_size + num_layers * (hidden_size + attention + experts) + vocab_size // tp)
