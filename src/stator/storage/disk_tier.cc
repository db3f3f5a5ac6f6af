// SPDX-License-Identifier: Apache-2.0
#include "stator/storage/disk_tier.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

#include "stator/core/assert.h"
#include "stator/core/crc32c.h"
#include "stator/core/log.h"
#include "stator/io/io_error.h"
#include "stator/io/read_file.h"
#include "stator/io/replace_file.h"
#include "stator/storage/aligned_buffer.h"

namespace stator::storage {
namespace {

constexpr std::string_view kMagic = "STKVG3S1";
constexpr uint32_t kFormat = 1;
constexpr uint64_t kPage = 4096;
/// A write budget that was not used collects for this long.
constexpr double kBudgetSecondsMax = 3600;
constexpr double kDaySeconds = 86'400;
/// Reads of one io_uring that are under way at once.
constexpr uint32_t kRingDepth = 32;

struct Super {
  char magic[8];
  uint32_t crc;  // of what follows
  uint32_t format;
  std::array<std::byte, 16> space;
  uint64_t block_bytes;
  uint32_t block_tokens;
  uint32_t slots;
};
static_assert(sizeof(Super) == 48);

uint32_t crc_of(const Super& super) {
  return crc32c(std::as_bytes(std::span(&super, 1)).subspan(offsetof(Super, format)));
}

Status write_super(const DiskTierOptions& options, uint32_t slots) {
  Super super{.magic = {},
              .crc = 0,
              .format = kFormat,
              .space = options.space,
              .block_bytes = options.block_bytes,
              .block_tokens = options.block_tokens,
              .slots = slots};
  std::memcpy(super.magic, kMagic.data(), kMagic.size());
  super.crc = crc_of(super);
  std::string page(kPage, '\0');
  std::memcpy(page.data(), &super, sizeof super);
  return io::replace_file(options.folder + "/g3.super", page);
}

void remove_contents(const std::string& folder) {
  std::error_code ignored;  // what is left shows when the files are made anew
  for (const char* name : {"g3.super", "g3.data", "g3.log", "g3.ckpt"}) {
    std::filesystem::remove(std::filesystem::path(folder) / name, ignored);
  }
}

/// Reads or writes all of the parts at `offset`.
Status move_all(int fd, std::span<iovec> parts, uint64_t offset, bool write) {
  while (!parts.empty()) {
    const auto count = static_cast<int>(parts.size());
    const ssize_t moved = write ? ::pwritev(fd, parts.data(), count, static_cast<off_t>(offset))
                                : ::preadv(fd, parts.data(), count, static_cast<off_t>(offset));
    if (moved < 0 && errno == EINTR) {
      continue;
    }
    if (moved <= 0) {
      return io::io_error(write ? "write" : "read", "g3.data", moved < 0 ? errno : EIO);
    }
    offset += static_cast<uint64_t>(moved);
    auto left = static_cast<size_t>(moved);
    while (!parts.empty() && left >= parts.front().iov_len) {
      left -= parts.front().iov_len;
      parts = parts.subspan(1);
    }
    if (!parts.empty()) {
      parts.front().iov_base = static_cast<char*>(parts.front().iov_base) + left;
      parts.front().iov_len -= left;
    }
  }
  return {};
}

}  // namespace

uint64_t disk_stride(uint64_t block_bytes) {
  return BlockHeader::kBytes + (block_bytes + kPage - 1) / kPage * kPage;
}

Result<DiskFolder> read_disk_folder(const std::string& folder) {
  STATOR_TRY(const std::string page, io::read_start(folder + "/g3.super", kPage));
  Super super{};
  if (page.size() < sizeof super) {
    return Error(Code::kCorrupt, fmt::format("{}/g3.super is too short", folder));
  }
  std::memcpy(&super, page.data(), sizeof super);
  if (std::string_view(super.magic, sizeof super.magic) != kMagic || super.crc != crc_of(super) ||
      super.format != kFormat) {
    return Error(Code::kCorrupt,
                 fmt::format("{}/g3.super is damaged or of another version", folder));
  }
  return DiskFolder{.space = super.space,
                    .block_bytes = super.block_bytes,
                    .block_tokens = super.block_tokens,
                    .slots = super.slots};
}

DiskTier::DiskTier(DiskTierOptions options, Clock& clock, Metrics& metrics)
    : options_(std::move(options)),
      clock_(clock),
      stride_(disk_stride(options_.block_bytes)),
      slots_(static_cast<uint32_t>(std::min<uint64_t>(options_.bytes / stride_, 1U << 26))),
      budget_at_(clock.now()) {
  const MetricLabels tier = {{"tier", "disk"}};
  enabled_gauge_ = metrics.gauge("stator_kv_tier_enabled",
                                 "1: the tier takes blocks; 0: an error switched it off", tier);
  bytes_written_ = metrics.counter("stator_kv_g3_bytes_written_total",
                                   "bytes of KV blocks written to disk, headers included");
  integrity_errors_ =
      metrics.counter("stator_kv_integrity_errors_total",
                      "blocks whose checksum was wrong: dropped, and computed again", tier);
  io_errors_ =
      metrics.counter("stator_kv_load_errors_total", "blocks that could not be loaded, by cause",
                      {{"tier", "disk"}, {"cause", "io"}});
  stale_ =
      metrics.counter("stator_kv_load_errors_total", "blocks that could not be loaded, by cause",
                      {{"tier", "disk"}, {"cause", "stale"}});
  enabled_gauge_.set(1);
}

Result<std::unique_ptr<DiskTier>> DiskTier::open(const DiskTierOptions& options, Clock& clock,
                                                 Metrics& metrics) {
  auto tier = std::unique_ptr<DiskTier>(new DiskTier(options, clock, metrics));
  Status ready = tier->prepare();
  if (!ready) {
    tier->enabled_gauge_.set(0);
    tier->enabled_ = false;
    return std::move(ready.error());
  }
  return tier;
}

DiskTier::~DiskTier() {
  const MutexLock lock(mutex_);
  if (journal_ != nullptr && enabled()) {
    checkpoint().ignore("the journal tells the same");
  }
}

Status DiskTier::prepare() {
  if (slots_ == 0) {
    return Error(Code::kInvalidArgument,
                 fmt::format("kv.disk_bytes {} does not hold one KV block of {} bytes",
                             options_.bytes, stride_));
  }
  std::error_code error;
  std::filesystem::create_directories(options_.folder, error);
  if (error) {
    return Error(Code::kIo,
                 fmt::format("cannot make the KV folder {}: {}", options_.folder, error.message()));
  }
  const std::string lock_path = options_.folder + "/g3.lock";
  lock_ = io::FileDescriptor(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock_.open()) {
    return io::io_error("open", lock_path, errno);
  }
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    return Error(Code::kAlreadyExists,
                 fmt::format("another process uses the KV folder {}: give each process its own, or "
                             "share blocks through `stator store`",
                             options_.folder));
  }
  const auto found = read_disk_folder(options_.folder);
  const bool fresh = !found && found.error().code() == Code::kNotFound;
  if (!fresh &&
      (!found || found->space != options_.space || found->block_bytes != options_.block_bytes)) {
    if (!options_.wipe_foreign) {
      return Error(
          Code::kInvalidArgument,
          found ? fmt::format("the KV folder {} belongs to another model, type or block "
                              "size (namespace {}, wanted {}): use another folder, or "
                              "empty it with kv.disk_on_mismatch wipe",
                              options_.folder, to_hex(found->space), to_hex(options_.space))
                : found.error().message() + ": use another folder, or kv.disk_on_mismatch wipe");
    }
    log::warn("kv", "the disk tier's folder belonged to another namespace and is emptied",
              {{"folder", options_.folder}});
    remove_contents(options_.folder);
  }
  STATOR_CHECK(write_super(options_, slots_));
  STATOR_CHECK(open_data());
  std::unique_ptr<Uring> ring = options_.uring ? Uring::open(kRingDepth) : nullptr;
  uring_works_ = ring != nullptr;
  const MutexLock lock(mutex_);
  if (ring != nullptr) {
    rings_.push_back(std::move(ring));
  }
  STATOR_TRY(Journal journal, Journal::open(options_.folder, slots_));
  journal_ = std::make_unique<Journal>(std::move(journal));
  index_ = SlotIndex(slots_);
  generations_.assign(slots_, 0);
  std::vector<SlotIndex::Held> held;
  for (const JournalRecord& record : journal_->take_live()) {
    held.push_back({.slot = record.slot, .name = record.name, .parent = record.parent});
    generations_[record.slot] = record.generation;
    last_generation_ = std::max(last_generation_, record.generation);
  }
  index_.adopt(held);
  recovered_ = index_.stored();
  return {};
}

