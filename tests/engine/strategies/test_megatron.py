"""Megatron's optimizers: bytes a parameter, on every rank."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest

from memcalc.engine.estimate import estimate_job
from memcalc.engine.result import RankEstimate
from memcalc.errors import InputError
from memcalc.formulas.megatron import state_bytes_per_param
from memcalc.specs.model import ModelSpec
from tests.engine.strategies.walks import at_initialize
from tests.engine.toy import job, llama
from tests.engine.toy_gpt import mixture

VOCAB = 1024
"""Divides, so that no padding blurs the counts."""


def ranks(model: ModelSpec | None = None, **keys: Any) -> list[RankEstimate]:
    """Of a toy under Megatron, by stage."""
    answer = estimate_job(job(model or llama(vocab=VOCAB), code="megatron", **keys))
    return sorted(answer.ranks, key=lambda r: r.rank["pp"])


def states(rank: RankEstimate, *kinds: str) -> int:
    """Bytes between steps of these kinds."""
    return sum(t.bytes for t in rank.instants[0].terms if t.path.split("/")[0] in (kinds or ("weights", "gradients", "optimizer")))


@pytest.mark.parametrize(("dtype", "rate"), [("bfloat16", 18), ("float32", 16), ("float16", 16)])
def test_without_the_distributed_optimizer_each_rank_holds_all(dtype: str, rate: int) -> None:
    """bf16 18, fp32 16; fp16 20, of which 4 are copies of gradients that come with the step."""
    (rank,) = ranks(dtype=dtype, dp=8)
    params = llama(vocab=VOCAB).num_params
    assert states(rank) == rate * params
    step = next(i for i in rank.instants if i.name == "optimizer_step")
    copies = sum(t.bytes for t in step.terms if t.path.startswith("optimizer/copies"))
    assert copies == (4 * params if dtype == "float16" else 0)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float16"])
@pytest.mark.parametrize("dp", [2, 8, 24])
def test_the_distributed_optimizer_shares_states(dtype: str, dp: int) -> None:
    """6 + 12/d, 8 + 8/d, 4 + 16/d (copies of gradients in the step included), and less than a thousandth of padding."""
    (rank,) = ranks(dtype=dtype, dp=dp, zero=1)
    params = llama(vocab=VOCAB).num_params
    expected = state_bytes_per_param(dtype=dtype, shards=dp, distributed=True) * params
    step = next(i for i in rank.instants if i.name == "optimizer_step")
    found = states(rank) + sum(t.bytes for t in step.terms if t.path.startswith("optimizer/copies"))
    assert expected <= found <= expected * 1.001


def test_gradients_in_bf16_take_half() -> None:
    """Two bytes; the step copies this rank's part to fp32."""
    (wide,), (narrow,) = ranks(dp=8, zero=1), ranks(dp=8, zero=1, grad_reduce_in_bf16=True)
    assert states(narrow, "gradients") * 2 == states(wide, "gradients")


def test_the_precision_aware_optimizer() -> None:
    """Main parameters are the 16 bits that bf16 weights lack; moments take their own dtype."""
    params = llama(vocab=VOCAB).num_params
    aware = {"use_precision_aware_optimizer": True, "exp_avg_dtype": "bf16", "exp_avg_sq_dtype": "fp8", "main_grads_dtype": "bf16"}
    (rank,) = ranks(dp=8, zero=1, **aware)
    assert states(rank, "optimizer") == pytest.approx(params * (2 + 2 + 1) / 8, rel=1e-3)
    assert states(rank, "gradients") == pytest.approx(params * 2, rel=1e-3)


def test_the_key_of_the_launch_is_zero_1() -> None:
    """use_distributed_optimizer says the same."""
    assert ranks(dp=4, zero=1)[0].allocated_bytes == ranks(dp=4, use_distributed_optimizer=True)[0].allocated_bytes


def test_stages_hold_the_model() -> None:
    """Weights of all stages sum to the model's; a tied table is on both ends."""
    for tied in (False, True):
        model = llama(vocab=VOCAB, tied=tied)
        held = sum(states(r, "weights") for r in ranks(model, pp=4))
        assert held == 2 * (model.num_params + (VOCAB * 256 if tied else 0))


def test_tensor_parallel_ranks_hold_the_model() -> None:
    """Norms are on every rank, all else is cut."""
    whole, (half,) = llama(vocab=VOCAB), ranks(tp=2)
    norms = (2 * 8 + 1) * 256
    assert states(half, "weights") * 2 == 2 * (whole.num_params + norms)


