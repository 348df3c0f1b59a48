"""`python -m tests.checker`: explore as far as `make test` does; `--full` puts all faults on one path."""

from __future__ import annotations

import argparse
import time

from tests.checker.explore import explore
from tests.checker.model import FAULTS


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.checker", description=__doc__)
    parser.add_argument("--at-once", type=int, default=2, help="how many different faults may meet on one path")
    parser.add_argument("--full", action="store_true", help="all faults on one path")
    parser.add_argument("--without", action="append", default=[], choices=FAULTS, help="leave a fault out")
    options = parser.parse_args()
    faults = tuple(fault for fault in FAULTS if fault not in options.without)
    started = time.monotonic()
    explored = explore(len(faults) if options.full else options.at_once, faults)
    print(explored, f"{time.monotonic() - started:.0f} s")  # noqa: T201


if __name__ == "__main__":
    main()
