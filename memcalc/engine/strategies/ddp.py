"""One card, or replicas of it under DistributedDataParallel."""

from __future__ import annotations

from memcalc.engine.strategies.base import Strategy


class Engine(Strategy):
    """Everything whole on every rank."""
