// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/adapters/raise.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <utility>

namespace stator::engine::adapters {
namespace {

constexpr size_t kShownBytesMax = 500;
constexpr std::string_view kDone = "[DONE]";

std::string shorten(std::string_view text) {
  const size_t end = text.find_last_not_of(" \r\n\t");
  text = text.substr(0, end == std::string_view::npos ? 0 : end + 1);
  return text.size() <= kShownBytesMax ? std::string(text)
                                       : std::string(text.substr(0, kShownBytesMax)) + "…";
}

}  // namespace

void Raised::clear() {
  tokens.clear();
  logprobs.clear();
  prompt_logprobs.clear();
  cached_tokens = 0;
  finish = inference::FinishReason::kNone;
  last_is_stop = false;
  handoff.clear();
  pooled.reset();
}

// ---- server-sent events

Status SseReader::feed(std::string_view bytes) {
  if (begin_ > 0) {
    buffer_.erase(0, begin_);
    searched_ -= std::min(searched_, begin_);
    begin_ = 0;
  }
  if (buffer_.size() + bytes.size() + event_.size() > kEventBytesMax) {
    return Error(Code::kTooLarge,
                 fmt::format("the engine sent an event of more than {} bytes", kEventBytesMax));
  }
  buffer_ += bytes;
  return {};
}

bool SseReader::take_line(std::string_view& line) {
  const size_t end = buffer_.find('\n', std::max(begin_, searched_));
  if (end == std::string::npos) {
    searched_ = buffer_.size();
    return false;
  }
  line = std::string_view(buffer_).substr(begin_, end - begin_);
  if (line.ends_with('\r')) {
    line.remove_suffix(1);
  }
  begin_ = end + 1;
  return true;
}

bool SseReader::next(std::string_view& payload) {
  if (!has_data_) {
    event_.clear();
  }
  std::string_view line;
  while (take_line(line)) {
    if (line.empty()) {
      if (std::exchange(has_data_, false)) {
        payload = event_;
        return true;
      }
      continue;
    }
    constexpr std::string_view kData = "data:";
    // llama.cpp before 2025 reported errors under a field of their own.
    constexpr std::string_view kError = "error:";
    const bool is_error = line.starts_with(kError);
    if (!line.starts_with(kData) && !is_error) {
      continue;
    }
    line.remove_prefix(is_error ? kError.size() : kData.size());
    if (line.starts_with(' ')) {
      line.remove_prefix(1);
    }
    if (std::exchange(has_data_, true)) {
      event_ += '\n';
    }
    if (is_error) {
      event_ += fmt::format(R"({{"error":{}}})", line);
    } else {
      event_ += line;
    }
  }
  return false;
}

// ---- one answer

void ReplyReader::on_head(int status, std::string_view content_type) {
  status_ = status;
  if (status != 200) {
    form_ = Form::kError;
  } else if (content_type.starts_with("text/event-stream")) {
    form_ = Form::kStream;
  } else {
    form_ = Form::kPlain;
  }
}

Status ReplyReader::on_payload(std::string_view payload, Raised& out) {
  if (payload == kDone) {
    done_ = true;
    return raiser_->on_done(out);
  }
  STATOR_CHECK(raiser_->on_event(payload, out));
  const EventRaiser::Next next = raiser_->next();
  if (next == EventRaiser::Next::kMore) {
    return {};
  }
  done_ = true;
  abort_ = next == EventRaiser::Next::kAbort;
  return raiser_->on_done(out);
}

Status ReplyReader::on_bytes(std::string_view bytes, Raised& out) {
  if (done_) {
    return {};
  }
  switch (form_) {
    case Form::kStream: {
      STATOR_CHECK(sse_.feed(bytes));
      std::string_view payload;
      while (!done_ && sse_.next(payload)) {
        STATOR_CHECK(on_payload(payload, out));
      }
      return {};
    }
    case Form::kPlain:
      if (body_.size() + bytes.size() > kAnswerBytesMax) {
        return Error(Code::kTooLarge,
                     fmt::format("{} answered with more than {} bytes", engine_, kAnswerBytesMax));
      }
      body_ += bytes;
      return {};
    case Form::kError:
      body_ += bytes.substr(0, kErrorBytesMax - std::min(kErrorBytesMax, body_.size()));
      return {};
    case Form::kNone:
      break;
  }
  return {};
}

Status ReplyReader::on_end(Raised& out) {
  if (std::exchange(done_, true)) {
    return {};
  }
  if (form_ == Form::kError || form_ == Form::kNone) {
    return to_error(engine_, status_, body_);
  }
  if (form_ == Form::kPlain) {
    STATOR_CHECK(raiser_->on_event(body_, out));
  }
  return raiser_->on_done(out);
}

Status ReplyReader::on_cut(Error error, Raised& out) {
  if (std::exchange(done_, true)) {
    return {};
  }
  if (form_ == Form::kStream && raiser_->on_done(out)) {
    return {};
  }
  const bool unreached = form_ == Form::kNone && error.code() == Code::kUnavailable;
  return std::move(error).with_code(unreached ? Code::kUnavailable : Code::kDisconnected);
}

// ---- errors

std::string error_text(std::string_view body) {
  simdjson::dom::parser parser;
  simdjson::dom::object root;
  if (parser.parse(body.data(), body.size()).get(root) != simdjson::SUCCESS) {
    return shorten(body);
  }
  std::string_view text;
  simdjson::dom::object nested;
  if (root["error"].get(nested) == simdjson::SUCCESS &&
      nested["message"].get(text) == simdjson::SUCCESS) {
    return shorten(text);
  }
  for (const std::string_view key : {"message", "error", "detail"}) {
    if (root[key].get(text) == simdjson::SUCCESS) {
      return shorten(text);
    }
  }
  return shorten(body);
}

Error to_error(std::string_view engine, int status, std::string_view body) {
  const std::string text = error_text(body);
  const auto error = [&](Code code) {
    return Error(code,
                 fmt::format("{} answered {}{}{}", engine, status, text.empty() ? "" : ": ", text));
  };
  switch (status) {
    case 400:
    case 422:
      return error(Code::kInvalidArgument);
    case 404:
      return error(Code::kNotFound);
    case 413:
      return error(Code::kTooLarge);
    case 401:
    case 403:
      // The worker's credentials, not the client's: nothing the client can change.
      return Error(Code::kUnavailable,
                   fmt::format("{} refused the worker ({}): check engine.api_key; {}", engine,
                               status, text));
    case 429:
    case 502:
    case 503:
    case 504:
      return error(Code::kOverloaded);
    case 501:
      return error(Code::kUnsupported);
    default:
      break;
  }
  // vLLM's server outlives its core for a moment and says so in these words.
  const bool dead = text.find("EngineCore") != std::string::npos ||
                    text.find("EngineDead") != std::string::npos ||
                    text.find("Engine process") != std::string::npos;
  return error(dead ? Code::kDisconnected : Code::kInternal);
}

Result<inference::FinishReason> to_finish(std::string_view engine, std::string_view word) {
  if (word == "length") {
    return inference::FinishReason::kLength;
  }
  if (word == "abort") {
    return Error(Code::kDisconnected, fmt::format("{} aborted the request", engine));
  }
  if (word == "error") {
    return Error(Code::kInternal, fmt::format("{} ended the answer with an error", engine));
  }
  return inference::FinishReason::kStop;
}

}  // namespace stator::engine::adapters
