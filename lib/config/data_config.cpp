#include "config/data_config.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/spelling.h"
#include "config/reader.h"

namespace automodel::config {
namespace {

constexpr std::array<std::string_view, 3> kTokenizerTargets = {
    "nemo_automodel.NeMoAutoTokenizer.from_pretrained",
    "nemo_automodel._transformers.auto_tokenizer.NeMoAutoTokenizer.from_pretrained",
    "transformers.AutoTokenizer.from_pretrained"};

/// A key of a tokenizer mapping. `read` is null for keys that only choose between equivalent implementations.
struct TokenizerKey {
  std::string_view name;
  void (*read)(Reader& reader, const Node& node, const std::string& path, TokenizerSource& out);
};
void read_side(Reader& reader, const Node& node, const std::string& path, std::optional<std::string>& out) {
  reader.read(node, path, out);
  if (out && *out != "left" && *out != "right")
    reader.refuse("bad-value", path, node.where).says("{} has no value '{}'", path, *out).hint("left or right");
}
constexpr std::array kTokenizerKeys = {
    TokenizerKey{"pretrained_model_name_or_path", [](Reader& reader, const Node& node, const std::string& path,
                                                     TokenizerSource& out) { reader.read(node, path, out.path); }},
    TokenizerKey{"revision", [](Reader& reader, const Node& node, const std::string& path,
                                TokenizerSource& out) { reader.read(node, path, out.revision); }},
    TokenizerKey{"add_bos_token", [](Reader& reader, const Node& node, const std::string& path,
                                     TokenizerSource& out) { reader.read(node, path, out.add_bos_token); }},
    TokenizerKey{"add_eos_token", [](Reader& reader, const Node& node, const std::string& path,
                                     TokenizerSource& out) { reader.read(node, path, out.add_eos_token); }},
    TokenizerKey{"padding_side", [](Reader& reader, const Node& node, const std::string& path,
                                    TokenizerSource& out) { read_side(reader, node, path, out.padding_side); }},
    TokenizerKey{"truncation_side", [](Reader& reader, const Node& node, const std::string& path,
                                       TokenizerSource& out) { read_side(reader, node, path, out.truncation_side); }},
    TokenizerKey{"trust_remote_code", nullptr},
    TokenizerKey{"use_fast", nullptr},
    TokenizerKey{"force_hf", nullptr},
    TokenizerKey{"force_default", nullptr},
};

void read_tokenizer(Reader& reader, const Node& node, const std::string& path, void* out) {
  auto& source = *static_cast<TokenizerSource*>(out);
  source = {};
  source.written = to_value(node);
  if (node.is_null()) return;
  if (node.kind == Node::Kind::kScalar) return void(source.path = node.text);
  if (node.kind != Node::Kind::kMap) return reader.mismatch(node, path, "path, name or mapping");
  for (const auto& entry : node.entries) {
    const std::string key = join_path(path, entry.key);
    reader.note_origin(key, entry.value, entry.where);
    if (entry.key == "_target_") {
      const auto& text = entry.value.text;
      if (std::find(kTokenizerTargets.begin(), kTokenizerTargets.end(), text) == kTokenizerTargets.end())
        reader.refuse("bad-value", key, entry.value.where)
            .says("there is no tokenizer '{}'", text)
            .hint(suggestion(text, {kTokenizerTargets.begin(), kTokenizerTargets.end()}));
      source.plain = text.starts_with("transformers.");
      continue;
    }
    const auto row = std::find_if(kTokenizerKeys.begin(), kTokenizerKeys.end(),
                                  [&](const auto& known) { return known.name == entry.key; });
    if (row != kTokenizerKeys.end()) {
      if (row->read != nullptr) row->read(reader, entry.value, key, source);
      continue;
    }
    std::vector<std::string_view> names;
    for (const auto& known : kTokenizerKeys) names.push_back(known.name);
    reader.refuse("unknown-key", key, entry.where).says("unknown key '{}'", key).hint(suggestion(entry.key, names));
  }
}

constexpr std::string_view kCollate = "nemo_automodel.components.datasets.vlm.collate_fns.";
/// What NeMo AutoModel's functions for Gemma 4 put in front of answers.
constexpr std::string_view kThought = "<|channel>thought\n<channel|>";
/// A function that makes the rows that are made here.
struct KnownCollate {
  std::string_view name;
  bool arguments = false;
  std::string_view answer_prefix = {};
};
constexpr std::array<KnownCollate, 4> kCollateFunctions = {
    KnownCollate{"default_collate_fn", true}, KnownCollate{"qwen2_5_collate_fn"},
    KnownCollate{"llava_onevision_collate_fn"}, KnownCollate{"gemma4_prefix_collate_fn", true, kThought}};

void read_collate_argument(Reader& reader, const Node::Entry& entry, const std::string& path, CollateFunction& out) {
  const std::string key = join_path(path, entry.key);
  if (entry.key == "max_length") {
    reader.read(entry.value, key, out.max_length);
    if (out.max_length && *out.max_length < 1)
      reader.refuse("bad-value", key, entry.value.where)
          .says("{} is {}", key, *out.max_length)
          .hint("must be at least 1");
  } else if (entry.key == "drop_overlong") {
    bool drop = false;
    reader.read(entry.value, key, drop);
    if (drop)
      reader.note_unsupported(key, "rows are not left out by an estimate of their length; max_bad_rows leaves them out",
                              entry.where);
  } else {
    reader.refuse("unknown-key", key, entry.where)
        .says("unknown key '{}'", key)
        .hint(suggestion(entry.key, {"max_length", "drop_overlong"}));
  }
}

void read_hook(Reader& reader, const Node& node, const std::string& path, void* out) {
  auto& hook = *static_cast<TokenHook*>(out);
  hook = {.written = to_value(node)};
  if (node.is_null()) return;
  if (node.kind == Node::Kind::kScalar && node.text == std::string(kCollate) + "gemma4_inject_thinking_prefix")
    hook.answer_prefix = kThought;
  else
    reader.note_unsupported(path, "Python functions are not run", node.where);
}

void read_collate(Reader& reader, const Node& node, const std::string& path, void* out) {
  auto& function = *static_cast<CollateFunction*>(out);
  function = {};
  function.written = to_value(node);
  if (node.is_null()) return;
  const auto* target = node.kind == Node::Kind::kMap ? node.find("_target_") : nullptr;
  const auto& named = target != nullptr ? target->value : node;
  if (named.kind != Node::Kind::kScalar || !named.text.starts_with(kCollate)) return;
  function.for_pictures = true;
  const auto found =
      std::ranges::find(kCollateFunctions, std::string_view(named.text).substr(kCollate.size()), &KnownCollate::name);
  const bool other = found == kCollateFunctions.end();
  if (other)
    reader.note_unsupported(
        path, fmt::format("rows are made as by {}, and '{}' makes others", kCollateFunctions[0].name, named.text),
        named.where);
  if (!other) function.answer_prefix = found->answer_prefix;
  if (target == nullptr) return;
  for (const auto& entry : node.entries) {
    if (entry.key == "_target_" || (other && entry.key != "max_length")) continue;
    reader.note_origin(join_path(path, entry.key), entry.value, entry.where);
    if (other || found->arguments) {
      read_collate_argument(reader, entry, path, function);
    } else {
      reader.refuse("unknown-key", join_path(path, entry.key), entry.where)
          .says("unknown key '{}'", join_path(path, entry.key))
          .hint("{} has no arguments", found->name);
    }
  }
}

}  // namespace

TypeInfo CollateFunction::config_type() {
  return {[]() -> std::string { return "name or mapping"; }, read_collate,
          [](const void* value, Keys) -> Value { return static_cast<const CollateFunction*>(value)->written; },
          [] {
            Value out;
            out.set("type", Value::List{"string", "object", "null"});
            return out;
          }};
}

TypeInfo TokenHook::config_type() {
  return {[]() -> std::string { return "name of a Python function"; }, read_hook,
          [](const void* value, Keys) -> Value { return static_cast<const TokenHook*>(value)->written; },
          [] {
            Value out;
            out.set("type", Value::List{"string", "null"});
            return out;
          }};
}

TypeInfo TokenizerSource::config_type() {
  return {[]() -> std::string { return "path, name or mapping"; }, read_tokenizer,
          [](const void* value, Keys) -> Value { return static_cast<const TokenizerSource*>(value)->written; },
          [] {
            Value out;
            out.set("type", Value::List{"string", "object", "null"});
            return out;
          }};
}

TypeInfo PathList::config_type() {
  return {[]() -> std::string { return "path or list of paths"; },
          [](Reader& reader, const Node& node, const std::string& path, void* out) {
            auto& paths = static_cast<PathList*>(out)->paths;
            paths.clear();
            if (node.kind == Node::Kind::kScalar && !node.is_null() && !node.text.starts_with("["))
              return paths.push_back(node.text);
            reader.read(node, path, paths);
          },
          [](const void* value, Keys) -> Value {
            const auto& paths = static_cast<const PathList*>(value)->paths;
            if (paths.size() == 1) return paths.front();
            Value::List out;
            for (const auto& path : paths) out.emplace_back(path);
            return out;
          },
          [] {
            Value out;
            out.set("type", Value::List{"string", "array"});
            return out;
          }};
}

Diagnostics check(const DatasetConfig& config) {
  /// Every row costs a look at every part.
  constexpr std::size_t kMostParts = 1000;
  Diagnostics problems;
  const auto* mixture = std::get_if<MixtureDatasetConfig>(&config);
  if (mixture == nullptr) return problems;
  const auto& parts = mixture->datasets();
  if (parts.empty())
    problems.add("missing-key", "datasets")
        .says("a mixture needs parts, and datasets is empty")
        .hint("datasets: [{weight: 0.7, dataset: {_target_: jsonl, path: chats.jsonl}}, ...]");
  if (parts.size() > kMostParts)
    problems.add("bad-value", "datasets")
        .says("a mixture of {} parts is too large", parts.size())
        .hint("at most {} parts; one part may name many files", kMostParts);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto& part = parts[i];
    const auto key = fmt::format("datasets.{}", i);
    if (!part.dataset())
      problems.add("missing-key", key + ".dataset")
          .says("part {} of the mixture has no dataset", i)
          .hint("add 'dataset:' with a _target_");
    if (part.weight() && part.epochs())
      problems.add("bad-value", key + ".epochs")
          .says("part {} of the mixture has a weight and epochs", i)
          .hint("keep one: weight is its share of the rows, epochs how often it is read");
    else if (!part.weight() && !part.epochs())
      problems.add("missing-key", key + ".weight")
          .says("part {} of the mixture has no weight", i)
          .hint("add 'weight:', any positive number; weights are relative, and need not sum to 1");
    else if (part.weight().has_value() != parts[0].weight().has_value() && (parts[0].weight() || parts[0].epochs()))
      problems.add("bad-value", key + (part.weight() ? ".weight" : ".epochs"))
          .says("some parts of the mixture have a weight, others epochs")
          .hint("give all parts a weight, or all of them epochs");
  }
  return problems;
}

}  // namespace automodel::config
