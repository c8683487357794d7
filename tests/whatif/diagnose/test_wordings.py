# ruff: noqa: E501 (messages as they are printed)
"""Each wording's numbers, read as they are meant."""

from __future__ import annotations

import pytest

from memcalc.engine.result import Serving
from memcalc.engine.serving import refusals
from memcalc.whatif.diagnose import wordings
from memcalc.whatif.diagnose.message import Message

G, M = 2**30, 2**20

LINES = {
    "torch 1.3": (
        "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 11.17 GiB total capacity; 10.77 GiB already allocated; 8.88 MiB free; 71.00 MiB cached)",
        {"kind": "device", "gpu": 0, "wanted": 20 * M, "free": 8.88 * M, "reserved": 71 * M},
    ),
    "torch_npu": (
        (
            "RuntimeError: NPU out of memory. Tried to allocate 260.00 MiB (NPU 0; 28.50 GiB total capacity; 10.24 GiB already allocated; 10.24 GiB current active; "
            "149.57 MiB free; 10.28 GiB reserved in total by PyTorch)"
        ),
        {"kind": "device", "gpu": 0, "wanted": 260 * M, "capacity": 28.5 * G, "reserved": 10.28 * G},
    ),
    "torch 2.6": (
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 79.15 GiB of which 1.25 GiB is free. Process 7 has "
            "10.00 GiB memory in use. Including non-PyTorch memory, this process has 67.90 GiB memory in use. Of the allocated memory 60.00 GiB is allocated by PyTorch, "
            "with 24.00 MiB allocated in private pools (e.g., CUDA Graphs), and 5.50 GiB is reserved by PyTorch but unallocated."
        ),
        {"kind": "device", "gpu": 1, "wanted": 2 * G, "process": 67.9 * G, "allocated": 60 * G, "reserved": 65.5 * G},
    ),
    "torch 2.6 on XPU": (
        (
            "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 7.50 GiB. GPU 0 has a total capacity of 15.91 GiB. Of the allocated memory 9.00 GiB is "
            "allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated."
        ),
        {"kind": "device", "wanted": 7.5 * G, "capacity": 15.91 * G, "reserved": 10 * G, "free": None},
    ),
    "MPS": (
        "RuntimeError: MPS backend out of memory (MPS allocated: 17.00 GB, other allocations: 1.31 GB, max allowed: 18.13 GB). Tried to allocate 256 bytes on private pool.",
        {"kind": "device", "wanted": 256, "capacity": 18.13e9},
    ),
    "XLA": ("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 4294967296 bytes.", {"kind": "device", "wanted": 4 * G}),
    "bare": ("RuntimeError: CUDA error: out of memory", {"kind": "device", "wanted": None}),
    "cuBLAS": ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", {"kind": "library"}),
    "no number of a card": (
        (
            "CUDA out of memory. Tried to allocate 112.00 MiB. GPU  has a total capacity of 23.68 GiB of which 60.31 MiB is free. Including non-PyTorch memory, this "
            "process has 23.61 GiB memory in use. Of the allocated memory 23.15 GiB is allocated by PyTorch, and 64.54 MiB is reserved by PyTorch but unallocated."
        ),
        {"kind": "device", "capacity": 23.68 * G, "allocated": 23.15 * G, "gpu": None},
    ),
    "WSL": (
        (
            "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacty of 24.00 GiB of which 0 bytes is free. Including non-PyTorch memory, this "
            "process has 17179869184.00 GiB memory in use. Process 2954422 has 17179869184.00 GiB memory in use. Of the allocated memory 23.01 GiB is allocated by "
            "PyTorch, and 121.23 MiB is reserved by PyTorch but unallocated."
        ),
        {"kind": "device", "wanted": 20 * 2**20, "allocated": 23.01 * G, "others": (), "process": None},
    ),
    "beyond the card": (
        "CUDA out of memory. Tried to allocate 341.58 GiB (GPU 0; 79.15 GiB total capacity; 5.62 GiB already allocated; 72.91 GiB free; 5.73 GiB reserved in total)",
        {"kind": "device", "wanted": 341.58 * G, "capacity": 79.15 * G},
    ),
    "vLLM, tokens": (
        "ValueError: The model's max seq len (8192) is larger than the maximum number of tokens that can be stored in KV cache (6048). Try increasing …",
        {"kind": "refusal", "tokens": (8192, 6048)},
    ),
    "vLLM, GiB": (
        (
            "ValueError: To serve at least one request with the model's max seq len (131072), (16.00 GiB KV cache is needed, which is larger than the available KV cache "
            "memory (6.91 GiB). Based on the available memory, the estimated maximum model length is 56560."
        ),
        {"kind": "refusal", "wanted": 16 * G, "capacity": 6.91 * G, "tokens": (131072, 56560)},
    ),
    "vLLM, share": (
        "ValueError: Free memory on device cuda:0 (3.21/24.0 GiB) on startup is less than desired GPU memory utilization (0.85, 20.4 GiB). Decrease …",
        {"kind": "refusal", "wanted": 20.4 * G, "free": 3.21 * G, "capacity": 24 * G},
    ),
    "vLLM, sampler": (
        "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests. Please try lowering `max_num_seqs` or …",
        {"kind": "refusal", "wording": "vLLM, in its sampler", "tokens": (1024, 0)},
    ),
    "vLLM, nothing": ("ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`", {"kind": "refusal"}),
    "llama.cpp": (
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 4096.00 MiB on device 1: cudaMalloc failed: out of memory",
        {"kind": "device", "wanted": 4 * G, "gpu": 1},
    ),
    "SGLang": ("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: mem_fraction_static=0.8", {"kind": "refusal"}),
    "the kernel": (
        "[  510.9] Memory cgroup out of memory: Killed process 2343 (python3) total-vm:31763532kB, anon-rss:13928044kB, file-rss:12208kB, shmem-rss:0kB",
        {"kind": "host", "allocated": 13928044 * 1024},
    ),
    "torchrun": ("ERROR:torch.distributed.elastic: failed (exitcode: -9) local_rank: 0 (pid: 77)", {"kind": "host"}),
    "torchrun, newer": ("torch.distributed.elastic: traceback : Signal 9 (SIGKILL) received by PID 4711", {"kind": "host"}),
    "a shell": ("Killed", {"kind": "host"}),
    "TensorRT": (
        "[TRT] [W] Requested amount of GPU memory (13476831488 bytes) could not be allocated. There may not be enough free memory for allocation to succeed.",
        {"kind": "device", "wanted": 13476831488},
    ),
    "TensorRT-LLM": (
        "The following component could not be created: KV cache Total GPU memory (GiB): 140.06 Free GPU memory before component creation attempt (GiB): 108.86",
        {"kind": "device", "wording": "TensorRT-LLM, at its KV cache", "capacity": 140.06 * G, "free": 108.86 * G},
    ),
    "torch under Windows": (
        (
            "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 27.12 GiB. GPU 0 has a total capacty of 11.99 GiB of which 0 bytes is free. Of the "
            "allocated memory 16.16 GiB is allocated by PyTorch, and 144.59 MiB is reserved by PyTorch but unallocated."
        ),
        {"kind": "device", "wanted": 27.12 * G, "free": 0, "allocated": 16.16 * G},
    ),
    "torch on the host": (
        "RuntimeError: [enforce fail at alloc_cpu.cpp:66] . DefaultCPUAllocator: can't allocate memory: you tried to allocate 67108864 bytes. Error code 12",
        {"kind": "host", "wanted": 64 * M},
    ),
    "DeepSpeed": ("MA 0.0 GB         Max_MA 0.0 GB         CA 55.83 GB         Max_CA 56 GB", {"kind": "usage", "reserved": 55.83 * G}),
}


