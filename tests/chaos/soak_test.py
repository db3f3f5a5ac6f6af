#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A fault after the other under load, and nothing is left behind: memory, descriptors, requests. STATOR_SOAK_S=86400 is a day of it,
with a fault a minute."""

import os
import pathlib
import re
import signal
import sys
import time
import unittest

from chaos_deployment import ChaosTest, Detoured, eventually, times
from links_test import GENEROUS

SOAK_S = float(os.environ.get("STATOR_SOAK_S", "0"))
PACE_S = 60.0
MEMORY_GROWTH_MAX = 32 << 20  # after the first faults; a frontend under this load has some 50 MiB


def resident_bytes(pid: int) -> int:
    return 1024 * int(re.search(r"VmRSS:\s*(\d+) kB", pathlib.Path(f"/proc/{pid}/status").read_text())[1])


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


class Soak(ChaosTest):
    def setUp(self):
        super().setUp()
        self.deployment = self.deploy(Detoured, *GENEROUS, workers=3,
                                      worker_arguments=("--sim-speedup", "20", "--drain-timeout", "100ms"))

    def kill(self):
        self.deployment.workers.pop(0).close()
        self.replace()

    def drain(self):
        leaving = self.deployment.workers.pop(0)
        leaving.terminate()
        self.assertEqual(leaving.wait(), 0, leaving.log())
        leaving.close()
        self.replace()

    def replace(self):
        self.deployment.workers.append(self.deployment.start_worker())
        self.deployment.wait_for_workers(len(self.deployment.workers))

    def stop(self):
        process = self.deployment.workers[0].process
        process.send_signal(signal.SIGSTOP)
        time.sleep(self.chance.uniform(0.1, 1))
        process.send_signal(signal.SIGCONT)

    def block(self):
        link = self.deployment.proxy(self.deployment.workers[0]).link
        link.blocked = (True, self.chance.random() < 0.5)
        time.sleep(self.chance.uniform(0.1, 1))
        link.blocked = (False, False)

    def cut(self):
        link = self.deployment.proxy(self.deployment.workers[0]).link
        link.cut_after = (self.chance.randrange(2), self.chance.randrange(20_000))
        time.sleep(0.5)
        link.cut_after = None

    def test_faults_leave_nothing_behind(self):
        pid = self.deployment.frontend.process.pid
        faults = [self.kill, self.drain, self.stop, self.block, self.cut]
        end = time.monotonic() + SOAK_S
        usual = None
        streams = rounds = 0
        while rounds < times(10) or time.monotonic() < end:
            begun = time.monotonic()
            fault = self.chance.choice(faults)
            streams += self.under_load(self.deployment, fault)
            rounds += 1
            eventually(lambda: self.deployment.http.metric("stator_frontend_suspended_workers") == 0, "nobody is suspended")
            now = (resident_bytes(pid), descriptors(pid))
            if rounds == 5:
                usual = now
            if usual is not None:
                self.assertLess(now[0], usual[0] + MEMORY_GROWTH_MAX, f"bytes after {rounds} faults, the last is {fault.__name__}")
                self.assertLessEqual(now[1], usual[1] + 16, f"descriptors after {rounds} faults, the last is {fault.__name__}")
            if SOAK_S > 0:
                time.sleep(max(0.0, begun + PACE_S - time.monotonic()))
        metric = self.deployment.http.metric
        self.assertEqual(metric("dynamo_frontend_inflight_requests"), 0)
        self.assertEqual(metric("stator_router_active_requests"), 0)
        print(f"{rounds} faults, {streams} streams, {now[0] >> 20} MiB, {now[1]} descriptors", file=sys.stderr)


if __name__ == "__main__":
    unittest.main()
