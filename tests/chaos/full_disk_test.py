#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No byte left on the disk under the discovery folder: a small disk of the test's own, in a mount namespace."""

import json
import os
import pathlib
import subprocess
import sys
import unittest

INSIDE = "STATOR_TEST_MOUNTS"
if INSIDE not in os.environ:
    os.execvpe("unshare", ["unshare", "--user", "--map-root-user", "--mount", sys.executable, *sys.argv],
               os.environ | {INSIDE: "1"})

from chaos_deployment import ChaosTest, ask, bodies, eventually  # noqa: E402
from stator_process import BINARY, MODEL_DIR, Split, clean_environment  # noqa: E402


class SmallDisk(Split):
    """Its discovery folder has a disk of its own."""

    def start_frontend(self):
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", self.folder.name], check=True)
        return super().start_frontend()

    def fill(self) -> pathlib.Path:
        filler = pathlib.Path(self.folder.name) / "filler"
        with open(filler, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(b"x" * 512)
            except OSError:
                return filler

    def close(self) -> None:
        for process in [self.frontend, *self.workers]:
            process.close()
        subprocess.run(["umount", self.folder.name], check=True)
        self.folder.cleanup()


class FullDisk(ChaosTest):
    def test_who_is_there_serves_and_leaves_as_always_and_who_comes_is_told_why_it_cannot(self):
        deployment = self.deploy(SmallDisk, workers=2, worker_arguments=("--sim-speedup", "4"))
        leaving = deployment.workers[0]
        filler = deployment.fill()

        def full():
            late = subprocess.run(
                [BINARY, "worker", str(MODEL_DIR), "--engine", "sim", *deployment.discovery], capture_output=True, text=True,
                env=clean_environment(), timeout=300)
            self.assertNotEqual(late.returncode, 0)
            self.assertGreaterEqual(late.returncode, 0, "it crashed: " + late.stderr)
            self.assertIn("No space left on device", late.stderr)
            self.assertIn(deployment.folder.name, late.stderr)
            leaving.terminate()  # what it says of its state cannot be written
            self.assertEqual(leaving.wait(), 0, leaving.log())
        self.under_load(deployment, full)
        deployment.wait_for_workers(1)

        filler.unlink()
        deployment.workers.append(deployment.start_worker())
        deployment.wait_for_workers(2)
        self.under_load(deployment, lambda: None)

    def test_leases_are_kept_without_a_byte(self):
        deployment = self.deploy(SmallDisk, workers=1, lease_ttl="3s")
        instance = next((pathlib.Path(deployment.folder.name) / "instances").glob("[!.]*"))
        deployment.fill()
        written = instance.stat().st_mtime_ns
        eventually(lambda: instance.stat().st_mtime_ns > written + 6_000_000_000, "two lease times pass, its owner keeps it alive")
        self.assertEqual(json.loads(instance.read_text())["state"], "ready")
        path, body = bodies(8)[0]
        self.assertEqual(ask(deployment.frontend.port, path, body).error, "")


if __name__ == "__main__":
    unittest.main()
