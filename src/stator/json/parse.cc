// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "stator/json/value.h"
#include "stator/text/utf8.h"

namespace stator::json {
namespace {

// Objects up to this size are searched for a second member of a name one by one.
constexpr size_t kFewMembers = 16;

// Leaves the last member of each name, at the place of the first.
void drop_duplicates(Value::Object& members) {
  if (members.size() < 2) {
    return;
  }
  std::vector<size_t> order(members.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, [&](size_t a, size_t b) {
    const int compared = members[a].key.compare(members[b].key);
    return compared != 0 ? compared < 0 : a < b;
  });
  std::vector<bool> gone(members.size());
  bool any = false;
  for (size_t first = 0, i = 1; i < order.size(); ++i) {
    if (members[order[i]].key != members[order[first]].key) {
      first = i;
      continue;
    }
    members[order[first]].value = std::move(members[order[i]].value);
    gone[order[i]] = any = true;
  }
  if (any) {
    size_t at = 0;
    std::erase_if(members, [&](const Member&) { return gone[at++]; });
  }
}

class Builder {
 public:
  Builder(std::string_view text, const ParseLimits& limits)
      : cursor_(text, limits.depth_max), values_left_(limits.values_max) {}

  Result<Value> read_document() {
    Value value;
    if (read(value) && cursor_.finish()) {
      return value;
    }
    if (full_) {
      return Error(Code::kTooLarge, "the JSON text has too many values");
    }
    return Error(Code::kInvalidArgument,
                 fmt::format("not valid JSON at byte {}: {}", cursor_.position(), cursor_.error()));
  }

 private:
  // Recursion is bounded by the cursor's depth.
  bool read(Value& value) {
    if (values_left_ == 0) {
      full_ = true;
      return false;
    }
    --values_left_;
    switch (cursor_.peek()) {
      case Kind::kObject:
        return read_object(value);
      case Kind::kArray:
        return read_array(value);
      case Kind::kString: {
        std::string_view text;
        const bool ok = cursor_.read_string(text, storage_);
        value = Value(text);
        return ok;
      }
      case Kind::kNumber: {
        std::string_view spelling;
        const bool ok = cursor_.read_number(spelling);
        value = Value::number(spelling);
        return ok;
      }
      case Kind::kBool: {
        bool flag = false;
        const bool ok = cursor_.read_bool(flag);
        value = Value(flag);
        return ok;
      }
      default:
        return cursor_.read_null();  // which also says what is wrong where no value begins
    }
  }

  bool read_object(Value& value) {
    value = Value::object();
    Value::Object& members = *value.mutable_members();
    if (!cursor_.enter_object()) {
      return false;
    }
    std::string_view key;
    while (cursor_.next_key(key, storage_)) {
      Member* same = nullptr;
      if (members.size() < kFewMembers) {
        const auto found = std::ranges::find(members, key, &Member::key);
        same = found != members.end() ? &*found : nullptr;
      }
      Member& member =
          same != nullptr ? *same : members.emplace_back(Member{std::string(key), Value()});
      if (!read(member.value)) {
        return false;
      }
    }
    if (members.size() >= kFewMembers) {
      drop_duplicates(members);
    }
    return !cursor_.failed();
  }

  bool read_array(Value& value) {
    value = Value::array();
    if (!cursor_.enter_array()) {
      return false;
    }
    while (cursor_.next_element()) {
      if (!read(value.push_back({}))) {
        return false;
      }
    }
    return !cursor_.failed();
  }

  Cursor cursor_;
  std::string storage_;
  size_t values_left_;
  bool full_ = false;
};

}  // namespace

Result<Value> parse(std::string_view text, const ParseLimits& limits) {
  if (!text::is_valid_utf8(text)) {
    return Error(Code::kInvalidArgument, "not valid JSON: the text is not UTF-8");
  }
  return Builder(text, limits).read_document();
}

}  // namespace stator::json
