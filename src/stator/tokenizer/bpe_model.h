// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stator/core/flat_map.h"
#include "stator/core/ids.h"
#include "stator/core/result.h"
#include "stator/tokenizer/byte_bpe.h"
#include "stator/tokenizer/merge_table.h"
#include "stator/tokenizer/piece_table.h"
#include "stator/tokenizer/text_ids.h"
#include "stator/tokenizer/tokenizer.h"
#include "stator/tokenizer/vocabulary_entries.h"

namespace stator::tokenizer {

/// The "model" of a tokenizer.json of type BPE. The views must live until the model is made.
struct BpeSpec {
  VocabularyEntries vocab;
  std::vector<std::pair<std::string_view, std::string_view>> merges;  ///< most important first
  std::vector<uint32_t> merge_ranks;  ///< of merges[i], less goes first; empty: their order
  std::optional<std::string_view> unk_token;
  std::string_view continuing_subword_prefix;
  std::string_view end_of_word_suffix;
  bool fuse_unk = false;
  bool byte_fallback = false;  ///< characters outside the vocabulary become "<0xNN>" tokens
  bool ignore_merges =
      false;  ///< a piece that is in the vocabulary is one token whatever the merges say
};

/// Working memory of one thread; reused between words.
struct BpeScratch {
  struct Symbol {
    TokenId id;
    uint32_t previous;
    uint32_t next;
  };
  std::vector<TokenId> ids;
  std::vector<TokenId> word_ids;
  std::vector<WordToEncode> words;
  std::vector<TokenId> ids_of_words;
  std::vector<MergeRule> rules;  // of ids[i] and ids[i + 1]
  std::vector<Symbol> symbols;   // doubly linked list, in place
  std::vector<uint64_t> queue;   // heap of (rank << 32 | position of the left symbol)
  uint64_t queue_pops = 0;       // counts work: at most 3 per symbol of a word
  ByteBpeScratch byte_bpe;
  EncodeStop stop;  // of the call; what a word gives after cancelling does not matter
};

/// Byte-pair encoding of one piece: merges the adjacent pair of lowest rank, leftmost on ties,
/// until no pair has a rule. Pieces of bytes go to ByteBpe, which is linear, where the vocabulary
/// allows it. Otherwise short words scan for the lowest rank and long ones keep a heap over a
/// linked list: O(n log n) for any word. Immutable and thread-safe.
class BpeModel {
 public:
  /// In which alphabet pieces arrive: characters as in the vocabulary file, or raw bytes where the
  /// file spells bytes in the byte alphabet. kBytes saves writing every piece in the alphabet.
  enum class Alphabet : uint8_t { kCharacters, kBytes };

  /// Whether pieces may come as raw bytes: all 256 bytes are in the vocabulary and nothing is added
  /// to characters.
  static bool supports_bytes(const BpeSpec& spec);

  /// An empty vocabulary: everything vanishes.
  BpeModel() = default;

  /// kCorrupt: a merge is not in the vocabulary, or the unknown token is not and may be needed.
  static Result<BpeModel> create(const BpeSpec& spec, Alphabet alphabet);

  /// Appends the ids of one non-empty piece. Never fails: what has no token, no byte fallback and
  /// no unknown token vanishes, as in the reference.
  void encode(std::string_view piece, BpeScratch& scratch, std::vector<TokenId>& out) const;

  /// The pieces of up to PieceTable::kBytesMax bytes that are one token.
  const PieceTable& whole_pieces() const { return whole_pieces_; }

  /// The token that is all of a piece, or PieceTable::kNone.
  TokenId find_whole(std::string_view piece) const;

  /// `encode` for a piece that is not one of `whole_pieces`.
  void encode_divided(std::string_view piece, BpeScratch& scratch, std::vector<TokenId>& out) const;

  /// The same for several pieces of up to WordMerger::kBytesMax bytes, faster than one by one.
  void encode_divided(std::span<WordToEncode> words, BpeScratch& scratch) const;

  /// End of the part of `piece` from `at` that can be encoded by itself without changing the
  /// result: SentencePiece-style models have no tokens across "x▁", so that their texts, which come
  /// as a single piece, need not be merged (and cached) as one word. `piece.size()` for other
  /// models.
  size_t find_part_end(std::string_view piece, size_t at) const;

  /// Id of a vocabulary entry by its spelling in the file.
  std::optional<TokenId> find(std::string_view token_text) const;

  /// Makes what only words of more than WordMerger::kBytesMax bytes need, else the first of them
  /// waits for it: a tenth of a second for large vocabularies. Any thread, while others encode.
  void prepare_long_words() const;

  /// Number of entries.
  size_t vocab_size() const { return ids_.size() + other_ids_.size(); }

 private:
  static constexpr TokenId kNone = UINT32_MAX;
  static constexpr std::array<TokenId, 256> all_none() {
    std::array<TokenId, 256> ids;
    ids.fill(kNone);
    return ids;
  }

  /// No text needs the unknown token.
  bool knows_every_character() const;
  void index_vocab(const BpeSpec& spec);
  Status index_merges(const BpeSpec& spec);
  Result<std::vector<TokenPairs::Merge>> read_merges(const BpeSpec& spec);
  void index_single_bytes();
  void index_pairs(std::span<const TokenPairs::Merge> merges);
  void index_whole_pieces();
  TokenId lookup(std::string_view piece) const;
  void split_characters(std::string_view piece, std::vector<TokenId>& ids) const;
  /// The `bytes` at `at` as the vocabulary spells them: with the prefix of pieces that continue a
  /// word and the suffix of those that end it. A view of `piece` or of `buffer`.
  std::string_view spell_character(std::string_view piece, size_t at, size_t bytes,
                                   std::string& buffer) const;
  /// False, and nothing written, unless every byte of `spelled` has a token.
  bool append_bytes(std::string_view spelled, std::vector<TokenId>& ids) const;
  void merge_short(BpeScratch& scratch, std::vector<TokenId>& out) const;
  void merge_long(BpeScratch& scratch, std::vector<TokenId>& out) const;
  void enqueue(BpeScratch& scratch, uint32_t left, uint32_t right) const;

  Alphabet alphabet_ = Alphabet::kCharacters;
  bool fuse_unk_ = false;
  bool byte_fallback_ = false;
  bool ignore_merges_ = false;
  bool merges_stay_in_words_ = false;  // no merge gives "x▁"
  TokenId unk_ = kNone;
  std::string prefix_;
  std::string suffix_;
  TextIds ids_;                              // spelled in alphabet_
  FlatMap<std::string, TokenId> other_ids_;  // kBytes: entries that are not in the byte alphabet
  std::array<TokenId, 256> single_byte_ids_ =
      all_none();  // one-byte pieces; kNone where there is none
  std::array<TokenId, 256> fallback_ids_ = all_none();  // "<0xNN>"
  MergeTable merges_;                                   // empty if there is byte_bpe_
  std::optional<ByteBpe> byte_bpe_;  // kBytes: if merges come after those of their parts
  PieceTable whole_pieces_;
  // Those too long for it: a few thousand, so that a miss does not wait for memory.
  FlatMap<std::string_view, TokenId> long_whole_pieces_;
  size_t whole_bytes_max_ = 0;  // of these
};

}  // namespace stator::tokenizer
