#include "data/picture_chat.h"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "data/messages.h"
#include "pictures/decode.h"

namespace automodel::data {
namespace {

using nlohmann::ordered_json;

ordered_json turn(const char* role, const char* text) {
  return {{"role", role}, {"content", ordered_json::array({{{"type", "text"}, {"text", text}}})}};
}

constexpr std::int64_t kMostTokens = 1 << 20;  // of a row's pictures

RowRefused no_room(std::int64_t most) {
  return RowRefused(fmt::format("its pictures need more than the {} tokens that the row may have", most));
}

/// Before a picture is decoded or a token made: a row may name the same picture any number of times.
void require_room(const ordered_json& messages, const pictures::PictureTokens& tokens, const RowLengths& lengths) {
  const auto most = std::min(kMostTokens, lengths.limit.value_or(kMostTokens));
  const int per_picture = std::max(tokens.per_picture, 1);
  std::int64_t pictures = 0;
  for (const auto& message : messages)
    pictures += std::count_if(message["content"].begin(), message["content"].end(),
                              [](const ordered_json& part) { return part["type"] == "image"; });
  if (pictures > most / per_picture) throw no_room(most);
}

/// Pixels of a row's pictures, as files and as the processor resizes them before it crops: a row is in memory whole, in
/// 1 GiB at most. A picture of 1 x 16,384 pixels would be resized to 336 x 5.5 million before its middle is cut out.
class RowPixels {
 public:
  explicit RowPixels(const std::optional<pictures::Processor>& processor) : processor_(processor) {}

  /// Throws PictureError if the row cannot have this picture, too.
  void add(pictures::Size size) {
    if (processor_)
      if (const auto why = processor_->refusal(size); !why.empty()) throw pictures::PictureError(why);
    const auto resized = processor_ ? processor_->resized(size) : size;
    if (area(resized) > pictures::kMostPixels)
      throw pictures::PictureError(fmt::format("its {} x {} pixels would be resized to {} x {}, more than {} in all",
                                               size.width, size.height, resized.width, resized.height,
                                               pictures::kMostPixels));
    sum_ += area(size) + area(resized);
    if (sum_ > kMost)
      throw pictures::PictureError(
          fmt::format("the row's pictures have more than {} pixels, as files and resized", kMost));
  }

