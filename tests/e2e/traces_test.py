# SPDX-License-Identifier: Apache-2.0
"""Spans over every protocol and from every process: moved requests, prompts computed elsewhere, engine servers; and OpenTelemetry's and Dynamo's variables."""

import gzip
import http.client
import http.server
import json
import pathlib
import tempfile
import threading
import unittest
import urllib.error
import urllib.request

from access_test import ask, stator
from stator_process import MODEL, MODEL_DIR, Http, Stator, clean_environment, eventually
from telemetry_test import HttpCollector, attributes

CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "What is a span?"}], "max_tokens": 4, "temperature": 0}


class JsonCollector:
    """Takes OTLP in JSON, and remembers the headers."""

    def __init__(self):
        self.spans, self.headers, self.resources = [], [], []
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            connections = 0

            def setup(self):
                super().setup()
                Handler.connections += 1

            def do_POST(self):
                message = json.loads(self.rfile.read(int(self.headers["content-length"])))
                collector.headers.append((self.path, dict(self.headers)))
                for resource in message["resourceSpans"]:
                    collector.resources.append({a["key"]: a["value"]["stringValue"] for a in resource["resource"]["attributes"]})
                    collector.spans += [span for scope in resource["scopeSpans"] for span in scope["spans"]]
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.handler = Handler
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Variables(unittest.TestCase):
    def start(self, *arguments: str, **env: str) -> Stator:
        server = Stator("serve", str(MODEL_DIR), "--engine", "sim", "--sim-speedup", "0", "--port", "0", "--host", "127.0.0.1", *arguments,
                        env=clean_environment(**env))
        self.addCleanup(server.kill)
        return server

    def test_opentelemetrys_variables_and_json(self):
        collector = JsonCollector()
        self.addCleanup(collector.close)
        server = self.start("--trace-interval", "50ms", OTEL_EXPORTER_OTLP_ENDPOINT=collector.url + "/base/", OTEL_EXPORTER_OTLP_TRACES_PROTOCOL="http/json",
                            OTEL_EXPORTER_OTLP_HEADERS="x-token=a%20b,x-more=1", OTEL_SERVICE_NAME="mine", OTEL_RESOURCE_ATTRIBUTES="zone=z1",
                            OTEL_EXPORT_ENABLED="true")
        for i in range(3):
            self.assertEqual(ask(server.port, "POST", "/v1/chat/completions", CHAT, x_request_id=f"json-{i}")[0], 200)
            eventually(lambda: any({"key": "x_request_id", "value": {"stringValue": f"json-{i}"}} in s["attributes"] for s in collector.spans), "its span")
        path, headers = collector.headers[0]
        self.assertEqual((path, headers["content-type"], headers["x-token"], headers["x-more"]), ("/base/v1/traces", "application/json", "a b", "1"))
        self.assertEqual({(r["service.name"], r["zone"]) for r in collector.resources}, {("mine", "z1")})
        root = next(s for s in collector.spans if s["name"] == "http-request")
        self.assertRegex(root["traceId"], r"^[0-9a-f]{32}$")
        self.assertLess(int(root["startTimeUnixNano"]), int(root["endTimeUnixNano"]))
        self.assertLessEqual(collector.handler.connections, 2, "frontend and workers keep their connections")
        self.assertNotIn("a b", server.log() + stator("config").stdout)

    def test_opentelemetrys_switches(self):
        collector = HttpCollector()
        self.addCleanup(collector.close)
        for variable, value in (("OTEL_EXPORT_ENABLED", "false"), ("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_SAMPLER", "always_off")):
            server = self.start("--trace-interval", "20ms", OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=collector.url, **{variable: value})
            self.assertEqual(ask(server.port, "POST", "/v1/chat/completions", CHAT)[0], 200)
            server.terminate()
            self.assertEqual(server.wait(), 0)
        self.assertEqual(collector.spans, [])

    def test_dynamos_request_trace(self):
        with tempfile.TemporaryDirectory() as folder:
            prefix = pathlib.Path(folder) / "trace"
            server = self.start(DYN_REQUEST_TRACE="1", DYN_REQUEST_TRACE_FILE_PATH=str(prefix))
            for i in range(3):
                self.assertEqual(ask(server.port, "POST", "/v1/chat/completions", CHAT)[0], 200)
            server.terminate()
            self.assertEqual(server.wait(), 0)
            segment = pathlib.Path(f"{prefix}.000000.jsonl.gz")
            records = [json.loads(line) for line in gzip.open(segment, "rt")]
            self.assertEqual([(r["schema"], r["event_type"]) for r in records], [("dynamo.request.trace.v1", "request_end")] * 3)
            simulated = stator("sim", str(segment), "--workers", "2")
            self.assertEqual(simulated.returncode, 0, simulated.stderr)
            plain = self.start(DYN_REQUEST_TRACE="true", DYN_REQUEST_TRACE_FILE_PATH=str(prefix), DYN_REQUEST_TRACE_FILE_FORMAT="jsonl")
            self.assertEqual(ask(plain.port, "POST", "/v1/chat/completions", CHAT)[0], 200)
            lines = eventually(lambda: prefix.exists() and prefix.read_text().splitlines(), "the plain file")
            self.assertEqual(json.loads(lines[0])["event_type"], "request_end")
            off = self.start(DYN_REQUEST_TRACE_FILE_PATH=str(pathlib.Path(folder) / "off"))
            self.assertEqual(ask(off.port, "POST", "/v1/chat/completions", CHAT)[0], 200)
            self.assertFalse((pathlib.Path(folder) / "off").exists())
        server = self.start(DYN_REQUEST_TRACE="1", DYN_REQUEST_TRACE_SINKS="stderr")
        self.assertEqual(ask(server.port, "POST", "/v1/chat/completions", CHAT)[0], 200)
        eventually(lambda: "dynamo.request.trace.v1" in server.log(), "on standard error")


