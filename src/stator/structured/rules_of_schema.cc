// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>

#include "stator/structured/detail/json_rules.h"
#include "stator/structured/detail/rule_builders.h"
#include "stator/structured/detail/schema_keywords.h"
#include "stator/structured/detail/schema_siblings.h"
#include "stator/structured/detail/schema_view.h"
#include "stator/structured/json_schema.h"

namespace stator::structured {
namespace {

constexpr size_t kAlternativesMax = 4'096;

/// Compiles schemas one after another: a rule for each conjunction of schemas that some value must
/// follow. What a value contains is put on a list, so that no depth of references is a depth of
/// calls.
class SchemaRules final : public ValueRules {
 public:
  SchemaRules(RuleSet& rules, const JsonTree& tree, const JsonSpelling& spelling)
      : rules_(rules), tree_(tree), view_(tree), json_(rules, spelling) {}

  Outcome<ExpressionId> compile() {
    const ExpressionId root = value({0});
    while (!queue_.empty() && !refusal_ && !rules_.overflown()) {
      const auto [rule, schemas] = std::move(queue_.front());
      queue_.pop_front();
      rules_.set_body(rule, body(schemas));
      inside_ = true;
    }
    if (refusal_) {
      return std::move(*refusal_);
    }
    return root;
  }

 private:
  struct Pending {
    RuleId rule;
    Schemas schemas;
  };

  ExpressionId fail(JsonIndex at, std::string_view why, Code code = Code::kUnsupported) override {
    if (!refusal_) {
      refusal_ = refuse_at(tree_.pointer(node_of(at)), why);
      refusal_->code = code;
    }
    return rules_.empty();
  }

  ExpressionId none(JsonIndex at, std::string_view why) override {
    return alternatives_ > 0 || inside_ ? rules_.nothing() : fail(at, why, Code::kInvalidArgument);
  }

  ExpressionId value(Schemas schemas) override {
    schemas = view_.flatten(std::move(schemas));
    if (schemas.empty()) {
      return json_.any_value();
    }
    const auto [known, added] = known_.try_emplace(schemas, 0);
    if (added) {
      const RuleId rule = rules_.add_rule(tree_.pointer(node_of(schemas.front())));
      known->second = rules_.rule(rule);
      queue_.push_back({rule, std::move(schemas)});
    }
    return known->second;
  }

  SchemaTools tools() { return {.rules = rules_, .json = json_, .view = view_, .values = *this}; }

  JsonIndex find(SchemaPart schema, std::string_view key) const { return view_.find(schema, key); }

  ExpressionId body(const Schemas& schemas) {
    for (const std::string_view keyword : {"anyOf", "oneOf"}) {
      if (const auto [schema, list] = view_.find_any(schemas, keyword); list != kNoJson) {
        return any_of(schemas, schema, list);
      }
    }
    if (view_.find_any(schemas, "enum").second != kNoJson ||
        view_.find_any(schemas, "const").second != kNoJson) {
      return listed_values(schemas);
    }
    unsigned types = kAnyType;
    for (const JsonIndex schema : schemas) {
      unsigned allowed = types_of(tree_, node_of(schema));
      allowed |= (allowed & kNumberType) != 0 ? kIntegerType : 0U;
      types &= allowed;
    }
    return typed(schemas, static_cast<SchemaTypes>(types));
  }

  ExpressionId any_of(const Schemas& schemas, JsonIndex schema, JsonIndex list) {
    if (++alternatives_ > kAlternativesMax) {
      return fail(list, "leads to too many combinations of alternatives", Code::kTooLarge);
    }
    size_t free = 0;  // members that take every value
    std::vector<ExpressionId> out;
    for (const JsonIndex member : tree_.children(list)) {
      free += tree_[list].key == "oneOf" && view_.flatten({member}).empty() ? 1 : 0;
      if (free > 1) {
        return fail(member, "takes every value as another member does, so that none fits just one",
                    Code::kInvalidArgument);
      }
      Schemas alternative{member};
      for (const JsonIndex other : schemas) {
        const JsonIndex rest =
            other == schema ? other | (tree_[list].key == "anyOf" ? kAnyOfChosen : kOneOfChosen)
                            : other;
        if (other != schema || view_.says_something(rest)) {
          alternative.push_back(rest);
        }
      }
      out.push_back(value(std::move(alternative)));
    }
    return rules_.alternate(std::move(out));
  }

