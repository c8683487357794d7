"""Families are found by their presence; and laws that hold in each of which a configuration is at hand."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memcalc.errors import UnknownNameError
from memcalc.models import families
from memcalc.models.config import Config
from memcalc.models.read import read_model
from memcalc.specs.model import ModelSpec
from tests.models.families.sizes import check_shapes, instants

LOADED = """
import sys
from memcalc.models.families import family
family("qwen2")
print(*sorted(name for name in sys.modules if name.startswith("memcalc.models.families.") and "._" not in name))
"""

PUBLISHED: dict[str, dict[str, Any]] = json.loads((Path(__file__).parents[1] / "data" / "params.json").read_text())
"""Facts of published config.json files with their exact counts: of transformers' class that is named, or of the model's own code or card; and small ones."""

ROOT = Path(__file__).resolve().parents[2]
MODULES = [path for path in sorted(Path(families.__file__).parent.glob("*.py")) if not path.name.startswith("_")]


def test_a_family_is_found_by_its_model_type() -> None:
    for model_type in families.model_types():
        assert model_type in families.family(model_type).MODEL_TYPES


def test_only_the_family_that_is_asked_for_is_imported() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["memcalc.models.families.qwen2"]


def test_no_model_type_has_two_families() -> None:
    assert len(set(families.model_types())) == len(families.model_types())


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_a_family_is_small_and_says_where_it_is_from(path: Path) -> None:
    module = families._load(path.stem)
    text = path.read_text(encoding="utf-8")
    assert module.MODEL_TYPES[0].replace("-", "_") == path.stem
    assert set(module.ARCHITECTURES.values()) <= set(module.MODEL_TYPES)
    assert "Source: " in text
    assert len(text.splitlines()) <= 120


def test_an_unknown_model_type_lists_what_is_near() -> None:
    with pytest.raises(UnknownNameError, match=r"config\.json: unknown model_type 'qwen4'; did you mean qwen.*memcalc trace"):
        families.family("qwen4", where="config.json")


@pytest.mark.parametrize("model_type", ["", "_decoder", "__init__", "../llama", "os"])
def test_only_families_are_imported(model_type: str) -> None:
    with pytest.raises(UnknownNameError):
        families.family(model_type)


def test_a_stated_model_type_is_taken_as_it_is() -> None:
    data = {"model_type": "phi-msft", "architectures": ["LlamaForCausalLM"]}
    assert families.infer_model_type(data, where="config.json") == "phi-msft"
    assert Config(data, where="config.json").model_type == "phi-msft"


@pytest.mark.accuracy
@pytest.mark.parametrize("name", PUBLISHED)
def test_the_count_of_a_published_model_is_equal(name: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED[name]["config"]))
    spec = read_model(str(tmp_path))
    assert spec.num_params == PUBLISHED[name]["params"]
    assert sum(weight.num_params * repeat for _, weight, repeat in spec.weights()) == spec.num_params


# ---------------------------------------------------------------------- laws
def at_hand() -> dict[str, dict[str, Any]]:
    """A configuration of each model type, a traced one before the catalogue's."""
    found: dict[str, dict[str, Any]] = {}
    traced = (case["config"] for path in sorted((ROOT / "tests/data").glob("traces_*.json")) for case in json.loads(path.read_text()) if "config" in case)
    listed = (json.loads(path.read_text()) for path in sorted((ROOT / "configs/models").glob("*.json")))
    for config in (*traced, *listed):
        if isinstance(config, dict) and "model_type" in config:
            found.setdefault(config["model_type"], config)
    return found


CONFIGS = at_hand()
each_family = pytest.mark.parametrize("model_type", sorted(CONFIGS))


def build(model_type: str, vocab_size: int) -> ModelSpec:
    """The family's model with another vocabulary."""
    data = json.loads(json.dumps(CONFIGS[model_type]))
    inner = data.get("text_config", data)
    inner["padded_vocab_size" if "padded_vocab_size" in inner else "vocab_size"] = vocab_size
    return families.family(model_type).spec(Config(data, where="config.json", name="small"))


@each_family
@given(step=st.integers(1, 40), start=st.integers(300, 600))
@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_count_is_the_sum_over_the_shapes_and_grows_evenly_with_the_vocabulary(model_type: str, step: int, start: int) -> None:
    specs = [build(model_type, 128 * (start + i * step)) for i in range(3)]
    for spec in specs:
        check_shapes(spec)
    first, second = (b.num_params - a.num_params for a, b in pairwise(specs))
    assert first == second
    assert first >= (128 * step if specs[0].vocab_size else 0)


@each_family
def test_more_tokens_never_take_less(model_type: str) -> None:
    """Where it runs at all; what is counted only says so."""
    spec = build(model_type, 512)
    if spec.untraced or not any(block.role == "embedding" for block in spec.blocks):
        return
    few, more = (instants(spec, seq_len=n, attention=spec.attentions[0], micro_batch=1) for n in (32, 64))
    assert all(few[name] <= more[name] for name in few)
