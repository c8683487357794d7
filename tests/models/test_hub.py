"""A config.json from the Hub: the cache first, and one line for whatever goes wrong. The Hub here is a server on this machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from memcalc.errors import InputError
from memcalc.models import hub

REFUSALS: dict[str, tuple[int, dict[str, str]]] = {
    "gated": (403, {"X-Error-Code": "GatedRepo"}),
    "missing": (404, {"X-Error-Code": "RepoNotFound"}),
    "adapter": (404, {"X-Error-Code": "EntryNotFound"}),
    "badtoken": (401, {"X-Error-Message": "Invalid credentials in Authorization header"}),
    "broken": (500, {}),
}


class FakeHub(BaseHTTPRequestHandler):
    """Answers as the Hub does, by the name of the repository."""

    requests: ClassVar[list[tuple[str, str]]] = []

    def do_HEAD(self) -> None:
        """Headers only."""
        self.answer(body=False)

    def do_GET(self) -> None:
        """Headers and the file."""
        self.answer(body=True)

    def answer(self, *, body: bool) -> None:
        """A refusal, or a small config.json."""
        name = self.path.split("/")[2]
        self.requests.append((self.command, self.path))
        content = b"" if name in REFUSALS else json.dumps({"model_type": "llama"}).encode()
        status, headers = REFUSALS.get(name, (200, {"ETag": '"e"', "X-Repo-Commit": "c" * 40}))
        self.send_response(status)
        size = 300 * 2**20 if name == "huge" else len(content)
        for key, value in {**headers, "Content-Length": str(size)}.items():
            self.send_header(key, value)
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        """Quiet."""


@pytest.fixture
def endpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The Hub is a server on this machine, with an empty cache."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), FakeHub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    configure(monkeypatch, tmp_path, address)
    FakeHub.requests.clear()
    yield address
    server.shutdown()
    server.server_close()


def configure(monkeypatch: pytest.MonkeyPatch, cache: Path, address: str, *, offline: bool = False) -> None:
    """What huggingface_hub reads from the environment when it is imported."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)


def refusal(repo_id: str) -> str:
    """What is said of a repository that gives no config.json; always one line that names it."""
    with pytest.raises(InputError) as caught:
        hub.config_file(repo_id)
    assert caught.value.where == repo_id
    assert "\n" not in str(caught.value)
    return caught.value.message


def test_the_file_is_fetched_once_and_then_read_from_the_cache(endpoint: str) -> None:
    path = hub.config_file("org/good")
    assert json.loads(path.read_text()) == {"model_type": "llama"}
    assert FakeHub.requests
    FakeHub.requests.clear()
    assert hub.config_file("org/good") == path
    assert FakeHub.requests == []


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gated", "is gated: accept its terms at"),
        ("missing", "no such repository"),
        ("adapter", "the repository has no config.json"),
        ("badtoken", "refuses access (401): set HF_TOKEN"),
        ("broken", "answers 500: try again later"),
        ("huge", "its config.json holds 300 MiB"),
    ],
)
def test_a_refusal_says_what_to_do(endpoint: str, name: str, said: str) -> None:
    assert said in refusal(f"org/{name}")
    asked = [request for request in FakeHub.requests if name in request[1]]  # the library may ask the Hub once for itself, about no repository
    assert asked == [("HEAD", f"/org/{name}/resolve/main/config.json")]  # asked once, nothing downloaded


def test_nothing_but_the_error_is_said(endpoint: str, capfd: pytest.CaptureFixture[str]) -> None:
    refusal("org/gated")
    hub.config_file("org/good")
    assert capfd.readouterr() == ("", "")


def test_an_unreachable_hub_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(monkeypatch, tmp_path, "http://127.0.0.1:9")
    said = refusal("org/good")
    assert "http://127.0.0.1:9 cannot be reached" in said
    assert "HF_ENDPOINT" in said


def test_offline_the_network_is_not_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(monkeypatch, tmp_path, "http://127.0.0.1:9", offline=True)
    assert "HF_HUB_OFFLINE is set" in refusal("org/good")


def test_an_id_that_the_hub_cannot_have_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    configure(monkeypatch, tmp_path, "http://127.0.0.1:9")
    assert "is not a Hub id" in refusal("org/two..dots")


@pytest.mark.parametrize(
    ("name", "is_id"),
    [("meta-llama/Llama-2-7b-hf", True), ("01-ai/Yi-6B", True), ("gpt2", False), ("/etc/passwd", False), ("a/b/c", False), ("a/", False), ("a b/c", False)],
)
def test_an_id_is_an_owner_and_a_name(name: str, is_id: bool) -> None:
    assert hub.is_hub_id(name) is is_id
