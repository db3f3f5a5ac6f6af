#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`stator serve ORG/NAME` against a small model hub on loopback: download, resume, checksums, cache, offline."""

import hashlib
import http.server
import json
import pathlib
import resource
import signal
import subprocess
import tempfile
import threading
import unittest

from gguf_file import gguf
from stator_process import BINARY, MODEL_DIR, Http, Stator, clean_environment

NAME = "stator/demo"
COMMIT = "5b1a6f3f0c5e4d0a9f2e7c8b1d3a4f5e6c7b8a90"
WEIGHTS = "model.safetensors"


class Hub:
    """What a model hub does, as far as Stator uses it. `files` may be changed between requests."""

    def __init__(self):
        self.files = {p.name: p.read_bytes() for p in MODEL_DIR.iterdir() if p.is_file()}
        self.requests: list[tuple[str, str]] = []
        self.sent_bytes: dict[str, int] = {}
        self.break_after: dict[str, int] = {}  # name → bytes after which its next answer breaks off, once
        self.wrong_checksum: set[str] = set()
        self.commit = COMMIT
        self.etags: dict[str, str] = {}  # name → what it claims instead of the checksum
        self.sizes: dict[str, int] = {}  # name → what it claims instead of the size
        self.ranges: list[tuple[str, int]] = []  # (name, first byte) of requests for a part
        self.listed: list[str] = []  # names beside those of the files
        self.status = 200
        self.tokens: list[str | None] = []
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *arguments):
                pass

            def do_GET(self):
                hub.answer(self)

            def do_HEAD(self):
                hub.answer(self)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def close(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def answer(self, handler):
        self.requests.append((handler.command, handler.path))
        self.tokens.append(handler.headers.get("Authorization"))
        if self.status != 200:
            self.respond(handler, self.status, b'{"error":"no"}')
        elif handler.path == f"/api/models/{NAME}/revision/main":
            listing = {"sha": self.commit, "siblings": [{"rfilename": name} for name in (*self.listed, *self.files)]}
            self.respond(handler, 200, json.dumps(listing).encode())
        else:
            self.resolve(handler)

    def resolve(self, handler):
        prefix = f"/{NAME}/resolve/{self.commit}/"
        name = handler.path.removeprefix(prefix)
        if not handler.path.startswith(prefix) or name not in self.files:
            self.respond(handler, 404, b"")
            return
        data = self.files[name]
        start, status = 0, 200
        if byte_range := handler.headers.get("Range"):
            start, status = int(byte_range.removeprefix("bytes=").split("-")[0]), 206
            self.ranges.append((name, start))
        checksum = hashlib.sha256(b"other" if name in self.wrong_checksum else data).hexdigest()
        checksum = self.etags.get(name, checksum)
        headers = {"ETag": f'"{checksum}"', "X-Linked-Etag": f'"{checksum}"', "X-Linked-Size": str(self.sizes.get(name, len(data))),
                   "Accept-Ranges": "bytes"}
        if status == 206:
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        self.respond(handler, status, data[start:], headers, name)

    def respond(self, handler, status, body, headers=None, name=None):
        handler.send_response(status)
        for key, value in ({"Content-Length": str(len(body))} | (headers or {})).items():
            handler.send_header(key, value)
        handler.end_headers()
        if handler.command == "HEAD":
            return
        cut = self.break_after.pop(name, None)
        sent = body if cut is None else body[:cut]
        handler.wfile.write(sent)
        if name:
            self.sent_bytes[name] = self.sent_bytes.get(name, 0) + len(sent)
        if cut is not None:
            handler.wfile.flush()
            handler.close_connection = True


class HubTest(unittest.TestCase):
    def setUp(self):
        self.hub = Hub()
        self.addCleanup(self.hub.close)
        folder = tempfile.TemporaryDirectory(prefix="stator-e2e-")
        self.addCleanup(folder.cleanup)
        self.cache = pathlib.Path(folder.name) / "hub"
        self.arguments = ["serve", NAME, "--engine", "sim", "--host", "127.0.0.1", "--port", "0"]

    def environment(self, **extra):
        return clean_environment(HF_ENDPOINT=self.hub.url, HF_HUB_CACHE=str(self.cache), HOME=str(self.cache.parent), **extra)

    def serve(self, *arguments, **env) -> Stator:
        server = Stator(*self.arguments, *arguments, env=self.environment(**env))
        self.addCleanup(server.close)
        return server

    def assert_refused(self, *arguments, names, status=2, env=None):
        done = subprocess.run([BINARY, *self.arguments, *arguments], env=self.environment(**(env or {})), timeout=300,
                              capture_output=True, text=True, stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, status, done.stderr)
        lines = [line for line in done.stderr.splitlines() if line.startswith("stator: ")]
        self.assertEqual(len(lines), 1, done.stderr)
        for name in names:
            self.assertIn(name, lines[0])

    def gguf_files(self) -> None:
        """The repository holds .gguf files only, as many on the hub do."""
        weights = self.hub.files.pop(WEIGHTS)
        for name in ("demo-Q8_0.gguf", "demo-Q4_K_M.gguf", "demo-IQ4_K_M.gguf", "mmproj-Q4_K_M.gguf", "many-Q2_K-00001-of-00002.gguf"):
            self.hub.files[name] = gguf({"general.name": name}) + weights[:64]

    def pulled(self, model: str, **env: str) -> tuple[int, str]:
        done = subprocess.run([BINARY, "models", "pull", model], env=self.environment(**env), timeout=300, capture_output=True,
                              text=True, stdin=subprocess.DEVNULL)
        return done.returncode, done.stdout + done.stderr

    def test_of_a_repository_of_gguf_files_one_is_taken(self):
        self.gguf_files()
        status, said = self.pulled(NAME)
        self.assertEqual(status, 0, said)
        self.assertEqual([n for n in self.hub.sent_bytes if n.endswith(".gguf")], ["demo-Q4_K_M.gguf"], "what llama.cpp would take")
        self.assertEqual(self.pulled(NAME + ":q8_0")[0], 0)
        self.assertIn("demo-Q8_0.gguf", self.hub.sent_bytes)
        asked = len(self.hub.requests)
        self.assertEqual(self.pulled(NAME + ":Q8_0", HF_HUB_OFFLINE="1")[0], 0, "from the cache")
        self.assertEqual(len(self.hub.requests), asked)
        status, said = self.pulled(NAME + ":Q5_K")
        self.assertNotEqual(status, 0)
        self.assertIn("demo-IQ4_K_M.gguf, demo-Q4_K_M.gguf, demo-Q8_0.gguf", said)
        status, said = self.pulled(NAME + ":Q2_K-00001-of-00002")
        self.assertNotEqual(status, 0)
        self.assertIn("several files", said)

    def answer_of(self, server: Stator) -> str:
        status, answer = Http(server.port).post("/v1/completions", {
            "model": NAME, "prompt": "The router", "max_tokens": 8, "temperature": 0})
        self.assertEqual(status, 200, answer)
        return answer["choices"][0]["text"]

    def test_a_model_is_downloaded_once_and_then_served_from_the_cache(self):
        first = self.serve()
        text = self.answer_of(first)
        first.close()
        snapshot = self.cache / "models--stator--demo" / "snapshots" / COMMIT
        self.assertEqual((self.cache / "models--stator--demo" / "refs" / "main").read_text(), COMMIT)
        self.assertEqual((snapshot / WEIGHTS).read_bytes(), self.hub.files[WEIGHTS])
        self.assertTrue((snapshot / WEIGHTS).is_symlink())
        self.assertEqual(self.hub.sent_bytes[WEIGHTS], len(self.hub.files[WEIGHTS]))
        requests = len(self.hub.requests)
        self.assertEqual(self.answer_of(self.serve()), text)
        self.assertEqual(len(self.hub.requests), requests, "a cache hit asks nobody")

    def test_a_download_that_breaks_off_is_resumed_where_it_was(self):
        self.hub.break_after[WEIGHTS] = 1_000_000
        self.answer_of(self.serve())
        self.assertEqual(self.hub.sent_bytes[WEIGHTS], len(self.hub.files[WEIGHTS]), "no byte was sent twice")
        blobs = list((self.cache / "models--stator--demo" / "blobs").iterdir())
        self.assertEqual([b.name for b in blobs if b.name.endswith(".incomplete")], [])

    def test_a_download_of_an_earlier_process_is_continued(self):
        data = self.hub.files[WEIGHTS]
        blobs = self.cache / "models--stator--demo" / "blobs"
        blobs.mkdir(parents=True)
        (blobs / (hashlib.sha256(data).hexdigest() + ".incomplete")).write_bytes(data[:3_000_000])
        self.answer_of(self.serve())
        self.assertEqual(self.hub.sent_bytes[WEIGHTS], len(data) - 3_000_000)

    def test_a_wrong_checksum_is_an_error_and_the_file_is_removed(self):
        self.hub.wrong_checksum.add(WEIGHTS)
        self.assert_refused(names=[WEIGHTS, "checksum"])
        blobs = self.cache / "models--stator--demo" / "blobs"
        self.assertFalse([b for b in blobs.iterdir() if b.stat().st_size == len(self.hub.files[WEIGHTS])])
        # Nothing half-made is taken for a model afterwards; a good download then succeeds.
        self.hub.wrong_checksum.clear()
        self.answer_of(self.serve())

    def test_a_full_disk_is_told_and_the_download_goes_on_later(self):
        def small_files():  # writing beyond the limit fails as on a full disk
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, 2_000_000))

        done = subprocess.run([BINARY, "models", "pull", NAME], env=self.environment(), timeout=300, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, preexec_fn=small_files)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("cannot write", done.stderr)
        self.assertIn("2000000 of", done.stderr)
        self.assertIn("hub.cache_dir", done.stderr)
        self.hub.ranges.clear()
        self.assertEqual(self.pulled(NAME)[0], 0)
        self.assertIn((WEIGHTS, 2_000_000), self.hub.ranges, "from where it was")

    def test_room_is_looked_for_before_the_first_byte(self):
        self.hub.sizes[WEIGHTS] = 10**18
        status, said = self.pulled(NAME)
        self.assertNotEqual(status, 0)
        self.assertIn(f"'{WEIGHTS}' needs {10**18} more bytes", said)
        self.assertNotIn(WEIGHTS, self.hub.sent_bytes)

    def test_a_damaged_partial_file_is_found_out_by_its_checksum(self):
        data = self.hub.files[WEIGHTS]
        blobs = self.cache / "models--stator--demo" / "blobs"
        blobs.mkdir(parents=True)
        (blobs / (hashlib.sha256(data).hexdigest() + ".incomplete")).write_bytes(b"x" * 1000)
        self.assert_refused(names=[WEIGHTS, "checksum", "try again"])
        self.answer_of(self.serve())

    def test_offline_uses_the_cache_and_nothing_else(self):
        self.assert_refused("--hub-offline", names=[NAME, "offline"])
        self.assertEqual(self.hub.requests, [])
        self.serve().close()
        requests = len(self.hub.requests)
        self.answer_of(self.serve("--hub-offline"))
        self.answer_of(self.serve(HF_HUB_OFFLINE="1"))
        self.assertEqual(len(self.hub.requests), requests)

    def test_a_hostile_commit_touches_nothing(self):
        victim = self.cache.parent / "victim"
        victim.mkdir()
        (victim / "config.json").write_text("mine")
        for commit in ("../../../victim", "..", "", "5b1a6f3/../../../../victim", "/tmp", "main"):
            with self.subTest(commit=commit):
                self.hub.commit = commit
                self.assert_refused(names=["commit"])
                self.assertEqual((victim / "config.json").read_text(), "mine")
                self.assertFalse((victim / "config.json").is_symlink())
                self.assertEqual([p.name for p in victim.iterdir()], ["config.json"])

    def test_what_a_hub_names_stays_in_its_folders(self):
        self.hub.etags = {"config.json": "..", WEIGHTS: "../../escaped", "tokenizer.json": "an opaque etag"}
        self.hub.listed = ["../outside.json", "..json", "sub/../../outside.json", "a\x00b.json", "a?b.json", "/outside.json"]
        self.answer_of(self.serve())
        root = self.cache / "models--stator--demo"
        self.assertEqual(sorted(p.name for p in self.cache.iterdir()), [root.name])
        self.assertEqual(sorted(p.name for p in root.iterdir()), ["blobs", "refs", "snapshots"])
        for link in (root / "snapshots" / COMMIT).iterdir():
            self.assertIn(link.name, self.hub.files)
            self.assertEqual(link.resolve().parent, (root / "blobs").resolve())
        asked = [path for _, path in self.hub.requests]
        self.assertFalse([path for path in asked if "outside" in path], "names of no file are not asked for")

    def test_a_token_goes_nowhere_in_clear(self):
        # The name is not looked up: 127.* names that are no addresses belong to others.
        for endpoint in ("http://127.0.0.1.example:1", "http://hub.example"):
            with self.subTest(endpoint=endpoint):
                self.assert_refused("--hub-endpoint", endpoint, names=["HF_TOKEN", "https://", endpoint], env={"HF_TOKEN": "hf_secret"})

    def test_a_revision_is_no_path(self):
        self.assert_refused("--hub-revision", "../../../victim", names=["hub.revision"])
        self.assertEqual(self.hub.requests, [])

    def test_a_token_is_sent_and_never_logged(self):
        server = self.serve("--log", "trace", HF_TOKEN="hf_secret")
        self.assertEqual(set(self.hub.tokens), {"Bearer hf_secret"})
        self.assertNotIn("hf_secret", server.log())

    def test_refusals_of_the_hub_say_what_to_change(self):
        for status, names, code in ((401, [NAME, "HF_TOKEN"], 2), (404, [NAME, "does not exist"], 2), (500, [NAME, "500"], 1)):
            with self.subTest(status=status):
                self.hub.status = status
                self.assert_refused(names=names, status=code)

    def test_an_unreachable_hub_names_the_setting(self):
        self.assert_refused("--hub-endpoint", "http://127.0.0.1:1", names=["HF_ENDPOINT"], status=1)

    def models(self, *words: str) -> str:
        done = subprocess.run([BINARY, "models", *words], env=self.environment(), capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_models_are_pulled_listed_and_removed(self):
        self.assertEqual(json.loads(self.models("ls", "--json"))["models"], [])
        folder = pathlib.Path(self.models("pull", NAME).strip().splitlines()[-1])
        self.assertTrue((folder / WEIGHTS).exists())
        (model,) = json.loads(self.models("ls", "--json"))["models"]
        self.assertEqual((model["name"], model["can_be_served"], model["partial_bytes"]), (NAME, True, 0))
        self.assertGreater(model["bytes"], len(self.hub.files[WEIGHTS]))
        self.assertIn("ready", self.models("ls"))
        self.models("rm", NAME)
        self.assertFalse(folder.exists())


if __name__ == "__main__":
    unittest.main()
