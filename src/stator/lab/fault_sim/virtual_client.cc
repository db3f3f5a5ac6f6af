// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fault_sim/virtual_client.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <utility>

#include "stator/core/random.h"
#include "stator/json/value.h"

namespace stator::fault_sim {
namespace {

constexpr uint32_t kBodies = 40;
constexpr uint64_t kVocabulary = 1000;  // plain tokens of the demo model lie below

/// The visible parts of choices, put together from chunks.
class Visible {
 public:
  void add(const json::Value& chunk) {
    if (const auto* choices = chunk.find("choices"); choices != nullptr) {
      for (const json::Value& choice : choices->elements()) {
        Choice& into = choices_[choice.at("index").as_int64().value_or(0)];
        into.text += choice.at("text").text();
        if (const json::Value* end = choice.find("finish_reason");
            end != nullptr && end->is_string()) {
          into.finish = end->text();
        }
      }
    }
    if (const auto* usage = chunk.find("usage"); usage != nullptr && usage->is_object()) {
      // Not what the cache had: that depends on where the request ran.
      usage_ = fmt::format("{}+{}", usage->at("prompt_tokens").text(),
                           usage->at("completion_tokens").text());
    }
  }
  std::string render() const {
    std::string out;
    for (const auto& [index, choice] : choices_) {
      out += fmt::format("[{}] {} <{}> ", index, choice.text, choice.finish);
    }
    return out + usage_;
  }
  bool complete() const {
    for (const auto& [index, choice] : choices_) {
      if (choice.finish.empty()) {
        return false;
      }
    }
    return !choices_.empty();
  }

 private:
  struct Choice {
    std::string text;
    std::string finish;
  };
  std::map<int64_t, Choice> choices_;
  std::string usage_;
};

Result<std::string> read_stream(std::string_view body) {
  constexpr std::string_view kData = "data: ";
  Visible visible;
  while (!body.empty()) {
    const size_t end = std::min(body.find("\n\n"), body.size());
    std::string_view frame = body.substr(0, end);
    body.remove_prefix(std::min(end + 2, body.size()));
    if (frame.starts_with(":")) {
      continue;
    }
    if (frame.starts_with("id:")) {
      frame.remove_prefix(std::min(frame.find('\n') + 1, frame.size()));
    }
    if (!frame.starts_with(kData)) {
      return Error(Code::kCorrupt, fmt::format("a frame is '{}'", frame));
    }
    frame.remove_prefix(kData.size());
    if (frame == "[DONE]") {
      if (!body.empty() || !visible.complete()) {
        return Error(Code::kCorrupt, "[DONE] is not where it belongs");
      }
      return visible.render();
    }
    STATOR_TRY(const json::Value chunk, json::parse(frame), frame);
    visible.add(chunk);
  }
  return Error(Code::kCorrupt, "the stream does not end with [DONE]");
}

}  // namespace

std::vector<std::string> make_bodies() {
  Random random(20'261'122);
  std::vector<uint64_t> common(96);
  for (uint64_t& token : common) {
    token = 300 + random.below(kVocabulary - 300);
  }
  std::vector<std::string> bodies;
  for (uint32_t i = 0; i < kBodies; ++i) {
    std::vector<uint64_t> prompt(common.begin(),
                                 common.begin() + static_cast<ptrdiff_t>(random.below(96)));
    for (uint64_t tail = 1 + random.below(24); tail > 0; --tail) {
      prompt.push_back(300 + random.below(kVocabulary - 300));
    }
    const bool stream = random.below(4) != 0;
    const bool several = random.below(6) == 0;  // which greedy requests must not ask for
    const bool greedy = !several && random.below(2) == 0;
    std::string body = fmt::format(
        R"({{"model":"demo","prompt":[{}],"max_tokens":{},"n":{},"temperature":{},"seed":{})",
        fmt::join(prompt, ","), 1 + random.below(60), several ? 2 : 1, greedy ? 0.0 : 0.8,
        random.below(1000));
    if (random.below(3) == 0) {
      body += R"(,"ignore_eos":true)";
    }
    if (stream) {
      body += R"(,"stream":true,"stream_options":{"include_usage":true})";
    }
    bodies.push_back(body + "}");
  }
  return bodies;
}

Result<std::string> read_answer(std::string_view content_type, std::string_view body) {
  try {
    if (content_type.starts_with("text/event-stream")) {
      return read_stream(body);
    }
    Visible visible;
    STATOR_TRY(const json::Value answer, json::parse(body), body);
    visible.add(answer);
    if (!visible.complete()) {
      return Error(Code::kCorrupt, "the answer has no end");
    }
    return visible.render();
  } catch (const std::exception& e) {
    return Error(Code::kCorrupt, fmt::format("{} in: {}", e.what(), body));
  }
}

KnownEvents read_events(std::string_view received) {
  constexpr std::string_view kId = "id:";
  KnownEvents known;
  for (size_t end = 0; (end = received.find("\n\n")) != std::string_view::npos;) {
    const std::string_view frame = received.substr(0, end + 2);
    received.remove_prefix(end + 2);
    known.events += frame;
    if (frame.starts_with(kId)) {
      const std::string_view id = frame.substr(kId.size(), frame.find('\n') - kId.size());
      known.last_id = id.substr(std::min(id.find_first_not_of(' '), id.size()));
    }
  }
  return known;
}

VirtualClient::VirtualClient(std::string body, net::Shard& shard, const Headers& headers)
    : request_("POST", "/v1/completions"), shard_(shard) {
  request_.add_header("content-type", "application/json");
  for (const auto& [name, value] : headers) {
    request_.add_header(name, value);
  }
  request_.mutable_body() = std::move(body);
}

void VirtualClient::expect(bool fine, std::string_view what) {
  if (!fine && !misuse_) {
    misuse_ = what;
  }
}

bool VirtualClient::failed() const {
  return status_ >= 400 || received_.find(R"({"error":)") != std::string::npos;
}

bool VirtualClient::leave() {
  if (end_ != End::kNone) {
    return false;
  }
  end_ = End::kGone;
  if (net::ExchangeObserver* observer = std::exchange(observer_, nullptr)) {
    observer->on_client_gone(net::ClientGone::kDisconnected);
  }
  return true;
}

void VirtualClient::cut() {
  if (end_ == End::kNone) {
    end_ = End::kGone;
  }
}

void VirtualClient::respond(int status, std::string_view content_type, std::string_view body,
                            std::span<const net::HttpHeader> /*headers*/) {
  if (end_ == End::kGone) {
    return;
  }
  expect(end_ == End::kNone && !streaming_, "a second answer");
  status_ = status;
  content_type_ = content_type;
  received_ = body;
  end_ = End::kAnswered;
}

void VirtualClient::start_stream(int status, std::string_view content_type,
                                 std::span<const net::HttpHeader> /*headers*/) {
  expect(end_ != End::kAnswered && !streaming_, "a second stream");
  streaming_ = true;
  status_ = status;
  content_type_ = content_type;
}

void VirtualClient::write(std::string_view bytes) {
  if (end_ != End::kGone) {
    expect(end_ == End::kNone && streaming_, "bytes outside of a stream");
    received_ += bytes;
  }
}

void VirtualClient::finish() {
  if (end_ != End::kGone) {
    expect(end_ == End::kNone && streaming_, "a stream ends twice");
    end_ = End::kAnswered;
  }
}

void VirtualClient::abort() {
  if (end_ != End::kGone) {
    expect(end_ == End::kNone && streaming_, "a stream ends twice");
    end_ = End::kAborted;
  }
}

}  // namespace stator::fault_sim
