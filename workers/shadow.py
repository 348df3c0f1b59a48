"""Names a foreign package `workers` that Celery would import in the place of ours."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path

import workers
from sessionlib.errors import CallerError


class PackageShadowed(CallerError):
    """Another package named `workers` stands before ours where a worker would look for it."""

    code = "package_shadowed"

    def __init__(self, foreign: str, own: str) -> None:
        super().__init__(foreign, own)
        self.foreign, self.own = foreign, own

    def __str__(self) -> str:
        return (
            f"{self.foreign} hides sessionlib's package workers ({self.own}): a worker would import the wrong one. "
            "Start from another directory, rename it, or take its directory off PYTHONPATH"
        )


def require_own_package(directory: Path, path: Sequence[str] = ()) -> None:
    """Make sure that a worker started in *directory* imports our package. Raises PackageShadowed.

    *path* is what such a process searches after its directory: this process's `sys.path` by default, whose first item
    (where this program's script lies) a worker does not have.
    """
    spec = PathFinder.find_spec(workers.__name__, [str(directory), *(path or sys.path[1:])])
    own = Path(str(workers.__file__)).resolve()
    if spec is not None and spec.origin is not None and Path(spec.origin).resolve() != own:
        raise PackageShadowed(str(Path(spec.origin).resolve()), str(own))
