// SPDX-License-Identifier: Apache-2.0
#include "stator/api/responses_partial.h"

#include <array>
#include <string_view>
#include <utility>

#include "stator/json/value.h"

namespace stator::api {
namespace {

/// The item that is being written.
struct OpenItem {
  json::Value item;
  std::string text;  // of its last part, or its arguments, so far
};

/// Where the deltas of an item belong: the last element of a list, or the item itself.
struct Place {
  std::string_view event;
  std::string_view list;  // empty: the item
  std::string_view member;
};
constexpr auto kPlaces = std::to_array<Place>({
    {"response.output_text.delta", "content", "text"},
    {"response.refusal.delta", "content", "refusal"},
    {"response.reasoning_text.delta", "content", "text"},
    {"response.reasoning_summary_text.delta", "summary", "text"},
    {"response.function_call_arguments.delta", "", "arguments"},
    {"response.custom_tool_call_input.delta", "", "input"},
});

/// Puts the text of the deltas where it belongs.
void settle(OpenItem& open, const Place* place) {
  if (place == nullptr || open.text.empty()) {
    return;
  }
  json::Value* into = &open.item;
  if (!place->list.empty()) {
    json::Value* const list = open.item.find(place->list);
    auto* const parts = list == nullptr ? nullptr : list->mutable_elements();
    if (parts == nullptr || parts->empty()) {
      return;
    }
    into = &parts->back();
  }
  (*into)[place->member] = std::exchange(open.text, {});
}

void append_item(std::string& out, const json::Value& item) {
  if (item.is_object()) {
    out += out.empty() ? "" : ",";
    out += json::to_text(item);
  }
}

}  // namespace

std::string partial_output(std::span<const std::string> events) {
  std::string out;
  OpenItem open;
  const Place* place = nullptr;  // of the deltas in open.text
  for (const std::string& text : events) {
    const auto event = json::parse(text);
    const std::string_view type = event ? event->text_at({"type"}) : std::string_view();
    if (type == "response.output_item.added") {
      open = {.item = event->at("item"), .text = {}};
      place = nullptr;
    } else if (type == "response.output_item.done") {
      append_item(out, event->at("item"));
      open = {};
      place = nullptr;
    } else if (type == "response.content_part.added" ||
               type == "response.reasoning_summary_part.added") {
      settle(open, std::exchange(place, nullptr));
      if (open.item.is_object()) {
        const bool summary = type == "response.reasoning_summary_part.added";
        json::Value& list = open.item[summary ? "summary" : "content"];
        if (!list.is_array()) {
          list = json::Value::array();
        }
        list.push_back(event->at("part"));
      }
    } else {
      for (const Place& known : kPlaces) {
        if (known.event == type) {
          place = &known;
          open.text += event->text_at({"delta"});
        }
      }
    }
  }
  settle(open, place);
  if (open.item.is_object()) {
    open.item["status"] = "incomplete";
  }
  append_item(out, open.item);
  return out;
}

}  // namespace stator::api
