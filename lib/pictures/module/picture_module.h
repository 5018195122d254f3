// The interface between the program and the shared object that decodes pictures with libjpeg, libpng and libwebp. It is
// C so that either side can be built separately; the object is opened with dlopen only where there are pictures.
#pragma once

#include <stddef.h>
#include <stdint.h>

extern "C" {

/// Must be bumped with every change to this interface.
#define AUTOMODEL_PICTURE_VERSION 1

typedef struct AutomodelPictureTaker {
  /// Receives the size in pixels; returns room for 3 * width * height bytes, or null if that is too much.
  uint8_t* (*size)(void* self, int width, int height);
  /// Receives the reason of a failure.
  void (*fail)(void* self, const char* reason);
} AutomodelPictureTaker;

typedef struct AutomodelPictureModule {
  int version;
  /// Decodes a JPEG, PNG or WebP file: size() first, then the pixels as rows of RGB. 0 after fail(), 1 else. As
  /// Pillow's convert("RGB"): transparency is dropped, of 16 bits the upper 8 are kept, but 16-bit grey is cut off at
  /// 255.
  int (*decode)(const uint8_t* bytes, size_t count, const AutomodelPictureTaker* taker, void* self);
} AutomodelPictureModule;

/// The object's only exported symbol: an AutomodelPictureModule, as open_part() calls for it.
const void* automodel_picture_module(void);
}
