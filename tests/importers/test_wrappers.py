"""What stands before the program of a command."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from memcalc.errors import InputError
from memcalc.importers import import_files
from memcalc.importers.facts import Facts
from memcalc.importers.wrappers import unwrapped

TRAIN = ["torchrun", "--nproc_per_node", "8", "train.py"]
TEXT = shlex.join(TRAIN)
WRAPPED = [
    f"nohup {TEXT} > log.txt 2>&1 &",
    f"sudo -E -u me env A=1 {TEXT} | tee log",
    f"time timeout 10h numactl -N 0 {TEXT}",
    f"uv run --with trl {TEXT}",
    f"conda run -n tune {TEXT}",
    f"cd run && pip install trl; export N=8 && {TEXT} && echo done",
    f"srun -N 2 --job-name vllm --ntasks-per-node=1 bash -lc '{TEXT}'",
    f"ray job submit --address http://x --working-dir tune -- {TEXT}",
    f"docker run -it --rm --gpus all --shm-size 32g -v /a:/b --name vllm -e N=8 image:1 {TEXT}",
    f"docker run --entrypoint torchrun image {shlex.join(TRAIN[1:])}",
    f"python mason.py --cluster c --gpus 8 -- {TEXT}",
    f"apptainer exec --nv image.sif bash -c '{TEXT}'",
]
TEXTS = [
    "$ N=8 torchrun \\\n  --nproc_per_node ${M:-$N} train.py  # the main one",
    f"#!/bin/bash\nset -e\nexport A=1\nexport N=8\npip install trl\ncd run\n{TEXT}\necho done",
    f"for lr in 1e-4 1e-5; do {TEXT}; done",
    f"if [ -z $A ]; then {TEXT}; fi",
]


@pytest.mark.parametrize("text", [*WRAPPED, *TEXTS], ids=lambda text: text[:30])
def test_a_command_is_found_behind(text: str) -> None:
    assert unwrapped(Facts(), [text]) == TRAIN


def test_words_of_argv_are_as_those_of_a_text() -> None:
    for text in WRAPPED:
        assert unwrapped(Facts(), shlex.split(text)) == TRAIN


def test_an_image_that_is_a_server_is_given_arguments_alone() -> None:
    start = ["docker", "run", "--gpus", "all", "-p", "8000:8000"]
    assert unwrapped(Facts(), [*start, "vllm/vllm-openai:latest", "--model", "llama-7b"]) == ["vllm", "serve", "--model", "llama-7b"]
    with pytest.raises(InputError, match="no program that is known"):
        unwrapped(Facts(), [*start, "some/server:1", "--model", "llama-7b"])


def test_a_starter_says_how_many_processes_there_are_and_on_how_many_nodes() -> None:
    facts = Facts()
    assert unwrapped(facts, shlex.split("srun -N 4 --ntasks-per-node=8 python t.py --nnodes $SLURM_NNODES")) == ["python", "t.py", "--nnodes", "4"]
    assert facts.get("~started") == 32
    unwrapped(facts, shlex.split("mpirun -np 16 --hostfile h python t.py"))
    assert facts.get("~started") == 16


def test_variables_in_front_are_put_in_their_places_and_others_stay() -> None:
    facts = Facts()
    assert unwrapped(facts, ["N=2", "torchrun", "--nnodes", "$N", "--nproc_per_node", "$GPUS", "x=${oc.env:N}"])[2::2] == ["2", "$GPUS"]
    assert facts.env == {"N": "2"}


@pytest.mark.parametrize(
    "words", [["bash", "run.sh"], ["srun", "sh", "run.sh"], ["docker", "ps"], ["sudo"], ['torchrun "a b'], [" ".join(["nohup uv run"] * 20)]]
)
def test_what_starts_nothing_that_is_known_is_refused(words: list[str]) -> None:
    with pytest.raises(InputError):
        unwrapped(Facts(), words)


def test_what_a_shell_would_run_stays_unknown() -> None:
    words = unwrapped(Facts(), ["torchrun --nproc_per_node=$(nvidia-smi -L | wc -l) --nnodes $((2 * 4)) train.py --run `date`"])
    assert words == ["torchrun", "--nproc_per_node=$FOUND_AT_LAUNCH", "--nnodes", "8", "train.py", "--run", "$FOUND_AT_LAUNCH"]


def test_dots_of_a_document_are_no_words() -> None:
    assert unwrapped(Facts(), ["vllm serve llama-7b --enforce-eager ..."]) == ["vllm", "serve", "llama-7b", "--enforce-eager"]


SCRIPT = """#!/bin/bash
set -x
export N=${1:-4}
ARGS=(
    --model_name_or_path llama-7b  # a model
    --bf16
)
ARGS+=(--seed "$2")
if [ -n "$RANK" ]; then echo many; fi
pip install -r requirements.txt
python prepare.py --out data
torchrun --nproc_per_node $N train.py "${ARGS[@]}" "$@"
"""


def test_a_script_is_read_by_its_variables_and_its_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.sh").write_text(SCRIPT, encoding="utf-8")
    for start in (["bash", "run.sh"], ["sh", "-x", "run.sh"], ["./run.sh"]):
        facts = Facts()
        words = ["torchrun", "--nproc_per_node", "8", "train.py", "--model_name_or_path", "llama-7b", "--bf16", "--seed", "1", "8", "1"]
        assert unwrapped(facts, [*start, "8", "1"]) == words
        assert any("conditions are not followed" in line for line in facts.unused)
    assert unwrapped(Facts(), ["bash", "run.sh"])[2] == "4"


def test_a_script_that_is_elsewhere_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run.sh").write_text(SCRIPT, encoding="utf-8")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(InputError):
        unwrapped(Facts(), ["bash", "../run.sh"])
    (tmp_path / "here" / "loop.sh").write_text("bash loop.sh", encoding="utf-8")
    with pytest.raises(InputError, match="wrapped more than"):
        unwrapped(Facts(), ["bash", "loop.sh"])


def test_a_command_in_a_variable_behind_a_starter() -> None:
    found = import_files([], command=["CMD='torchrun --nproc_per_node 2 sft.py --model_name_or_path m --max_length 64'\nsrun -N 1 $CMD"])
    assert found.layer.data["hardware"]["gpus"] == 2


def test_a_script_may_be_given_as_a_file(tmp_path: Path) -> None:
    path = tmp_path / "train.sh"
    path.write_text("N=2\ntorchrun --nproc_per_node $N sft.py --model_name_or_path m --max_length 64\n", encoding="utf-8")
    other = tmp_path / "more.yaml"
    other.write_text("per_device_train_batch_size: 3\nmodel_name_or_path: other\noutput_dir: o\n", encoding="utf-8")
    found = import_files([str(path), str(other)]).layer.data
    assert (found["hardware"]["gpus"], found["micro_batch"], found["model"]) == (2, 3, "m")
    with pytest.raises(InputError, match="a launch of its own"):
        import_files([str(path)], command=["torchrun", "sft.py"])
