#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Discovery through real etcd: whatever happens to the store, requests go on, and what was lost comes back."""

import contextlib
import json
import os
import pathlib
import subprocess
import tempfile
import threading
import time
import unittest

from etcd_process import Etcd
from stator_process import MODEL, Http, Split, Stator, clean_environment, eventually, BINARY

CHAT = "/v1/chat/completions"
# How long the store is stopped under load; the ten minutes take STATOR_ETCD_OUTAGE_S=600.
OUTAGE_S = float(os.environ.get("STATOR_ETCD_OUTAGE_S", "10"))
BODY = {"model": MODEL, "messages": [{"role": "user", "content": "What is a KV cache?"}], "max_tokens": 8, "temperature": 0}
PREFIX = "stator/v1/instances/"


class EtcdSplit(Split):
    """A frontend and workers that find each other through etcd."""

    def __init__(self, store: Etcd, *frontend_arguments: str, workers: int = 2, lease_ttl: str = "2s", extra: tuple[str, ...] = ()):
        self.store = store
        self.extra = extra
        super().__init__(*frontend_arguments, workers=workers, lease_ttl=lease_ttl)

    @property
    def discovery(self) -> list[str]:
        return ["--discovery", self.store.discovery, "--discovery-lease-ttl", self.lease, *self.extra]

    @discovery.setter
    def discovery(self, folder_arguments: list[str]) -> None:
        self.lease = folder_arguments[-1]


