#include "data/row_tokenizer.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/find_file.h"
#include "base/hub.h"
#include "rows/load.h"

namespace automodel::data {
namespace {

namespace fs = std::filesystem;

/// The folder (or tokenizer.json) that a section refers to; empty after adding a problem.
fs::path tokenizer_place(const config::TokenizerSource& source, const DatasetContext& context, const std::string& key,
                         Diagnostics& problems) {
  if (!source.path) {
    if (!context.model_folder.empty()) return context.model_folder;
    problems.add("missing-key", key)
        .says("the model has no folder to take the tokenizer from")
        .hint("name a folder with tokenizer.json, or a model in the Hugging Face cache");
    return {};
  }
  if (const auto local = find_beside(*source.path, context.recipe_folder)) return *local;
  if (const auto snapshot = find_snapshot(HubKind::kModel, *source.path, source.revision); !snapshot.empty())
    return snapshot;
  problems.add("missing-file", key)
      .says("there is no tokenizer '{}' here", *source.path)
      .hint(
          "looked for a folder beside the recipe and in the working directory, and for revision "
          "{} in the hub cache {}; nothing is downloaded{}",
          source.revision.value_or("main"), hub_cache().native(), download_advice(*source.path, source.revision));
  return {};
}

}  // namespace

std::shared_ptr<const RowTokenizer> RowTokenizer::open(const config::TokenizerSource& source,
                                                       const DatasetContext& context, Diagnostics& problems) {
  const std::string key = context.key + ".tokenizer";
  const fs::path place = tokenizer_place(source, context, key, problems);
  if (place.empty()) return nullptr;
  const std::size_t before = problems.size();
  auto own = tokenizer::Tokenizer::load(place, problems);
  for (std::size_t i = before; i < problems.size(); ++i) problems[i].key = key;
  if (!own) return nullptr;
  return std::shared_ptr<const RowTokenizer>(new RowTokenizer(std::move(own), source));
}

RowTokenizer::RowTokenizer(std::unique_ptr<const tokenizer::Tokenizer> own, const config::TokenizerSource& source)
    : own_(std::move(own)),
      encoder_(std::make_unique<tokenizer::Encoder>(*own_)),
      roles_(own_->roles()),
      bos_(own_->role_id("bos_token")),
      eos_(own_->role_id("eos_token")),
      plain_(source.plain),
      add_bos_(source.add_bos_token && bos_),
      add_eos_(source.add_eos_token && eos_) {
  auto pad = own_->role_id("pad_token");
  if (!pad && !plain_) {
    pad = 0;
    roles_["pad_token"] = own_->token(0);
  }
  own_pad_ = pad.value_or(0);
  if (!pad && eos_) {
    pad = eos_;
    roles_["pad_token"] = roles_["eos_token"];
  }
  pad_ = pad.value_or(0);
  const auto side = [&](const std::optional<std::string>& given, const char* name, const std::string& otherwise) {
    if (given) return *given;
    const std::string own_side = own_->setting(name);
    return own_side.empty() ? otherwise : own_side;
  };
  pads_left_ = side(source.padding_side, "padding_side", own_->as_llama() ? "left" : "right") == "left";
  cuts_left_ = side(source.truncation_side, "truncation_side", "right") == "left";
}

bool RowTokenizer::is_special(std::int32_t id) const {
  return std::any_of(roles_.begin(), roles_.end(), [&](const auto& role) { return own_->find(role.second) == id; });
}

std::string RowTokenizer::fingerprint() const {
  return fmt::format("{} {} {} {} {} {} {} {}", own_->fingerprint(), plain_, add_bos_, add_eos_, pads_left_, cuts_left_,
                     pad_, own_pad_);
}

std::int64_t RowTokenizer::count(std::string_view text) const {
  return static_cast<std::int64_t>(encode(text, {.special = false}).ids.size());
}

void RowTokenizer::cut(Encoding& text, std::size_t keep) const {
  if (text.ids.size() <= keep) return;
  const auto drop = static_cast<std::ptrdiff_t>(text.ids.size() - keep);
  const auto shorten = [&](auto& list) {
    if (list.empty()) return;
    if (cuts_left_)
      list.erase(list.begin(), list.begin() + drop);
    else
      list.resize(keep);
  };
  shorten(text.ids);
  shorten(text.spans);
}

void RowTokenizer::fill_up(Encoding& out, std::size_t size, bool right) const {
  if (out.ids.size() >= size) return;
  const std::size_t more = size - out.ids.size();
  const auto put = [&](auto& list, auto value) { list.insert(right ? list.end() : list.begin(), more, value); };
  put(out.ids, pad_);
  put(out.real, false);
  if (!out.spans.empty()) put(out.spans, tokenizer::TextSpan{});
}

Encoding RowTokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  Encoding out;
  {
    const std::lock_guard lock(mutex_);
    encoder_->encode(text, false, out.ids);
    if (options.second) encoder_->encode(*options.second, false, out.ids);
  }
  if (options.spans) out.spans = tokenizer::token_spans(*own_, text, out.ids);
  std::vector<std::int32_t> before, after;
  if (options.special && (add_bos_ || add_eos_)) {
    if (add_bos_) before = {*bos_};
    if (add_eos_) after = {*eos_};
  } else if (options.special) {
    before = own_->surround().before;
    after = own_->surround().after;
  }
  const auto around = static_cast<std::int64_t>(before.size() + after.size());
  if (options.limit) cut(out, static_cast<std::size_t>(std::max<std::int64_t>(*options.limit - around, 0)));
  out.ids.insert(out.ids.begin(), before.begin(), before.end());
  out.ids.insert(out.ids.end(), after.begin(), after.end());
  if (options.spans) {
    out.spans.insert(out.spans.begin(), before.size(), {});
    out.spans.resize(out.ids.size());
  }
  out.real.assign(out.ids.size(), true);
  if (options.full) fill_up(out, static_cast<std::size_t>(*options.full), options.pad_right || !pads_left_);
  if (!options.special || plain_) return out;
  // NeMo AutoModel's wrapper checks again after truncation and padding.
  if (add_bos_ && (out.ids.empty() || out.ids.front() != *bos_)) {
    out.ids.insert(out.ids.begin(), *bos_);
    out.real.insert(out.real.begin(), true);
    if (options.spans) out.spans.insert(out.spans.begin(), tokenizer::TextSpan{});
  }
  if (add_eos_ && (out.ids.empty() || out.ids.back() != *eos_)) {
    out.ids.push_back(*eos_);
    out.real.push_back(true);
    if (options.spans) out.spans.emplace_back();
  }
  return out;
}

}  // namespace automodel::data
