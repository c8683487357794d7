"""What mixture-of-experts decoders share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from memcalc.components import DecoderLayer, Embedding, GatedMLP, Linear, RMSNorm, Rotary
from memcalc.components.layer import Norm
from memcalc.components.looped import ModuleMoE, RemoteHead
from memcalc.components.moe import Experts, MoE, num_inactive
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.models.families import _text as text
from memcalc.specs.model import Axis, Block, Component, ModelSpec


def swiglu(hidden: Axis, intermediate: Axis, activation: str, *, bias: bool = False) -> GatedMLP:
    """A gated network of three projections, as wide as said: a dense layer's, or an expert that all tokens share."""
    return GatedMLP(
        gate=Linear("gate_proj", hidden, intermediate, bias, "column"),
        up=Linear("up_proj", hidden, intermediate, bias, "column"),
        down=Linear("down_proj", intermediate, hidden, bias, "row"),
        activation=activation,
    )


def experts(config: Config, hidden: Axis, intermediate: Axis, count: Axis) -> Experts:
    """Stacked gated networks with the file's activation."""
    return Experts(count, hidden, intermediate, activation=config.str("hidden_act"))


def expert_modules(count: Axis, hidden: Axis, intermediate: Axis, activation: str) -> tuple[GatedMLP, ...]:
    """As many gated networks, modules of their own."""
    one = GatedMLP(
        gate=Linear("gate_proj", hidden, intermediate, split="expert_column"),
        up=Linear("up_proj", hidden, intermediate, split="expert_column"),
        down=Linear("down_proj", intermediate, hidden, split="expert_row"),
        activation=activation,
    )
    return (one,) * int(count.size)


def axis(config: Config, *keys: str) -> Axis:
    """A size of the file, under its first name."""
    return Axis(keys[0], config.int(*keys))


def choose(config: Config, count: Axis, *keys: str) -> int:
    """Experts per token.

    Raises:
        ModelError: more than there are.
    """
    top_k = config.int(*keys)
    if top_k > count.size:
        raise config.error(f"{keys[0]} {top_k} is more than the {count.size} experts of {count.name}")
    return top_k


def sparse_layers(config: Config, num_layers: int) -> tuple[bool, ...]:
    """Which layers hold experts: every ``decoder_sparse_step``-th, but those in ``mlp_only_layers`` (Qwen)."""
    step, dense = config.int("decoder_sparse_step"), set(config.ints("mlp_only_layers", default=()))
    return tuple(i not in dense and (i + 1) % step == 0 for i in range(num_layers))


def after_dense(config: Config, num_layers: int) -> tuple[bool, ...]:
    """Which layers hold experts: all after the first ``first_k_dense_replace`` (DeepSeek)."""
    first = config.int("first_k_dense_replace", minimum=0)
    return tuple(i >= first for i in range(num_layers))


def layers(kinds: Iterable[bool], *, norm: Norm, self_attn: Component, sparse: MoE | ModuleMoE | None, dense: GatedMLP | None) -> tuple[Block, ...]:
    """Pre-norm layers with experts where `kinds` says so, and a dense network elsewhere."""

    def make(mlp: MoE | ModuleMoE | GatedMLP | None) -> DecoderLayer:
        return DecoderLayer(input_layernorm=norm, self_attn=self_attn, post_attention_layernorm=norm, mlp=mlp)

    return decoder.layer_blocks((sparse if is_sparse else dense for is_sparse in kinds), make)


def with_masks(spec: ModelSpec, *windows: int | None) -> ModelSpec:
    """The model, whose forward makes the masks of these windows (None: the whole sequence) whether or not its attention needs them."""
    blocks = (replace(b, module=replace(b.module, masks=windows)) if isinstance(b.module, Embedding) else b for b in spec.blocks)
    return replace(spec, blocks=tuple(blocks))


def with_buffers(spec: ModelSpec, num_bytes: int) -> ModelSpec:
    """The model with more buffers beside its parameters."""
    return replace(spec, buffer_bytes=spec.buffer_bytes + num_bytes)


def remote(
    config: Config,
    sizes: decoder.Sizes,
    layers: tuple[Block, ...],
    *,
    norm: RMSNorm,
    tied: bool,
    sparse: bool,
    rotary: Rotary | None = None,
    scaled: bool = False,
) -> ModelSpec:
    """A whole model whose code comes with it: the head of those times, and experts, where there are any, in a loop.

    Args:
        config: the file.
        sizes: of the model.
        layers: between the ends.
        norm: the final one.
        tied: the head uses the embedding's table.
        sparse: it has experts.
        rotary: what the shared angles are for; by default the whole head.
        scaled: embeddings and the head's input are multiplied by constants.
    """
    whole = text.language_model(
        config,
        sizes,
        layers,
        embedding=Embedding(sizes.vocab, sizes.hidden, rotary=rotary or Rotary(sizes.head_dim), scaled=scaled, tied=tied),
        norm=norm,
        head=RemoteHead(Linear("lm_head", sizes.hidden, sizes.vocab, split="column"), tied=tied, scaled_input=scaled),
    )
    return in_a_loop(with_active(whole)) if sparse else whole


def in_a_loop(spec: ModelSpec) -> ModelSpec:
    """The model, whose experts run one after the other: how many rows each gets has to be assumed."""
    return replace(spec, presumed=(*spec.presumed, "experts run one after the other, each on an even share of the tokens"))


def with_active(spec: ModelSpec) -> ModelSpec:
    """The model with its active parameters counted.

    They are all parameters, embeddings and head included, less the routed experts that a token does not visit.
    """
    return replace(spec, active_params=spec.num_params - sum(num_inactive(block.module) * block.repeat for block in spec.blocks))
