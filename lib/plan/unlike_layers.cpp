#include "plan/unlike_layers.h"

#include <array>

namespace automodel::plan {
namespace {

struct UnlikeLayers {
  bool (*stands)(const arch::ModelSpec& spec, const mesh::MeshSizes& sizes);
  const char* key;
  const char* why;
};
constexpr std::array kUnlikeLayers = {
    UnlikeLayers{
        [](const arch::ModelSpec& spec, const mesh::MeshSizes& sizes) { return sizes.tp > 1 && spec.full_heads; },
        "distributed.tp_size", "its layers differ in their heads, and tensor parallelism divides all layers alike"},
    UnlikeLayers{
        [](const arch::ModelSpec& spec, const mesh::MeshSizes& sizes) { return sizes.cp > 1 && spec.full_heads; },
        "distributed.cp_size",
        "its layers differ in their heads, and context parallelism exchanges those of all layers alike"},
    UnlikeLayers{
        [](const arch::ModelSpec& spec, const mesh::MeshSizes& sizes) { return sizes.pp > 1 && spec.layer_input > 0; },
        "distributed.pp_size",
        "every layer has an input from the embeddings, which pipelines do not carry past the first stage"},
    UnlikeLayers{[](const arch::ModelSpec& spec, const mesh::MeshSizes& sizes) {
                   return sizes.pp > 1 && spec.layers_without_keys > 0;
                 },
                 "distributed.pp_size",
                 "its last layers use keys of earlier ones, which pipelines do not carry to later stages"},
};

}  // namespace

void check_unlike_layers(const arch::ModelSpec& spec, const mesh::MeshSizes& sizes, bool training, Located& report) {
  for (const auto& each : kUnlikeLayers)
    if (each.stands(spec, sizes))
      report.plan_only(training, each.why,
                       Diagnostic{"unsupported-option"}
                           .says("{}: {}", spec.model_type, each.why)
                           .hint("leave it out; meshes of each family: docs/models.md")
                           .of(each.key));
}

}  // namespace automodel::plan
