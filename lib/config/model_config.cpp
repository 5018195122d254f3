#include "config/model_config.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "base/spelling.h"
#include "config/reader.h"

namespace automodel::config {
namespace {

constexpr std::array kHfKeys = {
    std::string_view("architectures"),
    std::string_view("model_type"),
    std::string_view("hidden_size"),
    std::string_view("num_hidden_layers"),
    std::string_view("num_attention_heads"),
    std::string_view("num_key_value_heads"),
    std::string_view("head_dim"),
    std::string_view("intermediate_size"),
    std::string_view("vocab_size"),
    std::string_view("max_position_embeddings"),
    std::string_view("rms_norm_eps"),
    std::string_view("rope_theta"),
    std::string_view("rope_scaling"),
    std::string_view("rope_parameters"),
    std::string_view("tie_word_embeddings"),
    std::string_view("hidden_act"),
    std::string_view("attention_bias"),
    std::string_view("mlp_bias"),
    std::string_view("attention_dropout"),
    std::string_view("initializer_range"),
    std::string_view("sliding_window"),
    std::string_view("layer_types"),
    std::string_view("num_local_experts"),
    std::string_view("num_experts"),
    std::string_view("n_routed_experts"),
    std::string_view("num_experts_per_tok"),
    std::string_view("moe_intermediate_size"),
    std::string_view("router_aux_loss_coef"),
    std::string_view("output_router_logits"),
    std::string_view("bos_token_id"),
    std::string_view("eos_token_id"),
    std::string_view("pad_token_id"),
    std::string_view("num_nextn_predict_layers"),
    std::string_view("mtp_num_hidden_layers"),
    std::string_view("num_mtp_modules"),
    std::string_view("first_k_dense_replace"),
    std::string_view("n_embd"),
    std::string_view("n_head"),
    std::string_view("n_layer"),
    std::string_view("n_positions"),
};

bool is_hf_config_key(std::string_view key) {
  return std::find(kHfKeys.begin(), kHfKeys.end(), key) != kHfKeys.end();
}

constexpr std::array kAutoConfig = {
    std::string_view("transformers.AutoConfig.from_pretrained"), std::string_view("AutoConfig.from_pretrained"),
    std::string_view("transformers.models.auto.configuration_auto.AutoConfig.from_pretrained")};

/// "a.b.Qwen3MoeConfig" to "qwen3_moe"; empty if this does not name a configuration class.
std::string model_type_of(std::string_view target) {
  target.remove_prefix(target.rfind('.') + 1);
  if (!target.ends_with("Config") || target.size() == 6) return "";
  target.remove_suffix(6);
  std::string out;
  for (std::size_t i = 0; i < target.size(); ++i) {
    const auto letter = static_cast<unsigned char>(target[i]);
    if (i > 0 && std::isupper(letter) != 0 && std::isupper(static_cast<unsigned char>(target[i - 1])) == 0) out += '_';
    out += static_cast<char>(std::tolower(letter));
  }
  return out;
}

bool reads_folder(std::string_view target) {
  constexpr std::string_view kMethod = ".from_pretrained";
  return target.ends_with(kMethod) && !model_type_of(target.substr(0, target.size() - kMethod.size())).empty();
}

/// The keys that a text_config sets. With a model-specific configuration class it may have any key, otherwise those of
/// TextConfig.
Value read_decoder(Reader& reader, const Node& node, const std::string& path, bool any_model) {
  Node named = node, others = node;
  const auto is_named = [&](const Node::Entry& entry) {
    const auto& fields = type_of<TextConfig>().fields();
    return any_model || node.kind != Node::Kind::kMap ||
           std::ranges::any_of(fields, [&](const FieldInfo& field) { return field.key == entry.key; });
  };
  std::erase_if(named.entries, [&](const auto& entry) { return !is_named(entry); });
  std::erase_if(others.entries, is_named);
  TextConfig text;
  reader.read(named, path, text);
  auto out = text.overrides();
  for (const auto& entry : others.entries) out.set(entry.key, to_value(entry.value));
  return out;
}

void read_source(Reader& reader, const Node& node, const std::string& path, void* out) {
  auto& source = *static_cast<ModelSource*>(out);
  source = {};
  if (node.kind == Node::Kind::kScalar && !node.is_null()) return void(source.path = node.text);
  if (node.kind != Node::Kind::kMap) return reader.mismatch(node, path, "path or mapping");
  const auto* target = node.find("_target_");
  const auto* name = node.find("pretrained_model_name_or_path");
  if (target == nullptr && name == nullptr) return void(source.inline_config = to_value(node));
  if (target != nullptr && name == nullptr && !model_type_of(target->value.text).empty()) {
    // A configuration class and its constructor arguments.
    auto inline_config = to_value(node);
    if (inline_config.find("model_type") == nullptr) inline_config.set("model_type", model_type_of(target->value.text));
    std::erase_if(*inline_config.map(), [](const auto& entry) { return entry.first == "_target_"; });
    return void(source.inline_config = std::move(inline_config));
  }
  if (target != nullptr && !reads_folder(target->value.text))
    return void(reader.refuse("unknown-target", join_path(path, "_target_"), target->value.where)
                    .says("'{}' cannot be read as a configuration", target->value.text)
                    .hint("known: " + std::string(kAutoConfig[0])));
  const bool any_model =
      target == nullptr || std::find(kAutoConfig.begin(), kAutoConfig.end(), target->value.text) != kAutoConfig.end();
  if (name == nullptr || name->value.kind != Node::Kind::kScalar || name->value.is_null())
    return void(reader.refuse("missing-key", join_path(path, "pretrained_model_name_or_path"), node.where)
                    .says("{} needs pretrained_model_name_or_path", path)
                    .hint("a folder, a config.json or a model's name"));
  source.path = name->value.text;
  source.overrides = Value::Map{};
  for (const auto& entry : node.entries) {
    if (entry.key == "_target_" || entry.key == "pretrained_model_name_or_path" || entry.key == "trust_remote_code" ||
        entry.key == "revision" || entry.key == "name_or_path" || entry.key == "_attn_implementation" ||
        entry.key == "attn_implementation" || entry.key == "attn_implementation_new")
      continue;  // where to look for the files, and attention kernels, which are chosen by device
    const auto key = join_path(path, entry.key);
    if (entry.key == "text_config") {
      auto decoder = read_decoder(reader, entry.value, key, any_model);
      if (!decoder.is_null()) source.overrides.set(entry.key, std::move(decoder));
    } else if (entry.key == "use_cache") {
      reader.note_ignored(key, kOwnCache, entry.where);
    } else if (is_hf_config_key(entry.key) || entry.key == "torch_dtype" || entry.key == "dtype" || !any_model) {
      source.overrides.set(entry.key, to_value(entry.value));  // a model-specific configuration class may have any key
    } else {
      reader.refuse("unknown-key", key, entry.where)
          .says("unknown key '{}'", key)
          .hint(suggestion(entry.key, {kHfKeys.begin(), kHfKeys.end()}, 8));
    }
  }
}

void read_auto_dtype(Reader& reader, const Node& node, const std::string& path, void* out) {
  auto& value = *static_cast<AutoDType*>(out);
  value.dtype.reset();
  if (node.is_null() || (node.kind == Node::Kind::kScalar && node.text == "auto")) return;
  reader.read(node, path, value.dtype.emplace());
}

}  // namespace

std::span<const std::string_view> hf_config_keys() {
  return kHfKeys;
}

TypeInfo AutoDType::config_type() {
  return {[]() -> std::string { return "dtype or auto"; }, read_auto_dtype,
          [](const void* value, Keys) -> Value {
            const auto& dtype = static_cast<const AutoDType*>(value)->dtype;
            return dtype ? name_of(*dtype) : std::string_view("auto");
          },
          [] {
            Value out;
            out.set("type", Value::List{"string", "null"});
            return out;
          }};
}

TypeInfo ModelSource::config_type() {
  return {[]() -> std::string { return "path or mapping"; }, read_source,
          [](const void* value, Keys) -> Value {
            const auto& source = *static_cast<const ModelSource*>(value);
            if (source.inline_config) return *source.inline_config;
            if (!source.path) return nullptr;
            if (source.overrides.map() == nullptr || source.overrides.map()->empty()) return *source.path;
            Value out;
            out.set("_target_", kAutoConfig[0]);
            out.set("pretrained_model_name_or_path", *source.path);
            for (const auto& [key, item] : *source.overrides.map()) out.set(key, item);
            return out;
          },
          [] {
            Value out;
            out.set("type", Value::List{"string", "object", "null"});
            return out;
          }};
}

}  // namespace automodel::config
