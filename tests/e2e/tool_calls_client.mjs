// SPDX-License-Identifier: Apache-2.0
// Tool calls and reasoning through the official OpenAI Node client; run by tool_calls_test.py.
import assert from "node:assert/strict";
import test from "node:test";

const { default: OpenAI } = await import(process.env.STATOR_OPENAI_MODULE);
const model = process.env.STATOR_MODEL;
const tools = JSON.parse(process.env.STATOR_TOOLS);
const expected = JSON.parse(process.env.STATOR_EXPECTED);
const client = new OpenAI({ baseURL: `${process.env.STATOR_URL}/v1`, apiKey: "unused", maxRetries: 0, timeout: 30_000 });
const messages = [{ role: "user", content: "What is the weather in Zürich?" }];
const argumentsOf = (message) => message.tool_calls.map((call) => JSON.parse(call.function.arguments));

test("unary calls and reasoning", async () => {
  const { message, finish_reason } = (await client.chat.completions.create({ model, messages, tools })).choices[0];
  assert.deepEqual(argumentsOf(message), expected.calls);
  assert.equal(message.content, expected.text);
  assert.equal(message.reasoning_content, expected.thought);
  assert.equal(finish_reason, "tool_calls");
});

test("the stream helper assembles what unary gives", async () => {
  const stream = client.chat.completions.stream({ model, messages, tools });
  let reasoning = "";
  stream.on("chunk", (chunk) => (reasoning += chunk.choices[0]?.delta.reasoning_content ?? ""));
  const finished = [];
  stream.on("tool_calls.function.arguments.done", (call) => finished.push(call.name));
  const { message } = (await stream.finalChatCompletion()).choices[0];
  assert.deepEqual(argumentsOf(message), expected.calls);
  assert.equal(message.content, expected.text);
  assert.equal(reasoning, expected.thought);
  assert.deepEqual(finished, ["get_weather", "get_time"]);
});

for (const stream of [false, true]) {
  test(`runTools calls the functions and ends with the answer, stream ${stream}`, async () => {
    const called = [];
    const runnable = tools.map(({ function: tool }) => ({
      type: "function",
      function: { ...tool, parse: JSON.parse, function: (input) => (called.push([tool.name, input]), "sunny") },
    }));
    const runner = client.chat.completions.runTools({ model, messages, tools: runnable, stream });
    assert.equal(await runner.finalContent(), "It is sunny in Zürich.");
    assert.deepEqual(called, [["get_weather", expected.calls[0]], ["get_time", expected.calls[1]]]);
  });
}
