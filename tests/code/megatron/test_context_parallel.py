"""What attention over context-parallel ranks needs while it runs."""

from __future__ import annotations

from typing import Any

from memcalc.code.context import Context, Settings
from memcalc.code.megatron.context_parallel import over_ranks
from memcalc.code.megatron.options import Options
from memcalc.specs.model import Axis
from memcalc.tape.span import sum_up
from memcalc.tape.tape import Tape

SEQ, BATCH, HEADS, KV_HEADS, DIM, CP = 64, 1, 8, 4, 32, 4
QUERY, KEY = 2 * SEQ * BATCH * HEADS * DIM, 2 * SEQ * BATCH * KV_HEADS * DIM
"""Bytes of one rank's queries, and of its keys or values."""
LSE = 4 * SEQ * BATCH * HEADS


def measure(how: Any) -> tuple[int, int, int]:
    """Bytes at the peak of forward beyond the inputs, kept after it, and at the peak of backward beyond that."""
    tape = Tape()
    settings = Settings("megatron", "flash_attention_2", BATCH, SEQ, "bfloat16", cp=CP, options=Options(cp_comm_type=how))
    ctx = Context(tape, settings)

    def made(heads: int, name: str) -> Any:
        return tape.input((Axis("seq", SEQ), Axis("batch", BATCH), Axis("heads", heads), Axis("dim", DIM)), "bfloat16", name, requires_grad=True)

    query, key, value = made(HEADS, "query"), made(KV_HEADS, "key"), made(KV_HEADS, "value")
    since = len(tape.events)
    out = over_ranks(ctx, query, key, value)
    forward = sum_up(tape.events[since:])
    edge = (out.node, out.index) if out.node is not None else None
    gradient = [tape.new(out.shape, out.dtype, "gradient")]
    del query, key, value, out
    since = len(tape.events)
    tape.backward(edge, gradient)
    return forward.peak, forward.net, sum_up(tape.events[since:]).peak


def test_a_ring_receives_each_step_into_its_own_buffer() -> None:
    """Keys and values of every rank, and every step's output; backward passes on two buffers of keys and values with their gradients."""
    assert measure("p2p") == (CP * (2 * KEY + QUERY + LSE) + QUERY + LSE + 2 * KEY, QUERY + LSE + 2 * KEY, 8 * KEY + 4 * QUERY + 2 * KEY)


def test_gathering_holds_keys_and_values_of_all_ranks_in_forward_and_again_in_backward() -> None:
    """And there their gradients as well; what is kept is this rank's."""
    assert measure("all_gather") == (CP * 2 * KEY + 2 * QUERY + LSE, QUERY + LSE, 2 * CP * 2 * KEY + 3 * QUERY)


def test_ulysses_keeps_as_much_as_one_rank_and_its_output_twice() -> None:
    """All ranks' tokens of some heads, then the output of all heads; each exchange has one copy beside it."""
    peak, kept, _ = measure("a2a")
    assert kept - 16 == 3 * QUERY + 2 * KEY + LSE
    assert peak - kept == QUERY
