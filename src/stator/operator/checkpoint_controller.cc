// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>

#include "stator/core/log.h"
#include "stator/kube/child_writer.h"
#include "stator/kube/informer.h"
#include "stator/kube/lease.h"
#include "stator/kube/work_queue.h"
#include "stator/net/thread.h"
#include "stator/operator/checkpoint.h"
#include "stator/operator/names.h"

namespace stator::op {
namespace {

using json::Value;
using namespace std::chrono_literals;

constexpr Duration kAgain = 30s;

class CheckpointService final : public CheckpointController {
 public:
  CheckpointService(kube::Client& client, CheckpointOptions options, Clock& clock)
      : client_(client),
        options_(std::move(options)),
        clock_(clock),
        writer_(client, "stator-operator"),
        queue_(clock) {
    watch("DynamoCheckpoint", "");
    watch("Job", kLabelSnapshotOwner);
    watch("Pod", kLabelSnapshotSource);
    watch("PodSnapshot", kLabelSnapshotOwner);
    started_.store(true);
    thread_ = net::Thread("checkpoints", [this] { work(); });
  }

  ~CheckpointService() override {
    queue_.stop();
    thread_.join();
    informers_.clear();
  }

 private:
  static std::string key_of(const Value& object) {
    const kube::ObjectName name = kube::name_of(object);
    return object.text_at({"kind"}) == "DynamoCheckpoint"
               ? fmt::format("{}/{}", name.space, label_value(name.name))
               : fmt::format("{}/{}", name.space, kube::label_of(object, kLabelSnapshotOwner));
  }

  void watch(std::string_view kind, std::string_view labels) {
    kube::Informer::Options options;
    options.selection = {.space = options_.space, .labels = std::string(labels), .fields = {}};
    options.index_key = key_of;
    options.on_change = [this](const Value* before, const Value* after) {
      const Value& object = after == nullptr ? *before : *after;
      if (!options_.wanted || options_.wanted(kube::name_of(object).space)) {
        queue_.add(key_of(object));
      }
    };
    informers_.emplace(kind, std::make_unique<kube::Informer>(client_, kube::resource_of(kind),
                                                              std::move(options)));
  }

  std::optional<Value> first(std::string_view kind, const std::string& key) const {
    std::vector<Value> found = informers_.at(kind)->find_indexed(key);
    return found.empty() ? std::nullopt : std::optional(std::move(found.front()));
  }

  void work() {
    while (const auto key = queue_.take()) {
      const bool ready = started_.load() && std::ranges::all_of(informers_, [](const auto& each) {
                           return each.second->is_synced();
                         });
      if (!ready) {
        queue_.done(*key, true);
        queue_.add_after(*key, 200ms);
        continue;
      }
      const Status done = reconcile(*key);
      if (!done && done.error().code() != Code::kCancelled) {
        log::warn("checkpoints", done.error().message(), {{"checkpoint", *key}});
      }
      queue_.done(*key, done.has_value() || done.error().code() == Code::kInvalidArgument);
    }
  }

  Status reconcile(const std::string& key) {
    auto checkpoint = first("DynamoCheckpoint", key);
    if (!checkpoint) {
      return {};
    }
    CheckpointView view{.checkpoint = std::move(*checkpoint),
                        .job = first("Job", key),
                        .pod = first("Pod", key),
                        .snapshot = first("PodSnapshot", key),
                        .has_agent = informers_.at("PodSnapshot")->is_served(),
                        .now = kube::rfc3339(clock_.wall_now())};
    const Plan plan = plan_checkpoint(view);
    if (!view.has_agent) {
      queue_.add_after(key, kAgain);  // it may be installed any time
    }
    for (const Value& child : plan.create) {
      const auto made = client_.create(kube::resource_of(child.text_at({"kind"})), child);
      if (!made && made.error().code() != Code::kAlreadyExists) {
        return made.error().clone();
      }
    }
    for (const Removal& removal : plan.remove) {
      STATOR_CHECK(client_.remove(removal.resource, removal.name, removal.uid));
    }
    const Value* before = view.checkpoint.find("status");
    if (!plan.status.is_null() && (before == nullptr || !kube::same(*before, plan.status))) {
      STATOR_CHECK(writer_.write_status(view.checkpoint, plan.status));
      for (const PlannedEvent& event : plan.events) {
        client_
            .create(kube::resource_of("Event"),
                    kube::make_event(view.checkpoint, event, options_.holder,
                                     kube::rfc3339_micro(clock_.wall_now())))
            .ignore("an event is told once, or not");
      }
    }
    return {};
  }

  kube::Client& client_;
  CheckpointOptions options_;
  Clock& clock_;
  kube::ChildWriter writer_;
  kube::WorkQueue queue_;
  std::atomic<bool> started_{false};
  std::map<std::string_view, std::unique_ptr<kube::Informer>> informers_;
  net::Thread thread_;
};

}  // namespace

std::unique_ptr<CheckpointController> start_checkpoint_controller(kube::Client& client,
                                                                  CheckpointOptions options,
                                                                  Clock& clock) {
  return std::make_unique<CheckpointService>(client, std::move(options), clock);
}

}  // namespace stator::op
