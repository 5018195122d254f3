// The part of NCCL's interface that lib/comm/nccl calls, for the imitation in gpu.cpp.
#pragma once

#include <array>
#include <cstddef>

#include "cuda_runtime_api.h"

enum ncclResult_t { ncclSuccess, ncclUnhandledCudaError, ncclInvalidUsage = 5, ncclRemoteError, ncclInProgress };
enum ncclDataType_t { ncclUint8, ncclInt32, ncclInt64, ncclFloat16, ncclBfloat16, ncclFloat32, ncclFloat64 };
enum ncclRedOp_t { ncclSum, ncclMax, ncclMin };
using ncclComm_t = struct ImitatedComm*;
struct ncclUniqueId {
  std::array<char, 128> internal;
};

struct ncclConfig_t {
  int maxCTAs;
};
#define NCCL_CONFIG_INITIALIZER \
  { 0 }

const char* ncclGetErrorString(ncclResult_t status);
const char* ncclGetLastError(ncclComm_t communicator);
ncclResult_t ncclGetVersion(int* version);
ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config);
ncclResult_t ncclCommFinalize(ncclComm_t communicator);
ncclResult_t ncclCommDestroy(ncclComm_t communicator);
ncclResult_t ncclCommAbort(ncclComm_t communicator);
ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* state);
ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
ncclResult_t ncclAllReduce(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t communicator, cudaStream_t stream);
ncclResult_t ncclAllGather(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclComm_t communicator,
                           cudaStream_t stream);
ncclResult_t ncclReduceScatter(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t communicator, cudaStream_t stream);
ncclResult_t ncclBroadcast(const void* in, void* out, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t communicator, cudaStream_t stream);
ncclResult_t ncclSend(const void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream);
ncclResult_t ncclRecv(void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream);
