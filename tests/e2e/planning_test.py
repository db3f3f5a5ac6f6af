#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`stator forecast`, `configure` and `planner --dry-run`, as people and scripts run them."""

import json
import pathlib
import subprocess
import tempfile
import unittest

import numpy

from stator_process import BINARY, MODEL_DIR, Stator, clean_environment


def stator(*arguments: str, text: str = "") -> subprocess.CompletedProcess:
    return subprocess.run([BINARY, *arguments], input=text, capture_output=True, text=True, env=clean_environment(), timeout=300)


class Forecast(unittest.TestCase):
    def test_a_line_goes_on(self):
        series = "time,load\n" + "".join(f"{i},{2 * i + 5}\n" for i in range(30))
        for predictor in ("kalman", "arima", "seasonal"):
            done = stator("forecast", "--predictor", predictor, "--steps", "2", text=series)
            self.assertEqual(done.returncode, 0, done.stderr)
            first, second = map(float, done.stdout.split())
            self.assertAlmostEqual(first, 65, delta=1, msg=predictor)
            self.assertAlmostEqual(second, 67, delta=1, msg=predictor)
        last = json.loads(stator("forecast", "--predictor", "constant", "--steps", "3", "--json", text=series).stdout)
        self.assertEqual(last["forecast"], [63, 63, 63])
        chosen = stator("forecast", "--predictor", "auto", "--json", text=series)
        self.assertAlmostEqual(json.loads(chosen.stdout)["forecast"][0], 65, delta=1)
        self.assertIn("loss", chosen.stderr)

    def test_wrong_input_is_named(self):
        self.assertEqual(stator("forecast", "--predictor", "oracle", text="1\n").returncode, 2)
        done = stator("forecast", text="1\nx\n")
        self.assertEqual(done.returncode, 2)
        self.assertIn("line 2", done.stderr)


