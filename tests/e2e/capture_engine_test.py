#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/capture_engine records a (fake) engine completely and readably, without secrets."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import engine_recordings as recordings
from stator_process import ROOT, Stator
from zmq_wire import unpack

CAPTURE = ROOT / "tools" / "capture_engine" / "capture_engine.py"
SERVER = ("--block-size", "16", "--kv-blocks", "256", "--max-model-len", "1024", "--sim-speedup", "0",
          "--served-model-name", "m")


class CaptureEngine(unittest.TestCase):
    def server(self, dialect: str) -> Stator:
        server = Stator("sim-server", "--host", "127.0.0.1", "--port", "0", "--dialect", dialect, *SERVER)
        self.addCleanup(server.close)
        return server

    def capture(self, dialect: str, server: Stator, *more: str) -> pathlib.Path:
        folder = tempfile.TemporaryDirectory(prefix="stator-capture-")
        self.addCleanup(folder.cleanup)
        out = pathlib.Path(folder.name) / "recording"
        result = subprocess.run(
            [sys.executable, str(CAPTURE), "--dialect", dialect, "--url", server.url, "--model", "m", "--out", str(out),
             "--header", "Authorization: Bearer secret", *more], capture_output=True, text=True, timeout=300, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        return out

    def test_every_dialect_is_recorded_and_can_be_replayed(self):
        for dialect in ("vllm", "sglang", "trtllm", "llamacpp"):
            with self.subTest(dialect):
                out = self.capture(dialect, self.server(dialect))
                other = self.server(dialect)
                requests = sorted((out / "http").glob("*.req.http"))
                self.assertGreater(len(requests), 20)
                for path in requests:
                    self.assertNotIn(b"secret", path.read_bytes())
                    name = path.name.removesuffix(".req.http")
                    if name == "abort-disconnect-stream" or "metrics" in name:
                        continue  # cut, or a matter of what came before
                    line, headers, body = recordings.read_request(path)
                    again = recordings.parse_response(recordings.send(other.port, line, headers, body))
                    before = recordings.parse_response(path.with_name(f"{name}.resp.http").read_bytes())
                    self.assertEqual(again["status"], before["status"], name)
                    self.assertEqual(again["content_type"], before["content_type"], name)

    def test_events_are_recorded_as_frames_and_decoded(self):
        for dialect in ("vllm", "sglang"):
            with self.subTest(dialect):
                server = self.server(dialect)
                source = server.ready["events"][0]
                out = self.capture(dialect, server, "--events", source["endpoint"], "--replay",
                                   source["replay_endpoint"], "--only", "info-health") / "kv-events"
                lines = [json.loads(t) for t in (out / "01-store-100-tokens.jsonl").read_text().splitlines()]
                (store,) = [e for line in lines for e in line["batch"][1]]
                self.assertEqual(len(store["token_ids"]), 96)
                raw = (out / "01-store-100-tokens.zmq").read_bytes()
                self.assertEqual(unpack(raw[-lines[-1]["bytes"]:]), lines[-1]["batch"])
                self.assertEqual((out / "03-prefix-hit.zmq").read_bytes(), b"")
                everything = "".join(p.read_text() for p in sorted(out.glob("*.jsonl")))
                for kind in ("BlockStored", "BlockRemoved", "AllBlocksCleared"):
                    self.assertIn(kind, everything)
                self.assertIn('"seq": 18446744073709551615', (out / "replay-from-0.jsonl").read_text())

    def test_recordings_are_not_mixed(self):
        result = subprocess.run([sys.executable, str(CAPTURE), "--dialect", "vllm", "--url", "http://127.0.0.1:1",
                                 "--model", "m", "--out", tempfile.gettempdir()], capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 2)
        self.assertIn("exists", result.stderr)


if __name__ == "__main__":
    unittest.main()
