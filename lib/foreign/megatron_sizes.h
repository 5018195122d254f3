// The model that Megatron's arguments describe.
#pragma once

#include "foreign/keys.h"

namespace automodel::foreign {

/// `vocab_size`: of the tokenizer, where the arguments do not say it; padded here as Megatron pads it for `tp` ranks.
Sizes read_megatron_sizes(Keys& keys, std::optional<std::int64_t> vocab_size, std::int64_t tp, Findings& findings);

}  // namespace automodel::foreign
