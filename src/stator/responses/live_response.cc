// SPDX-License-Identifier: Apache-2.0
#include "stator/responses/live_response.h"

#include <algorithm>
#include <utility>

namespace stator::responses {

void append_event(std::string& out, std::string_view data) {
  // The encoder writes {"type":"response.…"… first.
  constexpr std::string_view kHead = R"({"type":")";
  const std::string_view rest = data.substr(std::min(data.size(), kHead.size()));
  out.append("event: ").append(rest.substr(0, rest.find('"')));
  out.append("\ndata: ").append(data).append("\n\n");
}

void LiveResponse::append(std::string_view frames) {
  constexpr std::string_view kData = "\ndata: ";
  MutexLock lock(mutex_);
  while (!frames.empty()) {
    const size_t end = std::min(frames.find("\n\n"), frames.size());
    const std::string_view frame = frames.substr(0, end);
    frames.remove_prefix(std::min(frames.size(), end + 2));
    if (const size_t data = frame.find(kData); data != std::string_view::npos && !over_) {
      events_.emplace_back(frame.substr(data + kData.size()));
    }
  }
}

void LiveResponse::end(std::string response_json) {
  MutexLock lock(mutex_);
  response_json_ = std::move(response_json);
  over_ = true;
}

bool LiveResponse::over() const {
  MutexLock lock(mutex_);
  return over_;
}

std::string LiveResponse::response_json() const {
  MutexLock lock(mutex_);
  return response_json_;
}

void LiveResponse::set_response_json(std::string json) {
  MutexLock lock(mutex_);
  if (!over_) {
    response_json_ = std::move(json);
  }
}

uint64_t LiveResponse::read(uint64_t first, size_t bytes_max, std::string& out) const {
  MutexLock lock(mutex_);
  const size_t before = out.size();
  while (first < events_.size() && out.size() - before < bytes_max) {
    append_event(out, events_[first++]);
  }
  return first;
}

std::vector<std::string> LiveResponse::events() const {
  MutexLock lock(mutex_);
  return events_;
}

}  // namespace stator::responses
