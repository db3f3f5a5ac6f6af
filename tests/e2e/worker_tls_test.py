#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mutual TLS between frontends and workers, set on the command line: who has no business there gets nothing."""

import pathlib
import subprocess
import tempfile
import threading
import unittest
from concurrent.futures import ThreadPoolExecutor

from authority import Authority
from stator_process import BINARY, MODEL, MODEL_DIR, Http, Split, Stator, clean_environment, eventually

CHAT = "/v1/chat/completions"
BODY = {"model": MODEL, "messages": [{"role": "user", "content": "What is a KV cache?"}], "max_tokens": 4}
FRONTEND = "spiffe://test/stator/frontend"


class WorkerTls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="stator-tls-")
        cls.addClassCleanup(folder.cleanup)
        ca = cls.ca = Authority(pathlib.Path(folder.name), "ca")
        cls.worker = [*ca.options("worker", "IP:127.0.0.1", "DNS:worker.stator"), "--rpc-tls-allowed-callers", f"other,{FRONTEND}"]
        cls.frontend = ca.options("frontend", f"URI:{FRONTEND}")
        cls.stranger = ca.options("stranger", "URI:spiffe://test/stator/backend")
        cls.forger = Authority(pathlib.Path(folder.name), "forger").options("forged", f"URI:{FRONTEND}")

    def deploy(self, frontend: list[str], workers: int = 1) -> Split:
        deployment = Split(*frontend, workers=0, worker_arguments=tuple(self.worker))
        self.addCleanup(deployment.close)
        deployment.workers = [deployment.start_worker() for _ in range(workers)]
        return deployment

    def test_who_is_on_the_list_is_served(self):
        deployment = self.deploy(self.frontend)
        deployment.wait_for_workers(1)
        self.assertEqual(deployment.http.post(CHAT, BODY)[0], 200)

    def blocks_known(self, router: Http) -> int:
        return sum(len(dump["events"]) for dump in router.get("/dump")[1].values())

    def test_a_router_service_is_a_caller_like_a_frontend(self):
        deployment = self.deploy(self.frontend)
        text = "Tell me about caches. " * 40
        deployment.wait_for_workers(1)
        self.assertEqual(deployment.http.post(CHAT, BODY | {"messages": [{"role": "user", "content": text}]})[0], 200)
        for arguments, allowed in ((self.frontend, True), (self.stranger, False)):
            router = Stator("router", "--select", "--host", "127.0.0.1", "--port", "0", *deployment.discovery, *arguments)
            self.addCleanup(router.close)
            http = Http(router.port)
            if allowed:
                eventually(lambda http=http: self.blocks_known(http) > 0, "it hears what the worker holds")
            else:
                eventually(lambda: "a caller is not allowed" in deployment.workers[0].log(), "it is refused")
                self.assertEqual(self.blocks_known(http), 0)

    def test_a_worker_goes_by_its_name_if_that_is_asked_for(self):
        deployment = self.deploy([*self.frontend, "--rpc-tls-server-name", "worker.stator"])
        deployment.wait_for_workers(1)
        self.assertEqual(deployment.http.post(CHAT, BODY)[0], 200)

    def check_refused(self, frontend: list[str], why: str):
        deployment = self.deploy(frontend)
        eventually(lambda: why in deployment.frontend.log() + deployment.workers[0].log(), why)
        self.assertEqual(deployment.worker_ids(), [])
        self.assertEqual(deployment.http.request("GET", "/health")[0], 503)
        self.assertTrue(deployment.workers[0].alive())

    def test_certified_but_not_on_the_list(self):
        self.check_refused(self.stranger, "a caller is not allowed")

    def test_certified_by_somebody_else(self):
        self.check_refused(self.forger, "worker not reached")

    def test_no_certificate(self):
        self.check_refused([], "worker not reached")

    def test_a_worker_of_another_name(self):
        self.check_refused([*self.frontend, "--rpc-tls-server-name", "elsewhere"], "worker not reached")

    def test_an_expired_certificate(self):
        self.check_refused(self.ca.options("expired", f"URI:{FRONTEND}", days=0), "worker not reached")

    def test_new_certificates_come_with_a_rolling_restart(self):
        deployment = self.deploy(self.frontend)
        deployment.wait_for_workers(1)
        renewed = self.ca.options("renewed", "IP:127.0.0.1")
        deployment.worker_arguments = (*renewed, "--rpc-tls-allowed-callers", FRONTEND)
        statuses = []
        with ThreadPoolExecutor(2) as clients:
            stop = threading.Event()

            def client():
                while not stop.is_set():
                    statuses.append(deployment.http.post(CHAT, BODY)[0])

            loads = [clients.submit(client) for _ in range(2)]
            try:
                deployment.workers.append(deployment.start_worker())
                deployment.wait_for_workers(2)
                old = deployment.workers.pop(0)
                old.terminate()
                self.assertEqual(old.wait(), 0, old.log())
                old.close()
                deployment.wait_for_workers(1)
                seen = len(statuses)
                eventually(lambda: len(statuses) > seen, "served with the new one")
            finally:
                stop.set()
            for load in loads:
                load.result()
        self.assertEqual(set(statuses), {200})

    def test_a_frontend_whose_files_are_replaced_is_let_in_without_a_restart(self):
        deployment = self.deploy(self.ca.options("renewing", "URI:spiffe://test/stator/backend"))
        eventually(lambda: "a caller is not allowed" in deployment.workers[0].log(), "refused with the first files")
        self.ca.options("renewing", f"URI:{FRONTEND}")  # under the same names
        deployment.wait_for_workers(1)
        self.assertEqual(deployment.http.post(CHAT, BODY)[0], 200)

    def test_a_worker_whose_files_are_replaced_is_believed_without_a_restart(self):
        forger = Authority(self.ca.folder, "forger-of-workers")
        trust = self.worker[4:]  # the right authority, and who may call
        self.worker = [*forger.options("renewing-worker", "IP:127.0.0.1")[:4], *trust]
        deployment = self.deploy(self.frontend)
        eventually(lambda: "worker not reached" in deployment.frontend.log(), "not believed with the first files")
        self.assertEqual(deployment.http.request("GET", "/health")[0], 503)
        self.ca.options("renewing-worker", "IP:127.0.0.1")
        deployment.wait_for_workers(1)
        self.assertEqual(deployment.http.post(CHAT, BODY)[0], 200)
        self.assertIn("certificates renewed", deployment.workers[0].log())

    def test_half_of_the_files_is_a_usage_error(self):
        for role in (["frontend", "--port", "0"], ["worker", str(MODEL_DIR), "--engine", "sim"]):
            with tempfile.TemporaryDirectory() as folder:
                done = subprocess.run([BINARY, *role, "--discovery", f"file:{folder}", *self.frontend[:2]], env=clean_environment(),
                                      capture_output=True, text=True, timeout=300)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("rpc.tls_ca_cert_path", done.stderr)


if __name__ == "__main__":
    unittest.main()
