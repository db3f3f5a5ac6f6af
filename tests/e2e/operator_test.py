#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What an operator is told: who joined and left, which streams moved where, which engine is dead, where a worker is, what is set up wrong."""

import http.client
import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import threading
import unittest

from stator_process import BINARY, MODEL_DIR, Http, Split, Stator, clean_environment, eventually

FAST = ("--engine-poll-interval", "100ms")


class Operator(unittest.TestCase):
    def start(self, *arguments: str) -> Stator:
        process = Stator(*arguments)
        self.addCleanup(process.close)
        return process

    def engine(self, dialect: str = "vllm", model_dir: pathlib.Path = MODEL_DIR, speedup: str = "0") -> Stator:
        return self.start("sim-server", "--dialect", dialect, "--model-dir", str(model_dir), "--served-model-name", "m", "--port", "0",
                          "--speedup", speedup)

    def front(self, *engines: Stator, kind: str = "vllm", arguments: tuple[str, ...] = ()) -> Stator:
        return self.start("serve", str(MODEL_DIR), "--engine", kind, "--url", ",".join(e.url for e in engines), "--host", "127.0.0.1",
                          "--port", "0", *FAST, *arguments)

    @staticmethod
    def lines(process: Stator, text: str) -> list[str]:
        return [line for line in process.log().splitlines() if text in line]

    def explain(self, process: Stator, what: str = "last") -> str:
        done = subprocess.run([BINARY, "explain", what, "--url", process.url], env=clean_environment(), capture_output=True, text=True,
                              timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout


class EngineServers(Operator):
    def test_a_dead_engine_is_no_healthy_instance_and_the_log_says_so_once(self):
        engines = [self.engine(), self.engine()]
        stator = self.front(*engines)
        http_ = Http(stator.port)
        instances = http_.get("/health")[1]["instances"]
        self.assertEqual(sorted(i["url"] for i in instances), sorted(e.url for e in engines))
        self.assertEqual(len(self.lines(stator, "worker joined")), 2, stator.log())
        engines[0].kill()
        health = eventually(lambda: (h := http_.get("/health")[1]).get("unavailable") and h, "the dead one is unavailable")
        self.assertEqual([i["url"] for i in health["instances"]], [engines[1].url])
        self.assertEqual([i["url"] for i in health["unavailable"]], [engines[0].url])
        self.assertIn("engine", health["unavailable"][0]["reason"])
        told = self.lines(stator, "its engine does not answer")
        self.assertEqual(len([line for line in told if "worker gets nothing new" in line]), 1, told)
        self.assertIn(engines[0].url, told[-1])
        engines[1].kill()
        status, body = eventually(lambda: (a := http_.get("/health"))[0] == 503 and a, "nobody is left")
        self.assertIn("does not answer", body["message"])
        self.assertTrue(any(e.url in body["message"] for e in engines), body)

    def test_a_worker_id_leads_to_its_url(self):
        engine = self.engine()
        stator = self.front(engine)
        answer = Http(stator.port).post("/v1/completions", {"model": "m", "prompt": "The router", "max_tokens": 2,
                                                             "nvext": {"extra_fields": ["worker_id"]}})[1]
        worker = answer["nvext"]["worker_id"]["decode_worker_id"]
        text = self.explain(stator)
        self.assertIn(f"worker {worker} is {engine.url}", text)
        self.assertEqual(Http(stator.port).get("/receipts/last")[1]["urls"], {str(worker): engine.url})

    def test_a_server_of_another_kind_is_refused_by_name(self):
        engine = self.engine("sglang")
        done = subprocess.run([BINARY, "serve", str(MODEL_DIR), "--engine", "vllm", "--url", engine.url, "--port", "0"],
                              env=clean_environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("use --engine sglang", done.stderr)

    def test_a_model_that_is_not_the_engines_is_told_loudly(self):
        with tempfile.TemporaryDirectory(prefix="stator-e2e-") as folder:
            other = pathlib.Path(folder) / "other"
            shutil.copytree(MODEL_DIR, other)
            vocabulary = json.loads((other / "tokenizer.json").read_text())
            vocabulary["model"]["merges"] = vocabulary["model"]["merges"][:50]
            (other / "tokenizer.json").write_text(json.dumps(vocabulary))
            wrong, right = self.front(self.engine(model_dir=other)), self.front(self.engine())
            self.assertEqual(len(self.lines(wrong, "another model than the engine's")), 1, wrong.log())
            self.assertIn(" ERROR ", self.lines(wrong, "another model")[0])
            self.assertEqual(self.lines(right, "another model"), [])

    def test_only_prefill_workers_are_named_as_the_cause(self):
        engine = self.engine()
        stator = self.front(engine, arguments=("--role", "prefill"))
        status, body = Http(stator.port).get("/health")
        self.assertEqual(status, 503)
        self.assertIn("only compute prompts", body["message"])

    def test_doctor_looks_at_engine_servers(self):
        engine = self.engine()

        def doctor(*arguments: str) -> subprocess.CompletedProcess:
            return subprocess.run([BINARY, "doctor", "--host", "127.0.0.1", "--port", "0", *arguments], env=clean_environment(), capture_output=True, text=True,
                                  timeout=300)

        good = doctor("--engine", "vllm", "--url", engine.url)
        self.assertRegex(good.stdout, rf"ok +engine +{re.escape(engine.url)}: vllm .*model m")
        self.assertRegex(good.stdout, r"libraries +OpenSSL \d.*libcurl \d")
        wrong = doctor("--engine", "sglang", "--url", engine.url)
        self.assertEqual(wrong.returncode, 1)
        self.assertIn("use --engine vllm", wrong.stdout)
        self.assertIn("FIX", doctor("--engine", "vllm", "--url", "http://127.0.0.1:1").stdout)


class Moves(unittest.TestCase):
    def test_workers_that_come_and_go_and_the_streams_they_leave_behind(self):
        deployment = Split(workers=2, worker_arguments=("--sim-speedup", "1"))
        self.addCleanup(deployment.close)
        frontend = deployment.frontend
        done: list[str] = []

        def stream(number: int) -> None:
            connection = http.client.HTTPConnection("127.0.0.1", frontend.port, timeout=120)
            body = {"model": "demo", "prompt": [300 + number * 7 + i for i in range(20)], "max_tokens": 400, "ignore_eos": True, "stream": True}
            connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
            done.append(connection.getresponse().read().decode())
            connection.close()

        threads = [threading.Thread(target=stream, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        victim = deployment.workers[0]
        eventually(lambda: deployment.http.metric("stator_router_active_requests") == 8, "all are routed")
        victim.kill()
        for thread in threads:
            thread.join()
        self.assertTrue(all(text.rstrip().endswith("[DONE]") for text in done))

        def told(text: str) -> list[str]:
            return [line for line in frontend.log().splitlines() if text in line]

        self.assertEqual(len(told("worker joined")), 2, frontend.log())
        self.assertEqual(len(told("worker left")), 1, frontend.log())
        moved = eventually(lambda: told("streams moved to another worker"), "a line about the moves")
        self.assertEqual(sum(int(re.search(r"streams=(\d+)", line)[1]) for line in moved),
                         deployment.http.metric("dynamo_frontend_model_migration_total"), moved)
        for line in moved:
            self.assertRegex(line, r"from=\d+ from_url=127\.0\.0\.1:\d+ to=\d+ to_url=127\.0\.0\.1:\d+ why=\"its connection broke\"")

    def test_a_worker_that_stays_away_is_logged_once(self):
        deployment = Split(workers=1, lease_ttl="30s")
        self.addCleanup(deployment.close)
        deployment.workers[0].kill()
        frontend = deployment.frontend
        eventually(lambda: "worker lost" in frontend.log(), "the loss is logged")
        eventually(lambda: deployment.http.metric("stator_runtime_reconnects_total") >= 6, "several attempts to reach it")
        self.assertEqual(frontend.log().count("worker lost") + frontend.log().count("worker not reached"), 1, frontend.log())


if __name__ == "__main__":
    unittest.main()
