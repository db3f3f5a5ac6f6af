# SPDX-License-Identifier: Apache-2.0
"""What is written down of requests: access log, request trace, audit log, spans at a collector; and the page and `stator top`."""

import concurrent.futures
import gzip
import html.parser
import http.client
import http.server
import json
import pathlib
import re
import subprocess
import tempfile
import threading
import unittest

import grpc
from google.protobuf import unknown_fields
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

from access_test import ask, stator
from stator_process import MODEL_DIR, Stator, eventually

CHAT = {"model": "demo", "messages": [{"role": "user", "content": "What is a KV cache, in the words of a log line?"}], "max_tokens": 6,
        "temperature": 0}
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


class HttpCollector:
    """Takes OTLP over HTTP as a real one does: exactly the path and type of the specification, and only messages that parse."""

    def __init__(self):
        self.spans, self.faults, self.status = [], [], 200
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                if self.path != "/v1/traces" or self.headers["content-type"] != "application/x-protobuf":
                    collector.faults.append((self.path, self.headers["content-type"]))
                if collector.status == 200:
                    collector.take(trace_service_pb2.ExportTraceServiceRequest.FromString(body))
                self.send_response(collector.status)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, request):
        for resource in request.resource_spans:
            service = {a.key: a.value.string_value for a in resource.resource.attributes}["service.name"]
            for scope in resource.scope_spans:
                self.spans += [(service, span) for span in scope.spans]
                self.faults += [span.name for span in scope.spans if len(unknown_fields.UnknownFieldSet(span))]

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class GrpcCollector(trace_service_pb2_grpc.TraceServiceServicer):
    def __init__(self):
        self.spans = []
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server(self, self.server)
        self.url = f"http://127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.server.start()

    def Export(self, request, context):
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                self.spans += scope.spans
        return trace_service_pb2.ExportTraceServiceResponse()

    def close(self):
        self.server.stop(0)


def attributes(span) -> dict:
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in span.attributes}


class Page(html.parser.HTMLParser):
    def __init__(self, text: str):
        super().__init__()
        self.ids, self.links, self.labels, self.headings, self.tables, self.captions = set(), [], set(), [], 0, 0
        self.lang = None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if "id" in attrs:
            assert attrs["id"] not in self.ids, attrs["id"]
            self.ids.add(attrs["id"])
        self.links += [attrs[name] for name in ("href", "src") if attrs.get(name)]
        self.labels.add(attrs.get("for"))
        self.tables += tag == "table"
        self.captions += tag == "caption"
        if re.fullmatch(r"h\d", tag):
            self.headings.append(int(tag[1]))
        if tag == "html":
            self.lang = attrs.get("lang")


