#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs node_helpers_client.mjs: what the official Node SDKs build upon zod, and files and batches."""

import pathlib
import subprocess
import tempfile
import unittest

from stator_process import MODEL, ROOT, Serve, clean_environment

SCRIPT = pathlib.Path(__file__).with_name("node_helpers_client.mjs")
MODULES = ROOT / "build" / "test-node" / "node_modules"


class NodeHelpers(unittest.TestCase):
    def test_every_check_passes(self):
        self.assertTrue((MODULES / "zod").exists(), "scripts/setup.sh test installs it")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        deployment = Serve("--sim-speedup", "0", "--batches-folder", folder.name)
        self.addCleanup(deployment.close)
        done = subprocess.run(
            ["node", "--test", "--test-reporter=tap", str(SCRIPT)], capture_output=True, text=True, timeout=120,
            env=clean_environment(STATOR_URL=deployment.frontend.url, STATOR_MODEL=MODEL, STATOR_NODE_MODULES=str(MODULES.resolve())))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("# fail 0", done.stdout)


if __name__ == "__main__":
    unittest.main()
