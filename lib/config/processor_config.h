// `processor:` how pictures become pixels, with the keys of NeMo AutoModel's recipes for vision-language models.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/types.h"

namespace automodel::config {

struct ProcessorConfig {
  using IsSection = void;
  Field<Value> target{"_target_", nullptr, "transformers.AutoProcessor.from_pretrained.",
                      Ignored{"the class follows from preprocessor_config.json"}};
  Field<std::optional<std::string>> pretrained_model_name_or_path{
      "pretrained_model_name_or_path", std::nullopt,
      "Folder with preprocessor_config.json; null: the model's. Must be next to the recipe or in the working "
      "directory."};
  Field<Value> padding_side{"padding_side", nullptr, "Side on which rows are padded.",
                            Ignored{"rows are padded on the right; padding is masked, and positions are relative"}};
  Field<Value> trust_remote_code{"trust_remote_code", nullptr, "Python from the model's folder.",
                                 Ignored{"no Python is run"}};
  Field<Value> video_processor{"video_processor", nullptr, "Processor of videos.",
                               Ignored{"rows with videos are refused"}};
  Field<std::optional<std::int64_t>> min_pixels{
      "min_pixels", std::nullopt, "Least number of pixels of a resized picture, for models that take any size.",
      at_least<std::int64_t{1}>};
  Field<std::optional<std::int64_t>> max_pixels{
      "max_pixels", std::nullopt, "Largest number of pixels of a resized picture, for models that take any size.",
      at_least<std::int64_t{1}>};
};

}  // namespace automodel::config
