#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`stator bench` against servers with odd habits: every request is an answer or a failure with a reason, never neither."""

import json
import pathlib
import subprocess
import tempfile
import unittest

from odd_servers import HABITS, TOKENS, USAGE, OddServer, deaf_socket
from stator_process import BINARY, clean_environment

REQUESTS = 12
# Every third request fails; what the report must say about it, and as what it counts.
SOMETIMES = {
    "error_500": ("http_error", "HTTP 500: .*boom"),
    "busy_429": ("http_error", "HTTP 429: .*slow down"),
    "closed_mid_stream": ("broken_answer", "closed the connection in the middle of an answer"),
    "closed_inside_a_line": ("broken_answer", "closed the connection in the middle of an answer"),
    "error_in_the_stream": ("stream_error", "in the stream: .*the engine died"),
    "error_with_200": ("stream_error", "HTTP 200, but no answer: .*not today"),
    "web_page": ("stream_error", "HTTP 200, but no answer: .*Please log in"),
    "empty_stream": ("stream_error", "neither text nor token counts"),
}
ALWAYS = {
    "closed_before_headers": "without an answer",
    "garbage": "not HTTP/1",
    "bad_chunks": "chunks of the answer are not well-formed",
    "endless_headers": "longer than 64 KiB",
    "more_than_announced": "no request was answered",
    "redirect": "HTTP 307: redirects to https://elsewhere.example/v1",
    "unknown_model": "HTTP 404: .*does not exist",
    "no_stream_options": "--no-usage",
    "hang": "no complete answer within --request-timeout",
    "hang_mid_stream": "no complete answer within --request-timeout",
}
# What differs from five pieces of text, a stream, token counts by the server and kept connections.
ODD_BUT_WHOLE = {
    "keep_alive_comments": {}, "crlf": {}, "three_bytes_at_a_time": {}, "all_in_one_chunk": {}, "role_first": {}, "reasoning": {},
    "tool_calls_only": {}, "extra_spaces": {}, "no_space_after_data": {}, "ids_and_event_names": {}, "usage_in_every_event": {},
    "no_usage": {"tokens": TOKENS, "counts": "chunks"}, "no_done": {}, "until_close": {"connections": REQUESTS},
    "http_1_0": {"connections": REQUESTS}, "silent_close": {"connections": REQUESTS}, "interim_answers": {}, "large_headers": {},
    "not_a_stream": {"chunks": 0}, "trickle": {"connections": REQUESTS, "chunks": 1},
}


