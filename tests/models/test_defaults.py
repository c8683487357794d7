"""transformers is asked late, silently, and never runs a model's own code."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from memcalc.models.defaults import MISSING, Defaults

ASK = """
import sys
from memcalc.models.defaults import Defaults
defaults = Defaults("llama", {"model_type": "llama", "hidden_size": 512, "num_attention_heads": 8, "rope_scaling": {"type": "made up"}})
assert "transformers" not in sys.modules
assert defaults.value("head_dim") == 64
assert "transformers" in sys.modules
"""


def test_transformers_is_imported_with_the_first_question_and_says_nothing() -> None:
    """Not even that torch is missing: stderr belongs to the one line of an error."""
    done = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_the_surroundings_are_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSFORMERS_VERBOSITY", "info")
    monkeypatch.delenv("TRANSFORMERS_NO_ADVISORY_WARNINGS", raising=False)
    assert Defaults("gpt2", {"n_embd": 48}).value("n_embd") == 48
    assert os.environ["TRANSFORMERS_VERBOSITY"] == "info"
    assert "TRANSFORMERS_NO_ADVISORY_WARNINGS" not in os.environ


def test_code_that_comes_with_a_model_is_not_asked() -> None:
    defaults = Defaults("qwen", {"model_type": "qwen", "auto_map": {"AutoConfig": "configuration_qwen.QWenConfig"}})
    assert defaults.value("kv_channels") is MISSING
    assert "no configuration class" in defaults.problem


def test_the_file_is_not_changed_by_asking() -> None:
    data = {"model_type": "llama", "rope_scaling": {"rope_type": "linear", "factor": 2.0}}
    Defaults("llama", data).value("hidden_size")
    assert data == {"model_type": "llama", "rope_scaling": {"rope_type": "linear", "factor": 2.0}}
