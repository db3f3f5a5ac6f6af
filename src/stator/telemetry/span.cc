// SPDX-License-Identifier: Apache-2.0
#include "stator/telemetry/span.h"

#include <utility>

namespace stator::telemetry {

Span& SpanList::add() {
  if (size_ == spans_.size()) {
    spans_.emplace_back();
  }
  Span& next = spans_[size_++];
  std::vector<Span::Attribute> attributes = std::move(next.attributes);
  attributes.clear();
  next = Span{};
  next.attributes = std::move(attributes);
  return next;
}

}  // namespace stator::telemetry
