"""What each kind of layer remembers of a sequence: read off the components, in the sizes that `memcalc.formulas.kv_cache` asks for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Literal

from memcalc.components.attention import Attention
from memcalc.components.delta_net import GatedDeltaNet
from memcalc.components.llama4 import Llama4Attention
from memcalc.components.mamba import Mamba
from memcalc.components.mamba2 import Mamba2
from memcalc.components.minimax import LightningAttention
from memcalc.components.mla import LatentAttention
from memcalc.components.mllama import CrossLayer
from memcalc.components.own_attention import FalconAttention
from memcalc.components.t5 import T5Attention
from memcalc.dataclass import dataclass
from memcalc.formulas import ggml, kv_cache
from memcalc.specs.model import Block, Component

INDEX_SCALE_BYTES = 4
"""An indexer's key is held in fp8 with one fp32 scale (vLLM, v1/attention/backends/mla/indexer.py; DeepSeek-V3.2)."""


@dataclass(frozen=True)
class LayerCache:
    """What equal layers remember.

    Attributes:
        kind: ``attention`` and ``latent`` grow with the tokens, ``state`` does not, ``cross`` holds another stack's tokens.
        num_layers: how many are alike.
        copied_heads: to how many heads transformers' code copies keys and values before it caches them (Falcon 40B and 180B); 0: to none.
        num_kv_heads, key_dim, value_dim: of keys and values, or of those that a latent expands to.
        window: tokens that it keeps, None for all.
        chunked: the window is a chunk that is filled, then begun anew.
        latent_dim, rope_dim, nope_dim: of latent attention.
        index_dim: of an indexer's key.
        state_elements, conv_channels, conv_kernel: of a recurrent layer.
    """

    kind: Literal["attention", "latent", "state", "cross"]
    num_layers: int
    num_kv_heads: int = 0
    key_dim: int = 0
    value_dim: int = 0
    window: int | None = None
    chunked: bool = False
    latent_dim: int = 0
    rope_dim: int = 0
    index_dim: int = 0
    state_elements: int = 0
    conv_channels: int = 0
    conv_kernel: int = 0
    copied_heads: int = 0

    def token_bytes(self, policy: Policy) -> Any:
        """One token in one of these layers, on one rank."""
        if self.kind == "latent":
            index = self.index_dim * policy.width if policy.plain else self.index_dim and self.index_dim + INDEX_SCALE_BYTES
            if policy.latent:
                return kv_cache.latent_token_bytes(latent_dim=self.latent_dim, rope_dim=self.rope_dim, dtype=policy.dtype, index_bytes=index)
            return index + self._head_bytes(policy)
        return 0 if self.kind == "state" else self._head_bytes(policy)

    def _head_bytes(self, policy: Policy) -> Any:
        return kv_cache.attention_token_bytes(
            num_kv_heads=self.copied_heads if self.copied_heads and policy.plain else self.num_kv_heads,
            key_dim=self.key_dim,
            value_dim=self.value_dim,
            dtype=policy.dtype,
            value_dtype=policy.value_dtype,
            tp=policy.tp,
        )

    def state_bytes(self, policy: Policy) -> Any:
        """What one sequence keeps in one of these layers, however long it is."""
        states = kv_cache.state_bytes(self.state_elements, policy.state_width, tp=policy.tp)
        kept = self.conv_kernel if policy.plain else self.conv_kernel - 1
        return states + kv_cache.state_bytes(self.conv_channels * kept, policy.width, tp=policy.tp)

    def tokens(self, length: Any, policy: Policy) -> Any:
        """Tokens of a sequence for which one of these layers takes room."""
        if self.kind == "cross":
            return policy.source_tokens
        if self.window is None or not policy.windows:
            return kv_cache.padded_tokens(length, policy.block)
        if policy.rolls:
            return ggml.cells(length, window=self.window, ubatch=policy.step_tokens, pad=policy.block)
        if policy.step_tokens is None:
            return kv_cache.padded_tokens(kv_cache.kept_tokens(length, self.window), policy.block)
        if self.chunked:
            return kv_cache.padded_tokens(kv_cache.kept_tokens(length, self.window + policy.step_tokens), policy.block)
        blocks = kv_cache.window_blocks(length, window=self.window, block=policy.block, max_num_batched_tokens=policy.step_tokens)
        return policy.block * blocks

    def sequence_bytes(self, length: Any, policy: Policy) -> Any:
        """One sequence in all of these layers, on one rank."""
        return self.num_layers * (self.token_bytes(policy) * self.tokens(length, policy) + self.state_bytes(policy))


