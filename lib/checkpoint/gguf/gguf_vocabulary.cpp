#include "checkpoint/gguf/gguf_vocabulary.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/format/file.h"

namespace automodel::checkpoint {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::uint64_t kLongest = std::uint64_t{256} << 20U;

/// llama.cpp's types of tokens.
enum class TokenType : std::int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

struct Splitting {
  std::string_view pattern, name;
};
/// The expressions by which tokenizer.json splits texts, and llama.cpp's names of them.
constexpr std::array kSplittings = {
    Splitting{
        R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
        "llama-bpe"},
    Splitting{
        R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
        "qwen2"}};

[[noreturn]] void refuse(const fs::path& file, const std::string& what) {
  throw Error(ExitCode::kBadInput,
              Diagnostic{"bad-tokenizer"}
                  .says("'{}': {}", file.native(), what)
                  .hint("llama.cpp gets byte-level BPE that splits as GPT-2, Llama 3 or Qwen 2 do, or BPE with byte "
                        "fallback as Llama 2's")
                  .at({file.native(), 0, 0}));
}

/// An object; empty if the file is missing.
Json read_json(const fs::path& file) {
  if (!is_there(file)) return Json::object();
  Diagnostics problems;
  const auto text = read_file(file, problems, kLongest);
  if (!text) throw Error(ExitCode::kBadInput, std::move(problems));
  auto json = Json::parse(*text, nullptr, false);
  if (!json.is_object()) refuse(file, "it is not a JSON object");
  return json;
}

std::string text_at(const Json& json, const char* key) {
  const auto found = json.is_object() ? json.find(key) : json.end();
  return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

/// A part of a pipeline by its type: the part itself, or one in its list. Points into `part`.
const Json* part_of(const Json& part, const std::string& type, const char* members) {
  if (!part.is_object()) return nullptr;
  if (text_at(part, "type") == type) return &part;
  const auto list = part.find(members);
  if (list == part.end() || !list->is_array()) return nullptr;
  for (const auto& each : *list)
    if (text_at(each, "type") == type) return &each;
  return nullptr;
}

/// "<0x0A>".
bool is_byte(const std::string& token) {
  return token.size() == 6 && token.starts_with("<0x") && token.ends_with('>');
}

class Vocabulary {
 public:
  Vocabulary(const fs::path& folder, const arch::ModelSpec& spec, GgufHead& head)
      : folder_(folder),
        file_(folder / "tokenizer.json"),
        spec_(spec),
        head_(head),
        json_(read_json(file_)),
        settings_(read_json(folder / "tokenizer_config.json")) {}

  std::string add() {
    model_ = json_.value("model", Json::object());
    if (text_at(model_, "type") != "BPE") refuse(file_, fmt::format("a {} tokenizer", text_at(model_, "type")));
    read_tokens();
    read_merges();
    const auto pre = json_.value("pre_tokenizer", Json());
    const auto* bytes = part_of(pre, "ByteLevel", "pretokenizers");
    const bool falls_back = model_.value("byte_fallback", Json(false)) == Json(true);
    if (bytes == nullptr && !falls_back) refuse(file_, "BPE that is neither byte-level nor has byte_fallback");
    std::string what;
    if (bytes != nullptr) {
      const auto name = splitting(pre, *bytes);
      head_.add("tokenizer.ggml.model", "gpt2");
      head_.add("tokenizer.ggml.pre", name);
      head_.add("tokenizer.ggml.merges", merges_);
      what = fmt::format("byte-level BPE ({})", name);
    } else {
      head_.add("tokenizer.ggml.model", "llama");
      head_.add("tokenizer.ggml.pre", "default");
      head_.add("tokenizer.ggml.scores", scores());
      head_.add("tokenizer.ggml.add_space_prefix", adds_space(pre));
      what = "SentencePiece-like BPE";
    }
    head_.add("tokenizer.ggml.tokens", tokens_);
    std::vector<std::int32_t> types;
    for (const auto type : types_) types.push_back(static_cast<std::int32_t>(type));
    head_.add("tokenizer.ggml.token_type", types);
    add_ends();
    return fmt::format("{}, {} tokens", what, tokens_.size());
  }

 private:
  void place(std::int64_t id, const std::string& text, TokenType type) {
    if (id < 0 || id >= spec_.vocab)
      refuse(file_, fmt::format("token {} is beyond the model's vocabulary of {}", id, spec_.vocab));
    tokens_[static_cast<std::size_t>(id)] = text;
    types_[static_cast<std::size_t>(id)] = type;
    ids_[text] = static_cast<std::uint32_t>(id);
  }

  void read_tokens() {
    const auto vocabulary = model_.find("vocab");
    if (vocabulary == model_.end() || !vocabulary->is_object()) refuse(file_, "no vocabulary");
    tokens_.resize(static_cast<std::size_t>(spec_.vocab));
    types_.assign(tokens_.size(), TokenType::kUnused);
    for (std::size_t i = 0; i < tokens_.size(); ++i) tokens_[i] = fmt::format("[PAD{}]", i);
    const bool falls_back = model_.value("byte_fallback", Json(false)) == Json(true);
    const auto unknown = text_at(model_, "unk_token");
    for (const auto& [token, id] : vocabulary->items()) {
      if (!id.is_number_integer()) refuse(file_, "an id that is not a whole number");
      const auto type = falls_back && is_byte(token)           ? TokenType::kByte
                        : !unknown.empty() && token == unknown ? TokenType::kUnknown
                                                               : TokenType::kNormal;
      place(id.get<std::int64_t>(), token, type);
    }
    for (const auto& added : json_.value("added_tokens", Json::array())) {
      const auto id = added.is_object() ? added.value("id", Json()) : Json();
      if (!id.is_number_integer()) refuse(file_, "an added token without an id");
      const auto text = text_at(added, "content");
      if (falls_back && !unknown.empty() && text == unknown) continue;
      place(id.get<std::int64_t>(), text,
            added.value("special", Json(false)) == Json(true) ? TokenType::kControl : TokenType::kUserDefined);
    }
  }

  void read_merges() {
    for (const auto& merge : model_.value("merges", Json::array())) {
      if (merge.is_string())
        merges_.push_back(merge.get<std::string>());
      else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
        merges_.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
      else
        refuse(file_, "a merge that is not a pair");
    }
  }

  std::string splitting(const Json& pre, const Json& bytes) const {
    const auto* split = part_of(pre, "Split", "pretokenizers");
    if (split == nullptr && &pre == &bytes && bytes.value("use_regex", Json(true)) == Json(true)) return "gpt-2";
    const auto pattern = split != nullptr ? text_at(split->value("pattern", Json::object()), "Regex") : "";
    for (const auto& known : kSplittings)
      if (known.pattern == pattern) return std::string(known.name);
    refuse(file_, "texts are split in a way that llama.cpp has no name for");
  }

  /// llama.cpp merges the pair whose result has the highest score: results rank as their first merge does.
  std::vector<float> scores() const {
    std::vector<float> out(tokens_.size(), 0.0F);
    for (std::size_t rank = merges_.size(); rank-- > 0;) {
      auto result = merges_[rank];
      result.erase(result.find(' '), 1);
      if (const auto found = ids_.find(result); found != ids_.end())
        out[found->second] = -static_cast<float>(rank) - 1.0F;
    }
    return out;
  }

  /// Whether a text begins as if a space stood before it.
  bool adds_space(const Json& pre) const {
    if (part_of(json_.value("normalizer", Json()), "Prepend", "normalizers") != nullptr) return true;
    const auto* spaces = part_of(pre, "Metaspace", "pretokenizers");
    if (spaces == nullptr) return false;
    const auto scheme = text_at(*spaces, "prepend_scheme");
    return scheme.empty() ? spaces->value("add_prefix_space", Json(true)) == Json(true) : scheme != "never";
  }

  std::optional<std::uint32_t> special(const char* key) const {
    const auto found = settings_.find(key);
    if (found == settings_.end()) return std::nullopt;
    const auto text = found->is_string() ? found->get<std::string>() : text_at(*found, "content");
    const auto id = ids_.find(text);
    return id == ids_.end() ? std::nullopt : std::optional(id->second);
  }

  void add_ends() {
    auto bos = special("bos_token"), eos = special("eos_token");
    if (!bos && spec_.bos_token) bos = static_cast<std::uint32_t>(*spec_.bos_token);
    if (!eos && !spec_.eos_tokens.empty()) eos = static_cast<std::uint32_t>(spec_.eos_tokens.front());
    if (bos) head_.add("tokenizer.ggml.bos_token_id", *bos);
    if (eos) head_.add("tokenizer.ggml.eos_token_id", *eos);
    if (const auto unknown = special("unk_token")) head_.add("tokenizer.ggml.unknown_token_id", *unknown);
    if (const auto pad = special("pad_token")) head_.add("tokenizer.ggml.padding_token_id", *pad);
    head_.add("tokenizer.ggml.add_bos_token", begins_with_special());
    head_.add("tokenizer.ggml.add_eos_token", false);
    auto chat = text_at(settings_, "chat_template");
    if (is_there(folder_ / "chat_template.jinja")) {
      Diagnostics problems;
      const auto text = read_file(folder_ / "chat_template.jinja", problems, kLongest);
      if (!text) throw Error(ExitCode::kBadInput, std::move(problems));
      chat = *text;
    }
    if (!chat.empty()) head_.add("tokenizer.chat_template", chat);
  }

  bool begins_with_special() const {
    const auto after = json_.value("post_processor", Json());
    if (const auto* parts = part_of(after, "TemplateProcessing", "processors")) {
      const auto single = parts->value("single", Json::array());
      return single.is_array() && !single.empty() && single[0].is_object() && single[0].contains("SpecialToken");
    }
    return settings_.value("add_bos_token", Json(false)) == Json(true);
  }

  fs::path folder_, file_;
  const arch::ModelSpec& spec_;
  GgufHead& head_;
  Json json_, settings_, model_;
  std::vector<std::string> tokens_, merges_;
  std::vector<TokenType> types_;
  std::map<std::string, std::uint32_t> ids_;
};

}  // namespace

std::string add_vocabulary(const fs::path& folder, const arch::ModelSpec& spec, GgufHead& head) {
  if (!is_there(folder / "tokenizer.json")) {
    head.add("tokenizer.ggml.model", "none");
    return "no tokenizer: the file takes token ids only";
  }
  return Vocabulary(folder, spec, head).add();
}

}  // namespace automodel::checkpoint
