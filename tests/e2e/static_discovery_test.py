#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Workers that are named in a flag or a file instead of found: they come, die, return at the same place, and leave the list."""

import pathlib
import subprocess
import tempfile
import unittest

from free_ports import free_ports
from stator_process import BINARY, MODEL, MODEL_DIR, Http, Stator, clean_environment, eventually

CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}


class StaticDiscovery(unittest.TestCase):
    def worker(self, port: int) -> Stator:
        process = Stator("worker", str(MODEL_DIR), "--engine", "sim", "--sim-speedup", "0", "--discovery", "static", "--worker-port", str(port))
        self.addCleanup(process.close)
        return process

    def frontend(self, places: str) -> Http:
        process = Stator("frontend", "--host", "127.0.0.1", "--port", "0", "--discovery", f"static:{places}")
        self.addCleanup(process.close)
        return Http(process.port)

    def ids(self, http: Http) -> set[int]:
        return {instance["instance_id"] for instance in http.get("/health")[1].get("instances", [])}

    def test_a_list_in_a_flag(self):
        first, second = free_ports(2)
        http = self.frontend(f"127.0.0.1:{first},127.0.0.1:{second}")
        self.assertEqual(http.request("GET", "/health")[0], 503)
        worker = self.worker(first)
        eventually(lambda: len(self.ids(http)) == 1, "one of the two is there")
        self.assertEqual(http.post("/v1/chat/completions", CHAT)[0], 200)
        before = self.ids(http)
        worker.kill()
        eventually(lambda: not self.ids(http) & before, "it is gone")
        self.worker(first)
        eventually(lambda: len(self.ids(http)) == 1, "another life at the same place")
        self.assertEqual(http.post("/v1/chat/completions", CHAT)[0], 200)

    def test_a_list_in_a_file_is_read_again(self):
        first, second = free_ports(2)
        with tempfile.TemporaryDirectory() as folder:
            places = pathlib.Path(folder) / "workers"
            places.write_text(f"# our fleet\n127.0.0.1:{first}   # the old one\n")
            self.worker(first)
            self.worker(second)
            http = self.frontend(f"@{places}")
            eventually(lambda: len(self.ids(http)) == 1, "the one that is named")
            places.write_text(f"127.0.0.1:{first}\n\n127.0.0.1:{second}\n")
            eventually(lambda: len(self.ids(http)) == 2, "both")
            places.write_text("nonsense\n")
            self.assertEqual(http.post("/v1/chat/completions", CHAT)[0], 200)
            self.assertEqual(len(self.ids(http)), 2)

    def test_what_is_no_address_is_refused(self):
        for places, said in (("127.0.0.1", "'127.0.0.1' is not the HOST:PORT"), ("a:70000", "'a:70000'"), ("a:1x", "'a:1x'"), ("@/no/such", "/no/such")):
            done = subprocess.run([BINARY, "frontend", "--port", "0", "--discovery", f"static:{places}"], capture_output=True, text=True,
                                  env=clean_environment(), timeout=60)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(said, done.stderr)


if __name__ == "__main__":
    unittest.main()
