// The request that `automodel generate` passes to its ranks as JSON. Declared like a recipe section so that
// config::to_dict can write it and config::Reader can read it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/recipe.h"

namespace automodel::config {

struct GenerateRequest {
  using IsSection = void;
  Field<std::string> folder{"folder", "", "Hugging Face folder: config.json and safetensors."};
  Field<std::string> adapters{"adapters", "", "Folder of LoRA adapters on top of that model; empty: none."};
  Field<std::string> peft{"peft", "", "The recipe's peft section for them, as JSON; the scale is the folder's."};
  Field<std::string> tokenizer{"tokenizer", "", "Folder with tokenizer.json, or bytes."};
  Field<std::vector<std::string>> prompts{"prompts", {}, "Texts to continue."};
  Field<std::vector<std::string>> images{"images", {}, "Files of pictures that the first user message is about."};
  Field<bool> chat{"chat", false, "Prompts are user messages; without any, lines of standard input are."};
  Field<std::optional<std::string>> system{"system", std::nullopt, "System message of the conversation."};
  Field<int> max_new_tokens{"max_new_tokens", 256, "Maximum number of new tokens.", at_least<1>};
  Field<double> temperature{"temperature", 0.0, "Sampling temperature; 0: always the most likely token.", at_least<0>};
  Field<int> top_k{"top_k", 0, "Sample from the k most likely tokens; 0: from all.", at_least<0>};
  Field<double> top_p{"top_p", 1.0, "Sample from the most likely tokens whose probabilities add up to this.", positive};
  Field<int> seed{"seed", 42, "Seed of the sampling.", at_least<0>};
  Field<bool> logits{"logits", false, "The logits behind each prompt as JSON, instead of text."};
  Field<bool> json{"json", false, "One JSON document instead of streamed text."};
  Field<std::string> device{"device", "auto", "auto, cpu or cuda."};
  Field<std::optional<std::string>> dtype{"dtype", std::nullopt, "Dtype to compute in; null: that of the weights."};
  Field<int> tp_size{"tp_size", 1, "Tensor-parallel ranks.", at_least<1>};
  Field<int> pp_size{"pp_size", 1, "Pipeline stages.", at_least<1>};
};

/// Converts to one line of JSON and back; `problems` receives what the reader reports.
std::string to_json(const GenerateRequest& request);
GenerateRequest parse_generate_request(std::string_view json, Diagnostics& problems);

/// The recipe for planning the model: no data, no sharding of weights.
LoadedRecipe recipe_of(const GenerateRequest& request);

}  // namespace automodel::config
