// What datasets need of a tokenizer. Further kinds join by one more row of the table in tokenizer.cpp.
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
  /// Appends the ids of `text` to `out`, without special tokens.
  virtual void encode(std::string_view text, std::vector<std::int32_t>& out) const = 0;
  /// The text of `ids`; special tokens give none.
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;
  /// Whether every byte of a text is one token whose id is the byte. Texts then need not be encoded ahead of time.
  virtual bool bytes_are_tokens() const { return false; }
  /// The tokenizer of a folder, which also knows chat templates; null for others.
  virtual const tokenizer::Tokenizer* folder() const { return nullptr; }
};

/// The byte-level vocabulary: ids 0 ... 255 are bytes, 256 begins a text, 257 ends one, 258 fills rows.
std::unique_ptr<Tokenizer> make_byte_tokenizer();

/// The tokenizer that a recipe names: `bytes`, a folder with tokenizer.json, looked for in the recipe's folder and
/// then in the working directory, or a model's name in the Hugging Face cache. Null after problems at `key`:
/// `bad-value` for what is neither, and those of tokenizer::Tokenizer::load.
std::unique_ptr<Tokenizer> open_tokenizer(const std::string& name, const std::filesystem::path& recipe_folder,
                                          const std::string& key, Diagnostics& problems);

/// Where the name of a tokenizer leads: a file or folder as find_beside finds it, else in the Hugging Face cache; empty
/// for `bytes` and for what is nowhere.
std::filesystem::path tokenizer_path(const std::string& name, const std::filesystem::path& recipe_folder);

/// What a section of data says about its text, as far as its kind knows of text.
struct TextChoice {
  std::optional<std::string> tokenizer = {};      ///< absent: the model's
  std::optional<std::string> chat_template = {};  ///< a file, or a template's text; absent: the tokenizer's
};
TextChoice text_choice(const config::DatasetConfig& dataset);

}  // namespace automodel::data
