"""What all tests share: no network, none of the user's settings, and a skip for what needs torch where torch is absent."""

from __future__ import annotations

import importlib.util
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

settings.register_profile("memcalc", deadline=None, derandomize="CI" in os.environ, print_blob=True)
settings.load_profile("memcalc")

LOOPBACK = ("127.", "::1", "localhost")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked torch where it is not installed."""
    if importlib.util.find_spec("torch") is None:
        for item in items:
            if item.get_closest_marker("torch"):
                item.add_marker(pytest.mark.skip(reason="torch is not installed"))


@pytest.fixture(scope="session", autouse=True)
def _isolated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The same surroundings at every desk: an empty Hub cache, offline, a terminal of 120 columns without colours."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HF_TOKEN", "HF_ENDPOINT", "HF_HUB_CACHE", "FORCE_COLOR", "CLICOLOR_FORCE"):
            patch.delenv(name, raising=False)
        patch.setenv("HF_HOME", str(tmp_path_factory.mktemp("hf_home")))
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("NO_COLOR", "1")
        patch.setenv("COLUMNS", "120")
        _refuse_network(patch)
        yield


def _refuse_network(patch: pytest.MonkeyPatch) -> None:
    connect = socket.socket.connect

    def local_only(self: socket.socket, address: Any) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6) and not str(address[0]).startswith(LOOPBACK):
            raise ConnectionRefusedError(f"tests use no network: {address}")
        connect(self, address)

    patch.setattr(socket.socket, "connect", local_only)


@pytest.fixture(scope="session")
def root() -> Path:
    """The top of the clone."""
    return Path(__file__).resolve().parent.parent
