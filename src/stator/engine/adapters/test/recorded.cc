// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/adapters/test/recorded.h"

#include <gtest/gtest.h>

#include <charconv>
#include <fstream>
#include <iterator>
#include <sstream>

namespace stator::engine::adapters {
namespace {

std::string dechunk(std::string_view bytes) {
  std::string out;
  while (!bytes.empty()) {
    size_t count = 0;
    std::from_chars(bytes.data(), bytes.data() + bytes.size(), count, 16);
    bytes.remove_prefix(bytes.find("\r\n") + 2);
    out += bytes.substr(0, count);
    bytes.remove_prefix(std::min(bytes.size(), count + 2));
  }
  return out;
}

std::string header(const std::string& head, const std::string& name) {
  const size_t at = head.find("\r\n" + name + ": ");
  if (at == std::string::npos) {
    return {};
  }
  const size_t begin = at + name.size() + 4;
  return head.substr(begin, head.find("\r\n", begin) - begin);
}

}  // namespace

std::string load_testdata(const std::string& name) {
  const std::string path =
      std::string(STATOR_SOURCE_DIR) + "/src/stator/engine/adapters/testdata/" + name;
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.is_open()) << path;
  std::stringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

Recorded load_recorded(const std::string& name) {
  const std::string all = load_testdata(name + ".resp.http");
  const size_t end = all.find("\r\n\r\n");
  const std::string head = all.substr(0, end + 2);
  Recorded out{.status = std::atoi(all.c_str() + 9),
               .content_type = header(head, "content-type"),
               .body = all.substr(end + 4)};
  if (header(head, "transfer-encoding") == "chunked") {
    out.body = dechunk(out.body);
  }
  return out;
}

Replayed replay(std::unique_ptr<EventRaiser> raiser, const Recorded& answer, size_t piece_bytes) {
  Replayed out;
  ReplyReader reader(std::move(raiser), "engine");
  reader.on_head(answer.status, answer.content_type);
  const auto take = [&](const Raised& raised) {
    if (!raised.tokens.empty()) {
      out.tokens_per_feed.push_back(raised.tokens.size());
    }
    out.all.tokens.insert(out.all.tokens.end(), raised.tokens.begin(), raised.tokens.end());
    out.all.prompt_logprobs.insert(out.all.prompt_logprobs.end(), raised.prompt_logprobs.begin(),
                                   raised.prompt_logprobs.end());
    out.all.logprobs.insert(out.all.logprobs.end(), raised.logprobs.begin(), raised.logprobs.end());
    out.all.cached_tokens = std::max(out.all.cached_tokens, raised.cached_tokens);
    out.all.finish = raised.finish;
    out.all.last_is_stop = raised.last_is_stop;
    out.all.handoff += raised.handoff;
  };
  for (size_t at = 0; at < answer.body.size() && out.status; at += piece_bytes) {
    Raised raised;
    out.status = reader.on_bytes(std::string_view(answer.body).substr(at, piece_bytes), raised);
    take(raised);
    if (reader.done()) {
      return out;
    }
  }
  if (out.status) {
    Raised raised;
    out.status = reader.on_end(raised);
    take(raised);
  }
  return out;
}

inference::EngineRequest make_request(uint32_t max_tokens) {
  inference::EngineRequest request;
  request.key = {RequestId(26), Attempt(1)};
  request.tokens = {1, 14826, 28371};
  request.sampling.temperature = 0;
  request.stop.max_tokens = max_tokens;
  return request;
}

}  // namespace stator::engine::adapters
