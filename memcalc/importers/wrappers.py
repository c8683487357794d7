"""What stands before the program of a command: variables, ``sudo``, ``uv run``, ``srun``, containers, ``bash -c '…'``. It is read, never run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence

from memcalc.errors import InputError
from memcalc.importers.argv import Words, is_flag, leading, variables
from memcalc.importers.facts import Facts
from memcalc.importers.rules import names

PROGRAM = re.compile(
    r"python[\d.]*(\.exe)?|torchrun|deepspeed|accelerate|llamafactory-cli|axolotl|swift|megatron|tune|vllm|sglang|trtllm-serve|llama-server|llama-cli"
    r"|trl|litgpt|automodel|\S+\.py|bash|sh|zsh"
)
"""What a job starter or a container is looked through for."""

PREPARES = frozenset(names("if for while fi done [ [[ cd pip pip3 source . module conda ulimit set echo mkdir hf huggingface-cli wandb sleep git apt apt-get"))
"""Programs that only make ready for the next one of a line."""

ENDS = re.compile(r"\||\|\||&|[12]?>{1,2}.*|&>.*|<{1,3}|<<\S+|2>&1")
"""Where a command's own words end in a line of shell."""

NOTHING = ("\\", "\\\n", "...", "…")
"""Words that are left over from a document."""
DOCKER = frozenset(names("d i t it ti itd dit rm privileged init detach interactive tty read_only P publish_all q"))
SLURM = frozenset(names("l label K exclusive pty u unbuffered no_container_mount_home oversubscribe s"))
IMAGES = ((r"vllm-openai", ("vllm", "serve")), (r"llama\.cpp:.*server", ("llama-server",)))
"""Images by what they start when only arguments stand behind them."""

MAX_DEPTH = 10
"""No honest command is wrapped more often, nor has a longer chain of variables."""
MAX_LENGTH = 100_000
"""Nor has a word more characters."""

_PROMPT = re.compile(r"^\s*(?:[$%>!]+\s*)(?=[A-Za-z_./])", re.MULTILINE)
_REMARK = re.compile(r"(?m)^\s*#.*$|(?<=\s)#[^\n'\"]*$")
_PRODUCT = re.compile(r"\$\(\(\s*(\d{1,6})\s*\*\s*(\d{1,6})\s*\)\)")
_SUBSTITUTION = re.compile(r"\$\([^()]*\)|`[^`]*`")
FOUND_AT_LAUNCH = "$FOUND_AT_LAUNCH"
"""What stands for a word that a shell would run another command for."""
_SHELL_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)(?::?[-=]([^{}]*))?\}|([A-Za-z_]\w*))")


def words_of(text: str) -> list[str]:
    r"""The words of a line of shell, or of several, as a shell would part them; without its remarks and prompts.

    Raises:
        InputError: a quotation does not end.

    >>> words_of("$ torchrun \\\n  train.py  # the main one\n")
    ['torchrun', 'train.py']
    """
    text = re.sub(r"\\[ \t]*\r?\n", " ", _PROMPT.sub("", text))
    text = _SUBSTITUTION.sub(FOUND_AT_LAUNCH, _PRODUCT.sub(lambda match: str(int(match.group(1)) * int(match.group(2))), _REMARK.sub("", text)))
    words: list[str] = []
    open_, problem = "", ""
    for line in text.splitlines():
        open_ = f"{open_}\n{line}" if open_ else line
        try:
            parted = shlex.split(open_)
        except ValueError as error:
            problem = str(error).lower()
            continue
        words += [*([";"] if words and parted else []), *parted]
        open_ = ""
    if open_:
        raise InputError(f"is no line of shell: {problem}", where="command")
    return words


def unwrapped(facts: Facts, argv: Sequence[str]) -> list[str]:
    """The words from the program on that trains or serves; variables that are set before it are put into the facts.

    Raises:
        InputError: there is none, or a shell script, which is not read.
    """
    words = words_of(argv[0]) if len(argv) == 1 and re.search(r"\s", argv[0].strip()) else argv
    words = [word for word in words if word.strip() and word not in NOTHING]
    for _ in range(MAX_DEPTH):
        words = _own(facts, words)
        if not words:
            raise InputError("no program stands in the command", where="command")
        opened = _opened(facts, words)
        if opened is None:
            return words
        words = opened
    raise InputError(f"is wrapped more than {MAX_DEPTH} times", where="command")


def _own(facts: Facts, words: list[str]) -> list[str]:
    """The words of the first part of a line that launches, with the variables of the parts before it."""
    while True:
        env, words = variables(words)
        facts.env = {**facts.env, **env}
        end = next((at for at, word in enumerate(words) if word in ("&&", ";") or (word.endswith(";") and at < len(words) - 1)), None)
        if not words or words[0] not in PREPARES or end is None:
            break
        words = words[end + 1 :]
    if end is not None:
        words = words[: end + 1] if words[end] not in ("&&", ";") else words[:end]
        words[-1] = words[-1].rstrip(";")
    end = next((at for at, word in enumerate(words) if ENDS.fullmatch(word)), len(words))
    return [_expanded(word, facts) for word in words[:end]]


def _expanded(word: str, facts: Facts) -> str:
    """A word with the variables that stand before the command, and with defaults that it gives itself."""

    def one(match: re.Match[str]) -> str:
        name = match.group(1) or match.group(3)
        return facts.env.get(name, match.group() if match.group(2) is None else match.group(2))

    for _ in range(MAX_DEPTH if "${oc." not in word else 0):
        before, word = word, _SHELL_VARIABLE.sub(one, word)
        if word == before or len(word) > MAX_LENGTH:
            break
    return word


