#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Engine servers behind a frontend: official client, several servers, failures, refusals."""

import contextlib
import itertools
import json
import pathlib
import socket
import tempfile
import threading
import unittest

import openai

from free_ports import free_port
from gguf_file import byte_vocabulary, gguf
from scripted_engine import ScriptedEngine
from stator_process import MODEL_DIR, Http, Split, Stator, eventually

MESSAGES = [{"role": "user", "content": "What is a KV cache?"}]
EVENTS = ("--event-endpoint", "tcp://127.0.0.1:0", "--event-replay-endpoint", "tcp://127.0.0.1:0")
FAST = ("--engine-poll-interval", "100ms")


class Fleet(unittest.TestCase):
    """Two scripted servers behind one `stator serve`."""

    token_delay_s = 0.0

    def setUp(self) -> None:
        self.engines = [ScriptedEngine(token_delay_s=self.token_delay_s, port=free_port()) for _ in range(2)]
        for engine in self.engines:
            self.addCleanup(lambda e=engine: e.thread.is_alive() and e.close())
        self.stator = Stator(
            "serve", str(MODEL_DIR), "--engine", "vllm", "--url", ",".join(e.url for e in self.engines),
            "--host", "127.0.0.1", "--port", "0", *FAST)
        self.addCleanup(self.stator.close)
        self.http = Http(self.stator.port)
        eventually(lambda: self.http.request("GET", "/health")[0] == 200, "healthy")
        self.client = openai.OpenAI(base_url=f"{self.stator.url}/v1", api_key="none", max_retries=0)

    def chat(self, **fields):
        return self.client.chat.completions.create(
            **({"model": "m", "messages": MESSAGES, "max_tokens": 12, "temperature": 0} | fields))

    def stream_text(self, **fields) -> tuple[str, str]:
        text, finish = "", ""
        for chunk in self.chat(stream=True, **fields):
            for choice in chunk.choices:
                text += choice.delta.content or ""
                finish = choice.finish_reason or finish
        return text, finish

    def ask_something_new(self, number: int) -> bool:
        """A prompt that shares no block with another: no server is better than the other."""
        prompt = [300 + (number * 37 + k * k) % 500 for k in range(40)]
        return bool(self.client.completions.create(model="m", prompt=prompt, max_tokens=1).choices)

    def requests(self) -> list[dict]:
        return [request for engine in self.engines for request in engine.requests]


