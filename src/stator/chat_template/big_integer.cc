// SPDX-License-Identifier: Apache-2.0
#include "stator/chat_template/detail/big_integer.h"

#include <algorithm>
#include <charconv>

#include "stator/chat_template/detail/failure.h"

namespace stator::chat_template::detail {
namespace {

constexpr uint32_t kBase = 1'000'000'000;
constexpr size_t kDigitsPerLimb = 9;
constexpr size_t kLimbsMax = (BigInteger::kDigitsMax + kDigitsPerLimb - 1) / kDigitsPerLimb;

std::optional<unsigned> digit_of(char c, unsigned base) {
  unsigned digit = base;
  if (c >= '0' && c <= '9') {
    digit = static_cast<unsigned>(c - '0');
  } else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') {
    digit = static_cast<unsigned>((c | 0x20) - 'a') + 10;
  }
  return digit < base ? std::optional(digit) : std::nullopt;
}

}  // namespace

BigInteger BigInteger::make(Limbs limbs, bool negative) {
  while (!limbs.empty() && limbs.back() == 0) {
    limbs.pop_back();
  }
  if (limbs.size() > kLimbsMax) {
    fail("an integer has more than " + std::to_string(kDigitsMax) + " digits");
  }
  BigInteger result;
  result.negative_ = negative && !limbs.empty();
  result.limbs_ = std::move(limbs);
  return result;
}

BigInteger::BigInteger(int64_t value) : negative_(value < 0) {
  uint64_t rest = value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  for (; rest > 0; rest /= kBase) {
    limbs_.push_back(static_cast<uint32_t>(rest % kBase));
  }
}

void BigInteger::multiply_add(Limbs& limbs, uint32_t factor, uint32_t summand) {
  uint64_t carry = summand;
  for (uint32_t& limb : limbs) {
    carry += uint64_t{limb} * factor;
    limb = static_cast<uint32_t>(carry % kBase);
    carry /= kBase;
  }
  if (carry > 0) {
    limbs.push_back(static_cast<uint32_t>(carry));
  }
}

std::optional<BigInteger> BigInteger::parse(std::string_view text, unsigned base) {
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) {
    text.remove_prefix(1);
  }
  // Binary digits are the shortest; more of them than this cannot make an allowed integer.
  constexpr size_t kTextMax = kDigitsMax * 4;
  if (text.empty() || text.size() > kTextMax) {
    return std::nullopt;
  }
  // As many digits at a time as fit a limb.
  Limbs limbs;
  uint32_t factor = 1;
  uint32_t group = 0;
  for (const char c : text) {
    const auto digit = digit_of(c, base);
    if (!digit) {
      return std::nullopt;
    }
    if (factor > kBase / base) {
      multiply_add(limbs, factor, group);
      factor = 1;
      group = 0;
    }
    factor *= base;
    group = group * base + *digit;
  }
  multiply_add(limbs, factor, group);
  return make(std::move(limbs), negative);
}

std::optional<BigInteger> BigInteger::from(const Value& value) {
  if (value.is_int() || value.is_bool()) {
    return BigInteger(value.as_int());
  }
  if (value.kind() != Kind::kBigInt) {
    return std::nullopt;
  }
  // Our own spelling: the limbs stand in it.
  std::string_view digits = value.text();
  const bool negative = digits.starts_with('-');
  digits.remove_prefix(negative ? 1 : 0);
  Limbs limbs;
  while (!digits.empty()) {
    const size_t begin = digits.size() - std::min(digits.size(), kDigitsPerLimb);
    uint32_t limb = 0;
    std::from_chars(digits.data() + begin, digits.data() + digits.size(), limb);
    limbs.push_back(limb);
    digits = digits.substr(0, begin);
  }
  return make(std::move(limbs), negative);
}

std::string BigInteger::to_text() const {
  if (limbs_.empty()) {
    return "0";
  }
  std::string text = (negative_ ? "-" : "") + std::to_string(limbs_.back());
  for (size_t i = limbs_.size() - 1; i > 0; --i) {
    const std::string digits = std::to_string(limbs_[i - 1]);
    text.append(kDigitsPerLimb - digits.size(), '0');
    text += digits;
  }
  return text;
}

Value BigInteger::to_value(Arena& arena) const {
  const std::string text = to_text();
  int64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  return parsed.ec == std::errc{} ? Value::integer(value)
                                  : Value::big_integer(arena.copy(std::string_view(text)));
}

