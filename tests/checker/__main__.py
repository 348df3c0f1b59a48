"""`python -m tests.checker`: everything that can happen, all faults on one path.

`--at-once` bounds how many faults meet, `--without` leaves one out, `--plain` looks at every state by itself.
"""

from __future__ import annotations

import argparse
import resource
import time

from tests.checker.complete import complete
from tests.checker.explore import explore
from tests.checker.model import FAULTS


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.checker", description=__doc__)
    parser.add_argument("--at-once", type=int, default=len(FAULTS), help="how many different faults may meet on a path")
    parser.add_argument("--without", action="append", default=[], choices=FAULTS, help="leave a fault out")
    parser.add_argument("--plain", action="store_true", help="every state by itself; feasible for two faults at once")
    options = parser.parse_args()
    faults = tuple(fault for fault in FAULTS if fault not in options.without)
    started = time.monotonic()
    explored = (explore if options.plain else complete)(options.at_once, faults)
    took = f"{time.monotonic() - started:.0f} s, {time.process_time():.0f} s of CPU"
    print(explored, took, f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MB")  # noqa: T201


if __name__ == "__main__":
    main()
