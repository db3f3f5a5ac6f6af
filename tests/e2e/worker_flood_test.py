#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A peer of the worker's port that floods it with calls: it costs little memory and keeps no frontend out."""

import pathlib
import sys
import tempfile
import unittest

import grpc

from raw_grpc import RawGrpc
from stator_process import MODEL, MODEL_DIR, ROOT, Http, Stator, eventually

sys.path.insert(0, str(ROOT / "src/stator/proto"))  # where grpcio-tools looks
pb, rpc = grpc.protos_and_services("worker/v1/worker.proto")
SERVICE = "/stator.worker.v1.Worker/"
MESSAGE_BYTES = 16 << 20  # the longest that a worker takes
CALLS = 128               # that a connection may have at once


class WorkerFlood(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="stator-flood-")
        self.addCleanup(folder.cleanup)
        self.discovery = ("--discovery", f"file:{folder.name}")
        self.worker = Stator("worker", str(MODEL_DIR), "--engine", "sim", "--system-port", "0", *self.discovery)
        self.addCleanup(self.worker.close)
        self.address = self.worker.ready["address"]
        self.metrics = Http(self.worker.ready["system_port"])

    def connect(self) -> RawGrpc:
        connection = RawGrpc(self.address)
        self.addCleanup(connection.close)
        return connection

    def resident_mib(self) -> float:
        status = pathlib.Path(f"/proc/{self.worker.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    def check_a_frontend_is_served(self) -> Http:
        frontend = Stator("frontend", "--host", "127.0.0.1", "--port", "0", *self.discovery)
        self.addCleanup(frontend.close)
        http = Http(frontend.port)
        eventually(lambda: len(http.get("/health")[1].get("instances", [])) == 1, "the frontend sees its worker")
        status, answer = http.post("/v1/completions", {"model": MODEL, "prompt": "hello", "max_tokens": 2})
        self.assertEqual(status, 200, answer)
        return http

    def test_sessions_without_a_greeting_take_nobodys_place(self):
        connections = [self.connect() for _ in range(1024 // CALLS)]
        for connection in connections:
            for _ in range(CALLS):
                connection.call(SERVICE + "Session")
        self.check_a_frontend_is_served()

        def all_have_ended():
            for connection in connections:
                connection.hear()
            return sum(len(connection.ended) for connection in connections) == 1024

        eventually(all_have_ended, "the silent calls are ended")
        self.assertEqual(self.metrics.metric("stator_grpc_silent_calls_total"), 1024)
        self.assertEqual(self.metrics.metric("stator_runtime_server_sessions_open"), 1)

    def test_who_means_it_may_serve_other_machines_without_tls(self):
        for insecure in ((), ("--rpc-insecure", "true")):
            worker = Stator("worker", str(MODEL_DIR), "--engine", "sim", *self.discovery, "--worker-listen-host", "0.0.0.0",
                            *insecure, announce=bool(insecure))
            self.addCleanup(worker.close)
            if insecure:
                self.assertTrue(worker.ready["address"].startswith("0.0.0.0:"))
            else:
                self.assertEqual(worker.wait(), 2)
                self.assertIn("rpc.insecure", worker.log())

    def test_calls_beyond_a_connections_bound_are_refused(self):
        connection = self.connect()
        for _ in range(CALLS + 10):
            connection.call(SERVICE + "Session")
        eventually(lambda: connection.hear() and len(connection.ended) >= 10, "ten are refused")

    def test_messages_that_never_end_cost_no_more_than_their_budget(self):
        before = self.resident_mib()
        connections = [self.connect() for _ in range(2)]
        begun = {}
        hello = pb.ClientMessage(hello={"protocol": 1}).SerializeToString()
        for connection in connections:
            for _ in range(192 // 2):
                stream = connection.call(SERVICE + "Session", hello, ends=False)
                begun[connection, stream] = b"\0" + MESSAGE_BYTES.to_bytes(4, "big")
        sent = 0
        filler = bytes(1 << 16)
        idle = 0
        while idle < 20 and self.resident_mib() < before + 300:
            moved = 0
            for (connection, stream), start in begun.items():
                connection.hear()
                if stream in connection.windows:
                    count = connection.send(stream, start or filler)
                    begun[connection, stream] = start[count:]
                    moved += count
            sent += moved
            idle = 0 if moved else idle + 1
            if moved == 0:
                for connection in connections:
                    connection.hear(0.05)
        # Twice the longest message for each connection, in buffers that grow by doubling, and what a process of this kind varies by.
        self.assertLess(self.resident_mib() - before, 2 * 2 * 32 + 60, f"{sent >> 20} MiB were sent")
        self.assertGreater(self.metrics.metric("stator_grpc_unfinished_calls_total"), 0)
        self.assertLessEqual(self.metrics.metric("stator_grpc_unfinished_bytes"), 2 * 2 * MESSAGE_BYTES)
        self.check_a_frontend_is_served()
        for connection in connections:
            connection.close()
        eventually(lambda: self.metrics.metric("stator_grpc_unfinished_bytes") == 0, "all is given back")

    def test_readers_of_events_leave_a_place_for_others(self):
        connections = [self.connect() for _ in range(256 // CALLS)]
        for connection in connections:
            for _ in range(CALLS):
                connection.call(SERVICE + "Events", b"")
        eventually(lambda: self.metrics.metric("stator_runtime_server_event_streams_open") == 256, "all places are taken")
        with grpc.insecure_channel(self.address) as channel:
            stream = rpc.WorkerStub(channel).Events(pb.EventsRequest(), timeout=60)
            self.assertEqual(next(stream).kind, pb.BATCH_KIND_SNAPSHOT_LAST)
            stream.cancel()
        http = self.check_a_frontend_is_served()
        self.assertGreaterEqual(self.metrics.metric("stator_runtime_server_crowded_out_total"), 1)
        body = {"model": MODEL, "prompt": "Tell me about caches. " * 40, "max_tokens": 2}
        eventually(lambda: http.post("/v1/completions", body)[0] == 200 and http.metric("stator_router_overlap_blocks_total") > 0,
                   "the frontend hears what the worker holds")


if __name__ == "__main__":
    unittest.main(verbosity=2)
