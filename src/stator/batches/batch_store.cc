// SPDX-License-Identifier: Apache-2.0
#include "stator/batches/batch_store.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "stator/core/log.h"
#include "stator/io/replace_file.h"
#include "stator/json/writer.h"

namespace stator::batches {
namespace {

// Of the journal, beyond twice what it has to say.
constexpr uint64_t kWasteBytes = 1ULL << 20;
constexpr uint64_t kEntryBytes = 1024;  // about

std::string record_of(const Entry& entry) {
  std::string out;
  json::Writer json(out);
  json.begin_object().key("kind").value(entry.kind == Entry::Kind::kFile ? "file" : "batch");
  json.key("owner").value(entry.owner).key("keep").value(entry.output_keep_s);
  json.key("object").raw(json::to_text(entry.object)).end_object();
  return out;
}

}  // namespace

int64_t Entry::number(std::string_view key) const {
  const json::Value* const value = object.find(key);
  return value == nullptr ? 0 : value->as_int64().value_or(0);
}

bool is_open(const Entry& batch) {
  const std::string_view status = batch.status();
  return status == "in_progress" || status == "finalizing" || status == "cancelling";
}

Result<std::unique_ptr<BatchStore>> BatchStore::open(const BatchConfig& config, int64_t now_s) {
  std::unique_ptr<BatchStore> store(new BatchStore(config));
  std::error_code failed;
  std::filesystem::create_directories(config.folder + "/files", failed);
  if (failed) {
    return Error(Code::kIo, fmt::format("cannot create {}/files (batches.folder): {}",
                                        config.folder, failed.message()));
  }
  STATOR_TRY(store->journal_,
             io::Journal::open(config.folder + "/batches.journal",
                               [&](std::string_view record) { store->take(record); }));
  store->expire(now_s);
  STATOR_CHECK(store->compact());
  return store;
}

void BatchStore::take(std::string_view text) {
  auto record = json::parse(text);
  if (!record) {
    return;
  }
  const std::string_view kind = record->text_at({"kind"});
  if (kind == "gone") {
    remove(record->text_at({"id"}));
  } else if (const json::Value* object = record->find("object");
             object != nullptr && (kind == "file" || kind == "batch")) {
    const json::Value* keep = record->find("keep");
    insert({.kind = kind == "file" ? Entry::Kind::kFile : Entry::Kind::kBatch,
            .object = *object,
            .owner = std::string(record->text_at({"owner"})),
            .output_keep_s = keep == nullptr ? 0 : keep->as_int64().value_or(0)});
  }
}

void BatchStore::insert(Entry entry) {
  const std::string id(entry.id());
  const auto known = places_.find(id);
  if (known != places_.end()) {
    entries_.find(known->second)->second = std::move(entry);
    return;
  }
  if (entry.kind == Entry::Kind::kFile) {
    file_bytes_ += static_cast<uint64_t>(entry.number("bytes"));
    ++files_;
  }
  places_.emplace(id, ++last_place_);
  entries_.emplace(last_place_, std::move(entry));
}

bool BatchStore::remove(std::string_view id) {
  const auto known = places_.find(id);
  if (known == places_.end()) {
    return false;
  }
  const auto entry = entries_.find(known->second);
  if (entry->second.kind == Entry::Kind::kFile) {
    file_bytes_ -= static_cast<uint64_t>(entry->second.number("bytes"));
    --files_;
  }
  entries_.erase(entry);
  places_.erase(known);
  return true;
}

Status BatchStore::compact() {
  if (journal_->bytes() < 2 * kEntryBytes * entries_.size() + kWasteBytes) {
    return {};
  }
  std::vector<std::string> records;
  for (const auto& [place, entry] : entries_) {
    records.push_back(record_of(entry));
  }
  return journal_->rewrite(records);
}

Status BatchStore::write(const std::string& record) {
  STATOR_CHECK(journal_->append(record));
  return journal_->sync();
}

std::string BatchStore::make_id(std::string_view prefix) {
  return fmt::format("{}{:016x}{:08x}", prefix, random_.next(), random_.next() & 0xFFFFFFFFU);
}

std::string BatchStore::path_of(std::string_view file_id) const {
  return fmt::format("{}/files/{}", config_.folder, file_id);
}

std::string BatchStore::results_path(std::string_view batch_id) const {
  return fmt::format("{}/{}.results", config_.folder, batch_id);
}

Result<const Entry*> BatchStore::add_file(const NewFile& file, int64_t now_s) {
  if (file.content.size() > config_.file_bytes_max) {
    return Error(Code::kTooLarge,
                 fmt::format("the file has {} bytes, at most {} are taken (batches.file_bytes_max)",
                             file.content.size(), config_.file_bytes_max));
  }
  if (files_ >= config_.files_max || file_bytes_ + file.content.size() > config_.folder_bytes_max) {
    return Error(Code::kTooLarge,
                 "there is no room for more files (batches.folder_bytes_max, batches.files_max): "
                 "delete some");
  }
  const std::string id = make_id("file-");
  STATOR_CHECK(io::replace_file(path_of(id), file.content));
  STATOR_CHECK(adopt_file(id, file, file.content.size(), now_s));
  return find(id);
}

Status BatchStore::adopt_file(std::string_view id, const NewFile& file, uint64_t bytes,
                              int64_t now_s) {
  Entry entry{.kind = Entry::Kind::kFile, .object = json::Value::object(), .owner = file.owner};
  entry.object["id"] = id;
  entry.object["object"] = "file";
  entry.object["bytes"] = bytes;
  entry.object["created_at"] = now_s;
  if (file.expires_s > 0) {
    entry.object["expires_at"] = file.expires_s;
  }
  entry.object["filename"] = file.filename;
  entry.object["purpose"] = file.purpose;
  entry.object["status"] = "processed";
  entry.object["status_details"] = nullptr;
  return save(std::move(entry));
}

Status BatchStore::save(Entry entry) {
  STATOR_CHECK(write(record_of(entry)));
  insert(std::move(entry));
  forget_old_batches();
  return compact();
}

void BatchStore::forget_old_batches() {
  size_t batches = entries_.size() - files_;
  for (auto at = entries_.begin(); at != entries_.end() && batches > config_.batches_max;) {
    const Entry& entry = (at++)->second;
    if (entry.kind == Entry::Kind::kBatch && !is_open(entry)) {
      const std::string id(entry.id());
      if (erase(id)) {
        --batches;
      }
    }
  }
}

Status BatchStore::erase(std::string_view id) {
  const std::string name(id);  // `id` may be of the entry
  const Entry* const entry = find(name);
  if (entry == nullptr) {
    return {};
  }
  const bool is_file = entry->kind == Entry::Kind::kFile;
  std::string record;
  json::Writer(record).begin_object().key("kind").value("gone").key("id").value(name).end_object();
  STATOR_CHECK(write(record));
  remove(name);
  if (is_file) {
    std::error_code failed;
    std::filesystem::remove(path_of(name), failed);  // else its bytes stay; nobody finds them
  }
  return {};
}

const Entry* BatchStore::find(std::string_view id) const {
  const auto known = places_.find(id);
  return known == places_.end() ? nullptr : &entries_.find(known->second)->second;
}

const Entry* BatchStore::find(Entry::Kind kind, std::string_view id, std::string_view owner) const {
  const Entry* const entry = find(id);
  return entry == nullptr || entry->kind != kind || entry->owner != owner ? nullptr : entry;
}

std::vector<const Entry*> BatchStore::list(Entry::Kind kind) const {
  std::vector<const Entry*> found;
  for (auto at = entries_.rbegin(); at != entries_.rend(); ++at) {
    if (at->second.kind == kind) {
      found.push_back(&at->second);
    }
  }
  return found;
}

void BatchStore::expire(int64_t now_s) {
  std::vector<std::string> old;
  FlatSet<std::string> needed;
  for (const auto& [place, entry] : entries_) {
    if (entry.kind == Entry::Kind::kBatch && is_open(entry)) {
      needed.insert(std::string(entry.object.text_at({"input_file_id"})));
    }
  }
  for (const auto& [place, entry] : entries_) {
    const int64_t expires = entry.kind == Entry::Kind::kFile ? entry.number("expires_at") : 0;
    if (expires > 0 && expires <= now_s && !needed.contains(entry.id())) {
      old.emplace_back(entry.id());
    }
  }
  for (const std::string& id : old) {
    if (Status erased = erase(id); !erased) {
      log::error("batches", erased.error().message(), {{"file", id}});
    }
  }
}

}  // namespace stator::batches
