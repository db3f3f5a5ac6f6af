#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Too few descriptors, full disks, a discovery folder gone mad, clients that leave all at once, three times the load, hung processes."""

import json
import os
import pathlib
import resource
import signal
import socket
import subprocess
import threading
import time
import unittest

from chaos_deployment import LONG, ChaosTest, Split, ask, bodies, eventually, times
from stator_process import BINARY, MODEL, Http, _die_with_parent, clean_environment

CHAT = "/v1/chat/completions"
LONG_BODY = {"model": MODEL, "messages": [{"role": "user", "content": "What is a KV cache?"}], "max_tokens": 2000,
             "ignore_eos": True, "stream": True}


class Limits(ChaosTest):
    def open_stream(self, port: int) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", port), timeout=120)
        body = json.dumps(LONG_BODY).encode()
        connection.sendall(b"POST " + CHAT.encode() + b" HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                           b"Content-Length: " + str(len(body)).encode() + b"\r\n\r\n" + body)
        return connection

    def test_clients_that_leave_at_once_leave_nothing_behind(self):
        deployment = self.deploy(Split, worker_arguments=("--sim-speedup", "1"))
        files = len(os.listdir(f"/proc/{deployment.frontend.process.pid}/fd"))
        clients = [self.open_stream(deployment.frontend.port) for _ in range(times(200))]
        eventually(lambda: deployment.http.metric("stator_router_active_requests") == len(clients), "all run")
        for client in clients:
            client.close()
        eventually(deployment.idle, "engines are free")
        self.assertEqual(deployment.http.metric("dynamo_frontend_disconnected_clients"), len(clients))
        eventually(lambda: len(os.listdir(f"/proc/{deployment.frontend.process.pid}/fd")) <= files + 8, "descriptors are back")

    def test_a_frontend_with_few_descriptors_waits_for_some(self):
        deployment = self.deploy(Split)
        pid = deployment.frontend.process.pid
        used = len(os.listdir(f"/proc/{pid}/fd"))
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + 12, used + 12))
        idle = [socket.create_connection(("127.0.0.1", deployment.frontend.port), timeout=120) for _ in range(40)]
        time.sleep(0.5)
        self.assertTrue(deployment.frontend.alive(), deployment.frontend.log()[-2000:])
        for connection in idle:
            connection.close()
        path, body = bodies(8)[0]
        eventually(lambda: not ask(deployment.frontend.port, path, body).error, "served again")
        eventually(deployment.idle, "idle")

    def test_a_log_that_cannot_be_written_stops_nobody(self):
        deployment = self.deploy(Split)
        with open("/dev/full", "wb") as full:
            process = subprocess.Popen(
                [BINARY, "frontend", "--host", "127.0.0.1", "--port", "0", "--announce", "--log", "debug",
                 *deployment.discovery],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=full, env=clean_environment(),
                preexec_fn=_die_with_parent)
        try:
            port = json.loads(process.stdout.readline())["port"]
            path, body = bodies(8)[0]
            eventually(lambda: not ask(port, path, body).error, "served")
        finally:
            process.kill()
            process.wait()
            process.stdout.close()

    def test_records_that_come_and_go_and_make_no_sense(self):
        deployment = self.deploy(Split, worker_arguments=("--sim-speedup", "20"))
        folder = pathlib.Path(deployment.folder.name) / "instances"
        real = next(folder.glob("[!.]*"))
        record = json.loads(real.read_text())

        def flap():
            # Fifty workers that nobody reaches, and what is no record, come and go.
            for i in range(times(150)):
                worker = 1_000_000 + i % 50
                odd = ("{", "[]", "null", "", json.dumps(record | {"instance_id": worker, "address": "127.0.0.1:1"}))[i % 5]
                draft = folder / f".tmp_{i}"
                draft.write_text(odd)
                target = folder / real.name.replace(f"{record['instance_id']:x}", f"{worker:x}")
                draft.rename(target)
                if i % 2:
                    target.unlink()
                time.sleep(0.005)
            for worker in range(1_000_000, 1_000_050):
                (folder / real.name.replace(f"{record['instance_id']:x}", f"{worker:x}")).unlink(missing_ok=True)
        self.under_load(deployment, flap)
        self.assertEqual(len(deployment.worker_ids()), 2)
        self.assertGreater(deployment.http.metric("stator_runtime_discovery_bad_records_total"), 0)

    def test_three_times_the_load_is_refused_quickly_and_gone_when_it_ends(self):
        deployment = self.deploy(
            Split, "--router-active-prefill-tokens-threshold", "400", workers=1, worker_arguments=("--sim-speedup", "1"))
        answered, refused, odd = [], [], []
        end = time.monotonic() + 2 * LONG

        def client():
            body = {"model": MODEL, "prompt": list(range(300, 500)), "max_tokens": 4, "ignore_eos": True}
            while time.monotonic() < end or not (answered and refused):
                status, headers, _ = Http(deployment.frontend.port).request("POST", "/v1/completions", body)
                (answered if status == 200 else refused if status == 503 and headers.get("Retry-After") else odd).append(status)

        threads = [threading.Thread(target=client) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(odd, [])
        self.assertGreater(len(answered), 0)
        self.assertGreater(len(refused), 0, "the load was no overload")
        path, body = bodies(8)[0]
        eventually(lambda: not ask(deployment.frontend.port, path, body).error, "served as before")
        eventually(deployment.idle, "idle")

    def test_a_frontend_that_is_stopped_for_a_while_goes_on(self):
        deployment = self.deploy(Split, worker_arguments=("--sim-speedup", "4"))

        def freeze():
            deployment.frontend.process.send_signal(signal.SIGSTOP)
            time.sleep(1.5)
            deployment.frontend.process.send_signal(signal.SIGCONT)
        self.under_load(deployment, freeze)

    def test_an_idle_worker_that_hangs_is_given_up_and_comes_back(self):
        deployment = self.deploy(Split, lease_ttl="2s")

        shards = deployment.http.metric("stator_runtime_pool_workers") / 2  # each has a line of its own to every worker

        def workers(**state: str) -> float:
            return deployment.http.metric("stator_runtime_pool_workers", **state) / shards

        hung = deployment.workers[0].process
        hung.send_signal(signal.SIGSTOP)
        eventually(lambda: workers(state="unlisted") == 1, "its record is gone, its connection is not")
        # Nothing is asked of it, so only keep-alive can tell: 5 s to the ping, 10 s for the answer.
        eventually(lambda: workers() == 1, "given up")
        self.assertEqual(deployment.http.metric("stator_runtime_pool_workers_gone_total"), shards)
        path, body = bodies(8)[0]
        self.assertEqual(ask(deployment.frontend.port, path, body).error, "")
        hung.send_signal(signal.SIGCONT)
        eventually(lambda: workers(state="active") == 2, "back")
        eventually(deployment.idle, "idle")


if __name__ == "__main__":
    unittest.main()
