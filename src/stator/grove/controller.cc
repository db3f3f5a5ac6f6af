// SPDX-License-Identifier: Apache-2.0
#include "stator/grove/controller.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <vector>

#include "stator/core/log.h"
#include "stator/grove/gang_schedule.h"
#include "stator/grove/names.h"
#include "stator/grove/set_plan.h"
#include "stator/kube/child_writer.h"
#include "stator/kube/informer.h"
#include "stator/kube/lease.h"
#include "stator/kube/work_queue.h"
#include "stator/net/thread.h"

namespace stator::grove {
namespace {

using json::Value;
using namespace std::chrono_literals;

/// Changes come in crowds: one look at the cluster for all of them.
constexpr Duration kGather = 50ms;
/// Gangs that found no room are looked at again at least so often.
constexpr Duration kLookAgain = 30s;
constexpr Duration kAssumedMax = 60s;

void keep_only(Value& object, std::initializer_list<std::string_view> keys) {
  if (object.is_object()) {
    Value kept = Value::object();
    for (const std::string_view key : keys) {
      if (const Value* value = object.find(key)) {
        kept[key] = *value;
      }
    }
    object = std::move(kept);
  }
}

/// Of a pod, what plan_set() and schedule_gangs() look at.
void trim_pod(Value& pod) {
  if (Value* metadata = pod.find("metadata")) {
    keep_only(*metadata, {"name", "namespace", "uid", "resourceVersion", "labels", "annotations",
                          "creationTimestamp", "deletionTimestamp"});
    if (Value* annotations = metadata->find("annotations")) {
      keep_only(*annotations, {kStartsAfter});
    }
  }
  if (Value* spec = pod.find("spec")) {
    keep_only(*spec, {"nodeName", "schedulingGates", "affinity", "nodeSelector", "tolerations",
                      "priority", "schedulerName", "containers", "initContainers", "overhead"});
    for (const std::string_view key : {"containers", "initContainers"}) {
      if (Value* containers = spec->find(key); containers != nullptr && containers->is_array()) {
        for (Value& container : *containers->mutable_elements()) {
          keep_only(container, {"name", "resources"});
        }
      }
    }
  }
  if (Value* status = pod.find("status")) {
    keep_only(*status, {"phase", "conditions", "containerStatuses"});
  }
}

void trim_node(Value& node) {
  if (Value* status = node.find("status")) {
    keep_only(*status, {"allocatable", "conditions"});
    if (Value* conditions = status->find("conditions"); conditions != nullptr) {
      for (Value& condition : *conditions->mutable_elements()) {
        keep_only(condition, {"type", "status"});  // not when it was last heard of
      }
    }
  }
}

bool set_shares_claims(const Value& set) {
  const Value& pods = set.at("spec").at("template");
  const auto shares = [](const Value& owner) { return owner.at("resourceSharing").size() > 0; };
  return shares(pods) || std::ranges::any_of(pods.at("cliques").elements(), shares) ||
         std::ranges::any_of(pods.at("podCliqueScalingGroups").elements(), shares);
}

class GangService final : public GangController {
 public:
  GangService(kube::Client& client, GangOptions options, Clock& clock, Metrics& metrics)
      : client_(client),
        options_(std::move(options)),
        clock_(clock),
        writer_(client, "stator-operator"),
        queue_(clock),
        placed_(metrics.counter("stator_gang_placed_total", "Gangs that got all their nodes")),
        resets_(metrics.counter("stator_gang_reset_total",
                                "Pods of gangs that lost their room before they were bound")),
        waiting_(metrics.gauge("stator_gang_waiting", "Gangs that find no room at present")),
        seconds_(metrics.gauge("stator_gang_schedule_seconds", "Time of the last placement")) {
    metrics.gauge_callback("stator_gang_queue_depth", "Sets that wait for reconciliation", {},
                           [this] { return static_cast<double>(queue_.size()); });
    watch("PodCliqueSet");
    watch("PodClique");
    watch("PodCliqueScalingGroup");
    watch("PodGang");
    watch("ClusterTopologyBinding");
    watch("Pod");
    watch("Node");
    watch("ResourceClaim");
    watch("ResourceClaimTemplate");
    started_.store(true);
    for (uint32_t i = 0; i < options_.threads; ++i) {
      workers_.emplace_back(fmt::format("gangs-{}", i), [this] { work(); });
    }
    scheduler_ = net::Thread("gang-scheduler", [this] { schedule_until_stopped(); });
  }

