# SPDX-License-Identifier: Apache-2.0
"""A Dynamo client and operator move in: flags, variables, nvext, headers, metrics."""

import http.client
import json
import pathlib
import socket
import subprocess
import tempfile
import time
import unittest

from stator_process import BINARY, MODEL_DIR, Http, Stator, clean_environment, eventually

CHAT = {"model": "demo", "messages": [{"role": "user", "content": "What is a KV cache?"}], "max_tokens": 4}
TIMING = {"request_received_ms", "prefill_wait_time_ms", "prefill_time_ms", "ttft_ms", "total_time_ms", "kv_hit_rate", "router_queue_depth",
          "kv_transfer_estimated_latency_ms"}
POLICY = """
default_policy_family: cached
uncached_isl_buckets: [{min_tokens: 0, bucket: short}, {min_tokens: 4096, bucket: long}]
policy_classes:
  - {name: cached-short, policy_family: cached, cache_bucket: short, queue_policy: wspt, quantum: 2048, prefill_busy_threshold_frac: 16}
  - {name: cached-long, policy_family: cached, cache_bucket: long, quantum: 512, request_queue_limit_per_worker: 64}
  - {name: batch, quantum: 128, prefill_busy_threshold: 0}
models: {}
worker_selection: {aggregated: default, prefill: default, decode: default, encode: default, instances: []}
"""


