#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Workers killed under streaming load: every client sees the stream it would have seen undisturbed, byte for byte.

STATOR_KILLS=N and STATOR_CPU_KILLS=N make the storms longer than the default; the report goes to stdout.
"""

import os
import random
import sys
import threading
import time
import unittest

from exact_streams import CHAT, Answer, ask, bodies, load
from stator_process import MODEL, Split, eventually

SIM_KILLS = int(os.environ.get("STATOR_KILLS", "24"))
CPU_KILLS = int(os.environ.get("STATOR_CPU_KILLS", "6"))
SEED = int(os.environ.get("STATOR_TEST_SEED", "20261122"))


class Storm(unittest.TestCase):
    """Load in the background, kills in the foreground."""

    def deploy(self, *frontend_arguments: str, **fields) -> Split:
        deployment = Split(*frontend_arguments, **fields)
        self.addCleanup(deployment.close)
        return deployment

    def busiest_wait(self, deployment: Split, chance: random.Random):
        # Kills fall anywhere in the life of a request: prefill, decode, last token.
        eventually(lambda: deployment.http.metric("stator_router_active_requests") > 0, "load")
        time.sleep(chance.random() * 0.2)

    def storm(self, deployment: Split, kinds: list[tuple[str, dict]], kills: int, streams: int):
        chance = random.Random(SEED)
        expected = []
        for path, body in kinds:
            answer = ask(deployment.frontend.port, path, body)
            self.assertFalse(answer.error)
            expected.append(answer.visible())
        kill_times = []
        with load(deployment.frontend.port, kinds, streams) as answers:
            for _ in range(kills):
                self.busiest_wait(deployment, chance)
                victim = deployment.workers.pop(chance.randrange(len(deployment.workers)))
                kill_times.append(time.monotonic())
                victim.close()
                deployment.workers.append(deployment.start_worker())
                deployment.wait_for_workers(len(deployment.workers))
        failed = [(kind, answer.error) for kind, answer in answers if answer.error]
        differing = [kind for kind, answer in answers if not answer.error and answer.visible() != expected[kind]]
        moved = deployment.http.metric("dynamo_frontend_model_migration_total")
        gaps = sorted(self.gaps_after_kills(answers, kill_times))
        print(f"{type(self).__name__}: {kills} kills, {len(answers)} streams, {moved:.0f} moved, {len(failed)} failed, "
              f"{len(differing)} differ; kill to next token of {len(gaps)} interrupted streams: "
              f"p50 {self.quantile(gaps, 0.5) * 1e3:.0f} ms, p99 {self.quantile(gaps, 0.99) * 1e3:.0f} ms", file=sys.stderr)
        self.assertEqual(failed, [])
        self.assertEqual(differing, [])
        self.assertGreater(moved, 0, "no stream was hit: the test proved nothing")
        eventually(deployment.idle, "idle")

    @staticmethod
    def gaps_after_kills(answers, kill_times):
        """Per kill and stream that ran over it: from the kill to the first token after the longest pause around it."""
        for at in kill_times:
            for _, answer in answers:
                before = [t for t in answer.arrivals if t <= at]
                after = [t for t in answer.arrivals if t > at]
                if before and after:
                    # Tokens in flight at the kill still arrive; the seam is the longest pause of the next second.
                    times = [at] + [t for t in after if t < at + 1.5]
                    if len(times) < 2:
                        yield after[0] - at
                        continue
                    pauses = [(b - a, b) for a, b in zip(times, times[1:])]
                    longest, end = max(pauses)
                    yield end - at

    @staticmethod
    def quantile(values: list[float], q: float) -> float:
        return values[min(len(values) - 1, int(len(values) * q))] if values else float("nan")


class SimStorm(Storm):
    # The simulated token depends on all earlier ones, so one lost, doubled or altered token changes all that follow.
    def test_streams_of_killed_workers_are_those_of_living_ones(self):
        deployment = self.deploy("--migration-limit", "10", "--frontend-poison-workers", "0", workers=3,
                                 worker_arguments=("--sim-speedup", "2"))
        self.storm(deployment, bodies(120), SIM_KILLS, streams=8)


class CpuStorm(Storm):
    def test_streams_of_killed_workers_are_those_of_living_ones(self):
        deployment = self.deploy("--migration-limit", "10", "--frontend-poison-workers", "0", workers=2,
                                 engine="cpu")
        self.storm(deployment, bodies(64), CPU_KILLS, streams=3)


class RollingRestart(Storm):
    def test_all_workers_are_replaced_under_load_and_nobody_notices(self):
        # No migration: draining and handing over must be enough.
        deployment = self.deploy("--migration-limit", "0", workers=3, worker_arguments=("--drain-timeout", "100ms"))
        kinds = bodies(100)
        expected = [ask(deployment.frontend.port, path, body).visible() for path, body in kinds]
        with load(deployment.frontend.port, kinds, streams=6) as answers:
            for _ in range(2 * len(deployment.workers)):
                deployment.workers.append(deployment.start_worker())
                deployment.wait_for_workers(len(deployment.workers))
                leaving = deployment.workers.pop(0)
                leaving.terminate()
                self.assertEqual(leaving.wait(), 0, leaving.log())
                leaving.close()
                deployment.wait_for_workers(len(deployment.workers))
        self.assertEqual([answer.error for _, answer in answers if answer.error], [])
        self.assertEqual([kind for kind, answer in answers if answer.visible() != expected[kind]], [])
        self.assertGreater(deployment.http.metric("stator_frontend_drain_handoffs_total"), 0)
        eventually(deployment.idle, "idle")


class OneStream(Storm):
    """Single faults whose outcome can be told exactly."""

    BODY = {"model": MODEL, "messages": [{"role": "user", "content": "What is a KV cache?"}], "max_tokens": 400,
            "temperature": 0, "ignore_eos": True}

    def run_with(self, deployment: Split, fault, body: dict | None = None) -> tuple[Answer, Answer]:
        """An undisturbed answer, and one under which `fault(worker that runs it)` was called."""
        body = body or self.BODY
        expected = ask(deployment.frontend.port, CHAT, body)
        self.assertFalse(expected.error)
        answers: list[Answer] = []
        thread = threading.Thread(target=lambda: answers.append(ask(deployment.frontend.port, CHAT, body)))
        tokens = deployment.http.metric("dynamo_frontend_output_tokens_total")
        thread.start()
        eventually(lambda: deployment.http.metric("dynamo_frontend_output_tokens_total") > tokens + 3, "tokens")
        fault(self.runner_of(deployment))
        thread.join()
        return expected, answers[0]

    @staticmethod
    def runner_of(deployment: Split):
        """The worker of the latest decision."""
        _, receipt = deployment.http.get("/receipts/last")
        return next(w for w in deployment.workers if w.ready["worker_id"] == receipt["chosen"]["worker_id"])

    def assert_same(self, expected: Answer, answer: Answer):
        self.assertEqual(answer.error, "")
        self.assertEqual(answer.visible(), expected.visible())

    def test_a_drained_worker_hands_over_what_it_cannot_finish(self):
        deployment = self.deploy("--migration-limit", "0", worker_arguments=("--drain-timeout", "0s"))
        leaving = []

        def drain(worker):
            leaving.append(worker)
            worker.terminate()

        self.assert_same(*self.run_with(deployment, drain))
        self.assertEqual(deployment.http.metric("stator_frontend_drain_handoffs_total"), 1)
        self.assertEqual(leaving[0].wait(), 0, leaving[0].log())
        eventually(deployment.idle, "idle")

    def test_a_stream_waits_for_a_worker_when_none_is_left(self):
        deployment = self.deploy(workers=1)

        def replace(worker):
            deployment.workers.remove(worker)
            worker.close()
            deployment.workers.append(deployment.start_worker())

        self.assert_same(*self.run_with(deployment, replace))
        self.assertEqual(deployment.http.metric(
            "dynamo_frontend_model_migration_duration_seconds_count", outcome="success"), 1)

    def test_a_stopped_worker_loses_its_streams_and_its_late_output_is_fenced(self):
        deployment = self.deploy("--frontend-stall-timeout", "1s")
        frozen = []

        def freeze(worker):
            frozen.append(worker)
            worker.freeze()

        expected, answer = self.run_with(deployment, freeze)
        self.assertEqual(deployment.http.metric("stator_frontend_suspended_workers"), 1)
        frozen[0].thaw()
        self.assert_same(expected, answer)
        self.assertEqual(deployment.http.metric("stator_frontend_stalls_total"), 1)
        # The frozen one wakes up, finds its request cancelled, answers probes and serves again.
        eventually(lambda: deployment.http.metric("stator_frontend_suspended_workers") == 0, "resumed")
        eventually(deployment.idle, "idle")
        eventually(lambda: len(deployment.worker_ids()) == 2, "both workers")
        self.assert_same(expected, ask(deployment.frontend.port, CHAT, self.BODY))

    def test_an_idle_worker_that_hangs_is_found_by_a_canary(self):
        deployment = self.deploy("--frontend-canary-interval", "500ms")
        eventually(lambda: deployment.http.metric("stator_frontend_canary_success_total") >= 2, "canaries sing")
        hung, other = deployment.workers
        hung.freeze()
        eventually(lambda: deployment.http.metric("stator_frontend_suspended_workers") == 1
                   or len(deployment.worker_ids()) == 1, "found")
        for _ in range(3):
            self.assertEqual(deployment.http.post(CHAT, self.BODY | {"max_tokens": 3})[0], 200)
            _, receipt = deployment.http.get("/receipts/last")
            self.assertEqual(receipt["chosen"]["worker_id"], other.ready["worker_id"])
        hung.thaw()
        eventually(lambda: deployment.http.metric("stator_frontend_suspended_workers") == 0
                   and len(deployment.worker_ids()) == 2, "back")

    def test_with_limit_0_the_client_gets_an_error_at_once(self):
        # It would wait for longer than a client of this test does.
        deployment = self.deploy("--migration-limit", "0", "--frontend-migration-wait", "1h")
        _, answer = self.run_with(deployment, lambda worker: worker.kill())
        self.assertIn("error", answer.error)
        self.assertIn('"code":503', answer.events[-2].replace(" ", ""))
        eventually(deployment.idle, "idle")

    def test_a_request_under_which_workers_die_is_refused_for_a_while(self):
        deployment = self.deploy("--migration-limit", "5", "--frontend-poison-workers", "2", workers=3)

        def kill_two(worker):
            worker.kill()
            deployment.workers.remove(worker)
            eventually(lambda: deployment.http.metric("dynamo_frontend_model_migration_total") == 1, "moved")
            second = self.runner_of(deployment)
            second.kill()
            deployment.workers.remove(second)

        _, answer = self.run_with(deployment, kill_two)
        self.assertIn("2 workers died", answer.events[-2])
        status, refused = deployment.http.post(CHAT, self.BODY)
        self.assertEqual(status, 503)
        self.assertIn("refused for another", refused["error"]["message"])
        other = self.BODY | {"messages": [{"role": "user", "content": "Something else"}]}
        self.assertEqual(deployment.http.post(CHAT, other)[0], 200)
        self.assertEqual(deployment.http.metric("stator_frontend_poisoned_requests_total"), 1)
        self.assertEqual(deployment.http.metric("stator_frontend_quarantined_requests_total"), 1)
        eventually(deployment.idle, "idle")


if __name__ == "__main__":
    unittest.main()
