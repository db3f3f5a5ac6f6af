#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`stator router`: the indexer, the slot tracker and the selection service over real HTTP, as other gateways use them."""

import json
import socket
import struct
import threading
import unittest

from free_ports import free_port
from stator_process import Http, Stator, eventually

BLOCK_0_OF_4 = 9143094415614847814  # tokens 0 … 3, from the reference's test vectors
BLOCK_1_OF_4 = 12124091508212882195


def stored(worker: int, *blocks: int, rank: int = 0) -> dict:
    """The event that says a worker holds these blocks, from the root on."""
    return {"worker_id": worker, "storage_tier": "device", "event": {"event_id": 1, "dp_rank": rank, "data": {"stored": {
        "parent_hash": None, "start_position": None,
        "blocks": [{"block_hash": 1000 + i, "tokens_hash": block} for i, block in enumerate(blocks)]}}}}


def pack(value: object) -> bytes:
    """MessagePack of what an engine's batch is made of."""
    if value is None:
        return b"\xc0"
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    if isinstance(value, int):
        return b"\xcf" + struct.pack(">Q", value)
    if isinstance(value, str):
        return bytes([0xA0 | len(value)]) + value.encode()
    return b"\xdc" + struct.pack(">H", len(value)) + b"".join(pack(item) for item in value)


class Publisher:
    """An engine's ZeroMQ publisher as far as one subscriber needs it: ZMTP 3.0, no security."""

    def __init__(self, rank: int = 0, port: int = 0):
        self.rank = rank
        self.listener = socket.create_server(("127.0.0.1", port))
        self.port = self.listener.getsockname()[1]
        self.endpoint = f"tcp://127.0.0.1:{self.port}"
        self.subscriber = None
        self.sequence = 0
        self.thread = threading.Thread(target=self._accept, daemon=True)
        self.thread.start()

    def _accept(self):
        peer, _ = self.listener.accept()
        peer.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32))
        received = b""
        while len(received) < 64:
            received += peer.recv(64 - len(received))
        ready = b"\x05READY\x0bSocket-Type" + struct.pack(">I", 3) + b"PUB"
        peer.sendall(bytes([4, len(ready)]) + ready)
        while b"READY" not in received or not received.endswith(b"\x00\x01\x01"):  # then: subscribe to everything
            received += peer.recv(4096)
        self.subscriber = peer

    def publish(self, *events: list):
        payload = pack([0.0, list(events), self.rank])
        frames = [b"", struct.pack(">Q", self.sequence), payload]
        self.sequence += 1
        for i, frame in enumerate(frames):
            more = 1 if i + 1 < len(frames) else 0
            self.subscriber.sendall(bytes([more | 2]) + struct.pack(">Q", len(frame)) + frame)

    def close(self):
        self.listener.close()
        if self.subscriber is not None:
            self.subscriber.close()


class ServiceTest(unittest.TestCase):
    def start(self, *arguments: str) -> Stator:
        process = Stator("router", "--host", "127.0.0.1", "--port", "0", "--threads", "2", *arguments)
        self.addCleanup(process.close)
        return process

    def check(self, expected: int, answer: tuple) -> object:
        self.assertEqual(answer[0], expected, answer)
        return answer[1]


