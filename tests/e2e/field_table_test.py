#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every field of chats and completions once: it reaches the engine, shows in the answer, is named as ignored, or refused by name."""

import http.client
import http.server
import json
import threading
import unittest

from stator_process import MODEL_DIR, Http, Stator, eventually

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
BOTH = (CHAT, COMPLETIONS)
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
TAG = {"type": "structural_tag", "structures": [{"begin": "<f>", "schema": SCHEMA, "end": "</f>"}], "triggers": ["<f>"]}

# Field and value → the same in what the engine is asked, under its name there if that is another.
REACHES = [
    ("temperature", 0.5), ("top_p", 0.25), ("top_k", 7), ("min_p", 0.125), ("presence_penalty", 0.5), ("frequency_penalty", -0.5),
    ("repetition_penalty", 1.5), ("seed", 11), ("logit_bias", {"5": 1.0}), ("max_tokens", 3), ("min_tokens", 2), ("ignore_eos", True),
    ("allowed_token_ids", [5, 6, 7]), ("bad_words", ["xyzzy"]), ("priority", -3),
]
REACHES_AS_STRUCTURE = [
    ("guided_json", SCHEMA, {"json": SCHEMA}), ("guided_regex", "a+", {"regex": "a+"}), ("guided_choice", ["a", "b"], {"choice": ["a", "b"]}),
    ("guided_grammar", 'root ::= "a"', {"grammar": 'root ::= "a"'}), ("structured_outputs", {"regex": "b+"}, {"regex": "b+"}),
    ("response_format", {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}, {"json": SCHEMA}),
    ("response_format", {"type": "json_object"}, {"json_object": True}), ("response_format", TAG, {"structural_tag": None}),
    ("structural_tag", json.dumps(TAG), {"structural_tag": None}),
]
# Accepted, without effect, and named in x-stator-ignored-fields.
IGNORED = [
    ("metadata", {"a": "b"}), ("store", True), ("service_tier", "flex"), ("user", "u"), ("length_penalty", 1.0),
    ("mm_processor_kwargs", {"a": 1}), ("media_io_kwargs", {"a": 1}), ("nobody_knows_it", 1),
    ("nvext", {"request_timestamp_ms": 1.0}, "nvext.request_timestamp_ms"), ("nvext", {"router": {"itl_target": 1.0}}, "nvext.router.itl_target"),
    ("nvext", {"agent_hints": {"speculative_prefill": True}}, "nvext.agent_hints.speculative_prefill"),
]
IGNORED_IN_CHATS = [("prediction", {"type": "content", "content": "x"}), ("audio", {"voice": "x"})]
# 501: known, and no engine here can.
REFUSED = [
    ("kv_transfer_params", {}), ("bad_words_token_ids", [[5]]), ("logprob_token_ids", [5]), ("use_beam_search", True),
    ("nvext", {"metadata_upload": {"url": "x"}}, "nvext.metadata_upload"),
    ("nvext", {"extra_fields": ["routed_experts"]}, "nvext.extra_fields[0]"),
]
REFUSED_IN_CHATS = [("functions", []), ("function_call", "auto"), ("modalities", ["text", "audio"]), ("chat_template", "{{x}}")]
REFUSED_IN_COMPLETIONS = [("prompt_embeds", "AAAA"), ("suffix", "x")]
# 400: out of range, or of another type.
WRONG = [
    ("temperature", 2.5), ("top_p", 0), ("top_k", -2), ("min_p", 1.5), ("presence_penalty", 3), ("frequency_penalty", -3),
    ("repetition_penalty", 0), ("length_penalty", 3), ("n", 129), ("n", 0), ("logit_bias", {"5": 101}), ("max_tokens", 1048577), ("min_tokens", 99),
    ("stop", [""]), ("stop", ["x"] * 33), ("stop_token_ids", list(range(33))), ("user", " "), ("seed", 1.5), ("stream_options", {}),
    ("prompt_logprobs", 21), ("detokenize", 1), ("stream", "yes"), ("model", " "), ("cache_salt", 5), ("nvext", {"nobody": 1}, "nvext.nobody"),
    ("allowed_token_ids", [9999999], "allowed_token_ids"), ("guided_json", 5), ("truncate_prompt_tokens", 0),
]
WRONG_IN_CHATS = [("messages", []), ("top_logprobs", 3), ("logprobs", 2), ("tool_choice", "required"), ("tools", [{"type": "function"}], "tools[0].function"),
                  ("continue_final_message", True), ("reasoning_effort", 5), ("thinking", "no"), ("max_completion_tokens", 0)]
