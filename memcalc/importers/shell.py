"""Lines of shell as words: remarks, continued lines, arrays and variables as a shell would take them, and which part launches. Nothing is run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping

from memcalc.errors import InputError
from memcalc.importers.argv import MAX_LENGTH, variables
from memcalc.importers.facts import Facts
from memcalc.importers.rules import names
from memcalc.importers.sums import SUM, one_word_each, worked_out

PREPARES = frozenset(
    names(
        ": if elif for while fi done case esac [ [[ { } cd pip pip3 source . module conda ulimit set unset shift echo printf cat mkdir rm cp mv ls touch chmod "
        "hf huggingface-cli wandb sleep wait kill trap read local exit return test nvidia-smi git apt apt-get"
    )
)
"""Programs that only make ready for the next one of a line."""

ENDS = re.compile(r"\||\|\||&|[12]?>{1,2}.*|&>.*|<{1,3}|<<\S+|2>&1")
"""Where a command's own words end in a line of shell."""

MAX_DEPTH = 10
"""No honest command is wrapped more often, nor has a longer chain of variables."""

MAX_LINES = 200
"""No honest quotation has more lines."""

_PROMPT = re.compile(r"^\s*(?:[$%>]\s+|!\s*)+(?=[A-Za-z_./])", re.MULTILINE)
_REMARK = re.compile(r"('[^']*'|\"(?:\\.|[^\"\\])*\"|\\.)|(?m:^|(?<=[\s;(]))#[^\n]*", re.DOTALL)
_WRITTEN = re.compile(r"(?<!<)<<-?[ \t]*(['\"]?)([A-Za-z_]\w*)\1")
_RUNS = re.compile(r"\b(?:bash|sh|ssh|sbatch|srun)\b")
TRAINS = r"train|tun|sft|dpo|ppo|grpo|run_clm|\.run\b|launch|vllm|sglang|verl|openrlhf|swift"
"""What stands in the names of scripts and modules that train or serve."""
_ARRAY = re.compile(rf"^([ \t]*)(\w+)(\+?)=\(((?:[^()'\"]|'[^']*'|\"(?:\\.|[^\"\\])*\"|{SUM})*)\)", re.MULTILINE)
ELEMENTS = "elements_of_"
"""What stands before the name of an array where all its elements are meant."""
_ELEMENTS = re.compile(r"(\")?\$\{(\w+)\[[@*]\]\}(?(1)\")")
_SCRIPT = r"\"?\$(?:0|\{0\}|BASH_SOURCE|\{BASH_SOURCE(?:\[0\])?\})\"?"
_BESIDE = re.compile(rf"\$\(\s*dirname\s+(?:--\s+)?{_SCRIPT}\s*\)")
_CHANGED = re.compile(r"\$\(\s*cd\s+(?:--\s+)?\"?([^()\"&;>\s]+)\"?\s*(?:&?>\s*/dev/null\s*)?(?:&&|;)\s*pwd(?:\s+-P)?\s*\)")
_SAME = re.compile(r"\$\(\s*(?:realpath|readlink)\s+(?:-\w+\s+|--\s+)*\"?([^()\"\s]+)\"?\s*\)")
_HERE = re.compile(r"\$\(\s*(?:pwd|git\s+rev-parse\s+--show-toplevel)\s*\)|`pwd`|\$PWD\b|\$\{PWD\}")
"""Where a script stands, and where it runs."""
_COLLAPSED = re.compile(r"\$\(echo\s+\"?(\$\w+|\$\{\w+\})\"?\s*\|\s*tr\s+(?:-s\s+)?'(?:\\n| )'\s+' '[^()]*\)")
_SUBSTITUTION = re.compile(rf"\$\((?!\()(?:[^()]|{SUM}|\([^()]*\))*\)|`[^`]*`")
ALL = "@"
_ALL = re.compile(r"\$(?:[@*]|\{[@*](?::(\d))?\})")
"""What a script was given, as a variable, and as it is written."""
FOUND_AT_LAUNCH = "$FOUND_AT_LAUNCH"
"""What stands for a word that a shell would run another command for."""
_SHELL_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*|\d)(?::?[-=]((?:[^{}]|\{[^{}]*\})*))?\}|([A-Za-z_]\w*|\d))")


