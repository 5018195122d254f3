#include "arch/hf_config.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "arch/config_reader.h"
#include "arch/families.h"
#include "arch/rope_config.h"
#include "base/bytes.h"
#include "base/json_depth.h"
#include "base/spelling.h"

namespace automodel::arch {
namespace {

using Json = nlohmann::json;

/// Keys of transformers configs that affect neither shapes nor the computation in training.
void ignore_common(ConfigReader& config) {
  config.ignore({"model_type",
                 "architectures",
                 "transformers_version",
                 "text_config",
                 "quantization_config",
                 "_name_or_path",
                 "auto_map",
                 "use_cache",
                 "return_dict",
                 "output_attentions",
                 "output_hidden_states",
                 "task_specific_params",
                 "is_decoder",
                 "is_encoder_decoder",
                 "id2label",
                 "label2id",
                 "problem_type",
                 "tokenizer_class",
                 "prefix",
                 "torchscript",
                 "use_bfloat16",
                 "pruned_heads",
                 "chunk_size_feed_forward",
                 "cross_attention_hidden_size",
                 "tie_encoder_decoder",
                 "finetuning_task",
                 "_attn_implementation",
                 "attn_implementation",
                 "sep_token_id",
                 "decoder_start_token_id",
                 "cache_implementation",
                 "pretraining_tp",
                 "summary_activation",
                 "summary_first_dropout",
                 "summary_proj_to_labels",
                 "summary_type",
                 "summary_use_proj",
                 "n_ctx"});
}

SourceLocation place_of_byte(std::string_view file, std::string_view text, std::size_t byte) {
  SourceLocation out{std::string(file), 1, 1};
  for (std::size_t i = 0; i + 1 < byte && i < text.size(); ++i) {
    ++out.column;
    if (text[i] == '\n') {
      ++out.line;
      out.column = 1;
    }
  }
  return out;
}

/// Replaces the bare word Infinity, which Python writes but JSON does not allow, by a large number of the same length,
/// so that positions in the text stay valid.
std::string without_infinity(std::string_view text) {
  constexpr std::string_view kWord = "Infinity", kNumber = "1.0e+308";
  std::string out(text);
  bool quoted = false;
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (out[i] == '\\' && quoted)
      ++i;
    else if (out[i] == '"')
      quoted = !quoted;
    else if (!quoted && std::string_view(out).substr(i, kWord.size()) == kWord)
      out.replace(i, kWord.size(), kNumber);
  }
  return out;
}

/// The parsed document, or nothing after reporting an error.
std::optional<Json> parse_json(std::string_view text, std::string_view file, Diagnostics& errors) {
  if (nesting_of(text) > kDeepestJson) {
    errors.add("bad-json")
        .says("the configuration nests more than {} levels", kDeepestJson)
        .hint("no model's does")
        .at({std::string(file), 1, 1});
    return std::nullopt;
  }
  try {
    auto document = Json::parse(without_infinity(text));
    if (document.is_object()) return document;
    errors.add("bad-json").says("the configuration is not a JSON object").at({std::string(file), 1, 1});
  } catch (const Json::parse_error& error) {
    errors.add("bad-json")
        .says("the configuration is not valid JSON")
        .hint("parsing failed here")
        .at(place_of_byte(file, text, error.byte));
  } catch (const Json::exception&) {  // a number outside the range of double
    errors.add("bad-json").says("the configuration holds a number that is out of range").at({std::string(file)});
  }
  return std::nullopt;
}

/// Whether the decoder's sizes are in a nested text_config.
bool nests_text(const Json& document) {
  const auto text = document.find("text_config");
  return text != document.end() && text->is_object() && !document.contains("hidden_size") &&
         !document.contains("n_embd");
}

/// Adds the sizes that a nested Llama does not name: published LLaVA configs leave out what equals the defaults of
/// transformers' LlamaConfig, which are Llama 7B. A config of its own must name its sizes.
void fill_nested_llama(Json& document) {
  auto& text = document["text_config"];
  if (text.value("model_type", Json()) != "llama") return;
  const Json defaults = {{"hidden_size", 4096},
                         {"intermediate_size", 11008},
                         {"num_hidden_layers", 32},
                         {"num_attention_heads", 32},
                         {"vocab_size", 32000}};
  text.insert(defaults.begin(), defaults.end());  // keys that it has stay
}

/// Whether the model generates text, judged by the suffix of its transformers class. All other classes encode, classify
/// or generate images.
bool generates(std::string_view architecture) {
  constexpr std::array kEnds = {std::string_view("CausalLM"), std::string_view("LMHeadModel"),
                                std::string_view("ConditionalGeneration")};
  return std::any_of(kEnds.begin(), kEnds.end(), [&](auto end) { return architecture.find(end) != architecture.npos; });
}

double element_estimate(const ModelSpec& spec) {
  const auto layout = layout_of(spec);
  const auto sum = [](const std::vector<ParameterTemplate>& parameters) {
    double out = 0;
    for (const auto& parameter : parameters) out += static_cast<double>(parameter.shape.elements()) * parameter.copies;
    return out;
  };
  double out = 2 * sum(layout.embedding_parameters);
  std::vector<double> kinds;
  for (const auto& kind : layout.kinds) kinds.push_back(sum(kind.parameters));
  for (const int kind : layout.kind_of) out += kinds[static_cast<std::size_t>(kind)];
  return out;
}

/// transformers models whose configs look like a decoder's but that are not causal language models. Models with
/// is_encoder_decoder are rejected without this list.
constexpr std::array<std::string_view, 26> kEncoders = {"albert",
                                                        "bert",
                                                        "big_bird",
                                                        "camembert",
                                                        "canine",
                                                        "clip_text_model",
                                                        "clip_vision_model",
                                                        "convbert",
                                                        "deberta",
                                                        "deberta-v2",
                                                        "distilbert",
                                                        "electra",
                                                        "ernie",
                                                        "esm",
                                                        "funnel",
                                                        "layoutlm",
                                                        "longformer",
                                                        "modernbert",
                                                        "mpnet",
                                                        "nomic_bert",
                                                        "roberta",
                                                        "roformer",
                                                        "squeezebert",
                                                        "vit",
                                                        "siglip_vision_model",
                                                        "xlm-roberta"};

/// Rejects models that do not predict the next token; returns whether it did.
bool refuse_encoder(ConfigReader& top, ConfigReader& config, std::string_view model_type) {
  constexpr std::string_view kNeeded = "a decoder-only language model is needed";
  if (top.boolean({"is_encoder_decoder"}, false)) {
    top.refuse("unsupported-model", "is_encoder_decoder")
        .says("encoder-decoder models are not supported")
        .hint(std::string(kNeeded));
    return true;
  }
  if (std::find(kEncoders.begin(), kEncoders.end(), model_type) != kEncoders.end()) {
    config.refuse("unsupported-model", "model_type")
        .says("'{}' does not predict the next token: it is an encoder, or has one for its input", model_type)
        .hint(std::string(kNeeded));
    return true;
  }
  const auto names = config.texts("architectures");
  if (find_family(model_type) != nullptr || names.empty() || generates(names.front())) return false;
  config.refuse("unsupported-model", "architectures")
      .says("'{}' is not a causal language model", names.front())
      .hint("a model that predicts the next token is needed");
  return true;
}

class Parser {
 public:
  Parser(const ConfigText& source, const HfConfigOptions& options, HfConfig& out)
      : source_(source), options_(options), out_(out) {}

