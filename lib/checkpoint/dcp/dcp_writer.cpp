#include "checkpoint/dcp/dcp_writer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "checkpoint/dcp/dcp_folder.h"
#include "checkpoint/dcp/pickle.h"
#include "checkpoint/dcp/pickled.h"
#include "checkpoint/format/safetensors.h"

namespace automodel::checkpoint {
namespace {

constexpr const char* kPartsName = "__0_0.distcp";

/// The CRC-32 of zip files (polynomial 0xEDB88320, reflected), byte by byte.
class Crc32 {
 public:
  void add(std::string_view bytes) {
    for (const char byte : bytes) state_ = state_ >> 8U ^ kTable[(state_ ^ static_cast<unsigned char>(byte)) & 0xFFU];
  }
  std::uint32_t value() const { return ~state_; }

 private:
  static constexpr std::array<std::uint32_t, 256> kTable = [] {
    std::array<std::uint32_t, 256> out{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = value >> 1U ^ ((value & 1U) != 0 ? 0xEDB88320U : 0U);
      out[i] = value;
    }
    return out;
  }();
  std::uint32_t state_ = 0xFFFFFFFFU;
};

/// A member of a zip file, stored as it is.
struct Member {
  std::string name = {};
  std::uint64_t size = 0;
  std::uint32_t crc = 0;
  std::uint64_t at = 0;  ///< of its header, in the archive

  /// What both of its headers have from the version to the length of the extra field.
  std::string fields() const {
    return little_endian(20, 2) + little_endian(0, 4) + little_endian(0, 2) + little_endian(0x21, 2) +
           little_endian(crc, 4) + little_endian(size, 4) + little_endian(size, 4) + little_endian(name.size(), 2) +
           little_endian(0, 2);
  }
  std::string header() const { return "PK\3\4" + fields() + name; }
  std::string entry() const {
    return "PK\1\2" + little_endian(20, 2) + fields() + little_endian(0, 2) + little_endian(0, 2) +
           little_endian(0, 2) + little_endian(0, 4) + little_endian(at, 4) + name;
  }
};

Member member_of(const std::string& name, std::string_view data, std::uint64_t at) {
  Crc32 crc;
  crc.add(data);
  return {"archive/" + name, data.size(), crc.value(), at};
}

/// The class of the format that has this type: torch.float32, torch.FloatStorage.
std::string class_of(PickleClass kind, ElementType type) {
  const auto name = torch_name(kind, type);
  AUTOMODEL_CHECK(!name.empty(), "a tensor of a type that PyTorch's checkpoints do not have");
  return pickled::global("torch", name);
}

std::string meta(std::string_view name) {
  return pickled::global("torch.distributed.checkpoint.metadata", name);
}

std::string properties(ElementType type) {
  using namespace pickled;
  const auto layout = call(global("torch.serialization", "_get_layout"), {text("torch.strided")});
  const auto contiguous = call(meta("_MEM_FORMAT_ENCODING"), {integer(0)});
  // Since 2.13 strides may follow; all versions read five.
  return object(meta("TensorProperties"),
                tuple({class_of(PickleClass::kElements, type), layout, boolean(false), contiguous, boolean(false)}));
}

}  // namespace

ArchiveFile::Place ArchiveFile::add(const std::string& pickle, std::uint64_t stored,
                                    const std::function<void(const Sink&)>& give) {
  const Place place{end_, 0};
  const auto data = pickled::document(pickle);
  constexpr std::string_view kOrder = "little", kVersion = "3\n";
  auto value = member_of("data.pkl", data, 0);
  auto order = member_of("byteorder", kOrder, value.header().size() + data.size());
  auto version = member_of("version", kVersion, order.at + order.header().size() + kOrder.size());
  const auto head =
      value.header() + data + order.header() + std::string(kOrder) + version.header() + std::string(kVersion);
  std::vector<Member> members = {value, order, version};
  auto at = head.size();
  file_.write(end_, head);
  if (give) {
    Member storage{.name = "archive/data/0", .size = stored, .at = at};
    const auto begin = end_ + at + storage.header().size();
    auto next = begin;
    Crc32 crc;
    give([&](std::string_view bytes) {
      crc.add(bytes);
      file_.write(next, bytes);
      next += bytes.size();
    });
    AUTOMODEL_CHECK(next - begin == stored, "a tensor has other bytes than its shape");
    storage.crc = crc.value();
    file_.write(end_ + at, storage.header());
    at = next - end_;
    members.push_back(storage);
  }
  std::string directory;
  for (const auto& member : members) directory += member.entry();
  const auto count = little_endian(members.size(), 2);
  file_.write(end_ + at, directory + "PK\5\6" + little_endian(0, 4) + count + count +
                             little_endian(directory.size(), 4) + little_endian(at, 4) + little_endian(0, 2));
  end_ += at + directory.size() + 22;
  return {place.begin, end_ - place.begin};
}

ArchiveFile::Place ArchiveFile::add_value(const std::string& pickle) {
  return add(pickle, 0, {});
}

ArchiveFile::Place ArchiveFile::add_tensor(ElementType type, const std::vector<std::int64_t>& shape,
                                           const std::function<void(const Sink&)>& give) {
  using namespace pickled;
  std::vector<std::string> sizes(shape.size()), strides(shape.size());
  std::int64_t elements = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    sizes[i] = integer(shape[i]);
    strides[i] = integer(elements);
    elements *= shape[i];
  }
  const auto storage = stored_elsewhere(
      tuple({text("storage"), class_of(PickleClass::kStorage, type), text("0"), text("cpu"), integer(elements)}));
  const auto tensor = call(global("torch._utils", "_rebuild_tensor_v2"),
                           {storage, integer(0), tuple(sizes), tuple(strides), boolean(false),
                            call(global("collections", "OrderedDict"), {})});
  return add(tensor, tensor_bytes(type, shape).value(), give);
}

