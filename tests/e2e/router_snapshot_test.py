#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The frontend's knowledge of its workers' caches over a restart: --router-snapshot."""

import pathlib
import tempfile
import unittest

from stator_process import MODEL, Split, Stator, eventually

CHAT = "/v1/chat/completions"


class RouterSnapshot(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="stator-snapshot-")
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name) / "index.snapshot"

    def deploy(self, *arguments: str) -> Split:
        deployment = Split("--router-snapshot", str(self.file), *arguments)
        self.addCleanup(deployment.close)
        return deployment

    def fill(self, deployment: Split) -> float:
        """Sends every worker a few prompts; the blocks that the index then knows."""
        for worker in deployment.workers:
            for i in range(4):
                status, answer = deployment.http.post(
                    CHAT, {"model": MODEL, "max_tokens": 2,
                           "messages": [{"role": "user", "content": f"Story {i}. " + "Once upon a time. " * 40}]},
                    {"x-stator-worker-instance-id": worker.ready["worker_id"]})
                self.assertEqual(status, 200, answer)
        return eventually(lambda: deployment.http.metric("stator_router_index_blocks"), "blocks in the index")

    @staticmethod
    def blocks_of_a_snapshot(deployment: Split) -> float:
        """What the index held before and after two snapshots: events may still come when the answers are there."""
        http = deployment.http
        while True:
            blocks, written = (http.metric(name) for name in ("stator_router_index_blocks", "stator_router_snapshots_written_total"))
            eventually(lambda: http.metric("stator_router_snapshots_written_total") >= written + 2, "snapshots")
            if http.metric("stator_router_index_blocks") == blocks:
                return blocks

    def test_a_killed_frontend_knows_its_workers_caches_again(self):
        deployment = self.deploy("--router-snapshot-interval", "1s", "--router-snapshot-grace", "3s")
        self.fill(deployment)
        blocks = self.blocks_of_a_snapshot(deployment)
        lost, kept = deployment.workers
        deployment.frontend.kill()
        lost.kill()
        deployment.frontend = deployment.start_frontend()
        eventually(lambda: "index restored from the snapshot" in deployment.frontend.log(), "restored")
        self.assertIn(f"blocks={blocks:.0f}", deployment.frontend.log())
        # Whoever came back has told what it holds, and the lost one is forgotten.
        eventually(lambda: deployment.http.metric("stator_router_index_restored_workers") == 0, "all confirmed or gone")
        eventually(lambda: deployment.http.metric("stator_router_index_workers", trust="exact") == 1, "one worker")
        self.assertEqual(deployment.http.metric("stator_router_index_workers", trust="degraded"), 0)
        eventually(lambda: 0 < deployment.http.metric("stator_router_index_blocks") < blocks, "only its blocks")
        status, answer = deployment.http.post(
            CHAT, {"model": MODEL, "max_tokens": 2, "nvext": {"extra_fields": ["worker_id"]},
                   "messages": [{"role": "user", "content": "Story 0. " + "Once upon a time. " * 40}]})
        self.assertEqual(status, 200, answer)
        self.assertEqual(str(answer["nvext"]["worker_id"]["decode_worker_id"]), kept.ready["worker_id"])
        self.assertGreater(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 0)

    def test_it_is_written_when_the_frontend_ends_and_damage_costs_only_the_knowledge(self):
        deployment = self.deploy("--router-snapshot-interval", "1h", "--lame-duck", "0s")
        self.fill(deployment)
        deployment.frontend.terminate()
        self.assertEqual(deployment.frontend.wait(), 0)
        snapshot = self.file.read_bytes()
        self.assertTrue(snapshot.startswith(b"StatorKV"))
        self.assertEqual([path.name for path in self.file.parent.iterdir()], [self.file.name])

        self.file.write_bytes(snapshot[:-20])
        deployment.frontend = deployment.start_frontend()
        deployment.wait_for_workers(2)
        self.assertEqual(deployment.http.metric("stator_router_snapshots_unusable_total"), 1)
        eventually(lambda: deployment.http.metric("stator_router_index_blocks"), "workers tell again")

    def test_another_programs_file_is_not_overwritten(self):
        self.file.write_text("precious")
        frontend = Stator("frontend", "--host", "127.0.0.1", "--port", "0", "--discovery", f"file:{self.file.parent}",
                          "--router-snapshot", str(self.file), announce=False)
        self.addCleanup(frontend.close)
        self.assertNotEqual(frontend.wait(), 0)
        self.assertIn("--router-snapshot", frontend.log())
        self.assertEqual(self.file.read_text(), "precious")


if __name__ == "__main__":
    unittest.main()
