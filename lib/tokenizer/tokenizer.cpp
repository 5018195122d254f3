#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json_depth.h"
#include "tokenizer/bpe.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/llama_class.h"
#include "tokenizer/unicode.h"

namespace automodel::tokenizer {
namespace {

constexpr const char* kDecoder = "added_tokens_decoder";
/// The contents of added_tokens.json in the shape of added_tokens_decoder, beside the members of tokenizer_config.json.
constexpr const char* kOlder = "added_tokens.json";
/// In the order in which transformers adds their tokens.
constexpr std::array<std::string_view, 7> kRoles = {"bos_token", "eos_token", "unk_token", "sep_token",
                                                    "pad_token", "cls_token", "mask_token"};

/// The document, or null after adding a problem with its position.
std::optional<nlohmann::json> parse_json(const std::string& text, const std::string& file, Diagnostics& problems) {
  if (nesting_of(text) > kDeepestJson) {
    problems.add("bad-tokenizer")
        .says("the file nests more than {} levels", kDeepestJson)
        .hint("no tokenizer's does")
        .at({file, 1, 1});
    return std::nullopt;
  }
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    SourceLocation where{file, 1, 1};
    if (const auto* place = dynamic_cast<const nlohmann::json::parse_error*>(&error)) {
      const std::string_view before = std::string_view(text).substr(0, std::min(place->byte, text.size()));
      where.line = 1 + static_cast<int>(std::count(before.begin(), before.end(), '\n'));
      const std::size_t begin = before.rfind('\n');
      where.column = static_cast<int>(std::min<std::size_t>(
          before.size() - (begin == std::string_view::npos ? 0 : begin + 1), std::numeric_limits<int>::max()));
    }
    problems.add("bad-tokenizer")
        .says("the file is not JSON")
        .hint("it may have been cut off; copy it again")
        .at(where);
    return std::nullopt;
  }
}

/// A string, or the content of an added token.
std::optional<std::string> token_text(const nlohmann::json& node) {
  if (node.is_string()) return node.get<std::string>();
  if (node.is_object() && node.contains("content") && node["content"].is_string())
    return node["content"].get<std::string>();
  return std::nullopt;
}

/// A template, or the one with this name if there are several.
std::optional<std::string> template_text(const nlohmann::json& node, std::string_view wanted) {
  if (node.is_string()) return wanted == "default" ? std::optional(node.get<std::string>()) : std::nullopt;
  if (!node.is_array()) return std::nullopt;
  for (const auto& item : node) {
    if (!item.is_object()) continue;
    const auto name = item.find("name"), own = item.find("template");
    if (name != item.end() && own != item.end() && *name == wanted && own->is_string()) return own->get<std::string>();
  }
  return std::nullopt;
}

/// To be raised when a tokenizer.json gives other tokens than before, so that caches with the old ones are left aside.
/// 2: complements of sets within brackets. 3: ids of added tokens, word characters of Whitespace.
constexpr std::string_view kRules = "3";

/// tokenizer_config.json, with the members of special_tokens_map.json and with added_tokens.json where transformers
/// reads them: in folders from before the former listed the added tokens.
std::optional<nlohmann::json> config_of(const TokenizerFiles& files, Diagnostics& problems) {
  const std::filesystem::path folder(files.folder);
  std::optional<nlohmann::json> out;
  const std::size_t before = problems.size();
  if (files.config) out = parse_json(*files.config, (folder / "tokenizer_config.json").native(), problems);
  if (problems.size() > before || (out && (!out->is_object() || out->contains(kDecoder)))) return out;
  const auto older = [&](const std::optional<std::string>& text, const char* name) {
    auto read = text ? parse_json(*text, (folder / name).native(), problems) : std::nullopt;
    if (read && !read->is_object()) read.reset();
    if (read && !out) out = nlohmann::json::object();
    return read;
  };
  if (const auto map = older(files.special_map, "special_tokens_map.json"))
    for (const auto& [name, value] : map->items()) (*out)[name] = value;
  if (const auto added = older(files.added, kOlder))
    for (const auto& [content, id] : added->items())
      if (id.is_number_unsigned()) (*out)[kOlder][std::to_string(id.get<std::uint64_t>())] = {{"content", content}};
  return out;
}

/// The byte of a token <0xNN>.
std::optional<char> named_byte(const std::string& token) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  const std::size_t high = kDigits.find(token[3]), low = kDigits.find(token[4]);
  if (high == std::string_view::npos || low == std::string_view::npos) return std::nullopt;
  return static_cast<char>(high * 16 + low);
}

}  // namespace

