"""A run traced on the model's real code, without data or GPU, so that an estimate can be checked on any model that transformers knows.

The code runs under ``FakeTensorMode``: every tensor has a shape and a dtype but no data. What is counted is what a caching allocator would be
asked for: no rounding, no fragmentation, no CUDA context. CPU kernels stand for a GPU's, which matters where they save other tensors.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

from memcalc.engine.result import Estimate
from memcalc.errors import InputError, MemcalcError, extra
from memcalc.specs.run import Run
from memcalc.whatif.real_model import build, check, device_mesh, patched
from memcalc.whatif.storages import Holding, Storages

STEPS = 3
"""The first creates optimizer states, the second is measured, the third is watched to see who is alive at the peak."""


class Trace(NamedTuple):
    """What the real code did.

    Attributes:
        num_params, num_trainable: elements of the model's parameters.
        instants: bytes at each instant, under the names that an estimate has.
        peak: the instant with the most.
        holdings: who was alive then.
    """

    num_params: int
    num_trainable: int
    instants: dict[str, int]
    peak: str
    holdings: list[Holding]


class Agreement(NamedTuple):
    """An estimate beside a trace.

    Attributes:
        estimate: None where memcalc has no formulas for the model.
        why_none: what it said instead.
        trace: what the real code did.
    """

    estimate: Estimate | None
    why_none: str
    trace: Trace

    def rows(self) -> list[tuple[str, int | None, int, float | None]]:
        """Instant, estimated bytes, traced bytes, signed error as a share."""
        found = []
        ours = {i.name: i.allocated_bytes for i in self.estimate.most_loaded.instants} if self.estimate else {}
        for name, real in self.trace.instants.items():
            mine = ours.get(name)
            found.append((name, mine, real, None if mine is None else mine / real - 1))
        return found


def agreement(run: Run) -> Agreement:
    """Trace a run and estimate it.

    Raises:
        MissingExtraError: torch is not installed.
        InputError: the run cannot be, or holds what tracing does not cover.
    """
    from memcalc.engine.estimate import estimate

    traced = trace(run)
    try:
        return Agreement(estimate(run), "", traced)
    except InputError as error:
        return Agreement(None, str(error), traced)


def trace(run: Run) -> Trace:
    """Trace a run; errors as for `agreement`."""
    require_torch()
    check(run)
    import torch

    storages = Storages()
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, run.dtype))
    try:
        with patched(), device_mesh(run) as mesh, _without_data(storages):
            real = build(run, mesh)
            for tensor in (*real.parameters(), *real.buffers()):
                storages.see(tensor)
            gc.collect()
            counts = sum(p.numel() for p in real.parameters()), sum(p.numel() for p in real.parameters() if p.requires_grad)
            instants, peak, holdings = (_infer if run.task == "inference" else _train)(run, real, storages)
    except MemcalcError:
        raise
    except Exception as error:
        raise InputError(f"the model's own code cannot run so: {type(error).__name__}: {error}", where=run.model) from error
    finally:
        torch.set_default_dtype(before)
    return Trace(*counts, instants, peak, holdings)


def require_torch() -> None:
    """Nothing, where torch is installed.

    Raises:
        MissingExtraError: it is not.
    """
    with extra("trace", "tracing a model's real code"):
        import torch  # noqa: F401


# ---------------------------------------------------------------------- inside
@contextmanager
def _without_data(storages: Storages) -> Iterator[None]:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True), storages.resizing(), storages.counting():
        yield


def _batch(run: Run, model: Any) -> Any:
    import torch

    length = run.seq_len
    if length is None:
        config = getattr(model.config, "text_config", model.config)
        length = min(4096, getattr(config, "max_position_embeddings", None) or 4096)
    return torch.randint(0, 100, (run.micro_batch, length))


def _train(run: Run, model: Any, storages: Storages) -> tuple[dict[str, int], str, list[Holding]]:
    optimizer = _optimizer(run, [p for p in model.parameters() if p.requires_grad])
    instants: dict[str, int] = {}
    for i in range(STEPS):
        watching = i == STEPS - 1
        if watching:
            peak = max(instants, key=instants.__getitem__)
            storages.watch(instants[peak])
        seen = _step(run, model, optimizer, storages)
        instants = instants if watching else seen
    return instants, peak, storages.caught()


def _step(run: Run, model: Any, optimizer: Any, storages: Storages) -> dict[str, int]:
    import torch

    gc.collect()
    seen = {"start": storages.now}
    context = torch.autocast("cpu", getattr(torch, run.autocast)) if run.autocast and run.sharding.engine != "fsdp2" else nullcontext()
    for _ in range(min(run.grad_accum, 2)):  # more than two micro-batches repeat the second
        storages.mark()
        ids = _batch(run, model)
        with context:
            out = model(input_ids=ids, labels=ids)
        loss = out.loss
        seen["forward_peak"] = storages.peak
        del out
        seen["forward_end"] = storages.now
        storages.mark()
        loss.backward()
        seen["backward_peak"] = storages.peak
        storages.mark()
        if run.grad_accum > 1:
            del loss, ids
    optimizer.step()
    seen["optimizer_step"] = storages.peak
    optimizer.zero_grad(set_to_none=True)
    return seen


def _infer(run: Run, model: Any, storages: Storages) -> tuple[dict[str, int], str, list[Holding]]:
    import torch

    seen = {"load": storages.now}
    with torch.no_grad():
        for i in range(2):
            if i:
                storages.watch(seen["prefill"])
            storages.mark()
            ids = _batch(run, model)
            out = model(input_ids=ids, use_cache=True, logits_to_keep=1)
            seen["prefill"], seen["decode"] = storages.peak, storages.now - ids.untyped_storage().nbytes()
            del out, ids
            gc.collect()
    return seen, "prefill", storages.caught()


def _optimizer(run: Run, parameters: list[Any]) -> Any:
    import torch

    foreach = run.sharding.tp == 1 if run.optimizer_foreach is None else run.optimizer_foreach  # torch refuses lists that mix DTensors and others
    makers: dict[str, Callable[[], Any]] = {
        "adamw_torch": lambda: torch.optim.AdamW(parameters, foreach=foreach),
        "adamw_torch_fused": lambda: torch.optim.AdamW(parameters, fused=True),
        "sgd": lambda: torch.optim.SGD(parameters, lr=0.1, momentum=run.momentum, foreach=foreach),
    }
    if run.optimizer not in makers:
        raise InputError(f"{run.optimizer} is not traced; trace with one of {', '.join(makers)}", where="optimizer")
    return makers[run.optimizer]()
