"""Files that others name, and which source wins."""

from __future__ import annotations

from pathlib import Path

import pytest

from memcalc.errors import InputError
from memcalc.importers import import_files

DS = '{"zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}, "train_micro_batch_size_per_gpu": 4}\n'
ACCELERATE = "distributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_processes: 8\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"
TRAINER = "model_name_or_path: llama-7b\nper_device_train_batch_size: 2\nbf16: true\nlearning_rate: 1e-4\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job's files, in a folder below the working directory."""
    (tmp_path / "job").mkdir()
    for name, text in (("ds.json", DS), ("acc.yaml", ACCELERATE), ("train.yaml", TRAINER)):
        (tmp_path / "job" / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_named_file_is_found_beside_the_one_that_names_it(folder: Path) -> None:
    found = import_files(["job/acc.yaml"])
    assert found.layer.data["sharding"]["deepspeed"]["zero_optimization"] == {"stage": 2}
    assert [path for path, _ in found.files] == ["job/acc.yaml", "job/ds.json"]


def test_the_working_directory_goes_first(folder: Path) -> None:
    (folder / "ds.json").write_text(DS.replace("2", "3"), encoding="utf-8")
    assert import_files(["job/acc.yaml"]).files[1][0] == "ds.json"


def test_the_trainer_wins_over_accelerate_and_that_over_deepspeed_whatever_the_order(folder: Path) -> None:
    for order in (["job/ds.json", "job/acc.yaml", "job/train.yaml"], ["job/train.yaml", "job/acc.yaml", "job/ds.json"]):
        found = import_files(order)
        assert found.layer.data["micro_batch"] == 2
        places = {origin.key: origin.where for origin in found.origins}
        assert places["micro_batch"] == "job/train.yaml:2"
        assert places["hardware.gpus"] == "job/acc.yaml:3"
        assert places["sharding.deepspeed"] == "job/ds.json"


@pytest.mark.parametrize("path", ["../secret.json", "/etc/hostname", "job/../../secret.json"])
def test_no_reference_reaches_outside(folder: Path, path: str) -> None:
    (folder.parent / "secret.json").write_text(DS, encoding="utf-8")
    (folder / "job" / "acc.yaml").write_text(ACCELERATE.replace("ds.json", path), encoding="utf-8")
    with pytest.raises(InputError, match=r"job/acc.yaml:5: .*(lies outside|is not found)"):
        import_files(["job/acc.yaml"])


def test_a_link_out_of_the_folder_is_not_followed(folder: Path) -> None:
    (folder.parent / "secret.json").write_text(DS, encoding="utf-8")
    (folder / "job" / "ds.json").unlink()
    (folder / "job" / "ds.json").symlink_to(folder.parent / "secret.json")
    with pytest.raises(InputError, match="lies outside"):
        import_files(["job/acc.yaml"])


def test_a_file_given_beside_satisfies_a_reference(folder: Path) -> None:
    (folder / "job" / "acc.yaml").write_text(ACCELERATE.replace("ds.json", "../elsewhere/ds.json"), encoding="utf-8")
    assert import_files(["job/acc.yaml", "job/ds.json"]).layer.data["sharding"]["deepspeed"]


def test_a_missing_file_is_named_with_who_names_it(folder: Path) -> None:
    (folder / "job" / "ds.json").unlink()
    with pytest.raises(InputError, match=r"job/acc.yaml:5: 'ds.json' is not found from the working directory or beside job/; give it with --from"):
        import_files(["job/acc.yaml"])


def test_configurations_that_frameworks_ship_need_no_file(folder: Path) -> None:
    (folder / "lf.yaml").write_text(
        "stage: sft\nfinetuning_type: full\nbf16: true\ndeepspeed: examples/deepspeed/ds_z3_offload_config.json\n", encoding="utf-8"
    )
    found = import_files(["lf.yaml"])
    assert found.layer.data["sharding"]["deepspeed"]["zero_optimization"]["offload_param"] == {"device": "cpu", "pin_memory": True}
    assert any("LLaMA-Factory's ds_z3_offload_config.json" in line for line in found.assumed)


def test_a_recipe_overrides_the_file_that_it_is_made_from(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """References of the base see what the recipe, or the command, puts in their place; `_override_` drops what stood there."""
    (folder / "base.yaml").write_text(
        "policy:\n  model_name: m\n  train_micro_batch_size: 4\n  max_total_sequence_length: 512\n"
        "  logprob_batch_size: ${policy.train_micro_batch_size}\n  dtensor_cfg: {enabled: true, context_parallel_size: 2}\ngrpo: {num_prompts_per_step: 8}\n"
    )
    (folder / "middle.yaml").write_text("defaults: [base.yaml]\npolicy: {dtensor_cfg: {_override_: true, enabled: true}}\n")
    (folder / "recipe.yaml").write_text("defaults: middle.yaml\npolicy: {train_micro_batch_size: 2}\ngrpo: {num_generations_per_prompt: 4}\n")
    found = import_files([str(folder / "recipe.yaml")])
    data = found.layer.data
    assert (data["model"], data["micro_batch"], data["seq_len"], data["rl"]["score_micro_batch"]) == ("m", 2, 512, 2)
    assert "cp" not in data["sharding"]
    assert next(origin.where for origin in found.origins if origin.key == "seq_len").endswith("base.yaml:4")
    command = ["python", "run_grpo.py", "--config", str(folder / "recipe.yaml"), "policy.train_micro_batch_size=1"]
    assert import_files([], command=command).layer.data["rl"]["score_micro_batch"] == 1
    (folder / "job" / "deep").mkdir()
    (folder / "job" / "deep" / "recipe.yaml").write_text("defaults: ../../base.yaml\npolicy: {train_micro_batch_size: 3}\ngrpo: {}\n")
    with monkeypatch.context() as elsewhere:
        elsewhere.chdir(folder / "job" / "deep")
        with pytest.raises(InputError, match="outside"):
            import_files(["recipe.yaml"])
        assert import_files(["recipe.yaml", "../../base.yaml"]).layer.data["micro_batch"] == 3
    (folder / "base.yaml").write_text("defaults: recipe.yaml\npolicy: {}\n")
    with pytest.raises(InputError, match="overrides itself"):
        import_files([str(folder / "recipe.yaml")])