class Configure(unittest.TestCase):
    GOAL = ("--system", "h200_sxm", "--gpus", "8", "--isl", "4000", "--osl", "500", "--json")

    def test_answers_keep_the_goals(self):
        done = stator("configure", "--model", "Qwen/Qwen3-32B-FP8", "--ttft", "800", "--itl", "15", *self.GOAL)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)
        self.assertGreater(found["configurations_considered"], 500)
        self.assertTrue(found["sla_met"])
        for each in found["best"]:
            self.assertLessEqual(each["ttft_ms"], 800)
            self.assertLessEqual(each["itl_ms"], 15)
            self.assertLessEqual(each["gpus_used"], 8)

    def test_what_is_impossible_says_which_limit(self):
        found = json.loads(stator("configure", "--model", "Qwen/Qwen3-32B-FP8", "--ttft", "800", "--itl", "0.1", *self.GOAL).stdout)
        self.assertFalse(found["sla_met"])
        self.assertEqual(found["binding_limit"], "itl")
        self.assertTrue(found["best"])

    def test_files_of_each_backend(self):
        for backend, word in (("vllm", "vllm serve"), ("sglang", "sglang.launch_server"), ("trtllm", "trtllm-serve")):
            with tempfile.TemporaryDirectory() as folder:
                done = stator("configure", "--model", "Qwen/Qwen3-8B", "--backend", backend, "--output", folder, *self.GOAL)
                self.assertEqual(done.returncode, 0, done.stderr)
                deployment = (pathlib.Path(folder) / "deployment.yaml").read_text()
                self.assertIn("kind: DynamoGraphDeployment", deployment)
                self.assertIn(word, deployment)
                self.assertIn("<svg", (pathlib.Path(folder) / "report.html").read_text())

    def test_an_unknown_model_is_refused_by_field(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "config.json").write_text('{"model_type": "abacus"}')
            done = stator("configure", "--model", folder, *self.GOAL)
        self.assertEqual(done.returncode, 2)
        self.assertIn("model_type", done.stderr)

    def test_a_table_is_filled(self):
        table = ("model_path,system,backend,mode,isl,osl,precision,batch_size,tp_size\n"
                 "Qwen/Qwen3-32B,h200_sxm,vllm,agg,1024,512,fp8,8,2\nno/model,h200_sxm,vllm,agg,1024,512,fp8,8,2\n")
        done = stator("configure", "estimate", "--csv", "-", "--json", text=table)
        self.assertEqual(done.returncode, 0, done.stderr)
        first, second = json.loads(done.stdout)
        self.assertGreater(first["ttft_ms"], 1)
        self.assertGreater(first["itl_ms"], 1)
        self.assertIsNone(second["ttft_ms"])
        self.assertIn("no/model", second["error"])


    def test_the_shortlist_is_simulated_on_the_trace(self):
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as trace:
            trace.write("".join(json.dumps({"timestamp": i * 400, "input_length": 1000, "output_length": 60, "hash_ids": [2 * i, 2 * i + 1]}) + "\n"
                                for i in range(60)))
            trace.flush()
            done = stator("configure", "--model", "Qwen/Qwen3-8B", "--system", "h200_sxm", "--gpus", "4", "--ttft", "1000", "--itl", "30",
                          "--best", "2", "--trace", trace.name, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        for each in json.loads(done.stdout)["best"]:
            self.assertEqual(each["simulated"]["requests"], 60)
            self.assertGreater(each["simulated"]["goals_met"], 0.9)
            self.assertGreater(each["simulated"]["itl_ms_p50"], 0.5)

    def test_a_database_without_the_gpu_says_what_it_has(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "b200_sxm").mkdir()
            done = stator("configure", "--model", "Qwen/Qwen3-8B", "--database", folder, *self.GOAL)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("b200_sxm", done.stderr)


class Profile(unittest.TestCase):
    def test_an_engine_is_measured_and_the_result_is_used(self):
        engine = Stator("sim-server", "--dialect", "vllm", "--model-dir", str(MODEL_DIR), "--host", "127.0.0.1", "--port", "0",
                        "--sim-step-us", "4000", "--sim-prefill-token-us", "40", "--sim-decode-sequence-us", "500")
        self.addCleanup(engine.close)
        with tempfile.TemporaryDirectory() as folder:
            done = stator("profile", "--url", engine.url, "--output", folder, "--prefill-points", "4", "--decode-points", "2",
                          "--decode-tokens", "16", "--concurrency-max", "4", "--repeats", "1", "--itl", "1000", "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            found = json.loads(done.stdout)
            self.assertEqual(len(found["prefill"]), 4)
            self.assertEqual({point["concurrency"] for point in found["decode"]}, {1, 4})
            self.assertGreater(found["best_decode"]["tokens_per_s_per_gpu"], 0)
            prefill = numpy.load(f"{folder}/selected_prefill_interpolation/raw_data.npz")
            decode = numpy.load(f"{folder}/selected_decode_interpolation/raw_data.npz")
            table = numpy.load(f"{folder}/perf_data.npz")
            self.assertEqual(list(prefill["prefill_isl"]), [point["isl"] for point in found["prefill"]])
            # A busy machine makes single measurements longer, never shorter than the engine's own time.
            own = 4 + 0.04 * prefill["prefill_isl"]
            self.assertTrue((prefill["prefill_ttft"] >= 0.9 * own).all(), prefill["prefill_ttft"])
            self.assertEqual(sorted(decode), ["max_kv_tokens", "x_kv_usage", "y_context_length", "z_itl", "z_thpt_per_gpu"])
            self.assertEqual(table["decode_itl"].shape, (100, 100))
            self.assertEqual(json.loads(pathlib.Path(folder, "decode_raw_data.json").read_text())["z_itl"], list(decode["z_itl"]))
            trace = pathlib.Path(folder) / "t.jsonl"
            trace.write_text("".join(json.dumps({"timestamp": i * 200, "input_length": 500, "output_length": 20, "hash_ids": [i]}) + "\n"
                                     for i in range(50)))
            for command in (("planner", "--dry-run", str(trace), "--timing", f"profile:{folder}", "--json"),
                            ("sim", str(trace), "--sim-timing", f"profile:{folder}")):
                used = stator(*command)
                self.assertEqual(used.returncode, 0, used.stderr)

    def test_what_is_no_engine_is_told(self):
        done = stator("profile", "--url", "http://127.0.0.1:1")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("127.0.0.1:1", done.stderr)


class DryRun(unittest.TestCase):
    def test_a_report_and_a_journal_that_replays(self):
        with tempfile.TemporaryDirectory() as folder:
            trace, report, page, journal = (str(pathlib.Path(folder) / name) for name in ("t.jsonl", "r.json", "r.html", "j.jsonl"))
            times = [i * 500 for i in range(240)] + [120_000 + i * 60 for i in range(1000)]
            pathlib.Path(trace).write_text("".join(
                json.dumps({"timestamp": at, "input_length": 2000, "output_length": 100, "hash_ids": [4 * i + k for k in range(4)]}) + "\n"
                for i, at in enumerate(times)))
            goals = ("--start-up", "10", "--ttft", "1500", "--itl", "40", "--policy", "mpc")
            done = stator("planner", "--dry-run", trace, *goals, "--report-json", report, "--report-html", page, "--journal", journal)
            self.assertEqual(done.returncode, 0, done.stderr)
            found = json.loads(pathlib.Path(report).read_text())
            self.assertEqual(found["requests"], 1240)
            self.assertLessEqual(found["sla_misses"], 1240)
            self.assertGreater(found["gpu_seconds"], 180)
            self.assertEqual(found["compared"][0]["policy"], "reference")
            self.assertIn("<svg", pathlib.Path(page).read_text())
            done = stator("planner", "--replay", journal, *goals)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(json.loads(done.stdout)["differences"], 0)

    def test_what_is_predicted_is_what_comes_when_the_load_doubles_and_halves(self):
        with tempfile.TemporaryDirectory() as folder:
            trace, report = (str(pathlib.Path(folder) / name) for name in ("t.jsonl", "r.json"))
            times, at = [], 0.0
            draw = numpy.random.default_rng(7)
            while at < 540:  # 10, 20 and 10 requests a second, at random times
                at += draw.exponential(1 / (20 if 180 <= at < 360 else 10))
                times.append(at)
            pathlib.Path(trace).write_text("".join(
                json.dumps({"timestamp": int(at * 1e3), "input_length": 2000, "output_length": 100, "hash_ids": [4 * i + k for k in range(4)]})
                + "\n" for i, at in enumerate(times)))
            done = stator("planner", "--dry-run", trace, "--start-up", "20", "--ttft", "1500", "--itl", "20", "--report-json", report)
            self.assertEqual(done.returncode, 0, done.stderr)
            found = json.loads(pathlib.Path(report).read_text())
            for what, off in (("ttft", 0.1), ("itl", 0.1)):
                self.assertAlmostEqual(found[f"predicted_{what}_ms_mean"] / found[f"{what}_ms_mean"], 1, delta=off, msg=what)
            sizes = [event["to"] for event in found["events"]]
            self.assertGreater(max(sizes), min(sizes), "the fleet follows")

    def test_a_past_chooses_the_predictor_and_a_file_may_be_json_itself(self):
        with tempfile.TemporaryDirectory() as folder:
            past = pathlib.Path(folder) / "past"
            past.mkdir()
            for part in range(2):
                rows = [(30_000 * (300 * part + i)) for i in range(300)]
                (past / f"{part}.jsonl").write_text("".join(
                    json.dumps({"timestamp": at, "input_length": 1000, "output_length": 50}) + "\n" for at in rows))
            trace = past / "1.jsonl"
            config = json.dumps({"optimization_target": "sla", "mode": "agg", "load_predictor": "auto", "ttft_ms": 2000,
                                 "load_predictor_warmup_trace": str(past)})
            run = ("planner", "--dry-run", str(trace), "--json", "--planner-config", config)
            done = stator(*run)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(json.loads(done.stdout)["policy"], "throughput")
            self.assertIn("predictor: ", done.stderr)
            done = stator(*run[:-1], json.dumps({"mode": "both"}))
            self.assertEqual(done.returncode, 2)
            self.assertIn("mode must be", done.stderr)
            done = stator("planner", "--dry-run", str(trace), "--predictor", "auto")
            self.assertIn("--warmup-trace", done.stderr)

    def test_a_power_limit_below_the_fleet_is_refused(self):
        done = stator("planner", "--dry-run", "t.jsonl", "--min-workers", "2", "--worker-watts", "700", "--power-limit", "1000")

        self.assertNotEqual(done.returncode, 0)
        self.assertIn("2 workers of 700 W", done.stderr)
        self.assertIn("1000 W", done.stderr)

    def test_a_budget_below_the_fleet_is_refused(self):
        done = stator("planner", "--dry-run", "t.jsonl", "--gpus-per-worker", "8", "--max-gpu-budget", "4")
        self.assertEqual(done.returncode, 2)
        self.assertIn("8 GPUs", done.stderr)
        self.assertIn("budget is 4", done.stderr)


if __name__ == "__main__":
    unittest.main()
