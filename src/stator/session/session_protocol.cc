// SPDX-License-Identifier: Apache-2.0
#include "stator/session/session_protocol.h"

#include <fmt/format.h>

#include <utility>

#include "stator/proto/worker/v1/worker.pb.h"
#include "stator/session/wire.h"

namespace stator::session {
namespace {

namespace pb = worker::v1;

template <typename Message>
inference::RequestKey key_of(const Message& message) {
  return {RequestId(message.request()), Attempt(static_cast<uint16_t>(message.attempt()))};
}

bool is_welcome_of(const pb::Welcome& welcome, const WantedWorker& wanted) {
  return welcome.protocol() == wire::kProtocolVersion &&
         welcome.worker_id() == wanted.worker.value() &&
         (wanted.incarnation == Incarnation() ||
          welcome.incarnation() == wanted.incarnation.value());
}

}  // namespace

std::unique_ptr<pb::ClientMessage> make_hello(WorkerId worker, Incarnation incarnation,
                                              const std::string& client_name) {
  auto message = std::make_unique<pb::ClientMessage>();
  pb::Hello& hello = *message->mutable_hello();
  hello.set_protocol(wire::kProtocolVersion);
  hello.set_worker_id(worker.value());
  hello.set_incarnation(incarnation.value());
  hello.set_client(client_name);
  return message;
}

Result<std::unique_ptr<pb::ClientMessage>> make_submit(const inference::EngineRequest& request) {
  auto message = std::make_unique<pb::ClientMessage>();
  wire::encode(request, *message->mutable_submit());
  if (message->ByteSizeLong() > wire::kMessageBytesMax ||
      request.tokens.size() > wire::kRequestTokensMax) {
    return Error(Code::kTooLarge,
                 fmt::format("a request of {} tokens exceeds the worker protocol's {} MiB",
                             request.tokens.size(), wire::kMessageBytesMax >> 20));
  }
  return message;
}

std::unique_ptr<pb::ClientMessage> make_cancel(inference::RequestKey key, CancelReason reason) {
  auto message = std::make_unique<pb::ClientMessage>();
  wire::encode({key, reason}, *message->mutable_cancel());
  return message;
}

Result<SessionEvent> read_message(const pb::WorkerMessage& message, const WantedWorker& wanted,
                                  const SessionMetrics& metrics) {
  const auto refuse = [&metrics](Error error) {
    metrics.rejected_messages.add();
    return std::move(error).with_code(Code::kDisconnected);
  };
  metrics.messages_received.add();
  switch (message.body_case()) {
    case pb::WorkerMessage::kWelcome:
      if (!is_welcome_of(message.welcome(), wanted)) {
        return refuse(
            Error(Code::kCorrupt,
                  fmt::format("the worker that answers is {}, incarnation {}, of "
                              "protocol {}, not {}, {}, {}",
                              message.welcome().worker_id(), message.welcome().incarnation(),
                              message.welcome().protocol(), wanted.worker.value(),
                              wanted.incarnation.value(), wire::kProtocolVersion)));
      }
      return SessionOpened();
    case pb::WorkerMessage::kAccepted:
      return SessionAccepted{key_of(message.accepted())};
    case pb::WorkerMessage::kRejected: {
      auto failure = wire::decode(message.rejected());
      if (!failure) {
        return refuse(std::move(failure.error()));
      }
      return SessionRejected{std::move(*failure)};
    }
    case pb::WorkerMessage::kStep: {
      auto step = wire::decode(message.step());
      if (!step) {
        return refuse(std::move(step.error()));
      }
      return SessionEvent(std::move(*step));
    }
    case pb::WorkerMessage::kLoad:
      return wire::decode(message.load());
    case pb::WorkerMessage::kDraining:
      return SessionDraining();
    case pb::WorkerMessage::BODY_NOT_SET:
      break;
  }
  metrics.rejected_messages.add();  // of a newer worker, perhaps
  return std::monostate();
}

}  // namespace stator::session
