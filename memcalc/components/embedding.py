"""The front of a language model: its tables, and what all layers share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from memcalc.components.attention import Rotary
from memcalc.components.layer_inputs import InputTables
from memcalc.components.linear import Linear
from memcalc.components.norm import LayerNorm, RMSNorm
from memcalc.components.prompt import PromptEncoder
from memcalc.dataclass import dataclass
from memcalc.specs.model import Axis, Component, Weight

COPY = "modules_to_save/default/weight"
"""The trained copy of a weight."""


@dataclass(frozen=True)
class Alibi:
    """Positions as a bias that falls with distance (Press et al. 2021), made once for all layers.

    Attributes:
        heads: each has its slope.
        style: ``bias`` is added to scores (BLOOM), ``table`` likewise, made in fp32 for the longest sequence (MPT), ``mask`` is put into the
            attention mask, one for each head (Falcon); ``shared`` is that mask, for all sequences, in inference cut from one for the longest
            that stays (Baichuan 13B).
        length: of the table, or of that mask.
    """

    heads: int
    style: Literal["bias", "table", "mask", "shared"]
    length: int = 0


@dataclass(frozen=True)
class TableAdapter(Component):
    """A low-rank adapter of a table (peft/tuners/lora/layer.py, Embedding).

    Attributes:
        vocab, width: the table's axes.
        r: rank.
        dtype: what both factors are held in.
    """

    vocab: Axis
    width: Axis
    r: int
    dtype: str = "float32"

    def own_weights(self) -> Iterator[Weight]:
        """``lora_embedding_A`` (r, vocab) and ``lora_embedding_B`` (width, r)."""
        rank = Axis("r", self.r)
        yield Weight("lora_embedding_A/default", (rank, self.vocab), dtype=self.dtype)
        yield Weight("lora_embedding_B/default", (self.width, rank), dtype=self.dtype)


@dataclass(frozen=True)
class Original(Component):
    """The frozen weight of which a copy is trained in its place (PEFT's ModulesToSaveWrapper)."""

    weight: Weight

    def own_weights(self) -> Iterator[Weight]:
        """That weight."""
        yield self.weight._replace(frozen=True)


@dataclass(frozen=True)
class Embedding(Component):
    """Token table, and learned positions where there are any; rotary angles and masks are made here once for all layers.

    Attributes:
        vocab, width: the table's axes.
        positions: rows of the learned position table, 0 for none; the first `reserved_positions` of them stand for no token.
        rotary: the angles that the layers share.
        scaled: multiplied by a constant (Gemma, Granite).
        tied: the head uses this table too, so its gradient is there before this block runs back.
        local_rotary: a second set of angles, for the layers with windows (Gemma 3).
        token_types: rows of the table of token types (BERT), 0 for none.
        norm: on the sum (BERT, BLOOM, nanochat).
        dropout: on what comes out.
        project: to another width (OPT 350M, ELECTRA).
        alibi: the bias for positions, where there is one.
        always_masked: the fused kernel gets a mask even where it could do without (Falcon).
        masks: windows (None: the whole sequence) of masks that the model makes whether or not its attention needs them.
        mask_each: masks of windows are made for each sequence of the batch (Llama 4).
        style: whose order of steps: ``decoder`` (tokens alone), ``gpt2`` (positions summed by the model's own code, which holds both
            summands), ``opt`` (likewise, positions counted from a mask), ``bloom`` (normalised by the model's own code), ``bert`` (all in
            an embedding module, positions from a buffer), ``roberta`` (likewise, positions counted for each sequence), ``deberta`` (likewise from
            a buffer, times a mask).
        adapter: low-rank, of the token table.
        original: the frozen token table, where a copy of it is trained.
        prompt: makes virtual tokens before those of the batch, or before the keys of each layer.
        inputs: makes inputs for each layer (Gemma 4 E2B).
        streams: makes several of what comes out (Gemma 3n).
        others: what runs on what comes out, and what layers share (Gemma 3n's tables of other kinds of tokens, DeBERTa's and MPNet's distances).
    """

    vocab: Axis
    width: Axis
    positions: int = 0
    rotary: Rotary | None = None
    scaled: bool = False
    tied: bool = False
    local_rotary: Rotary | None = None
    token_types: int = 0
    norm: LayerNorm | RMSNorm | None = None
    dropout: float = 0.0
    project: Linear | None = None
    alibi: Alibi | None = None
    always_masked: bool = False
    masks: tuple[int | None, ...] = ()
    mask_each: bool = False
    reserved_positions: int = 0
    style: Literal["decoder", "gpt2", "opt", "bloom", "bert", "roberta", "deberta"] = "decoder"
    adapter: TableAdapter | None = None
    original: Original | None = None
    prompt: PromptEncoder | None = None
    inputs: InputTables | None = None
    streams: Component | None = None
    others: tuple[Component, ...] = ()

    @property
    def outer(self) -> bool:
        """Who calls the model holds its embeddings."""
        return self.prompt is not None and not self.prompt.num_tensors

    @property
    def returns(self) -> tuple[str, ...]:
        """Names of shared tensors that who calls the model holds."""
        return ("inputs_embeds", "virtual tokens", "labels with virtual tokens", "labels of virtual tokens") if self.outer else ()

    @property
    def lengths(self) -> tuple[int, ...]:
        """One more than it has positions for."""
        return (self.positions - self.reserved_positions + 1,) if self.positions else ()

    def own_weights(self) -> Iterator[Weight]:
        """``weight`` (vocab, width), ``position/weight``, ``token_type/weight``."""
        yield Weight("weight" if self.original is None else COPY, (self.vocab, self.width), (("vocab", 0),))
        if self.positions:
            width = self.project.outputs if self.project is not None and self.style == "opt" else self.width
            yield Weight("position/weight", (Axis("positions", self.positions), width))
        if self.token_types:
            yield Weight("token_type/weight", (Axis("type_vocab_size", self.token_types), self.width))