def test_context_parallel_ranks_share_states_too() -> None:
    """They are data-parallel ranks to the optimizer."""
    assert states(ranks(dp=2, cp=4, zero=1)[0], "optimizer") == states(ranks(dp=8, zero=1)[0], "optimizer")


def test_expert_states_have_a_group_of_their_own() -> None:
    """Eight ranks, experts over four of them: each expert's states are shared by two."""
    model = mixture(hidden=256, heads=8, kv_heads=4, head_dim=32, width=512)
    (rank,) = ranks(model, ep=4, gpus=8, zero=1)
    found = {t.path: t.bytes for t in rank.instants[0].terms}
    assert found["optimizer/exp_avg of experts"] == found["gradients/main_grad of experts"] // 2
    assert found["optimizer/exp_avg"] == found["gradients/main_grad"] // 8


def test_other_stages_are_not_megatrons() -> None:
    """ZeRO-2 and 3 are other engines'."""
    with pytest.raises(InputError, match=r"zero 1\) or none"):
        ranks(dp=4, zero=3)


def test_gradient_buffers_are_there_from_the_start() -> None:
    """Nothing of a gradient is left by backward: it is added where it arises."""
    (rank,) = ranks()
    gradients = [sum(t.bytes for t in i.terms if t.path.startswith("gradients/")) for i in rank.instants]
    assert len(set(gradients)) == 1


def test_saving_copies_narrow_states_to_fp32() -> None:
    """Each stage writes its shards from where they are; FusedAdam hands out states of 8 or 16 bits as fp32 copies, all at once."""
    narrow = {"use_precision_aware_optimizer": True, "exp_avg_dtype": "fp8", "exp_avg_sq_dtype": "bf16"}
    for keys, copies in (({}, 0), (narrow, 2)):
        for rank in ranks(dp=2, pp=2, zero=1, checkpoint_save="full", **keys):
            start, saved = (
                sum(t.bytes for t in i.terms if t.path.startswith(("optimizer/exp_avg", "checkpoint/"))) for i in (rank.instants[0], rank.instants[-1])
            )
            assert rank.instants[-1].name == "checkpoint_save"
            exp_avg = sum(t.bytes for t in rank.instants[0].terms if t.path == "optimizer/exp_avg")
            assert saved - start == copies * 4 * exp_avg


def test_states_on_the_host_leave_weights_and_gradients() -> None:
    """HybridDeviceOptimizer: of the share that it takes, main parameters and moments go, and the host has fp32 weights, gradients and moments.

    What stays is fp32, whatever the precision-aware optimizer would make of it.
    """
    (kept,) = ranks(dp=2, zero=1)
    for share in (1.0, 0.4):
        aware: dict[str, Any] = {"use_precision_aware_optimizer": True, "exp_avg_dtype": "bf16"}
        (moved,) = ranks(dp=2, zero=1, offload={"optimizer": "cpu"}, optimizer_offload_fraction=share, **aware)
        assert states(moved, "optimizer") == pytest.approx((1 - share) * states(kept, "optimizer"), rel=1e-6)
        assert sum(t.bytes for t in moved.host) == pytest.approx(16 / 12 * share * states(kept, "optimizer"), rel=1e-6)
        assert states(moved, "weights", "gradients") == states(kept, "weights", "gradients")


def test_every_group_that_something_is_sent_in_has_a_communicator() -> None:
    """Two cards with tensor parallelism make four: of all, of the two, of the model's and of the optimizer's."""
    (rank,) = ranks(tp=2, sp=True, zero=1)
    assert [t.path for t in rank.device if "communicator" in t.path] == [f"device/communicator of {n}" for n in ("all", "tp", "tp and pp", "optimizer")]


@pytest.mark.parametrize(("zero", "rate"), [(1, 8), (0, 6)])
def test_buffers_are_made_beside_the_weights_that_move_into_them(zero: int, rate: int) -> None:
    """Two bytes more a parameter with the distributed optimizer (traced: 17,049,600 bytes of 2,131,200 parameters)."""
    made = at_initialize(llama(vocab=VOCAB), engine="megatron", code="megatron", zero=zero)
    assert made == pytest.approx(rate * llama(vocab=VOCAB).num_params, rel=0.001)


def test_experts_move_after_all_else() -> None:
    """Traced of 660,736 parameters and 589,824 of experts: 8,683,328 bytes, in which the old weights of the first are gone."""
    model = mixture(hidden=256, heads=8, kv_heads=4, head_dim=32, width=512)
    experts = sum(prod(axis.size for axis in w.shape) * copies for _, w, copies in model.weights() if w.is_expert)
    assert at_initialize(model, engine="megatron", code="megatron", zero=1) == pytest.approx(6 * (model.num_params - experts) + 8 * experts, rel=0.001)
