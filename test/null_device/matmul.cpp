// cuBLAS and cuBLASLt: matmuls are checked as cuBLAS checks them (its guide, "leading dimensions"), counted, not done.
// cuBLAS has no workspace of its own here: LibTorch gives it one.
#include <cublasLt.h>
#include <cublas_v2.h>

#include "device.h"

using namespace null_device;  // NOLINT(google-build-using-namespace)

struct cublasContext {
  cudaStream_t stream = nullptr;
  cublasMath_t math = CUBLAS_DEFAULT_MATH;
  cublasPointerMode_t pointers = CUBLAS_POINTER_MODE_HOST;
};

namespace {

struct Product {
  cublasOperation_t a = CUBLAS_OP_N, b = CUBLAS_OP_N;
  std::int64_t m = 0, n = 0, k = 0, lda = 0, ldb = 0, ldc = 0, batch = 1;
};

bool is_allowed(const Product& of) {
  const auto rows_a = of.a == CUBLAS_OP_N ? of.m : of.k, rows_b = of.b == CUBLAS_OP_N ? of.k : of.n;
  return of.m >= 0 && of.n >= 0 && of.k >= 0 && of.batch >= 0 && of.lda >= std::max<std::int64_t>(1, rows_a) &&
         of.ldb >= std::max<std::int64_t>(1, rows_b) && of.ldc >= std::max<std::int64_t>(1, of.m);
}

bool on_device(const void* a, const void* b, const void* c) {
  return is_device_address(a) && is_device_address(b) && is_device_address(c);
}

cublasStatus_t multiply(const Product& product, const void* a, const void* b, const void* c, cudaStream_t stream,
                        const char* name) {
  const std::lock_guard lock(device().mutex);
  if (!is_allowed(product)) return CUBLAS_STATUS_INVALID_VALUE;
  if (product.m * product.n * product.batch == 0) return CUBLAS_STATUS_SUCCESS;
  if (!on_device(a, b, c)) return CUBLAS_STATUS_EXECUTION_FAILED;
  if (enqueue(stream, name) != cudaSuccess) return CUBLAS_STATUS_EXECUTION_FAILED;
  ++device().counts.matmuls;
  device().counts.matmul_flops += 2.0 * static_cast<double>(product.m) * static_cast<double>(product.n) *
                                  static_cast<double>(product.k) * static_cast<double>(product.batch);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

NULL_DEVICE_EXPORT cublasStatus_t cublasCreate_v2(cublasHandle_t* out) {
  *out = new cublasContext;
  return CUBLAS_STATUS_SUCCESS;
}
NULL_DEVICE_EXPORT cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
NULL_DEVICE_EXPORT cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}
NULL_DEVICE_EXPORT cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t, void* workspace, std::size_t) {
  return is_device_address(workspace) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}
NULL_DEVICE_EXPORT cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t* out) {
  *out = handle->math;
  return CUBLAS_STATUS_SUCCESS;
}
NULL_DEVICE_EXPORT cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  handle->math = mode;
  return CUBLAS_STATUS_SUCCESS;
}
NULL_DEVICE_EXPORT cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t* out) {
  *out = handle->pointers;
  return CUBLAS_STATUS_SUCCESS;
}
NULL_DEVICE_EXPORT cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode) {
  handle->pointers = mode;
  return CUBLAS_STATUS_SUCCESS;
}

