// Parquet and Arrow files and compressed text, through Apache Arrow.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <exception>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <arrow/api.h>
#include <arrow/io/api.h>
#include <arrow/ipc/api.h>
#include <arrow/util/compression.h>
#include <parquet/arrow/reader.h>
#include <parquet/exception.h>

#include "table_module.h"

namespace {

// What one file may make this program do (SECURITY.md). Files come from strangers.
constexpr std::int64_t kMostMemory = std::int64_t{512} << 20;  ///< bytes that Arrow holds at a time
constexpr std::int64_t kMostRowsPerByte = 64;
constexpr int kMostColumns = 10'000;  ///< fields, those of structures included
constexpr int kMostDepth = 64;        ///< lists and structures inside each other
constexpr std::size_t kMostRowBytes = std::size_t{16} << 20;
constexpr std::size_t kMostCellBytes = std::size_t{64} << 20;  ///< of a binary cell: a picture
constexpr std::int64_t kRowsAtATime = 32;                      ///< of the longest, as many as fit in memory

/// Appends a string as JSON.
void put_text(std::string_view text, std::string& out) {
  constexpr char kDigits[] = "0123456789abcdef";
  out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += "\\u00";
      out += kDigits[static_cast<unsigned char>(c) >> 4];
      out += kDigits[c & 15];
    } else {
      out += c;
    }
  }
  out += '"';
}

template <class Number>
void put_number(Number value, std::string& out) {
  if constexpr (std::is_floating_point_v<Number>)
    if (!std::isfinite(value)) return void(out += "null");  // JSON cannot represent it
  char text[40];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  out.append(text, end);
  if constexpr (std::is_floating_point_v<Number>)
    if (std::string_view(text, static_cast<std::size_t>(end - text)).find_first_of(".e") == std::string_view::npos)
      out += ".0";
}

/// A row that is written as JSON, and one of the binary cells that are passed on the way.
struct Row {
  std::string text = {};
  std::int64_t cells = 0;  ///< binary cells so far
  std::int64_t wanted = -1;
  std::optional<std::string_view> bytes = {};  ///< of binary cell `wanted`
};

arrow::Status put(const arrow::Array& array, std::int64_t i, Row& out);

template <class List>
arrow::Status put_list(const arrow::Array& array, std::int64_t i, Row& out) {
  const auto& list = static_cast<const List&>(array);
  out.text += '[';
  for (std::int64_t at = list.value_offset(i), end = at + list.value_length(i); at < end; ++at) {
    if (at > list.value_offset(i)) out.text += ',';
    ARROW_RETURN_NOT_OK(put(*list.values(), at, out));
  }
  out.text += ']';
  return arrow::Status::OK();
}

arrow::Status put_struct(const arrow::Array& array, std::int64_t i, Row& out) {
  const auto& fields = static_cast<const arrow::StructArray&>(array);
  out.text += '{';
  for (int f = 0; f < fields.num_fields(); ++f) {
    if (f > 0) out.text += ',';
    put_text(fields.type()->field(f)->name(), out.text);
    out.text += ':';
    ARROW_RETURN_NOT_OK(put(*fields.field(f), i, out));
  }
  out.text += '}';
  return arrow::Status::OK();
}

/// A map becomes a list of pairs.
arrow::Status put_map(const arrow::Array& array, std::int64_t i, Row& out) {
  const auto& map = static_cast<const arrow::MapArray&>(array);
  out.text += '[';
  for (std::int64_t at = map.value_offset(i), end = at + map.value_length(i); at < end; ++at) {
    out.text += at > map.value_offset(i) ? ",[" : "[";
    ARROW_RETURN_NOT_OK(put(*map.keys(), at, out));
    out.text += ',';
    ARROW_RETURN_NOT_OK(put(*map.items(), at, out));
    out.text += ']';
  }
  out.text += ']';
  return arrow::Status::OK();
}

template <class Array>
arrow::Status put_value(const arrow::Array& array, std::int64_t i, Row& out) {
  put_number(static_cast<const Array&>(array).Value(i), out.text);
  return arrow::Status::OK();
}

template <class... Parts>
arrow::Status too_much(Parts&&... parts) {
  return arrow::Status::CapacityError(std::forward<Parts>(parts)...);
}

template <class Array>
arrow::Status put_string(const arrow::Array& array, std::int64_t i, Row& out) {
  if (static_cast<const Array&>(array).GetView(i).size() > kMostRowBytes)
    return too_much("a cell of more than ", kMostRowBytes, " bytes");
  put_text(static_cast<const Array&>(array).GetView(i), out.text);
  return arrow::Status::OK();
}