class Indexer(ServiceTest):
    WORKER = {"instance_id": 7, "endpoint": "tcp://127.0.0.1:5557", "model_name": "m", "block_size": 4}

    def test_scores_dump_and_recovery_from_a_peer(self):
        first = self.start("--indexer")
        http = Http(first.port)
        self.check(404, http.post("/query", {"token_ids": [0, 1, 2, 3], "model_name": "m"}))
        self.check(201, http.post("/register", self.WORKER))
        self.check(409, http.post("/register", self.WORKER))
        self.check(400, http.post("/register", self.WORKER | {"instance_id": 8, "endpoint": "nowhere"}))
        self.check(200, http.post("/events", {
            "model_name": "m", "events": [stored(7, BLOCK_0_OF_4, BLOCK_1_OF_4), stored(9, BLOCK_0_OF_4, rank=1)]}))
        query = {"token_ids": list(range(9)), "model_name": "m"}
        scores = self.check(200, http.post("/query", query))
        self.assertEqual(scores, {
            "scores": {"7": {"0": 8}, "9": {"1": 4}}, "frequencies": [],
            "instances": {"7": {"longest_matched": 8, "gpu": 8, "dp": {"0": 8}, "cpu": 8, "disk": 8},
                          "9": {"longest_matched": 4, "gpu": 4, "dp": {"1": 4}, "cpu": 4, "disk": 4}}})
        by_hash = {"block_hashes": [BLOCK_0_OF_4, BLOCK_1_OF_4 - 2**64], "model_name": "m"}
        self.assertEqual(self.check(200, http.post("/query_by_hash", by_hash)), scores)
        self.check(400, http.post("/query_by_hash", by_hash | {"cache_salt": "x"}))
        self.assertEqual(self.check(200, http.get("/dump"))["m:default"]["block_size"], 4)

        second = self.start("--service", "indexer", "--peers", f"http://127.0.0.1:1,{first.url}")
        self.assertEqual(self.check(200, Http(second.port).post("/query", query)), scores)
        self.check(404, http.post("/unregister", {"instance_id": 7, "model_name": "m", "routing_group": "other"}))
        self.check(200, http.post("/unregister", {"instance_id": 7, "model_name": "m"}))  # of every group
        self.check(404, http.post("/unregister", {"instance_id": 7, "model_name": "m"}))
        self.assertEqual(list(self.check(200, http.post("/query", query))["scores"]), ["9"])
        self.assertGreater(http.metric("dynamo_kvindexer_requests_total", endpoint="/query"), 0)

    def test_follows_an_engine(self):
        engine = Publisher()
        self.addCleanup(engine.close)
        http = Http(self.start("--indexer", "--workers", f"7={engine.endpoint}", "--model-name", "m", "--block-size", "4").port)
        eventually(lambda: engine.subscriber, "the indexer subscribes")
        engine.publish(["BlockStored", [111, 222], None, list(range(8)), 4, None])
        query = {"token_ids": list(range(8)), "model_name": "m"}
        eventually(lambda: http.post("/query", query)[1]["scores"] == {"7": {"0": 8}}, "both blocks are known")
        self.assertEqual(http.get("/workers")[1][0]["status"], "active")
        engine.publish(["BlockRemoved", [222]])
        eventually(lambda: http.post("/query", query)[1]["scores"] == {"7": {"0": 4}}, "the second block is gone")
        engine.publish(["AllBlocksCleared"])
        eventually(lambda: http.post("/query", query)[1]["scores"] == {}, "everything is gone")

    def publisher(self, **arguments: int) -> Publisher:
        engine = Publisher(**arguments)
        self.addCleanup(engine.close)
        return engine

    def follow(self, http: Http, engine: Publisher) -> None:
        """As rank `engine.rank` of worker 7."""
        self.check(201, http.post("/register", self.WORKER | {"endpoint": engine.endpoint, "dp_rank": engine.rank}))
        eventually(lambda: engine.subscriber, "the indexer subscribes")

    def test_ranks_of_one_worker_publish_on_sockets_of_their_own(self):
        http = Http(self.start("--indexer").port)
        engines = [self.publisher(rank=rank) for rank in range(2)]
        for engine in engines:
            self.follow(http, engine)
        query = {"token_ids": list(range(8)), "model_name": "m"}

        def expect(scores: dict, what: str) -> None:
            eventually(lambda: http.post("/query", query)[1]["scores"] == scores, what)

        # The same names for the same content, as ranks of one engine have them.
        engines[0].publish(["BlockStored", [111, 222], None, list(range(8)), 4, None])
        engines[1].publish(["BlockStored", [111], None, list(range(4)), 4, None])
        expect({"7": {"0": 8, "1": 4}}, "each rank has its own")
        engines[0].publish(["BlockRemoved", [111]])
        expect({"7": {"1": 4}}, "what is removed at one stays at the other")
        engines[1].publish(["BlockStored", [222], 111, list(range(4, 8)), 4, None])
        expect({"7": {"1": 8}}, "what follows is stored behind its own rank's blocks")
        engines[1].publish(["AllBlocksCleared"])
        engines[0].publish(["BlockRemoved", [222]])
        engines[0].publish(["BlockStored", [111], None, list(range(4)), 4, None])
        expect({"7": {"0": 4}}, "clearing one leaves the other alone, and what was removed behind a gap stays removed")

    def test_an_engine_that_starts_over_under_its_id_has_what_it_tells_from_then_on(self):
        http = Http(self.start("--indexer").port)
        first = self.publisher(port=free_port())
        self.follow(http, first)
        query = {"token_ids": list(range(8)), "model_name": "m"}
        for at in range(3):
            first.publish(["BlockStored", [111, 222], None, list(range(8)), 4, None])
        eventually(lambda: http.post("/query", query)[1]["scores"] == {"7": {"0": 8}}, "it is known")
        first.close()
        second = self.publisher(port=first.port)
        eventually(lambda: second.subscriber, "the indexer subscribes again")
        second.publish(["BlockStored", [111], None, list(range(4)), 4, None])
        eventually(lambda: http.post("/query", query)[1]["scores"] == {"7": {"0": 4}}, "the second life's cache")

    def test_two_engines_cannot_have_one_id(self):
        http = Http(self.start("--indexer").port)
        engine, other = self.publisher(), self.publisher()
        self.follow(http, engine)
        self.check(409, http.post("/register", self.WORKER | {"endpoint": other.endpoint}))
        engine.publish(["BlockStored", [111], None, list(range(4)), 4, None])
        query = {"token_ids": list(range(4)), "model_name": "m"}
        eventually(lambda: http.post("/query", query)[1]["scores"] == {"7": {"0": 4}}, "the first one is followed")
        self.assertIsNone(other.subscriber)

    def test_pages_of_others_change_nothing(self):
        http = Http(self.start("--indexer").port)
        for origin in ("https://evil.example", "null"):
            self.assertEqual(http.request("POST", "/register", self.WORKER, {"Origin": origin})[0], 403)
        host = f"evil.example:{http.port}"
        self.assertEqual(http.request("POST", "/register", self.WORKER, {"Origin": f"http://{host}", "Host": host})[0], 403)
        self.check(201, http.post("/register", self.WORKER))

    def test_bodies_methods_and_paths_are_checked(self):
        http = Http(self.start("--indexer", "--access-log").port)
        self.assertEqual(http.request("POST", "/register", b"{")[0], 400)
        self.assertEqual(http.request("GET", "/register")[0], 405)
        self.assertEqual(http.request("GET", "/nothing")[0], 404)
        status, headers, _ = http.request("GET", "/health", headers={"x-trace-id": "t1"})
        self.assertEqual((status, headers["x-trace-id"]), (200, "t1"))
        with socket.create_connection(("127.0.0.1", http.port), timeout=120) as client:
            client.sendall(b"POST /query HTTP/1.1\r\nHost: x\r\nContent-Length: 8388609\r\n\r\n")
            self.assertIn(b" 413 ", client.recv(4096))