class TwoServers(Fleet):
    def test_a_stream_and_an_answer_in_one_piece_say_the_same(self):
        unary = self.chat()
        text, finish = self.stream_text()

        self.assertEqual(unary.choices[0].message.content, text)
        self.assertEqual((unary.choices[0].finish_reason, finish), ("length", "length"))
        self.assertEqual(unary.usage.completion_tokens, 12)
        self.assertEqual(unary.usage.prompt_tokens_details.cached_tokens, 16)
        self.assertTrue(all(isinstance(t, int) for r in self.requests() for t in r["prompt"]))

    def test_both_servers_are_used(self):
        for i in range(24):
            self.ask_something_new(i)
        self.assertTrue(all(engine.requests for engine in self.engines))

    def test_the_model_has_the_servers_name_and_limits(self):
        _, models = self.http.get("/v1/models")
        self.assertEqual([model["id"] for model in models["data"]], ["m"])
        status, error = self.http.post("/v1/completions", {"model": "m", "prompt": [5] * 3000, "max_tokens": 1})
        self.assertEqual(status, 400)
        self.assertIn("2048", error["error"]["message"])
        self.assertEqual(self.requests(), [])

    def test_logprobs(self):
        answer = self.chat(max_tokens=3, logprobs=True, top_logprobs=2)
        content = answer.choices[0].logprobs.content
        self.assertEqual([entry.logprob for entry in content], [-0.25] * 3)
        self.assertEqual([len(entry.top_logprobs) for entry in content], [2] * 3)
        self.assertEqual("".join(entry.token for entry in content), answer.choices[0].message.content)

    def test_a_stop_string_ends_the_answer_and_the_engines_work(self):
        whole = self.chat(max_tokens=60).choices[0].message.content
        stop = whole[10:14]
        text, finish = self.stream_text(max_tokens=60, stop=[stop])
        self.assertEqual(text, whole[:whole.index(stop)])
        self.assertEqual(finish, "stop")
        eventually(lambda: sum(e.running for e in self.engines) == 0, "the engine's stream is closed")

    def test_sampling_reaches_the_engine(self):
        self.client.completions.create(
            model="m", prompt="a", max_tokens=2, temperature=0.5, seed=7, presence_penalty=0.5,
            extra_body={"top_k": 5, "min_p": 0.1, "priority": 3})
        sent = self.requests()[0]
        self.assertEqual((sent["temperature"], sent["seed"], sent["presence_penalty"], sent["top_k"], sent["min_p"]),
                         (0.5, 7, 0.5, 5, 0.1))

    def test_tools_are_rendered_into_the_prompt_and_structure_into_the_request(self):
        self.client.completions.create(
            model="m", prompt="a", max_tokens=2, extra_body={"structured_outputs": {"choice": ["x", "y"]}})
        self.assertEqual(self.requests()[0]["structured_outputs"], {"choice": ["x", "y"]})

    def test_a_token_outside_the_vocabulary_is_never_sent(self):
        status, error = self.http.post("/v1/completions", {"model": "m", "prompt": [1 << 20], "max_tokens": 1})
        self.assertEqual(status, 400, error)
        self.assertEqual(self.requests(), [])

    def test_an_engines_refusal_is_told_with_its_words(self):
        for engine in self.engines:
            engine.fail_with = 400
        with self.assertRaises(openai.BadRequestError) as refused:
            self.chat()
        self.assertIn("scripted failure", str(refused.exception))

    def test_an_overloaded_server_leaves_it_to_the_other(self):
        self.engines[0].fail_with = 503
        for i in range(12):
            self.ask_something_new(i)
        self.assertTrue(self.engines[1].requests)


class SlowServers(Fleet):
    token_delay_s = 0.03

    def test_a_client_that_leaves_aborts_the_engines_work(self):
        stream = self.chat(stream=True, max_tokens=1000)
        next(iter(stream))
        stream.close()
        eventually(lambda: sum(e.aborted for e in self.engines) == 1, "the engine's stream is cut")
        eventually(lambda: sum(e.running for e in self.engines) == 0, "nothing runs in the engine")

    def test_streams_of_a_killed_server_go_on_at_the_other(self):
        expected = self.chat(max_tokens=40).choices[0].message.content
        results: list = [None] * 8

        def run(i: int) -> None:
            results[i] = self.stream_text(max_tokens=40)

        threads = [threading.Thread(target=run, args=(i,)) for i in range(len(results))]
        for thread in threads:
            thread.start()
        eventually(lambda: all(e.running for e in self.engines), "both servers stream")
        self.engines[0].kill()
        for thread in threads:
            thread.join()

        self.assertEqual(results, [(expected, "length")] * len(results))
        eventually(lambda: self.http.metric("stator_adapter_engine_up") == 1, "one of two is up")
        self.assertEqual(self.chat(max_tokens=40).choices[0].message.content, expected)

    def test_a_server_that_comes_back_is_used_again(self):
        port = self.engines[0].port
        self.engines[0].kill()
        eventually(lambda: self.http.metric("stator_adapter_engine_up") == 1, "one of two is up")
        again = ScriptedEngine(port=port, script=self.engines[0].script)
        self.addCleanup(again.close)
        eventually(lambda: self.http.metric("stator_adapter_engine_up") == 2, "both are up")
        numbers = itertools.count()
        eventually(lambda: self.ask_something_new(next(numbers)) and again.requests, "it gets requests")


