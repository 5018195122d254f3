// Megatron-FSDP's storage units, given as a list of module classes: weights that are gathered, reduced and freed
// together.
#pragma once

#include <string>
#include <string_view>

#include "arch/model_spec.h"
#include "config/recipe.h"
#include "plan/located.h"
#include "plan/sharding.h"

namespace automodel::plan {

/// Whether a class, by its name or dotted path, is a decoder layer of the model: "LlamaDecoderLayer",
/// "transformers.models.gpt2.modeling_gpt2.GPT2Block", or a name without a model's ("TransformerLayer", "Block").
bool is_decoder_layer(std::string_view module_class, const arch::ModelSpec& spec);

/// Applies megatron_fsdp_unit_modules and fsdp_double_buffer to a sharding made by plan_sharding(), and warns if they
/// have no effect. If the list does not name the model's decoder layer, the whole stage is one unit and no layer is
/// freed before the others. This matches Megatron-FSDP, where modules outside all units belong to the root.
void choose_storage_units(Sharding& sharding, const config::DistributedConfig& distributed, const arch::ModelSpec* spec,
                          Located& report);

}  // namespace automodel::plan
