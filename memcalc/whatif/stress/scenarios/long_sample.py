"""A sample longer than the run was sized for: what the batch becomes under each way to make batches."""

from __future__ import annotations

from collections.abc import Iterator

from memcalc.whatif.stress.situation import Incident, Situation

GROUP = "data"


def incidents(s: Situation) -> Iterator[Incident]:
    """Cut or padded to one length; all as wide as the longest; and, of several in a batch: alone, or as many as a budget of tokens takes."""
    job, longest = s.job, s.longest
    yield s.nothing(
        "long-sample/static", "samples are cut and padded to one length", "forward_peak", f"every batch has {job.seq_len:,} tokens a sequence already"
    )
    keys = {"seq_len": longest}
    yield s.instead("long-sample/longest", f"a batch padded to its longest sample, {longest:,} tokens", keys)
    if job.micro_batch == 1:
        return
    yield s.instead("long-sample/packed", f"a packed row of {longest:,} tokens, alone in its batch", keys | {"micro_batch": 1, "packing": True})
    budget = job.micro_batch * job.seq_len
    batch = max(budget // longest, 1)
    over = "" if batch * longest <= budget else f"one sample alone exceeds the budget of {budget:,} tokens"
    yield s.instead("long-sample/token-budget", f"a token budget of {budget:,} around it: {batch} × {longest:,}", keys | {"micro_batch": batch}, note=over)
