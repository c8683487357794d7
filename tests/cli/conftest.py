"""What tests of the command line share."""

from __future__ import annotations

import pytest

from tests.cli.run import Cli


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """Runs a command in this process."""
    return Cli(capsys)
