// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <compare>
#include <cstdlib>
#include <map>

#include "stator/structured/detail/rule_builders.h"

namespace stator::structured {
namespace {

// What fits 64-bit integers and the 17 digits that tell doubles apart, so that an answer ends.
constexpr uint32_t kWholeDigitsMax = 18;
constexpr uint32_t kFractionDigitsMax = 17;
constexpr size_t kStatesMax = 100'000;
constexpr uint64_t kFactorMax = 20'000;
constexpr uint64_t kFactorWithLength = 500;

/// A decimal number: digits with a point, no leading zeros in `whole`, no trailing in `fraction`.
struct Decimal {
  bool negative = false;
  std::string whole;     // "0" for nothing
  std::string fraction;  // may be empty

  bool is_zero() const { return whole == "0" && fraction.empty(); }
};

/// From a JSON number; nothing if it has more than some hundred digits.
std::optional<Decimal> read_decimal(std::string_view text) {
  Decimal out;
  if (text.starts_with('-')) {
    out.negative = true;
    text.remove_prefix(1);
  }
  const size_t e = text.find_first_of("eE");
  const std::string_view mantissa = text.substr(0, e);
  const long exponent = e == std::string_view::npos
                            ? 0
                            : std::strtol(std::string(text.substr(e + 1)).c_str(), nullptr, 10);
  if (std::abs(exponent) > 60 || mantissa.size() > 60) {
    return std::nullopt;
  }
  const size_t point = mantissa.find('.');
  std::string digits(mantissa.substr(0, point));
  long places = static_cast<long>(digits.size()) + exponent;
  if (point != std::string_view::npos) {
    digits += mantissa.substr(point + 1);
  }
  while (places < 0) {
    digits.insert(digits.begin(), '0');
    ++places;
  }
  while (places > static_cast<long>(digits.size())) {
    digits += '0';
  }
  out.whole = digits.substr(0, static_cast<size_t>(places));
  out.fraction = digits.substr(static_cast<size_t>(places));
  out.whole.erase(0, std::min(out.whole.find_first_not_of('0'), out.whole.size()));
  out.whole = out.whole.empty() ? "0" : out.whole;
  while (out.fraction.ends_with('0')) {
    out.fraction.pop_back();
  }
  return out;
}

/// How far a number's digits have been compared with a bound's.
struct Comparison {
  int8_t sign = 0;  // of number − bound, as far as read

  void add_whole(const Decimal& bound, uint32_t index, char digit) {
    if (sign == 0 && index < bound.whole.size() && digit != bound.whole[index]) {
      sign = digit < bound.whole[index] ? -1 : 1;
    }
  }
  void end_whole(const Decimal& bound, uint32_t digits) {
    if (digits != bound.whole.size()) {
      sign = digits < bound.whole.size() ? -1 : 1;
    }
  }
  void add_fraction(const Decimal& bound, uint32_t index, char digit) {
    const char other = index < bound.fraction.size() ? bound.fraction[index] : '0';
    if (sign == 0 && digit != other) {
      sign = digit < other ? -1 : 1;
    }
  }
  int end(const Decimal& bound, uint32_t fraction_digits) const {
    return sign == 0 && fraction_digits < bound.fraction.size() ? -1 : sign;
  }
  auto operator<=>(const Comparison&) const = default;
};

/// What of a number has been read.
struct State {
  enum class Phase : uint8_t { kStart, kMinus, kZero, kWhole, kPoint, kFraction };
  Phase phase = Phase::kStart;
  bool negative = false;
  uint32_t digits = 0;  // of the part being read, as far as they count
  Comparison low;
  Comparison high;
  uint64_t remainder = 0;
  auto operator<=>(const State&) const = default;
};

/// Builds the automaton by walking over all its states.
class NumberMachine {
 public:
  static std::optional<NumberMachine> make(const NumberShape& shape) {
    NumberMachine out;
    out.shape_ = shape;
    for (auto [text, bound] :
         {std::pair{shape.minimum, &out.minimum_}, {shape.maximum, &out.maximum_}}) {
      if (!text.empty()) {
        *bound = read_decimal(text);
        if (!bound->has_value()) {
          return std::nullopt;
        }
        out.whole_max_ = std::max(out.whole_max_, static_cast<uint32_t>((*bound)->whole.size()));
        out.fraction_max_ =
            std::max(out.fraction_max_, static_cast<uint32_t>((*bound)->fraction.size()));
      }
    }
    if (!shape.multiple_of.empty() && !out.read_factor()) {
      return std::nullopt;
    }
    return out;
  }

  std::optional<RuleGraph> build() {
    number_of(State{});
    for (size_t i = 0; i < states_.size(); ++i) {
      if (states_.size() > kStatesMax) {
        return std::nullopt;
      }
      const State state = states_[i];
      if (may_end(state)) {
        graph_.accepting.push_back(static_cast<uint32_t>(i));
      }
      for (const char c : std::string_view("-.0123456789")) {
        if (const auto next = step(state, c)) {
          const uint32_t to = number_of(*next);
          graph_.add_bytes(static_cast<uint32_t>(i), to, static_cast<uint8_t>(c),
                           static_cast<uint8_t>(c));
        }
      }
    }
    graph_.states = static_cast<uint32_t>(states_.size());
    return std::move(graph_);
  }

 private:
  bool read_factor() {
    const auto factor = read_decimal(shape_.multiple_of);
    if (!factor || factor->whole.size() + factor->fraction.size() > kWholeDigitsMax) {
      return false;
    }
    factor_ = std::strtoull((factor->whole + factor->fraction).c_str(), nullptr, 10);
    decimals_ = static_cast<uint32_t>(factor->fraction.size());
    fraction_max_ = decimals_;
    return factor_ > 0 && factor_ <= kFactorMax;
  }

