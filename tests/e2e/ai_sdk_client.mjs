// SPDX-License-Identifier: Apache-2.0
// Vercel's AI SDK with its three providers against the server at STATOR_URL; run by ai_sdk_test.py.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import test from "node:test";

const require = createRequire(pathToFileURL(`${process.env.STATOR_NODE_MODULES}/x.js`));
const { embed, embedMany, generateObject, generateText, stepCountIs, streamObject, streamText, tool } = require("ai");
const { createOpenAICompatible } = require("@ai-sdk/openai-compatible");
const { createOpenAI } = require("@ai-sdk/openai");
const { createAnthropic } = require("@ai-sdk/anthropic");
const { z } = require("zod");

globalThis.AI_SDK_LOG_WARNINGS = false;
const name = process.env.STATOR_MODEL;
const baseURL = `${process.env.STATOR_URL}/v1`;
const compatible = createOpenAICompatible({ name: "stator", baseURL, includeUsage: true, supportsStructuredOutputs: true });
const openai = createOpenAI({ baseURL, apiKey: "unused" });
const anthropic = createAnthropic({ baseURL, apiKey: "unused" });
const chats = { "openai-compatible": compatible(name), "openai responses": openai(name), "openai chat": openai.chat(name), anthropic: anthropic(name) };
const completions = { "openai-compatible completion": compatible.completionModel(name), "openai completion": openai.completion(name) };

const ask = (model, fields = {}) => ({ model, prompt: "What is a KV cache?", maxOutputTokens: 16, maxRetries: 0, temperature: 0, onError() {}, ...fields });
const City = z.object({ name: z.string().max(8), size: z.number().int().max(99) });
const tools = {
  get_weather: tool({ description: "The weather", inputSchema: z.object({ city: z.string().max(8) }), execute: async ({ city }) => ({ city, sunny: true }) }),
};
const kindsOf = async (stream) => {
  const kinds = new Set();
  for await (const part of stream) {
    if (part.type === "error") throw part.error;
    kinds.add(part.type);
  }
  return kinds;
};

for (const [title, model] of Object.entries({ ...chats, ...completions })) {
  test(`${title}: a text and its stream are the same, with usage`, async () => {
    const whole = await generateText(ask(model));
    assert.ok(whole.text.length > 0);
    assert.equal(whole.finishReason, "length");
    assert.equal(whole.usage.outputTokens, 16);
    const streamed = streamText(ask(model));
    assert.ok((await kindsOf(streamed.fullStream)).has("text-delta"));
    assert.equal(await streamed.text, whole.text);
    assert.equal((await streamed.usage).outputTokens, 16);
  });
}

for (const [title, model] of Object.entries(chats)) {
  test(`${title}: conversations`, async () => {
    const messages = [
      { role: "user", content: [{ type: "text", text: "Hello" }] },
      { role: "assistant", content: [{ type: "text", text: "Hi" }] },
      { role: "user", content: "And now?" },
    ];
    const answer = await generateText({ ...ask(model), prompt: undefined, system: "Be brief.", messages, topP: 0.9, stopSequences: ["###"] });
    assert.ok(answer.text.length > 0);
  });

  test(`${title}: objects, whole and streamed`, async () => {
    const fields = { schema: City, maxOutputTokens: 200 };
    const { object } = await generateObject(ask(model, fields));
    assert.ok(City.safeParse(object).success);
    const streamed = streamObject(ask(model, fields));
    for await (const part of streamed.partialObjectStream) assert.ok(part);
    assert.ok(City.safeParse(await streamed.object).success);
  });

  test(`${title}: tools, streamed, and their results in a second step`, async () => {
    const fields = { tools, toolChoice: { type: "tool", toolName: "get_weather" }, maxOutputTokens: 200 };
    const kinds = await kindsOf(streamText(ask(model, fields)).fullStream);
    assert.ok(["tool-input-start", "tool-input-delta", "tool-call", "tool-result"].every((kind) => kinds.has(kind)));
    const looped = await generateText(ask(model, {
      tools, maxOutputTokens: 100, stopWhen: stepCountIs(2), prepareStep: ({ stepNumber }) => ({ toolChoice: stepNumber === 0 ? "required" : "none" }),
    }));
    assert.equal(looped.steps.length, 2);
    assert.equal(looped.steps[0].toolResults[0].output.sunny, true);
    assert.ok(looped.text.length > 0);
  });

  test(`${title}: a stream that is left early ends`, async () => {
    const controller = new AbortController();
    let seen = 0;
    for await (const _ of streamText(ask(model, { maxOutputTokens: 1000, abortSignal: controller.signal })).textStream) {
      if (++seen === 2) controller.abort();
    }
    assert.ok(seen >= 2);
  });

  test(`${title}: errors name the field`, async () => {
    await assert.rejects(generateText(ask(model, { maxOutputTokens: -1 })), (error) => error.statusCode === undefined || error.statusCode === 400);
    const other = title === "anthropic" ? anthropic("absent") : title === "openai responses" ? openai("absent") : compatible("absent");
    await assert.rejects(generateText(ask(other, { maxRetries: 2 })), (error) => error.statusCode === 404 && /absent/.test(error.message));
  });
}

test("openai responses: a chain, options and log-probabilities", async () => {
  const first = await generateText(ask(openai(name)));
  const previousResponseId = first.providerMetadata.openai.responseId;
  assert.match(previousResponseId, /^resp_/);
  const options = { previousResponseId, store: false, parallelToolCalls: false, metadata: { a: "b" }, include: ["reasoning.encrypted_content"], user: "u", logprobs: 2 };
  const second = await generateText(ask(openai(name), { providerOptions: { openai: options } }));
  assert.equal(second.providerMetadata.openai.logprobs[0].length, 16);
});

test("anthropic: thinking", async () => {
  const providerOptions = { anthropic: { thinking: { type: "enabled", budgetTokens: 1024 } } };
  assert.equal((await generateText(ask(anthropic(name), { temperature: undefined, providerOptions }))).finishReason.length > 0, true);
});

test("embeddings", async () => {
  const many = await embedMany({ model: compatible.textEmbeddingModel(name), values: ["one text", "another"], maxRetries: 0 });
  assert.equal(many.embeddings.length, 2);
  const one = await embed({ model: openai.embedding(name), value: "one text", maxRetries: 0 });
  assert.deepEqual(one.embedding, many.embeddings[0]);
});

test("a route that is not there is not tried again", async () => {
  const { experimental_generateImage, generateImage } = require("ai");
  const draw = generateImage ?? experimental_generateImage;
  await assert.rejects(draw({ model: compatible.imageModel(name), prompt: "a cat", maxRetries: 2 }), (error) => error.statusCode === 404 && !error.isRetryable);
});