  void run(const Json& document) {
    ConfigReader top(document, source_, "", out_.errors);
    const bool nested = nests_text(document);
    ConfigReader config = nested ? *top.child("text_config") : top;
    ModelSpec spec;
    spec.model_type = config.text({"model_type"}, nested ? top.text({"model_type"}, "") : "");
    if (nested || document.contains("vision_config")) spec.nested_in = top.text({"model_type"}, "unknown");
    if (const auto family = decoder_family(spec.model_type); !family.empty()) spec.model_type = family;
    if (refuse_encoder(top, config, spec.model_type)) return;
    const Family* family = choose(config, spec);
    if (family == nullptr) return;
    ignore_common(config);
    family->read(config, spec);
    if (out_.errors.empty()) check_rotation(config, spec.rope);
    if (out_.errors.empty() && spec.sliding_rope) check_rotation(config, *spec.sliding_rope);
    // The head belongs to the whole model: its key counts, if it has one.
    if (nested && (top.mentions("tie_word_embeddings") || !config.mentions("tie_word_embeddings")))
      spec.tied_embeddings = top.boolean({"tie_word_embeddings"}, spec.tied_embeddings);
    finish(top, document, *family, spec);
    if (options_.strict_keys) config.refuse_unread();
    if (out_.errors.empty() && element_estimate(spec) > 4e18)
      config.bad_value("hidden_size", "these sizes imply more parameters than can be counted", "check the sizes");
    if (out_.errors.empty()) out_.spec = std::move(spec);
  }

 private:
  static void check_rotation(ConfigReader& config, const Rope& rope) {
    if (rope.kind == RopeKind::kNone || rope.rotary_dim % 2 == 0) return;
    config.bad_value(has_partial_rotary(config) ? "partial_rotary_factor" : "head_dim",
                     fmt::format("RoPE would rotate {} dimensions of a head", rope.rotary_dim),
                     "it rotates pairs of dimensions");
  }

