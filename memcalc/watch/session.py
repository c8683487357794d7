"""A context manager around a training loop: reads memory at the estimate's instants, and a few numbers of each layer."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from memcalc.errors import InputError, extra
from memcalc.specs.run import Run
from memcalc.watch.alarms import BAND, Alarms
from memcalc.watch.counters import Counter, Tensors, counter_for
from memcalc.watch.record import Reading, Record
from memcalc.watch.sinks import Sink, Stdout
from memcalc.watch.statistics import Statistics
from memcalc.whatif.calibration import Calibration

if TYPE_CHECKING:
    from typing_extensions import Self

    from memcalc.engine.result import Estimate

AFTER_STEPS = 3
"""Steps after which what cannot be derived is settled: states are there, segments for all sizes of a step, too."""

ORDER = ("start", "forward_peak", "backward_peak", "optimizer_step", "evaluation")
"""Instants that can be read from outside: the end of forward, when its output has been let go, is the caller's."""


class Watch:
    """Watches a loop.

    Args:
        model: the torch module that is trained.
        optimizer: steps it; without it the optimizer's step is part of what follows backward.
        run: a run, its keys, or the path of a run file: its estimate stands beside every reading.
        sinks: where records go; stdout by default.
        every: log each so many steps; what is peculiar is logged at once.
        band: the share by which a reading may differ from the estimate before it is said.
        layers: look at gradients and activations, too.
        calibration: a file to write after a few steps on a card.
        counter: who counts; by default the card's allocator, or of a model on the CPU all tensors.

    Raises:
        MissingExtraError: torch is not installed.
        InputError: a calibration of what is no card.

    Example:
        >>> with Watch(model, optimizer, run="run.yaml") as watch:  # doctest: +SKIP
        ...     for batch in loader:
        ...         model(**batch).loss.backward()
        ...         optimizer.step()
        ...         optimizer.zero_grad()
        ...         watch.step()
    """

    def __init__(
        self,
        model: Any,
        optimizer: Any = None,
        *,
        run: Run | Mapping[str, Any] | str | os.PathLike[str] | None = None,
        sinks: Sequence[Sink] | None = None,
        every: int = 1,
        band: float = BAND,
        layers: bool = True,
        calibration: str | os.PathLike[str] | None = None,
        counter: Counter | None = None,
    ) -> None:
        needs_torch()
        self.model, self.optimizer, self.every, self.calibration = model, optimizer, every, calibration
        self.estimate = _estimate_of(run)
        self.sinks: Sequence[Sink] = [Stdout()] if sinks is None else sinks
        self.counter = counter if counter is not None else counter_for(model)
        self.expected = expected = {i.name: i.allocated_bytes for i in self.estimate.most_loaded.instants} if self.estimate is not None else {}
        self.alarms = Alarms(expected if self.counter.counts_tensors else {}, band=band)
        if calibration is not None and not self.counter.is_card:
            raise InputError(f"is of a card; here {self.counter.name} are counted", where="calibration")
        self.num_steps, self._top, self._held = 0, 0, 0
        self.statistics = Statistics(model) if layers else None
        self._handles: list[Any] = []
        self._now: dict[str, Reading] = {}

    # ------------------------------------------------------------------ as a context
    def __enter__(self) -> Self:
        """Hooks are set."""
        self._handles = [self.model.register_forward_pre_hook(self._begins), self.model.register_forward_hook(self._is_forward)]
        if self.optimizer is not None:
            self._handles.append(self.optimizer.register_step_pre_hook(lambda *_: self.before_optimizer()))
            self._handles.append(self.optimizer.register_step_post_hook(lambda *_: self.after_optimizer()))
        if isinstance(self.counter, Tensors):
            self.counter.__enter__()
        self.counter.reset()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Hooks are taken away; of a step that died what was read is still told."""
        if error is not None and self._now:
            self._emit(self._record())
        for handle in self._handles:
            handle.remove()
        if self.statistics is not None:
            self.statistics.remove()
        if isinstance(self.counter, Tensors):
            self.counter.__exit__()
        for sink in self.sinks:
            sink.close()

    def before_optimizer(self) -> None:
        """Gradients are there; an optimizer that was given says so itself."""
        self._mark("backward_peak", self.counter.peak())

    def after_optimizer(self) -> None:
        """The optimizer has stepped, and gradients are still there."""
        self._mark("optimizer_step", self.counter.peak())

    def step(self) -> Record:
        """The end of a step: what was read since the last one is logged."""
        if "backward_peak" not in self._now:
            self.before_optimizer()
        self.num_steps += 1
        record = self._record()
        if record.warnings or self.num_steps % self.every == 0:
            self._emit(record)
        self._top = max(self._top, *(reading.bytes for reading in record.readings), 0)
        self._held = max(self._held, self.counter.reserved() - self._top)
        if self.calibration is not None and self.num_steps == AFTER_STEPS:
            self.calibrate().write(self.calibration)
        self._now = {}
        self.counter.reset()
        return record

    def calibrate(self) -> Calibration:
        """What has been seen so far of what cannot be derived."""
        unexplained = None if self.estimate is None else self._top - self.estimate.most_loaded.allocated_bytes
        return Calibration(self.counter.name, self.num_steps, self.counter.outside(), max(self._held, 0), unexplained)

    # ------------------------------------------------------------------ hooks
    def _begins(self, model: Any, _: Any) -> None:
        if model.training and "start" not in self._now:
            self._mark("start", self.counter.allocated())
        self.counter.reset()

    def _is_forward(self, model: Any, _inputs: Any, _output: Any) -> None:
        if not model.training:
            self._mark("evaluation", self.counter.peak())
            return
        self._mark("forward_peak", self.counter.peak())

    def _mark(self, name: str, num_bytes: int) -> None:
        """Of several micro-batches the highest counts."""
        before = self._now.get(name)
        most = num_bytes if before is None else max(before.bytes, num_bytes)
        self._now[name] = Reading(name, most, self.counter.reserved(), self.expected.get(name))
        if name != "start":
            self.counter.reset()

    # ------------------------------------------------------------------ records
    def _record(self) -> Record:
        norms, maxima = self.statistics.collect() if self.statistics is not None else ({}, {})
        readings = tuple(self._now[name] for name in ORDER if name in self._now)
        warnings = [
            *self.alarms.of_statistics("gradient norm", norms),
            *self.alarms.of_statistics("activation maximum", maxima),
            *self.alarms.of_memory({reading.name: reading.bytes for reading in readings}, first=self.num_steps <= 1),
        ]
        return Record(self.num_steps, self.counter.name, readings, norms, maxima, tuple(warnings))

    def _emit(self, record: Record) -> None:
        for sink in self.sinks:
            sink.write(record)


def needs_torch() -> None:
    """See that torch is there.

    Raises:
        MissingExtraError: it is not.
    """
    with extra("watch", "watching a run"):
        import torch  # noqa: F401


def _estimate_of(run: Run | Mapping[str, Any] | str | os.PathLike[str] | None) -> Estimate | None:
    if run is None:
        return None
    from memcalc.engine.estimate import estimate
    from memcalc.specs.read import read_run

    return estimate(read_run(run))
