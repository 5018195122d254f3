#include "tokenizer/sentencepiece_file.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/base64.h"
#include "tokenizer/unicode.h"

namespace automodel::tokenizer {
namespace {

using nlohmann::json;

/// Iterates over the fields of a Protocol Buffers message.
class Fields {
 public:
  explicit Fields(std::string_view bytes) : rest_(bytes) {}

  struct Field {
    std::uint64_t number = 0;
    std::uint64_t value = 0;      ///< a number, or a float's bits
    std::string_view bytes = {};  ///< a string or a submessage
  };
  /// Nothing at the end or if the message is malformed; broken() tells which.
  std::optional<Field> next() {
    if (rest_.empty() || broken_) return std::nullopt;
    Field out;
    const std::uint64_t key = varint();
    out.number = key >> 3;
    switch (key & 7) {
      case 0: out.value = varint(); break;
      case 1: out.value = fixed(8); break;
      case 2: {
        const std::uint64_t length = varint();
        if (length > rest_.size()) broken_ = true;
        if (broken_) break;
        out.bytes = rest_.substr(0, length);
        rest_.remove_prefix(length);
        break;
      }
      case 5: out.value = fixed(4); break;
      default: broken_ = true;
    }
    if (broken_ || out.number == 0) {
      broken_ = true;
      return std::nullopt;
    }
    return out;
  }
  bool broken() const { return broken_; }

 private:
  std::uint64_t varint() {
    std::uint64_t out = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) break;
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      out |= std::uint64_t{byte & 0x7Fu} << shift;
      if ((byte & 0x80u) == 0) return out;
    }
    broken_ = true;
    return 0;
  }
  std::uint64_t fixed(std::size_t size) {
    if (rest_.size() < size) broken_ = true;
    if (broken_) return 0;
    std::uint64_t out = 0;
    for (std::size_t i = size; i-- > 0;) out = out << 8 | static_cast<unsigned char>(rest_[i]);
    rest_.remove_prefix(size);
    return out;
  }

  std::string_view rest_;
  bool broken_ = false;
};

enum class Kind : std::uint64_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };
struct Token {
  std::string text = {};
  double score = 0;
  Kind kind = Kind::kNormal;
};

/// The parts of the file that determine ids (sentencepiece_model.proto).
struct Model {
  std::vector<Token> tokens = {};
  std::uint64_t type = 1;  ///< 1: unigram, 2: byte-pair encoding
  bool byte_fallback = false;
  std::string rules = {};  ///< compiled normalization rules
  bool prefix = true, trims = true, escapes = true;
};

bool read_token(std::string_view bytes, Model& out) {
  Token token;
  Fields fields(bytes);
  while (const auto field = fields.next()) {
    if (field->number == 1) token.text = field->bytes;
    if (field->number == 2) token.score = std::bit_cast<float>(static_cast<std::uint32_t>(field->value));
    if (field->number == 3) token.kind = static_cast<Kind>(field->value);
  }
  const bool good = !fields.broken() && std::isfinite(token.score) && valid_prefix(token.text) == token.text.size();
  out.tokens.push_back(std::move(token));
  return good;
}

bool read_training(std::string_view bytes, Model& out) {
  Fields fields(bytes);
  while (const auto field = fields.next()) {
    if (field->number == 3) out.type = field->value;
    if (field->number == 35) out.byte_fallback = field->value != 0;
  }
  return !fields.broken();
}

bool read_normalization(std::string_view bytes, Model& out) {
  Fields fields(bytes);
  while (const auto field = fields.next()) {
    if (field->number == 2) out.rules = field->bytes;
    if (field->number == 3) out.prefix = field->value != 0;
    if (field->number == 4) out.trims = field->value != 0;
    if (field->number == 5) out.escapes = field->value != 0;
  }
  return !fields.broken();
}

