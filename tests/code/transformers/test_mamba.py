"""Mamba's mixer by hand: what its loop over tokens saves."""

from __future__ import annotations

from memcalc.components.mamba import Mamba, mamba
from memcalc.components.norm import RMSNorm
from memcalc.specs.model import Axis
from tests.code.transformers.recorded import BATCH, SEQ, TOKENS, record

HIDDEN, CHANNELS, STATE, RANK = Axis("hidden_size", 6), Axis("intermediate_size", 12), Axis("state_size", 4), Axis("time_step_rank", 2)
STATES = TOKENS * CHANNELS.size * STATE.size * 4
"""Bytes of one number for each token, channel and element of its state, in fp32."""


def mixer(**more: object) -> Mamba:
    """A small one."""
    return mamba(HIDDEN, CHANNELS, STATE, RANK, kernel=4, bias=False, conv_bias=True, activation="silu", **more)  # type: ignore[arg-type]


def small_bytes(seq: int) -> int:
    """What is saved that no state is part of, by the shapes in MambaMixer.forward."""
    tokens, channels = BATCH * seq, CHANNELS.size
    projected = tokens * 2 * channels * 2
    convolved = BATCH * channels * (seq + 3) * 2
    # silu, its copy, fp32 copy, time steps + bias and softplus, gate's silu, sum in fp32, copy of the output:
    of_channels = 2 + 2 + 4 + 2 + 2 + 2 + 4 + 2
    latent = tokens * (RANK.size + 2 * STATE.size) * 2 + tokens * STATE.size * 4
    return projected + convolved + tokens * channels * of_channels + latent


def test_states_are_saved_thrice_in_fp32_and_once_in_the_models_dtype() -> None:
    """Decay, its influx and the state before each token (the first of which is zeros in bf16), and a copy of the state after it."""
    saved = record(mixer(), HIDDEN.size).saved_bytes
    output = TOKENS * HIDDEN.size * 2
    first = BATCH * CHANNELS.size * STATE.size
    per_layer = CHANNELS.size * (STATE.size * 4 * 2 + 4)  # A and its exponential, D in fp32
    assert saved == STATES * 3 - first * 4 + first * 2 + STATES // 2 + small_bytes(SEQ) + per_layer + output


def test_a_longer_sequence_is_counted_and_not_run() -> None:
    """Each further token adds the same, whether its step is run or counted."""
    five, six, hundred = (record(mixer(), HIDDEN.size, seq=n).saved_bytes for n in (5, 6, 100))
    assert hundred - five == 95 * (six - five)


def test_fp32_weights_need_no_copies_of_states() -> None:
    """States are in the model's dtype already."""
    narrow, wide = (
        record(mixer(), HIDDEN.size, dtype=dtype, seq=50).saved_bytes - record(mixer(), HIDDEN.size, dtype=dtype, seq=49).saved_bytes
        for dtype in ("bfloat16", "float32")
    )
    of_states = BATCH * CHANNELS.size * STATE.size
    assert narrow - 14 * of_states > 0
    assert wide - 12 * of_states < 2 * (narrow - 14 * of_states)


def test_norms_of_the_latent_have_weights_of_its_parts() -> None:
    """Jamba's; Falcon-Mamba's have none."""
    norms = (RMSNorm(RANK), RMSNorm(STATE), RMSNorm(STATE))
    assert mixer(norms=norms).num_params - mixer().num_params == RANK.size + 2 * STATE.size
    unscaled = tuple(RMSNorm(axis, "unscaled") for axis in (RANK, STATE, STATE))
    assert mixer(norms=unscaled).num_params == mixer().num_params
    assert record(mixer(norms=norms), HIDDEN.size).saved_bytes > record(mixer(), HIDDEN.size).saved_bytes
