"""Who is asked how much memory is in use: the card's allocator; on a CPU, which has none that counts, a count of tensors, or the process."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Protocol

from memcalc.whatif.storages import Storages

if TYPE_CHECKING:
    from typing_extensions import Self


class Counter(Protocol):
    """A source of readings, in bytes.

    Attributes:
        name: of what is read.
        is_card: whether it is a card's.
        counts_tensors: whether it reads what estimates are of.
    """

    name: str
    is_card: bool
    counts_tensors: bool

    def allocated(self) -> int:
        """In tensors, now."""

    def reserved(self) -> int:
        """By the allocator, at most since the last reset."""

    def peak(self) -> int:
        """In tensors, at most since the last reset."""

    def outside(self) -> int:
        """Used on the card and not reserved."""

    def reset(self) -> None:
        """Peaks begin anew."""


class Card:
    """torch's allocator of one card, under CUDA, ROCm, XPU or NPU.

    Args:
        module: ``torch.cuda`` or what has its functions.
        device: the card.
    """

    is_card = True
    counts_tensors = True

    def __init__(self, module: Any, device: Any) -> None:
        self.module, self.device = module, device
        self.name = str(module.get_device_name(device))

    def allocated(self) -> int:
        """``memory_allocated``."""
        return int(self.module.memory_allocated(self.device))

    def reserved(self) -> int:
        """``max_memory_reserved``."""
        return int(self.module.max_memory_reserved(self.device))

    def peak(self) -> int:
        """``max_memory_allocated``."""
        return int(self.module.max_memory_allocated(self.device))

    def outside(self) -> int:
        """By the driver's count, less ``memory_reserved``."""
        free, total = self.module.mem_get_info(self.device)
        return max(int(total) - int(free) - int(self.module.memory_reserved(self.device)), 0)

    def reset(self) -> None:
        """``reset_peak_memory_stats``."""
        self.module.reset_peak_memory_stats(self.device)


class Tensors:
    """Every storage that torch makes while the counter is entered, as `memcalc trace` counts them: exact, and slower than a loop without.

    Args:
        model: whose parameters and buffers are there already.
    """

    is_card = False
    counts_tensors = True
    name = "tensors on the CPU"

    def __init__(self, model: Any) -> None:
        self._storages = Storages()
        self._context = ExitStack()
        for tensor in (*model.parameters(), *model.buffers()):
            self._storages.see(tensor)

    def __enter__(self) -> Self:
        """Operators are seen."""
        self._context.enter_context(self._storages.counting())
        return self

    def __exit__(self, *_: object) -> None:
        """They are no more."""
        self._context.close()

    def allocated(self) -> int:
        """Alive now."""
        return self._storages.now

    def reserved(self) -> int:
        """The same as the peak: there is no allocator between."""
        return self._storages.peak

    def peak(self) -> int:
        """Alive at most."""
        return self._storages.peak

    def outside(self) -> int:
        """Nothing."""
        return 0

    def reset(self) -> None:
        """From what is alive now."""
        self._storages.mark()


class Process:
    """The process's resident memory: costs nothing, and shows where in a step memory rises, not what a card would hold."""

    is_card = False
    counts_tensors = False
    name = "this process (resident memory)"

    def __init__(self) -> None:
        self._peak = 0

    def allocated(self) -> int:
        """Resident now; the most so far where the system does not tell."""
        now = _resident()
        self._peak = max(self._peak, now)
        return now

    def reserved(self) -> int:
        """The same as the peak."""
        return self.peak()

    def peak(self) -> int:
        """The most of what was read since the last reset."""
        self.allocated()
        return self._peak

    def outside(self) -> int:
        """Nothing."""
        return 0

    def reset(self) -> None:
        """From what is resident now."""
        self._peak = _resident()


def counter_for(model: Any) -> Counter:
    """The counter of the device that a model is on."""
    import torch

    device = next(model.parameters()).device
    if device.type == "cpu":
        return Tensors(model)
    module = getattr(torch, device.type, None)
    return Card(module, device) if hasattr(module, "max_memory_allocated") else Process()


def _resident() -> int:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 (read at every step)
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
