# SPDX-License-Identifier: Apache-2.0
"""A picker, a real Envoy that asks it, and model servers behind them."""

from __future__ import annotations

import http.client
import http.server
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest

import grpc
import yaml

from free_ports import free_ports
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


class PickerCase(unittest.TestCase):
    """Starts a picker, and an Envoy that asks it."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="stator-e2e-")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.messages, cls.health = load_protos(cls.folder.name)

    def start(self, endpoints: str, *arguments):
        self.file = pathlib.Path(tempfile.mkstemp(dir=self.folder.name, prefix="endpoints-")[1])
        self.file.write_text(endpoints)
        source = ("--endpoints", str(self.file)) if "--pool-name" not in arguments else ()
        picker = Stator("epp", *source, "--host", "127.0.0.1", "--grpc-port", "0", "--grpc-health-port", "0", "--drain-seconds", "0",
                        *arguments)
        self.addCleanup(picker.close)
        self.port, self.health_port = picker.port, picker.ready["grpc_health_port"]
        channel = grpc.insecure_channel(f"127.0.0.1:{self.port}")
        self.addCleanup(channel.close)
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
