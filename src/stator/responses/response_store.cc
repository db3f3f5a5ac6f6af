// SPDX-License-Identifier: Apache-2.0
#include "stator/responses/response_store.h"

#include <fmt/format.h>

#include <utility>

#include "stator/api/responses_request.h"
#include "stator/core/log.h"
#include "stator/json/cursor.h"
#include "stator/json/value.h"
#include "stator/json/writer.h"

namespace stator::responses {
namespace {

using api::ResponseStatus;

constexpr uint32_t kDepthMax = 256;
// Of an entry beside its texts.
constexpr size_t kEntryBytes = 256;
// A journal is written anew when it is this much longer than what it has to say.
constexpr uint64_t kWasteBytes = 16ULL << 20;
// Of a chain: a conversation of more turns does not fit any context.
constexpr size_t kChainMax = 4096;

ResponseStatus status_of(std::string_view name) {
  for (uint8_t i = 0; i <= static_cast<uint8_t>(ResponseStatus::kCancelled); ++i) {
    if (api::describe(static_cast<ResponseStatus>(i)) == name) {
      return static_cast<ResponseStatus>(i);
    }
  }
  return ResponseStatus::kFailed;
}

std::string put_record(const StoredResponse& response) {
  std::string out;
  out.reserve(response.bytes() + kEntryBytes);
  json::Writer json(out);
  json.begin_object().key("op").value("put").key("id").value(response.id);
  json.key("owner").value(response.owner).key("previous").value(response.previous_id);
  json.key("status").value(api::describe(response.status));
  json.key("expires").value(response.expires_s);
  json.key("input").raw(response.input_json.empty() ? "null" : response.input_json);
  json.key("output").raw("[" + response.output_json + "]");
  json.key("response").raw(response.response_json.empty() ? "null" : response.response_json);
  json.key("events").begin_array();
  for (const std::string& event : response.events) {
    json.raw(event);
  }
  json.end_array().end_object();
  return out;
}

std::string erase_record(std::string_view id) {
  std::string out;
  json::Writer(out).begin_object().key("op").value("erase").key("id").value(id).end_object();
  return out;
}

/// What a record says; `op` is empty for one that is none.
struct Record {
  std::string op;
  StoredResponse response;
};

void read_events(json::Cursor& json, std::vector<std::string>& events) {
  json.enter_array();
  std::string_view raw;
  while (json.next_element() && json.skip(raw)) {
    events.emplace_back(raw);
  }
}

Record read_record(std::string_view text) {
  Record record;
  json::Cursor json(text, kDepthMax);
  std::string_view key;
  std::string_view raw;
  std::string key_storage;
  std::string storage;
  json.enter_object();
  while (json.next_key(key, key_storage)) {
    std::string* into = key == "op"         ? &record.op
                        : key == "id"       ? &record.response.id
                        : key == "owner"    ? &record.response.owner
                        : key == "previous" ? &record.response.previous_id
                                            : nullptr;
    if (into != nullptr) {
      json.read_string(raw, storage);
      *into = raw;
    } else if (key == "events") {
      read_events(json, record.response.events);
    } else if (key == "status") {
      json.read_string(raw, storage);
      record.response.status = status_of(raw);
    } else {
      json.skip(raw);
      if (key == "expires") {
        record.response.expires_s = std::strtoll(std::string(raw).c_str(), nullptr, 10);
      } else if (key == "output" && raw.size() >= 2) {
        record.response.output_json = raw.substr(1, raw.size() - 2);
      } else if (key == "input" && raw != "null") {
        record.response.input_json = raw;
      } else if (key == "response" && raw != "null") {
        record.response.response_json = raw;
      }
    }
  }
  if (!json.finish()) {
    record.op.clear();
  }
  return record;
}

/// A response that was under way when its process died.
void mark_interrupted(StoredResponse& response) {
  auto object = json::parse(response.response_json);
  if (!object || !object->is_object()) {
    return;
  }
  (*object)["status"] = "failed";
  json::Value error = json::Value::object();
  error["code"] = "server_error";
  error["message"] = "the server was restarted while this response was made: ask again";
  (*object)["error"] = std::move(error);
  response.status = ResponseStatus::kFailed;
  response.response_json = json::to_text(*object);
  response.events.clear();
}

}  // namespace

void describe(ConfigSchema& schema, StoreConfig& config) {
  schema.text("responses.folder", config.folder,
              "folder where stored responses outlive the process; empty: in memory only");
  schema.integer("responses.entries_max", config.entries_max, 1, 1 << 24,
                 "stored responses; beyond, the least recently used go");
  schema.bytes("responses.bytes_max", config.bytes_max, "of all stored responses' texts");
  schema.duration("responses.keep", config.keep, "how long a response is stored");
}

size_t StoredResponse::bytes() const {
  size_t sum = kEntryBytes + id.size() + owner.size() + previous_id.size() + input_json.size() +
               output_json.size() + response_json.size();
  for (const std::string& event : events) {
    sum += event.size() + sizeof(std::string);
  }
  return sum;
}

ResponseStore::ResponseStore(StoreConfig config, Metrics& metrics)
    : config_(std::move(config)),
      entries_gauge_(metrics.gauge("stator_responses_stored", "responses that can be asked for")),
      bytes_gauge_(metrics.gauge("stator_responses_stored_bytes", "bytes of their texts")),
      evicted_(metrics.counter("stator_responses_evicted_total",
                               "responses that went for lack of room (responses.entries_max, "
                               "responses.bytes_max)")),
      write_errors_(metrics.counter("stator_responses_write_errors_total",
                                    "responses that could not be written to responses.folder")) {}

Result<std::unique_ptr<ResponseStore>> ResponseStore::open(StoreConfig config, Metrics& metrics,
                                                           int64_t now_s) {
  std::unique_ptr<ResponseStore> store(new ResponseStore(std::move(config), metrics));
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

void ResponseStore::insert(StoredResponse response) {
  remove(response.id);
  bytes_ += response.bytes();
  uses_.push_back(response.id);
  const std::string id = response.id;
  slots_.emplace(id, Slot{std::make_shared<const StoredResponse>(std::move(response)),
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
  MutexLock lock(mutex_);
  append(journal_ ? put_record(response) : std::string());
  insert(std::move(response));
  make_room();
  measure();
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
  MutexLock lock(mutex_);
  return use(id, owner, now_s);
}

Result<std::vector<ResponseStore::Entry>> ResponseStore::chain(std::string_view id,
                                                               std::string_view owner,
                                                               int64_t now_s) {
  std::vector<Entry> entries;
  MutexLock lock(mutex_);
  std::string next(id);
  while (!next.empty()) {
    Entry entry = use(next, owner, now_s);
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

bool ResponseStore::erase(std::string_view id, std::string_view owner) {
  MutexLock lock(mutex_);
  const auto known = slots_.find(id);
  if (known == slots_.end() || known->second.entry->owner != owner) {
    return false;
  }
  append(erase_record(id));
  remove(id);
  measure();
  return true;
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

void ResponseStore::tick(int64_t now_s) {
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
