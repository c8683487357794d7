"""Tokens after the prompt, in transformers: caches that grow, beams, an assistant that guesses ahead.

Source: transformers 5, cache_utils.py (`memcalc.engine.keeping`); generation/utils.py, ``_sample``, ``_beam_search``, ``_assisted_decoding``.
"""

from __future__ import annotations

from typing import Any

from memcalc.code.keeping import keeping_of
from memcalc.engine.assistant import Assistant
from memcalc.engine.keeping import after_prefill, appending, between_tokens
from memcalc.engine.walk import Reason, Walk
from memcalc.specs.job import Job
from memcalc.units import DTYPE_BYTES

SOURCE = "transformers, cache_utils.py"
TOKEN_BYTES = 8
"""Of a token's number."""


def generate(walk: Walk, job: Job, assistant: Assistant | None, *, begins: bool = True, ends: bool = True) -> None:
    """The instant ``generate``: the most that is alive while tokens are generated, on a walk that has gone through the prefill.

    The last token is fed to nobody, so the cache ends with one fewer. Layers with windows hold the whole prompt until the first token comes.
    Beams are so many sequences from the prompt on; their caches are put in order by as large copies, and their scores stand beside logits and
    their log-softmax (``_beam_search``). An assistant's cache grows beside, and its guesses are checked all at once.

    Args:
        walk: takes the reading.
        job: of what one card has of the model.
        assistant: who guesses ahead.
        begins, ends: it has tokens and their table, and the head.
    """
    length, width = job.seq_len + job.run.new_tokens - 1, DTYPE_BYTES[job.run.dtype]
    keeping = keeping_of(job.run, job.seq_len)
    keys = keeping.length if keeping.kind == "static" else length
    grown = between_tokens(job, length) - after_prefill(job)
    with walk.window("generate"):
        walk.alloc("batch/input_ids", job.micro_batch * (length + 1) * TOKEN_BYTES * begins, Reason("prompt and answer, 8 bytes a token"))
        walk.alloc("kv_cache/new tokens, less those behind windows", grown, Reason("cache of the last step - cache of the prompt"))
        for path, num_bytes in appending(job, length).items():
            walk.touch(path, num_bytes, Reason("of one layer, while a token is appended", {}, SOURCE))
        if job.run.attention == "eager":
            walk.touch("activations/repeated keys and values, scores", _spread(job, keys, width), Reason("of one layer", {}, "eager_attention_forward"))
        rows = job.micro_batch * job.model.vocab_size * DTYPE_BYTES["float32"] * ends
        if assistant is not None:
            assistant.grow(walk, job, length)
            assistant.check(walk, job)
        copies = 3 if job.run.num_beams > 1 else 1
        reason = Reason("sequences * vocab_size * 4 * copies", {"copies": copies}, "generation/utils.py")
        walk.touch("activations/logits of the next token", rows * copies, reason)


def _spread(job: Job, keys: Any, width: int) -> Any:
    """Eager attention of one token to so many: keys and values repeated for all heads, scores, and their softmax in fp32 with its input."""
    heads = job.model.num_heads // job.mesh.tp
    return job.micro_batch * heads * keys * (2 * job.model.head_dim * width + width + 4 + 4)
