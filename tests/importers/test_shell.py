"""Lines of shell as words."""

from __future__ import annotations

from pathlib import Path

import pytest

from memcalc.errors import InputError
from memcalc.importers import import_files
from memcalc.importers.facts import Facts
from memcalc.importers.shell import FOUND_AT_LAUNCH, expanded, launching, words_of


def test_remarks_and_continued_lines_are_as_in_a_shell() -> None:
    assert words_of("# first\nA=1 \\\n  b 'c # d'") == ["A=1", "b", "c # d"]


def test_lines_are_apart_where_no_quotation_is_open() -> None:
    assert words_of("a 'b\nc'\nd") == ["a", "b\nc", ";", "d"]


def test_an_array_is_a_variable_of_its_elements() -> None:
    facts = Facts()
    words = words_of("ARGS=(--a 1\n  --b 'x y')\nARGS+=(--c)\nMORE=('--d 4')\ntorchrun ${ARGS[@]} ${MORE[@]} t.py")
    assert launching(facts, words, starts=lambda name: name == "torchrun") == ["torchrun", "--a", "1", "--b", "x y", "--c", "--d", "4", "t.py"]


def test_a_command_may_stand_in_a_variable() -> None:
    for text in ("CMD='torchrun t.py'\n$CMD --a", "CMD='torchrun t.py'\neval $CMD --a"):
        assert launching(Facts(), words_of(text), starts=lambda name: name == "torchrun") == ["torchrun", "t.py", "--a"]


def test_a_launcher_goes_before_programs_that_stand_earlier() -> None:
    text = "python prepare.py && accelerate config; pip install x; uv pip install y\naccelerate launch t.py\ntorchrun u.py"
    assert launching(Facts(), words_of(text), starts=lambda name: name in ("accelerate", "torchrun", "uv")) == ["accelerate", "launch", "t.py"]
    assert launching(Facts(), words_of("python a.py\npython train.py"), starts=lambda _name: False) == ["python", "train.py"]


def test_defaults_of_variables_may_be_of_themselves_and_hold_others() -> None:
    text = 'N=${N:-4}\nM="${M:-${HOME_OF}/m}"\nHOME_OF=/h\ntorchrun --n $N --m $M --k ${K:-${N}} --o ${1:-5} t.py'
    assert launching(Facts(), words_of(text), starts=lambda name: name == "torchrun")[2::2] == ["4", "/h/m", "4", "5"]


def test_folders_of_a_script_are_known() -> None:
    text = 'D="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"\ntorchrun $D/t.py --a `pwd`/a.json --b $PWD/b'
    facts = Facts()
    facts.env = {"SCRIPT_FOLDER": "run"}
    assert launching(facts, words_of(text), starts=lambda name: name == "torchrun") == ["torchrun", "run/t.py", "--a", "./a.json", "--b", "./b"]


def test_variables_that_grow_are_refused() -> None:
    facts = Facts()
    facts.env = {"A": "x" * 60_000}
    with pytest.raises(InputError, match="more than"):
        expanded("$A$A", facts)
    with pytest.raises(InputError, match="more than"):
        launching(Facts(), words_of("A=xx\n" + "A=$A$A$A\n" * 40 + "torchrun $A"), starts=lambda name: name == "torchrun")
    with pytest.raises(InputError, match="does not end"):
        words_of('echo "a\n' + "b\n" * 1000)


def test_sums_are_worked_out_where_they_can_be() -> None:
    text = "N=8\nB=$(( 128 / ${N} ))\nC=`expr 64 / $N`\nD=$((M ? 1 : 2))\n"
    text += 'torchrun --b=$B --c $C --d $D --e $((B*(C+1)-1)) --f $([ "$N" -gt 1 ] && echo $((N * 2)) || echo 1) t.py'
    made = launching(Facts(), words_of(text), starts=lambda name: name == "torchrun")
    assert made == ["torchrun", "--b=16", "--c", "8", "--d", FOUND_AT_LAUNCH, "--e", "143", "--f", FOUND_AT_LAUNCH, "t.py"]


