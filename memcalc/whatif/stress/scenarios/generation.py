"""Samples are generated in the training loop: a cache of keys and values beside the states, and weights whole where a rank holds a share of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from memcalc.engine.keeping import between_tokens
from memcalc.units import DTYPE_BYTES
from memcalc.whatif.stress.situation import Incident, Situation

GROUP = "evaluation"


def incidents(s: Situation) -> Iterator[Incident]:
    """A batch as large as the run's, up to the run's length."""
    job, title = s.job, f"generation in the loop, up to {s.job.seq_len:,} tokens"
    if not job.model.num_heads or job.run.code != "transformers":
        yield s.spared("generation", title, f"no generation of {job.model.name} in code {job.run.code}")
        return
    asked = replace(job, run=job.run.model_copy(update={"dtype": job.run.autocast or job.run.dtype}))
    extra = {"kv_cache/keys and values": int(between_tokens(asked, job.seq_len)), "activations/logits of one token": job.micro_batch * job.model.vocab_size * 4}
    if s.shards_weights:
        extra["weights/whole model, gathered"] = job.model.num_params // job.mesh.tp * DTYPE_BYTES[asked.run.dtype]
    note = "gathered whole, as hybrid engines and summon_full_params do; gathered layer by layer at every token it is slow instead" if s.shards_weights else ""
    yield s.beside("generation", title, "start", extra, note=note, source="cache of seq_len tokens + num_params * width")
