// SPDX-License-Identifier: Apache-2.0
#include "stator/structured/detail/json_tree.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <span>

#include "stator/core/assert.h"
#include "stator/structured/structured_output.h"

namespace stator::structured {

namespace ondemand = simdjson::ondemand;

/// Builds a JsonTree. The text is parsed inside a pair of brackets, so that a document that is one
/// scalar needs no code of its own.
class JsonTreeReader {
 public:
  explicit JsonTreeReader(std::string_view text) : text_(text) {}

  Outcome<JsonTree> read() {
    std::string wrapped;
    wrapped.reserve(text_.size() + 2 + simdjson::SIMDJSON_PADDING);
    wrapped.append("[").append(text_).append("]");
    // Decoded strings are never longer than their spelling.
    tree_.decoded_.reserve(text_.size());
    ondemand::parser parser;
    if (const auto failed = parser.iterate(wrapped).get(document_); failed != simdjson::SUCCESS) {
      return not_json(failed);
    }
    base_ = wrapped.data() + 1;
    if (!read_document()) {
      return std::move(*refusal_);
    }
    return std::move(tree_);
  }

 private:
  bool fail(Refusal refusal) {
    refusal_ = std::move(refusal);
    return false;
  }
  bool fail(simdjson::error_code code) { return fail(not_json(code)); }
  Refusal not_json(simdjson::error_code code) {
    return refuse(fmt::format("is not valid JSON: {}", simdjson::error_message(code)));
  }

  bool read_document() {
    ondemand::array wrapper;
    if (const auto failed = document_.get_array().get(wrapper); failed != simdjson::SUCCESS) {
      return fail(failed);
    }
    uint32_t values = 0;
    for (auto element : wrapper) {
      if (++values > 1) {
        return fail(refuse("is not valid JSON: something follows the value"));
      }
      if (!read_value(element, kNoJson, {}, 1)) {
        return false;
      }
    }
    if (values == 0) {
      return fail(refuse("is not valid JSON: it is empty"));
    }
    const bool ended = document_.current_location().error() == simdjson::OUT_OF_BOUNDS;
    return ended || fail(refuse("is not valid JSON: something follows the value"));
  }

  // NOLINTNEXTLINE(misc-no-recursion): bounded by kJsonDepthMax
  bool read_value(simdjson::simdjson_result<ondemand::value> element, JsonIndex parent,
                  std::string_view key, uint32_t depth) {
    ondemand::value value;
    if (const auto failed = element.get(value); failed != simdjson::SUCCESS) {
      return fail(failed);
    }
    if (tree_.nodes_.size() == kJsonNodesMax) {
      return fail({Code::kTooLarge, {}, fmt::format("has more than {} values", kJsonNodesMax)});
    }
    if (depth > kJsonDepthMax) {
      return fail(refuse(fmt::format("is nested deeper than {} levels", kJsonDepthMax)));
    }
    const auto index = static_cast<JsonIndex>(tree_.nodes_.size());
    tree_.nodes_.push_back({.key = key, .parent = parent});
    const size_t begin = location();
    if (!read_typed(value, index, depth)) {
      return false;
    }
    const std::string_view rest = text_.substr(begin, location() - begin);
    const size_t last = rest.find_last_not_of(" \t\r\n");
    tree_.nodes_[index].raw = rest.substr(0, last + 1);
    return true;
  }

  // Byte of the text at which the next token stands.
  size_t location() {
    const char* at = nullptr;
    const bool known = document_.current_location().get(at) == simdjson::SUCCESS;
    return known ? std::min(static_cast<size_t>(at - base_), text_.size()) : text_.size();
  }

  // NOLINTNEXTLINE(misc-no-recursion): bounded by kJsonDepthMax
  bool read_typed(ondemand::value& value, JsonIndex index, uint32_t depth) {
    ondemand::json_type type{};
    if (const auto failed = value.type().get(type); failed != simdjson::SUCCESS) {
      return fail(failed);
    }
    switch (type) {
      case ondemand::json_type::object:
        return read_object(value, index, depth);
      case ondemand::json_type::array:
        return read_array(value, index, depth);
      default:
        return read_scalar(value, type, tree_.nodes_[index]);
    }
  }

