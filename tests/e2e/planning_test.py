#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`stator forecast`, `configure` and `planner --dry-run`, as people and scripts run them."""

import json
import pathlib
import subprocess
import tempfile
import unittest

from stator_process import BINARY, clean_environment


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

    def test_a_budget_below_the_fleet_is_refused(self):
        done = stator("planner", "--dry-run", "t.jsonl", "--gpus-per-worker", "8", "--max-gpu-budget", "4")
        self.assertEqual(done.returncode, 2)
        self.assertIn("8 GPUs", done.stderr)
        self.assertIn("budget is 4", done.stderr)


if __name__ == "__main__":
    unittest.main()
