#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A whole Stator worker in one file: its model repeats the prompt, a token per step. docs/howto/write_a_worker.md explains it."""

import argparse
import asyncio
import base64
import json
import pathlib
import random
import signal
import sys
import time
import urllib.request

import grpc

sys.path[0] = str(pathlib.Path(__file__).resolve().parents[2] / "src/stator/proto")  # where grpcio-tools looks
pb, rpc = grpc.protos_and_services("worker/v1/worker.proto")
MAX_RUNNING, LOAD_INTERVAL_S, DRAIN_S = 64, 0.1, 25.0


class Sequence:
    """One request. The token at offset i is a function of the request alone, so any worker can take it up anywhere."""
    def __init__(self, submit):
        self.key = {"request": submit.request, "attempt": submit.attempt}
        self.prompt = submit.tokens[:len(submit.tokens) - submit.generated]
        self.offset = submit.generated  # so far an earlier attempt came, at another worker
        self.end = submit.stop.max_tokens if submit.stop.ignore_eos else min(submit.stop.max_tokens, len(self.prompt))
        self.deadline = time.monotonic() + submit.deadline_ms / 1000 if submit.deadline_ms else float("inf")

    def step(self, out):
        """Adds its part of the step; false when that was the last."""
        if time.monotonic() > self.deadline:
            out.failures.add(**self.key, code="deadline", message=b"no time left")
            return False
        delta = out.deltas.add(**self.key, offset=self.offset, token_count=int(self.offset < self.end))
        if delta.token_count:
            out.tokens.append(self.prompt[self.offset % len(self.prompt)])
            self.offset += 1
        if self.offset >= self.end:
            delta.finish = pb.FINISH_REASON_STOP if self.end == len(self.prompt) else pb.FINISH_REASON_LENGTH
        return self.offset < self.end


class Session:
    """One frontend shard's stream: one message per step, however many requests run."""
    def __init__(self, stream, kv_blocks, step_s):
        self.stream, self.kv_blocks, self.step_s, self.draining, self.running = stream, kv_blocks, step_s, False, {}
        self.work, self.writing = asyncio.Event(), asyncio.Lock()

    async def send(self, **body):
        async with self.writing:
            await self.stream.write(pb.WorkerMessage(**body))  # waits while the frontend does not read

    async def take(self, message):
        if message.WhichOneof("body") == "cancel":
            self.running.pop((message.cancel.request, message.cancel.attempt), None)
        elif message.WhichOneof("body") == "submit":
            submit, code = message.submit, None
            if len(submit.tokens) <= submit.generated or submit.structured_outputs:
                code = "invalid_argument"
            elif self.draining or len(self.running) >= MAX_RUNNING:
                code = "draining" if self.draining else "overloaded"  # the frontend asks another worker
            key = {"request": submit.request, "attempt": submit.attempt}
            if code:
                await self.send(rejected=pb.Rejected(**key, code=code, message=b"refused by the example worker"))
            else:
                await self.send(accepted=pb.Accepted(**key))
                self.running[submit.request, submit.attempt] = Sequence(submit)
                self.work.set()

    async def run(self):
        told_at = 0.0
        while True:
            if not self.running or time.monotonic() - told_at >= LOAD_INTERVAL_S:
                await self.send(load=pb.LoadReport(kv_total_blocks=self.kv_blocks, running=len(self.running)))
                told_at = time.monotonic()
            self.work.clear()
            if not self.running:
                await self.work.wait()
            await asyncio.sleep(self.step_s)
            step = pb.StepOutput()
            self.running = {key: sequence for key, sequence in self.running.items() if sequence.step(step)}
            if step.deltas or step.failures:
                await self.send(step=step)


class Worker(rpc.WorkerServicer):
    def __init__(self, record, step_s):
        self.record, self.step_s, self.sessions = record, step_s, set()

    async def Session(self, _, stream):
        hello, me = (await stream.read()).hello, (self.record["instance_id"], self.record["incarnation"])
        if hello.protocol != 1 or hello.worker_id not in (0, me[0]) or hello.incarnation not in (0, me[1]):
            await stream.abort(grpc.StatusCode.FAILED_PRECONDITION, f"this is worker {me[0]}, incarnation {me[1]}")
        session = Session(stream, self.record["model"]["total_kv_blocks"], self.step_s)
        await session.send(welcome=pb.Welcome(protocol=1, worker_id=me[0], incarnation=me[1]))
        self.sessions.add(session)
        engine = asyncio.create_task(session.run())
        try:
            while (message := await stream.read()) is not grpc.aio.EOF:
                await session.take(message)
        finally:  # the frontend is gone: so are its requests
            engine.cancel()
            self.sessions.discard(session)

    async def Events(self, request, stream):  # no prefix cache: an empty snapshot says so, and nothing ever changes
        await stream.write(pb.EventBatch(incarnation=self.record["incarnation"], kind=pb.BATCH_KIND_SNAPSHOT_LAST))
        await asyncio.Event().wait()


