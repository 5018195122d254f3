#include "checkpoint/gguf/gguf_vocabulary.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_depth.h"
#include "base/utf8.h"
#include "checkpoint/format/file.h"
#include "checkpoint/format/safetensors.h"

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

constexpr const char* kWritten =
    "llama.cpp gets byte-level BPE that splits as GPT-2, Llama 3 or Qwen 2 do, or BPE with byte fallback as Llama 2's";

[[noreturn]] void refuse(const fs::path& file, const std::string& what, const char* help = kWritten) {
  throw Error(ExitCode::kBadInput,
              Diagnostic{"bad-tokenizer"}.says("'{}': {}", file.native(), what).hint(help).at({file.native(), 0, 0}));
}

std::string shown(const std::string& text) {
  return printable(text, kMostShown);
}

/// An object; empty if the file is missing.
Json read_json(const fs::path& file) {
  if (!is_there(file)) return Json::object();
  Diagnostics problems;
  const auto text = read_file(file, problems, kLongest);
  if (!text) throw Error(ExitCode::kBadInput, std::move(problems));
  if (nesting_of(*text) > kDeepestJson) refuse(file, fmt::format("it nests more than {} levels", kDeepestJson));
  auto json = Json::parse(*text, nullptr, false);
  if (!json.is_object()) refuse(file, "it is not a JSON object");
  return json;
}

/// A member, in place; null if there is none.
const Json& at(const Json& json, const char* key) {
  static const Json none;
  if (!json.is_object()) return none;
  const auto found = json.find(key);
  return found == json.end() ? none : *found;
}

std::string text_at(const Json& json, const char* key) {
  const auto& found = at(json, key);
  return found.is_string() ? found.get<std::string>() : "";
}

bool flag_at(const Json& json, const char* key, bool otherwise) {
  const auto& found = at(json, key);
  return found.is_boolean() ? found.get<bool>() : otherwise;
}

/// A stage of the tokenizer and the type of each of its parts in turn.
struct Pipeline {
  std::vector<const Json*> parts = {};
  std::vector<std::string> types = {};

