#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files that `stator sim` and `stator bench` take requests from: compressed ones, and broken ones."""

import gzip
import json
import pathlib
import subprocess
import tempfile
import unittest

from stator_process import BINARY, MODEL_DIR, ROOT, clean_environment

SAMPLE = ROOT / "examples" / "chat.jsonl"


class CompressedTraces(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="stator-e2e-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_stator(self, *arguments: str) -> subprocess.CompletedProcess:
        return subprocess.run([BINARY, *arguments], env=clean_environment(), capture_output=True, text=True, timeout=300)

    def records_of(self, trace: pathlib.Path, *more: str) -> list[dict]:
        out = self.folder / "requests.jsonl"
        done = self.run_stator("sim", str(trace), "--per-request-jsonl", str(out), *more)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [json.loads(line) for line in out.read_text().splitlines()]

    def compressed(self, cut: int | None = None) -> pathlib.Path:
        path = self.folder / "trace.jsonl.gz"
        path.write_bytes(gzip.compress(SAMPLE.read_bytes())[:cut])
        return path

    def test_a_compressed_trace_is_the_trace(self):
        plain = self.records_of(SAMPLE)
        self.assertTrue(plain)
        self.assertEqual(self.records_of(self.compressed()), plain)

    def test_standard_input_is_a_trace(self):
        expected = self.records_of(SAMPLE)
        self.assertTrue(expected)
        out = self.folder / "from_standard_input.jsonl"
        for trace in (SAMPLE, self.compressed()):
            with trace.open("rb") as given:
                done = subprocess.run([BINARY, "sim", "-", "--per-request-jsonl", str(out)], env=clean_environment(),
                                      stdin=given, capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual([json.loads(line) for line in out.read_text().splitlines()], expected)

    def test_standard_input_is_a_trace_only_once(self):
        for more in (("--sweep", "workers=1,2"), ("--compare", "router=kv,round_robin")):
            done = self.run_stator("sim", "-", *more)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("--sweep and --compare read the trace more than once", done.stderr)

    def test_the_engine_has_the_names_that_live_ones_have(self):
        config = self.folder / "engine.yaml"
        config.write_text("sim: {rules: sglang, timing: linear, speedup: 2}\nengine: {kv_blocks: 400, host_blocks: 2000}\n")
        by_file = self.records_of(SAMPLE, "--config", str(config))
        self.assertEqual(by_file, self.records_of(
            SAMPLE, "--sim-rules", "sglang", "--sim-timing", "linear", "--sim-speedup", "2", "--kv-blocks", "400", "--host-blocks", "2000"))
        self.assertEqual(by_file, self.records_of(
            SAMPLE, "--engine", "sglang", "--timing", "linear", "--speedup", "2", "--blocks", "400", "--host-blocks", "2000"))
        self.assertNotEqual(by_file, self.records_of(SAMPLE))
        self.assertGreater(sum(record["host_tokens"] for record in by_file), 0)

    def test_a_trace_that_was_cut_off_is_refused(self):
        trace = str(self.compressed(cut=-20))
        bench = ["bench", "--url", "http://127.0.0.1:9", "--model", "m", "--tokenizer", str(MODEL_DIR), "--trace", trace]
        for command in (["sim", trace], bench):
            done = self.run_stator(*command)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("trace.jsonl.gz", done.stderr)
            self.assertIn("cannot be read further", done.stderr)


if __name__ == "__main__":
    unittest.main()
