#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Live simulated engines behind the real frontend, and `stator sim`, under the same requests.

A machine that runs tests is busy, so live may be as late as it likes, but not sooner than simulated: that would be other
rules or other times. On a quiet machine `bench/simulation/fidelity.py` bounds both sides (docs/benchmarks/fidelity.md).
"""

import subprocess
import sys
import unittest

from stator_process import BINARY, ROOT, clean_environment


class Fidelity(unittest.TestCase):
    def test_live_engines_are_not_sooner_than_simulated_ones(self):
        for rules in ("vllm", "sglang"):
            with self.subTest(rules):
                done = subprocess.run(
                    [sys.executable, str(ROOT / "bench" / "simulation" / "fidelity.py"), "--stator", BINARY, "--rules", rules,
                     "--router", "round_robin", "--loads", "0.3", "--requests", "60", "--lower-bounds"],
                    env=clean_environment(), capture_output=True, text=True, timeout=300)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
