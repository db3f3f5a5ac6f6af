// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <utility>

#include "stator/discovery/discovery.h"
#include "stator/discovery/instance_record.h"

namespace stator::discovery::detail {

/// The part of a discovery backend that a registration needs. Thread-safe.
class RecordKeeper {
 public:
  virtual ~RecordKeeper() = default;
  virtual Status update(InstanceRecord record) = 0;
  /// Unless a newer life has taken the key over.
  virtual void withdraw(const InstanceKey& key, Incarnation incarnation) = 0;
};

/// The registration of every backend. `keeper` outlives it.
class RecordRegistration final : public Registration {
 public:
  RecordRegistration(RecordKeeper& keeper, const InstanceRecord& record)
      : keeper_(keeper), key_(record.key), incarnation_(record.incarnation) {}
  RecordRegistration(const RecordRegistration&) = delete;
  RecordRegistration& operator=(const RecordRegistration&) = delete;
  ~RecordRegistration() override { keeper_.withdraw(key_, incarnation_); }

  Status update(InstanceRecord record) override {
    STATOR_CHECK(validate(record));
    if (record.key != key_ || record.incarnation != incarnation_) {
      return Error(Code::kInvalidArgument,
                   fmt::format("an update of {} must keep key and incarnation", key_.to_string()));
    }
    return keeper_.update(std::move(record));
  }

 private:
  RecordKeeper& keeper_;
  const InstanceKey key_;
  const Incarnation incarnation_;
};

/// kAlreadyExists if `present`, another life's record, keeps `wanted` from its key: only a higher
/// incarnation replaces other content.
inline Status check_free(const InstanceRecord& present, const InstanceRecord& wanted) {
  if (present != wanted && present.incarnation >= wanted.incarnation) {
    return Error(Code::kAlreadyExists,
                 fmt::format("{} is registered with other content", wanted.key.to_string()));
  }
  return {};
}

}  // namespace stator::discovery::detail