  uint32_t number_of(const State& state) {
    const auto [entry, added] = numbers_.try_emplace(state, static_cast<uint32_t>(states_.size()));
    if (added) {
      states_.push_back(state);
    }
    return entry->second;
  }

  // Of a negative number the distance from zero is read: its bounds are the others, mirrored.
  const std::optional<Decimal>& low(bool negative) const { return negative ? maximum_ : minimum_; }
  const std::optional<Decimal>& high(bool negative) const { return negative ? minimum_ : maximum_; }

  std::optional<State> step(const State& state, char c) const {
    using enum State::Phase;
    State next = state;
    if (c == '-') {
      next.phase = kMinus;
      next.negative = true;
      return state.phase == kStart ? std::optional(next) : std::nullopt;
    }
    if (c == '.') {
      if (shape_.whole || fraction_max_ == 0 || (state.phase != kZero && state.phase != kWhole)) {
        return std::nullopt;
      }
      end_whole(next);
      next.phase = kPoint;
      next.digits = 0;
      return next;
    }
    switch (state.phase) {
      case kStart:
      case kMinus:
        next.phase = c == '0' ? kZero : kWhole;
        add_whole(next, c);
        return next;
      case kWhole:
        // A bound of more digits has numbers behind it.
        if (state.digits >=
            std::max(kWholeDigitsMax, whole_max_ + (minimum_ && maximum_ ? 0 : 1))) {
          return std::nullopt;
        }
        add_whole(next, c);
        return next;
      case kZero:
        return std::nullopt;
      case kPoint:
      case kFraction:
        if (state.digits >= fraction_max_) {
          return std::nullopt;
        }
        next.phase = kFraction;
        add_fraction(next, c);
        return next;
    }
    return std::nullopt;
  }

  void add_whole(State& state, char digit) const {
    each_bound(state, [&](Comparison& comparison, const Decimal& bound) {
      comparison.add_whole(bound, state.digits, digit);
    });
    add_remainder(state, digit);
    // Digits are only counted where that does not multiply the states of a large factor.
    state.digits += minimum_ || maximum_ || factor_ < kFactorWithLength ? 1 : 0;
  }
  void end_whole(State& state) const {
    each_bound(state, [&](Comparison& comparison, const Decimal& bound) {
      comparison.end_whole(bound, state.digits);
    });
  }
  void add_fraction(State& state, char digit) const {
    each_bound(state, [&](Comparison& comparison, const Decimal& bound) {
      comparison.add_fraction(bound, state.digits, digit);
    });
    add_remainder(state, digit);
    ++state.digits;
  }
  void add_remainder(State& state, char digit) const {
    if (factor_ > 1) {
      state.remainder = (state.remainder * 10 + static_cast<uint64_t>(digit - '0')) % factor_;
    }
  }
  template <typename Body>
  void each_bound(State& state, const Body& body) const {
    if (low(state.negative)) {
      body(state.low, *low(state.negative));
    }
    if (high(state.negative)) {
      body(state.high, *high(state.negative));
    }
  }

  bool may_end(State state) const {
    using enum State::Phase;
    if (state.phase != kZero && state.phase != kWhole && state.phase != kFraction) {
      return false;
    }
    const uint32_t fraction = state.phase == kFraction ? state.digits : 0;
    if (state.phase != kFraction) {
      end_whole(state);
    }
    if (factor_ > 1) {
      for (uint32_t i = fraction; i < decimals_; ++i) {
        state.remainder = state.remainder * 10 % factor_;
      }
      if (state.remainder != 0) {
        return false;
      }
    }
    return fits(state, fraction, true) && fits(state, fraction, false);
  }

  /// Whether the number is on the right side of its lower or upper bound.
  bool fits(const State& state, uint32_t fraction, bool lower) const {
    const auto& bound = lower ? low(state.negative) : high(state.negative);
    if (!bound) {
      return true;
    }
    const bool is_minimum = lower != state.negative;
    const bool open = is_minimum ? shape_.above_minimum : shape_.below_maximum;
    // The distance from zero is compared with the bound's, if both are on one side of it.
    if (bound->negative != state.negative && !bound->is_zero()) {
      return is_minimum ? bound->negative : !bound->negative;
    }
    const int order = (lower ? state.low : state.high).end(*bound, fraction);
    return lower ? order > 0 || (order == 0 && !open) : order < 0 || (order == 0 && !open);
  }

  NumberShape shape_;
  std::optional<Decimal> minimum_;
  std::optional<Decimal> maximum_;
  uint64_t factor_ = 1;
  uint32_t decimals_ = 0;
  uint32_t whole_max_ = 0;
  uint32_t fraction_max_ = kFractionDigitsMax;
  std::map<State, uint32_t> numbers_;
  std::vector<State> states_;
  RuleGraph graph_;
};

}  // namespace

std::optional<ExpressionId> add_number(RuleSet& rules, const NumberShape& shape) {
  if (shape.minimum.empty() && shape.maximum.empty() && shape.multiple_of.empty()) {
    const std::string whole = "-?(0|[1-9][0-9]{0,17})";
    return add_pattern(rules,
                       shape.whole ? whole : whole + "(\\.[0-9]{1,17})?([eE][+-]?[0-9]{1,2})?",
                       CharacterForm::kPlain);
  }
  auto machine = NumberMachine::make(shape);
  auto graph = machine ? machine->build() : std::nullopt;
  return graph ? std::optional(rules.graph(std::move(*graph))) : std::nullopt;
}

}  // namespace stator::structured
