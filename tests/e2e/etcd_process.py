# SPDX-License-Identifier: Apache-2.0
"""Real etcd clusters for tests: Debian's `etcd`, on free loopback ports, in temporary folders."""

from __future__ import annotations

import json
import pathlib
import shutil
import signal
import subprocess
import tempfile
import urllib.request
import ssl

from free_ports import free_ports
from stator_process import _die_with_parent, clean_environment, eventually


# What etcd says while it has no leader or its disk stalls.
_PASSING = ("request timed out", "leader changed", "no leader", "context deadline exceeded", "too many requests")


class Member:
    """One etcd process that can be stopped, frozen, wiped and started again at the same address."""

    def __init__(self, name: str, client_port: int, peer_port: int, cluster: str, folder: pathlib.Path, tls: dict | None):
        self.client_port = client_port
        self.data = folder / name
        scheme = "https" if tls else "http"
        self.url = f"{scheme}://127.0.0.1:{client_port}"
        self.tls = tls
        self.command = [
            "etcd", "--name", name, "--data-dir", str(self.data),
            "--listen-client-urls", self.url, "--advertise-client-urls", self.url,
            "--listen-peer-urls", f"http://127.0.0.1:{peer_port}", "--initial-advertise-peer-urls", f"http://127.0.0.1:{peer_port}",
            "--initial-cluster", cluster, "--initial-cluster-state", "new", "--initial-cluster-token", "stator-test",
            "--heartbeat-interval", "50", "--election-timeout", "500", "--log-level", "error", "--logger", "zap"]
        if tls:
            self.command += ["--cert-file", tls["cert"], "--key-file", tls["key"], "--trusted-ca-file", tls["ca"], "--client-cert-auth"]
        self.process: subprocess.Popen | None = None

    def start(self) -> None:
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL, env=clean_environment(), preexec_fn=_die_with_parent)

    def healthy(self) -> bool:
        context = None
        if self.tls:
            context = ssl.create_default_context(cafile=self.tls["ca"])
            context.load_cert_chain(self.tls["cert"], self.tls["key"])
        with urllib.request.urlopen(self.url + "/health", timeout=2, context=context) as answer:
            return json.loads(answer.read()).get("health") == "true"

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def wipe(self) -> None:
        self.kill()
        shutil.rmtree(self.data, ignore_errors=True)
        self.start()


class Etcd:
    """A cluster of `members`; `discovery` is what Stator is told."""

    def __init__(self, members: int = 1, tls: dict | None = None):
        self.folder = tempfile.TemporaryDirectory(prefix="stator-etcd-")
        ports = free_ports(2 * members)
        cluster = ",".join(f"n{i}=http://127.0.0.1:{ports[members + i]}" for i in range(members))
        self.members = [Member(f"n{i}", ports[i], ports[members + i], cluster, pathlib.Path(self.folder.name), tls)
                        for i in range(members)]
        for member in self.members:
            member.start()
        self.wait_until_healthy()

    def wait_until_healthy(self) -> None:
        for member in self.members:
            eventually(member.healthy, "etcd healthy", timeout_s=60)

    @property
    def discovery(self) -> str:
        scheme = "etcds" if self.members[0].tls else "etcd"
        return f"{scheme}://" + ",".join(f"127.0.0.1:{m.client_port}" for m in self.members)

    def ctl(self, *arguments: str) -> str:
        """etcdctl, against the members that run."""
        endpoints = ",".join(m.url for m in self.members if m.process is not None)
        tls = self.members[0].tls
        secure = ["--cacert", tls["ca"], "--cert", tls["cert"], "--key", tls["key"]] if tls else []
        command = ["etcdctl", "--endpoints", endpoints, *secure, *arguments]

        def run() -> subprocess.CompletedProcess | None:
            done = subprocess.run(command, env=clean_environment(ETCDCTL_API="3"), capture_output=True, text=True, timeout=60)
            # A slow disk or an election is the cluster's moment of weakness, not an answer.
            return None if done.returncode and any(words in done.stderr for words in _PASSING) else done

        done = eventually(run, f"an answer to etcdctl {' '.join(arguments)}", timeout_s=60)
        done.check_returncode()
        return done.stdout

    def close(self) -> None:
        for member in self.members:
            if member.process is not None:
                member.thaw()
            member.kill()
        self.folder.cleanup()
