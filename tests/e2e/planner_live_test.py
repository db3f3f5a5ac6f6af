#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`stator serve --planner` and `stator planner` as running processes: against live engines, a real Prometheus, etcd, NATS and a stand-in
for the Kubernetes API server."""

import json
import pathlib
import signal
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.request

from etcd_process import Etcd
from free_ports import free_port
from kube_api import KubeApi
from nats_server import NatsServer
from stator_process import BINARY, MODEL, MODEL_DIR, Http, Serve, Split, Stator, _die_with_parent, clean_environment, eventually

COMPLETIONS = "/v1/completions"
# One engine keeps the goal of 25 ms per token up to 3 sequences: a step takes 5 ms and 5 ms for each.
SLOW = ("--sim-step-us", "5000", "--sim-decode-sequence-us", "5000")


def planner_state(port: int) -> dict:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/planner", timeout=10) as answer:
        return json.load(answer)


class Load:
    """Streams one after another on so many threads; each answer must be the one its prompt always has."""

    def __init__(self, port: int, prompts: list[list[int]], tokens: int):
        self.http, self.tokens = Http(port), tokens
        self.prompts = prompts
        self.expected = [self.ask(prompt)[0] for prompt in prompts]
        self.wrong: list[str] = []
        self.ttfts: list[float] = []
        self.wanted = 0
        self.done = False
        self.threads: list[threading.Thread] = []

    def ask(self, prompt: list[int]) -> tuple[str, float]:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.http.port}{COMPLETIONS}", method="POST", headers={"Content-Type": "application/json"},
            data=json.dumps({"model": MODEL, "prompt": prompt, "max_tokens": self.tokens, "ignore_eos": True, "temperature": 0,
                             "stream": True}).encode())
        begin, first, text, ended = time.monotonic(), None, "", False
        with urllib.request.urlopen(request, timeout=120) as answer:
            for line in answer:
                if line.startswith(b"data: [DONE]"):
                    ended = True
                elif line.startswith(b"data: "):
                    first = first or time.monotonic()
                    for choice in json.loads(line[6:])["choices"]:
                        text += choice["text"]
        if not ended:
            raise OSError("a stream broke off")
        return text, first - begin

    def run(self, index: int) -> None:
        turn = index
        while not self.done:
            if index >= self.wanted:
                time.sleep(0.02)
                continue
            which = turn % len(self.prompts)
            turn += 1
            try:
                text, ttft = self.ask(self.prompts[which])
            except OSError as error:
                self.wrong.append(f"prompt {which}: {error}")
                continue
            self.ttfts.append(ttft * 1e3)
            if text != self.expected[which]:
                self.wrong.append(f"prompt {which}: {text!r} instead of {self.expected[which]!r}")

    def at(self, streams: int) -> None:
        self.wanted = streams
        while len(self.threads) < streams:
            self.threads.append(threading.Thread(target=self.run, args=(len(self.threads),), daemon=True))
            self.threads[-1].start()

    def end(self) -> None:
        self.done = True
        for thread in self.threads:
            thread.join()


class ServeWithPlanner(unittest.TestCase):
    OPTIONS = ("--start-up", "1", "--mpc-interval", "0.25", "--down-hold", "1", "--ttft", "1000", "--itl", "25")

    def test_replicas_follow_the_load_and_no_stream_is_lost_or_altered(self):
        journal = tempfile.NamedTemporaryFile(suffix=".jsonl")
        served = Stator("serve", str(MODEL_DIR), "--engine", "sim", "--host", "127.0.0.1", "--port", "0", "--planner",
                        "--journal", journal.name, "--max-workers", "6", *self.OPTIONS, *SLOW)
        self.addCleanup(served.close)
        port, planner = served.port, served.ready["planner_port"]
        load = Load(port, [list(range(start, start + 24)) for start in range(100, 900, 100)], tokens=24)
        self.addCleanup(load.end)

        def sizes() -> tuple[int, int]:
            workers = planner_state(planner)["workers"]
            return workers["ready"], workers["expected"]

        load.at(2)
        eventually(lambda: planner_state(planner)["observed"]["requests_per_s"] > 0, "load is seen")
        fewest = [sizes()[0]]  # it may still go down for the small load when the large one begins

        def grew() -> bool:
            ready = sizes()[0]
            fewest[0] = min(fewest[0], ready)
            return ready > fewest[0]

        load.at(8)
        eventually(grew, "more workers are ready than for the small load")
        grown = sizes()[0]
        eventually(lambda: len(load.ttfts) > 20, "streams that ran while workers came")
        state = planner_state(planner)
        load.at(0)
        eventually(lambda: sizes()[1] < grown, f"fewer than {grown} workers are wanted")
        load.end()
        self.assertEqual(load.wrong, [])
        both = [p for p in state["history"] if p["observed_ttft_ms"] > 0 and p["predicted_ttft_ms"] > 0]
        self.assertTrue(both, "predicted and observed TTFT stand side by side")
        self.assertTrue(state["last_decision"]["text"])
        with urllib.request.urlopen(f"http://127.0.0.1:{planner}/", timeout=10) as page:
            self.assertIn("Planner:", page.read().decode())
        metrics = Http(planner)
        for prefix in ("stator", "dynamo"):
            self.assertGreaterEqual(metrics.metric(f"{prefix}_planner_num_decode_replicas"), 1)
            self.assertEqual(metrics.metric(f"{prefix}_planner_sla_target_itl_ms"), 25)
        self.assertGreater(metrics.metric("stator_planner_gpu_hours"), 0)

        served.terminate()
        self.assertEqual(served.wait(), 0, served.log()[-2000:])
        done = subprocess.run(
            [BINARY, "planner", "--replay", journal.name, "--timing", "linear:step_us=5000,prefill_token_us=50,decode_sequence_us=5000",
             "--block-size", "16", "--kv-blocks", "16384", "--max-workers", "6", *self.OPTIONS],
            capture_output=True, text=True, env=clean_environment(), timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertGreater(json.loads(done.stdout)["ticks"], 5)
        self.assertEqual(json.loads(done.stdout)["differences"], 0)

    def test_a_worker_that_dies_is_replaced_and_workers_end_with_their_parent(self):
        served = Stator("serve", str(MODEL_DIR), "--engine", "sim", "--host", "127.0.0.1", "--port", "0", "--planner",
                        "--policy", "static:2", "--workers", "2", *SLOW)
        self.addCleanup(served.close)

        def children() -> list[int]:
            tasks = pathlib.Path(f"/proc/{served.process.pid}/task").glob("*/children")
            return [int(pid) for task in tasks for pid in task.read_text().split()]

        eventually(lambda: len(children()) == 2, "two worker processes")
        first = children()
        subprocess.run(["kill", "-9", str(first[0])], check=True)
        eventually(lambda: len(children()) == 2 and set(children()) != set(first), "the dead one has a successor")
        last = children()
        served.kill()
        eventually(lambda: not any(pathlib.Path(f"/proc/{pid}").exists() for pid in last), "workers went with their parent")

    def test_what_it_cannot_scale_is_refused_at_the_start(self):
        for arguments, word in ((("--engine", "vllm", "--url", "http://127.0.0.1:1"), "cpu, sim"),
                                (("--engine", "sim", "--ttft", "-1"), "--ttft"), (("--engine", "sim", "--policy", "x"), "--policy")):
            done = subprocess.run([BINARY, "serve", str(MODEL_DIR), "--port", "0", "--planner", *arguments], capture_output=True, text=True,
                                  env=clean_environment(), timeout=60, check=False)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(word, done.stderr)


class Prometheus:
    """Debian's, on a free port, scraping one target."""

    def __init__(self, target_port: int):
        self.folder = tempfile.TemporaryDirectory(prefix="stator-prometheus-")
        self.port = free_port()
        config = pathlib.Path(self.folder.name) / "prometheus.yml"
        config.write_text("global: {scrape_interval: 250ms}\nscrape_configs:\n- job_name: stator\n"
                          f"  static_configs: [{{targets: ['127.0.0.1:{target_port}']}}]\n")
        self.process = subprocess.Popen(
            ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={self.folder.name}/data",
             f"--web.listen-address=127.0.0.1:{self.port}", "--log.level=error"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=_die_with_parent)
        eventually(lambda: Http(self.port).request("GET", "/-/ready")[0] == 200, "Prometheus is ready")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.folder.cleanup()


