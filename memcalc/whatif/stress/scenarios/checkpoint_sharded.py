"""Every rank saves its own shards: from where they are, through staging buffers on the host, or in the background while the next step runs."""

from __future__ import annotations

from collections.abc import Iterator

from memcalc.whatif.stress.situation import Incident, Situation

GROUP = "checkpoint"


def incidents(s: Situation) -> Iterator[Incident]:
    """Nothing on the card; an asynchronous save keeps a copy of all of a node's shards on its host until it is written."""
    held = sum(n for path, n in s.shots["start"].by_path.items() if path.startswith(("weights/", "optimizer/")))
    yield s.nothing("checkpoint-sharded/direct", "each rank writes its shards", "start", "tensors are written from where they are")
    staged = s.nothing(
        "checkpoint-sharded/async", "an asynchronous save, staged on the host", "start", "a copy of every shard waits on the host until it is written"
    )
    yield staged._replace(host_bytes=held * s.ranks_of_node)
