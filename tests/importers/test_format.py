"""Real configuration files, shortened to what counts: each is read as what it is, into the run that it describes, or refused for a reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memcalc.errors import InputError
from memcalc.importers import import_files, import_text
from memcalc.importers.format import formats

DATA = Path(__file__).parent.parent / "data" / "launch"
EXPECTED: dict[str, Any] = json.loads((DATA / "expected.json").read_text(encoding="utf-8"))
GIVEN: list[dict[str, str]] = json.loads((DATA / "as_given.json").read_text(encoding="utf-8"))


def run_of(data: Any) -> Any:
    """A layer's data with the DeepSpeed configuration as its stage, as JSON has it."""
    found = json.loads(json.dumps(data))
    config = found.get("sharding", {}).get("deepspeed")
    if config:
        found["sharding"]["deepspeed"] = config["zero_optimization"]["stage"]
    return found


def part_of(data: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """What of some data stands in other data, too: a run may come to hold more keys of a file."""
    return {
        key: part_of(value, wanted[key]) if isinstance(value, dict) and isinstance(wanted[key], dict) else value for key, value in data.items() if key in wanted
    }


@pytest.mark.parametrize("name", [name for name, told in EXPECTED.items() if "run" in told])
def test_a_file_is_read_into_its_run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(DATA)
    found = import_files([name])
    assert found.files[0] == (name, EXPECTED[name]["format"])
    assert part_of(run_of(found.layer.data), EXPECTED[name]["run"]) == EXPECTED[name]["run"]
    assert all(origin.where for origin in found.origins)


@pytest.mark.parametrize(("name", "why"), [(name, told["refused"]) for name, told in EXPECTED.items() if "refused" in told])
def test_a_file_that_describes_no_job_is_refused_for_a_reason(name: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(DATA)
    with pytest.raises(InputError) as caught:
        import_files([name])
    assert str(caught.value) == why


@pytest.mark.parametrize("given", [given for given in GIVEN if given["format"].endswith("yaml")], ids=lambda given: given["id"])
def test_what_people_posted_goes_in_as_it_is(given: dict[str, str]) -> None:
    found = import_text(given["text"], name="posted.yaml")
    assert given["format"].partition("_")[0] in found.files[0][1].lower().replace("-", "")
    assert found.layer.data


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("model_name_or_path: m\noptim: adamw_torch\nlearning_rate: 1e-4\nbf16: yes\n", "autocast", "bfloat16"),
        ("distributed_type: MULTI_GPU\nmixed_precision: no\nnum_processes: 8\n", "dtype", "float32"),
        ("base_model: m\nmicro_batch_size: 1\nbf16: auto\n", "autocast", None),
        ("stage: sft\nfinetuning_type: full\nbf16: true\n", "dtype", "float32"),
        ("stage: sft\nfinetuning_type: full\npure_bf16: true\nbf16: true\n", "dtype", "bfloat16"),
        ("stage: sft\nfinetuning_type: full\ndisable_gradient_checkpointing: true\n", "recompute", "none"),
        ("base_model: m\nmicro_batch_size: 1\nplugins: [axolotl.integrations.liger.LigerPlugin]\nliger_rope: true\n", "loss", None),
        ("base_model: m\nmicro_batch_size: 1\nliger_fused_linear_cross_entropy: true\n", "loss", "fused_linear"),
        ("model: m\ngpu-memory-utilization: 0.9\nmax-model-len: 1K\n", "seq_len", 1024),
        ("model: m\ngpu-memory-utilization: 0.9\nmax-model-len: 1k\n", "seq_len", 1000),
        ("model: m\ngpu-memory-utilization: 0.9\nmax-model-len: auto\n", "seq_len", None),
    ],
)
def test_values_as_people_write_them(text: str, key: str, value: object) -> None:
    assert import_text(text).layer.data.get(key) == value


def test_an_unknown_key_is_listed_with_its_line_and_a_remark_is_not() -> None:
    found = import_text("base_model: m\nmicro_batch_size: 1\n_note: hello\nfrobnicate: 7\n", name="a.yml")
    assert found.unused == ("a.yml:4: frobnicate 7",)


def test_unknown_keys_of_no_framework_are_refused() -> None:
    with pytest.raises(InputError, match="no file of a framework that memcalc reads: unknown key 'hello'"):
        import_text("hello: world\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("base_model: m\nmicro_batch_size: many\n", "a.yaml:2: micro_batch_size is 'many'"),
        ("base_model: m\nmicro_batch_size: [1]\n", "a.yaml:2"),
        ("stage: sft\nfinetuning_type: 3\n", "a.yaml:2: finetuning_type is 3"),
        ("distributed_type: FSDP\nfsdp_config: {fsdp_sharding_strategy: SOME}\n", "a.yaml:2"),
        ("distributed_type: SOME\n", "a.yaml:1"),
        ("distributed_type: DEEPSPEED\ndeepspeed_config: {offload_param_device: disk}\n", "a.yaml:2"),
        ("zero_optimization:\n  stage: 7\n", "a.yaml:2"),
        ("zero_optimization:\n  stage: 3\n  reduce_bucket_size: wide\n", "a.yaml:3"),
        ("model: m\ntuner_type: lisa\n", "a.yaml:2"),
        ("model: m\ngpu-memory-utilization: 90\nmax-model-len: 5\n", "a.yaml:2"),
        ("model:\n  tensor_model_parallel_size: two\n", "a.yaml:2"),
        ("model: {_component_: x.llama3_8b}\nbatch_size: few\n", "a.yaml:2"),
        ("training: {training_type: some}\nlora: {r: 8}\n", "a.yaml:1"),
        ("policy: {train_micro_batch_size: few}\ngrpo: {}\n", "a.yaml:1"),
        ("actor_rollout_ref:\n  actor: {ppo_micro_batch_size_per_gpu: few}\n", "a.yaml:2"),
        ("peft_type: LORA\nr: eight\n", "a.yaml:2"),
        ("model_path: m\nmem_fraction_static: 0.8\ntp: two\n", "a.yaml:3"),
        ("ds: {zero_stage: two}\ntrain: {}\n", "a.yaml:1"),
        ("tensor_parallel_size: 1\nkv_cache_config: {free_gpu_memory_fraction: 9}\nmax_seq_len: long\n", "a.yaml:3: max_seq_len is 'long'"),
        ("model: m\nctx-size: long\nn-gpu-layers: all\n", "a.yaml:2"),
        ("actor_model_name_or_path: m\nactor_zero_stage: three\n", "a.yaml:2"),
        ("model: {partial_pretrain: m}\ndata:\n  micro_batch_size_per_gpu: one\n  train_batch_size: 8\n", "a.yaml:3"),
        ("model_name_or_path: m\nbf16: perhaps\n", "a.yaml:2"),
    ],
)
def test_a_wrong_value_is_refused_with_its_line(text: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        import_text(text, name="a.yaml")
    assert str(caught.value).startswith(said)


def test_every_format_is_asked_once_and_says_what_version_it_holds_for() -> None:
    names = [format_.name for format_ in formats()]
    assert len(names) == len(set(names)) >= 16
    assert all(any(letter.isdigit() for letter in format_.version) for format_ in formats())
