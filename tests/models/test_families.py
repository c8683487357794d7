"""Families are found by their presence."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from memcalc.errors import UnknownNameError
from memcalc.models import families
from memcalc.models.config import Config
from memcalc.models.read import read_model

LOADED = """
import sys
from memcalc.models.families import family
family("qwen2")
print(*sorted(name for name in sys.modules if name.startswith("memcalc.models.families.") and "._" not in name))
"""

PUBLISHED: dict[str, dict[str, Any]] = json.loads((Path(__file__).parents[1] / "data" / "params.json").read_text())
"""Facts of published config.json files with their exact counts: of transformers' class that is named, or of the model's own code or card; and small ones."""

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
