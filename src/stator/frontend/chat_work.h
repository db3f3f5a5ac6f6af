// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "stator/api/request.h"
#include "stator/frontend/media_prompt.h"
#include "stator/frontend/model_catalog.h"
#include "stator/frontend/prepare_job.h"
#include "stator/protocols/protocol.h"

namespace stator::frontend {

/// A conversation that has been read, whatever its protocol, and whose media may still be to come.
struct ChatWork {
  api::ChatRequest request;
  NamedModel named;
  const protocols::Protocol* protocol = nullptr;  ///< null: OpenAI's
  std::shared_ptr<const protocols::Echo> echo;
  std::string session;
  MediaBatch media;
};

/// Makes the outcome of the job, `work.media` being whole.
using FinishChat = void (*)(ChatWork& work, PrepareJob& job, const PrepareEnvironment& environment);

/// Runs `finish` now, or has the job wait for media first (J2). What is wrong with these is the
/// job's outcome.
void run_chat_work(ChatWork work, PrepareJob& job, const PrepareEnvironment& environment,
                   FinishChat finish);

/// The outcome of a job, from a plan, a body, or an error.
template <typename T>
void settle(PrepareJob& job, api::ApiResult<T> result) {
  if (result) {
    job.outcome = std::move(*result);
  } else {
    job.outcome = std::move(result.error());
  }
}

}  // namespace stator::frontend
