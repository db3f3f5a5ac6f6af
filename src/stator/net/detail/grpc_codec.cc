// SPDX-License-Identifier: Apache-2.0
#include "stator/net/detail/grpc_codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstring>
#include <iterator>
#include <utility>

namespace stator::net::detail {
namespace {

constexpr size_t kPrefixBytes = 5;  // compressed flag, length
constexpr size_t kTimeoutDigitsMax = 8;
constexpr int64_t kTimeoutMax = 99'999'999;

uint32_t read_length(const char* bytes) {
  std::array<unsigned char, 4> raw{};
  std::memcpy(raw.data(), bytes, raw.size());
  return uint32_t{raw[0]} << 24 | uint32_t{raw[1]} << 16 | uint32_t{raw[2]} << 8 | raw[3];
}

}  // namespace

void append_grpc_message(OutputBuffer& out, std::string_view message) {
  const auto size = static_cast<uint32_t>(message.size());
  const std::array prefix{'\0', static_cast<char>(size >> 24), static_cast<char>(size >> 16),
                          static_cast<char>(size >> 8), static_cast<char>(size)};
  out.append_raw({prefix.data(), prefix.size()});
  out.append_raw(message);
}

std::string percent_encoded(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c >= ' ' && c <= '~' && c != '%') {
      out.push_back(c);
    } else {
      fmt::format_to(std::back_inserter(out), "%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

int parse_grpc_number(std::string_view text) {
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? number : -1;
}

std::optional<Duration> parse_grpc_timeout(std::string_view text) {
  if (text.size() < 2 || text.size() > kTimeoutDigitsMax + 1) {
    return std::nullopt;
  }
  const int64_t count = parse_grpc_number(text.substr(0, text.size() - 1));
  if (count < 0) {
    return std::nullopt;
  }
  switch (text.back()) {
    case 'H':
      return std::chrono::hours(std::min<int64_t>(count, 24 * 365));
    case 'M':
      return std::chrono::minutes(count);
    case 'S':
      return std::chrono::seconds(count);
    case 'm':
      return std::chrono::milliseconds(count);
    case 'u':
      return std::chrono::microseconds(count);
    case 'n':
      return std::chrono::nanoseconds(count);
    default:
      return std::nullopt;
  }
}

std::string format_grpc_timeout(Duration timeout) {
  const Duration wait = std::max(timeout, Duration::zero());
  if (const auto us = std::chrono::ceil<std::chrono::microseconds>(wait).count();
      us <= kTimeoutMax) {
    return fmt::format("{}u", us);
  }
  if (const auto ms = std::chrono::ceil<std::chrono::milliseconds>(wait).count();
      ms <= kTimeoutMax) {
    return fmt::format("{}m", ms);
  }
  const int64_t seconds = std::chrono::ceil<std::chrono::seconds>(wait).count();
  return fmt::format("{}S", std::min(seconds, kTimeoutMax));
}

/// Takes bytes until `wanted` are there.
void GrpcMessageReader::collect(std::string_view& bytes, size_t wanted) {
  const size_t count = std::min(wanted - incoming_.size(), bytes.size());
  incoming_.append(bytes.substr(0, count));
  bytes.remove_prefix(count);
}

bool GrpcMessageReader::check(const char* prefix) {
  const size_t size = read_length(prefix + 1);
  if (*prefix != 0) {
    trouble_ = {kGrpcUnimplemented, "a message is compressed, which was not offered"};
  } else if (size > message_bytes_max_) {
    trouble_ = {kGrpcResourceExhausted,
                fmt::format("a message of {} bytes, more than {}", size, message_bytes_max_)};
  }
  return !trouble_;
}

std::optional<std::string_view> GrpcMessageReader::next(std::string_view& bytes) {
  if (std::exchange(handed_out_, false)) {
    incoming_.clear();
    if (incoming_.capacity() > kGrpcCapacityKept) {
      incoming_.shrink_to_fit();
    }
  }
  if (trouble_) {
    return std::nullopt;
  }
  // Whole messages go on from where they are; others are put together first.
  if (incoming_.empty() && bytes.size() >= kPrefixBytes) {
    if (!check(bytes.data())) {
      return std::nullopt;
    }
    const size_t size = read_length(bytes.data() + 1);
    if (bytes.size() - kPrefixBytes >= size) {
      const std::string_view message = bytes.substr(kPrefixBytes, size);
      bytes.remove_prefix(kPrefixBytes + size);
      return message;
    }
  }
  if (incoming_.size() < kPrefixBytes) {
    collect(bytes, kPrefixBytes);
    if (incoming_.size() < kPrefixBytes || !check(incoming_.data())) {
      return std::nullopt;
    }
  }
  const size_t whole = kPrefixBytes + read_length(incoming_.data() + 1);
  collect(bytes, whole);
  if (incoming_.size() < whole) {
    return std::nullopt;
  }
  handed_out_ = true;
  return std::string_view(incoming_).substr(kPrefixBytes);
}

}  // namespace stator::net::detail
