#include "checkpoint/dcp/archive.h"

#include <array>
#include <cstring>

#include <fmt/format.h>

#include "base/utf8.h"
#include "checkpoint/format/elements.h"
#include "checkpoint/format/safetensors.h"

namespace automodel::checkpoint {
namespace {

constexpr std::uint64_t kEndSize = 22, kWideEndSize = 56, kLocatorSize = 20, kEntrySize = 46, kLocalSize = 30;
constexpr std::uint64_t kMostDirectory = std::uint64_t{1} << 20U;
constexpr std::size_t kMostDimensions = 16;
constexpr std::uint32_t kNarrow = 0xFFFFFFFF;  // a 32-bit field whose value is in the zip64 field

std::uint64_t whole(std::string_view bytes, std::size_t at, std::size_t size) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < size; ++i) value |= std::uint64_t{static_cast<unsigned char>(bytes[at + i])} << (8 * i);
  return value;
}

std::string text_of(const FilePart& part, std::uint64_t begin, std::uint64_t size) {
  std::string out(static_cast<std::size_t>(size), '\0');
  part.file->read(part.begin + begin, out.data(), size);
  return out;
}

}  // namespace

std::optional<std::vector<std::int64_t>> whole_numbers(const Pickle& pickle, const Pickle::Node& node) {
  const auto* tuple = &node;
  if (node.kind == Pickle::Kind::kObject && node.is == PickleClass::kSize) {
    // torch.Size((2, 3)): the only argument is a tuple.
    const auto& arguments = pickle.at(node.items[0]);
    if (arguments.kind != Pickle::Kind::kTuple || arguments.items.size() != 1) return std::nullopt;
    tuple = &pickle.at(arguments.items[0]);
  }
  if (tuple->kind != Pickle::Kind::kTuple || tuple->items.size() > kMostDimensions) return std::nullopt;
  std::vector<std::int64_t> out;
  for (const auto index : tuple->items) {
    const auto& item = pickle.at(index);
    if (item.kind != Pickle::Kind::kInt || item.number < 0) return std::nullopt;
    out.push_back(item.number);
  }
  return out;
}

Archive::Archive(const FilePart& part)
    : part_(part), where_(fmt::format("{}: archive at offset {}", part.file->path().native(), part.begin)) {
  if (part.begin > part.file->size() || part.size > part.file->size() - part.begin)
    fail_dcp_file(where_, fmt::format("the file ends at {}", part.file->size()));
  read_members();
  const auto* data = find("data.pkl");
  if (data == nullptr) fail_dcp_file(where_, "it has no data.pkl");
  if (const auto* order = find("byteorder"); order != nullptr)
    if (order->bytes.size != 6 || text_of(order->bytes, 0, 6) != "little")
      fail_dcp_file(where_, "its numbers are not little-endian");
  if (data->bytes.size > kLongestPickle) fail_dcp_file(where_, "its data.pkl is too long");
  value_.emplace(text_of(data->bytes, 0, data->bytes.size), where_);
}

