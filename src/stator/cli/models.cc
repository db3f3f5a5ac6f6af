// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <array>
#include <string>
#include <string_view>

#include "stator/app/terminal.h"
#include "stator/app/worker_host.h"
#include "stator/cli/command.h"
#include "stator/json/writer.h"
#include "stator/weights/cached_models.h"

namespace stator::cli {
namespace {

std::string shown_size(uint64_t bytes) {
  constexpr std::array<std::string_view, 5> kUnits = {"B", "KB", "MB", "GB", "TB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1000 && unit + 1 < kUnits.size(); ++unit) {
    value /= 1000;
  }
  return fmt::format("{:.{}f} {}", value, unit == 0 ? 0 : 1, kUnits[unit]);
}

Status list_models(const Invocation& invocation) {
  STATOR_TRY(const auto models, weights::list_cached_models(invocation.settings.hub));
  if (invocation.options.contains("--json")) {
    std::string out;
    json::Writer json(out);
    json.begin_object().key("cache_dir").value(invocation.settings.hub.cache_dir);
    json.key("models").begin_array();
    for (const weights::CachedModel& model : models) {
      json.begin_object().key("name").value(model.name).key("path").value(model.path);
      json.key("bytes").value(model.bytes).key("partial_bytes").value(model.partial_bytes);
      json.key("files").value(model.files).key("can_be_served").value(model.can_be_served);
      json.end_object();
    }
    json.end_array().end_object();
    print(out + "\n");
    return {};
  }
  if (models.empty()) {
    print(fmt::format("no models in {}; stator models pull ORG/NAME\n",
                      invocation.settings.hub.cache_dir));
  }
  for (const weights::CachedModel& model : models) {
    std::string_view state = "ready";
    if (!model.can_be_served) {
      state = model.partial_bytes > 0 ? "partly downloaded" : "not servable by this revision";
    }
    print(fmt::format("{:<48} {:>10}  {}\n", model.name, shown_size(model.bytes), state));
  }
  return {};
}

Status pull_model(const Invocation& invocation, const std::string& name) {
  STATOR_TRY(const std::string folder, app::resolve_model_dir(name, invocation.settings.hub));
  if (invocation.options.contains("--json")) {
    std::string out;
    json::Writer(out).begin_object().key("name").value(name).key("path").value(folder).end_object();
    print(out + "\n");
    return {};
  }
  print(folder + "\n");
  return {};
}

Status remove_model(const Invocation& invocation, const std::string& name) {
  STATOR_TRY(const uint64_t bytes, weights::remove_cached_model(name, invocation.settings.hub));
  print(fmt::format("removed {} ({})\n", name, shown_size(bytes)));
  return {};
}

}  // namespace

Status run_models(Invocation& invocation) {
  const std::vector<std::string>& words = invocation.positionals;
  const std::string action = words.empty() ? "ls" : words.front();
  if (action == "ls" && words.size() <= 1) {
    return list_models(invocation);
  }
  if ((action == "pull" || action == "rm") && words.size() == 2) {
    return action == "pull" ? pull_model(invocation, words[1]) : remove_model(invocation, words[1]);
  }
  if ((action == "share" || action == "fetch") && words.size() == 2) {
    return action == "share" ? share_model(invocation, words[1])
                             : fetch_model(invocation, words[1]);
  }
  return Error(
      Code::kInvalidArgument,
      "say `stator models ls`, `stator models pull ORG/NAME`, `stator models rm ORG/NAME`, `stator "
      "models share FOLDER` or `stator models fetch NAME`");
}

}  // namespace stator::cli