Status DiskTier::open_data() {
  const std::string path = options_.folder + "/g3.data";
  const bool pages = options_.block_bytes % kPage == 0;
  const int base = O_RDWR | O_CREAT | O_CLOEXEC;
  int fd = -1;
  if (options_.direct && pages) {
    fd = ::open(path.c_str(), base | O_DIRECT, 0600);
    if (fd < 0 && errno == EINVAL) {
      log::info("kv", "this file system cannot write past the page cache (kv.disk_direct)",
                {{"folder", options_.folder}});
    }
  }
  is_direct_ = fd >= 0;
  data_ = io::FileDescriptor(fd >= 0 ? fd : ::open(path.c_str(), base, 0600));
  if (!data_.open()) {
    return io::io_error("open", path, errno);
  }
  const auto bytes = static_cast<off_t>(stride_ * slots_);
  const int reserved = ::posix_fallocate(data_.get(), 0, bytes);
  if (reserved != 0) {
    // What it took until it failed is given back.
    if (::ftruncate(data_.get(), 0) != 0 || reserved == ENOSPC) {
      return Error(Code::kIo,
                   fmt::format("the disk of {} has no room for kv.disk_bytes {}: {}",
                               options_.folder, options_.bytes, std::strerror(reserved)));
    }
    return io::io_error("reserve space in", path, reserved);
  }
  if (::ftruncate(data_.get(), bytes) != 0) {
    return io::io_error("size", path, errno);
  }
  return {};
}

