// SPDX-License-Identifier: Apache-2.0
#include "stator/continuity/stream_journal.h"

#include "stator/proto/frontend/v1/journal.pb.h"
#include "stator/proto/worker/v1/worker.pb.h"
#include "stator/session/wire.h"

namespace stator::continuity {

std::string encode(const StreamJournal::Header& header) {
  frontend::v1::JournalHeader message;
  message.set_request_hash(header.request_hash);
  message.set_request_id(header.request_id);
  message.set_created_ns(header.created.time_since_epoch().count());
  return message.SerializeAsString();
}

std::string encode(const inference::StepOutput& step) {
  worker::v1::StepOutput message;
  session::wire::encode(step, message);
  return message.SerializeAsString();
}

Result<StreamJournal> decode_journal(std::span<const std::string> parts) {
  StreamJournal journal;
  frontend::v1::JournalHeader header;
  if (parts.empty() || !header.ParseFromString(parts.front())) {
    return Error(Code::kCorrupt, "journal of a stream: its first part is no header");
  }
  journal.header = {.request_hash = header.request_hash(),
                    .request_id = header.request_id(),
                    .created = WallTime(Duration(header.created_ns()))};
  journal.steps.reserve(parts.size() - 1);
  for (const std::string& part : parts.subspan(1)) {
    worker::v1::StepOutput message;
    if (!message.ParseFromString(part)) {
      return Error(Code::kCorrupt, "journal of a stream: a part is no step");
    }
    STATOR_TRY(inference::StepOutput step, session::wire::decode(message), "journal of a stream");
    if (step.deltas.size() != 1) {
      return Error(Code::kCorrupt, "journal of a stream: a step without exactly one delta");
    }
    journal.steps.push_back(std::move(step));
  }
  return journal;
}

}  // namespace stator::continuity
