// SPDX-License-Identifier: Apache-2.0
#include "stator/kube/watch_stream.h"

#include <fmt/format.h>

#include <algorithm>

namespace stator::kube {

Status ObjectSplitter::feed(std::string_view bytes, const OnObject& on_object) {
  while (!bytes.empty()) {
    // Most of an object is inside of strings, and most of these have no escapes.
    if (in_string_ && !escaped_) {
      const size_t plain = std::min(bytes.find_first_of("\"\\"), bytes.size());
      STATOR_CHECK(take_text(bytes.substr(0, plain)));
      bytes.remove_prefix(plain);
      if (bytes.empty()) {
        break;
      }
    }
    STATOR_CHECK(take(bytes.front(), on_object));
    bytes.remove_prefix(1);
  }
  return {};
}

/// Characters of a string that end nothing.
Status ObjectSplitter::take_text(std::string_view text) {
  const int base = mode_ == Mode::kItems ? 2 : 0;
  const bool in_items = mode_ == Mode::kValues || items_depth_ > 0;
  if (in_items && depth_ > base) {
    current_.append(text);
  } else if (mode_ == Mode::kItems) {
    envelope_.append(text);
  }
  if (depth_ == 1) {
    key_.append(text);
  }
  return check_size();
}

Status ObjectSplitter::check_size() const {
  if (current_.size() > object_bytes_max_ || envelope_.size() > object_bytes_max_) {
    return Error(Code::kTooLarge, fmt::format("the API server sent an object of more than {} bytes",
                                              object_bytes_max_));
  }
  return {};
}

Status ObjectSplitter::take(char c, const OnObject& on_object) {
  const int base = mode_ == Mode::kItems ? 2 : 0;  // depth around the objects we cut out
  const bool in_items = mode_ == Mode::kValues || items_depth_ > 0;
  const bool is_inside = in_items && depth_ > base;
  const auto keep = [&] {
    if (in_items && (is_inside || c == '{' || c == '[')) {
      current_.push_back(c);
    } else if (mode_ == Mode::kItems && !(in_items && (c == ',' || c == ' ' || c == '\n'))) {
      envelope_.push_back(c);
    }
  };
  STATOR_CHECK(check_size());
  if (in_string_) {
    keep();
    if (escaped_) {
      escaped_ = false;
    } else if (c == '\\') {
      escaped_ = true;
    } else if (c == '"') {
      in_string_ = false;
    } else if (depth_ == 1) {
      key_.push_back(c);
    }
    return {};
  }
  switch (c) {
    case '"':
      keep();
      in_string_ = true;
      if (depth_ == 1) {
        key_.clear();
      }
      return {};
    case '{':
    case '[': {
      const bool opens_items = mode_ == Mode::kItems && c == '[' && depth_ == 1 && key_ == "items";
      keep();
      ++depth_;
      if (opens_items) {
        items_depth_ = depth_;
      }
      return {};
    }
    case '}':
    case ']':
      --depth_;
      if (mode_ == Mode::kItems && items_depth_ > 0 && depth_ < items_depth_) {
        items_depth_ = 0;
        envelope_.push_back(c);
        return {};
      }
      keep();
      if (in_items && depth_ == base && !current_.empty()) {
        const Status status = on_object(current_);
        current_.clear();
        return status ? Status() : Status(status.error().clone());
      }
      return {};
    default:
      keep();
      return {};
  }
}

Result<WatchEvent> parse_watch_event(std::string_view text) {
  STATOR_TRY(json::Value line, json::parse(text), "reading a watch");
  return to_watch_event(std::move(line));
}

Result<WatchEvent> to_watch_event(json::Value line) {
  WatchEvent event;
  event.type = line.text_at({"type"});
  json::Value* object = line.find("object");
  if (event.type.empty() || object == nullptr) {
    return Error(Code::kCorrupt, "a line of a watch has no type or no object");
  }
  event.object = std::move(*object);
  return event;
}

}  // namespace stator::kube