class CommandLine(unittest.TestCase):
    def run_frontend(self, *flags: str, **env: str) -> Stator:
        with tempfile.TemporaryDirectory() as folder:
            process = Stator("frontend", "--discovery-backend", "file", "--http-host", "127.0.0.1", "--http-port", "0", *flags,
                             env=clean_environment(DYN_FILE_KV=folder, **env))
            self.addCleanup(process.kill)
            return process

    def test_flags_of_a_frontend_are_taken(self):
        process = self.run_frontend(
            "--router-mode", "round-robin", "--namespace", "dynamo", "--kv-cache-block-size", "16", "--router-ttl-secs", "60",
            "--no-router-kv-events", "--router-kv-overlap-score-credit", "0.5", "--active-decode-blocks-threshold", "None",
            "--router-session-affinity-ttl-secs", "30", "--migration-limit", "2", "--request-plane", "tcp", "--event-plane", "nats",
            "--enable-anthropic-api", "--tokenizer", "fastokens", "--router-event-threads", "4", "--no-router-track-active-blocks")
        log = process.log()
        self.assertEqual(log.count("have no effect here"), 1, log)
        for flag in ("--kv-cache-block-size", "--request-plane", "--event-plane", "--tokenizer", "--router-event-threads"):
            self.assertIn(flag, log)
        self.assertNotIn("--router-ttl-secs", log)

    def test_settings_are_what_the_flags_said(self):
        with tempfile.TemporaryDirectory() as folder:
            dump = pathlib.Path(folder) / "settings.yaml"
            self.run_frontend("--router-mode", "least-loaded", "--no-router-kv-events", "--router-ttl-secs", "60", "--load-aware",
                              "--dump-config-to", str(dump), DYN_LOGGING_JSONL="1", DYN_CONTEXT_WINDOW="1234", DYN_ROUTER_PREFILL_LOAD_MODEL="aic")
            text = dump.read_text()
        for line in ("mode: kv", "use_kv_events: false", "ttl: 60s", "format: json", "context_window: 1234", "prefill_load_model: learned"):
            self.assertIn(line, text)

    def test_variables_without_effect_are_named_once(self):
        log = self.run_frontend(DYN_HTTP_PRE_COMMIT_ERROR_PEEK_MS="100", DYN_NO_SUCH_THING="1", DYN_STORE_KV="file").log()
        self.assertEqual(log.count("have no effect here"), 1, log)
        self.assertIn("DYN_HTTP_PRE_COMMIT_ERROR_PEEK_MS", log)
        self.assertIn("DYN_NO_SUCH_THING", log)
        self.assertNotIn("DYN_STORE_KV", log)

    def test_the_doctor_reads_environments_and_manifests(self):
        def doctor(source: str, **variables: str) -> tuple[int, dict[str, dict]]:
            done = subprocess.run([BINARY, "doctor", "--from-dynamo", source, "--json"], capture_output=True, text=True, env=clean_environment(**variables))
            return done.returncode, {row["name"]: row for row in json.loads(done.stdout)}
        status, rows = doctor("env", DYN_ROUTER_MODE="kv", DYN_HTTP_PORT="eighty", DYN_REQUEST_PLANE="tcp", DYN_NO_SUCH_THING="1")
        self.assertEqual(status, 1)
        self.assertEqual([rows[name]["what"] for name in ("DYN_ROUTER_MODE", "DYN_HTTP_PORT", "DYN_REQUEST_PLANE", "DYN_NO_SUCH_THING")],
                         ["mapped", "invalid", "ignored", "unknown"])
        self.assertEqual((rows["frontend.migration_limit"]["what"], "router.mode" in rows), ("differs", False))
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write("spec:\n  containers:\n  - command: [python3, -m, dynamo.frontend]\n    args:\n    - --http-port\n    - \"8000\"\n"
                       "    - --router-mode=kv\n    env:\n    - name: DYN_LOG\n      value: debug\n")
            file.flush()
            status, rows = doctor(file.name)
        self.assertEqual((status, rows["--http-port"]["advice"], rows["--router-mode"]["what"], rows["DYN_LOG"]["what"]),
                         (0, "http.port (--port)", "mapped", "mapped"))

    def test_what_nobody_knows_is_still_an_error(self):
        for flags, said in ((("--router-modus", "kv"), "unknown flag"), (("--router-mode", "nope"), "is not one of"),
                            (("--router-conditional-disagg-config", "[]"), "JSON object")):
            done = subprocess.run([BINARY, "frontend", "--discovery", "file:/tmp", *flags], capture_output=True, text=True, env=clean_environment())
            self.assertEqual(done.returncode, 2, done)
            self.assertIn(said, done.stderr)

    def test_broken_policy_classes_are_refused_by_name(self):
        for broken, said in ((POLICY.replace("quantum: 512", "quantum: 0"), "quantum"), (POLICY.replace("bucket: long}]", "bucket: wide}]"), "wide"),
                             (POLICY.replace("models:", "model:"), "'model'"), (POLICY.replace("name: batch", "name: 'b c'"), "name")):
            with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
                file.write(broken)
                file.flush()
                done = subprocess.run([BINARY, "frontend", "--discovery", "file:/tmp", "--router-policy-config", file.name], capture_output=True, text=True,
                                      env=clean_environment())
            self.assertEqual(done.returncode, 2, done)
            self.assertIn(said, done.stderr)


