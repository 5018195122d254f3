// The tokenizer of a Hugging Face folder: tokenizer.json as written, or as transformers' LlamaTokenizer changes it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/diagnostic.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/decoder.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/piece_model.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/surround.h"

namespace automodel::tokenizer {

/// Contents of a folder's files; only `tokenizer` is required.
struct TokenizerFiles {
  std::string tokenizer = {};                     ///< tokenizer.json
  std::optional<std::string> config = {};         ///< tokenizer_config.json
  std::optional<std::string> special_map = {};    ///< special_tokens_map.json, of older folders
  std::optional<std::string> added = {};          ///< added_tokens.json, of older folders
  std::optional<std::string> chat_template = {};  ///< chat_template.jinja
  std::optional<std::string> model = {};          ///< config.json, whose model type may choose transformers' class
  std::string folder = {};                        ///< for messages
};

/// Immutable once constructed, so threads may share it.
class Tokenizer {
 public:
  /// Reads a folder, or a tokenizer.json named directly. Null after adding problems: `missing-file`, or `bad-tokenizer`
  /// for everything that is broken or unsupported, reported all at once.
  static std::unique_ptr<const Tokenizer> load(const std::filesystem::path& path, Diagnostics& problems);
  static std::unique_ptr<const Tokenizer> parse(const TokenizerFiles& files, Diagnostics& problems);

  Id vocab_size() const { return vocab_size_; }  ///< one past the largest id
  Id find(std::string_view token) const;         ///< kNoId if absent
  /// The token with a role in tokenizer_config.json: "bos_token", "eos_token", "pad_token", "unk_token", ...
  std::optional<std::string> role(std::string_view name) const;
  std::optional<Id> role_id(std::string_view name) const;
  const std::map<std::string, std::string, std::less<>>& roles() const { return roles_; }
  const std::optional<std::string>& chat_template() const { return chat_template_; }
  /// The template for conversations with tools, if there is a separate one.
  const std::optional<std::string>& tool_template() const { return tool_template_; }
  /// A string of tokenizer_config.json ("tokenizer_class", "padding_side"); "" if absent.
  std::string setting(const std::string& name) const;
  /// Whether transformers takes its class LlamaTokenizer, which pads on the left (llama_class.h).
  bool as_llama() const { return as_llama_; }
  /// The token of an id as the vocabulary spells it; "" if there is none.
  std::string token(Id id) const;
  /// The text that a token represents: its bytes, an added token's content, SentencePiece's mark as a space.
  std::string surface(Id id) const;
  /// The text after normalization if the tokenizer is byte-level; otherwise unchanged.
  std::string normalized(std::string_view text) const;
  /// Whether the spans of tokens include spaces at their ends.
  bool keeps_spaces() const { return !surround_.trims; }
  const Surround& surround() const { return surround_; }
  /// A hash of tokenizer.json, the roles and the rules by which they are read, for the names of cache files.
  std::uint64_t fingerprint() const { return fingerprint_; }

  /// The text of `ids`; ids outside the vocabulary are dropped.
  std::string decode(std::span<const Id> ids, bool skip_special) const;

 private:
  friend class Encoder;
  struct Entry {
    std::string token;
    bool special;
  };
  bool read(const JsonPart& part);
  bool read_added(const JsonPart& part);
  void read_config(const JsonPart& part);
  void read_special(const JsonPart& part);
  std::vector<AddedToken> listed_tokens(const JsonPart& part, const std::set<std::string>& special) const;
  void take_added(std::vector<AddedToken> tokens, const JsonPart& part);
  void finish_added();
  bool is_special(Id id) const;
  void name_id(Id id, std::string token, bool special);

  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  std::unique_ptr<const PieceModel> model_;
  Decoder decoder_;
  Surround surround_;
  std::vector<AddedToken> added_;
  std::unordered_map<std::string, std::size_t> added_at_;  ///< by content, an index into added_
  std::unique_ptr<const TokenFinder> raw_finder_;          ///< tokens matched in the unchanged text
  std::unique_ptr<const TokenFinder> normalized_finder_;   ///< the others
  std::vector<std::int32_t> entry_of_;                     ///< by id, an index into entries_; -1 if there is none
  std::vector<Entry> entries_;
  std::map<Id, std::string> normal_forms_;  ///< of added tokens, which `tokenizers` decodes; only other than contents
  std::map<std::string, std::string, std::less<>> roles_;
  std::optional<std::string> chat_template_;
  std::optional<std::string> tool_template_;
  std::map<std::string, std::string> settings_;
  std::optional<PieceModel::Cuts> cuts_;
  Id vocab_size_ = 0;
  bool as_llama_ = false;
  std::uint64_t fingerprint_ = 0;
};

/// Caches the ids of recent pieces.
class PieceCache {
 public:
  PieceCache() : slots_(kSlots) {}
  struct Slot {
    std::uint64_t hash = 0;
    std::uint32_t text = 0;
    std::uint32_t length = 0;  ///< 0: free
    std::uint32_t ids = 0;
    std::uint32_t count = 0;
  };
  /// The slot of `piece`, which may be free.
  Slot& slot(std::string_view piece);
  std::span<const Id> ids(const Slot& slot) const { return {ids_.data() + slot.ids, slot.count}; }
  /// Fills the free slot that slot() returned.
  void fill(Slot& slot, std::string_view piece, std::span<const Id> ids);

 private:
  static constexpr std::size_t kSlots = 1 << 16;
  std::vector<Slot> slots_;
  std::size_t used_ = 0;
  std::string text_;
  std::vector<Id> ids_;
};

/// Encodes texts, one at a time; one encoder per thread. The tokenizer must outlive it.
class Encoder {
 public:
  explicit Encoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  /// Appends the ids of `text` to `out`; `special` puts the tokenizer's own special tokens around them. Invalid UTF-8
  /// is read as U+FFFD. Special tokens in the text become their ids either way. Throws Error if a pattern of the
  /// tokenizer exceeds its match limits.
  void encode(std::string_view text, bool special, std::vector<Id>& out);

 private:
  void encode_part(std::string_view part, bool first, std::vector<Id>& out);
  void encode_piece(std::string_view piece, std::vector<Id>& out);
  void encode_cut(std::string_view piece, std::vector<Id>& out);

  const Tokenizer& tokenizer_;
  PatternMatcher matcher_;
  PieceScratch scratch_;
  PieceCache cache_;
};

}  // namespace automodel::tokenizer