std::unique_ptr<const Tokenizer> Tokenizer::parse(const TokenizerFiles& files, Diagnostics& problems) {
  const std::size_t before = problems.size();
  const std::filesystem::path folder(files.folder);
  const std::string file = (folder / "tokenizer.json").native();
  auto out = std::unique_ptr<Tokenizer>(new Tokenizer);
  if (auto document = parse_json(files.tokenizer, file, problems)) {
    out->as_llama_ = document->is_object() && rebuild_as_llama(*document, files.config, files.model);
    out->fingerprint_ = hash_bytes(
        fmt::format("{} {}{}", kRules, files.tokenizer, out->as_llama_ ? document->at("pre_tokenizer").dump() : ""));
    const JsonPart part(*document, "", file, problems);
    if (document->is_object())
      out->read(part);
    else
      part.fail("an object is expected");
  }
  if (problems.size() == before) {
    if (const auto config = config_of(files, problems)) {
      out->read_config(JsonPart(*config, "", (folder / "tokenizer_config.json").native(), problems));
    }
  }
  if (files.chat_template) out->chat_template_ = files.chat_template;
  if (problems.size() > before) return nullptr;
  out->finish_added();
  for (const auto& [role, token] : out->roles_)
    out->fingerprint_ = hash_bytes(fmt::format("{} {} {}", out->fingerprint_, role, token));
  for (const auto& token : out->added_)
    out->fingerprint_ =
        hash_bytes(fmt::format("{} {} {} {}{}{}{}{}", out->fingerprint_, token.content, token.id, token.special,
                               token.normalized, token.lstrip, token.rstrip, token.single_word));
  out->fingerprint_ = hash_bytes(fmt::format("{} {} {}", out->fingerprint_, fmt::join(out->surround_.before, ","),
                                             fmt::join(out->surround_.after, ",")));
  return out;
}

bool Tokenizer::read(const JsonPart& part) {
  const std::size_t before = part.problems().size();
  normalizer_ = Normalizer::read(part.at("normalizer"));
  pre_tokenizer_ = PreTokenizer::read(part.at("pre_tokenizer"));
  decoder_ = Decoder::read(part.at("decoder"));
  surround_ = Surround::read(part.at("post_processor"));
  const JsonPart model = part.at("model");
  if (model.is_null())
    model.fail("the model is missing");
  else
    model_ = PieceModel::read(model, pre_tokenizer_.byte_level());
  if (!model_ || part.problems().size() > before) return false;
  for (const auto& [token, id] : model_->vocabulary()) name_id(id, token, false);
  if (!pre_tokenizer_.byte_level()) cuts_ = model_->cuts(kSpaceMark);
  return read_added(part);
}

bool Tokenizer::read_added(const JsonPart& part) {
  if (!part.has("added_tokens")) return true;
  const std::size_t before = part.problems().size();
  std::vector<AddedToken> tokens;
  for (const auto& item : part.items("added_tokens")) {
    tokens.push_back(read_added_token(item));
    if (part.problems().size() > before) return false;
  }
  take_added(std::move(tokens), part.at("added_tokens"));
  return part.problems().size() == before;
}

void Tokenizer::read_config(const JsonPart& part) {
  if (!part.node().is_object()) return part.fail("an object is expected");
  for (const auto role : kRoles) {
    const auto found = part.node().find(role);
    if (found == part.node().end()) continue;
    if (const auto text = token_text(*found)) roles_.emplace(role, *text);
  }
  if (const auto found = part.node().find("chat_template"); found != part.node().end()) {
    chat_template_ = template_text(*found, "default");
    tool_template_ = template_text(*found, "tool_use");
  }
  for (const auto& [name, node] : part.node().items())
    if (node.is_string() && name != "chat_template") settings_.emplace(name, node.get<std::string>());
  read_special(part);
}

