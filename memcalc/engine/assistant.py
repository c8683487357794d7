"""Assisted decoding: a smaller model beside the one that is asked, with a cache of its own, guesses tokens that the other checks at once.

Source: transformers 5, generation/utils.py, ``_assisted_decoding``; generation/candidate_generator.py, ``AssistedCandidateGenerator``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from memcalc.engine.keeping import between_tokens
from memcalc.engine.walk import Reason, Walk
from memcalc.errors import InputError
from memcalc.specs.job import Job
from memcalc.specs.read import read_run
from memcalc.specs.run import Run
from memcalc.units import DTYPE_BYTES

SOURCE = "transformers, generation/candidate_generator.py"
WIDE = DTYPE_BYTES["float32"]


class Assistant(NamedTuple):
    """What it takes.

    Attributes:
        name: of the model.
        weights: resident, with its buffers.
        prefill: the most beside weights while it reads the prompt.
        job: of its own run, with its cache of the dynamic kind.
        guessed: tokens at once.
    """

    name: str
    weights: Any
    prefill: Any
    job: Job
    guessed: int

    def load(self, walk: Walk) -> None:
        """Its weights come."""
        walk.alloc("assistant/weights", self.weights, Reason("parameters and buffers", {"model": self.name}, SOURCE))

    def guess(self, walk: Walk, asked: Job) -> None:
        """It reads the prompt and guesses, before the other does: its cache stays, and its scores until they are checked."""
        walk.touch("assistant/prefill", self.prefill, Reason("its own prefill", {"model": self.name}, SOURCE))
        walk.alloc("assistant/kv_cache", self.cache(asked.seq_len), Reason("tokens * bytes of a token", {}, SOURCE))
        walk.alloc("assistant/scores", self.guessed * self.job.model.vocab_size * WIDE, Reason("num_assistant_tokens * vocab_size * 4", {}, SOURCE))

    def check(self, walk: Walk, asked: Job) -> None:
        """The other model's logits of all guesses and one more: in its dtype, in fp32, and a copy of that."""
        rows = (self.guessed + 1) * asked.model.vocab_size
        reason = Reason("(num_assistant_tokens + 1) * vocab_size * (width + 4 + 4)", {}, "generation/utils.py, _assisted_decoding")
        walk.touch("activations/logits of the guesses", rows * (DTYPE_BYTES[asked.run.dtype] + 2 * WIDE), reason)

    def grow(self, walk: Walk, asked: Job, length: Any) -> None:
        """Its cache by the time that the other's has come so far."""
        walk.alloc("assistant/kv_cache", self.cache(length) - self.cache(asked.seq_len), Reason("cache of the last step - cache of the prompt"))

    def cache(self, length: Any) -> Any:
        """Of so many tokens, guesses included, but the last."""
        return between_tokens(self.job, length - 1)


def assistant_of(job: Job) -> Assistant | None:
    """The assistant of a job with guesses, if it has one.

    Raises:
        InputError: several sequences, beams or a cache that cannot be cut back.
    """
    asked = job.run.generation
    if asked.assistant_model is None:
        return None
    from memcalc.engine.estimate import walk_rank
    from memcalc.engine.resolve import resolve

    check_assisted(job.run)
    found = resolve(read_run(asked.assistant_model, task="inference", dtype=job.run.dtype, attention=job.run.attention))
    own = replace(found, micro_batch=job.micro_batch, seq_len=job.seq_len - asked.num_assistant_tokens)
    walk = walk_rank(own, detailed=False).walk
    load, prefill = (walk.instants[name].total for name in ("load", "prefill"))
    return Assistant(own.model.name, load, prefill - load, own, asked.num_assistant_tokens)


def with_guesses(job: Job) -> Job:
    """The job as its forward passes see it: guesses stand behind the tokens, from the prompt on."""
    return replace(job, seq_len=job.seq_len + job.run.generation.num_assistant_tokens)


def check_assisted(run: Run) -> None:
    """What ``generate`` refuses.

    Raises:
        InputError: it does.
    """
    if run.micro_batch > 1 or run.num_beams > 1:
        raise InputError("assisted decoding takes one sequence at a time, without beams", where="generation.assistant_model")
    if run.generation.cache_implementation == "quantized":
        raise InputError("assisted decoding needs a cache that can be cut back, which a quantized one cannot", where="generation.assistant_model")
    if run.sharding.tp > 1 or run.sharding.pp > 1:
        raise InputError("an assistant beside a model that is cut over ranks is not known; leave out tp and pp", where="generation.assistant_model")