class FakeServers(unittest.TestCase):
    """Two `stator sim-server` processes that publish KV events."""

    def setUp(self) -> None:
        self.servers = [
            Stator("sim-server", "--dialect", "vllm", "--model-dir", str(MODEL_DIR), "--served-model-name", "m",
                   "--port", "0", "--speedup", "0", *EVENTS)
            for _ in range(2)]
        for server in self.servers:
            self.addCleanup(server.close)
        self.stator = Stator(
            "serve", str(MODEL_DIR), "--engine", "vllm", "--url", ",".join(server.url for server in self.servers),
            "--host", "127.0.0.1", "--port", "0", *FAST)
        self.addCleanup(self.stator.close)
        self.http = Http(self.stator.port)
        eventually(lambda: self.http.request("GET", "/health")[0] == 200, "healthy")

    def ask(self, messages: list[dict]) -> tuple[str, str]:
        """The answer and its id."""
        status, answer = self.http.post("/v1/chat/completions", {"model": "m", "messages": messages, "max_tokens": 16, "temperature": 0})
        self.assertEqual(status, 200, answer)
        return answer["choices"][0]["message"]["content"], answer["id"]

    def receipt(self, response_id: str) -> dict:
        status, receipt = self.http.get(f"/receipts/{response_id}")
        self.assertEqual(status, 200, receipt)
        return receipt

    def test_the_second_turn_goes_where_the_engine_says_the_first_is_cached(self):
        messages = [{"role": "user", "content": "the cache " * 60}]
        answer, first = self.ask(messages)
        chosen = self.receipt(first)["chosen"]
        eventually(lambda: self.http.metric("stator_router_index_blocks") > 0, "the engine's events are known")
        messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": "and then?"}]
        _, second = self.ask(messages)

        receipt = self.receipt(second)
        self.assertEqual(receipt["chosen"], chosen)
        self.assertGreater(receipt["best_overlap_blocks"], 3, receipt)
        self.assertEqual(self.http.metric("stator_router_index_workers", trust="exact"), 2)


class ToolsOfServers(unittest.TestCase):
    """Calls that a server makes under a grammar, in the words of each server."""

    TOOL = {"type": "function", "function": {"name": "weather", "parameters": {
        "type": "object", "properties": {"city": {"enum": ["Oslo"]}}, "required": ["city"]}}}

    def test_required_and_named_tools_are_called(self):
        for dialect in ("vllm", "sglang", "llamacpp"):
            server = Stator("sim-server", "--dialect", dialect, "--model-dir", str(MODEL_DIR), "--served-model-name", "m",
                            "--port", "0", "--speedup", "0")
            self.addCleanup(server.close)
            stator = Stator("serve", str(MODEL_DIR), "--engine", dialect, "--url", server.url, "--host", "127.0.0.1", "--port", "0",
                            *FAST)
            self.addCleanup(stator.close)
            eventually(lambda: Http(stator.port).request("GET", "/health")[0] == 200, "healthy")
            for choice in ("required", {"type": "function", "function": {"name": "weather"}}):
                with self.subTest(dialect=dialect, choice=choice):
                    status, answer = Http(stator.port).post("/v1/chat/completions", {
                        "model": "m", "messages": [{"role": "user", "content": "Oslo?"}], "tools": [self.TOOL], "tool_choice": choice})
                    self.assertEqual(status, 200, answer)
                    call = answer["choices"][0]["message"]["tool_calls"][0]["function"]
                    self.assertEqual((call["name"], json.loads(call["arguments"])), ("weather", {"city": "Oslo"}))


def neighbouring_ports() -> int:
    """The first of two free ports in a row: rank r publishes at the given port plus r."""
    while True:
        port = free_port()
        with socket.socket() as second, contextlib.suppress(OSError):
            second.bind(("127.0.0.1", port + 1))
            return port


