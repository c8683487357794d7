"""The catalogue: complete, unambiguous, and right to the parameter."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter

import pytest

from memcalc.errors import InputError, UnknownNameError
from memcalc.models import catalogue, families
from memcalc.models.read import read_model

COUNTED = {
    "aya-23-8b": 8028033024,
    "bert-base-multilingual-cased": 177974523,
    "codellama-13b": 13016028160,
    "deepseek-v3.2": 671877929216,
    "falcon-mamba-7b": 7272665088,
    "gemma-2-2b": 2614341888,
    "gemma-2b": 2506172416,
    "gemma-3-1b": 999885952,
    "gemma-3-4b": 4300079472,
    "gemma-4-26b-a4b": 25805933872,
    "glm-4.5v": 107710927360,
    "gpt-oss-120b": 116829156672,
    "gpt2": 124439808,
    "jamba-1.5-mini": 51570323328,
    "llama-2-70b": 68976648192,
    "llama-2-7b": 6738415616,
    "llama-3.1-405b": 405853388800,
    "llama-3.1-70b": 70553706496,
    "llama-3.1-8b": 8030261248,
    "llama-3.2-90b-vision": 88593355323,
    "llama-7b": 6738415616,
    "llava-1.5-7b": 7063427072,
    "mistral-7b": 7241732096,
    "mixtral-8x7b": 46702792704,
    "nemotron-3-nano": 31577937344,
    "olmo-2-7b": 7298617344,
    "phi-3.5-mini": 3821079552,
    "qwen1.5-moe-a2.7b": 14315784192,
    "qwen2.5-3b": 3085938688,
    "qwen2.5-vl-7b": 8292166656,
    "qwen3-0.6b": 596049920,
    "qwen3-235b-a22b": 235093634560,
    "qwen3-30b-a3b": 30532122624,
    "qwen3-vl-8b": 8767123696,
    "qwen3.5-27b": 27356728560,
    "qwen3.5-35b-a3b": 35107181936,
    "starcoder2-7b": 7173923840,
    "vit-base": 86389248,
}
"""What summing ``numel`` over each model's own code gives, taken down apart from the catalogue."""

ENTRIES = catalogue.entries()
READABLE = [entry for entry in ENTRIES if entry.model_type in families.model_types()]

IMPORTS = f"""
import sys
from memcalc.models.read import read_model
for name in {[entry.name for entry in READABLE]!r}:
    assert read_model(name).assumed == (), name
print(*(name for name in ("transformers", "huggingface_hub", "torch", "numpy", "yaml", "pydantic") if name in sys.modules))
"""


def test_it_holds_what_people_use() -> None:
    assert len(ENTRIES) >= 200
    for name in ("llama-13b", "llama-65b", "llama-3.3-70b", "qwen2.5-0.5b", "qwen2.5-72b", "qwen3-32b", "mistral-nemo-12b", "deepseek-v3", "t5-11b", "opt-66b"):
        assert catalogue.path_of(name), name


@pytest.mark.parametrize(("name", "params"), COUNTED.items())
def test_an_entry_states_the_count_of_the_models_own_code(name: str, params: int) -> None:
    (entry,) = [entry for entry in ENTRIES if entry.name == name]
    assert entry.params == params


@pytest.mark.parametrize("entry", READABLE, ids=lambda entry: entry.name)
def test_an_entry_that_a_family_reads_has_the_stated_count(entry: catalogue.Entry) -> None:
    assert read_model(entry.name).num_params == (entry.params or pytest.skip("no count is known"))


def test_entries_leave_nothing_out() -> None:
    """Reading any of them assumes nothing, and imports neither transformers nor anything else that is slow."""
    done = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_an_entry_is_a_plain_config(entry: catalogue.Entry) -> None:
    path = catalogue.path_of(entry.name)
    assert path is not None
    data = json.loads(path.read_text(encoding="utf-8"))
    assert entry.name == entry.name.lower()
    assert len(data["architectures"]) == 1
    assert set(data["memcalc"]) <= {"hub_ids", "aliases", "params"}
    assert not any(key.startswith("_") or key in {"auto_map", "transformers_version"} for key in data)


def test_no_two_entries_share_a_name_or_a_repository() -> None:
    """Names that differ in marks and case only are the same name."""
    spellings = Counter(spelling for e in ENTRIES for spelling in {catalogue.parts(known) for known in catalogue.spellings(e)})
    ids = Counter(hub_id.lower() for e in ENTRIES for hub_id in e.hub_ids)
    assert [name for name, count in (spellings + Counter(ids)).items() if count > 1] == []


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("meta-llama/Llama-2-7b-hf", "llama-2-7b"),
        ("META-LLAMA/llama-2-7B-HF", "llama-2-7b"),
        ("Llama-2-7b-hf", "llama-2-7b"),
        ("llama2_7b", "llama-2-7b"),
        ("Llama3.1 8B", "llama-3.1-8b"),
        ("llama-33b", "llama-30b"),
        ("opt_13b", "opt-13b"),
        ("opt-1.3B", "opt-1.3b"),
        ("Qwen2.5-7B-Instruct", "qwen2.5-7b"),
        ("somebody/llama-7b", None),
        ("llama", None),
    ],
)
def test_a_model_is_found_under_other_names(name: str, meant: str | None) -> None:
    assert catalogue.resolve(name) == meant


def test_a_name_of_several_models_is_an_error_that_lists_them(monkeypatch: pytest.MonkeyPatch) -> None:
    twice = (catalogue.Entry("a-1b", "llama", aliases=("both",)), catalogue.Entry("a-2b", "llama", aliases=("both",)))
    monkeypatch.setattr(catalogue, "entries", lambda text="": twice)
    with pytest.raises(InputError, match="several models are called 'Both': a-1b, a-2b"):
        catalogue.resolve("Both")


def test_an_exact_name_opens_one_file_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "entries", lambda text="": pytest.fail("the catalogue was scanned"))
    assert read_model("LLaMA-7B").num_params == 6738415616


@pytest.mark.parametrize("name", ["", ".", "..", "../gpus", "models/llama-7b", "llama-7b\0"])
def test_only_names_name_entries(name: str) -> None:
    assert catalogue.path_of(name) is None


def test_entries_are_found_by_words_of_any_of_their_names() -> None:
    assert [e.name for e in catalogue.entries("qwen3 dense")] == []
    assert "deepseek-r1-distill-qwen-1.5b" in [e.name for e in catalogue.entries("DISTILL deepseek")]
    assert {e.model_type for e in catalogue.entries("mixtral")} == {"mixtral"}


def test_names_count_up() -> None:
    names = [name for name in catalogue.names() if name.startswith(("qwen3-", "opt-"))]
    assert names[:3] == ["opt-125m", "opt-350m", "opt-1.3b"]
    assert [n for n in names if n in {"qwen3-0.6b", "qwen3-4b", "qwen3-14b", "qwen3-235b-a22b"}] == ["qwen3-0.6b", "qwen3-4b", "qwen3-14b", "qwen3-235b-a22b"]


def test_an_unknown_name_is_met_with_the_nearest_and_the_ways_out() -> None:
    error = catalogue.unknown("llama-3-7b")
    assert isinstance(error, UnknownNameError)
    assert "llama-2-7b" in str(error)
    assert "Hub id" in str(error)
