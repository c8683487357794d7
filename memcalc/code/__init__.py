"""Whose modules run: for each kind of component, the operators that its code calls, in their order.

A folder per implementation (``transformers``, ``megatron``, …); a file per topic in it. A program is registered for its
component with `runs`; `Context.run` finds it. Programs are found by discovery: a new file needs no list.
"""

from memcalc.code.context import Context, Settings, runs

__all__ = ["Context", "Settings", "runs"]
