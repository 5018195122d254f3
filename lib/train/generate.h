// Text from a model, one token at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "pictures/processor.h"
#include "train/runtime.h"

namespace automodel::train {

struct GenerateOptions {
  int tokens = 100;          ///< maximum number of new tokens
  double temperature = 0.8;  ///< 0: always the most likely token
  int top_k = 0;             ///< draw only from the k most likely tokens; 0: from all
  double top_p = 1;          ///< draw only from the fewest tokens that together have this probability
  /// Context length in tokens; longer texts are truncated at the beginning.
  std::int64_t longest = std::numeric_limits<std::int64_t>::max();
  std::uint64_t seed = 42;
  std::vector<std::int64_t> ends = {};                    ///< tokens that end the text; included in the result
  std::function<void(std::int32_t token)> on_token = {};  ///< called on every rank as soon as a token is chosen
};

/// Caches the keys and values of the text that it has seen, so that calls with a common prefix (a conversation) reuse
/// them. Collective: all ranks construct and call it together, with the same arguments.
class Generator {
 public:
  /// Without `use_cache`, or if a layer does not support the cache, every token needs a pass over the whole text.
  explicit Generator(Runtime& runtime, bool use_cache = true);

  /// The pictures that the placeholders of texts stand for from now on, in their order; further ones, which a model may
  /// write, are text. Texts hold them whole.
  void set_pictures(std::vector<pictures::PicturePtr> pictures);

  /// The new tokens that continue `text`; the same on all ranks.
  std::vector<std::int32_t> continue_text(std::vector<std::int32_t> text, const GenerateOptions& options);

  /// Size of the cached keys and values on this rank; 0 without a cache.
  std::int64_t cache_bytes() const { return cache_ ? cache_->bytes() : 0; }
  /// The logits [vocabulary] for the token after `text`, on the ranks of the last stage; undefined elsewhere.
  at::Tensor logits(const std::vector<std::int32_t>& text, std::int64_t longest);
  /// The same on all ranks.
  std::vector<double> next_logits(const std::vector<std::int32_t>& text);

 private:
  /// The tokens of `text` from `begin` on, which are at `first` and behind.
  model::Microbatch microbatch(const std::vector<std::int32_t>& text, std::int64_t begin, std::int64_t first) const;
  /// Behind the last picture of `text`.
  std::int64_t pictures_end(const std::vector<std::int32_t>& text) const;

  Runtime& runtime_;
  std::optional<pictures::PictureTokens> picture_tokens_;  ///< of a model that takes pictures
  std::vector<pictures::PicturePtr> pictures_ = {};
  std::shared_ptr<comm::Communicator> stages_;   ///< the ranks of the pipeline, to broadcast the chosen token
  std::shared_ptr<model::KeyValueCache> cache_;  ///< null: no cache
  std::vector<std::int32_t> held_ = {};          ///< the tokens in the cache
};

}  // namespace automodel::train