class OddServers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="stator-e2e-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.server = OddServer()
        cls.addClassCleanup(cls.server.close)
        cls.url = f"http://127.0.0.1:{cls.server.port}"

    def bench(self, url: str, model: str, *arguments: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [BINARY, "bench", "--url", url, "--model", model, "--requests", str(REQUESTS), "--concurrency", "2", "--input-tokens", "8",
             "--allow-client-bound", *arguments],
            env=clean_environment(HOME=str(self.folder)), capture_output=True, text=True, timeout=300)

    def report(self, model: str, url: str | None = None, *arguments: str) -> dict:
        done = self.bench(url or self.url, model, "--json", "-", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_every_habit_is_tried(self):
        self.assertEqual(set(HABITS), set(SOMETIMES) | set(ALWAYS) | set(ODD_BUT_WHOLE))

    def test_failures_are_counted_with_their_reason(self):
        for model, (outcome, reason) in SOMETIMES.items():
            with self.subTest(model):
                report = self.report(model)
                run = report["stator"]["runs"][0]
                failed = REQUESTS // 3
                self.assertEqual(run["outcomes"], {"ok": REQUESTS - failed, outcome: failed})
                self.assertEqual(report["request_count"]["avg"], REQUESTS - failed)
                self.assertEqual(report["error_request_count"]["avg"], failed)
                self.assertAlmostEqual(report["request_error_rate"]["avg"], 100 / 3)
                self.assertEqual([error["count"] for error in report["error_summary"]], [failed])
                self.assertRegex(report["error_summary"][0]["error_details"]["message"], reason)
                self.assertEqual(report["inter_chunk_latency"]["count"], (REQUESTS - failed) * (TOKENS - 1))

    def test_nothing_but_failures_is_no_success_and_says_why(self):
        for model, reason in ALWAYS.items():
            with self.subTest(model):
                done = self.bench(self.url, model, "--request-timeout", "300ms")
                self.assertEqual(done.returncode, 1)
                self.assertRegex(done.stderr, reason)
                self.assertEqual(done.stdout, "")

    def test_odd_answers_are_read_right(self):
        for model, odd in ODD_BUT_WHOLE.items():
            with self.subTest(model):
                report = self.report(model)
                run = report["stator"]["runs"][0]
                self.assertEqual(run["outcomes"], {"ok": REQUESTS})
                self.assertEqual(report["error_summary"], [])
                self.assertEqual(run["token_counts"], odd.get("counts", "usage"))
                self.assertEqual(report["output_sequence_length"]["min"], odd.get("tokens", USAGE["completion_tokens"]))
                self.assertEqual(report["output_sequence_length"]["max"], odd.get("tokens", USAGE["completion_tokens"]))
                chunks = odd.get("chunks", TOKENS)
                self.assertEqual(report.get("inter_chunk_latency", {"count": 0})["count"], REQUESTS * max(0, chunks - 1))
                self.assertEqual(run["streamed_answers"], REQUESTS if chunks else 0)
                self.assertEqual("time_to_first_token" in report, chunks > 0)
                if "connections" in odd:
                    self.assertEqual(run["client"]["connections"], odd["connections"])
                else:
                    self.assertLessEqual(run["client"]["connections"], 2)

    def test_what_the_reader_must_know_is_said(self):
        self.assertIn("12 of 12 answers came whole although streams were asked for", self.bench(self.url, "not_a_stream").stdout)
        self.assertIn("chunks were counted instead", self.bench(self.url, "no_usage").stdout)
        self.assertIn("failed 4 times: HTTP 429", self.bench(self.url, "busy_429").stdout)

    def test_without_stream_options(self):
        report = self.report("no_stream_options", None, "--no-usage")
        self.assertEqual(report["request_count"]["avg"], REQUESTS)

    def test_paths_below_others(self):
        for base in ("/", "/v1", "/v1/", "/base", "/base/v1"):
            with self.subTest(base):
                self.assertEqual(self.report("crlf", self.url + base)["request_count"]["avg"], REQUESTS)

    def test_a_server_that_accepts_nobody(self):
        with deaf_socket() as listener:
            done = self.bench(f"http://127.0.0.1:{listener.getsockname()[1]}", "m", "--request-timeout", "300ms")
        self.assertEqual(done.returncode, 1)
        self.assertIn("--request-timeout", done.stderr)

    def test_an_unknown_host(self):
        done = self.bench("http://no-such-host.invalid:8000", "m")
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot find the host 'no-such-host.invalid' of --url", done.stderr)

    def test_ipv6(self):
        if pathlib.Path("/proc/net/if_inet6").exists():
            server = OddServer("--ipv6")
            self.addCleanup(server.close)
            self.assertEqual(self.report("crlf", f"http://[::1]:{server.port}")["request_count"]["avg"], REQUESTS)
        else:  # a machine without it must say so
            self.assertIn("cannot connect", self.bench(f"http://[::1]:{self.server.port}", "crlf").stderr)

    def test_a_certificate_nobody_signed(self):
        cert, key = self.folder / "cert.pem", self.folder / "key.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                        "-subj", "/CN=nobody", "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
        server = OddServer("--tls", str(cert), str(key))
        self.addCleanup(server.close)
        url = f"https://127.0.0.1:{server.port}"
        refused = self.bench(url, "crlf")
        self.assertEqual(refused.returncode, 1)
        self.assertIn("certificate verify failed", refused.stderr)
        for model in ("crlf", "until_close", "three_bytes_at_a_time"):
            self.assertEqual(self.report(model, url, "--tls-insecure")["request_count"]["avg"], REQUESTS)
        plain = self.bench(url.replace("https", "http"), "crlf")
        self.assertEqual(plain.returncode, 1)
        self.assertIn("no request was answered", plain.stderr)


if __name__ == "__main__":
    unittest.main()