class Processes(unittest.TestCase):
    def setUp(self):
        self.collector = HttpCollector()
        self.addCleanup(self.collector.close)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.discovery = ("--discovery", f"file:{folder.name}", "--discovery-lease-ttl", "10s")
        self.spans = ("--otlp-endpoint", self.collector.url, "--trace-interval", "50ms")
        self.frontend = self.start("frontend", "--host", "127.0.0.1", "--port", "0", *self.discovery, *self.spans)

    def start(self, *arguments: str) -> Stator:
        process = Stator(*arguments)
        self.addCleanup(process.kill)
        return process

    def worker(self, *arguments: str) -> Stator:
        return self.start("worker", *arguments, *self.discovery, *self.spans)

    def wait_for_workers(self, count: int):
        eventually(lambda: len(Http(self.frontend.port).get("/health")[1].get("instances", [])) == count, f"{count} workers")

    def trace(self, number: int) -> tuple[dict, str]:
        trace = f"{number:032x}"
        return {"traceparent": f"00-{trace}-00f067aa0ba902b7-01"}, trace

    def found(self, trace: str) -> list:
        return [span for _, span in self.collector.spans if span.trace_id.hex() == trace]

    def test_each_move_has_a_span_that_is_linked_to_the_attempt_that_was_lost(self):
        slow = (str(MODEL_DIR), "--engine", "sim", "--sim-speedup", "0.1")  # it runs for minutes, unless the client leaves
        workers = [self.worker(*slow)]
        self.wait_for_workers(1)
        headers, trace = self.trace(1)
        client = http.client.HTTPConnection("127.0.0.1", self.frontend.port, timeout=60)
        client.request("POST", "/v1/chat/completions", json.dumps(CHAT | {"max_tokens": 2000, "ignore_eos": True, "stream": True}),
                       {"content-type": "application/json"} | headers)
        answer = client.getresponse()
        for moves in (1, 2):
            self.assertTrue(answer.readline())
            workers.append(self.worker(*slow))
            self.wait_for_workers(2)
            workers[-2].kill()
            eventually(lambda: Http(self.frontend.port).metric("dynamo_frontend_model_migration_total") >= moves, "it has moved")
            eventually(lambda: Http(self.frontend.port).metric("dynamo_frontend_model_migration_duration_seconds_count", outcome="success") >= moves, "it goes on")
        client.close()
        spans = eventually(lambda: (s := self.found(trace)) and sum(x.name == "migration" for x in s) == 2 and s, "two moves")
        attempts = sorted((s for s in spans if s.name == "decode"), key=lambda s: attributes(s)["attempt"])
        self.assertEqual([attributes(s)["attempt"] for s in attempts], [0, 1, 2])
        self.assertEqual([s.status.message for s in attempts], ["worker_lost", "worker_lost", "cancelled"])
        moves = sorted((s for s in spans if s.name == "migration"), key=lambda s: s.start_time_unix_nano)
        self.assertEqual([s.links[0].span_id for s in moves], [attempts[0].span_id, attempts[1].span_id])
        # What the last worker says of itself belongs below the last attempt.
        handled = eventually(lambda: [s for s in self.found(trace) if s.name == "handle_payload" and s.parent_span_id == attempts[2].span_id], "its worker's")
        self.assertEqual(attributes(handled[0])["attempt"], 2)

    def test_a_prompt_that_is_computed_elsewhere(self):
        for role in ("prefill", "decode"):
            self.worker(str(MODEL_DIR), "--engine", "cpu", "--role", role)
        self.wait_for_workers(2)
        headers, trace = self.trace(2)
        body = CHAT | {"messages": [{"role": "user", "content": "A long prompt, worth to be computed elsewhere. " * 12}]}
        self.assertEqual(ask(self.frontend.port, "POST", "/v1/chat/completions", body, **headers)[0], 200)
        wanted = {"http-request", "prepare", "route", "prefill", "hand-off", "decode"}
        spans = eventually(lambda: (s := self.found(trace)) and {x.name for x in s} >= wanted and s, "its spans")
        by_name = {span.name: span for span in spans}
        self.assertLessEqual(by_name["prefill"].end_time_unix_nano, by_name["hand-off"].end_time_unix_nano)
        self.assertNotEqual(attributes(by_name["prefill"])["worker_id"], attributes(by_name["decode"])["worker_id"])
        generated = eventually(lambda: (s := [x for x in self.found(trace) if x.name == "engine.generate"]) and len(s) == 2 and s, "of both workers")
        self.assertEqual({attributes(s)["disagg_role"] for s in generated}, {"prefill", "decode"})

    def test_an_engine_server_gets_the_trace(self):
        engine = self.start("sim-server", "--dialect", "vllm", "--model-dir", str(MODEL_DIR), "--served-model-name", MODEL, "--port", "0", "--no-events")
        seen = []

        class Proxy(http.server.BaseHTTPRequestHandler):
            def forward(self):
                seen.append((self.path, self.headers.get("traceparent"), self.headers.get("tracestate")))
                size = int(self.headers.get("content-length") or 0)
                asked = urllib.request.Request(f"{engine.url}{self.path}", self.rfile.read(size) if size else None,
                                               {"content-type": "application/json"}, method=self.command)
                try:
                    got = urllib.request.urlopen(asked, timeout=60)
                except urllib.error.HTTPError as refused:
                    got = refused
                with got:
                    data = got.read()
                    self.send_response(got.status)
                    self.send_header("content-type", got.headers["content-type"])
                    self.send_header("content-length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)

            do_GET = do_POST = forward

            def log_message(self, *_):
                pass

        proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        self.addCleanup(lambda: (proxy.shutdown(), proxy.server_close()))
        self.worker(str(MODEL_DIR), "--engine", "vllm", "--url", f"http://127.0.0.1:{proxy.server_address[1]}")
        self.wait_for_workers(1)
        headers, trace = self.trace(3)
        client = http.client.HTTPConnection("127.0.0.1", self.frontend.port, timeout=60)
        self.addCleanup(client.close)
        body = json.dumps(CHAT).encode()
        client.putrequest("POST", "/v1/chat/completions")
        for name, value in (("content-type", "application/json"), ("content-length", str(len(body))), *headers.items(), ("tracestate", "v=1 ,\tw=2"),
                            ("TraceState", "x=3")):
            client.putheader(name, value)
        client.endheaders(body)
        answer = client.getresponse()
        self.assertEqual(answer.status, 200, answer.read())
        told = [(parent, state) for path, parent, state in seen if parent and trace in parent]
        self.assertEqual(len(told), 1, seen)
        decode = eventually(lambda: [s for s in self.found(trace) if s.name == "decode"], "the span")[0]
        self.assertEqual(told[0], (f"00-{trace}-{decode.span_id.hex()}-01", "v=1,w=2,x=3"))


if __name__ == "__main__":
    unittest.main()