@pytest.mark.parametrize("name", LINES)
def test_a_wording_is_read(name: str) -> None:
    line, expected = LINES[name]
    found = wordings.parse(line)
    assert isinstance(found, Message)
    for field, value in expected.items():
        got = getattr(found, field)
        got = got.bytes if hasattr(got, "half") else got
        assert got == (pytest.approx(value, rel=1e-6) if isinstance(value, float) else value), field


def test_refusals_that_estimates_give_are_read_like_those_of_logs() -> None:
    """`memcalc.engine.serving.refusals` says them in the engines' words."""
    sizes = {"kv_cache_bytes": 5 * G, "sequence_bytes": 16 * G, "max_model_len": 131072, "largest_model_len": 40960}
    serving = Serving(**dict.fromkeys(Serving.__dataclass_fields__, 0) | {"engine": "vllm", **sizes})
    found = wordings.parse(refusals.refusal(serving))
    assert found is not None
    assert (found.kind, found.tokens, found.wanted and found.wanted.bytes) == ("refusal", (131072, 40960), 16 * G)
    shared = wordings.parse(refusals.share(free_bytes=3 * G, total_bytes=24 * G, utilization=0.9, requested_bytes=21 * G))
    assert shared is not None
    assert [size and size.bytes for size in (shared.free, shared.capacity, shared.wanted)] == [3 * G, 24 * G, 21 * G]
    assert all(wordings.parse(text) for text in refusals.NOTHING.values())


def test_no_line_of_a_healthy_log_is_a_message() -> None:
    assert wordings.parse("epoch 1: loss 2.31, peak memory 71.20 GiB, 128/3000 [01:00<20:00, 2.1it/s]") is None
