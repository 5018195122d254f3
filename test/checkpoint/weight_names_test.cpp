// Tensor names in folders, matched with the parameters of models.
#include "checkpoint/format/weight_names.h"

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <numeric>

#include <catch2/catch.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "arch/families.h"
#include "arch/hf_config.h"
#include "arch/modules.h"
#include "checkpoint/format/safetensors.h"
#include "golden_file.h"
#include "temporary_folder.h"

using namespace automodel;
using namespace automodel::checkpoint;
using automodel::test::TemporaryFolder;
using Json = nlohmann::json;
using Tensors = std::map<std::string, std::vector<std::int64_t>>;

namespace {

struct Model {
  arch::ModelSpec spec;
  arch::Layout layout;
  Tensors tensors;  ///< as transformers saved them
};

Model model_named(const std::string& name) {
  static const Json models = golden::load("arch/hf_models.json");
  for (const auto& each : models) {
    if (each["name"] != name) continue;
    auto parsed = arch::parse_hf_config(each["config"].dump(), "config.json");
    REQUIRE(parsed.spec);
    auto layout = arch::layout_of(*parsed.spec);
    return {*parsed.spec, std::move(layout), each["tensors"].get<Tensors>()};
  }
  FAIL("no model " + name);
  return {};
}

Tensors without_prefix(const Tensors& tensors, const std::string& prefix) {
  Tensors out;
  for (const auto& [name, shape] : tensors) out[name.starts_with(prefix) ? name.substr(prefix.size()) : name] = shape;
  return out;
}

struct Found {
  std::unique_ptr<TemporaryFolder> files;
  std::optional<TensorFolder> folder;
  WeightPlaces places;
  Diagnostics problems;
  std::string ids() const {
    std::string out;
    for (const auto& problem : problems) out += (out.empty() ? "" : " ") + std::string(problem.id);
    return out;
  }
};

/// Writes a file with these tensors (zeros), and returns what is found in it.
Found find(const Model& model, const Tensors& tensors, ElementType type = ElementType::kBF16) {
  Found out{std::make_unique<TemporaryFolder>(), {}, {}, {}};
  std::vector<TensorInfo> infos;
  for (const auto& [name, shape] : tensors)
    infos.push_back({name, name.ends_with(".tid2eid") ? ElementType::kI64 : type, shape});
  const auto layout = lay_out(infos);
  const auto path = out.files->write("model.safetensors", layout.head);
  std::filesystem::resize_file(path, layout.file_size);
  out.folder = TensorFolder::open(out.files->path(), "model", out.problems);
  REQUIRE(out.folder);
  out.places = find_weights(*out.folder, model.spec, model.layout, out.problems);
  return out;
}

}  // namespace

TEST_CASE("Every tensor of every recorded model is found, and nothing else is expected") {
  const auto models = golden::load("arch/hf_models.json");
  for (const auto& each : models) {
    const auto model = model_named(each["name"]);
    INFO(each["name"]);
    const auto found = find(model, model.tensors);
    INFO(to_text(found.problems));
    CHECK(found.problems.empty());
    std::size_t own = 0;
    for (const auto& parameter : arch::parameters(model.layout)) own += parameter.tied_to.empty();
    CHECK(found.places.size() == own);
    for (const auto& [name, place] : found.places) {
      CHECK(place.stored.info->name == name);
      CHECK(place.first == 0);
    }
  }
}

TEST_CASE("Weights of a model with a vision tower are found as published, as saved and as in memory") {
  std::ifstream in(golden_folder() + "/vlm/llava/config.json");
  auto parsed = arch::parse_hf_config(std::string(std::istreambuf_iterator<char>(in), {}), "config.json");
  REQUIRE(parsed.spec);
  const Model model{*parsed.spec, arch::layout_of(*parsed.spec), {}};
  using Names = std::vector<std::pair<std::string, std::string>>;  // beginnings, and what stands in their place
  for (const auto& [tower, other] : std::map<std::string, Names>{
           {"model.vision_tower.", {}},
           {"vision_tower.",
            {{"model.language_model.", "language_model.model."},
             {"lm_head.", "language_model.lm_head."},
             {"model.multi_modal_projector.", "multi_modal_projector."}}},
           {"vision_tower.vision_model.", {{"model.language_model.", "language_model.model."}}}}) {
    auto names = other;
    names.emplace_back("model.vision_tower.", tower);
    Tensors tensors;
    for (const auto& parameter : arch::parameters(model.layout)) {
      auto name = parameter.fqn;
      for (const auto& [own, stored] : names)
        if (name.starts_with(own)) {
          name = stored + name.substr(own.size());
          break;
        }
      tensors[name].assign(parameter.shape.begin(), parameter.shape.end());
    }
    tensors[tower + "embeddings.position_ids"] = {1, 17};
    const auto found = find(model, tensors);
    INFO(tower << "\n" << to_text(found.problems));
    CHECK(found.problems.empty());
    CHECK(found.places.size() == tensors.size() - 1);
  }
}

