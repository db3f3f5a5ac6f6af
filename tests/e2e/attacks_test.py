#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/verification/attacks.md names for every defect that was found the tests that hold it: they are there, and CI runs them."""

import re
import unittest

from stator_process import ROOT

PAGE = (ROOT / "docs" / "verification" / "attacks.md").read_text()
NAMES = re.findall(r"`([^`\n]+)`", PAGE)
CMAKE = (ROOT / "tests" / "CMakeLists.txt").read_text()


class Attacks(unittest.TestCase):
    def test_every_row_has_a_test(self):
        rows = [row for row in PAGE.splitlines() if row.startswith("| ") and not row.endswith("| Held by |")]
        self.assertGreater(len(rows), 40)
        for row in rows:
            self.assertRegex(row.rsplit("|", 2)[1], r"`(e2e|chaos)\.|`\w+\.\w+`|`scripts/", row)

    def test_scripts_are_registered(self):
        for kind, name in (name.split(".") for name in NAMES if re.fullmatch(r"(e2e|chaos)\.[a-z0-9_]+", name)):
            if name == "NAME":
                continue
            self.assertTrue((ROOT / "tests" / kind / f"{name}_test.py").is_file(), f"{kind}.{name}")
            self.assertIn(f"stator_{kind}_test({name})", CMAKE)

    def test_unit_tests_are_there(self):
        wanted = {name for name in NAMES if re.fullmatch(r"[A-Z]\w+\.[A-Z]\w+", name)}
        self.assertGreater(len(wanted), 40)
        found = set()
        for path in (ROOT / "src" / "stator").glob("**/test/*_test.cc"):
            found |= {f"{suite}.{name}" for suite, name in re.findall(r"\bTEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\s*\)", path.read_text())}
        self.assertEqual(wanted - found, set())

    def test_the_script_runs_what_is_there(self):
        listed = re.search(r"^all=\((.*?)\)", (ROOT / "scripts" / "attack.sh").read_text(), re.M | re.S)[1].split()
        for name in listed:
            self.assertRegex(CMAKE, rf"stator_(e2e|chaos)_test\({name}\)")


if __name__ == "__main__":
    unittest.main()
