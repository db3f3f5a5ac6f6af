#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""deploy/local/up.sh: three processes, etcd and NATS from one command, and an end that leaves nothing behind."""

import os
import pathlib
import signal
import subprocess
import tempfile
import unittest

from stator_process import BINARY, MODEL, ROOT, Http, _die_with_parent, clean_environment, eventually

UP = ROOT / "deploy" / "local" / "up.sh"
DOWN = ROOT / "deploy" / "local" / "down.sh"
BODY = {"model": MODEL, "messages": [{"role": "user", "content": "What is a KV cache? " * 8}], "max_tokens": 8}


class LocalCluster(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="stator-local-")
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)

    def command(self, *arguments: str) -> list[str]:
        return [str(UP), "--stator", BINARY, "--dir", str(self.dir), "--engine", "sim", "--port", "0", "--etcd-port", "0",
                "--nats-port", "0", *arguments]

    def down(self) -> str:
        return subprocess.run([str(DOWN), "--dir", str(self.dir)], capture_output=True, text=True, timeout=300, check=True).stdout

    def pids(self) -> list[int]:
        return [int(line.split()[0]) for line in (self.dir / "pids").read_text().splitlines()]

    @staticmethod
    def running(pid: int) -> bool:
        try:
            return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
        except FileNotFoundError:
            return False

    def test_detached_it_serves_until_it_is_taken_down(self):
        done = subprocess.run(self.command("--detach"), env=clean_environment(), stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=300)
        self.addCleanup(self.down)
        self.assertEqual(done.returncode, 0, done.stderr)
        url = (self.dir / "url").read_text().strip()
        self.assertIn(url, done.stdout)
        http = Http(int(url.rsplit(":", 1)[1]))
        self.assertEqual(len(http.get("/health")[1]["instances"]), 2)
        self.assertEqual(http.post("/v1/chat/completions", BODY)[0], 200)
        eventually(lambda: http.metric("stator_router_index_blocks") > 0, "the worker's events come over the broker")
        again = subprocess.run(self.command("--detach"), env=clean_environment(), capture_output=True, text=True, timeout=300)
        self.assertNotEqual(again.returncode, 0)
        self.assertIn("down.sh", again.stderr)
        pids = self.pids()
        self.assertEqual(len(pids), 5)
        self.down()
        self.assertFalse(any(self.running(pid) for pid in pids))
        self.assertIn("nothing runs", self.down())

    def test_only_processes_that_up_started_are_ended(self):
        bystander = subprocess.Popen(["sleep", "600"], preexec_fn=_die_with_parent)
        self.addCleanup(bystander.wait)
        self.addCleanup(bystander.kill)
        # A process id that was used again, and a file of the form before.
        (self.dir / "pids").write_text(f"{bystander.pid} 1\n{bystander.pid}\n")
        self.down()
        self.assertTrue(self.running(bystander.pid))

    def test_a_folder_that_others_can_change_is_refused(self):
        victim = self.dir / "victim"
        victim.write_text("mine")
        shared = self.dir / "shared"
        shared.mkdir()
        (shared / "pids").symlink_to(victim)
        (self.dir / "link").symlink_to(self.dir)
        for folder, mode in ((shared, 0o777), (shared, 0o770), (self.dir / "link", None)):
            if mode:
                shared.chmod(mode)
            done = subprocess.run([*self.command(), "--dir", str(folder)], env=clean_environment(), stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, timeout=300)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(str(folder), done.stderr)
            self.assertEqual(victim.read_text(), "mine")
        done = subprocess.run([str(DOWN), "--dir", str(shared)], capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 1, "what a stranger may have written ends nothing")
        shared.chmod(0o700)
        if os.geteuid() == 0:
            os.chown(shared, 65534, 65534)
            done = subprocess.run([*self.command(), "--dir", str(shared)], env=clean_environment(), stdin=subprocess.DEVNULL,
                                  capture_output=True, text=True, timeout=300)
            self.assertIn("must belong to", done.stderr)

    def test_a_signal_ends_all_of_it(self):
        process = subprocess.Popen(self.command(), env=clean_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   text=True, start_new_session=True, preexec_fn=_die_with_parent)
        self.addCleanup(process.stdout.close)
        for line in process.stdout:
            if "Ctrl-C" in line:
                break
        pids = self.pids()
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        process.wait(120)
        self.assertFalse(any(self.running(pid) for pid in pids))

    def test_what_is_wrong_is_said(self):
        for arguments, text in ((("--nonsense",), "unknown option"), (("--stator", "/nowhere"), "build it"), (("--port",), "needs a value"),
                                (("--model", "/nowhere"), "worker-1")):
            done = subprocess.run(self.command(*arguments), env=clean_environment(), stdin=subprocess.DEVNULL, capture_output=True,
                                  text=True, timeout=300)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(text, done.stderr)
            self.assertIn("nothing runs", self.down())


if __name__ == "__main__":
    unittest.main()