def _opened(facts: Facts, words: list[str]) -> list[str] | None:
    """What the first word starts; None where it starts nothing else."""
    name = words[0].replace("\\", "/").rpartition("/")[2].lower()
    if name in WRAPPERS:
        return WRAPPERS[name](facts, words[1:])
    if name in SHELLS or name.endswith(".sh"):
        return _shell(words)
    if name.startswith("python") and "--" in words[:-1] and (rest := words[words.index("--") + 1 :])[0] in LAUNCHERS:
        facts.assumed.append(f"{words[1]}: starts what stands behind --")
        return rest
    return None


def _shell(words: list[str]) -> list[str]:
    for at, word in enumerate(words[:-1]):
        if at and re.fullmatch(r"-[a-z]*c", word):
            return words_of(words[at + 1])
        if at and not is_flag(word):
            break
    raise InputError(f"{words[0]}: a shell script is not read; give the launch command that it runs", where="command")


def _found(facts: Facts, words: list[str], *, name: str) -> list[str]:
    """From the first word that is a known program."""
    for at, word in enumerate(words):
        if PROGRAM.fullmatch(word.rpartition("/")[2].lower()) and (at == 0 or words[at - 1] not in NAMING):
            if name in STARTERS:
                facts.assumed.append(f"{name}: what it starts is counted on the cards that the rest of the command names")
            return words[at:]
    raise InputError(f"no program that is known stands behind {name}", where="command")


NAMING = names("-J --job-name --name -n --env-name -p --prefix --with")
"""Options whose value is a name, and may be that of a program."""


def _behind(name: str) -> Callable[[Facts, list[str]], list[str]]:
    return lambda facts, words: _found(facts, words, name=name)


def _separated(name: str) -> Callable[[Facts, list[str]], list[str]]:
    """Behind ``--``, as ``ray job submit`` and ``kubectl exec`` have it."""
    return lambda facts, words: _found(facts, words[words.index("--") + 1 :] if "--" in words else words, name=name)


def _tasks(name: str, *, each: tuple[str, ...], total: tuple[str, ...], nodes: tuple[str, ...]) -> Callable[[Facts, list[str]], list[str]]:
    """Starters that say how many processes there are: a total, or so many on each of some nodes."""

    def open_(facts: Facts, words: list[str]) -> list[str]:
        rest = _found(facts, words, name=name)
        own, _ = leading(words[: len(words) - len(rest)], switches=SLURM)
        counts = {key: _digits(own, found) for key, found in (("each", each), ("total", total), ("nodes", nodes))}
        if counts["nodes"]:
            facts.env = {"SLURM_NNODES": str(counts["nodes"]), "SLURM_JOB_NUM_NODES": str(counts["nodes"]), **facts.env}
            rest = [_expanded(word, facts) for word in rest]
        processes = counts["total"] or (counts["each"] or 0) * (counts["nodes"] or 1)
        if processes:
            facts.put("~started", processes, name)
        return rest

    return open_


def _digits(own: Words, keys: Sequence[str]) -> int | None:
    value = str(own.get(*keys))
    return int(value) if value.isdigit() and int(value) else None


def _docker(facts: Facts, words: list[str]) -> list[str]:
    """``docker run … image words``: the words, or what the image is known to start with them."""
    if words[:1] not in (["run"], ["exec"]):
        raise InputError("docker: docker run was expected", where="command")
    own, rest = leading(words[1:], switches=DOCKER)
    set_here, _ = variables([value for key, value, _ in own.given if key in ("e", "env") and isinstance(value, str)])
    facts.env = {**facts.env, **set_here}
    if not rest:
        raise InputError("docker: no image stands in the command", where="command")
    image, rest = rest[0], rest[1:]
    entry = own.get("entrypoint")
    if isinstance(entry, str) and entry:
        return [entry, *rest]
    known = next((program for pattern, program in IMAGES if re.search(pattern, image)), None)
    if known is not None and words[0] == "run" and not (rest and PROGRAM.fullmatch(rest[0].rpartition("/")[2])):
        return [*known, *rest]
    return _found(facts, rest, name=f"docker {words[0]} {image}")


LAUNCHERS = ("accelerate", "torchrun", "deepspeed", "python", "python3", "uv", "bash")
"""What a script that submits a job has behind ``--``."""
SHELLS = ("bash", "sh", "zsh", "dash", "sbatch")
STARTERS = ("srun", "mpirun", "mpiexec", "ray", "numactl")
WRAPPERS: dict[str, Callable[[Facts, list[str]], list[str]]] = {
    **{name: _behind(name) for name in ("numactl", "uv", "poetry", "pixi", "pdm", "hatch", "conda", "mamba", "micromamba", "nice", "ionice", "taskset")},
    **{name: _behind(name) for name in ("timeout", "stdbuf", "setsid", "unbuffer", "nsys", "ncu", "apptainer", "singularity", "enroot", "pipenv")},
    **{name: _separated(name) for name in ("ray", "kubectl", "sky")},
    "srun": _tasks("srun", each=("ntasks_per_node",), total=("n", "ntasks"), nodes=("N", "nodes")),
    **{name: _tasks(name, each=("N", "npernode", "ppn"), total=("n", "np"), nodes=("nnodes",)) for name in ("mpirun", "mpiexec")},
    "docker": _docker,
    "podman": _docker,
    "nerdctl": _docker,
}
"""Programs that start another one."""

__all__ = ["unwrapped", "words_of"]
