#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Images in requests, from official clients through a frontend to servers that look like vLLM, SGLang, llama.cpp and OpenAI's."""

import base64
import contextlib
import http.server
import json
import pathlib
import socket
import tempfile
import threading
import unittest

import anthropic
import openai

from stator_process import MODEL_DIR, Http, Stator, eventually
from vision_model import data_url, make_vision_model, png

FOLDER = tempfile.TemporaryDirectory(prefix="stator-vision-")
VISION = make_vision_model(pathlib.Path(FOLDER.name) / "vision")
TEXT = "What do you see in this picture, and what does it make you think of? Answer at length, please."


def tearDownModule():
    FOLDER.cleanup()


class Pictures(http.server.BaseHTTPRequestHandler):
    """A web server of pictures, and of what else a URL may lead to."""

    requests: list[str] = []
    cut = threading.Event()

    def do_GET(self):
        self.requests.append(self.path)
        if self.path.startswith("/hang"):
            # Until the other side closes.
            with contextlib.suppress(OSError):
                self.connection.settimeout(30)
                if self.connection.recv(1) == b"":
                    self.cut.set()
            return
        bodies = {"/grey.png": png(shade=7), "/page": b"<html></html>", "/large": png(shade=7) + b"x" * (1 << 20),
                  "/bomb.png": png(1, 1)[:16] + (60000).to_bytes(4, "big") * 2 + b"\0" * 20}
        if self.path in ("/moved", "/loop"):
            self.send_response(302)
            self.send_header("Location", "/grey.png" if self.path == "/moved" else "/loop")
            self.end_headers()
            return
        body = bodies.get(self.path)
        self.send_response(404 if body is None else 200)
        self.send_header("Content-Type", "image/png")
        if self.path == "/gzip":
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(body or b"")

    def log_message(self, *_):
        pass


class MediaTest(unittest.TestCase):
    """An engine server and a frontend before it, for all tests of a class."""

    dialect = "vllm"
    engine = "vllm"
    arguments: tuple[str, ...] = ()
    model = VISION

    @classmethod
    def setUpClass(cls):
        cls.server = Stator("sim-server", "--dialect", cls.dialect, "--model-dir", str(cls.model), "--served-model-name", "m",
                            "--host", "127.0.0.1", "--port", "0", "--sim-speedup", "0", "--kv-blocks", "2000")
        cls.addClassCleanup(cls.server.close)
        cls.stator = Stator("serve", str(cls.model), "--engine", cls.engine, "--url", cls.server.url, "--host", "127.0.0.1",
                            "--port", "0", "--engine-poll-interval", "100ms", *cls.arguments)
        cls.addClassCleanup(cls.stator.close)
        cls.http = Http(cls.stator.port)
        eventually(lambda: cls.http.request("GET", "/health")[0] == 200, "healthy")
        cls.openai = openai.OpenAI(base_url=f"{cls.stator.url}/v1", api_key="none", max_retries=2)
        cls.anthropic = anthropic.Anthropic(base_url=cls.stator.url, api_key="none", max_retries=2)
        cls.addClassCleanup(cls.openai.close)
        cls.addClassCleanup(cls.anthropic.close)

    def tearDown(self):
        self.assertTrue(self.stator.alive(), self.stator.log()[-4000:])

    def messages(self, *urls: str, text: str = TEXT):
        return [{"role": "user", "content": [{"type": "text", "text": text}]
                 + [{"type": "image_url", "image_url": {"url": url}} for url in urls]}]

    def ask(self, *urls: str, text: str = TEXT, **fields):
        return self.openai.chat.completions.create(
            **{"model": "m", "messages": self.messages(*urls, text=text), "max_tokens": 12, "temperature": 0} | fields)

    def say(self, *urls: str, **fields) -> str:
        return self.ask(*urls, **fields).choices[0].message.content

    def refusal(self, *urls: str, status: int = 400) -> dict:
        with self.assertRaises(openai.APIStatusError) as caught:
            self.openai.with_options(max_retries=0).chat.completions.create(model="m", messages=self.messages(*urls), max_tokens=4)
        self.assertEqual(caught.exception.status_code, status, caught.exception.body)
        return caught.exception.body


class EveryEngine:
    """What holds for each kind of server."""

    def test_an_answer_depends_on_the_picture(self):
        grey, white = data_url(png(shade=7)), data_url(png(shade=255))
        self.assertEqual(self.say(grey), self.say(grey))
        self.assertNotEqual(self.say(grey), self.say(white))
        self.assertNotEqual(self.say(grey, white), self.say(white, grey))
        self.assertTrue(self.say(grey))

    def test_a_stream_says_the_same(self):
        url = data_url(png(shade=9))
        text = "".join(chunk.choices[0].delta.content or "" for chunk in self.ask(url, stream=True) if chunk.choices)
        self.assertEqual(text, self.say(url))

    def test_texts_go_as_before(self):
        self.assertTrue(self.say(text="Hello"))