std::optional<Model> read_model(std::string_view bytes) {
  Model out;
  Fields fields(bytes);
  bool good = true;
  while (const auto field = fields.next()) {
    if (field->number == 1) good = read_token(field->bytes, out) && good;
    if (field->number == 2) good = read_training(field->bytes, out) && good;
    if (field->number == 3) good = read_normalization(field->bytes, out) && good;
  }
  if (fields.broken() || !good || out.tokens.empty()) return std::nullopt;
  return out;
}

json normalizer_of(const Model& model) {
  json steps = json::array();
  if (!model.rules.empty()) steps.push_back({{"type", "Precompiled"}, {"precompiled_charsmap", base64(model.rules)}});
  if (model.trims) {
    steps.push_back({{"type", "Replace"}, {"pattern", {{"Regex", "\\A +| +\\z|(?<= ) +"}}}, {"content", ""}});
  }
  if (model.escapes) {
    if (model.prefix) steps.push_back({{"type", "Prepend"}, {"prepend", kSpaceMark}});
    steps.push_back({{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kSpaceMark}});
    // A mark that is already in the text counts as a space here.
    if (model.trims)
      steps.push_back({{"type", "Replace"}, {"pattern", {{"Regex", "(?:\xE2\x96\x81)+\\z"}}}, {"content", ""}});
  } else if (model.prefix) {
    steps.push_back({{"type", "Prepend"}, {"prepend", " "}});
  }
  return {{"type", "Sequence"}, {"normalizers", std::move(steps)}};
}

bool is_in_text(const Token& token) {
  return token.kind == Kind::kNormal || token.kind == Kind::kUserDefined;
}

/// The pairs that byte-pair encoding merges, best first; a pair's score is that of the token that it forms.
json merges_of(const Model& model) {
  std::unordered_map<std::string_view, std::size_t> ids;
  for (std::size_t i = 0; i < model.tokens.size(); ++i)
    if (is_in_text(model.tokens[i])) ids.try_emplace(model.tokens[i].text, i);
  struct Merge {
    double score;
    std::size_t left, right;
  };
  std::vector<Merge> merges;
  for (const auto& [text, id] : ids)
    for (std::size_t cut = code_point_at(text, 0).bytes; cut < text.size(); cut += code_point_at(text, cut).bytes) {
      const auto left = ids.find(text.substr(0, cut)), right = ids.find(text.substr(cut));
      if (left != ids.end() && right != ids.end())
        merges.push_back({model.tokens[id].score, left->second, right->second});
    }
  std::sort(merges.begin(), merges.end(), [](const Merge& a, const Merge& b) {
    return std::tuple(-a.score, a.left, a.right) < std::tuple(-b.score, b.left, b.right);
  });
  json out = json::array();
  for (const auto& merge : merges) out.push_back({model.tokens[merge.left].text, model.tokens[merge.right].text});
  return out;
}

json model_of(const Model& model, std::size_t unknown) {
  if (model.type == 1) {
    json vocab = json::array();
    for (const auto& token : model.tokens) vocab.push_back({token.text, token.score});
    return {
        {"type", "Unigram"}, {"unk_id", unknown}, {"vocab", std::move(vocab)}, {"byte_fallback", model.byte_fallback}};
  }
  json vocab = json::object();
  for (std::size_t i = 0; i < model.tokens.size(); ++i) vocab.emplace(model.tokens[i].text, i);
  return {{"type", "BPE"},
          {"unk_token", model.tokens[unknown].text},
          {"fuse_unk", true},
          {"byte_fallback", model.byte_fallback},
          {"vocab", std::move(vocab)},
          {"merges", merges_of(model)}};
}

json decoder_of(const Model& model) {
  json steps = json::array();
  steps.push_back({{"type", "Replace"}, {"pattern", {{"String", kSpaceMark}}}, {"content", " "}});
  steps.push_back({{"type", "ByteFallback"}});
  steps.push_back({{"type", "Fuse"}});
  if (model.prefix) steps.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return {{"type", "Sequence"}, {"decoders", std::move(steps)}};
}