DcpWriter::DcpWriter(std::filesystem::path folder, std::uint64_t largest_part)
    : folder_(std::move(folder)), largest_part_(largest_part), parts_(folder_ / kPartsName) {}

void DcpWriter::note_part(const std::string& name, const std::string& offset, const std::string& index,
                          const ArchiveFile::Place& place) {
  using namespace pickled;
  storage_.push_back(
      object(meta("MetadataIndex"), dict({text("fqn"), text(name), text("offset"), offset, text("index"), index})));
  storage_.push_back(object(
      global("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
      dict({text("relative_path"), text(kPartsName), text("offset"), integer(static_cast<std::int64_t>(place.begin)),
            text("length"), integer(static_cast<std::int64_t>(place.size)), text("transform_descriptors"), none()})));
}

void DcpWriter::add_value(const std::string& name, const std::vector<std::string>& path, const std::string& pickle) {
  using namespace pickled;
  note_part(name, none(), none(), parts_.add_value(pickle));
  entries_.push_back(text(name));
  entries_.push_back(object(meta("BytesStorageMetadata"), dict({})));
  paths_.push_back(text(name));
  paths_.push_back(tuple(path));
}

void DcpWriter::add_tensor(const std::string& name, const std::vector<std::string>& path, ElementType type,
                           const std::vector<std::int64_t>& shape, const RowSource& rows) {
  using namespace pickled;
  const std::int64_t count = shape.empty() ? 1 : shape[0];
  const auto row_bytes =
      tensor_bytes(type, shape).value() / static_cast<std::uint64_t>(std::max<std::int64_t>(1, count));
  const auto at_once =
      static_cast<std::int64_t>(std::max<std::uint64_t>(1, largest_part_ / std::max<std::uint64_t>(1, row_bytes)));
  std::vector<std::string> chunks;
  for (std::int64_t first = 0; first < count || chunks.empty(); first += at_once) {
    auto part = shape;
    std::vector<std::int64_t> offsets(shape.size());
    if (!shape.empty()) {
      offsets[0] = first;
      part[0] = std::min(at_once, count - first);
    }
    const auto place =
        parts_.add_tensor(type, part, [&](const Sink& sink) { rows(first, shape.empty() ? 1 : part[0], sink); });
    note_part(name, size(offsets), integer(static_cast<std::int64_t>(chunks.size())), place);
    chunks.push_back(
        object(meta("ChunkStorageMetadata"), dict({text("offsets"), size(offsets), text("sizes"), size(part)})));
  }
  entries_.push_back(text(name));
  entries_.push_back(object(meta("TensorStorageMetadata"), dict({text("properties"), properties(type), text("size"),
                                                                 size(shape), text("chunks"), list(chunks)})));
  paths_.push_back(text(name));
  paths_.push_back(tuple(path));
}

std::uint64_t DcpWriter::finish() {
  using namespace pickled;
  parts_.sync();
  const auto metadata =
      document(object(meta("Metadata"), dict({text("state_dict_metadata"), dict(entries_), text("planner_data"),
                                              dict(paths_), text("storage_data"), dict(storage_), text("storage_meta"),
                                              none(), text("version"), text("1.0.0")})));
  write_file(folder_ / kDcpMetadata, metadata);
  return parts_.size() + metadata.size();
}

}  // namespace automodel::checkpoint
