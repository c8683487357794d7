"""``memcalc estimate``: exit statuses, formats, and bad input in one line."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from pathlib import Path

import pytest

from tests.cli.run import Cli

LLAMA = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "vocab_size": 100, "max_position_embeddings": 128, "head_dim": 16, "tie_word_embeddings": False, "rms_norm_eps": 1e-6, "hidden_act": "silu",
    "attention_bias": False, "mlp_bias": False, "attention_dropout": 0.0,
}  # fmt: skip

BAD_FLAGS = {
    "unknown model": (("lama-7b",), "unknown model 'lama-7b'; did you mean llama-7b"),
    "unknown option": (("llama-7b", "--micro-bach", "2"), "unknown option '--micro-bach'; did you mean --micro-batch"),
    "unknown optimizer": (("llama-7b", "--optimizer", "adamw_toch"), "adamw_torch"),
    "unknown card": (("llama-7b", "--gpu", "h1000"), "unknown GPU 'h1000'"),
    "unknown dtype": (("llama-7b", "--dtype", "bf17"), "unknown dtype 'bf17'; did you mean bf16"),
    "unknown choice": (("llama-7b", "--attention", "flash"), "accepted: eager, sdpa, flash_attention_2"),
    "negative size": (("llama-7b", "--micro-batch", "-1"), "--micro-batch is '-1'; accepted: a whole number from 1 to 2^40"),
    "zero size": (("llama-7b", "--seq-len", "0"), "--seq-len is '0'; accepted: a whole number from 1 to 2^40"),
    "huge size": (("llama-7b", "--seq-len", "9" * 40), "--seq-len is '9999"),
    "size past every float": (("llama-7b", "--seq-len", "1e999"), "--seq-len is '1e999'"),
    "non-numeric size": (("llama-7b", "--tp", "two"), "--tp is 'two'; accepted: a whole number"),
    "fraction for a count": (("llama-7b", "--tp", "1.5"), "--tp is '1.5'; accepted: a whole number"),
    "heads not divisible by tp": (("llama-7b", "--tp", "5"), "the nearest that do"),
    "degrees that do not multiply to the cards": (("llama-7b", "--gpus", "8", "--tp", "3"), "8"),
    "degrees against the cards": (("llama-7b", "--gpus", "8", "--tp", "2", "--dp", "2"), "8"),
    "no model": (("--tp", "2"), "no model given"),
    "missing value": (("llama-7b", "--tp"), "--tp: needs a value"),
    "value for a switch": (("llama-7b", "--explain=3"), "--explain: is a switch"),
    "two models": (("llama-7b", "llama-13b"), "one argument too many"),
    "a limit without sense": (("llama-7b", "--limit", "75 parsecs"), "--limit: '75 parsecs' is not a size"),
    "an empty limit": (("llama-7b", "--limit", "0"), "--limit: no card has 0 bytes of memory"),
    "a limit without unit": (("llama-7b", "--limit", "75"), "--limit: no card has 75 bytes of memory; write a size such as 75GiB"),
    "more cards than there are": (("llama-7b", "--gpus", "1000000000000"), "--gpus is '1000000000000'; accepted: a whole number from 1 to 2^20"),
    "a cache of no dtype": (("llama-7b", "--task", "inference", "--kv-cache-dtype", "foo"), "unknown cache dtype 'foo'"),
    "a dtype like no other": (("llama-7b", "--dtype", "foo"), "unknown dtype 'foo'; known: bf16, bfloat16"),
    "a model without a loss": (("vit-base",), "vit-base ends in a pooler and has no loss"),
    "one flag with two values": (("llama-7b", "--tp", "2", "--tp", "4"), "--tp: is given twice, as 2 and 4"),
    "a file of no name": (("llama-7b", "-o", ""), "-o: is given nothing"),
    "a margin without sense": (("llama-7b", "--margin", "150%"), "--margin: '150%' is not a share"),
    "unwritable file": (("llama-7b", "-o", "/nowhere/at/all"), "/nowhere/at/all: cannot be written"),
    "a run file that is not there": (("--config", "nowhere.yaml"), "nowhere.yaml: no such file"),
    "a folder without config": (("./tests",), "no config.json"),
    "a name with a null byte": (("a\0b",), "unknown model"),
}

BOMB = "a: &a [x]\n" + "".join(f"{c}: &{c} [{', '.join(['*' + p] * 10)}]\n" for p, c in zip("abcdefgh", "bcdefghi", strict=True))

BAD_FILES = {
    "unknown key": ("model: llama-7b\nmicro_bach: 2\n", ":2: unknown key 'micro_bach'; did you mean micro_batch"),
    "unknown nested key": ("model: llama-7b\nsharding:\n  tpp: 2\n", ":3: unknown key 'sharding.tpp'; did you mean sharding.tp"),
    "a key at the wrong level": ("model: llama-7b\ntp: 2\n", ":2: unknown key 'tp'; did you mean sharding.tp?"),
    "a key twice": ("model: llama-7b\nseq_len: 1\nseq_len: 2\n", ":3: names the key 'seq_len' twice"),
    "a nested key twice": ("model: llama-7b\nsharding: {tp: 1, tp: 2}\n", ":2: names the key 'sharding.tp' twice"),
    "a list for a map": ("model: llama-7b\nsharding: [2]\n", ":2: sharding is a list; accepted: a map"),
    "a list at the top": ("- llama-7b\n", "holds a list; a map of keys"),
    "a word at the top": ("llama-7b\n", "holds 'llama-7b'; a map of keys"),
    "a map for a size": ("model: llama-7b\nseq_len: {a: 1}\n", ":2: seq_len is a map; accepted: a whole number"),
    "true for a size": ("model: llama-7b\nmicro_batch: yes\n", ":2: micro_batch is true; accepted: a whole number"),
    "a number for a name": ("model: llama-7b\noptimizer: 7\n", ":2: optimizer is 7; accepted: text"),
    "not a number": ("model: llama-7b\nseq_len: .nan\n", ":2: seq_len is nan; accepted: a whole number"),
    "infinity": ("model: llama-7b\nseq_len: .inf\n", ":2: seq_len is inf; accepted: a whole number"),
    "unclosed": ("model: [llama-7b\n", "is not YAML"),
    "tabs": ("model: llama-7b\nsharding:\n\ttp: 2\n", "is not YAML"),
    "empty": ("", "is empty"),
    "nested without end": ("[" * 3000, "nest"),
    "a bomb": (BOMB, "more than 100,000 values"),
    "a cycle": ("model: &m [*m]\n", "refers to itself"),
    "code": ("model: !!python/object/apply:os.system [ls]\n", "accepted: text"),
    "digits without end": (f"seq_len: {'9' * 5000}\n", "cannot be read"),
}


def write(folder: Path, text: str) -> str:
    path = folder / "run.yaml"
    path.write_text(text)
    return str(path)


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A folder with a small Llama's config.json."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    return str(folder)


@pytest.mark.parametrize("name", BAD_FLAGS)
def test_bad_flags_exit_2_with_one_line(cli: Cli, name: str) -> None:
    words, said = BAD_FLAGS[name]
    assert said in cli.refused("estimate", *words)


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_run_files_exit_2_with_file_and_line(cli: Cli, name: str, tmp_path: Path) -> None:
    text, said = BAD_FILES[name]
    path = write(tmp_path, text)
    line = cli.refused("estimate", "--config", path)
    assert said in line
    assert path in line


def test_a_folder_for_a_run_file(cli: Cli, tmp_path: Path) -> None:
    assert "is a folder" in cli.refused("estimate", "--config", str(tmp_path))


def test_a_binary_run_file(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_bytes(bytes(range(256)))
    assert "is not text" in cli.refused("estimate", "--config", str(path))


def test_a_run_file_of_300_megabytes_is_refused_by_its_size(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    with path.open("wb") as file:
        file.truncate(300 * 2**20)
    assert "300.0 MiB" in cli.refused("estimate", "--config", str(path))


def test_a_config_of_300_megabytes_is_refused_by_its_size(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    with path.open("wb") as file:
        file.truncate(300 * 2**20)
    assert "300" in cli.refused("estimate", str(path))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_a_pipe_is_not_waited_for(cli: Cli, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "run.yaml")
    assert "is not a regular file" in cli.refused("estimate", "--config", str(tmp_path / "run.yaml"))


def test_no_card_no_verdict_exit_0(cli: Cli, model: str) -> None:
    done = cli("estimate", model)
    assert (done.status, done.err) == (0, "")
    assert not any(line.startswith("verdict") for line in done.out.splitlines())


@pytest.mark.parametrize(("card", "status", "word"), [("h100-80g", 0, "fits h100-80g"), ("1MiB", 1, "does not fit")])
def test_a_card_decides_the_exit_status(cli: Cli, model: str, card: str, status: int, word: str) -> None:
    done = cli("estimate", model, "--gpu", card)
    assert done.status == status
    assert word in done.out.splitlines()[-1]


@pytest.mark.parametrize(("limit", "status"), [("10GiB", 0), ("1KiB", 1)])
def test_a_limit_decides_the_exit_status(cli: Cli, model: str, limit: str, status: int) -> None:
    assert cli("estimate", model, "--limit", limit).status == status
    assert cli("estimate", model, "--limit", limit, "--gpu", "h100").status == status


def test_a_margin_that_is_given_decides_too(cli: Cli, model: str) -> None:
    needed = json.loads(cli("estimate", model, "--format", "json").out)["peak"]["device_bytes"]
    limit = str(needed * 1.02)
    assert cli("estimate", model, "--limit", f"{needed + needed // 50}").status == 0
    assert "tight" in cli("estimate", model, "--limit", limit.split(".", maxsplit=1)[0], "-q").out
    assert cli("estimate", model, "--limit", limit.split(".", maxsplit=1)[0], "--margin", "5%").status == 1
    assert cli("estimate", model, "--limit", limit.split(".", maxsplit=1)[0], "--margin", "1%").status == 0


def test_json_is_alone_on_stdout(cli: Cli, model: str) -> None:
    done = cli("estimate", model, "--format", "json", "--gpu", "h100")
    assert done.err == ""
    assert set(json.loads(done.out)) == {"schema_version", "model", "instants", "peak", "host", "verdict", "assumptions", "ignored"}


def test_csv_sums_to_the_json(cli: Cli, model: str) -> None:
    rows = list(csv.DictReader(io.StringIO(cli("estimate", model, "--format", "csv").out)))
    data = json.loads(cli("estimate", model, "--format", "json").out)
    for instant in data["instants"]:
        assert sum(int(row["bytes"]) for row in rows if row["instant"] == instant["name"]) == instant["allocated_bytes"]


def test_markdown_is_a_table(cli: Cli, model: str) -> None:
    lines = cli("estimate", model, "--format", "markdown", "--gpu", "h100").out.splitlines()
    assert any(re.fullmatch(r"\|[-:|]+\|", line) for line in lines)
    assert lines[-1].startswith("- **fits h100-80g")


def test_quiet_is_one_line(cli: Cli, model: str) -> None:
    assert len(cli("estimate", model, "-q").out.splitlines()) == 1


def test_explain_puts_the_numbers_in(cli: Cli, model: str) -> None:
    out = cli("estimate", model, "--explain", "--seq-len", "96").out
    assert re.search(r"= num_params \* width = \d+ \* 2 = [\d,]+ bytes", out)


def test_ranks_adds_a_table(cli: Cli, model: str) -> None:
    assert "on each kind of rank" in cli("estimate", model, "--ranks").out
    assert "ranks" in json.loads(cli("estimate", model, "--ranks", "--format", "json").out)


def test_a_file_takes_the_answer(cli: Cli, model: str, tmp_path: Path) -> None:
    path = tmp_path / "answer.json"
    done = cli("estimate", model, "--format", "json", "-o", str(path))
    assert done.out == ""
    assert json.loads(path.read_text())["schema_version"] == 1


def test_a_flag_wins_over_the_run_file(cli: Cli, model: str, tmp_path: Path) -> None:
    path = write(tmp_path, f"model: {model}\nseq_len: 64\nmicro_batch: 2\n")
    out = cli("estimate", "--config", path, "--seq-len", "32").out
    assert "micro_batch 2 × seq_len 32" in out


def test_a_run_file_may_stand_as_the_argument(cli: Cli, model: str, tmp_path: Path) -> None:
    path = write(tmp_path, f"model: {model}\nseq_len: 64\n")
    assert "seq_len 64" in cli("estimate", path).out
    assert "two run files" in cli.refused("estimate", path, "--config", path)


def test_a_path_in_a_run_file_may_be_relative_to_it(cli: Cli, model: str, tmp_path: Path) -> None:
    path = write(tmp_path, "model: ./tiny\n")
    assert cli("estimate", path).status == 0


def test_numbers_may_be_written_with_an_exponent(cli: Cli, model: str, tmp_path: Path) -> None:
    assert "seq_len 100 " in cli("estimate", write(tmp_path, f"model: {model}\nseq_len: 1e2\n")).out


@pytest.mark.parametrize("flag", ["--seq-len", "--seq_len", "--max-seq-length", "--max_seq_length"])
def test_other_spellings_of_a_flag(cli: Cli, model: str, flag: str) -> None:
    assert "seq_len 48 " in cli("estimate", model, flag, "48").out
    assert "seq_len 48 " in cli("estimate", model, f"{flag}=48").out


def test_zero_over_one_rank_says_what_to_give(cli: Cli, model: str) -> None:
    out = cli("estimate", model, "--zero", "2").out
    assert "shards nothing" in out
    assert "--dp" in out
    assert "--gpus" in out


def test_cards_left_over_become_replicas(cli: Cli, model: str) -> None:
    assert "8 GPUs = dp 4 × tp 2" in cli("estimate", model, "--gpus", "8", "--tp", "2").out


def test_defaults_are_stated(cli: Cli, model: str) -> None:
    out = cli("estimate", model).out
    for word in ("train", "bfloat16", "adamw_torch", "recompute none", "micro_batch 1", "sdpa", "transformers code", "assumed"):
        assert word in out


def test_inference_lists_what_only_training_reads(cli: Cli) -> None:
    words = "--task inference --optimizer sgd --momentum 0.9 --recompute full --recompute-method block --grad-accum 4 --zero 2 --gpus 4 --bucket-cap-mb 50"
    ignored = json.loads(cli("estimate", "llama-7b", *words.split(), "--format", "json").out)["ignored"]
    assert {line.partition(":")[0] for line in ignored} == {
        "optimizer", "momentum", "recompute", "recompute_method", "grad_accum", "sharding.zero", "sharding.bucket_cap_mb"
    }  # fmt: skip


@pytest.mark.parametrize(
    "words", ["estimate llama-7b --gpus 8 --gpu h100-80g", "compare llama-7b zero=1,gpus=4 zero=2,gpus=4", "sweep llama-7b --tp 1,3 --show-invalid"]
)
def test_tables_keep_to_a_narrow_page(cli: Cli, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "64")
    wide = [line for line in cli(*words.split()).out.splitlines() if len(line) > 66]
    assert wide == []
