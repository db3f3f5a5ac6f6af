# SPDX-License-Identifier: Apache-2.0
"""A real Envoy that asks an endpoint picker over TLS where each request goes."""

from __future__ import annotations

import importlib.util
import pathlib
import subprocess

import yaml

from control_plane import _die_with_parent, free_ports
from rig import clean_environment


class Envoy:
    def __init__(self, folder: pathlib.Path, picker_host: str, picker_port: int):
        binary = pathlib.Path(importlib.util.find_spec("envoy").submodule_search_locations[0]) / "_bin" / "envoy"
        gateway, base = free_ports(2)
        typed = "type.googleapis.com/envoy.extensions"
        duplex = {"request_header_mode": "SEND", "response_header_mode": "SEND", "request_body_mode": "FULL_DUPLEX_STREAMED",
                  "response_body_mode": "FULL_DUPLEX_STREAMED", "request_trailer_mode": "SEND", "response_trailer_mode": "SEND"}
        picker = {"name": "picker", "type": "STATIC", "connect_timeout": "1s", "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": f"{typed}.upstreams.http.v3.HttpProtocolOptions", "explicit_http_config": {"http2_protocol_options": {}}}},
            "transport_socket": {"name": "tls", "typed_config": {  # as gateways do: encrypted, whoever signed it
                "@type": f"{typed}.transport_sockets.tls.v3.UpstreamTlsContext", "common_tls_context": {
                    "alpn_protocols": ["h2"]}}},
            "load_assignment": {"cluster_name": "picker", "endpoints": [{"lb_endpoints": [{"endpoint": {"address": {
                "socket_address": {"address": picker_host, "port_value": picker_port}}}}]}]}}
        models = {"name": "models", "type": "ORIGINAL_DST", "lb_policy": "CLUSTER_PROVIDED", "connect_timeout": "1s",
                  "original_dst_lb_config": {"use_http_header": True, "http_header_name": "x-gateway-destination-endpoint"}}
        manager = {"@type": f"{typed}.filters.network.http_connection_manager.v3.HttpConnectionManager", "stat_prefix": "in",
                   "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
                       {"match": {"prefix": "/"}, "route": {"cluster": "models", "timeout": "60s"}}]}]},
                   "http_filters": [
                       {"name": "ext_proc", "typed_config": {
                           "@type": f"{typed}.filters.http.ext_proc.v3.ExternalProcessor", "message_timeout": "10s",
                           "grpc_service": {"envoy_grpc": {"cluster_name": "picker"}}, "processing_mode": duplex}},
                       {"name": "router", "typed_config": {"@type": f"{typed}.filters.http.router.v3.Router"}}]}
        config = {"static_resources": {"clusters": [picker, models], "listeners": [{
            "name": "in", "address": {"socket_address": {"address": "127.0.0.1", "port_value": gateway}},
            "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}]}]}}
        file = folder / "envoy.yaml"
        file.write_text(yaml.safe_dump(config))
        self.port, self.log = gateway, open(file.with_suffix(".log"), "wb")
        self.process = subprocess.Popen([str(binary), "-c", str(file), "--base-id", str(base), "--concurrency", "1", "-l", "warn"],
                                        stdout=self.log, stderr=self.log, env=clean_environment(), preexec_fn=_die_with_parent)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.log.close()
