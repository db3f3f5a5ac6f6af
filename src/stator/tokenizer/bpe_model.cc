// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/bpe_model.h"

#include "stator/core/assert.h"
#include "stator/tokenizer/byte_alphabet.h"
#include "stator/tokenizer/detail/merge_reader.h"
#include "stator/tokenizer/unicode.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

namespace stator::tokenizer {
namespace {

// Up to here scanning for the lowest rank is faster than a heap (and still bounded: 32² steps).
constexpr size_t kShortWordSymbols = 32;

// Rules that are on their way into the table while it is filled.
constexpr size_t kRulesAhead = 16;

constexpr uint32_t kEndOfList = UINT32_MAX;
// Some milliseconds; far more than a word takes that the thread's PreTokenCache would keep, so what
// a cancelled word gives is never kept.
constexpr size_t kPopsPerLook = 32'768;

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581, the space of SentencePiece

/// Start of the first space mark in `text` that follows another character, or npos.
size_t find_word_start(std::string_view text, size_t from) {
  while (text.substr(from).starts_with(kSpaceMark)) {
    from += kSpaceMark.size();
  }
  return text.find(kSpaceMark, from);
}

}  // namespace

bool BpeModel::supports_bytes(const BpeSpec& spec) {
  if (!spec.continuing_subword_prefix.empty() || !spec.end_of_word_suffix.empty()) {
    return false;
  }
  FlatSet<std::string_view> characters;
  for (const auto& [text, id] : spec.vocab) {
    if (text.size() <= 2) {
      characters.insert(text);
    }
  }
  for (int byte = 0; byte < 256; ++byte) {
    if (!characters.contains(ByteAlphabet::get().character(static_cast<unsigned char>(byte)))) {
      return false;
    }
  }
  return true;
}

Result<BpeModel> BpeModel::create(const BpeSpec& spec, Alphabet alphabet) {
  STATOR_ASSERT(alphabet == Alphabet::kCharacters || supports_bytes(spec),
                "pieces come as bytes only where every byte has a token");
  BpeModel model;
  model.alphabet_ = alphabet;
  model.fuse_unk_ = spec.fuse_unk;
  model.byte_fallback_ = spec.byte_fallback;
  model.ignore_merges_ = spec.ignore_merges;
  model.prefix_ = spec.continuing_subword_prefix;
  model.suffix_ = spec.end_of_word_suffix;
  model.index_vocab(spec);
  model.index_single_bytes();
  if (spec.unk_token) {
    const auto unk = model.find(*spec.unk_token);
    if (!unk && !model.knows_every_character()) {
      return Error(Code::kCorrupt,
                   fmt::format("model.unk_token '{}' is not in model.vocab", *spec.unk_token));
    }
    model.unk_ = unk.value_or(kNone);
  }
  STATOR_CHECK(model.index_merges(spec));
  model.index_whole_pieces();
  return model;
}

bool BpeModel::knows_every_character() const {
  return alphabet_ == Alphabet::kBytes ||
         (byte_fallback_ && std::ranges::find(fallback_ids_, kNone) == fallback_ids_.end());
}

void BpeModel::index_vocab(const BpeSpec& spec) {
  size_t bytes = 0;
  for (const auto& [text, id] : spec.vocab) {
    bytes += text.size();
  }
  ids_ = TextIds(spec.vocab.size(), bytes);
  std::string unmapped;
  for (const auto& [text, id] : spec.vocab) {
    if (alphabet_ == Alphabet::kCharacters) {
      ids_.insert_or_assign(text, id);
      continue;
    }
    unmapped.clear();
    if (ByteAlphabet::get().append_unmapped(text, unmapped)) {
      ids_.insert_or_assign(unmapped, id);
    } else {
      other_ids_.insert_or_assign(std::string(text), id);
    }
  }
}

void BpeModel::index_single_bytes() {
  for (int value = 0; value < 256; ++value) {
    const char byte = static_cast<char>(value);
    const auto index = static_cast<size_t>(value);
    single_byte_ids_[index] = lookup({&byte, 1});
    fallback_ids_[index] = find(fmt::format("<0x{:02X}>", value)).value_or(kNone);
  }
}

Status BpeModel::index_merges(const BpeSpec& spec) {
  STATOR_TRY(std::vector<TokenPairs::Merge> merges, read_merges(spec));
  merges_ = MergeTable(merges.size());
  for (size_t i = 0; i < merges.size(); ++i) {
    if (i + kRulesAhead < merges.size()) {
      merges_.prefetch(merges[i + kRulesAhead].left, merges[i + kRulesAhead].right);
    }
    merges_.insert(merges[i].left, merges[i].right, merges[i].rule);
  }
  if (alphabet_ == Alphabet::kBytes) {
    const auto rank = [](const TokenPairs::Merge& merge) { return merge.rule.rank; };
    if (!std::ranges::is_sorted(merges, {}, rank)) {
      std::ranges::sort(merges, {}, rank);
    }
    index_pairs(merges);
  }
  return {};
}

/// In the order of the file.
Result<std::vector<TokenPairs::Merge>> BpeModel::read_merges(const BpeSpec& spec) {
  std::vector<TokenPairs::Merge> merges;
  merges.reserve(spec.merges.size());
  merges_stay_in_words_ = alphabet_ == Alphabet::kCharacters && !ignore_merges_ &&
                          prefix_.empty() && suffix_.empty() && lookup(kSpaceMark) != kNone;
  MergeReader reader(ids_,
                     alphabet_ == Alphabet::kBytes ? MergeReader::Spelling::kBytes
                                                   : MergeReader::Spelling::kAsInFile,
                     prefix_.size());
  const std::span all(spec.merges);
  std::string merged;
  for (size_t index = 0; index < all.size(); ++index) {
    const size_t in_chunk = index % MergeReader::kAtOnce;
    if (in_chunk == 0) {
      reader.read(all.subspan(index, std::min(all.size() - index, MergeReader::kAtOnce)));
    }
    MergeReader::Ids ids = reader.ids(in_chunk);
    const auto& [left, right] = all[index];
    if (!ids.complete() || merges_stay_in_words_) {
      merged.assign(left).append(right.substr(std::min(prefix_.size(), right.size())));
    }
    if (!ids.complete()) {  // or one of them is not of the byte alphabet
      const std::string_view texts[] = {left, right, merged};
      TokenId* const found[] = {&ids.left, &ids.right, &ids.merged};
      for (size_t part = 0; part < std::size(texts); ++part) {
        const auto id = find(texts[part]);
        if (!id) {
          return Error(
              Code::kCorrupt,
              fmt::format("model.merges[{}] joins '{}' and '{}', but '{}' is not in model.vocab",
                          index, left, right, texts[part]));
        }
        *found[part] = *id;
      }
    }
    const uint32_t rank =
        spec.merge_ranks.empty() ? static_cast<uint32_t>(index) : spec.merge_ranks[index];
    merges.push_back({ids.left, ids.right, {rank, ids.merged}});
    merges_stay_in_words_ =
        merges_stay_in_words_ && find_word_start(merged, 0) == std::string_view::npos;
  }
  return merges;
}

void BpeModel::index_pairs(std::span<const TokenPairs::Merge> merges) {
  std::vector<TokenTrie::Entry> entries;
  entries.reserve(ids_.size());
  for (size_t i = 0; i < ids_.size(); ++i) {
    if (!ids_.text(i).empty()) {  // which is nowhere
      entries.emplace_back(ids_.text(i), ids_.id(i));
    }
  }
  auto pairs = TokenPairs::create(
      {.entries = entries, .bytes = single_byte_ids_, .merges = merges, .table = merges_});
  if (!pairs) {
    return;
  }
  std::erase_if(entries, [&](const auto& entry) { return !pairs->is_formed(entry.second); });
  byte_bpe_ = ByteBpe::create(*std::move(pairs), single_byte_ids_, std::move(entries));
  if (byte_bpe_) {
    merges_ = MergeTable();
  }
}

void BpeModel::index_whole_pieces() {
  std::vector<PieceTable::Entry> whole;
  whole.reserve(ids_.size());
  for (size_t i = 0; i < ids_.size(); ++i) {
    const std::string_view bytes = ids_.text(i);
    const TokenId id = ids_.id(i);
    if (bytes.empty() || (!ignore_merges_ && !(byte_bpe_ && byte_bpe_->is_formed(id)))) {
      continue;
    }
    if (bytes.size() <= PieceTable::kBytesMax) {
      whole.emplace_back(bytes, id);
    } else {
      long_whole_pieces_.emplace(bytes, id);
      whole_bytes_max_ = std::max(whole_bytes_max_, bytes.size());
    }
  }
  whole_pieces_ = PieceTable(whole);
}

TokenId BpeModel::lookup(std::string_view piece) const {
  return ids_.find(piece);
}

void BpeModel::prepare_long_words() const {
  if (byte_bpe_) {
    byte_bpe_->prepare_long_words();
  }
}

std::optional<TokenId> BpeModel::find(std::string_view token_text) const {
  TokenId id = kNone;
  if (alphabet_ == Alphabet::kCharacters) {
    id = lookup(token_text);
  } else if (const auto bytes = ByteAlphabet::get().unmap(token_text)) {
    id = lookup(*bytes);
  } else if (const auto other = other_ids_.find(token_text); other != other_ids_.end()) {
    id = other->second;
  }
  return id == kNone ? std::nullopt : std::optional(id);
}

TokenId BpeModel::find_whole(std::string_view piece) const {
  if (piece.size() <= PieceTable::kBytesMax) {
    return whole_pieces_.find(piece);
  }
  if (piece.size() > whole_bytes_max_) {
    return kNone;
  }
  const auto found = long_whole_pieces_.find(piece);
  return found == long_whole_pieces_.end() ? kNone : found->second;
}

void BpeModel::encode(std::string_view piece, BpeScratch& scratch,
                      std::vector<TokenId>& out) const {
  const TokenId id = find_whole(piece);
  if (id != kNone) {
    out.push_back(id);
    return;
  }
  encode_divided(piece, scratch, out);
}

void BpeModel::encode_divided(std::string_view piece, BpeScratch& scratch,
                              std::vector<TokenId>& out) const {
  if (byte_bpe_) {
    scratch.byte_bpe.cancel = scratch.stop.cancel;
    byte_bpe_->encode(piece, scratch.byte_bpe, out);
    return;
  }
  scratch.ids.clear();
  if (alphabet_ == Alphabet::kBytes) {
    scratch.ids.reserve(piece.size());
    for (const char byte : piece) {
      scratch.ids.push_back(single_byte_ids_[static_cast<unsigned char>(byte)]);
    }
  } else {
    split_characters(piece, scratch.ids);
  }
  if (scratch.ids.size() <= kShortWordSymbols) {
    merge_short(scratch, out);
  } else {
    merge_long(scratch, out);
  }
}

void BpeModel::encode_divided(std::span<WordToEncode> words, BpeScratch& scratch) const {
  if (byte_bpe_) {
    byte_bpe_->encode_short(words);
    return;
  }
  for (WordToEncode& next : words) {
    scratch.word_ids.clear();
    encode_divided(next.word, scratch, scratch.word_ids);
    std::ranges::copy(scratch.word_ids, next.ids);
    next.count = static_cast<uint32_t>(scratch.word_ids.size());
  }
}

size_t BpeModel::find_part_end(std::string_view piece, size_t at) const {
  return merges_stay_in_words_ ? std::min(find_word_start(piece, at), piece.size()) : piece.size();
}

/// The order of unknown tokens among byte-fallback tokens is the reference's: a pending unknown
/// token is only written before the next known character.
void BpeModel::split_characters(std::string_view piece, std::vector<TokenId>& ids) const {
  bool unk_pending = false;
  std::string buffer;
  for (size_t at = 0; at < piece.size();) {
    const uint32_t bytes = decode_at(piece, at).bytes;
    const std::string_view spelled = spell_character(piece, at, bytes, buffer);
    const TokenId id = spelled.size() == 1
                           ? single_byte_ids_[static_cast<unsigned char>(spelled[0])]
                           : lookup(spelled);
    at += bytes;
    if (id != kNone) {
      if (std::exchange(unk_pending, false)) {
        ids.push_back(unk_);
      }
      ids.push_back(id);
    } else if ((!byte_fallback_ || !append_bytes(spelled, ids)) && unk_ != kNone) {
      if (unk_pending && !fuse_unk_) {
        ids.push_back(unk_);
      }
      unk_pending = true;
    }
  }
  if (unk_pending) {
    ids.push_back(unk_);
  }
}

std::string_view BpeModel::spell_character(std::string_view piece, size_t at, size_t bytes,
                                           std::string& buffer) const {
  const std::string_view character = piece.substr(at, bytes);
  const std::string_view prefix = at == 0 ? std::string_view() : prefix_;
  const std::string_view suffix = at + bytes == piece.size() ? suffix_ : std::string_view();
  if (prefix.empty() && suffix.empty()) {
    return character;
  }
  return buffer.assign(prefix).append(character).append(suffix);
}

bool BpeModel::append_bytes(std::string_view spelled, std::vector<TokenId>& ids) const {
  const auto id_of = [this](char byte) { return fallback_ids_[static_cast<unsigned char>(byte)]; };
  if (std::ranges::any_of(spelled, [&](char byte) { return id_of(byte) == kNone; })) {
    return false;
  }
  std::ranges::transform(spelled, std::back_inserter(ids), id_of);
  return true;
}

void BpeModel::merge_short(BpeScratch& scratch, std::vector<TokenId>& out) const {
  std::vector<TokenId>& ids = scratch.ids;
  std::vector<MergeRule>& rules = scratch.rules;
  rules.clear();
  for (size_t i = 0; i + 1 < ids.size(); ++i) {
    rules.push_back(merges_.find(ids[i], ids[i + 1]));
  }
  while (!rules.empty()) {
    const auto best =
        std::ranges::min_element(rules, {}, &MergeRule::rank);  // the leftmost of equals
    if (best->rank == kNoRank) {
      break;
    }
    const auto i = static_cast<size_t>(best - rules.begin());
    ids[i] = best->merged;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(i) + 1);
    rules.erase(best);
    if (i > 0) {
      rules[i - 1] = merges_.find(ids[i - 1], ids[i]);
    }
    if (i + 1 < ids.size()) {
      rules[i] = merges_.find(ids[i], ids[i + 1]);
    }
  }
  out.insert(out.end(), ids.begin(), ids.end());
}

