// `neftune:` noise added to the token embeddings in training (Jain et al. 2023), with NeMo AutoModel's key.
#pragma once

#include "config/types.h"

namespace automodel::config {

struct NeftuneConfig {
  using IsSection = void;
  Field<double> noise_alpha{"noise_alpha", 5.0,
                            "Add uniform noise of at most alpha / sqrt(tokens per sequence * hidden size) to every "
                            "embedding, in training only; 0: none.",
                            at_least<0>};
};

}  // namespace automodel::config