std::strong_ordering BigInteger::compare(const Limbs& left, const Limbs& right) {
  if (left.size() != right.size()) {
    return left.size() <=> right.size();
  }
  return std::lexicographical_compare_three_way(left.rbegin(), left.rend(), right.rbegin(),
                                                right.rend());
}

std::strong_ordering BigInteger::operator<=>(const BigInteger& other) const {
  if (negative_ != other.negative_) {
    return other.negative_ <=> negative_;
  }
  return negative_ ? compare(other.limbs_, limbs_) : compare(limbs_, other.limbs_);
}

BigInteger::Limbs BigInteger::add(const Limbs& left, const Limbs& right) {
  Limbs sum;
  uint32_t carry = 0;
  for (size_t i = 0; i < std::max(left.size(), right.size()) || carry > 0; ++i) {
    carry += (i < left.size() ? left[i] : 0) + (i < right.size() ? right[i] : 0);
    sum.push_back(carry % kBase);
    carry /= kBase;
  }
  return sum;
}

BigInteger::Limbs BigInteger::subtract(const Limbs& larger, const Limbs& smaller) {
  Limbs difference = larger;
  uint32_t borrow = 0;
  for (size_t i = 0; i < larger.size(); ++i) {
    const uint32_t taken = (i < smaller.size() ? smaller[i] : 0) + borrow;
    borrow = difference[i] < taken ? 1 : 0;
    difference[i] += borrow * kBase - taken;
  }
  return difference;
}

BigInteger BigInteger::operator-() const {
  return make(limbs_, !negative_);
}

BigInteger BigInteger::operator+(const BigInteger& other) const {
  if (negative_ == other.negative_) {
    return make(add(limbs_, other.limbs_), negative_);
  }
  if (compare(limbs_, other.limbs_) < 0) {
    return make(subtract(other.limbs_, limbs_), other.negative_);
  }
  return make(subtract(limbs_, other.limbs_), negative_);
}

BigInteger BigInteger::operator*(const BigInteger& other) const {
  Limbs product(limbs_.size() + other.limbs_.size(), 0);
  for (size_t i = 0; i < limbs_.size(); ++i) {
    uint64_t carry = 0;
    for (size_t j = 0; j < other.limbs_.size() || carry > 0; ++j) {
      const uint64_t factor = j < other.limbs_.size() ? other.limbs_[j] : 0;
      carry += product[i + j] + uint64_t{limbs_[i]} * factor;
      product[i + j] = static_cast<uint32_t>(carry % kBase);
      carry /= kBase;
    }
  }
  return make(std::move(product), negative_ != other.negative_);
}

/// How often `divisor` goes into `rest`, below kBase times; takes it away. By bisection: division
/// is too rare here for a better guess to pay.
uint32_t BigInteger::divide_step(Limbs& rest, const Limbs& divisor) {
  uint32_t low = 0;
  uint32_t high = kBase - 1;
  Limbs taken;
  while (low < high) {
    const uint32_t middle = low + (high - low + 1) / 2;
    Limbs product = divisor;
    multiply_add(product, middle, 0);
    if (compare(product, rest) <= 0) {
      low = middle;
      taken = std::move(product);
    } else {
      high = middle - 1;
    }
  }
  if (low > 0) {
    rest = make(subtract(rest, taken), false).limbs_;
  }
  return low;
}

std::pair<BigInteger, BigInteger> BigInteger::divide_floor(const BigInteger& other) const {
  Limbs quotient(limbs_.size(), 0);
  Limbs rest;
  for (size_t i = limbs_.size(); i > 0; --i) {
    rest.insert(rest.begin(), limbs_[i - 1]);
    if (rest.back() == 0) {
      rest.clear();  // a leading zero: rest was zero before
    }
    quotient[i - 1] = divide_step(rest, other.limbs_);
  }
  BigInteger whole = make(std::move(quotient), negative_ != other.negative_);
  BigInteger remainder = make(std::move(rest), negative_);
  if (!remainder.is_zero() && negative_ != other.negative_) {
    whole = whole - BigInteger(1);
    remainder = remainder + other;
  }
  return {whole, remainder};
}

BigInteger BigInteger::power(uint64_t exponent) const {
  BigInteger result(1);
  BigInteger base = *this;
  while (exponent > 0) {
    if (exponent % 2 == 1) {
      result = result * base;
    }
    exponent /= 2;
    if (exponent > 0) {
      base = base * base;
    }
  }
  return result;
}

}  // namespace stator::chat_template::detail
