#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Streams that outlive their frontend: killed under load, clients come back to another one and get exactly the rest.

STATOR_FRONTEND_KILLS=N makes the storm longer than the default.
"""

import http.client
import json
import os
import pathlib
import re
import tempfile
import threading
import time
import unittest

import openai

from authority import Authority
from exact_streams import Answer, ask, bodies
from stator_process import MODEL, ROOT, Http, Split, Stator, eventually

KILLS = int(os.environ.get("STATOR_FRONTEND_KILLS", "3"))
COPIES_LOST = "stator_frontend_stream_copies_lost_total"
RENEWED = "stator_frontend_stream_copies_renewed_total"
RESUMED = "stator_frontend_resumed_streams_total"
HOLDERS = "stator_runtime_journal_holders"
HELD = "stator_runtime_journals_held"


class Line:
    """A client that keeps what EventSource keeps: whole events, and the id of the last one."""

    def __init__(self, path: str, body: dict, headers: dict | None = None):
        self.path = path
        self.body = json.dumps(body | {"stream": True})
        self.headers = {"Content-Type": "application/json"} | (headers or {})
        self.events: list[str] = []  # their data
        self.ids: list[str] = []
        self.status = 0
        self.error = ""

    def read(self, port: int, events_max: int = 1 << 30) -> bool:
        """Until the stream's end (True) or until the connection breaks or enough has come (False)."""
        headers = dict(self.headers)
        if self.ids:
            headers["Last-Event-ID"] = self.ids[-1]
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        try:
            connection.request("POST", self.path, self.body, headers)
            response = connection.getresponse()
            self.status = response.status
            if response.status != 200:
                self.error = response.read().decode()
                return True
            event: dict[str, str] = {}
            for raw in response:
                line = raw.decode().rstrip("\n")
                if line:
                    name, _, value = line.partition(":")
                    event[name] = value.removeprefix(" ")
                    continue
                if "data" in event:
                    if event.get("event") == "error" or event["data"].startswith('{"error"'):
                        self.error = event["data"]
                    self.events.append(event["data"])
                    if event.get("id"):
                        self.ids.append(event["id"])
                    elif "id" in event:
                        self.ids.clear()  # taken back
                    if event["data"] == "[DONE]":
                        return True
                    if len(self.events) >= events_max:
                        return False
                event = {}
        except (OSError, http.client.HTTPException):
            pass
        finally:
            connection.close()
        return False

    def visible(self) -> dict:
        answer = Answer()
        answer.events = self.events
        return answer.visible()


class Frontends(Split):
    """Two frontends that keep each other's streams."""

    def __init__(self, *arguments: str, **fields):
        super().__init__("--frontend-resumable-streams", "true", *arguments, **fields)
        try:
            self.second = self.start_frontend()
            for frontend in (self.frontend, self.second):
                self.wait_for_copies(frontend)
        except BaseException:
            self.close()
            raise

    def wait_for_copies(self, frontend: Stator):
        """It knows its workers, and the one other frontend that keeps its streams."""
        http = Http(frontend.port)
        eventually(lambda: http.request("GET", "/health")[0] == 200 and http.metric(HOLDERS) == 1, "ready")

    def replace(self, frontend: Stator) -> Stator:
        """Killed without a word, and another one started, which is at work when this returns."""
        frontend.kill()
        frontend.close()
        new = self.start_frontend()
        if frontend is self.frontend:
            self.frontend = new
        else:
            self.second = new
        return new

    def close(self) -> None:
        if getattr(self, "second", None) is not None:
            self.second.close()
        super().close()


