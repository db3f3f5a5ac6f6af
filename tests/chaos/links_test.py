#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What networks do between a frontend and its workers: streams stay those of an undisturbed service."""

import time
import unittest

from chaos_deployment import ChaosTest, Detoured, ask, bodies, eventually, times
from fault_proxy import DOWN, UP, Link

GENEROUS = ("--migration-limit", "100", "--frontend-poison-workers", "0", "--frontend-stall-timeout", "1s",
            "--frontend-accept-timeout", "1s")


class Links(ChaosTest):
    @classmethod
    def setUpClass(cls):
        cls.deployment = Detoured(*GENEROUS, workers=2, worker_arguments=("--sim-speedup", "20"))
        cls.addClassCleanup(cls.deployment.close)

    def tearDown(self):
        for proxy in self.deployment.detour.proxies.values():
            proxy.link = Link()
        self.deployment.wait_for_workers(2)
        eventually(lambda: self.deployment.http.metric("stator_frontend_suspended_workers") == 0, "nobody is suspended")

    def sick(self):
        """The proxy of the worker that has the faults; the other one stays well."""
        return self.deployment.proxy(self.deployment.workers[0])

    def for_a_while(self, link: Link, seconds: float):
        proxy = self.sick()

        def fault():
            proxy.link = link
            time.sleep(seconds)
            proxy.link = Link()
        self.under_load(self.deployment, fault)

    def test_long_and_slow_ways(self):
        self.for_a_while(Link(delay_s=0.1), 1.5)
        self.for_a_while(Link(bytes_per_s=125_000), 1.5)

    def test_nothing_passes(self):
        # Longer than the stall timeout: streams move, then the connection comes back to life with old output.
        self.for_a_while(Link(blocked=(True, True)), 3)

    def test_nothing_passes_one_way(self):
        for blocked in ((True, False), (False, True)):
            self.for_a_while(Link(blocked=blocked), 2.5)

    def test_connections_are_reset_again_and_again(self):
        proxy = self.sick()

        def fault():
            for _ in range(times(8)):
                proxy.reset_all()
                time.sleep(0.1 + self.chance.random() * 0.2)
        self.under_load(self.deployment, fault)

    def test_a_connection_is_cut_at_any_byte(self):
        proxy = self.sick()
        path, body = bodies(12)[0]
        expected = ask(self.deployment.frontend.port, path, body)
        self.assertEqual(expected.error, "")
        for position in range(times(24)):
            direction = (UP, DOWN)[position % 2]
            # A connection begins with some 100 bytes of preface and settings; requests and output follow.
            cut = position * 4 if position < 12 else self.chance.randrange(3000)
            with self.subTest(direction=direction, byte=cut):
                proxy.link = Link(cut_after=(direction, cut))
                proxy.struck.clear()
                proxy.reset_all()
                answers = [ask(self.deployment.frontend.port, path, body) for _ in range(3)]
                self.assertEqual([a.error for a in answers if a.error], [])
                self.assertTrue(all(a.visible() == expected.visible() for a in answers))
                proxy.link = Link()

    def test_a_refused_worker_is_found_again(self):
        proxy = self.sick()

        def fault():
            proxy.link = Link(refuse=True)
            proxy.reset_all()
            time.sleep(1)
            proxy.link = Link()
            self.deployment.wait_for_workers(2)
        self.under_load(self.deployment, fault)


if __name__ == "__main__":
    unittest.main()
