# SPDX-License-Identifier: Apache-2.0
"""A server that speaks vLLM's dialect as recorded from vLLM 0.32, with a model made of a script.

The token at position p of a conversation, prompt included, is a function of p, so an answer that another server goes on
with must stay the same. The shapes are those of src/stator/engine/adapters/testdata/vllm-0.32.
"""

from __future__ import annotations

import http.server
import json
import subprocess
import threading
import time

from stator_process import BINARY, MODEL_DIR, clean_environment

SCRIPT_TEXT = " the cache holds keys and values of tokens that were computed before, so a prompt is not computed twice."
BLOCK_SIZE = 16
MAX_MODEL_LEN = 2048


def tokens_of(text: str) -> list[int]:
    printed = subprocess.run(
        [BINARY, "tokenize", "--tokenizer", str(MODEL_DIR), "--no-special"], input=text, capture_output=True, text=True,
        env=clean_environment(), check=True, timeout=300).stdout
    return json.loads(printed)["tokens"]


class ScriptedEngine:
    """`requests` are the bodies of generation calls; `aborted` counts streams whose client left."""

    def __init__(self, token_delay_s: float = 0.0, model: str = "m", port: int = 0, script: list[int] | None = None):
        self.script = script or tokens_of(SCRIPT_TEXT)
        self.token_delay_s = token_delay_s
        self.model = model
        self.requests: list[dict] = []
        self.aborted = 0
        self.running = 0
        self.die_after: int | None = None  # tokens, then the connection breaks
        self.fail_with: int | None = None  # status instead of an answer
        self.lock = threading.Lock()
        engine = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_arguments) -> None:
                pass

            def setup(self) -> None:
                super().setup()
                with engine.lock:
                    engine.connections.append(self.connection)

            def do_GET(self) -> None:
                engine.answer_get(self)

            def do_POST(self) -> None:
                engine.answer_post(self)

        self.connections: list = []
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_arguments: None  # clients that leave are part of the tests
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    @property
    def port(self) -> int:
        return self.server.server_address[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def kill(self) -> None:
        """As the server's process dying: nobody listens, and every connection breaks."""
        self.server.shutdown()
        self.server.server_close()
        with self.lock:
            for connection in self.connections:
                try:
                    connection.shutdown(2)
                except OSError:
                    pass
        self.thread.join()

    close = kill

    def token_at(self, position: int) -> int:
        return self.script[position % len(self.script)]

    # Answers

    def answer_get(self, handler) -> None:
        paths = {
            "/health": ("text/plain", ""),
            "/version": ("application/json", '{"version":"0.32.0"}'),
            "/kv_event_sources": ("application/json", "{}"),
            "/v1/models": ("application/json", json.dumps({"object": "list", "data": [{
                "id": self.model, "object": "model", "owned_by": "vllm", "root": str(MODEL_DIR), "parent": None,
                "max_model_len": MAX_MODEL_LEN}]})),
            "/metrics": ("text/plain", (
                f'vllm:num_requests_running{{engine="0",model_name="m"}} {float(self.running)}\n'
                'vllm:num_requests_waiting{engine="0",model_name="m"} 0.0\n'
                'vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25\n'
                f'vllm:cache_config_info{{block_size="{BLOCK_SIZE}",num_gpu_blocks="512"}} 1.0\n')),
        }
        if handler.path not in paths:
            self.send(handler, 404, "application/json", '{"detail":"Not Found"}')
            return
        self.send(handler, 200, *paths[handler.path])

    @staticmethod
    def send(handler, status: int, content_type: str, body: str) -> None:
        data = body.encode()
        handler.send_response(status)
        handler.send_header("content-type", content_type)
        handler.send_header("content-length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    def answer_post(self, handler) -> None:
        body = json.loads(handler.rfile.read(int(handler.headers["content-length"])))
        if handler.path != "/v1/completions":
            self.send(handler, 404, "application/json", '{"detail":"Not Found"}')
            return
        with self.lock:
            self.requests.append(body)
            self.running += 1
        try:
            if self.fail_with is not None:
                self.send(handler, self.fail_with, "application/json", json.dumps(
                    {"error": {"message": "scripted failure", "type": "X", "param": None, "code": self.fail_with}}))
                return
            self.stream(handler, body)
        except OSError:
            with self.lock:
                self.aborted += 1
            handler.close_connection = True
        finally:
            with self.lock:
                self.running -= 1

    def stream(self, handler, body: dict) -> None:
        handler.send_response(200)
        handler.send_header("content-type", "text/event-stream; charset=utf-8")
        handler.send_header("transfer-encoding", "chunked")
        handler.end_headers()
        prompt = body["prompt"]
        for i in range(body["max_tokens"]):
            if self.die_after is not None and i >= self.die_after:
                handler.connection.shutdown(2)
                raise OSError("scripted death")
            token = self.token_at(len(prompt) + i)
            finish, reason = None, None
            if token in body["stop_token_ids"] and i + 1 > body["min_tokens"]:
                finish, reason = "stop", token
            elif i + 1 == body["max_tokens"]:
                finish = "length"
            choice = {"index": 0, "text": "?", "logprobs": self.logprobs(token, body), "finish_reason": finish,
                      "stop_reason": reason, "prompt_token_ids": prompt if i == 0 else None, "token_ids": [token]}
            self.event(handler, {"id": "cmpl-x", "object": "text_completion", "model": self.model, "choices": [choice]})
            if finish:
                self.event(handler, {"id": "cmpl-x", "choices": [], "usage": {
                    "prompt_tokens": len(prompt), "completion_tokens": i + 1, "total_tokens": len(prompt) + i + 1,
                    "prompt_tokens_details": {"cached_tokens": 16}}})
                break
            time.sleep(self.token_delay_s)
        self.chunk(handler, "data: [DONE]\n\n")
        handler.wfile.write(b"0\r\n\r\n")

    @staticmethod
    def logprobs(token: int, body: dict) -> dict | None:
        if body.get("logprobs") is None:
            return None
        assert body["return_tokens_as_token_ids"]
        top = {f"token_id:{token}": -0.25} | {f"token_id:{300 + k}": -1.5 - k for k in range(body["logprobs"] - 1)}
        return {"text_offset": [0], "token_logprobs": [-0.25], "tokens": [f"token_id:{token}"], "top_logprobs": [top]}

    def event(self, handler, value: dict) -> None:
        self.chunk(handler, f"data: {json.dumps(value)}\n\n")

    @staticmethod
    def chunk(handler, text: str) -> None:
        data = text.encode()
        handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        handler.wfile.flush()
