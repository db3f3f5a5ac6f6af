#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Forward passes of live engines on a real broker, read by a subscriber that shares no code with Stator, and by `stator passes`."""

import json
import random
import subprocess
import tempfile
import unittest

from nats_reader import NatsReader
from nats_server import NatsServer
from stator_process import BINARY, HANG_S, MODEL, MODEL_DIR, Http, Split, Stator, clean_environment, eventually
from zmq_wire import unpack

COMPLETIONS = "/v1/completions"
WORK = {"num_prefill_requests", "sum_prefill_tokens", "var_prefill_length", "sum_prefill_kv_tokens", "num_decode_requests",
        "sum_decode_kv_tokens", "var_decode_kv_tokens"}
IDLE_WORK = dict.fromkeys(sorted(WORK), 0)
SUBJECT = "namespace.*.component.*.forward-pass-metrics"


class ForwardPasses(unittest.TestCase):
    def setUp(self):
        self.nats = NatsServer()
        self.addCleanup(self.nats.close)

    def deploy(self, *worker_arguments: str) -> Split:
        events = ("--events", self.nats.url)
        deployment = Split(*events, workers=1, worker_arguments=(
            *events, "--forward-passes", "--sim-speedup", "0", "--block-size", "16", *worker_arguments))
        self.addCleanup(deployment.close)
        return deployment

    def reader(self) -> NatsReader:
        reader = NatsReader(self.nats.port, SUBJECT)
        self.addCleanup(reader.close)
        return reader

    def ask(self, deployment: Split, prompt: list[int], tokens: int) -> None:
        status, answer = deployment.http.post(COMPLETIONS, {
            "model": MODEL, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True})
        self.assertEqual(status, 200, answer)
        self.assertEqual(answer["usage"]["completion_tokens"], tokens)

    @staticmethod
    def until_idle(reader: NatsReader) -> list[tuple[dict, dict]]:
        """Envelopes and passes up to the one that says that the engine is idle."""
        told = []
        while True:
            envelope = unpack(reader.next()[1])
            record = unpack(envelope["payload"])
            told.append((envelope, record))
            if record["scheduled_requests"]["num_prefill_requests"] + record["scheduled_requests"]["num_decode_requests"] == 0:
                return told

    def test_every_pass_of_a_request_is_told_and_adds_up(self):
        deployment = self.deploy()
        reader = self.reader()
        prompt = list(range(100, 140))
        self.ask(deployment, prompt, 8)
        told = self.until_idle(reader)

        worker = deployment.worker_ids()[0]
        for place, (envelope, record) in enumerate(told):
            self.assertEqual(envelope["topic"], "forward-pass-metrics")
            self.assertEqual(envelope["publisher_id"], worker)
            self.assertEqual(envelope["sequence"], place)
            self.assertEqual(record["version"], 1)
            self.assertEqual(record["worker_id"], str(worker))
            self.assertEqual(record["dp_rank"], 0)
            self.assertEqual(record["counter_id"], place + 1)
            self.assertEqual(set(record["scheduled_requests"]), WORK)
            self.assertEqual(set(record["queued_requests"]), WORK - {"sum_prefill_kv_tokens"})
        scheduled = [record["scheduled_requests"] for _, record in told]
        self.assertEqual(sum(work["sum_prefill_tokens"] for work in scheduled), len(prompt))
        # The pass that ends the prompt makes the first token; each other one reads one token more than the one before.
        decodes = [work["sum_decode_kv_tokens"] for work in scheduled if work["num_decode_requests"]]
        self.assertEqual(decodes, [len(prompt) + made for made in range(1, 8)])
        self.assertTrue(all(record["wall_time"] > 0 for _, record in told[:-1]))
        self.assertEqual(told[-1][1]["wall_time"], 0)
        self.assertEqual(told[-1][1]["scheduled_requests"], IDLE_WORK)

    def test_cached_tokens_are_read_and_not_computed(self):
        deployment = self.deploy()
        reader = self.reader()
        prompt = list(range(200, 260))
        self.ask(deployment, prompt, 1)
        self.until_idle(reader)
        self.ask(deployment, prompt, 1)
        work = [record["scheduled_requests"] for _, record in self.until_idle(reader)]
        self.assertEqual(sum(w["sum_prefill_tokens"] for w in work), 60 - 48)
        self.assertEqual(sum(w["sum_prefill_kv_tokens"] for w in work), 48)

    def test_ranks_tell_their_own(self):
        deployment = self.deploy("--dp-size", "2")
        reader = self.reader()
        source, ranks = random.Random(7), set()
        for _ in range(100):  # each request's rank is the router's choice
            self.ask(deployment, source.sample(range(1, 1000), 40), 2)
            ranks |= {record["dp_rank"] for _, record in self.until_idle(reader)}
            if ranks == {0, 1}:
                return
        self.fail(f"100 requests were computed by {ranks}")

    def test_the_broker_may_go_and_come_again(self):
        deployment = self.deploy("--system-port", "0")
        system = Http(deployment.workers[0].ready["system_port"])
        self.nats.kill()
        # The client of the broker may take a moment to notice.
        eventually(lambda: self.ask(deployment, list(range(50)), 2) or system.metric("stator_forward_passes_dropped_total") > 0,
                   "what nobody could be told is counted")
        published = system.metric("stator_forward_passes_published_total")
        self.nats.start()
        reader = self.reader()

        def told_again() -> bool:
            self.ask(deployment, list(range(50)), 2)
            reader.socket.settimeout(1)
            try:
                return bool(reader.next())
            except TimeoutError:
                reader.file = reader.socket.makefile("rb")
                return False
        eventually(told_again, "a pass after the broker came back")
        self.assertGreater(system.metric("stator_forward_passes_published_total"), published)

    def test_the_command_prints_them(self):
        deployment = self.deploy()
        command = subprocess.Popen([BINARY, "passes", "--events", self.nats.url, "--json", "--count", "3"], stdout=subprocess.PIPE,
                                   env=clean_environment())
        self.addCleanup(command.stdout.close)
        self.addCleanup(command.wait)
        self.addCleanup(command.kill)

        def ended() -> bool:
            self.ask(deployment, list(range(30)), 4)  # until it has subscribed and seen enough
            return command.poll() is not None
        eventually(ended, "three lines", HANG_S)
        lines = [json.loads(line) for line in command.stdout.read().splitlines()]
        self.assertEqual(command.returncode, 0)
        self.assertEqual(len(lines), 3)
        self.assertEqual([line["counter_id"] - lines[0]["counter_id"] for line in lines], [0, 1, 2])
        self.assertEqual(set(lines[0]["scheduled_requests"]), WORK)
        self.assertEqual(lines[0]["worker_id"], str(deployment.worker_ids()[0]))


