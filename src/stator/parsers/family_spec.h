// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/result.h"

namespace stator::parsers {

/// How one family of models writes tool calls, or reasoning, as data. The built-in ones are the
/// files in families/, compiled in; `--parser-spec FILE` reads the same format at run time.
/// The format is documented in docs/reference/tool_calls.md.

/// A fixed text that structures the output.
struct Marker {
  std::string text;
  /// Whether models write it as one special token. If this tokenizer has such a token, the same
  /// letters from ordinary tokens do not count (ParserOptions::special_markers).
  bool special = false;
  friend bool operator==(const Marker&, const Marker&) = default;
};
using Markers = std::vector<Marker>;

/// The machine that reads what stands between the markers. A closed set: specs combine, code reads.
enum class BodyKind : uint8_t {
  kJsonCalls,  ///< {"name":…,"arguments":{…}}, or an array of them
  kNamedJson,  ///< a name, then a JSON object of arguments
  kTagParams,  ///< a name, then one tag per parameter
  kWholeJson,  ///< the whole output is one kJsonCalls value, or it is text
  kPythonic,   ///< [f(a=1), g()]
  kHarmony,    ///< channels and recipients
  kInvoke,     ///< <invoke name="f"><parameter name="a" string="true">…: typed attributes
  kGemma4,     ///< call:name{key:<|"|>text<|"|>}
  kMinimaxM3,  ///< nested tags with a namespace token
};

/// How ids of calls come into being.
enum class IdScheme : uint8_t {
  kCall24,  ///< call_ and 24 alphanumerics
  kAlnum9,  ///< 9 alphanumerics: Mistral's templates raise on anything else
  kNative,  ///< what the model wrote, verbatim; kCall24 if it wrote none
};

/// begin/end texts around the arguments of one call, for guided decoding. `NAME` stands for the
/// tool's name. Empty trigger: the family has no builder.
struct StructuralTag {
  std::string trigger;
  std::string begin;
  std::string end;
};

/// How to recognise the family. Every inner list is a conjunction, the lists are alternatives.
struct Fingerprint {
  std::vector<std::vector<std::string>> templates;  ///< substrings of the chat template
  std::vector<std::string> models;  ///< lower-case parts of a model name, '_' written as '-'
  int32_t priority = 0;             ///< among several that fit the higher one wins
};

struct FamilySpec {
  std::string name;                  ///< lower case, '_' between words
  std::vector<std::string> aliases;  ///< same spelling
  BodyKind body = BodyKind::kJsonCalls;
  /// Named lists of markers: "section_begin", "section_end", "call_begin", "call_end" frame calls
  /// for every body; the others belong to one body machine (see its header).
  std::map<std::string, Markers, std::less<>> markers;
  /// Named lists of plain words, such as "name_keys".
  std::map<std::string, std::vector<std::string>, std::less<>> words;
  /// Switches that are on, such as "hold_call".
  std::vector<std::string> flags;
  IdScheme ids = IdScheme::kCall24;
  std::string reasoning;        ///< default reasoning family, empty = none
  bool owns_reasoning = false;  ///< its body emits reasoning itself: no reasoning spec applies
  bool always_on = false;       ///< channel framing: also used without tools
  StructuralTag structural_tag;
  Fingerprint match;

  const Markers& find_markers(std::string_view key) const;                 ///< empty if absent
  const std::vector<std::string>& find_words(std::string_view key) const;  ///< empty if absent
  bool has_flag(std::string_view flag) const;
};

/// How reasoning is told from content.
struct ReasoningSpec {
  std::string name;
  std::vector<std::string> aliases;
  Markers open;                ///< any of them begins reasoning
  Markers close;               ///< any of them ends it
  Markers hand_over;           ///< ends it, too, but belongs to the tool parser
  Markers framing;             ///< around the answer, removed from it
  bool starts_inside = false;  ///< the model never writes the opener itself
  std::map<std::string, std::vector<std::string>, std::less<>> words;
  std::vector<std::string> flags;
  Fingerprint match;

  const std::vector<std::string>& find_words(std::string_view key) const;
  bool has_flag(std::string_view flag) const;
};

/// The families known to a process: the built-in ones, and what files added. Immutable once
/// shared. Names and aliases are compared without case, '-', '_' and '.'.
class FamilyRegistry {
 public:
  /// Every built-in family; parsed once per process.
  static const FamilyRegistry& builtin();
  /// The built-in ones and those of `spec_json` (one spec object, or an array of them); a name that
  /// exists already is replaced. kInvalidArgument names the key that is wrong.
  static Result<FamilyRegistry> with_specs(std::string_view spec_json);

  /// kNotFound lists the names there are.
  Result<std::shared_ptr<const FamilySpec>> find_tools(std::string_view name) const;
  Result<std::shared_ptr<const ReasoningSpec>> find_reasoning(std::string_view name) const;

  std::span<const std::shared_ptr<const FamilySpec>> tools() const { return tools_; }
  std::span<const std::shared_ptr<const ReasoningSpec>> reasonings() const { return reasonings_; }

 private:
  Status add(std::string_view spec_json);
  std::vector<std::shared_ptr<const FamilySpec>> tools_;  // shared: parsers of live requests
  std::vector<std::shared_ptr<const ReasoningSpec>> reasonings_;
};

/// What was chosen and why (one sentence for the log). Empty names: none fits.
struct FamilyChoice {
  std::string tools;
  std::string reasoning;
  std::string why;
};

/// Chooses by the chat template's own text, then by the model's name. Pure.
FamilyChoice choose_family(const FamilyRegistry& registry, std::string_view template_text,
                           std::string_view model_name);

}  // namespace stator::parsers