  ~GangService() override {
    {
      const std::lock_guard lock(wake_mutex_);
      stopping_ = true;
      wake_.notify_all();
    }
    queue_.stop();
    workers_.clear();
    scheduler_.join();
    informers_.clear();
  }

 private:
  static std::string set_key(const Value& object) {
    const std::string_view kind = object.text_at({"kind"});
    const kube::ObjectName name = kube::name_of(object);
    if (kind == "PodCliqueSet") {
      return name.space + "/" + name.name;
    }
    const std::string_view part_of = kube::label_of(object, kPartOf);
    const bool is_ours = kube::label_of(object, kManagedBy) == kManager && !part_of.empty();
    return is_ours ? fmt::format("{}/{}", name.space, part_of) : std::string();
  }

  void watch(std::string_view kind) {
    kube::Informer::Options options;
    const bool is_of_cluster = kind == "Node" || kind == "ClusterTopologyBinding" || kind == "Pod";
    options.selection.space = is_of_cluster ? "" : options_.space;
    if (kind == "ResourceClaim") {  // most claims of a cluster are of pods, not ours
      options.selection.labels = fmt::format("{}={}", kManagedBy, kManager);
    }
    if (kind == "Pod") {
      options.trim = trim_pod;
    } else if (kind == "Node") {
      options.trim = trim_node;
    }
    options.index_key = set_key;
    options.on_change = [this, kind](const Value* before, const Value* after) {
      on_change(kind, after == nullptr ? *before : *after);
    };
    informers_.emplace(kind, std::make_unique<kube::Informer>(client_, kube::resource_of(kind),
                                                              std::move(options)));
  }

  void on_change(std::string_view kind, const Value& object) {
    if (kind == "ClusterTopologyBinding") {
      for_all_sets();
    } else if (kind == "ResourceClaimTemplate") {
      for_all_sets();  // one of them may have waited for it
    } else if (kind != "Node") {
      const std::string key = set_key(object);
      const std::string_view space = std::string_view(key).substr(0, key.find('/'));
      if (!key.empty() && (!options_.wanted || options_.wanted(space)) &&
          (options_.space.empty() || options_.space == space)) {
        queue_.add(key);
      }
    }
    if (kind == "Pod" || kind == "PodGang" || kind == "Node") {
      const std::lock_guard lock(wake_mutex_);
      changed_ = true;
      wake_.notify_all();
    }
  }

  void for_all_sets() {
    if (!started_.load()) {
      return;  // each set is queued when it is first seen
    }
    for (const Value& set :
         informers_.at("PodCliqueSet")->find(options_.space, [](const Value&) { return true; })) {
      queue_.add(set_key(set));
    }
  }

  bool is_synced() const {
    // Devices are optional, and older rights do not have them: nothing waits for these copies.
    return started_.load() && std::ranges::all_of(informers_, [](const auto& each) {
             return each.second->is_synced() || each.first.starts_with("ResourceClaim");
           });
  }

  // ------------------------------------------------------------------------------------ sets

  void work() {
    while (const auto key = queue_.take()) {
      if (!is_synced()) {
        queue_.done(*key, true);
        queue_.add_after(*key, 100ms);
        continue;
      }
      const Status done = reconcile(*key);
      if (!done && done.error().code() != Code::kCancelled) {
        log::warn("gangs", done.error().message(), {{"set", *key}});
      }
      queue_.done(*key, done.has_value() || done.error().code() == Code::kInvalidArgument);
    }
  }

