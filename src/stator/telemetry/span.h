// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "stator/core/clock.h"
#include "stator/telemetry/trace_context.h"

namespace stator::telemetry {

/// A stretch of a request's life. Never holds text of prompts or answers. A view: what its text
/// points to lives as long as the facts it was made of.
struct Span {
  enum class Kind : uint8_t { kInternal = 1, kServer = 2, kClient = 3 };  ///< OTLP's numbers
  /// A number that is written as text, because readers have no integers of 64 bits.
  struct Id {
    uint64_t value = 0;
    bool operator==(const Id&) const = default;
  };
  using Value = std::variant<bool, int64_t, double, std::string_view, Id>;
  struct Attribute {
    std::string_view key;  ///< static text
    Value value;
  };

  TraceId trace{};
  SpanId id{};
  SpanId parent{};        ///< all zero: the root
  std::string_view name;  ///< static text
  Kind kind = Kind::kInternal;
  WallTime start;
  WallTime end;
  std::vector<Attribute> attributes;
  std::optional<SpanId> link;  ///< to a span of the same trace
  std::string_view error;      ///< empty: it went well
  std::string_view state;      ///< tracestate, as it came

  /// `text` must outlive the span: no temporary, and no literal by `const char*`.
  void add(std::string_view key, Value value) { attributes.push_back({key, value}); }
};

/// Spans in memory that is used again: making those of a request allocates nothing once the list
/// has had as many.
class SpanList {
 public:
  /// An empty one at the end; valid until the next call.
  Span& add();
  void clear() { size_ = 0; }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const Span& operator[](size_t at) const { return spans_[at]; }
  Span& back() { return spans_[size_ - 1]; }
  std::vector<Span>::const_iterator begin() const { return spans_.begin(); }
  std::vector<Span>::const_iterator end() const {
    return spans_.begin() + static_cast<std::ptrdiff_t>(size_);
  }

 private:
  std::vector<Span> spans_;  // those beyond size_ keep their memory
  size_t size_ = 0;
};

}  // namespace stator::telemetry
