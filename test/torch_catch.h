// Catch2 together with LibTorch: both define CHECK, and tests use Catch2's.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Logging.h>
#undef CHECK
#include <catch2/catch.hpp>
