#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Workers killed as fast as they start, under streams that must not notice. STATOR_KILLS=10000 for the whole storm."""

import bisect
import os
import re
import sys
import threading
import time
import unittest

from chaos_deployment import ChaosTest, Split, ask, bodies, eventually, times

KILLS = int(os.environ.get("STATOR_KILLS", "0"))
SLOTS = int(os.environ.get("STATOR_KILL_SLOTS", "5"))  # workers, each killed by a thread of its own
UP_MIN = 3  # so many are left when one is killed: streams need somebody who lives for more than a moment
STREAMS = 6


class KillStorm(ChaosTest):
    def storm(self, kills: int, engine: str, worker_arguments: tuple[str, ...], max_tokens: int):
        deployment = self.deploy(Split, "--migration-limit", "100", "--frontend-poison-workers", "0",
                                 "--frontend-migration-wait", "60s", workers=SLOTS, engine=engine,
                                 worker_arguments=worker_arguments)
        kinds = bodies(max_tokens)
        expected = [ask(deployment.frontend.port, *kind).visible() for kind in kinds]
        state = threading.Condition()
        up = [SLOTS]
        killed, gaps, faults, broken, streams = [], [], [], [], [0]
        running = threading.Event()
        running.set()
        over = threading.Event()
        begin = time.monotonic()

        def judge(kind: int, answer):
            with state:
                streams[0] += 1
                hit = killed[bisect.bisect(killed, answer.arrivals[0]) if answer.arrivals else 0:]
            if answer.error or answer.visible() != expected[kind]:
                with state:
                    faults.append((kind, answer.error or "differs"))
            for at in hit:
                after = [t for t in answer.arrivals if at < t < at + 1.5]
                pauses = [(b - a, b - at) for a, b in zip([at, *after], after)]
                if pauses:
                    with state:
                        gaps.append(max(pauses)[1])

        def client(kind: int):
            while running.is_set():
                judge(kind % len(kinds), ask(deployment.frontend.port, *kinds[kind % len(kinds)]))
                kind += 1

        def killer(slot: int):
            try:
                kill_on(slot)
            except Exception as e:  # a worker that does not start must not leave the storm waiting for it
                with state:
                    broken.append(e)
                    state.notify_all()
            over.wait()  # a worker dies with the thread that started it

        def kill_on(slot: int):
            while running.is_set():
                time.sleep(self.chance.random() * 0.15)
                victim = deployment.workers[slot]
                with state:
                    state.wait_for(lambda: up[0] > UP_MIN or broken)
                    if len(killed) >= kills or broken:
                        break
                    up[0] -= 1
                    killed.append(time.monotonic())
                    done = len(killed)
                victim.close()
                deployment.workers[slot] = deployment.start_worker()
                with state:
                    up[0] += 1
                    state.notify_all()
                if done % max(1, kills // 20) == 0:
                    print(f"  {done} kills, {streams[0]} streams, {len(faults)} faults, {time.monotonic() - begin:.0f} s",
                          file=sys.stderr, flush=True)

        clients = [threading.Thread(target=client, args=(i,)) for i in range(STREAMS)]
        killers = [threading.Thread(target=killer, args=(i,)) for i in range(SLOTS)]
        for thread in clients + killers:
            thread.start()
        with state:
            state.wait_for(lambda: len(killed) >= kills and up[0] == SLOTS or broken)
        running.clear()
        for thread in clients:
            thread.join()
        moved = deployment.http.metric("dynamo_frontend_model_migration_total")
        took = self.moves_ms(deployment)
        eventually(deployment.idle, "idle")
        over.set()
        for thread in killers:
            thread.join()
        gaps.sort()
        print(f"{self.id()}: {len(killed)} kills in {time.monotonic() - begin:.0f} s, {streams[0]} streams, {moved:.0f} moved, "
              f"{len(faults)} failed or differ; kill to next token at clients p50 {self.quantile(gaps, 0.5):.0f} ms, "
              f"p99 {self.quantile(gaps, 0.99):.0f} ms of {len(gaps)}; loss to next token of streams that moved p50 {took(0.5)}, "
              f"p99 {took(0.99)}; load {os.getloadavg()[0]:.1f}", file=sys.stderr, flush=True)
        self.assertEqual(broken, [])
        self.assertEqual(faults[:5], [])
        self.assertGreater(moved, 0, "no stream was hit: the test proved nothing")

    @staticmethod
    def moves_ms(deployment):
        """A function from q to the bound of the frontend's own histogram that q of all moves stayed below."""
        name = "dynamo_frontend_model_migration_duration_seconds"
        _, _, text = deployment.http.request("GET", "/metrics")
        counts: dict[float, float] = {}
        for line in text.decode().splitlines():
            if line.startswith(f"{name}_bucket{{"):
                le = float(re.search(r'le="([^"]+)"', line)[1])
                counts[le] = counts.get(le, 0) + float(line.rsplit(" ", 1)[1])
        total = max(counts.values(), default=0)

        def at_most(q: float) -> str:
            bound = next((le for le, count in sorted(counts.items()) if count >= q * total), float("nan"))
            return f"<= {bound * 1e3:.0f} ms"

        return at_most

    @staticmethod
    def quantile(values: list[float], q: float) -> float:
        return values[min(len(values) - 1, int(len(values) * q))] * 1e3 if values else float("nan")

    # The simulated token depends on all earlier ones, so one lost, doubled or altered token changes all that follow.
    def test_simulated_engine(self):
        self.storm(KILLS or times(40), "sim", ("--sim-speedup", "4"), max_tokens=120)


if __name__ == "__main__":
    unittest.main()
