#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""KServe v2 by Triton's own clients, unmodified: gRPC and HTTP, text and token ids, streams, metadata, errors."""

import queue
import unittest

import grpc
import numpy as np
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http
from free_ports import free_ports
from stator_process import MODEL, MODEL_DIR, Http, Stator
from tritonclient.utils import InferenceServerException

PARAMETERS = {"max_tokens": 8, "temperature": 0.0}


def text_input(module, text: str = "Hello", name: str = "text_input"):
    tensor = module.InferInput(name, [1], "BYTES")
    tensor.set_data_from_numpy(np.array([text.encode()], dtype=object))
    return tensor


def flag(module, value: bool, name: str = "streaming"):
    tensor = module.InferInput(name, [1], "BOOL")
    tensor.set_data_from_numpy(np.array([value]))
    return tensor


class Kserve(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        grpc_port = free_ports(1)[0]
        cls.server = Stator("serve", str(MODEL_DIR), "--port", "0", "--log", "warn", "--kserve-grpc-server", "--kserve-grpc-port", str(grpc_port))
        cls.addClassCleanup(cls.server.close)
        cls.plain = Http(cls.server.port)
        cls.grpc = triton_grpc.InferenceServerClient(f"127.0.0.1:{cls.server.port}")
        cls.other_port = triton_grpc.InferenceServerClient(f"127.0.0.1:{grpc_port}")
        cls.http = triton_http.InferenceServerClient(f"127.0.0.1:{cls.server.port}")
        for client in (cls.grpc, cls.other_port, cls.http):
            cls.addClassCleanup(client.close)

    def completion(self, prompt) -> str:
        status, answer = self.plain.post("/v1/completions", {"model": MODEL, "prompt": prompt} | PARAMETERS)
        self.assertEqual(status, 200, answer)
        return answer["choices"][0]["text"]

    def refused(self, code: str, call) -> str:
        with self.assertRaises(InferenceServerException) as raised:
            call()
        self.assertEqual(raised.exception.status(), code, raised.exception)
        return raised.exception.message()

    def test_health_and_metadata(self):
        for client in (self.grpc, self.other_port, self.http):
            self.assertTrue(client.is_server_live())
            self.assertTrue(client.is_server_ready())
            self.assertTrue(client.is_model_ready(MODEL))
        metadata = self.grpc.get_model_metadata(MODEL, as_json=True)
        self.assertEqual(metadata["inputs"][0], {"name": "text_input", "datatype": "BYTES", "shape": ["1"]})
        self.assertEqual(self.http.get_model_metadata(MODEL)["outputs"][0]["name"], "text_output")
        self.assertTrue(self.grpc.get_model_config(MODEL, as_json=True)["config"]["model_transaction_policy"]["decoupled"])
        self.assertTrue(self.http.get_model_config(MODEL)["model_transaction_policy"]["decoupled"])
        self.assertEqual(self.grpc.get_server_metadata(as_json=True)["name"], "stator")
        self.assertEqual(self.http.get_server_metadata()["name"], "stator")

    def test_text_in_text_out(self):
        wanted = self.completion("Hello")
        for module, client in ((triton_grpc, self.grpc), (triton_grpc, self.other_port), (triton_http, self.http)):
            answer = client.infer(MODEL, [text_input(module)], request_id="r-1", parameters=PARAMETERS)
            self.assertEqual(answer.as_numpy("text_output")[0].decode(), wanted)
            self.assertEqual(answer.as_numpy("finish_reason")[0], b"length")

    def test_token_ids_in_and_out(self):
        ids = self.plain.post("/tokenize", {"model": MODEL, "prompt": "The router"})[1]["tokens"]
        wanted = self.completion(ids)
        for module, client, binary in ((triton_grpc, self.grpc, None), (triton_http, self.http, True), (triton_http, self.http, False)):
            tensor = module.InferInput("input_ids", [1, len(ids)], "INT32")
            array = np.array([ids], dtype=np.int32)
            tensor.set_data_from_numpy(array) if binary is None else tensor.set_data_from_numpy(array, binary_data=binary)
            answer = client.infer(MODEL, [tensor], parameters=PARAMETERS)
            self.assertEqual(answer.as_numpy("text_output")[0].decode(), wanted)
            self.assertEqual(len(answer.as_numpy("output_ids")), 8)

    def test_outputs_that_are_asked_for(self):
        answer = self.http.infer(MODEL, [text_input(triton_http)], parameters=PARAMETERS,
                                 outputs=[triton_http.InferRequestedOutput("text_output", binary_data=False)])
        self.assertIsNone(answer.as_numpy("finish_reason"))
        self.assertEqual(answer.as_numpy("text_output")[0], self.completion("Hello"))

    def stream(self, requests) -> list:
        answers: queue.Queue = queue.Queue()
        client = triton_grpc.InferenceServerClient(f"127.0.0.1:{self.server.port}")
        client.start_stream(callback=lambda result, error: answers.put((result, error)))
        for request in requests:
            client.async_stream_infer(MODEL, **request)
        client.stop_stream()
        client.close()
        return list(answers.queue)

    def test_a_decoupled_stream(self):
        wanted = self.completion("Hello")
        answers = self.stream([{"inputs": [text_input(triton_grpc), flag(triton_grpc, True)], "request_id": "s", "parameters": PARAMETERS,
                                "enable_empty_final_response": True}])
        self.assertTrue(all(error is None for _, error in answers), answers)
        parts = [result for result, _ in answers]
        self.assertGreater(len(parts), 3)
        self.assertTrue(parts[-1].get_response().parameters["triton_final_response"].bool_param)
        self.assertEqual({part.get_response().id for part in parts}, {"s"})
        text = b"".join(part.as_numpy("text_output")[0] for part in parts[:-1])
        self.assertEqual(text.decode(), wanted)
        self.assertEqual(parts[-2].as_numpy("finish_reason")[0], b"length")

    def test_many_requests_on_one_stream(self):
        answers = self.stream([{"inputs": [text_input(triton_grpc, f"Hello {i}")], "request_id": str(i), "parameters": PARAMETERS} for i in range(20)]
                              + [{"inputs": [text_input(triton_grpc, name="unknown")], "request_id": "bad"}])
        errors = [error for _, error in answers if error is not None]
        self.assertEqual(len(errors), 1)
        self.assertIn("unknown", errors[0].message())
        texts = {result.get_response().id: result.as_numpy("text_output")[0].decode() for result, error in answers if error is None}
        self.assertEqual(texts, {str(i): self.completion(f"Hello {i}") for i in range(20)})

    def test_errors(self):
        infer = self.grpc.infer
        self.assertIn("absent", self.refused("StatusCode.NOT_FOUND", lambda: infer("absent", [text_input(triton_grpc)])))
        self.refused("StatusCode.NOT_FOUND", lambda: infer(MODEL, [text_input(triton_grpc)], model_version="7"))
        for inputs in ([text_input(triton_grpc, name="prompt")], [], [text_input(triton_grpc), flag(triton_grpc, True)], [flag(triton_grpc, True, "text_input")]):
            self.refused("StatusCode.INVALID_ARGUMENT", lambda inputs=inputs: infer(MODEL, inputs))
        self.refused("StatusCode.INVALID_ARGUMENT", lambda: infer(MODEL, [text_input(triton_grpc)], parameters={"temperature": 9.0}))
        self.refused("StatusCode.DEADLINE_EXCEEDED", lambda: infer(MODEL, [text_input(triton_grpc)], parameters={"max_tokens": 1500, "ignore_eos": True}, client_timeout=0.01))
        self.refused("404", lambda: self.http.infer("absent", [text_input(triton_http)]))
        self.refused("400", lambda: self.http.infer(MODEL, [text_input(triton_http, name="prompt")]))
        with grpc.insecure_channel(f"127.0.0.1:{self.server.port}") as channel, self.assertRaises(grpc.RpcError) as raised:
            channel.unary_unary("/inference.GRPCInferenceService/RepositoryIndex")(b"")
        self.assertEqual(raised.exception.code(), grpc.StatusCode.UNIMPLEMENTED)

    def test_the_generate_extension(self):
        wanted = self.completion("Hello")
        status, answer = self.plain.post(f"/v2/models/{MODEL}/generate", {"text_input": "Hello", "id": "g", "parameters": PARAMETERS})
        self.assertEqual((status, answer), (200, {"id": "g", "model_name": MODEL, "model_version": "1", "text_output": wanted, "finish_reason": "length"}))
        self.assertEqual(self.plain.post(f"/v2/models/{MODEL}/versions/1/generate", {"text_input": "Hello"} | PARAMETERS)[1]["text_output"], wanted)
        status, headers, body = self.plain.request("POST", f"/v2/models/{MODEL}/generate_stream", {"text_input": "Hello"} | PARAMETERS)
        self.assertEqual((status, headers["content-type"].split(";")[0]), (200, "text/event-stream"))
        import json
        events = [json.loads(line[6:]) for line in body.decode().split("\n\n") if line.startswith("data: ")]
        self.assertEqual("".join(event["text_output"] for event in events), wanted)

    def test_errors_have_the_protocols_shape(self):
        for method, path, body, status in (("POST", f"/v2/models/{MODEL}/generate", {}, 400), ("POST", "/v2/models/absent/generate", {"text_input": "x"}, 404),
                                           ("POST", f"/v2/models/{MODEL}/infer", {"inputs": 1}, 400), ("GET", "/v2/models/absent", None, 404),
                                           ("GET", "/v2/health/absent", None, 404), ("GET", f"/v2/models/{MODEL}/infer", None, 405)):
            got, _, raw = self.plain.request(method, path, body)
            import json
            self.assertEqual((got, list(json.loads(raw))), (status, ["error"]), (path, raw))


if __name__ == "__main__":
    unittest.main()
