"""Libraries that take memory of the card beside torch's allocator, and say that there is none left."""

from __future__ import annotations

import re

from memcalc.whatif.diagnose.message import Message

WORDS = ("STATUS_ALLOC_FAILED", "STATUS_NOT_INITIALIZED", "NCCL WARN")
MARK = r"CU(?:BLAS|DNN|SOLVER|SPARSE)_STATUS_(?:ALLOC_FAILED|NOT_INITIALIZED)|HIPBLAS_STATUS_ALLOC_FAILED|NCCL WARN .*out of memory"

FAILED = re.compile(
    r"(?P<name>(?:CUBLAS|CUDNN|CUSOLVER|CUSPARSE|HIPBLAS)_STATUS_(?:ALLOC_FAILED|NOT_INITIALIZED)|NCCL WARN .*out of memory)(?: when calling `(?P<call>\w+))?"
)
LIBRARIES = {"CUBLAS": "cuBLAS", "CUDNN": "cuDNN", "CUSOLV": "cuSOLVER", "CUSPAR": "cuSPARSE", "HIPBLA": "hipBLAS", "NCCL W": "NCCL"}


def parse(text: str) -> Message | None:
    """The message, where the text has one."""
    found = FAILED.search(text)
    if found is None:
        return None
    name = next(library for start, library in LIBRARIES.items() if found["name"].startswith(start))
    return Message("library", name)
