// The interface between the program and the shared object that reads tables with Apache Arrow. It is C so that either
// side can be built separately; the object is opened with dlopen only when a Parquet, Arrow or compressed file is read.
#pragma once

#include <stddef.h>
#include <stdint.h>

extern "C" {

/// Must be bumped with every change to this interface.
#define AUTOMODEL_TABLE_VERSION 3

/// Reasons begin with this if a limit, or the machine's memory, was reached: the file may be whole.
#define AUTOMODEL_TABLE_LIMIT "it asks for too much: "

/// Receives text; may be called several times.
typedef void (*AutomodelTake)(void* taker, const char* text, size_t size);

typedef struct AutomodelTable AutomodelTable;

typedef struct AutomodelTableModule {
  int version;
  /// Opens a file: kind 0 is Parquet, 1 is Arrow (stream or file). Null after passing the reason to `fail`.
  AutomodelTable* (*open)(const char* path, int kind, AutomodelTake fail, void* taker);
  void (*close)(AutomodelTable* table);
  int64_t (*rows)(const AutomodelTable* table);
  /// The `huggingface` entry of the schema's metadata; "" if absent.
  const char* (*features)(const AutomodelTable* table);
  /// Passes a row as a JSON object to `take`; on failure returns 0 and passes the reason instead. Not thread-safe. A
  /// binary cell is {"bytes": its number}, counted from 0 within the row.
  int (*read)(AutomodelTable* table, int64_t row, AutomodelTake take, void* taker);
  /// Passes the content of the binary cell with that number, in the same way.
  int (*bytes)(AutomodelTable* table, int64_t row, int64_t cell, AutomodelTake take, void* taker);
  /// Passes the content of a .gz or .zst file to `take` in pieces; on failure, or if it has more than `most` bytes,
  /// returns 0 after passing the reason to `fail`.
  int (*inflate)(const char* path, int64_t most, AutomodelTake take, AutomodelTake fail, void* taker);
} AutomodelTableModule;

/// The object's only exported symbol: an AutomodelTableModule, as open_part() calls for it.
const void* automodel_table_module(void);
}
