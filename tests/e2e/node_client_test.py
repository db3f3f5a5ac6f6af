#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs node_client.mjs (the official OpenAI Node client) against both ways to deploy."""

import pathlib
import subprocess
import unittest

from stator_process import MODEL, ROOT, both_deployments, clean_environment

SCRIPT = pathlib.Path(__file__).with_name("node_client.mjs")
CLIENT = ROOT / "build" / "test-node" / "node_modules" / "openai" / "index.mjs"


class NodeClient:
    def test_every_check_of_the_node_client_passes(self):
        self.assertTrue(CLIENT.exists(), "scripts/setup.sh test installs the Node client")
        done = subprocess.run(
            ["node", "--test", "--test-reporter=tap", str(SCRIPT)], capture_output=True, text=True, timeout=120,
            env=clean_environment(
                STATOR_URL=self.deployment.frontend.url, STATOR_MODEL=MODEL, STATOR_OPENAI_MODULE=str(CLIENT)))
        summary = [line for line in done.stdout.splitlines() if line.startswith("# ")]
        print("node:", "; ".join(line[2:] for line in summary if line.startswith(("# tests", "# pass", "# fail"))))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("# fail 0", summary)


both_deployments(NodeClient, globals())

if __name__ == "__main__":
    unittest.main()
