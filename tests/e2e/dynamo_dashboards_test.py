# SPDX-License-Identifier: Apache-2.0
"""Queries of Dynamo's dashboards (frontend, disaggregation, router) and of its planner, against a real Prometheus that scrapes a prefill/decode fleet
started with Dynamo's own flags and variables."""

import json
import pathlib
import shutil
import subprocess
import tempfile
import unittest
import urllib.parse
import urllib.request

from free_ports import free_ports
from pd_test import ask
from stator_process import MODEL_DIR, ROOT, Http, Stator, clean_environment, eventually

PROMETHEUS = shutil.which("prometheus")
NAMESPACE = "my-fleet"
EVENTS = ("--event-endpoint", "tcp://127.0.0.1:0", "--event-replay-endpoint", "tcp://127.0.0.1:0")


class Dashboards(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        assert PROMETHEUS, "Debian's package prometheus is needed: scripts/setup.sh test"
        cls.folder = tempfile.TemporaryDirectory(prefix="stator-dynamo-")
        folder = pathlib.Path(cls.folder.name)
        cls.processes = []
        env = clean_environment(DYN_NAMESPACE=NAMESPACE, DYN_FILE_KV=str(folder / "store"), DYN_DISCOVERY_BACKEND="file")

        def start(*arguments: str) -> Stator:
            cls.processes.append(Stator(*arguments, env=env))
            return cls.processes[-1]

        engines = {role: start("sim-server", "--dialect", "vllm", "--model-dir", str(MODEL_DIR), "--served-model-name", "m", "--port", "0",
                               "--role", role, "--speedup", "20", *EVENTS) for role in ("prefill", "decode")}
        workers = [start("worker", "--model-path", str(MODEL_DIR), "--engine", "vllm", "--url", engine.url, "--disaggregation-mode", role,
                         "--model-name", "m", "--system-port", "0", "--engine-poll-interval", "100ms") for role, engine in engines.items()]
        cls.frontend = start("frontend", "--http-host", "127.0.0.1", "--http-port", "0", "--router-mode", "kv", "--namespace", NAMESPACE)
        cls.http = Http(cls.frontend.port)
        eventually(lambda: len(cls.http.get("/health")[1].get("instances", [])) == 2, "both workers")
        targets = [f"127.0.0.1:{port}" for port in [cls.frontend.port, *(worker.ready["system_port"] for worker in workers)]]
        (folder / "prometheus.yml").write_text(
            f"global: {{scrape_interval: 500ms}}\n"
            f"scrape_configs: [{{job_name: dynamo, static_configs: [{{targets: {json.dumps(targets)}, labels: {{namespace: k8s-space}}}}]}}]\n")
        port = free_ports(1)[0]
        cls.url = f"http://127.0.0.1:{port}"
        cls.prometheus = subprocess.Popen(
            [PROMETHEUS, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data", f"--web.listen-address=127.0.0.1:{port}"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        cls.load()
        eventually(lambda: cls.query("count_over_time(stator_build_info[10s]) >= 3"), "three scrapes")
        cls.load()
        eventually(lambda: cls.query("rate(dynamo_frontend_output_tokens_total[10s]) > 0"), "a rate")
        eventually(lambda: len(cls.query("rate(dynamo_component_requests_total[10s]) > 0")) == 2, "rates of both workers")

    @classmethod
    def load(cls) -> None:
        for turn in range(4):
            ask(cls.frontend.port, max_tokens=8)
            status, answer = cls.http.post("/v1/chat/completions", {"model": "m", "max_tokens": 8, "messages": [{"role": "user", "content": f"turn {turn}"}]})
            assert status == 200, answer

    @classmethod
    def tearDownClass(cls):
        cls.prometheus.terminate()
        cls.prometheus.wait()
        for process in cls.processes:
            process.kill()
        cls.folder.cleanup()

    @classmethod
    def query(cls, text: str) -> list:
        with urllib.request.urlopen(f"{cls.url}/api/v1/query?query={urllib.parse.quote(text)}", timeout=20) as answer:
            return json.load(answer)["data"]["result"]

    def test_every_panel_has_something_to_show(self):
        for entry in json.loads((ROOT / "tests/e2e/dynamo_queries.json").read_text()):
            text = entry["query"].replace("$namespace", "k8s-space").replace("$router_namespace", NAMESPACE.replace("-", "_"))
            with self.subTest(panel=entry["of"], query=text):
                found = self.query(text)
                self.assertTrue(found)
                self.assertFalse(all(series["value"][1] == "NaN" for series in found), found)
                if entry.get("planner"):  # it keeps only series of its own namespace
                    self.assertIn(NAMESPACE, [series["metric"]["dynamo_namespace"] for series in found])

    def test_prefill_pins_are_checked_as_decode_pins_are(self):
        known = {entry["model"]: entry for entry in self.http.get("/health")[1]["instances"]}
        self.assertEqual(list(known), ["m"])
        workers = [entry["instance_id"] for entry in self.http.get("/health")[1]["instances"]]
        answer = ask(self.frontend.port, nvext={"extra_fields": ["worker_id"]})
        prefill = answer["workers"]["prefill_worker_id"]
        self.assertIn(prefill, workers)
        self.assertNotEqual(prefill, answer["workers"]["decode_worker_id"])
        self.assertIsNone(ask(self.frontend.port, nvext={"prefill_worker_id": prefill})["error"])
        for wrong in ({"prefill_worker_id": 5}, {"decode_worker_id": 5}, {"prefill_worker_id": answer["workers"]["decode_worker_id"]}):
            self.assertEqual(ask(self.frontend.port, nvext=wrong)["error"][0], 404, wrong)
        status, _, _ = self.http.request("POST", "/v1/completions", {"model": "m", "prompt": "a"}, {"x-dynamo-prefill-instance-id": "5"})
        self.assertEqual(status, 404)

    def test_nothing_was_said_to_have_no_effect(self):
        for process in self.processes:
            self.assertNotIn("have no effect", process.log())


if __name__ == "__main__":
    unittest.main()
