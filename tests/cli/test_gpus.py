"""``memcalc gpus``."""

from __future__ import annotations

import json

from tests.cli.run import Cli


def test_a_card_is_shown_as_torch_sees_it(cli: Cli) -> None:
    (card,) = json.loads(cli("gpus", "a100-80g", "--format", "json").out)
    assert 79 * 2**30 < card["capacity_bytes"] < 80 * 2**30
    assert "79.14 to 79.35" in cli("gpus", "a100-80g").out


def test_an_unknown_card_is_refused(cli: Cli) -> None:
    assert "no card holds 'zx81'" in cli.refused("gpus", "zx81")