class PlannerProcess(unittest.TestCase):
    ALWAYS = ("--port", "0", "--mpc-interval", "0.25", "--load-interval", "0.25", "--throughput-interval", "1", "--start-up", "1", "--block-size", "16", "--timing",
              "linear")

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="stator-planner-")
        self.addCleanup(self.folder.cleanup)

    def serve(self, *arguments: str) -> Serve:
        served = Serve("--sim-speedup", "0", *arguments)
        self.addCleanup(served.close)
        return served

    def plan(self, *arguments: str) -> Stator:
        planner = Stator("planner", *self.ALWAYS, *arguments)
        self.addCleanup(planner.close)
        return planner

    def key(self, name: str) -> str:
        path = pathlib.Path(self.folder.name) / name
        return path.read_text() if path.exists() else ""

    @staticmethod
    def ask(served, count: int) -> None:
        for i in range(count):
            status, answer = served.http.post(COMPLETIONS, {"model": MODEL, "prompt": list(range(50 + i, 90 + i)), "max_tokens": 8})
            assert status == 200, answer

    def test_a_real_prometheus_is_read_and_its_loss_changes_nothing(self):
        served = self.serve()
        prometheus = Prometheus(served.frontend.port)
        self.addCleanup(prometheus.close)
        planner = self.plan("--prometheus", prometheus.url, "--connector", "virtual", "--folder", self.folder.name, "--policy", "static:5")
        self.ask(served, 1)

        def more_traffic() -> float:
            self.ask(served, 2)
            return planner_state(planner.port)["observed"]["requests_per_s"]

        eventually(more_traffic, "the planner sees requests through Prometheus")
        state = planner_state(planner.port)
        self.assertEqual(state["observed"]["input_tokens"], 40)
        self.assertEqual(state["observed"]["output_tokens"], 8)
        self.assertEqual(state["workers"]["ready"], 2)
        prometheus.process.send_signal(signal.SIGKILL)
        eventually(lambda: planner_state(planner.port)["last_decision"]["reason"] == "metrics_invalid", "the loss is seen")
        lost = planner_state(planner.port)
        self.assertIn(prometheus.url, lost["last_decision"]["text"])
        self.assertNotIn("workers", lost["last_decision"])

    def test_targets_are_written_to_a_folder_and_wait_for_their_executor(self):
        served = self.serve()
        planner = self.plan("--frontend", served.frontend.url, "--connector", "virtual", "--folder", self.folder.name,
                            "--policy", "static:3")
        eventually(lambda: self.key("decision_id") == "0", "the first decision")
        self.assertEqual(self.key("num_decode"), "3")
        self.assertEqual(self.key("num_decode_workers"), "3")
        pathlib.Path(self.folder.name, "scaled_decision_id").write_text("0")
        status, answer = Http(planner.port).post("/v1/min-endpoints", {})
        self.assertEqual(status, 405, answer)
        status, _, body = Http(planner.port).request("PATCH", "/v1/min-endpoints", {"min_endpoint": 4})
        self.assertEqual((status, json.loads(body)), (200, {"mode": "agg", "min_endpoint": 4}))
        eventually(lambda: self.key("decision_id") == "1", "the raised floor is a second decision")
        self.assertEqual(self.key("num_decode"), "4")

    def test_targets_are_keys_of_an_etcd_where_dynamo_looks_for_them(self):
        etcd = Etcd()
        self.addCleanup(etcd.close)
        served = self.serve()
        self.plan("--frontend", served.frontend.url, "--connector", "virtual", "--etcd", etcd.members[0].url.replace("http", "etcd"),
                  "--dynamo-namespace", "prod", "--policy", "static:3")
        read = lambda name: etcd.ctl("get", "--print-value-only", f"v1/prod/planner/{name}").strip()
        eventually(lambda: read("decision_id") == "0", "the decision is in etcd")
        self.assertEqual({name: read(name) for name in ("num_decode", "num_decode_workers", "num_prefill")},
                         {"num_decode": "3", "num_decode_workers": "3", "num_prefill": ""})

    def test_advice_changes_nothing(self):
        served = self.serve()
        planner = self.plan("--frontend", served.frontend.url, "--connector", "virtual", "--folder", self.folder.name,
                            "--policy", "static:3", "--advisory")
        eventually(lambda: planner_state(planner.port)["ticks"] > 0, "a tick")
        eventually(lambda: planner_state(planner.port)["last_decision"].get("workers") == 3, "the advice")
        state = planner_state(planner.port)
        self.assertTrue(state["advisory"])
        self.assertFalse(state["last_decision"]["executed"])
        self.assertEqual(self.key("decision_id"), "")

    def test_forward_passes_correct_the_step_model(self):
        nats = NatsServer()
        self.addCleanup(nats.close)
        fleet = Split("--events", nats.url, workers=1, worker_arguments=("--events", nats.url, "--forward-passes", "--sim-step-us", "20000"))
        self.addCleanup(fleet.close)
        planner = self.plan("--frontend", fleet.frontend.url, "--events", nats.url, "--passes", *fleet.discovery)
        self.ask(fleet, 1)

        def learned() -> bool:
            self.ask(fleet, 1)
            return planner_state(planner.port)["calibration"]["passes"] > 30

        eventually(learned, "passes are learned from")
        found = planner_state(planner.port)["calibration"]
        self.assertLess(found["calibrated_error_percent"], found["base_error_percent"])

    def test_kubernetes_is_scaled_through_the_adapter_or_else_the_graph(self):
        api = KubeApi()
        self.addCleanup(api.close)
        kubeconfig = pathlib.Path(self.folder.name) / "kubeconfig"
        api.write_kubeconfig(kubeconfig)
        graph = {"apiVersion": "nvidia.com/v1beta1", "kind": "DynamoGraphDeployment", "metadata": {"name": "llama", "namespace": "llm"},
                 "spec": {"components": [{"name": "Frontend", "type": "frontend", "replicas": 1},
                                         {"name": "Workers", "type": "worker", "replicas": 2}]},
                 "status": {"observedGeneration": 9, "components": {"Workers": {
                     "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 2}}}}
        api.put("dynamographdeployments", graph)
        served = self.serve()
        self.plan("--frontend", served.frontend.url, "--connector", "kubernetes", "--graph", "llama", "--kubeconfig", str(kubeconfig),
                  "--policy", "static:5")
        replicas = lambda: api.get("dynamographdeployments", "llama")["spec"]["components"][1]["replicas"]
        eventually(lambda: replicas() == 5, "the graph has five replicas")
        tried = [each for each in api.written if "scalingadapters/llama-workers/scale" in each]
        self.assertTrue(tried, api.written)

    def test_wrong_options_are_refused(self):
        for arguments, word in (((), "--frontend"), (("--frontend", "http://x", "--connector", "virtual"), "--folder"),
                                (("--frontend", "http://x", "--max-gpu-budget", "1", "--min-workers", "4"), "4 GPUs"),
                                (("--frontend", "http://x", "--prometheus", "http://y"), "twice"),
                                (("--passes",), "--events")):
            done = subprocess.run([BINARY, "planner", *arguments], capture_output=True, text=True, env=clean_environment(), timeout=60,
                                  check=False)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(word, done.stderr)

    def test_the_references_configuration_file(self):
        served = self.serve()
        path = pathlib.Path(self.folder.name) / "planner.yaml"
        path.write_text("optimization_target: sla\nttft_ms: 321\nitl_ms: 12\nenable_throughput_scaling: false\n"
                        "enable_load_scaling: true\nmin_endpoint: 2\nadvisory: true\nload_predictor: kalman\n")
        planner = self.plan("--frontend", served.frontend.url, "--planner-config", str(path))
        state = planner_state(planner.port)
        self.assertEqual((state["policy"], state["goals"]["ttft_ms"], state["limits"]["min_workers"], state["advisory"]),
                         ("load", 321, 2, True))
        path.write_text("ttft_ms: 321\nttfb: 5\n")
        done = subprocess.run([BINARY, "planner", "--frontend", "http://x", "--planner-config", str(path)], capture_output=True, text=True,
                              env=clean_environment(), timeout=60, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("ttfb", done.stderr)


class GlobalPlanner(unittest.TestCase):
    def test_two_pools_share_one_budget(self):
        with tempfile.TemporaryDirectory(prefix="stator-global-") as folder:
            planner = Stator("planner", "--global", "--port", "0", "--pool", f"a=folder:{folder}/a", "--pool", f"b=folder:{folder}/b",
                             "--max-total-gpus", "6")
            self.addCleanup(planner.close)
            http = Http(planner.port)

            def ask(pool: str, decode: int) -> dict:
                status, answer = http.post("/v1/scale", {
                    "caller_namespace": "team", "graph_deployment_name": pool, "k8s_namespace": "",
                    "target_replicas": [{"sub_component_type": "decode", "desired_replicas": decode}]})
                self.assertEqual(status, 200, answer)
                return answer

            self.assertEqual(ask("a", 4)["status"], "success")
            self.assertEqual(ask("b", 4)["status"], "rejected")
            accepted = ask("b", 2)
            self.assertEqual((accepted["status"], accepted["current_replicas"]["decode"]), ("success", 2))
            self.assertEqual(pathlib.Path(folder, "a", "num_decode").read_text(), "4")
            _, state = http.get("/planner")
            self.assertEqual(state["total_gpus"], 6)
            self.assertEqual(http.post("/v1/scale", {"caller_namespace": "x"})[0], 400)


if __name__ == "__main__":
    unittest.main()