  /// The family to read the config with; nullptr after an error.
  const Family* choose(ConfigReader& config, ModelSpec& spec) {
    if (const Family* family = find_family(spec.model_type)) return family;
    const auto message = spec.model_type.empty() ? std::string("'model_type' is missing")
                                                 : fmt::format("unknown model_type '{}'", spec.model_type);
    const auto known = family_names();
    const auto near = nearest(spec.model_type, known);
    const auto help =
        fmt::format("{}known: {}", near.empty() ? "" : fmt::format("did you mean '{}'? ", near), join(known));
    if (!options_.allow_unknown_family) {
      config.refuse("unknown-model-type", "model_type").says(message).hint(help);
      return nullptr;
    }
    Diagnostics said;
    std::swap(said, out_.errors);
    config.refuse("unknown-model-type", "model_type")
        .says(message + "; planned by its sizes, cannot be trained")
        .hint(help);
    std::swap(said, out_.errors);
    out_.warnings.insert(out_.warnings.end(), said.begin(), said.end());
    spec.plan_only = fmt::format("its model_type '{}' is not known", spec.model_type);
    return &unknown_family();
  }

  void finish(ConfigReader& top, const Json& document, const Family& family, ModelSpec& spec) {
    const auto architectures = top.texts("architectures");
    spec.architecture = architectures.empty() ? std::string(family.architecture) : architectures.front();
    if (!spec.nested_in.empty()) {
      out_.towers = towers_of(source_.text, spec.hidden);
      if (const auto why = choose_vision(top, spec); !why.empty()) {
        out_.warnings.add("multimodal", "text_config")
            .at({source_.file})
            .says("this {} model is planned but cannot be trained: {}", spec.nested_in, towers())
            .hint("estimates assume one image of the configured size per sequence and omit what is unknown");
        spec.plan_only = why;
      }
    }
    if (!top.has("quantization_config")) return;
    const auto quantization = document.find("quantization_config");
    const auto method =
        quantization->is_object() ? quantization->value("quant_method", Json("unknown")) : Json("unknown");
    const std::string name = method.is_string() ? method.get<std::string>() : "unknown";
    out_.warnings.add("quantized", "quantization_config")
        .at({source_.file})
        .says("the stored weights are quantized ({})", name)
        .hint("sizes are those of the unquantized model; store it unquantized to train it");
    if (spec.plan_only.empty()) spec.plan_only = fmt::format("its stored weights are quantized ({})", name);
  }

  /// Reads the tower of a model that is trained with pictures; otherwise says why the model is planned only.
  static std::string choose_vision(ConfigReader& top, ModelSpec& spec) {
    if (!spec.plan_only.empty()) return spec.plan_only;
    std::string why;
    spec.vision = read_vision(top, spec, why);
    if (spec.vision && spec.vision->image_token >= spec.vocab) why = "its placeholder is not in its vocabulary";
    if (spec.vision && layout_of(spec).base != "model.language_model")
      why = fmt::format("its decoder is a {}", spec.model_type);
    if (why.empty()) return {};
    spec.vision.reset();
    return fmt::format("it is a {} model, and {}; docs/models.md lists what is trained with pictures", spec.nested_in,
                       why);
  }

  /// "model.vision_tower (CLIP, 303.5 M parameters, 577 tokens an image)".
  std::string towers() const {
    std::string out;
    for (const auto& tower : out_.towers) {
      const auto name = tower.fqn.empty() ? std::string("another module") : tower.fqn;
      const auto size = tower.parameters
                            ? fmt::format("{} parameters", format_count(static_cast<double>(*tower.parameters)))
                            : std::string("of unknown size");
      const auto tokens = tower.parameters && tower.layers > 1
                              ? tower.tokens > 0 ? fmt::format(", {} tokens per image", tower.tokens)
                                                 : std::string(", time unknown: images of any size")
                              : "";
      out += fmt::format("{}{} ({}, {}{})", out.empty() ? "" : ", ", name, tower.what, size, tokens);
    }
    return out.empty() ? "its encoders are unknown and not counted" : out;
  }

  const ConfigText& source_;
  const HfConfigOptions& options_;
  HfConfig& out_;
};

}  // namespace

bool nests_text(std::string_view text) {
  Diagnostics ignored;
  const auto document = parse_json(text, "", ignored);
  return document && nests_text(*document);
}

HfConfig parse_hf_config(std::string_view text, std::string_view file, const HfConfigOptions& options) {
  HfConfig out;
  auto document = parse_json(text, file, out.errors);
  if (!document) return out;
  if (nests_text(*document)) fill_nested_llama(*document);
  const ConfigText source{std::string(file), text};
  Parser(source, options, out).run(*document);
  return out;
}

}  // namespace automodel::arch