def words_of(text: str) -> list[str]:
    r"""The words of a line of shell, or of several, as a shell would part them; without its remarks and prompts. A line of flags goes on with that before it.

    Raises:
        InputError: a quotation does not end.

    >>> words_of("$ torchrun \\\n  train.py  # the main one\n")
    ['torchrun', 'train.py']
    """
    text = re.sub(r"\\[ \t]*\r?\n", " ", _REMARK.sub(lambda match: match.group(1) or "", _without_written(_PROMPT.sub("", text))))
    text = _HERE.sub(".", _SAME.sub(r"\1", _CHANGED.sub(r"\1", _BESIDE.sub("$SCRIPT_FOLDER", text))))
    text = _found_at_launch(one_word_each(_COLLAPSED.sub(r"\1", text)))
    text = _ELEMENTS.sub(rf"${ELEMENTS}\2", _ARRAY.sub(_one_word, text))
    words: list[str] = []
    waiting: list[str] = []
    for line in text.splitlines():
        waiting.append(line)
        try:
            parted = shlex.split("\n".join(waiting))
        except ValueError:
            if len(waiting) > MAX_LINES:
                break
            continue
        words += [*([";"] if words and parted and not parted[0].startswith("--") else []), *parted]
        waiting = []
    if waiting:
        raise InputError("is no line of shell: a quotation does not end", where="command")
    return words


def _without_written(text: str) -> str:
    """A script without what it writes to other files, or gives to programs that are no shell."""
    kept: list[str] = []
    end = ""
    for line in text.splitlines(keepends=True):
        if end:
            end = "" if line.strip() == end else end
            continue
        kept.append(line)
        written = _WRITTEN.search(line)
        end = written.group(2) if written and not _RUNS.search(line) else ""
    return text if end else "".join(kept)


def _found_at_launch(text: str) -> str:
    for _ in range(MAX_DEPTH):
        before, text = text, _SUBSTITUTION.sub(FOUND_AT_LAUNCH, text)
        if text == before:
            break
    return text


def _one_word(match: re.Match[str]) -> str:
    """An array as a variable of its elements; one that is added to, with what it held."""
    indent, name, added, elements = match.groups()
    held = f"${name} " if added else ""
    return f"{indent}{name}={shlex.quote(held + ' '.join(elements.split()))}"


def launching(facts: Facts, words: list[str], *, starts: Callable[[str], bool]) -> list[str]:
    """The words of the part of a text that launches, with the variables of the parts before it: the first that starts a launcher, or else a program.

    Args:
        facts: where variables are put.
        words: of the text.
        starts: whether a name is that of a launcher, or of what starts one.
    """
    best: tuple[int, list[str], Mapping[str, str]] = (-1, [], facts.env)
    parts = list(_separated_parts(words))
    for at, part in enumerate(parts):
        if part[:1] == ["shift"]:
            facts.env = {**facts.env, ALL: shlex.join(shlex.split(facts.env.get(ALL, ""))[int(part[1]) if part[1:2] and part[1].isdecimal() else 1 :])}
        env, rest = variables(part, known=facts.env)
        facts.env = {**facts.env, **env}
        rest = _called(facts, rest)
        likely = _likely(rest, starts)
        if likely > best[0]:
            best = (likely, rest, facts.env)
        if likely == SURE:
            others = [rest[:2] for rest in (variables(later, known=facts.env)[1] for later in parts[at + 1 :]) if _likely(rest, starts) == SURE]
            if others:
                facts.unused.append(f"a launch after the first: {' '.join(others[0])} …: one is counted, give the other by itself")
            break
    _, words, facts.env = best
    end = next((at for at, word in enumerate(words) if ENDS.fullmatch(word)), len(words))
    return [part for word in words[:end] for part in _parts(word, facts)]