  Status reconcile(const std::string& key) {
    const size_t slash = key.find('/');
    const kube::ObjectName name{key.substr(0, slash), key.substr(slash + 1)};
    auto set = informers_.at("PodCliqueSet")->get(name);
    if (!set) {
      return {};
    }
    SetView view{.set = std::move(*set), .now = clock_.wall_now()};
    view.cliques = informers_.at("PodClique")->find_indexed(key);
    view.groups = informers_.at("PodCliqueScalingGroup")->find_indexed(key);
    view.gangs = informers_.at("PodGang")->find_indexed(key);
    view.pods = informers_.at("Pod")->find_indexed(key);
    view.topologies =
        informers_.at("ClusterTopologyBinding")->find("", [](const Value&) { return true; });
    view.claims = informers_.at("ResourceClaim")->find_indexed(key);
    if (set_shares_claims(view.set)) {
      view.claim_templates =
          informers_.at("ResourceClaimTemplate")->find("", [](const Value&) { return true; });
    }
    view.has_kai = options_.has_kai && options_.has_kai();
    view.has_volcano = options_.has_volcano && options_.has_volcano();
    const SetPlan plan = plan_set(view);
    if (plan.again > Duration::zero()) {
      queue_.add_after(key, plan.again + 1s);
    }
    return carry_out(view.set, plan);
  }

  Status carry_out(const Value& set, const SetPlan& plan) {
    Status failed;
    const auto note = [&](const Status& done) {
      if (!done && failed) {
        failed = done.error().clone();  // one broken child holds up no other
      }
    };
    for (const Value& child : plan.apply) {
      std::vector<std::string> ignored;
      const auto copies = informers_.find(child.text_at({"kind"}));
      note(writer_.apply(child, copies == informers_.end() ? nullptr : copies->second.get(),
                         &ignored));
      for (const std::string& field : ignored) {
        tell(set, {true, "FieldIgnored", fmt::format("{} is unknown to this cluster", field)});
      }
    }
    for (const Value& pod : plan.create) {
      const auto made = client_.create(kube::resource_of("Pod"), pod);
      if (!made && made.error().code() != Code::kAlreadyExists) {
        note(made.error().clone());
        tell(set, {true, "PodRefused", made.error().message()});
        break;  // the others are as bad
      }
    }
    for (const PodRemoval& removal : plan.remove_pods) {
      const Status removed = client_.remove(kube::resource_of("Pod"), removal.name, removal.uid);
      if (!removed && removed.error().code() != Code::kAlreadyExists) {
        note(removed);
      }
    }
    for (const auto& [resource, name] : plan.remove) {
      note(client_.remove(resource, name));
    }
    for (const auto& [object, status] : plan.statuses) {
      note(writer_.write_status(object, status));
    }
    for (const kube::Happening& happening : plan.events) {
      tell(set, happening);
    }
    return failed;
  }

  void tell(const Value& object, const kube::Happening& happening) {
    const Value event = kube::make_event(object, happening, options_.holder,
                                         kube::rfc3339_micro(clock_.wall_now()));
    client_.create(kube::resource_of("Event"), event).ignore("an event is told once, or not");
  }

  // ----------------------------------------------------------------------------------- gangs

  void schedule_until_stopped() {
    Duration rest = kGather;
    while (true) {
      {
        std::unique_lock lock(wake_mutex_);
        wake_.wait_for(lock, kLookAgain, [&] { return changed_ || stopping_; });
        if (!stopping_) {
          // What else changes meanwhile is seen in the same look.
          wake_.wait_for(lock, rest, [&] { return stopping_; });
        }
        if (stopping_) {
          return;
        }
        changed_ = false;
      }
      if (!is_synced()) {
        const std::lock_guard lock(wake_mutex_);
        changed_ = true;
        continue;
      }
      const TimePoint begin = clock_.now();
      schedule();
      const Duration took = clock_.now() - begin;
      seconds_.set(std::chrono::duration<double>(took).count());
      rest = std::clamp<Duration>(took, kGather, 2s);  // at most half of the time
    }
  }

