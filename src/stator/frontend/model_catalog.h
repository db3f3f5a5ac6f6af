// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/flat_map.h"
#include "stator/core/metrics.h"
#include "stator/core/mutex.h"
#include "stator/discovery/instance_record.h"
#include "stator/frontend/event_lines.h"
#include "stator/frontend/model_assets.h"
#include "stator/frontend/model_parsers.h"
#include "stator/inference/pool.h"
#include "stator/kv_events/event_follower.h"
#include "stator/net/thread.h"
#include "stator/router/prefill_router_service.h"
#include "stator/router/router_service.h"

#include <condition_variable>

namespace stator::frontend {

/// One model as clients see it: its texts, its router, its limits. Shared by all shards; made when
/// the first worker of the model appears and kept until the process ends.
struct ServedModel {
  std::string name;
  int64_t created_s = 0;  ///< when it was first registered
  uint32_t context_length = 0;
  uint32_t block_size = 16;
  uint32_t vocab_size = 0;
  std::vector<TokenId> eos_token_ids;
  bool structured_output = false;     ///< its workers can be given a grammar
  bool structured_replay = false;     ///< and take one up within an answer
  bool prompt_logprobs = false;       ///< they tell how likely a prompt's tokens are
  bool token_filters = false;         ///< they follow allowed_token_ids and bad_words
  std::string default_thinking_mode;  ///< of chats that do not say; empty: the template's
  inference::MediaKinds media;        ///< what they can be given beside text
  bool media_in_text = false;         ///< they want to know where in the prompt's text
  inference::PoolAbility pool;        ///< what they can do beside, or instead of, generating
  ModelParsers parsers;
  std::shared_ptr<const ModelAssets> assets;      // shared with requests that outlive a reload
  std::shared_ptr<router::RouterService> router;  // shared with tickets of its queue
  /// Those who only compute prompts; `router` has the others.
  std::shared_ptr<router::PrefillRouterService> prefill;  // null: no such workers, ever
  std::atomic<uint32_t> whole_workers{0};  ///< of `router`: those who compute prompts, too,
  std::atomic<uint32_t> split_workers{0};  ///< and those who need somebody for it

  /// Whether a request can be answered now, going by who is there.
  bool ready() const;
};

/// What a name in a request means: a model, or one of its LoRA adapters.
struct NamedModel {
  std::shared_ptr<ServedModel> model;  ///< null: unknown
  std::string adapter;                 ///< empty: the model itself
};

/// What a worker has to have to be given requests for an adapter.
std::string adapter_taint(std::string_view adapter);

/// Where a catalog finds what a model card only names.
struct ModelSources {
  /// Turns a card's model_path (folder or hub name) into a local folder. Runs on the loader thread.
  std::function<Result<std::string>(const std::string& model_path)> resolve_path;
  /// Reads that folder; the card's template, if any, in place of the folder's. Runs on the loader
  /// thread.
  std::function<Result<std::shared_ptr<const ModelAssets>>(const std::string& dir,
                                                           const std::string& chat_template)>
      load_assets = load_model_assets;
  /// Whom a model's router tells its bookings; empty: nobody.
  std::function<std::shared_ptr<router::LoadAnnouncer>(const std::string& model)> announcer{};
  /// Whom a model's router asks first; null: nobody.
  std::shared_ptr<router::Advisor> advisor{};  // shared by the models' routers
  /// Formats of output; null: the built-in ones.
  std::shared_ptr<const parsers::FamilyRegistry> families;  // shared with who lists them
  /// Gives a model that was just made what is known from before; null: nothing is. Runs on the
  /// loader thread.
  std::function<void(const ServedModel& model)> restore_index = nullptr;
};

/// The models of this process and which worker serves which. Thread-safe.
///
/// A worker whose model is new has its folder read on the catalog's own thread, so a shard never
/// blocks; the model is listed once that succeeded. A worker whose checksum differs from the
/// model's is kept out of rotation and logged, not mixed in.
class ModelCatalog final : public kv_events::KvEventsListener {
 public:
  ModelCatalog(router::RouterConfig config, ModelSources sources, const Clock& clock,
               Metrics& metrics, router::ReceiptLog& receipts);
  ModelCatalog(const ModelCatalog&) = delete;
  ModelCatalog& operator=(const ModelCatalog&) = delete;
  ~ModelCatalog() override;

  /// Reads the assets now, on the caller's thread: for start-up, where a bad folder must stop it.
  Status preload(const discovery::ModelCard& card);

  void add_worker(const discovery::InstanceRecord& record);
  void set_draining(WorkerId worker);
  /// Its engine does not answer: it gets nothing new until add_worker says that it is ready again.
  void set_engine_lost(WorkerId worker);
  /// It gets nothing new until this is taken back; not for draining ones.
  void set_suspended(WorkerId worker, bool suspended);
  void remove_worker(WorkerId worker);