class ResumeTest(unittest.TestCase):
    def deploy(self, *arguments: str, **fields) -> Frontends:
        # The machine may be busy: a copy that is late here is no fault.
        deployment = Frontends(*(arguments or ("--frontend-journal-ack-timeout", "60s")), **fields)
        self.addCleanup(deployment.close)
        return deployment

    def test_streams_go_on_elsewhere_when_their_frontend_is_killed(self):
        deployment = self.deploy(worker_arguments=("--sim-speedup", "1"))
        kinds = bodies(300)
        expected = []
        for path, body in kinds:
            answer = ask(deployment.frontend.port, path, body)
            self.assertEqual(answer.error, "")
            expected.append(answer.visible())
        moved = 0
        for _ in range(KILLS):
            lines = [Line(*kind) for kind in kinds for _ in range(2)]

            def client(line: Line):
                end = time.monotonic() + 120
                port = deployment.frontend.port
                while not line.read(port) and time.monotonic() < end:
                    port = deployment.second.port

            threads = [threading.Thread(target=client, args=(line,)) for line in lines]
            for thread in threads:
                thread.start()
            eventually(lambda: all(len(line.ids) > 3 for line in lines), "streams in mid-answer")
            before = Http(deployment.second.port).metric(RESUMED)
            deployment.replace(deployment.frontend)
            for thread in threads:
                thread.join()
            self.assertEqual([line.error for line in lines if line.error], [], f"of {len(lines)} streams")
            for i, line in enumerate(lines):
                self.assertEqual(line.events[-1], "[DONE]")
                self.assertEqual(line.visible(), expected[i // 2], kinds[i // 2])
            moved += Http(deployment.second.port).metric(RESUMED) - before
            for frontend in (deployment.frontend, deployment.second):
                deployment.wait_for_copies(frontend)
        self.assertGreater(moved, KILLS * len(kinds), "more than half of them were running")
        self.assertEqual(Http(deployment.second.port).metric("stator_frontend_resume_failures_total"), 0)
        eventually(deployment.idle, "idle")
        print(f"{KILLS} frontends killed, {moved:.0f} streams went on elsewhere")

    def test_the_rest_is_the_same_from_every_event_on(self):
        deployment = self.deploy()
        for path, body in bodies(8):
            whole = Line(path, body)
            self.assertTrue(whole.read(deployment.frontend.port))
            self.assertEqual(len(whole.ids), len(whole.events))
            for known in range(1, len(whole.events)):
                rest = Line(path, body)
                rest.ids = [whole.ids[known - 1]]
                self.assertTrue(rest.read(deployment.second.port))
                self.assertEqual(rest.events, whole.events[known:], f"{body} from {known}")

    def test_a_journal_of_several_mebibytes_is_gone_on_with(self):
        deployment = self.deploy(worker_arguments=("--kv-blocks", "8192"))
        body = {"model": MODEL, "messages": [{"role": "user", "content": "Count."}], "n": 16, "logprobs": True, "top_logprobs": 20,
                "max_tokens": 1500, "ignore_eos": True, "seed": 7}
        whole = Line("/v1/chat/completions", body)
        self.assertTrue(whole.read(deployment.frontend.port))
        self.assertEqual(whole.status, 200, whole.error)  # its error is of no use here: "error" is a token of the vocabulary
        held = Http(deployment.second.port)
        eventually(lambda: held.metric(f"{HELD}_bytes") > 7e6, "the other frontend holds more than 7 MB")
        known = len(whole.ids) - 100
        rest = Line("/v1/chat/completions", body)
        rest.ids = [whole.ids[known - 1]]
        self.assertTrue(rest.read(deployment.frontend.port))  # which has to fetch it
        self.assertEqual(rest.status, 200, rest.error)
        self.assertEqual(rest.events, whole.events[known:])

    def test_a_client_whose_connection_broke_comes_back_to_the_same_frontend(self):
        deployment = self.deploy(worker_arguments=("--sim-speedup", "1"))
        path, body = bodies(60)[1]
        whole = ask(deployment.frontend.port, path, body)
        line = Line(path, body)
        self.assertFalse(line.read(deployment.frontend.port, events_max=5))
        self.assertTrue(line.read(deployment.frontend.port))
        self.assertEqual(line.visible(), whole.visible())
        eventually(deployment.idle, "idle")

    def test_only_who_sent_the_request_gets_the_rest(self):
        deployment = self.deploy()
        path, body = bodies(8)[0]
        line = Line(path, body, {"Authorization": "Bearer one"})
        self.assertTrue(line.read(deployment.frontend.port))
        for other in (Line(path, body | {"max_tokens": 9}, {"Authorization": "Bearer one"}),
                      Line(path, body, {"Authorization": "Bearer two"}), Line(path, body)):
            other.ids = [line.ids[0]]
            other.read(deployment.second.port)
            self.assertEqual(other.status, 404, other.error)
            self.assertIn("Last-Event-ID", other.error)
        for odd, status in (("7", 400), (line.ids[0][1:], 400), ("0" * 32 + line.ids[0][32:], 404),
                            (line.ids[0].split("-")[0] + "-1.0", 404)):
            other = Line(path, body, {"Authorization": "Bearer one"})
            other.ids = [odd]
            other.read(deployment.second.port)
            self.assertEqual(other.status, status, odd)
            self.assertTrue(json.loads(other.error)["error"]["message"])

    def test_clients_that_come_back_count_as_requests_in_flight(self):
        deployment = self.deploy("--frontend-inflight-max", "1", "--shards", "1", "--frontend-journal-ack-timeout", "60s")
        path, body = bodies(8)[0]
        unary = {name: value for name, value in body.items() if not name.startswith("stream")}
        line = Line(path, body)
        line.read(deployment.frontend.port)
        self.assertTrue(line.ids, line.error)

        def refused():
            status, _, answer = deployment.http.request("POST", path, unary)
            return answer if status == 503 else None

        deployment.second.freeze()  # it keeps the copy: the client's return waits for it

        def come_back():  # a request below may be there first
            line.read(deployment.frontend.port)
            while line.status == 503:
                line.read(deployment.frontend.port)

        back = threading.Thread(target=come_back)
        back.start()
        try:
            self.assertIn(b"frontend.inflight_max", eventually(refused, "refused"))
        finally:
            deployment.second.thaw()
            back.join()
        eventually(lambda: deployment.http.request("POST", path, unary)[0] == 200, "there is room again")

    def test_a_stream_whose_copy_is_lost_goes_on_without(self):
        deployment = self.deploy(worker_arguments=("--sim-speedup", "1"))
        path, body = bodies(400)[1]
        expected = ask(deployment.frontend.port, path, body).visible()
        line = Line(path, body)
        thread = threading.Thread(target=line.read, args=(deployment.frontend.port,))
        thread.start()
        eventually(lambda: len(line.ids) > 3, "it streams")
        deployment.second.kill()
        thread.join()
        self.assertEqual(line.error, "")
        self.assertEqual(line.visible(), expected)
        self.assertGreaterEqual(deployment.http.metric(COPIES_LOST), 1)
        eventually(deployment.idle, "idle")

    def test_a_lone_frontend_gives_ids_from_the_first_event_and_copies_follow_when_others_come(self):
        deployment = Split("--frontend-resumable-streams", "true", "--frontend-journal-ack-timeout", "60s",
                           worker_arguments=("--sim-speedup", "1"))
        self.addCleanup(deployment.close)
        eventually(lambda: deployment.http.request("GET", "/health")[0] == 200, "ready")
        path, body = bodies(1200)[1]
        line = Line(path, body)
        self.assertFalse(line.read(deployment.frontend.port, events_max=5))
        self.assertEqual(len(line.ids), len(line.events), "of every event, though nobody else is there")
        whole = Line(path, body)
        thread = threading.Thread(target=whole.read, args=(deployment.frontend.port,))
        thread.start()
        eventually(lambda: len(whole.ids) > 3, "it streams")
        first_id = whole.ids[0]
        second = deployment.start_frontend()
        self.addCleanup(second.close)
        eventually(lambda: deployment.http.metric(RENEWED) >= 1, "its copy is made")
        eventually(lambda: whole.ids[-1].split(".")[0] != first_id.split(".")[0], "events name the other one")
        deployment.frontend.kill()
        thread.join()
        self.assertNotEqual(whole.events[-1], "[DONE]")
        self.assertTrue(whole.read(second.port))
        self.assertEqual(whole.error, "")
        again = Line(path, body)
        again.read(second.port)
        self.assertEqual(whole.visible(), again.visible())
        line.read(second.port)
        self.assertEqual(line.status, 404, "its only copy died: no text comes twice")

    def test_a_copy_that_was_lost_to_a_pause_is_made_anew(self):
        deployment = self.deploy("--frontend-journal-ack-timeout", "200ms", worker_arguments=("--sim-speedup", "1"))
        path, body = bodies(2000)[1]
        line = Line(path, body)
        thread = threading.Thread(target=line.read, args=(deployment.frontend.port,))
        thread.start()
        eventually(lambda: len(line.ids) > 3, "it streams")
        deployment.second.freeze()
        eventually(lambda: deployment.http.metric(COPIES_LOST) >= 1, "its copy is given up")
        count = len(line.ids)
        eventually(lambda: len(line.ids) > count + 3, "it goes on, with ids")
        deployment.second.thaw()
        eventually(lambda: deployment.http.metric(RENEWED) >= 1, "and has a copy again")
        count = len(line.ids)
        eventually(lambda: len(line.ids) > count + 3, "which its events name")
        deployment.frontend.kill()
        thread.join()
        self.assertTrue(line.read(deployment.second.port))
        self.assertEqual((line.error, line.events[-1]), ("", "[DONE]"))
        again = Line(path, body)
        again.read(deployment.second.port)
        self.assertEqual(line.visible(), again.visible())

    def test_copies_are_bounded_in_memory_and_time(self):
        deployment = self.deploy("--frontend-journal-ack-timeout", "60s", "--frontend-journal-bytes-max", "4KiB",
                                 "--frontend-journal-keep", "5s")
        path, body = bodies(200)[0]
        line = Line(path, body)
        self.assertTrue(line.read(deployment.frontend.port))
        self.assertEqual(line.ids, [], "the copy outgrew its bound, the stream went on without")
        self.assertEqual(line.error, "")
        self.assertGreaterEqual(deployment.http.metric(COPIES_LOST), 1)
        short = Line(*bodies(2)[0])
        eventually(lambda: short.read(deployment.frontend.port) and short.ids, "there is room again")
        held = Http(deployment.second.port)
        eventually(lambda: held.metric(HELD) > 0, "counted, which is done a few times a second")
        eventually(lambda: held.metric(HELD) == 0 and held.metric(f"{HELD}_bytes") == 0, "forgotten")
        late = Line(*bodies(2)[0])
        late.ids = short.ids[:1]
        late.read(deployment.second.port)
        self.assertEqual(late.status, 404)

    def test_the_official_client_goes_on_as_the_documentation_says(self):
        deployment = self.deploy(worker_arguments=("--sim-speedup", "1"))
        page = (ROOT / "docs" / "operations" / "resumable_streams.md").read_text()
        example: dict = {}
        exec(re.search(r"```python\n(.*?)```", page, re.S)[1], example)  # noqa: S102: our own page
        clients = [openai.OpenAI(base_url=frontend.url + "/v1", api_key="unused", max_retries=0, timeout=120)
                   for frontend in (deployment.frontend, deployment.second)]
        for client in clients:
            self.addCleanup(client.close)
        request = {"model": MODEL, "messages": [{"role": "user", "content": "What is a KV cache?"}], "max_tokens": 300,
                   "extra_body": {"ignore_eos": True}}
        expected = clients[1].chat.completions.create(**request).choices[0].message.content
        text = ""
        for i, chunk in enumerate(example["chunks_of"](clients, **request)):
            text += chunk.choices[0].delta.content or ""
            if i == 20:
                deployment.frontend.kill()
        self.assertEqual(text, expected)
        self.assertEqual(Http(deployment.second.port).metric(RESUMED), 1)


class Tls(unittest.TestCase):
    """With rpc.tls_* copies pass between those whose certificates say so, and nobody else."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="stator-journal-tls-")
        self.addCleanup(folder.cleanup)
        self.ca = Authority(pathlib.Path(folder.name), "ca")
        self.forger = Authority(pathlib.Path(folder.name), "forger")
        self.deployment = Split(*self.frontend(self.ca, "first", "DNS:frontends.stator"), workers=1,
                                worker_arguments=(*self.ca.options("worker", "IP:127.0.0.1"), "--sim-speedup", "1"))
        self.addCleanup(self.deployment.close)
        self.deployment.wait_for_workers(1)

    def frontend(self, authority: Authority, name: str, *san: str) -> tuple[str, ...]:
        return ("--frontend-resumable-streams", "true", "--frontend-journal-ack-timeout", "60s", "--frontend-journal-tls-name",
                "frontends.stator", "--rpc-tls-allowed-callers", "frontends.stator", *authority.options(name, *san))

    def join(self, *arguments: str) -> Stator:
        other = self.deployment.start_frontend(*arguments)
        self.addCleanup(other.close)
        for each in (self.deployment.frontend, other):
            eventually(lambda each=each: Http(each.port).metric(HOLDERS) == 1, "they found each other")
        return other

    def test_a_stream_goes_on_at_one_of_the_same_authority(self):
        other = self.join(*self.frontend(self.ca, "second", "DNS:frontends.stator"))
        path, body = bodies(60)[1]
        expected = ask(other.port, path, body).visible()
        line = Line(path, body)
        self.assertFalse(line.read(self.deployment.frontend.port, events_max=5))
        self.deployment.frontend.kill()
        self.assertTrue(line.read(other.port))
        self.assertEqual(line.visible(), expected)

    def check_refused(self, other: Stator):
        """Neither gets the other's copies; streams go on without."""
        for frontend in (self.deployment.frontend, other):
            line = Line(*bodies(8)[0])
            self.assertTrue(line.read(frontend.port))
            self.assertEqual(line.error, "")
            self.assertGreaterEqual(Http(frontend.port).metric("stator_runtime_journal_call_failures_total"), 1)
            self.assertEqual(Http(frontend.port).metric(HELD), 0)

    def test_one_that_is_not_on_the_list_is_refused_and_counted(self):
        self.check_refused(self.join(*self.frontend(self.ca, "stranger", "DNS:somebody.stator")))
        self.assertGreaterEqual(self.deployment.http.metric("stator_runtime_journal_refused_callers_total"), 1)
        self.assertEqual(self.deployment.frontend.log().count("a process may not keep journals here"), 1)

    def test_one_certified_by_somebody_else_is_refused(self):
        other = self.join(*self.frontend(self.forger, "forged", "DNS:frontends.stator"))
        line = Line(*bodies(8)[0])
        self.assertTrue(line.read(self.deployment.frontend.port))
        self.assertEqual(line.error, "")
        self.assertEqual(Http(other.port).metric(HELD), 0)


if __name__ == "__main__":
    unittest.main()
