// A tokenizer as NeMo AutoModel's datasets use it: pad ids, forced BOS and EOS, truncation, padding, sides.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/diagnostic.h"
#include "config/data_config.h"
#include "data/open_dataset.h"
#include "tokenizer/token_spans.h"
#include "tokenizer/tokenizer.h"

namespace automodel::data {

struct EncodeOptions {
  bool special = true;                               ///< add the tokens that the tokenizer puts around a text
  std::optional<std::int64_t> limit = std::nullopt;  ///< truncate to this many tokens
  std::optional<std::int64_t> full = std::nullopt;   ///< pad to this many tokens
  bool pad_right = false;                            ///< regardless of the side that the tokenizer pads
  bool spans = false;
  std::optional<std::string_view> second = std::nullopt;  ///< follows the text, encoded apart; without spans
};

struct Encoding {
  std::vector<std::int32_t> ids = {};
  std::vector<bool> real = {};                  ///< false: padding
  std::vector<tokenizer::TextSpan> spans = {};  ///< of each token; empty for tokens that are not part of the text
};

class RowTokenizer {
 public:
  /// The tokenizer that the section names, else the model's. Null after `missing-key`, `missing-file` or
  /// `bad-tokenizer`.
  static std::shared_ptr<const RowTokenizer> open(const config::TokenizerSource& source, const DatasetContext& context,
                                                  Diagnostics& problems);

  Encoding encode(std::string_view text, const EncodeOptions& options) const;
  std::int64_t count(std::string_view text) const;  ///< tokens, without special ones

  std::optional<std::int32_t> eos() const { return eos_; }
  bool adds_bos() const { return add_bos_; }
  bool pads_left() const { return pads_left_; }
  /// Id that rows are padded with: the pad token; if it is missing or 0, EOS (NeMo AutoModel's packaging takes 0 for
  /// missing).
  std::int32_t fill() const { return pad_ != 0 ? pad_ : eos_.value_or(0); }
  /// The pad token's id. Without one, pad() is the EOS id if plain(), else 0 as in NeMo AutoModel, and own_pad() is 0.
  std::int32_t pad() const { return pad_; }
  std::int32_t own_pad() const { return own_pad_; }
  bool is_special(std::int32_t id) const;
  /// Behave like transformers' own class, without NeMo AutoModel's additions for templates.
  bool plain() const { return plain_; }
  const std::map<std::string, std::string, std::less<>>& roles() const { return roles_; }
  const tokenizer::Tokenizer& folder() const { return *own_; }
  /// Identifies everything that encodings depend on.
  std::string fingerprint() const;

 private:
  RowTokenizer(std::unique_ptr<const tokenizer::Tokenizer> own, const config::TokenizerSource& source);
  void cut(Encoding& text, std::size_t keep) const;
  void fill_up(Encoding& out, std::size_t size, bool right) const;

  std::unique_ptr<const tokenizer::Tokenizer> own_;
  mutable std::mutex mutex_;
  std::unique_ptr<tokenizer::Encoder> encoder_;
  std::map<std::string, std::string, std::less<>> roles_;
  std::optional<std::int32_t> bos_, eos_;
  std::int32_t pad_ = 0, own_pad_ = 0;
  bool plain_, add_bos_, add_eos_, pads_left_, cuts_left_;
};

}  // namespace automodel::data
