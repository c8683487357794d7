"""A callback for transformers' Trainer."""

from __future__ import annotations

from typing import Any

from memcalc.watch.session import Watch, needs_torch


def callback(**options: Any) -> Any:
    """A ``TrainerCallback`` that watches the training it is given to.

    Args:
        options: as of `Watch`: run, sinks, every, band, layers, calibration.

    Raises:
        MissingExtraError: torch is not installed.
    """
    needs_torch()
    from transformers import TrainerCallback

    class WatchCallback(TrainerCallback):  # type: ignore[misc]
        """Opens a watch when training begins, and closes it when it ends."""

        watch: Watch | None = None

        def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **others: Any) -> None:  # noqa: ARG002
            """The model is there; the optimizer may be made later."""
            self.watch = Watch(model, **options).__enter__()

        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **others: Any) -> None:  # noqa: ARG002
            """Gradients are there, and clipped."""
            if self.watch is not None:
                self.watch.before_optimizer()

        def on_optimizer_step(self, args: Any, state: Any, control: Any, **others: Any) -> None:  # noqa: ARG002
            """The optimizer has stepped, gradients are still there."""
            if self.watch is not None:
                self.watch.after_optimizer()

        def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:  # noqa: ARG002
            """All of it is over."""
            if self.watch is not None:
                self.watch.step()

        def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:  # noqa: ARG002
            """Hooks are taken away."""
            if self.watch is not None:
                self.watch.__exit__(None, None, None)
                self.watch = None

    return WatchCallback()
