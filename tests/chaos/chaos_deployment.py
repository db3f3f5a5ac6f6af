# SPDX-License-Identifier: Apache-2.0
"""What the chaos tests share: a service whose frontend reaches its workers through fault proxies, and exact comparison."""

from __future__ import annotations

import os
import pathlib
import random
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))

from exact_streams import ask, bodies, load  # noqa: E402
from stator_process import Split, eventually  # noqa: E402

from fault_proxy import DetourFolder, FaultProxy  # noqa: E402

SEED = int(os.environ.get("STATOR_TEST_SEED", "20261122"))
# How much longer than in the fast suite; scripts/chaos.sh sets it.
LONG = float(os.environ.get("STATOR_CHAOS", "1"))


def times(count: int) -> int:
    return max(1, int(count * LONG))


class Detoured(Split):
    """A frontend that sees every worker through a proxy of its own."""

    def __init__(self, *frontend_arguments: str, **fields):
        self.detour: DetourFolder | None = None
        super().__init__(*frontend_arguments, **fields)

    def start_frontend(self):
        self.detour = DetourFolder(self.folder.name)
        direct, self.discovery = self.discovery, ["--discovery", f"file:{self.detour.path}", *self.discovery[2:]]
        try:
            return super().start_frontend()
        finally:
            self.discovery = direct

    def proxy(self, worker) -> FaultProxy:
        return self.detour.proxy_of(worker.ready["worker_id"])

    def close(self) -> None:
        super().close()
        if self.detour is not None:
            self.detour.close()


class ChaosTest(unittest.TestCase):
    """Load in the background, faults in the foreground; every answer is compared with an undisturbed one."""

    def setUp(self):
        self.chance = random.Random(SEED)
        print(f"{self.id()}: STATOR_TEST_SEED={SEED}", file=sys.stderr)

    def deploy(self, make, *arguments: str, **fields):
        deployment = make(*arguments, **fields)
        self.addCleanup(deployment.close)
        return deployment

    def under_load(self, deployment, fault, streams: int = 4, max_tokens: int = 60):
        """Runs `fault()` under load; then every stream must be exact and everything idle. Returns how many there were."""
        kinds = bodies(max_tokens)
        expected = []
        for path, body in kinds:
            answer = ask(deployment.frontend.port, path, body)
            self.assertEqual(answer.error, "")
            expected.append(answer.visible())
        with load(deployment.frontend.port, kinds, streams) as answers:
            eventually(lambda: deployment.http.metric("stator_router_active_requests") > 0, "load")
            fault()
        self.assertEqual([answer.error for _, answer in answers if answer.error], [], f"of {len(answers)} streams")
        for kind, answer in answers:
            self.assertEqual(answer.visible(), expected[kind], kinds[kind])
        eventually(deployment.idle, "idle")
        return len(answers)
