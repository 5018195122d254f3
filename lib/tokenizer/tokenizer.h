// The tokenizer of a Hugging Face folder: tokenizer.json as it is written, without transformers' changes by class.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/decoder.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/piece_model.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/surround.h"

namespace automodel::tokenizer {

/// The texts of a folder; only `tokenizer` must be there.
struct TokenizerFiles {
  std::string tokenizer = {};                     ///< tokenizer.json
  std::optional<std::string> config = {};         ///< tokenizer_config.json
  std::optional<std::string> chat_template = {};  ///< chat_template.jinja
  std::string folder = {};                        ///< for messages
};

/// Constant once made, so that threads may share it.
class Tokenizer {
 public:
  /// Reads a folder, or the tokenizer.json that is named. Null after problems: `missing-file`, and `bad-tokenizer` for
  /// what is broken or not supported, all of it at once.
  static std::unique_ptr<const Tokenizer> load(const std::filesystem::path& path, Diagnostics& problems);
  static std::unique_ptr<const Tokenizer> parse(const TokenizerFiles& files, Diagnostics& problems);

  Id vocab_size() const { return vocab_size_; }  ///< one past the largest id
  Id find(std::string_view token) const;         ///< kNoId where there is none
  /// The token that tokenizer_config.json gives a role: "bos_token", "eos_token", "pad_token", "unk_token", ...
  std::optional<std::string> role(std::string_view name) const;
  std::optional<Id> role_id(std::string_view name) const;
  const std::map<std::string, std::string, std::less<>>& roles() const { return roles_; }
  const std::optional<std::string>& chat_template() const { return chat_template_; }
  /// The template for conversations with tools, where there is one of its own.
  const std::optional<std::string>& tool_template() const { return tool_template_; }
  /// A text of tokenizer_config.json ("tokenizer_class", "padding_side"); "" where there is none.
  std::string setting(const std::string& name) const;
  /// The token of an id as the vocabulary has it; "" where there is none.
  std::string token(Id id) const;
  /// What a token stands for in a text: its bytes, an added token's content, a mark of SentencePiece as a space.
  std::string surface(Id id) const;
  /// A text as the normalizer leaves it, where tokens are bytes; else as it is.
  std::string normalized(std::string_view text) const;
  /// Whether spaces at the ends of tokens count as part of them where places are asked for.
  bool keeps_spaces() const { return !surround_.trims; }
  const Surround& surround() const { return surround_; }
  /// Changes with every byte of tokenizer.json and with the roles; what caches are named after.
  std::uint64_t fingerprint() const { return fingerprint_; }

  /// The text of ids; those that are not in the vocabulary give none.
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
  void take_added(AddedToken token);
  void finish_added();
  void name_id(Id id, std::string token, bool special);

  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  std::unique_ptr<const PieceModel> model_;
  Decoder decoder_;
  Surround surround_;
  std::vector<AddedToken> added_;
  std::unique_ptr<const TokenFinder> raw_finder_;         ///< of tokens looked for in the text as it is
  std::unique_ptr<const TokenFinder> normalized_finder_;  ///< of the others
  std::vector<std::int32_t> entry_of_;                    ///< of each id; -1 where there is none
  std::vector<Entry> entries_;
  std::map<std::string, std::string, std::less<>> roles_;
  std::optional<std::string> chat_template_;
  std::optional<std::string> tool_template_;
  std::map<std::string, std::string> settings_;
  std::optional<PieceModel::Cuts> cuts_;
  Id vocab_size_ = 0;
  std::uint64_t fingerprint_ = 0;
};

/// Remembers the ids of pieces that came before.
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
  /// The slot of `piece`, filled or free.
  Slot& slot(std::string_view piece);
  std::span<const Id> ids(const Slot& slot) const { return {ids_.data() + slot.ids, slot.count}; }
  /// Fills a free slot that slot() gave.
  void fill(Slot& slot, std::string_view piece, std::span<const Id> ids);

 private:
  static constexpr std::size_t kSlots = 1 << 16;
  std::vector<Slot> slots_;
  std::size_t used_ = 0;
  std::string text_;
  std::vector<Id> ids_;
};

/// Encodes texts, one after another; one a thread. The tokenizer must outlive it.
class Encoder {
 public:
  explicit Encoder(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  /// Appends the ids of `text` to `out`; `special` puts the tokenizer's own special tokens around them. What is not
  /// UTF-8 counts as U+FFFD. Special tokens in the text become their ids either way. Throws Error where a pattern of
  /// the tokenizer gives up.
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