  bool read_scalar(ondemand::value& value, ondemand::json_type type, JsonNode& node) {
    simdjson::error_code failed = simdjson::SUCCESS;
    switch (type) {
      case ondemand::json_type::string: {
        std::string_view text;
        failed = value.get_string().get(text);
        node.type = JsonType::kString;
        node.text = keep(failed == simdjson::SUCCESS ? text : std::string_view());
        break;
      }
      case ondemand::json_type::number:
        node.type = JsonType::kNumber;
        failed = value.get_double().get(node.number);
        break;
      case ondemand::json_type::boolean:
        node.type = JsonType::kBool;
        failed = value.get_bool().get(node.boolean);
        break;
      default: {
        bool is_null = false;
        failed = value.is_null().get(is_null);
        if (failed == simdjson::SUCCESS && !is_null) {
          failed = simdjson::N_ATOM_ERROR;
        }
        break;
      }
    }
    return failed == simdjson::SUCCESS || fail(failed);
  }

  // NOLINTNEXTLINE(misc-no-recursion): bounded by kJsonDepthMax
  bool read_array(ondemand::value& value, JsonIndex index, uint32_t depth) {
    tree_.nodes_[index].type = JsonType::kArray;
    ondemand::array array;
    if (const auto failed = value.get_array().get(array); failed != simdjson::SUCCESS) {
      return fail(failed);
    }
    JsonIndex last = kNoJson;
    for (auto element : array) {
      link_next(index, last);
      if (!read_value(element, index, {}, depth + 1)) {
        return false;
      }
    }
    order_children(index);
    return true;
  }

  // NOLINTNEXTLINE(misc-no-recursion): bounded by kJsonDepthMax
  bool read_object(ondemand::value& value, JsonIndex index, uint32_t depth) {
    tree_.nodes_[index].type = JsonType::kObject;
    ondemand::object object;
    if (const auto failed = value.get_object().get(object); failed != simdjson::SUCCESS) {
      return fail(failed);
    }
    JsonIndex last = kNoJson;
    for (auto field : object) {
      std::string_view key;
      if (const auto failed = field.unescaped_key().get(key); failed != simdjson::SUCCESS) {
        return fail(failed);
      }
      link_next(index, last);
      if (!read_value(field.value(), index, keep(key), depth + 1)) {
        return false;
      }
    }
    return sort_members(index);
  }

  // Makes the value about to be read the next child, before it is read: refusals inside it want to
  // point at it.
  void link_next(JsonIndex parent, JsonIndex& last) {
    const auto child = static_cast<JsonIndex>(tree_.nodes_.size());
    (last == kNoJson ? tree_.nodes_[parent].first_child : tree_.nodes_[last].next) = child;
    ++tree_.nodes_[parent].child_count;
    last = child;
  }

  // Fills the container's part of order_.
  std::span<JsonIndex> order_children(JsonIndex container) {
    std::vector<JsonIndex>& order = tree_.order_;
    const size_t begin = order.size();
    tree_.nodes_[container].order = static_cast<uint32_t>(begin);
    for (const JsonIndex child : tree_.children(container)) {
      order.push_back(child);
    }
    return std::span(order).subspan(begin);
  }

  bool sort_members(JsonIndex object) {
    const std::span<JsonIndex> members = order_children(object);
    const auto key = [this](JsonIndex member) { return tree_[member].key; };
    std::ranges::sort(members, {}, key);
    const auto twice = std::ranges::adjacent_find(members, {}, key);
    if (twice == members.end()) {
      return true;
    }
    return fail(
        refuse_at(tree_.pointer(object), fmt::format("the key \"{}\" appears twice", key(*twice))));
  }

