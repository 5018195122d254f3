// Writes a checkpoint of torch.distributed.checkpoint as one rank would: .metadata and __0_0.distcp, whose archives are
// those of torch.save. The counterpart of dcp_folder.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/format/element_type.h"
#include "checkpoint/format/file.h"

namespace automodel::checkpoint {

/// Receives the next bytes.
using Sink = std::function<void(std::string_view bytes)>;
/// Gives rows [first, first + count) of a tensor to a sink, in order. A scalar has one row.
using RowSource = std::function<void(std::int64_t first, std::int64_t count, const Sink& sink)>;

/// torch.save's archives, one after the other in a file.
class ArchiveFile {
 public:
  explicit ArchiveFile(const std::filesystem::path& path) : file_(path, OutputFile::Mode::kCreate) {}

  /// Where an archive lies.
  struct Place {
    std::uint64_t begin = 0, size = 0;
  };
  /// `pickle`: opcodes of the value (pickled.h).
  Place add_value(const std::string& pickle);
  /// `give` hands over the elements, row by row.
  Place add_tensor(ElementType type, const std::vector<std::int64_t>& shape,
                   const std::function<void(const Sink&)>& give);
  std::uint64_t size() const { return end_; }
  void sync() { file_.sync(); }

 private:
  Place add(const std::string& pickle, std::uint64_t stored, const std::function<void(const Sink&)>& give);

  OutputFile file_;
  std::uint64_t end_ = 0;
};

class DcpWriter {
 public:
  /// Larger tensors are stored in parts of whole rows: an archive's sizes have 32 bits.
  static constexpr std::uint64_t kLargestPart = std::uint64_t{1} << 30U;

  /// `folder` exists and is empty of such files.
  explicit DcpWriter(std::filesystem::path folder, std::uint64_t largest_part = kLargestPart);

  /// A value or tensor `name`; `path`: the keys under which the nested state dict has it, as opcodes of pickles.
  void add_value(const std::string& name, const std::vector<std::string>& path, const std::string& pickle);
  void add_tensor(const std::string& name, const std::vector<std::string>& path, ElementType type,
                  const std::vector<std::int64_t>& shape, const RowSource& rows);
  /// Writes .metadata. Returns the bytes of all files.
  std::uint64_t finish();

 private:
  void note_part(const std::string& name, const std::string& offset, const std::string& index,
                 const ArchiveFile::Place& place);

  std::filesystem::path folder_;
  std::uint64_t largest_part_;
  ArchiveFile parts_;
  std::vector<std::string> entries_ = {}, paths_ = {}, storage_ = {};  ///< keys and values in turn, as opcodes
};

}  // namespace automodel::checkpoint