Status DiskTier::transfer(uint32_t slot, std::span<std::byte> header, std::span<std::byte> payload,
                          bool write) const {
  if (is_direct_ && reinterpret_cast<uintptr_t>(payload.data()) % kPage != 0) {
    const AlignedBuffer aligned(payload.size());
    if (write) {
      std::ranges::copy(payload, aligned.bytes().begin());
    }
    STATOR_CHECK(transfer(slot, header, aligned.bytes(), write));
    if (!write) {
      std::ranges::copy(aligned.bytes(), payload.begin());
    }
    return {};
  }
  std::array<iovec, 2> parts = {iovec{header.data(), header.size()},
                                iovec{payload.data(), payload.size()}};
  return move_all(data_.get(), parts, stride_ * slot, write);
}

size_t DiskTier::match(std::span<const BlockName> names) {
  const MutexLock lock(mutex_);
  return index_.match(names);
}

bool DiskTier::contains(const BlockName& name) const {
  const MutexLock lock(mutex_);
  return index_.find(name).has_value();
}

std::optional<BlockName> DiskTier::find(const kv::LineageHash& lineage) const {
  const MutexLock lock(mutex_);
  return index_.find(lineage);
}

bool DiskTier::wants(const BlockName& name) const {
  const MutexLock lock(mutex_);
  return enabled() && !index_.knows(name.lineage);
}

uint32_t DiskTier::stored() const {
  const MutexLock lock(mutex_);
  return index_.stored();
}

uint64_t DiskTier::evicted_total() const {
  const MutexLock lock(mutex_);
  return index_.evicted_total();
}

Status DiskTier::read(const BlockName& name, std::span<const TokenId> tokens,
                      std::span<std::byte> payload) {
  auto header = read_checked(name, tokens, payload);
  return header ? Status() : Status(std::move(header.error()));
}

/// The block's slot, which nobody writes to until check_read().
std::optional<uint32_t> DiskTier::pin(const BlockName& name) {
  const MutexLock lock(mutex_);
  const auto found = index_.find(name);
  if (found) {
    index_.pin(*found);
  }
  return found;
}

Result<BlockHeader> DiskTier::read_checked(const BlockName& name, std::span<const TokenId> tokens,
                                           std::span<std::byte> payload) {
  STATOR_ASSERT(payload.size() == options_.block_bytes, "blocks of a tier have one size");
  const auto slot = pin(name);
  if (!slot) {
    return Error(Code::kNotFound, "the block is not on disk");
  }
  const AlignedBuffer encoded(BlockHeader::kBytes);
  Status moved = transfer(*slot, encoded.bytes(), payload, false);
  return check_read(*slot, name, tokens, encoded.bytes(), payload, std::move(moved));
}

std::unique_ptr<Uring> DiskTier::take_ring() {
  {
    const MutexLock lock(mutex_);
    if (!rings_.empty()) {
      std::unique_ptr<Uring> ring = std::move(rings_.back());
      rings_.pop_back();
      return ring;
    }
  }
  return batches() ? Uring::open(kRingDepth) : nullptr;
}

void DiskTier::give_ring(std::unique_ptr<Uring> ring) {
  const MutexLock lock(mutex_);
  rings_.push_back(std::move(ring));
}