/// The added tokens of tokenizer_config.json; without them those of added_tokens.json and of tokenizer.json. In the
/// order of their ids, in which transformers adds them. `special`: those with a role.
std::vector<AddedToken> Tokenizer::listed_tokens(const JsonPart& part, const std::set<std::string>& special) const {
  std::map<std::int64_t, AddedToken> listed;
  const std::size_t before = part.problems().size();
  const bool older = !part.node().contains(kDecoder);
  const JsonPart decoder = part.at(older ? kOlder : kDecoder);
  if (decoder.node().is_object())
    for (const auto& [name, node] : decoder.node().items()) {
      const JsonPart item = decoder.at(name);
      const bool number =
          !name.empty() && name.size() < 10 && name.find_first_not_of("0123456789") == std::string::npos;
      if (!token_text(node) || !number) item.fail("an added token under its id is expected");
      AddedToken token = read_added_token(item);
      if (part.problems().size() > before) return {};
      if (older) token.normalized = !special.contains(token.content);
      listed[std::stol(name)] = std::move(token);
    }
  if (older)
    for (const auto& token : added_) listed[token.id] = token;
  std::vector<AddedToken> out;
  for (auto& [id, token] : listed) {
    token.special = token.special || special.contains(token.content);
    out.push_back(std::move(token));
  }
  return out;
}

/// Added tokens, whose settings in tokenizer_config.json go before those of tokenizer.json; and tokens with a role, or
/// listed as special, which transformers finds in a text as a whole although tokenizer.json only has them among the
/// model's. Unlike there, one that the vocabulary does not have gets no new id: the model has no row for it.
/// add_bos_token and add_eos_token do nothing beside a tokenizer.json, as in transformers 5.
void Tokenizer::read_special(const JsonPart& part) {
  // Roles, also those of a family's own ("image_token"), and other special tokens.
  std::vector<JsonPart> named, special;
  for (const auto& [name, node] : part.node().items())
    if (name.ends_with("_token")) named.push_back(part.at(name));
  for (const char* list : {"additional_special_tokens", "extra_special_tokens"}) {
    const JsonPart own = part.at(list);
    if (own.node().is_array() && !own.node().empty()) special = part.items(list);
    if (own.node().is_object())
      for (const auto& [name, node] : own.node().items()) named.push_back(own.at(name));
  }
  std::set<std::string> names;
  for (const auto& each : named)
    if (const auto text = token_text(each.node())) names.insert(*text);

  take_added(listed_tokens(part, names), part);
  std::vector<AddedToken> tokens;
  named.insert(named.end(), special.begin(), special.end());
  for (const auto& item : named) {
    const auto text = token_text(item.node());
    if (!text || model_->find(*text) == kNoId || added_at_.contains(*text)) continue;
    AddedToken token{.content = *text};
    if (item.node().is_object()) token = read_added_token(item);
    token.special = true;
    if (!item.has("normalized")) token.normalized = false;
    tokens.push_back(std::move(token));
  }
  take_added(std::move(tokens), part);
}

void Tokenizer::name_id(Id id, std::string token, bool special) {
  const auto at = static_cast<std::size_t>(id);
  if (entry_of_.size() <= at) entry_of_.resize(at + 1, -1);
  vocab_size_ = std::max(vocab_size_, id + 1);
  auto& entry = entry_of_[at];
  if (entry < 0) {
    entry = static_cast<std::int32_t>(entries_.size());
    entries_.push_back({std::move(token), special});
  } else {
    auto& known = entries_[static_cast<std::size_t>(entry)];
    known = {std::move(token), known.special || special};
  }
}

