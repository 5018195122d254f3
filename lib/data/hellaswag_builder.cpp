// Sentences with their correct endings.
#include <charconv>
#include <utility>

#include <fmt/format.h>

#include "data/builder.h"

namespace automodel::data {
namespace {

/// Rows that NeMo AutoModel tokenizes in one batch; whether special tokens are cut is decided by the batch's first row.
constexpr std::int64_t kTogether = 1000;
constexpr std::int64_t kMultiple = 8;

class HellaSwagBuilder final : public RowBuilder {
 public:
  HellaSwagBuilder(BuilderParts& parts, bool common_length) : RowBuilder(parts), common_length_(common_length) {}
  std::int32_t fill() const override { return tokenizer().own_pad(); }
  std::int64_t common_multiple() const override { return common_length_ ? kMultiple : 0; }

  std::optional<BuiltRow> build(std::int64_t index) override {
    if (index / kTogether != batch_) {
      batch_ = index / kTogether;
      const auto [context, ending] = encode(batch_ * kTogether);
      cut_context_ = !context.empty() && tokenizer().is_special(context.back());
      cut_ending_ = !ending.empty() && tokenizer().is_special(ending.front());
    }
    auto [context, ending] = encode(index);
    if (cut_context_ && !context.empty()) context.pop_back();
    if (cut_ending_ && !ending.empty()) ending.erase(ending.begin());
    BuiltRow out;
    // Without a context the labels are the unshifted ids, as in NeMo AutoModel.
    out.labels.assign(context.empty() ? 0 : context.size() - 1, kIgnoredLabel);
    out.labels.insert(out.labels.end(), ending.begin(), ending.end());
    out.labels.push_back(kIgnoredLabel);
    out.input_ids = std::move(context);
    out.input_ids.insert(out.input_ids.end(), ending.begin(), ending.end());
    out.labels.resize(out.input_ids.size());
    out.attended = static_cast<std::int64_t>(out.input_ids.size());
    return out;
  }

 private:
  using Ids = std::vector<std::int32_t>;

  std::pair<Ids, Ids> encode(std::int64_t index) const {
    const auto row = read(index);
    const auto endings = row.find("endings");
    if (endings == row.end() || !endings->is_array()) throw RowRefused("column 'endings' is not a list");
    const std::size_t label = label_of(row);
    if (label >= endings->size() || !(*endings)[label].is_string())
      throw RowRefused(fmt::format("label {} has no ending", label));
    return {tokenizer().encode(text_cell(row, "ctx"), {}).ids,
            tokenizer().encode((*endings)[label].get_ref<const std::string&>(), {}).ids};
  }

  static std::size_t label_of(const nlohmann::ordered_json& row) {
    const auto found = row.find("label");
    std::size_t out = 0;
    if (found != row.end() && found->is_number_unsigned()) return found->get<std::size_t>();
    if (found != row.end() && found->is_string()) {
      const auto& text = found->get_ref<const std::string&>();
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
      if (error == std::errc() && end == text.data() + text.size()) return out;
    }
    throw RowRefused("column 'label' is not a number; splits without labels cannot be trained with");
  }

  bool common_length_;
  std::int64_t batch_ = -1;
  bool cut_context_ = false, cut_ending_ = false;
};

}  // namespace

std::unique_ptr<Builder> make_hellaswag_builder(const config::HellaSwagDatasetConfig& config, BuilderParts& parts,
                                                Diagnostics& problems) {
  std::string split = config.split().value_or("train");
  if (const auto* limit = config.num_samples_limit().integer()) split += fmt::format("[:{}]", *limit);
  if (!load_repository(parts, config.path_or_dataset(), "path_or_dataset", split, {}, {}, problems)) return nullptr;
  return std::make_unique<HellaSwagBuilder>(parts, config.pad_to_max_length());
}

}  // namespace automodel::data
