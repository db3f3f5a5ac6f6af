// SPDX-License-Identifier: Apache-2.0
#include "stator/router/load/active_sequences.h"

#include <algorithm>
#include <cmath>

#include "stator/core/assert.h"

namespace stator::router {
namespace {

double milliseconds(Duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

}  // namespace

LoadSlot ActiveSequences::add_worker() {
  LoadSlot slot = 0;
  if (free_slots_.empty()) {
    slot = static_cast<LoadSlot>(workers_.size());
    workers_.emplace_back();
    rows_.emplace_back();
  } else {
    slot = free_slots_.back();
    free_slots_.pop_back();
    workers_[slot] = {};
  }
  rates_.add_slot(slot);
  refresh(slot);
  return slot;
}

void ActiveSequences::keep_grid() {
  if (!grid_) {
    grid_.emplace();
    for (LoadSlot slot = 0; slot < workers_.size(); ++slot) {
      refresh(slot);
    }
  }
}

void ActiveSequences::remove_worker(LoadSlot slot) {
  workers_[slot].removed = true;
  if (grid_) {
    grid_->remove(slot);
  }
  if (workers_[slot].requests == 0) {
    free_slots_.push_back(slot);
  }
}

uint32_t ActiveSequences::allocate() {
  if (free_bookings_.empty()) {
    bookings_.emplace_back();
    return static_cast<uint32_t>(bookings_.size() - 1);
  }
  const uint32_t index = free_bookings_.back();
  free_bookings_.pop_back();
  bookings_[index] = {};
  return index;
}

ActiveSequences::Ticket ActiveSequences::add(const Booking& booking, TimePoint now) {
  const uint32_t index = allocate();
  Request& request = bookings_[index];
  Worker& worker = workers_[booking.slot];
  request.slot = booking.slot;
  request.expected_output_tokens = booking.expected_output_tokens.value_or(0);
  request.last_news = now;
  // Another router's, heard of late: its load counts, but its times teach nothing.
  request.started = !booking.announced;
  if (booking.prefill_tokens > 0) {
    worker.prefill.add(index, booking.prefill_tokens, booking.predicted_prefill, now);
    request.prefilling = true;
    request.predicted = booking.predicted_prefill > Duration::zero();
    decaying_ += request.predicted ? 1 : 0;
  }
  request.tokens_ahead = static_cast<uint32_t>(worker.prefill.tokens_left(now));

  const uint32_t blocks = (booking.prompt_tokens + booking.block_size - 1) / booking.block_size;
  if (booking.shares_prefix) {
    const auto inserted = trie_.insert(booking.slot, index, booking.prompt, changes_);
    request.leaf = inserted.leaf;
    worker.blocks += inserted.new_blocks;
    apply(changes_);
    request.own_blocks = std::max<int64_t>(
        0, static_cast<int64_t>(blocks) - static_cast<int64_t>(booking.prompt.size()));
  } else {
    request.own_blocks = blocks;
  }
  worker.blocks += request.own_blocks;
  ++worker.requests;
  ++total_requests_;
  refresh(booking.slot);
  return {index};
}

std::optional<Duration> ActiveSequences::first_token(Ticket ticket, TimePoint now) {
  Request& request = bookings_[ticket.index];
  std::optional<Duration> waited;
  if (!request.started) {
    waited = now - request.last_news;
    rates_.first_token(request.slot, request.tokens_ahead, milliseconds(*waited), now);
    request.started = true;
    request.output_tokens = std::max(1U, request.output_tokens);
    request.last_news = now;
  }
  end_prefill(request, ticket.index, now);
  refresh(request.slot);
  return waited;
}

void ActiveSequences::end_prefill(Request& request, uint32_t index, TimePoint now) {
  if (request.prefilling) {
    workers_[request.slot].prefill.remove(index, now);
    decaying_ -= request.predicted ? 1 : 0;
    request.prefilling = false;
  }
}

void ActiveSequences::refresh(LoadSlot slot) {
  const Worker& worker = workers_[slot];
  rows_[slot] = {.prefill_tokens = static_cast<double>(worker.prefill.total_tokens()),
                 .active_blocks = static_cast<double>(worker.blocks -
                                                      (worker.discount_ppm + kWhole / 2) / kWhole),
                 .active_requests = static_cast<double>(worker.requests)};
  if (grid_ && !worker.removed) {
    grid_->place(slot, rows_[slot], rates_.factors(slot));
  }
}

void ActiveSequences::discount(Request& request, int64_t new_discount) {
  workers_[request.slot].discount_ppm +=
      (new_discount - request.discount) * (request.own_blocks + request.exclusive_blocks);
  request.discount = new_discount;
}

void ActiveSequences::apply(std::span<const PromptTrie::Change> changes) {
  for (const PromptTrie::Change& change : changes) {
    Request& request = bookings_[change.owner];
    request.exclusive_blocks += change.exclusive_blocks;
    workers_[request.slot].discount_ppm += request.discount * change.exclusive_blocks;
  }
}

std::optional<Duration> ActiveSequences::output_grew(Ticket ticket, uint32_t output_tokens,
                                                     uint32_t new_blocks, TimePoint now) {
  Request& request = bookings_[ticket.index];
  std::optional<Duration> per_token;
  if (request.started && output_tokens > request.output_tokens) {
    per_token = (now - request.last_news) / (output_tokens - request.output_tokens);
    rates_.next_tokens(request.slot, static_cast<double>(workers_[request.slot].requests),
                       milliseconds(*per_token), now);
  }
  request.output_tokens = std::max(request.output_tokens, output_tokens);
  request.last_news = request.started ? now : request.last_news;
  workers_[request.slot].blocks += new_blocks;
  workers_[request.slot].discount_ppm += request.discount * new_blocks;
  request.own_blocks += new_blocks;
  if (request.expected_output_tokens > 0) {
    discount(request, std::min(kWhole, kWhole * output_tokens / request.expected_output_tokens));
  }
  refresh(request.slot);
  return per_token;
}

void ActiveSequences::add_output_block(Ticket ticket, std::optional<double> weight) {
  Request& request = bookings_[ticket.index];
  workers_[request.slot].blocks += 1;
  workers_[request.slot].discount_ppm += request.discount;
  request.own_blocks += 1;
  if (weight && !std::isnan(*weight)) {
    const double part = 1 - std::clamp(*weight, 0.0, 1.0);
    discount(request, static_cast<int64_t>(part * static_cast<double>(kWhole)));
  }
  refresh(request.slot);
}

void ActiveSequences::free(Ticket ticket, TimePoint now) {
  Request& request = bookings_[ticket.index];
  const LoadSlot slot = request.slot;
  Worker& worker = workers_[slot];
  end_prefill(request, ticket.index, now);
  discount(request, 0);
  const uint32_t gone = trie_.erase(slot, ticket.index, request.leaf, changes_);
  apply(changes_);
  worker.blocks -= gone + request.own_blocks;
  --worker.requests;
  --total_requests_;
  refresh(slot);
  STATOR_ASSERT(worker.blocks >= 0 && worker.requests >= 0,
                "L1: a worker's load dropped below what its bookings hold");
  free_bookings_.push_back(ticket.index);
  if (worker.removed && worker.requests == 0) {
    free_slots_.push_back(slot);
  }
}

LoadRow ActiveSequences::row(LoadSlot slot, TimePoint now) const {
  LoadRow row = rows_[slot];
  if (decaying_ > 0) {
    row.prefill_tokens = static_cast<double>(workers_[slot].prefill.tokens_left(now));
  }
  return row;
}

void ActiveSequences::read(std::span<const LoadSlot> slots, TimePoint now,
                           std::span<LoadRow> rows) const {
  if (decaying_ > 0) {
    for (size_t i = 0; i < slots.size(); ++i) {
      rows[i] = row(slots[i], now);
    }
    return;
  }
  for (size_t i = 0; i < slots.size(); ++i) {
    rows[i] = rows_[slots[i]];
  }
}

void ActiveSequences::age_rates(TimePoint now) {
  for (const LoadSlot slot : rates_.age(now)) {
    refresh(slot);
  }
}

void ActiveSequences::find_held(std::span<const blocks::SequenceHash> prompt,
                                std::vector<uint32_t>& depths) const {
  depths.assign(workers_.size(), 0);
  trie_.find(prompt, depths);
}

}  // namespace stator::router
