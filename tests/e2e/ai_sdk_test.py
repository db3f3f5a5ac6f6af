#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs ai_sdk_client.mjs: Vercel's AI SDK with its OpenAI-compatible, OpenAI and Anthropic providers."""

import pathlib
import subprocess
import unittest

from stator_process import MODEL, ROOT, Serve, clean_environment

SCRIPT = pathlib.Path(__file__).with_name("ai_sdk_client.mjs")
MODULES = ROOT / "build" / "test-node" / "node_modules"


class AiSdk(unittest.TestCase):
    def test_every_check_passes(self):
        self.assertTrue((MODULES / "ai").exists(), "scripts/setup.sh test installs the AI SDK")
        deployment = Serve("--sim-speedup", "0")
        self.addCleanup(deployment.close)
        done = subprocess.run(
            ["node", "--test", "--test-reporter=tap", str(SCRIPT)], capture_output=True, text=True, timeout=120,
            env=clean_environment(STATOR_URL=deployment.frontend.url, STATOR_MODEL=MODEL, STATOR_NODE_MODULES=str(MODULES.resolve())))
        summary = [line for line in done.stdout.splitlines() if line.startswith("# ")]
        print("node:", "; ".join(line[2:] for line in summary if line.startswith(("# tests", "# pass", "# fail"))))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("# fail 0", summary)


if __name__ == "__main__":
    unittest.main()
