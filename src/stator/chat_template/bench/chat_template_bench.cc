// SPDX-License-Identifier: Apache-2.0
#include "stator/chat_template/chat_template.h"

#include <benchmark/benchmark.h>

#include <fstream>
#include <sstream>
#include <string>

namespace stator::chat_template {
namespace {

/// A template of the shape of Qwen3's: tools, a backward scan, reasoning split off, tool calls.
std::string chat_ml() {
  std::ifstream file(std::string(STATOR_SOURCE_DIR) +
                     "/src/stator/chat_template/testdata/bench_template.jinja");
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

std::string conversation(int messages) {
  std::string json = R"([{"role":"system","content":"You are a helpful assistant."})";
  for (int i = 1; i < messages; ++i) {
    const bool user = i % 2 == 1;
    json += user ? R"(,{"role":"user","content":"Question )"
                 : R"(,{"role":"assistant","content":"Answer )";
    json += std::to_string(i) +
            ": what about the second point you made, and how does it relate to the first one?\"}";
  }
  return json + "]";
}

std::string tools(int count) {
  std::string json = "[";
  for (int i = 0; i < count; ++i) {
    json += i == 0 ? "" : ",";
    json +=
        R"({"type":"function","function":{"name":"tool_)" + std::to_string(i) +
        R"(","description":"Looks something up in a large index.","parameters":{"type":"object",)"
        R"("properties":{"query":{"type":"string","description":"what to look for"},)"
        R"("limit":{"type":"integer","default":10}},"required":["query"]}}})";
  }
  return json + "]";
}

void render(benchmark::State& state, int message_count, int tool_count) {
  const auto chat = ChatTemplate::compile(chat_ml(), {});
  if (!chat) {
    state.SkipWithError(chat.error().message().c_str());
    return;
  }
  const std::string messages = conversation(message_count);
  const std::string tool_list = tool_count == 0 ? "" : tools(tool_count);
  RenderInput input;
  input.messages_json = messages;
  input.tools_json = tool_list;
  size_t bytes = 0;
  for (auto _ : state) {
    const auto prompt = (*chat)->render(input);
    bytes = prompt ? prompt->size() : 0;
    benchmark::DoNotOptimize(bytes);
  }
  state.counters["prompt_bytes"] = static_cast<double>(bytes);
}

void BM_RenderTwoMessages(benchmark::State& state) {
  render(state, 2, 0);
}
BENCHMARK(BM_RenderTwoMessages)->Unit(benchmark::kMicrosecond);

void BM_RenderFiftyMessagesEightTools(benchmark::State& state) {
  render(state, 50, 8);
}
BENCHMARK(BM_RenderFiftyMessagesEightTools)->Unit(benchmark::kMicrosecond);

void BM_Compile(benchmark::State& state) {
  const std::string source = chat_ml();
  for (auto _ : state) {
    benchmark::DoNotOptimize(ChatTemplate::compile(source, {}));
  }
}
BENCHMARK(BM_Compile)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace stator::chat_template
