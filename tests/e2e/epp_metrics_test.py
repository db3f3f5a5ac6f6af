#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`stator epp` and what its endpoints say of themselves: a queue of others' requests, a full cache, adapters."""

import http.server
import json
import threading
import unittest
import urllib.request

from free_ports import free_ports
from gateway_rig import PickerCase
from stator_process import eventually


class Metrics:
    """A model server of which only the metrics are asked."""

    def __init__(self):
        outer = self
        self.text, self.asked = "", 0

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *arguments):
                pass

            def do_GET(self):
                outer.asked += self.path == "/stats"
                data = outer.text.encode()
                self.send_response(200 if self.path == "/stats" else 404)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.address = f"127.0.0.1:{self.server.server_address[1]}"

    def say(self, **values) -> None:
        names = {"waiting": "num_requests_waiting", "running": "num_requests_running", "cache": "kv_cache_usage_perc"}
        self.text = "".join(f'vllm:{names[key]}{{engine="0"}} {value}\n' for key, value in values.items() if key in names)
        if "adapters" in values:
            self.text += f'vllm:lora_requests_info{{max_lora="2",running_lora_adapters="{values["adapters"]}",waiting_lora_adapters=""}} 1.0\n'

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


class ServersSpeak(PickerCase):
    def setUp(self):
        self.busy, self.idle = Metrics(), Metrics()
        self.addCleanup(self.busy.close)
        self.addCleanup(self.idle.close)
        self.health, = free_ports(1)
        self.start(f"endpoints: [\"{self.busy.address}\", \"{self.idle.address}\"]\nobjectives: {{background: -1}}\n",
                   "--health-port", str(self.health), "--model-server-metrics-path", "/stats", "--refresh-metrics-interval", "20ms")
        self.number = 0

    def ask(self, model: str = "m", objective: str = ""):
        self.number += 1
        request = self.headers()
        if objective:
            request.request_headers.headers.headers.add(key="x-gateway-inference-objective", raw_value=objective.encode())
        text = json.dumps({"model": model, "prompt": f"{self.number} " * 200}).encode()
        answer = next(iter(self.call(iter([request, self.body(text, True)]), timeout=60)))
        if answer.HasField("immediate_response"):
            return answer.immediate_response.status.code
        return self.destination(answer.request_headers.response)

    def gauge(self, name: str) -> float | None:
        text = urllib.request.urlopen(f"http://127.0.0.1:{self.health}/metrics", timeout=60).read().decode()
        return next((float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name + "{")), None)

    def told(self, *servers: Metrics) -> None:
        """Waits until what they say now has been read."""
        for server in servers:
            seen = server.asked
            eventually(lambda server=server, seen=seen: server.asked >= seen + 2, "the metrics are read")

    def test_queues_caches_and_adapters_bear_on_the_choice(self):
        self.busy.say(waiting=40, running=8, cache=0.5)
        self.idle.say(waiting=0, running=0, cache=0.1)
        eventually(lambda: (self.gauge("inference_pool_average_queue_size"), self.gauge("inference_pool_average_kv_cache_utilization")) == (20, 0.3),
                   "the averages of both are told")
        self.assertEqual(self.gauge("inference_pool_average_running_requests"), 4)
        self.assertEqual({self.ask() for _ in range(6)}, {self.idle.address})
        # Saturated, all of them: what may wait is refused, the rest goes on.
        self.idle.say(waiting=0, running=0, cache=0.9)
        eventually(lambda: self.ask(objective="background") == 429, "requests of low priority are shed")
        self.assertEqual(self.ask(), self.idle.address)
        # An adapter is where it is.
        self.busy.say(waiting=1, running=2, cache=0.2, adapters="poet,critic")
        self.idle.say(waiting=0, running=0, cache=0.1, adapters="lawyer")
        self.told(self.busy, self.idle)
        self.assertEqual([self.ask(model) for model in ("poet", "lawyer", "critic")], [self.busy.address, self.idle.address, self.busy.address])


if __name__ == "__main__":
    unittest.main()