NULL_DEVICE_EXPORT cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m,
                                               int n, int k, const void*, const void* a, cudaDataType, int lda,
                                               const void* b, cudaDataType, int ldb, const void*, void* c, cudaDataType,
                                               int ldc, cublasComputeType_t, cublasGemmAlgo_t) {
  return multiply({ta, tb, m, n, k, lda, ldb, ldc, 1}, a, b, c, handle->stream, "cublasGemmEx");
}
NULL_DEVICE_EXPORT cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t ta,
                                                             cublasOperation_t tb, int m, int n, int k, const void*,
                                                             const void* a, cudaDataType, int lda, long long,
                                                             const void* b, cudaDataType, int ldb, long long,
                                                             const void*, void* c, cudaDataType, int ldc, long long,
                                                             int batch, cublasComputeType_t, cublasGemmAlgo_t) {
  return multiply({ta, tb, m, n, k, lda, ldb, ldc, batch}, a, b, c, handle->stream, "cublasGemmStridedBatchedEx");
}
#define NULL_DEVICE_GEMM(letter, type)                                                                                \
  NULL_DEVICE_EXPORT cublasStatus_t cublas##letter##gemm_v2(                                                          \
      cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const type*,            \
      const type* a, int lda, const type* b, int ldb, const type*, type* c, int ldc) {                                \
    return multiply({ta, tb, m, n, k, lda, ldb, ldc, 1}, a, b, c, handle->stream, "cublas" #letter "gemm");           \
  }                                                                                                                   \
  NULL_DEVICE_EXPORT cublasStatus_t cublas##letter##gemmStridedBatched(                                               \
      cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, const type*,            \
      const type* a, int lda, long long, const type* b, int ldb, long long, const type*, type* c, int ldc, long long, \
      int batch) {                                                                                                    \
    return multiply({ta, tb, m, n, k, lda, ldb, ldc, batch}, a, b, c, handle->stream,                                 \
                    "cublas" #letter "gemmStridedBatched");                                                           \
  }                                                                                                                   \
  NULL_DEVICE_EXPORT cublasStatus_t cublas##letter##gemv_v2(cublasHandle_t handle, cublasOperation_t t, int m, int n, \
                                                            const type*, const type* a, int lda, const type* x, int,  \
                                                            const type*, type* y, int) {                              \
    const bool plain = t == CUBLAS_OP_N;                                                                              \
    return multiply({t, CUBLAS_OP_N, plain ? m : n, 1, plain ? n : m, lda, plain ? n : m, plain ? m : n, 1}, a, x, y, \
                    handle->stream, "cublas" #letter "gemv");                                                         \
  }                                                                                                                   \
  NULL_DEVICE_EXPORT cublasStatus_t cublas##letter##dot_v2(cublasHandle_t handle, int n, const type* x, int,          \
                                                           const type* y, int, type* out) {                           \
    return multiply({CUBLAS_OP_T, CUBLAS_OP_N, 1, 1, n, n, n, 1, 1}, x, y,                                            \
                    handle->pointers == CUBLAS_POINTER_MODE_HOST ? static_cast<const void*>(x) : out, handle->stream, \
                    "cublas" #letter "dot");                                                                          \
  }
#define NULL_DEVICE_SOLVE(letter, type)                                                                               \
  NULL_DEVICE_EXPORT cublasStatus_t cublas##letter##trsm_v2(                                                          \
      cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t, cublasOperation_t, cublasDiagType_t, int m,     \
      int n, const type*, const type* a, int lda, type* b, int ldb) {                                                 \
    const int size = side == CUBLAS_SIDE_LEFT ? m : n;                                                                \
    return multiply(                                                                                                  \
        {CUBLAS_OP_N, CUBLAS_OP_N, m, n, size, lda < size ? 0 : std::max(m, lda), std::max(size, ldb), ldb, 1}, a, b, \
        b, handle->stream, "cublas" #letter "trsm");                                                                  \
  }                                                                                                                   \
  NULL_DEVICE_EXPORT cublasStatus_t cublas##letter##trsmBatched(                                                      \
      cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t, cublasOperation_t, cublasDiagType_t, int m,     \
      int n, const type*, const type* const a[], int lda, type* const b[], int ldb, int batch) {                      \
    const int size = side == CUBLAS_SIDE_LEFT ? m : n;                                                                \
    return multiply(                                                                                                  \
        {CUBLAS_OP_N, CUBLAS_OP_N, m, n, size, lda < size ? 0 : std::max(m, lda), std::max(size, ldb), ldb, batch},   \
        static_cast<const void*>(a), static_cast<const void*>(b), static_cast<const void*>(b), handle->stream,        \
        "cublas" #letter "trsmBatched");                                                                              \
  }
NULL_DEVICE_SOLVE(S, float)
NULL_DEVICE_SOLVE(D, double)
NULL_DEVICE_GEMM(S, float)
NULL_DEVICE_GEMM(D, double)

// cuBLASLt. Its opaque types have room for our values: each is an array of 64-bit words in the header.
namespace {

struct Layout {
  cudaDataType type;
  std::int32_t batch;
  std::uint64_t rows, columns;
  std::int64_t leading;
};
struct Operation {
  cublasOperation_t a, b;
};
static_assert(sizeof(Layout) <= sizeof(cublasLtMatrixLayoutOpaque_t));
static_assert(sizeof(Operation) <= sizeof(cublasLtMatmulDescOpaque_t));

Product product_of(const Operation& operation, const Layout& a, const Layout& b, const Layout& d) {
  Product out{operation.a, operation.b};
  out.m = static_cast<std::int64_t>(d.rows);
  out.n = static_cast<std::int64_t>(d.columns);
  out.k = static_cast<std::int64_t>(operation.a == CUBLAS_OP_N ? a.columns : a.rows);
  out.lda = a.leading;
  out.ldb = b.leading;
  out.ldc = d.leading;
  out.batch = d.batch;
  return out;
}

/// The inner sizes of both operands agree, and the result has the outer ones.
bool shapes_agree(const Operation& operation, const Layout& a, const Layout& b, const Layout& d) {
  const auto m = operation.a == CUBLAS_OP_N ? a.rows : a.columns,
             inner_a = operation.a == CUBLAS_OP_N ? a.columns : a.rows;
  const auto inner_b = operation.b == CUBLAS_OP_N ? b.rows : b.columns,
             n = operation.b == CUBLAS_OP_N ? b.columns : b.rows;
  return inner_a == inner_b && d.rows == m && d.columns == n && a.batch == b.batch && a.batch == d.batch;
}

const Layout& layout_of(cublasLtMatrixLayout_t layout) {
  return *reinterpret_cast<const Layout*>(layout);
}
const Operation& operation_of(cublasLtMatmulDesc_t operation) {
  return *reinterpret_cast<const Operation*>(operation);
}

}  // namespace

NULL_DEVICE_EXPORT std::size_t cublasLtGetVersion() {
  return CUBLAS_VERSION;
}
NULL_DEVICE_EXPORT cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* out, cublasComputeType_t,
                                                           cudaDataType) {
  *out = new cublasLtMatmulDescOpaque_t{};
  return CUBLAS_STATUS_SUCCESS;
}
NULL_DEVICE_EXPORT cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation) {
  delete operation;
  return CUBLAS_STATUS_SUCCESS;
}
NULL_DEVICE_EXPORT cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation,
                                                                 cublasLtMatmulDescAttributes_t which,
                                                                 const void* value, std::size_t) {
  auto& out = *reinterpret_cast<Operation*>(operation);
  if (which == CUBLASLT_MATMUL_DESC_TRANSA) out.a = *static_cast<const cublasOperation_t*>(value);
  if (which == CUBLASLT_MATMUL_DESC_TRANSB) out.b = *static_cast<const cublasOperation_t*>(value);
  return CUBLAS_STATUS_SUCCESS;
}
NULL_DEVICE_EXPORT cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* out, cudaDataType type,
                                                             std::uint64_t rows, std::uint64_t columns,
                                                             std::int64_t leading) {
  *out = new cublasLtMatrixLayoutOpaque_t{};
  *reinterpret_cast<Layout*>(*out) = {type, 1, rows, columns, leading};
  return CUBLAS_STATUS_SUCCESS;
}
NULL_DEVICE_EXPORT cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}
NULL_DEVICE_EXPORT cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                                   cublasLtMatrixLayoutAttribute_t which,
                                                                   const void* value, std::size_t) {
  if (which == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT)
    reinterpret_cast<Layout*>(layout)->batch = *static_cast<const std::int32_t*>(value);
  return CUBLAS_STATUS_SUCCESS;
}
NULL_DEVICE_EXPORT cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* out) {
  *out = new cublasLtMatmulPreferenceOpaque_t{};
  return CUBLAS_STATUS_SUCCESS;
}
NULL_DEVICE_EXPORT cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
NULL_DEVICE_EXPORT cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t,
                                                                       cublasLtMatmulPreferenceAttributes_t,
                                                                       const void*, std::size_t) {
  return CUBLAS_STATUS_SUCCESS;
}
NULL_DEVICE_EXPORT cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t operation,
                                                                 cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                                                 cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                                                                 cublasLtMatmulPreference_t, int wanted,
                                                                 cublasLtMatmulHeuristicResult_t* out, int* found) {
  *found = 0;
  const auto& how = operation_of(operation);
  if (!shapes_agree(how, layout_of(a), layout_of(b), layout_of(d)) ||
      !is_allowed(product_of(how, layout_of(a), layout_of(b), layout_of(d))))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
  *out = {};
  out->state = CUBLAS_STATUS_SUCCESS;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}
NULL_DEVICE_EXPORT cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t operation, const void*,
                                                 const void* a, cublasLtMatrixLayout_t la, const void* b,
                                                 cublasLtMatrixLayout_t lb, const void*, const void*,
                                                 cublasLtMatrixLayout_t, void* d, cublasLtMatrixLayout_t ld,
                                                 const cublasLtMatmulAlgo_t*, void* workspace, std::size_t bytes,
                                                 cudaStream_t stream) {
  const auto& how = operation_of(operation);
  if (!shapes_agree(how, layout_of(la), layout_of(lb), layout_of(ld))) return CUBLAS_STATUS_INVALID_VALUE;
  if (bytes > 0 && !is_device_address(workspace)) return CUBLAS_STATUS_INVALID_VALUE;
  return multiply(product_of(how, layout_of(la), layout_of(lb), layout_of(ld)), a, b, d, stream, "cublasLtMatmul");
}
