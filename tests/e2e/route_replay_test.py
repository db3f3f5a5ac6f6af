#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`stator route-replay`: a trace by several policies, and receipts of a running server decided again."""

import json
import pathlib
import subprocess
import tempfile
import unittest

from stator_process import BINARY, MODEL, Serve, clean_environment


def replay(lines: list[str], *arguments: str) -> subprocess.CompletedProcess:
    with tempfile.TemporaryDirectory() as folder:
        trace = pathlib.Path(folder) / "trace.jsonl"
        trace.write_text("".join(line + "\n" for line in lines))
        return subprocess.run([BINARY, "route-replay", str(trace), *arguments], capture_output=True, text=True,
                              env=clean_environment(), timeout=300)


def turn(conversation: int, number: int) -> str:
    """The prompt is the last turn's and one block more."""
    return json.dumps({"timestamp": number * 60_000 + conversation * 10, "input_length": 512 * (number + 1) + 9, "output_length": 20,
                       "hash_ids": [conversation * 100 + i for i in range(number + 2)]})


class RouteReplay(unittest.TestCase):
    TRACE = [turn(conversation, number) for number in range(8) for conversation in range(15)]

    def test_policies_side_by_side(self):
        done = replay(self.TRACE, "--policy", "kv", "--policy", "round_robin", "--workers", "4", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        kv, turns = json.loads(done.stdout)["policies"]
        self.assertEqual((kv["policy"], turns["policy"]), ("kv", "round_robin"))
        self.assertEqual((kv["requests"], kv["refused"], kv["same_as_first"]), (120, 0, 1))
        self.assertEqual(kv["prompt_tokens"], turns["prompt_tokens"])
        self.assertGreater(kv["hit_rate"], turns["hit_rate"])
        self.assertLess(turns["same_as_first"], 1)
        again = replay(self.TRACE, "--policy", "kv", "--policy", "round_robin", "--workers", "4", "--json")
        self.assertEqual(again.stdout, done.stdout)
        table = replay(self.TRACE, "--tokens-per-block", "64")
        self.assertIn("round_robin", table.stdout)

    def test_receipts_of_a_running_server(self):
        serve = Serve("--workers", "3")
        self.addCleanup(serve.close)
        receipts = []
        for number in range(4):
            status, answer = serve.http.post("/v1/chat/completions", {
                "model": MODEL, "max_tokens": 2, "messages": [{"role": "user", "content": f"question {number}"}]})
            self.assertEqual(status, 200, answer)
            receipts.append(json.dumps(serve.http.get("/receipts/last")[1]))
        done = replay(receipts, "--policy", "kv", "--policy", "least_loaded", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([each["requests"] for each in json.loads(done.stdout)["policies"]], [4, 4])

    def test_what_is_wrong_is_named_with_its_line(self):
        for lines, words in (
                (["{"], ":1:"), ([self.TRACE[0], '{"timestamp":1}'], ":2: input_length"), ([], "empty"),
                ([self.TRACE[-1], self.TRACE[0]], ":2: timestamp"),
                ([self.TRACE[0].replace('"hash_ids": [0', '"hash_ids": [-1')], ":1: hash_ids"),
                ([self.TRACE[0], '{"candidates":[]}'], ":2:")):
            done = replay(lines)
            self.assertEqual(done.returncode, 2, done.stdout)
            self.assertIn(words, done.stderr)
        for arguments in (("--policy", "best"), ("--workers", "0"), ("--tokens-per-block", "100")):
            done = replay(self.TRACE, *arguments)
            self.assertEqual(done.returncode, 2)
            self.assertIn(arguments[0], done.stderr)


if __name__ == "__main__":
    unittest.main()
