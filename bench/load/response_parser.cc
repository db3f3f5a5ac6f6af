// SPDX-License-Identifier: Apache-2.0
#include "response_parser.h"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace stator::bench {
namespace {

constexpr size_t kHeadBytesMax = 64 * 1024;
constexpr size_t kLineBytesMax = 4096;
constexpr size_t kErrorBytesMax = 300;
constexpr std::string_view kHeadEnd = "\r\n\r\n";

/// The value of a header in a lower-case head; empty if absent.
std::string_view find_header(std::string_view head, std::string_view name) {
  const std::string prefix = "\r\n" + std::string(name) + ":";
  const size_t at = head.find(prefix);
  if (at == std::string_view::npos) {
    return {};
  }
  std::string_view value = head.substr(at + prefix.size());
  value = value.substr(0, value.find("\r\n"));
  value.remove_prefix(std::min(value.find_first_not_of(' '), value.size()));
  return value;
}

bool parse_number(std::string_view text, int base, uint64_t& value) {
  return std::from_chars(text.data(), text.data() + text.size(), value, base).ec == std::errc{};
}

}  // namespace

void ResponseParser::reset() {
  part_ = Part::kHead;
  status_ = 0;
  is_stream_ = false;
  must_close_ = false;
  remaining_bytes_ = 0;
  line_.clear();
  sse_.reset();
  error_body_.clear();
}

ResponseParser::State ResponseParser::feed(std::string_view bytes) {
  while (!bytes.empty() && part_ != Part::kDone && part_ != Part::kBroken) {
    switch (part_) {
      case Part::kHead:
        take_head(bytes);
        break;
      case Part::kSized:
        take_sized(bytes, Part::kDone);
        break;
      case Part::kChunkData:
        take_sized(bytes, Part::kChunkEnd);
        break;
      case Part::kUntilClose:
        take_body(bytes);
        bytes = {};
        break;
      default:
        take_line(bytes);
    }
  }
  return part_ == Part::kDone     ? State::kDone
         : part_ == Part::kBroken ? State::kBroken
                                  : State::kMore;
}

ResponseParser::State ResponseParser::on_close() const {
  return part_ == Part::kUntilClose || part_ == Part::kDone ? State::kDone : State::kBroken;
}

void ResponseParser::take_head(std::string_view& bytes) {
  const size_t before = line_.size();
  line_ += bytes;
  const size_t end = line_.find(kHeadEnd);
  if (end == std::string::npos) {
    bytes = {};
    part_ = line_.size() > kHeadBytesMax ? Part::kBroken : Part::kHead;
    return;
  }
  bytes.remove_prefix(end + kHeadEnd.size() - before);
  line_.resize(end + 2);
  std::ranges::transform(line_, line_.begin(), [](unsigned char c) { return std::tolower(c); });
  parse_head(line_);
  line_.clear();
}

void ResponseParser::parse_head(std::string_view head) {
  constexpr std::string_view kVersion = "http/1.1 ";
  uint64_t status = 0;
  if (!head.starts_with(kVersion) || !parse_number(head.substr(kVersion.size()), 10, status)) {
    part_ = Part::kBroken;
    return;
  }
  if (status < 200) {
    return;  // 100 Continue: the real head follows
  }
  status_ = static_cast<int>(status);
  is_stream_ = find_header(head, "content-type").starts_with("text/event-stream");
  must_close_ = find_header(head, "connection") == "close";
  const std::string_view length = find_header(head, "content-length");
  if (find_header(head, "transfer-encoding") == "chunked") {
    part_ = Part::kChunkSize;
  } else if (length.empty()) {
    must_close_ = true;
    part_ = Part::kUntilClose;
  } else if (!parse_number(length, 10, remaining_bytes_)) {
    part_ = Part::kBroken;
  } else {
    part_ = remaining_bytes_ > 0 ? Part::kSized : Part::kDone;
  }
}

void ResponseParser::take_body(std::string_view bytes) {
  if (is_stream_) {
    sse_.feed(bytes);
  } else if (status_ != 200 && error_body_.size() < kErrorBytesMax) {
    error_body_ += bytes.substr(0, kErrorBytesMax - error_body_.size());
  }
}

void ResponseParser::take_sized(std::string_view& bytes, Part next) {
  const size_t taken = std::min<uint64_t>(bytes.size(), remaining_bytes_);
  take_body(bytes.substr(0, taken));
  bytes.remove_prefix(taken);
  remaining_bytes_ -= taken;
  if (remaining_bytes_ == 0) {
    part_ = next;
  }
}

void ResponseParser::take_line(std::string_view& bytes) {
  const size_t end = bytes.find('\n');
  line_ += bytes.substr(0, end);
  if (end == std::string_view::npos) {
    bytes = {};
    part_ = line_.size() > kLineBytesMax ? Part::kBroken : part_;
    return;
  }
  bytes.remove_prefix(end + 1);
  if (line_.ends_with('\r')) {
    line_.pop_back();
  }
  end_of_line();
  line_.clear();
}

void ResponseParser::end_of_line() {
  switch (part_) {
    case Part::kChunkSize:
      if (!parse_number(line_, 16, remaining_bytes_)) {
        part_ = Part::kBroken;
      } else {
        part_ = remaining_bytes_ > 0 ? Part::kChunkData : Part::kTrailer;
      }
      break;
    case Part::kChunkEnd:
      part_ = line_.empty() ? Part::kChunkSize : Part::kBroken;
      break;
    default:
      part_ = line_.empty() ? Part::kDone : Part::kTrailer;
  }
}

}  // namespace stator::bench
