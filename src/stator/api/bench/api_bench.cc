// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>
#include <simdjson.h>

#include "stator/api/chunk_encoder.h"
#include "stator/api/request_parser.h"
#include "stator/api/response_body.h"

namespace stator::api {
namespace {

std::string small_chat() {
  return R"({"model":"meta-llama/Llama-3.1-8B-Instruct","messages":[{"role":"system","content":)"
         R"("You are a helpful assistant."},{"role":"user","content":"What is the capital of )"
         R"(France?"}],"temperature":0.7,"top_p":0.9,"max_tokens":256,"stream":true,)"
         R"("stream_options":{"include_usage":true},"seed":42})";
}

// One message of 250 KB of source-like text: a line break escape every 60 bytes.
std::string large_chat() {
  std::string text;
  while (text.size() < 250'000) {
    text += R"(  const auto value = compute(first, second) + third[index];\n)";
  }
  return R"({"model":"m","messages":[{"role":"user","content":")" + text + "\"}]}";
}

void parse(benchmark::State& state, const std::string& body) {
  const ParseLimits limits;
  std::string scratch = body;
  for (auto _ : state) {
    benchmark::DoNotOptimize(parse_chat_request(scratch, limits));
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * body.size()));
}

void ParseSmallChat(benchmark::State& state) {
  parse(state, small_chat());
}
BENCHMARK(ParseSmallChat);

void ParseLargeChat(benchmark::State& state) {
  parse(state, large_chat());
}
BENCHMARK(ParseLargeChat);

void ParseLargePrompt(benchmark::State& state) {
  std::string body = large_chat();
  body.replace(0, body.find("  const"), R"({"model":"m","prompt":")");
  body.replace(body.size() - 4, 4, "\"}");
  for (auto _ : state) {
    benchmark::DoNotOptimize(parse_completion_request(body, {}));
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * body.size()));
}
BENCHMARK(ParseLargePrompt);

// For comparison: simdjson's DOM alone, reusable parser, without our validation and structs.
void simdjson_dom(benchmark::State& state, const std::string& body) {
  simdjson::dom::parser parser;
  const simdjson::padded_string padded(body);
  for (auto _ : state) {
    simdjson::dom::element element;
    if (parser.parse(padded).get(element) != simdjson::SUCCESS) {
      state.SkipWithError("simdjson refused the body");
      break;
    }
    benchmark::DoNotOptimize(element);
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * body.size()));
}
void SimdjsonDomSmallChat(benchmark::State& state) {
  simdjson_dom(state, small_chat());
}
BENCHMARK(SimdjsonDomSmallChat);
void SimdjsonDomLargeChat(benchmark::State& state) {
  simdjson_dom(state, large_chat());
}
BENCHMARK(SimdjsonDomLargeChat);

constexpr ResponseIdentity kIdentity{.id = "chatcmpl-0b2f8a52-6a5e-4a39-9a42-0c1f4f3f7a10",
                                     .model = "meta-llama/Llama-3.1-8B-Instruct",
                                     .created_s = 1'790'000'000};

void EncodeChatChunk(benchmark::State& state) {
  const ChatChunkEncoder encoder(kIdentity, {.include_usage = true});
  std::string out;
  for (auto _ : state) {
    out.clear();
    encoder.append_delta(out, {.content = " Paris"});
    benchmark::DoNotOptimize(out.data());
  }
}
BENCHMARK(EncodeChatChunk);

void EncodeChatChunkBeyondAscii(benchmark::State& state) {
  const ChatChunkEncoder encoder(kIdentity, {});
  std::string out;
  for (auto _ : state) {
    out.clear();
    encoder.append_delta(out, {.content = "漢字\n🎉"});
    benchmark::DoNotOptimize(out.data());
  }
}
BENCHMARK(EncodeChatChunkBeyondAscii);

void EncodeChatChunkLogprobs(benchmark::State& state) {
  const TokenChoice top[] = {{.id = 5, .logprob = -0.51F, .bytes = " Paris"},
                             {.id = 6, .logprob = -1.53F, .bytes = " Lyon"}};
  const LogprobEntry entries[] = {{.sampled = top[0], .top = top}};
  const ChatChunkEncoder encoder(kIdentity, {});
  std::string out;
  for (auto _ : state) {
    out.clear();
    encoder.append_delta(out, {.content = " Paris", .logprobs = entries});
    benchmark::DoNotOptimize(out.data());
  }
}
BENCHMARK(EncodeChatChunkLogprobs);

void EncodeCompletionChunk(benchmark::State& state) {
  const CompletionChunkEncoder encoder(kIdentity, {});
  std::string out;
  for (auto _ : state) {
    out.clear();
    encoder.append_delta(out, {.text = " Paris"});
    benchmark::DoNotOptimize(out.data());
  }
}
BENCHMARK(EncodeCompletionChunk);

}  // namespace
}  // namespace stator::api