class Slots(ServiceTest):
    def test_a_request_from_its_prompt_to_its_end(self):
        http = Http(self.start("--slots").port)
        of_model = {"model_name": "org/m"}
        self.check(201, http.post("/register", of_model | {"worker_id": 7, "block_size": 16, "dp_start": 0, "dp_size": 2}))
        booking = of_model | {"request_id": "a", "worker_id": 7, "dp_rank": 1, "sequence_hashes": [1, -2], "new_isl_tokens": 40}
        self.check(201, http.post("/add", booking))
        self.check(409, http.post("/add", booking))
        self.check(404, http.post("/add", booking | {"request_id": "b", "dp_rank": 2}))
        loads = self.check(200, http.get("/loads?model_name=org%2Fm&routing_group=default"))
        self.assertEqual(loads[1], {"model_name": "org/m", "routing_group": "default", "worker_id": 7, "dp_rank": 1,
                                    "active_prefill_tokens": 40, "active_decode_blocks": 2, "active_requests": 1})
        potential = self.check(200, http.post("/potential_loads", of_model | {"sequence_hashes": [1, 3], "new_isl_tokens": 8}))
        self.assertEqual([load["potential_decode_blocks"] for load in potential], [2, 3])
        self.check(200, http.post("/prefill_complete", of_model | {"request_id": "a"}))
        self.check(200, http.post("/free", of_model | {"request_id": "a"}))
        self.assertEqual(self.check(200, http.get("/loads"))[1]["active_requests"], 0)

    def test_every_call_answers_as_the_reference_documents(self):
        http = Http(self.start("--slots").port)
        worker = {"worker_id": 7, "model_name": "m", "routing_group": "g", "block_size": 16, "dp_start": 0, "dp_size": 2}
        of = {"model_name": "m", "routing_group": "g"}
        self.assertEqual(self.check(201, http.post("/register", worker | {"tenant_id": "ignored"})), {"status": "ok"})
        for wrong in ({"block_size": 0}, {"dp_size": 0}, {"worker_id": 8, "dp_start": 2**32 - 1}):
            self.assertIn("error", self.check(400, http.post("/register", worker | wrong)))
        self.check(409, http.post("/register", worker))
        self.check(409, http.post("/register", worker | {"worker_id": 8, "block_size": 32}))
        self.assertEqual(self.check(200, http.get("/workers?model_name=m")), [worker])
        self.assertEqual(self.check(200, http.get("/workers?routing_group=default")), [])
        booking = of | {"request_id": "a", "worker_id": 7, "dp_rank": 0, "sequence_hashes": []}
        self.check(400, http.post("/add", {key: value for key, value in booking.items() if key != "sequence_hashes"}))
        self.check(404, http.post("/add", booking | {"routing_group": "default"}))
        self.check(404, http.post("/add", booking | {"worker_id": 9}))
        self.check(201, http.post("/add", booking))
        for _ in range(2):  # a repeated completion is a no-op
            self.check(200, http.post("/prefill_complete", of | {"request_id": "a"}))
        self.check(404, http.post("/prefill_complete", of | {"request_id": "b"}))
        for _ in range(2):  # free is idempotent as long as there is a tracker
            self.check(200, http.post("/free", of | {"request_id": "a"}))
        self.check(404, http.post("/free", {"model_name": "m", "request_id": "a"}))
        self.check(404, http.post("/potential_loads", {"model_name": "m", "sequence_hashes": []}))
        self.check(409, http.post("/replica_sync/register_peer", {"endpoint": "tcp://127.0.0.1:1"}))
        self.assertEqual(self.check(200, http.get("/replica_sync/peers")), [])
        self.check(200, http.post("/unregister", {"worker_id": 7} | of))
        self.check(404, http.post("/unregister", {"worker_id": 7} | of))
        self.assertEqual(self.check(200, http.get("/loads")), [])


