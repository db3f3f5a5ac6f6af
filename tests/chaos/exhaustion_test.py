#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Processes that may have no more memory, a budget of second moves that is spent, three times the load, a thousand instances that come and go."""

import json
import pathlib
import re
import resource
import signal
import subprocess
import tempfile
import threading
import time
import unittest

from chaos_deployment import SEED, ChaosTest, Split, ask, bodies, eventually, times
from stator_process import BINARY, MODEL, Http, Stator, clean_environment

CHAT = "/v1/chat/completions"


def memory_bytes(pid: int) -> int:
    """What it may write to: heap, stacks, private mappings."""
    return 1024 * int(re.search(r"VmData:\s*(\d+) kB", pathlib.Path(f"/proc/{pid}/status").read_text())[1])


class Memory(ChaosTest):
    """There is no way to go on without memory, so the process ends at once, and that must be all that happens."""

    def starve(self, process: Stator, deployment: Split):
        """Lets it have nothing more, and gives it work until it dies of that."""
        pid = process.process.pid
        resource.prlimit(pid, resource.RLIMIT_DATA, (memory_bytes(pid), memory_bytes(pid)))

        def hungry():
            prompt = [self.chance.randrange(300, 3000) for _ in range(1900)]
            body = {"model": MODEL, "prompt": [prompt] * 32, "max_tokens": 100}
            try:
                Http(deployment.frontend.port).post("/v1/completions", body)
            except (OSError, ValueError):
                pass  # it is the frontend that starves
            return not process.alive()
        eventually(hungry, "it dies")
        self.assertEqual(process.process.returncode, -signal.SIGABRT, process.log()[-2000:])

    def test_a_worker_that_gets_no_memory_loses_no_stream(self):
        deployment = self.deploy(Split, "--frontend-poison-workers", "0", "--migration-limit", "10",
                                 worker_arguments=("--sim-speedup", "4"))
        starved = deployment.workers[0]
        self.under_load(deployment, lambda: self.starve(starved, deployment))
        deployment.wait_for_workers(1)

    def test_a_frontend_that_gets_no_memory_ends_and_another_serves(self):
        deployment = self.deploy(Split)
        other = deployment.start_frontend()
        self.addCleanup(other.close)
        self.starve(deployment.frontend, deployment)
        path, body = bodies(8)[0]
        eventually(lambda: not ask(other.port, path, body).error, "served")


class Moves(ChaosTest):
    def test_streams_that_lose_worker_after_worker_move_a_few_at_a_time(self):
        """First moves are free. Of later ones ten are under way at once, also when nothing comes of them for a while."""
        deployment = self.deploy(Split, "--migration-limit", "100", "--frontend-poison-workers", "0", "--shards", "1",
                                 "--frontend-stall-timeout", "60s", "--frontend-accept-timeout", "60s",
                                 "--frontend-migration-wait", "120s", workers=1, lease_ttl="120s",
                                 worker_arguments=("--sim-speedup", "1"))
        body = {"model": MODEL, "messages": [{"role": "user", "content": "What is a KV cache?"}], "max_tokens": 1500,
                "ignore_eos": True, "stream": True}
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(ask(deployment.frontend.port, CHAT, body))) for _ in range(40)]
        for thread in threads:
            thread.start()
        eventually(lambda: deployment.http.metric("stator_router_active_requests") == len(threads), "all run at the only one")
        deployment.workers += [deployment.start_worker() for _ in range(2)]
        deployment.wait_for_workers(3)
        deployment.workers.pop(0).close()
        deployment.wait_for_workers(2)
        eventually(lambda: deployment.http.metric("dynamo_frontend_model_migration_total") == len(threads), "all have moved")
        hung = deployment.workers[1].process
        hung.send_signal(signal.SIGSTOP)
        deployment.workers.pop(0).close()
        eventually(lambda: deployment.http.metric("stator_frontend_retry_budget_exhausted_total") > 0, "some wait")
        hung.send_signal(signal.SIGCONT)
        for thread in threads:
            thread.join()
        self.assertEqual([answer.error for answer in answers if answer.error], [])
        expected = ask(deployment.frontend.port, CHAT, body).visible()
        self.assertEqual([answer for answer in answers if answer.visible() != expected], [])
        eventually(deployment.idle, "idle")


class Goodput(ChaosTest):
    """In the simulation of fleets, whose time is virtual: production's router on engines with vLLM's rules."""

    def simulate(self, *arguments: str) -> dict:
        with tempfile.NamedTemporaryFile(suffix=".json") as report:
            subprocess.run([BINARY, "sim", "--input-tokens", "1000", "--output-tokens", "200", "--workers", "2", "--router", "kv",
                            "--seed", str(SEED), "--report-json", report.name, *arguments], check=True, capture_output=True,
                           env=clean_environment())
            return json.load(open(report.name))

    def test_three_times_what_workers_can_take_leaves_them_nine_tenths_busy(self):
        capacity = self.simulate("--requests", "4000", "--concurrency", "512")["request_throughput_rps"]
        over = self.simulate("--requests", "12000", "--rate", str(3 * capacity), "--router-active-prefill-tokens-threshold", "8000")
        self.assertEqual(over["completed_requests"] + over["shed_requests"], 12000)
        self.assertGreater(over["shed_requests"], 6000)
        self.assertGreater(over["request_throughput_rps"], 0.9 * capacity)


class Flapping(ChaosTest):
    def test_a_thousand_instances_of_which_many_come_and_go(self):
        """Nobody answers at their addresses: they cost attempts to connect, and the view ends as the folder is."""
        deployment = self.deploy(Split, workers=2, lease_ttl="1h", worker_arguments=("--sim-speedup", "20"))
        folder = pathlib.Path(deployment.folder.name) / "instances"
        real = next(folder.glob("[!.]*"))
        record = json.loads(real.read_text())

        def file_of(worker: int) -> pathlib.Path:
            return folder / real.name.replace(f"{record['instance_id']:x}", f"{worker:x}")

        def join(worker: int):
            draft = folder / f".tmp_{worker}"
            draft.write_text(json.dumps(record | {"instance_id": worker, "address": "127.0.0.1:1"}))
            draft.rename(file_of(worker))

        def view() -> float:
            return deployment.http.metric("stator_runtime_discovery_instances")

        there = set(range(1_000_000, 1_001_000))
        for worker in there:
            join(worker)
        eventually(lambda: view() == 2 + len(there), "all are seen")

        def flap():
            for _ in range(times(300)):
                worker = 1_000_000 + self.chance.randrange(1_000)
                if worker in there:
                    file_of(worker).unlink()
                    there.remove(worker)
                else:
                    join(worker)
                    there.add(worker)
                time.sleep(0.01)
        self.under_load(deployment, flap)
        eventually(lambda: view() == 2 + len(there), "the view is the folder")
        self.assertEqual(len(deployment.worker_ids()), 2)
        for worker in there:
            file_of(worker).unlink()
        eventually(lambda: view() == 2, "none is left")
        eventually(lambda: deployment.http.metric("stator_runtime_pool_workers", state="unreachable") == 0, "nobody is called any more")


if __name__ == "__main__":
    unittest.main()
