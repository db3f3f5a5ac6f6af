// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <expected>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stator/parsers/detail/body.h"
#include "stator/parsers/detail/coerce.h"
#include "stator/parsers/detail/json_stream.h"

// MiniMax M3's calls: nested elements, each tag behind a namespace token (`:` here).
//
//   :<tool_call>:<invoke name="f">:<city>Oslo:</city>:<tags>:<item>a:</item>:</tags>:</invoke>
//   :</tool_call>
//
// Spec keys. Markers: section_begin, section_end, call_begin (`:<invoke`), call_end, namespace.
//
// An element with elements in it is an object, or an array if they are all `item`; one without is a
// value by its schema. An element that is repeated becomes an array, text beside elements the
// member `$text`. As all that is only known at the end, a call is held until it is complete.

namespace stator::parsers {
namespace {

enum Mark : int { kOpen, kClose, kCall, kCallEnd };

constexpr uint32_t kMaxElementDepth = 64;
constexpr std::string_view kItem = "item";
constexpr std::string_view kTextKey = "$text";

struct MinimaxM3Machine final : BodyMachine {
  explicit MinimaxM3Machine(const BodyContext& context);
  std::unique_ptr<Body> start() const override;

  MarkerSet markers;
  std::string space;  // the namespace token
};

MinimaxM3Machine::MinimaxM3Machine(const BodyContext& context)
    : markers(context.options.special_markers) {
  markers.add(context.spec.find_markers("section_begin"), kOpen);
  markers.add(context.spec.find_markers("section_end"), kClose);
  markers.add(context.spec.find_markers("call_begin"), kCall);
  markers.add(context.spec.find_markers("call_end"), kCallEnd);
  const Markers& spaces = context.spec.find_markers("namespace");
  space = spaces.empty() ? "" : spaces[0].text;
}

/// &lt; and its like, decimal and hexadecimal references; anything else stays as it is.
void append_without_entities(std::string& out, std::string_view text) {
  struct Entity {
    std::string_view name;
    char meaning;
  };
  constexpr Entity kEntities[] = {{"&lt;", '<'},   {"&gt;", '>'},    {"&amp;", '&'},
                                  {"&quot;", '"'}, {"&apos;", '\''}, {"&#39;", '\''},
                                  {"&#34;", '"'},  {"&#x27;", '\''}, {"&#10;", '\n'}};
  for (size_t at = 0; at < text.size();) {
    const size_t plain = std::min(text.find('&', at), text.size());
    out += text.substr(at, plain - at);
    at = plain;
    const auto* entity = std::ranges::find_if(
        kEntities, [&](const Entity& one) { return text.substr(at).starts_with(one.name); });
    if (entity != std::end(kEntities)) {
      out += entity->meaning;
      at += entity->name.size();
    } else if (at < text.size()) {
      out += text[at++];
    }
  }
}

/// Turns the inside of one invoke into JSON. Every function returns nothing if tags do not match.
class ElementReader {
 public:
  ElementReader(std::string_view text, std::string_view space) : text_(text), space_(space) {}

  /// The inside of the outermost element: always an object.
  std::optional<std::string> arguments(const ValueSchema* schema) { return element({}, schema, 0); }

 private:
  struct Member {
    std::string key;
    std::vector<std::string> values;
  };
  struct Tag {
    std::string_view name;
    bool closes = false;
  };

  std::optional<std::string> element(std::string_view name, const ValueSchema* schema,
                                     uint32_t depth);
  bool child(const Tag& tag, const ValueSchema* schema, uint32_t depth,
             std::vector<Member>& members);
  static void add_member(std::vector<Member>& members, std::string_view key, std::string value);
  std::optional<Tag> take_tag();

