// SPDX-License-Identifier: Apache-2.0
// OpenAI's Node client and the Responses API of the server at STATOR_URL; run by responses_test.py.
import assert from "node:assert/strict";
import test from "node:test";

const { default: OpenAI } = await import(process.env.STATOR_OPENAI_MODULE);
const model = process.env.STATOR_MODEL;
const client = new OpenAI({ baseURL: `${process.env.STATOR_URL}/v1`, apiKey: "unused", maxRetries: 0, timeout: 30_000 });

test("create, retrieve, chain, list, delete", async () => {
  const first = await client.responses.create({ model, input: "Hi" });
  assert.equal(first.output_text, 'Hello "you".');
  assert.equal((await client.responses.retrieve(first.id)).output_text, first.output_text);
  const second = await client.responses.create({ model, input: "And?", previous_response_id: first.id });
  const items = [];
  for await (const item of client.responses.inputItems.list(second.id)) items.push(item);
  assert.equal(items.length, 4);
  await client.responses.delete(first.id);
  await assert.rejects(client.responses.retrieve(first.id), { status: 404 });
});

test("stream helper", async () => {
  const stream = client.responses.stream({ model, input: "Hi" });
  const types = [];
  for await (const event of stream) types.push(event.type);
  assert.equal((await stream.finalResponse()).output_text, 'Hello "you".');
  assert.equal(types.at(-1), "response.completed");
});

test("custom tools and compaction", async () => {
  const tools = [{ type: "custom", name: "run_code", description: "Runs Python." }];
  const stream = client.responses.stream({ model, input: "Please run it", tools });
  let text = "";
  for await (const event of stream) if (event.type === "response.custom_tool_call_input.delta") text += event.delta;
  const call = (await stream.finalResponse()).output.at(-1);
  assert.deepEqual([call.type, call.name, call.input], ["custom_tool_call", "run_code", text]);
  const made = await client.responses.compact({ model, input: "I like tea" });
  assert.deepEqual(made.output.map((item) => item.type), ["message", "compaction"]);
  const next = await client.responses.create({ model, input: [...made.output, { role: "user", content: "Hi" }] });
  assert.equal(next.output_text, 'Hello "you".');
});

test("background", async () => {
  const made = await client.responses.create({ model, input: "Hi", background: true });
  assert.equal(made.status, "queued");
  const events = [];
  for await (const event of await client.responses.retrieve(made.id, { stream: true })) events.push(event);
  assert.equal(events.at(-1).response.status, "completed");
});

test("errors are the API's", async () => {
  await assert.rejects(client.responses.create({ model, input: 7 }), { status: 400 });
});
