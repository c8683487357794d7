"""Completion is made from the commands' declarations."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

MAIN = "import sys; sys.argv[0] = 'memcalc'; from memcalc.cli import main; sys.exit(main())"


@pytest.mark.parametrize(
    ("words", "place", "offered"),
    [
        ("memcalc est", "1", "estimate"),
        ("memcalc estimate llama-3.1-4", "2", "llama-3.1-405b"),
        ("memcalc estimate --attention ", "3", "sdpa"),
        ("memcalc estimate --attention e", "3", "eager"),
        ("memcalc estimate --micro", "2", "--micro-batch"),
        ("memcalc compare --lora-t", "2", "--lora-target-modules"),
    ],
)
def test_a_shell_is_offered(words: str, place: str, offered: str) -> None:
    environment = {**os.environ, "_MEMCALC_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": place}
    done = subprocess.run([sys.executable, "-c", MAIN], capture_output=True, text=True, check=False, env=environment)
    assert offered in done.stdout.split()


def test_the_script_is_shown() -> None:
    environment = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    done = subprocess.run([sys.executable, "-c", MAIN, "--show-completion", "bash"], capture_output=True, text=True, check=False, env=environment)
    assert "_MEMCALC_COMPLETE" in done.stdout
