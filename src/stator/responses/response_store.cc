// SPDX-License-Identifier: Apache-2.0
#include "stator/responses/response_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "stator/api/responses_request.h"
#include "stator/core/log.h"
#include "stator/json/value.h"

namespace stator::responses {
namespace {

// A journal is written anew when it is this much longer than what it has to say.
constexpr uint64_t kWasteBytes = 16ULL << 20;
// Of a chain: a conversation of more turns does not fit any context.
constexpr size_t kChainMax = 4096;
// Seconds between two signs of life of a background response.
constexpr int64_t kTouchInterval = SharedFolder::kSilenceMax / 4;

}  // namespace

void describe(ConfigSchema& schema, StoreConfig& config) {
  schema.text("responses.folder", config.folder,
              "folder where stored responses outlive the process; empty: in memory only");
  schema.text("responses.shared_folder", config.shared_folder,
              "folder that several frontends keep stored responses in, so that each of them finds "
              "those of all; instead of responses.folder");
  schema.integer("responses.entries_max", config.entries_max, 1, 1 << 24,
                 "stored responses; beyond, the least recently used go");
  schema.bytes("responses.bytes_max", config.bytes_max, "of all stored responses' texts");
  schema.duration("responses.keep", config.keep, "how long a response is stored");
}

ResponseStore::ResponseStore(StoreConfig config, Metrics& metrics)
    : config_(std::move(config)),
      entries_gauge_(metrics.gauge("stator_responses_stored", "responses that can be asked for")),
      bytes_gauge_(metrics.gauge("stator_responses_stored_bytes", "bytes of their texts")),
      evicted_(metrics.counter("stator_responses_evicted_total",
                               "responses that went for lack of room (responses.entries_max, "
                               "responses.bytes_max)")),
      write_errors_(metrics.counter("stator_responses_write_errors_total",
                                    "responses that could not be written to responses.folder or "
                                    "responses.shared_folder")) {}

Result<std::unique_ptr<ResponseStore>> ResponseStore::open(StoreConfig config, Metrics& metrics,
                                                           int64_t now_s) {
  std::unique_ptr<ResponseStore> store(new ResponseStore(std::move(config), metrics));
  if (!store->config_.shared_folder.empty()) {
    if (!store->config_.folder.empty()) {
      return Error(Code::kInvalidArgument,
                   "responses.folder and responses.shared_folder are set: a frontend has one");
    }
    STATOR_TRY(store->shared_, SharedFolder::open(store->config_.shared_folder));
  }
  if (store->config_.folder.empty()) {
    return store;
  }
  MutexLock lock(store->mutex_);
  ResponseStore* const self = store.get();
  STATOR_TRY(store->journal_, io::Journal::open(self->config_.folder + "/responses.journal",
                                                [self, now_s](std::string_view record)
                                                    __attribute__((no_thread_safety_analysis)) {
                                                      self->take(record, now_s);
                                                    }));
  if (store->journal_->dropped_bytes() > 0) {
    log::warn("responses", "the end of the journal was cut off and has been dropped",
              {{"folder", self->config_.folder}, {"bytes", store->journal_->dropped_bytes()}});
  }
  store->compact();
  store->measure();
  return store;
}

ResponseStore::~ResponseStore() {
  MutexLock lock(mutex_);
  if (journal_ && unsynced_) {
    journal_->sync().ignore("the process ends; the next write-back of the system does it");
  }
}

void ResponseStore::take(std::string_view text, int64_t now_s) {
  Record record = read_record(text);
  if (record.op == "erase") {
    remove(record.response.id);
  } else if (record.op == "put" && record.response.expires_s > now_s) {
    if (!api::is_over(record.response.status)) {
      mark_interrupted(record.response);
    }
    insert(std::move(record.response));
    make_room();
  }
}

void ResponseStore::insert(StoredResponse response, SharedFolder::Stamp stamp) {
  remove(response.id);
  bytes_ += response.bytes();
  uses_.push_back(response.id);
  const std::string id = response.id;
  slots_.emplace(id, Slot{std::make_shared<const StoredResponse>(std::move(response)), stamp,
                          std::prev(uses_.end())});
}

void ResponseStore::remove(std::string_view id) {
  if (const auto known = slots_.find(id); known != slots_.end()) {
    bytes_ -= known->second.entry->bytes();
    uses_.erase(known->second.use);
    slots_.erase(known);
  }
}

void ResponseStore::make_room() {
  while (!uses_.empty() && (slots_.size() > config_.entries_max || bytes_ > config_.bytes_max)) {
    const std::string oldest = uses_.front();
    remove(oldest);
    evicted_.add();
  }
}

void ResponseStore::append(const std::string& record) {
  if (!journal_) {
    return;
  }
  if (Status written = journal_->append(record); !written) {
    write_errors_.add();
    log::error("responses", written.error().message(), {{"folder", config_.folder}});
    return;
  }
  unsynced_ = true;
}

void ResponseStore::compact() {
  if (!journal_ || journal_->bytes() < 2 * bytes_ + kWasteBytes) {
    return;
  }
  std::vector<std::string> records;
  for (const std::string& id : uses_) {
    records.push_back(put_record(*slots_.find(id)->second.entry));
  }
  if (Status written = journal_->rewrite(records); !written) {
    write_errors_.add();
    log::error("responses", written.error().message(), {{"folder", config_.folder}});
  }
}

void ResponseStore::measure() {
  entries_gauge_.set(static_cast<double>(slots_.size()));
  bytes_gauge_.set(static_cast<double>(bytes_));
}

void ResponseStore::put(StoredResponse response, int64_t now_s) {
  response.expires_s =
      now_s + std::chrono::duration_cast<std::chrono::seconds>(config_.keep).count();
  SharedFolder::Stamp stamp;
  if (shared_) {
    auto written = shared_->write(response);
    if (written) {
      stamp = *written;
    } else {
      write_errors_.add();
      log::error("responses", written.error().message(), {{"folder", config_.shared_folder}});
    }
  }
  MutexLock lock(mutex_);
  append(journal_ ? put_record(response) : std::string());
  insert(std::move(response), stamp);
  make_room();
  measure();
}

void ResponseStore::refresh(std::string_view id, int64_t now_s) {
  if (!shared_) {
    return;
  }
  const auto stamp = shared_->stamp(id);
  {
    MutexLock lock(mutex_);
    const auto known = slots_.find(id);
    const bool has_file = known != slots_.end() && known->second.stamp != SharedFolder::Stamp();
    if (has_file && !stamp) {  // another process erased it
      remove(id);
      measure();
    }
    if (!stamp || (has_file && known->second.stamp == *stamp)) {
      return;
    }
  }
  auto found = shared_->read(id, now_s);
  if (!found) {
    log::error("responses", found.error().message(), {{"folder", config_.shared_folder}});
    return;
  }
  if (*found) {
    MutexLock lock(mutex_);
    insert(std::move((*found)->response), (*found)->stamp);
    make_room();
    measure();
  }
}

ResponseStore::Entry ResponseStore::use(std::string_view id, std::string_view owner,
                                        int64_t now_s) {
  const auto known = slots_.find(id);
  if (known == slots_.end() || known->second.entry->owner != owner ||
      known->second.entry->expires_s <= now_s) {
    return nullptr;
  }
  uses_.splice(uses_.end(), uses_, known->second.use);
  return known->second.entry;
}

ResponseStore::Entry ResponseStore::find(std::string_view id, std::string_view owner,
                                         int64_t now_s) {
  refresh(id, now_s);
  MutexLock lock(mutex_);
  return use(id, owner, now_s);
}

Result<std::vector<ResponseStore::Entry>> ResponseStore::chain(std::string_view id,
                                                               std::string_view owner,
                                                               int64_t now_s) {
  std::vector<Entry> entries;
  std::string next(id);
  while (!next.empty()) {
    Entry entry = find(next, owner, now_s);
    if (entry == nullptr || entries.size() == kChainMax) {
      return Error(Code::kNotFound,
                   entries.empty()
                       ? fmt::format("Previous response with id '{}' not found.", next)
                       : fmt::format("Previous response with id '{}' not found: it came before "
                                     "'{}' and is stored no longer.",
                                     next, id));
    }
    next = entry->previous_id;
    entries.push_back(std::move(entry));
  }
  std::ranges::reverse(entries);
  return entries;
}

std::optional<std::string> ResponseStore::find_item(std::string_view item_id,
                                                    std::string_view owner, int64_t now_s) {
  const Entry entry = find(api::response_of_item(item_id), owner, now_s);
  if (entry == nullptr) {
    return std::nullopt;
  }
  const auto output = json::parse("[" + entry->output_json + "]");
  for (const json::Value& item : output ? output->elements() : json::Value::Array()) {
    if (item.text_at({"id"}) == item_id) {
      return json::to_text(item);
    }
  }
  const std::string mark = fmt::format("\"{}\"", item_id);
  for (const std::string& item : api::list_input_items(entry->input_json, entry->id)) {
    if (item.contains(mark)) {
      return item;
    }
  }
  return std::nullopt;
}

bool ResponseStore::erase(std::string_view id, std::string_view owner, int64_t now_s) {
  refresh(id, now_s);
  {
    MutexLock lock(mutex_);
    const auto known = slots_.find(id);
    if (known == slots_.end() || known->second.entry->owner != owner) {
      return false;
    }
    append(erase_record(id));
    remove(id);
    measure();
  }
  if (shared_) {
    shared_->erase(id);
  }
  return true;
}

bool ResponseStore::ask_cancel(std::string_view id) {
  return shared_ && shared_->ask_cancel(id);
}

void ResponseStore::add_live(std::shared_ptr<LiveResponse> live) {
  MutexLock lock(mutex_);
  live_.insert_or_assign(live->id(), std::move(live));
}

std::shared_ptr<LiveResponse> ResponseStore::find_live(std::string_view id,
                                                       std::string_view owner) {
  MutexLock lock(mutex_);
  const auto known = live_.find(id);
  return known == live_.end() || known->second->owner() != owner ? nullptr : known->second;
}

void ResponseStore::remove_live(std::string_view id) {
  MutexLock lock(mutex_);
  live_.erase(id);
}

void ResponseStore::tick_shared(int64_t now_s) {
  std::vector<std::shared_ptr<LiveResponse>> under_way;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, live] : live_) {
      under_way.push_back(live);
    }
  }
  const bool touches = now_s - touched_s_ >= kTouchInterval;
  touched_s_ = touches ? now_s : touched_s_;
  for (const auto& live : under_way) {
    if (touches) {
      shared_->touch(live->id());
    }
    if (shared_->take_cancel(live->id())) {
      live->cancel();
    }
  }
  // Twice a part's share: parts are not equally full.
  const int64_t keep_s = std::chrono::duration_cast<std::chrono::seconds>(config_.keep).count();
  shared_->sweep(static_cast<uint32_t>(now_s % SharedFolder::kParts), now_s - keep_s,
                 std::max<size_t>(2 * size_t{config_.entries_max} / SharedFolder::kParts, 4),
                 std::max<uint64_t>(2 * config_.bytes_max / SharedFolder::kParts, 1 << 20));
}

void ResponseStore::tick(int64_t now_s) {
  if (shared_) {
    tick_shared(now_s);
  }
  MutexLock lock(mutex_);
  // Those that are used stay at the end, so that old ones may hide behind them for a while; they
  // are not found all the same.
  while (!uses_.empty() && slots_.find(uses_.front())->second.entry->expires_s <= now_s) {
    const std::string oldest = uses_.front();
    remove(oldest);
  }
  compact();
  measure();
  if (journal_ && std::exchange(unsynced_, false)) {
    if (Status synced = journal_->sync(); !synced) {
      write_errors_.add();
      log::error("responses", synced.error().message(), {{"folder", config_.folder}});
    }
  }
}

size_t ResponseStore::size() const {
  MutexLock lock(mutex_);
  return slots_.size();
}

}  // namespace stator::responses
