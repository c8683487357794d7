"""Losses that never hold all logits, against TRL's own function as it ran, and against what they are for."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.code.context import Context, Settings
from memcalc.components import Head, Linear
from memcalc.engine.estimate import estimate
from memcalc.engine.result import Estimate
from memcalc.errors import InputError
from memcalc.specs.model import Axis
from memcalc.specs.run import Run
from memcalc.tape.span import sum_up
from memcalc.tape.tape import Tape


def head_alone(loss: str, sizes: tuple[int, int, int, int], *, frozen: bool = False) -> tuple[int, int, int, int]:
    """Peak and rest of a head's forward, then peak and rest of its backward; sizes are batch, seq_len, hidden_size, vocab_size."""
    batch, seq, hidden, vocab = sizes
    settings = Settings("transformers", "sdpa", batch, seq, "bfloat16", loss=loss, trainable=(lambda _: False) if frozen else None)
    tape = Tape()
    ctx = Context(tape, settings)
    width = Axis("hidden_size", hidden)
    x = tape.input((ctx.batch, ctx.seq, width), "bfloat16", "x", requires_grad=True)
    begin = len(tape.events)
    y = ctx.run(Head(Linear("lm_head", width, Axis("vocab_size", vocab))), x, "lm_head")
    forward = sum_up(tape.events[begin:])
    begin = len(tape.events)
    assert y.node is not None
    tape.backward((y.node, y.index), [tape.new((), "float32", "gradient")])
    backward = sum_up(tape.events[begin:])
    return forward.peak, forward.net, forward.net + backward.peak, forward.net + backward.net


@pytest.mark.accuracy
@pytest.mark.parametrize(
    ("sizes", "frozen", "traced"),
    [((2, 513, 96, 2000), False, (8406320, 213004, 9853208, 580996)), ((1, 1025, 96, 2000), True, (8406320, 213004, 9370904, 196804))],
)
def test_chunks_agree_with_the_traced_function(sizes: tuple[int, int, int, int], frozen: bool, traced: tuple[int, ...]) -> None:
    """TRL 1.10's, every allocation of its forward and backward counted; masks of a byte a token are left out."""
    assert head_alone("chunked", sizes, frozen=frozen) == pytest.approx(traced, rel=2e-4)


def test_liger_makes_gradients_in_forward() -> None:
    """Kept from there: of the hidden states and of the weight; backward allocates nothing more."""
    tokens, hidden, vocab = 1024, 96, 2000
    _, kept, peak, rest = head_alone("fused_linear", (1, tokens, hidden, vocab))
    assert kept == 2 * (tokens + vocab) * hidden + 4
    assert rest == kept == pytest.approx(peak, abs=8)


def test_liger_leaves_a_frozen_weight_alone() -> None:
    """Adapters: the head's gradient is not made."""
    assert head_alone("fused_linear", (1, 1024, 96, 2000), frozen=True)[1] == 2 * 1024 * 96 + 4


def run(**keys: Any) -> Estimate:
    """An answer for Llama 3.1 8B with adapters, checkpointed."""
    return estimate(Run.model_validate({"model": "llama-3.1-8b", "seq_len": 8192, "recompute": "full", "lora": {"r": 16}, **keys}))


