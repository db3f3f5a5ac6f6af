// SPDX-License-Identifier: Apache-2.0
#include "stator/app/model_hosts.h"

#include <fmt/format.h>

#include <algorithm>

namespace stator::app {
namespace {

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    parts.emplace_back(part);
  }
  return parts;
}

Status check_several(const Settings& settings, size_t models, size_t names) {
  const auto refuse = [models](std::string_view what) {
    return Error(
        Code::kInvalidArgument,
        fmt::format("{}, and there are {} models: start a process for each", what, models));
  };
  if (settings.worker.engine != "cpu" && settings.worker.engine != "sim") {
    return refuse(fmt::format("--engine {} serves one model", settings.worker.engine));
  }
  if (!settings.worker.aliases.empty() || !settings.worker.cpu.lora_modules.empty() ||
      !settings.worker.cpu.lora_folder.empty()) {
    return refuse("aliases and LoRA adapters are of one model");
  }
  if (names != 0 && names != models) {
    return Error(Code::kInvalidArgument,
                 fmt::format("worker.model_name has {} names for {} models", names, models));
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<ModelHosts>> ModelHosts::open(const Invocation& invocation,
                                                     const Settings& settings, Clock& clock,
                                                     Metrics& metrics, WorkerHost::Wanted wanted) {
  auto hosts = std::unique_ptr<ModelHosts>(new ModelHosts());
  std::vector<std::string> models = invocation.positionals;
  if (models.empty()) {
    models.emplace_back();
  }
  const auto names = split(settings.worker.model_name);
  for (size_t i = 0; i < models.size(); ++i) {
    Settings& own = hosts->settings_.emplace_back(settings);
    if (models.size() > 1 && !names.empty()) {
      own.worker.model_name = names[i];
    }
    STATOR_TRY(auto host, WorkerHost::open(models[i], own, clock, metrics, wanted));
    const auto same = std::ranges::find(hosts->hosts_, host->model_name(), &WorkerHost::model_name);
    if (same != hosts->hosts_.end()) {
      return Error(Code::kInvalidArgument,
                   fmt::format("two models are called '{}': give them names, --model-name A,B",
                               host->model_name()));
    }
    hosts->hosts_.push_back(std::move(host));
  }
  return hosts;
}

std::string ModelHosts::names() const {
  std::string names;
  for (const auto& host : hosts_) {
    names += names.empty() ? "" : ",";
    names += host->model_name();
  }
  return names;
}

Status check_models(const Invocation& invocation, const Settings& settings) {
  if (const size_t models = invocation.positionals.size(); models > 1) {
    STATOR_CHECK(check_several(settings, models, split(settings.worker.model_name).size()));
  }
  for (const std::string& model : invocation.positionals) {
    STATOR_CHECK(check_model(model, settings));
  }
  return {};
}

}  // namespace stator::app