def _called(facts: Facts, words: list[str]) -> list[str]:
    """Words of which the first is a variable that holds a command, or ``eval``, as that command's."""
    words = words[1:] if words[:1] == ["eval"] else words
    while words and "$" in words[0] and not expanded(words[0], facts):
        words = words[1:]  # a variable of nothing
    if not words or "$" not in words[0]:
        return words
    made = expanded(words[0], facts)
    return [*(words_of(made) if made != words[0] and " " in made else [made]), *words[1:]]


def _separated_parts(words: list[str]) -> Iterator[list[str]]:
    part: list[str] = []
    for word in words:
        if word in ("&&", ";"):
            yield part
            part = []
        elif word.endswith(";"):
            yield [*part, word.rstrip(";")]
            part = []
        else:
            part.append(word)
    yield part


SURE = 3
"""How likely a launcher is, of what `_likely` returns: nothing comes before it."""
LAUNCHES = {
    "uv": ("run",), "docker": ("run", "exec"), "podman": ("run", "exec"), "ray": ("job",), "accelerate": ("launch",), "tune": ("run",), "axolotl": ("train",),
    "vllm": ("serve",), "swift": ("sft", "pt", "rlhf", "infer", "deploy"), "megatron": ("sft", "pt", "rlhf"),
}  # fmt: skip
"""What programs must be told for it to be a launch, and no preparation of one."""


def _likely(words: list[str], starts: Callable[[str], bool]) -> int:
    """How much the words look like a launch: a launcher, a script that trains by its name, another program, what only makes ready."""
    if not words or (words[0] in PREPARES and words[:2] != ["conda", "run"]):
        return -1
    name = words[0].rpartition("/")[2].lower()
    if words[1:2] and words[1] not in LAUNCHES.get(name, words[1]):
        return 0
    if name.startswith("python"):
        return SURE - 1 if re.search(TRAINS, " ".join(words[1:4])) else 1
    if name in ("srun", "mpirun") and not re.search(rf"{TRAINS}|python|bash|\$", " ".join(words[1:])):
        return 0
    return SURE if starts(name) else 0


def _parts(word: str, facts: Facts) -> list[str]:
    """A word with its variables put in; one that is a variable of several arguments, as those."""
    if match := _ALL.fullmatch(word):
        return shlex.split(facts.env.get(ALL, ""))[max(int(match.group(1) or 1) - 1, 0) :]
    made = expanded(word, facts)
    several = word.startswith(f"${ELEMENTS}") or re.match(r"\s*[\"']?-", made)
    if made == word or not _SHELL_VARIABLE.fullmatch(word) or not several:
        return [made]
    return [part for found in words_of(made) for part in (found.split() if found.startswith("--") else [found])]


def expanded(word: str, facts: Facts) -> str:
    """A word with the variables that stand before the command, and with defaults that it gives itself."""
    room = MAX_LENGTH

    def one(match: re.Match[str]) -> str:
        nonlocal room
        name = (match.group(1) or match.group(3)).removeprefix(ELEMENTS)
        made = facts.env.get(name, match.group().replace(ELEMENTS, "", 1) if match.group(2) is None else match.group(2))
        room -= len(made)
        if room < 0:
            raise InputError(f"${name} makes a word of more than {MAX_LENGTH:,} characters", where="command")
        return made

    for _ in range(MAX_DEPTH if "${oc." not in word else 0):
        before, word = word, _SHELL_VARIABLE.sub(one, word)
        word = worked_out(word)
        if word == before:
            break
    return worked_out(word, otherwise=FOUND_AT_LAUNCH)


__all__ = ["ALL", "ELEMENTS", "FOUND_AT_LAUNCH", "MAX_DEPTH", "expanded", "launching", "words_of"]
