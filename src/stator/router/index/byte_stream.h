// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace stator::router {

static_assert(std::endian::native == std::endian::little, "snapshots are little-endian");

/// Appends numbers in the machine's (little-endian) form.
class ByteWriter {
 public:
  template <typename T>
    requires std::is_trivially_copyable_v<T>
  void put(const T& value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(T));
  }
  template <typename T>
  void put_all(std::span<const T> values) {
    bytes_.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  }
  void put_text(std::string_view text) { bytes_.append(text); }
  /// Overwrites what was put at `at`.
  template <typename T>
  void set(size_t at, const T& value) {
    std::memcpy(bytes_.data() + at, &value, sizeof(T));
  }
  size_t size() const { return bytes_.size(); }
  std::string_view view() const { return bytes_; }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

/// Reads them back from bytes that may be anything: beyond the end everything is zero and
/// `failed()`.
class ByteReader {
 public:
  explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}

  template <typename T>
    requires std::is_trivially_copyable_v<T>
  T get() {
    T value{};
    if (const std::string_view from = get_text(sizeof(T)); !failed_) {
      std::memcpy(&value, from.data(), sizeof(T));
    }
    return value;
  }
  template <typename T>
  bool get_all(std::span<T> out) {
    const std::string_view from = get_text(out.size_bytes());
    if (!from.empty()) {  // memcpy takes no null, not even for nothing
      std::memcpy(out.data(), from.data(), from.size());
    }
    return !failed_;
  }
  /// The next `count` bytes, or nothing if there are fewer.
  std::string_view get_text(uint64_t count) {
    if (failed_ || count > bytes_.size()) {
      failed_ = true;
      return {};
    }
    const std::string_view text = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return text;
  }
  bool failed() const { return failed_; }
  size_t left() const { return bytes_.size(); }

 private:
  std::string_view bytes_;
  bool failed_ = false;
};

}  // namespace stator::router
