// Definition of a model family: how its config.json is read and how its parameters are named. Families use the same
// function names, each in its own namespace.
#pragma once

#include <string_view>

#include "arch/config_reader.h"
#include "arch/layout.h"
#include "arch/model_spec.h"

namespace automodel::arch {

struct Family {
  std::string_view model_type;    ///< of config.json
  std::string_view architecture;  ///< transformers' class of the language model
  std::string_view doc;           ///< one-line description
  /// Fills `spec` from a transformers 4 or 5 config. Problems are reported through the reader.
  void (*read)(ConfigReader& config, ModelSpec& spec);
  /// Adds the modules of one layer, with checkpoint names relative to the layer.
  void (*lay_out_layer)(const ModelSpec& spec, int number, LayerBuilder& layer);
  /// Sets the names of the modules outside the layers; nullptr: Llama's.
  void (*lay_out_ends)(const ModelSpec& spec, Layout& layout) = nullptr;
};

}  // namespace automodel::arch
