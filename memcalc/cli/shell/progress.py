"""A bar on stderr for work that takes over a second; nothing where nobody looks at it."""

from __future__ import annotations

import sys
import time

AFTER_SECONDS, EVERY_SECONDS, WIDTH = 1.0, 0.1, 30


class Progress:
    """Counts what is done, and shows it on a terminal.

    Args:
        total: how much there is to do.
        what: in one word, plural.
        quiet: show nothing.
    """

    def __init__(self, total: int, *, what: str, quiet: bool = False) -> None:
        self.total, self.what, self.done = total, what, 0
        self._shown = False
        self._next = time.monotonic() + AFTER_SECONDS
        self._on = not quiet and sys.stderr.isatty()

    def __call__(self, more: int) -> None:
        """So much more is done."""
        self.done += more
        now = time.monotonic()
        if not self._on or now < self._next:
            return
        self._next, self._shown = now + EVERY_SECONDS, True
        share = min(1.0, self.done / max(self.total, 1))
        filled = "█" * round(share * WIDTH)
        sys.stderr.write(f"\r{filled:·<{WIDTH}} {share:4.0%} of {self.total:,} {self.what}")
        sys.stderr.flush()

    def end(self) -> None:
        """Take the bar away."""
        if self._shown:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
