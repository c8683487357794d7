"""``memcalc check``, and files of other frameworks on the command line."""

from __future__ import annotations

import json
import shlex
import time
from pathlib import Path

import pytest

from tests.cli.run import Cli

DS = '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": "auto"}}\n'
ACCELERATE = "distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 8\nfsdp_config: {fsdp_version: 2}\n"
TRAINER = "model_name_or_path: llama-7b\nper_device_train_batch_size: 2\nbf16: true\nmax_length: 1024\nfrobnicate: 3\n"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (("ds.json", DS), ("acc.yaml", ACCELERATE), ("train.yaml", TRAINER), ("run.yaml", "model: llama-7b\nseq_len: 128\n")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)


def test_servers_say_what_they_hold_or_why_they_do_not_start(cli: Cli, tmp_path: Path) -> None:
    """Both need 73.24 GiB of 79.10, since the pool takes what is left."""
    server = "task: inference\ncode: vllm\nhardware: {gpu: h100-80g, gpus: 2}\nsharding: {tp: 2}\nserving: {max_model_len: %d}\nmodel: llama-3.1-70b\n"
    for name, length in (("short.yaml", 8192), ("long.yaml", 131_072)):
        (tmp_path / name).write_text(server % length, encoding="utf-8")
    done = cli("check", "short.yaml", "long.yaml", "--format", "markdown")
    assert done.status == 1
    assert "fits, 1.4 × 8,192 tokens" in done.out
    assert "does not start: cache for 11,440 tokens, not for 131,072" in done.out


def test_several_files_are_one_job_and_flags_win(cli: Cli) -> None:
    done = cli("estimate", "--from", "acc.yaml", "--from", "train.yaml", "--seq-len", "256", "--format", "json", "--explain-inputs")
    assert done.status == 0, done.err
    answer = json.loads(done.out)
    inputs = {row["key"]: (row["value"], row["where"]) for row in answer["inputs"]}
    assert inputs["hardware.gpus"] == (8, "acc.yaml:3")
    assert inputs["micro_batch"] == (2, "train.yaml:2")
    assert inputs["dtype"][0] == "float32"
    assert inputs["seq_len"] == (256, "the command line of memcalc")
    assert "train.yaml:5: frobnicate 3" in answer["ignored"]
    assert any(line.startswith("loss chunked: default of TRL") for line in answer["assumptions"])
    assert not any(line.startswith("seq_len") for line in answer["assumptions"])


