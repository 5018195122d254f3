// Whose configuration a file is, by its keys.
#include "foreign/conversion.h"
#include "foreign/keys.h"
#include "foreign/source_file.h"

namespace automodel::foreign {
namespace {

bool has_component(const config::Node& root) {
  const auto* model = root.find("model");
  const auto* name = model == nullptr ? nullptr : model->value.find("_component_");
  return name != nullptr && name->value.text.starts_with("torchtune");
}

}  // namespace

std::string_view recognise(const std::string& path, std::string_view text) {
  if (text.find("[parallelism]") != std::string_view::npos && text.find("[model]") != std::string_view::npos)
    return "torchtitan";
  Diagnostics problems;
  config::Node root{.kind = config::Node::Kind::kMap, .entries = {}};
  if (holds_arguments(text))
    add_arguments(root, argument_lines(text), path);
  else
    root = config::parse_yaml(text, path, problems);
  const auto has = [&](std::string_view key) { return root.find(key) != nullptr; };
  if (has("model_name_or_path") && (has("stage") || has("finetuning_type"))) return "llamafactory";
  if (has("MODEL_ARGS") || has("tensor_model_parallel_size") || (has("num_layers") && has("hidden_size")) ||
      (has("language_model") && has("model_parallel")))
    return "megatron";
  if (has("base_model") && (has("micro_batch_size") || has("datasets"))) return "axolotl";
  if (has("model_spec") && has("parallelism")) return "torchtitan";
  if (has_component(root)) return "torchtune";
  if (has("distributed_type")) return "accelerate";
  if (has("model") && (has("train_dataset") || has("dist_config")) && !has("distributed")) return "llamafactory";
  if (has("model_name_or_path") &&
      (has("max_length") || has("max_seq_length") || has("dataset_name") || has("dataset_mixture")))
    return "trl";
  if (has("model_name_or_path") && has("per_device_train_batch_size")) return "hf-trainer";
  if (has("zero_optimization") || has("train_micro_batch_size_per_gpu")) return "deepspeed";
  return {};
}

}  // namespace automodel::foreign
