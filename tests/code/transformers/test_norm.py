"""What each norm saves, by hand: bytes for each token of width h."""

from __future__ import annotations

import pytest

from memcalc.components import LayerNorm, RMSNorm
from memcalc.specs.model import Axis, Component
from tests.code.transformers.recorded import TOKENS, record

H = Axis("hidden_size", 8)


@pytest.mark.parametrize(
    ("norm", "per_token", "per_norm"),
    [
        (RMSNorm(H), 4 * 8 + 2 * 8 + 2 * 8 + 4, 0),  # fp32 copy, normalised, output, inverse root mean square
        (RMSNorm(H, "gemma"), 4 * 8 + 4 * 8 + 2 * 8 + 4, 4 * 8),  # normalised in fp32 instead; 1 + weight in fp32
        (RMSNorm(H, "fp32_scale"), 4 * 8 + 4 * 8 + 2 * 8 + 4, 0),
        (RMSNorm(H, "fp32_weight"), 4 * 8 + 4 * 8 + 2 * 8 + 4, 4 * 8),
        (RMSNorm(H, "unscaled"), 4 * 8 + 2 * 8 + 4, 0),
        (LayerNorm(H), 2 * 8 + 2 + 2, 0),  # output, mean, reciprocal deviation; the input is the caller's
        (LayerNorm(H, style="one_plus"), 2 * 8 + 2 + 2, 2 * 8),
        (LayerNorm(H, bias=False, style="upcast"), 4 * 8 + 2 * 8 + 4 + 4, 0),
        (LayerNorm(H, bias=False, style="fp32"), 3 * 4 * 8 + 2 * 8 + 4, 4 * 8),  # centred twice, normalised, output, reciprocal deviation
    ],
    ids=lambda v: f"{type(v).__name__}-{v.style}" if isinstance(v, (RMSNorm, LayerNorm)) else "",
)
def test_saved_bytes(norm: Component, per_token: int, per_norm: int) -> None:
    assert record(norm, 8).saved_bytes == TOKENS * per_token + per_norm


def test_in_fp32_there_is_no_copy() -> None:
    """``x.to(torch.float32)`` of an fp32 tensor is the tensor."""
    assert record(RMSNorm(H), 8, dtype="float32").saved_bytes == TOKENS * (4 * 8 + 4 * 8 + 4)


@pytest.mark.parametrize("norm", [RMSNorm(H, "gemma"), LayerNorm(H), LayerNorm(H, bias=False, style="fp32")], ids=["gemma", "kernel", "fp32"])
def test_backward_frees_all_and_leaves_gradients(norm: Component) -> None:
    """Of the weights, and of the input in its dtype."""
    gradients = {f"gradients/module/{weight.name}": 2 * weight.num_params for weight in norm.own_weights()}
    assert record(norm, 8).left == {**gradients, "gradient of x": TOKENS * 8 * 2}
