#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`stator epp` that counts in tokens, hears what endpoints have cached, and tells other pickers of its choices."""

import json
import os
import pathlib
import queue
import subprocess
import tempfile
import unittest

os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"  # pickers are started while channels are open
import grpc

from free_ports import free_ports
from gateway_rig import PROCESS, load_protos
from router_services_test import Publisher
from stator_process import BINARY, MODEL_DIR, Stator, clean_environment, eventually

TOKENS = list(range(256))  # 64 blocks of 4
HASHES = [1000 + number for number in range(64)]


class Tokens(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.messages, _ = load_protos(self.folder.name)

    def picker(self, endpoints: str, *more: str) -> grpc.Channel:
        """Its port is its own choice: of ports that were free a moment ago one may be taken by now."""
        file = pathlib.Path(tempfile.mkstemp(dir=self.folder.name)[1])
        file.write_text(endpoints)
        picker = Stator("epp", "--endpoints", str(file), "--host", "127.0.0.1", "--grpc-port", "0", "--grpc-health-port", "-1",
                        "--drain-seconds", "0", "--model", str(MODEL_DIR), "--kv-block-size", "4", *more)
        self.addCleanup(picker.close)
        channel = grpc.insecure_channel(f"127.0.0.1:{picker.port}")
        self.addCleanup(channel.close)
        return channel

    def ask(self, channel, prompt, subset="", path="/v1/completions", hold=False, headers=()):
        """(the chosen endpoint, the body as it goes on); a held stream keeps its booking until the returned call is cancelled."""
        head, body = self.messages.ProcessingRequest(), self.messages.ProcessingRequest()
        for key, value in ((":path", path), *headers):
            head.request_headers.headers.headers.add(key=key, raw_value=value.encode())
        if subset:
            hint = head.metadata_context.filter_metadata["envoy.lb.subset_hint"]
            hint.fields["x-gateway-destination-endpoint-subset"].string_value = subset
        key = "messages" if path.endswith("chat/completions") else "prompt"
        body.request_body.body = json.dumps({"model": "demo", key: prompt}).encode()
        body.request_body.end_of_stream = True
        to_send: queue.Queue = queue.Queue()
        for each in (head, body):
            to_send.put(each)
        call = channel.stream_stream(PROCESS, self.messages.ProcessingRequest.SerializeToString,
                                     self.messages.ProcessingResponse.FromString)(iter(to_send.get, None), timeout=120)
        chosen, text = "", b""
        for answer in call:
            if answer.HasField("immediate_response"):
                chosen, text = str(answer.immediate_response.status.code), answer.immediate_response.body
                break
            for option in answer.request_headers.response.header_mutation.set_headers:
                if option.header.key == "x-gateway-destination-endpoint":
                    chosen = option.header.raw_value.decode()
            if answer.HasField("request_body"):
                piece = answer.request_body.response.body_mutation.streamed_response
                text += piece.body
                if piece.end_of_stream:
                    break
        if hold:
            self.addCleanup(to_send.put, None)
            self.addCleanup(call.cancel)
        else:
            to_send.put(None)
            for _ in call:
                pass
        return chosen, text

    def test_a_prompt_goes_where_its_tokens_are_cached(self):
        engines = [Publisher(), Publisher()]
        for each in engines:
            self.addCleanup(each.close)
        addresses = ["10.1.0.1:8000", "10.1.0.2:8000"]
        channel = self.picker(json.dumps([{"address": address, "events": engine.endpoint} for address, engine in zip(addresses, engines)]),
                              "--kv-events")
        for each in engines:
            eventually(lambda each=each: each.subscriber, "the picker listens")
        for address, engine, other in ((addresses[1], engines[1], engines[0]), (addresses[0], engines[0], engines[1])):
            other.publish(["AllBlocksCleared"])
            engine.publish(["BlockStored", HASHES, None, TOKENS, 4, None])
            eventually(lambda address=address: {self.ask(channel, TOKENS + [7, number])[0] for number in range(5)} == {address},
                       f"all go to {address}")

    def test_what_the_template_refuses_is_a_bad_request(self):
        channel = self.picker('["10.1.0.1:8000"]')
        chosen, body = self.ask(channel, "no list", path="/v1/chat/completions")
        self.assertEqual(chosen, "400")
        self.assertIn("messages", body.decode())
        chosen, body = self.ask(channel, [{"role": "user", "content": "hi"}], path="/v1/chat/completions",
                                headers=[("x-gateway-model-name-rewrite", "other")])
        self.assertEqual((chosen, json.loads(body)["model"]), ("10.1.0.1:8000", "other"))

    def test_a_worker_with_an_instance_is_sent_the_tokens(self):
        channel = self.picker('[{"address": "10.1.0.1:8000", "instance": 7}]')
        _, body = self.ask(channel, "The router keeps what it has seen", headers=[])
        sent = json.loads(body)
        self.assertEqual(sent["prompt"], "The router keeps what it has seen")
        tokens = sent["nvext"]["token_data"]
        counted = subprocess.run([BINARY, "tokenize", "--tokenizer", str(MODEL_DIR)], input=sent["prompt"], env=clean_environment(),
                                 capture_output=True, text=True, check=True)
        self.assertEqual(tokens, json.loads(counted.stdout)["tokens"])
        # What came as tokens goes as it is.
        self.assertNotIn("nvext", json.loads(self.ask(channel, TOKENS)[1]))

    def test_pickers_tell_each_other_of_their_choices(self):
        addresses = ["10.1.0.1:8000", "10.1.0.2:8000"]
        replicas = free_ports(2)
        peers = ",".join(f"127.0.0.1:{each}" for each in replicas)
        one, two = (self.picker(json.dumps(addresses), "--replica-port", str(replica), "--replica-peers", peers) for replica in replicas)
        # One of them gives its first endpoint a lot to do; the other one was asked nothing, and knows.
        for number in range(16):
            self.assertEqual(self.ask(one, [number] * 400, subset=addresses[0], hold=True)[0], addresses[0])
        eventually(lambda: {self.ask(two, [1000 + number] * 40)[0] for number in range(6)} == {addresses[1]}, "the other picker avoids it")


if __name__ == "__main__":
    unittest.main()
