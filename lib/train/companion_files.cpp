#include "train/companion_files.h"

#include <array>
#include <filesystem>
#include <string>

#include "base/find_file.h"
#include "checkpoint/format/companion_names.h"
#include "data/tokenizer.h"
#include "plan/vision_choice.h"
#include "tokenizer/named_templates.h"

namespace automodel::train {
namespace {

namespace fs = std::filesystem;

using checkpoint::kTemplateFiles;
using checkpoint::kTokenizerFiles;

/// The folder of a run's tokenizer; empty if it has no files.
fs::path tokenizer_folder(const data::TextChoice& text, const Setup& setup) {
  if (!text.tokenizer) return setup.plan.model->folder;
  const auto path = data::tokenizer_path(*text.tokenizer, fs::path(setup.loaded.path).parent_path(), text.revision);
  std::error_code error;
  return fs::is_regular_file(path, error) ? path.parent_path() : path;
}

template <class Names>
void copy_all(checkpoint::SaveRequest& request, const fs::path& folder, const Names& names) {
  std::error_code error;
  for (const char* name : names)
    if (!folder.empty() && fs::is_regular_file(folder / name, error))
      request.copies.emplace_back(std::string("model/") + name, folder / name);
}

}  // namespace

void add_companions(checkpoint::SaveRequest& request, const Setup& setup) {
  const auto text = data::text_choice(*setup.recipe().dataset());
  const auto folder = tokenizer_folder(text, setup);
  copy_all(request, folder, kTokenizerFiles);
  // A template in a separate file takes precedence over one in tokenizer_config.json, in transformers as well as here.
  if (!text.chat_template)
    copy_all(request, folder, kTemplateFiles);
  else if (const auto* named = tokenizer::find_named_template(*text.chat_template); named != nullptr)
    request.texts.emplace_back("model/chat_template.jinja", std::string(named->text));
  else if (const auto file = find_beside(*text.chat_template, setup.loaded.folder()); !file)
    request.texts.emplace_back("model/chat_template.jinja", *text.chat_template);
  else
    request.copies.emplace_back(file->extension() == ".json" ? "model/chat_template.json" : "model/chat_template.jinja",
                                *file);
  copy_all(request, setup.plan.model->folder, std::array{checkpoint::kGenerationFile});
  if (setup.plan.model->spec.vision)
    copy_all(request, plan::processor_folder(setup.loaded, *setup.plan.model), pictures::kProcessorFiles);
}

}  // namespace automodel::train