WRONG_IN_COMPLETIONS = [("prompt", ""), ("logprobs", 6), ("best_of", 21), ("echo", 1), ("suffix", "x" * 10001)]


class Recorder(http.server.BaseHTTPRequestHandler):
    """Between Stator and its engine: keeps what the engine is asked."""

    protocol_version = "HTTP/1.1"
    engine_port = 0
    asked: list[dict] = []

    def relay(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path == COMPLETIONS:
            self.asked.append(json.loads(body))
        engine = http.client.HTTPConnection("127.0.0.1", self.engine_port)
        engine.request(self.command, self.path, body, {"Content-Type": self.headers.get("Content-Type", "text/plain")})
        answer = engine.getresponse()
        data = answer.read()
        engine.close()
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.getheader("Content-Type", "text/plain"))
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = relay

    def log_message(self, *_):
        pass


class FieldTable(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.engine = Stator("sim-server", "--dialect", "vllm", "--model-dir", str(MODEL_DIR), "--served-model-name", "demo",
                            "--host", "127.0.0.1", "--port", "0", "--sim-speedup", "0")
        cls.addClassCleanup(cls.engine.close)
        Recorder.engine_port = cls.engine.port
        recorder = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
        cls.addClassCleanup(recorder.server_close)
        cls.addClassCleanup(recorder.shutdown)
        threading.Thread(target=recorder.serve_forever, daemon=True).start()
        cls.stator = Stator("serve", str(MODEL_DIR), "--engine", "vllm", "--url", f"http://127.0.0.1:{recorder.server_port}",
                            "--host", "127.0.0.1", "--port", "0")
        cls.addClassCleanup(cls.stator.close)
        cls.http = Http(cls.stator.port)
        eventually(lambda: cls.http.request("GET", "/health")[0] == 200, "healthy")

    def ask(self, route, **fields):
        Recorder.asked.clear()
        base = {"model": "demo", "max_tokens": 8}
        base |= {"messages": [{"role": "user", "content": "Hi"}]} if route == CHAT else {"prompt": "one two three"}
        status, headers, body = self.http.request("POST", route, base | fields)
        return status, headers, json.loads(body) if "json" in headers["content-type"] else body.decode()

    def good(self, route, **fields):
        status, _, body = self.ask(route, **fields)
        self.assertEqual(status, 200, body)
        return body

    def each(self, check, *tables):
        """Calls `check` with each row of (routes, table): route, field, value, and what the row says of it, or the field's name."""
        for routes, table in tables:
            for name, value, *more in table:
                for route in routes:
                    with self.subTest(route=route, field=name, value=value):
                        check(route, name, value, *(more or [name]))

    def test_fields_of_engines_reach_them(self):
        def reaches(route, name, value, there):
            self.assertIsNone(self.ask(route, **{name: value})[1].get("x-stator-ignored-fields"))
            self.assertEqual(Recorder.asked[-1].get(there), value)

        def shapes(route, name, value, there):
            self.good(route, **{name: value})
            sent = Recorder.asked[-1]["structured_outputs"]
            for key, wanted in there.items():
                self.assertTrue(key in sent and wanted in (None, sent[key]), sent)

        self.each(reaches, (BOTH, REACHES))
        self.each(shapes, (BOTH, REACHES_AS_STRUCTURE))

    def test_fields_without_effect_are_named(self):
        def is_named(route, name, value, named):
            status, headers, body = self.ask(route, **{name: value})
            self.assertEqual((status, headers.get("x-stator-ignored-fields")), (200, named), body)

        self.each(is_named, (BOTH, IGNORED), ([CHAT], IGNORED_IN_CHATS))

    def test_what_no_engine_can_is_refused_by_name(self):
        def is_refused(route, name, value, named):
            status, headers, body = self.ask(route, **{name: value})
            self.assertEqual((status, body["error"]["param"], headers["x-should-retry"]), (501, named, "false"), body)
            self.assertEqual(Recorder.asked, [])

        self.each(is_refused, (BOTH, REFUSED), ([CHAT], REFUSED_IN_CHATS), ([COMPLETIONS], REFUSED_IN_COMPLETIONS))

    def test_wrong_values_are_refused_by_name(self):
        def is_wrong(route, name, value, named):
            status, _, body = self.ask(route, **{name: value})
            self.assertEqual(status, 400, body)
            self.assertTrue((body["error"]["param"] or "").startswith(named), body)
            self.assertIn(named, body["error"]["message"])

        self.each(is_wrong, (BOTH, WRONG), ([CHAT], WRONG_IN_CHATS), ([COMPLETIONS], WRONG_IN_COMPLETIONS))

    def test_what_the_frontend_does_shows_in_the_answer(self):
        for route in BOTH:
            text = (lambda answer, i=0: answer["choices"][i]["message"]["content"]) if route == CHAT else (
                lambda answer, i=0: answer["choices"][i]["text"])
            whole = text(self.good(route))
            self.assertEqual(len(self.good(route, n=3, temperature=1)["choices"]), 3)
            word = whole.split()[1]
            cut = self.good(route, stop=[word], nvext={"extra_fields": ["stop_reason"]})
            self.assertEqual((text(cut), cut["nvext"]["stop_reason"]), (whole[:whole.index(word)], word))
            kept = self.good(route, stop=word, include_stop_str_in_output=True)
            self.assertEqual(text(kept), whole[:whole.index(word)] + word)
            ids = self.good(route, detokenize=False)
            self.assertEqual((text(ids), len(ids["nvext"]["completion_token_ids"])), ("", 8))
            self.assertEqual(ids["usage"]["completion_tokens"], 8)
            streamed = self.good(route, stream=True, stream_options={"include_usage": True, "continuous_usage_stats": True})
            self.assertIn('"usage":{"prompt_tokens"', streamed.split("\n\n")[0])
            logprobs = self.good(route, **({"logprobs": True, "top_logprobs": 2} if route == CHAT else {"logprobs": 2}),
                                 return_tokens_as_token_ids=True)["choices"][0]["logprobs"]
            self.assertIn("token_id:", json.dumps(logprobs))
            self.assertLess(self.good(route, truncate_prompt_tokens=2)["usage"]["prompt_tokens"], 3)
            self.good(route, stop_token_ids=[5, 6], stop=[7], cache_salt="pepper")
            self.assertLessEqual({5, 6, 7}, set(Recorder.asked[-1]["stop_token_ids"]))
            self.assertIn("pepper", Recorder.asked[-1]["cache_salt"])

    def test_fields_of_chats_show_in_the_prompt(self):
        def prompt(**fields):
            self.good(CHAT, **fields)
            return self.http.post("/detokenize", {"model": "demo", "tokens": Recorder.asked[-1]["prompt"]})[1]["prompt"]
        plain = prompt()
        self.assertNotEqual(prompt(add_generation_prompt=False), plain)
        said = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]
        self.assertTrue(prompt(messages=said, continue_final_message=True, add_generation_prompt=False).endswith("Ho"))
        self.assertEqual(Recorder.asked[-1]["max_tokens"], 8)
        prompt(max_completion_tokens=3)
        self.assertEqual(Recorder.asked[-1]["max_tokens"], 3)
        self.assertEqual(prompt(nvext={"use_raw_prompt": True}), "Hi")
        self.assertEqual(prompt(nvext={"token_data": [5, 6]}), self.http.post("/detokenize", {"model": "demo", "tokens": [5, 6]})[1]["prompt"])
        prompt(nvext={"greed_sampling": True})
        self.assertEqual(Recorder.asked[-1]["temperature"], 0)
        self.assertNotEqual(prompt(add_special_tokens=True), "")

    def test_of_many_the_likeliest_are_answered(self):
        fields = {"temperature": 1.5, "seed": 3, "logprobs": 0, "max_tokens": 6}
        mean = lambda choice: sum(choice["logprobs"]["token_logprobs"]) / len(choice["logprobs"]["token_logprobs"])
        every = self.good(COMPLETIONS, n=5, **fields)
        best = self.good(COMPLETIONS, n=2, best_of=5, **fields)
        self.assertEqual([choice["index"] for choice in best["choices"]], [0, 1])
        wanted = sorted(every["choices"], key=mean, reverse=True)[:2]
        self.assertEqual([choice["text"] for choice in best["choices"]], [choice["text"] for choice in wanted])
        self.assertEqual(best["usage"]["completion_tokens"], 30)
        self.assertIsNone(self.good(COMPLETIONS, best_of=3, prompt=["a b", "c d"])["choices"][1]["logprobs"])
        for wrong in ({"stream": True}, {"temperature": 0}, {"n": 4}):
            status, _, body = self.ask(COMPLETIONS, best_of=3, **wrong)
            self.assertEqual((status, body["error"]["param"]), (400, "best_of"))

    def test_prompts_are_scored_as_by_vllm(self):
        answer = self.good(COMPLETIONS, prompt=["one two three", "four"], prompt_logprobs=2, n=2, temperature=1)
        self.assertNotIn("prompt_logprobs", answer)
        for i, choice in enumerate(answer["choices"]):
            self.check_scores(choice["prompt_logprobs"], Recorder.asked, 2)
            self.assertIsNone(choice["logprobs"])
            self.assertEqual(choice["prompt_logprobs"], answer["choices"][i - i % 2]["prompt_logprobs"])
        chat = self.good(CHAT, prompt_logprobs=0, logprobs=True, top_logprobs=1, nvext={"extra_fields": ["prompt_logprobs"]})
        self.check_scores(chat["prompt_logprobs"], Recorder.asked, 0)
        self.assertEqual(len(chat["prompt_logprobs"]), chat["usage"]["prompt_tokens"])
        self.assertEqual(chat["nvext"]["prompt_logprobs"], chat["prompt_logprobs"])
        self.assertTrue(all(len(entry["top_logprobs"]) == 1 for entry in chat["choices"][0]["logprobs"]["content"]))
        streamed = self.good(CHAT, stream=True, nvext={"extra_fields": ["prompt_logprobs"]})
        last = json.loads(streamed.split("\n\n")[-3].removeprefix("data: "))
        self.assertEqual(last["nvext"]["prompt_logprobs"], chat["prompt_logprobs"])
        scored = self.good(COMPLETIONS, prompt_logprobs=1, max_tokens=0)
        self.assertEqual((scored["choices"][0]["text"], scored["usage"]["completion_tokens"]), ("", 0))
        self.check_scores(scored["choices"][0]["prompt_logprobs"], Recorder.asked, 1)
        self.assertEqual(self.ask(CHAT, prompt_logprobs=1, stream=True)[0], 400)

    def check_scores(self, scores, asked, alternatives):
        prompts = [body["prompt"] for body in asked if len(body["prompt"]) == len(scores)]
        self.assertTrue(prompts, asked)
        self.assertIsNone(scores[0])
        for position, entry in enumerate(scores[1:], 1):
            self.assertTrue(any(str(prompt[position]) in entry for prompt in prompts), entry)
            self.assertIn(len(entry), (max(1, alternatives), alternatives + 1))
            for value in entry.values():
                self.assertLessEqual(value["logprob"], 0)
                self.assertGreaterEqual(value["rank"], 1)
                self.assertIsInstance(value["decoded_token"], str)


if __name__ == "__main__":
    unittest.main()
