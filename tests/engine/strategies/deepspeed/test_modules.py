"""Which modules stage 3 takes as one, and of which parameters operators save views."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memcalc.engine.estimate import estimate, walk_rank
from memcalc.engine.plan import Plan
from memcalc.engine.resolve import resolve
from memcalc.engine.strategies.deepspeed.modules import leaves_of, views
from memcalc.specs.deepspeed import LeafModule
from memcalc.specs.run import Run

SMALL = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100}
EXPERTS: dict[str, dict[str, Any]] = {
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen3_moe": {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "head_dim": 16},
    "olmoe": {"num_experts": 4, "num_experts_per_tok": 2},
    "gpt_oss": {"num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 16},
}


def plan_of(folder: Path, model_type: str) -> Plan:
    folder.joinpath("config.json").write_text(json.dumps({"model_type": model_type, **SMALL, **EXPERTS.get(model_type, {})}))
    return walk_rank(resolve(Run.model_validate({"model": str(folder), "seq_len": 8, "sharding": {"dp": 4, "zero": 3}})), detailed=False).strategy.plan


@pytest.mark.parametrize(
    ("model_type", "classes", "found"),
    [
        ("mixtral", None, {"layers/mlp"}),
        ("qwen3_moe", None, {"layers/mlp"}),
        ("olmoe", None, set()),
        ("olmoe", ("transformers.models.olmoe.modeling_olmoe.OlmoeSparseMoeBlock",), {"layers/mlp"}),
        ("gpt_oss", ("GptOssMLP",), {"layers/mlp"}),
        ("mixtral", ("Qwen3MoeSparseMoeBlock",), set()),
        ("qwen3", ("Qwen3MoeSparseMoeBlock",), set()),
    ],
)
def test_leaves_by_class(model_type: str, classes: tuple[str, ...] | None, found: set[str], tmp_path: Path) -> None:
    leaf = LeafModule() if classes is None else LeafModule(classes=classes)
    assert {path for part in plan_of(tmp_path, model_type).parts for path in leaves_of(part, model_type, leaf)} == found


def test_leaves_by_the_end_of_their_names(tmp_path: Path) -> None:
    leaf = LeafModule(classes=(), name_suffixes=("self_attn",))
    assert {path for part in plan_of(tmp_path, "qwen3").parts for path in leaves_of(part, "qwen3", leaf)} == {"layers/self_attn"}


@pytest.mark.parametrize(("model_type", "num"), [("mixtral", 2), ("gpt_oss", 0), ("qwen3", 0)])
def test_stacked_weights_are_saved_as_views_unless_they_stand_as_the_product_wants_them(model_type: str, num: int, tmp_path: Path) -> None:
    assert len({path for part in plan_of(tmp_path, model_type).parts for path in views(part, linear=False)}) == num


def test_a_head_whose_weight_the_loss_takes_is_whole_through_both_passes() -> None:
    """Liger's loss under stage 3: an external parameter of the model, fetched when it is entered, let go when it is left."""
    run = {"model": "qwen2.5-7b", "seq_len": 512, "recompute": "full", "loss": "fused_linear", "sharding": {"engine": "deepspeed", "zero": 3, "dp": 4}}
    found = estimate(Run.model_validate(run))
    head = {name: sum(t.bytes for t in found.instant(name).terms if t.path == "weights/gathered head") for name in ("start", "backward_peak", "optimizer_step")}
    assert head == {"start": 0, "backward_peak": 2 * 152064 * 3584, "optimizer_step": 0}
