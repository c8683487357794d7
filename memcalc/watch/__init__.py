"""Watching a run: its memory beside the estimate's instants, the sizes of its gradients and activations, warnings before it dies.

>>> from memcalc.watch import Watch, callback

`Watch` is a context manager for a loop of one's own, `callback` makes one for transformers' Trainer. Both need torch where they are used, which
the extra ``watch`` installs; nothing of it is imported before.
"""

from __future__ import annotations

from memcalc.watch.callback import callback
from memcalc.watch.session import Watch
from memcalc.watch.sinks import JsonLines, Stdout, TensorBoard

__all__ = ["JsonLines", "Stdout", "TensorBoard", "Watch", "callback"]
