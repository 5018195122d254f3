// A tokenizer as NeMo AutoModel's data sets use it: pad ids, forced begin and end, truncation, padding, sides.
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
  bool special = true;                               ///< with the tokens that the tokenizer puts around a text
  std::optional<std::int64_t> limit = std::nullopt;  ///< cut to this many tokens
  std::optional<std::int64_t> full = std::nullopt;   ///< fill to this many
  bool pad_right = false;                            ///< whatever side the tokenizer pads
  bool spans = false;
};

struct Encoding {
  std::vector<std::int32_t> ids = {};
  std::vector<bool> real = {};                  ///< false: padding
  std::vector<tokenizer::TextSpan> spans = {};  ///< of each token; empty ones for what is not of the text
};

class RowTokenizer {
 public:
  /// The one that a section names, else the model's. Null after `missing-key`, `missing-file` or `bad-tokenizer`.
  static std::shared_ptr<const RowTokenizer> open(const config::TokenizerSource& source, const DatasetContext& context,
                                                  Diagnostics& problems);

  Encoding encode(std::string_view text, const EncodeOptions& options) const;
  std::int64_t count(std::string_view text) const;  ///< of tokens without special ones

  std::optional<std::int32_t> eos() const { return eos_; }
  bool adds_bos() const { return add_bos_; }
  bool pads_left() const { return pads_left_; }
  /// What rows are padded with: the pad token, where it is missing or 0 the end of text (as packaging believes).
  std::int32_t fill() const { return pad_ != 0 ? pad_ : eos_.value_or(0); }
  /// The id that the tokenizer itself pads with; NeMo AutoModel's is 0 where a tokenizer has none.
  std::int32_t pad() const { return pad_; }
  std::int32_t own_pad() const { return own_pad_; }
  bool is_special(std::int32_t id) const;
  /// transformers' own class, without NeMo AutoModel's help with templates.
  bool plain() const { return plain_; }
  const std::map<std::string, std::string, std::less<>>& roles() const { return roles_; }
  const tokenizer::Tokenizer& folder() const { return *own_; }
  /// What encodings depend on.
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
