// SPDX-License-Identifier: Apache-2.0
// The official Anthropic Node client against the model of anthropic_client_test.py. Run by node --test.
import assert from "node:assert/strict";
import { pathToFileURL } from "node:url";
import { test } from "node:test";

const { default: Anthropic } = await import(pathToFileURL(process.env.STATOR_ANTHROPIC_MODULE));
const model = process.env.STATOR_MODEL;
const client = new Anthropic({ baseURL: process.env.STATOR_URL, apiKey: "unused", maxRetries: 0 });
const tools = [{ name: "get_weather", description: "Weather of a city", input_schema: {
  type: "object", properties: { city: { type: "string" }, days: { type: "integer" } }, required: ["city"] } }];
const ask = (content) => ({ model, max_tokens: 400, messages: [{ role: "user", content }] });

test("a message has text and usage", async () => {
  const message = await client.messages.create(ask("Hi"));
  assert.equal(message.content[0].text, "Hello there, friend.");
  assert.equal(message.stop_reason, "end_turn");
  assert.ok(message.usage.output_tokens > 0);
  assert.ok(message._request_id);
});

test("a stream adds up to the message", async () => {
  const seen = { text: "", thinking: "", json: 0 };
  const stream = client.messages.stream({ ...ask("the weather"), tools })
    .on("text", (delta) => { seen.text += delta; })
    .on("thinking", (delta) => { seen.thinking += delta; })
    .on("inputJson", () => { seen.json += 1; });
  const final = await stream.finalMessage();
  assert.deepEqual(final.content.map((block) => block.type), ["thinking", "text", "tool_use", "tool_use"]);
  assert.equal(seen.thinking, final.content[0].thinking);
  assert.equal(seen.text, final.content[1].text);
  assert.deepEqual(final.content[2].input, { city: "Zürich", days: 2 });
  assert.ok(seen.json > 0);
  assert.equal(final.stop_reason, "tool_use");
});

test("a stream that is left ends", async () => {
  const stream = await client.messages.create({ ...ask("Hi"), stream: true });
  for await (const event of stream) {
    assert.equal(event.type, "message_start");
    break;
  }
});

test("tokens are counted, models are listed", async () => {
  const counted = await client.messages.countTokens({ model, messages: [{ role: "user", content: "Hi" }] });
  const { usage } = await client.messages.create(ask("Hi"));
  assert.equal(counted.input_tokens, usage.input_tokens + usage.cache_read_input_tokens);
  const ids = [];
  for await (const entry of client.models.list()) ids.push(entry.id);
  assert.deepEqual(ids, [model]);
  assert.equal((await client.models.retrieve(model)).display_name, model);
});

test("errors are typed", async () => {
  await assert.rejects(client.messages.create({ ...ask("Hi"), model: "nope" }), Anthropic.NotFoundError);
  await assert.rejects(client.messages.create({ ...ask("Hi"), max_tokens: 0 }), Anthropic.BadRequestError);
});
