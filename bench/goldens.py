#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Largest difference between the CPU engine's logits and Hugging Face transformers' recorded ones, and greedy tokens."""

import json
import pathlib
import subprocess
import tempfile

import measure


def add_options(parser):
    parser.add_argument("--test-binary", type=pathlib.Path,
                        help="the CPU engine's unit tests, which hold the comparison [in the build of --stator]")


def measure_goldens(options):
    binary = options.test_binary or options.stator.parents[1] / "src/stator/engine/cpu/stator_engine_cpu_test"
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        command = [binary, "--gtest_filter=*Golden*", f"--gtest_output=json:{report}"]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if not report.exists():
            raise measure.BenchError(f"{binary} did not run: {result.stderr[:200]}")
        suites = json.loads(report.read_text())["testsuites"]
    cases = [case for suite in suites for case in suite["testsuite"] if case["result"] == "COMPLETED"]
    differences = [float(case["largest_logit_difference"]) for case in cases if "largest_logit_difference" in case]
    greedy = [case for case in cases if "Greedy" in case["name"]]
    wrong = sum(1 for case in greedy if case.get("failures"))
    note = f"{len(differences)} checkpoints × instruction sets"
    return [measure.Bar("largest logit difference to transformers", max(differences), 1e-4, "", note=note),
            measure.Bar("checkpoints whose greedy tokens differ", wrong, 0, "", note=f"of {len(greedy)}")]


if __name__ == "__main__":
    measure.main(measure_goldens, measure.parse_arguments(__doc__, add_options))
