"""What models with latent attention share (DeepSeek V2 and its successors)."""

from __future__ import annotations

from memcalc.components import Linear, RMSNorm, Rotary
from memcalc.components.mla import Indexer, LatentAttention
from memcalc.components.moe import Groups
from memcalc.dataclass import dataclass
from memcalc.models.config import Config
from memcalc.models.families import _decoder as decoder
from memcalc.specs.model import Axis


@dataclass(frozen=True)
class LatentSizes:
    """The sizes of latent attention, under Hugging Face's names.

    Attributes:
        common: those of any decoder; a head is as wide as its rotary part, which is what the model's own code calls ``head_dim``.
        q_lora: the queries' latent, or None.
        kv_lora: the latent of keys and values.
        nope, rope, value: of a query or key head without and with rotary positions, and of a value head.
    """

    common: decoder.Sizes
    q_lora: Axis | None
    kv_lora: Axis
    nope: int
    rope: int
    value: int


def read_sizes(config: Config, *, kv_heads_follow: bool = True) -> LatentSizes:
    """The sizes that these models' files hold.

    Args:
        config: the file.
        kv_heads_follow: without ``num_key_value_heads`` there are as many as heads.

    Raises:
        ModelError: a size is missing or impossible.
    """
    heads, rope = config.int("num_attention_heads"), config.int("qk_rope_head_dim")
    if rope % 2:
        raise config.error(f"qk_rope_head_dim {rope} is odd, and rotary positions turn pairs")
    kv_heads = config.int("num_key_value_heads", default=heads) if kv_heads_follow else config.int("num_key_value_heads")
    if kv_heads != heads:
        raise config.error(f"num_key_value_heads is {kv_heads}; latent attention makes keys and values for each of the {heads} heads")
    common = decoder.Sizes(
        hidden=Axis("hidden_size", config.int("hidden_size")),
        intermediate=Axis("intermediate_size", config.int("intermediate_size")),
        vocab=Axis("vocab_size", config.int("vocab_size")),
        num_layers=config.int("num_hidden_layers"),
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=rope,
    )
    q_lora = config.optional_int("q_lora_rank")
    return LatentSizes(
        common=common,
        q_lora=None if q_lora is None else Axis("q_lora_rank", q_lora),
        kv_lora=Axis("kv_lora_rank", config.int("kv_lora_rank")),
        nope=config.int("qk_nope_head_dim"),
        rope=rope,
        value=config.int("v_head_dim"),
    )


def attention(sizes: LatentSizes, rotary: Rotary, *, bias: bool, indexer: Indexer | None = None) -> LatentAttention:
    """Latent attention, cut by heads: the latents are whole on every rank."""
    hidden, heads = sizes.common.hidden, sizes.common.num_heads
    queries = Axis("num_attention_heads * qk_head_dim", heads * (sizes.nope + sizes.rope))
    both = Axis("num_attention_heads * (qk_nope_head_dim + v_head_dim)", heads * (sizes.nope + sizes.value))
    values = Axis("num_attention_heads * v_head_dim", heads * sizes.value)
    latent_and_key = Axis("kv_lora_rank + qk_rope_head_dim", sizes.kv_lora.size + sizes.rope)
    q_lora = sizes.q_lora
    return LatentAttention(
        heads,
        sizes.nope,
        sizes.rope,
        sizes.value,
        q_proj=Linear("q_proj", hidden, queries, split="column") if q_lora is None else None,
        q_a_proj=None if q_lora is None else Linear("q_a_proj", hidden, q_lora, bias),
        q_a_layernorm=None if q_lora is None else RMSNorm(q_lora),
        q_b_proj=None if q_lora is None else Linear("q_b_proj", q_lora, queries, split="column"),
        kv_a_proj=Linear("kv_a_proj_with_mqa", hidden, latent_and_key, bias),
        kv_a_layernorm=RMSNorm(sizes.kv_lora),
        kv_b_proj=Linear("kv_b_proj", sizes.kv_lora, both, split="column"),
        o_proj=Linear("o_proj", values, hidden, bias, "row"),
        rotary=rotary,
        indexer=indexer,
    )


def groups(config: Config, count: Axis) -> Groups:
    """Groups of experts.

    Raises:
        ModelError: they do not divide the experts, or fewer are there than are to be chosen.
    """
    found = Groups(config.int("n_group"), config.int("topk_group"))
    if count.size % found.count or found.chosen > found.count:
        raise config.error(f"n_group {found.count} and topk_group {found.chosen} do not go with {count.size} experts")
    return found
