"""What the config says of a checkpoint, held against the files beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memcalc.engine.estimate import estimate
from memcalc.errors import InputError
from memcalc.models.checkpoint import INDEX, SINGLE
from memcalc.models.read import read_model
from memcalc.specs.run import Run
from memcalc.whatif.storage import Storage, storage
from tests.models.test_checkpoint import write
from tests.models.test_stored import LLAMA


def of(folder: Path, **changed: Any) -> Storage:
    """Of a folder with this config."""
    (folder / "config.json").write_text(json.dumps({**LLAMA, "dtype": "bfloat16", **changed}))
    return storage(read_model(str(folder)), str(folder))


def test_files_that_hold_what_was_computed(tmp_path: Path) -> None:
    params = read_model_of(tmp_path)
    write(tmp_path / SINGLE, {"all": ("BF16", [params], 2 * params)})
    assert of(tmp_path).notes == (f"{SINGLE}: {2 * params:,} bytes, as computed",)


def read_model_of(folder: Path) -> int:
    """Parameters of the model."""
    of(folder)
    return read_model(str(folder)).num_params


def test_a_difference_is_said(tmp_path: Path) -> None:
    params = read_model_of(tmp_path)
    write(tmp_path / SINGLE, {"all": ("BF16", [params + 10], 2 * params + 20)})
    (note,) = of(tmp_path).notes
    assert note.startswith(f"{SINGLE}: {2 * params + 20:,} bytes, 20 more than computed (+0.0")
    assert note.endswith(f"; {params + 10:,} elements for {params:,} parameters")


def test_files_that_cannot_be_read_are_said(tmp_path: Path) -> None:
    (tmp_path / INDEX).write_text("{")
    (note,) = of(tmp_path).notes
    assert "is cut off: the JSON ends" in note


def test_a_dtype_that_is_not_named_is_assumed(tmp_path: Path) -> None:
    assert of(tmp_path, dtype=None).notes == ("the config.json names no dtype: bfloat16",)
    assert of(tmp_path, dtype=None, torch_dtype="torch.float16").dtype == "float16"


def test_a_quantization_has_a_name_and_says_what_training_does(tmp_path: Path) -> None:
    found = of(tmp_path, quantization_config={"quant_method": "mxfp4"})
    assert (found.name, found.training) == ("mxfp4", "fine-tuning dequantises the weights first")


def test_a_file_of_model_optimizer_beside_the_config_is_read(tmp_path: Path) -> None:
    (tmp_path / "hf_quant_config.json").write_text(json.dumps({"producer": {}, "quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}}))
    assert of(tmp_path).name == "fp8"


def test_a_method_that_is_not_known_is_left_aside_and_said(tmp_path: Path) -> None:
    """The count does not depend on it."""
    assert of(tmp_path, quantization_config={"quant_method": "aqlm"}).name == ""
    (text,) = read_model(str(tmp_path)).assumed
    assert text.startswith("unknown quant_method 'aqlm'")
    assert text.endswith("it is left aside, and weights are taken as not quantised")


def test_a_run_says_that_it_dequantises(tmp_path: Path) -> None:
    of(tmp_path, quantization_config={"quant_method": "mxfp4"})
    answer = estimate(Run.model_validate({"model": str(tmp_path), "seq_len": 16}))
    assert any("its weights are dequantised first" in text for text in answer.assumptions)


def test_a_run_holds_packed_weights_as_the_checkpoint_does(tmp_path: Path) -> None:
    """They train nothing by themselves; another quantization that is asked for gives way."""
    of(tmp_path, quantization_config={"quant_method": "gptq", "bits": 4})
    keys = {"model": str(tmp_path), "seq_len": 16, "task": "inference"}
    for asked in (None, "nf4"):
        answer = estimate(Run.model_validate({**keys, "quantization": asked}))
        assert any(text.startswith("quantization gptq") and "the checkpoint's own (gptq 4-bit)" in text for text in answer.assumptions)
        assert answer.asked["quantization"] == "gptq"
    with pytest.raises(InputError, match="take no gradient"):
        estimate(Run.model_validate({**keys, "task": "train"}))