class SlotReplicas(ServiceTest):
    """Two trackers that tell each other what they booked."""

    def test_each_counts_what_the_other_booked(self):
        first = self.start("--slots", "--replica-sync-port", "0")
        second = self.start("--slots", "--replica-sync-port", "0", "--replica-sync-peers", first.ready["replica_sync"])
        one, two = Http(first.port), Http(second.port)
        self.check(201, one.post("/replica_sync/register_peer", {"endpoint": second.ready["replica_sync"]}))
        self.check(200, one.post("/replica_sync/register_peer", {"endpoint": second.ready["replica_sync"]}))
        self.check(400, one.post("/replica_sync/register_peer", {"endpoint": "nowhere"}))
        self.assertEqual(one.get("/replica_sync/peers"), (200, [second.ready["replica_sync"]]))
        for http in (one, two):
            self.check(201, http.post("/register", {"worker_id": 7, "model_name": "m", "block_size": 16}))

        def load(http: Http) -> dict:
            return http.get("/loads?model_name=m")[1][0]

        self.check(201, one.post("/add", {"model_name": "m", "request_id": "a", "worker_id": 7, "dp_rank": 0,
                                          "sequence_hashes": [1, 2], "new_isl_tokens": 30}))
        eventually(lambda: load(two)["active_decode_blocks"] == 2 and load(two)["active_prefill_tokens"] == 30, "it is counted")
        self.check(201, two.post("/add", {"model_name": "m", "request_id": "a", "worker_id": 7, "dp_rank": 0,
                                          "sequence_hashes": [1, 3], "new_isl_tokens": 16}))
        eventually(lambda: load(one)["active_decode_blocks"] == 3, "the first block is shared")
        self.check(200, one.post("/prefill_complete", {"model_name": "m", "request_id": "a"}))
        eventually(lambda: load(two)["active_prefill_tokens"] == 16, "its prompt is computed")
        self.check(200, one.post("/free", {"model_name": "m", "request_id": "a"}))
        self.check(200, two.post("/free", {"model_name": "m", "request_id": "a"}))
        for http in (one, two):
            eventually(lambda http=http: load(http)["active_requests"] == 0, "all load is given back")
        self.check(200, one.post("/replica_sync/deregister_peer", {"endpoint": second.ready["replica_sync"]}))