  Pipeline(const Json& stage, const char* members) {
    const auto add = [this](const Json& part) {
      parts.push_back(&part);
      types.push_back(shown(text_at(part, "type")));
    };
    if (text_at(stage, "type") == "Sequence")
      for (const auto& part : at(stage, members)) add(part);
    else if (!stage.is_null())
      add(stage);
  }
  const Json* find(std::string_view type) const {
    const auto found = std::find(types.begin(), types.end(), type);
    return found == types.end() ? nullptr : parts[static_cast<std::size_t>(found - types.begin())];
  }
};

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
        settings_(read_json(folder / "tokenizer_config.json")),
        model_(at(json_, "model")),
        normalizer_(at(json_, "normalizer"), "normalizers"),
        pre_(at(json_, "pre_tokenizer"), "pretokenizers"),
        after_(at(json_, "post_processor"), "processors"),
        falls_back_(flag_at(model_, "byte_fallback", false)) {}

  std::string add() {
    if (text_at(model_, "type") != "BPE") refuse(file_, fmt::format("a {} tokenizer", shown(text_at(model_, "type"))));
    read_tokens();
    read_merges();
    const bool bytes = pre_.find("ByteLevel") != nullptr;
    if (!bytes && !falls_back_) refuse(file_, "BPE that is neither byte-level nor has byte_fallback");
    std::string what;
    if (bytes) {
      const auto name = splitting();
      head_.add("tokenizer.ggml.model", "gpt2");
      head_.add("tokenizer.ggml.pre", name);
      head_.add("tokenizer.ggml.merges", merges_);
      what = fmt::format("byte-level BPE ({})", name);
    } else {
      head_.add("tokenizer.ggml.model", "llama");
      head_.add("tokenizer.ggml.pre", "default");
      head_.add("tokenizer.ggml.scores", scores());
      head_.add("tokenizer.ggml.add_space_prefix", adds_space());
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
    const auto& vocabulary = at(model_, "vocab");
    if (!vocabulary.is_object()) refuse(file_, "no vocabulary");
    tokens_.resize(static_cast<std::size_t>(spec_.vocab));
    types_.assign(tokens_.size(), TokenType::kUnused);
    for (std::size_t i = 0; i < tokens_.size(); ++i) tokens_[i] = fmt::format("[PAD{}]", i);
    const auto unknown = text_at(model_, "unk_token");
    for (const auto& [token, id] : vocabulary.items()) {
      if (!id.is_number_integer()) refuse(file_, "an id that is not a whole number");
      const auto type = falls_back_ && is_byte(token)          ? TokenType::kByte
                        : !unknown.empty() && token == unknown ? TokenType::kUnknown
                                                               : TokenType::kNormal;
      place(id.get<std::int64_t>(), token, type);
    }
    for (const auto& added : at(json_, "added_tokens")) {
      const auto& id = at(added, "id");
      if (!id.is_number_integer()) refuse(file_, "an added token without an id");
      const auto text = text_at(added, "content");
      if (falls_back_ && !unknown.empty() && text == unknown) continue;
      place(id.get<std::int64_t>(), text,
            flag_at(added, "special", false) ? TokenType::kControl : TokenType::kUserDefined);
    }
  }

  void read_merges() {
    for (const auto& merge : at(model_, "merges")) {
      if (merge.is_string())
        merges_.push_back(merge.get<std::string>());
      else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
        merges_.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
      else
        refuse(file_, "a merge that is not a pair");
    }
  }

  /// llama.cpp's name of the splitting: that of ByteLevel alone, or of a pattern before it.
  std::string splitting() const {
    // llama.cpp does not normalize: composed letters are what nearly all texts have anyway.
    for (const auto& type : normalizer_.types)
      if (type != "NFC") refuse(file_, fmt::format("the normalizer {}, which llama.cpp does not have", type));
    const bool alone = pre_.types == std::vector<std::string>{"ByteLevel"};
    if (!alone && pre_.types != std::vector<std::string>{"Split", "ByteLevel"})
      refuse(file_, fmt::format("texts are split by {}: llama.cpp has no name for that", fmt::join(pre_.types, ", ")));
    const auto& bytes = *pre_.parts.back();
    if (flag_at(bytes, "add_prefix_space", true)) refuse(file_, "ByteLevel with add_prefix_space");
    if (flag_at(bytes, "use_regex", true) != alone)
      refuse(file_, alone ? "ByteLevel without use_regex" : "ByteLevel with use_regex after a Split");
    if (alone) return "gpt-2";
    const auto& split = *pre_.parts.front();
    if (text_at(split, "behavior") != "Isolated" || flag_at(split, "invert", false))
      refuse(file_, "a Split that is not Isolated, or inverted");
    const auto pattern = text_at(at(split, "pattern"), "Regex");
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

  /// Whether a text begins as if a space stood before it. Spaces become U+2581, in the normalizer or by Metaspace.
  bool adds_space() const {
    constexpr std::string_view kSpace = "\u2581";
    for (const auto* part : normalizer_.parts) {
      const auto type = shown(text_at(*part, "type"));
      const bool fits = type == "Prepend" ? text_at(*part, "prepend") == kSpace
                                          : type == "Replace" && text_at(at(*part, "pattern"), "String") == " " &&
                                                text_at(*part, "content") == kSpace;
      if (!fits) refuse(file_, fmt::format("the normalizer {}, which llama.cpp does not have", type));
    }
    for (const auto& type : pre_.types)
      if (type != "Metaspace" || pre_.types.size() > 1)
        refuse(file_,
               fmt::format("texts are split by {}: llama.cpp has no name for that", fmt::join(pre_.types, ", ")));
    if (normalizer_.find("Prepend") != nullptr) return true;
    const auto* spaces = pre_.find("Metaspace");
    if (spaces == nullptr) return false;
    const auto scheme = text_at(*spaces, "prepend_scheme");
    return scheme.empty() ? flag_at(*spaces, "add_prefix_space", true) : scheme != "never";
  }

  std::optional<std::uint32_t> special(const char* key) const {
    const auto& found = at(settings_, key);
    const auto text = found.is_string() ? found.get<std::string>() : text_at(found, "content");
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
    const auto [begins, ends] = tokens_around(bos, eos);
    head_.add("tokenizer.ggml.add_bos_token", begins);
    head_.add("tokenizer.ggml.add_eos_token", ends);
    std::string chat;
    if (is_there(folder_ / "chat_template.jinja")) {
      Diagnostics problems;
      const auto text = read_file(folder_ / "chat_template.jinja", problems, kLongest);
      if (!text) throw Error(ExitCode::kBadInput, std::move(problems));
      chat = *text;
    } else {
      chat = chat_template();
    }
    if (!chat.empty()) head_.add("tokenizer.chat_template", chat);
  }

  /// A model may have several by name; a GGUF file has one.
  std::string chat_template() const {
    const auto& chat = at(settings_, "chat_template");
    if (chat.is_null() || chat.is_string()) return text_at(settings_, "chat_template");
    for (const auto& each : chat)
      if (text_at(each, "name") == "default" && !text_at(each, "template").empty()) return text_at(each, "template");
    refuse(folder_ / "tokenizer_config.json", "chat_template has none that is named default",
           "give that one as chat_template.jinja beside it");
  }

  /// Whether a text gets the token bos before it, and eos after it.
  std::pair<bool, bool> tokens_around(std::optional<std::uint32_t> bos, std::optional<std::uint32_t> eos) const {
    for (const auto& type : after_.types)
      if (type != "ByteLevel" && type != "TemplateProcessing")
        refuse(file_, fmt::format("the post_processor {}, which llama.cpp does not have", type));
    const auto* around = after_.find("TemplateProcessing");
    if (around == nullptr) return {flag_at(settings_, "add_bos_token", false), false};
    std::pair<bool, bool> out;
    bool text = false;
    for (const auto& item : at(*around, "single")) {
      if (!at(item, "Sequence").is_null()) {
        if (std::exchange(text, true)) refuse(file_, "a post_processor that repeats the text");
        continue;
      }
      const auto token = text_at(at(item, "SpecialToken"), "id");
      const auto id = ids_.find(token);
      if (id == ids_.end() || (text ? eos : bos) != id->second || std::exchange(text ? out.second : out.first, true))
        refuse(file_, fmt::format("a post_processor with '{}' {} a text: llama.cpp adds {} there, once", shown(token),
                                  text ? "after" : "before", text ? "eos_token" : "bos_token"));
    }
    if (!text) refuse(file_, "a post_processor without the text");
    return out;
  }

  fs::path folder_, file_;
  const arch::ModelSpec& spec_;
  GgufHead& head_;
  Json json_, settings_;
  const Json& model_;
  Pipeline normalizer_, pre_, after_;
  bool falls_back_ = false;
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
