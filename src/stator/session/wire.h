// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "stator/core/result.h"
#include "stator/engine/api/engine.h"
#include "stator/session/worker_session.h"

namespace stator::worker::v1 {
class Cancel;
class LoadReport;
class Rejected;
class StepOutput;
class Submit;
}  // namespace stator::worker::v1

/// Engine structs ↔ stator.worker.v1 messages. Pure functions; `decode` trusts nothing: whatever it
/// returns is within the limits below and consistent in itself, everything else is kCorrupt or
/// kTooLarge with the field's name. decode(encode(x)) == x.
namespace stator::session::wire {

inline constexpr uint32_t kProtocolVersion = 1;
inline constexpr size_t kMessageBytesMax = size_t{16} * 1024 * 1024;
inline constexpr size_t kRequestTokensMax = size_t{2} * 1024 * 1024;
/// Of one request, all together: what is left of a message for its tokens is a fourth.
inline constexpr size_t kMediaBytesMax = size_t{12} * 1024 * 1024;
inline constexpr size_t kStructuredOutputsBytesMax = size_t{5} * 1024 * 1024;
inline constexpr size_t kStepEntriesMax = 65536;    ///< deltas and failures in one message
inline constexpr size_t kListEntriesMax = 4096;     ///< stop tokens, logit biases
inline constexpr size_t kNameBytesMax = 1024;       ///< cache salt, adapter name
inline constexpr size_t kErrorTextBytesMax = 4096;  ///< longer error messages are cut
inline constexpr uint32_t kLogprobsMax = 128;       ///< alternatives per token

void encode(const inference::EngineRequest& request, worker::v1::Submit& out);
Result<inference::EngineRequest> decode(const worker::v1::Submit& in);

struct CancelCommand {
  inference::RequestKey key;
  CancelReason reason = CancelReason::kClientGone;
};
void encode(const CancelCommand& cancel, worker::v1::Cancel& out);
Result<CancelCommand> decode(const worker::v1::Cancel& in);

/// A refusal or failure; the error's text is cut at kErrorTextBytesMax.
void encode(const inference::Failure& failure, worker::v1::Rejected& out);
Result<inference::Failure> decode(const worker::v1::Rejected& in);

void encode(const inference::StepOutput& step, worker::v1::StepOutput& out);
Result<inference::StepOutput> decode(const worker::v1::StepOutput& in);

void encode(const engine::LoadReport& load, worker::v1::LoadReport& out);
engine::LoadReport decode(const worker::v1::LoadReport& in);

}  // namespace stator::session::wire
