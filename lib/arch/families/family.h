// What defines a model family: how its config.json is read and how its parameters are named. Families have functions of
// the same names, each in the namespace of its family.
#pragma once

#include <string_view>

#include "arch/config_reader.h"
#include "arch/layout.h"
#include "arch/model_spec.h"

namespace automodel::arch {

struct Family {
  std::string_view model_type;    ///< of config.json
  std::string_view architecture;  ///< transformers' class of the language model
  std::string_view doc;           ///< one line for people
  /// Fills `spec` from a config of transformers 4 or 5. Problems go to the reader.
  void (*read)(ConfigReader& config, ModelSpec& spec);
  /// The modules of one layer, as checkpoints name them below the layer.
  void (*lay_out_layer)(const ModelSpec& spec, int number, LayerBuilder& layer);
  /// Names of the modules outside the layers; nullptr: Llama's.
  void (*lay_out_ends)(const ModelSpec& spec, Layout& layout) = nullptr;
};

}  // namespace automodel::arch