 private:
  static std::int64_t area(pictures::Size size) { return std::int64_t{size.width} * size.height; }
  static constexpr std::int64_t kMost = 4 * pictures::kMostPixels;
  const std::optional<pictures::Processor>& processor_;
  std::int64_t sum_ = 0;
};

/// The pictures that the messages name. Every one is decoded: what is damaged is found here.
std::vector<PictureSource> sources_of(const ordered_json& messages, const RowPictures& row,
                                      const std::optional<pictures::Processor>& processor) {
  std::vector<PictureSource> out;
  RowPixels pixels(processor);
  for (const auto& message : messages)
    for (const auto& part : message["content"]) {
      if (part["type"] != "image") continue;
      try {
        auto source = row.find(part["image"]);
        source.size = read_picture(source, &row.table())->size;
        pixels.add(source.size);
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

std::unique_ptr<const PictureChat> PictureChat::open(std::shared_ptr<const RowTokenizer> tokenizer,
                                                     std::unique_ptr<const ChatFormat> chat,
                                                     const pictures::PictureTokens& tokens, const std::string& key,
                                                     Diagnostics& problems) {
  auto out = std::make_unique<PictureChat>();
  out->tokenizer_ = std::move(tokenizer);
  out->chat_ = std::move(chat);
  out->tokens_ = tokens;
  std::string why = "it renders nothing between a question and its answer, or nothing behind the answer";
  try {
    if (auto marks = out->find_marks()) {
      out->marks_ = std::move(*marks);
      return out;
    }
  } catch (const RowRefused& error) {
    why = error.what();
  }
  problems.add("bad-template", key + ".chat_template")
      .says("the chat template does not show where answers begin and end: {}", why)
      .hint("answers are labelled between what the template puts before and behind them");
  return nullptr;
}

/// Tokenised as transformers' processors do: with special tokens, unless the template has begun with the BOS itself.
std::vector<std::int32_t> PictureChat::ids_of(const ordered_json& messages, const ordered_json& tools) const {
  auto text = chat_->render(messages, tools);
  if (tokens_.begin >= 0) text = with_pictures_apart(text);
  const auto bos = tokenizer_->roles().find("bos_token");
  const bool begun = bos != tokenizer_->roles().end() && !bos->second.empty() && text.starts_with(bos->second);
  return tokenizer_->encode(text, {.special = !begun}).ids;
}

std::string PictureChat::with_pictures_apart(const std::string& text) const {
  const auto& tokenizer = tokenizer_->folder();
  const auto begin = tokenizer.token(tokens_.begin);
  const auto whole =
      fmt::format("\n\n{}{}{}\n\n", begin, tokenizer.token(tokens_.placeholder), tokenizer.token(tokens_.end));
  std::string out;
  for (std::size_t at = 0; !begin.empty();) {
    const auto found = text.find(begin, at);
    out += text.substr(at, found - at);
    if (found == std::string::npos) return out;
    out += whole;
    at = found + begin.size();
  }
  return text;
}

std::optional<AnswerMarks> PictureChat::find_marks() const {
  constexpr const char* kSentinel = "XSENTINELMARKERX";
  if (!tokens_.answer.empty()) {
    const auto stop = tokenizer_->encode(tokens_.stop, {.special = false}).ids;
    auto marker = tokenizer_->encode(tokens_.answer, {.special = false}).ids;
    if (stop.size() == 1 && !marker.empty()) return AnswerMarks{std::move(marker), stop.front()};
  }
  auto messages = ordered_json::array({turn("user", "u")});
  const auto question = ids_of(messages, {}).size();
  messages.push_back(turn("assistant", kSentinel));
  const auto whole = ids_of(messages, {});
  const auto sentinel = tokenizer_->encode(kSentinel, {.special = false}).ids;
  const auto begin = whole.begin() + static_cast<std::ptrdiff_t>(std::min(question, whole.size()));
  const auto found = std::search(begin, whole.end(), sentinel.begin(), sentinel.end());
  const auto behind = found + static_cast<std::ptrdiff_t>(found == whole.end() ? 0 : sentinel.size());
  if (found == begin || behind >= whole.end()) return std::nullopt;
  return AnswerMarks{{begin, found}, *behind};
}

BuiltRow PictureChat::build(const ordered_json& messages, const ordered_json& tools, const RowPictures& pictures,
                            const RowLengths& lengths) const {
  BuiltRow out;
  require_room(messages, tokens_, lengths);
  out.pictures = sources_of(messages, pictures, tokens_.processor);
  const auto text = ids_of(messages, tools);
  const auto placeholders = static_cast<std::size_t>(std::count(text.begin(), text.end(), tokens_.placeholder));
  if (placeholders != out.pictures.size())
    throw RowRefused(fmt::format("the text has {} placeholder{} for {} picture{}", placeholders,
                                 placeholders == 1 ? "" : "s", out.pictures.size(),
                                 out.pictures.size() == 1 ? "" : "s"));
  std::int64_t wanted = 0;
  for (const auto& picture : out.pictures) wanted += tokens_.count(picture.size);
  if (wanted > lengths.limit.value_or(kMostTokens)) throw no_room(lengths.limit.value_or(kMostTokens));
  std::vector<std::int32_t> ids;
  auto picture = out.pictures.begin();
  for (const auto id : text)
    ids.insert(ids.end(), id == tokens_.placeholder ? static_cast<std::size_t>(tokens_.count((picture++)->size)) : 1,
               id);
  if (lengths.limit && std::ssize(ids) > *lengths.limit) {
    const auto end = ids.begin() + *lengths.limit;
    if (std::find(end, ids.end(), tokens_.placeholder) != ids.end()) throw no_room(*lengths.limit);
    ids.erase(end, ids.end());
  }
  const auto answers = marks_.find(ids);
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
