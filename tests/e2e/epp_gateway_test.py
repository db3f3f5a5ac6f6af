#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`stator epp` behind a real Envoy: what the Gateway API Inference Extension's conformance asks of a gateway with a picker."""

import json
import unittest

from gateway_rig import ModelServer, PickerCase
from stator_process import eventually


class Gateway(PickerCase):
    def servers(self, count: int) -> list[ModelServer]:
        made = [ModelServer() for _ in range(count)]
        for server in made:
            self.addCleanup(server.close)
        return made

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

    def test_it_follows_the_picker_and_tells_who_served(self):
        """GatewayFollowingEPPRouting, also WithDataParallelism (ports of one address), GatewayDestinationEndpointServed."""
        servers = self.servers(3)
        addresses = [f"127.0.0.1:{server.port}" for server in servers]
        self.start("\n".join(addresses), "--test-mode")
        self.start_envoy()
        for chosen in (*addresses, addresses[0]):
            status, served, _ = self.send(b'{"prompt":"q"}', {"test-epp-endpoint-selection": chosen})
            self.assertEqual((status, f"127.0.0.1:{served}"), (200, chosen))
        picked = {self.send(b'{"prompt":"q"}', {"test-epp-endpoint-selection": ",".join(addresses[:2])})[1] for _ in range(10)}
        self.assertLessEqual(picked, {str(server.port) for server in servers[:2]})
        # All ports of an address; an endpoint that is not there is nobody.
        self.assertEqual(self.send(b'{"prompt":"q"}', {"test-epp-endpoint-selection": "127.0.0.1"})[0], 200)
        self.assertEqual(self.send(b'{"prompt":"q"}', {"test-epp-endpoint-selection": "10.9.9.9:1"})[0], 503)

    def test_closed_or_open_when_the_picker_is_away(self):
        """EppUnAvailableFailOpen: another endpoint is chosen by the gateway; FailClose: 5xx."""
        server, = self.servers(1)
        picker = self.start(f"127.0.0.1:{server.port}")
        self.start_envoy(fail_open=True)
        self.assertEqual(self.send(b'{"prompt":"q"}')[0], 200)
        picker.kill()
        # The gateway goes on by itself: this one has no other way to choose than the header, which the client brings.
        eventually(lambda: self.send(b'{"prompt":"q"}', {"x-gateway-destination-endpoint": f"127.0.0.1:{server.port}"})[0] == 200,
                   "the gateway goes on without the picker")

    def test_bodies_of_any_size_come_as_they_were_sent(self):
        server, = self.servers(1)
        self.start(f"127.0.0.1:{server.port}")
        self.start_envoy()
        for size in (1, 61_999, 62_000, 62_001, 65_536, 1 << 20, (1 << 20) + 1, 19_000_000):
            text = json.dumps({"prompt": "z" * size}).encode()
            status, _, _ = self.send(text)
            self.assertEqual((status, len(server.bodies[-1])), (200, len(text)))
            self.assertEqual(server.bodies[-1], text)


if __name__ == "__main__":
    unittest.main()
