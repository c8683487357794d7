"""Files that start containers: the launch in a compose file's services, or in a Kubernetes manifest's containers. Nothing is started."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from memcalc.errors import InputError
from memcalc.importers.facts import Facts
from memcalc.importers.shell import words_of
from memcalc.importers.source import Source
from memcalc.importers.wrappers import unwrapped

MAX_NODES = 10_000
"""No honest file has more maps and lists."""

LAUNCHES = re.compile(r"\b(vllm|sglang|trtllm|llama-server|llama-cli|llamafactory|torchrun|accelerate|deepspeed|axolotl|swift|megatron|tune|litgpt|trl)\b")
"""What tells a launch from another program that Python runs."""

_OF_THE_POD = re.compile(r"\$\(([A-Za-z_]\w*)\)")


class Container(NamedTuple):
    """One container.

    Attributes:
        name: of the service, or the container.
        argv: as a command line starts it, variables in front.
    """

    name: str
    argv: list[str]


def holds(data: Mapping[str, Any]) -> bool:
    """Whether a file is a compose file or a manifest."""
    if isinstance(data.get("services"), Mapping):
        return any(isinstance(one, Mapping) and {"image", "build", "command"} & set(one) for one in data["services"].values())
    return "kind" in data and "apiVersion" in data


def title(data: Mapping[str, Any]) -> str:
    """What messages call such a file."""
    return "a compose file" if "services" in data else "a Kubernetes manifest"


def launch_in(source: Source) -> list[str]:
    """The only launch in such a file, as a command line.

    Raises:
        InputError: there is none, or several.
    """
    found = [one for one in containers(source.data) if _launches(one)]
    if len(found) != 1:
        several = f"starts {', '.join(one.name for one in found)[:200]}: leave one of them" if found else "starts no launch that memcalc knows"
        raise InputError(several, where=source.name)
    return found[0].argv


def containers(data: Mapping[str, Any]) -> list[Container]:
    """All that a file starts.

    >>> containers({"services": {"llm": {"image": "vllm/vllm-openai", "command": "--model gpt2"}}})
    [Container(name='llm', argv=['docker', 'run', 'vllm/vllm-openai', '--model', 'gpt2'])]
    """
    services = data.get("services")
    if isinstance(services, Mapping):
        return [_service(str(name), one) for name, one in services.items() if isinstance(one, Mapping)]
    return [_of_pod(one) for one in _listed(data)]


# ---------------------------------------------------------------------- inside
def _service(name: str, one: Mapping[str, Any]) -> Container:
    words = [*_words(one.get("entrypoint")), *_words(one.get("command"))]
    return Container(name, [*_variables(one.get("environment")), *_started(one, words, whole=bool(one.get("entrypoint")))])


def _of_pod(one: Mapping[str, Any]) -> Container:
    words = [_OF_THE_POD.sub(r"${\1}", str(word)) for key in ("command", "args") for word in _items(one.get(key))]
    return Container(str(one.get("name", "container")), [*_variables(one.get("env")), *_started(one, words, whole=bool(one.get("command")))])


def _started(one: Mapping[str, Any], words: list[str], *, whole: bool) -> list[str]:
    """Words behind what the image starts, where they do not name the program themselves."""
    return words if whole else ["docker", "run", str(one.get("image", "image")), *words]


def _words(value: Any) -> list[str]:
    """A command as a list, or as one line."""
    words = words_of(" ".join(value.split())) if isinstance(value, str) else [str(word) for word in _items(value)]
    return [word.replace("$$", "$") for word in words]


def _items(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else []


def _variables(value: Any) -> list[str]:
    """``{A: b}``, ``[A=b]`` or ``[{name: A, value: b}]`` as words; those without a value are left out."""
    if isinstance(value, Mapping):
        pairs = [(str(key), one) for key, one in value.items()]
    else:
        pairs = [(str(one.get("name")), one.get("value")) if isinstance(one, Mapping) else _pair(str(one)) for one in _items(value)]
    return [f"{name}={one}" for name, one in pairs if one is not None and re.fullmatch(r"[A-Za-z_]\w*", name)]


def _pair(text: str) -> tuple[str, str | None]:
    name, given, value = text.partition("=")
    return name, value if given else None


def _listed(data: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Every container of a pod, however deep its template stands."""
    left: list[Any] = [data]
    for _ in range(MAX_NODES):
        if not left:
            return
        here = left.pop(0)
        if isinstance(here, Mapping):
            yield from (one for one in _items(here.get("containers")) if isinstance(one, Mapping))
            left += [one for key, one in here.items() if key != "containers" and isinstance(one, (Mapping, list))]
        elif isinstance(here, list):
            left += [one for one in here if isinstance(one, (Mapping, list))]


def _launches(one: Container) -> bool:
    try:
        words = unwrapped(Facts(), one.argv)
    except InputError:
        return False
    return any(LAUNCHES.search(word) for word in words[:6])


__all__ = ["Container", "containers", "holds", "launch_in", "title"]