class Vllm(EveryEngine, MediaTest):
    def test_a_picture_counts_and_hits_as_many_tokens_as_it_becomes(self):
        url = data_url(png(shade=21))
        bare = self.ask(text="A text of its own.").usage.prompt_tokens
        first = self.ask(url, text="A text of its own.").usage
        self.assertEqual(first.prompt_tokens, bare + 2 + 16)  # begin, end, and (112 / 28)²
        wide = self.ask(data_url(png(width=224, shade=21)), text="A text of its own.").usage
        self.assertEqual(wide.prompt_tokens, bare + 2 + 32)
        again = self.ask(url, text="A text of its own.").usage
        self.assertGreaterEqual(again.prompt_tokens_details.cached_tokens, 16)

    def test_routing_sees_what_is_in_the_picture(self):
        def receipt(url: str) -> dict:
            answer = self.ask(url, url, url, text="Look here.")
            return self.http.get(f"/receipts/{answer.id.removeprefix('chatcmpl-')}")[1]

        one, other = data_url(png(shade=31)), data_url(png(shade=32))
        first = receipt(one)
        self.assertEqual([medium["kind"] for medium in first["media"]], ["image"] * 3)
        self.assertEqual([medium["token_count"] for medium in first["media"]], [16] * 3)
        self.assertEqual(len(first["media"][0]["hash"]), 16)
        # The engine's own events, with the picture's digest, make the blocks known.
        eventually(lambda: receipt(one)["best_overlap_blocks"] >= 3, "the blocks of the picture are known")
        self.assertEqual(receipt(other)["best_overlap_blocks"], 0)

    def test_every_protocol_takes_pictures(self):
        data = png(shade=41)
        said = self.say(data_url(data))
        source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(data).decode()}
        content = [{"type": "text", "text": TEXT}, {"type": "image", "source": source}]
        answer = self.anthropic.messages.create(model="m", max_tokens=12, extra_body={"temperature": 0},
                                                messages=[{"role": "user", "content": content}])
        self.assertEqual(answer.content[0].text, said)
        counted = self.anthropic.messages.count_tokens(model="m", messages=[{"role": "user", "content": content}])
        usage = answer.usage
        self.assertEqual(counted.input_tokens, usage.input_tokens + usage.cache_read_input_tokens)
        response = self.openai.responses.create(
            model="m", max_output_tokens=12, temperature=0,
            input=[{"role": "user", "content": [{"type": "input_text", "text": TEXT},
                                                {"type": "input_image", "image_url": data_url(data), "detail": "auto"}]}])
        self.assertEqual(response.output_text, said)
        result = [{"role": "user", "content": "Look."},
                  {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "see", "input": {}}]},
                  {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t",
                                                "content": [{"type": "image", "source": source}]}]}]
        self.assertTrue(self.anthropic.messages.create(model="m", max_tokens=4, messages=result).content)

    def test_logprobs_and_choices_come_with_pictures(self):
        answer = self.ask(data_url(png(shade=51)), n=2, temperature=1, seed=3, logprobs=True, top_logprobs=2, max_tokens=4)
        self.assertEqual(len(answer.choices), 2)
        self.assertEqual([len(entry.top_logprobs) for entry in answer.choices[0].logprobs.content], [2] * 4)

    def test_addresses_inside_are_not_fetched_from_unless_the_operator_says_so(self):
        for url in ("http://127.0.0.1/x.png", "http://localhost/x.png", "http://[::1]/x.png", "http://2130706433/x.png",
                    "http://0x7f.1/x.png", "http://0177.0.0.1/x.png", "http://169.254.169.254/latest/meta-data/",
                    "http://[::ffff:127.0.0.1]/x", f"http://{socket.gethostname()}:8000/x", "http://user@example.com/x",
                    "http://metadata.google.internal/", "file:///etc/passwd", "ftp://example.com/x", "gopher://x/", "x.png"):
            with self.subTest(url=url):
                error = self.refusal(url)
                self.assertEqual(error["param"], "messages[0].content[1]")

    def test_errors_name_the_part_in_the_words_of_each_protocol(self):
        bad = data_url(b"no picture")
        self.assertIn("messages[0].content[1]: is no image", self.refusal(bad)["message"])
        for url in ("data:image/png;base64,%%%%", "data:image/png,abc", "data:", data_url(png(60000, 1)[:33].replace(
                b"\0\0\0\1", b"\0\0\xea\x60"))):
            self.assertEqual(self.refusal(url)["param"], "messages[0].content[1]", url)
        with self.assertRaises(anthropic.BadRequestError) as caught:
            self.anthropic.messages.create(model="m", max_tokens=4, messages=[{"role": "user", "content": [
                {"type": "image", "source": {"type": "url", "url": "http://127.0.0.1/x"}}]}])
        self.assertEqual(caught.exception.body["error"]["type"], "invalid_request_error")
        self.assertIn("messages[0].content[0]", caught.exception.body["error"]["message"])
        with self.assertRaises(openai.BadRequestError) as caught:
            self.openai.responses.create(model="m", input=[{"role": "user", "content": [
                {"type": "input_image", "image_url": bad}]}])
        self.assertEqual(caught.exception.body["param"], "input[0].content[0]")
        audio = [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}]}]
        status, body = self.http.post("/v1/chat/completions", {"model": "m", "messages": audio})
        self.assertEqual(status, 400)
        self.assertIn("model 'm' takes text and image only", body["error"]["message"])