@dataclass(frozen=True)
class Policy:
    """How an engine stores what layers remember.

    Attributes:
        dtype, value_dtype: names of `memcalc.formulas.kv_cache.CACHE_TYPES`, of keys and, where it differs, of values.
        tp: ranks that heads are spread over.
        latent: latent attention stores its latent; otherwise keys and values of each head.
        windows: layers with windows keep those; otherwise all tokens.
        block: tokens of a block.
        step_tokens: tokens of one step, for which layers with windows take room, too; None: they do not.
        rolls: such layers are buffers for their window and one step, in whole blocks, that are written over (llama.cpp).
        width, state_width: bytes of a value of a convolution's state, and of a recurrent one.
        source_tokens: of the stack that cross-attention looks at.
        plain: as transformers' modules hold it: an indexer's keys in the model's dtype, all inputs of a convolution; servers' kernels hold
            such keys in fp8 with a scale, and one input fewer.
    """

    dtype: str = "bfloat16"
    value_dtype: str | None = None
    tp: Any = 1
    latent: bool = True
    windows: bool = True
    block: int = 1
    step_tokens: int | None = None
    rolls: bool = False
    width: int = 2
    state_width: int = 2
    source_tokens: Any = 0
    plain: bool = False


TRANSFORMERS = Policy(windows=False, state_width=4, plain=True)
"""transformers' dynamic cache after a prefill: all tokens of every layer, latents as latents, recurrent states in fp32."""


def layer_caches(blocks: Iterable[Block]) -> tuple[LayerCache, ...]:
    """The caches of a model, or of a stage, equal layers together; of encoders and towers there are none."""
    counts: dict[LayerCache, int] = {}
    for block in blocks:
        if block.role == "layer":
            for found in _caches(block.module):
                counts[found] = counts.get(found, 0) + block.repeat
    return tuple(replace(kind, num_layers=count) for kind, count in counts.items())


def growth_bytes(caches: Iterable[LayerCache], policy: Policy) -> Any:
    """What one more token adds once all windows are full; layers without windows only, where there are any."""
    return sum(c.num_layers * c.token_bytes(policy) for c in caches if c.kind in ("attention", "latent") and (c.window is None or not policy.windows))


def token_bytes(caches: Iterable[LayerCache], policy: Policy) -> Any:
    """What one token takes in all layers while no window is full."""
    return sum(c.num_layers * c.token_bytes(policy) for c in caches if c.kind in ("attention", "latent"))


def sequence_bytes(caches: Iterable[LayerCache], length: Any, policy: Policy) -> Any:
    """What a sequence of some length takes on one rank."""
    return sum(cache.sequence_bytes(length, policy) for cache in caches)


# ---------------------------------------------------------------------- inside
def _caches(module: Component) -> Iterator[LayerCache]:
    if isinstance(module, CrossLayer):
        own = module.cross_attn
        yield LayerCache("cross", 1, own.num_kv_heads, own.head_dim, own.head_dim)
        return
    found = _of(module)
    if found is not None:
        yield found
        return
    for _, child in module.children():
        yield from _caches(child)


def _of(m: Component) -> LayerCache | None:
    if isinstance(m, Attention):
        copied = m.num_heads if isinstance(m, FalconAttention) and m.grouped else 0
        found = LayerCache("attention", 1, m.num_kv_heads, m.head_dim, m.head_dim, m.window, isinstance(m, Llama4Attention), copied_heads=copied)
        return found if m.remembers else None
    if isinstance(m, LatentAttention):
        latent = int(m.kv_a_proj.outputs.size) - m.rope_dim
        index = m.indexer.head_dim if m.indexer is not None else 0
        return LayerCache("latent", 1, m.num_heads, m.nope_dim + m.rope_dim, m.v_dim, latent_dim=latent, rope_dim=m.rope_dim, index_dim=index)
    if isinstance(m, T5Attention):
        kind: Literal["attention", "cross"] = "cross" if m.kind == "cross" else "attention"
        return None if m.kind == "encoder" else LayerCache(kind, 1, m.num_heads, m.head_dim, m.head_dim)
    return _state(m)


def _state(m: Component) -> LayerCache | None:
    if isinstance(m, GatedDeltaNet):
        elements = int(m.num_v_heads.size * m.k_dim.size * m.v_dim.size)
    elif isinstance(m, Mamba2):
        elements = int(m.num_heads.size * m.head_dim.size * m.state.size)
    elif isinstance(m, Mamba):
        elements = int(m.intermediate.size * m.state.size)
    elif isinstance(m, LightningAttention):
        return LayerCache("state", 1, state_elements=m.num_heads * m.head_dim**2)
    else:
        return None
    return LayerCache("state", 1, state_elements=elements, conv_channels=int(m.conv1d.channels.size), conv_kernel=m.conv1d.kernel)
