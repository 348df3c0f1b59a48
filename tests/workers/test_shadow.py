"""A foreign package `workers` is found before a worker would import it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from workers.shadow import PackageShadowed, require_own_package


def make_foreign(directory: Path) -> Path:
    package = directory / "workers" / "__init__.py"
    package.parent.mkdir(parents=True)
    package.touch()
    return package


def test_empty_directory_hides_nothing(tmp_path: Path) -> None:
    """Ours is what a worker imports there."""
    require_own_package(tmp_path)


def test_package_in_the_directory_is_named(tmp_path: Path) -> None:
    """The error says which file hides which, and what to do."""
    foreign = make_foreign(tmp_path)
    with pytest.raises(PackageShadowed, match="Start from another directory") as refusal:
        require_own_package(tmp_path)
    assert str(foreign) in str(refusal.value)


def test_module_in_the_directory_is_named_too(tmp_path: Path) -> None:
    """`workers.py` hides a package as well."""
    (tmp_path / "workers.py").touch()
    with pytest.raises(PackageShadowed, match=r"workers\.py"):
        require_own_package(tmp_path)


def test_package_on_the_path_is_named(tmp_path: Path) -> None:
    """PYTHONPATH comes before what is installed."""
    foreign = make_foreign(tmp_path / "elsewhere")
    with pytest.raises(PackageShadowed, match=str(foreign)):
        require_own_package(tmp_path, [str(tmp_path / "elsewhere"), *sys.path])


def test_plain_directory_of_that_name_is_harmless(tmp_path: Path) -> None:
    """Without `__init__.py` a real package later on the path is preferred."""
    (tmp_path / "workers").mkdir()
    require_own_package(tmp_path)
