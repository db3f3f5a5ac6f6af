// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/chat_work.h"

#include <utility>

namespace stator::frontend {
namespace {

api::ApiStatus take_in(ChatWork& work, const PrepareEnvironment& environment) {
  api::ChatInput& chat = work.request.chat;
  const media::MediaConfig& config = environment.config.media;
  STATOR_CHECK(check_media(chat, *work.named.model, config));
  STATOR_TRY(work.media, read_inline_media(chat, config, environment.media_bytes));
  if (!work.media.wanted.empty() && environment.fetcher == nullptr) {
    return api::validation_error(work.media.wanted.front().path,
                                 work.media.wanted.front().path + " must be a data: URL here");
  }
  return {};
}

}  // namespace

void run_chat_work(ChatWork work, PrepareJob& job, const PrepareEnvironment& environment,
                   FinishChat finish) {
  const auto end = [&](ChatWork& whole, api::ApiStatus good) {
    if (!good.has_value()) {
      job.outcome = std::move(good.error());
    } else {
      finish(whole, job, environment);
    }
  };
  if (work.request.chat.media.empty()) {
    finish(work, job, environment);
    return;
  }
  if (api::ApiStatus taken = take_in(work, environment); !taken.has_value()) {
    end(work, std::move(taken));
    return;
  }
  if (work.media.wanted.empty()) {
    end(work, check_total(work.request.chat, work.media, environment.config.media));
    return;
  }
  job.wanted = std::move(work.media.wanted);
  // The job keeps it, and what it was made with outlives every job.
  job.resume = [paused = std::make_unique<ChatWork>(std::move(work)), finish, &job, &environment] {
    add_fetched(paused->media, std::move(job.fetched));
    if (api::ApiStatus good =
            check_total(paused->request.chat, paused->media, environment.config.media);
        !good.has_value()) {
      job.outcome = std::move(good.error());
    } else {
      finish(*paused, job, environment);
    }
  };
}

}  // namespace stator::frontend
