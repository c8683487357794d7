"""What models with recurrent mixers share."""

from __future__ import annotations

from collections.abc import Sequence

from memcalc.components import Embedding, Head
from memcalc.components.mamba2 import Mamba2, mamba2
from memcalc.components.norm import RMSNorm
from memcalc.components.recurrent import WideLinear
from memcalc.models.config import Config
from memcalc.specs.model import Axis, Block, ModelSpec


def time_step_rank(config: Config, key: str, hidden: int) -> Axis:
    """The latent from which time steps come: as the file says, or where it says ``auto`` or nothing a sixteenth of the hidden size, rounded up."""
    if config.get(key, "auto") == "auto":
        return Axis(key, -(-hidden // 16))
    return Axis(key, config.int(key))


def attention_free(config: Config, layers: Sequence[Block], *, hidden: Axis, vocab: Axis, buffer_bytes: int = 0) -> ModelSpec:
    """A model all of whose layers are recurrent, with Mamba's names of its ends.

    Args:
        config: the file; says whether the head uses the table.
        layers: between the ends.
        hidden, vocab: axes of the table.
        buffer_bytes: what stands on the card beside the parameters.
    """
    tied = config.bool("tie_word_embeddings")
    return ModelSpec(
        name=config.name,
        model_type=config.model_type,
        blocks=(
            Block("embeddings", Embedding(vocab, hidden, tied=tied), role="embedding"),
            *layers,
            Block("norm_f", RMSNorm(hidden), role="norm"),
            Block("lm_head", Head(WideLinear("lm_head", hidden, vocab), tied=tied), role="head"),
        ),
        hidden_size=hidden.size,
        vocab_size=vocab.size,
        num_layers=sum(block.repeat for block in layers),
        tied=tied,
        buffer_bytes=buffer_bytes,
        attentions=("eager",),
    )


def channels(config: Config, hidden: int) -> Axis:
    """The inner width: as the file says, or so many times the hidden size."""
    return Axis("intermediate_size", config.int("intermediate_size") if config.has("intermediate_size") else config.int("expand") * hidden)


def groups(config: Config, key: str, heads: int) -> int:
    """Groups of heads that share B and C.

    Raises:
        ModelError: the heads do not go into so many groups.
    """
    num_groups = config.int(key)
    if heads % num_groups:
        raise config.error(f"{key} {num_groups} does not divide the {heads} heads")
    return num_groups


def mixer(config: Config, hidden: Axis, *, prefix: str, state: str, activation: str) -> Mamba2:
    """Mamba-2's mixer, with the names that the file has for its sizes.

    Args:
        config: the file.
        hidden: the model's width.
        prefix: before ``num_heads`` and ``head_dim``.
        state: the key of the state's size.
        activation: the key of the convolution's activation.
    """
    heads = config.int(f"{prefix}num_heads")
    return mamba2(
        hidden,
        num_heads=heads,
        head_dim=config.int(f"{prefix}head_dim"),
        num_groups=groups(config, "n_groups", heads),
        state=config.int(state),
        chunk=config.int("chunk_size"),
        kernel=config.int("conv_kernel"),
        bias=config.bool("use_bias"),
        conv_bias=config.bool("use_conv_bias"),
        activation=config.str(activation),
    )


def mamba_mixer(config: Config, hidden: Axis, *, inner: int | None = None) -> Mamba2:
    """Mamba-2's mixer, with the names that Bamba, Granite 4 and Falcon-H1 have for its sizes, in a module ``mamba``.

    Args:
        config: the file.
        hidden: the model's width.
        inner: its channels, where they are not so many times the hidden size.

    Raises:
        ModelError: its heads do not make up its channels.
    """
    inner, heads = inner or config.int("mamba_expand") * hidden.size, config.int("mamba_n_heads")
    head_dim = inner // heads if config.get("mamba_d_head", "auto") == "auto" else config.int("mamba_d_head")
    if heads * head_dim != inner:
        raise config.error(f"mamba_n_heads {heads} * mamba_d_head {head_dim} is not {inner}, the width of the mixer")
    return mamba2(
        hidden,
        num_heads=heads,
        head_dim=head_dim,
        num_groups=groups(config, "mamba_n_groups", heads),
        state=config.int("mamba_d_state"),
        chunk=config.int("mamba_chunk_size"),
        kernel=config.int("mamba_d_conv"),
        bias=config.bool("mamba_proj_bias"),
        conv_bias=config.bool("mamba_conv_bias"),
        activation=config.str("hidden_act"),
        name="mamba",
    )