  std::string_view keep(std::string_view text) {
    std::vector<char>& store = tree_.decoded_;
    STATOR_ASSERT(store.size() + text.size() <= store.capacity(),
                  "decoded strings are at most as long as the text");
    const size_t begin = store.size();
    store.insert(store.end(), text.begin(), text.end());
    return {store.data() + begin, text.size()};
  }

  std::string_view text_;
  const char* base_ = nullptr;  // where the text begins in the padded copy
  ondemand::document document_;
  JsonTree tree_;
  std::optional<Refusal> refusal_;
};

std::string_view describe(JsonType type) {
  switch (type) {
    case JsonType::kObject:
      return "an object";
    case JsonType::kArray:
      return "an array";
    case JsonType::kString:
      return "a string";
    case JsonType::kNumber:
      return "a number";
    case JsonType::kBool:
      return "a boolean";
    case JsonType::kNull:
      break;
  }
  return "null";
}

Outcome<JsonTree> JsonTree::parse(std::string_view text) {
  if (text.size() > kTextBytesMax) {
    return Refusal{Code::kTooLarge, {}, fmt::format("is longer than {} MiB", kTextBytesMax >> 20U)};
  }
  return JsonTreeReader(text).read();
}

JsonIndex JsonTree::find(JsonIndex object, std::string_view key) const {
  const JsonNode& node = nodes_[object];
  if (node.type != JsonType::kObject) {
    return kNoJson;
  }
  const auto members = std::span(order_).subspan(node.order, node.child_count);
  const auto name = [this](JsonIndex member) { return nodes_[member].key; };
  const auto found = std::ranges::lower_bound(members, key, {}, name);
  return found != members.end() && name(*found) == key ? *found : kNoJson;
}

std::string JsonTree::pointer(JsonIndex index, JsonIndex base) const {
  std::vector<std::string> parts;
  for (; index != base && index != kNoJson; index = nodes_[index].parent) {
    const JsonIndex parent = nodes_[index].parent;
    if (parent == kNoJson) {
      break;
    }
    if (nodes_[parent].type == JsonType::kArray) {
      size_t position = 0;
      for (JsonIndex child = nodes_[parent].first_child; child != index;
           child = nodes_[child].next) {
        ++position;
      }
      parts.push_back(std::to_string(position));
      continue;
    }
    std::string& part = parts.emplace_back();
    for (const char c : nodes_[index].key) {
      if (c == '~') {
        part += "~0";
      } else if (c == '/') {
        part += "~1";
      } else {
        part += c;
      }
    }
  }
  std::string out = "#";
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    out.append("/").append(*part);
  }
  return out;
}

JsonIndex JsonTree::resolve(JsonIndex base, std::string_view pointer) const {
  JsonIndex at = base;
  while (!pointer.empty() && at != kNoJson) {
    if (pointer.front() != '/') {
      return kNoJson;
    }
    pointer.remove_prefix(1);
    const std::string_view part = pointer.substr(0, pointer.find('/'));
    pointer.remove_prefix(part.size());
    std::string key;
    for (size_t i = 0; i < part.size(); ++i) {
      const bool escape = part[i] == '~' && i + 1 < part.size();
      key += escape ? (part[++i] == '1' ? '/' : '~') : part[i];
    }
    const JsonNode& node = nodes_[at];
    if (node.type != JsonType::kArray) {
      at = find(at, key);
      continue;
    }
    uint32_t position = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), position);
    const bool inside =
        error == std::errc() && end == key.data() + key.size() && position < node.child_count;
    at = inside ? order_[node.order + position] : kNoJson;
  }
  return at;
}

void append_json_string(std::string& out, std::string_view text) {
  constexpr std::string_view kLetters = "\b\f\n\r\t";
  out.push_back('"');
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out.push_back('\\');
      out.push_back(c);
    } else if (const size_t known = kLetters.find(c); known != std::string_view::npos) {
      out.push_back('\\');
      out.push_back("bfnrt"[known]);
    } else if (byte < 0x20) {
      out += fmt::format("\\u{:04x}", byte);
    } else {
      out.push_back(c);
    }
  }
  out.push_back('"');
}

std::string json_string(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

}  // namespace stator::structured
