#include "data/picture_chat.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "base/utf8.h"
#include "data/messages.h"
#include "pictures/decode.h"
#include "tokenizer/unicode.h"

namespace automodel::data {
namespace {

using nlohmann::ordered_json;

ordered_json turn(const char* role, const char* text) {
  return {{"role", role}, {"content", ordered_json::array({{{"type", "text"}, {"text", text}}})}};
}

/// Before a picture is decoded or a token made: a row may name the same picture any number of times.
void require_room(const ordered_json& messages, const pictures::PictureTokens& tokens, const RowLengths& lengths) {
  const auto most = std::min(kMostPictureTokens, lengths.limit.value_or(kMostPictureTokens));
  const int per_picture = std::max(tokens.per_picture, 1);
  std::int64_t pictures = 0;
  for (const auto& message : messages)
    pictures += std::count_if(message["content"].begin(), message["content"].end(),
                              [](const ordered_json& part) { return part["type"] == "image"; });
  if (pictures > most / per_picture) throw no_room_for_pictures(most);
}

std::string without_space_in_front(const std::string& text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const auto point = tokenizer::code_point_at(text, at);
    if (!tokenizer::is_space(point.value)) break;
    at += point.bytes;
  }
  return text.substr(at);
}

/// The pictures that the messages name. Every one that is not drawn is decoded: what is damaged is found here.
std::vector<PictureSource> sources_of(const ordered_json& messages, const RowPictures& row,
                                      const std::optional<pictures::Processor>& processor) {
  std::vector<PictureSource> out;
  TextPixels pixels(processor);
  for (const auto& message : messages)
    for (const auto& part : message["content"]) {
      if (part["type"] != "image") continue;
      try {
        auto source = row.find(part["image"]);
        mark_picture(source, row.table());
        pixels.add(source.mark.size);
        out.push_back(std::move(source));
      } catch (const pictures::PictureError& error) {
        throw RowRefused(
            fmt::format("picture {} ({}) cannot be used: {}", out.size() + 1, row.name(part["image"]), error.what()));
      }
    }
  return out;
}

}  // namespace

std::vector<bool> AnswerMarks::find(const std::vector<std::int32_t>& ids) const {
  std::vector<bool> out(ids.size(), false);
  for (auto at = ids.begin();;) {
    at = std::search(at, ids.end(), marker.begin(), marker.end());
    if (at == ids.end()) return out;
    at += static_cast<std::ptrdiff_t>(marker.size());
    const auto end = std::find(at, ids.end(), stop);
    const auto behind = end == ids.end() ? end : end + 1;
    std::fill(out.begin() + (at - ids.begin()), out.begin() + (behind - ids.begin()), true);
    at = behind;
  }
}

std::vector<std::int32_t> AnswerMarks::prefixed(const std::vector<std::int32_t>& ids,
                                                const std::vector<std::int32_t>& prefix) const {
  std::vector<std::int32_t> out;
  for (auto at = ids.begin();;) {
    const auto found = std::search(at, ids.end(), marker.begin(), marker.end());
    const auto end = found == ids.end() ? found : found + std::ssize(marker);
    out.insert(out.end(), at, end);
    if (found == ids.end()) return out;
    out.insert(out.end(), prefix.begin(), prefix.end());
    at = end;
  }
}

std::vector<bool> find_answers(const std::vector<std::int32_t>& ids, const std::vector<AnswerText>& answers,
                               const std::vector<std::int32_t>& stops) {
  std::vector<bool> out(ids.size(), false);
  auto next = ids.begin();
  for (const auto& answer : answers) {
    const auto* text = &answer.ids;
    auto at = std::search(next, ids.end(), text->begin(), text->end());
    if (at == ids.end() && answer.trimmed != answer.ids) {
      text = &answer.trimmed;
      at = std::search(next, ids.end(), text->begin(), text->end());
    }
    if (at == ids.end()) break;
    next = at + std::ssize(*text);
    if (next != ids.end() && std::ranges::find(stops, *next) != stops.end()) ++next;
    std::fill(out.begin() + (at - ids.begin()), out.begin() + (next - ids.begin()), true);
  }
  return out;
}

std::unique_ptr<const PictureChat> PictureChat::open(std::shared_ptr<const RowTokenizer> tokenizer,
                                                     std::unique_ptr<const ChatFormat> chat,
                                                     const pictures::PictureTokens& tokens,
                                                     const std::string& answer_prefix, const std::string& key,
                                                     Diagnostics& problems) {
  auto out = std::make_unique<PictureChat>();
  out->tokenizer_ = std::move(tokenizer);
  out->chat_ = std::move(chat);
  out->tokens_ = tokens;
  out->text_ = PictureText::open(
      out->tokenizer_->folder(),
      [rows = out->tokenizer_](std::string_view text, bool special) {
        return rows->encode(text, {.special = special}).ids;
      },
      tokens, key, problems);
  if (!out->text_) return nullptr;
  std::string why = "it renders no answer, or nothing behind it";
  try {
    if (out->find_marks()) {
      if (answer_prefix.empty()) return out;
      out->prefix_ = out->tokenizer_->encode(answer_prefix, {.special = false}).ids;
      if (out->marks_) return out;
      why = "it puts nothing before them, so that 'answer_prefix' has no place";
    }
  } catch (const RowRefused& error) {
    why = error.what();
  }
  problems.add("bad-template", key + ".chat_template")
      .says("the chat template does not show where answers begin and end: {}", why)
      .hint("answers are labelled between what the template puts before and behind them");
  return nullptr;
}