class FileStore:
    def __init__(self, folder, key, _):
        self.path = pathlib.Path(folder) / "instances" / key.replace("/", "%2F")
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # frontends trust no folder that others may write to

    def publish(self, record):
        temporary = self.path.with_name(f".tmp_{record['instance_id']:016x}")
        temporary.write_text(json.dumps(record))
        temporary.rename(self.path)  # appears whole, or not at all

    renew = publish  # what nobody writes for --lease-ttl is taken for dead

    def withdraw(self):
        self.path.unlink(missing_ok=True)


class EtcdStore:
    def __init__(self, address, key, ttl_s):
        host, _, root = address.removeprefix("//").partition("/")
        self.url, self.key, self.ttl_s = f"http://{host.split(',')[0]}/v3/", f"{root or 'stator'}/v1/instances/{key}", ttl_s

    def call(self, method, **body):
        with urllib.request.urlopen(self.url + method, json.dumps(body).encode(), timeout=2) as answer:
            return json.load(answer)

    def publish(self, record):
        self.lease = self.call("lease/grant", TTL=self.ttl_s)["ID"]
        key, value = (base64.b64encode(text.encode()).decode() for text in (self.key, json.dumps(record)))
        self.call("kv/put", key=key, value=value, lease=self.lease)

    def renew(self, record):
        if "TTL" not in self.call("lease/keepalive", ID=self.lease)["result"]:
            self.publish(record)  # the store forgot us

    def withdraw(self):
        self.call("lease/revoke", ID=self.lease)


def make_record(model, name, address):
    config = json.loads((pathlib.Path(model) / "config.json").read_text())
    context = config["max_position_embeddings"]
    return {"schema": 1, "namespace": "default", "component": "backend", "endpoint": "generate", "address": address,
            "instance_id": random.SystemRandom().randrange(1, 1 << 53), "incarnation": time.time_ns(), "state": "ready",
            "model": {"name": name, "source": str(pathlib.Path(model).resolve()), "context_length": context,
                      "kv_block_size": 16, "total_kv_blocks": MAX_RUNNING * context // 16, "max_num_seqs": MAX_RUNNING,
                      "max_num_batched_tokens": context, "vocab_size": config["vocab_size"], "engine_kind": "python"}}


async def serve(options):
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    server = grpc.aio.server(options=[("grpc.http2.min_ping_interval_without_data_ms", 1000)])
    record = make_record(options.model, options.name, f"{options.host}:{server.add_insecure_port(options.host + ':0')}")
    worker = Worker(record, options.step_ms / 1000)
    rpc.add_WorkerServicer_to_server(worker, server)
    await server.start()  # before anybody is told of it
    kind, _, place = options.discovery.partition(":")
    key = f"default/backend/generate/{record['instance_id']:x}"
    store = (FileStore if kind == "file" else EtcdStore)(place, key, options.lease_ttl)
    store.publish(record)
    print(json.dumps({"ready": True, "worker_id": str(record["instance_id"]), "address": record["address"]}), flush=True)
    while not stop.is_set():
        await asyncio.wait([asyncio.create_task(stop.wait())], timeout=options.lease_ttl / 3)
        try:
            await asyncio.to_thread(store.renew, record)
        except OSError as error:
            print(f"discovery: {error}", file=sys.stderr)  # served on without it
    store.publish(record | {"state": "draining"})
    for session in list(worker.sessions):
        session.draining = True
        await session.send(draining=pb.Draining())
    give_up = time.monotonic() + DRAIN_S
    while any(session.running for session in worker.sessions) and time.monotonic() < give_up:
        await asyncio.sleep(0.02)
    store.withdraw()
    await server.stop(grace=0.5)  # requests that still run go on at other workers


parser = argparse.ArgumentParser(description="A Stator worker whose model repeats the prompt.")
parser.add_argument("model", help="folder with the tokenizer and chat template that frontends are to use")
parser.add_argument("--name", default="parrot", help="what clients write as \"model\"")
parser.add_argument("--discovery", required=True, help="file:DIR or etcd://HOST:PORT[/ROOT], as the frontends'")
parser.add_argument("--lease-ttl", type=int, default=10, help="seconds; as the frontends' --discovery-lease-ttl")
parser.add_argument("--host", default="127.0.0.1", help="address of this machine that frontends can reach")
parser.add_argument("--step-ms", type=float, default=10, help="time between two tokens of a request")
asyncio.run(serve(parser.parse_args()))