arrow::Status put_truth(const arrow::Array& array, std::int64_t i, Row& out) {
  out.text += static_cast<const arrow::BooleanArray&>(array).Value(i) ? "true" : "false";
  return arrow::Status::OK();
}

arrow::Status put_word(const arrow::Array& array, std::int64_t i, Row& out) {
  const auto& words = static_cast<const arrow::DictionaryArray&>(array);
  return put(*words.dictionary(), words.GetValueIndex(i), out);
}

arrow::Status put_stored(const arrow::Array& array, std::int64_t i, Row& out) {
  return put(*static_cast<const arrow::ExtensionArray&>(array).storage(), i, out);
}

/// Binary cells stay where they are; the row has their numbers.
template <class Array>
arrow::Status put_bytes(const arrow::Array& array, std::int64_t i, Row& out) {
  if (out.cells == out.wanted) {
    out.bytes = static_cast<const Array&>(array).GetView(i);
    if (out.bytes->size() > kMostCellBytes) return too_much("a cell of more than ", kMostCellBytes, " bytes");
  }
  out.text += "{\"bytes\":";
  put_number(out.cells++, out.text);
  out.text += '}';
  return arrow::Status::OK();
}

struct Form {
  arrow::Type::type type;
  arrow::Status (*put)(const arrow::Array& array, std::int64_t i, Row& out);
};
constexpr Form kForms[] = {
    {arrow::Type::BOOL, put_truth},
    {arrow::Type::INT8, put_value<arrow::Int8Array>},
    {arrow::Type::INT16, put_value<arrow::Int16Array>},
    {arrow::Type::INT32, put_value<arrow::Int32Array>},
    {arrow::Type::INT64, put_value<arrow::Int64Array>},
    {arrow::Type::UINT8, put_value<arrow::UInt8Array>},
    {arrow::Type::UINT16, put_value<arrow::UInt16Array>},
    {arrow::Type::UINT32, put_value<arrow::UInt32Array>},
    {arrow::Type::UINT64, put_value<arrow::UInt64Array>},
    {arrow::Type::FLOAT, put_value<arrow::FloatArray>},
    {arrow::Type::DOUBLE, put_value<arrow::DoubleArray>},
    {arrow::Type::STRING, put_string<arrow::StringArray>},
    {arrow::Type::LARGE_STRING, put_string<arrow::LargeStringArray>},
    {arrow::Type::STRING_VIEW, put_string<arrow::StringViewArray>},
    {arrow::Type::STRUCT, put_struct},
    {arrow::Type::LIST, put_list<arrow::ListArray>},
    {arrow::Type::LARGE_LIST, put_list<arrow::LargeListArray>},
    {arrow::Type::FIXED_SIZE_LIST, put_list<arrow::FixedSizeListArray>},
    {arrow::Type::MAP, put_map},
    {arrow::Type::DICTIONARY, put_word},
    {arrow::Type::EXTENSION, put_stored},
    {arrow::Type::BINARY, put_bytes<arrow::BinaryArray>},
    {arrow::Type::LARGE_BINARY, put_bytes<arrow::LargeBinaryArray>},
    {arrow::Type::BINARY_VIEW, put_bytes<arrow::BinaryViewArray>},
    {arrow::Type::FIXED_SIZE_BINARY, put_bytes<arrow::FixedSizeBinaryArray>},
};

/// A cell as JSON; times and decimals become strings.
arrow::Status put(const arrow::Array& array, std::int64_t i, Row& out) {
  if (out.text.size() > kMostRowBytes) return too_much("a row of more than ", kMostRowBytes, " bytes");
  if (array.IsNull(i)) {
    out.text += "null";
    return arrow::Status::OK();
  }
  for (const Form& form : kForms)
    if (form.type == array.type_id()) return form.put(array, i, out);
  ARROW_ASSIGN_OR_RAISE(const auto scalar, array.GetScalar(i));
  put_text(scalar->ToString(), out.text);
  return arrow::Status::OK();
}

}  // namespace

/// Rows in batches, one of which (a row group, for Parquet) is in memory at a time.
struct AutomodelTable {
  virtual ~AutomodelTable() = default;
  /// Sets batch_ and first_ so that the batch contains `row`.
  virtual arrow::Status seek(std::int64_t row) = 0;

