"""Every optimizer on a 7B model: states per parameter, on the card and on the host."""

from __future__ import annotations

from typing import Any

import pytest

from memcalc.engine.estimate import estimate
from memcalc.engine.optimizers import OPTIMIZERS
from memcalc.engine.result import Estimate
from memcalc.errors import InputError
from memcalc.specs.run import Run

NUM_PARAMS, TABLE, HIDDEN = 6738415616, 32000 * 4096, 4096
MATRICES = 4 * HIDDEN**2 + 3 * HIDDEN * 11008
NORMS = 65 * HIDDEN


def run(optimizer: str, **keys: Any) -> Estimate:
    """An answer for Llama 7B in bf16."""
    return estimate(Run.model_validate({"model": "llama-7b", "seq_len": 64, "optimizer": optimizer, **keys}))


def states(answer: Estimate) -> int:
    """Bytes of optimizer states on the card, counters of steps apart."""
    return sum(t.bytes for t in answer.instant("start").terms if t.path.startswith("optimizer/") and t.path != "optimizer/step counters")


def on_host(answer: Estimate) -> int:
    """Bytes on the host."""
    return sum(t.bytes for t in answer.ranks[0].host)


@pytest.mark.parametrize(
    ("name", "each"),
    [
        ("adamw_torch_fused", 4), ("adamw_anyprecision", 8), ("lion_32bit", 4), ("ademamix", 12), ("rmsprop_bnb", 4), ("rmsprop", 2), ("adagrad", 2),
        ("sgd", 0), ("lomo", 0), ("schedule_free_adamw", 4), ("schedule_free_radam", 4), ("schedule_free_sgd", 2), ("stable_adamw", 6),
    ],
)  # fmt: skip
def test_dense_states_are_so_many_bytes_a_parameter(name: str, each: int) -> None:
    """Of weights in bf16."""
    assert states(run(name)) == each * NUM_PARAMS


def test_8_bit_adam_keeps_the_table_in_fp32() -> None:
    """2.03 bytes of all but the table's 8, as the Trainer has it; norms of 4096 elements are just large enough."""
    assert states(run("adamw_bnb_8bit")) == 8 * TABLE + (NUM_PARAMS - TABLE) * 65 // 32


def test_flat_tensors_have_no_table() -> None:
    """Under ZeRO all is one partition, quantised as it comes: fp32 masters, 8-bit moments."""
    answer = run("adamw_bnb_8bit", sharding={"engine": "deepspeed", "zero": 2, "dp": 2})
    found = next(t.bytes for t in answer.instant("start").terms if t.path == "optimizer/states")
    assert found == pytest.approx(NUM_PARAMS / 2 * 65 / 32, rel=1e-6)


def test_paged_states_are_on_the_host() -> None:
    """All but small tensors and scales; together they are what is not paged."""
    paged, plain = run("paged_adamw_8bit"), run("adamw_8bit")
    assert states(paged) + on_host(paged) == states(plain)
    assert states(paged) < 0.02 * states(plain)


def test_paged_states_are_on_the_host_under_every_engine() -> None:
    """Of shards, of flat tensors, of whole ones."""
    for sharding in ({"engine": "fsdp2", "dp": 2}, {"engine": "fsdp1", "dp": 2}, {"engine": "deepspeed", "zero": 3, "dp": 2}):
        assert on_host(run("paged_adamw_32bit", sharding=sharding)) == pytest.approx(4 * NUM_PARAMS, rel=1e-3)


def test_grokadamw_keeps_its_states_on_the_host() -> None:
    """Three of them, in bf16."""
    answer = run("grokadamw")
    assert (states(answer), on_host(answer)) == (0, 6 * NUM_PARAMS)


def test_adafactor_keeps_a_row_and_a_column_of_each_matrix() -> None:
    """fp32; norms whole."""
    rows = 2 * (32000 + 4096) + 32 * (4 * 8192 + 3 * (4096 + 11008))
    assert states(run("adafactor")) == 4 * (rows + NORMS)


def test_galore_projects_every_linear_layer() -> None:
    """Moments of rank × longer side and a projection of rank × shorter side; the table and the norms are whole."""
    sides = [(4096, 4096)] * 4 + [(4096, 11008)] * 3
    low = 32 * sum(2 * 128 * n + 128 * m for m, n in sides) + 128 * (2 * 32000 + 4096)
    assert states(run("galore_adamw")) == 2 * low + 4 * (TABLE + NORMS)


