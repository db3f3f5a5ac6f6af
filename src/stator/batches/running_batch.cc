// SPDX-License-Identifier: Apache-2.0
#include "stator/batches/running_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "stator/io/replace_file.h"

namespace stator::batches {

Result<std::unique_ptr<RunningBatch>> RunningBatch::open(const BatchStore& store,
                                                         const Entry& batch, uint32_t lines_max) {
  std::unique_ptr<RunningBatch> running(new RunningBatch());
  running->id_ = batch.id();
  running->endpoint_ = batch.object.text_at({"endpoint"});
  const std::string path = store.path_of(batch.object.text_at({"input_file_id"}));
  STATOR_TRY(running->input_, io::MappedFile::open(path), "reading a batch's input file");
  const auto bytes = running->input_.bytes();
  LineCheck check = check_lines({reinterpret_cast<const char*>(bytes.data()), bytes.size()},
                                running->endpoint_, lines_max);
  if (!check.errors.empty()) {
    return Error(Code::kCorrupt, fmt::format("the input file of {} has changed", running->id_));
  }
  running->lines_ = std::move(check.lines);
  running->done_.resize(running->lines_.size());
  running->attempts_.resize(running->lines_.size());
  RunningBatch* const self = running.get();
  STATOR_TRY(running->results_,
             io::Journal::open(store.results_path(self->id_), [self](std::string_view record) {
               if (auto kept = decode_kept(record)) {
                 self->count(*kept);
               }
             }));
  return running;
}

void RunningBatch::count(const KeptResult& kept) {
  if (kept.index >= done_.size() || done_[kept.index]) {
    return;
  }
  done_[kept.index] = true;
  ++(kept.good ? completed_ : failed_);
}

const BatchLine* RunningBatch::take(TimePoint now) {
  for (auto waiting = waiting_.begin(); waiting != waiting_.end(); ++waiting) {
    if (waiting->at <= now) {
      const uint32_t index = waiting->index;
      waiting_.erase(waiting);
      ++inflight_;
      return &lines_[index];
    }
  }
  while (next_ < lines_.size() && done_[next_]) {
    ++next_;
  }
  if (next_ == lines_.size()) {
    return nullptr;
  }
  ++inflight_;
  return &lines_[next_++];
}

void RunningBatch::retry(uint32_t index, TimePoint at) {
  --inflight_;
  attempts_[index] = static_cast<uint8_t>(std::min(attempts_[index] + 1, 255));
  waiting_.push_back({index, at});
}

Status RunningBatch::record(const LineResult& result) {
  inflight_ -= inflight_ > 0 ? 1 : 0;
  const KeptResult kept{result.index, result.good(), format_result(id_, result)};
  STATOR_CHECK(results_->append(encode_kept(kept)));
  count(kept);
  return {};
}

Status RunningBatch::give_up(std::string_view code, std::string_view message) {
  waiting_.clear();
  for (const BatchLine& line : lines_) {
    if (!done_[line.index]) {
      STATOR_CHECK(record({.index = line.index,
                           .custom_id = line.custom_id,
                           .request_id = {},
                           .body = {},
                           .error_code = std::string(code),
                           .error_message = std::string(message)}));
    }
  }
  next_ = lines_.size();
  return results_->sync();
}

Result<RunningBatch::Files> RunningBatch::write_files(const BatchStore& store, const Entry& batch) {
  const std::string output_path = store.path_of(batch.object.text_at({"output_file_id"}));
  const std::string error_path = store.path_of(batch.object.text_at({"error_file_id"}));
  const bool wants_output = !batch.object.text_at({"output_file_id"}).empty();
  const bool wants_errors = !batch.object.text_at({"error_file_id"}).empty();
  std::optional<io::FileReplacement> output;
  std::optional<io::FileReplacement> errors;
  if (wants_output) {
    STATOR_TRY(io::FileReplacement file, io::FileReplacement::create(output_path, 0600));
    output.emplace(std::move(file));
  }
  if (wants_errors) {
    STATOR_TRY(io::FileReplacement file, io::FileReplacement::create(error_path, 0600));
    errors.emplace(std::move(file));
  }
  Files files;
  Status written;
  std::vector<bool> seen(lines_.size());
  results_.reset();
  STATOR_TRY(results_, io::Journal::open(store.results_path(id_), [&](std::string_view record) {
               const auto kept = decode_kept(record);
               if (!kept || kept->index >= seen.size() || seen[kept->index] || !written) {
                 return;
               }
               seen[kept->index] = true;
               auto& into = kept->good ? output : errors;
               (kept->good ? files.output_bytes : files.error_bytes) += kept->line.size();
               written = into ? into->write(kept->line) : Status();
             }));
  STATOR_CHECK(std::move(written));
  if (output) {
    STATOR_CHECK(output->commit());
  }
  if (errors) {
    STATOR_CHECK(errors->commit());
  }
  return files;
}

}  // namespace stator::batches