class Refused(unittest.TestCase):
    def refusal(self, *arguments: str) -> str:
        process = Stator(*arguments, announce=False)
        self.addCleanup(process.close)
        self.assertNotEqual(process.wait(), 0)
        return process.log()

    def test_they_need_a_broker(self):
        self.assertIn("nats://HOST:PORT", self.refusal("passes"))

    def test_workers_need_one_too(self):
        with tempfile.TemporaryDirectory() as store:
            self.assertIn("events.forward_passes", self.refusal(
                "worker", str(MODEL_DIR), "--engine", "sim", "--discovery", f"file:{store}", "--forward-passes"))

    def test_the_passes_of_another_engine_cannot_be_seen(self):
        nats = NatsServer()
        self.addCleanup(nats.close)
        engine = Stator("sim-server", "--dialect", "vllm", "--model-dir", str(MODEL_DIR), "--served-model-name", "m",
                        "--host", "127.0.0.1", "--port", "0")
        self.addCleanup(engine.close)
        with tempfile.TemporaryDirectory() as store:
            self.assertIn("engine 'vllm' cannot be seen", self.refusal(
                "worker", str(MODEL_DIR), "--engine", "vllm", "--url", engine.url, "--discovery", f"file:{store}",
                "--events", nats.url, "--forward-passes"))

    def test_the_count_is_a_number(self):
        self.assertIn("--count", self.refusal("passes", "--events", "nats://127.0.0.1:1", "--count", "none"))


if __name__ == "__main__":
    unittest.main()