  /// By its name, not an alias; null when unknown.
  std::shared_ptr<ServedModel> find(std::string_view name) const;
  /// A model's name, an alias of one, an adapter's, or "model:adapter" where two models have one of
  /// that name. A model goes before an adapter; a bare adapter is that of the model that had it
  /// first.
  NamedModel resolve(std::string_view name) const;
  /// Adapters that a worker has loaded now, sorted by name; each once.
  std::vector<NamedModel> list_adapters() const;
  /// Further names of models that are ready, sorted; each once. None that a model has itself.
  std::vector<std::pair<std::string, std::shared_ptr<ServedModel>>> list_aliases() const;
  /// With at least one worker, sorted by name.
  std::vector<std::shared_ptr<ServedModel>> list_ready() const;
  /// Whether some model has a worker that may be given new work: none that drains, is suspended or
  /// has an engine that does not answer.
  bool takes_work() const;
  /// Whether or not they have workers, sorted by name.
  std::vector<std::shared_ptr<ServedModel>> list_all() const;
  enum class Standing : uint8_t { kReady, kEngineLost, kDraining, kSuspended };
  struct Instance {
    std::string model;
    WorkerId worker;
    std::string place;  ///< URL of its engine server, else its own address
    std::string space;  ///< the namespace it joined
    inference::WorkerRole role = inference::WorkerRole::kAggregated;
    bool runs_whole = true;  ///< it computes prompts and answers
    Standing standing = Standing::kReady;
  };
  /// Sorted by worker.
  std::vector<Instance> instances() const;
  /// Where a worker is, or was: see Instance::place. Empty for one that was never here, or long
  /// ago.
  std::string place_of(WorkerId worker) const;
  /// What another frontend booked at a worker of ours; none while it is not known here.
  std::optional<router::LoadLease> book_for_replica(const router::ReplicaBooking& booking) const;
  /// Gives every model's queue a look at the time; see RouterService::tick.
  void tick();
  /// Sum of live leases over all models; 0 when idle.
  int64_t active_requests() const;
  /// Sum of requests in the models' queues.
  size_t waiting_requests() const;

  // KV events of any worker go to its model's router.
  void on_snapshot(WorkerId worker, std::vector<kv::KvEvent> blocks) override;
  void on_events(WorkerId worker, std::vector<kv::KvEvent> events) override;

 private:
  Result<std::shared_ptr<ServedModel>> make_model(const discovery::ModelCard& card);
  /// What this catalog knows of one worker.
  struct Enrolled {
    std::shared_ptr<ServedModel> model;
    inference::HandoffAbility ability;
    std::vector<std::string> adapters;
    std::vector<std::string> aliases;
    std::string space;  ///< the namespace it joined
    Standing standing = Standing::kReady;
    bool suspended = false;

    router::RouterService& router() const;
  };
  static void count(const Enrolled& worker, int change);
  void enroll(const discovery::InstanceRecord& record, const std::shared_ptr<ServedModel>& model)
      STATOR_REQUIRES(mutex_);
  /// Keeps adapters_ in step with a worker that comes (+1) or goes (-1).
  void count_adapters(const Enrolled& worker, int change) STATOR_REQUIRES(mutex_);
  /// The same for its aliases: one that two models have is that of the model that had it first.
  void count_aliases(const Enrolled& worker, int change) STATOR_REQUIRES(mutex_);
  /// Tells the metrics which adapters came and went.
  void show_adapters(const std::vector<std::string>& before, const std::vector<std::string>& after)
      STATOR_REQUIRES(mutex_);
  void log_change(std::string_view what, WorkerId worker, const Enrolled& enrolled)
      STATOR_REQUIRES(mutex_);
  /// Notes it, with a line of log if it is news; the worker's router, unless it is unknown.
  std::optional<Enrolled> set_standing(WorkerId worker, Standing standing, std::string_view what);
  std::optional<Enrolled> find_worker(WorkerId worker) const;
  /// The worker whose router wants these events; none when they are kept for later or for nobody.
  /// The index for an enrolled worker's events, alive with its model; else keeps them for later,
  /// perhaps.
  std::shared_ptr<router::IndexService> take_in(WorkerId worker, std::vector<kv::KvEvent>& events);
  void load_loop();

  const router::RouterConfig router_config_;
  const ModelSources sources_;
  const Clock& clock_;
  Metrics& metrics_;
  router::ReceiptLog& receipts_;
  Counter load_failures_;
  Counter mismatches_;

  mutable Mutex mutex_;
  std::condition_variable_any wake_;
  bool stopping_ STATOR_GUARDED_BY(mutex_) = false;
  FlatMap<std::string, std::shared_ptr<ServedModel>> models_ STATOR_GUARDED_BY(mutex_);
  FlatMap<WorkerId, Enrolled> workers_ STATOR_GUARDED_BY(mutex_);
  FlatMap<WorkerId, std::string> places_ STATOR_GUARDED_BY(mutex_);  // bounded by kPlacesMax
  LineBudget log_budget_ STATOR_GUARDED_BY(mutex_);
  struct Adapter {
    NamedModel named;
    uint32_t workers = 0;
  };
  struct Alias {
    std::shared_ptr<ServedModel> model;
    uint32_t workers = 0;
  };
  FlatMap<std::string, Alias> aliases_ STATOR_GUARDED_BY(mutex_);
  /// By "model:adapter", and by the bare name.
  FlatMap<std::string, Adapter> adapters_ STATOR_GUARDED_BY(mutex_);
  std::deque<discovery::InstanceRecord> to_load_
      STATOR_GUARDED_BY(mutex_);  // bounded by live workers
  /// What workers tell whose model is still being loaded, bounded in blocks.
  struct Early {
    std::vector<kv::KvEvent> events;
    size_t blocks = 0;
  };
  FlatMap<WorkerId, Early> early_ STATOR_GUARDED_BY(mutex_);
  net::Thread loader_;
};

}  // namespace stator::frontend