class EtcdTest(unittest.TestCase):
    def deploy(self, members: int = 1, **fields) -> EtcdSplit:
        store = Etcd(members)
        self.addCleanup(store.close)
        deployment = EtcdSplit(store, **fields)
        self.addCleanup(deployment.close)
        return deployment

    @contextlib.contextmanager
    def load(self, deployment: EtcdSplit, clients: int = 3):
        """Requests without a pause; none may fail. Yields the list of statuses."""
        statuses: list[int] = []
        running = threading.Event()
        running.set()

        def client():
            while running.is_set():
                try:
                    statuses.append(deployment.http.post(CHAT, BODY)[0])
                except OSError:
                    statuses.append(0)

        threads = [threading.Thread(target=client) for _ in range(clients)]
        for thread in threads:
            thread.start()
        try:
            yield statuses
        finally:
            running.clear()
            for thread in threads:
                thread.join()
        self.assertGreater(len(statuses), 2)
        self.assertEqual([s for s in statuses if s != 200], [], f"of {len(statuses)} requests")

    def records(self, store: Etcd) -> int:
        return len([line for line in store.ctl("get", "--prefix", "--keys-only", PREFIX).splitlines() if line])

    def store_is(self, deployment, up: int) -> bool:
        return deployment.http.metric("stator_runtime_discovery_store_up") == up

    def test_workers_come_and_go(self):
        deployment = self.deploy(lease_ttl="120s")
        self.assertEqual(self.records(deployment.store), 2)
        self.assertEqual(deployment.http.post(CHAT, BODY)[0], 200)
        leaving = deployment.workers.pop()
        leaving.terminate()
        self.assertEqual(leaving.wait(), 0, leaving.log())
        leaving.close()
        deployment.wait_for_workers(1)
        eventually(lambda: self.records(deployment.store) == 1, "withdrawn, not left to its lease")
        deployment.workers.append(deployment.start_worker())
        deployment.wait_for_workers(2)

    def test_the_record_of_a_killed_worker_goes_with_its_lease(self):
        deployment = self.deploy()
        deployment.workers.pop().close()
        deployment.wait_for_workers(1)
        eventually(lambda: self.records(deployment.store) == 1, "the lease runs out")
        self.assertEqual(deployment.http.post(CHAT, BODY)[0], 200)

    def test_a_stopped_store_fails_no_request_and_loses_no_worker(self):
        deployment = self.deploy()
        with self.load(deployment):
            deployment.store.members[0].kill()
            eventually(lambda: self.store_is(deployment, 0), "noticed")
            time.sleep(OUTAGE_S)  # longer than the lease
            self.assertEqual(len(deployment.worker_ids()), 2)
            deployment.store.members[0].start()
            deployment.store.wait_until_healthy()
            eventually(lambda: self.store_is(deployment, 1), "noticed")
            eventually(lambda: self.records(deployment.store) == 2, "registered")
        self.assertTrue(all(w.alive() for w in deployment.workers))
        deployment.workers.append(deployment.start_worker())
        deployment.wait_for_workers(3)

    def test_a_wiped_store_heals(self):
        deployment = self.deploy()
        with self.load(deployment):
            deployment.store.members[0].wipe()
            deployment.store.wait_until_healthy()
            eventually(lambda: self.records(deployment.store) == 2, "written again")
            deployment.wait_for_workers(2)
        eventually(lambda: deployment.http.metric("stator_runtime_discovery_doubtful_instances") == 0, "no doubt is left")
        deployment.workers.append(deployment.start_worker())
        deployment.wait_for_workers(3)

    def test_a_frozen_store_is_survived(self):
        deployment = self.deploy()
        with self.load(deployment):
            deployment.store.members[0].freeze()
            time.sleep(5)  # longer than the lease
            deployment.store.members[0].thaw()
            eventually(lambda: self.store_is(deployment, 1), "up")
            eventually(lambda: self.records(deployment.store) == 2, "registered")
            deployment.wait_for_workers(2)

    def test_deleted_keys_and_revoked_leases_come_back(self):
        deployment = self.deploy()
        with self.load(deployment):
            deployment.store.ctl("del", "--prefix", PREFIX)
            eventually(lambda: self.records(deployment.store) == 2, "written again")
            for line in deployment.store.ctl("lease", "list").splitlines()[1:]:
                deployment.store.ctl("lease", "revoke", line.strip())
            eventually(lambda: self.records(deployment.store) == 2, "written again")
            deployment.wait_for_workers(2)

    def test_compaction_while_the_watch_was_away_is_a_resync(self):
        deployment = self.deploy()
        member = deployment.store.members[0]
        with self.load(deployment):
            member.freeze()
            # The frontend's ping finds the line dead; meanwhile nothing can change. Then history goes.
            time.sleep(11)
            member.thaw()
            for i in range(20):
                deployment.store.ctl("put", f"{PREFIX}noise", str(i))
            revision = deployment.store.ctl("get", "x", "-w", "fields").split('"Revision" : ')[1].split("\n")[0]
            deployment.store.ctl("compact", revision)
            deployment.workers.append(deployment.start_worker())
            deployment.wait_for_workers(3)
        self.assertGreater(deployment.http.metric("stator_runtime_discovery_bad_records_total"), 0, "the noise was seen")

    def test_three_members_lose_each_in_turn(self):
        deployment = self.deploy(members=3)
        with self.load(deployment):
            for member in deployment.store.members:
                member.kill()
                worker = deployment.start_worker()
                deployment.workers.append(worker)
                deployment.wait_for_workers(3)
                leaving = deployment.workers.pop(0)
                leaving.terminate()
                self.assertEqual(leaving.wait(), 0)
                leaving.close()
                deployment.wait_for_workers(2)
                member.start()
                deployment.store.wait_until_healthy()
        # Who leaves does not wait for an election: a record that could not be withdrawn goes with its lease.
        eventually(lambda: self.records(deployment.store) == 2, "those that left are gone")

    def test_another_member_leads(self):
        deployment = self.deploy(members=3)
        with self.load(deployment):
            for _ in range(3):
                eventually(lambda: self.another_leads(deployment.store), "another member leads", timeout_s=60)
            eventually(lambda: self.store_is(deployment, 1), "up")
        deployment.workers.append(deployment.start_worker())
        deployment.wait_for_workers(3)

    def another_leads(self, store: Etcd) -> bool:
        """Hands the lead over; false where an election of their own was faster."""
        members = json.loads(store.ctl("endpoint", "status", "-w", "json"))
        leader = members[0]["Status"]["leader"]
        at = [m["Endpoint"] for m in members if m["Status"]["header"]["member_id"] == leader]
        others = [m["Status"]["header"]["member_id"] for m in members if m["Status"]["header"]["member_id"] != leader]
        if not at or not others:
            return False
        try:
            store.ctl("--endpoints", at[0], "move-leader", f"{others[0]:x}")
        except subprocess.CalledProcessError:
            return False
        return True

    def test_a_frontend_started_while_the_store_is_away_waits_for_it(self):
        deployment = self.deploy(workers=1)
        deployment.store.members[0].kill()
        second = deployment.start_frontend()
        self.addCleanup(second.close)
        self.assertEqual(Http(second.port).request("GET", "/health")[0], 503)
        deployment.store.members[0].start()
        deployment.store.wait_until_healthy()
        eventually(lambda: Http(second.port).request("GET", "/health")[0] == 200, "workers found")
        self.assertEqual(Http(second.port).post(CHAT, BODY)[0], 200)

    def test_a_worker_says_which_store_it_cannot_reach(self):
        done = subprocess.run(
            [BINARY, "worker", str(pathlib.Path(__file__).resolve().parents[2] / "models" / "demo"), "--engine", "sim",
             "--discovery", "etcd://127.0.0.1:9", "--discovery-startup-timeout", "1s"],
            env=clean_environment(), capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("127.0.0.1:9", done.stderr)

    def test_a_bad_address_is_a_usage_error(self):
        done = subprocess.run([BINARY, "frontend", "--port", "0", "--discovery", "etcd://host"], env=clean_environment(),
                              capture_output=True, text=True, timeout=60)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("etcd://host:port", done.stderr)


class SecuredEtcd(unittest.TestCase):
    def test_users_and_passwords(self):
        store = Etcd()
        self.addCleanup(store.close)
        for arguments in (("user", "add", "root:secret"), ("user", "grant-role", "root", "root"), ("user", "add", "stator:pw"),
                          ("role", "add", "fleet"), ("role", "grant-permission", "fleet", "--prefix=true", "readwrite", "stator/"),
                          ("user", "grant-role", "stator", "fleet"), ("auth", "enable")):
            with contextlib.suppress(subprocess.CalledProcessError):  # the role root exists in some versions
                store.ctl(*arguments)
        deployment = EtcdSplit(store, extra=("--discovery-etcd-username", "stator", "--discovery-etcd-password", "pw"))
        self.addCleanup(deployment.close)
        self.assertEqual(deployment.http.post(CHAT, BODY)[0], 200)
        with self.assertRaises(AssertionError) as refused:
            Stator("worker", str(pathlib.Path(__file__).resolve().parents[2] / "models" / "demo"), "--engine", "sim",
                   "--discovery", store.discovery, "--discovery-etcd-username", "stator", "--discovery-etcd-password", "wrong")
        self.assertIn("authentication failed", str(refused.exception))

    def test_mutual_tls(self):
        folder = tempfile.TemporaryDirectory(prefix="stator-tls-")
        self.addCleanup(folder.cleanup)
        path = pathlib.Path(folder.name)

        def openssl(*arguments: str):
            subprocess.run(["openssl", *arguments], cwd=path, check=True, capture_output=True)

        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=test-ca")
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", "node.key", "-out", "node.csr", "-subj", "/CN=node")
        (path / "san").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost")
        openssl("x509", "-req", "-in", "node.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out", "node.pem", "-days", "2",
                "-extfile", "san")
        tls = {"ca": str(path / "ca.pem"), "cert": str(path / "node.pem"), "key": str(path / "node.key")}
        store = Etcd(tls=tls)
        self.addCleanup(store.close)
        deployment = EtcdSplit(store, extra=("--discovery-etcd-ca", tls["ca"], "--discovery-etcd-cert", tls["cert"],
                                             "--discovery-etcd-key", tls["key"]))
        self.addCleanup(deployment.close)
        self.assertTrue(store.discovery.startswith("etcds://"))
        self.assertEqual(deployment.http.post(CHAT, BODY)[0], 200)


if __name__ == "__main__":
    unittest.main()
