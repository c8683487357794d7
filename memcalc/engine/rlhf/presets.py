"""What frameworks do where a run leaves it open."""

from __future__ import annotations

from memcalc.specs.run import Run


def with_preset(run: Run) -> tuple[Run, list[str]]:
    """The run with the defaults of the framework that it names, and what was assumed."""
    return run, []
