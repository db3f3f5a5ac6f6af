#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Packets that the kernel drops, in a network namespace of the test's own: nothing is refused or reset, silence is all there is."""

import os
import subprocess
import sys
import time
import unittest

INSIDE = "STATOR_TEST_NETWORK"
if INSIDE not in os.environ:
    os.execvpe("unshare", ["unshare", "--user", "--map-root-user", "--net", sys.executable, *sys.argv], os.environ | {INSIDE: "1"})
subprocess.run(["ip", "link", "set", "lo", "up"], check=True)

from chaos_deployment import ChaosTest, eventually  # noqa: E402
from links_test import GENEROUS  # noqa: E402
from stator_process import Split  # noqa: E402

WORKERS = 2


def nft(*commands: str) -> None:
    subprocess.run(["nft", "-f", "-"], input="\n".join(commands), text=True, check=True)


class Partition(ChaosTest):
    @classmethod
    def setUpClass(cls):
        nft("add table inet chaos", "add chain inet chaos input { type filter hook input priority 0; }")
        # In turn: a router that has learned how slow the worker was would send it nothing, and nothing could be dropped.
        cls.deployment = Split(*GENEROUS, "--router", "round_robin", workers=WORKERS, worker_arguments=("--sim-speedup", "20"))
        cls.addClassCleanup(cls.deployment.close)
        cls.port = cls.deployment.workers[0].ready["address"].rsplit(":", 1)[1]

    def tearDown(self):
        nft("flush chain inet chaos input")
        self.deployment.wait_for_workers(WORKERS)
        eventually(lambda: self.deployment.http.metric("stator_frontend_suspended_workers") == 0, "nobody is suspended")

    def while_dropping(self, seconds: float, *rules: str):
        """The rules hold under load for a while."""
        def fault():
            nft(*(f"add rule inet chaos input {rule} counter drop" for rule in rules))
            time.sleep(seconds)
            listing = subprocess.run(["nft", "list", "chain", "inet", "chaos", "input"], capture_output=True, text=True, check=True)
            self.assertRegex(listing.stdout, r"packets [1-9]", "nothing was dropped")
            nft("flush chain inet chaos input")
        self.under_load(self.deployment, fault)

    def test_nothing_passes(self):
        self.while_dropping(3, f"tcp dport {self.port}", f"tcp sport {self.port}")

    def test_requests_are_lost(self):
        self.while_dropping(3, f"tcp dport {self.port}")

    def test_answers_are_lost(self):
        self.while_dropping(3, f"tcp sport {self.port}")

    def test_one_packet_in_twenty_is_lost(self):
        self.while_dropping(3, f"tcp dport {self.port} numgen random mod 100 < 5", f"tcp sport {self.port} numgen random mod 100 < 5")

    def test_a_cut_longer_than_keep_alive(self):
        """The connection is given up on both sides, and a new one found when packets pass again."""
        def unreachable():
            return self.deployment.http.metric("stator_runtime_pool_workers", state="unreachable")

        nft(f"add rule inet chaos input tcp dport {self.port} drop", f"add rule inet chaos input tcp sport {self.port} drop")
        eventually(lambda: unreachable() > 0, "its connection is given up")
        nft("flush chain inet chaos input")
        eventually(lambda: unreachable() == 0, "found again")


if __name__ == "__main__":
    unittest.main()