void Archive::read_members() {
  const auto no_zip = [&](const char* why) { fail_dcp_file(where_, fmt::format("no whole zip archive, {}", why)); };
  if (part_.size < kEndSize) no_zip("it is too short");
  const auto end_at = part_.size - kEndSize;
  const auto end = text_of(part_, end_at, kEndSize);
  if (!end.starts_with("PK\5\6")) no_zip("its end is missing");
  std::uint64_t count = whole(end, 10, 2), size = whole(end, 12, 4), begin = whole(end, 16, 4);
  if (begin == kNarrow || size == kNarrow || count == 0xFFFF) {
    if (end_at < kLocatorSize + kWideEndSize) no_zip("its directory is missing");
    const auto locator = text_of(part_, end_at - kLocatorSize, kLocatorSize);
    if (!locator.starts_with("PK\6\7")) no_zip("its directory is missing");
    const auto wide_at = whole(locator, 8, 8);
    if (wide_at > end_at - kWideEndSize) no_zip("its directory is elsewhere");
    const auto wide = text_of(part_, wide_at, kWideEndSize);
    if (!wide.starts_with("PK\6\6")) no_zip("its directory is elsewhere");
    count = whole(wide, 32, 8);
    size = whole(wide, 40, 8);
    begin = whole(wide, 48, 8);
  }
  if (size > kMostDirectory || begin > end_at || size > end_at - begin) no_zip("its directory is elsewhere");
  if (count > size / kEntrySize) no_zip("its directory is too short");
  const auto directory = text_of(part_, begin, size);
  std::uint64_t at = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    if (size - at < kEntrySize || directory.compare(at, 4, "PK\1\2") != 0) no_zip("its directory is damaged");
    const auto name_size = whole(directory, at + 28, 2), extra = whole(directory, at + 30, 2);
    const auto next = at + kEntrySize + name_size + extra + whole(directory, at + 32, 2);
    if (next > size) no_zip("its directory is damaged");
    Member member{.name = directory.substr(at + kEntrySize, name_size)};
    if (whole(directory, at + 10, 2) != 0 || (whole(directory, at + 8, 2) & 1U) != 0)
      fail_dcp_file(where_, fmt::format("'{}' is compressed or encrypted", printable(member.name, kMostShown)));
    std::uint64_t packed = whole(directory, at + 20, 4), plain = whole(directory, at + 24, 4),
                  local = whole(directory, at + 42, 4);
    // The zip64 field has those of the three that did not fit, in this order.
    for (auto field = at + kEntrySize + name_size; field + 4 <= at + kEntrySize + name_size + extra;) {
      const auto length = whole(directory, field + 2, 2), stop = field + 4 + length;
      if (stop > at + kEntrySize + name_size + extra) break;
      if (whole(directory, field, 2) == 1) {
        auto from = field + 4;
        for (auto* value : {&plain, &packed, &local})
          if (*value == kNarrow && from + 8 <= stop) {
            *value = whole(directory, from, 8);
            from += 8;
          }
      }
      field = stop;
    }
    if (packed != plain) fail_dcp_file(where_, fmt::format("'{}' has two sizes", printable(member.name, kMostShown)));
    if (local > begin || begin - local < kLocalSize) no_zip("a member is elsewhere");
    const auto head = text_of(part_, local, kLocalSize);
    if (!head.starts_with("PK\3\4")) no_zip("a member is elsewhere");
    const auto data = local + kLocalSize + whole(head, 26, 2) + whole(head, 28, 2);
    if (data > begin || plain > begin - data)
      fail_dcp_file(where_, fmt::format("'{}' leaves the archive", printable(member.name, kMostShown)));
    member.bytes = {part_.file, part_.begin + data, plain};
    members_.push_back(std::move(member));
    at = next;
  }
  if (members_.empty()) no_zip("it is empty");
  root_ = members_[0].name.substr(0, members_[0].name.find('/') + 1);
}

const Archive::Member* Archive::find(std::string_view name) const {
  for (const auto& member : members_)
    if (member.name.size() == root_.size() + name.size() && member.name.starts_with(root_) &&
        member.name.ends_with(name))
      return &member;
  return nullptr;
}

FilePart Archive::storage(const Pickle::Node& storage, ElementType type) const {
  const auto size = static_cast<std::uint64_t>(bits_of(type)) / 8;
  // ('storage', torch.FloatStorage, '0', 'cpu', elements)
  const auto& id = value_->at(storage.items[0]);
  const auto& key = value_->at(id.items[2]);
  const auto& count = value_->at(id.items[4]);
  const auto* member = find(fmt::format("data/{}", key.text));
  if (member == nullptr) fail_dcp_file(where_, fmt::format("it has no storage '{}'", printable(key.text, kMostShown)));
  if (count.number < 0 || static_cast<std::uint64_t>(count.number) > member->bytes.size / size)
    fail_dcp_file(where_, fmt::format("a storage of {} elements is longer than its record of {} bytes", count.number,
                                      member->bytes.size));
  return {member->bytes.file, member->bytes.begin, static_cast<std::uint64_t>(count.number) * size};
}