void DiskTier::read_all(std::span<Read> reads) {
  std::unique_ptr<Uring> ring = reads.size() > 1 ? take_ring() : nullptr;
  if (ring == nullptr) {
    for (Read& one : reads) {
      one.outcome = read(one.name, one.tokens, one.payload);
    }
    return;
  }
  const AlignedBuffer headers(reads.size() * BlockHeader::kBytes);
  std::vector<UringOp> ops;
  std::vector<std::pair<size_t, uint32_t>> from;  // of each: its read and slot
  for (size_t i = 0; i < reads.size(); ++i) {
    Read& one = reads[i];
    STATOR_ASSERT(one.payload.size() == options_.block_bytes, "blocks of a tier have one size");
    if (is_direct_ && reinterpret_cast<uintptr_t>(one.payload.data()) % kPage != 0) {
      one.outcome = read(one.name, one.tokens, one.payload);
      continue;
    }
    const auto slot = pin(one.name);
    if (!slot) {
      one.outcome = Error(Code::kNotFound, "the block is not on disk");
      continue;
    }
    from.emplace_back(i, *slot);
    ops.push_back(
        {.fd = data_.get(),
         .offset = stride_ * *slot,
         .parts = {iovec{headers.bytes().data() + i * BlockHeader::kBytes, BlockHeader::kBytes},
                   iovec{one.payload.data(), one.payload.size()}}});
  }
  const bool ran = ring->run(ops);
  for (size_t i = 0; i < ops.size(); ++i) {
    Read& one = reads[from[i].first];
    const auto header =
        headers.bytes().subspan(from[i].first * BlockHeader::kBytes, BlockHeader::kBytes);
    Status moved;
    if (ops[i].result < 0) {
      moved = ran ? Status(io::io_error("read", "g3.data", -ops[i].result))
                  : transfer(from[i].second, header, one.payload, false);
    }
    auto checked =
        check_read(from[i].second, one.name, one.tokens, header, one.payload, std::move(moved));
    one.outcome = checked ? Status() : Status(std::move(checked.error()));
  }
  if (ran) {
    give_ring(std::move(ring));
  } else {  // from now on without
    uring_works_ = false;
    log::warn("kv", "io_uring fails; the disk is read by threads from now on",
              {{"folder", options_.folder}});
  }
}

/// What is left of a read when its bytes have come, or have not: lets go of the slot and looks
/// whether they are the block's.
Result<BlockHeader> DiskTier::check_read(uint32_t slot, const BlockName& name,
                                         std::span<const TokenId> tokens,
                                         std::span<std::byte> encoded, std::span<std::byte> payload,
                                         Status moved) {
  {
    const MutexLock lock(mutex_);
    index_.unpin(slot);
  }
  Result<BlockHeader> header = moved ? check_header(encoded, {.space = options_.space,
                                                              .name = name,
                                                              .payload_bytes = options_.block_bytes,
                                                              .tokens = tokens})
                                     : Result<BlockHeader>(std::move(moved.error()));
  if (header) {
    if (Status whole = check_payload(*header, payload); !whole) {
      header = std::move(whole.error());
    }
  }
  if (!header) {
    const Code code = header.error().code();
    (code == Code::kCorrupt    ? integrity_errors_
     : code == Code::kNotFound ? stale_
                               : io_errors_)
        .add();
    forget(slot, name);
  }
  return header;
}

void DiskTier::forget(uint32_t slot, const BlockName& name) {
  const MutexLock lock(mutex_);
  if (index_.find(name) != slot) {
    return;
  }
  journal_->append({.op = JournalRecord::Op::kDelete, .slot = slot, .name = name})
      .ignore("a block that is damaged is found damaged again");
  index_.erase(slot);
  tell_removed(name);
}

void DiskTier::on_removed(std::function<void(const BlockName&)> listener) {
  const MutexLock lock(mutex_);
  removed_ = std::move(listener);
}

void DiskTier::tell_removed(const BlockName& name) {
  if (removed_) {
    removed_(name);
  }
}

std::vector<JournalRecord> DiskTier::newest(size_t count) const {
  const MutexLock lock(mutex_);
  const std::vector<uint32_t> slots = index_.by_age();
  std::vector<JournalRecord> out;
  for (auto slot = slots.rbegin(); slot != slots.rend() && out.size() < count; ++slot) {
    out.push_back({.slot = *slot,
                   .generation = generations_[*slot],
                   .name = index_.name(*slot),
                   .parent = index_.parent(*slot)});
  }
  return out;
}