  std::string_view text_;
  std::string_view space_;
  size_t at_ = 0;
};

/// `at_` is behind a namespace token: `<name>` or `</name>`.
std::optional<ElementReader::Tag> ElementReader::take_tag() {
  const size_t end = text_.find('>', at_);
  if (end == std::string_view::npos || text_[at_] != '<') {
    return std::nullopt;
  }
  std::string_view name = text_.substr(at_ + 1, end - at_ - 1);
  at_ = end + 1;
  const bool closes = name.starts_with('/');
  name.remove_prefix(closes ? 1 : 0);
  if (name.empty() || name.size() > kMaxCallNameBytes) {
    return std::nullopt;
  }
  return Tag{.name = name, .closes = closes};
}

std::string object_of(const auto& members) {
  std::string json = "{";
  const auto add_key = [&](std::string_view key) {
    json += json.size() > 1 ? "," : "";
    append_json_string(json, key);
    json += ':';
  };
  for (const auto& member : members) {
    add_key(member.key);
    json += member.values.size() > 1 ? "[" : "";
    for (size_t i = 0; i < member.values.size(); ++i) {
      json += i > 0 ? "," : "";
      json += member.values[i];
    }
    json += member.values.size() > 1 ? "]" : "";
  }
  json += '}';
  return json;
}

std::optional<std::string> ElementReader::element(std::string_view name, const ValueSchema* schema,
                                                  uint32_t depth) {
  std::string content;
  std::vector<Member> members;
  if (depth == kMaxElementDepth) {
    return std::nullopt;
  }
  bool open = true;
  while (open) {
    const size_t tag_at = std::min(text_.find(space_, at_), text_.size());
    append_without_entities(content, text_.substr(at_, tag_at - at_));
    at_ = std::min(tag_at + space_.size(), text_.size());
    if (tag_at == text_.size()) {
      if (depth > 0) {
        return std::nullopt;
      }
      break;
    }
    const std::optional<Tag> tag = take_tag();
    if (!tag.has_value() || (tag->closes && tag->name != name)) {
      return std::nullopt;
    }
    open = !tag->closes;
    if (open && !child(*tag, schema, depth, members)) {
      return std::nullopt;
    }
  }
  if (members.empty() && depth > 0) {
    std::string json;
    const bool is_empty = trim(content).empty() && schema != nullptr && schema->kinds.size() == 1;
    if (is_empty && schema->kinds[0] == ValueKind::kArray) {
      json = "[]";
    } else if (is_empty && schema->kinds[0] == ValueKind::kObject) {
      json = "{}";
    } else {
      append_coerced(json, content, schema);
    }
    return json;
  }
  const bool item_is_a_name = schema != nullptr && schema->find_property(kItem) != nullptr;
  if (depth > 0 && members.size() == 1 && members[0].key == kItem && !item_is_a_name) {
    std::string json = "[";
    for (const std::string& value : members[0].values) {
      json += json.size() > 1 ? "," : "";
      json += value;
    }
    return json + "]";
  }
  if (!trim(content).empty()) {
    std::string json;
    append_json_string(json, content);
    add_member(members, kTextKey, std::move(json));
  }
  return object_of(members);
}

/// An element of that name may have been there before.
void ElementReader::add_member(std::vector<Member>& members, std::string_view key,
                               std::string value) {
  auto member = std::ranges::find(members, key, &Member::key);
  if (member == members.end()) {
    member = members.insert(members.end(), {.key = std::string(key), .values = {}});
  }
  member->values.push_back(std::move(value));
}

bool ElementReader::child(const Tag& tag, const ValueSchema* schema, uint32_t depth,
                          std::vector<Member>& members) {
  const ValueSchema* inner = schema == nullptr ? nullptr : schema->find_property(tag.name);
  if (inner == nullptr && schema != nullptr && tag.name == kItem) {
    inner = schema->items.get();
  }
  std::optional<std::string> value = element(tag.name, inner, depth + 1);
  if (!value.has_value()) {
    return false;
  }
  add_member(members, tag.name, std::move(*value));
  return true;
}

class MinimaxM3Body final : public Body {
 public:
  explicit MinimaxM3Body(const MinimaxM3Machine& machine) : machine_(machine) {}
  Progress step(Window& in, CallWriter& out) override;
  bool between_calls() const override { return !in_call_; }
  bool committed() const override { return !in_doubt_; }
  void doubt() override { in_doubt_ = true; }

 private:
  enum class Go : uint8_t { kOn, kMore, kDone, kNotACall };
  struct Call {
    std::string name;
    std::string arguments;
  };

  Go section(Window& in, CallWriter& out);
  Go call(Window& in, CallWriter& out);
  bool lacks_only_its_end(const Window& in, size_t block_bytes) const;
  std::expected<Call, Recovery> read_call(std::string_view block, const CallWriter& out) const;