class Ranks(unittest.TestCase):
    """A server with two data-parallel ranks: one worker, two places to route to."""

    dialect = "vllm"

    def setUp(self) -> None:
        server = Stator("sim-server", "--dialect", self.dialect, "--model-dir", str(MODEL_DIR), "--served-model-name", "m",
                        "--port", "0", "--speedup", "0", "--dp-size", "2",
                        "--event-endpoint", f"tcp://*:{neighbouring_ports()}",
                        "--event-replay-endpoint", f"tcp://*:{neighbouring_ports()}")
        self.addCleanup(server.close)
        self.stator = Stator("serve", str(MODEL_DIR), "--engine", self.dialect, "--url", server.url,
                             "--host", "127.0.0.1", "--port", "0", *FAST)
        self.addCleanup(self.stator.close)
        self.http = Http(self.stator.port)
        eventually(lambda: self.http.request("GET", "/health")[0] == 200, "healthy")

    def ask(self, text: str, headers: dict | None = None) -> tuple[dict, dict]:
        """The receipt and the answer."""
        status, answer = self.http.post("/v1/chat/completions", {
            "model": "m", "max_tokens": 4, "temperature": 0, "messages": [{"role": "user", "content": text}]}, headers)
        self.assertEqual(status, 200, answer)
        return self.http.get(f"/receipts/{answer['id']}")[1], answer

    def blocks(self) -> float:
        return self.http.metric("stator_router_index_blocks")

    def test_each_rank_has_a_cache_of_its_own_and_gets_what_it_holds(self):
        eventually(lambda: self.http.metric("dynamo_component_router_worker_registered") == 2, "both ranks are known")
        worker = self.http.get("/health")[1]["instances"][0]["instance_id"]
        texts = [f"Tale {rank}. " + "Once upon a time there was a cache. " * 20 for rank in range(2)]
        for rank, text in enumerate(texts):
            before = self.blocks()
            receipt, _ = self.ask(text, {"x-stator-worker-instance-id": str(worker), "x-stator-dp-rank": str(rank)})
            self.assertEqual(receipt["chosen"], {"worker_id": str(worker), "dp_rank": rank})
            eventually(lambda before=before: self.blocks() > before, f"the events of rank {rank} are known")

        for rank, text in enumerate(texts):
            receipt, answer = self.ask(text)
            self.assertEqual(receipt["chosen"]["dp_rank"], rank, receipt)
            candidates = {candidate["dp_rank"]: candidate for candidate in receipt["candidates"]}
            self.assertGreater(candidates[rank]["overlap_blocks"], candidates[1 - rank]["overlap_blocks"])
            self.assertEqual(candidates[rank]["trust"], "exact")
            self.assertGreater(answer["usage"]["prompt_tokens_details"]["cached_tokens"], 0, "the engine used that rank")
        self.assertEqual(self.http.metric("kv_cache_event_warnings", warning_kind="undeclared_rank"), 0)


class SglangRanks(Ranks):
    dialect = "sglang"


class Silent(unittest.TestCase):
    """A server without KV events beside one with them."""

    def test_what_it_has_cached_is_guessed_while_the_other_stays_exact(self):
        servers = [
            Stator("sim-server", "--dialect", "vllm", "--model-dir", str(MODEL_DIR), "--served-model-name", "m",
                   "--port", "0", "--speedup", "0", *events)
            for events in (EVENTS, ("--no-events",))]
        for server in servers:
            self.addCleanup(server.close)
        stator = Stator("serve", str(MODEL_DIR), "--engine", "vllm", "--url", ",".join(server.url for server in servers),
                        "--host", "127.0.0.1", "--port", "0", *FAST)
        self.addCleanup(stator.close)
        http = Http(stator.port)
        eventually(lambda: len(http.get("/health")[1].get("instances", [])) == 2, "both are there")
        for trust in ("exact", "approximate"):
            eventually(lambda trust=trust: http.metric("stator_router_index_workers", trust=trust) == 1, trust)
        workers = [instance["instance_id"] for instance in http.get("/health")[1]["instances"]]
        receipts = []
        for worker in workers:
            body = {"model": "m", "max_tokens": 4, "messages": [{"role": "user", "content": f"{worker} " + "once upon a time " * 40}]}
            blocks = http.metric("stator_router_index_blocks")
            self.assertEqual(http.post("/v1/chat/completions", body, {"x-stator-worker-instance-id": str(worker)})[0], 200)
            eventually(lambda blocks=blocks: http.metric("stator_router_index_blocks") > blocks, "its blocks are known")
            status, answer = http.post("/v1/chat/completions", body)
            self.assertEqual(status, 200, answer)
            receipts.append(http.get(f"/receipts/{answer['id']}")[1])
        for worker, receipt in zip(workers, receipts):
            self.assertEqual(receipt["chosen"]["worker_id"], str(worker), receipt)
            self.assertGreater(receipt["best_overlap_blocks"], 3)
        self.assertEqual({c["trust"] for c in receipts[0]["candidates"]}, {"exact", "approximate"})