class Select(ServiceTest):
    def test_begins_with_what_an_indexer_knows(self):
        indexer = self.start("--indexer")
        self.check(200, Http(indexer.port).post("/events", {
            "model_name": "m", "block_size": 4, "events": [stored(2, BLOCK_0_OF_4)]}))
        http = Http(self.start("--select", "--indexer-peers", f"http://127.0.0.1:1,{indexer.url}").port)
        for number in (1, 2):
            self.check(201, http.post("/workers", self.worker(number)))
        self.assertEqual(self.check(200, http.post("/select", self.PROMPT))["worker_id"], 2)

    def test_nothing_that_is_sent_ends_it(self):
        for service, call, body in (
                ("--indexer", "/register", Indexer.WORKER | {"dp_rank": 2**31}),
                ("--indexer", "/events", {"model_name": "m", "block_size": 4, "events": [stored(7, 1, rank=2**32 - 1)]}),
                ("--slots", "/register", {"worker_id": 1, "model_name": "m", "block_size": 4, "dp_start": 2**32 - 1}),
                ("--select", "/workers", self.worker(1) | {"data_parallel_start_rank": 2**30})):
            http = Http(self.start(service).port)
            self.check(400, http.post(call, body))
            self.check(200, http.get("/health"))
        http = Http(self.start("--select").port)  # a partition whose blocks differ from the worker's
        self.check(200, http.post("/events", {"model_name": "m", "block_size": 16, "events": [stored(7, 1)]}))
        self.check(409, http.post("/workers", self.worker(1)))
        self.check(404, http.post("/select", self.PROMPT))

    PROMPT = {"model_name": "m", "token_ids": list(range(16))}

    def worker(self, number: int) -> dict:
        return {"worker_id": number, "model_name": "m", "endpoint": f"http://w{number}", "block_size": 4,
                "kv_events_endpoint": f"tcp://127.0.0.1:{5000 + number}"}

    def test_selecting_booking_and_freeing(self):
        http = Http(self.start("--select", "--router-active-prefill-tokens-threshold", "12").port)
        self.check(503, http.get("/ready"))
        for number in (1, 2):
            self.check(201, http.post("/workers", self.worker(number)))
        ready = self.check(200, http.get("/ready"))
        self.assertEqual((ready["ready"], ready["schedulable_workers"], len(ready["workers"])), (True, 2, 2))
        self.check(200, http.post("/events", {"model_name": "m", "events": [stored(2, BLOCK_0_OF_4)]}))
        chosen = self.check(200, http.post("/select", self.PROMPT | {"selection_id": "s"}))
        self.assertEqual((chosen["worker_id"], chosen["overlap"]["gpu"], chosen["effective_prefill_tokens"]), (2, 4, 12))
        self.check(201, http.post("/reservations", {"selection_id": "s", "model_name": "m"}))
        self.check(404, http.post("/reservations", {"selection_id": "s", "model_name": "m"}))
        booked = self.check(200, http.post("/select_and_reserve", self.PROMPT))
        self.assertEqual(booked["worker_id"], 1, "the other has 12 tokens to compute")
        other = self.check(200, http.post("/select_and_reserve", self.PROMPT))
        self.assertEqual(other["worker_id"], 2, "at the threshold, not beyond it")
        self.check(429, http.post("/select", self.PROMPT))
        status, _, _ = http.request("POST", f"/reservations/{other['selection_id']}/prefill_complete")
        self.assertEqual(status, 200)
        self.check(200, http.post("/select", self.PROMPT))
        for reservation in ("s", booked["selection_id"], other["selection_id"]):
            self.assertEqual(http.request("DELETE", f"/reservations/{reservation}")[0], 200)
        for load in self.check(200, http.get("/loads"))[0]["loads"]:
            self.assertEqual((load["potential_prefill_tokens"], load["potential_decode_blocks"]), (0, 0))
        self.assertEqual(http.request("DELETE", "/workers/1")[0], 200)

    def test_every_call_answers_as_the_reference_documents(self):
        http = Http(self.start("--select").port)
        record = self.check(201, http.post("/workers", {"worker_id": 1, "endpoint": "http://w1", "data_parallel_size": 2}))
        self.assertEqual((record["model_name"], record["routing_group"], record["lifecycle"]), ("default", "default", "incomplete"))
        not_ready = self.check(503, http.get("/ready"))
        self.assertEqual((not_ready["ready"], not_ready["schedulable_workers"]), (False, 0))
        self.assertEqual(len(not_ready["workers"][0]["not_schedulable_reasons"]), 3, "block size, and where each rank's events are")
        endpoints = {"0": "tcp://127.0.0.1:5001", "1": "tcp://127.0.0.1:5002"}
        patch = http.request("PATCH", "/workers/1", {"block_size": 4, "kv_events_endpoints": endpoints, "taints": ["gpu"]})
        self.assertEqual(patch[0], 200)
        record = json.loads(patch[2])
        self.assertEqual((record["lifecycle"], record["kv_events_endpoints"], record["taints"]), ("schedulable", endpoints, ["gpu"]))
        self.assertEqual(self.check(200, http.get("/workers?model_name=default&routing_group=default")), [record])
        self.assertEqual(self.check(200, http.get("/workers?model_name=other")), [])
        self.check(200, http.post("/events", {"model_name": "default", "events": [
            stored(1, BLOCK_0_OF_4, rank=1),
            {"worker_id": 1, "storage_tier": "host_pinned", "event": {"event_id": 2, "dp_rank": 1, "data": {"stored": {
                "parent_hash": 1000, "blocks": [{"block_hash": 1001, "tokens_hash": BLOCK_1_OF_4}]}}}}]}))

        prompt = {"token_ids": list(range(16))}
        chosen = self.check(200, http.post("/select", prompt | {"selection_id": "s"}))
        self.assertEqual(chosen, {
            "selection_id": "s", "model_name": "default", "routing_group": "default", "worker_id": 1, "dp_rank": 1,
            "endpoint": "http://w1", "block_size": 4, "effective_prefill_tokens": 9, "potential_decode_blocks": 4,
            "overlap": {"longest_matched": 8, "gpu": 4, "dp": {"1": 4}, "cpu": 8, "disk": 8}})
        self.assertNotIn("selection_id", self.check(200, http.post("/select", prompt)))
        other = self.check(200, http.post("/select", prompt | {"pinned_worker": {"worker_id": 1, "dp_rank": 0}}))
        self.assertEqual((other["dp_rank"], other["overlap"]["dp"]["0"]), (0, 0), "nothing there, and it says so")
        hashes = {"block_hashes": [BLOCK_0_OF_4, -5], "sequence_hashes": [-21, 22], "isl_tokens": 8}
        by_hash = self.check(200, http.post("/select", hashes))
        self.assertEqual((by_hash["dp_rank"], by_hash["effective_prefill_tokens"]), (1, 4))
        rows = self.check(200, http.post("/overlap_scores", prompt))
        self.assertEqual((rows["block_size"], rows["num_blocks"], rows["shared_cache"]["enabled"]), (4, 4, False))
        self.assertEqual(rows["workers"][1], {
            "worker_id": 1, "dp_rank": 1, "device_blocks": 1, "host_pinned_blocks": 2, "disk_blocks": 2,
            "host_pinned_extension_blocks": 1, "disk_extension_blocks": 0, "shared_beyond_device_blocks": None,
            "router_credit_blocks": 1.75})
        self.assertEqual(rows["workers"][0]["device_blocks"], 0, "a rank that has nothing is there, too")

        booked = self.check(201, http.post("/reservations", {"selection_id": "s"}))
        self.assertEqual((booked["worker_id"], booked["dp_rank"], booked["endpoint"]), (1, 1, "http://w1"))
        loads = self.check(200, http.get("/loads"))
        self.assertEqual(loads, [{"model_name": "default", "routing_group": "default", "pending_count": 0, "pending_isl_tokens": 0, "loads": [
            {"worker_id": 1, "dp_rank": 0, "potential_prefill_tokens": 0, "potential_decode_blocks": 0, "active_requests": 0},
            {"worker_id": 1, "dp_rank": 1, "potential_prefill_tokens": 9, "potential_decode_blocks": 4, "active_requests": 1}]}])
        self.assertEqual(self.check(200, http.get("/loads?routing_group=other")), [])
        potential = self.check(200, http.post("/potential_loads", prompt))
        self.assertEqual([load["potential_decode_blocks"] for load in potential], [4, 4], "what is shared counts once")
        mine = hashes | {"selection_id": "x", "worker_id": 1, "dp_rank": 0, "effective_prefill_tokens": 5}
        self.check(400, http.post("/reservations", mine | {"effective_prefill_tokens": 9}))
        self.check(404, http.post("/reservations", mine | {"worker_id": 9}))
        self.assertEqual(self.check(201, http.post("/reservations", mine))["sequence_hashes"], [-21, 22])
        self.check(409, http.post("/reservations", mine))
        self.check(400, http.post("/reservations/x/output_block", {"decay_fraction": 1.5}))
        self.check(200, http.post("/reservations/x/output_block", {"decay_fraction": 0.5}))
        for path in ("/reservations/y/prefill_complete", "/reservations/y/output_block"):
            self.check(404, http.post(path, {}))
        self.assertEqual(http.request("DELETE", "/reservations/x")[0], 200)
        self.check(400, http.post("/select", {}))
        self.check(404, http.post("/select", prompt | {"model_name": "other"}))
        self.check(503, http.post("/select", prompt | {"routing_constraints": {"required_taints": ["tpu"]}}))
        self.check(200, http.post("/select", prompt | {"routing_constraints": {"required_taints": ["gpu"]}}))
        gone = http.request("DELETE", "/workers/1")
        self.assertEqual((gone[0], json.loads(gone[2])["worker_id"]), (200, 1))
        self.assertEqual(http.request("DELETE", "/workers/1")[0], 404)


if __name__ == "__main__":
    unittest.main()
