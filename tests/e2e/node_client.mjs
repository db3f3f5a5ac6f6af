// SPDX-License-Identifier: Apache-2.0
// The official OpenAI Node client against the server at STATOR_URL; run by node_client_test.py.
import assert from "node:assert/strict";
import test from "node:test";

const { default: OpenAI } = await import(process.env.STATOR_OPENAI_MODULE);
const model = process.env.STATOR_MODEL;
const client = new OpenAI({ baseURL: `${process.env.STATOR_URL}/v1`, apiKey: "unused", maxRetries: 0, timeout: 30_000 });
const messages = [{ role: "user", content: "What is a KV cache?" }];

const chat = (fields = {}) => client.chat.completions.create({ model, messages, temperature: 0, max_tokens: 24, ...fields });
const complete = (fields = {}) => client.completions.create({ model, prompt: "The router", temperature: 0, max_tokens: 12, ...fields });
const collect = async (stream) => {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
};
const textOf = (chunks, index = 0) =>
  chunks.flatMap((chunk) => chunk.choices).filter((choice) => choice.index === index).map((choice) => choice.delta.content ?? "").join("");
const activeRequests = async () => {
  const text = await (await fetch(`${process.env.STATOR_URL}/metrics`)).text();
  return Number(text.match(/^stator_router_active_requests (\S+)$/m)[1]);
};
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const becomesIdle = async () => {
  for (let i = 0; i < 500; ++i) {
    if ((await activeRequests()) === 0) return;
    await pause(20);
  }
  assert.fail("active requests did not return to 0");
};

test("lists the served model", async () => {
  assert.deepEqual((await collect(await client.models.list())).map((entry) => entry.id), [model]);
  assert.equal((await client.models.retrieve(model)).id, model);
});

test("unary chat has text, usage and finish reason", async () => {
  const answer = await chat();
  assert.ok(answer.choices[0].message.content.length > 0);
  assert.equal(answer.choices[0].finish_reason, "length");
  assert.equal(answer.usage.completion_tokens, 24);
});

test("streamed deltas make up the unary text", async () => {
  const chunks = await collect(await chat({ stream: true, stream_options: { include_usage: true } }));
  assert.equal(textOf(chunks), (await chat()).choices[0].message.content);
  assert.equal(chunks.at(-1).usage.completion_tokens, 24);
});

test("the stream helper assembles the whole answer", async () => {
  const stream = client.chat.completions.stream({ model, messages, temperature: 0, max_tokens: 24 });
  const answer = await stream.finalChatCompletion();
  assert.equal(answer.choices[0].message.content, (await chat()).choices[0].message.content);
});

test("logprobs come with alternatives", async () => {
  const { logprobs } = (await chat({ logprobs: true, top_logprobs: 3, max_tokens: 5 })).choices[0];
  assert.equal(logprobs.content.length, 5);
  assert.ok(logprobs.content.every((entry) => entry.top_logprobs.length === 3 && entry.logprob <= 0));
});

test("a stop string does not leak into the stream", async () => {
  const whole = (await chat()).choices[0].message.content;
  const stop = whole.slice(Math.floor(whole.length / 2), Math.floor(whole.length / 2) + 4);
  const chunks = await collect(await chat({ stop, stream: true }));
  assert.equal(textOf(chunks), whole.slice(0, whole.indexOf(stop)));
  assert.equal(chunks.flatMap((chunk) => chunk.choices).at(-1).finish_reason, "stop");
});

test("two choices, repeated by their seed", async () => {
  const [one, same] = [await chat({ n: 2, seed: 5, temperature: 1 }), await chat({ n: 2, seed: 5, temperature: 1 })];
  const texts = (answer) => answer.choices.map((choice) => choice.message.content);
  assert.deepEqual(texts(one), texts(same));
  assert.notEqual(texts(one)[0], texts(one)[1]);
});

test("completions: stream, echo, batch, token ids", async () => {
  const plain = (await complete()).choices[0].text;
  const streamed = (await collect(await complete({ stream: true }))).map((chunk) => chunk.choices[0]?.text ?? "").join("");
  assert.equal(streamed, plain);
  assert.equal((await complete({ echo: true })).choices[0].text, `The router${plain}`);
  assert.equal((await complete({ prompt: ["The router", "A worker"] })).choices[0].text, plain);
  const response = await fetch(`${process.env.STATOR_URL}/tokenize`, {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ model, prompt: "The router" }),
  });
  assert.equal((await complete({ prompt: (await response.json()).tokens })).choices[0].text, plain);
});

test("errors are the client's typed exceptions", async () => {
  await assert.rejects(chat({ model: "absent" }), OpenAI.NotFoundError);
  await assert.rejects(chat({ max_tokens: 0 }), OpenAI.BadRequestError);
  await assert.rejects(chat({ messages: [], stream: true }), OpenAI.BadRequestError);
  await assert.rejects(client.models.retrieve("absent"), OpenAI.NotFoundError);
});

test("an aborted stream frees what it used", async () => {
  const stream = await chat({ stream: true, max_tokens: 1500 });
  let seen = 0;
  for await (const chunk of stream) {
    if (chunk.choices.length > 0 && ++seen === 3) break;
  }
  stream.controller.abort();
  await becomesIdle();
});

test("the request id is in the answer's headers", async () => {
  const { response } = await client.chat.completions.create({ model, messages, max_tokens: 1 }).withResponse();
  assert.match(response.headers.get("x-request-id"), /^[0-9a-f-]{36}$/);
});

test("embeddings come as numbers, though the client asks for base64", async () => {
  const answer = await client.embeddings.create({ model, input: ["one text", "another"] });
  assert.equal(answer.data.length, 2);
  const [vector] = answer.data.map((item) => item.embedding);
  assert.ok(vector.length > 100);
  assert.ok(Math.abs(Math.hypot(...vector) - 1) < 1e-5);
  const short = await client.embeddings.create({ model, input: "one text", dimensions: 8, encoding_format: "float" });
  assert.equal(short.data[0].embedding.length, 8);
  await assert.rejects(client.embeddings.create({ model, input: "" }), (error) => error.status === 400 && error.param === "input");
});