TEST_CASE("Weights of DeepSeek V4 are found as published and as saved, with a table of whole numbers") {
  const auto recorded = golden::load("hf_families/deepseek_v4.json");
  auto parsed = arch::parse_hf_config(recorded["config"].dump(), "config.json");
  REQUIRE(parsed.spec);
  const Model model{*parsed.spec, arch::layout_of(*parsed.spec), {}};
  Tensors saved, published;
  for (const auto& parameter : arch::parameters(model.layout)) {
    auto& shape = saved[parameter.fqn];
    shape.assign(parameter.shape.begin(), parameter.shape.end());
    auto name = parameter.fqn.starts_with("model.") ? parameter.fqn.substr(6) : parameter.fqn;
    if (name == "embed_tokens.weight") name = "embed.weight";
    if (name.starts_with("hc_head.hc_")) name = "hc_head_" + name.substr(11);
    if (name.ends_with(".attn.norm.weight")) name = name.substr(0, name.size() - 11) + "kv_norm.weight";
    published[name] = shape;
  }
  CHECK(saved.size() == recorded["weights"].size());
  for (const auto& [name, rule] : recorded["weights"].items()) CHECK(saved.contains(name));
  published["mtp.0.norm.weight"] = {40};
  for (const auto& [tensors, ignored] : {std::pair(saved, 0), std::pair(published, 1)}) {
    const auto found = find(model, tensors);
    INFO(to_text(found.problems));
    CHECK(found.problems.empty());
    CHECK(found.places.size() == tensors.size() - static_cast<std::size_t>(ignored));
  }
}

TEST_CASE("Weights of Step 3.5's experts are found in a stack of each matrix, and written there") {
  const auto recorded = golden::load("hf_families/step3p5.json");
  auto parsed = arch::parse_hf_config(recorded["config"].dump(), "config.json");
  REQUIRE(parsed.spec);
  const Model model{*parsed.spec, arch::layout_of(*parsed.spec), {}};
  const std::int64_t experts = model.spec.moe->experts, inner = model.spec.moe->ffn, hidden = model.spec.hidden;
  Tensors published, written;
  for (const auto& [name, rule] : recorded["weights"].items())
    if (name.find(".experts.") == std::string::npos) published[name] = rule["shape"].get<std::vector<std::int64_t>>();
  for (int layer = 1; layer < model.spec.layers; ++layer) {
    const auto prefix = fmt::format("model.layers.{}.moe.", layer);
    published[prefix + "gate_proj.weight"] = published[prefix + "up_proj.weight"] = {experts, inner, hidden};
    published[prefix + "down_proj.weight"] = {experts, hidden, inner};
  }
  for (const auto& parameter : arch::parameters(model.layout)) {
    const auto place = written_as(parameter, model.spec);
    written[place.name] = place.shape;
    CHECK(place.first == (parameter.expert > 0 ? parameter.expert * inner * hidden : 0));
  }
  CHECK(written == published);
  published["model.layers.4.self_attn.q_proj.weight"] = {96, 48};  // for multi-token prediction
  const auto found = find(model, published);
  INFO(to_text(found.problems));
  CHECK(found.problems.empty());
  CHECK(found.places.at("model.layers.2.moe.experts.5.down_proj.weight").first == 5 * inner * hidden);
  CHECK(found.places.size() == recorded["weights"].size());
}

