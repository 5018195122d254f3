// The tokenizer interface that datasets use. To add a kind, add an entry to the table in tokenizer.cpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"
#include "config/data_config.h"
#include "tokenizer/tokenizer.h"

namespace automodel::data {

class Tokenizer {
 public:
  Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;
  virtual ~Tokenizer() = default;

  /// One past the largest id.
  virtual std::int32_t vocab_size() const = 0;
  virtual std::optional<std::int32_t> bos() const = 0;
  virtual std::optional<std::int32_t> eos() const = 0;
  virtual std::optional<std::int32_t> pad() const = 0;
  /// Appends the ids of `text` to `out`, without adding special tokens.
  virtual void encode(std::string_view text, std::vector<std::int32_t>& out) const = 0;
  /// The text of `ids`; special tokens are dropped.
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;
  /// Whether every byte is one token whose id is the byte's value. If so, text need not be encoded ahead of time.
  virtual bool bytes_are_tokens() const { return false; }
  /// The underlying tokenizer if it was loaded from a folder, for its chat template and roles; null otherwise.
  virtual const tokenizer::Tokenizer* folder() const { return nullptr; }
};

/// The byte-level vocabulary: ids 0 ... 255 are bytes, 256 is BOS, 257 EOS, 258 padding.
std::unique_ptr<Tokenizer> make_byte_tokenizer();

/// The tokenizer that a recipe names: `bytes`, a folder with tokenizer.json (looked for in the recipe's folder, then in
/// the working directory), or a model's name in the Hugging Face cache. Null after adding problems at `key`:
/// `bad-value` for anything else, and those of tokenizer::Tokenizer::load.
std::unique_ptr<Tokenizer> open_tokenizer(const std::string& name, const std::filesystem::path& recipe_folder,
                                          const std::string& key, Diagnostics& problems,
                                          const std::optional<std::string>& revision = {});

/// The tokenizer of data that names none, beside a model in `folder`: that folder, or `bytes` if it has no tokenizer.
std::string tokenizer_of_model(const std::filesystem::path& folder);

/// The path that a tokenizer name resolves to: a file or folder as find_beside finds it, else in the Hugging Face
/// cache, there of this revision; empty for `bytes` and if nothing is found.
std::filesystem::path tokenizer_path(const std::string& name, const std::filesystem::path& recipe_folder,
                                     const std::optional<std::string>& revision = {});

/// A data section's text settings, as far as its kind has any.
struct TextChoice {
  std::optional<std::string> tokenizer = {};      ///< absent: the model's
  std::optional<std::string> revision = {};       ///< of the tokenizer in the Hugging Face cache
  std::optional<std::string> chat_template = {};  ///< a file, or the template itself; absent: the tokenizer's
  bool has_text = false;                          ///< the section has a tokenizer; false for data that holds ids
  bool chats = false;                             ///< rows become text by a chat template
};
TextChoice text_choice(const config::DatasetConfig& dataset);

}  // namespace automodel::data
