#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plugins of `stator planner` behind a real gRPC server, in the wire format of Dynamo's planner, and the reports that it leaves."""

import json
import pathlib
import tempfile
import unittest
import urllib.request
from concurrent import futures

import grpc

from stator_process import MODEL, Serve, Stator, eventually

AT_MOST = 2


def field(number: int, payload: bytes) -> bytes:
    assert len(payload) < 128
    return bytes([number << 3 | 2, len(payload)]) + payload


def override(pool: str, replicas: int, kind: int) -> bytes:
    """StageResponse{override: {targets: [{sub_component_type, replicas, type}]}}."""
    target = field(1, pool.encode()) + bytes([3 << 3, replicas, 4 << 3, kind])
    return field(2, field(1, target))


class Plugin:
    """Answers every call of one method with the same bytes."""

    def __init__(self, stage: str, answer: bytes):
        self.requests: list[bytes] = []

        def handle(request: bytes, _context) -> bytes:
            self.requests.append(request)
            return answer

        self.server = grpc.server(futures.ThreadPoolExecutor(2))
        self.server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(
            f"dynamo.planner.plugin.v1.{stage}Plugin", {stage: grpc.unary_unary_rpc_method_handler(handle)})])
        self.port = self.server.add_insecure_port("127.0.0.1:0")
        self.server.start()

    def close(self) -> None:
        self.server.stop(None).wait()


class Plugins(unittest.TestCase):
    def test_a_plugin_limits_what_the_policy_wants_and_a_report_tells_of_it(self):
        with tempfile.TemporaryDirectory(prefix="stator-plugins-") as folder:
            plugin = Plugin("Constrain", override("decode", 3, AT_MOST))
            self.addCleanup(plugin.close)
            config = pathlib.Path(folder) / "planner.json"
            entry = {"plugin_id": "night", "plugin_type": "constrain", "priority": 1, "endpoint": f"grpc://127.0.0.1:{plugin.port}"}
            config.write_text(json.dumps({"report_output_dir": f"{folder}/reports", "scheduling": {"external_plugins": [entry]}}))
            pathlib.Path(folder, "keys").mkdir()
            served = Serve("--sim-speedup", "0")
            self.addCleanup(served.close)
            planner = Stator("planner", "--planner-config", str(config), "--port", "0", "--throughput-interval", "1", "--timing", "linear",
                             "--frontend", f"http://127.0.0.1:{served.frontend.port}", "--connector", "virtual", "--folder", f"{folder}/keys",
                             "--policy", "static:5")
            self.addCleanup(planner.close)

            def decided() -> bool:
                status, answer = served.http.post("/v1/completions", {"model": MODEL, "prompt": [1, 2, 3], "max_tokens": 2})
                assert status == 200, answer
                path = pathlib.Path(folder) / "keys" / "num_decode"
                return path.exists() and path.read_text() == "3"

            eventually(decided, "the plugin's ceiling is what is written")
            with urllib.request.urlopen(f"http://127.0.0.1:{planner.port}/planner", timeout=10) as answer:
                state = json.load(answer)
            self.assertEqual(state["last_inputs"]["opinions"][0]["plugin"], "night")
            self.assertIn(b"policy", plugin.requests[-1])  # the proposal's source
            planner.terminate()
            self.assertEqual(planner.wait(), 0, planner.log())
            report, = pathlib.Path(folder, "reports").glob("planner_report_*.html")
            self.assertIn("night", report.read_text())
            ticks, = pathlib.Path(folder, "reports").glob("planner_ticks_*.jsonl")
            self.assertTrue(all("decision" in json.loads(line) for line in ticks.read_text().splitlines()))

    def test_an_entry_that_cannot_be_is_refused_by_name(self):
        with tempfile.TemporaryDirectory(prefix="stator-plugins-") as folder:
            config = pathlib.Path(folder) / "planner.json"
            config.write_text(json.dumps({"scheduling": {"external_plugins": [
                {"plugin_id": "a", "plugin_type": "guess", "priority": 1, "endpoint": "grpc://127.0.0.1:1"}]}}))
            with self.assertRaisesRegex(Exception, "plugin_type"):
                Stator("planner", "--planner-config", str(config), "--frontend", "http://127.0.0.1:1")


if __name__ == "__main__":
    unittest.main()