  arrow::Status read(std::int64_t row, Row& out) {
    if (row < 0 || row >= rows_) return arrow::Status::IndexError("the table has ", rows_, " rows");
    if (!batch_ || row < first_ || row >= first_ + batch_->num_rows()) ARROW_RETURN_NOT_OK(seek(row));
    if (row < first_ || row >= first_ + batch_->num_rows())
      return arrow::Status::Invalid("its metadata promises more rows than it has");
    out.text += '{';
    for (int column = 0; column < batch_->num_columns(); ++column) {
      if (column > 0) out.text += ',';
      put_text(batch_->schema()->field(column)->name(), out.text);
      out.text += ':';
      const auto status = put(*batch_->column(column), row - first_, out);
      if (!status.ok())
        return status.WithMessage("column '", batch_->schema()->field(column)->name(), "': ", status.message());
    }
    out.text += '}';
    return arrow::Status::OK();
  }

  arrow::ProxyMemoryPool counted_{arrow::default_memory_pool()};  ///< what this table holds
  arrow::CappedMemoryPool pool_{&counted_, kMostMemory};
  std::int64_t rows_ = 0;
  std::string features_;
  std::shared_ptr<arrow::RecordBatch> batch_;
  std::int64_t first_ = 0;  ///< index in the table of the batch's first row
};

namespace {

/// Validates what was read from a file before rows are taken from it: offsets within their buffers, text in UTF-8.
arrow::Status check(const arrow::RecordBatch& batch) {
  for (int column = 0; column < batch.num_columns(); ++column) {
    const auto status = batch.column(column)->ValidateFull();
    if (!status.ok())
      return status.WithMessage("column '", batch.schema()->field(column)->name(), "': ", status.message());
  }
  return arrow::Status::OK();
}

void take_features(const arrow::Schema& schema, std::string& out) {
  if (const auto metadata = schema.metadata()) out = metadata->Get("huggingface").ValueOr("");
}

arrow::Status check_fields(const std::vector<std::shared_ptr<arrow::Field>>& fields, int depth, int& left) {
  if (depth > kMostDepth) return too_much("columns nested more than ", kMostDepth, " deep");
  for (const auto& field : fields) {
    if (--left < 0) return too_much("more than ", kMostColumns, " columns");
    ARROW_RETURN_NOT_OK(check_fields(field->type()->fields(), depth + 1, left));
  }
  return arrow::Status::OK();
}

/// A schema and the number of rows that the metadata promises, before anything is read.
arrow::Status check_promise(const arrow::Schema& schema, std::int64_t rows, std::int64_t file_bytes) {
  int left = kMostColumns;
  ARROW_RETURN_NOT_OK(check_fields(schema.fields(), 1, left));
  if (rows / kMostRowsPerByte > file_bytes)
    return too_much("its metadata promises ", rows, " rows, in a file of ", file_bytes, " bytes");
  return arrow::Status::OK();
}

class ParquetTable final : public AutomodelTable {
 public:
  arrow::Status open(const char* path) {
    ARROW_ASSIGN_OR_RAISE(auto file, arrow::io::MemoryMappedFile::Open(path, arrow::io::FileMode::READ));
    ARROW_ASSIGN_OR_RAISE(const auto bytes, file->GetSize());
    parquet::arrow::FileReaderBuilder builder;
    ARROW_RETURN_NOT_OK(builder.Open(file, parquet::ReaderProperties(&pool_)));
    parquet::ArrowReaderProperties properties(false);
    properties.set_batch_size(kRowsAtATime);
    properties.set_pre_buffer(false);
    ARROW_RETURN_NOT_OK(builder.memory_pool(&pool_)->properties(properties)->Build(&reader_));
    ARROW_RETURN_NOT_OK(count_rows());
    std::shared_ptr<arrow::Schema> schema;
    ARROW_RETURN_NOT_OK(reader_->GetSchema(&schema));
    take_features(*schema, features_);
    return check_promise(*schema, rows_, bytes);
  }