Result<BlockHeader> DiskTier::read_header(const BlockName& name) {
  const auto slot = pin(name);
  if (!slot) {
    return Error(Code::kNotFound, "the block is not on disk");
  }
  const AlignedBuffer encoded(BlockHeader::kBytes);
  Status moved = transfer(*slot, encoded.bytes(), {}, false);
  {
    const MutexLock lock(mutex_);
    index_.unpin(*slot);
  }
  if (!moved) {
    return std::move(moved.error());
  }
  return check_header(
      encoded.bytes(),
      {.space = options_.space, .name = name, .payload_bytes = options_.block_bytes});
}

bool DiskTier::drop(const BlockName& name) {
  const MutexLock lock(mutex_);
  const auto slot = index_.find(name);
  if (!slot || !journal_->append({.op = JournalRecord::Op::kDelete, .slot = *slot, .name = name})) {
    return false;
  }
  index_.erase(*slot);
  tell_removed(name);
  return true;
}

bool DiskTier::take_budget() {
  if (options_.write_bytes_per_day == 0) {
    return true;
  }
  const TimePoint now = clock_.now();
  const double rate = static_cast<double>(options_.write_bytes_per_day) / kDaySeconds;
  const double most = std::max(rate * kBudgetSecondsMax, static_cast<double>(stride_));
  budget_bytes_ += std::chrono::duration<double>(now - budget_at_).count() * rate;
  budget_bytes_ = std::min(budget_bytes_, most);
  budget_at_ = now;
  if (budget_bytes_ < static_cast<double>(stride_)) {
    return false;
  }
  budget_bytes_ -= static_cast<double>(stride_);
  return true;
}

Status DiskTier::reserve(const Block& block, SlotIndex::Reserved& out) {
  if (index_.knows(block.name.lineage)) {
    return Error(Code::kAlreadyExists, "the block is on disk");
  }
  if (!take_budget()) {
    return Error(Code::kRateLimited, "the day's write budget of the disk is used up");
  }
  const auto reserved = index_.reserve(block.name, block.parent);
  if (!reserved) {
    return Error(Code::kOverloaded, "every slot of the disk tier is being read or written");
  }
  out = *reserved;
  if (out.evicted) {  // D2
    tell_removed(*out.evicted);
    return journal_->append(
        {.op = JournalRecord::Op::kDelete, .slot = out.slot, .name = *out.evicted});
  }
  return {};
}

Status DiskTier::write(const Block& block) {
  STATOR_ASSERT(block.payload.size() == options_.block_bytes, "blocks of a tier have one size");
  if (!enabled()) {
    return Error(Code::kUnavailable, "the disk tier is switched off after an error");
  }
  BlockHeader header = describe_payload(block.payload, block.tokens);
  header.space = options_.space;
  header.name = block.name;
  header.parent = block.parent;
  header.unix_ms = static_cast<uint64_t>(unix_seconds(clock_.wall_now())) * 1000;
  SlotIndex::Reserved reserved;
  Status done;
  {
    const MutexLock lock(mutex_);
    header.generation = ++last_generation_;
    done = reserve(block, reserved);
    if (!done && done.error().code() != Code::kIo) {
      return done;
    }
  }
  if (done) {
    const AlignedBuffer encoded(BlockHeader::kBytes);
    encode(header, encoded.bytes());
    // pwritev() takes pointers to what may change; it does not change it.
    const std::span<std::byte> payload(const_cast<std::byte*>(block.payload.data()),
                                       block.payload.size());
    done = transfer(reserved.slot, encoded.bytes(), payload, true);
  }
  const MutexLock lock(mutex_);
  if (done) {
    done = journal_->append({.slot = reserved.slot,
                             .generation = static_cast<uint32_t>(header.generation),
                             .name = block.name,
                             .parent = block.parent});
  }
  if (!done) {
    index_.abandon(reserved.slot);
    disable(done.error());
    return done;
  }
  generations_[reserved.slot] = static_cast<uint32_t>(header.generation);
  index_.publish(reserved.slot);
  bytes_written_.add(stride_);
  if (journal_->wants_checkpoint(index_.stored())) {
    checkpoint().ignore("the journal goes on");
  }
  return {};
}

Status DiskTier::checkpoint() {
  std::vector<JournalRecord> records;
  records.reserve(index_.stored());
  for (const uint32_t slot : index_.by_age()) {
    records.push_back({.slot = slot,
                       .generation = generations_[slot],
                       .name = index_.name(slot),
                       .parent = index_.parent(slot)});
  }
  return journal_->checkpoint(records);
}

void DiskTier::disable(const Error& error) {
  if (enabled_.exchange(false)) {
    enabled_gauge_.set(0);
    log::error("kv", "the disk tier takes no more blocks; serving goes on without it",
               {{"folder", options_.folder}, {"reason", error.message()}});
  }
}

}  // namespace stator::storage
