#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""KV events over a broker that dies, with workers and frontends that die: the index ends as the workers are."""

import random
import threading
import unittest

from nats_server import NatsServer
from stator_process import MODEL, MODEL_DIR, Http, Split, Stator, eventually

CHAT = "/v1/chat/completions"
# Small enough that blocks are evicted, so that removals travel, too.
WORKER = ("--kv-blocks", "128", "--sim-speedup", "0", "--block-size", "16")


class Load:
    """Prompts that share beginnings, from a few threads, until stopped. `failures` are answers other than 200."""

    def __init__(self, port: int, threads: int = 2, seed: int = 7):
        self.port = port
        self.done = 0
        self.failures: list = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(seed + i,)) for i in range(threads)]
        for thread in self._threads:
            thread.start()

    def _run(self, seed: int) -> None:
        draw = random.Random(seed)
        http = Http(self.port)
        while not self._stop.is_set():
            family = draw.randrange(12)
            text = f"Story {family}. " + "Once upon a time there was a cache. " * (3 + family) + f"Ending {draw.randrange(4)}."
            try:
                status, answer = http.post(CHAT, {
                    "model": MODEL, "messages": [{"role": "user", "content": text}], "max_tokens": 4, "temperature": 0})
            except OSError as error:
                status, answer = 0, str(error)
            if status == 200:
                self.done += 1
            else:
                self.failures.append((status, answer))

    def wait_for(self, more: int) -> None:
        goal = self.done + more
        eventually(lambda: self.done >= goal or self.failures, f"{more} more answers", 180)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


class BrokerTest(unittest.TestCase):
    JET_STREAM = False

    def setUp(self):
        self.nats = NatsServer(jet_stream=self.JET_STREAM)
        self.addCleanup(self.nats.close)

    def deploy(self, *arguments: str, workers: int = 2) -> Split:
        """Everything over NATS, `arguments` for all processes."""
        arguments = ("--events", self.nats.url, *arguments)
        deployment = Split(*arguments, workers=workers, worker_arguments=(*WORKER, *arguments))
        self.addCleanup(deployment.close)
        return deployment

    def witness(self, deployment: Split) -> Stator:
        """A second frontend, which reads the workers' own gRPC streams: what the index should be."""
        frontend = Stator("frontend", "--host", "127.0.0.1", "--port", "0", *deployment.discovery)
        self.addCleanup(frontend.close)
        count = len(deployment.worker_ids())
        eventually(lambda: len(Http(frontend.port).get("/health")[1].get("instances", [])) == count, "the witness's workers")
        return frontend

    def load(self, port: int) -> Load:
        load = Load(port)
        self.addCleanup(load.stop)
        return load

    @staticmethod
    def blocks(frontend: Stator) -> float:
        return Http(frontend.port).metric("stator_router_index_blocks")

    def assert_equal_index(self, frontend: Stator, witness: Stator) -> None:
        eventually(lambda: self.blocks(witness) > 0 and self.blocks(frontend) == self.blocks(witness),
                   f"the index equals the workers' caches: {self.blocks(frontend)} and {self.blocks(witness)} blocks")


class Broker(BrokerTest):
    def test_the_index_follows_the_workers_and_prefixes_are_found(self):
        deployment = self.deploy()
        load = self.load(deployment.frontend.port)
        load.wait_for(60)
        load.stop()
        self.assertEqual(load.failures, [])
        self.assert_equal_index(deployment.frontend, self.witness(deployment))
        self.assertGreater(deployment.http.metric("stator_events_plane_messages_total"), 0)

    def test_a_broker_that_is_killed_under_load_fails_no_request_and_leaves_no_trace(self):
        deployment = self.deploy()
        witness = self.witness(deployment)
        load = self.load(deployment.frontend.port)
        load.wait_for(20)
        for _ in range(3):
            self.nats.kill()
            eventually(lambda: deployment.http.metric("stator_events_nats_up") == 0, "the frontend has noticed")
            load.wait_for(30)
            self.nats.start()
            eventually(lambda: deployment.http.metric("stator_events_nats_up") == 1, "the frontend is connected again")
            load.wait_for(10)
        load.stop()
        self.assertEqual(load.failures, [])
        self.assert_equal_index(deployment.frontend, witness)

    def test_a_broker_that_comes_last_is_found(self):
        self.nats.kill()
        deployment = self.deploy()
        witness = self.witness(deployment)
        load = self.load(deployment.frontend.port)
        load.wait_for(20)
        self.assertEqual(self.blocks(deployment.frontend), 0)
        self.nats.start()
        load.wait_for(10)
        load.stop()
        self.assertEqual(load.failures, [])
        self.assert_equal_index(deployment.frontend, witness)

    def test_workers_and_frontends_that_are_killed_leave_nothing_behind(self):
        deployment = self.deploy(workers=3)
        witness = self.witness(deployment)
        load = self.load(deployment.frontend.port)
        load.wait_for(30)
        deployment.workers[0].kill()
        deployment.workers.append(deployment.start_worker())
        load.wait_for(30)
        load.stop()
        for frontend in (deployment.frontend, witness):
            eventually(lambda frontend=frontend: len(Http(frontend.port).get("/health")[1]["instances"]) == 3,
                       "the dead worker is gone, the new one there")
        self.assert_equal_index(deployment.frontend, witness)

        deployment.frontend.close()  # kill -9
        deployment.frontend = deployment.start_frontend()
        deployment.wait_for_workers(3)
        self.assert_equal_index(deployment.frontend, witness)


    def test_events_that_are_lost_repeated_or_late_are_noticed_and_repaired(self):
        faults = ("--sim-fault-lose-events", "0.2", "--sim-fault-repeat-events", "0.2", "--sim-fault-reorder-events", "0.2")
        events = ("--events", self.nats.url)
        deployment = Split(*events, workers=2, worker_arguments=(*WORKER, *events, *faults, "--system-port", "0"))
        self.addCleanup(deployment.close)
        witness = self.witness(deployment)
        load = self.load(deployment.frontend.port)
        for kind in ("lose_events", "repeat_events", "reorder_events"):
            eventually(lambda kind=kind: sum(Http(worker.ready["system_port"]).metric("stator_sim_faults_total", kind=kind)
                                             for worker in deployment.workers) > 0, f"{kind} was struck")
        load.wait_for(60)
        load.stop()
        self.assertEqual(load.failures, [])
        self.assert_equal_index(deployment.frontend, witness)
        # Two questions are those of a frontend that starts.
        self.assertGreater(deployment.http.metric("stator_events_plane_queries_total"), 2)

    def test_a_bad_link_is_of_simulated_engines_and_brokers_that_keep_nothing(self):
        for arguments in ((), ("--events", self.nats.url, "--durable-kv-events")):
            worker = Stator("worker", str(MODEL_DIR), "--engine", "sim", "--discovery", "file:/tmp/stator-unused",
                            "--sim-fault-lose-events", "0.5", *arguments, announce=False)
            self.addCleanup(worker.close)
            self.assertNotEqual(worker.wait(), 0)
            self.assertIn("sim_fault.lose_events", worker.log())


