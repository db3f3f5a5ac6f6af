// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "stator/core/random.h"
#include "stator/frontend/active_request.h"
#include "stator/frontend/request_reporter.h"
#include "stator/frontend/routed_inbox.h"
#include "stator/frontend/worker_lines.h"
#include "stator/net/shard.h"
#include "stator/request/recovery.h"

namespace stator::frontend {

/// Carries out what choices ask for on their way to a worker: puts questions to the model's
/// routers, and sends prompts and requests. What comes of it goes back into the choice at once, or
/// later, by a RoutedInbox. Home loop: the shard's.
class RequestDispatch {
 public:
  struct Environment {
    net::Shard& shard;
    WorkerLines& lines;
    RequestReporter& reporter;
    request::Recovery& recovery;
    Random& random;
  };
  RequestDispatch(const Environment& environment, std::shared_ptr<RoutedInbox> inbox)
      : environment_(environment), inbox_(std::move(inbox)) {}

  void route(ChoiceRef ref, request::Actions& out);
  void plan_prompt(ChoiceRef ref, request::Actions& out);
  void plan_answer(ChoiceRef ref, request::Actions& out);
  /// A router has, or will never have, a worker for a choice that waited.
  void on_routed(ChoiceRef ref, RoutedInbox::Arrival arrival, request::Actions& out);
  /// `id` names the prompt.
  void ask_prefill(ChoiceRef ref, RequestId id);
  void submit(ChoiceRef ref);

 private:
  struct Question;
  void take_split(ChoiceRef ref, router::PrefillRouterService::Split split, request::Actions& out);
  void take_answer(ChoiceRef ref, router::Decision decision, request::Actions& out);
  std::move_only_function<void(Result<router::Decision>)> waiter(const ChoiceRun& run,
                                                                 RoutedInbox::For what) const;
  TimePoint now() const { return environment_.shard.now(); }

  const Environment environment_;
  const std::shared_ptr<RoutedInbox> inbox_;  // shared with those who wait in routers' queues
};

}  // namespace stator::frontend
