// SPDX-License-Identifier: Apache-2.0
#include "stator/kube/yaml.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <sstream>

#include "stator/json/writer.h"
#include "stator/text/utf8.h"

namespace stator::kube {
namespace {

using json::Value;

bool all_digits(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

/// Splits "[sign] digits [. digits] [e [sign] digits]" into its parts, or nothing.
struct Decimal {
  bool negative = false;
  std::string_view whole;
  std::string_view fraction;
  bool has_point = false;
  std::string_view exponent;  ///< with its sign
};

std::optional<Decimal> split_decimal(std::string_view text) {
  Decimal parts;
  if (!text.empty() && (text.front() == '-' || text.front() == '+')) {
    parts.negative = text.front() == '-';
    text.remove_prefix(1);
  }
  const size_t e = std::min(text.find_first_of("eE"), text.size());
  if (e < text.size()) {
    parts.exponent = text.substr(e + 1);
    std::string_view digits = parts.exponent;
    if (!digits.empty() && (digits.front() == '-' || digits.front() == '+')) {
      digits.remove_prefix(1);
    }
    if (!all_digits(digits)) {
      return std::nullopt;
    }
  }
  std::string_view mantissa = text.substr(0, e);
  const size_t point = mantissa.find('.');
  parts.has_point = point != std::string_view::npos;
  parts.whole = mantissa.substr(0, std::min(point, mantissa.size()));
  parts.fraction = parts.has_point ? mantissa.substr(point + 1) : std::string_view();
  const bool good = (all_digits(parts.whole) || parts.whole.empty()) &&
                    (all_digits(parts.fraction) || parts.fraction.empty()) &&
                    !(parts.whole.empty() && parts.fraction.empty());
  return good ? std::optional(parts) : std::nullopt;
}

/// A plain scalar as a number in JSON's spelling, or nothing.
std::optional<std::string> number_spelling(std::string_view text) {
  for (const auto& [prefix, base] : {std::pair(std::string_view("0x"), 16), {"0o", 8}}) {
    if (text.starts_with(prefix) && text.size() > 2) {
      uint64_t value = 0;
      const char* end = text.data() + text.size();
      const auto [stop, failed] = std::from_chars(text.data() + 2, end, value, base);
      return failed == std::errc() && stop == end ? std::optional(std::to_string(value))
                                                  : std::nullopt;
    }
  }
  const auto parts = split_decimal(text);
  if (!parts) {
    return std::nullopt;
  }
  std::string_view whole = parts->whole;
  while (whole.size() > 1 && whole.front() == '0') {
    whole.remove_prefix(1);  // JSON allows no leading zero
  }
  std::string out = parts->negative ? "-" : "";
  out += whole.empty() ? "0" : std::string(whole);
  if (!parts->fraction.empty()) {
    out += fmt::format(".{}", parts->fraction);
  } else if (parts->has_point) {
    out += ".0";
  }
  if (!parts->exponent.empty()) {
    out += fmt::format("e{}", parts->exponent);
  }
  // The user's own spelling where JSON has it, too.
  const bool same_but_case = out.size() == text.size() && !text.starts_with('+');
  return same_but_case ? std::string(text) : out;
}

constexpr std::array<std::string_view, 5> kNulls = {"", "~", "null", "Null", "NULL"};
constexpr std::array<std::string_view, 3> kTrues = {"true", "True", "TRUE"};
constexpr std::array<std::string_view, 3> kFalses = {"false", "False", "FALSE"};

bool is_one_of(std::string_view text, std::span<const std::string_view> words) {
  return std::ranges::find(words, text) != words.end();
}

class Reader {
 public:
  Reader(std::string_view source, const YamlLimits& limits) : source_(source), limits_(limits) {}

  Result<Value> read(const YAML::Node& node, uint32_t depth) {
    if (depth > limits_.depth_max) {
      return at(node, Code::kTooLarge, fmt::format("nested deeper than {}", limits_.depth_max));
    }
    if (++values_ > limits_.values_max) {
      return at(node, Code::kTooLarge, fmt::format("more than {} values", limits_.values_max));
    }
    switch (node.Type()) {
      case YAML::NodeType::Scalar:
        return read_scalar(node);
      case YAML::NodeType::Sequence:
        return read_sequence(node, depth);
      case YAML::NodeType::Map:
        return read_map(node, depth);
      default:
        return Value();
    }
  }

 private:
  Result<Value> read_scalar(const YAML::Node& node) {
    const std::string& text = node.Scalar();
    const std::string& tag = node.Tag();
    if (tag != "?") {  // quoted, or tagged by hand
      if (tag == "!" || tag.empty() || tag == "tag:yaml.org,2002:str") {
        return Value(text);
      }
      if (tag != "tag:yaml.org,2002:int" && tag != "tag:yaml.org,2002:float" &&
          tag != "tag:yaml.org,2002:bool" && tag != "tag:yaml.org,2002:null") {
        return at(node, Code::kInvalidArgument, fmt::format("tag {} is not supported", tag));
      }
    }
    if (is_one_of(text, kNulls)) {
      return Value();
    }
    if (is_one_of(text, kTrues)) {
      return Value(true);
    }
    if (is_one_of(text, kFalses)) {
      return Value(false);
    }
    if (auto number = number_spelling(text)) {
      return Value::number(std::move(*number));
    }
    return Value(text);
  }

  Result<Value> read_sequence(const YAML::Node& node, uint32_t depth) {
    Value list = Value::array();
    for (const YAML::Node& element : node) {
      STATOR_TRY(Value value, read(element, depth + 1));
      list.push_back(std::move(value));
    }
    return list;
  }

  Result<Value> read_map(const YAML::Node& node, uint32_t depth) {
    Value object = Value::object();
    std::vector<Value> merged;
    for (const auto& member : node) {
      if (!member.first.IsScalar()) {
        return at(member.first, Code::kInvalidArgument, "a key must be a string");
      }
      const std::string& key = member.first.Scalar();
      STATOR_TRY(Value value, read(member.second, depth + 1));
      if (key == "<<" && member.first.Tag() == "?") {
        merged.push_back(std::move(value));
        continue;
      }
      if (object.find(key) != nullptr) {
        return at(member.first, Code::kInvalidArgument,
                  fmt::format("key '{}' is there twice", key));
      }
      object[key] = std::move(value);
    }
    for (const Value& other : merged) {
      STATOR_CHECK(merge(object, other, node));
    }
    return object;
  }

  Status merge(Value& object, const Value& other, const YAML::Node& node) {
    if (other.is_array()) {
      for (const Value& each : other.elements()) {
        STATOR_CHECK(merge(object, each, node));
      }
      return {};
    }
    if (!other.is_object()) {
      return at(node, Code::kInvalidArgument, "a merge key (<<) needs a map or a list of maps");
    }
    for (const json::Member& member : other.members()) {
      if (object.find(member.key) == nullptr) {
        object[member.key] = member.value;
      }
    }
    return {};
  }

  Error at(const YAML::Node& node, Code code, std::string_view what) const {
    return Error(code, fmt::format("{}:{}:{}: {}", source_, node.Mark().line + 1,
                                   node.Mark().column + 1, what));
  }

  std::string_view source_;
  YamlLimits limits_;
  size_t values_ = 0;
};

// ------------------------------------------------------------------------------------- writing

/// Words that a reader of YAML 1.1 takes for something else than a string.
constexpr std::array<std::string_view, 25> kReserved = {
    "y",   "Y",   "yes", "Yes",  "YES",  "n",     "N",    "no",   "No",   "NO", "on", "On", "ON",
    "off", "Off", "OFF", ".nan", ".inf", "-.inf", "null", "Null", "NULL", "~",  "<<", "="};

bool needs_quotes(std::string_view text) {
  if (text.empty() || is_one_of(text, kReserved) || is_one_of(text, kTrues) ||
      is_one_of(text, kFalses) || text.front() == ' ' || text.back() == ' ' || text.back() == ':') {
    return true;
  }
  if (std::string_view("!&*-?|>@`\"'%#{}[],:~=<").find(text.front()) != std::string_view::npos) {
    return true;
  }
  // Digits at the front may be a number, a date or a time of YAML 1.1 (1:30, 1_000, 2001-01-01).
  if (std::string_view("0123456789+.").find(text.front()) != std::string_view::npos) {
    return true;
  }
  if (text.find(": ") != std::string_view::npos || text.find(" #") != std::string_view::npos) {
    return true;
  }
  return !std::ranges::all_of(text, [](char c) { return c >= 0x20 && c < 0x7f; });
}

/// A text of several lines that a literal block gives back exactly.
bool fits_block(std::string_view text) {
  if (text.find('\n') == std::string_view::npos || text.front() == ' ' || text.front() == '\n' ||
      text.front() == '\t') {
    return false;
  }
  return std::ranges::all_of(text,
                             [](char c) {
                               return c == '\n' || c == '\t' ||
                                      static_cast<unsigned char>(c) >= 0x20;
                             }) &&
         std::ranges::all_of(
             text, [](char c) { return c != 0x7f && static_cast<unsigned char>(c) < 0x80; });
}

class BlockWriter {
 public:
  explicit BlockWriter(std::string& out) : out_(out) {}

  void write(const Value& value, size_t indent) {
    if (value.is_object() && value.size() > 0) {
      write_map(value, indent, false);
    } else if (value.is_array() && value.size() > 0) {
      write_list(value, indent);
    } else {
      write_scalar(value, indent);
      out_ += '\n';
    }
  }

 private:
  void write_map(const Value& object, size_t indent, bool first_is_placed) {
    for (const json::Member& member : object.members()) {
      if (!first_is_placed) {
        out_.append(indent, ' ');
      }
      first_is_placed = false;
      write_string(member.key, indent, false);
      out_ += ':';
      write_nested(member.value, indent);
    }
  }

  /// What stands behind "key:".
  void write_nested(const Value& value, size_t indent) {
    if (value.is_object() && value.size() > 0) {
      out_ += '\n';
      write_map(value, indent + 2, false);
    } else if (value.is_array() && value.size() > 0) {
      out_ += '\n';
      write_list(value, indent);
    } else {
      out_ += ' ';
      write_scalar(value, indent);
      out_ += '\n';
    }
  }

  void write_list(const Value& list, size_t indent) {
    for (const Value& element : list.elements()) {
      out_.append(indent, ' ');
      out_ += "- ";
      if (element.is_object() && element.size() > 0) {
        write_map(element, indent + 2, true);
      } else if (element.is_array() && element.size() > 0) {
        out_.pop_back();
        out_ += '\n';
        write_list(element, indent + 2);
      } else {
        write_scalar(element, indent);
        out_ += '\n';
      }
    }
  }

  void write_scalar(const Value& value, size_t indent) {
    if (value.is_string()) {
      write_string(value.text(), indent, true);
    } else {
      json::Writer writer(out_);
      json::write(writer, value);
    }
  }

  void write_string(std::string_view text, size_t indent, bool may_be_block) {
    if (may_be_block && !text.empty() && fits_block(text)) {
      write_block(text, indent + 2);
    } else if (needs_quotes(text)) {
      json::append_string(out_, text);
    } else {
      out_ += text;
    }
  }

  void write_block(std::string_view text, size_t indent) {
    const size_t last = text.find_last_not_of('\n');
    const size_t newlines = text.size() - last - 1;
    out_ += newlines == 0 ? "|-" : newlines == 1 ? "|" : "|+";
    if (newlines <= 1) {
      text = text.substr(0, last + 1);
    } else {
      text.remove_suffix(1);
    }
    while (true) {
      const size_t end = std::min(text.find('\n'), text.size());
      out_ += '\n';
      if (end > 0) {
        out_.append(indent, ' ').append(text.substr(0, end));
      }
      if (end == text.size()) {
        return;
      }
      text.remove_prefix(end + 1);
    }
  }

  std::string& out_;
};

/// Where documents begin. yaml-cpp 0.7 does not pass over a stray ',' or ']' between blocks, but
/// finds an empty document there for ever: LoadAll would fill the memory.
class DocumentStarts final : public YAML::EventHandler {
 public:
  bool moves_on() const { return moves_on_; }
  YAML::Mark mark() const { return mark_; }

  void OnDocumentStart(const YAML::Mark& mark) override {
    moves_on_ = first_ || mark.pos > mark_.pos;
    first_ = false;
    mark_ = mark;
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& /*mark*/, YAML::anchor_t /*anchor*/) override {}
  void OnAlias(const YAML::Mark& /*mark*/, YAML::anchor_t /*anchor*/) override {}
  void OnScalar(const YAML::Mark& /*mark*/, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                const std::string& /*value*/) override {}
  void OnSequenceStart(const YAML::Mark& /*mark*/, const std::string& /*tag*/,
                       YAML::anchor_t /*anchor*/, YAML::EmitterStyle::value /*style*/) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark& /*mark*/, const std::string& /*tag*/, YAML::anchor_t /*anchor*/,
                  YAML::EmitterStyle::value /*style*/) override {}
  void OnMapEnd() override {}

 private:
  YAML::Mark mark_;
  bool first_ = true;
  bool moves_on_ = true;
};

/// Throws where a document does not end.
void check_documents_end(const std::string& text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  DocumentStarts starts;
  while (parser.HandleNextDocument(starts)) {
    if (!starts.moves_on()) {
      throw YAML::ParserException(starts.mark(), "expected a value, a comment or the end");
    }
  }
}

}  // namespace

Result<std::vector<Value>> parse_yaml(std::string_view text, std::string_view source,
                                      const YamlLimits& limits) {
  if (!text::is_valid_utf8(text)) {
    return Error(Code::kInvalidArgument, fmt::format("{}: the text is not UTF-8", source));
  }
  std::vector<Value> documents;
  Reader reader(source, limits);
  const std::string owned(text);
  try {
    check_documents_end(owned);
    for (const YAML::Node& node : YAML::LoadAll(owned)) {
      STATOR_TRY(Value value, reader.read(node, 0));
      if (!value.is_null()) {
        documents.push_back(std::move(value));
      }
    }
  } catch (const YAML::Exception& error) {
    return Error(Code::kInvalidArgument, fmt::format("{}:{}:{}: {}", source, error.mark.line + 1,
                                                     error.mark.column + 1, error.msg));
  }
  return documents;
}

std::string to_yaml(const Value& value) {
  std::string out;
  BlockWriter(out).write(value, 0);
  return out;
}

std::string to_yaml_documents(std::span<const Value> documents) {
  std::string out;
  for (const Value& document : documents) {
    out += "---\n";
    BlockWriter(out).write(document, 0);
  }
  return out;
}

}  // namespace stator::kube
