// torch.save's archives: zip files whose members are stored as they are, so that a tensor's bytes have a place in the
// file. Only found and measured here, never unpacked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/dcp/pickle.h"
#include "checkpoint/format/file.h"

namespace automodel::checkpoint {

/// A part of a file.
struct FilePart {
  const InputFile* file = nullptr;
  std::uint64_t begin = 0, size = 0;
};

/// A tensor in an archive: its bytes, row-major.
struct ArchivedTensor {
  ElementType type = ElementType::kF32;
  std::vector<std::int64_t> shape = {};
  FilePart bytes = {};
};

/// One archive: a value (data.pkl) and the storages that it refers to.
class Archive {
 public:
  /// `part` is exactly one archive. Throws Error (kCheckpoint): checkpoint-damaged (no zip file, compressed members,
  /// members that leave the part, a class that is refused), cannot-read.
  explicit Archive(const FilePart& part);

  const Pickle& value() const { return *value_; }
  /// The tensor, if the value is one. Throws Error (checkpoint-damaged): a storage longer than its record, a tensor
  /// that leaves its storage, or one that is not stored row by row.
  std::optional<ArchivedTensor> tensor() const;
  /// The value as a number, if it is one: a number, or a tensor with one element.
  std::optional<double> number() const;

 private:
  struct Member {
    std::string name = {};
    FilePart bytes = {};
  };
  void read_members();
  const Member* find(std::string_view name) const;
  FilePart storage(const Pickle::Node& storage, ElementType type) const;

  FilePart part_;
  std::string where_;
  std::vector<Member> members_ = {};
  std::string root_ = {};  ///< the folder of all members
  std::optional<Pickle> value_ = {};
};

/// Whole numbers of a tuple or of a torch.Size; empty if it is something else, negative, or has more than 16.
std::optional<std::vector<std::int64_t>> whole_numbers(const Pickle& pickle, const Pickle::Node& node);

}  // namespace automodel::checkpoint
