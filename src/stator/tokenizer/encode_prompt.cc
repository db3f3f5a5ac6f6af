// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/encode_prompt.h"

#include "stator/core/keyed_hash.h"
#include "stator/tokenizer/pipeline.h"
#include "stator/tokenizer/split_text.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <utility>

namespace stator::tokenizer {
namespace {

// Bytes of text that one thread takes at a time.
constexpr size_t kPartBytes = 16 * 1024;
// One text keeps at most this part of the cache's bytes of itself, so that none empties it; with
// its ids (four bytes for every one to four of text) and hashes that is a quarter of the cache at
// worst.
constexpr size_t kCacheShare = 32;
// English and code have about four bytes per token; a first guess that saves most reallocations.
constexpr size_t kBytesPerToken = 3;
constexpr size_t kIdsSpare = 16;

/// A text, where it is cut, and its ids so far.
struct Work {
  const Tokenizer& tokenizer;
  std::string_view text;
  EncodeOptions options;       // without the tokens around the text
  size_t ids_before_text = 0;  // the post-processor's
  std::vector<size_t> ends;
  std::vector<size_t> id_ends;  // of the segments encoded so far
  PromptIds prompt;

  size_t begin_of(size_t segment) const { return segment == 0 ? 0 : ends[segment - 1]; }
  std::string_view segment(size_t i) const {
    return text.substr(begin_of(i), ends[i] - begin_of(i));
  }
};

std::vector<size_t> cut(const SafeCuts& cuts, std::string_view text, SpecialTokens special) {
  std::vector<size_t> ends;
  for (size_t at = 0; at < text.size(); at = ends.back()) {
    ends.push_back(cuts.find(text, std::min(text.size(), at + kSegmentBytesMin), special));
  }
  return ends;
}

uint64_t scope_of(const Tokenizer& tokenizer, EncodeOptions options, const BlockScheme& blocks) {
  const std::array<uint64_t, 3> words = {blocks.seed, tokenizer.fingerprint(),
                                         uint64_t{blocks.block_size} << 2U |
                                             static_cast<uint64_t>(options.special_tokens) << 1U |
                                             static_cast<uint64_t>(options.add_special)};
  // Keyed: a client chooses the salt behind the seed, and with it could choose another's scope.
  return keyed_hash({reinterpret_cast<const char*>(words.data()), sizeof(words)});
}

void take_known(Work& work, std::span<const PrefixCache::Segment> path) {
  PromptIds& prompt = work.prompt;
  for (const PrefixCache::Segment& segment : path) {
    prompt.ids.insert(prompt.ids.end(), segment->ids.begin(), segment->ids.end());
    prompt.sequences.insert(prompt.sequences.end(), segment->sequences.begin(),
                            segment->sequences.end());
    prompt.cached_ids += segment->ids.size();
    work.id_ends.push_back(prompt.ids.size());
  }
}

bool is_too_long(const Work& work) {
  return work.prompt.ids.size() > work.options.stop.ids_max;
}

Status encode_in_turn(Work& work) {
  for (size_t i = work.id_ends.size(); i < work.ends.size() && !is_too_long(work); ++i) {
    STATOR_CHECK(work.tokenizer.encode(work.segment(i), work.options, work.prompt.ids));
    work.id_ends.push_back(work.prompt.ids.size());
  }
  return {};
}

/// What one thread does: some consecutive segments.
struct Part {
  size_t first = 0;
  size_t last = 0;  // one past
  std::vector<TokenId> ids;
  std::vector<size_t> id_ends;
  Status status;
};

std::vector<Part> divide(const Work& work) {
  std::vector<Part> parts;
  for (size_t at = work.id_ends.size(); at < work.ends.size(); at = parts.back().last) {
    size_t last = at + 1;
    while (last < work.ends.size() && work.ends[last - 1] - work.begin_of(at) < kPartBytes) {
      ++last;
    }
    parts.push_back({.first = at, .last = last});
  }
  return parts;
}

Status encode_in_parts(Work& work, const RunParts& run_parts) {
  const EncodeStop& stop = work.options.stop;
  std::vector<Part> parts = divide(work);
  std::atomic<size_t> total = work.prompt.ids.size();  // of the segments that are done
  run_parts(parts.size(), [&](size_t index) {
    Part& part = parts[index];
    for (size_t i = part.first;
         i < part.last && part.status && total.load(std::memory_order_relaxed) <= stop.ids_max;
         ++i) {
      const size_t before = part.ids.size();
      part.status = work.tokenizer.encode(work.segment(i), work.options, part.ids);
      part.id_ends.push_back(part.ids.size());
      total.fetch_add(part.ids.size() - before, std::memory_order_relaxed);
    }
  });
  auto& ids = work.prompt.ids;
  if (total.load() > stop.ids_max) {
    ids.resize(total.load());  // only how many there are is of interest
    return {};
  }
  for (Part& part : parts) {
    STATOR_CHECK(std::move(part.status));
    const size_t base = ids.size();
    ids.insert(ids.end(), part.ids.begin(), part.ids.end());
    for (const size_t end : part.id_ends) {
      work.id_ends.push_back(base + end);
    }
  }
  return {};
}

/// The segments that are worth a place in the cache: all but a short end, of which no other text
/// will have more than the start.
std::span<const size_t> worth_keeping(const Work& work) {
  const std::span<const size_t> ends(work.ends);
  const size_t last = ends.size() - 1;
  return ends.first(work.segment(last).size() < kSegmentBytesMin ? last : ends.size());
}

/// Adds what is new in the text to the cache, up to the text's share of it.
void keep(const Work& work, PrefixCache& cache, PrefixCache::Found found, uint32_t block_size) {
  const std::vector<TokenId>& ids = work.prompt.ids;
  const std::vector<blocks::SequenceHash>& sequences = work.prompt.sequences;
  std::vector<PrefixCache::Segment>& path = found.path;
  for (size_t i = path.size(); i < found.keys.size(); ++i) {
    if (work.ends[i] > cache.bytes_max() / kCacheShare) {
      break;
    }
    const size_t begin = i == 0 ? work.ids_before_text : work.id_ends[i - 1];
    const size_t end = work.id_ends[i];
    const size_t first_block = i == 0 ? 0 : begin / block_size;
    const size_t last_block = end / block_size;
    const auto segment = std::make_shared<PrefixSegment>();
    segment->key = found.keys[i];
    segment->serial = cache.next_serial();
    segment->parent = i == 0 ? found.scope : path.back()->serial;
    segment->text = work.segment(i);
    const auto new_ids = std::span(ids).subspan(begin, end - begin);
    const auto new_blocks = std::span(sequences).subspan(first_block, last_block - first_block);
    segment->ids.assign(new_ids.begin(), new_ids.end());
    segment->sequences.assign(new_blocks.begin(), new_blocks.end());
    path.push_back(segment);
  }
  cache.keep(path);
}

Status encode_text(Work& work, const PromptTools& tools) {
  const size_t known = work.id_ends.empty() ? 0 : work.ends[work.id_ends.size() - 1];
  const bool divided = tools.run_parts != nullptr && work.text.size() - known >= kParallelBytesMin;
  return divided ? encode_in_parts(work, *tools.run_parts) : encode_in_turn(work);
}

}  // namespace

Result<PromptIds> encode_prompt(const Tokenizer& tokenizer, std::string_view text,
                                EncodeOptions options, const BlockScheme& blocks,
                                const PromptTools& tools) {
  const PostProcessor& post = tokenizer.pipeline().post_processor;
  const bool add_special = options.add_special == AddSpecial::kYes;
  const bool in_one_piece = text.size() < kSegmentBytesMin || text.size() > kMaxTextBytes;
  Work work{.tokenizer = tokenizer,
            .text = text,
            .options = {.special_tokens = options.special_tokens,
                        .add_special = AddSpecial::kNo,
                        .stop = tools.stop}};
  work.ends = in_one_piece ? std::vector<size_t>{text.size()}
                           : cut(tokenizer.safe_cuts(), text, options.special_tokens);
  PromptIds& prompt = work.prompt;
  prompt.ids.reserve(
      std::min(std::min(text.size(), kMaxTextBytes) / kBytesPerToken, tools.stop.ids_max) +
      kIdsSpare);
  if (add_special) {
    prompt.ids.assign(post.before.begin(), post.before.end());
  }
  work.ids_before_text = prompt.ids.size();

  std::optional<PrefixCache::Found> found;
  if (tools.cache != nullptr && !in_one_piece) {
    found = tools.cache->find(scope_of(tokenizer, options, blocks), text, worth_keeping(work));
    take_known(work, found->path);
  }
  STATOR_CHECK(encode_text(work, tools));
  if (is_too_long(work)) {
    prompt.is_cut_short = true;
    return std::move(prompt);
  }
  if (add_special) {
    prompt.ids.insert(prompt.ids.end(), post.after.begin(), post.after.end());
  }
  STATOR_CHECK(CancelToken::check(tools.stop.cancel));
  const TimePoint begin = tools.clock != nullptr ? tools.clock->now() : TimePoint();
  extend_sequences(prompt.ids, blocks.block_size, blocks.seed, prompt.sequences);
  prompt.hashing = tools.clock != nullptr ? tools.clock->now() - begin : Duration::zero();
  if (found) {
    keep(work, *tools.cache, std::move(*found), blocks.block_size);
  }
  return std::move(prompt);
}

}  // namespace stator::tokenizer
