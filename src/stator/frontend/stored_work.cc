// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/stored_work.h"

#include <fmt/format.h>

#include "stator/frontend/request_id.h"
#include "stator/frontend/responses_answer.h"

namespace stator::frontend {

StoredWork::StoredWork(net::Shard& shard, Stores stores, const FrontendConfig& config)
    : store_(stores.responses),
      config_(config),
      random_(Random::from_entropy()),
      responses_(store_ == nullptr ? nullptr
                                   : std::make_unique<StoredResponses>(shard, *store_, config)),
      batches_(shard, stores.batches, config) {}

bool StoredWork::answer(net::HttpExchange& exchange) {
  return (responses_ != nullptr && responses_->answer(exchange)) || batches_.answer(exchange);
}

net::HttpExchange& StoredWork::place(net::HttpExchange& exchange, AnswerSpec& answer,
                                     const net::HttpRequest& request) {
  const auto* const echo = responses_echo(answer);
  if (echo == nullptr || responses_ == nullptr) {
    return exchange;
  }
  answer.responses = store_;
  answer.owner = owner_of(request, config_);
  if (names_itself(request)) {
    // Clients choose no names of what is stored: they could take another's.
    answer.id = fmt::format("resp_{:016x}{:016x}", random_.next(), random_.next());
  }
  if (!echo->background) {
    return exchange;
  }
  net::HttpExchange& own = responses_->begin(exchange, answer);
  answer.stream = false;  // its events go to whoever follows
  return own;
}

void StoredWork::sweep() {
  if (responses_ != nullptr) {
    responses_->sweep();
  }
  batches_.sweep();
}

void StoredWork::stop() {
  if (responses_ != nullptr) {
    responses_->stop();
  }
  batches_.stop();
}

}  // namespace stator::frontend