  void schedule() {
    if (informers_.at("PodGang")->size() == 0) {
      return;  // pods and nodes are of others alone
    }
    const auto all = [](const Value&) { return true; };
    ScheduleView view{.nodes = informers_.at("Node")->find("", all),
                      .pods = informers_.at("Pod")->find("", all),
                      .gangs = informers_.at("PodGang")->find(options_.space, all),
                      .topologies = informers_.at("ClusterTopologyBinding")->find("", all),
                      .now = clock_.wall_now()};
    if (view.gangs.empty()) {
      return;
    }
    if (options_.wanted) {
      std::erase_if(view.gangs,
                    [&](const Value& gang) { return !options_.wanted(kube::name_of(gang).space); });
    }
    forget_assumed(view);
    const Schedule schedule = schedule_gangs(view);
    placed_.add(schedule.placed);
    waiting_.set(static_cast<double>(schedule.waiting.size()));
    for (const auto& [gang, why] : schedule.waiting) {
      if (told_[gang] != why) {
        told_[gang] = why;
        log::info("gangs", "a gang waits", {{"gang", gang.to_string()}, {"why", why}});
      }
    }
    std::erase_if(told_, [&](const auto& each) { return !schedule.waiting.contains(each.first); });
    for (const Release& release : schedule.releases) {
      let_go(release);
    }
    for (const Value* pod : schedule.resets) {
      resets_.add();
      client_.remove(kube::resource_of("Pod"), kube::name_of(*pod), kube::uid_of(*pod))
          .ignore("the next look finds what is still there");
    }
    for (const auto& [gang, score] : schedule.scores) {
      Value patch = Value::object();
      patch["status"]["placementScore"] = score;
      client_.merge_patch(kube::resource_of("PodGang"), gang, patch, "status")
          .ignore("a figure for people");
    }
  }

  /// Choices that the copy shows by now, or that never came to be.
  void forget_assumed(ScheduleView& view) {
    std::map<std::string, bool> open;
    for (const Value& pod : view.pods) {
      open[std::string(kube::uid_of(pod))] = node_of(pod).empty();
    }
    std::erase_if(assumed_, [&](const auto& each) {
      const auto pod = open.find(each.first);
      return pod == open.end() || !pod->second || clock_.now() - each.second.at > kAssumedMax;
    });
    for (const auto& [uid, assumed] : assumed_) {
      view.assumed.emplace(uid, assumed.node);
    }
  }

  void let_go(const Release& release) {
    const kube::ObjectName name = kube::name_of(*release.pod);
    const auto patched =
        client_.merge_patch(kube::resource_of("Pod"), name, release_patch(release));
    if (!patched) {
      const bool is_race = patched.error().code() == Code::kAlreadyExists ||
                           patched.error().code() == Code::kNotFound ||
                           patched.error().code() == Code::kCancelled;
      if (!is_race) {
        log::warn("gangs", patched.error().message(), {{"pod", name.to_string()}});
      }
      const std::lock_guard lock(wake_mutex_);
      changed_ = true;
      return;
    }
    if (!release.node.empty()) {
      assumed_[std::string(kube::uid_of(*release.pod))] = {release.node, clock_.now()};
    }
  }

  struct Assumed {
    std::string node;
    TimePoint at{};
  };

  kube::Client& client_;
  GangOptions options_;
  Clock& clock_;
  kube::ChildWriter writer_;
  kube::WorkQueue queue_;
  Counter placed_;
  Counter resets_;
  Gauge waiting_;
  Gauge seconds_;
  std::atomic<bool> started_{false};
  std::mutex wake_mutex_;
  std::condition_variable wake_;
  bool changed_ = false;
  bool stopping_ = false;
  std::map<std::string, Assumed> assumed_;        ///< of the scheduler's thread, by uid
  std::map<kube::ObjectName, std::string> told_;  ///< of the scheduler's thread
  std::map<std::string_view, std::unique_ptr<kube::Informer>> informers_;
  std::vector<net::Thread> workers_;
  net::Thread scheduler_;
};

}  // namespace

std::unique_ptr<GangController> start_gang_controller(kube::Client& client, GangOptions options,
                                                      Clock& clock, Metrics& metrics) {
  return std::make_unique<GangService>(client, std::move(options), clock, metrics);
}

}  // namespace stator::grove
