#include "checkpoint/dcp/dcp_folder.h"

#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/utf8.h"
#include "checkpoint/format/safetensors.h"

namespace automodel::checkpoint {
namespace {

using Kind = Pickle::Kind;
using Node = Pickle::Node;

std::string shown(std::string_view name) {
  return printable(name, kMostShown);
}

// A pickle can name one value any number of times for two bytes each, so that what is made of it is counted here.
constexpr std::size_t kLongestName = 4096;    // bytes; transformers' longest have about 100
constexpr std::size_t kMoreChunks = 100'000;  // parts without a record, which hold no elements

std::string_view name_in(const Pickle& pickle, const Node* node) {
  if (node == nullptr || node->kind != Kind::kText) fail_dcp_file(pickle.where(), "an entry without a name");
  if (node->text.size() > kLongestName)
    fail_dcp_file(pickle.where(), fmt::format("a name of more than {} bytes", kLongestName));
  return node->text;
}

bool is(const Node* node, PickleClass wanted) {
  return node != nullptr && node->kind == Kind::kObject && node->is == wanted;
}

std::uint64_t whole(const Pickle& pickle, const Node& info, const char* member) {
  const auto* value = pickle.member(info, member);
  if (value == nullptr || value->kind != Kind::kInt || value->number < 0)
    fail_dcp_file(pickle.where(), fmt::format("a part without {}", member));
  return static_cast<std::uint64_t>(value->number);
}

/// torch.Size in a member; none where it is absent or None.
std::optional<std::vector<std::int64_t>> sizes(const Pickle& pickle, const Node& object, const char* member) {
  const auto* value = pickle.member(object, member);
  return value == nullptr ? std::nullopt : whole_numbers(pickle, *value);
}

}  // namespace

DcpFolder::DcpFolder(const std::filesystem::path& folder) : path_(folder) {
  Diagnostics problems;
  auto text = read_file(folder / kDcpMetadata, problems, kLongestPickle);
  if (!text) throw Error(ExitCode::kCheckpoint, std::move(problems));
  const Pickle pickle(std::move(*text), (folder / kDcpMetadata).native());
  const auto& root = pickle.root();
  if (!is(&root, PickleClass::kMetadata))
    fail_dcp_file(pickle.where(), "it does not hold the metadata of a checkpoint");
  read_storage(pickle, root);
  read_entries(pickle, root);
  // Nobody needs most of the values, but a class that is none of the format's is refused wherever it stands.
  for (const auto& [name, part] : values_) Archive{part};
}

const InputFile& DcpFolder::file(const Pickle& pickle, std::string_view name) {
  if (const auto found = files_.find(name); found != files_.end()) return *found->second;
  if (name.empty() || name.find_first_of(std::string_view("/\\\0", 3)) != std::string_view::npos ||
      name.starts_with('.'))
    fail_dcp_file(pickle.where(), fmt::format("'{}' is not the name of a file beside it", shown(name)));
  Diagnostics problems;
  auto opened = InputFile::open(path_ / name, problems);
  if (!opened) throw Error(ExitCode::kCheckpoint, std::move(problems));
  return *files_.emplace(std::string(name), std::make_unique<InputFile>(std::move(*opened))).first->second;
}

void DcpFolder::read_storage(const Pickle& pickle, const Node& root) {
  const auto* storage = pickle.member(root, "storage_data");
  if (storage == nullptr || storage->kind != Kind::kDict) fail_dcp_file(pickle.where(), "it has no storage_data");
  std::map<const InputFile*, std::uint64_t> used;
  std::set<std::string, std::less<>> ranks;
  for (std::size_t i = 0; i + 1 < storage->items.size(); i += 2) {
    const auto& index = pickle.at(storage->items[i]);
    const auto& info = pickle.at(storage->items[i + 1]);
    const auto name = name_in(pickle, is(&index, PickleClass::kIndex) ? pickle.member(index, "fqn") : nullptr);
    const auto* place = is(&info, PickleClass::kStorageInfo) ? pickle.member(info, "relative_path") : nullptr;
    if (place == nullptr || place->kind != Kind::kText) fail_dcp_file(pickle.where(), "a part without a file");
    if (const auto* changed = pickle.member(info, "transform_descriptors");
        changed != nullptr && changed->kind != Kind::kNone && !changed->items.empty())
      fail_dcp_file(pickle.where(), fmt::format("'{}' is compressed or otherwise transformed", shown(name)));
    const auto& in = file(pickle, place->text);
    const FilePart part{&in, whole(pickle, info, "offset"), whole(pickle, info, "length")};
    if (part.begin > in.size() || part.size > in.size() - part.begin)
      fail_dcp_file(in.path().native(), fmt::format("it ends at {}, before a part of '{}' at {} of {} bytes", in.size(),
                                                    shown(name), part.begin, part.size));
    // Parts that share bytes would let a small file ask for a large checkpoint.
    if ((used[&in] += part.size) > in.size())
      fail_dcp_file(in.path().native(), "its parts are together longer than it");
    auto at = parts_.find(name);
    if (at == parts_.end()) at = parts_.try_emplace(std::string(name)).first;
    if (!at->second.emplace(sizes(pickle, index, "offset").value_or(std::vector<std::int64_t>{}), part).second)
      fail_dcp_file(pickle.where(), fmt::format("two records of the same part of '{}'", shown(name)));
    ++most_chunks_;
    // __RANK_NUMBER.distcp
    ranks.insert(std::string(place->text.substr(0, place->text.rfind('_'))));
  }
  most_chunks_ += kMoreChunks;
  if (!ranks.empty()) ranks_ = static_cast<int>(ranks.size());
}

void DcpFolder::read_entries(const Pickle& pickle, const Node& root) {
  const auto* entries = pickle.member(root, "state_dict_metadata");
  if (entries == nullptr || entries->kind != Kind::kDict)
    fail_dcp_file(pickle.where(), "it has no state_dict_metadata");
  for (std::size_t i = 0; i + 1 < entries->items.size(); i += 2) {
    const auto& key = pickle.at(entries->items[i]);
    const auto& entry = pickle.at(entries->items[i + 1]);
    const std::string name(name_in(pickle, &key));
    if (tensors_.contains(name) || values_.contains(name))
      fail_dcp_file(pickle.where(), fmt::format("two entries of '{}'", shown(name)));
    const auto parts = parts_.find(name);
    const auto part_of = [&](const std::vector<std::int64_t>& offsets) {
      const auto none = parts == parts_.end();
      const auto part = none ? decltype(parts->second.end()){} : parts->second.find(offsets);
      if (none || part == parts->second.end())
        throw Error(ExitCode::kCheckpoint, Diagnostic{"checkpoint-damaged"}
                                               .says("'{}': no file has the part of '{}' at [{}]", pickle.where(),
                                                     shown(name), fmt::join(offsets, ", "))
                                               .hint("copy the whole folder again")
                                               .at({pickle.where(), 0, 0}));
      return part->second;
    };
    if (is(&entry, PickleClass::kBytesEntry)) {
      values_[name] = part_of({});
      continue;
    }
    ChunkedTensor tensor{.name = name};
    const auto* properties = is(&entry, PickleClass::kTensorEntry) ? pickle.member(entry, "properties") : nullptr;
    const auto shape = properties != nullptr ? sizes(pickle, entry, "size") : std::nullopt;
    const auto* chunks = shape ? pickle.member(entry, "chunks") : nullptr;
    if (!is(properties, PickleClass::kProperties) || properties->state == Pickle::kAbsent || chunks == nullptr ||
        chunks->kind != Kind::kList)
      fail_dcp_file(pickle.where(), fmt::format("'{}' is not described as a tensor", shown(name)));
    const auto& state = pickle.at(properties->state);  // (dtype, layout, ...)
    const auto* type = state.kind == Kind::kTuple && !state.items.empty() ? &pickle.at(state.items[0]) : nullptr;
    if (type == nullptr || type->kind != Kind::kClass || type->is != PickleClass::kElements)
      fail_dcp_file(pickle.where(), fmt::format("'{}' has no dtype", shown(name)));
    tensor.type = type->type;
    tensor.shape = *shape;
    if (chunks->items.size() > most_chunks_)
      fail_dcp_file(pickle.where(), "its tensors have more parts than there are records");
    most_chunks_ -= chunks->items.size();
    for (const auto item : chunks->items) {
      const auto& chunk = pickle.at(item);
      const auto offsets = is(&chunk, PickleClass::kChunk) ? sizes(pickle, chunk, "offsets") : std::nullopt;
      const auto extent = offsets ? sizes(pickle, chunk, "sizes") : std::nullopt;
      if (!extent) fail_dcp_file(pickle.where(), fmt::format("a part of '{}' has no place", shown(name)));
      tensor.chunks.push_back({.offsets = *offsets, .sizes = *extent, .archived = true});
    }
    check_cover(tensor, pickle.where());
    for (auto& chunk : tensor.chunks) {
      const auto bytes = tensor_bytes(tensor.type, chunk.sizes).value_or(0);
      if (bytes == 0) continue;  // nothing is stored
      chunk.part = part_of(chunk.offsets);
      if (bytes > chunk.part.size)
        throw Error(ExitCode::kCheckpoint,
                    Diagnostic{"checkpoint-damaged"}
                        .says("'{}': the part of '{}' at [{}] has {} bytes, its record only {}", pickle.where(),
                              shown(name), fmt::join(chunk.offsets, ", "), bytes, chunk.part.size)
                        .hint("copy the whole folder again")
                        .at({pickle.where(), 0, 0}));
    }
    tensors_[name] = std::move(tensor);
  }
}

const ChunkedTensor* DcpFolder::tensor(const std::string& name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

std::optional<double> DcpFolder::number(const std::string& name) const {
  if (const auto found = values_.find(name); found != values_.end()) return Archive(found->second).number();
  const auto* tensor = this->tensor(name);
  // A tensor without elements has no record.
  if (tensor == nullptr || tensor->chunks.size() != 1 || tensor->chunks[0].part.file == nullptr) return std::nullopt;
  return Archive(tensor->chunks[0].part).number();
}

}  // namespace automodel::checkpoint
