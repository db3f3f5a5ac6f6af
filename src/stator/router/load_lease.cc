// SPDX-License-Identifier: Apache-2.0
#include "stator/router/load_lease.h"

#include <utility>

#include "stator/core/assert.h"

namespace stator::router {

namespace {

double seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

std::shared_ptr<LoadBook> LoadBook::make(const Clock& clock, LoadInstruments instruments) {
  return std::shared_ptr<LoadBook>(new LoadBook(clock, instruments));
}

LoadSlot LoadBook::add_worker() {
  const MutexLock lock(mutex_);
  return core_.add_worker();
}

void LoadBook::remove_worker(LoadSlot slot) {
  const MutexLock lock(mutex_);
  core_.remove_worker(slot);
}

LoadLease LoadBook::take(const Booking& booking) {
  const TimePoint now = clock_.now();
  ActiveSequences::Ticket ticket;
  {
    const MutexLock lock(mutex_);
    ticket = core_.add(booking, now);
  }
  LoadLease lease(shared_from_this(), ticket, booking);
  if (announcer_ != nullptr && booking.announced) {
    lease.announced_ = announcer_->booked(booking);
  }
  return lease;
}

void LoadBook::read(std::span<const LoadSlot> slots, std::span<LoadRow> rows) const {
  const MutexLock lock(mutex_);
  core_.read(slots, core_.decays() ? clock_.now() : TimePoint(), rows);
}

void LoadBook::read_held(std::span<const blocks::SequenceHash> prompt,
                         std::vector<uint32_t>& depths) const {
  const MutexLock lock(mutex_);
  core_.find_held(prompt, depths);
}

void LoadBook::age_rates() {
  const TimePoint now = clock_.now();
  const MutexLock lock(mutex_);
  core_.age_rates(now);
}

void LoadBook::read_rates(std::span<const LoadSlot> slots,
                          std::span<WorkerRates::Rates> rates) const {
  const MutexLock lock(mutex_);
  core_.rates().read(slots, rates);
}

WorkerRates::Rates LoadBook::rates_of(LoadSlot slot) const {
  const MutexLock lock(mutex_);
  return core_.rates().of(slot);
}

void LoadBook::keep_grid() {
  const MutexLock lock(mutex_);
  core_.keep_grid();
}

int64_t LoadBook::total_requests() const {
  const MutexLock lock(mutex_);
  return core_.total_requests();
}

void LoadBook::set_listener(std::function<void()> listener) {
  auto shared = std::make_shared<const std::function<void()>>(std::move(listener));
  const MutexLock lock(mutex_);
  listener_ = std::move(shared);
}

void LoadBook::tell() noexcept {
  if (!watched_.load(std::memory_order_seq_cst)) {
    return;
  }
  std::shared_ptr<const std::function<void()>> listener;
  {
    const MutexLock lock(mutex_);
    listener = listener_;
  }
  if (listener != nullptr && *listener) {
    (*listener)();
  }
}

void LoadBook::first_token(ActiveSequences::Ticket ticket, uint64_t announced) noexcept {
  const TimePoint now = clock_.now();
  std::optional<Duration> waited;
  {
    const MutexLock lock(mutex_);
    waited = core_.first_token(ticket, now);
  }
  if (waited) {
    instruments_.first_token_seconds.observe(seconds(*waited));
  }
  if (announced != 0) {
    announcer_->prefill_completed(announced);
  }
  tell();
}

void LoadBook::output_grew(ActiveSequences::Ticket ticket, uint32_t tokens,
                           uint32_t new_blocks) noexcept {
  const TimePoint now = clock_.now();
  std::optional<Duration> per_token;
  {
    const MutexLock lock(mutex_);
    per_token = core_.output_grew(ticket, tokens, new_blocks, now);
  }
  if (per_token) {
    instruments_.inter_token_seconds.observe(seconds(*per_token));
  }
}

void LoadBook::output_block(ActiveSequences::Ticket ticket, std::optional<double> weight) noexcept {
  const MutexLock lock(mutex_);
  core_.add_output_block(ticket, weight);
}

void LoadBook::free(ActiveSequences::Ticket ticket, uint32_t output_tokens,
                    uint64_t announced) noexcept {
  const TimePoint now = clock_.now();
  {
    const MutexLock lock(mutex_);
    core_.free(ticket, now);
  }
  if (output_tokens > 0) {  // else it failed, or its answer goes through another router
    instruments_.output_tokens.observe(output_tokens);
  }
  if (announced != 0) {
    announcer_->freed(announced);
  }
  tell();
}

LoadLease::LoadLease(std::shared_ptr<LoadBook> book, ActiveSequences::Ticket ticket,
                     const Booking& booking) noexcept
    : book_(std::move(book)),
      ticket_(ticket),
      prompt_tokens_(booking.prompt_tokens),
      block_size_(booking.block_size),
      prefilling_(true) {}

LoadLease::LoadLease(LoadLease&& other) noexcept {
  take_over(other);
}

LoadLease& LoadLease::operator=(LoadLease&& other) noexcept {
  if (this != &other) {
    release();
    take_over(other);
  }
  return *this;
}

void LoadLease::take_over(LoadLease& other) noexcept {
  book_ = std::move(other.book_);
  session_ = std::move(other.session_);
  remote_ = std::move(other.remote_);
  ticket_ = other.ticket_;
  prompt_tokens_ = other.prompt_tokens_;
  block_size_ = other.block_size_;
  output_tokens_ = other.output_tokens_;
  announced_ = other.announced_;
  prefilling_ = other.prefilling_;
}

LoadLease::~LoadLease() {
  release();
}

void LoadLease::mark_prefill_completed() noexcept {
  if (book_ != nullptr && std::exchange(prefilling_, false)) {
    book_->first_token(ticket_, announced_);
    if (remote_ != nullptr) {
      remote_->prefill_completed();
    }
  }
}

uint32_t LoadLease::blocks_of(uint32_t output_tokens) const noexcept {
  const uint64_t tokens = uint64_t{prompt_tokens_} + output_tokens;
  return static_cast<uint32_t>((tokens + block_size_ - 1) / block_size_);
}

void LoadLease::add_output_tokens(uint32_t count) noexcept {
  if (book_ == nullptr) {
    return;
  }
  const uint32_t before = blocks_of(output_tokens_);
  output_tokens_ += count;
  const uint32_t after = blocks_of(output_tokens_);
  if (after > before) {
    book_->output_grew(ticket_, output_tokens_, after - before);
  }
}

void LoadLease::add_output_block(std::optional<double> weight) noexcept {
  if (book_ != nullptr) {
    output_tokens_ += block_size_;
    book_->output_block(ticket_, weight);
  }
}

void LoadLease::mark_failed() noexcept {
  if (session_ != nullptr) {
    session_->failed.store(true, std::memory_order_relaxed);
  }
}

void LoadLease::release() noexcept {
  if (book_ != nullptr) {
    const std::shared_ptr<LoadBook> book = std::move(book_);
    if (session_ != nullptr) {
      session_->idle_since_ns.store(book->now().time_since_epoch().count(),
                                    std::memory_order_relaxed);
      session_.reset();
    }
    book->free(ticket_, output_tokens_, announced_);
    remote_.reset();
  }
}

}  // namespace stator::router