class Fetching(MediaTest):
    arguments = ("--media-allow-private", "--media-max-bytes", "100KiB", "--media-local-folder", str(VISION.parent / "open"))

    @classmethod
    def setUpClass(cls):
        cls.web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pictures)
        cls.web.daemon_threads = True
        threading.Thread(target=cls.web.serve_forever, daemon=True).start()
        cls.addClassCleanup(cls.web.shutdown)
        (VISION.parent / "open").mkdir(exist_ok=True)
        (VISION.parent / "open" / "grey.png").write_bytes(png(shade=7))
        (VISION.parent / "secret.png").write_bytes(png(shade=7))
        super().setUpClass()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.web.server_port}{path}"

    def test_a_url_is_as_good_as_its_bytes(self):
        said = self.say(data_url(png(shade=7)))
        self.assertEqual(self.say(self.url("/grey.png")), said)
        self.assertEqual(self.say(self.url("/moved")), said)
        self.assertEqual(self.say(f"file://{VISION.parent}/open/grey.png"), said)
        before = len(Pictures.requests)
        self.assertEqual(self.say(self.url("/grey.png")), said)
        self.assertEqual(len(Pictures.requests), before, "the cache has it")
        self.assertGreaterEqual(self.http.metric("stator_media_cache_hits_total"), 1)

    def test_what_cannot_be_had_is_the_clients_error(self):
        for path, text in (("/none", "404"), ("/page", "no image"), ("/large", "media.max_bytes"), ("/loop", "media.redirects_max"),
                           ("/bomb.png", "media.image_pixels_max")):
            with self.subTest(path=path):
                error = self.refusal(self.url(path), status=413 if path == "/large" else 400)
                self.assertIn(text, error["message"])
                self.assertEqual(error["param"], "messages[0].content[1]")
        for path in ("/secret.png", "/open/../secret.png", "/open/none.png"):
            self.assertIn("media.local_folder", self.refusal(f"file://{VISION.parent}{path}")["message"])
        self.assertGreaterEqual(self.http.metric("stator_media_fetches_total", outcome="refused"), 4)

    def test_a_client_that_leaves_ends_the_fetch(self):
        body = json.dumps({"model": "m", "messages": self.messages(self.url("/hang"))}).encode()
        with socket.create_connection(("127.0.0.1", self.stator.port)) as client:
            client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                           b"Content-Length: %d\r\n\r\n" % len(body) + body)
            eventually(lambda: "/hang" in Pictures.requests, "the picture is being fetched")
        self.assertTrue(Pictures.cut.wait(30), "the fetch's connection is closed")
        eventually(lambda: self.http.metric("stator_media_fetches_total", outcome="cancelled") == 1, "it is counted")


class OverTheWire(Vllm):
    """The same with the worker in a process of its own."""

    @classmethod
    def setUpClass(cls):
        cls.server = Stator("sim-server", "--dialect", "vllm", "--model-dir", str(VISION), "--served-model-name", "m",
                            "--host", "127.0.0.1", "--port", "0", "--sim-speedup", "0", "--kv-blocks", "2000")
        cls.addClassCleanup(cls.server.close)
        folder = tempfile.TemporaryDirectory(prefix="stator-e2e-")
        cls.addClassCleanup(folder.cleanup)
        discovery = ("--discovery", f"file:{folder.name}")
        worker = Stator("worker", str(VISION), "--engine", "vllm", "--url", cls.server.url, *discovery)
        cls.addClassCleanup(worker.close)
        cls.stator = Stator("frontend", "--host", "127.0.0.1", "--port", "0", *discovery)
        cls.addClassCleanup(cls.stator.close)
        cls.http = Http(cls.stator.port)
        eventually(lambda: cls.http.get("/v1/models")[1]["data"], "the worker is found")
        cls.openai = openai.OpenAI(base_url=f"{cls.stator.url}/v1", api_key="none", max_retries=2)
        cls.anthropic = anthropic.Anthropic(base_url=cls.stator.url, api_key="none", max_retries=2)
        cls.addClassCleanup(cls.openai.close)
        cls.addClassCleanup(cls.anthropic.close)


class Sglang(EveryEngine, MediaTest):
    dialect = engine = "sglang"


class LlamaCpp(EveryEngine, MediaTest):
    dialect = engine = "llamacpp"


class OpenAi(EveryEngine, MediaTest):
    engine = "openai"


class TextOnly(MediaTest):
    model = MODEL_DIR

    def test_a_model_without_eyes_says_so_once(self):
        before = self.http.metric("dynamo_frontend_requests_total", status="error")
        with self.assertRaises(openai.BadRequestError) as caught:
            self.ask(data_url(png()))
        message = caught.exception.body["message"]
        self.assertIn("messages[0].content[1] is an image, but model 'm' takes text only", message)
        self.assertIn("--media image", message)
        self.assertEqual(self.http.metric("dynamo_frontend_requests_total", status="error") - before, 1)


if __name__ == "__main__":
    unittest.main()
