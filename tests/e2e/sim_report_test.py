#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every figure of the report of `stator sim`, computed again from its lines per request."""

import json
import math
import pathlib
import subprocess
import tempfile
import unittest

from stator_process import BINARY, clean_environment

WORKLOAD = ("--requests", "300", "--rate", "20", "--turns", "2", "--prefix-tokens", "256", "--prefix-groups", "3", "--input-tokens", "500",
            "--input-tokens-std", "400", "--input-distribution", "lognormal", "--output-tokens", "30", "--output-tokens-std", "30",
            "--output-distribution", "lognormal", "--pause-ms", "300", "--router", "kv", "--goal-ttft-ms", "60", "--goal-tpot-ms", "12",
            "--goal-e2e-ms", "400")
PERCENTILES = (1, 5, 25, 50, 75, 90, 95, 99)


def summary(values: list[float]) -> dict[str, float]:
    values = sorted(values)
    mean = math.fsum(values) / len(values)
    at = {f"p{p}": values[math.floor((len(values) - 1) * p / 100 + 0.5)] for p in PERCENTILES}
    return at | {"mean": mean, "min": values[0], "max": values[-1], "median": at["p50"],
                 "std": math.sqrt(math.fsum((v - mean) ** 2 for v in values) / len(values))}


def expected(records: list[dict], workers: dict[str, int], gpus: int) -> dict[str, float]:
    done = [r for r in records if r["status"] == "completed"]
    begin = min(r["arrival_ms"] for r in records)
    duration = max(r["last_token_ms"] for r in done) - begin
    tokens_in = sum(r["input_length"] for r in done)
    tokens_out = sum(r["output_length"] for r in done)
    tpot = [(r["last_token_ms"] - r["first_token_ms"]) / (r["output_length"] - 1) for r in done if r["output_length"] > 1]
    good = [r for r in done if r["ttft_ms"] <= 60 and r["e2e_latency_ms"] <= 400
            and (r["output_length"] < 2 or (r["last_token_ms"] - r["first_token_ms"]) / (r["output_length"] - 1) <= 12)]
    seconds = {role: count * max(r["last_token_ms"] for r in done) / 1000 for role, count in workers.items()}
    per_second = 1000 / duration
    figures = {
        "num_requests": len(records), "completed_requests": len(done), "failed_requests": len(records) - len(done),
        "rejected_requests": sum(r["status"] == "rejected" for r in records), "error_rate": 1 - len(done) / len(records),
        "total_input_tokens": tokens_in, "total_output_tokens": tokens_out, "processed_tokens": tokens_in + tokens_out,
        "duration_ms": duration, "request_throughput_rps": len(done) * per_second,
        "input_throughput_tok_s": tokens_in * per_second, "output_throughput_tok_s": tokens_out * per_second,
        "total_throughput_tok_s": (tokens_in + tokens_out) * per_second,
        "prefill_worker_seconds": seconds["prefill"], "decode_worker_seconds": seconds["decode"],
        "gpu_hours": sum(seconds.values()) * gpus / 3600,
        "first_admission_prefix_cache_reused_ratio":
            sum(r["reused_tokens"] for r in records) / sum(r["input_length"] for r in records if r["admissions"] > 0),
        "host_cache_reused_ratio":
            sum(r["host_tokens"] for r in records) / sum(r["input_length"] for r in records if r["admissions"] > 0),
        "goodput_completed_requests": len(good), "goodput_request_throughput_rps": len(good) * per_second,
        "goodput_output_throughput_tok_s": sum(r["output_length"] for r in good) * per_second,
        # Every gap between two tokens lies between a request's first and its last one.
        "mean_itl_ms": math.fsum(r["last_token_ms"] - r["first_token_ms"] for r in done) / sum(r["output_length"] - 1 for r in done),
    }
    lists = {
        "ttft_ms": [r["first_token_ms"] - r["arrival_ms"] for r in done],
        "ttst_ms": [r["ttst_ms"] for r in done if r["output_length"] > 1],
        "tpot_ms": tpot, "e2e_latency_ms": [r["last_token_ms"] - r["arrival_ms"] for r in done],
        "queue_wait_ms": [r["first_admit_ms"] - r["arrival_ms"] for r in done],
        "output_token_throughput_per_request": [1000 / value for value in tpot],
    }
    for name, values in lists.items():
        figures |= {f"{statistic}_{name}": value for statistic, value in summary(values).items()}
    return figures