  /// Batches of a row group are read one after another; a row before the current batch begins the group again.
  arrow::Status seek(std::int64_t row) override {
    const auto group = static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), row) - ends_.begin());
    const std::int64_t begin = group == 0 ? 0 : ends_[group - 1];
    const std::int64_t next = batch_ ? first_ + batch_->num_rows() : begin;
    if (group == group_ && !broken_.ok() && row >= first_) return broken_;
    if (!batches_ || group != group_ || row < next) {
      broken_ = arrow::Status::OK();
      batch_.reset();
      batches_.reset();
      group_ = group;
      first_ = begin;
      ARROW_ASSIGN_OR_RAISE(batches_, reader_->GetRecordBatchReader(std::vector<int>{static_cast<int>(group)}));
    }
    do {
      if (batch_) first_ += batch_->num_rows();
      batch_.reset();
      broken_ = batches_->ReadNext(&batch_);
      if (broken_.ok() && (!batch_ || batch_->num_rows() == 0))
        broken_ = arrow::Status::Invalid("its metadata promises more rows than it has");
      if (!broken_.ok()) {
        batches_.reset();
        return broken_ = broken_.WithMessage("row group ", group, ": ", broken_.message());
      }
    } while (row >= first_ + batch_->num_rows());
    return check(*batch_);
  }

 private:
  /// The footer says how many rows a group has; each of its columns has at least as many values.
  arrow::Status count_rows() {
    const auto metadata = reader_->parquet_reader()->metadata();
    if (metadata->num_columns() > kMostColumns) return too_much("more than ", kMostColumns, " columns");
    for (int group = 0; group < metadata->num_row_groups(); ++group) {
      const auto facts = metadata->RowGroup(group);
      const std::int64_t count = facts->num_rows();
      bool fits = count >= 0 && count <= std::numeric_limits<std::int64_t>::max() - rows_;
      for (int column = 0; fits && column < facts->num_columns(); ++column)
        fits = count <= facts->ColumnChunk(column)->num_values();
      if (!fits) return arrow::Status::Invalid("row group ", group, " does not have its ", count, " rows");
      rows_ += count;
      ends_.push_back(rows_);
    }
    return arrow::Status::OK();
  }

  std::unique_ptr<parquet::arrow::FileReader> reader_;
  std::vector<std::int64_t> ends_;
  std::size_t group_ = 0;
  arrow::Status broken_ = arrow::Status::OK();  ///< why nothing from row first_ of the group can be read
  std::unique_ptr<arrow::RecordBatchReader> batches_;
};

class ArrowTable final : public AutomodelTable {
 public:
  arrow::Status open(const char* path) {
    ARROW_ASSIGN_OR_RAISE(file_, arrow::io::MemoryMappedFile::Open(path, arrow::io::FileMode::READ));
    ARROW_ASSIGN_OR_RAISE(auto head, file_->ReadAt(0, 6));
    const bool stream = head->ToString() != "ARROW1";
    auto options = arrow::ipc::IpcReadOptions::Defaults();
    options.use_threads = false;
    options.memory_pool = &pool_;
    options.max_recursion_depth = kMostDepth;
    ARROW_ASSIGN_OR_RAISE(bytes_, file_->GetSize());
    if (stream) {
      ARROW_ASSIGN_OR_RAISE(auto reader, arrow::ipc::RecordBatchStreamReader::Open(file_, options));
      take_features(*reader->schema(), features_);
      for (std::shared_ptr<arrow::RecordBatch> batch;;) {
        const auto status = reader->ReadNext(&batch);
        if (!status.ok()) return status.WithMessage("behind row ", rows_, ": ", status.message());
        if (!batch) return arrow::Status::OK();
        ARROW_RETURN_NOT_OK(add(std::move(batch)));
      }
    }
    ARROW_ASSIGN_OR_RAISE(auto reader, arrow::ipc::RecordBatchFileReader::Open(file_, options));
    take_features(*reader->schema(), features_);
    for (int i = 0; i < reader->num_record_batches(); ++i) {
      ARROW_ASSIGN_OR_RAISE(auto batch, reader->ReadRecordBatch(i));
      ARROW_RETURN_NOT_OK(add(std::move(batch)));
    }
    return arrow::Status::OK();
  }

  arrow::Status seek(std::int64_t row) override {
    const auto at = static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), row) - ends_.begin());
    ARROW_RETURN_NOT_OK(check(*batches_[at]));
    batch_ = batches_[at];
    first_ = ends_[at] - batch_->num_rows();
    return arrow::Status::OK();
  }

 private:
  arrow::Status add(std::shared_ptr<arrow::RecordBatch> batch) {
    if (batch->num_rows() < 0 || batch->num_rows() > std::numeric_limits<std::int64_t>::max() - rows_)
      return arrow::Status::Invalid("batch ", batches_.size(), " has ", batch->num_rows(), " rows");
    rows_ += batch->num_rows();
    ends_.push_back(rows_);
    batches_.push_back(std::move(batch));
    return check_promise(*batches_.back()->schema(), rows_, bytes_);
  }

  std::int64_t bytes_ = 0;

  std::shared_ptr<arrow::io::MemoryMappedFile> file_;
  std::vector<std::shared_ptr<arrow::RecordBatch>> batches_;  ///< mapped, not read
  std::vector<std::int64_t> ends_;
};

