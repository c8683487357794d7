"""A server that generates for training: its own copy of the weights, its share of the card, and what it gives back while others work."""

from __future__ import annotations

from typing import Any

from memcalc.engine.walk import Reason, Snapshot
from memcalc.errors import InputError
from memcalc.specs.job import Job
from memcalc.specs.read import Layer, merged
from memcalc.specs.run import Run

SERVERS = ("vllm", "sglang")
ELSEWHERE = "h100-80g"
"""A card for a server on others, which are not named: nothing of it is counted on those that train."""
NAME = "rollout"
"""Of the server among the roles."""


def server_of(run: Run, seq_len: int) -> Job | None:
    """The server as a job of its own, told what stands under ``serving``; None where the actor's own modules generate.

    Raises:
        InputError: no card is named, of which it could take a share.
    """
    asked = run.rollout
    if asked.engine not in SERVERS:
        return None
    from memcalc.engine.resolve import resolve

    share = "gpu_memory_utilization" if asked.engine == "vllm" else "mem_fraction_static"
    serving: dict[str, Any] = {"max_model_len": seq_len, **run.serving.model_dump(exclude_unset=True)}
    if asked.gpu_memory_utilization is not None:
        serving[share] = asked.gpu_memory_utilization
    gpu = run.hardware.gpu or (ELSEWHERE if asked.cards == "other" else None)
    data: dict[str, Any] = {
        "model": run.model,
        "task": "inference",
        "code": asked.engine,
        "dtype": run.autocast or (run.dtype if run.dtype in ("bfloat16", "float16") else "bfloat16"),
        "serving": serving,
        "sharding": {"tp": asked.tensor_parallel_size},
        "hardware": {"gpu": gpu, "gpus": asked.tensor_parallel_size},
    }
    if gpu is None:
        raise InputError(f"{asked.engine} takes a share of a card, and none is named: give --gpu (`memcalc gpus` lists them)", where="hardware.gpu")
    return resolve(merged([Layer(data)]))


def refuse_knobs(run: Run, *, engine: str) -> None:
    """Say no to what only servers have where none generates.

    Raises:
        InputError: such a key was given.
    """
    if engine not in SERVERS:
        for key in sorted(run.serving.model_fields_set):
            raise InputError(f"rollout.engine {engine} is told nothing so; vllm and sglang are", where=f"serving.{key}")
        for key in ("gpu_memory_utilization", "sleep_level", "tensor_parallel_size", "bucket_mb"):
            if key in run.rollout.model_fields_set:
                raise InputError(f"rollout.engine {engine} has no such knob; vllm and sglang have", where=f"rollout.{key}")


class Server:
    """It on the card that trains.

    Args:
        job: as a job of its own.
        sleep_level: what it gives back between rollouts.

    Attributes:
        awake: all that it has while it generates.
        asleep: what of that stays while others work.
        weights: its copy.
        refusal: why it would not start; empty where it would.
        reasons: of its terms, by path.
    """

    def __init__(self, job: Job, *, sleep_level: int) -> None:
        from memcalc.engine.serving import serve

        answer = serve(job)
        self.refusal = answer.verdict.refusal if answer.verdict is not None else ""
        terms = answer.most_loaded.instants[1].terms
        self.reasons = {f"{NAME}/{t.path}": Reason(t.formula, t.inputs or {}, t.source) for t in terms}
        paths: dict[str, int] = {}
        for term in terms:
            paths[f"{NAME}/{term.path}"] = paths.get(f"{NAME}/{term.path}", 0) + term.bytes
        self.awake = _of(paths)
        self.weights = _of({path: n for path, n in paths.items() if path.startswith(f"{NAME}/weights/")})
        self.asleep = _of({path: n for path, n in paths.items() if _stays(path, sleep_level)})
        self.on_host = self.weights.total if sleep_level == 1 else 0


def refusal_of(job: Job) -> str:
    """Why the server that shares the card would not start; empty where it would, or stands elsewhere."""
    cast = job.cast
    if cast is None or cast.server is None or cast.run.rollout.cards != "same":
        return ""
    return Server(cast.server, sleep_level=0).refusal


def _stays(path: str, level: int) -> bool:
    """Asleep it holds its CUDA graphs in any case (vllm/device_allocator/cumem.py: weights and cache are what is tagged)."""
    kept = path.startswith((f"{NAME}/weights/", f"{NAME}/kv_cache/")) and level > 0
    return not kept and not path.startswith(f"{NAME}/activations/")


def _of(paths: dict[str, int]) -> Snapshot:
    return Snapshot(sum(paths.values()), paths)
