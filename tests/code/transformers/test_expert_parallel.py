"""Experts on several ranks: rows there and back, as one rank of four sees it."""

from __future__ import annotations

from fractions import Fraction

import pytest

from memcalc.engine.estimate import estimate_job
from memcalc.errors import InputError
from memcalc.specs.job import Job, Mesh
from memcalc.specs.model import Degrees, ModelSpec
from memcalc.specs.run import Run
from memcalc.tape.tensor import numel
from tests.models.families.sizes import build
from tests.traced import Case, load_cases

CASES = load_cases("ep")
TOLERANCE = 1e-5


def instants(spec: ModelSpec, *, ep: int = 4, share: tuple[int, int] = (1, 1), **run: object) -> dict[str, int]:
    """Bytes at each instant on a rank with its part of the experts, without what data parallelism adds."""
    made = Run.model_validate({"model": "small", **run})
    job = Job(run=made, model=spec, mesh=Mesh(ep=ep), engine="ddp", zero=0, micro_batch=made.micro_batch, seq_len=made.seq_len or 1, expert_share=share)
    return {instant.name: instant.allocated_bytes for instant in estimate_job(job).most_loaded.instants}


@pytest.mark.accuracy
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_every_instant_agrees_with_the_trace(case: Case) -> None:
    """Traced with AllToAllEP itself, given even sizes of its exchanges; sums in float32 cast back, as FSDP's mixed precision does."""
    spec = build(case.config)
    found = instants(spec, **case.run)
    assert sum(int(numel(w.local(Degrees(expert=4)))) * copies for _, w, copies in spec.weights()) == case.num_params
    assert {name: found[name] / size - 1 for name, size in case.instants.items() if abs(found[name] / size - 1) > TOLERANCE} == {}


def test_a_busier_rank_holds_more_and_an_idle_one_less() -> None:
    """What it sends does not change, what it gets does: linearly, at the end of forward."""
    spec, run = build(CASES[-1].config), CASES[-1].run
    half, even, twice = (instants(spec, share=share, **run)["forward_end"] for share in ((1, 2), (1, 1), (2, 1)))
    assert half < even < twice
    assert Fraction(twice - even, even - half) == 2


@pytest.mark.parametrize("model_type", ["dbrx", "llama4_text"])
def test_experts_that_the_code_cannot_spread_are_refused(model_type: str) -> None:
    (case, *_) = [case for case in load_cases("moe") if case.config["model_type"] == model_type]
    with pytest.raises(InputError, match=r"sharding\.ep: this model's own code cannot spread its experts"):
        instants(build(case.config), ep=2, **{key: case.run[key] for key in ("attention", "micro_batch", "seq_len")})