class ReportTest(unittest.TestCase):
    def run_sim(self, *arguments: str) -> tuple[dict, list[dict]]:
        with tempfile.TemporaryDirectory(prefix="stator-e2e-") as folder:
            report, lines = pathlib.Path(folder, "report.json"), pathlib.Path(folder, "requests.jsonl")
            done = subprocess.run(
                [BINARY, "sim", *WORKLOAD, *arguments, "--report-json", report, "--per-request-jsonl", lines],
                env=clean_environment(), capture_output=True, text=True, timeout=300)
            self.assertEqual(done.returncode, 0, done.stderr)
            return json.loads(report.read_text()), [json.loads(line) for line in lines.read_text().splitlines()]

    def assert_adds_up(self, report: dict, records: list[dict], workers: dict[str, int], gpus: int = 1) -> None:
        for name, value in expected(records, workers, gpus).items():
            self.assertIn(name, report)
            # Rates are kept in whole millionths, times in whole nanoseconds.
            self.assertAlmostEqual(report[name], value, delta=max(1e-6, 1e-5 * abs(value)), msg=name)
        done = [r for r in records if r["status"] == "completed"]
        for field, of in (("requests", len(done)), ("input_tokens", None), ("output_tokens", sum(r["output_length"] for r in done))):
            if workers["prefill"] == 0 and of is not None:
                self.assertEqual(sum(worker[field] for worker in report["workers"]), of, field)
        self.assertEqual(sum(worker["passes"] for worker in report["workers"]), report["passes"])
        for worker in report["workers"]:
            self.assertLessEqual(worker["busy_ratio"], 1)

    def test_one_pool(self):
        report, records = self.run_sim("--workers", "3")
        self.assertEqual(report["failed_requests"], 0)
        self.assert_adds_up(report, records, {"prefill": 0, "decode": 3})

    def test_with_requests_that_are_too_large(self):
        report, records = self.run_sim("--workers", "2", "--max-model-len", "1500", "--gpus-per-worker", "4")
        self.assertGreater(report["rejected_requests"], 0)
        self.assert_adds_up(report, records, {"prefill": 0, "decode": 2}, gpus=4)

    def test_prefill_and_decode_apart(self):
        report, records = self.run_sim("--workers", "2", "--prefill-workers", "2", "--sim-kv-bytes-per-token", "100000")
        self.assert_adds_up(report, records, {"prefill": 2, "decode": 2})

    def test_with_blocks_in_host_memory(self):
        report, records = self.run_sim("--workers", "2", "--kv-blocks", "200", "--host-blocks", "2000")
        self.assertGreater(report["host_cache_reused_ratio"], 0)
        self.assert_adds_up(report, records, {"prefill": 0, "decode": 2})

    def test_with_data_parallel_ranks(self):
        report, records = self.run_sim("--workers", "2", "--dp-size", "2")
        self.assertEqual(report["dp_size"], 2)
        self.assertGreater(report["dummy_passes"], 0)
        self.assert_adds_up(report, records, {"prefill": 0, "decode": 2})

    def test_standard_output_has_the_report_and_nothing_else(self):
        report = json.loads(self.output_of("--report-json", "-"))
        self.assertEqual(report["completed_requests"], 300)
        lines = [json.loads(line) for line in self.output_of("--per-request-jsonl", "-").splitlines()]
        self.assertEqual(len(lines), 300)
        self.assertIn("Time to First Token", self.output_of())

    def test_a_comparison_has_both_reports_and_their_differences(self):
        found = json.loads(self.output_of("--compare", "workers=1,4", "--report-json", "-"))
        self.assertEqual((found["parameter"], found["values"]), ("workers", ["1", "4"]))
        first, second = found["reports"]
        self.assertEqual((first["num_workers"], second["num_workers"]), (1, 4))
        for one in found["differences"]:
            self.assertAlmostEqual(one["change"], one["second"] - one["first"], delta=1e-6)
            if one["name"] in first:
                self.assertEqual((one["first"], one["second"]), (first[one["name"]], second[one["name"]]))
            if "low" in one:
                self.assertLessEqual(one["low"], one["high"])
        self.assertTrue(any("low" in one for one in found["differences"]))

    def test_a_sweep_has_all_points_and_its_plots_name_them(self):
        with tempfile.TemporaryDirectory(prefix="stator-e2e-") as folder:
            page = pathlib.Path(folder, "sweep.html")
            found = json.loads(self.output_of("--sweep", "router=kv,round_robin", "--report-json", "-", "--report-html", str(page)))
            text = page.read_text()
        self.assertEqual([point["values"] for point in found["points"]], [{"router": "kv"}, {"router": "round_robin"}])
        self.assertTrue(all(point["figures"]["completed_requests"] == 300 for point in found["points"]))
        for name in ("kv", "round_robin"):
            self.assertIn(f'text-anchor="middle">{name}</text>', text)

    def test_a_sweep_that_was_cut_off_goes_on(self):
        with tempfile.TemporaryDirectory(prefix="stator-e2e-") as folder:
            points = pathlib.Path(folder, "points.jsonl")
            sweep = ("--sweep", "workers=1,2,3", "--threads", "1", "--sweep-file", str(points))
            self.output_of(*sweep)
            whole = points.read_text()
            points.write_text(whole[:-40])  # as it is when the process was killed
            self.output_of(*sweep)
            lines = [line for line in points.read_text().splitlines() if line]
            self.assertEqual([lines[0], lines[1], lines[-1]], whole.splitlines())
            known = points.read_text()
            self.output_of(*sweep)
            self.assertEqual(points.read_text(), known, "all points were known")

    def output_of(self, *arguments: str) -> str:
        done = subprocess.run([BINARY, "sim", *WORKLOAD, *arguments], env=clean_environment(), capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout


if __name__ == "__main__":
    unittest.main()
