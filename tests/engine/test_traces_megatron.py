"""Megatron-core's own layers, dispatchers, checkpoints, loss and buffers, traced on processors.

megatron-core 0.16.1 ran whole models, rank 0 of groups that move no data, with even routing; in the place of Transformer Engine's modules stood
functions that allocate and save what its source does, and in the place of a compiled loss what Inductor allocates for it. Instants are bytes
above those between steps, when dispatchers already hold their last scores, choices and orders; those that a graph holds, too, are counted twice.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.traced import Case, load_cases

BESIDE = ("batch/", "activations/lm_head/losses")
"""What the traces had before the step, or summed up at once."""


@pytest.mark.parametrize("case", load_cases("megatron"), ids=lambda c: c.id)
def test_traces(case: Case, tmp_path: Path) -> None:
    """Dense layers within two thousandths, experts, whose dispatchers hold tables, within ten."""
    answer = case.estimate(tmp_path)
    start = answer.instant("start").allocated_bytes
    instants = [i for i in answer.ranks[0].instants if i.name in case.instants]
    found = {i.name: sum(t.bytes for t in i.terms if not t.path.startswith(BESIDE)) - start for i in instants}
    assert found == pytest.approx(case.instants, rel=0.01 if "experts" in case.id else 0.002)
