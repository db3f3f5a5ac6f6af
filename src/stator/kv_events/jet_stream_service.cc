// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "stator/kv_events/detail/nats_library.h"
#include "stator/kv_events/jet_stream.h"

namespace stator::kv_events {
namespace {

using detail::nats_error;
using detail::NatsMessage;
using Context = detail::NatsOwned<jsCtx, jsCtx_Destroy>;
using StreamInfo = detail::NatsOwned<jsStreamInfo, jsStreamInfo_Destroy>;
using Ack = detail::NatsOwned<jsPubAck, jsPubAck_Destroy>;
using Subscription = detail::NatsOwned<natsSubscription, natsSubscription_Destroy>;

constexpr const char* kRollupHeader = "Nats-Rollup";

Error js_error(natsStatus status, jsErrCode code, std::string_view doing) {
  // Debian's libnats has names for some of the server's codes only.
  constexpr int kWrongLastSequence = 10071;
  const auto number = static_cast<int>(code);
  if (status == NATS_NO_RESPONDERS || code == JSNotEnabledErr ||
      code == JSNotEnabledForAccountErr) {
    return {Code::kUnavailable,
            fmt::format("NATS: {}: JetStream is not enabled on the server, or the stream is "
                        "missing; start nats-server with -js",
                        doing)};
  }
  if (number == kWrongLastSequence) {
    return {Code::kAlreadyExists, fmt::format("NATS: {}: somebody was first", doing)};
  }
  if (status == NATS_NOT_FOUND) {
    return {Code::kNotFound, fmt::format("NATS: {}: there is none", doing)};
  }
  Error error = nats_error(status, doing);
  return number == 0
             ? std::move(error)
             : Error(error.code(), fmt::format("{} (server's code {})", error.message(), number));
}

jsOptions options() {
  jsOptions out;
  jsOptions_Init(&out);
  out.Wait = JetStream::kWaitMs;
  return out;
}

class Service final : public JetStream {
 public:
  Service(NatsConnection& connection, Context context)
      : connection_(connection), context_(std::move(context)) {}

  Status ensure_stream(const StreamConfig& config) override;
  Status delete_stream(const std::string& stream) override {
    jsErrCode code{};
    jsOptions how = options();
    const natsStatus status = js_DeleteStream(context_.get(), stream.c_str(), &how, &code);
    return status == NATS_OK || status == NATS_NOT_FOUND
               ? Status()
               : Status(js_error(status, code, "deleting stream " + stream));
  }
  Result<StreamState> state(const std::string& stream) override;
  Result<uint64_t> publish(const Publication& message) override;
  Result<std::optional<StoredMessage>> newest(const std::string& stream,
                                              const std::string& subject) override;
  Status read(const Range& range, const Visitor& visit) override;
  Status purge_below(const std::string& stream, uint64_t sequence) override {
    jsOptions how = options();
    how.Stream.Purge.Sequence = sequence;
    return purge(stream, how);
  }
  Status purge_subject(const std::string& stream, const std::string& subject) override {
    jsOptions how = options();
    how.Stream.Purge.Subject = subject.c_str();
    return purge(stream, how);
  }
  std::string make_id() override {
    const std::string inbox = connection_.make_inbox();
    return inbox.substr(inbox.rfind('.') + 1);
  }

 private:
  Status purge(const std::string& stream, jsOptions& how) {
    jsErrCode code{};
    const natsStatus status = js_PurgeStream(context_.get(), stream.c_str(), &how, &code);
    return status == NATS_OK ? Status()
                             : Status(js_error(status, code, "purging stream " + stream));
  }