std::vector<std::int32_t> PictureChat::ids_of(const ordered_json& messages, const ordered_json& tools) const {
  return text_->ids(chat_->render(messages, tools));
}

bool PictureChat::find_marks() {
  constexpr const char* kSentinel = "XSENTINELMARKERX";
  if (!tokens_.answer.empty()) {
    const auto stop = text_->single_token(tokens_.stop);
    auto marker = tokenizer_->encode(tokens_.answer, {.special = false}).ids;
    if (stop && !marker.empty()) {
      marks_ = AnswerMarks{std::move(marker), *stop};
      return true;
    }
  }
  auto messages = ordered_json::array({turn("user", "u")});
  const auto question = ids_of(messages, {}).size();
  messages.push_back(turn("assistant", kSentinel));
  const auto whole = ids_of(messages, {});
  const auto sentinel = tokenizer_->encode(kSentinel, {.special = false}).ids;
  const auto begin = whole.begin() + static_cast<std::ptrdiff_t>(std::min(question, whole.size()));
  const auto found = std::search(begin, whole.end(), sentinel.begin(), sentinel.end());
  const auto behind = found + static_cast<std::ptrdiff_t>(found == whole.end() ? 0 : sentinel.size());
  if (found == whole.end() || behind == whole.end()) return false;
  if (found != begin) {
    marks_ = AnswerMarks{{begin, found}, *behind};
    return true;
  }
  for (const char* text : {"<end_of_turn>", "<|im_end|>", "<|eot_id|>"})  // as NeMo AutoModel
    if (const auto id = text_->single_token(text)) stops_.push_back(*id);
  if (const auto eos = tokenizer_->eos()) stops_.push_back(*eos);
  return true;
}

// LLaVA's template puts a space and </s> behind an answer, so that a token for a space inside of one ends its labels.
bool PictureChat::cuts_answers(const std::vector<std::int32_t>& ids, const std::vector<bool>& answers,
                               const ordered_json& messages) const {
  if (!marks_) return false;
  const auto trimmed = [](const std::string& text) {
    const auto begin = text.find_first_not_of(" \n"), end = text.find_last_not_of(" \n");
    return begin == std::string::npos ? std::string() : text.substr(begin, end + 1 - begin);
  };
  auto message = messages.begin();
  for (auto at = answers.begin(); at != answers.end();) {
    const auto begin = std::find(at, answers.end(), true);
    const auto end = std::find(begin, answers.end(), false);
    if (end == answers.end()) return false;  // the last answer, whole or cut with its row
    message = std::find_if(message, messages.end(), [](const auto& each) { return each["role"] == "assistant"; });
    if (message == messages.end()) return false;
    std::string text;
    for (const auto& part : (*message++)["content"])
      if (part["type"] == "text") text += part["text"].template get<std::string>();
    const std::span learned(ids.data() + (begin - answers.begin()), static_cast<std::size_t>(end - begin - 1));
    const auto found = trimmed(tokenizer_->folder().decode(learned, /*skip_special=*/true)), whole = trimmed(text);
    if (whole.starts_with(found) && whole != found) return true;
    at = end;
  }
  return false;
}

std::vector<bool> PictureChat::answers_in(const std::vector<std::int32_t>& ids, const ordered_json& messages) const {
  if (marks_) return marks_->find(ids);
  std::vector<AnswerText> answers;
  for (const auto& message : messages) {
    if (message["role"] != "assistant") continue;
    const auto& parts = message["content"];
    const auto text = std::ranges::find_if(parts, [](const ordered_json& part) { return part["type"] == "text"; });
    if (text == parts.end() || (*text)["text"] == "") continue;
    const auto words = (*text)["text"].get<std::string>();
    const auto ids_of_text = [&](std::string_view part) { return tokenizer_->encode(part, {.special = false}).ids; };
    answers.push_back({ids_of_text(words), ids_of_text(without_space_in_front(words))});
  }
  return find_answers(ids, answers, stops_);
}

BuiltRow PictureChat::build(const ordered_json& messages, const ordered_json& tools, const RowPictures& pictures,
                            const RowLengths& lengths) const {
  BuiltRow out;
  require_room(messages, tokens_, lengths);
  out.pictures = sources_of(messages, pictures, tokens_.processor);
  auto text = ids_of(messages, tools);
  if (!prefix_.empty()) text = marks_->prefixed(text, prefix_);
  std::vector<pictures::Size> sizes;
  for (const auto& picture : out.pictures) sizes.push_back(picture.mark.size);
  auto ids = text_->with_pictures(text, sizes, lengths.limit.value_or(kMostPictureTokens));
  if (lengths.limit && std::ssize(ids) > *lengths.limit) {
    const auto end = ids.begin() + *lengths.limit;
    if (std::find(end, ids.end(), tokens_.placeholder) != ids.end()) throw no_room_for_pictures(*lengths.limit);
    ids.erase(end, ids.end());
  }
  const auto answers = answers_in(ids, messages);
  out.cuts_answers = cuts_answers(ids, answers, messages);
  for (std::size_t t = 1; t < ids.size(); ++t) out.labels.push_back(answers[t] ? ids[t] : kIgnoredLabel);
  if (!ids.empty()) ids.pop_back();
  out.attended = std::ssize(ids);
  const auto size = std::max(ids.size(), static_cast<std::size_t>(lengths.full.value_or(1) - 1));  // before the shift
  ids.resize(size, tokenizer_->fill());
  out.labels.resize(size, kIgnoredLabel);
  out.input_ids = std::move(ids);
  return out;
}

}  // namespace automodel::data
