"""What stands before the program of a command: variables, ``sudo``, ``uv run``, ``srun``, containers, ``bash -c '…'``. It is read, never run."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Sequence

from memcalc.errors import InputError
from memcalc.importers.argv import Words, is_flag, leading, variables
from memcalc.importers.facts import Facts, Link
from memcalc.importers.links import located
from memcalc.importers.rules import names
from memcalc.importers.shell import ALL, MAX_DEPTH, expanded, launching, words_of
from memcalc.specs.files import read_text

PROGRAM = re.compile(
    r"python[\d.]*(\.exe)?|torchrun|deepspeed|accelerate|llamafactory-cli|axolotl|swift|megatron|tune|vllm|sglang|trtllm-serve|llama-server|llama-cli"
    r"|trl|litgpt|automodel|\S+\.py|bash|sh|zsh"
)
"""What a job starter or a container is looked through for."""

NOTHING = ("\\", "\\\n", "...", "…")
"""Words that are left over from a document."""
DOCKER = frozenset(names("d i t it ti itd dit rm privileged init detach interactive tty read_only P publish_all q"))
SLURM = frozenset(names("l label K exclusive pty u unbuffered no_container_mount_home oversubscribe s"))
IMAGES = ((r"vllm-openai", ("vllm", "serve")), (r"llama\.cpp:.*server", ("llama-server",)))
"""Images by what they start when only arguments stand behind them."""

_CONDITION = re.compile(r"^\s*(?:if|case|elif)\b", re.MULTILINE)


def unwrapped(facts: Facts, argv: Sequence[str]) -> list[str]:
    """The words from the program on that trains or serves; variables that are set before it are put into the facts.

    Raises:
        InputError: there is none, or a shell script that is not there.
    """
    words = words_of(argv[0]) if len(argv) == 1 and re.search(r"\s", argv[0].strip()) else argv
    words = [word for word in words if word.strip() and word not in NOTHING]
    for _ in range(MAX_DEPTH):
        words = launching(facts, words, starts=_starts)
        if not words:
            raise InputError("no program stands in the command", where="command")
        opened = _opened(facts, words)
        if opened is None:
            return words
        words = opened
    raise InputError(f"is wrapped more than {MAX_DEPTH} times", where="command")


def _starts(name: str) -> bool:
    return name in WRAPPERS or PROGRAM.fullmatch(name) is not None


def _opened(facts: Facts, words: list[str]) -> list[str] | None:
    """What the first word starts; None where it starts nothing else."""
    name = words[0].replace("\\", "/").rpartition("/")[2].lower()
    if name in WRAPPERS:
        return WRAPPERS[name](facts, words[1:])
    if name in SHELLS or name.endswith(".sh"):
        return _shell(facts, words)
    if name.startswith("python") and "--" in words[:-1] and (rest := words[words.index("--") + 1 :])[0] in LAUNCHERS:
        facts.assumed.append(f"{words[1]}: starts what stands behind --")
        return rest
    return None


def _shell(facts: Facts, words: list[str]) -> list[str]:
    """What stands behind ``-c``, or in a script: its variables and the first launch in it. No condition and no loop of it is followed.

    Raises:
        InputError: neither is there.
    """
    rest = words if words[0].endswith(".sh") else words[1:]
    while rest and is_flag(rest[0]):
        if re.fullmatch(r"-[a-z]*c", rest[0]) and len(rest) > 1:
            return words_of(rest[1])
        rest = rest[1:]
    given = facts.given.get(os.path.basename(rest[0])) if rest else None  # noqa: PTH119
    path = given or (located(Link(rest[0], "command", ".")) if rest else None)
    if path is None:
        raise InputError(f"{' '.join(words[:2])[:80]}: no such script here; give it from its folder, or the launch that it runs", where="command")
    text = read_text(path, what="script")
    arguments = {ALL: shlex.join(rest[1:]), **{str(at): value for at, value in enumerate(rest[1:], 1)}}
    facts.env = {**facts.env, "SCRIPT_FOLDER": path.rpartition("/")[0] or ".", **arguments}
    if _CONDITION.search(text):
        facts.unused.append(f"{path}: its conditions are not followed; of values that are set twice the later one is taken")
    facts.files.append((path, "shell script"))
    return words_of(text)


def _found(facts: Facts, words: list[str], *, name: str) -> list[str]:
    """From the first word that is a known program."""
    for at, word in enumerate(words):
        first, _, more = word.partition(" ")
        if PROGRAM.fullmatch(first.rpartition("/")[2].lower()) and (at == 0 or words[at - 1] not in NAMING):
            if name in STARTERS:
                facts.assumed.append(f"{name}: what it starts is counted on the cards that the rest of the command names")
            return [*(words_of(word) if more else [word]), *words[at + 1 :]]
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
            rest = [expanded(word, facts) for word in rest]
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
    **{name: _behind(name) for name in ("timeout", "stdbuf", "setsid", "unbuffer", "nsys", "ncu", "apptainer", "singularity", "enroot", "pipenv", "coverage")},
    **{name: _separated(name) for name in ("ray", "kubectl", "sky")},
    "srun": _tasks("srun", each=("ntasks_per_node",), total=("n", "ntasks"), nodes=("N", "nodes")),
    **{name: _tasks(name, each=("N", "npernode", "ppn"), total=("n", "np"), nodes=("nnodes",)) for name in ("mpirun", "mpiexec")},
    "docker": _docker,
    "podman": _docker,
    "nerdctl": _docker,
}
"""Programs that start another one."""

__all__ = ["unwrapped"]