def test_keys_of_a_run_file_come_from_its_lines(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("model: llama-7b\nroles:\n  critic: {micro_batch: 2}\ntask: ppo\nliger: true\n", encoding="utf-8")
    done = cli("estimate", "own.yaml", "--seq-len", "256", "--format", "json", "--explain-inputs")
    rows = {row["key"]: row["where"] for row in json.loads(done.out)["inputs"]}
    assert rows == {"model": "own.yaml:1", "roles": "own.yaml:2", "task": "own.yaml:4", "liger": "own.yaml:5", "seq_len": "the command line of memcalc"}


def test_files_of_other_frameworks_stand_among_the_arguments(cli: Cli) -> None:
    named = json.loads(cli("estimate", "--from", "acc.yaml", "--from", "train.yaml", "--format", "json").out)
    bare = json.loads(cli("estimate", "train.yaml", "acc.yaml", "--format", "json").out)
    assert named["peak"] == bare["peak"]


def test_a_command_is_read_and_not_run(cli: Cli) -> None:
    words = "torchrun --nproc_per_node 8 no_such_script.py --model_name_or_path llama-7b --bf16 --per_device_train_batch_size 1 --deepspeed ds.json"
    done = cli("check", "--gpu", "h100-80g", "--format", "json", "--", *words.split())
    assert done.status == 0, done.err
    assert json.loads(done.out)["verdict"]["fits"]


def test_files_are_a_row_each_the_worst_first(cli: Cli) -> None:
    done = cli("check", "run.yaml", "train.yaml", "--limit", "60GiB")
    assert done.status == 1
    first, second = done.out.splitlines()[1:3]
    assert first.startswith("train.yaml")
    assert "does not fit" in first
    assert second.startswith("run.yaml")


@pytest.mark.parametrize("format_name", ["json", "markdown", "csv"])
def test_rows_in_every_format(cli: Cli, format_name: str) -> None:
    done = cli("check", "run.yaml", "train.yaml", "--format", format_name)
    assert done.status == 0
    assert "train.yaml" in done.out


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.json", '{"zero_optimization": {"stage": 3', "a.json:2: is not JSON"),
        ("a.json", '{"zero_optimization": {"stage": "three"}}', "a.json:1"),
        ("a.yaml", "distributed_type: FSDP\nsurprise: 1\n", "a.yaml:2: unknown key of accelerate YAML 'surprise'"),
        ("a.yaml", "base_model: m\nmicro_batch_size: lots\n", "a.yaml:2"),
        ("a.yaml", "model: {_component_: x.llama3_8b}\nbatch_size: ${batch_size}\n", "a.yaml:2: refers to itself"),
        ("a.toml", "[training\n", "a.toml:1"),
        ("a.yaml", "model: llama-7b\nseq_len: 8\n", "a.yaml:1: is a run file, not one of another framework"),
        ("a.json", "{}", "a.json: holds nothing"),
        ("a.yaml", "base_model: m\ndatasets: &a [1]\nx: &b " + "[*a, *a, *a, *a, *a, *a, *a, *a, *a, *a]\n" + "".join(
            f"x{i}: &c{i} [{', '.join([('*b' if i == 0 else f'*c{i - 1}')] * 10)}]\n" for i in range(6)), "holds more than"),
    ],
)  # fmt: skip
def test_a_malformed_file_is_refused_in_one_line_within_a_second(cli: Cli, tmp_path: Path, name: str, text: str, said: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    begin = time.perf_counter()
    line = cli.refused("estimate", "llama-7b", "--from", name)
    assert said in line
    assert time.perf_counter() - begin < 1


@pytest.mark.accuracy
@pytest.mark.parametrize(
    ("case", "flags", "status"),
    [
        ("c03", "--model llama-7b --seq-len 512 --gpu v100-32g", 1),
        ("c05", "--model llama-3-8b --gpus 8 --gpu rtx3090-24g --margin 5%", 1),
        ("c07", "--model qwen2.5-7b --gpus 8 --gpu a100-40g --optimizer adamw_torch --margin 10%", 1),
        ("c16", "--model llama-2-70b --seq-len 512 --gpu a100-80g", 1),
        ("c18", "--gpus 4 --gpu a10 --zero 2", 1),
        ("c24", "--model llama-7b --seq-len 512 --gpu a100-40g", 0),
        ("c36", "--gpu mi50-16g", 0),
    ],
)
def test_what_people_posted_gets_the_answer_it_had(cli: Cli, case: str, flags: str, status: int) -> None:
    """Jobs that ran out of memory, or came close, are said not to fit with a margin; one that trained does."""
    posted = {given["id"]: given for given in json.loads((Path(__file__).parent.parent / "data" / "launch" / "as_given.json").read_text(encoding="utf-8"))}[
        case
    ]
    Path("posted.yaml").write_text(posted["text"], encoding="utf-8")
    words = ["--", *shlex.split(posted["text"])] if posted["format"].endswith("cli") else ["posted.yaml"]
    done = cli("check", "--quiet", *flags.split(), *words)
    assert done.status == status, done.out or done.err


@pytest.mark.accuracy
def test_70b_in_4_bits_is_spread_over_two_cards_of_24_gb(cli: Cli, tmp_path: Path) -> None:
    """LLaMA-Factory files packed values as the compute dtype, so that FSDP takes them apart: its README trains Llama 70B so."""
    fsdp = "{fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP, fsdp_sharding_strategy: FULL_SHARD, fsdp_offload_params: true}"
    (tmp_path / "fsdp.yaml").write_text(f"distributed_type: FSDP\nfsdp_config: {fsdp}\nmixed_precision: bf16\nnum_machines: 1\nnum_processes: 2\n")
    (tmp_path / "lf.yaml").write_text("model_name_or_path: llama-2-70b\nquantization_bit: 4\nstage: sft\nfinetuning_type: lora\ncutoff_len: 1024\nbf16: true\n")
    done = cli("check", "--gpu", "rtx3090-24g", "--quiet", "--", *["accelerate", "launch", "--config_file", "fsdp.yaml", "src/train.py", "lf.yaml"])
    assert (done.status, done.out.startswith("fits rtx3090-24g")) == (0, True), done.out or done.err


def test_nothing_to_check_is_said(cli: Cli) -> None:
    assert "name files, or a launch command behind --" in cli.refused("check")
    assert "no program" in cli.refused("check", "--", "A=1")


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("*.nothing", "*.nothing: no file matches this pattern"),
        ("nothere.yaml", "nothere.yaml: no such file"),
        ("llama-7b", "llama-7b: is neither a file of a run (.yaml, .yml, .json, .toml, .py, .sh, .sbatch, .slurm) nor a launch command"),
        (".", ".: is neither a file of a run"),
    ],
)
def test_what_is_no_run_is_said(cli: Cli, word: str, said: str) -> None:
    assert said in cli.refused("check", word)


