"""Flags are the run file's keys."""

from __future__ import annotations

from memcalc.cli.shell.command import Given
from memcalc.cli.shell.registry import load, names
from memcalc.cli.shell.runs import run_of, run_options
from memcalc.specs.fields import run_keys


def test_every_key_of_the_run_file_has_a_flag() -> None:
    found = {option.name for option in run_options()}
    assert {leaf.flag for leaf in run_keys().leaves()} <= found


def test_no_command_declares_a_flag_twice() -> None:
    for name in names():
        options = load(name).options()
        spelt = [f"--{word}" for option in options for word in (option.name, *option.aliases)] + [f"-{option.short}" for option in options if option.short]
        assert sorted(spelt) == sorted(set(spelt)), name


def test_every_flag_has_help() -> None:
    assert [option.name for option in run_options() if not option.help] == []


def test_nested_keys_have_flags_of_their_own() -> None:
    flags: dict[str, str | bool] = {"tp": "2", "gpu": "h100-80g", "lora-r": "4", "lora-target-modules": "q_proj,v_proj", "offload-optimizer": "cpu", "sp": True}
    run = run_of(Given((), flags), model="llama-7b")
    assert (run.sharding.tp, run.sharding.sp, run.hardware.gpu, run.offload.optimizer) == (2, True, "h100-80g", "cpu")
    assert run.lora is not None
    assert (run.lora.r, run.lora.target_modules) == (4, ("q_proj", "v_proj"))


def test_a_section_that_may_be_absent_has_a_switch() -> None:
    assert run_of(Given((), {"lora": True}), model="llama-7b").lora is not None
    assert run_of(Given((), {"lora": False}), model="llama-7b").lora is None
    assert run_of(Given((), {"autocast": "none"}), model="llama-7b").autocast is None
