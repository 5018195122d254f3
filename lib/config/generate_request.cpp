#include "config/generate_request.h"

#include <fmt/format.h>

#include "config/node.h"

namespace automodel::config {

std::string to_json(const GenerateRequest& request) {
  return to_json(to_dict(request));
}

GenerateRequest parse_generate_request(std::string_view json, Diagnostics& problems) {
  Origins origins;
  std::vector<IgnoredKey> ignored, unsupported;
  Reader reader(problems, origins, ignored, unsupported);
  GenerateRequest out;
  const auto tree = parse_yaml(json, "command line", problems);  // JSON is YAML
  if (problems.empty()) reader.read(tree, "", out);
  return out;
}

LoadedRecipe recipe_of(const GenerateRequest& request) {
  // A schedule needs one microbatch per stage; generation runs only the first.
  const auto text = fmt::format(
      "device: {}\n"
      "model: {{pretrained_model_name_or_path: {}{}}}\n"
      "step_scheduler: {{global_batch_size: {}, local_batch_size: {}, max_steps: 1}}\n"
      "distributed: {{strategy: ddp, tp_size: {}, pp_size: {}, pipeline: {{pp_schedule: 1F1B, pp_microbatch_size: "
      "1}}}}\n{}",
      request.device(), to_json(Value(request.folder())),
      request.dtype() ? fmt::format(", torch_dtype: {}", *request.dtype()) : "", request.pp_size(), request.pp_size(),
      request.tp_size(), request.pp_size(), request.peft().empty() ? "" : fmt::format("peft: {}\n", request.peft()));
  return read_recipe(text, "automodel generate", {}, {});
}

}  // namespace automodel::config