class Durable(BrokerTest):
    """Events that the broker keeps: `--durable-kv-events`."""

    JET_STREAM = True

    def test_a_frontend_that_comes_late_asks_no_worker(self):
        deployment = self.deploy("--durable-kv-events")
        load = self.load(deployment.frontend.port)
        load.wait_for(60)
        load.stop()
        self.assertEqual(load.failures, [])
        witness = self.witness(deployment)
        self.assert_equal_index(deployment.frontend, witness)

        deployment.frontend.close()  # kill -9
        deployment.frontend = deployment.start_frontend()
        deployment.wait_for_workers(2)
        self.assert_equal_index(deployment.frontend, witness)
        self.assertEqual(deployment.http.metric("stator_events_durable_restored_total"), 2)
        self.assertEqual(deployment.http.metric("stator_events_plane_queries_total"), 0)

    def test_broker_router_and_worker_are_killed_and_the_index_ends_as_the_workers_are(self):
        # So low that snapshots are written and purged under way, however many events workers put into one message: the load has 48
        # texts and brings nothing new once they are all cached.
        deployment = self.deploy("--durable-kv-events", "--router-snapshot-threshold", "5", workers=3)
        witness = self.witness(deployment)
        load = self.load(deployment.frontend.port)
        load.wait_for(20)
        self.nats.kill()
        load.wait_for(20)
        self.nats.start()
        deployment.workers[0].kill()
        load.wait_for(20)
        eventually(lambda: deployment.http.metric("stator_events_durable_snapshots_total") > 0, "a snapshot")
        load.stop()
        for frontend in (deployment.frontend, witness):
            eventually(lambda frontend=frontend: len(Http(frontend.port).get("/health")[1]["instances"]) == 2,
                       "the dead worker is gone")
        self.assert_equal_index(deployment.frontend, witness)

        deployment.frontend.close()  # kill -9
        deployment.frontend = deployment.start_frontend()
        deployment.wait_for_workers(2)
        self.assert_equal_index(deployment.frontend, witness)
        self.assertGreater(deployment.http.metric("stator_events_durable_restored_total"), 0)

    def test_a_broker_that_keeps_nothing_costs_only_the_memory(self):
        self.nats.close()
        self.nats = NatsServer()  # without JetStream
        self.addCleanup(self.nats.close)
        deployment = self.deploy("--durable-kv-events")
        load = self.load(deployment.frontend.port)
        load.wait_for(20)
        load.stop()
        self.assertEqual(load.failures, [])
        eventually(lambda: deployment.http.metric("stator_events_durable_failures_total") > 0, "the failure is counted")
        self.assertIn("start nats-server with -js", deployment.frontend.log())
        self.assert_equal_index(deployment.frontend, self.witness(deployment))


class Refused(unittest.TestCase):
    def refusal(self, *arguments: str) -> str:
        process = Stator("frontend", "--port", "0", "--discovery", "file:/tmp/stator-unused", *arguments, announce=False)
        self.addCleanup(process.close)
        self.assertNotEqual(process.wait(), 0)
        return process.log()

    def test_a_carrier_nobody_knows_is_named(self):
        self.assertIn("--events", self.refusal("--events", "pigeon://h"))

    def test_a_broker_without_a_port_number_is_named_without_its_password(self):
        log = self.refusal("--events", "nats://me:secret@h:no-port")
        self.assertIn("h:no-port", log)
        self.assertNotIn("secret", log)

    def test_durable_events_need_a_broker(self):
        self.assertIn("nats://HOST:PORT", self.refusal("--durable-kv-events"))


if __name__ == "__main__":
    unittest.main()
