"""GGUF headers, written small: what follows the header is not there, and nothing reads it."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from memcalc.formulas.ggml import TYPES

LLAMA: dict[str, Any] = {
    "general.architecture": "llama", "llama.block_count": 4, "llama.embedding_length": 512, "llama.feed_forward_length": 1024,
    "llama.attention.head_count": 8, "llama.attention.head_count_kv": 2, "llama.context_length": 8192, "tokenizer.ggml.tokens": ["x"] * 5000,
}  # fmt: skip


def llama_tensors(kind: str = "q4_k", *, tied: bool = False) -> dict[str, tuple[tuple[int, ...], str]]:
    """Those of `LLAMA`: matrices in one type, vectors in fp32."""
    found: dict[str, tuple[tuple[int, ...], str]] = {"token_embd.weight": ((512, 5000), kind), "output_norm.weight": ((512,), "f32")}
    if not tied:
        found["output.weight"] = ((512, 5000), "q6_k")
    shapes = {
        "attn_q": (512, 512), "attn_k": (512, 128), "attn_v": (512, 128), "attn_output": (512, 512), "ffn_gate": (512, 1024), "ffn_up": (512, 1024),
        "ffn_down": (1024, 512),
    }  # fmt: skip
    for i in range(4):
        found |= {f"blk.{i}.{name}.weight": (shape, kind) for name, shape in shapes.items()}
        found |= {f"blk.{i}.{name}.weight": ((512,), "f32") for name in ("attn_norm", "ffn_norm")}
    return found


def write(path: Path, metadata: dict[str, Any], tensors: dict[str, tuple[tuple[int, ...], str]]) -> str:
    """A file of version 3."""
    parts = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(metadata))]
    parts += [_text(key) + _value(value) for key, value in metadata.items()]
    for name, (shape, kind) in tensors.items():
        parts.append(_text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, TYPES[kind].number, 0))
    path.write_bytes(b"".join(parts))
    return str(path)


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _value(value: Any) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    if isinstance(value, list):
        kind, each = (8, [_text(v) for v in value]) if isinstance(value[0], str) else (4, [struct.pack("<I", v) for v in value])
        return struct.pack("<IIQ", 9, kind, len(value)) + b"".join(each)
    return struct.pack("<IB", 7, value) if isinstance(value, bool) else struct.pack("<II", 4, value)