class Configurations(unittest.TestCase):
    def engine(self, **arguments) -> ScriptedEngine:
        engine = ScriptedEngine(**arguments)
        self.addCleanup(engine.close)
        return engine

    def test_one_yaml_file_with_the_servers_urls_is_enough(self):
        engines = [self.engine() for _ in range(2)]
        with tempfile.TemporaryDirectory() as folder:
            config = pathlib.Path(folder) / "fleet.yaml"
            config.write_text("worker: {engine: vllm}\nengine:\n  url:\n" + "".join(f"    - {e.url}\n" for e in engines)
                              + "http: {host: 127.0.0.1, port: 0}\n")
            stator = Stator("serve", "--config", str(config))
            self.addCleanup(stator.close)
            eventually(lambda: len(Http(stator.port).get("/health")[1].get("instances", [])) == 2, "two workers")

    def test_worker_processes_beside_their_servers(self):
        engines = [self.engine() for _ in range(2)]

        class Servers(Split):
            def start_worker(self) -> Stator:
                engine = engines[len(self.workers)]
                return Stator("worker", "--engine", "vllm", "--url", engine.url, *FAST, *self.discovery)

        fleet = Servers()
        self.addCleanup(fleet.close)
        status, answer = fleet.http.post("/v1/chat/completions", {"model": "m", "messages": MESSAGES, "max_tokens": 4})
        self.assertEqual(status, 200, answer)
        for i, engine in enumerate(engines):
            engine.fail_with = 503 if i == 0 else None
        for i in range(4):
            body = {"model": "m", "messages": [{"role": "user", "content": f"q {i}"}], "max_tokens": 4}
            self.assertEqual(fleet.http.post("/v1/chat/completions", body)[0], 200)

    def test_a_gguf_file_may_stand_for_a_model_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "tiny-chat.gguf"
            file.write_bytes(gguf(byte_vocabulary() | {"tokenizer.chat_template": "{{ bos_token }}{{ messages[0].content }}"}))
            stator = Stator("serve", str(file), "--engine", "sim", "--port", "0", "--sim-speedup", "0")
            self.addCleanup(stator.close)
            asked = {"model": "tiny-chat", "messages": [{"role": "user", "content": "Grüße"}], "max_tokens": 3}
            status, answer = Http(stator.port).post("/v1/chat/completions", asked)
            self.assertEqual(status, 200, answer)
            self.assertEqual(answer["usage"]["prompt_tokens"], 1 + len("Grüße".encode()))

    def test_a_worker_waits_for_its_server(self):
        port = free_port()
        with tempfile.TemporaryDirectory() as folder:
            worker = Stator("worker", "--engine", "vllm", "--url", f"http://127.0.0.1:{port}",
                            "--discovery", f"file:{folder}", announce=False)
            self.addCleanup(worker.close)
            eventually(lambda: "waiting for the engine" in worker.log(), "it waits")
            self.engine(port=port)
            eventually(lambda: "ready" in worker.log(), "it found the server")
            worker.terminate()
            self.assertEqual(worker.wait(), 0)

    def test_what_a_person_can_get_wrong(self):
        for arguments, named in (
                (("--engine", "vllm"), "--url"),
                (("--engine", "vllm", "--url", "localhost:8000"), "localhost:8000"),
                (("--engine", "sglang", "--url", "http://127.0.0.1:1", "--engine-ready-timeout", "0s"), "127.0.0.1:1"),
                (("--engine", "vllm", "--url", self.engine().url, "--upstream-model", "other"), "other")):
            process = Stator("serve", str(MODEL_DIR), *arguments, "--port", "0", announce=False)
            self.addCleanup(process.close)
            self.assertIn(process.wait(), (1, 2))
            self.assertIn(named, process.log())


if __name__ == "__main__":
    unittest.main()