def test_galore_takes_the_modules_that_are_named() -> None:
    """Those left out have whole moments."""
    names = ["q_proj", "k_proj", "v_proj", "o_proj"]
    low = 32 * 4 * 3 * 64 * 4096
    assert states(run("galore_adamw", optim_target_modules=names, optimizer_rank=64)) == 2 * low + 4 * (NUM_PARAMS - 32 * 4 * 4096**2)


@pytest.mark.parametrize("names", [["attn", "mlp"], [".*.attn.*", ".*.mlp.*"], r"model\.layers\.\d+\.(self_attn|mlp)\..*"])
def test_galore_looks_for_names_as_the_trainer_does(names: Any) -> None:
    """In a list any part of a module's name will do, or a regular expression: the head is none of these."""
    low = 32 * sum(2 * 128 * n + 128 * m for m, n in [(4096, 4096)] * 4 + [(4096, 11008)] * 3)
    assert states(run("galore_adamw", optim_target_modules=names)) == 2 * low + 4 * (2 * TABLE + NORMS)


def test_galore_takes_all_of_equal_layers_or_none() -> None:
    with pytest.raises(InputError, match="some of equal layers"):
        run("galore_adamw", optim_target_modules=r"model\.layers\.[0-3]\.mlp\..*")


def test_layers_that_hold_their_weights_transposed_are_not_projected() -> None:
    """GPT-2's are no nn.Linear, and its head is the table: what is left are whole moments."""
    answer = estimate(Run.model_validate({"model": "gpt2", "seq_len": 64, "optimizer": "galore_adamw"}))
    assert states(answer) == 4 * answer.model.total_params


def test_muon_keeps_momentum_of_matrices_and_moments_of_the_rest() -> None:
    """The table, the head and the norms step under AdamW."""
    assert states(run("muon")) == 2 * 32 * MATRICES + 4 * (2 * TABLE + NORMS)


@pytest.mark.parametrize("name", [name for name in OPTIMIZERS if "layerwise" in name or "lomo" in name])
def test_a_step_in_backward_keeps_few_gradients(name: str) -> None:
    """The table's and the one before it, at most, instead of the model's."""
    answer = run(name)
    gradients = sum(t.bytes for t in answer.instant("backward_peak").terms if t.path.startswith("gradients/"))
    assert gradients <= 2 * 2 * TABLE
    assert answer.instant("optimizer_step").allocated_bytes - answer.instant("start").allocated_bytes < 10**6


def test_any_optimizer_may_step_in_backward() -> None:
    """Of gradients the largest weight's is left; it adds none up, and all is on one card."""
    whole, hooked = (run("paged_adamw_32bit", recompute="full", seq_len=64, optimizer_in_backward=x) for x in (False, True))
    assert abs(whole.peak.allocated_bytes - hooked.peak.allocated_bytes - 2 * (32 * MATRICES + TABLE)) < 2**26
    for more in ({"grad_accum": 2}, {"hardware": {"gpus": 2}}):
        with pytest.raises(InputError, match="in backward"):
            run("adamw_torch", optimizer_in_backward=True, **more)


def test_a_tied_tables_gradient_waits_in_backward() -> None:
    """From the head to the embedding, where the two are summed; it is stepped with once, in fp32, and what was counted goes again."""
    answer = run("lomo", model="qwen2.5-0.5b")
    table = 151936 * 896
    assert sum(t.bytes for t in answer.instant("backward_peak").terms if t.path == "optimizer/update of one tensor") == 8 * table
    assert sum(t.bytes for t in answer.instant("optimizer_step").terms if t.path.startswith("gradients/")) == 0


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_steps_adapters(name: str) -> None:
    """Few of them are anything but small; frozen weights have neither states nor gradients."""
    answer = run(name, lora={"r": 8})
    trained = answer.model.trainable_params
    assert states(answer) + on_host(answer) <= 12 * trained
    assert sum(t.bytes for t in answer.instant("backward_peak").terms if t.path.startswith("gradients/")) <= 4 * trained