std::optional<ArchivedTensor> Archive::tensor() const {
  using Kind = Pickle::Kind;
  const auto& root = value_->root();
  if (root.kind != Kind::kObject || root.is != PickleClass::kRebuildTensor) return std::nullopt;
  const auto odd = [&] { fail_dcp_file(where_, "its tensor is not described as torch.save does"); };
  // (storage, offset, size, stride, requires_grad, hooks)
  const auto& arguments = value_->at(root.items[0]);
  if (arguments.kind != Kind::kTuple || arguments.items.size() < 4) odd();
  const auto& held = value_->at(arguments.items[0]);
  const auto& offset = value_->at(arguments.items[1]);
  const auto shape = whole_numbers(*value_, value_->at(arguments.items[2]));
  const auto strides = whole_numbers(*value_, value_->at(arguments.items[3]));
  if (held.kind != Kind::kStorage || offset.kind != Kind::kInt || offset.number < 0 || !shape || !strides ||
      strides->size() != shape->size())
    odd();
  const auto& id = value_->at(held.items[0]);
  if (id.kind != Kind::kTuple || id.items.size() != 5) odd();
  const auto& kind = value_->at(id.items[1]);
  if (value_->at(id.items[0]).text != "storage" || kind.kind != Kind::kClass || kind.is != PickleClass::kStorage ||
      value_->at(id.items[2]).kind != Kind::kText || value_->at(id.items[4]).kind != Kind::kInt)
    odd();
  const auto bytes = tensor_bytes(kind.type, *shape);
  if (!bytes) fail_dcp_file(where_, "its tensor is too large");
  std::int64_t expected = 1;
  for (std::size_t i = shape->size(); i-- > 0;) {
    if ((*shape)[i] != 1 && *bytes > 0 && (*strides)[i] != expected)
      fail_dcp_file(where_, "its tensor is not stored row by row");
    if ((*shape)[i] > 0) expected *= (*shape)[i];  // cannot overflow: tensor_bytes() has multiplied them
    if (*bytes == 0) expected = 1;
  }
  const auto held_bytes = storage(held, kind.type);
  const auto size = static_cast<std::uint64_t>(bits_of(kind.type)) / 8;
  if (static_cast<std::uint64_t>(offset.number) > held_bytes.size / size ||
      *bytes > held_bytes.size - static_cast<std::uint64_t>(offset.number) * size)
    fail_dcp_file(where_, fmt::format("its tensor needs {} bytes from element {} of a storage of {}", *bytes,
                                      offset.number, held_bytes.size));
  return ArchivedTensor{kind.type,
                        *shape,
                        {held_bytes.file, held_bytes.begin + static_cast<std::uint64_t>(offset.number) * size, *bytes}};
}

std::optional<double> Archive::number() const {
  const auto& root = value_->root();
  if (root.kind == Pickle::Kind::kInt) return static_cast<double>(root.number);
  if (root.kind == Pickle::Kind::kFloat) return root.real;
  const auto found = tensor();
  if (!found || found->bytes.size > 8 || found->bytes.size != static_cast<std::uint64_t>(bits_of(found->type)) / 8)
    return std::nullopt;
  const auto bytes = text_of(found->bytes, 0, found->bytes.size);
  if (found->type == ElementType::kI64) return static_cast<double>(static_cast<std::int64_t>(whole(bytes, 0, 8)));
  if (found->type == ElementType::kI32) return static_cast<std::int32_t>(whole(bytes, 0, 4));
  if (!is_weight_type(found->type)) return std::nullopt;
  double value = 0;
  convert_elements(found->type, bytes.data(), ElementType::kF64, reinterpret_cast<char*>(&value), 1);
  return value;
}

}  // namespace automodel::checkpoint
