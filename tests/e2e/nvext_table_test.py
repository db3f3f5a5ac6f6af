#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every field of `nvext` and every routing, session and metadata header once: what the worker was asked, what the answer shows, or by what
name it is refused. The workers are processes that write down the messages they get."""

import base64
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from python_worker_test import PythonWorker
from stator_process import MODEL_DIR, Stator, Http, _die_with_parent, clean_environment, eventually

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
RECORDING = pathlib.Path(__file__).with_name("recording_worker.py")
SESSIONS = [  # headers, and the conversation they mean: session, parent, whether it ends
    ({"x-dynamo-session-id": "s"}, ("s", "", False)), ({"x-stator-session-id": "s"}, ("s", "", False)), ({"x-session-id": "s"}, ("s", "", False)),
    ({"x-dynamo-session-id": "s", "x-dynamo-parent-session-id": "p", "x-dynamo-session-final": "true"}, ("s", "p", True)),
    ({"x-session-id": "s", "x-parent-session-id": "p"}, ("s", "p", False)),
    ({"x-claude-code-session-id": "c"}, ("c", "", False)), ({"x-claude-code-session-id": "c", "x-claude-code-agent-id": "a"}, ("a", "c", False)),
    ({"x-claude-code-session-id": "c", "x-claude-code-agent-id": "a", "x-claude-code-parent-agent-id": "b"}, ("a", "b", False)),
    ({"thread-id": "t", "x-codex-parent-thread-id": "q"}, ("t", "q", False)),
    ({"x-dynamo-session-id": "s", "x-claude-code-session-id": "c", "thread-id": "t"}, ("s", "", False)),
]


class RecordingWorker(PythonWorker):
    def __init__(self, discovery: list[str], folder: pathlib.Path, **changes):
        self.log_file = tempfile.TemporaryFile()
        self.file = folder / f"asked-{os.urandom(4).hex()}"
        self.file.touch()
        self.process = subprocess.Popen(
            [sys.executable, str(RECORDING), str(self.file), json.dumps(changes), str(MODEL_DIR), *discovery, "--lease-ttl", "10", "--step-ms", "1"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self.log_file, env=clean_environment(), preexec_fn=_die_with_parent)
        self.ready = json.loads(self.process.stdout.readline() or "{}")
        if not self.ready.get("ready"):
            raise AssertionError(f"the worker did not become ready:\n{self.log()}")
        self.id = int(self.ready["worker_id"])

    def asked(self) -> list[dict]:
        return [json.loads(line) for line in self.file.read_text().splitlines()]


class NvextTable(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="stator-e2e-")
        cls.addClassCleanup(cls.folder.cleanup)
        folder = pathlib.Path(cls.folder.name)
        discovery = ["--discovery", f"file:{folder / 'discovery'}"]
        cls.frontend = Stator("frontend", "--host", "127.0.0.1", "--port", "0", *discovery)
        cls.addClassCleanup(cls.frontend.kill)
        cls.http = Http(cls.frontend.port)
        cls.workers = []
        for changes in ({"dp_size": 2}, {}):
            cls.workers.append(RecordingWorker(discovery, folder, **changes))
            cls.addClassCleanup(cls.workers[-1].kill)
        eventually(lambda: len(cls.http.get("/health")[1].get("instances", [])) == 2, "both workers")

    def ask(self, route: str = CHAT, headers: dict | None = None, **fields):
        """The answer, and what a worker was asked for it: (worker, message), or None."""
        before = [len(worker.asked()) for worker in self.workers]
        body = {"model": "parrot", "max_tokens": 4} | ({"messages": [{"role": "user", "content": "Say this again, please."}]} if route == CHAT else
                                                      {"prompt": "one two three four five"}) | fields
        status, got, text = self.http.request("POST", route, body, headers)
        sent = [(worker, message) for worker, count in zip(self.workers, before) for message in worker.asked()[count:]]
        self.assertLessEqual(len(sent), 1)
        return status, got, (text.decode() if fields.get("stream") else json.loads(text)), (sent[0] if sent else (None, {}))

    def good(self, route: str = CHAT, headers: dict | None = None, **fields):
        status, got, answer, (worker, message) = self.ask(route, headers, **fields)
        self.assertEqual(status, 200, answer)
        self.assertIsNone(got.get("x-stator-ignored-fields"), fields)
        return answer, worker, message

    def tokens(self, text: str) -> list[int]:
        return self.http.post("/tokenize", {"model": "parrot", "prompt": text, "add_special_tokens": False})[1]["tokens"]

    def test_what_the_prompt_is(self):
        for route in (CHAT, COMPLETIONS):
            self.assertEqual(self.good(route, nvext={"token_data": [5, 6, 7]})[2]["tokens"], [5, 6, 7])
        self.assertEqual(self.good(nvext={"use_raw_prompt": True})[2]["tokens"], self.tokens("Say this again, please."))

    def test_how_it_is_sampled_and_kept_apart(self):
        greedy = self.good(temperature=1.5, top_p=0.5, nvext={"greed_sampling": True})[2]["sampling"]
        self.assertEqual((greedy.get("temperature", 0), greedy.get("top_k", 0)), (0, 1))
        salts = [self.good(nvext={"cache_salt": "a"}, cache_salt="b"), self.good(cache_salt="b"), self.good(headers={"x-tenant-id": "t"}, nvext={"cache_salt": "a"})]
        self.assertEqual([base64.b64decode(message["cache_salt"]) for _, _, message in salts], [b"a", b"b", b"t"])

    def test_priorities(self):
        self.assertEqual(self.good(nvext={"agent_hints": {"priority": 7}})[2]["priority"], 7)
        for name in ("x-dynamo-request-priority", "x-stator-request-priority", "x-request-priority"):
            self.assertEqual(self.good(headers={name: "-3"}, nvext={"agent_hints": {"priority": 7}})[2]["priority"], -3, name)
        # These are the router's own.
        self.good(nvext={"agent_hints": {"strict_priority": 2, "osl": 40, "latency_sensitivity": 1.5}}, headers={"x-dynamo-request-strict-priority": "1"})

    def test_pins(self):
        for worker in self.workers:
            for nvext in ({"backend_instance_id": worker.id}, {"decode_worker_id": worker.id}):
                self.assertIs(self.good(nvext=nvext)[1], worker)
            for name in ("x-dynamo-worker-instance-id", "x-worker-instance-id", "x-stator-worker-instance-id"):
                self.assertIs(self.good(headers={name: str(worker.id)})[1], worker, name)
        ranked = self.workers[0]
        for rank in (0, 1):
            self.assertEqual(self.good(nvext={"backend_instance_id": ranked.id, "dp_rank": rank})[2].get("dp_rank"), rank)
            for name in ("x-dynamo-dp-rank", "x-dp-rank", "x-data-parallel-rank", "x-stator-dp-rank"):
                _, worker, message = self.good(headers={name: str(rank), "x-worker-instance-id": str(ranked.id)})
                self.assertEqual((worker, message.get("dp_rank")), (ranked, rank), name)
        self.good(nvext={"dp_rank": 2**32 - 1})  # unset
        for wish in ({"backend_instance_id": 1}, {"decode_worker_id": 1}, {"dp_rank": 9}):
            status, _, answer, (worker, _) = self.ask(nvext=wish)
            self.assertEqual((status, worker), (404, None), answer)

    def test_taints(self):
        self.good(nvext={"routing_constraints": {"preferred_taints": {"zone=a": 3.0}}})
        status, _, answer, (worker, _) = self.ask(nvext={"routing_constraints": {"required_taints": ["zone=c"]}})
        self.assertEqual((status, worker), (503, None), answer)
        self.assertIn("taints", answer["message"])

    def test_conversations(self):
        for headers, wanted in SESSIONS:
            context = self.good(headers=headers)[2]["context"]
            got = (*(base64.b64decode(context.get(name, "")).decode() for name in ("session", "parent_session")), context.get("session_final", False))
            self.assertEqual(got, wanted, headers)

    def test_metadata_and_traces(self):
        headers = {"x-dynamo-meta-Region": "eu", "x-dynamo-meta-authorization": "secret", "x-dynamo-meta-token": "Bearer secret",
                   "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "tracestate": "v=1"}
        context = self.good(headers=headers)[2]["context"]
        self.assertEqual({name: base64.b64decode(value) for name, value in context["metadata"].items()}, {"region": b"eu"})
        self.assertTrue(base64.b64decode(context["traceparent"]).startswith(b"00-4bf92f3577b34da6a3ce929d0e0e4736-"))
        self.assertEqual(base64.b64decode(context["tracestate"]), b"v=1")

    def test_what_the_answer_shows(self):
        fields = ["worker_id", "timing", "stop_reason", "completion_token_ids", "engine_data"]
        for route in (CHAT, COMPLETIONS):
            answer, worker, message = self.good(route, nvext={"extra_fields": fields})
            shown = answer["nvext"]
            self.assertEqual(shown["worker_id"], {"prefill_worker_id": worker.id, "prefill_dp_rank": message.get("dp_rank", 0), "decode_worker_id": worker.id,
                                                  "decode_dp_rank": message.get("dp_rank", 0)})
            self.assertEqual(shown["completion_token_ids"], message["tokens"][:4])
            self.assertEqual(shown["engine_data"]["attempts"], 1)
            timing = shown["timing"]
            self.assertEqual(set(timing), {"request_received_ms", "prefill_wait_time_ms", "prefill_time_ms", "ttft_ms", "total_time_ms", "kv_hit_rate",
                                           "router_queue_depth", "kv_transfer_estimated_latency_ms"})
            self.assertLessEqual(timing["ttft_ms"], timing["total_time_ms"])
            self.assertGreater(timing["request_received_ms"], 1.6e12)
        self.assertNotIn("nvext", self.good()[0])
        word = self.good(COMPLETIONS, max_tokens=16)[0]["choices"][0]["text"].split()[1]
        self.assertEqual(self.good(COMPLETIONS, max_tokens=16, stop=[word], nvext={"extra_fields": ["stop_reason"]})[0]["nvext"]["stop_reason"], word)
        self.assertEqual(self.good(COMPLETIONS, max_tokens=16, prompt=[5, 6, 7], stop_token_ids=[6], nvext={"extra_fields": ["stop_reason"]})[0].get("nvext"), None)

    def test_frames_of_streams(self):
        names = ["request_id", "formatted_prompt", "token_ids", "worker_instance_id"]
        text, worker, message = self.good(stream=True, nvext={"annotations": names, "extra_fields": ["timing", "worker_id"]})
        frames = dict(frame.removeprefix("event: ").split("\ndata: ") for frame in text.split("\n\n") if frame.startswith("event: "))
        self.assertEqual(set(frames), set(names))
        self.assertEqual(json.loads(frames["token_ids"]), message["tokens"])
        self.assertIn("Say this again", json.loads(frames["formatted_prompt"]))
        self.assertEqual(int(frames["worker_instance_id"]), worker.id)
        chunks = [json.loads(frame[6:]) for frame in text.split("\n\n") if frame.startswith("data: {")]
        last = [chunk["nvext"] for chunk in chunks if chunk.get("nvext")]
        self.assertEqual(len(last), 1)  # the final one
        self.assertEqual((len(last[0]["timing"]), last[0]["worker_id"]["decode_worker_id"]), (8, worker.id))

    def test_a_dry_run_asks_nobody(self):
        for stream in (False, True):
            status, _, answer, (worker, _) = self.ask(nvext={"annotations": ["query_instance_id:kv"]}, stream=stream)
            self.assertEqual((status, worker), (200, None))
            shown = answer if not stream else json.loads([frame for frame in answer.split("\n\n") if '"decode_worker_id"' in frame][0].removeprefix("data: "))
            self.assertIn(shown["nvext"]["worker_id"]["decode_worker_id"], [worker.id for worker in self.workers])
            self.assertTrue(shown["nvext"]["token_ids"])

    def test_what_has_no_effect_is_named_and_what_cannot_be_refused(self):
        for nvext, named in (({"request_timestamp_ms": 1.0}, "nvext.request_timestamp_ms"), ({"router": {"itl_target": 5}}, "nvext.router.itl_target"),
                             ({"agent_hints": {"speculative_prefill": True}}, "nvext.agent_hints.speculative_prefill")):
            status, headers, answer, _ = self.ask(nvext=nvext)
            self.assertEqual((status, headers.get("x-stator-ignored-fields")), (200, named), answer)
        for nvext, named in (({"metadata_upload": {"url": "http://x"}}, "nvext.metadata_upload"), ({"extra_fields": ["routed_experts"]}, "nvext.extra_fields[0]")):
            status, headers, answer, (worker, _) = self.ask(nvext=nvext)
            self.assertEqual((status, answer["error"]["param"], worker), (501, named, None), answer)
        for nvext, named in (({"nobody": 1}, "nvext.nobody"), ({"agent_hints": {"x": 1}}, "nvext.agent_hints.x"), ({"router": {"x": 1}}, "nvext.router.x"),
                             ({"extra_fields": ["x"]}, "nvext.extra_fields[0]"), ({"token_data": [-1]}, "nvext.token_data"), ({"dp_rank": -1}, "nvext.dp_rank"),
                             ({"annotations": "x"}, "nvext.annotations"), ({"cache_salt": 1}, "nvext.cache_salt"), ({"backend_instance_id": "x"}, "nvext.backend_instance_id")):
            status, _, answer, (worker, _) = self.ask(nvext=nvext)
            self.assertEqual((status, worker), (400, None), answer)
            self.assertTrue(answer["error"]["param"].startswith(named), answer)

    def test_hints_can_be_switched_off(self):
        deaf = Stator("frontend", "--host", "127.0.0.1", "--port", "0", "--discovery", f"file:{self.folder.name}/discovery",
                      env=clean_environment(DYN_DISABLE_FRONTEND_NVEXT="true"))
        self.addCleanup(deaf.kill)
        http = Http(deaf.port)
        eventually(lambda: len(http.get("/health")[1].get("instances", [])) == 2, "both workers")
        status, answer = http.post(CHAT, {"model": "parrot", "max_tokens": 2, "messages": [{"role": "user", "content": "x"}],
                                          "nvext": {"backend_instance_id": 1, "extra_fields": ["timing"], "nobody": 1}}, {"x-dynamo-worker-instance-id": "1"})
        self.assertEqual(status, 200, answer)
        self.assertNotIn("nvext", answer)


if __name__ == "__main__":
    unittest.main()
