#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`stator epp`: a gateway's messages over gRPC, and a real Envoy in front of two model servers."""

import http.client
import http.server
import importlib.util
import json
import pathlib
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import unittest

import grpc
import yaml

from free_ports import free_ports
from kube_api import KubeApi
from stator_process import Stator, clean_environment, eventually

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROCESS = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"


def load_protos(folder: str):
    """The messages, compiled from our own subset of Envoy's API."""
    for proto in ("envoy/v3/ext_proc", "health/v1/health"):
        subprocess.run([sys.executable, "-m", "grpc_tools.protoc", f"-I{ROOT}/src", f"--python_out={folder}",
                        f"stator/proto/{proto}.proto"], check=True, cwd=ROOT)
    sys.path.insert(0, folder)
    from stator.proto.envoy.v3 import ext_proc_pb2
    from stator.proto.health.v1 import health_pb2
    return ext_proc_pb2, health_pb2


class ModelServer:
    """Answers with its own port, what it was sent, and a stream of three events."""

    def __init__(self):
        outer = self
        self.bodies: list[bytes] = []

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *arguments):
                pass

            def do_POST(self):
                if self.headers.get("transfer-encoding"):
                    body = b""
                    while size := int(self.rfile.readline(), 16):
                        body += self.rfile.read(size)
                        self.rfile.readline()
                    self.rfile.readline()
                else:
                    body = self.rfile.read(int(self.headers.get("content-length") or 0))
                outer.bodies.append(body)
                answer = b"".join(b"data: %d\n\n" % n for n in range(3))
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("served-by", str(outer.port))
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        return self.server.server_address[1]

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Picker(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="stator-e2e-")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.messages, cls.health = load_protos(cls.folder.name)

    def start(self, endpoints: str, *arguments):
        self.port, self.health_port = free_ports(2)
        self.file = pathlib.Path(self.folder.name) / f"endpoints-{self.port}"
        self.file.write_text(endpoints)
        source = ("--endpoints", str(self.file)) if "--pool-name" not in arguments else ()
        picker = Stator("epp", *source, "--host", "127.0.0.1", "--grpc-port", str(self.port),
                        "--grpc-health-port", str(self.health_port), "--drain-seconds", "0", *arguments, announce=False)
        self.addCleanup(picker.close)
        channel = grpc.insecure_channel(f"127.0.0.1:{self.port}")
        self.addCleanup(channel.close)
        grpc.channel_ready_future(channel).result(60)
        self.call = channel.stream_stream(PROCESS, self.messages.ProcessingRequest.SerializeToString,
                                          self.messages.ProcessingResponse.FromString)
        return picker

    def headers(self, end=False, **fields):
        request = self.messages.ProcessingRequest(**fields)
        request.request_headers.end_of_stream = end
        request.request_headers.headers.headers.add(key=":path", raw_value=b"/v1/chat/completions")
        return request

    def body(self, data: bytes, end: bool):
        request = self.messages.ProcessingRequest()
        request.request_body.body = data
        request.request_body.end_of_stream = end
        return request

    @staticmethod
    def destination(common) -> str:
        return next((option.header.raw_value.decode() for option in common.header_mutation.set_headers
                     if option.header.key == "x-gateway-destination-endpoint"), "")

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
        self.port, self.health_port = free_ports(2)
        file = pathlib.Path(self.folder.name) / "secure"
        file.write_text("10.0.0.1:8000")
        picker = Stator("epp", "--endpoints", str(file), "--host", "127.0.0.1", "--grpc-port", str(self.port), "--grpc-health-port",
                        str(self.health_port), "--drain-seconds", "0", "--secure-serving", announce=False)
        self.addCleanup(picker.close)
        certificate = eventually(lambda: ssl.get_server_certificate(("127.0.0.1", self.port)), "it serves TLS")
        # The authority is not sent along: what gateways do is encrypt without asking who it is. Here the health port tells.
        self.assertIn("BEGIN CERTIFICATE", certificate)
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

    def test_health_answers_every_name(self):
        self.start("10.0.0.1:8000")
        with grpc.insecure_channel(f"127.0.0.1:{self.health_port}") as channel:
            check = channel.unary_unary("/grpc.health.v1.Health/Check", self.health.HealthCheckRequest.SerializeToString,
                                        self.health.HealthCheckResponse.FromString)
            for name in ("", "liveness", "readiness", "inference-extension", "whatever"):
                self.assertEqual(check(self.health.HealthCheckRequest(service=name), timeout=60).status, 1, name)

    def start_envoy(self, fail_open=False):
        binary = pathlib.Path(importlib.util.find_spec("envoy").submodule_search_locations[0]) / "_bin" / "envoy"
        self.gateway, = free_ports(1)
        base, = free_ports(1)
        typed = "type.googleapis.com/envoy.extensions"
        duplex = {"request_header_mode": "SEND", "response_header_mode": "SEND",
                  "request_body_mode": "FULL_DUPLEX_STREAMED", "response_body_mode": "FULL_DUPLEX_STREAMED",
                  "request_trailer_mode": "SEND", "response_trailer_mode": "SEND"}
        if fail_open:  # Envoy has no such thing for duplex bodies
            duplex.update(request_body_mode="BUFFERED", response_body_mode="NONE", request_trailer_mode="SKIP",
                          response_trailer_mode="SKIP")
        picker = {"name": "picker", "type": "STATIC", "connect_timeout": "1s", "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": f"{typed}.upstreams.http.v3.HttpProtocolOptions",
                "explicit_http_config": {"http2_protocol_options": {}}}},
            "load_assignment": {"cluster_name": "picker", "endpoints": [{"lb_endpoints": [{"endpoint": {"address": {
                "socket_address": {"address": "127.0.0.1", "port_value": self.port}}}}]}]}}
        models = {"name": "models", "type": "ORIGINAL_DST", "lb_policy": "CLUSTER_PROVIDED", "connect_timeout": "1s",
                  "original_dst_lb_config": {"use_http_header": True,
                                             "http_header_name": "x-gateway-destination-endpoint"}}
        manager = {"@type": f"{typed}.filters.network.http_connection_manager.v3.HttpConnectionManager",
                   "stat_prefix": "in", "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
                       {"match": {"prefix": "/"}, "route": {"cluster": "models", "timeout": "30s"}}]}]},
                   "http_filters": [
                       {"name": "ext_proc", "typed_config": {
                           "@type": f"{typed}.filters.http.ext_proc.v3.ExternalProcessor",
                           "grpc_service": {"envoy_grpc": {"cluster_name": "picker"}}, "message_timeout": "10s",
                           "failure_mode_allow": fail_open, "processing_mode": duplex}},
                       {"name": "router", "typed_config": {"@type": f"{typed}.filters.http.router.v3.Router"}}]}
        config = {"static_resources": {"clusters": [picker, models], "listeners": [{
            "name": "in", "address": {"socket_address": {"address": "127.0.0.1", "port_value": self.gateway}},
            "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}]}]}}
        file = pathlib.Path(self.folder.name) / f"envoy-{self.gateway}.yaml"
        file.write_text(yaml.safe_dump(config))
        log = open(file.with_suffix(".log"), "wb")
        envoy = subprocess.Popen([str(binary), "-c", str(file), "--base-id", str(base), "--concurrency", "1", "-l", "warn"],
                                 stdout=log, stderr=log, env=clean_environment())
        self.addCleanup(log.close)
        self.addCleanup(envoy.wait)
        self.addCleanup(envoy.kill)
        eventually(lambda: self.send(b"")[0], f"Envoy is up: {file.with_suffix('.log').read_text()}")

    def send(self, body: bytes, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.gateway, timeout=60)
        try:
            connection.request("POST", "/v1/chat/completions", body, headers or {"content-type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.headers.get("served-by"), answer.read()
        finally:
            connection.close()

    def test_envoy_sends_each_request_where_the_picker_says(self):
        servers = [ModelServer(), ModelServer()]
        for server in servers:
            self.addCleanup(server.close)
        picker = self.start("".join(f"127.0.0.1:{server.port}\n" for server in servers))
        self.start_envoy()
        for size in (1, 10_000, 70_000, 3_000_000):
            text = json.dumps({"model": "m", "prompt": "z" * size}).encode()
            status, served, body = self.send(text)
            self.assertEqual(status, 200, body)
            self.assertEqual(body, b"data: 0\n\ndata: 1\n\ndata: 2\n\n")
            server = next(each for each in servers if str(each.port) == served)
            self.assertEqual(server.bodies[-1], text)
        # A client cannot choose its own endpoint.
        status, served, _ = self.send(b'{"prompt":"q"}', {"x-gateway-destination-endpoint": "127.0.0.1:1"})
        self.assertEqual(status, 200)
        status, _, body = self.send(b"{nonsense")
        self.assertEqual((status, json.loads(body)["error"]["code"]), (400, 400))
        self.file.write_text("[]")
        eventually(lambda: self.send(b'{"prompt":"q"}')[0] == 503, "nobody is left")
        picker.kill()
        self.assertGreaterEqual(self.send(b'{"prompt":"q"}')[0], 500)  # closed


if __name__ == "__main__":
    unittest.main()
