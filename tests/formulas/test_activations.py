"""Closed forms for activations, to their printed digits."""

from __future__ import annotations

import pytest

from memcalc.formulas.activations import layer_bytes, mbridge_elements, megatron_lm_bytes
from memcalc.formulas.megatron import state_bytes_per_param
from memcalc.formulas.pipeline import interleaving_factor
from memcalc.units import GiB, MiB

MODELS = {
    "22B": {"hidden_size": 6144, "num_layers": 48, "num_heads": 64, "micro_batch": 4, "pp": 1, "vpp": 1},
    "175B": {"hidden_size": 12288, "num_layers": 96, "num_heads": 96, "micro_batch": 1, "pp": 8, "vpp": 3},
    "530B": {"hidden_size": 20480, "num_layers": 105, "num_heads": 128, "micro_batch": 1, "pp": 35, "vpp": 3},
    "1T": {"hidden_size": 25600, "num_layers": 128, "num_heads": 160, "micro_batch": 1, "pp": 64, "vpp": 1},
}
"""The four models of Korthikanti et al. 2022, table 3; tensor parallelism 8, sequences of 2048."""


def model_bytes(name: str, **mode: object) -> float:
    """Activations of all layers on the first stage."""
    sizes = dict(MODELS[name])
    pp, vpp, layers = sizes.pop("pp"), sizes.pop("vpp"), sizes.pop("num_layers")
    return layer_bytes(seq_len=2048, tp=8, **sizes, **mode) * layers * interleaving_factor(pp=pp, vpp=vpp)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("name", "states", "none", "seqsel"),
    [
        ("22B", 45.5625, 59.25, 9.5625),
        ("175B", 45.5625, 66.84375, 12.3515625),
        ("530B", 31.640625, 114.0234375, 23.076171875),
        ("1T", 32.958984375, 131.25, 26.5625),
    ],
)
def test_figure_1_of_korthikanti(name: str, states: float, none: float, seqsel: float) -> None:
    """Parameters and states at 18 bytes, activations without and with sequence parallelism and selective recomputation, GiB."""
    sizes = MODELS[name]
    params = 12 * sizes["num_layers"] * sizes["hidden_size"] ** 2 / (8 * sizes["pp"])
    assert params * state_bytes_per_param(dtype="bfloat16", shards=1, distributed=False) / GiB == states
    assert model_bytes(name) / GiB == none
    assert model_bytes(name, sequence_parallel=True, recompute="selective") / GiB == seqsel


@pytest.mark.parametrize(
    ("name", "seq", "sel", "both", "full"),
    [("22B", 66.77, 49.37, 16.14, 7.59), ("175B", 61.96, 56.52, 18.48, 8.70), ("530B", 58.33, 61.90, 20.24, 9.52), ("1T", 58.33, 61.90, 20.24, 9.52)],
)
def test_figure_7_of_korthikanti(name: str, seq: float, sel: float, both: float, full: float) -> None:
    """Per cent of what is saved without any of it; the paper's own bars lie within 0.15 of the closed form."""
    base = model_bytes(name)
    modes = ({"sequence_parallel": True}, {"recompute": "selective"}, {"sequence_parallel": True, "recompute": "selective"}, {"recompute": "full"})
    assert [round(100 * model_bytes(name, **mode) / base, 2) for mode in modes] == [seq, sel, both, full]


def test_megatron_bridges_activations() -> None:
    """The two integers of its tests (theoretical_memory_utils)."""
    toy = {"seq_len": 8, "micro_batch": 2, "hidden_size": 16, "ffn_hidden_size": 64, "num_layers": 4, "vocab_size": 32, "tp": 2}
    assert megatron_lm_bytes(**toy, cp=2, micro_batches=1) == 9568  # type: ignore[arg-type]
    assert megatron_lm_bytes(**toy, pp=2, vpp=2, micro_batches=4) == 22240  # type: ignore[arg-type]


MIXTRAL_8X2B = {
    "hidden_size": 2048, "num_layers": 4, "num_heads": 16, "num_kv_heads": 8, "head_dim": 128, "moe_ffn_hidden_size": 5440, "top_k": 2, "vocab_size": 32000,
}  # fmt: skip


@pytest.mark.parametrize(
    ("tp", "micro_batch", "model", "act", "total"), [(2, 1, 5.24, 1.39, 6.63), (2, 2, 5.24, 2.78, 8.02), (1, 1, 8.74, 2.44, 11.18), (1, 2, 8.74, 4.88, 13.62)]
)
def test_mbridges_table(tp: int, micro_batch: int, model: float, act: float, total: float) -> None:
    """Its estimates (est.0) of a reduced Mixtral on eight cards, GiB, as its README prints them, which doubles rounded numbers."""
    norms = 5 * 2048
    params = (1_250_961_408 - norms) // tp + norms
    states = params * state_bytes_per_param(dtype="bfloat16", shards=8 // tp, distributed=True) / GiB
    activations = 2 * mbridge_elements(seq_len=4096, micro_batch=micro_batch, tp=tp, **MIXTRAL_8X2B) / GiB
    assert round(states, 2) == model
    assert (activations, states + activations) == (pytest.approx(act, abs=0.0101), pytest.approx(total, abs=0.0101))


def test_mbridges_tree() -> None:
    """The sums of the tree in its README, MiB."""
    assert round(1_250_961_408 * 7.5 / MiB, 2) == 8947.57
    assert round(2 * mbridge_elements(seq_len=4096, micro_batch=1, **MIXTRAL_8X2B) / MiB, 2) == 2495.00
