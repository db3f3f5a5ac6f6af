// SPDX-License-Identifier: Apache-2.0
// What the official Node SDKs build upon zod, and files and batches, against the server at STATOR_URL; run by node_helpers_test.py.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import test from "node:test";

const require = createRequire(pathToFileURL(`${process.env.STATOR_NODE_MODULES}/x.js`));
const { OpenAI, toFile } = require("openai");
const { zodFunction, zodResponseFormat, zodResponsesFunction, zodTextFormat } = require("openai/helpers/zod");
const { Anthropic } = require("@anthropic-ai/sdk");
const { betaZodTool } = require("@anthropic-ai/sdk/helpers/beta/zod");
const { z } = require("zod");

const model = process.env.STATOR_MODEL;
const openai = new OpenAI({ baseURL: `${process.env.STATOR_URL}/v1`, apiKey: "unused", maxRetries: 0, timeout: 30_000 });
const anthropic = new Anthropic({ baseURL: process.env.STATOR_URL, apiKey: "unused", maxRetries: 0, timeout: 30_000 });
const messages = [{ role: "user", content: "What is a KV cache?" }];
const City = z.object({ name: z.string().max(8), size: z.number().int().max(99) });
const isCity = (value) => assert.ok(City.safeParse(value).success, JSON.stringify(value));

test("chat: parse, whole and streamed", async () => {
  const fields = { model, messages, max_tokens: 200, response_format: zodResponseFormat(City, "city") };
  isCity((await openai.chat.completions.parse(fields)).choices[0].message.parsed);
  isCity((await openai.chat.completions.stream(fields).finalChatCompletion()).choices[0].message.parsed);
});

test("chat: tools with parsed arguments", async () => {
  const fields = { model, messages, max_tokens: 300, tools: [zodFunction({ name: "f", parameters: City })], tool_choice: "required", parallel_tool_calls: false };
  isCity((await openai.chat.completions.parse(fields)).choices[0].message.tool_calls[0].function.parsed_arguments);
});

test("responses: parse, whole and streamed, and tools", async () => {
  const fields = { model, input: "A city", max_output_tokens: 200, text: { format: zodTextFormat(City, "city") } };
  isCity((await openai.responses.parse(fields)).output_parsed);
  isCity((await openai.responses.stream(fields).finalResponse()).output_parsed);
  const tools = [zodResponsesFunction({ name: "f", parameters: City })];
  const called = await openai.responses.parse({ model, input: "A city", max_output_tokens: 300, tools, tool_choice: "required", parallel_tool_calls: false });
  isCity(called.output.at(-1).parsed_arguments);
  assert.ok((await openai.responses.inputTokens.count({ model, input: "A city" })).input_tokens > 0);
});

test("anthropic: a runner of tools", async () => {
  const tool = betaZodTool({ name: "f", description: "d", inputSchema: City, run: async () => "done" });
  let turns = 0;
  for await (const message of anthropic.beta.messages.toolRunner({ model, max_tokens: 20, messages, tools: [tool], max_iterations: 2 })) {
    assert.equal(message.role, "assistant");
    ++turns;
  }
  assert.ok(turns > 0);
});

test("files and a batch", async () => {
  const line = JSON.stringify({ custom_id: "one", method: "POST", url: "/v1/completions", body: { model, prompt: "a", max_tokens: 2 } });
  const file = await openai.files.create({ file: await toFile(Buffer.from(`${line}\n`), "in.jsonl"), purpose: "batch", expires_after: { anchor: "created_at", seconds: 3600 } });
  assert.equal(file.expires_at, file.created_at + 3600);
  let batch = await openai.batches.create({ input_file_id: file.id, endpoint: "/v1/completions", completion_window: "24h" });
  for (let i = 0; i < 1000 && batch.status !== "completed"; ++i) {
    await new Promise((resolve) => setTimeout(resolve, 20));
    batch = await openai.batches.retrieve(batch.id);
  }
  assert.equal(batch.status, "completed");
  const result = JSON.parse(await (await openai.files.content(batch.output_file_id)).text());
  assert.equal(result.custom_id, "one");
  assert.equal(result.response.status_code, 200);
  const known = [];
  for await (const entry of openai.files.list({ limit: 1 })) known.push(entry.id);
  assert.ok(known.includes(file.id) && known.includes(batch.output_file_id));
  await assert.rejects(openai.batches.cancel(batch.id), OpenAI.BadRequestError);
  assert.equal((await openai.files.delete(file.id)).deleted, true);
  await assert.rejects(openai.files.retrieve(file.id), OpenAI.NotFoundError);
});
