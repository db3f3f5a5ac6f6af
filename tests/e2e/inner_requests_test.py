# SPDX-License-Identifier: Apache-2.0
"""Requests that come inside others (over a WebSocket, a gRPC stream, in a batch, in the background) count for their tenant and are written down, each."""

import http.client
import json
import pathlib
import tempfile
import unittest

import numpy
import tritonclient.grpc as triton
from websockets.sync.client import connect

from access_test import ask, key
from stator_process import MODEL, MODEL_DIR, Stator, eventually


class InnerRequests(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.keys, lines = {}, []
        for tenant in ("socket", "stream", "batch", "later", "free"):
            cls.keys[tenant], line = key("user", tenant)
            lines.append(line)
        (cls.folder / "keys").write_text("\n".join(lines) + "\n")
        (cls.folder / "tenants").write_text("socket requests_per_minute=3\nstream requests_per_minute=3\n")
        cls.access_log = cls.folder / "access.log"
        cls.server = Stator("serve", str(MODEL_DIR), "--engine", "sim", "--sim-speedup", "0", "--port", "0", "--host", "127.0.0.1", "--admin-port", "0",
                            "--api-keys", str(cls.folder / "keys"), "--tenants", str(cls.folder / "tenants"), "--access-log", str(cls.access_log),
                            "--batches-folder", str(cls.folder / "batches"))
        cls.addClassCleanup(cls.server.kill)
        cls.port = cls.server.port

    def lines(self, **wanted) -> list[dict]:
        found = [json.loads(line) for line in self.access_log.read_text().splitlines()]
        return [line for line in found if all(line.get(k) == v for k, v in wanted.items())]

    def test_a_web_socket(self):
        with connect(f"ws://127.0.0.1:{self.port}/v1/responses", additional_headers={"x-api-key": self.keys["socket"]}) as socket:
            outcomes = []
            for i in range(5):
                socket.send(json.dumps({"type": "response.create", "model": MODEL, "input": f"Hello {i}", "max_output_tokens": 3}))
                for message in socket:
                    event = json.loads(message)
                    if event["type"] in ("response.completed", "response.incomplete", "error"):
                        outcomes.append(event.get("status") or event["type"])
                        break
            self.assertEqual(outcomes[3:], [429, 429], outcomes)
            lines = eventually(lambda: (found := self.lines(tenant="socket", path="/v1/responses", model=MODEL)) and len(found) == 3 and found, "a line each")
            self.assertEqual({line["status"] for line in lines}, {200})
            self.assertEqual(len({line["request_id"] for line in lines}), 3)
            self.assertTrue(all(line["output_tokens"] == 3 and line["client"] == "127.0.0.1" and line["key_id"] for line in lines), lines)
        eventually(lambda: self.lines(tenant="socket", method="GET", status=101), "the socket's own line")

    def test_a_stream_of_grpc(self):
        client = triton.InferenceServerClient(f"127.0.0.1:{self.port}")
        answers = []
        client.start_stream(callback=lambda result, error: answers.append(error), headers={"x-api-key": self.keys["stream"]})
        for i in range(5):
            text = triton.InferInput("text_input", [1], "BYTES")
            text.set_data_from_numpy(numpy.array([f"hello {i}".encode()], dtype=object))
            client.async_stream_infer(MODEL, [text], parameters={"max_tokens": 3}, enable_empty_final_response=True)
        eventually(lambda: sum(error is not None for error in answers) == 2, "two are too many")
        client.stop_stream()
        client.close()
        self.assertTrue(all("requests_per_minute" in str(error) for error in answers if error is not None), answers)
        eventually(lambda: len(self.lines(tenant="stream", model=MODEL, status=200)) == 3, "a line each")

    def test_infer_has_one_line_at_once(self):
        body = {"inputs": [{"name": "text_input", "datatype": "BYTES", "shape": [1], "data": ["hi"]}], "parameters": {"max_tokens": 3}}
        self.assertEqual(ask(self.port, "POST", f"/v2/models/{MODEL}/infer", body, x_api_key=self.keys["free"])[0], 200)
        line = eventually(lambda: self.lines(path=f"/v2/models/{MODEL}/infer"), "its line")
        self.assertEqual([(one["tenant"], one["output_tokens"], one["status"]) for one in line], [("free", 3, 200)])
        client = triton.InferenceServerClient(f"127.0.0.1:{self.port}")
        text = triton.InferInput("text_input", [1], "BYTES")
        text.set_data_from_numpy(numpy.array([b"hi"], dtype=object))
        client.infer(MODEL, [text], parameters={"max_tokens": 3}, headers={"x-api-key": self.keys["free"]})
        client.close()
        eventually(lambda: self.lines(path="/inference.GRPCInferenceService/ModelInfer", output_tokens=3), "its line")

    def test_a_batch(self):
        """Its lines run for its owner, who may not choose a worker there either."""
        secret = self.keys["batch"]
        line = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions",
                "body": {"model": MODEL, "messages": [{"role": "user", "content": "x"}], "max_tokens": 3, "nvext": {"backend_instance_id": 99}}}
        boundary = "----b"
        form = (f"--{boundary}\r\ncontent-disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--{boundary}\r\n"
                f"content-disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n{json.dumps(line)}\n\r\n--{boundary}--\r\n")
        status, body = self.raw("POST", "/v1/files", form, f"multipart/form-data; boundary={boundary}", secret)
        self.assertEqual(status, 200, body)
        made = ask(self.port, "POST", "/v1/batches", {"input_file_id": json.loads(body)["id"], "endpoint": "/v1/chat/completions", "completion_window": "24h"},
                   x_api_key=secret)
        self.assertEqual(made[0], 200, made)
        path = f"/v1/batches/{json.loads(made[2])['id']}"
        done = eventually(lambda: (b := json.loads(ask(self.port, "GET", path, x_api_key=secret)[2]))["status"] == "completed" and b, "it is done")
        self.assertEqual((done["request_counts"]["completed"], done["request_counts"]["failed"]), (1, 0), done)
        line = eventually(lambda: self.lines(client="batch"), "its line")[0]
        self.assertEqual((line["tenant"], line["status"], line["output_tokens"], line["role"]), ("batch", 200, 3, "user"))

    def test_in_the_background(self):
        made = ask(self.port, "POST", "/v1/responses", {"model": MODEL, "input": "x", "background": True, "max_output_tokens": 3}, x_api_key=self.keys["later"])
        self.assertEqual(made[0], 200, made)
        line = eventually(lambda: self.lines(tenant="later", model=MODEL), "its line")[0]
        self.assertEqual((line["output_tokens"], line["path"]), (3, "/v1/responses"))

    def test_a_refused_request_says_whose_and_why(self):
        ask(self.port, "POST", "/v1/chat/completions", {"model": "nope", "messages": [{"role": "user", "content": "x"}]}, x_api_key=self.keys["free"],
            x_request_id="refused-1")
        line = eventually(lambda: self.lines(x_request_id="refused-1"), "its line")[0]
        self.assertTrue(line["request_id"])
        self.assertEqual((line["error_type"], line["tenant"]), ("validation" if line["status"] == 400 else "not_found", "free"))

    def raw(self, method: str, path: str, body: str, kind: str, secret: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(method, path, body.encode(), {"content-type": kind, "x-api-key": secret})
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        return answer.status, data


if __name__ == "__main__":
    unittest.main()