TEST_CASE("Weights of MiniMax-M3's language model are found as published, and written as transformers stores them") {
  const auto recorded = golden::load("hf_families/minimax_m3.json");
  auto parsed = arch::parse_hf_config(recorded["config"].dump(), "config.json");
  REQUIRE(parsed.spec);
  const Model model{*parsed.spec, arch::layout_of(*parsed.spec), {}};
  Tensors published, written;
  for (const auto& [name, rule] : recorded["weights"].items())
    published[name] = rule["shape"].get<std::vector<std::int64_t>>();
  std::map<std::string, std::int64_t> elements;
  for (const auto& parameter : arch::parameters(model.layout)) {
    const auto place = written_as(parameter, model.spec);
    written[place.name] = place.shape;
    elements[place.name] += parameter.shape.elements();
    const auto part = [&](std::string_view of) { return parameter.fqn.ends_with(of); };
    const std::int64_t own = parameter.shape.elements(), expert = std::max(parameter.expert, 0);
    CHECK(place.first == (part(".up_proj.weight") ? own
                          : part(".w3.weight")    ? (2 * expert + 1) * own
                          : part(".w1.weight")    ? 2 * expert * own
                                                  : expert * own));
  }
  for (const auto& [name, shape] : written)  // each tensor is filled
    CHECK(elements[name] == std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>()));
  CHECK(written.at("model.layers.0.mlp.gate_up_proj.weight") == std::vector<std::int64_t>{128, 48});
  CHECK(written.at("model.layers.1.mlp.experts.gate_up_proj") == std::vector<std::int64_t>{8, 32, 48});
  CHECK(written.contains("model.layers.1.mlp.gate.e_score_correction_bias"));
  CHECK(written.contains("model.layers.1.mlp.shared_experts.gate_up_proj.weight"));
  CHECK(written.contains("model.layers.2.self_attn.indexer.k_norm.weight"));
  for (auto* tensors : {&published, &written}) {
    (*tensors)["model.mtp.layers.0.eh_proj.weight"] = {48, 96};  // for multi-token prediction
    const auto found = find(model, *tensors);
    INFO(to_text(found.problems));
    CHECK(found.problems.empty());
    CHECK(found.places.size() == recorded["weights"].size());
  }
  const auto found = find(model, written);
  CHECK(found.places.at("model.layers.1.block_sparse_moe.experts.5.w3.weight").first == 11 * 16 * 48);
  CHECK(found.places.at("model.layers.0.mlp.up_proj.weight").first == 64 * 48);
}

TEST_CASE("Missing, unexpected and mis-shaped tensors are all reported, and no weights are placed") {
  const auto model = model_named("llama");
  auto tensors = model.tensors;
  tensors.erase("model.layers.1.self_attn.q_proj.weight");
  tensors["model.layers.7.mlp.up_proj.weight"] = {4, 4};
  tensors["model.norm.weight"] = {3};
  const auto found = find(model, tensors);
  CHECK(found.ids() == "weights-missing weights-unexpected weights-shape");
  CHECK(found.problems[0].message.find("model.layers.1.self_attn.q_proj.weight") != std::string::npos);
  CHECK(found.problems[1].message.find("model.layers.7.mlp.up_proj.weight") != std::string::npos);
  CHECK(found.problems[2].message.find("model.norm.weight is [3] and should be [") != std::string::npos);
  CHECK(found.problems[0].where.file == found.files->path().native());
  CHECK(found.places.empty());
}

TEST_CASE("A head that shares the embedding is suggested only where nothing else is missing") {
  const auto model = model_named("llama");
  auto tensors = model.tensors;
  tensors.erase("lm_head.weight");
  CHECK(find(model, tensors).problems.at(0).help.find("tie_word_embeddings: true") != std::string::npos);
  tensors.erase("model.norm.weight");
  CHECK(find(model, tensors).problems.at(0).help.find("belongs to another model") != std::string::npos);
}

TEST_CASE("Quantized weights are refused with an error of their own") {
  const auto model = model_named("llama");
  auto tensors = model.tensors;
  tensors["model.layers.0.mlp.up_proj.weight_scale_inv"] = {1, 1};
  CHECK(find(model, tensors).ids() == "weights-quantized");
  CHECK(find(model, model.tensors, ElementType::kF8E4M3).ids() == "weights-quantized");
}

