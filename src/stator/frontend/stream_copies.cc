// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/stream_copies.h"

#include <algorithm>
#include <utility>

namespace stator::frontend {

void StreamCopies::append(HolderId holder, Serial serial, continuity::JournalPart part) {
  auto& line = lines_[holder];
  if (line == nullptr) {
    line = std::make_unique<Line>();
  }
  line->parts.push_back(std::move(part));
  line->serials.push_back(serial);
}

void StreamCopies::flush() {
  for (auto& [holder, line] : lines_) {
    if (line->sent.empty() && !line->parts.empty()) {
      send(holder, *line);
    }
  }
}

void StreamCopies::send(HolderId holder, Line& line) {
  line.sent = std::exchange(line.serials, {});
  line.sent_streams.clear();
  for (const continuity::JournalPart& part : line.parts) {
    line.sent_streams.push_back(part.stream);
  }
  hub_.append(
      holder, std::exchange(line.parts, {}), shard_,
      [weak = weak_from_this(), holder](Result<std::vector<continuity::StreamId>>& refused) {
        if (const auto self = weak.lock()) {
          self->on_answer(holder, refused);
        }
      });
}

void StreamCopies::on_answer(HolderId holder, Result<std::vector<continuity::StreamId>>& refused) {
  const auto known = lines_.find(holder);
  const std::unique_ptr<Line> line = std::move(known->second);
  lines_.erase(known);
  if (refused && !line->parts.empty()) {
    auto next = std::make_unique<Line>();
    next->parts = std::move(line->parts);
    next->serials = line->serials;
    send(holder, *lines_.emplace(holder, std::move(next)).first->second);
  }
  for (size_t i = 0; i < line->sent.size() && owner_ != nullptr; ++i) {
    const bool lost =
        !refused || std::ranges::find(*refused, line->sent_streams[i]) != refused->end();
    if (lost) {
      owner_->on_copy_lost(line->sent[i]);
    } else {
      owner_->on_copied(line->sent[i]);
    }
  }
  for (size_t i = 0; !refused && i < line->serials.size() && owner_ != nullptr; ++i) {
    owner_->on_copy_lost(line->serials[i]);
  }
}

}  // namespace stator::frontend
