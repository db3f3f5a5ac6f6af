#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Other people's gRPC (grpcio) at a worker's port: every method, a whole session, deadlines, and what a worker refuses."""

import queue
import signal
import sys
import tempfile
import unittest

import grpc

from stator_process import MODEL_DIR, ROOT, Stator, eventually

sys.path.insert(0, str(ROOT / "src/stator/proto"))  # where grpcio-tools looks
pb, rpc = grpc.protos_and_services("worker/v1/worker.proto")
SERVICE = "/stator.worker.v1.Worker/"


class Session:
    """A Session stream: messages are put in, answers are read."""

    def __init__(self, stub):
        self.outgoing = queue.Queue()
        self.stream = stub.Session(iter(self.outgoing.get, None))

    def say(self, **body) -> None:
        self.outgoing.put(pb.ClientMessage(**body))

    def read_until(self, kind: str):
        for message in self.stream:
            if message.WhichOneof("body") == kind:
                return getattr(message, kind)
        raise AssertionError(f"no {kind}: {self.stream.code()} {self.stream.details()}")


class WorkerClients(unittest.TestCase):
    @classmethod
    def start_worker(cls) -> Stator:
        folder = tempfile.TemporaryDirectory(prefix="stator-clients-")
        cls.addClassCleanup(folder.cleanup)
        worker = Stator("worker", str(MODEL_DIR), "--engine", "sim", "--discovery", f"file:{folder.name}")
        cls.addClassCleanup(worker.close)
        return worker

    @classmethod
    def setUpClass(cls):
        cls.worker = cls.start_worker()
        cls.address = cls.worker.ready["address"]
        cls.channel = grpc.insecure_channel(cls.address)
        cls.addClassCleanup(cls.channel.close)
        cls.stub = rpc.WorkerStub(cls.channel)

    def open(self) -> Session:
        session = Session(self.stub)
        self.addCleanup(session.outgoing.put, None)
        session.say(hello={"protocol": 1, "client": "a test"})
        session.read_until("welcome")
        return session

    @staticmethod
    def submit(session: Session, request: int, tokens: int, max_tokens: int) -> None:
        session.say(submit=pb.Submit(request=request, tokens=[300 + i % 100 for i in range(tokens)],
                                     sampling={"temperature": 0, "top_p": 1, "repetition_penalty": 1},
                                     stop={"max_tokens": max_tokens, "ignore_eos": True}))

    @staticmethod
    def collect(session: Session, requests: set[int]) -> dict[int, int]:
        """Tokens of each request until all have finished; offsets must follow each other."""
        counts = dict.fromkeys(requests, 0)
        open_requests = set(requests)
        while open_requests:
            step = session.read_until("step")
            assert not step.failures, step.failures
            for delta in step.deltas:
                assert delta.offset == counts[delta.request], "the stream has no gap"
                counts[delta.request] += delta.token_count
                if delta.finish:
                    open_requests.remove(delta.request)
        return counts

    def test_the_unary_methods(self):
        description = self.stub.Describe(pb.DescribeRequest(), timeout=120)
        self.assertIn('"demo"', description.record_json)
        health = self.stub.Health(pb.HealthRequest(), timeout=120)
        self.assertEqual(health.state, pb.WORKER_STATE_READY)
        self.assertGreater(health.load.kv_total_blocks, 0)
        self.stub.FlushCache(pb.FlushCacheRequest(), timeout=120)

    def test_sessions_of_one_connection_at_once(self):
        sessions = [self.open() for _ in range(8)]
        for session in sessions:
            for request in range(1, 9):
                self.submit(session, request, tokens=20, max_tokens=50)
        for session in sessions:
            self.assertEqual(self.collect(session, set(range(1, 9))), dict.fromkeys(range(1, 9), 50))

    def test_a_prompt_larger_than_every_window(self):
        session = self.open()
        self.submit(session, 1, tokens=2_500_000, max_tokens=1)  # 10 MB: more than the model takes
        self.assertEqual(session.read_until("rejected").request, 1)
        self.submit(session, 2, tokens=20, max_tokens=5)
        self.assertEqual(self.collect(session, {2}), {2: 5})

    def test_events_and_their_end(self):
        stream = self.stub.Events(pb.EventsRequest())
        self.assertEqual(next(stream).kind, pb.BATCH_KIND_SNAPSHOT_LAST)
        session = self.open()
        self.submit(session, 1, tokens=400, max_tokens=1)
        self.collect(session, {1})
        self.assertTrue(next(stream).events[0].HasField("stored"))
        stream.cancel()

        late = self.stub.Events(pb.EventsRequest(), timeout=0.2)
        with self.assertRaises(grpc.RpcError):
            for _ in late:
                pass
        self.assertEqual(late.code(), grpc.StatusCode.DEADLINE_EXCEEDED)

    def test_a_lost_client_frees_its_requests(self):
        channel = grpc.insecure_channel(self.address, options=[("grpc.use_local_subchannel_pool", 1)])
        session = Session(rpc.WorkerStub(channel))
        session.say(hello={"protocol": 1})
        session.read_until("welcome")
        self.submit(session, 1, tokens=20, max_tokens=1_000_000)
        session.read_until("step")
        channel.close()
        session.outgoing.put(None)
        eventually(lambda: self.stub.Health(pb.HealthRequest()).load.running == 0, "nothing runs")

    def check_refused(self, call, code: grpc.StatusCode):
        with self.assertRaises(grpc.RpcError) as refused:
            for _ in call():
                pass
        self.assertEqual(refused.exception.code(), code)
        self.assertTrue(refused.exception.details())

    def test_what_a_worker_refuses(self):
        other = self.channel.unary_stream(SERVICE + "Other")
        self.check_refused(lambda: other(b""), grpc.StatusCode.UNIMPLEMENTED)
        raw = self.channel.stream_stream(SERVICE + "Session")
        self.check_refused(lambda: raw(iter([b"\xff\xff"])), grpc.StatusCode.INTERNAL)
        self.check_refused(lambda: raw(iter([b"x" * (16 * 1024 * 1024 + 1)])), grpc.StatusCode.RESOURCE_EXHAUSTED)
        hello = pb.ClientMessage(hello={"protocol": 7})
        self.check_refused(lambda: self.stub.Session(iter([hello])), grpc.StatusCode.UNIMPLEMENTED)
        zipped = self.channel.stream_stream(SERVICE + "Session")
        self.check_refused(lambda: zipped(iter([b"z" * 1000]), compression=grpc.Compression.Gzip), grpc.StatusCode.UNIMPLEMENTED)
        self.assertTrue(self.worker.alive())

    def test_a_draining_worker_says_so_and_finishes(self):
        worker = self.start_worker()
        channel = grpc.insecure_channel(worker.ready["address"])
        self.addCleanup(channel.close)
        session = Session(rpc.WorkerStub(channel))
        session.say(hello={"protocol": 1})
        session.read_until("welcome")
        self.submit(session, 1, tokens=20, max_tokens=200)
        session.read_until("accepted")
        worker.process.send_signal(signal.SIGTERM)
        kinds, tokens, finished = [], 0, False
        with self.assertRaises(grpc.RpcError) as ended:
            for message in session.stream:
                kinds.append(message.WhichOneof("body"))
                for delta in message.step.deltas:
                    tokens += delta.token_count
                    finished = finished or bool(delta.finish)
        session.outgoing.put(None)
        self.assertIn("draining", kinds)
        self.assertTrue(finished)
        self.assertEqual(tokens, 200)
        self.assertEqual(ended.exception.code(), grpc.StatusCode.UNAVAILABLE)
        self.assertEqual(worker.wait(), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