TEST_CASE("A tied output head may be absent, present, or stored in place of the embedding") {
  const auto model = model_named("llama_tied");
  const auto shape = model.tensors.at("model.embed_tokens.weight");
  auto both = model.tensors;
  both["lm_head.weight"] = shape;
  CHECK(find(model, both).ids().empty());
  auto head_only = both;
  head_only.erase("model.embed_tokens.weight");
  const auto found = find(model, head_only);
  CHECK(found.ids().empty());
  CHECK(found.places.at("model.embed_tokens.weight").stored.info->name == "lm_head.weight");
}

TEST_CASE("A stored output head that differs from the embedding it is tied to is detected") {
  const auto check = [](const Model& model, Tensors tensors, const std::string& embedding) {
    tensors["lm_head.weight"] = tensors.at(embedding);
    auto found = find(model, tensors);
    CHECK(found.ids().empty());
    CHECK_FALSE(head_differs(*found.folder, model.layout));
    const auto change_end = [&](const std::string& name) {
      const auto tensor = found.folder->find(name);
      std::fstream file(tensor.file->path(), std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(static_cast<std::streamoff>(tensor.file->header().data_begin + tensor.info->end - 1));
      file.put('\x3f');
    };
    change_end("lm_head.weight");
    CHECK(head_differs(*found.folder, model.layout));
    change_end(embedding);
    CHECK_FALSE(head_differs(*found.folder, model.layout));
  };
  const auto llama = model_named("llama_tied"), gpt2 = model_named("gpt2");
  check(llama, llama.tensors, "model.embed_tokens.weight");
  check(gpt2, gpt2.tensors, "transformer.wte.weight");
  check(gpt2, without_prefix(gpt2.tensors, "transformer."), "wte.weight");
}

TEST_CASE("GPT-2 tensor names without a prefix are accepted, and its buffers are ignored") {
  const auto model = model_named("gpt2");
  auto bare = without_prefix(model.tensors, "transformer.");
  bare["h.0.attn.bias"] = {1, 1, 8, 8};
  const auto found = find(model, bare);
  INFO(to_text(found.problems));
  CHECK(found.ids().empty());
  CHECK(found.places.at("transformer.wte.weight").stored.info->name == "wte.weight");
}

TEST_CASE("An expert's matrices are found inside fused tensors, each at the right offset") {
  for (const std::string name : {"mixtral", "qwen3_moe"}) {
    const auto model = model_named(name);
    const bool mixtral = name == "mixtral";
    Tensors fused;
    for (const auto& [tensor, shape] : model.tensors) {
      const auto at = tensor.find(".experts.");
      auto renamed = tensor;
      if (mixtral)
        if (const auto moe = renamed.find(".block_sparse_moe."); moe != std::string::npos)
          renamed.replace(moe, std::string(".block_sparse_moe.").size(), ".mlp.");
      if (at == std::string::npos) fused[renamed] = shape;
    }
    const std::int64_t experts = model.spec.moe->experts, inner = model.spec.moe->ffn, hidden = model.spec.hidden;
    for (int layer = 0; layer < model.spec.layers; ++layer) {
      if (!model.spec.is_moe(layer)) continue;
      const std::string prefix = model.layout.layer_fqn(layer) + ".mlp.experts.";
      fused[prefix + "gate_up_proj"] = {experts, 2 * inner, hidden};
      fused[prefix + "down_proj"] = {experts, hidden, inner};
    }
    const auto found = find(model, fused);
    INFO(to_text(found.problems));
    CHECK(found.ids().empty());
    int seen = 0;
    for (const auto& parameter : arch::parameters(model.layout)) {
      if (parameter.expert != 2) continue;
      const auto& place = found.places.at(parameter.fqn);
      const auto is = [&](const char* one, const char* other) {
        return parameter.fqn.ends_with("." + std::string(one)) || parameter.fqn.ends_with("." + std::string(other));
      };
      const int third = is("gate_proj.weight", "w1.weight") ? 4 : is("up_proj.weight", "w3.weight") ? 5 : 2;
      CHECK(place.first == third * inner * hidden);
      ++seen;
    }
    CHECK(seen > 0);
  }
}
