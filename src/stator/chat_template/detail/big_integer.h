// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stator/chat_template/value.h"

namespace stator::chat_template::detail {

/// Python's unlimited integers, for the rare template that needs one: limbs of nine decimal digits,
/// since values come and go as decimal text. Schoolbook arithmetic; at most kDigitsMax digits,
/// which is also where Python refuses to print an integer. Larger results throw Failure.
class BigInteger {
 public:
  static constexpr size_t kDigitsMax = 4300;

  BigInteger() = default;  ///< zero
  explicit BigInteger(int64_t value);
  /// Of digits in `base` (2 to 36) after an optional sign; nothing when there is anything else.
  static std::optional<BigInteger> parse(std::string_view text, unsigned base = 10);
  /// bool, int and big int; nothing for other kinds.
  static std::optional<BigInteger> from(const Value& value);

  std::string to_text() const;
  /// An int when it fits 64 bits, else a big int whose digits live in `arena`.
  Value to_value(Arena& arena) const;

  bool is_zero() const { return limbs_.empty(); }
  bool is_negative() const { return negative_; }
  bool is_odd() const { return !limbs_.empty() && limbs_[0] % 2 == 1; }
  std::strong_ordering operator<=>(const BigInteger& other) const;
  bool operator==(const BigInteger& other) const = default;

  BigInteger operator-() const;
  BigInteger operator+(const BigInteger& other) const;
  BigInteger operator-(const BigInteger& other) const { return *this + -other; }
  BigInteger operator*(const BigInteger& other) const;
  /// Quotient rounded down and the rest that goes with it, as // and %. `other` must not be zero.
  std::pair<BigInteger, BigInteger> divide_floor(const BigInteger& other) const;
  /// `exponent` must not be negative.
  BigInteger power(uint64_t exponent) const;

 private:
  using Limbs = std::vector<uint32_t>;

  static std::strong_ordering compare(const Limbs& left, const Limbs& right);
  static Limbs add(const Limbs& left, const Limbs& right);
  static Limbs subtract(const Limbs& larger, const Limbs& smaller);
  static void multiply_add(Limbs& limbs, uint32_t factor, uint32_t summand);
  static uint32_t divide_step(Limbs& rest, const Limbs& divisor);
  static BigInteger make(Limbs limbs, bool negative);

  Limbs limbs_;  // least significant first, no leading zeros; empty for zero
  bool negative_ = false;
};

}  // namespace stator::chat_template::detail
