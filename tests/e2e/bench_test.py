#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`stator bench` against a server with known delays that writes down what it saw, and against Stator itself."""

import json
import pathlib
import re
import signal
import statistics
import subprocess
import tempfile
import unittest

from fake_upstream import FIRST_S, GAP_S, FakeUpstream
from stator_process import BINARY, ROOT, Http, Serve, clean_environment, eventually

# A busy test machine is a client-bound one: figures are wanted all the same, marked as such.
ALLOWED = "--allow-client-bound"
DISTRIBUTION = ("avg", "min", "max", "p1", "p5", "p10", "p25", "p50", "p75", "p90", "p95", "p99", "std")


def bench_command(url: str, *arguments: str) -> list[str]:
    return [BINARY, "bench", "--url", url, *arguments]


class BenchTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="stator-e2e-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_bench(self, url: str, *arguments: str) -> subprocess.CompletedProcess:
        return subprocess.run(bench_command(url, *arguments), env=clean_environment(HOME=str(self.folder)),
                              capture_output=True, text=True, timeout=300)

    def report(self, url: str, *arguments: str) -> dict:
        done = self.run_bench(url, *arguments, ALLOWED, "--json", "-")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)


class AgainstAFake(BenchTest):
    def setUp(self):
        super().setUp()
        self.fake = FakeUpstream()
        self.addCleanup(self.fake.close)
        self.http = Http(self.fake.port)

    def log(self) -> list[dict]:
        return self.http.get("/log")[1]

    def test_latencies_are_those_the_server_made(self):
        report = self.report(self.fake.url, "--concurrency", "2", "--requests", "20", "--output-tokens", "8")
        # What the server did, by its own clock; the client sees each a little later.
        first = 1000 * statistics.median(entry["chunks"][0] for entry in self.log())
        whole = 1000 * statistics.median(entry["chunks"][-1] for entry in self.log())
        gap = 1000 * statistics.median((e["chunks"][-1] - e["chunks"][0]) / 7 for e in self.log())
        self.assertGreaterEqual(first, 1000 * FIRST_S)
        self.assertAlmostEqual(report["time_to_first_token"]["p50"], first, delta=0.5 * first + 20)
        self.assertAlmostEqual(report["request_latency"]["p50"], whole, delta=0.5 * whole + 20)
        self.assertAlmostEqual(report["inter_token_latency"]["p50"], gap, delta=0.5 * gap + 1)
        self.assertGreaterEqual(report["time_to_first_token"]["min"], 1000 * FIRST_S)
        self.assertGreaterEqual(report["inter_token_latency"]["p50"], 1000 * GAP_S * 0.99)
        self.assertEqual(report["inter_chunk_latency"]["count"], 20 * 7)
        self.assertEqual(report["output_sequence_length"]["avg"], 8)
        self.assertEqual(report["input_sequence_length"]["avg"], 11)
        self.assertEqual(report["request_count"]["avg"], 20)
        self.assertEqual(report["stator"]["runs"][0]["token_counts"], "usage")

    def test_reports_have_aiperfs_names_and_statistics(self):
        files = {kind: self.folder / f"report.{kind}" for kind in ("json", "csv", "html")}
        flags = [part for kind, path in files.items() for part in (f"--{kind}", str(path))]
        done = self.run_bench(self.fake.url, "--requests", "3", "--output-tokens", "3", ALLOWED, *flags)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("Time to First Token (ms)", done.stdout)
        report = json.loads(files["json"].read_text())
        for tag in ("time_to_first_token", "time_to_second_token", "inter_token_latency", "inter_chunk_latency",
                    "request_latency", "output_token_throughput_per_user", "output_sequence_length"):
            for statistic in DISTRIBUTION:
                self.assertIsInstance(report[tag][statistic], (int, float), f"{tag} {statistic}")
        for tag in ("output_token_throughput", "request_throughput", "request_count", "benchmark_duration"):
            self.assertIn("avg", report[tag])
            self.assertIn("unit", report[tag])
        self.assertEqual(files["csv"].read_text().splitlines()[0], "Metric," + ",".join(DISTRIBUTION))
        page = files["html"].read_text()
        self.assertIn("<svg", page)
        self.assertNotIn("http-equiv", page)
        self.assertNotIn("<script", page)
        self.assertNotIn("<link", page)

    def test_connections_are_reused_and_counted(self):
        for arguments, allowed in ((["--concurrency", "3"], range(1, 4)), (["--concurrency", "3", "--no-keep-alive"], [12]),
                                   (["--rate", "1000", "--in-flight-max", "2"], range(1, 3))):
            report = self.report(self.fake.url, "--requests", "12", "--output-tokens", "1", *arguments)
            client = report["stator"]["runs"][0]["client"]
            self.assertIn(client["connections"], allowed, arguments)
            self.assertGreaterEqual(client["waiting_cpu_s"], 0)

    def test_all_that_is_due_at_once_is_in_flight_at_once(self):
        # Opening waits for a look at the sockets, never for an answer.
        trace = self.folder / "burst.jsonl"
        trace.write_text('{"timestamp":0,"input_length":4,"output_length":1}\n' * 40)
        report = self.report(self.fake.url, "--model", "together", "--trace", str(trace))
        self.assertEqual(report["request_count"]["avg"], 40)
        self.assertEqual(report["stator"]["runs"][0]["client"]["connections"], 40)

    def test_an_open_loop_measures_from_the_schedule(self):
        # 20 a second on a server that does 1 / (0.06 + 0.015) = 13, one at a time: a generator that waits for answers
        # would see 75 ms for each request.
        report = self.report(self.fake.url, "--model", "serial", "--rate", "20", "--arrivals", "constant",
                             "--requests", "30", "--output-tokens", "2", "--in-flight-max", "1")
        raw, honest = report["request_latency"], report["request_latency_from_schedule"]
        self.assertGreater(honest["max"], 3 * raw["p50"])
        self.assertGreater(honest["avg"], raw["avg"] * 2)
        self.assertGreater(report["stator"]["runs"][0]["client"]["held_back"], 20)

    def test_failures_are_counted_and_shown(self):
        report = self.report(self.fake.url, "--model", "sometimes", "--requests", "12", "--output-tokens", "2")
        self.assertEqual(report["request_count"]["avg"], 8)
        self.assertEqual(report["error_request_count"]["avg"], 4)
        self.assertEqual(report["error_summary"][0]["count"], 4)
        self.assertIn("the fake is full", report["error_summary"][0]["error_details"]["message"])

    def test_a_stream_that_breaks_off_is_a_failure(self):
        done = self.run_bench(self.fake.url, "--model", "break", "--requests", "3", "--output-tokens", "5")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no request was answered", done.stderr)

    def test_a_server_that_is_not_there_ends_the_run(self):
        self.fake.close()
        done = self.run_bench(self.fake.url, "--model", "m", "--requests", "5")
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot connect", done.stderr)

    def test_requests_past_their_time_fail(self):
        done = self.run_bench(self.fake.url, "--model", "stall", "--requests", "2", "--request-timeout", "200ms")
        self.assertEqual(done.returncode, 1)
        self.assertIn("--request-timeout", done.stderr)

    def test_a_generator_that_was_held_up_fails_with_marked_figures(self):
        process = subprocess.Popen(
            bench_command(self.fake.url, "--rate", "50", "--arrivals", "constant", "--requests", "250", "--output-tokens", "2",
                          "--json", str(self.folder / "r.json")),
            env=clean_environment(HOME=str(self.folder)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        eventually(lambda: len(self.log()) >= 10, "the run has begun")
        process.send_signal(signal.SIGSTOP)
        stopped_at = len(self.log())
        try:  # until half a second of its schedule has passed, by the server's clock
            subprocess.run(["sleep", "0.7"], check=True)
        finally:
            process.send_signal(signal.SIGCONT)
        out, err = process.communicate(timeout=300)
        self.assertGreater(stopped_at, 0)
        self.assertEqual(process.returncode, 1, out)
        self.assertIn("not valid", err)
        self.assertIn("late", err)
        self.assertIn("Time to First Token (ms)", out)
        report = json.loads((self.folder / "r.json").read_text())
        self.assertFalse(report["stator"]["valid"])
        self.assertGreater(report["request_count"]["avg"], 100)

    def test_the_same_is_printed_and_marked_when_allowed(self):
        process = subprocess.Popen(
            bench_command(self.fake.url, "--rate", "50", "--requests", "250", "--output-tokens", "2", ALLOWED, "--json", "-"),
            env=clean_environment(HOME=str(self.folder)), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        eventually(lambda: len(self.log()) >= 10, "the run has begun")
        process.send_signal(signal.SIGSTOP)
        subprocess.run(["sleep", "0.7"], check=True)
        process.send_signal(signal.SIGCONT)
        out, _ = process.communicate(timeout=300)
        report = json.loads(out)
        self.assertFalse(report["stator"]["valid"])
        self.assertTrue(report["stator"]["runs"][0]["client"]["is_bottleneck"])

    def test_reports_hold_no_secret(self):
        for header, shown in (("X-Api-Key: hunter2", "X-Api-Key: ***"), ("Authorization: Bearer hunter2", "Authorization: ***"),
                              ("User-Agent: probe", "User-Agent: probe")):
            files = [self.folder / f"report.{kind}" for kind in ("json", "csv", "html")]
            flags = [part for path in files for part in (f"--{path.suffix[1:]}", str(path))]
            done = self.run_bench(self.fake.url, "--requests", "1", "--output-tokens", "1", ALLOWED, "--header", header, "--api-key",
                                  "hunter2", *flags)
            self.assertEqual(done.returncode, 0, done.stderr)
            for text in (done.stdout, done.stderr, *(path.read_text() for path in files)):
                self.assertNotIn("hunter2", text)
            self.assertIn(shown, files[0].read_text())

    def test_a_trace_is_replayed_with_its_times_lengths_and_prefixes(self):
        rows = [{"timestamp": 0, "input_length": 40, "output_length": 2, "hash_ids": [1, 2, 3]},
                {"timestamp": 700, "input_length": 36, "output_length": 3, "hash_ids": [1, 2, 4]},
                {"timestamp": 300, "input_length": 20, "output_length": 1, "hash_ids": [9, 8]}]
        trace = self.folder / "trace.jsonl"
        trace.write_text("".join(json.dumps(row) + "\n" for row in rows))
        report = self.report(self.fake.url, "--trace", str(trace), "--trace-block-tokens", "16")
        log = self.log()
        self.assertEqual(report["request_count"]["avg"], 3)
        self.assertEqual([entry["body"]["max_tokens"] for entry in log], [2, 1, 3])
        texts = [entry["body"]["messages"][0]["content"].split() for entry in log]
        self.assertEqual([len(words) for words in texts], [40, 20, 36])
        self.assertEqual(texts[0][:32], texts[2][:32])
        self.assertNotEqual(texts[0][32:36], texts[2][32:])
        # The machine may hold up any of them, but nothing is sent before its time.
        self.assertGreaterEqual(report["benchmark_duration"]["avg"], 0.7)
        self.assertLess(log[-1]["at"] - log[0]["at"], 70, "milliseconds, not a hundred times as long")

    def test_bad_traces_name_line_and_field(self):
        trace = self.folder / "trace.jsonl"
        trace.write_text('{"timestamp":0,"input_length":5,"output_length":1}\n{"timestamp":1,"input_length":-5,"output_length":1}\n')
        done = self.run_bench(self.fake.url, "--trace", str(trace))
        self.assertEqual(done.returncode, 2)
        self.assertIn("trace.jsonl:2: input_length", done.stderr)

    def test_sessions_carry_the_servers_answers(self):
        report = self.report(self.fake.url, "--requests", "3", "--turns", "3", "--input-tokens", "4", "--output-tokens", "2")
        self.assertEqual(report["request_count"]["avg"], 3)
        messages = [entry["body"]["messages"] for entry in self.log()]
        self.assertEqual([len(m) for m in messages], [1, 3, 5])
        self.assertEqual(messages[1][0], messages[0][0])
        self.assertEqual(messages[1][1], {"role": "assistant", "content": ' t"0 t"1'})
        self.assertEqual(messages[2][:3], messages[1])
        self.assertEqual(len(messages[2][4]["content"].split()), 4)

    def test_the_server_sees_what_was_asked_for(self):
        self.report(self.fake.url + "/v1", "--requests", "1", "--endpoint-type", "completions", "--no-stream", "--api-key", "sesame",
                    "--header", "X-Team: blue", "--extra-body", '{"temperature":0,"max_tokens":5}', "--input-tokens", "6")
        entry = self.log()[0]
        self.assertEqual(entry["path"], "/v1/completions")
        self.assertEqual(entry["headers"]["authorization"], "Bearer sesame")
        self.assertEqual(entry["headers"]["x-team"], "blue")
        asked = self.http.get("/asked")[1][0]
        self.assertEqual((asked["authorization"], asked["x-team"]), ("Bearer sesame", "blue"))
        self.assertEqual(entry["body"] | {"prompt": None},
                         {"model": "fixed", "prompt": None, "stream": False, "temperature": 0, "max_tokens": 5})
        self.assertEqual(len(entry["body"]["prompt"].split()), 6)

    def test_answers_without_a_stream_have_no_first_token(self):
        report = self.report(self.fake.url, "--requests", "4", "--no-stream", "--output-tokens", "3")
        self.assertNotIn("time_to_first_token", report)
        self.assertGreaterEqual(report["request_latency"]["min"], 1000 * (FIRST_S + 2 * GAP_S))
        self.assertEqual(report["output_sequence_length"]["avg"], 3)

    def test_chunks_are_counted_when_there_is_no_usage(self):
        report = self.report(self.fake.url, "--model", "silent", "--requests", "3", "--output-tokens", "5")
        self.assertEqual(report["output_sequence_length"]["avg"], 5)
        self.assertEqual(report["stator"]["runs"][0]["token_counts"], "chunks")

    def test_cancelled_requests_are_hung_up_on_and_not_counted(self):
        report = self.report(self.fake.url, "--requests", "20", "--concurrency", "5", "--output-tokens", "40",
                             "--cancel-percent", "50", "--cancel-after", "150ms")
        outcomes = report["stator"]["runs"][0]["outcomes"]
        self.assertEqual(outcomes["ok"] + outcomes["cancelled"], 20)
        self.assertGreater(outcomes["cancelled"], 2)
        self.assertEqual(report["error_request_count"]["avg"], 0)
        eventually(lambda: sum(e["hung_up"] for e in self.log()) == outcomes["cancelled"], "the server saw them leave")

    def test_bodies_are_sent_as_they_are(self):
        bodies = self.folder / "bodies.jsonl"
        bodies.write_text('{"model":"fixed","messages":[{"role":"user","content":"é"}],"max_tokens":2,"user":"u"}\n{"prompt":"x","stream":false}\n')
        report = self.report(self.fake.url, "--bodies", str(bodies), "--requests", "3")
        self.assertEqual(report["request_count"]["avg"], 3)
        sent = [entry["body"] for entry in self.log()]
        self.assertEqual(sent[0]["messages"][0]["content"], "é")
        self.assertEqual(sent[0]["user"], "u")
        self.assertEqual(sent[1], {"model": "fixed", "prompt": "x", "stream": False})
        self.assertEqual(sent[2], sent[0])

    def test_warm_up_goodput_and_repeated_runs(self):
        report = self.report(self.fake.url, "--requests", "10", "--concurrency", "2", "--output-tokens", "3", "--runs", "3",
                             "--warmup-requests", "4", "--goodput", "ttft:10000 e2e:1")
        self.assertEqual(report["request_count"]["avg"], 6)
        self.assertEqual(report["good_request_count"]["avg"], 0)
        self.assertEqual(len(report["stator"]["runs"]), 3)
        interval = report["stator"]["confidence_95"]["request_latency"]
        self.assertEqual(interval["runs"], 3)
        self.assertLessEqual(interval["low"], interval["mean"])
        prompts = {json.dumps(entry["body"]["messages"]) for entry in self.log()}
        self.assertEqual(len(prompts), 30, "no run meets prompts of another in the cache")

    def test_a_sweep_finds_where_the_server_stops_keeping_up(self):
        # One at a time, 60 ms each: about 16 a second.
        report = self.report(self.fake.url, "--model", "serial", "--output-tokens", "1", "--sweep", "2,60", "--duration", "2s",
                             "--arrivals", "constant", "--drain-timeout", "3s")
        steps = report["stator"]["runs"]
        self.assertEqual([step["offered_requests_per_s"] for step in steps], [2, 60])
        self.assertEqual([step["sustained"] for step in steps], [True, False])
        self.assertEqual(report["stator"]["highest_sustained_requests_per_s"], 2)

    def test_an_interrupted_run_reports_what_it_has(self):
        process = subprocess.Popen(
            bench_command(self.fake.url, "--requests", "100000", "--output-tokens", "2", ALLOWED, "--json", "-"),
            env=clean_environment(HOME=str(self.folder)), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        eventually(lambda: len(self.log()) >= 5, "some requests")
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=300)
        self.assertTrue(json.loads(out)["was_cancelled"])

    def test_a_run_without_figures_is_no_success(self):
        for arguments, status, words in ((["--warmup-requests", "5"], 2, "part of the warm-up"),
                                         (["--model", "refuse", "--warmup-requests", "1"], 1, "the fake is full")):
            done = self.run_bench(self.fake.url, "--requests", "3", "--output-tokens", "1", ALLOWED, *arguments)
            self.assertEqual(done.returncode, status, done.stderr)
            self.assertIn(words, done.stderr)

    def test_mistakes_are_named(self):
        for arguments, words in ((["--rate", "1", "--concurrency", "2"], "exclude"), (["--goodput", "x:1"], "--goodput"),
                                 (["--concurrency", "900000"], "ulimit"), (["--extra-body", "{"], "--extra-body"),
                                 (["--requests", "x"], "--requests"), (["--arrivals", "uniform"], "poisson")):
            done = self.run_bench(self.fake.url, *arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn(words, done.stderr)


class AgainstStator(BenchTest):
    @classmethod
    def setUpClass(cls):
        cls.serve = Serve("--sim-speedup", "10")
        cls.addClassCleanup(cls.serve.close)
        eventually(lambda: cls.serve.http.request("GET", "/health")[0] == 200, "healthy")

    def test_streams_of_a_closed_loop(self):
        report = self.report(self.serve.frontend.url, "--concurrency", "16", "--requests", "200", "--threads", "2", "--ignore-eos",
                             "--input-tokens", "100", "--tokenizer", str(ROOT / "models" / "demo"), "--output-tokens", "20")
        self.assertEqual(report["request_count"]["avg"], 200)
        self.assertEqual(report["output_sequence_length"]["min"], 20)
        self.assertEqual(report["output_sequence_length"]["max"], 20)
        # The chat template adds the same few tokens to each prompt.
        self.assertEqual(report["input_sequence_length"]["min"], report["input_sequence_length"]["max"])
        self.assertGreaterEqual(report["input_sequence_length"]["min"], 100)
        self.assertLess(report["input_sequence_length"]["max"], 140)

    def test_shared_prefixes_hit_the_cache(self):
        before = self.serve.http.metric("stator_engine_prefix_cache_hit_tokens_total")
        self.report(self.serve.frontend.url, "--requests", "40", "--input-tokens", "16", "--prefix-tokens", "320", "--output-tokens", "2")
        after = self.serve.http.metric("stator_engine_prefix_cache_hit_tokens_total")
        self.assertGreater(after - before, 30 * 300)

    def test_tls(self):
        cert, key = self.folder / "cert.pem", self.folder / "key.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                        "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
                        "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
        serve = Serve("--sim-speedup", "10", "--tls-cert-path", str(cert), "--tls-key-path", str(key))
        self.addCleanup(serve.close)
        for host in ("127.0.0.1", "localhost"):
            report = self.report(f"https://{host}:{serve.frontend.port}", "--model", "demo", "--requests", "12", "--concurrency", "3",
                                 "--output-tokens", "8", "--ignore-eos", "--tls-ca", str(cert))
            self.assertEqual(report["request_count"]["avg"], 12)
            self.assertEqual(report["output_sequence_length"]["min"], 8)
        refused = self.run_bench(f"https://127.0.0.1:{serve.frontend.port}", "--model", "demo", "--requests", "2")
        self.assertEqual(refused.returncode, 1)
        self.assertIn("certificate verify failed", refused.stderr)

    def test_the_commands_of_the_guide_work(self):
        guide = (ROOT / "docs" / "howto" / "measure_a_server.md").read_text()
        script = "\n".join(re.findall(r"^```\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL))
        self.assertGreaterEqual(script.count("stator bench"), 9)
        script = script.replace("http://127.0.0.1:8000", self.serve.frontend.url).replace("models/demo", str(ROOT / "models" / "demo"))
        script = re.sub(r"--duration \d+s", "--duration 2s", script)  # the guide measures longer than a test should
        script = re.sub(r"^stator bench", f"{BINARY} bench {ALLOWED}", script, flags=re.MULTILINE)
        done = subprocess.run(["bash", "-e", "-c", script], cwd=self.folder, env=clean_environment(HOME=str(self.folder)),
                              capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        self.assertIn("highest sustained rate", done.stdout)
        self.assertIn("5 runs, mean and 95 % confidence interval", done.stdout)
        self.assertIn("Goodput", done.stdout)


if __name__ == "__main__":
    unittest.main()
