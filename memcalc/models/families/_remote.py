"""What models share whose code comes with them (`trust_remote_code`): transformers has no class for them, so their files must say all that varies."""

from __future__ import annotations

from dataclasses import replace

from memcalc.components import Alibi, Attention, Embedding, GatedMLP, Linear, RMSNorm, Rotary
from memcalc.components.looped import RemoteHead
from memcalc.models.config import Config
from memcalc.models.families import _text as text
from memcalc.models.families._decoder import Sizes
from memcalc.specs.model import Axis, Block, ModelSpec

ENDS = ("embed_tokens", "norm", "lm_head")


def presumed(spec: ModelSpec, code: str) -> ModelSpec:
    """The model, whose own code is taken to run as another's does."""
    return replace(spec, presumed=(*spec.presumed, f"the code that comes with {spec.model_type} models runs as {code} does"))


def causal_lm(
    config: Config, sizes: Sizes, layers: tuple[Block, ...], *, norm: RMSNorm, names: tuple[str, str, str] = ENDS, alibi: Alibi | None = None
) -> ModelSpec:
    """The whole model: table, layers, final norm, and the head of those times.

    Args:
        config: the file.
        sizes: of the model.
        layers: between the ends.
        norm: the final one.
        names: where embedding, norm and head stand.
        alibi: a bias for positions, instead of rotary ones.
    """
    tied = config.bool("tie_word_embeddings", default=False)
    return text.language_model(
        config,
        sizes,
        layers,
        embedding=Embedding(sizes.vocab, sizes.hidden, rotary=None if alibi else Rotary(sizes.head_dim, precision="all"), alibi=alibi, tied=tied),
        norm=norm,
        head=RemoteHead(Linear(names[2], sizes.hidden, sizes.vocab, split="column"), tied=tied),
        names=names,
    )


def fused_heads(sizes: Sizes, names: tuple[str, str], *, bias: bool = False, out_bias: bool = False, rotary: Rotary | None = None) -> Attention:
    """Attention whose queries, keys and values stand side by side in one projection.

    Args:
        sizes: of the model.
        names: of that projection and of the output's.
        bias, out_bias: whether they have one.
        rotary: by default the whole head turns, in fp32.
    """
    together = Axis("(num_attention_heads + 2 * num_key_value_heads) * head_dim", sizes.queries.size + 2 * sizes.keys.size)
    return Attention(
        sizes.num_heads,
        sizes.num_kv_heads,
        sizes.head_dim,
        q=Linear(names[0], sizes.hidden, together, bias, "column"),
        k=None,
        v=None,
        o=Linear(names[1], sizes.queries, sizes.hidden, out_bias, "row"),
        rotary=rotary or Rotary(sizes.head_dim, precision="all"),
    )


def gated(sizes: Sizes, names: tuple[str, str, str], *, bias: bool = False, activation: str = "silu") -> GatedMLP:
    """A gated network of three projections with names of its own: gate, up, down."""
    return GatedMLP(
        gate=Linear(names[0], sizes.hidden, sizes.intermediate, bias, "column"),
        up=Linear(names[1], sizes.hidden, sizes.intermediate, bias, "column"),
        down=Linear(names[2], sizes.intermediate, sizes.hidden, bias, "row"),
        activation=activation,
    )


def fused_gated(sizes: Sizes, names: tuple[str, str], *, bias: bool = False, activation: str = "silu") -> GatedMLP:
    """A gated network whose gate and up stand side by side in one projection."""
    both = Axis("2 * intermediate_size", 2 * sizes.intermediate.size)
    up, down = Linear(names[0], sizes.hidden, both, bias, "column"), Linear(names[1], sizes.intermediate, sizes.hidden, bias, "row")
    return GatedMLP(gate=up, up=None, down=down, activation=activation)


def divided(config: Config, total: int, parts: int, what: str) -> int:
    """A size that others share evenly.

    Raises:
        ModelError: it is not a multiple.
    """
    if total % parts:
        raise config.error(f"{what}: {total} is not a multiple of {parts}")
    return total // parts
