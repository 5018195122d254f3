#include "data/turn_ends.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/log.h"

namespace automodel::data {
namespace {

/// What families end turns with, besides the tokenizer's eos_token.
constexpr std::array<std::string_view, 14> kNames = {"<|im_end|>",
                                                     "<|eot_id|>",
                                                     "<|eom_id|>",
                                                     "<end_of_turn>",
                                                     "<turn|>",
                                                     "<|end|>",
                                                     "<|return|>",
                                                     "<|call|>",
                                                     "<|eot|>",
                                                     "<|endofturn|>",
                                                     "[|endofturn|]",
                                                     "<|user|>",
                                                     "<|END_OF_TURN_TOKEN|>",
                                                     "<\xEF\xBD\x9C"
                                                     "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>"};

}  // namespace

TurnEnds::TurnEnds(const tokenizer::Tokenizer& tokenizer) {
  const auto take = [&](std::string_view name) {
    const auto id = tokenizer.find(name);
    if (id == tokenizer::kNoId || is_end(id)) return;
    ids_.push_back(id);
    names_ += (names_.empty() ? "" : ", ") + std::string(name);
  };
  if (const auto eos = tokenizer.role("eos_token")) take(*eos);
  for (const auto name : kNames) take(name);
}

bool TurnEnds::is_end(std::int32_t id) const {
  return std::ranges::find(ids_, id) != ids_.end();
}

void TurnEnds::finish(const DatasetContext& context) const {
  if (seen_ || ids_.empty() || context.quiet) return;
  log::warning(
      Diagnostic{"no-end-of-turn"}
          .says("no row of {} has a label that ends a turn ({}): the model does not learn to stop", context.key, names_)
          .hint("let the chat template end the assistant's turns with such a token; 'automodel data' "
                "shows what is learned")
          .of(context.key));
}

}  // namespace automodel::data
