#include "checkpoint/format/tensor_folder.h"

#include <set>
#include <utility>

#include <fmt/format.h>

#include "checkpoint/format/file.h"
#include "checkpoint/format/shard_index.h"

namespace automodel::checkpoint {
namespace {

namespace fs = std::filesystem;

std::string single_name(std::string_view stem) {
  return std::string(stem) + ".safetensors";
}
std::string index_name(std::string_view stem) {
  return std::string(stem) + ".safetensors.index.json";
}

Diagnostic missing(const fs::path& folder, std::string_view stem) {
  const bool pickles = is_there(folder / "pytorch_model.bin") || is_there(folder / "pytorch_model.bin.index.json");
  return Diagnostic{"missing-weights"}
      .says("'{}' has neither {} nor {}", folder.native(), single_name(stem), index_name(stem))
      .hint(pickles ? "its weights are Python pickles, which are never read; save the model again with transformers "
                      "(save_pretrained writes safetensors)"
                    : "several files need their index; give the folder that save_pretrained wrote")
      .at({folder.native(), 0, 0});
}

}  // namespace

bool has_tensors(const fs::path& folder, std::string_view stem) {
  return is_there(folder / single_name(stem)) || is_there(folder / index_name(stem));
}

bool TensorFolder::add_file(const fs::path& path, Diagnostics& problems) {
  auto file = TensorFile::open(path, problems);
  if (!file) return false;
  const auto& kept = *files_.emplace_back(std::make_unique<TensorFile>(std::move(*file)));
  for (const auto& tensor : kept.header().tensors) tensors_.push_back({&kept, &tensor});
  return true;
}

std::optional<TensorFolder> TensorFolder::open(const fs::path& folder, std::string_view stem, Diagnostics& problems) {
  const std::size_t before = problems.size();
  TensorFolder out;
  out.path_ = folder;
  ShardIndex index;
  if (is_there(folder / single_name(stem))) {
    out.add_file(folder / single_name(stem), problems);
  } else if (const auto path = folder / index_name(stem); is_there(path)) {
    const auto text = read_file(path, problems, kLongestHeader);
    auto parsed = text ? parse_shard_index(*text, path.native(), problems) : std::nullopt;
    if (!parsed) return std::nullopt;
    index = std::move(*parsed);
    std::set<std::string> names;
    for (const auto& [tensor, file] : index.files) names.insert(file);
    for (const auto& name : names) out.add_file(folder / name, problems);
  } else {
    problems.push_back(missing(folder, stem));
  }
  if (problems.size() > before) return std::nullopt;

  // If several files have the same tensor, the file named by the index counts.
  for (std::size_t i = 0; i < out.tensors_.size(); ++i) {
    const auto& [file, info] = out.tensors_[i];
    const auto [there, is_new] = out.index_.emplace(info->name, i);
    if (is_new) continue;
    const auto meant = index.files.find(info->name);
    if (meant == index.files.end())
      problems.add("index-duplicate")
          .says("tensor '{}' is in '{}' and in '{}'", printable(info->name, kMostShown),
                out.tensors_[there->second].file->path().native(), file->path().native())
          .hint("the index must say which one is meant")
          .at({folder.native(), 0, 0});
    else if (file->path() == folder / meant->second)
      there->second = i;
  }
  for (const auto& [tensor, name] : index.files) {
    const auto found = out.find(tensor);
    if (!found || found.file->path() != folder / name)
      problems.add("index-missing-tensor")
          .says("'{}' has no tensor '{}', which the index places there", name, printable(tensor, kMostShown))
          .hint("index and files belong to different models; copy or download the folder again")
          .at({(folder / index_name(stem)).native(), 0, 0});
  }
  if (problems.size() > before) return std::nullopt;
  return out;
}

StoredTensor TensorFolder::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? StoredTensor{} : tensors_[found->second];
}

}  // namespace automodel::checkpoint
