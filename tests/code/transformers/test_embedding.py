"""The front of a model: what it saves, what the model's forward holds, and sequences that are too long."""

from __future__ import annotations

import pytest

from memcalc.code.context import Context, Settings
from memcalc.components import Alibi, Embedding, LayerNorm, Rotary
from memcalc.errors import InputError
from memcalc.specs.model import Axis
from memcalc.tape.tape import Tape
from memcalc.tape.tensor import Tensor
from tests.code.transformers.recorded import BATCH, SEQ

VOCAB, H = Axis("vocab_size", 11), Axis("hidden_size", 8)


def run(embedding: Embedding, *, seq: int = SEQ, training: bool = True) -> tuple[Context, Tensor]:
    """The context after the embedding has run, and its output."""
    ctx = Context(Tape(), Settings(code="transformers", attention="sdpa", batch=BATCH, seq=seq, dtype="bfloat16", training=training))
    return ctx, ctx.run(embedding, ctx.tape.input((ctx.batch, ctx.seq), "int64", "ids"), "embed")


def test_rotary_angles_are_shared_in_the_dtype_that_layers_turn_in() -> None:
    """A second set bears its name; fp32 where the model keeps them so."""
    ctx, _ = run(Embedding(VOCAB, H, rotary=Rotary(4), local_rotary=Rotary(4, precision="angles", name="local")))
    assert {name: t.dtype for name, t in ctx.shared.items() if "s" in name and name != "position_ids"} == {
        "cos": "bfloat16",
        "sin": "bfloat16",
        "local cos": "float32",
        "local sin": "float32",
    }


def test_gpt2_holds_both_summands_beside_the_sum() -> None:
    ctx, out = run(Embedding(VOCAB, H, positions=SEQ, style="gpt2"))
    assert set(ctx.shared) == {"inputs_embeds", "position_embeds"}
    assert ctx.shared["inputs_embeds"].storage is not out.storage
    assert not ctx.holds_output


def test_a_model_without_positions_holds_its_output() -> None:
    ctx, _ = run(Embedding(VOCAB, H))
    assert ctx.holds_output


@pytest.mark.parametrize(("style", "reserved"), [("gpt2", 0), ("opt", 2), ("bert", 0), ("roberta", 2)])
def test_sequences_longer_than_the_position_table_are_refused(style: str, reserved: int) -> None:
    """OPT and RoBERTa have rows that stand for no token."""
    made = Embedding(VOCAB, H, positions=SEQ + reserved, reserved_positions=reserved, style=style, norm=LayerNorm(H))  # type: ignore[arg-type]
    run(made)
    with pytest.raises(InputError, match=f"the model has positions for {SEQ} tokens, not for {SEQ + 1}"):
        run(made, seq=SEQ + 1)


def test_alibi_is_a_bias_a_table_or_a_mask() -> None:
    """For each sequence and head; in fp32 for the longest sequence; for each pair of tokens."""
    sizes = {}
    for style in ("bias", "table", "mask"):
        ctx, _ = run(Embedding(VOCAB, H, alibi=Alibi(3, style, length=9)))  # type: ignore[arg-type]
        sizes[style] = {name: t.storage.record.num_bytes for name, t in ctx.shared.items() if t.storage is not None and name != "position_ids"}
    assert sizes["bias"] == {"alibi": BATCH * 3 * SEQ * 2}
    assert sizes["table"] == {"alibi": 3 * 9 * 4, "causal mask": BATCH * SEQ * SEQ}
    assert sizes["mask"] == {"alibi": BATCH * 3 * SEQ * 2, "causal mask": BATCH * 3 * SEQ * SEQ * 2}
