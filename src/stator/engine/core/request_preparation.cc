// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/core/request_preparation.h"

#include <fmt/format.h>

#include <string>
#include <utility>

namespace stator::engine {

void RequestPreparation::begin(PreparedRequest request) {
  if (loader_.needs(request.request.lora_name)) {
    load(std::move(request));
  } else {
    compile(std::move(request));
  }
}

void RequestPreparation::load(PreparedRequest request) {
  std::string name = request.request.lora_name;
  auto shared = std::make_shared<PreparedRequest>(std::move(request));  // std::function copies
  loader_.load(std::move(name), [this, shared](std::shared_ptr<const Adapter> adapter) {
    if (adapter == nullptr) {
      shared->grammar = Error(Code::kNotFound, fmt::format("adapter '{}' is not loaded here",
                                                           shared->request.lora_name));
    }
    shared->adapter = std::move(adapter);
    if (shared->grammar && wants_grammar(shared->request)) {
      compile(std::move(*shared));
    } else {
      done_(std::move(*shared));
    }
  });
}

void RequestPreparation::compile(PreparedRequest request) {
  std::string text = request.request.structured_outputs;
  auto shared = std::make_shared<PreparedRequest>(std::move(request));  // std::function copies
  grammars_->compile(std::move(text),
                     [this, shared](Result<std::shared_ptr<guided::Grammar>> grammar) {
                       shared->grammar = std::move(grammar);
                       done_(std::move(*shared));
                     });
}

void RequestPreparation::stop() {
  loader_.stop();
  if (grammars_ != nullptr) {
    grammars_->stop();
  }
}

}  // namespace stator::engine
