"""Laws of the models that see images, over random small configurations of each."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memcalc.engine.estimate import estimate
from memcalc.errors import InputError, ModelError
from memcalc.models.read import read_model
from memcalc.specs.model import ModelSpec
from memcalc.specs.run import Run
from tests.models.families.sizes import build, check_shapes
from tests.models.families.vision import FAMILIES, TIED, configs

each_family = pytest.mark.parametrize("model_type", FAMILIES)
few = settings(max_examples=6, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])

SIDE = 28
"""Pixels of an image either way: four patches."""


def instants(folder: Path, config: dict[str, Any], **keys: Any) -> dict[str, int]:
    """Bytes at each instant."""
    folder.joinpath("config.json").write_text(json.dumps(config))
    answer = estimate(Run.model_validate({"model": str(folder), "attention": "sdpa", "seq_len": 64, **keys}))
    return {instant.name: instant.allocated_bytes for instant in answer.most_loaded.instants}


def params_of(spec: ModelSpec, *, sees: bool) -> int:
    """Parameters of the tower, or of all else."""
    return sum(block.num_params for block in spec.blocks if block.sees_images == sees)


@each_family
@given(data=st.data())
@few
def test_the_count_is_the_sum_over_the_shapes(model_type: str, data: st.DataObject) -> None:
    """And no path stands for two weights of a block."""
    check_shapes(build(data.draw(configs(model_type))))


@each_family
@given(data=st.data())
@few
def test_beside_the_tower_stands_the_text_model(model_type: str, data: st.DataObject) -> None:
    """With the count that its own family gives it."""
    config = data.draw(configs(model_type))
    spec, text = build(config), build({"tie_word_embeddings": config["tie_word_embeddings"], **config["text_config"]})
    assert params_of(spec, sees=False) == text.num_params
    assert params_of(spec, sees=True) > 0


@pytest.mark.parametrize("model_type", [name for name in FAMILIES if name not in (*TIED, "mllama")])
@given(data=st.data())
@few
def test_a_head_of_its_own_is_vocabulary_times_width(model_type: str, data: st.DataObject) -> None:
    """The only difference that tying makes to the count."""
    config = data.draw(configs(model_type))
    tied, untied = (build(config, tie_word_embeddings=tie) for tie in (True, False))
    assert untied.num_params - tied.num_params == config["text_config"]["vocab_size"] * config["text_config"]["hidden_size"]


@each_family
@given(data=st.data())
@few
def test_more_images_never_take_less(model_type: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """At every instant, from none on; the first brings the tower's gradients with it."""
    config, folder = data.draw(configs(model_type)), tmp_path_factory.mktemp("model")
    keys: dict[str, Any] = {"attention": data.draw(st.sampled_from(("sdpa", "eager"))), "recompute": data.draw(st.sampled_from(("none", "full")))}
    found = [instants(folder, config, images=n, image_size=SIDE if n else None, **keys) for n in range(3)]
    for fewer, more in pairwise(found):
        assert {name: (fewer[name], more[name]) for name in fewer if more[name] < fewer[name]} == {}
    assert found[1]["start"] > found[0]["start"]


@each_family
@given(data=st.data())
@few
def test_no_gradient_reaches_a_tower_without_images(model_type: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """AdamW's two states of each of its parameters, and of layers that look at images, come with the first image; none reaches one for sounds."""
    config, folder = data.draw(configs(model_type)), tmp_path_factory.mktemp("model")
    without, with_one = (instants(folder, config, images=n, image_size=SIDE if n else None)["start"] for n in (0, 1))
    spec = read_model(str(folder))
    blocks = [b for b in spec.blocks if (b.sees_images or b.module.needs_images) and not b.module.needs_sounds]
    looking = [(w, b.repeat) for b in blocks for _, w in b.module.weights() if not w.frozen]
    assert with_one - without == sum((2 * 2 * w.num_params + 4) * copies for w, copies in looking)


@each_family
@given(data=st.data())
@few
def test_larger_images_never_take_less(model_type: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Of towers that take any size."""
    config, folder = data.draw(configs(model_type)), tmp_path_factory.mktemp("model")
    if build(config).vision.fixed:  # type: ignore[union-attr]
        with pytest.raises(InputError, match="takes images of 28 pixels either way, not 56"):
            instants(folder, config, images=1, image_size=2 * SIDE)
        return
    small, large = (instants(folder, config, images=1, image_size=n * SIDE) for n in (1, 2))
    assert {name: (small[name], large[name]) for name in small if large[name] < small[name]} == {}


@pytest.mark.torch
@each_family
@given(data=st.data())
@settings(max_examples=4, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_transformers_counts_the_same(model_type: str, data: st.DataObject) -> None:
    import torch
    import transformers

    config = data.draw(configs(model_type))
    with torch.device("meta"):
        model = transformers.AutoModelForImageTextToText.from_config(transformers.CONFIG_MAPPING[model_type].from_dict(json.loads(json.dumps(config))))
    model.tie_weights()
    assert build(config).num_params == sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"images": 5, "image_size": 28}, "5 images of 28 pixels are 5 * 16 tokens, more than the 64 of seq_len"),
        ({"images": 1, "image_size": 30}, "takes images of 28 pixels either way, not 30"),
    ],
)
def test_images_that_cannot_be_are_refused_in_one_line(tmp_path: Path, keys: dict[str, Any], message: str) -> None:
    config = {
        "model_type": "llava",
        "tie_word_embeddings": False,
        "image_token_index": 3,
        "text_config": {"model_type": "llama", "hidden_size": 16, "num_attention_heads": 4, "num_hidden_layers": 1, "intermediate_size": 8, "vocab_size": 9},
        "vision_config": {"model_type": "clip_vision_model", "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
        | {"num_channels": 3, "image_size": 28, "patch_size": 7},
    }
    with pytest.raises(InputError, match=message.replace("*", r"\*")) as caught:
        instants(tmp_path, config, **keys)
    assert "\n" not in str(caught.value)


def test_images_for_a_model_that_sees_none_are_refused() -> None:
    with pytest.raises(InputError, match="images: llama-7b sees no images"):
        estimate(Run.model_validate({"model": "llama-7b", "images": 1}))


def test_a_tower_that_is_counted_only_takes_no_images(tmp_path: Path) -> None:
    """Molmo's, whose code comes with it."""
    published = json.loads((Path(__file__).parents[2] / "data" / "params.json").read_text())
    config = next(entry["config"] for entry in published.values() if entry["config"].get("model_type") == "molmo")
    with pytest.raises(InputError, match="images: the vision tower of molmo models is counted, not run"):
        instants(tmp_path, config, images=1)


def test_heads_that_do_not_share_the_width_of_a_tower_are_refused(tmp_path: Path) -> None:
    config = {
        "model_type": "vit",
        "hidden_size": 10,
        "num_attention_heads": 3,
        "num_hidden_layers": 1,
        "intermediate_size": 8,
        "image_size": 28,
        "patch_size": 7,
    }
    tmp_path.joinpath("config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match="hidden size 10 of the vision tower is not a multiple of its 3 heads"):
        read_model(str(tmp_path))
