"""bitsandbytes' 4-bit weights at stage 3: their values are parameters like others, cut and gathered in the dtype that they are filed under.

transformers loads a quantised model whole on every rank, without ``zero.Init`` (modeling_utils.py, ``needs_zero3_init``); DeepSpeed cuts its parameters
afterwards, whatever their dtype (zero/partition_parameters.py, ``_partition_param``). Scales and tables hang on the parameter as attributes
(bitsandbytes/nn/modules.py, ``Params4bit.quant_state``), which nobody cuts.
"""

from __future__ import annotations

from memcalc.components.quantized import packed, quantised
from memcalc.engine.plan import Part, Shard
from memcalc.units import DTYPE_BYTES, ceil_div


def with_packed(part: Part, *, storage: str) -> tuple[Shard, ...]:
    """The parameters of a block, those packed among them, in the order of its modules.

    Args:
        part: the block.
        storage: the dtype that packed values are filed under.
    """
    prefix = f"{part.block.path}/"
    apart, known = packed(part.block.module, prefix), {s.path: s for s in part.shards}
    if not apart:
        return part.shards
    bits, width = next(layer.scheme.bits for _, layer in quantised(part.block.module)), DTYPE_BYTES[storage]
    found = []
    for path, weight in part.block.module.weights(prefix):
        if path in apart:
            numel = ceil_div(ceil_div(weight.num_params * bits, 8), width)
            found.append(Shard(path, numel, 1, trainable=False, is_expert=False, width=width))
        elif path in known:
            found.append(known[path])
    return tuple(found)


def scale_bytes(part: Part, shards: tuple[Shard, ...]) -> int:
    """What of the packed weights of a block is not their values."""
    apart = packed(part.block.module, f"{part.block.path}/")
    return int(sum(apart.values()) - sum(s.num_params * s.width for s in shards if s.path in apart))