class Telemetry(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        folder = pathlib.Path(cls.folder.name)
        cls.access_log, cls.trace, cls.audit = folder / "access.log", folder / "trace.jsonl", folder / "audit.log"
        cls.collector = HttpCollector()
        cls.server = Stator("serve", str(MODEL_DIR), "--port", "0", "--host", "127.0.0.1", "--admin-port", "0", "--access-log",
                            str(cls.access_log), "--request-trace", str(cls.trace), "--audit-log", str(cls.audit), "--audit-content",
                            "all", "--otlp-endpoint", cls.collector.url, "--trace-interval", "100ms")
        cls.port, cls.admin = cls.server.ready["port"], cls.server.ready["admin_port"]

    @classmethod
    def tearDownClass(cls):
        cls.server.kill()
        cls.collector.close()
        cls.folder.cleanup()

    def lines(self, file: pathlib.Path, **wanted) -> list[dict]:
        found = [json.loads(line) for line in file.read_text().splitlines()]
        return [line for line in found if all(line.get(k) == v for k, v in wanted.items())]

    def test_a_request_is_one_line_one_record_and_one_trace(self):
        status, _, body = ask(self.port, "POST", "/v1/chat/completions", CHAT | {"stream": True}, traceparent=PARENT, tracestate="v=1",
                              x_request_id="mine-1")
        self.assertEqual(status, 200)
        line = eventually(lambda: self.lines(self.access_log, x_request_id="mine-1"), "its line")[0]
        self.assertEqual((line["method"], line["path"], line["status"], line["model"], line["stream"]),
                         ("POST", "/v1/chat/completions", 200, "demo", True))
        self.assertEqual((line["output_tokens"], line["finish_reason"], line["trace_id"], line["client"]), (6, "length", TRACE, "127.0.0.1"))
        self.assertIn(line["request_id"].encode(), body)
        self.assertGreater(line["prompt_tokens"], 10)
        self.assertTrue(0 <= line["itl_ms"] and 0 < line["ttft_ms"] <= line["duration_ms"], line)
        self.assertRegex(line["worker_id"], r"^\d+$")
        self.assertRegex(line["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")

        wanted = {"http-request", "prepare", "route", "decode", "handle_payload", "engine.generate", "engine.queue", "engine.prefill", "engine.decode"}
        spans = eventually(lambda: (lambda found: {s.name for s in found} >= wanted and found)(
            [s for _, s in self.collector.spans if s.trace_id.hex() == TRACE]), "its spans")
        self.assertEqual(self.collector.faults, [])
        by_name = {span.name: span for span in spans}
        self.assertEqual(set(by_name), wanted)
        root = by_name["http-request"]
        self.assertEqual((root.parent_span_id.hex(), root.kind, root.trace_state), ("00f067aa0ba902b7", 2, "v=1"))
        self.assertEqual(root.span_id.hex(), line["span_id"])
        said = attributes(root)
        self.assertEqual((said["model"], said["output_tokens"], said["request_id"], said["x_request_id"], said["status"]),
                         ("demo", 6, line["request_id"], "mine-1", 200))
        for name in ("prepare", "route", "decode"):
            span = by_name[name]
            self.assertEqual(span.parent_span_id, root.span_id)
            self.assertTrue(root.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano <= root.end_time_unix_nano)
        self.assertNotIn("KV cache", str(spans))
        worker = by_name["handle_payload"]  # of the worker, below the frontend's span of this attempt
        self.assertEqual((worker.parent_span_id, worker.kind), (by_name["decode"].span_id, 2))
        self.assertEqual(attributes(worker)["component"], "backend")
        self.assertEqual(by_name["engine.generate"].parent_span_id, worker.span_id)
        said = attributes(by_name["engine.generate"])
        self.assertEqual((said["model"], said["output_tokens"], said["finish_reason"]), ("demo", 6, "length"))
        for name in ("engine.queue", "engine.prefill", "engine.decode"):
            self.assertEqual(by_name[name].parent_span_id, by_name["engine.generate"].span_id)
        metrics = ask(self.admin, "GET", "/metrics", accept="application/openmetrics-text")[2].decode()
        self.assertRegex(metrics, r"dynamo_frontend_time_to_first_token_seconds_bucket\{[^}]*\} \d+ # \{trace_id=\"[0-9a-f]{32}\"\}")

        record = eventually(lambda: [r for r in self.lines(self.trace) if r["request"].get("x_request_id") == "mine-1"], "its record")[0]
        self.assertEqual((record["schema"], record["event_type"]), ("dynamo.request.trace.v1", "request_end"))
        replay = record["request"]["replay"]
        self.assertGreaterEqual(len(replay["input_sequence_hashes"]) * replay["trace_block_size"], replay["input_length"])

    def test_what_is_not_sampled_has_no_spans(self):
        other = "5bf92f3577b34da6a3ce929d0e0e4736"
        ask(self.port, "GET", "/v1/models", traceparent=f"00-{other}-00f067aa0ba902b7-00", x_request_id="unsampled")
        eventually(lambda: self.lines(self.access_log, x_request_id="unsampled"), "its line")
        before = len(self.collector.spans)
        ask(self.port, "GET", "/v1/models")
        eventually(lambda: len(self.collector.spans) > before, "spans of the next")
        self.assertFalse([s for _, s in self.collector.spans if s.trace_id.hex() == other])

    def test_the_trace_is_replayed_by_simulator_and_load_generator(self):
        for i in range(3):
            ask(self.port, "POST", "/v1/chat/completions", CHAT | {"messages": [{"role": "user", "content": f"{i} " * 40}]})
        eventually(lambda: len(self.lines(self.trace)) >= 3, "records")
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as copy:
            copy.write(self.trace.read_text())
            copy.flush()
            count = len(self.trace.read_text().splitlines())
            simulated = stator("sim", copy.name, "--workers", "2")
            replayed = stator("bench", "--url", f"http://127.0.0.1:{self.port}", "--trace", copy.name, "--trace-block-tokens", "16",
                              "--trace-speed", "100", "--requests", "3")
        self.assertEqual(simulated.returncode, 0, simulated.stderr)
        self.assertIn(str(count), simulated.stdout)
        self.assertIn(replayed.returncode, (0, 1), replayed.stderr)  # 1: the generator was the bottleneck
        self.assertIn("3", replayed.stdout)

    def test_the_audit_log_masks_and_tells_of_operators(self):
        ask(self.port, "POST", "/v1/chat/completions", CHAT | {"metadata": {"api_key": "sk-hidden"}}, authorization="Bearer sk-not-shown")
        ask(self.admin, "POST", "/busy_threshold", {"model": "demo"})
        eventually(lambda: self.lines(self.audit, event="operator") and self.lines(self.audit, event="request"), "events")
        text = self.audit.read_text()
        self.assertNotIn("sk-hidden", text)
        self.assertNotIn("sk-not-shown", text)
        self.assertEqual(self.lines(self.audit, event="operator")[0]["path"], "/busy_threshold")
        self.assertEqual(self.lines(self.audit, event="request")[-1]["body"]["model"], "demo")

    def test_the_audit_log_has_answers(self):
        body = CHAT | {"n": 2, "max_tokens": 3, "temperature": 0.8, "seed": 1}
        ask(self.port, "POST", "/v1/chat/completions", body | {"stream": True})
        unary = json.loads(ask(self.port, "POST", "/v1/chat/completions", body)[2])
        said = [choice["message"]["content"] for choice in unary["choices"]]
        answers = eventually(lambda: (found := self.lines(self.audit, event="answer")) and len([a for a in found if len(a["body"]["choices"]) == 2]) == 2 and found,
                             "both answers")
        for answer in (a for a in answers if len(a["body"]["choices"]) == 2):  # the same text, whether it was streamed or not
            self.assertEqual([choice["content"] for choice in answer["body"]["choices"]], said)
            self.assertEqual([choice["finish_reason"] for choice in answer["body"]["choices"]], ["length", "length"])
            self.assertEqual((answer["model"], answer["status"], answer["body"]["usage"]["completion_tokens"]), ("demo", 200, 6))
            self.assertTrue(self.lines(self.audit, event="request", request_id=answer["request_id"]))
        ask(self.port, "POST", "/v1/messages", {"model": "demo", "max_tokens": 3, "messages": [{"role": "user", "content": "In other words?"}]})
        ask(self.port, "POST", "/v1/responses", {"model": "demo", "max_output_tokens": 3, "input": "And as a response?", "stream": True})
        ids = lambda path: {line["request_id"] for line in self.lines(self.audit, event="request", path=path)}  # noqa: E731
        for path in ("/v1/messages", "/v1/responses"):
            eventually(lambda: [a for a in self.lines(self.audit, event="answer") if a["request_id"] in ids(path) and a["body"]["choices"][0]["content"]],
                       f"an answer of {path}")

    def test_an_answer_that_nobody_waited_for_is_in_the_audit_log_as_far_as_it_came(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("POST", "/v1/chat/completions", json.dumps(CHAT | {"stream": True, "max_tokens": 4000, "ignore_eos": True}),
                           {"content-type": "application/json", "x-request-id": "left-1"})
        connection.getresponse().readline()
        connection.close()
        line = eventually(lambda: self.lines(self.access_log, x_request_id="left-1"), "its line")[0]
        answer = eventually(lambda: self.lines(self.audit, event="answer", request_id=line["request_id"]), "what was said")[0]
        self.assertEqual(answer["error"], "the client left")
        self.assertTrue(answer["body"]["choices"][0]["content"])

    def test_a_file_that_is_moved_away_is_made_anew(self):
        ask(self.port, "GET", "/v1/models")
        eventually(lambda: self.access_log.exists() and self.access_log.read_text(), "a line")
        self.access_log.rename(self.access_log.with_suffix(".old"))
        eventually(lambda: ask(self.port, "GET", "/live") and self.access_log.exists() and self.lines(self.access_log, path="/live"),
                   "the new file has lines")

    def test_the_page(self):
        status, headers, body = ask(self.admin, "GET", "/ui/")
        self.assertEqual((status, headers["content-type"]), (200, "text/html; charset=utf-8"))
        self.assertIn("default-src 'none'", headers["content-security-policy"])
        page = Page(body.decode())
        self.assertEqual(page.lang, "en")
        self.assertEqual(page.tables, page.captions)
        self.assertIn("key", page.labels)
        self.assertEqual(page.headings[0], 1)
        for part in ("fleet", "workers", "queue", "requests", "tenants", "settings"):
            self.assertIn(part, page.ids)
        for link in page.links:  # nothing leaves the machine
            if link.startswith("#"):
                self.assertIn(link[1:], page.ids)
            elif not link.startswith("data:"):
                self.assertEqual(ask(self.admin, "GET", f"/ui/{link}")[0], 200, link)
        script = ask(self.admin, "GET", "/ui/app.js")[2].decode()
        self.assertNotRegex(script, r"https?://")
        for used in re.findall(r'byId\("([\w-]+)"\)|fill\("([\w-]+)"', script):
            self.assertIn(used[0] or used[1], page.ids)
        subprocess.run(["node", "--check", "-"], input=script, text=True, check=True, capture_output=True)
        for path in ("/metrics", "/requests", "/tenants", "/config", "/health"):
            self.assertEqual(ask(self.admin, "GET", path)[0], 200, path)
        self.assertEqual(ask(self.admin, "GET", "/ui")[1]["location"], "/ui/")
        self.assertEqual(ask(self.port, "GET", "/ui/")[0], 404)

    def test_operators_see_a_requests_timeline(self):
        ask(self.port, "POST", "/v1/chat/completions", CHAT, x_request_id="timeline")
        found = eventually(lambda: [r for r in json.loads(ask(self.admin, "GET", "/requests")[2]) if r.get("x_request_id") == "timeline"],
                           "the request")[0]
        self.assertEqual([step["step"] for step in found["timeline"]], ["prepared", "routed", "submitted", "first_token"])
        one = json.loads(ask(self.admin, "GET", f"/requests?request_id={found['request_id']}")[2])
        self.assertEqual([r["request_id"] for r in one], [found["request_id"]])
        self.assertEqual(ask(self.admin, "GET", f"/receipts/{found['request_id']}")[0], 200)

    def test_top(self):
        ask(self.port, "POST", "/v1/chat/completions", CHAT)
        shown = stator("top", "--url", f"http://127.0.0.1:{self.admin}", "--once")
        self.assertEqual(shown.returncode, 0, shown.stderr)
        for word in ("WORKER", "ENGINE", "REQUEST", "demo", "healthy"):
            self.assertIn(word, shown.stdout)
        look = json.loads(stator("top", "--url", f"http://127.0.0.1:{self.admin}", "--once", "--json").stdout)
        self.assertEqual((look["status"], len(look["workers"])), ("healthy", 2))
        self.assertGreater(look["output_tokens_total"], 0)
        wrong = stator("top", "--url", f"http://127.0.0.1:{self.port}", "--once")
        self.assertEqual(wrong.returncode, 1)
        self.assertIn("--admin-port", wrong.stderr)

    def test_other_commands_name_the_operators_listener(self):
        for command in (("kv", "ls"), ("explain",)):
            wrong = stator(*command, "--url", f"http://127.0.0.1:{self.port}")
            self.assertNotEqual(wrong.returncode, 0)
            self.assertIn("--admin-port", wrong.stderr)
        self.assertIn("device", stator("kv", "ls", "--url", f"http://127.0.0.1:{self.admin}").stdout)


class Collectors(unittest.TestCase):
    def start(self, *arguments: str) -> Stator:
        server = Stator("serve", str(MODEL_DIR), "--port", "0", "--host", "127.0.0.1", *arguments)
        self.addCleanup(server.kill)
        return server

    def test_grpc(self):
        collector = GrpcCollector()
        self.addCleanup(collector.close)
        server = self.start("--otlp-endpoint", collector.url, "--otlp-protocol", "grpc", "--trace-interval", "50ms")
        ask(server.ready["port"], "POST", "/v1/chat/completions", CHAT)
        wanted = {"http-request", "prepare", "route", "decode", "handle_payload", "engine.generate"}
        eventually(lambda: wanted <= {s.name for s in collector.spans}, "spans of frontend and worker")

    def test_a_collector_that_is_away_costs_spans_only(self):
        server = self.start("--otlp-endpoint", "http://127.0.0.1:1", "--trace-interval", "20ms", "--trace-spans-max", "8")
        for _ in range(4):
            self.assertEqual(ask(server.ready["port"], "POST", "/v1/chat/completions", CHAT)[0], 200)
        eventually(lambda: re.search(rb"stator_trace_spans_dropped_total\{reason=\"\w+\"\} [1-9]",
                                     ask(server.ready["port"], "GET", "/metrics")[2]), "dropped spans are counted")

    def test_a_full_disk_costs_lines_only(self):
        server = self.start("--access-log", "/dev/full", "--access-log-format", "human")
        self.assertEqual(ask(server.ready["port"], "POST", "/v1/chat/completions", CHAT)[0], 200)
        eventually(lambda: re.search(rb'lines_dropped_total\{file="access_log",reason="disk"\} [1-9]',
                                     ask(server.ready["port"], "GET", "/metrics")[2]), "lost lines are counted")

    def test_files_that_cannot_be(self):
        refused = stator("serve", str(MODEL_DIR), "--port", "0", "--access-log", "/nowhere/at/all")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("request_log.access_log", refused.stderr)


if __name__ == "__main__":
    unittest.main()
