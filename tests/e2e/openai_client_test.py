#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The official OpenAI Python client against real processes, in both ways to deploy them."""

import threading
import unittest

import openai

from stator_process import MODEL, both_deployments, eventually

QUESTION = [{"role": "user", "content": "What is a KV cache?"}]


class OpenAiClient:
    def setUp(self):
        self.client = openai.OpenAI(
            base_url=self.deployment.frontend.url + "/v1", api_key="unused", max_retries=0, timeout=120)
        self.addCleanup(self.client.close)

    def chat(self, **fields):
        return self.client.chat.completions.create(
            **{"model": MODEL, "messages": QUESTION, "temperature": 0, "max_tokens": 24} | fields)

    def complete(self, **fields):
        return self.client.completions.create(
            **{"model": MODEL, "prompt": "The router", "temperature": 0, "max_tokens": 12} | fields)

    def chat_stream(self, **fields):
        return list(self.chat(stream=True, **fields))

    @staticmethod
    def text_of(chunks, choice=0):
        return "".join(c.delta.content or "" for chunk in chunks for c in chunk.choices if c.index == choice)

    # Models

    def test_lists_the_served_model(self):
        models = self.client.models.list().data
        self.assertEqual([m.id for m in models], [MODEL])
        self.assertEqual(self.client.models.retrieve(MODEL).id, MODEL)

    # Chat

    def test_unary_chat_has_text_usage_and_finish_reason(self):
        answer = self.chat()
        self.assertEqual(answer.object, "chat.completion")
        self.assertEqual(answer.model, MODEL)
        self.assertTrue(answer.id.startswith("chatcmpl-"))
        self.assertEqual(answer.choices[0].message.role, "assistant")
        self.assertTrue(answer.choices[0].message.content)
        self.assertEqual(answer.choices[0].finish_reason, "length")
        self.assertEqual(answer.usage.completion_tokens, 24)
        self.assertEqual(answer.usage.total_tokens, answer.usage.prompt_tokens + 24)

    def test_streamed_deltas_make_up_the_unary_text(self):
        chunks = self.chat_stream()
        self.assertEqual(self.text_of(chunks), self.chat().choices[0].message.content)
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        self.assertEqual([c.choices[0].finish_reason for c in chunks if c.choices][-1], "length")
        self.assertEqual(len({c.id for c in chunks}), 1)
        self.assertTrue(all(c.usage is None for c in chunks))

    def test_usage_comes_in_a_last_chunk_without_choices_when_asked_for(self):
        chunks = self.chat_stream(stream_options={"include_usage": True})
        self.assertEqual(chunks[-1].choices, [])
        self.assertEqual(chunks[-1].usage.completion_tokens, 24)
        self.assertEqual(chunks[-1].usage, self.chat().usage.model_copy(update={
            "prompt_tokens_details": chunks[-1].usage.prompt_tokens_details,
            "completion_tokens_details": chunks[-1].usage.completion_tokens_details}))

    def test_logprobs_come_with_alternatives_and_cover_the_text(self):
        answer = self.chat(logprobs=True, top_logprobs=3, max_tokens=6).choices[0]
        entries = answer.logprobs.content
        self.assertEqual(len(entries), 6)
        for entry in entries:
            self.assertLessEqual(entry.logprob, 0)
            self.assertEqual(len(entry.top_logprobs), 3)
            self.assertEqual(sorted((t.logprob for t in entry.top_logprobs), reverse=True),
                             [t.logprob for t in entry.top_logprobs])
        self.assertEqual(bytes(b for e in entries for b in e.bytes).decode(errors="replace"), answer.message.content)

    def test_streamed_logprobs_equal_unary_logprobs(self):
        chunks = self.chat_stream(logprobs=True, top_logprobs=2, max_tokens=6)
        streamed = [e for c in chunks for choice in c.choices if choice.logprobs for e in choice.logprobs.content]
        unary = self.chat(logprobs=True, top_logprobs=2, max_tokens=6).choices[0].logprobs.content
        self.assertEqual([e.token for e in streamed], [e.token for e in unary])
        self.assertEqual([e.logprob for e in streamed], [e.logprob for e in unary])

    def test_a_stop_string_ends_the_answer_and_never_leaks_into_the_stream(self):
        whole = self.chat(max_tokens=40).choices[0].message.content
        stop = whole[len(whole) // 2:len(whole) // 2 + 5]
        expected = whole[:whole.index(stop)]
        unary = self.chat(max_tokens=40, stop=stop).choices[0]
        self.assertEqual((unary.message.content, unary.finish_reason), (expected, "stop"))
        seen = ""
        for chunk in self.chat(max_tokens=40, stop=[stop, "never in there"], stream=True):
            seen += self.text_of([chunk])
            self.assertTrue(expected.startswith(seen), f"{seen!r} is more than {expected!r}")
        self.assertEqual(seen, expected)

    def test_a_stop_string_that_only_begins_is_sent_in_the_end(self):
        whole = self.chat().choices[0].message.content
        self.assertEqual(self.text_of(self.chat_stream(stop=whole[-3:] + "\x01never")), whole)

    def test_two_choices_are_both_complete(self):
        answer = self.chat(n=2, temperature=1, seed=7)
        self.assertEqual([c.index for c in answer.choices], [0, 1])
        self.assertNotEqual(answer.choices[0].message.content, answer.choices[1].message.content)
        self.assertEqual(answer.usage.completion_tokens, 48)
        chunks = self.chat_stream(n=2, temperature=1, seed=7)
        for choice in answer.choices:
            self.assertEqual(self.text_of(chunks, choice.index), choice.message.content)

    def test_a_seed_repeats_and_another_seed_differs(self):
        one, same, other = (
            self.chat(temperature=1, seed=seed).choices[0].message.content for seed in (11, 11, 12))
        self.assertEqual(one, same)
        self.assertNotEqual(one, other)

    def test_max_tokens_and_max_completion_tokens_limit_the_answer(self):
        for field in ("max_tokens", "max_completion_tokens"):
            answer = self.client.chat.completions.create(
                model=MODEL, messages=QUESTION, temperature=0, **{field: 3})
            self.assertEqual(answer.usage.completion_tokens, 3)
            self.assertEqual(answer.choices[0].finish_reason, "length")

    def test_system_and_multi_turn_conversations_are_accepted(self):
        answer = self.chat(messages=[
            {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Hello!"},
            {"role": "user", "content": [{"type": "text", "text": "Bye"}]}])
        self.assertTrue(answer.choices[0].message.content)

    def test_unicode_survives_the_round_trip(self):
        text = "naïve 日本語 🙂"
        answer = self.complete(prompt=text, echo=True, max_tokens=1)
        self.assertTrue(answer.choices[0].text.startswith(text))

    # Completions

    def test_completion_streams_what_it_answers_unary(self):
        unary = self.complete()
        self.assertEqual(unary.object, "text_completion")
        self.assertEqual(unary.choices[0].finish_reason, "length")
        streamed = "".join(c.text for chunk in self.complete(stream=True) for c in chunk.choices)
        self.assertEqual(streamed, unary.choices[0].text)

    def test_echo_puts_the_prompt_before_the_answer(self):
        plain = self.complete().choices[0].text
        self.assertEqual(self.complete(echo=True).choices[0].text, "The router" + plain)
        streamed = "".join(c.text for chunk in self.complete(echo=True, stream=True) for c in chunk.choices)
        self.assertEqual(streamed, "The router" + plain)

    def test_a_batch_of_prompts_gives_one_choice_each_in_order(self):
        batch = self.complete(prompt=["The router", "A worker", "Blocks"])
        self.assertEqual([c.index for c in batch.choices], [0, 1, 2])
        self.assertEqual(batch.choices[1].text, self.complete(prompt="A worker").choices[0].text)
        self.assertEqual(batch.usage.completion_tokens, 36)

    def test_token_id_prompts_equal_their_text(self):
        _, tokens = self.http.post("/tokenize", {"model": MODEL, "prompt": "The router"})
        by_ids = self.complete(prompt=tokens["tokens"])
        self.assertEqual(by_ids.choices[0].text, self.complete().choices[0].text)
        self.assertEqual(by_ids.usage.prompt_tokens, len(tokens["tokens"]))

    def test_completion_logprobs_have_tokens_and_offsets(self):
        logprobs = self.complete(logprobs=2, max_tokens=4).choices[0].logprobs
        self.assertEqual(len(logprobs.tokens), 4)
        self.assertEqual(len(logprobs.token_logprobs), 4)
        self.assertEqual(logprobs.text_offset[0], 0)
        self.assertEqual(logprobs.text_offset, sorted(logprobs.text_offset))

    # Errors

    def test_errors_are_the_clients_typed_exceptions(self):
        cases = [
            (openai.NotFoundError, dict(model="no-such-model")),
            (openai.BadRequestError, dict(max_tokens=0)),
            (openai.BadRequestError, dict(temperature=3)),
            (openai.BadRequestError, dict(messages=[])),
            (openai.BadRequestError, dict(n=0)),
            (openai.BadRequestError, dict(top_p=-1)),
            (openai.BadRequestError, dict(messages=[{"role": "user", "content": "word " * 4000}])),
        ]
        for exception, fields in cases:
            for stream in (False, True):
                with self.subTest(fields=str(fields)[:60], stream=stream), self.assertRaises(exception) as raised:
                    self.chat(stream=stream, **fields)
                self.assertTrue(raised.exception.body["message"])

    def test_an_unknown_model_is_named_in_the_error(self):
        with self.assertRaises(openai.NotFoundError) as raised:
            self.client.models.retrieve("absent")
        self.assertIn("absent", str(raised.exception))

    # Cancellation

    def test_closing_a_stream_frees_the_router_and_the_engine(self):
        stream = self.chat(stream=True, max_tokens=1500)
        for _ in range(3):
            next(stream)
        self.assertEqual(self.http.metric("stator_router_active_requests"), 1)
        stream.close()
        eventually(self.deployment.idle, "the cancelled stream is gone")

    def test_many_streams_at_once_are_all_complete(self):
        texts = [None] * 16

        def ask(i):
            texts[i] = self.text_of(self.chat_stream(seed=i % 4, temperature=1))

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(texts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertTrue(all(texts))
        for seed in range(4):
            self.assertEqual(len(set(texts[seed::4])), 1, "one seed, one text")

    # Headers

    def test_a_request_id_is_echoed_and_one_is_made_when_missing(self):
        given = "123e4567-e89b-42d3-a456-426614174000"
        raw = self.client.chat.completions.with_raw_response.create(
            model=MODEL, messages=QUESTION, max_tokens=1, extra_headers={"x-request-id": given})
        self.assertEqual(raw.headers["x-request-id"], given)
        self.assertIn(given, raw.parse().id)
        raw = self.client.chat.completions.with_raw_response.create(model=MODEL, messages=QUESTION, max_tokens=1)
        self.assertRegex(raw.headers["x-request-id"], r"^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$")


both_deployments(OpenAiClient, globals())

if __name__ == "__main__":
    unittest.main()
