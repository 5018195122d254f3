// The seam between the program and the shared object that reads tables with Apache Arrow. C, so that either side may be
// built by itself: the object is opened with dlopen where a Parquet, Arrow or compressed file is read, and nowhere
// else.
#pragma once

#pragma once

#include <stddef.h>
#include <stdint.h>

extern "C" {

/// Changes with every change of what follows.
#define AUTOMODEL_TABLE_VERSION 1

/// Takes text; may be called several times.
typedef void (*AutomodelTake)(void* taker, const char* text, size_t size);

typedef struct AutomodelTable AutomodelTable;

typedef struct AutomodelTableModule {
  int version;
  /// Opens a file: kind 0 is Parquet, 1 is Arrow (stream or file). Null after the reason was given to `fail`.
  AutomodelTable* (*open)(const char* path, int kind, AutomodelTake fail, void* taker);
  void (*close)(AutomodelTable* table);
  int64_t (*rows)(const AutomodelTable* table);
  /// The entry `huggingface` of the schema's metadata; "" where there is none.
  const char* (*features)(const AutomodelTable* table);
  /// Gives a row as a JSON object to `take`; where it returns 0, the reason instead. One thread at a time.
  int (*read)(AutomodelTable* table, int64_t row, AutomodelTake take, void* taker);
  /// Gives the content of a .gz or .zst file to `take`; where it returns 0, the last piece is the reason.
  int (*inflate)(const char* path, AutomodelTake take, AutomodelTake fail, void* taker);
} AutomodelTableModule;

/// The object's only symbol.
const AutomodelTableModule* automodel_table_module(void);
}
