// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/loadgen/response_reader.h"

#include <algorithm>
#include <charconv>

namespace stator::loadgen {
namespace {

constexpr size_t kLineBytesMax = 4 << 10;
constexpr size_t kErrorBytesMax = 300;
constexpr std::string_view kBadChunks = "the chunks of the answer are not well-formed";

bool equals_ignoring_case(std::string_view text, std::string_view lower) {
  return std::ranges::equal(text, lower, [](char a, char b) {
    return (a >= 'A' && a <= 'Z' ? static_cast<char>(a + ('a' - 'A')) : a) == b;
  });
}

bool contains_ignoring_case(std::string_view text, std::string_view lower) {
  for (size_t i = 0; i + lower.size() <= text.size(); ++i) {
    if (equals_ignoring_case(text.substr(i, lower.size()), lower)) {
      return true;
    }
  }
  return false;
}

}  // namespace

void ResponseReader::reset() {
  part_ = Part::kHead;
  status_ = 0;
  is_stream_ = must_close_ = chunked_ = has_length_ = false;
  left_bytes_ = 0;
  head_.clear();
  line_.clear();
  body_.clear();
  location_.clear();
  broken_text_ = {};
  sse_.reset();
  body_counts_ = {};
  text_ = nullptr;
}

void ResponseReader::capture(std::string* text, size_t bytes_max) {
  text_ = text;
  text_bytes_max_ = bytes_max;
  sse_.capture(text, bytes_max);
}

ResponseReader::State ResponseReader::feed(std::string_view bytes) {
  while (!bytes.empty() && part_ < Part::kDone) {
    switch (part_) {
      case Part::kHead:
        take_head(bytes);
        break;
      case Part::kSized:
        take_sized(bytes, Part::kDone);
        break;
      case Part::kUntilClose:
        take_body(bytes);
        bytes = {};
        break;
      case Part::kChunkSize:
        take_chunk_size(bytes);
        break;
      case Part::kChunkData:
        take_sized(bytes, Part::kChunkEnd);
        break;
      default:
        take_line_end(bytes);
    }
  }
  if (part_ == Part::kDone && !bytes.empty()) {
    break_off("bytes behind the end of the answer");
  }
  if (part_ == Part::kDone) {
    finish_body();
    return State::kDone;
  }
  return part_ == Part::kBroken ? State::kBroken : State::kMore;
}

ResponseReader::State ResponseReader::on_close() {
  // A stream that only the end of the connection delimits is complete when it said so.
  if (part_ != Part::kUntilClose || (is_stream_ && !sse_.counts().done)) {
    break_off(untouched() ? "the server closed the connection without an answer"
                          : "the server closed the connection in the middle of an answer");
    return State::kBroken;
  }
  part_ = Part::kDone;
  finish_body();
  return State::kDone;
}

void ResponseReader::take_head(std::string_view& bytes) {
  constexpr std::string_view kEnd = "\r\n\r\n";
  if (head_.empty()) {
    const size_t end = bytes.find(kEnd);
    if (end != std::string_view::npos) {  // the usual case: all in one piece
      const std::string_view head = bytes.substr(0, end);
      bytes.remove_prefix(end + kEnd.size());
      read_head(head);
      return;
    }
  }
  const size_t had = head_.size();
  const size_t from = had < 3 ? 0 : had - 3;
  head_ += bytes.substr(0, kHeadBytesMax);
  const size_t end = head_.find(kEnd, from);
  if (end == std::string::npos) {
    bytes = {};
    if (head_.size() >= kHeadBytesMax) {
      break_off("the headers of the answer are longer than 64 KiB");
    }
    return;
  }
  bytes.remove_prefix(end + kEnd.size() - had);
  const std::string head = head_.substr(0, end);
  head_.clear();
  read_head(head);
}

void ResponseReader::read_head(std::string_view head) {
  const size_t space = head.find(' ');
  if (!head.starts_with("HTTP/1.") || space == std::string_view::npos ||
      std::from_chars(head.data() + space + 1, head.data() + head.size(), status_).ec !=
          std::errc()) {
    break_off("the answer is not HTTP/1");
    return;
  }
  if (status_ < 200) {  // an interim answer; the real one follows
    status_ = 0;
    return;
  }
  must_close_ = head.starts_with("HTTP/1.0");
  size_t at = head.find("\r\n");
  while (at != std::string_view::npos) {
    const size_t begin = at + 2;
    at = head.find("\r\n", begin);
    const std::string_view line =
        head.substr(begin, at == std::string_view::npos ? at : at - begin);
    const size_t colon = line.find(':');
    if (colon != std::string_view::npos) {
      const size_t value = line.find_first_not_of(" \t", colon + 1);
      read_header(line.substr(0, colon),
                  value == std::string_view::npos ? std::string_view{} : line.substr(value));
    }
  }
  if (part_ == Part::kBroken) {
    return;
  }
  const bool no_body = status_ == 204 || status_ == 304 || (has_length_ && left_bytes_ == 0);
  part_ = chunked_      ? Part::kChunkSize
          : no_body     ? Part::kDone
          : has_length_ ? Part::kSized
                        : Part::kUntilClose;
  must_close_ = must_close_ || part_ == Part::kUntilClose;
}

void ResponseReader::read_header(std::string_view name, std::string_view value) {
  if (equals_ignoring_case(name, "content-length")) {
    const auto parsed = std::from_chars(value.data(), value.data() + value.size(), left_bytes_);
    has_length_ = true;
    if (parsed.ec != std::errc()) {
      break_off("the Content-Length of the answer is no number");
    }
  } else if (equals_ignoring_case(name, "location")) {
    location_ = value.substr(0, kErrorBytesMax);
  } else if (equals_ignoring_case(name, "transfer-encoding")) {
    chunked_ = contains_ignoring_case(value, "chunked");
  } else if (equals_ignoring_case(name, "content-type")) {
    is_stream_ = contains_ignoring_case(value, "text/event-stream");
  } else if (equals_ignoring_case(name, "connection")) {
    must_close_ = must_close_ || contains_ignoring_case(value, "close");
  }
}

void ResponseReader::take_body(std::string_view bytes) {
  if (is_stream_ && status_ == 200) {
    sse_.feed(bytes);
  } else {
    body_ += bytes.substr(0, kBodyBytesMax - std::min(kBodyBytesMax, body_.size()));
  }
}

void ResponseReader::take_sized(std::string_view& bytes, Part next) {
  const size_t taken = std::min<uint64_t>(left_bytes_, bytes.size());
  take_body(bytes.substr(0, taken));
  bytes.remove_prefix(taken);
  left_bytes_ -= taken;
  if (left_bytes_ == 0) {
    part_ = next;
  }
}

void ResponseReader::take_chunk_size(std::string_view& bytes) {
  const size_t end = bytes.find('\n');
  const std::string_view piece = bytes.substr(0, end);
  if (line_.size() + piece.size() > kLineBytesMax) {
    break_off(kBadChunks);
    return;
  }
  line_ += piece;  // a few bytes: stays within the string itself
  bytes.remove_prefix(end == std::string_view::npos ? bytes.size() : end + 1);
  if (end != std::string_view::npos) {
    end_chunk_size();
  }
}

void ResponseReader::end_chunk_size() {
  const auto parsed = std::from_chars(line_.data(), line_.data() + line_.size(), left_bytes_, 16);
  const char next = parsed.ptr < line_.data() + line_.size() ? *parsed.ptr : '\r';
  const bool sane = parsed.ec == std::errc() && (next == '\r' || next == ';' || next == ' ');
  part_ = left_bytes_ == 0 ? Part::kTrailer : Part::kChunkData;
  line_.clear();
  if (!sane) {
    break_off(kBadChunks);
  }
}

void ResponseReader::take_line_end(std::string_view& bytes) {
  const size_t end = bytes.find('\n');
  line_ += bytes.substr(0, std::min(end, kLineBytesMax));
  bytes.remove_prefix(end == std::string_view::npos ? bytes.size() : end + 1);
  if (line_.size() > kLineBytesMax) {
    break_off(kBadChunks);
    return;
  }
  if (end == std::string_view::npos) {
    return;
  }
  const bool empty = line_.empty() || line_ == "\r";
  if (part_ == Part::kChunkEnd) {
    part_ = Part::kChunkSize;
    if (!empty) {
      break_off(kBadChunks);
    }
  } else if (empty) {
    part_ = Part::kDone;  // the empty line behind the trailers
  }
  line_.clear();
}

void ResponseReader::finish_body() {
  if (is_stream_) {
    sse_.finish();
    return;
  }
  read_usage(body_, body_counts_);
  // A page of a proxy, or an error with the wrong status.
  body_counts_.failed =
      !body_counts_.has_usage && find_value(body_, "\"choices\"") == std::string_view::npos;
  for (const std::string_view field : {"\"content\"", "\"text\""}) {
    const size_t at = find_value(body_, field);
    if (at == std::string_view::npos || body_[at] != '"') {
      continue;
    }
    const std::string_view rest = std::string_view(body_).substr(at + 1);
    const size_t length = json_string_length(rest);
    body_counts_.chunks = length > 0 ? 1 : 0;
    if (text_ != nullptr && text_->size() + length <= text_bytes_max_) {
      text_->append(rest.substr(0, length));
    }
    break;
  }
  body_counts_.done = true;
}

void ResponseReader::break_off(std::string_view why) {
  part_ = Part::kBroken;
  broken_text_ = why;
}

std::string ResponseReader::error_text() const {
  if (is_stream_ && status_ == 200) {
    return sse_.error();
  }
  const std::string said = body_.substr(0, kErrorBytesMax);
  return location_.empty() ? said : "redirects to " + location_ + " (not followed) " + said;
}

}  // namespace stator::loadgen