  /// Of the enum or const with the fewest values those that all schemas take.
  ExpressionId listed_values(const Schemas& schemas) {
    std::vector<JsonIndex> values;
    bool listed = false;
    for (const JsonIndex schema : schemas) {
      std::vector<JsonIndex> own;
      if (const JsonIndex at = find(schema, "const"); at != kNoJson) {
        own.push_back(at);
      } else if (const JsonIndex list = find(schema, "enum"); list != kNoJson) {
        own = view_.children_of(list);
      } else {
        continue;
      }
      values = !listed || own.size() < values.size() ? own : values;
      listed = true;
    }
    std::vector<ExpressionId> out;
    for (const JsonIndex value : values) {
      JsonIndex unclear = kNoJson;
      if (std::ranges::all_of(schemas, [&](SchemaPart schema) {
            return takes_value(tree_, schema, value, unclear);
          })) {
        out.push_back(literal(value));
      }
      if (unclear != kNoJson) {
        return fail(unclear, "cannot be joined with an enum or const: list only values that fit");
      }
    }
    return out.empty() ? none(schemas.front(), "no value is left")
                       : rules_.alternate(std::move(out));
  }

  // NOLINTNEXTLINE(misc-no-recursion): bounded by kJsonDepthMax
  ExpressionId literal(JsonIndex value) override {
    const JsonNode& node = tree_[value];
    if (node.type == JsonType::kString) {
      return rules_.literal(json_string(node.text));
    }
    if (node.type != JsonType::kObject && node.type != JsonType::kArray) {
      return rules_.literal(node.raw);
    }
    const bool object = node.type == JsonType::kObject;
    std::vector<ExpressionId> parts;
    for (const JsonIndex child : tree_.children(value)) {
      if (!parts.empty()) {
        parts.push_back(json_.comma());
      }
      parts.push_back(
          object ? json_.member(rules_.literal(json_string(tree_[child].key)), literal(child))
                 : literal(child));
    }
    if (!parts.empty()) {
      parts.push_back(json_.space());
    }
    const ExpressionId inside = parts.empty() ? rules_.empty() : rules_.sequence(std::move(parts));
    return object ? json_.in_braces('{', inside, '}') : json_.in_braces('[', inside, ']');
  }

  ExpressionId typed(const Schemas& schemas, SchemaTypes types) {
    std::vector<ExpressionId> out;
    if ((types & kObjectType) != 0) {
      out.push_back(add_object(tools(), schemas));
    }
    if ((types & kArrayType) != 0) {
      out.push_back(add_array(tools(), schemas));
    }
    if ((types & kStringType) != 0) {
      out.push_back(string(schemas));
    }
    if ((types & (kNumberType | kIntegerType)) != 0) {
      out.push_back(number(schemas, (types & kNumberType) == 0));
    }
    const auto add_word = [&](std::string_view word) {
      if (std::ranges::none_of(view_.denied_values(schemas),
                               [&](JsonIndex value) { return tree_[value].raw == word; })) {
        out.push_back(rules_.literal(word));
      }
    };
    if ((types & kBooleanType) != 0) {
      add_word("true");
      add_word("false");
    }
    if ((types & kNullType) != 0) {
      add_word("null");
    }
    return out.empty() ? none(schemas.front(), "no value fits it and what it is joined with")
                       : rules_.alternate(std::move(out));
  }

  struct NumberBounds {
    NumberShape shape;
    double low = 0;
    double high = 0;
    JsonIndex place = kNoJson;
  };

  void add_bounds(JsonIndex schema, NumberBounds& out) const {
    const auto bound = [&](std::string_view key, bool is_open, bool lower) {
      const JsonIndex at = find(schema, key);
      if (at == kNoJson) {
        return;
      }
      out.place = at;
      std::string_view& text = lower ? out.shape.minimum : out.shape.maximum;
      double& value = lower ? out.low : out.high;
      const double number = tree_[at].number;
      const bool tighter =
          text.empty() || (lower ? number > value : number < value) || (number == value && is_open);
      if (tighter) {
        text = tree_[at].raw;
        value = number;
        (lower ? out.shape.above_minimum : out.shape.below_maximum) = is_open;
      }
    };
    bound("minimum", false, true);
    bound("exclusiveMinimum", true, true);
    bound("maximum", false, false);
    bound("exclusiveMaximum", true, false);
  }