void BpeModel::enqueue(BpeScratch& scratch, uint32_t left, uint32_t right) const {
  const MergeRule rule = merges_.find(scratch.symbols[left].id, scratch.symbols[right].id);
  if (rule.rank != kNoRank) {
    scratch.queue.push_back((static_cast<uint64_t>(rule.rank) << 32) | left);
    std::ranges::push_heap(scratch.queue, std::greater<>());
  }
}

/// Queue entries go stale when one of their symbols merges; they are recognised when popped,
/// because then the pair at that position has another rank. At most n - 1 entries at first and two
/// per merge.
void BpeModel::merge_long(BpeScratch& scratch, std::vector<TokenId>& out) const {
  auto& symbols = scratch.symbols;
  auto& queue = scratch.queue;
  const auto count = static_cast<uint32_t>(scratch.ids.size());
  symbols.clear();
  queue.clear();
  symbols.reserve(count);
  for (uint32_t i = 0; i < count; ++i) {
    symbols.push_back(
        {scratch.ids[i], i == 0 ? kEndOfList : i - 1, i + 1 == count ? kEndOfList : i + 1});
  }
  for (uint32_t i = 0; i + 1 < count; ++i) {
    const MergeRule rule = merges_.find(symbols[i].id, symbols[i + 1].id);
    if (rule.rank != kNoRank) {
      queue.push_back((static_cast<uint64_t>(rule.rank) << 32) | i);
    }
  }
  std::ranges::make_heap(queue, std::greater<>());
  size_t pops = 0;
  while (!queue.empty()) {
    std::ranges::pop_heap(queue, std::greater<>());
    const uint64_t entry = queue.back();
    queue.pop_back();
    ++scratch.queue_pops;
    if (++pops % kPopsPerLook == 0 && scratch.stop.cancelled()) [[unlikely]] {
      return;
    }
    const auto at = static_cast<uint32_t>(entry);
    BpeScratch::Symbol& left = symbols[at];
    if (left.id == kNone || left.next == kEndOfList) {
      continue;
    }
    BpeScratch::Symbol& right = symbols[left.next];
    const MergeRule rule = merges_.find(left.id, right.id);
    if (rule.rank != entry >> 32) {
      continue;
    }
    left.id = rule.merged;
    right.id = kNone;
    left.next = right.next;
    if (left.next != kEndOfList) {
      symbols[left.next].previous = at;
      enqueue(scratch, at, left.next);
    }
    if (left.previous != kEndOfList) {
      enqueue(scratch, left.previous, at);
    }
  }
  for (uint32_t i = 0; i != kEndOfList; i = symbols[i].next) {
    out.push_back(symbols[i].id);
  }
}

}  // namespace stator::tokenizer