  const MinimaxM3Machine& machine_;
  bool in_doubt_ = false;  // only a call that is complete is one
  bool in_call_ = false;
  uint32_t inner_ = 0;        // elements of the call that have the section's name
  size_t scanned_bytes_ = 0;  // of the call, without a marker
};

std::unique_ptr<Body> MinimaxM3Machine::start() const {
  return std::make_unique<MinimaxM3Body>(*this);
}

Progress MinimaxM3Body::step(Window& in, CallWriter& out) {
  Go go = Go::kOn;
  while (go == Go::kOn) {
    go = in_call_ ? call(in, out) : section(in, out);
  }
  if (go == Go::kNotACall) {
    return Progress::kNotACall;
  }
  return go == Go::kMore ? Progress::kMore : Progress::kDone;
}

MinimaxM3Body::Go MinimaxM3Body::section(Window& in, CallWriter& out) {
  const MarkerSet::Hit hit = machine_.markers.find(in);
  if (in_doubt_ && leading_space(in.rest()) < hit.offset) {
    return Go::kNotACall;
  }
  in.consume(hit.offset);
  if (!hit) {
    return in.ending() ? Go::kDone : Go::kMore;
  }
  in.consume(hit.length_bytes);
  if (hit.role == kCallEnd) {
    out.recovered(Recovery::kStrayMarker);
  }
  in_call_ = hit.role == kCall;
  scanned_bytes_ = 0;
  inner_ = 0;
  return hit.role == kClose ? Go::kDone : Go::kOn;
}

MinimaxM3Body::Go MinimaxM3Body::call(Window& in, CallWriter& out) {
  const size_t certain_bytes = scanned_bytes_;  // what is behind them is half a marker
  const MarkerSet::Hit hit = machine_.markers.find(in, scanned_bytes_);
  scanned_bytes_ = hit.offset;
  if (hit.role == kOpen || (hit.role == kClose && inner_ > 0)) {
    inner_ = hit.role == kOpen ? inner_ + 1 : inner_ - 1;
    scanned_bytes_ += hit.length_bytes;
    return Go::kOn;
  }
  if (hit.offset > kMaxHeldBytes) {
    out.recovered(Recovery::kTooLarge);
    in.consume(hit.offset);
    in_call_ = false;
    return Go::kOn;
  }
  const bool ends_here = !hit && lacks_only_its_end(in, certain_bytes);
  if (!hit && !ends_here) {
    return Go::kMore;
  }
  if (in_doubt_ && !ends_here && hit.role != kCallEnd) {
    return Go::kNotACall;
  }
  if (ends_here || hit.role == kCallEnd) {
    const auto call = read_call(in.rest().substr(0, ends_here ? certain_bytes : hit.offset), out);
    if (ends_here && !call) {
      return Go::kMore;  // cut off
    }
    if (in_doubt_ && !call) {
      return Go::kNotACall;
    }
    in_doubt_ = false;
    if (ends_here || !call) {
      out.recovered(ends_here ? Recovery::kRepairedArguments : call.error());
    }
    if (call) {
      out.begin_call(call->name);
      out.arguments(call->arguments);
      out.end_call();
    }
  } else {
    out.recovered(Recovery::kMalformedBody);  // its end never came
  }
  in.consume(hit.offset + (hit.role == kCallEnd ? hit.length_bytes : 0));
  in_call_ = false;
  return Go::kOn;
}

/// The answer ended by itself behind some element, if all that were opened are closed.
bool MinimaxM3Body::lacks_only_its_end(const Window& in, size_t block_bytes) const {
  const std::string closer = machine_.space + "</";
  const std::string_view half = in.rest().substr(block_bytes);
  return in.ending_by_itself() && in.rest().substr(0, block_bytes).contains(closer) &&
         (half.empty() || half.starts_with(closer));
}

/// `block` is what stands between `:<invoke` and `:</invoke>`.
std::expected<MinimaxM3Body::Call, Recovery> MinimaxM3Body::read_call(std::string_view block,
                                                                      const CallWriter& out) const {
  const size_t end = block.find('>');
  const size_t equals = block.find('=');
  if (end == std::string_view::npos || equals > end) {
    return std::unexpected(Recovery::kMissingName);
  }
  std::string_view name = trim(block.substr(equals + 1, end - equals - 1));
  if (name.size() > 1 && (name.front() == '"' || name.front() == '\'')) {
    name = name.substr(1, name.find(name.front(), 1) - 1);
  }
  const auto& schemas = out.options().schemas;
  ElementReader reader(block.substr(end + 1), machine_.space);
  std::optional<std::string> arguments =
      reader.arguments(schemas == nullptr ? nullptr : schemas->find_parameters(name));
  if (!arguments.has_value()) {
    return std::unexpected(Recovery::kMalformedBody);
  }
  return Call{.name = std::string(name), .arguments = std::move(*arguments)};
}

}  // namespace

std::unique_ptr<const BodyMachine> make_minimax_m3_machine(const BodyContext& context) {
  return std::make_unique<MinimaxM3Machine>(context);
}

}  // namespace stator::parsers