class Requests(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.policy = tempfile.NamedTemporaryFile("w", suffix=".yaml")
        cls.policy.write(POLICY)
        cls.policy.flush()
        cls.classes = ("--router-policy-config", cls.policy.name)
        cls.server = Stator("serve", str(MODEL_DIR), "--engine", "sim", "--sim-speedup", "0", "--http-host", "127.0.0.1", "--http-port", "0",
                            "--model-aliases", "gpt-x, org/demo", "--system-port", "0", *cls.classes)
        cls.http = Http(cls.server.port)

    @classmethod
    def tearDownClass(cls):
        cls.server.kill()
        cls.policy.close()

    def chat(self, headers: dict | None = None, **fields) -> tuple[int, dict]:
        return self.http.post("/v1/chat/completions", CHAT | fields, headers)

    def test_timing_has_eight_fields(self):
        status, body = self.chat(nvext={"extra_fields": ["timing", "stop_reason", "engine_data", "completion_token_ids"]})
        self.assertEqual(status, 200, body)
        self.assertEqual(set(body["nvext"]["timing"]), TIMING)
        self.assertEqual(len(body["nvext"]["completion_token_ids"]), 4)
        self.assertIn("queued_ms", body["nvext"]["engine_data"])

    def test_ranks_that_nobody_has_are_refused(self):
        for fields, headers in (({"nvext": {"dp_rank": 3}}, {}), ({}, {"x-dynamo-dp-rank": "3"}), ({}, {"x-data-parallel-rank": "3"})):
            status, body = self.chat(headers, **fields)
            self.assertEqual(status, 404, body)
        self.assertEqual(self.chat({"x-dynamo-dp-rank": "0"})[0], 200)
        self.assertEqual(self.chat({"x-dynamo-dp-rank": str(2**32 - 1)})[0], 200)  # Dynamo's "unset"
        self.assertEqual(self.chat({"x-dynamo-dp-rank": "0abc"})[0], 400)

    def test_metadata_has_limits(self):
        self.assertEqual(self.chat({f"x-dynamo-meta-{i}": "v" for i in range(64)})[0], 200)
        status, body = self.chat({f"x-dynamo-meta-{i}": "v" for i in range(65)})
        self.assertEqual(status, 431)
        self.assertIn("metadata", body["error"]["message"])

    def test_dry_run_names_a_worker_and_generates_nothing(self):
        before = self.http.metric("dynamo_frontend_output_tokens_total")
        status, body = self.chat(nvext={"annotations": ["query_instance_id:"]})
        self.assertEqual(status, 200, body)
        self.assertIn(body["nvext"]["worker_id"]["decode_worker_id"], [i["instance_id"] for i in self.http.get("/health")[1]["instances"]])
        self.assertTrue(body["nvext"]["token_ids"])
        self.assertEqual(self.http.metric("dynamo_frontend_output_tokens_total"), before)

    def test_fields_without_effect_are_named(self):
        _, headers, _ = self.http.request("POST", "/v1/chat/completions", CHAT | {
            "nvext": {"router": {"itl_target": 5}, "agent_hints": {"speculative_prefill": True}}})
        self.assertIn("nvext.router.itl_target", headers["x-stator-ignored-fields"])
        self.assertIn("nvext.agent_hints.speculative_prefill", headers["x-stator-ignored-fields"])

    def test_whole_numbers_are_whole(self):
        _, _, text = self.http.request("POST", "/busy_threshold", {"model": "demo", "active_prefill_tokens_threshold": 500})
        self.assertIn(b'"active_prefill_tokens_threshold":500', text)
        self.http.post("/busy_threshold", {"model": "demo", "active_prefill_tokens_threshold": -1})
        self.chat()
        _, _, text = self.http.request("GET", "/receipts/last")
        self.assertNotRegex(text.decode(), r"\dE")
        self.assertIsInstance(json.loads(text)["prompt_tokens"], int)

    def test_what_a_request_leaves_out_comes_from_the_template(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump({"model": "demo", "temperature": 0, "models": {"demo": {"max_completion_tokens": 3}}}, file)
            file.flush()
            server = Stator("serve", str(MODEL_DIR), "--engine", "sim", "--sim-speedup", "0", "--host", "127.0.0.1", "--port", "0", "--request-template", file.name)
        self.addCleanup(server.kill)
        messages = {"model": "demo", "messages": CHAT["messages"]}
        self.assertEqual(Http(server.port).post("/v1/chat/completions", messages)[1]["usage"]["completion_tokens"], 3)
        self.assertEqual(Http(server.port).post("/v1/chat/completions", messages | {"max_tokens": 5})[1]["usage"]["completion_tokens"], 5)

    def test_aliases_are_models(self):
        listed = [model["id"] for model in self.http.get("/v1/models")[1]["data"]]
        self.assertEqual(listed, ["demo", "gpt-x", "org/demo"])
        status, body = self.chat(model="gpt-x")
        self.assertEqual((status, body["model"]), (200, "demo"))
        self.assertEqual(self.http.get("/v1/models/org/demo/ready")[1]["namespaces"][0]["namespace"], "dynamo")

    def test_refused_requests_count_for_their_model(self):
        labels = {"model": "demo", "request_type": "stream", "endpoint": "chat_completions"}
        before = self.http.metric("dynamo_frontend_requests_total", error_type="validation", **labels)
        started = self.http.metric("dynamo_frontend_requests_started_total", **labels)
        self.assertEqual(self.chat(stream=True, temperature=9)[0], 400)
        self.assertEqual(self.http.metric("dynamo_frontend_requests_total", error_type="validation", **labels), before + 1)
        self.assertEqual(self.http.metric("dynamo_frontend_requests_started_total", **labels), started + 1)
        self.chat(model="nobody-has-this")
        self.assertEqual(self.http.metric("dynamo_frontend_requests_total", model="nobody-has-this"), 0)

    def test_workers_count_under_dynamo_s_names(self):
        self.chat()
        system = Http(self.server.ready["system_port"])
        labels = {"dynamo_namespace": "dynamo", "dynamo_component": "backend", "dynamo_endpoint": "generate", "model": "demo"}
        for name in ("requests_total", "request_bytes_total", "response_bytes_total", "request_duration_seconds_count"):
            self.assertGreater(system.metric(f"dynamo_component_{name}", **labels), 0, name)
        eventually(lambda: system.metric("dynamo_component_inflight_requests", **labels) == 0, "nothing is in flight")
        self.assertGreater(system.metric("dynamo_component_uptime_seconds"), 0)
        self.assertEqual(self.http.metric("dynamo_frontend_queued_requests"), 0)
        self.assertEqual(self.http.metric("dynamo_frontend_stage_requests"), 0)
        self.assertEqual(self.http.metric("dynamo_request_plane_inflight_requests"), 0)

    def test_metrics_come_in_two_formats(self):
        _, headers, text = self.http.request("GET", "/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
        self.assertIn("application/openmetrics-text", headers["content-type"])
        self.assertTrue(text.endswith(b"# EOF\n"))
        self.assertIn(b"# TYPE dynamo_frontend_requests counter", text)
        _, headers, text = self.http.request("GET", "/metrics")
        self.assertIn("0.0.4", headers["content-type"])
        self.assertNotIn(b"# EOF", text)

    def test_classes_of_requests_have_queues_of_their_own(self):
        self.assertEqual(self.chat({"x-dynamo-meta-policy-class": "batch"})[0], 200)
        self.assertEqual(self.chat()[0], 200)
        self.assertEqual(self.http.metric("dynamo_frontend_router_queue_pending_requests", policy_class="batch"), 0)


class Models(unittest.TestCase):
    def test_one_process_has_several_models(self):
        with tempfile.TemporaryDirectory() as folder:
            other = pathlib.Path(folder) / "other"
            other.symlink_to(MODEL_DIR)
            for command in (("serve", "--port", "0", "--host", "127.0.0.1"), ("worker", "--discovery", f"file:{folder}/fleet")):
                process = Stator(command[0], str(MODEL_DIR), str(other), "--engine", "sim", "--sim-speedup", "0", "--workers", "1",
                                 "--model-name", "first,second", *command[1:])
                self.addCleanup(process.close)
            front = Stator("frontend", "--host", "127.0.0.1", "--port", "0", "--discovery", f"file:{folder}/fleet")
            self.addCleanup(front.close)
            eventually(lambda: len(Http(front.port).get("/health")[1].get("instances", [])) == 2, "both models' workers")
            self.assertEqual({len(Http(port).get("/health")[1]["instances"]) for port in (front.port,)}, {2})
            for name in ("first", "second"):
                self.assertEqual(Http(front.port).post("/v1/chat/completions", CHAT | {"model": name})[1]["model"], name)
        for flags, said in ((("--model-name", "a"), "1 names for 2 models"), ((), "two models are called 'demo'"),
                            (("--engine", "vllm", "--url", "http://127.0.0.1:1"), "serves one model")):
            engine = () if "--engine" in flags else ("--engine", "sim")
            done = subprocess.run([BINARY, "serve", str(MODEL_DIR), str(MODEL_DIR), *engine, "--port", "0", *flags], capture_output=True,
                                  text=True, env=clean_environment(), timeout=60)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(said, done.stderr)

    def test_paths_and_buckets_are_those_of_the_variables(self):
        server = Stator("serve", str(MODEL_DIR), "--engine", "sim", "--sim-speedup", "0", "--host", "127.0.0.1", "--port", "0", env=clean_environment(
            DYN_HTTP_SVC_CHAT_PATH="/openai/chat", DYN_HTTP_SVC_MODELS_PATH="/m", DYN_HTTP_SVC_METRICS_PATH="/stats", DYN_HTTP_SVC_HEALTH_PATH="/h",
            DYN_HTTP_SVC_ANTHROPIC_PATH="/claude", DYN_METRICS_TTFT_MIN="0.5", DYN_METRICS_TTFT_MAX="8", DYN_METRICS_TTFT_COUNT="5"))
        self.addCleanup(server.close)
        http_ = Http(server.port)
        self.assertNotIn("have no effect here", server.log())
        big = {"messages": [{"role": "user", "content": "word " * 30000}]}
        self.assertEqual(http_.post("/openai/chat?x=1", CHAT)[0], 200)
        self.assertIn("context length", http_.post("/openai/chat", CHAT | big)[1]["message"])
        self.assertEqual(http_.get("/m/demo")[1]["id"], "demo")
        self.assertEqual(http_.get("/h")[1]["status"], "healthy")
        self.assertEqual(http_.get("/mm")[0], 404)
        count = http_.post("/claude/count_tokens", {"model": "demo", "messages": [{"role": "user", "content": "Hi"}]})
        self.assertEqual(count[0], 200, count)
        self.assertEqual(http_.get("/claude/nothing")[1]["type"], "error")
        text = http_.request("GET", "/stats")[2].decode()
        bounds = [line.split('le="')[1].split('"')[0] for line in text.splitlines() if line.startswith("dynamo_frontend_time_to_first_token_seconds_bucket")]
        self.assertEqual(bounds, ["0", "1", "2", "4", "8", "+Inf"])


class Cancellation(unittest.TestCase):
    def test_a_client_that_leaves_frees_the_engine(self):
        with tempfile.TemporaryDirectory() as folder:
            worker = Stator("worker", str(MODEL_DIR), "--engine", "sim", "--model-name", "m", "--system-port", "0", "--discovery", f"file:{folder}")
            self.addCleanup(worker.kill)
            front = Stator("frontend", "--host", "127.0.0.1", "--port", "0", "--discovery", f"file:{folder}")
            self.addCleanup(front.kill)
            http_, system = Http(front.port), Http(worker.ready["system_port"])
            eventually(lambda: http_.get("/health")[1].get("instances"), "the worker")
            connection = http.client.HTTPConnection("127.0.0.1", front.port, timeout=60)
            connection.request("POST", "/v1/completions", json.dumps({"model": "m", "prompt": "a", "max_tokens": 20000, "stream": True}),
                               {"Content-Type": "application/json"})
            connection.getresponse().read(1)
            self.assertEqual(system.metric("dynamo_component_inflight_requests"), 1)
            left = time.monotonic()
            connection.sock.shutdown(socket.SHUT_RDWR)
            eventually(lambda: system.metric("dynamo_component_cancellation_total") == 1, "the engine was told", timeout_s=10)
            print(f"cancellation reached the engine {1e3 * (time.monotonic() - left):.0f} ms after the client left (looked at every 20 ms)")
            self.assertEqual(system.metric("dynamo_component_inflight_requests"), 0)
            eventually(lambda: http_.metric("dynamo_frontend_model_cancellation_total", model="m", endpoint="completions", request_type="stream") == 1,
                       "the frontend counts it")


if __name__ == "__main__":
    unittest.main()
