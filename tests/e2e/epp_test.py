#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`stator epp`: a gateway's messages over gRPC."""

import json
import pathlib
import queue
import socket
import ssl
import threading
import unittest

import grpc

from free_ports import free_ports
from gateway_rig import PickerCase
from kube_api import KubeApi
from stator_process import Http, eventually


class Picker(PickerCase):
    def test_one_request_as_a_gateway_tells_it(self):
        self.start("10.0.0.1:8000\n10.0.0.2:8000\n")
        text = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x" * 100_000}]}).encode()
        pieces = [text[i:i + 30_000] for i in range(0, len(text), 30_000)]
        requests = [self.headers(), *(self.body(piece, piece is pieces[-1]) for piece in pieces)]
        answers = list(self.call(iter(requests), timeout=60))
        chosen = self.destination(answers[0].request_headers.response)
        self.assertIn(chosen, ("10.0.0.1:8000", "10.0.0.2:8000"))
        self.assertEqual(answers[0].dynamic_metadata["envoy.lb"]["x-gateway-destination-endpoint"], chosen)
        back = [answer.request_body.response.body_mutation.streamed_response for answer in answers[1:]]
        self.assertEqual(b"".join(piece.body for piece in back), text)
        self.assertTrue(back[-1].end_of_stream)

    def test_equal_beginnings_go_to_one_endpoint_and_nobody_is_503(self):
        picker = self.start("".join(f"10.0.0.{n}:8000\n" for n in range(1, 9)))
        text = json.dumps({"model": "m", "prompt": "y" * 5000}).encode()
        chosen = {self.destination(next(iter(self.call(iter([self.headers(), self.body(text, True)]), timeout=60)))
                                   .request_headers.response) for _ in range(8)}
        self.assertEqual(len(chosen), 1)
        self.file.write_text("endpoints: []")
        eventually(lambda: next(iter(self.call(iter([self.headers(end=True)]), timeout=60)))
                   .immediate_response.status.code == 503, "nobody is left")
        picker.terminate()
        self.assertEqual(picker.wait(), 0)

    def test_pods_that_were_there_before_the_picker_are_chosen(self):
        pool_is_watched = threading.Event()

        class LatePods(KubeApi):
            def watch(self, handler, plural, space, query):
                if plural == "inferencepools":
                    pool_is_watched.set()
                super().watch(handler, plural, space, query)

            def act(self, method, plural, *rest):
                if (method, plural) == ("GET", "pods"):
                    pool_is_watched.wait(60)
                return super().act(method, plural, *rest)
        api = LatePods()
        self.addCleanup(api.close)
        api.put("inferencepools", {"metadata": {"name": "pool"}, "spec": {
            "selector": {"matchLabels": {"app": "w"}}, "targetPorts": [{"number": 8000}]}})
        api.put("pods", {"metadata": {"name": "one", "labels": {"app": "w"}}, "status": {
            "podIP": "10.0.0.7", "conditions": [{"type": "Ready", "status": "True"}]}})
        config = pathlib.Path(self.folder.name) / "kubeconfig"
        api.write_kubeconfig(config)
        self.start("", "--pool-name", "pool", "--pool-namespace", "llm", "--kubeconfig", str(config))
        eventually(lambda: self.destination(next(iter(self.call(iter([self.headers(end=True)]), timeout=60)))
                                            .request_headers.response) == "10.0.0.7:8000", "the pod is chosen")

    def test_wrong_modes_fail_with_the_mode_to_set(self):
        self.start("10.0.0.1:8000")
        request = self.headers()
        request.protocol_config.request_body_mode = 1
        with self.assertRaises(grpc.RpcError) as raised:
            list(self.call(iter([request]), timeout=60))
        self.assertEqual(raised.exception.code(), grpc.StatusCode.FAILED_PRECONDITION)
        self.assertIn("FULL_DUPLEX_STREAMED", raised.exception.details())

    def test_tls_with_a_certificate_of_its_own(self):
        self.start("10.0.0.1:8000", "--secure-serving")
        # The authority is not sent along: what gateways do is encrypt without asking who it is.
        self.assertIn("BEGIN CERTIFICATE", ssl.get_server_certificate(("127.0.0.1", self.port)))
        context = ssl._create_unverified_context()
        context.set_alpn_protocols(["h2"])
        with socket.create_connection(("127.0.0.1", self.port)) as plain, context.wrap_socket(plain) as secure:
            self.assertEqual((secure.version(), secure.selected_alpn_protocol()), ("TLSv1.3", "h2"))
        with grpc.insecure_channel(f"127.0.0.1:{self.port}") as channel, self.assertRaises(grpc.FutureTimeoutError):
            grpc.channel_ready_future(channel).result(1)

    def test_bodies_split_anywhere_up_to_twenty_megabytes(self):
        self.start("10.0.0.1:8000")
        for size, cuts in ((1, [1]), (20_000_000, [1, 61_999, 62_001, 1 << 20, 20_000_001]), (300_000, list(range(0, 300_000, 997)))):
            text = json.dumps({"model": "m", "prompt": "\u00e4" * (size // 6)}).encode()
            edges = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
            pieces = [text[a:b] for a, b in zip(edges, edges[1:])]
            pieces = [part for piece in pieces for part in (piece[i:i + 4_000_000] for i in range(0, len(piece), 4_000_000))]
            answers = list(self.call(iter([self.headers(), *(self.body(piece, i == len(pieces) - 1) for i, piece in enumerate(pieces))]),
                                     timeout=120))
            self.assertEqual(self.destination(answers[0].request_headers.response), "10.0.0.1:8000")
            back = [answer.request_body.response.body_mutation.streamed_response for answer in answers[1:]]
            self.assertEqual(b"".join(piece.body for piece in back), text)
            self.assertLessEqual(max(len(piece.body) for piece in back), 62_000)
        over = [self.body(b" " * 4_000_000, False) for _ in range(6)]
        answers = list(self.call(iter([self.headers(), *over]), timeout=120))
        self.assertEqual(answers[0].immediate_response.status.code, 413)

    def test_what_an_answer_used_is_counted(self):
        health, = free_ports(1)
        self.start(json.dumps({"endpoints": ["10.0.0.1:8000"], "rewrites": {"alias": "real"}}), "--health-port", str(health))
        answer = self.messages.ProcessingRequest()
        answer.response_headers.headers.headers.add(key="content-type", raw_value=b"text/event-stream")
        events = (b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
                  b'data: {"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":9,"prompt_tokens_details":{"cached_tokens":64}}}\n\n')
        pieces = []
        for at in range(0, len(events), 13):
            piece = self.messages.ProcessingRequest()
            piece.response_body.body = events[at:at + 13]
            piece.response_body.end_of_stream = at + 13 >= len(events)
            pieces.append(piece)
        body = b'{"model":"alias","prompt":"hello"}'
        got = list(self.call(iter([self.headers(), self.body(body, True), answer, *pieces]), timeout=60))
        back = b"".join(each.response_body.response.body_mutation.streamed_response.body for each in got)
        self.assertEqual(back, events)
        refused = list(self.call(iter([self.headers(), self.body(b"{", True)]), timeout=60))
        self.assertEqual(refused[0].immediate_response.status.code, 400)
        labels = '{model_name="alias",target_model_name="real"}'
        wanted = {f"inference_objective_request_total{labels}": 1, f"inference_objective_running_requests{labels}": 0,
                  f"inference_objective_input_tokens_sum{labels}": 100, f"inference_objective_output_tokens_sum{labels}": 9,
                  f"inference_objective_prompt_cached_tokens_sum{labels}": 64,
                  f"inference_objective_response_sizes_sum{labels}": len(events),
                  f"inference_objective_request_sizes_sum{labels}": len(body),
                  f"inference_objective_request_ttft_seconds_count{labels}": 1,
                  f"inference_objective_request_tpot_seconds_count{labels}": 1,
                  f"inference_objective_normalized_time_per_output_token_seconds_count{labels}": 1,
                  f"inference_objective_request_duration_seconds_count{labels}": 1,
                  f"inference_extension_model_rewrite_decisions_total{labels}": 1,
                  'inference_objective_request_error_total{model_name="",target_model_name="",error_code="400"}': 1,
                  'inference_extension_scheduler_attempts_total{status="success"}': 1,
                  'inference_pool_ready_pods{name=""}': 1, 'inference_pool_average_running_requests{name=""}': 0}

        def counted():
            text = Http(health).request("GET", "/metrics")[2].decode()
            there = dict(line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
            self.seen = {name: there.get(name) for name in wanted}
            return all(self.seen[name] is not None and float(self.seen[name]) == value for name, value in wanted.items())
        eventually(counted, lambda: self.seen)

    def test_more_than_allowed_at_once_is_503(self):
        self.start("10.0.0.1:8000", "--in-flight-max", "1")
        held: queue.Queue = queue.Queue()
        held.put(self.headers(end=True))
        first = self.call(iter(held.get, None), timeout=60)
        self.assertTrue(next(first).HasField("request_headers"))
        second = next(iter(self.call(iter([self.headers(end=True)]), timeout=60)))
        self.assertEqual(second.immediate_response.status.code, 503)
        held.put(None)
        eventually(lambda: next(iter(self.call(iter([self.headers(end=True)]), timeout=60))).HasField("request_headers"), "there is room again")

    def test_workers_of_the_pool_are_named_to_the_frontend_beside_them(self):
        self.start(json.dumps([{"address": "10.0.0.1:8000", "instance": 77, "dp_rank": 1},
                               {"address": "10.0.0.2:8000", "instance": 78, "dp_rank": 0, "role": "prefill"}]))
        headers = next(iter(self.call(iter([self.headers(end=True)]), timeout=60))).request_headers.response.header_mutation.set_headers
        told = {option.header.key: option.header.raw_value.decode() for option in headers}
        self.assertEqual(told, {"x-gateway-destination-endpoint": "10.0.0.1:8000", "x-dynamo-worker-instance-id": "77", "x-dynamo-dp-rank": "1",
                                "x-dynamo-routing-mode": "disaggregated", "x-prefiller-host-port": "10.0.0.2:8000",
                                "x-dynamo-prefill-instance-id": "78", "x-dynamo-prefill-dp-rank": "0"})

    def test_health_answers_every_name(self):
        self.start("10.0.0.1:8000")
        with grpc.insecure_channel(f"127.0.0.1:{self.health_port}") as channel:
            check = channel.unary_unary("/grpc.health.v1.Health/Check", self.health.HealthCheckRequest.SerializeToString,
                                        self.health.HealthCheckResponse.FromString)
            for name in ("", "liveness", "readiness", "inference-extension", "whatever"):
                self.assertEqual(check(self.health.HealthCheckRequest(service=name), timeout=60).status, 1, name)


if __name__ == "__main__":
    unittest.main()