json added_of(const Model& model) {
  json out = json::array();
  for (std::size_t i = 0; i < model.tokens.size(); ++i) {
    const auto& token = model.tokens[i];
    const bool special = token.kind == Kind::kControl || token.kind == Kind::kUnknown;
    if (special || token.kind == Kind::kUserDefined)
      out.push_back({{"id", i}, {"content", token.text}, {"special", special}, {"normalized", false}});
  }
  return out;
}

/// The control token at the start (or end) of texts, named by tokenizer_config.json or by its usual name.
std::optional<std::size_t> end_token(const Model& model, const json& config, const std::string& role,
                                     std::string_view usual) {
  std::string name(usual);
  if (const auto found = config.find(role); found != config.end()) {
    if (found->is_string()) name = found->get<std::string>();
    if (found->is_object() && found->contains("content") && (*found)["content"].is_string())
      name = (*found)["content"].get<std::string>();
  }
  for (std::size_t i = 0; i < model.tokens.size(); ++i)
    if (model.tokens[i].text == name) return i;
  return std::nullopt;
}

json surround_of(const Model& model, const std::optional<std::string>& text) {
  json config = text ? json::parse(*text, nullptr, false) : json::object();
  if (!config.is_object()) config = json::object();  // its errors are reported elsewhere
  const auto flag = [&](const char* key, bool otherwise) {
    const auto found = config.find(key);
    return found != config.end() && found->is_boolean() ? found->get<bool>() : otherwise;
  };
  json single = json::array(), special = json::object();
  const auto add = [&](std::optional<std::size_t> id) {
    if (!id) return;
    const auto& name = model.tokens[*id].text;
    single.push_back({{"SpecialToken", {{"id", name}, {"type_id", 0}}}});
    special[name] = {{"id", name}, {"ids", json::array({*id})}, {"tokens", json::array({name})}};
  };
  if (flag("add_bos_token", true)) add(end_token(model, config, "bos_token", "<s>"));
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  if (flag("add_eos_token", false)) add(end_token(model, config, "eos_token", "</s>"));
  return {{"type", "TemplateProcessing"}, {"single", std::move(single)}, {"special_tokens", std::move(special)}};
}

}  // namespace

bool is_sentencepiece_file(std::string_view bytes) {
  // The first field is the token list; a base64 list of merges (tiktoken) starts differently.
  return bytes.starts_with('\x0A') && read_model(bytes).has_value();
}

std::optional<std::string> json_of_sentencepiece(std::string_view bytes, const std::optional<std::string>& config,
                                                 const std::string& file, Diagnostics& problems) {
  const auto refuse = [&](const std::string& message, const std::string& help) -> std::optional<std::string> {
    problems.add("bad-tokenizer").says(message).hint(help).at({file, 0, 0});
    return std::nullopt;
  };
  const auto model = read_model(bytes);
  if (!model)
    return refuse("the file is not a SentencePiece model",
                  "take tokenizer.json where the tokenizer is of another kind; else the file may have been cut off");
  if (model->type != 1 && model->type != 2)
    return refuse("models of words and of characters are not supported", "supported are unigram and bpe");
  const auto unknown = std::find_if(model->tokens.begin(), model->tokens.end(),
                                    [](const Token& token) { return token.kind == Kind::kUnknown; });
  if (unknown == model->tokens.end()) return refuse("the model has no token for what is unknown", "train it with one");
  const json document = {{"version", "1.0"},
                         {"added_tokens", added_of(*model)},
                         {"normalizer", normalizer_of(*model)},
                         {"pre_tokenizer", nullptr},
                         {"post_processor", surround_of(*model, config)},
                         {"decoder", decoder_of(*model)},
                         {"model", model_of(*model, static_cast<std::size_t>(unknown - model->tokens.begin()))}};
  return document.dump();
}

}  // namespace automodel::tokenizer
