// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/stream_gate.h"

#include <fmt/format.h>

#include <charconv>
#include <utility>

namespace stator::frontend {
namespace {

constexpr std::string_view kFrameEnd = "\n\n";

template <typename T>
bool parse(std::string_view text, T& out, int base) {
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), out, base);
  return failed == std::errc() && end == text.data() + text.size();
}

}  // namespace

std::string to_string(const EventId& id) {
  return fmt::format("{:016x}{:016x}-{:x}.{}", id.stream.high, id.stream.low, id.holder, id.event);
}

std::optional<EventId> parse_event_id(std::string_view text) {
  constexpr size_t kHalf = 16;
  const size_t dash = text.find('-');
  const size_t dot = text.find('.');
  EventId id;
  if (dash != 2 * kHalf || dot == std::string_view::npos || dot < dash ||
      !parse(text.substr(0, kHalf), id.stream.high, 16) ||
      !parse(text.substr(kHalf, kHalf), id.stream.low, 16) ||
      !parse(text.substr(dash + 1, dot - dash - 1), id.holder, 16) ||
      !parse(text.substr(dot + 1), id.event, 10)) {
    return std::nullopt;
  }
  return id;
}

void StreamGate::end_step(Copied copied) {
  in_step_ = false;
  if (copied == Copied::kUnderWay) {
    waits_.push_back(left_ + held_.size());
  }
  flush();
}

void StreamGate::confirm() {
  if (!waits_.empty()) {
    confirmed_ = waits_.front();
    waits_.pop_front();
    flush();
  }
}

void StreamGate::rename(continuity::StreamId stream, continuity::JournalHub::HolderId holder) {
  id_.stream = stream;
  id_.holder = holder;
}

void StreamGate::fall_back(continuity::StreamId stream, continuity::JournalHub::HolderId own) {
  rename(stream, own);
  waits_.clear();
  flush();
}

void StreamGate::give_up() {
  copied_ = false;
  waits_.clear();
  flush();
}

void StreamGate::respond(int status, std::string_view content_type, std::string_view body,
                         std::span<const net::HttpHeader> headers) {
  done_ = true;
  exchange_.respond(status, content_type, body, headers);
}

void StreamGate::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t end = bytes.find(kFrameEnd);
    const std::string_view frame =
        bytes.substr(0, end == std::string_view::npos ? end : end + kFrameEnd.size());
    bytes.remove_prefix(frame.size());
    if (frame.front() == ':') {
      held_.push_back({.bytes = std::string(frame), .event = std::nullopt});
    } else if (const uint64_t event = next_event_++; event >= id_.event) {
      held_.push_back({.bytes = std::string(frame), .event = event});
    }
  }
  flush();
}

void StreamGate::finish() {
  finished_ = true;
  flush();
}

void StreamGate::abort() {
  done_ = true;
  exchange_.abort();
}

/// All but the steps that the copy lacks, and what was written after the first of them.
void StreamGate::flush() {
  if (in_step_ || done_) {
    return;
  }
  while (!held_.empty() && (waits_.empty() || left_ < confirmed_)) {
    send(held_.front());
    held_.pop_front();
    ++left_;
  }
  if (finished_ && held_.empty()) {
    done_ = true;
    exchange_.finish();
  }
}

void StreamGate::send(const Frame& frame) {
  if (frame.event && copied_) {
    has_id_ = true;
    exchange_.write(fmt::format(
        "id: {}\n",
        to_string({.stream = id_.stream, .holder = id_.holder, .event = *frame.event})));
  } else if (frame.event && std::exchange(has_id_, false)) {
    exchange_.write("id:\n");
  }
  exchange_.write(frame.bytes);
}

}  // namespace stator::frontend
