"""The rules that no linter knows."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import memcalc

ROOT = Path(__file__).resolve().parent.parent
MODULES = sorted((ROOT / "memcalc").rglob("*.py"))
HEAVY = ("huggingface_hub", "numpy", "torch", "transformers")
MAX_LINES = 350

ESTIMATE = f"""
import sys
from memcalc.cli import main
sys.argv = ["memcalc", "estimate", "llama-7b", "--tp", "2", "--zero", "2"]
try:
    status = main()
except SystemExit as stop:
    status = stop.code
print(status or 0, *(name for name in {HEAVY!r} if name in sys.modules), file=sys.stderr)
"""


def name_of(path: Path) -> str:
    """A module's path below the root."""
    return path.relative_to(ROOT).as_posix()


every_module = pytest.mark.parametrize("path", MODULES, ids=name_of)


def public_definitions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.ClassDef]]:
    """Functions and classes that others may use, and the methods of such classes."""
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            yield node.name, node
            if isinstance(node, ast.ClassDef):
                yield from ((f"{node.name}.{m.name}", m) for m in node.body if isinstance(m, ast.FunctionDef) and not m.name.startswith("_"))


def test_all_is_exactly_what_the_package_offers() -> None:
    offered = {name for name, value in vars(memcalc).items() if not name.startswith("_") and not isinstance(value, ModuleType)} - {"annotations"}
    assert offered <= set(memcalc.__all__)
    assert [name for name in memcalc.__all__ if not hasattr(memcalc, name)] == []
    assert sorted(set(memcalc.__all__)) == sorted(memcalc.__all__)


def test_an_estimate_imports_nothing_heavy() -> None:
    done = subprocess.run([sys.executable, "-c", ESTIMATE], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "0"
    assert done.stdout


@every_module
def test_a_module_is_one_topic(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MAX_LINES


@every_module
def test_what_is_public_has_a_docstring(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree) or not tree.body, "the module"
    assert [name for name, node in public_definitions(tree) if not ast.get_docstring(node)] == []


@pytest.mark.parametrize("path", [path for path in MODULES if "formulas" in path.parts], ids=name_of)
def test_a_formula_cites_its_source_and_shows_a_value(path: Path) -> None:
    definitions = public_definitions(ast.parse(path.read_text(encoding="utf-8")))
    docs = {name: ast.get_docstring(node) or "" for name, node in definitions if isinstance(node, ast.FunctionDef)}
    assert [name for name, doc in docs.items() if "Source:" not in doc] == []
    assert [name for name, doc in docs.items() if ">>>" not in doc] == []


def test_tests_mirror_the_package() -> None:
    """A test of one module stands where the module does; golden traces stand with what they put together."""
    tests = ROOT / "tests"
    mirrored = {path: ROOT / "memcalc" / path.parent.relative_to(tests) / path.stem.removeprefix("test_") for path in tests.rglob("*/test_*.py")}
    strays = [path for path, package in mirrored.items() if not (package.is_dir() or package.with_suffix(".py").exists())]
    assert [name_of(path) for path in strays if not path.stem.startswith("test_traces")] == []
