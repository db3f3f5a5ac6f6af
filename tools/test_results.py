#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads what `ctest --output-junit` wrote.

    test_results.py summary RESULTS.xml… [--again AGAIN.xml]   the end of what failed tests said, and one line of counts;
                                                               status 1 if a test failed, and failed when run again
    test_results.py again RESULTS.xml                          the failed tests, if they are few, as a pattern for `ctest -R`
"""

import argparse
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

LINES_MAX = 60  # of what a failed test said
AGAIN_MAX = 5  # A race that the machine's other loads decide fails one test or two; a broken change fails again, or fails many.


def read(paths: list[str]) -> list[ElementTree.Element]:
    return [case for path in paths for case in ElementTree.parse(path).iter("testcase")]


def failed(cases: list[ElementTree.Element]) -> list[ElementTree.Element]:
    return [case for case in cases if case.get("status") == "fail"]


def summary(results: list[str], again: list[str]) -> int:
    cases = read(results)
    passed_again = {case.get("name") for case in read([path for path in again if pathlib.Path(path).exists()]) if case.get("status") == "run"}
    failures = unsteady = 0
    for case in failed(cases):
        steady = case.get("name") not in passed_again
        failures, unsteady = failures + steady, unsteady + (not steady)
        word = "failed" if steady else "unsteady (failed beside other tests, passed alone)"
        print(f"\n== {word}: {case.get('name')} after {float(case.get('time', 0)):.0f} s; the end of its output:")
        print("\n".join((case.findtext("system-out") or "").rstrip().splitlines()[-LINES_MAX:]))
    skipped = sum(case.get("status") in ("notrun", "disabled") for case in cases)
    print(f"\n{len(cases) - failures - skipped} passed, {failures} failed, {skipped} skipped" + (f"; {unsteady} unsteady" if unsteady else ""))
    return 1 if failures or not cases else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("summary", "again"))
    parser.add_argument("results", nargs="+")
    parser.add_argument("--again", action="append", default=[])
    options = parser.parse_args()
    if options.command == "summary":
        return summary(options.results, options.again)
    names = [case.get("name") for case in failed(read(options.results))]
    if 0 < len(names) <= AGAIN_MAX:
        print("^(" + "|".join(re.escape(name) for name in names) + ")$")
    return 0


if __name__ == "__main__":
    sys.exit(main())
