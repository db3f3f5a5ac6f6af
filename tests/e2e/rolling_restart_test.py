#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Frontends follow each other on one port, and workers behind them, under load: no request fails, no stream differs."""

import contextlib
import http.client
import json
import socket
import threading
import unittest

import openai

from stator_process import MODEL, Http, Split, Stator, eventually

CHAT = "/v1/chat/completions"
QUESTION = [{"role": "user", "content": "What is a KV cache?"}]
BODY = {"model": MODEL, "messages": QUESTION, "max_tokens": 40, "temperature": 0, "ignore_eos": True}


class Fleet(Split):
    """Frontends that share one port."""

    def __init__(self, lame_duck: str = "1s", **fields):
        self.port = 0
        super().__init__("--share-port", "--lame-duck", lame_duck, **fields)

    def start_frontend(self, *arguments: str) -> Stator:
        frontend = Stator("frontend", "--host", "127.0.0.1", "--port", str(self.port), *self.discovery, *self.frontend_arguments,
                          *arguments)
        self.port = frontend.port
        return frontend

    def replace_frontend(self) -> Stator:
        """The old one, told to end."""
        old, self.frontend = self.frontend, self.start_frontend()
        old.terminate()
        return old


def raw_post(body: dict) -> bytes:
    content = json.dumps(body).encode()
    return (f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
            .encode() + content)


def read_answer(stream):
    """Status, headers and body of the next answer on a connection."""
    line = stream.readline().split()
    assert line, "closed without an answer"
    headers = http.client.parse_headers(stream)
    return int(line[1]), headers, stream.read(int(headers["Content-Length"]))


class Load:
    """Clients without a pause, each of its own kind. `failures` says what went wrong, `texts` what was answered."""

    def __init__(self, port: int):
        self.port = port
        self.texts: list[str] = []
        self.failures: list[str] = []
        self.running = True
        self.client = openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="unused", max_retries=0, timeout=120)
        kinds = [self.openai_stream, self.openai_stream, self.openai_unary, self.connection_each, self.kept_alive, self.pipelined]
        self.counts = {kind.__name__: 0 for kind in kinds}
        self.threads = [threading.Thread(target=self.repeat, args=(kind,)) for kind in kinds]

    def repeat(self, kind):
        while self.running:
            try:
                texts = kind()
            except Exception as error:  # noqa: BLE001 - whatever a client sees is a failure
                self.failures.append(f"{kind.__name__}: {error!r}")
                return
            self.texts += texts
            self.counts[kind.__name__] += 1

    def openai_stream(self):
        stream = self.client.chat.completions.create(
            model=MODEL, messages=QUESTION, max_tokens=40, temperature=0, stream=True, extra_body={"ignore_eos": True})
        return ["".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)]

    def openai_unary(self):
        answer = self.client.chat.completions.create(
            model=MODEL, messages=QUESTION, max_tokens=40, temperature=0, extra_body={"ignore_eos": True})
        return [answer.choices[0].message.content]

    def connection_each(self):
        status, answer = Http(self.port).post(CHAT, BODY)
        assert status == 200, answer
        return [answer["choices"][0]["message"]["content"]]

    def kept_alive(self):
        """One connection until the server says that it closes it."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        texts = []
        with contextlib.closing(connection):
            while self.running and len(texts) < 50:
                connection.request("POST", CHAT, json.dumps(BODY), {"Content-Type": "application/json"})
                response = connection.getresponse()
                assert response.status == 200, response.status
                texts.append(json.loads(response.read())["choices"][0]["message"]["content"])
                if response.will_close:
                    break
        return texts

    def pipelined(self):
        """Two requests in one write: the server answers both, or says with the first that it closes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=120) as connection:
            connection.sendall(raw_post(BODY) * 2)
            texts = []
            answers = connection.makefile("rb")  # one buffer for both: it may read ahead
            for _ in range(2):
                status, headers, body = read_answer(answers)
                assert status == 200, status
                texts.append(json.loads(body)["choices"][0]["message"]["content"])
                if headers["Connection"] == "close":
                    break
            return texts

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.running = False
        for thread in self.threads:
            thread.join()
        self.client.close()


class RollingRestart(unittest.TestCase):
    def deploy(self, **fields) -> Fleet:
        fleet = Fleet(**fields)
        self.addCleanup(fleet.close)
        return fleet

    def check(self, load: Load, least: int):
        self.assertEqual(load.failures, [])
        self.assertEqual(len(set(load.texts)), 1, "every answer is the same")
        self.assertGreaterEqual(min(load.counts.values()), 1, load.counts)
        self.assertGreater(len(load.texts), least)

    def test_frontends_and_workers_are_replaced_one_after_the_other(self):
        fleet = self.deploy()
        with Load(fleet.port) as load:
            for _ in range(3):
                old = fleet.replace_frontend()
                self.assertEqual(old.wait(), 0, old.log())
                old.close()
                leaving = fleet.workers.pop(0)
                fleet.workers.append(fleet.start_worker())
                fleet.wait_for_workers(3 if leaving.alive() else 2)
                leaving.terminate()
                self.assertEqual(leaving.wait(), 0, leaving.log())
                leaving.close()
                self.assertEqual(load.failures, [])
        self.check(load, 20)
        eventually(fleet.idle, "idle")

    def test_two_frontends_serve_one_port_and_either_may_end(self):
        fleet = self.deploy()
        first = fleet.frontend
        with Load(fleet.port) as load:
            second = fleet.start_frontend()
            third = fleet.start_frontend()
            for leaving in (second, first):  # one behind the head of the line, then the head
                leaving.terminate()
                self.assertEqual(leaving.wait(), 0, leaving.log())
                leaving.close()
            fleet.frontend = third
            eventually(lambda: len(load.texts) > 20, "the third serves alone")
        self.check(load, 20)

    def test_connections_that_waited_for_a_dead_frontend_are_served(self):
        fleet = self.deploy()
        dead, fleet.frontend = fleet.frontend, fleet.start_frontend()
        dead.freeze()  # it accepts nothing, and connections wait in its sockets
        fleet.frontend.freeze()
        waiting = [socket.create_connection(("127.0.0.1", fleet.port), timeout=120) for _ in range(20)]
        for connection in waiting:
            connection.sendall(raw_post(BODY))
        dead.kill()
        fleet.frontend.thaw()
        for connection in waiting:
            response = http.client.HTTPResponse(connection)
            response.begin()
            self.assertEqual(response.status, 200)
            response.read()
            connection.close()
        dead.close()

    def test_one_that_leaves_alone_serves_on_while_load_balancers_look_elsewhere(self):
        fleet = self.deploy(lame_duck="1h")
        fleet.frontend.terminate()
        eventually(lambda: fleet.http.request("GET", "/health")[0] == 503, "unhealthy")
        status, headers, _ = fleet.http.request("POST", CHAT, BODY)
        self.assertEqual((status, headers["Connection"]), (200, "close"))
        self.assertEqual(fleet.http.request("GET", "/live")[0], 200)
        fleet.frontend.terminate()  # once more: at once
        self.assertEqual(fleet.frontend.wait(), 0)

    def test_a_taken_port_is_refused_without_the_option(self):
        fleet = self.deploy(workers=0)
        with self.assertRaises(AssertionError) as refused:
            Stator("frontend", "--host", "127.0.0.1", "--port", str(fleet.port), *fleet.discovery)
        self.assertIn("in use", str(refused.exception))


if __name__ == "__main__":
    unittest.main()
