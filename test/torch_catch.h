// Catch2 beside LibTorch: both have a CHECK; tests mean Catch2's.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Logging.h>
#undef CHECK
#include <catch2/catch.hpp>
