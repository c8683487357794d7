"""Order statistics of batches: by hand, and against the sampler itself, simulated."""

from __future__ import annotations

import numpy as np
import pytest

from memcalc.whatif.lengths import order
from memcalc.whatif.lengths.distribution import Distribution, counted
from memcalc.whatif.lengths.samplers import Grouped, Sampler, TokenBudget
from memcalc.whatif.lengths.shapes import shape

RNG = np.random.default_rng(7)
NUM, BATCH, EPOCHS = 2000, 4, 300


def _bimodal() -> Distribution:
    """Short answers and a few long documents, known one by one."""
    lengths = np.concatenate([RNG.integers(50, 400, NUM - 40), RNG.integers(2000, 6000, 40)])
    return counted(np.bincount(lengths), name="bimodal")


def _shape(text: str) -> Distribution:
    found = shape(text, num_samples=NUM)
    assert found is not None
    return found


DISTRIBUTIONS = {
    "bimodal, known": _bimodal(),
    "lognormal": _shape("lognormal:median=300,sigma=1.0,max=8192"),
    "uniform": _shape("uniform:min=10,max=2000"),
}
every = pytest.mark.parametrize("found", DISTRIBUTIONS.values(), ids=DISTRIBUTIONS)


def epoch(found: Distribution) -> np.ndarray:
    """The samples of an epoch in a random order."""
    if found.known:
        return RNG.permutation(np.repeat(found.lengths, found.counts.astype(int)))
    return RNG.choice(found.lengths, NUM, p=found.counts / found.counts.sum())


def grouped(lengths: np.ndarray) -> np.ndarray:
    """As transformers orders an epoch: groups of 50 batches, each sorted, the longest sample first of all."""
    size = BATCH * max(min(NUM // (BATCH * 4), 50), 1)
    groups = [np.sort(lengths[i : i + size])[::-1] for i in range(0, NUM, size)]
    first = max(range(len(groups)), key=lambda i: groups[i][0])
    groups[0][0], groups[first][0] = groups[first][0], groups[0][0]
    return np.concatenate(groups)


def longer(found: Distribution, most: int) -> order.Epoch:
    """An epoch in which longer samples are bad."""
    bad = found.num_longer(most) if found.known else NUM * (1 - found.share_up_to(most))
    return order.Epoch(found.num_samples, bad, found.known)


def widths(lengths: np.ndarray) -> np.ndarray:
    """The longest of each batch."""
    return lengths.reshape(-1, BATCH).max(axis=1)


@every
def test_a_batch_too_long_by_some_step_is_as_likely_as_simulated(found: Distribution) -> None:
    most, steps = found.quantile(0.995), 25
    seen = np.mean([(widths(epoch(found))[:steps] > most).any() for _ in range(EPOCHS)])
    told = Sampler("random", BATCH).by_step(longer(found, most), steps * BATCH)
    assert seen == pytest.approx(told, abs=4 * (told * (1 - told) / EPOCHS) ** 0.5)


@every
@pytest.mark.parametrize("kind", [Sampler, Grouped])
def test_shares_of_batches_by_width_are_as_simulated(found: Distribution, kind: type[Sampler]) -> None:
    sampler = kind(kind.__name__, BATCH, BATCH)
    _, lengths, shares = sampler.shapes(found)
    seen = np.concatenate([widths(grouped(epoch(found)) if kind is Grouped else epoch(found)) for _ in range(40)])
    for length in (found.quantile(0.5), found.quantile(0.9), found.quantile(0.99)):
        told = float(shares[lengths <= length].sum())
        assert float(np.mean(seen <= length)) == pytest.approx(told, abs=0.012)


@every
def test_a_token_budget_fills_batches_of_about_one_length(found: Distribution) -> None:
    budget = 4 * found.longest
    sequences, lengths, shares = TokenBudget("token-budget", BATCH, 1, budget).shapes(found)
    made: list[tuple[int, int]] = []
    for _ in range(3):
        ordered, at = np.sort(epoch(found)), 0
        while at < len(ordered):
            take = 1
            while at + take < len(ordered) and (take + 1) * ordered[at + take] <= budget:
                take += 1
            made.append((take, int(ordered[at + take - 1])))
            at += take
    assert (sequences * lengths <= budget).all()
    for told, seen in (((lengths * shares).sum(), [length for _, length in made]), ((sequences * shares).sum(), [take for take, _ in made])):
        assert float(told) == pytest.approx(np.mean(seen), abs=3 * np.std(seen) / len(seen) ** 0.5)


def test_by_hand() -> None:
    """Ten samples, two of them long: two draws miss both in 28 of 45 ways; the first long one has 8/3 before it."""
    found = counted(np.bincount([5] * 8 + [9] * 2), name="ten")
    epoch = order.Epoch(10, found.num_longer(5), known=True)
    assert order.any_bad(epoch, 2) == pytest.approx(1 - 28 / 45)
    assert order.any_bad(epoch, 9) == 1.0
    assert order.any_bad(epoch._replace(bad=0), 10) == 0.0
    assert order.any_bad(epoch._replace(known=False), 2) == pytest.approx(1 - 0.8**2)
    assert order.expected_before(epoch) == pytest.approx(8 / 3)
    assert order.expected_before(epoch._replace(known=False)) == pytest.approx(4)
    assert order.longest_of(found, 2).tolist() == pytest.approx([28 / 45, 1.0])


def test_the_longest_comes_first_when_lengths_are_grouped() -> None:
    epoch = order.Epoch(81, 1, known=True)
    assert Grouped("length-grouped", 4, 4).by_step(epoch, 4) == 1.0
    assert Sampler("random", 4).by_step(epoch, 4) == pytest.approx(4 / 81)