  NatsConnection& connection_;
  const Context context_;
};

Status Service::ensure_stream(const StreamConfig& config) {
  if (auto known = state(config.name); known.has_value()) {
    return {};
  } else if (known.error().code() != Code::kNotFound) {
    return std::move(known.error());
  }
  std::vector<const char*> subjects;
  for (const std::string& subject : config.subjects) {
    subjects.push_back(subject.c_str());
  }
  jsStreamConfig stream;
  jsStreamConfig_Init(&stream);
  stream.Name = config.name.c_str();
  stream.Subjects = subjects.data();
  stream.SubjectsLen = static_cast<int>(subjects.size());
  stream.MaxBytes = static_cast<int64_t>(config.bytes_max);
  stream.Discard = config.refuse_new ? js_DiscardNew : js_DiscardOld;
  stream.AllowRollup = config.rollup;
  jsErrCode code{};
  jsOptions how = options();
  const natsStatus status = js_AddStream(nullptr, context_.get(), &stream, &how, &code);
  // Another process may have been first; then it is there.
  return status == NATS_OK || code == JSStreamNameExistErr
             ? Status()
             : Status(js_error(status, code, "making stream " + config.name));
}

Result<StreamState> Service::state(const std::string& stream) {
  jsStreamInfo* raw = nullptr;
  jsErrCode code{};
  jsOptions how = options();
  const natsStatus status = js_GetStreamInfo(&raw, context_.get(), stream.c_str(), &how, &code);
  const StreamInfo info(raw);
  if (status != NATS_OK) {
    return js_error(status, code, "looking at stream " + stream);
  }
  return StreamState{.messages = info->State.Msgs,
                     .first = info->State.FirstSeq,
                     .last = info->State.LastSeq,
                     .bytes = info->State.Bytes};
}

Result<uint64_t> Service::publish(const Publication& message) {
  natsMsg* raw = nullptr;
  natsStatus status = natsMsg_Create(&raw, message.subject.c_str(), nullptr, message.payload.data(),
                                     static_cast<int>(message.payload.size()));
  const NatsMessage owned(raw);
  if (status == NATS_OK && message.rollup) {
    status = natsMsgHeader_Set(raw, kRollupHeader, "sub");
  }
  jsPubOptions how;
  jsPubOptions_Init(&how);
  how.MaxWait = kWaitMs;
  how.MsgId = message.id.empty() ? nullptr : message.id.c_str();
  if (message.replaces) {
    how.ExpectLastSubjectSeq = *message.replaces;
    how.ExpectNoMessage = *message.replaces == 0;
  }
  jsPubAck* acked = nullptr;
  jsErrCode code{};
  if (status == NATS_OK) {
    status = js_PublishMsg(&acked, context_.get(), raw, &how, &code);
  }
  const Ack ack(acked);
  if (status != NATS_OK) {
    return js_error(status, code, "storing on " + message.subject);
  }
  return ack->Sequence;
}

Result<std::optional<StoredMessage>> Service::newest(const std::string& stream,
                                                     const std::string& subject) {
  natsMsg* raw = nullptr;
  jsErrCode code{};
  jsOptions how = options();
  const natsStatus status =
      js_GetLastMsg(&raw, context_.get(), stream.c_str(), subject.c_str(), &how, &code);
  const NatsMessage message(raw);
  if (status == NATS_NOT_FOUND) {
    return std::optional<StoredMessage>();
  }
  if (status != NATS_OK) {
    return js_error(status, code, "reading " + subject);
  }
  return std::optional(
      StoredMessage{natsMsg_GetSequence(raw), std::string(detail::payload_of(raw))});
}

Status Service::read(const Range& range, const Visitor& visit) {
  if (range.from > range.to) {
    return {};
  }
  jsSubOptions from;
  jsSubOptions_Init(&from);
  from.Stream = range.stream.c_str();
  from.Ordered = true;
  from.Config.DeliverPolicy = js_DeliverByStartSequence;
  from.Config.OptStartSeq = std::max<uint64_t>(range.from, 1);
  natsSubscription* raw = nullptr;
  jsErrCode code{};
  jsOptions how = options();
  natsStatus status =
      js_SubscribeSync(&raw, context_.get(), range.subject.c_str(), &how, &from, &code);
  const Subscription subscription(raw);
  while (status == NATS_OK) {
    natsMsg* next = nullptr;
    status = natsSubscription_NextMsg(&next, raw, kWaitMs);
    const NatsMessage message(next);
    if (status != NATS_OK) {
      break;
    }
    jsMsgMetaData* meta = nullptr;
    status = natsMsg_GetMetaData(&meta, next);
    const detail::NatsOwned<jsMsgMetaData, jsMsgMetaData_Destroy> owned(meta);
    if (status != NATS_OK) {
      break;
    }
    const uint64_t sequence = meta->Sequence.Stream;
    if (sequence <= range.to) {
      STATOR_CHECK(visit(sequence, detail::payload_of(next)));
    }
    if (sequence >= range.to) {
      return {};
    }
  }
  return js_error(status, code, "reading stream " + range.stream);
}

}  // namespace

Result<std::unique_ptr<JetStream>> JetStream::open(NatsConnection& connection) {
  jsCtx* raw = nullptr;
  jsOptions how = options();
  const natsStatus status =
      natsConnection_JetStream(&raw, static_cast<natsConnection*>(connection.handle()), &how);
  Context context(raw);
  if (status != NATS_OK) {
    return nats_error(status, "using JetStream");
  }
  return std::make_unique<Service>(connection, std::move(context));
}

}  // namespace stator::kv_events