def test_a_command_in_one_word_is_a_command(cli: Cli) -> None:
    assert cli("check", "vllm serve llama-3.1-8b --max-model-len 4096", "--gpu", "h100-80g", "--quiet").status == 0


def test_why_one_of_several_runs_is_refused_is_said_in_full(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("hello: 1\n", encoding="utf-8")
    done = cli("check", "run.yaml", "bad.yaml")
    assert done.status == 2
    assert "memcalc: bad.yaml:1: is no run file and no file of a framework that memcalc reads: unknown key 'hello'" in done.err
    assert "run.yaml" in done.out


def test_each_of_several_refusals_names_its_file(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 2}}')
    (tmp_path / "typo.yaml").write_text("model: llama-7b\nseq_lne: 8\n")
    first, second = cli("check", "ds.json", "typo.yaml").err.splitlines()
    assert "ds.json is DeepSpeed JSON, and no model stands in it" in first
    assert second.startswith("memcalc: typo.yaml:2: ")


def test_a_task_that_is_not_counted_is_refused_with_its_place(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "lf.yaml").write_text("model_name_or_path: llama-7b\nstage: prm\nfinetuning_type: lora\n", encoding="utf-8")
    assert "lf.yaml:2: stage is 'prm'" in cli.refused("estimate", "lf.yaml")


def test_findings_stand_on_the_line_that_is_to_blame(cli: Cli, tmp_path: Path) -> None:
    """Of a run file and of another framework's, one by one or several at once; a model that is named alone has no line."""
    (tmp_path / "long.yaml").write_text("model: llama-7b\nhardware: {gpu: a100-80g}\nseq_len: 65536\n", encoding="utf-8")
    (tmp_path / "long_trainer.yaml").write_text(TRAINER.replace("1024", "65536"), encoding="utf-8")
    done = cli("estimate", "long.yaml", "--format", "github")
    assert done.status == 1
    assert done.out.startswith("::error file=long.yaml,line=3,title=memcalc%3A llama-7b does not fit::")
    assert cli("check", "long.yaml", "--format", "github") == done
    foreign = cli("estimate", "long_trainer.yaml", "--gpu", "a100-80g", "--format", "github").out
    assert foreign.startswith("::error file=long_trainer.yaml,line=2,")
    assert cli("estimate", "llama-7b", "--limit", "10GiB", "--format", "github").out.startswith("::error title=")
    assert "locations" not in json.loads(cli("estimate", "llama-7b", "--limit", "10GiB", "--format", "sarif").out)["runs"][0]["results"][0]
    refused = cli("estimate", "llama-7b", "--tp", "3", "--format", "junit")
    assert (refused.status, len(refused.err.splitlines())) == (2, 1)
    assert '<error message="' in refused.out


def test_a_shell_script_is_a_run(cli: Cli) -> None:
    Path("train.sh").write_text("torchrun --nproc_per_node 2 sft.py --model_name_or_path llama-3.2-1b --max_length 64\n", encoding="utf-8")
    done = cli("check", "train.sh", "--gpu", "h100-80g")
    assert (done.status, "llama-3.2-1b" in done.out) == (0, True)