  ExpressionId number(const Schemas& schemas, bool whole) {
    NumberBounds bounds{.shape = {.whole = whole}};
    NumberShape& shape = bounds.shape;
    for (const JsonIndex schema : schemas) {
      add_bounds(schema, bounds);
      if (const JsonIndex at = find(schema, "multipleOf"); at != kNoJson) {
        if (!shape.multiple_of.empty() && shape.multiple_of != tree_[at].raw) {
          return fail(at,
                      "two different multipleOf cannot be joined: write their least common one");
        }
        bounds.place = at;
        shape.multiple_of = tree_[at].raw;
      }
    }
    std::vector<JsonIndex> denied = view_.denied_values(schemas, JsonType::kNumber);
    if (bounds.place == kNoJson && denied.empty()) {
      return whole ? json_.integer() : json_.number();
    }
    // What is denied cuts the numbers in pieces.
    std::ranges::sort(denied, {}, [&](JsonIndex value) { return tree_[value].number; });
    std::vector<ExpressionId> pieces;
    for (size_t i = 0; i <= denied.size(); ++i) {
      NumberBounds piece = bounds;
      const auto cut = [&](JsonIndex value, std::string_view& text, double& own, bool& open,
                           bool lower) {
        const double number = tree_[value].number;
        if (text.empty() || (lower ? number >= own : number <= own)) {
          text = tree_[value].raw;
          own = number;
          open = true;
        }
      };
      if (i > 0) {
        cut(denied[i - 1], piece.shape.minimum, piece.low, piece.shape.above_minimum, true);
      }
      if (i < denied.size()) {
        cut(denied[i], piece.shape.maximum, piece.high, piece.shape.below_maximum, false);
      }
      if (!piece.shape.minimum.empty() && !piece.shape.maximum.empty() && piece.low > piece.high) {
        continue;
      }
      const auto out = add_number(rules_, piece.shape);
      if (!out) {
        return fail(bounds.place == kNoJson ? denied.front() : bounds.place,
                    "needs too large an automaton: use fewer digits", Code::kTooLarge);
      }
      pieces.push_back(*out);
    }
    return rules_.alternate(std::move(pieces));
  }

  ExpressionId string(const Schemas& schemas) {
    if (view_.largest(schemas, "minLength") > kCharactersMax) {
      return fail(view_.find_any(schemas, "minLength").second,
                  fmt::format("lengths are enforced up to {} characters", kCharactersMax),
                  Code::kTooLarge);
    }
    JsonIndex last = kNoJson;
    const TextShape shape = view_.text_shape(schemas, last);
    const auto [least, most] = shape.lengths;
    const bool counted = least > 0 || most != kNoLimit;
    if (last == kNoJson) {
      return json_.string();
    }
    if (most < least) {
      return none(last, "no length fits it and what it is joined with");
    }
    const bool plain = shape.not_patterns.empty() && shape.not_texts.empty();
    if (plain && !counted && shape.patterns.size() == 1) {
      return json_.quoted(add_search(rules_, shape.patterns.front()));
    }
    if (plain && shape.patterns.empty()) {
      return json_.quoted(rules_.repeat(json_.character(), least, most));
    }
    return text(shape, last);
  }

  ExpressionId text(const TextShape& shape, JsonIndex place) {
    const JoinedPatterns joined = add_text(rules_, shape);
    switch (joined.outcome) {
      case JoinedPatterns::Outcome::kTooLarge:
        return fail(place, "needs too large an automaton beside the lengths or other patterns",
                    Code::kTooLarge);
      case JoinedPatterns::Outcome::kNothingFits:
        return none(place, "no text fits it and the lengths or patterns beside it");
      case JoinedPatterns::Outcome::kAdded:
        break;
    }
    return json_.quoted(joined.text);
  }

  RuleSet& rules_;
  const JsonTree& tree_;
  const SchemaView view_;
  JsonRules json_;
  std::map<Schemas, ExpressionId> known_;
  std::deque<Pending> queue_;
  size_t alternatives_ = 0;
  bool inside_ = false;  // of the root's value: what cannot be there need not be
  std::optional<Refusal> refusal_;
};

}  // namespace

Outcome<ExpressionId> add_schema(RuleSet& rules, const JsonTree& tree,
                                 const JsonSpelling& spelling) {
  const std::string own = own_form(tree.root().raw);
  if (own.empty()) {
    return SchemaRules(rules, tree, spelling).compile();
  }
  STATOR_TRY(const JsonTree rewritten, JsonTree::parse(own));
  return SchemaRules(rules, rewritten, spelling).compile();
}

ExpressionId add_any_object(RuleSet& rules, const JsonSpelling& spelling) {
  return JsonRules(rules, spelling).any_object();
}

}  // namespace stator::structured