def test_remarks_may_hold_quotations_and_arrays_stand_within_them() -> None:
    assert words_of("a --b 1  # it's \"so\nA=(x y)\necho \"all: ${A[*]}\"\nc '# d'")[-2:] == ["c", "# d"]


def test_what_a_script_writes_to_other_files_is_no_command() -> None:
    assert words_of("cat > a.py <<'EOF'\nit's\nEOF\ntorchrun a.py") == ["cat", ">", "a.py", "<<EOF", ";", "torchrun", "a.py"]
    assert "torchrun" in words_of("bash <<EOF\ntorchrun a.py\nEOF")


def test_a_variable_of_nothing_before_a_command_is_nothing() -> None:
    text = 'U=""\nP=()\n$U "${P[@]}" torchrun t.py'
    assert launching(Facts(), words_of(text), starts=lambda name: name == "torchrun") == ["torchrun", "t.py"]


def test_what_a_script_is_given_goes_where_it_says() -> None:
    facts = Facts()
    facts.env = {"@": "m --a 'x y'", "1": "m"}
    assert launching(facts, words_of('M=$1\nshift\ntorchrun t.py --m $M "$@"'), starts=lambda name: name == "torchrun")[3:] == ["m", "--a", "x y"]
    facts.env = {"@": "m --a 1"}
    assert launching(facts, words_of('torchrun t.py "${@:2}" $*'), starts=lambda name: name == "torchrun")[2:] == ["--a", "1", "m", "--a", "1"]
    assert launching(Facts(), words_of('torchrun t.py "$@"'), starts=lambda name: name == "torchrun") == ["torchrun", "t.py"]


def test_lines_that_are_only_put_together_are_what_they_hold() -> None:
    text = "O=\"a=1 \\\n b=2\"\nC=\"torchrun t.py $(echo \"$O\" | tr '\\n' ' ' | sed 's/  \\+/ /g')\"\n$C"
    assert launching(Facts(), words_of(text), starts=lambda name: name == "torchrun") == ["torchrun", "t.py", "a=1", "b=2"]


def test_a_starter_of_something_else_is_no_launch() -> None:
    text = "H=$(srun -N 1 hostname)\nsrun -N 1 ray start --head &\n"
    text += 'R=$(realpath "$( cd -- "$( dirname -- "$0" )" &> /dev/null && pwd)/..")\nsrun -N 2 python $R/train.py'
    facts = Facts()
    facts.env = {"SCRIPT_FOLDER": "a"}
    assert launching(facts, words_of(text), starts=lambda name: name == "srun") == ["srun", "-N", "2", "python", "a/../train.py"]


def test_arrays_of_overrides_hold_quotations_sums_and_other_arrays() -> None:
    text = (
        'N=4\nA=(\n  a.f="[\'x\', \'y\']"\n  a.n=$((1024 * N))\n  a.l=\'["c","w"]\' # (one)\n)\nB=(b=1 "${A[@]}")\npython train.py "${B[@]}" "${NONE[@]}" c=2'
    )
    made = launching(Facts(), words_of(text), starts=lambda name: name == "python")
    assert made == ["python", "train.py", "b=1", "a.f=['x', 'y']", "a.n=4096", 'a.l=["c","w"]', "$NONE", "c=2"]


def test_a_second_launch_is_named() -> None:
    """One run is counted; the other is not passed over in silence."""
    text = "torchrun --nproc_per_node 2 train.py --model_name_or_path llama-7b --bf16 True\nvllm serve llama-7b"
    found = import_files([], command=["bash", "-c", text])
    assert any("a launch after the first: vllm serve" in line for line in found.unused)


def test_lines_of_flags_are_one_launch(tmp_path: Path) -> None:
    """As `export --to megatron` writes them, and as people paste them without the ends of lines."""
    flags = tmp_path / "flags.sh"
    flags.write_text("--tensor-model-parallel-size 2\n--pipeline-model-parallel-size 2\n--micro-batch-size 3\n--bf16\n")
    found = {origin.key: origin.value for origin in import_files([str(flags)]).origins}
    assert [found[key] for key in ("sharding.tp", "sharding.pp", "micro_batch", "dtype", "code")] == [2, 2, 3, "bfloat16", "megatron"]
