"""How transformers' caches hold keys and values: what becomes of a layer's own tensors, and what attention gets in their place.

Source: transformers 5, cache_utils.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from memcalc.dataclass import dataclass
from memcalc.formulas.kv_cache import CACHE_TYPES, CacheType, cache_type, grouped, kept_tokens
from memcalc.specs.model import Axis
from memcalc.tape import functional as F
from memcalc.tape.span import maximum
from memcalc.tape.tensor import Tensor, numel
from memcalc.units import ceil_div

if TYPE_CHECKING:
    from memcalc.code.context import Context
    from memcalc.specs.run import Run
    from memcalc.specs.serving import GenerationSpec

CACHED = ("key", "value", "latent", "rotary key")
"""What a cache holds of attention; all other names are of states, which every cache keeps as they are."""


@dataclass(frozen=True)
class Keeping:
    """One kind of cache.

    Attributes:
        kind: ``dynamic`` concatenates, ``static`` has room for all tokens from the first on, ``quantized`` packs what it gets.
        length: tokens that a static cache has room for.
        packed: how a quantised cache stores values.
        residual: tokens that a quantised cache collects before it packs them, too.
        offloaded: layers wait on the host; of a static cache, those without windows.
    """

    kind: Literal["dynamic", "static", "quantized"] = "dynamic"
    length: Any = 0
    packed: CacheType = CACHE_TYPES["int4"]
    residual: int = 128
    offloaded: bool = False

    def leaves(self, window: int | None) -> bool:
        """Whether a layer with such a window waits on the host."""
        return self.offloaded and (window is None or self.kind == "dynamic")

    def room(self, window: int | None) -> Any:
        """Tokens that a static layer has room for."""
        return kept_tokens(self.length, window)


def keeping_of(run: Run, seq_len: Any) -> Keeping:
    """The kind of cache that a run asks for; a static one holds all but the last token, which is fed to nobody."""
    asked = run.generation
    name = asked.cache_implementation
    if "static" in name:
        length = seq_len + max(run.new_tokens, 1) - 1
        return Keeping("static", length if asked.max_cache_len is None else maximum(length, asked.max_cache_len), offloaded="offloaded" in name)
    if name == "quantized":
        return Keeping("quantized", packed=packed(asked), residual=1 if asked.cache_backend == "fp8" else asked.residual_length)
    return Keeping(offloaded=name == "offloaded")


def packed(asked: GenerationSpec) -> CacheType:
    """How a quantised cache stores values: groups with a 16-bit scale and shift each, or one scale for a whole tensor."""
    if asked.cache_backend == "fp8":
        return cache_type("fp8")
    return grouped(asked.cache_nbits, asked.q_group_size)


def hold(ctx: Context, x: Tensor, path: str, *, window: int | None) -> tuple[Tensor, Tensor | None]:
    """What attention goes on with, and what stays in the cache on the card.

    A dynamic layer copies (it concatenates nothing and the new tensor); a static one is a buffer into which x is copied, of which the fused
    kernels see the tokens that there are, and eager attention all; one with a window that the prompt fills hands on x itself. A quantised layer
    hands on x, too. Layers that are offloaded are on the card for as long as their attention runs.
    """
    keeping = ctx.settings.keeping
    if keeping.kind == "quantized":
        groups = ceil_div(numel(x.shape), keeping.packed.group)
        return x, ctx.tape.input((Axis("groups", groups), Axis("bytes of a group", keeping.packed.group_bytes)), "uint8", path)
    shape, leaves = x.shape, keeping.leaves(window)
    if keeping.kind == "static":
        shape = tuple(Axis("max_cache_len", keeping.room(window)) if axis.name == ctx.seq.name else axis for axis in shape)
    kept = ctx.tape.new(shape, x.dtype, "on its way to the host") if leaves else ctx.tape.input(shape, x.dtype, path)
    stays = None if leaves else kept
    if keeping.kind == "dynamic" or (ctx.settings.attention == "eager" and window is None):
        return kept, stays
    return x if window is not None and ctx.reaches(window) else F.view(kept, x.shape), stays


def num_keys(ctx: Context, window: int | None) -> Any:
    """Keys that a mask covers: those of the tokens and of a prefix; in a prefill, all that a static cache has room for."""
    settings = ctx.settings
    static = settings.keeping.kind == "static" and not settings.training and settings.cached and window is None
    return settings.keeping.length if static else settings.prefix + ctx.seq.size
