#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`stator kv`, `stator store`, `stator transfer-bench` and the transfer library from Python, against real servers and folders."""

import json
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from fake_s3 import ACCESS, SECRET, FakeS3
from stator_process import BINARY, MODEL, ROOT, Http, Serve, Stator, eventually

PROMPTS = [f"Fable {n}: " + " ".join(f"word{(n * 3 + i) % 79}" for i in range(60)) for n in range(3)]
BLOCK = 65536 + 4096  # of the demo model, with its header


def ask(http, prompt: str) -> dict:
    status, answer = http.post("/v1/completions", {
        "model": MODEL, "prompt": prompt, "max_tokens": 4, "temperature": 0, "logprobs": 2})
    assert status == 200, answer
    return answer


def cached(answer: dict) -> int:
    return (answer["usage"].get("prompt_tokens_details") or {}).get("cached_tokens") or 0


def run(*arguments: str, status: int = 0) -> str:
    done = subprocess.run([BINARY, *arguments], capture_output=True, text=True, timeout=300)
    assert done.returncode == status, (arguments, done.returncode, done.stdout, done.stderr)
    return done.stdout


class KvToolsTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="stator_kv_"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def serve(self, *arguments: str) -> Serve:
        server = Serve("--workers", "1", *arguments, engine="cpu")
        self.addCleanup(server.close)
        return server

    def settled(self, count) -> None:
        before = -1
        def still():
            nonlocal before
            last, before = before, count()
            return before > 0 and before == last
        eventually(still, "all blocks are stored")

    def test_a_folder_is_listed_verified_carried_over_and_dropped(self):
        disk, other = str(self.folder / "kv"), str(self.folder / "other")
        server = self.serve("--kv-disk", disk, "--kv-disk-bytes", "32MiB")
        for prompt in PROMPTS:
            ask(server.http, prompt)
        self.settled(lambda: server.http.metric("stator_kv_tier_blocks", tier="disk"))
        live = json.loads(run("kv", "ls", "--url", server.frontend.url, "--json"))
        tiers = {tier["tier"]: tier for tier in live["tiers"]}
        self.assertEqual(list(tiers), ["device", "host", "disk"])
        self.assertGreater(tiers["disk"]["blocks"], 20)
        self.assertIn("disk    [", run("kv", "ls", "--url", server.frontend.url))
        self.assertEqual(json.loads(run("kv", "verify", "--url", server.frontend.url, "--json"))["corrupt"], 0)
        self.assertIn("g3.lock", [path.name for path in pathlib.Path(disk).iterdir()])
        run("kv", "drop", "--dir", disk, status=2)  # its engine has it
        server.close()

        listed = json.loads(run("kv", "ls", "--dir", disk, "--json"))
        self.assertEqual(listed["blocks"], len(listed["list"]))
        self.assertEqual(listed["blocks_max"], (32 << 20) // BLOCK)
        top = json.loads(run("kv", "top", "--dir", disk, "--json"))["prefixes"]
        self.assertEqual(sum(prefix["blocks"] for prefix in top), listed["blocks"])

        head = next(block for block in listed["list"] if block["position"] == 1)
        seen = json.loads(run("kv", "inspect", "--dir", disk, "--block", head["block"], "--json"))
        self.assertTrue(seen["good"])
        self.assertEqual((seen["parent"], seen["header"]["namespace"], len(seen["header"]["tokens"])),
                         (head["parent"], listed["namespace"], 16))
        self.assertIn("group_crc32c", run("kv", "inspect", "--dir", disk, "--block", head["block"]))
        run("kv", "inspect", "--dir", disk, status=2)
        run("kv", "inspect", "--dir", disk, "--block", "0:VERxU9rw23S", status=2)

        run("kv", "export", "--dir", disk, "--file", str(self.folder / "warm"))
        (self.folder / "cut").write_bytes((self.folder / "warm").read_bytes()[:BLOCK * 2 + 100])
        run("kv", "import", "--dir", str(self.folder / "half"), "--file", str(self.folder / "cut"), "--bytes", "32MiB", status=1)
        self.assertEqual(json.loads(run("kv", "ls", "--dir", str(self.folder / "half"), "--json"))["blocks"], 2)
        moved = json.loads(run("kv", "import", "--dir", other, "--file", str(self.folder / "warm"), "--bytes", "32MiB", "--json"))
        self.assertEqual(moved, {"imported": listed["blocks"], "refused": 0})
        warm = self.serve("--kv-disk", other, "--kv-disk-bytes", "32MiB")
        self.assertGreater(cached(ask(warm.http, PROMPTS[0])), 100)
        warm.close()

        slot = listed["list"][3]["slot"]
        with open(f"{disk}/g3.data", "r+b") as data:
            data.seek(slot * BLOCK + 4096 + 777)
            byte = data.read(1)
            data.seek(-1, 1)
            data.write(bytes([byte[0] ^ 4]))
        verified = json.loads(run("kv", "verify", "--dir", disk, "--json", status=1))
        self.assertEqual((verified["corrupt"], verified["damaged"][0]["slot"]), (1, slot))
        heads = [block for block in listed["list"] if block["position"] == 0]
        dropped = json.loads(run("kv", "drop", "--dir", disk, "--block", heads[0]["block"], "--json"))["dropped"]
        self.assertEqual(json.loads(run("kv", "ls", "--dir", disk, "--json"))["blocks"], listed["blocks"] - dropped)
        self.assertGreater(dropped, 5)

    def test_engines_share_a_store_that_outlives_itself(self):
        def store() -> Stator:
            started = Stator("store", "--listen", "127.0.0.1:0", "--host-bytes", "64MiB", "--dir", str(self.folder / "store"),
                             "--dir-bytes", "64MiB")
            self.addCleanup(started.close)
            return started
        first = store()
        address = f"127.0.0.1:{first.port}"
        server = self.serve("--kv-store", address)
        expected = [ask(server.http, prompt)["choices"] for prompt in PROMPTS]
        self.settled(lambda: Http(first.port).metric("stator_kv_store_puts_total"))
        other = self.serve("--kv-store", address)
        for prompt, choices in zip(PROMPTS, expected):
            answer = ask(other.http, prompt)
            self.assertGreater(cached(answer), 100)
            self.assertEqual([choice["text"] for choice in answer["choices"]], [choice["text"] for choice in choices])
        first.kill()  # engines go on without it
        self.assertEqual(ask(other.http, "Something new. " * 20)["usage"]["completion_tokens"], 4)
        again = store()
        third = self.serve("--kv-store", f"127.0.0.1:{again.port}")
        self.assertGreater(cached(ask(third.http, PROMPTS[0])), 100)
        for path, status in (("/v1/blocks/nonsense", 400), ("/v1/blocks/" + "0" * 32 + "/0:11111112", 404), ("/other", 404)):
            self.assertEqual(Http(again.port).request("GET", path)[0], status)
        self.assertEqual(Http(again.port).request("PUT", "/v1/blocks/" + "0" * 32 + "/0:11111112", b"x" * 5000)[0], 400)

    def test_kept_memory_outlives_the_engine_that_filled_it(self):
        socket = self.folder / "kept"
        keeper = Stator("kv", "hold", "--socket", str(socket), "--bytes", "64MiB", announce=False)
        self.addCleanup(keeper.close)
        eventually(socket.exists, "the keeper listens")
        kept = ("--kv-kept", str(socket), "--kv-kept-bytes", "48MiB")
        first = self.serve(*kept)
        expected = [ask(first.http, prompt)["choices"] for prompt in PROMPTS]
        self.settled(lambda: first.http.metric("stator_kv_offload_blocks_total", tier="kept", result="ok"))
        beside = self.serve(*kept)  # serves without it
        self.assertEqual(beside.http.metric("stator_kv_tier_enabled", tier="kept"), 0)
        self.assertEqual(ask(beside.http, PROMPTS[0])["choices"][0]["text"], expected[0][0]["text"])

        first.frontend.kill()
        again = self.serve(*kept)

        for prompt, choices in zip(PROMPTS, expected):
            answer = ask(again.http, prompt)
            self.assertGreater(cached(answer), 100)
            self.assertEqual([choice["text"] for choice in answer["choices"]], [choice["text"] for choice in choices])
        self.assertEqual(again.http.metric("stator_kv_integrity_errors_total"), 0)
        self.assertEqual(again.http.metric("stator_kv_tier_enabled", tier="kept"), 1)
        keeper.terminate()
        self.assertEqual(keeper.wait(), 0)
        self.assertEqual(ask(again.http, "Something new. " * 20)["usage"]["completion_tokens"], 4)

    def test_transfers_are_measured_on_every_backend(self):
        objects = FakeS3()
        self.addCleanup(objects.close)
        small = ("--min-size", "4KiB", "--max-size", "16KiB", "--iterations", "5", "--warm-up", "1", "--batch", "2", "--json")
        s3 = f"bucket=cache,endpoint_override={objects.url},access_key={ACCESS},secret_key={SECRET}"
        for backend, more in (("shm", ("--check",)), ("tcp", ("--check",)), ("posix", ("--dir", str(self.folder))),
                              ("obj", ("--params", s3))):
            for op in ("write", "read"):
                out = json.loads(run("transfer-bench", "--backend", backend, "--op", op, *small, *more))
                self.assertEqual([row["block_size"] for row in out["rows"]], [4096, 8192, 16384])
                for row in out["rows"]:
                    for column in ("gb_per_s", "avg_latency_us", "avg_prep_us", "p99_prep_us", "avg_post_us", "p99_post_us",
                                   "avg_xfer_us", "p99_xfer_us"):
                        self.assertGreaterEqual(row[column], 0)
        self.assertEqual(objects.refused, [])

    def test_transfers_are_measured_between_many(self):
        small = ("--min-size", "64KiB", "--max-size", "64KiB", "--iterations", "4", "--warm-up", "1", "--check", "--json")
        for backend in ("shm", "tcp"):
            for scheme, links in (("pairwise", 3), ("manytoone", 3), ("onetomany", 3), ("tp", 3)):
                out = json.loads(run("transfer-bench", "--backend", backend, "--scheme", scheme, "--agents", "3", "--processes", *small))
                self.assertEqual((out["scheme"], out["links"], out["processes"]), (scheme, links, 2))
                self.assertGreater(out["rows"][0]["gb_per_s"], 0)
        wrong = subprocess.run([BINARY, "transfer-bench", "--scheme", "ring"], capture_output=True, text=True, check=False)
        self.assertNotEqual(wrong.returncode, 0)
        self.assertIn("pairwise, manytoone, onetomany or tp", wrong.stderr)

    def test_the_library_works_from_python(self):
        out = subprocess.run(["python3", str(ROOT / "src/stator/transfer/examples/two_agents.py"),
                              str(pathlib.Path(BINARY).parent.parent / "lib" / "libstator_transfer.so")],
                             capture_output=True, text=True, timeout=120)
        self.assertEqual(out.stdout.strip(), "b has b'hello over shm' and was told 'done' by a", out.stderr)


if __name__ == "__main__":
    unittest.main()