def test_cut_cross_entropy_holds_a_number_for_each_token_and_each_word() -> None:
    """Forward two for each labelled token; backward makes both gradients at once, beside an order of words and locks."""
    batch, seq, hidden, vocab = 2, 512, 1024, 32000
    peak, rest, back_peak, _ = head_alone("cut_cross_entropy", (batch, seq, hidden, vocab))
    tokens = batch * (seq - 1)
    assert rest == 8 * tokens + 4 * vocab + 4
    assert peak == rest + 4 * tokens
    gradients = 2 * (batch * seq * hidden + vocab * hidden)
    locks = 4 * (hidden // 64) * (batch * seq // 128 + vocab // 128)
    assert back_peak == rest + 4 + gradients + 4 * vocab + locks


def test_no_term_is_negative() -> None:
    """Gradients that forward made are handed on under their own name."""
    for loss in ("chunked", "fused_linear"):
        for sharding in ({}, {"engine": "fsdp2", "dp": 4}, {"engine": "fsdp1", "dp": 4}, {"engine": "deepspeed", "zero": 2, "dp": 4}):
            answer = run(loss=loss, sharding=sharding, lora=None)
            assert min(t.bytes for i in answer.ranks[0].instants for t in i.terms) >= -8


def test_each_loss_is_another_answer() -> None:
    """Full logits of 128,256 words over 8192 tokens are 10 bytes each; the others hold a few hundred tokens' worth."""
    peaks = {loss: run(loss=loss).instant("forward_peak").allocated_bytes for loss in ("cross_entropy", "chunked", "fused_linear")}
    assert peaks["cross_entropy"] - peaks["chunked"] > 6 * 8192 * 128256
    assert peaks["fused_linear"] < peaks["chunked"]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"sharding": {"tp": 2}}, "loss: loss chunked takes the whole weight of the head"),
        ({"sharding": {"engine": "deepspeed", "zero": 3, "dp": 2}}, "loss: loss chunked takes the head's weight past its module"),
        ({"code": "megatron", "lora": None}, "loss: loss chunked replaces the head of transformers' models"),
        ({"lora": {"target_modules": ["lm_head"]}}, "loss: loss chunked takes the head's weight as it is"),
    ],
)
def test_what_a_loss_cannot_do_is_refused(keys: dict[str, Any], message: str) -> None:
    """Rather than an answer with another loss."""
    with pytest.raises(InputError) as raised:
        run(loss="chunked", **keys)
    assert str(raised.value).startswith(message)


def test_logits_and_their_shifted_copy_are_all_that_is_held_in_fp32() -> None:
    """Forward peaks with both; backward keeps the copy as its gradient and writes it into zeros of all tokens."""
    batch, seq, hidden, vocab = 2, 513, 96, 2000
    peak, kept, backward, _ = head_alone("in_place", (batch, seq, hidden, vocab), frozen=True)
    logits, shifted, row = batch * seq * vocab * 4, batch * (seq - 1) * vocab * 4, batch * (seq - 1)
    assert peak == logits + shifted + row * (8 + 4 + 4) + 4
    assert kept == logits + shifted + row * (8 + 4) + 4  # the caller's logits go when forward is over
    assert backward <= peak + logits


def test_pieces_of_the_output_are_fp32_one_at_a_time() -> None:
    """torchtune: logits of all pieces in bf16, log-softmaxes of all in fp32, and one piece's cast; in backward two gradients of one piece."""
    batch, seq, vocab = 2, 1024, 2000
    logits = batch * seq * vocab
    peak, kept, backward, rest = head_alone("chunked_output", (batch, seq, 96, vocab))
    assert peak == pytest.approx((2 + 4 + 4 / 8) * logits, rel=0.02)
    assert kept == pytest.approx(4 * logits, rel=0.02)
    assert backward == pytest.approx((4 + 2 * 4 / 8) * logits, rel=0.1)
    assert rest < 0.2 * logits


@pytest.mark.parametrize(
    ("keys", "instant", "times"),
    [
        ({"upcast_logits": False}, "backward_peak", -6),
        ({"upcast_logits": False, "autocast": "bfloat16"}, "backward_peak", 0),
        ({"holds_logits": True}, "backward_peak", 2),
        ({"holds_logits": True}, "forward_peak", 0),
        ({"holds_logits": True}, "optimizer_step", 0),
    ],
)
def test_what_a_loop_makes_of_the_logits(keys: dict[str, Any], instant: str, times: int) -> None:
    """Without the cast three tensors of the vocabulary are half as large, under autocast they are not; a variable holds one more through backward."""
    run = {"model": "qwen2.5-0.5b", "seq_len": 4096, "recompute": "full"}
    plain = {"autocast": keys["autocast"]} if "autocast" in keys else {}
    before, after = (estimate(Run.model_validate({**run, **more})).instant(instant).allocated_bytes for more in (plain, keys))
    assert after - before == pytest.approx(times * 4096 * 151936, rel=0.01)