void give(std::string_view text, AutomodelTake take, void* taker) {
  take(taker, text.data(), text.size());
}

/// A failure in words; those of limits and of memory say so.
std::string reason_of(const arrow::Status& status) {
  if (status.IsCapacityError()) return AUTOMODEL_TABLE_LIMIT + status.message();
  if (!status.IsOutOfMemory()) return status.message();
  return AUTOMODEL_TABLE_LIMIT +
         ("more than " + std::to_string(kMostMemory >> 20) + " MiB at a time, or than there is");
}

/// Runs `act` and turns exceptions into a status: none may cross the module's C interface.
template <class Act>
arrow::Status guarded(Act&& act) {
  try {
    return act();
  } catch (const std::bad_alloc&) {
    return arrow::Status::OutOfMemory("");
  } catch (const parquet::ParquetStatusException& error) {
    return error.status();
  } catch (const std::exception& error) {
    return arrow::Status::Invalid(error.what());
  }
}

template <class Table>
AutomodelTable* open_as(const char* path, AutomodelTake fail, void* taker) {
  std::unique_ptr<Table> out;
  const auto status = guarded([&] {
    out = std::make_unique<Table>();
    return out->open(path);
  });
  if (status.ok()) return out.release();
  give(reason_of(status), fail, taker);
  return nullptr;
}

AutomodelTable* open_table(const char* path, int kind, AutomodelTake fail, void* taker) {
  return kind == 0 ? open_as<ParquetTable>(path, fail, taker) : open_as<ArrowTable>(path, fail, taker);
}

int read_row(AutomodelTable* table, std::int64_t row, AutomodelTake take, void* taker) {
  Row out;
  const auto status = guarded([&] { return table->read(row, out); });
  give(status.ok() ? out.text : reason_of(status), take, taker);
  return status.ok() ? 1 : 0;
}

int read_bytes(AutomodelTable* table, std::int64_t row, std::int64_t cell, AutomodelTake take, void* taker) {
  Row out{.wanted = cell};
  auto status = guarded([&] { return table->read(row, out); });
  if (status.ok() && !out.bytes) status = arrow::Status::IndexError("it has ", out.cells, " binary cells");
  give(status.ok() ? *out.bytes : reason_of(status), take, taker);
  return status.ok() ? 1 : 0;
}

arrow::Status inflate(const std::string& path, std::int64_t most, AutomodelTake take, void* taker) {
  const auto kind = path.ends_with(".gz") ? arrow::Compression::GZIP : arrow::Compression::ZSTD;
  ARROW_ASSIGN_OR_RAISE(const auto codec, arrow::util::Codec::Create(kind));
  ARROW_ASSIGN_OR_RAISE(const auto file, arrow::io::ReadableFile::Open(path));
  ARROW_ASSIGN_OR_RAISE(const auto stream, arrow::io::CompressedInputStream::Make(codec.get(), file));
  for (std::int64_t given = 0;;) {
    ARROW_ASSIGN_OR_RAISE(const auto piece, stream->Read(1 << 20));
    if (piece->size() == 0) return arrow::Status::OK();
    given += piece->size();
    if (given > most) return too_much("more than ", most, " bytes of text");
    take(taker, reinterpret_cast<const char*>(piece->data()), static_cast<std::size_t>(piece->size()));
  }
}

int inflate_file(const char* path, int64_t most, AutomodelTake take, AutomodelTake fail, void* taker) {
  const auto status = guarded([&] { return inflate(path, most, take, taker); });
  if (!status.ok()) give(reason_of(status), fail, taker);
  return status.ok() ? 1 : 0;
}

}  // namespace

const void* automodel_table_module(void) {
  static const AutomodelTableModule kModule = {
      AUTOMODEL_TABLE_VERSION,
      open_table,
      [](AutomodelTable* table) { delete table; },
      [](const AutomodelTable* table) { return table->rows_; },
      [](const AutomodelTable* table) { return table->features_.c_str(); },
      read_row,
      read_bytes,
      inflate_file,
  };
  return &kModule;
}