/// A token that the model does not have gets the next id behind all, whatever the file says: so do `tokenizers`, whose
/// count of the model's tokens is the first, and transformers with those of tokenizer_config.json.
void Tokenizer::take_added(std::vector<AddedToken> tokens, const JsonPart& part) {
  // Of all: each takes about a hundred while they are looked for.
  constexpr std::size_t kMostBytes = std::size_t{2} << 20;
  auto next = static_cast<Id>(model_->vocabulary().size());
  std::size_t bytes = 0, before = 0, after = 0;  // of all tokens; of those that are normalized here, before and after
  for (const auto& token : added_) {
    next = std::max(next, token.id + 1);
    bytes += token.content.size();
  }
  PatternMatcher matcher;
  for (auto& token : tokens) {
    if (token.content.empty()) continue;
    const auto [known, fresh] = added_at_.try_emplace(token.content, added_.size());
    if (fresh) {
      added_.emplace_back();
      bytes += token.content.size();
      if (bytes > kMostBytes) return part.fail(fmt::format("the added tokens have more than {} bytes", kMostBytes));
    }
    auto& place = added_[known->second];
    token.id = fresh ? model_->find(token.content) : place.id;
    if (token.id == kNoId) token.id = next++;
    name_id(token.id, token.content, token.special);
    if (token.normalized && !place.normalized) {
      std::string content = token.content;
      normalizer_.apply(content, matcher);
      check_normalized(after += content.size(), most_normalized(before += token.content.size()));
      if (content != token.content) normal_forms_[token.id] = std::move(content);
    }
    place = std::move(token);
  }
}

void Tokenizer::finish_added() {
  std::vector<AddedToken> raw, normalized;
  std::vector<std::string> raw_contents, contents;
  for (const auto& token : added_) {
    const auto form = normal_forms_.find(token.id);
    (token.normalized ? normalized : raw).push_back(token);
    (token.normalized ? contents : raw_contents)
        .push_back(token.normalized && form != normal_forms_.end() ? form->second : token.content);
  }
  raw_finder_ = std::make_unique<const TokenFinder>(std::move(raw), raw_contents);
  normalized_finder_ = std::make_unique<const TokenFinder>(std::move(normalized), contents);
}

Id Tokenizer::find(std::string_view token) const {
  const auto added = added_at_.find(std::string(token));
  if (added != added_at_.end()) return added_[added->second].id;
  return model_ ? model_->find(token) : kNoId;
}

std::optional<std::string> Tokenizer::role(std::string_view name) const {
  const auto found = roles_.find(name);
  return found == roles_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<Id> Tokenizer::role_id(std::string_view name) const {
  const auto token = role(name);
  const Id id = token ? find(*token) : kNoId;
  return id == kNoId ? std::nullopt : std::optional(id);
}

std::string Tokenizer::setting(const std::string& name) const {
  const auto found = settings_.find(name);
  return found == settings_.end() ? std::string() : found->second;
}

std::string Tokenizer::token(Id id) const {
  const auto at = static_cast<std::size_t>(id);
  if (id < 0 || at >= entry_of_.size() || entry_of_[at] < 0) return "";
  return entries_[static_cast<std::size_t>(entry_of_[at])].token;
}

bool Tokenizer::is_special(Id id) const {
  return id != kNoId && entries_[static_cast<std::size_t>(entry_of_[static_cast<std::size_t>(id)])].special;
}

std::string Tokenizer::surface(Id id) const {
  std::string out = token(id);
  for (const auto& added : added_)
    if (added.id == id) return out;
  if (pre_tokenizer_.byte_level()) return bytes_of(out).value_or(out);
  if (const auto byte = named_byte(out)) return std::string(1, *byte);
  for (std::size_t at = out.find(kSpaceMark); at != std::string::npos; at = out.find(kSpaceMark, at))
    out.replace(at, kSpaceMark.size(), 1, ' ');
  return out;
}

std::string Tokenizer::normalized(std::string_view text) const {
  std::string out(text);
  if (!pre_tokenizer_.byte_level() || normalizer_.empty()) return out;
  PatternMatcher matcher;
  normalizer_.apply(out, matcher);
  return out;
}

std::string Tokenizer::decode(std::span<const Id> ids, bool skip_special) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const Id id : ids) {
    const auto at = static_cast<std::size_t>(id);
    if (id < 0 || at >= entry_of_.size() || entry_of_[at] < 0) continue;
    const Entry& entry = entries_[static_cast<std::size_t>(entry_of_[at])];
    const auto form = normal_forms_.find(id);
    const auto& text = form == normal_forms_.end() ? entry.token : form->second;
    // `tokenizers` compares the text that it decodes with the special tokens, so one that its normalizer changes stays.
    const bool special = form == normal_forms_.end() ? entry.special : is_special(find(text));
    if (!skip_special || !special) tokens.push_back(text);
  }
  PatternMatcher matcher;
  return decoder_.decode(std::move(tokens), matcher);
}

}  // namespace automodel::tokenizer
