"""A limit beside the card."""

from __future__ import annotations

import pytest

from memcalc.errors import InputError
from memcalc.whatif.limit import held_against, parse_margin
from tests.report.estimates import GiB, estimate


def test_the_narrower_of_card_and_limit_decides() -> None:
    card = estimate(capacity=80 * GiB)
    assert held_against(card, limit_bytes=100 * GiB).verdict == card.verdict
    verdict = held_against(card, limit_bytes=20 * GiB).verdict
    assert verdict is not None
    assert (verdict.gpu, verdict.capacity_bytes, verdict.fits) == (None, 20 * GiB, False)
    assert held_against(estimate(capacity=None)).verdict is None


def test_a_margin_moves_what_is_tight() -> None:
    answer = estimate(capacity=33 * GiB)
    assert answer.verdict is not None
    assert not answer.verdict.tight
    wider = held_against(answer, margin=0.2).verdict
    assert wider is not None
    assert wider.tight


@pytest.mark.parametrize(("text", "share"), [("5%", 0.05), ("0.1", 0.1), (" 10 % ", 0.1), ("0", 0.0), (".5", 0.5)])
def test_shares_as_people_write_them(text: str, share: float) -> None:
    assert parse_margin(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["", "x", "100%", "1", "-5%", "5 parts"])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="is not a share"):
        parse_margin(text)
