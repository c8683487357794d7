"""The data travels with the package, and is found alike in a clone, an editable install and a wheel."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

needs_hatchling = pytest.mark.skipif(importlib.util.find_spec("hatchling") is None, reason="the build backend is not installed")

FIND = """
import site, sys
site.addsitedir(sys.argv[1])
sys.path.insert(0, sys.argv[1])
sys.path.append(sys.argv[2])  # the dependencies; as a plain path, so that an editable memcalc there stays unseen
from memcalc.resources import config_path
print(config_path())
"""


def configs_seen_from(folder: Path, *, cwd: Path) -> Path:
    """Where a fresh interpreter that finds memcalc through `folder` alone sees configs."""
    command = [sys.executable, "-I", "-S", "-c", FIND, str(folder), sysconfig.get_path("purelib")]
    return Path(subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True).stdout.strip())


def build(root: Path, target: str, folder: Path) -> zipfile.ZipFile:
    """Build one target with the backend that is installed here: nothing is downloaded."""
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)], cwd=root, capture_output=True, check=True)
    (built,) = folder.glob("*.whl")
    return zipfile.ZipFile(built)


@pytest.fixture(scope="module")
def wheel(root: Path, tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel of this tree."""
    return build(root, "wheel:standard", tmp_path_factory.mktemp("wheel"))


def test_a_clone_uses_the_configs_beside_the_package(root: Path, tmp_path: Path) -> None:
    assert configs_seen_from(root, cwd=tmp_path) == root / "configs"


@needs_hatchling
def test_an_editable_install_uses_the_configs_of_its_clone(root: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    with build(root, "wheel:editable", tmp_path) as editable:
        editable.extractall(site)
    assert not (site / "memcalc").exists(), "copies would go stale"
    assert configs_seen_from(site, cwd=tmp_path) == root / "configs"


@needs_hatchling
def test_a_wheel_uses_the_configs_inside_it(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    site = tmp_path / "site"
    wheel.extractall(site)
    assert configs_seen_from(site, cwd=tmp_path) == site / "memcalc" / "configs"


@needs_hatchling
def test_a_wheel_holds_all_configs_and_nothing_but_the_package(root: Path, wheel: zipfile.ZipFile) -> None:
    names = {name for name in wheel.namelist() if not name.endswith("/")}
    configs = {f"memcalc/configs/{path.relative_to(root / 'configs').as_posix()}" for path in (root / "configs").rglob("*") if path.is_file()}
    assert configs
    assert configs <= names
    assert "memcalc/py.typed" in names
    assert {name.split("/")[0].split("-")[0] for name in names} == {"memcalc", "gpu_memcalc"}


@needs_hatchling
def test_a_wheel_installs_the_command(wheel: zipfile.ZipFile) -> None:
    (entry_points,) = (name for name in wheel.namelist() if name.endswith("entry_points.txt"))
    assert "memcalc = memcalc.cli:main" in wheel.read(entry_points).decode()
